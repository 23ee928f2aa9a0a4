"""How a grid is refined on all rows, from what a sample shows."""

from __future__ import annotations

import numpy as np
import pytest

from refocal.engine import scoring
from refocal.fitting import refine
from refocal.fitting.objective import as_objective
from refocal.fitting.solution import Surface

pytestmark = [pytest.mark.core, pytest.mark.numerics]


class Shown:
    """A dataset whose rows are a surface; what is asked of them is noted."""

    def __init__(self, log_loss, error):
        self.log_loss, self.error, self.asked = log_loss, error, []

    def score_points(self, points, resolutions, bits):
        at = tuple(np.array(points, dtype=int).T)
        self.asked += [(bits, point) for point in points]
        off = 0.0 if bits == scoring.FINE_BITS else 5e-5 * np.cos(7.0 * at[0] + 3.0 * at[1])
        return self.log_loss[at], self.error[at] + (off if resolutions else 1.0)


@pytest.fixture(autouse=True)
def ask_surfaces(monkeypatch):
    monkeypatch.setattr(refine, "score_points", Shown.score_points)


def surfaces(seed):
    """What a sample shows, γ and T being the indices of a point, and what all rows would."""
    rng = np.random.default_rng(seed)
    gamma, temperature = np.meshgrid(np.arange(7.0), np.arange(30.0), indexing="ij")
    at_g, at_t = rng.uniform(1, 5), rng.uniform(5, 25)
    log_loss = 1.0 + 0.01 * (gamma - at_g) ** 2 + 0.001 * (temperature - at_t) ** 2
    error = 0.01 + 0.001 * (gamma - at_g + 1.0) ** 2 + 0.0004 * (temperature - at_t - 3.0) ** 2
    shown = Surface(
        gamma, temperature, log_loss + 0.02 * rng.random(log_loss.shape), error + 0.01 * rng.random(error.shape)
    )
    return shown, log_loss, error


@pytest.mark.parametrize("tolerance", [None, 0.01])
@pytest.mark.parametrize("seed", range(5))
def test_refining_ends_where_nothing_around_is_better(seed, tolerance):
    shown, log_loss, error = surfaces(seed)
    problem = Shown(log_loss, error)
    surface, at = refine.refine(problem, as_objective("ece", 0, "tests"), shown, tolerance)
    allowed = np.where(log_loss <= log_loss.min() * (1.0 + (np.inf if tolerance is None else tolerance)), error, np.inf)
    best = np.unravel_index(allowed.argmin(), error.shape)
    assert at == tuple(best)  # one valley: what is best around is best of all
    assert surface.value[at] == error[at]  # measured finely
    measured = {tuple(map(int, point)) for _, point in problem.asked}
    around = {(at[0] + i, at[1] + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} & set(np.ndindex(error.shape))
    assert around <= measured
    fine = {tuple(map(int, point)) for bits, point in problem.asked if bits == scoring.FINE_BITS}
    assert at in fine
    assert len(fine) >= refine.CONTENDERS
    assert len(measured) < 100  # of 210
    # What was not measured is as the sample showed it.
    rest = tuple(np.array([p for p in np.ndindex(error.shape) if p not in measured]).T)
    np.testing.assert_array_equal(surface.value[rest], shown.value[rest])
    np.testing.assert_array_equal(surface.log_loss[rest], shown.log_loss[rest])
    known = tuple(np.array(sorted(measured)).T)
    np.testing.assert_array_equal(surface.log_loss[known], log_loss[known])


def test_a_score_without_histograms_is_measured_once():
    shown, log_loss, error = surfaces(0)
    problem = Shown(log_loss, error)
    squared = as_objective("brier_score", 0, "tests")
    surface, at = refine.refine(problem, squared, shown, None)
    assert len(problem.asked) == len(set(problem.asked))
    assert {bits for bits, _ in problem.asked} == {scoring.SEARCH_BITS}
    assert surface.value[at] == error.min() + 1.0


def test_the_first_points_are_the_samples_best():
    shown, _, _ = surfaces(1)
    first = refine._first_points(shown, None)
    assert len(first) == len(set(first)) == scoring.POINTS
    assert first[0] == np.unravel_index(shown.log_loss.argmin(), shown.value.shape)
    of_gamma = {(i, int(j)) for i, j in enumerate(shown.value.argmin(axis=1))}
    assert of_gamma <= set(first)  # seven values of γ, at most eight of which come first
    assert np.unravel_index(shown.value.argmin(), shown.value.shape) in first[:2]
    within = refine._first_points(shown, 0.001)
    assert all(shown.log_loss[at] <= 1.001 * shown.log_loss.min() for at in within)


def test_neighbours_stay_on_the_grid():
    assert sorted(refine._around((3, 4), (0, 3))) == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert sorted(refine._around((5,), (1,), (2,))) == [(0,), (1,), (2,), (3,)]
    assert len(refine._around((3, 3), (1, 1), (1, 1))) == 9
