"""`find`: objectives, ways of searching, grids and lines, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from helpers import draw_logits, focal_log_loss
from refocal import FocalTemperatureScaling, TemperatureScaling, metrics
from refocal.calibrators.fitted import focal_point
from refocal.engine import Block
from refocal.errors import ParameterError
from refocal.fitting import PAPER_GAMMAS, PAPER_TEMPERATURES, find
from refocal.fitting.newton import newton
from refocal.fitting.temperature import newton_temperature
from refocal.maps import focal_temperature

pytestmark = [pytest.mark.core, pytest.mark.numerics]


@pytest.mark.parametrize("objective", ["auto", "ece"])
def test_where_every_row_is_right_doubt_is_left(objective):
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=3000)
    logits = np.eye(2)[labels] * 8.0 + rng.normal(size=(3000, 2))
    labels[rng.random(3000) < 0.01] = 0  # some of class 1 are mistaken, none of the first
    some = np.flatnonzero(labels == np.argmax(logits, axis=1))[:100]
    fitted = FocalTemperatureScaling(objective=objective).fit(logits[some], labels[some])
    # Each of the 100 rows counts as right with probability 101/102.
    margin = np.abs(logits[some, 1] - logits[some, 0])
    doubtful = [np.mean(np.logaddexp(0.0, margin / t) - 101 / 102 * margin / t) for t in np.geomspace(0.1, 10.0, 2001)]
    np.testing.assert_allclose(fitted.temperature_, np.geomspace(0.1, 10.0, 2001)[np.argmin(doubtful)], rtol=3e-3)
    assert fitted.gamma_ == 0.0
    assert "every row is right" in fitted.solution_.message
    assert metrics.log_loss(labels, fitted.predict_log_proba(logits)) < 0.1


def brute_force_grid(logits, labels, gammas, temperatures):
    values = np.empty((len(gammas), len(temperatures)))
    for i, gamma in enumerate(gammas):
        for j, temperature in enumerate(temperatures):
            p = np.exp(focal_temperature(logits, gamma, temperature))
            values[i, j] = metrics.expected_calibration_error(labels, p)
    return values


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_the_grid_search_finds_the_best_cell_of_the_grid(seed):
    logits, labels = draw_logits(1500, 10, seed)
    logits *= 1.5
    gammas, temperatures = PAPER_GAMMAS, PAPER_TEMPERATURES[20::3]
    values = brute_force_grid(logits, labels, gammas, temperatures)
    solution, surface = find(
        Block(logits, labels), objective="ece", search="grid", gammas=gammas, temperatures=temperatures
    )
    assert solution.value == pytest.approx(values.min(), abs=1e-9)
    assert surface.value.shape == values.shape
    # Points that cannot be the best are filled in along T; they never look better than they are bound to be.
    apart = np.abs(surface.value - values)
    assert apart.mean() < 5e-4
    assert apart.max() < 1e-2
    assert (surface.value >= values.min() - 1e-9).all()
    p = np.exp(focal_temperature(logits, solution.gamma, solution.temperature))
    assert solution.value == pytest.approx(metrics.expected_calibration_error(labels, p), abs=1e-12)
    exact = [[focal_log_loss(logits, labels, g, t) for t in temperatures[::20]] for g in gammas]
    np.testing.assert_allclose(surface.log_loss[:, ::20], exact, rtol=1e-6)


def test_the_papers_grid_is_the_default_and_by_log_loss_agrees_with_newton():
    logits, labels = draw_logits(800, 4)
    solution, surface = find(Block(logits, labels), objective="nll", search="grid")
    assert surface.value.shape == (9, 500)
    assert (surface.temperature.min(), surface.temperature.max()) == (0.01, 5.0)
    best = newton(Block(logits, labels))
    assert best.value <= solution.value <= best.value + 5e-4


def test_the_tolerance_keeps_the_log_loss():
    logits, labels = draw_logits(1500, 5)
    logits = 2.0 * logits
    for tolerance in (0.0, 0.001, 0.02):
        solution, surface = find(Block(logits, labels), objective="ece", search="auto", nll_tolerance=tolerance)
        chosen = focal_log_loss(logits, labels, solution.gamma, solution.temperature)
        assert chosen <= surface.log_loss.min() * (1 + tolerance) * (1 + 1e-6)


def test_the_line_search_stays_on_its_line():
    logits, labels = draw_logits(600, 5)
    solution, surface = find(
        Block(logits, labels), objective="ece", search="line", temperatures=PAPER_TEMPERATURES[::10]
    )
    fit = np.polyfit(surface.gamma, surface.temperature, 1)
    np.testing.assert_allclose(np.polyval(fit, surface.gamma), surface.temperature, atol=1e-9)
    assert solution.value == surface.value.min()
    assert len(surface.gamma) <= 50


def test_metrics_by_name_and_callables():
    logits, labels = draw_logits(400, 3)
    options = {"search": "grid", "gammas": [0.0, 1.0], "temperatures": [0.5, 1.0, 2.0]}
    named, surface = find(Block(logits, labels), objective="brier_score", **options)

    def squared(y, p):
        return np.mean(np.sum((p - np.eye(3)[y]) ** 2, axis=1))

    own, _ = find(Block(logits, labels), objective=squared, **options)
    assert (named.gamma, named.temperature) == (own.gamma, own.temperature)
    assert named.value == pytest.approx(own.value, rel=1e-12)
    assert surface.value.shape == (2, 3)


def test_weights_count_as_repetitions():
    logits, labels = draw_logits(500, 4)
    rng = np.random.default_rng(5)
    times = rng.integers(0, 4, size=500)
    repeated = Block(np.repeat(logits, times, axis=0), np.repeat(labels, times))
    weighted = Block(logits, labels, times.astype(np.float64))
    for search in (newton_temperature, newton):
        a, b = search(repeated), search(weighted)
        assert a.temperature == pytest.approx(b.temperature, rel=1e-7)
        assert a.value == pytest.approx(b.value, rel=1e-12)
    options = {"search": "grid", "gammas": [0.0, 0.5], "temperatures": np.linspace(0.5, 2.0, 31)}
    for objective in ("ece", "auto"):
        (a, _), (b, _) = (find(rows, objective=objective, **options) for rows in (repeated, weighted))
        assert (a.gamma, a.temperature) == (b.gamma, b.temperature)
        assert a.value == pytest.approx(b.value, rel=1e-9)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"objective": "accuracy"}, "'objective' of find must be one of 'auto', 'nll', 'ece', .*Got 'accuracy'"),
        ({"objective": 3}, "'objective' of find"),
        ({"search": "random"}, "'search' of find must be one of 'auto', 'newton', 'grid', 'line'. Got 'random'"),
        ({"search": "newton"}, "'search' of find must be 'auto', 'grid' or 'line' for objective='ece'"),
        ({"gammas": [-1.0, 0.0]}, r"'gammas' of find must be .* greater than -1. Got \[-1.0, 0.0\]"),
        ({"temperatures": []}, "'temperatures' of find"),
        ({"temperatures": "warm"}, "'temperatures' of find must be .*Got 'warm'"),
        ({"nll_tolerance": -0.1}, "'nll_tolerance' of find must be None, inf or a finite number at least 0"),
        ({"objective": "nll", "gammas": np.nan}, "'gammas' of find must be .* finite and greater than -1. Got nan"),
        ({"objective": "nll", "gammas": -2.0}, "'gammas' of find must be .* greater than -1. Got -2.0"),
        ({"objective": "nll", "temperatures": 0.0}, "'temperatures' of find must be .* greater than 0. Got 0.0"),
        (
            {"objective": "nll", "search": "newton", "temperatures": [1.0, 2.0]},
            r"'temperatures' of find must be None or one number for search='newton'. Got \[1.0, 2.0\]",
        ),
    ],
)
def test_bad_options(options, words):
    logits, labels = draw_logits(50, 3)
    with pytest.raises(ParameterError, match=words):
        find(Block(logits, labels), **{"objective": "ece", "search": "auto", **options})


def test_points_of_a_grid_are_tried_for_the_log_loss_too():
    logits, labels = draw_logits(400, 3)
    found, surface = find(
        Block(logits, labels), objective="nll", search="auto", gammas=0.0, temperatures=[0.5, 1.0, 4.0]
    )
    losses = [-special.log_softmax(logits / t, axis=1)[np.arange(400), labels].mean() for t in (0.5, 1.0, 4.0)]
    np.testing.assert_allclose(surface.log_loss, [losses], rtol=1e-9)
    assert found.temperature == (0.5, 1.0, 4.0)[int(np.argmin(losses))]


@pytest.mark.slow
def test_methods_fitted_on_one_dataset_share_their_passes(monkeypatch):
    """What `compare` saves by fitting many methods on one data set."""
    logits, labels = draw_logits(2000, 10)
    gone_through = []
    original = Block._over_parts

    def counted(self, *arguments, **options):
        gone_through.append(self.n_rows)
        return original(self, *arguments, **options)

    monkeypatch.setattr(Block, "_over_parts", counted)

    def fit_all(rows):
        gone_through.clear()
        models = [TemperatureScaling(), FocalTemperatureScaling(), FocalTemperatureScaling(objective="ece")]
        return [focal_point(model.fit(*rows).chain_) for model in models], len(gone_through)

    alone, passes_alone = fit_all((logits, labels))
    together, passes_together = fit_all((TemperatureScaling().dataset(logits, labels),))
    assert together == alone
    assert passes_together < 0.6 * passes_alone
    assert fit_all((logits, labels)) == (alone, passes_alone)  # nothing is remembered of arrays


def test_the_papers_grid_is_the_papers():
    assert PAPER_GAMMAS == (-0.5, -0.25, 0.05, 0.25, 0.37, 0.5, 0.75, 1.0, 5.0)
    assert (len(PAPER_TEMPERATURES), PAPER_TEMPERATURES[0], PAPER_TEMPERATURES[-1]) == (500, 0.01, 5.0)
    np.testing.assert_allclose(np.diff(PAPER_TEMPERATURES), 0.01, rtol=1e-9)


def test_the_line_runs_through_small_temperatures_too():
    logits, labels = draw_logits(2000, 4)
    found, path = find(Block(0.1 * logits, labels), objective="ece", search="line")
    assert 0.0 < path.temperature.min() < found.temperature < 0.5
    first, second = (np.interp(g, path.gamma, path.temperature) for g in (0.0, 1.0))
    np.testing.assert_allclose(path.temperature, first + (second - first) * path.gamma, atol=1e-9)
    assert path.to_dict()["value"] == path.value.tolist()
