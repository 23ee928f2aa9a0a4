"""The grid search against a plain loop over its points, and what it costs."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from helpers import draw_logits
from refocal import FocalTemperatureScaling, TemperatureScaling, metrics
from refocal.engine import Block
from refocal.engine.scoring import score_points
from refocal.fitting import find, grid, search
from refocal.fitting.objective import Objective, as_objective
from refocal.io import blocks
from refocal.maps import focal_temperature

pytestmark = [pytest.mark.core, pytest.mark.numerics]

GAMMAS = np.array([-0.5, 0.0, 1.0, 4.0])
TEMPERATURES = np.geomspace(0.2, 4.0, 80)
ECE = as_objective("ece", 0, "tests")


@cache
def by_loop(seed):
    """Log-loss and ECE of every point of the grid, one at a time."""
    return every_point(*draw_logits(250, 4, seed, scale=3.0, temperature=1.7), TEMPERATURES)


def every_point(logits, labels, temperatures):
    found = np.empty((2, len(GAMMAS), len(temperatures)))
    for i, gamma in enumerate(GAMMAS):
        for j, temperature in enumerate(temperatures):
            log_p = focal_temperature(logits, gamma, temperature)
            found[0, i, j] = -log_p[np.arange(len(labels)), labels].mean()
            found[1, i, j] = metrics.expected_calibration_error(labels, np.exp(log_p))
    return found


@pytest.mark.parametrize("weighted", [False, True])
def test_of_two_classes_the_error_of_class_1_is_minimised(weighted):
    logits, labels = draw_logits(400, 2, 3, scale=2.0, temperature=1.7)
    logits[:, 1] -= 1.0  # the top class is nearly always the other one
    weight = np.random.default_rng(0).random(400) if weighted else None
    temperatures = np.geomspace(0.2, 4.0, 60)
    expected = np.array(
        [
            [
                metrics.expected_calibration_error(
                    labels, np.exp(focal_temperature(logits, gamma, t))[:, 1], sample_weight=weight
                )
                for t in temperatures
            ]
            for gamma in GAMMAS
        ]
    )
    found = grid.scan_grid(Block(logits, labels, weight), ECE, GAMMAS, temperatures, each_gamma=True)
    np.testing.assert_allclose(found.value.min(axis=1), expected.min(axis=1), atol=1e-12)
    np.testing.assert_array_equal(found.value.argmin(axis=1), expected.argmin(axis=1))
    points = [(float(GAMMAS[i]), float(temperatures[j])) for i, j in ((0, 5), (2, 40), (3, 59))]
    arrays = (logits, labels) if weight is None else (logits, labels, weight)
    in_blocks = blocks([tuple(each[part] for each in arrays) for part in (slice(150), slice(150, None))])
    in_blocks.start()
    for rows in (in_blocks, Block(logits, labels, weight)):
        exact = [expected[0, 5], expected[2, 40], expected[3, 59]]
        np.testing.assert_allclose(score_points(rows, points, (15,), bits=12)[1], exact, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_the_best_point_is_that_of_a_loop(seed):
    logits, labels = draw_logits(250, 4, seed, scale=3.0, temperature=1.7)
    log_loss, error = by_loop(seed)
    every = grid.scan_grid(Block(logits, labels), ECE, GAMMAS, TEMPERATURES, each_gamma=True)
    np.testing.assert_allclose(every.value.min(axis=1), error.min(axis=1), atol=1e-12)
    np.testing.assert_array_equal(every.value.argmin(axis=1), error.argmin(axis=1))
    found = grid.scan_grid(Block(logits, labels), ECE, GAMMAS, TEMPERATURES)
    assert np.unravel_index(found.value.argmin(), error.shape) == np.unravel_index(error.argmin(), error.shape)
    np.testing.assert_allclose(found.log_loss, log_loss, rtol=1e-6)
    # Points that were ruled out are filled in: near to what they are, and never below what they must be.
    assert np.abs(found.value - error).mean() < 2e-3
    assert (found.value >= error.min() - 1e-12).all()


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_brier_score_of_the_predictions_is_that_of_the_metric(n_classes, weighted):
    logits, labels = draw_logits(150, n_classes, 0, scale=3.0, temperature=1.7)
    weight = np.linspace(0.5, 2.0, 150) if weighted else None
    options = {"search": "grid", "gammas": GAMMAS, "temperatures": np.geomspace(0.2, 4.0, 40)}

    def slowly(y, p, **weights):
        return metrics.brier_score(y, p, **weights)

    expected, exact = find(Block(logits, labels, weight), objective=slowly, **options)
    found, surface = find(Block(logits, labels, weight), objective="brier_score", **options)
    assert (found.gamma, found.temperature) == (expected.gamma, expected.temperature)
    assert found.value == pytest.approx(expected.value, rel=1e-12)
    assert found.passes < expected.passes  # a metric that is known is interpolated; a callable is asked at every point
    np.testing.assert_allclose(surface.value, exact.value, rtol=1e-4)


@pytest.mark.parametrize("tolerance", [0.0, 0.003, 0.1])
def test_a_tolerance_picks_among_the_points_within_it(tolerance):
    logits, labels = draw_logits(250, 4, 3, scale=3.0, temperature=1.7)
    log_loss, error = np.copy(by_loop(3))
    error[log_loss > (1.0 + tolerance) * log_loss.min()] = np.inf
    i, j = np.unravel_index(error.argmin(), error.shape)
    solution, _ = find(
        Block(logits, labels),
        objective="ece",
        search="grid",
        gammas=GAMMAS,
        temperatures=TEMPERATURES,
        nll_tolerance=tolerance,
    )
    assert (solution.gamma, solution.temperature) == (GAMMAS[i], TEMPERATURES[j])


def test_the_default_rule_weighs_log_loss_against_error():
    logits, labels = draw_logits(1300, 4, 4, scale=3.0, temperature=1.7)
    temperatures = np.geomspace(0.8, 3.0, 12)
    log_loss, _ = every_point(logits, labels, temperatures)
    goal = as_objective("auto", len(labels), "tests")
    assert goal.resolutions == (5, 8, 12)  # 100 rows for each bin
    error = np.zeros_like(log_loss)
    for i, gamma in enumerate(GAMMAS):
        for j, temperature in enumerate(temperatures):
            p = np.exp(focal_temperature(logits, gamma, temperature))
            error[i, j] = np.mean([metrics.expected_calibration_error(labels, p, n_bins=n) for n in goal.resolutions])
    score = log_loss / log_loss.min() + 5.0 * np.sqrt(1300 / 2000) * error
    score[log_loss > 1.02 * log_loss.min()] = np.inf
    i, j = np.unravel_index(score.argmin(), score.shape)
    options = {"gammas": GAMMAS, "temperatures": temperatures}
    solution, _ = find(Block(logits, labels), objective="auto", search="grid", **options)
    assert (solution.gamma, solution.temperature) == (GAMMAS[i], temperatures[j])
    assert solution.value == pytest.approx(score[i, j], rel=1e-6)


def test_the_default_rule_is_the_documented_one():
    rules = {n: as_objective("auto", n, "tests") for n in (400, 500, 799, 800, 1300, 2000, 5000)}
    bins = {400: 1, 500: 1, 799: 1, 800: 2, 1300: 3, 2000: 5, 5000: 7}
    for n, rule in rules.items():
        assert rule.resolutions == (5, 8, 12, 15, 20, 30, 50)[: bins[n]]
        assert rule.nll_tolerance == 0.02
        assert rule.error_weight == pytest.approx(5.0 * min(1.0, n / 2000) ** 0.5, rel=1e-12)
    separable = rules[5000].score(np.array([1e-12, 1e-6]), np.array([0.1, 0.1]))  # no ratio to nothing
    np.testing.assert_allclose(separable, [0.5 + 1e-6, 0.5 + 1.0], rtol=1e-12)


@pytest.mark.parametrize("objective", ["ece", "nll"])
def test_few_temperatures_are_all_exact(objective):
    logits, labels = draw_logits(250, 4, 5, scale=3.0, temperature=1.7)
    temperatures = TEMPERATURES[::8]
    loop = dict(zip(("nll", "ece"), every_point(logits, labels, temperatures), strict=True))
    found = grid.scan_grid(Block(logits, labels), as_objective(objective, 0, "tests"), GAMMAS, temperatures)
    np.testing.assert_allclose(found.value, loop[objective], rtol=1e-10)
    np.testing.assert_allclose(found.log_loss, loop["nll"], rtol=1e-10)
    # Float32 logits too: what is not interpolated is not looked at roughly either.
    single = logits.astype(np.float32)
    found = grid.scan_grid(Block(single, labels), as_objective("nll", 0, "tests"), GAMMAS, temperatures)
    exact, _ = every_point(single.astype(np.float64), labels, temperatures)
    np.testing.assert_allclose(found.value, exact, rtol=1e-10)


def test_a_fine_grid_costs_little_more_than_its_nodes():
    """Between the nodes values are interpolated: the passes depend on the range of a grid, not on its points."""
    logits, labels = draw_logits(250, 4, 6, scale=3.0, temperature=1.7)
    fine = np.geomspace(0.2, 4.0, 2000)
    told = []
    problem = Block(logits, labels)
    solution, _ = find(problem, objective="ece", search="grid", gammas=GAMMAS, temperatures=fine, progress=told.append)
    nodes, _ = grid.interpolation(np.log(fine))
    assert len(nodes) == 12 + int(np.ceil(6.0 * np.log(20.0)))
    np.testing.assert_allclose(told, np.arange(1, len(nodes) + 1) / len(nodes))
    assert solution.passes <= len(GAMMAS) * len(nodes) + 50  # of 8000 points
    n_known = len(problem.cache)
    again, _ = find(problem, objective="nll", search="grid", gammas=GAMMAS, temperatures=fine)
    assert len(problem.cache) == n_known
    assert again.passes < solution.passes


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["auto", "ece", "nll"])
def test_many_rows_in_memory_are_looked_at_by_way_of_a_sample(objective, monkeypatch):
    logits, labels = draw_logits(12_000, 4, 8, scale=3.0, temperature=1.7)
    options = {"objective": objective, "search": "grid", "gammas": GAMMAS, "temperatures": TEMPERATURES}
    exact, _ = find(Block(logits, labels), **options)
    monkeypatch.setattr(search, "TABLE", 0)
    found, surface = find(Block(logits, labels), **options)
    assert (found.gamma, found.temperature) == (exact.gamma, exact.temperature)
    assert found.value == pytest.approx(exact.value, abs=5e-4)  # five errors, each known to 1e-4
    assert found.passes < 10 < exact.passes  # those on all rows
    assert surface.value.shape == (4, 80)


@pytest.mark.slow
def test_a_tolerance_counts_behind_a_sample_too(monkeypatch):
    """No tolerance leaves the minimum of the log-loss alone; without a limit another point has a lower error."""
    logits, labels = draw_logits(12_000, 4, 8, scale=3.0, temperature=1.7)
    rows = np.arange(12_000)
    labels = np.where(rows % 4 == 0, rows // 4 % 4, labels)  # a quarter has nothing to do with the logits
    monkeypatch.setattr(search, "TABLE", 0)
    options = {"search": "grid", "gammas": GAMMAS, "temperatures": TEMPERATURES}
    lowest, _ = find(Block(logits, labels), objective="nll", **options)
    strict, _ = find(Block(logits, labels), objective="ece", nll_tolerance=0.0, **options)
    free, _ = find(Block(logits, labels), objective="ece", nll_tolerance=None, **options)
    assert (strict.gamma, strict.temperature) == (lowest.gamma, lowest.temperature)
    assert free.value < strict.value


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
@pytest.mark.parametrize("table", [search.TABLE, 0], ids=["all rows", "sample"])
def test_with_many_rows_the_optimum_by_log_loss_is_a_candidate(seed, table, monkeypatch):
    monkeypatch.setattr(search, "TABLE", table)
    monkeypatch.setattr(search, "MANY_ROWS", 8000)
    logits, labels = draw_logits(8000, 3, seed, scale=3.0, temperature=1.7)
    models = (FocalTemperatureScaling(), TemperatureScaling(), FocalTemperatureScaling(objective="nll"))
    scores = []
    for model in models:
        p = model.fit(logits, labels).predict_proba(logits)
        errors = [metrics.expected_calibration_error(labels, p, n_bins=n) for n in (5, 8, 12, 15, 20, 30, 50)]
        scores.append((metrics.log_loss(labels, np.log(p)), np.mean(errors)))
    loss, error = np.array(scores).T
    default, *others = loss / loss.min() + 5.0 * error
    assert default <= min(others) + 1e-4  # what histograms leave in doubt of an error
    assert models[0].path_.value.shape == (9, 121)
    fewer = FocalTemperatureScaling().fit(logits[:-1], labels[:-1])
    assert fewer.temperature_ in fewer.path_.temperature


def test_interpolation_is_exact_for_polynomials():
    points = np.append(np.linspace(-1.0, 2.0, 50), 0.5)  # the middle of the range is a node of an odd number of them
    nodes, weights = grid.interpolation(points)
    assert len(nodes) == 30
    assert nodes.min() > -1.0
    assert nodes.max() < 2.0
    shifted = (nodes - 0.5) / 1.5
    for degree in (0, 1, 7, 29):
        np.testing.assert_allclose(weights @ shifted**degree, ((points - 0.5) / 1.5) ** degree, atol=1e-11)
    on_a_node = np.append(points, nodes[3])
    np.testing.assert_array_equal(grid.interpolation(on_a_node)[1][-1], np.eye(30)[3])
    few = np.linspace(0.0, 1.0, 18)
    np.testing.assert_array_equal(grid.interpolation(few)[1], np.eye(18))
    assert grid.interpolation(np.linspace(0.0, 1.0, 19))[1].shape == (19, 18)


def test_the_edge_of_the_grid_is_said():
    logits, labels = draw_logits(250, 4, 7, scale=3.0, temperature=1.7)
    options = {"objective": "nll", "search": "grid", "gammas": [0.0]}
    for temperatures in ([0.1, 0.2, 0.3], [5.0, 10.0, 20.0]):
        solution, _ = find(Block(logits, labels), temperatures=temperatures, **options)
        assert solution.status == "at a bound"
        assert "give a wider range of temperatures" in solution.message
    for temperatures in ([1.0, 1.7, 4.0], [1.7]):
        solution, _ = find(Block(logits, labels), temperatures=temperatures, **options)
        assert (solution.status, solution.temperature) == ("converged", 1.7)


def test_equal_scores_are_decided_by_the_log_loss():
    surface = grid.Surface(np.zeros((1, 3)), np.ones((1, 3)), np.array([[0.5, 0.3, 0.4]]), np.array([[0.1, 0.1, 0.2]]))
    assert grid.by_score(surface.log_loss, surface.value, None).tolist() == [1, 0, 2]
    assert grid.by_score(surface.log_loss, surface.value, 0.5).tolist() == [1, 2]
    assert Objective("none").score(surface.log_loss, surface.value) is surface.log_loss


@pytest.mark.parametrize("seed", [0, 4])
def test_tied_scores_are_no_less_tied_in_another_order_of_the_rows(seed):
    """The last digit of T, which depends on the order of the rows, leaves equal confidences apart or not."""
    rng = np.random.default_rng(seed)
    scores = 2.0 * rng.normal(size=(600, 4))
    labels = np.argmax(0.7 * scores + rng.gumbel(size=scores.shape), axis=1)
    logits = np.round(2.0 * scores)
    expected = TemperatureScaling(objective="ece").fit(logits, labels).solution_.value
    for _ in range(4):
        order = rng.permutation(600)
        fitted = TemperatureScaling(objective="ece").fit(logits[order], labels[order])
        assert fitted.solution_.value == pytest.approx(expected, rel=1e-9)
