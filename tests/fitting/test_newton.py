"""Newton's method in γ and the temperature against general-purpose optimisers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from helpers import draw_logits, focal_log_loss
from refocal.engine import Block
from refocal.errors import DataError
from refocal.fitting.newton import FocalPoint, Free, _clearly_worse, _descend, _joins, newton
from refocal.fitting.solution import Solution
from refocal.fitting.temperature import DRAFT, GAMMA_BOUNDS, newton_temperature, scale_of
from refocal.maps import inverse_focal

pytestmark = [pytest.mark.core, pytest.mark.numerics]


@pytest.mark.slow
def test_a_far_minimum_on_few_rows_does_not_mislead():
    log_p, labels = draw_logits(24_000, 4)
    logits = 1.7 * inverse_focal(log_p, 1.0)
    found = newton(Block(logits, labels))
    # The first 300 rows have their least log-loss near γ = 15, where all rows have a second minimum.
    least = minimize(lambda point: focal_log_loss(logits, labels, *point), [1.0, 1.7], method="Nelder-Mead")
    assert found.value <= least.fun + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gamma", "temperature", "n_classes"), [(-0.6, 0.5, 5), (0.0, 1.0, 10), (3.0, 55.0, 10), (20.0, 2.0, 3)]
)
def test_newton_finds_the_minimum_in_both_parameters(gamma, temperature, n_classes):
    logits, labels = draw_logits(3000, n_classes, seed=1)
    logits = inverse_focal(logits, gamma) * temperature
    ours = newton(Block(logits, labels))
    assert ours.status == "converged"
    assert ours.value == pytest.approx(focal_log_loss(logits, labels, ours.gamma, ours.temperature), rel=1e-12)
    starts = [(np.log1p(g), np.log(temperature * t)) for g, t in ((-0.7, 0.7), (0.5, 1.5), (3.0, 0.7))]
    found = [
        minimize(
            lambda u: focal_log_loss(logits, labels, max(np.expm1(u[0]), GAMMA_BOUNDS[0]), np.exp(u[1])),
            start,
            method="Nelder-Mead",
            options={"xatol": 1e-7, "fatol": 1e-13, "maxfev": 2000},
        )
        for start in starts
    ]
    best = min(found, key=lambda f: f.fun)
    assert ours.value <= best.fun + 1e-11
    # The generating parameters lie where the data say, within a few standard errors.
    assert np.log1p(ours.gamma) == pytest.approx(np.log1p(gamma), abs=0.25)


@pytest.mark.parametrize("seed", range(8))
def test_newton_is_never_worse_than_temperature_scaling_or_nothing(seed):
    rng = np.random.default_rng(seed)
    logits, labels = draw_logits(300, int(rng.integers(2, 20)), seed, scale=float(rng.uniform(0.3, 8.0)))
    labels = np.where(rng.random(300) < 0.3, rng.integers(0, logits.shape[1], 300), labels)
    both = newton(Block(logits, labels))
    assert both.value <= newton_temperature(Block(logits, labels)).value + 1e-12
    assert both.value <= focal_log_loss(logits, labels, 0.0, 1.0)


@pytest.mark.parametrize("seed", [1, 14, 26, 45, 97, 102])  # each with two or three valleys
def test_newton_finds_the_deepest_of_several_valleys(seed):
    rng = np.random.default_rng(seed)
    n, c = int(rng.integers(300, 4000)), int(rng.integers(2, 30))
    x = (rng.normal(size=(n, c)) * rng.uniform(1, 6)).astype(np.float32)
    y = np.argmax(x / rng.uniform(0.5, 3) + rng.gumbel(size=x.shape), axis=1)
    if seed % 4 == 1:
        y = np.where(rng.uniform(size=n) < 0.05, rng.integers(c, size=n), y)
    else:
        y = np.where(rng.uniform(size=n) < 0.3, np.argmax(x, axis=1), y)
    problem = Block(x, y)
    temperatures = np.geomspace(0.02, 50.0, 60)
    gammas = (-0.9, -0.5, 0.0, 1.0, 3.0, 10.0, 30.0, 60.0, 100.0)
    lowest = min(
        -float(found.label_log_p.mean())
        for temperature in temperatures
        for found in problem.predictions(gammas, float(temperature))
    )
    assert newton(problem).value < lowest


@pytest.mark.parametrize("share", [0.05, 0.95])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_mask_of_finite_logits_is_one_of_infinite_ones(dtype, share):
    logits, labels = draw_logits(1500, 20)
    rng = np.random.default_rng(3)
    hidden = rng.random(logits.shape) < share
    hidden[np.arange(len(labels)), labels] = False
    found = []
    for value in (-np.inf, -1e4, -1e9, -1e20, float(np.finfo(np.float32).min), -1e90):
        if value > -1e39 or value == -np.inf or dtype == np.float64:
            masked = np.where(hidden, value, 1.6 * logits).astype(dtype)
            alone, both = newton_temperature(Block(masked, labels)), newton(Block(masked, labels))
            found.append((alone.temperature, alone.value, both.value))
            assert (alone.status, both.status) == ("converged", "converged")
    np.testing.assert_allclose(found, np.broadcast_to(found[0], (len(found), 3)), rtol=1e-6)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_a_mask_in_half_precision(kind):
    logits, labels = draw_logits(400, 6)
    hidden = np.random.default_rng(3).random(logits.shape) < 0.4
    hidden[np.arange(len(labels)), labels] = False
    found = []
    for value in (-torch.inf, torch.finfo(kind).min):
        masked = torch.tensor(logits).masked_fill(torch.tensor(hidden), value).to(kind)
        at = newton(Block(masked, torch.tensor(labels)))  # by array functions, in single precision
        found.append((at.value, at.temperature))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


@pytest.mark.parametrize("factor", [1e-300, 1e-101, 1e101, 1e300])
def test_a_scale_that_cannot_be_squared_is_refused(factor):
    logits, labels = draw_logits(100, 3)
    for search in (newton_temperature, newton):
        with pytest.raises(DataError, match=r"distances lie between 1e-100 and 1e\+100.*Got a mean distance of"):
            search(Block(factor * logits, labels))


def test_of_constant_rows_nothing_is_searched():
    flat = Block(np.ones((20, 3)), np.arange(20) % 3)
    for fixed in ({}, {"fixed_gamma": 2.0}, {"fixed_temperature": 1.5}):
        found = newton(flat, **fixed)
        assert (found.status, found.gamma, found.temperature) == (
            "flat",
            fixed.get("fixed_gamma", 0.0),
            fixed.get("fixed_temperature", 1.0),
        )
        assert found.value == pytest.approx(np.log(3.0), rel=1e-12)


def test_the_end_of_the_range_of_gamma_is_said():
    logits, labels = draw_logits(3000, 6, seed=2, scale=6.0)
    found = newton(Block(inverse_focal(logits, 100.0), labels))
    assert (found.status, round(found.gamma, 9)) == ("at a bound", GAMMA_BOUNDS[1])
    assert "For γ: the range is -0.9 to 100" in found.message


def test_which_points_lead_to_the_same_valley():
    end = Solution(1.0, 2.0, 0.5, "converged", "", 1)
    for point, joins in (
        ((1.0, 2.0), True),
        ((1.2, 2.2), True),
        ((1.0, 4.0), False),
        ((1.0, 1.0), False),
        ((5.0, 2.0), False),
    ):
        assert _joins(FocalPoint(*point), [end]) == joins
        assert _joins(FocalPoint(*point), [Solution(60.0, 90.0, 0.4, "converged", "", 1), end]) == joins
    assert not _joins(FocalPoint(1.0, 2.0), [])


def test_a_valley_is_left_only_where_it_is_clearly_higher():
    problem = Block(*draw_logits(2000, 4))
    best, near, far = (Solution(0.0, t, 0.0, "converged", "", 1) for t in (1.0, 1.01, 5.0))
    assert not _clearly_worse(problem, best, best)
    assert not _clearly_worse(problem, near, best)
    assert _clearly_worse(problem, far, best)
    assert not _clearly_worse(problem, best, far)
    assert not _clearly_worse(problem.part(3), far, best)  # three rows say little


def test_one_parameter_can_be_fixed():
    logits, labels = draw_logits(2000, 5)
    alone = newton(Block(logits, labels), fixed_temperature=1.3)
    assert alone.temperature == pytest.approx(1.3, rel=1e-12)
    values = [focal_log_loss(logits, labels, alone.gamma + step, 1.3) for step in (-0.02, 0.0, 0.02)]
    assert values[1] < min(values[0], values[2])
    held = newton(Block(logits, labels), fixed_gamma=2.0)
    assert held.gamma == pytest.approx(2.0, rel=1e-12)
    values = [focal_log_loss(logits, labels, 2.0, held.temperature * f) for f in (0.97, 1.0, 1.03)]
    assert values[1] < min(values[0], values[2])


def test_the_status_names_cause_and_remedy():
    logits, _ = draw_logits(200, 3)
    right = newton_temperature(Block(logits, np.argmax(logits, axis=1)))
    assert right.status == "at a bound"
    assert "every row is right" in right.message
    assert right.temperature < 1e-2
    wrong = newton_temperature(Block(logits, np.argmin(logits, axis=1)))
    assert wrong.status == "at a bound"
    assert wrong.temperature > 1e3
    both = newton(Block(logits, np.argmax(logits, axis=1)))
    assert np.isfinite([both.gamma, both.temperature, both.value]).all()
    flat = newton(Block(np.zeros((10, 3)), np.arange(10) % 3))
    assert (flat.status, flat.gamma, flat.temperature) == ("flat", 0.0, 1.0)


def test_torch_tensors_are_searched_as_they_are():
    logits, labels = draw_logits(700, 6)
    ours = Block(torch.tensor(logits), torch.tensor(labels))
    there = newton(ours)
    here = newton(Block(logits, labels))
    assert there.temperature == pytest.approx(here.temperature, rel=1e-9)
    assert there.gamma == pytest.approx(here.gamma, rel=1e-7)


@pytest.mark.parametrize(("n_classes", "gamma", "seed"), [(2, 0.0, 104), (2, 0.0, 116), (10, 3.0, 0), (10, 3.0, 1)])
def test_the_deepest_of_several_valleys_is_found_in_any_order_of_rows(n_classes, gamma, seed):
    """A few of the rows have their minima elsewhere; on all rows another valley than theirs is the deepest."""
    rng = np.random.default_rng(seed)
    if n_classes == 2:
        odds = rng.normal(-1.0, 1.5, 3000)
        labels = (rng.random(3000) < 1.0 / (1.0 + np.exp(-odds))).astype(int)
        logits = np.stack([0.0 * odds, 1.4 * odds + 0.4], axis=1)
    else:
        log_p = 2.0 * rng.normal(size=(4000, n_classes))
        labels = np.argmax(log_p + rng.gumbel(size=log_p.shape), axis=1)
        logits = 1.3 * inverse_focal(log_p, gamma=gamma)
    # A plain search from many points, by scipy.
    ends = [
        minimize(
            lambda x: focal_log_loss(logits, labels, np.expm1(x[0]), np.exp(x[1])),
            [np.log1p(start), np.log(0.64 * start + 0.9)],
            method="L-BFGS-B",
            bounds=[(np.log(0.1), np.log(101.0)), (-3.0, 6.0)],
        ).fun
        for start in (-0.7, 0.0, 2.0, 8.0, 30.0)
    ]
    for order in (slice(None), slice(None, None, -1)):
        found = newton(Block(np.ascontiguousarray(logits[order]), labels[order]))
        assert found.value == pytest.approx(min(ends), abs=2e-7)


def test_a_gamma_at_its_bound_stays_there():
    """Where γ hardly matters, a step along the bound must not leave it by a rounding, to be sent back again."""
    rng = np.random.default_rng(3)
    logits = 2.0 * rng.normal(size=(200, 2000))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    found = newton(Block(1.8 * logits, labels))
    assert (found.status, found.gamma) == ("at a bound", pytest.approx(-0.9, rel=1e-12))
    assert found.passes <= 11  # a point that goes to and fro at the bound would take all steps that are allowed
    here, *beside = (
        focal_log_loss(1.8 * logits, labels, -0.9, share * found.temperature) for share in (1.0, 1.0 - 1e-5, 1.0 + 1e-5)
    )
    assert here < min(beside)


def test_the_value_at_an_end_is_the_log_loss_there():
    """The last step is not followed by a pass: its decrease is that of a quadratic model."""
    logits, labels = draw_logits(4000, 5)
    rows = Block(1.5 * logits, labels)
    best = newton(rows)
    accuracy = DRAFT._replace(rough=False)
    start = FocalPoint(best.gamma, 1.045 * best.temperature)
    end = _descend(rows, start, Free(gamma=False, temperature=True), scale_of(rows), accuracy)
    assert end.temperature == pytest.approx(best.temperature, rel=0.01)
    here = focal_log_loss(1.5 * logits, labels, end.gamma, end.temperature)
    before = focal_log_loss(1.5 * logits, labels, best.gamma, 1.045 * best.temperature)
    assert before - here > 1e-4
    assert end.value == pytest.approx(here, abs=0.05 * (before - here))
