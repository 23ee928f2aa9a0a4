"""Decisions: against plain loops over rows and actions, and against coverage on rows whose probabilities are known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import expit
from scipy.stats import binomtest

from refocal.decide import (
    ABSTAIN,
    abstention_interval,
    automation_curve,
    best_actions,
    cost_matrix,
    evaluate_decisions,
    net_benefit_curve,
    optimal_threshold,
    predictive_values,
)
from refocal.errors import DataError, InputError, InputWarning, ParameterError
from refocal.io import Predictions

COSTS = np.array([[0.0, 2.0, 7.0, 1.5], [4.0, -1.0, 3.0, 1.5], [9.0, 9.0, 0.5, 1.5]])  # three classes, four actions


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    p = rng.dirichlet([1.0, 1.0, 1.0], 400)
    labels = np.array([rng.choice(3, p=row) for row in p])
    return labels, p, rng.random(400) + 0.2


def cheapest(row, price):
    """The cheapest action of one row, by looking at each in turn."""
    best, least = ABSTAIN, np.inf if price is None else price
    for action in range(COSTS.shape[1]):
        cost = sum(row[k] * COSTS[k, action] for k in range(3))
        if cost < least or (cost == least and best == ABSTAIN):
            best, least = action, cost
    return best, least


@pytest.mark.parametrize("price", [None, 0.9])
def test_best_actions_are_those_of_a_plain_loop(rows, price):
    _, p, _ = rows
    made = best_actions(p, COSTS, abstain=price)
    expected = [cheapest(row, price) for row in p]
    assert made.action.tolist() == [action for action, _ in expected]
    assert_allclose(made.expected_cost, [cost for _, cost in expected], rtol=1e-14)
    assert len(set(made.action.tolist())) >= 4


def test_each_row_may_have_its_own_cost_of_abstaining(rows):
    _, p, _ = rows
    prices = np.linspace(0.0, 2.0, len(p))
    made = best_actions(p, COSTS, abstain=prices)
    assert made.action.tolist() == [cheapest(row, price)[0] for row, price in zip(p, prices, strict=True)]


def test_torch_tensors_get_torch_decisions(rows):
    torch = pytest.importorskip("torch")
    _, p, _ = rows
    made = best_actions(torch.tensor(p), COSTS, abstain=0.9)
    assert isinstance(made.action, torch.Tensor)
    assert made.action.tolist() == best_actions(p, COSTS, abstain=0.9).action.tolist()


@pytest.mark.parametrize("true_positive", [0.25, 1.0, 1.5])
@pytest.mark.parametrize("price", [None, 0.3, 5.0])
def test_thresholds_are_where_the_decision_changes(price, true_positive):
    costs = cost_matrix(false_positive=1.0, false_negative=3.0, true_positive=true_positive, true_negative=-0.5)
    p = np.linspace(0.0, 1.0, 10_001)
    action = best_actions(p, costs, abstain=price).action
    low, high = (optimal_threshold(costs),) * 2 if price is None else abstention_interval(costs, price)
    away = (np.abs(p - low) > 1e-9) & (np.abs(p - high) > 1e-9)
    assert np.array_equal(action[away], np.where(p < low, 0, np.where(p > high, 1, ABSTAIN))[away])
    assert (low < high) == (price == 0.3)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_report_is_that_of_a_plain_loop(rows, weighted):
    labels, p, weight = rows
    w = weight if weighted else np.ones(len(p))
    found = evaluate_decisions(labels, p, COSTS, abstain=0.9, sample_weight=weight if weighted else None)
    actions = [cheapest(row, 0.9)[0] for row in p]
    paid = np.array([0.9 if a == ABSTAIN else COSTS[k, a] for k, a in zip(labels, actions, strict=True)])
    taken = np.array([a != ABSTAIN for a in actions])
    wrong = [a != ABSTAIN and COSTS[k, a] > min(COSTS[k]) for k, a in zip(labels, actions, strict=True)]
    assert_allclose(found.cost.value, np.average(paid, weights=w), rtol=1e-13)
    assert_allclose(found.automated.value, np.average(taken, weights=w), rtol=1e-13)
    assert_allclose(found.error.value, np.average(np.array(wrong)[taken], weights=w[taken]), rtol=1e-13)
    fixed = [np.average(COSTS[labels, a], weights=w) for a in range(4)] + [0.9]
    assert_allclose(found.fixed_cost, min(fixed), rtol=1e-13)
    assert found.fixed_action == [0, 1, 2, 3, ABSTAIN][int(np.argmin(fixed))]


def test_calibrated_probabilities_keep_their_promise_and_intervals_cover(rows):
    rng = np.random.default_rng(2)
    truth = evaluate_decisions(*drawn(rng, 1_000_000), cost_matrix(false_positive=1, false_negative=5), abstain=0.5)
    assert_allclose(truth.cost.value, truth.expected_cost, atol=4 * truth.cost.standard_error)
    inside = np.zeros(3)
    for _ in range(300):
        found = evaluate_decisions(*drawn(rng, 400), cost_matrix(false_positive=1, false_negative=5), abstain=0.5)
        pairs = zip((found.cost, found.automated, found.error), (truth.cost, truth.automated, truth.error), strict=True)
        inside += [one.low <= other.value <= one.high for one, other in pairs]
    # 300 intervals of 95 %: fewer than 273 of them cover with a probability of 0.1 %.
    assert np.all(inside >= 273)


def drawn(rng, n):
    p = rng.beta(1, 3, n)
    return (rng.random(n) < p).astype(int), p


@pytest.mark.parametrize("weighted", [False, True])
def test_net_benefit_is_that_of_a_plain_loop(weighted):
    rng = np.random.default_rng(3)
    y, p = drawn(rng, 300)
    p = p.round(2)  # some lie on a threshold
    w = rng.random(300) + 0.2 if weighted else np.ones(300)
    curve = net_benefit_curve(y, p, sample_weight=w if weighted else None)
    for t, value, everyone in zip(curve.threshold, curve.net_benefit, curve.act_on_all, strict=True):
        acted = p >= t
        true, false = w[acted & (y == 1)].sum() / w.sum(), w[acted & (y == 0)].sum() / w.sum()
        assert_allclose(value, true - false * t / (1 - t), atol=1e-12)
        rate = w[y == 1].sum() / w.sum()
        assert_allclose(everyone, rate - (1 - rate) * t / (1 - t), atol=1e-12)
    assert np.all(curve.low <= curve.net_benefit)
    assert np.all(curve.net_benefit <= curve.high)


def test_intervals_of_net_benefit_cover():
    rng = np.random.default_rng(4)
    thresholds = [0.1, 0.3, 0.5]
    truth = net_benefit_curve(*drawn(rng, 1_000_000), thresholds=thresholds).net_benefit
    curves = [net_benefit_curve(*drawn(rng, 500), thresholds=thresholds) for _ in range(300)]
    assert np.all(sum((c.low <= truth) & (truth <= c.high) for c in curves) >= 273)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_confidences_of_two_classes_are_automated_together(dtype):
    rng = np.random.default_rng(0)
    k = rng.integers(0, 101, 300)
    labels = (rng.random(300) < k / 100).astype(int)
    p = (np.stack([100 - k, k], axis=1) / 100).astype(dtype)
    with_third = automation_curve(labels, np.column_stack([p, np.zeros(300, dtype)]), n_points=300)
    for given in (p, p[:, 1]):
        curve = automation_curve(labels, given, n_points=300)
        assert_allclose(curve.share, with_third.share, rtol=1e-12)
        assert_allclose(curve.error, with_third.error, rtol=1e-12)
        assert_allclose(curve.cost, with_third.cost, rtol=1e-12)


def test_automation_is_that_of_a_plain_loop(rows):
    labels, p, weight = rows
    curve = automation_curve(labels, p, COSTS, abstain=1.1, sample_weight=weight, n_points=50)
    decided = [cheapest(row, None) for row in p]
    for i, limit in enumerate(curve.highest_expected_cost):
        taken = np.array([cost <= limit + 1e-9 for _, cost in decided])
        paid = np.array([COSTS[k, a] if t else 1.1 for k, (a, _), t in zip(labels, decided, taken, strict=True)])
        wrong = np.array([COSTS[k, a] > min(COSTS[k]) for k, (a, _) in zip(labels, decided, strict=True)])
        assert_allclose(curve.share[i], weight[taken].sum() / weight.sum(), rtol=1e-12)
        assert_allclose(curve.error[i], np.average(wrong[taken], weights=weight[taken]), rtol=1e-12)
        assert_allclose(curve.cost[i], np.average(paid, weights=weight), rtol=1e-12)
    assert_allclose(curve.share[-1], 1.0, rtol=1e-12)
    assert len(curve.share) == 17  # a third of the 50; the last action costs all rows the same


def test_rows_of_equal_confidence_are_automated_together():
    curve = automation_curve([0, 1, 0, 1, 1, 0], [0.2, 0.8, 0.2, 0.8, 0.6, 0.4], n_points=6)
    assert_allclose(curve.share, [4 / 6, 1.0])
    # A row of weight 0 is none, also where it is the most certain one.
    curve = automation_curve([1, 0, 1], [0.0, 0.2, 0.6], sample_weight=[0.0, 1.0, 1.0])
    assert_allclose(curve.share, [0.5, 1.0])
    assert_allclose(curve.error, [0.0, 0.0])


def test_intervals_stay_within_what_is_possible():
    found = evaluate_decisions([0, 0, 1], [0.0, 0.1, 1.0], [[0, 1], [1, 0]], abstain=0.4)
    for interval in (found.cost, found.automated, found.error):
        assert 0.0 <= interval.low <= interval.value <= interval.high <= 1.0
    assert found.error.high > 0.4  # three rows without a mistake say little
    assert evaluate_decisions([0, 1], [0.5, 0.5], [[0, 1], [1, 0]], abstain=0.1).error is None
    curve = automation_curve([0, 0, 1], [0.0, 0.1, 1.0])
    assert np.all(curve.error_low >= 0.0)
    assert np.all(curve.error_high <= 1.0)


def test_costs_are_settings_and_not_data():
    for wrong in ({"costs": [[0, 1], [np.inf, 0]]}, {"costs": [[0, 1], [1, 0]], "abstain": np.nan}):
        with pytest.raises(ParameterError, match=r"must be finite. Got NaN or an infinity"):
            best_actions([0.2], **wrong)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: best_actions([0.2, 1.4], [[0, 1], [1, 0]]), "at most 1"),
        (lambda: best_actions([[0.2, 0.8]], [[0, 1, 2]]), "a row for each of 2 classes"),
        (lambda: best_actions([0.2], [[0, 1], [1, np.nan]]), "'costs' of best_actions must be finite"),
        (lambda: best_actions([0.2, 0.4], [[0, 1], [1, 0]], abstain=[1.0, 2.0, 3.0]), r"of shape \(2,\)"),
        (lambda: best_actions([0.2], [[0, 1], [1, 0]], abstain=np.nan), "finite"),
        (lambda: cost_matrix(false_positive="1", false_negative=5), r"'false_positive' .* a finite number. Got '1'"),
        (lambda: optimal_threshold([[1, 1], [5, 0]]), "a wrong decision costs more"),
        (lambda: optimal_threshold(np.eye(3)), "a row for each of 2 classes"),
        (lambda: net_benefit_curve([0, 1], np.eye(3)[:2]), "two columns"),
        (lambda: net_benefit_curve([0, 1], [0.1, 0.9], thresholds=[0.0, 0.5]), "between 0 and 1"),
        (lambda: automation_curve([0, 1], [0.1, 0.9], n_points=0), "at least 1"),
        (lambda: evaluate_decisions([0, 2], [0.1, 0.9], [[0, 1], [1, 0]]), "between 0 and 1"),
        (lambda: evaluate_decisions([], [], [[0, 1], [1, 0]]), "at least one row"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("n_missed", [0, 1, 7, 300])
def test_costs_of_one_kind_of_mistake_have_the_interval_of_its_share(n_missed):
    labels = (np.arange(300) < n_missed).astype(int)
    found = evaluate_decisions(labels, np.full(300, 0.005), [[0, 1], [100, 0]])
    share = binomtest(n_missed, 300).proportion_ci(method="wilson")
    assert_allclose([found.cost.low, found.cost.high], [100 * share.low, 100 * share.high], atol=1e-12)
    assert_allclose([found.error.low, found.error.high], [share.low, share.high], atol=1e-12)
    curve = automation_curve(labels, np.full(300, 0.005), [[0, 1], [100, 0]])
    assert_allclose([curve.cost_low[-1], curve.cost_high[-1]], [100 * share.low, 100 * share.high], atol=1e-12)


def test_costs_cover_where_mistakes_are_rare_and_where_rows_are_left_undecided():
    rng = np.random.default_rng(3)
    costs = cost_matrix(false_positive=1, false_negative=20)
    many = rng.beta(1, 6, 1_000_000)
    truth = np.minimum(np.minimum(20 * many, 1 - many), 0.3).mean()
    inside = 0
    for _ in range(300):
        p = rng.beta(1, 6, 1000)
        found = evaluate_decisions((rng.random(1000) < p).astype(int), p, costs, abstain=0.3).cost
        inside += found.low <= truth <= found.high
    assert inside >= 273


def test_errors_of_means_are_those_of_weights_that_depend_on_the_label():
    labels, p = drawn(np.random.default_rng(4), 3000)
    weight = np.where(labels == 1, 8.0, 1.0) * np.random.default_rng(5).uniform(0.5, 1.5, 3000)
    found = evaluate_decisions(labels, p, [[0, 1], [3, 0]], sample_weight=weight)
    paid = np.where(p > 0.25, 1.0 * (labels == 0), 3.0 * (labels == 1))

    def jackknife(values):
        without_each = weight * (values - np.average(values, weights=weight)) / (weight.sum() - weight)
        return np.sqrt(2999 / 3000 * np.sum(without_each**2))

    assert_allclose(found.cost.standard_error, jackknife(paid), rtol=1e-9)
    assert_allclose(found.cost.high - found.cost.low, 2 * 1.96 * jackknife(paid), rtol=0.03)
    assert_allclose(found.error.standard_error, jackknife(paid > 0), rtol=1e-9)
    curve = net_benefit_curve(labels, p, thresholds=[0.3], sample_weight=weight)
    benefit = (p >= 0.3) * np.where(labels == 1, 1.0, -0.3 / 0.7)
    expected = np.sqrt(np.sum(weight**2 * (benefit - np.average(benefit, weights=weight)) ** 2)) / weight.sum()
    # From Wilson's intervals of hits and of false alarms, which come near the normal ones on so many rows.
    assert_allclose((curve.high - curve.low)[0], 2 * 1.959964 * expected, rtol=0.005)
    automated = automation_curve(labels, p, [[0, 1], [3, 0]], sample_weight=weight)
    ends = [automated.cost_low[-1], automated.cost_high[-1], automated.error_low[-1], automated.error_high[-1]]
    # The jackknife of `evaluate_decisions` has the leverage of heavy rows besides.
    assert_allclose(ends, [found.cost.low, found.cost.high, found.error.low, found.error.high], rtol=1e-3)


def test_mistakes_that_were_not_seen_weigh_as_the_rows_of_their_class():
    """100 rows of class 0 and 50 of class 1, of weight 5, all decided rightly; missing one of class 1 costs 4."""
    labels = np.repeat([0, 1], [100, 50])
    p = np.where(labels == 1, 0.99, 0.01)
    weight = np.where(labels == 1, 5.0, 1.0)
    z2 = 1.959964**2
    # A row of class 1 among those of the first action would weigh 5, so that their weight of 100 says as much as 20.
    of_missed = 100 / 350 * 4.0 * z2 / (20 + z2)
    # One of class 0 among those of the second would weigh 1, which cannot make 50 rows say more than 50 do.
    of_false_alarms = 250 / 350 * z2 / (50 + z2)
    expected = np.hypot(of_missed, of_false_alarms)
    found = evaluate_decisions(labels, p, [[0, 1], [4, 0]], sample_weight=weight)
    assert_allclose([found.cost.low, found.cost.high], [0.0, expected], rtol=1e-6)
    curve = automation_curve(labels, p, [[0, 1], [4, 0]], sample_weight=weight)
    assert_allclose(curve.cost_high[-1], expected, rtol=1e-6)


def test_costs_of_weighted_rows_cover_where_a_handful_of_mistakes_decides():
    """An overconfident model whose rows of class 1 were kept with probability 0.3: about two costly rows a sample."""
    rng = np.random.default_rng(0)
    costs = np.array([[0.0, 1.0], [4.0, 0.0]])

    def rows_of(n):
        score = 1.5 * rng.normal(size=n)
        labels = (rng.random(n) < expit(score)).astype(int)
        return score, labels, expit(2.0 * score)

    score, _, p = rows_of(400_000)
    of_actions = np.stack([1 - expit(score), expit(score)], axis=1) @ costs
    expected = np.stack([1 - p, p], axis=1) @ costs
    action = expected.argmin(axis=1)
    truth = np.where(expected.min(axis=1) <= 0.3, of_actions[np.arange(len(p)), action], 0.3).mean()
    inside = 0
    for _ in range(300):
        _, labels, p = rows_of(600)
        kept = np.flatnonzero((labels == 0) | (rng.random(600) < 0.3))[:200]
        weight = np.where(labels == 1, 1 / 0.3, 1.0) * np.exp(0.5 * rng.normal(size=600))
        found = evaluate_decisions(labels[kept], p[kept], costs, abstain=0.3, sample_weight=weight[kept]).cost
        inside += found.low <= truth <= found.high
    assert inside >= 282  # 94 %


def test_errors_of_automated_rows_have_the_leverage_of_heavy_ones(rows):
    labels, p, weight = rows
    weight = weight**3
    curve = automation_curve(labels, p, sample_weight=weight, n_points=8)
    wrong = p.argmax(axis=1) != labels
    n_effective = int(weight.sum() ** 2 / np.sum(weight**2))
    t2 = stats.t.ppf(0.975, n_effective - 1) ** 2
    for i, limit in enumerate(curve.highest_expected_cost):
        taken = 1.0 - p.max(axis=1) <= limit + 1e-9
        x = wrong[taken]
        w = weight[taken]
        without_each = [np.average(np.delete(x, j), weights=np.delete(w, j)) for j in range(len(x))]
        error = np.average(x, weights=w)
        variance = (len(x) - 1) / len(x) * np.sum((np.array(without_each) - error) ** 2)
        assert (curve.error_high[i] - curve.error_low[i]) / 2 > 0.99 * np.sqrt(wilson_variance(error, variance, t2))


def wilson_variance(share, variance, t2):
    """The square of half of Wilson's interval of a share of this variance."""
    n = share * (1 - share) / variance
    return t2 * (share * (1 - share) / n + t2 / (4 * n * n)) / (1 + t2 / n) ** 2


def test_equal_weights_are_no_weights(rows):
    labels, p, _ = rows
    one, two = (evaluate_decisions(labels, p, COSTS, abstain=0.9, sample_weight=w) for w in (None, np.full(400, 0.1)))
    for name in ("cost", "automated", "error"):
        ends = [(each.low, each.high) for each in (getattr(one, name), getattr(two, name))]
        assert_allclose(*ends, rtol=1e-9)


def test_a_decimal_at_a_threshold_counts_in_every_precision():
    rng = np.random.default_rng(0)
    p = rng.random(5000).round(2)
    labels = (rng.random(5000) < p).astype(int)
    double, single = (net_benefit_curve(labels, p.astype(dtype)) for dtype in (np.float64, np.float32))
    np.testing.assert_allclose(single.net_benefit, double.net_benefit, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("false_negative", [1.0, 1.5, 4.0, 9.0, 99.0])
@pytest.mark.parametrize("abstain", [None, 0.1, 0.35])
def test_actions_of_equal_cost_do_not_depend_on_the_precision(false_negative, abstain):
    costs = cost_matrix(false_positive=1.0, false_negative=false_negative)
    p = np.arange(101) / 100.0
    double, single = (best_actions(p.astype(dtype), costs, abstain=abstain) for dtype in (np.float64, np.float32))
    np.testing.assert_array_equal(single.action, double.action)


def test_costs_of_very_different_size_are_not_taken_for_equal():
    costs = cost_matrix(false_positive=1.0, false_negative=1e8)
    assert best_actions([5e-8, 5e-9], costs).action.tolist() == [1, 0]


def decided_groups(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.beta(1, 3, n)
    y = (rng.random(n) < p).astype(int)
    region = rng.choice(["north", "south", "west"], n, p=[0.6, 0.3, 0.1])
    return y, p, region, rng


@pytest.mark.parametrize("weighted", [False, True])
def test_the_rates_of_a_group_are_those_of_a_loop_over_its_rows(weighted):
    y, p, region, rng = decided_groups(300)
    weight = rng.random(300) * (rng.random(300) > 0.1) if weighted else np.ones(300)
    costs = cost_matrix(false_positive=1.0, false_negative=4.0)
    found = evaluate_decisions(y, p, costs, groups={"region": region}, sample_weight=weight if weighted else None)
    for group in found.groups:
        sums = dict.fromkeys(("all", "selected", "fp", "negatives", "fn", "positives", "tp", "cost"), 0.0)
        for y_i, p_i, name, w in zip(y, p, region, weight, strict=True):
            if name != group.name:
                continue
            selected = p_i > 0.2
            sums["all"] += w
            sums["selected"] += w * selected
            sums["positives"] += w * y_i
            sums["negatives"] += w * (1 - y_i)
            sums["fp"] += w * (selected and not y_i)
            sums["fn"] += w * (not selected and y_i)
            sums["tp"] += w * (selected and y_i)
            sums["cost"] += w * (1.0 * (selected and not y_i) + 4.0 * (not selected and y_i))
        assert group.n == ((region == group.name) & (weight > 0)).sum()
        assert group.selection_rate.value == pytest.approx(sums["selected"] / sums["all"])
        assert group.false_positive_rate.value == pytest.approx(sums["fp"] / sums["negatives"])
        assert group.false_negative_rate.value == pytest.approx(sums["fn"] / sums["positives"])
        assert group.ppv.value == pytest.approx(sums["tp"] / sums["selected"])
        assert group.cost.value == pytest.approx(sums["cost"] / sums["all"])
        for interval in (group.selection_rate, group.false_positive_rate, group.ppv, group.cost):
            assert interval.low < interval.value < interval.high


def test_the_intervals_of_groups_hold_together():
    y, p, region, _ = decided_groups()
    costs = cost_matrix(false_positive=1.0, false_negative=4.0)
    few = evaluate_decisions(y, p, costs, groups={"region": region}).groups
    (north,) = evaluate_decisions(
        y[region == "north"], p[region == "north"], costs, groups=["north"] * (region == "north").sum()
    ).groups
    # 3 groups of 6 measures, against one of 6
    assert few[0].cost.level == pytest.approx(0.95 ** (1 / 18))
    assert north.cost.level == pytest.approx(0.95 ** (1 / 6))
    assert few[0].ppv.value == pytest.approx(north.ppv.value)
    assert few[0].ppv.low < north.ppv.low < north.ppv.high < few[0].ppv.high


def test_simultaneous_intervals_of_groups_cover_together():
    held = 0
    n_trials = 200
    for seed in range(n_trials):
        y, p, region, _ = decided_groups(800, seed)
        costs = cost_matrix(false_positive=1.0, false_negative=4.0)
        groups = evaluate_decisions(y, p, costs, groups=region).groups
        # p ~ beta(1, 3): P(p > 0.2) = 0.8³, E[1 - p; p > 0.2] and E[p; p > 0.2] by integration
        selected = 0.8**3
        negatives_selected = 0.75 * 0.8**4
        truth = (
            selected,
            negatives_selected / 0.75,
            1 - (selected - negatives_selected) / 0.25,
            1 - negatives_selected / selected,
        )
        held += all(
            interval.low <= value <= interval.high
            for group in groups
            for interval, value in zip(
                (group.selection_rate, group.false_positive_rate, group.false_negative_rate, group.ppv),
                truth,
                strict=True,
            )
        )
    assert held / n_trials >= 0.93


def test_groups_of_predictions_of_other_tables_and_of_one_cluster():
    y, p, region, _ = decided_groups(200)
    rows = Predictions.from_probabilities(p, y).with_groups({"region": region})
    costs = cost_matrix(false_positive=1.0, false_negative=4.0)
    found = evaluate_decisions(rows, None, costs)
    assert [(group.column, group.name) for group in found.groups] == [
        ("region", name) for name in ("north", "south", "west")
    ]
    three = evaluate_decisions(y, p, [[0, 1, 2], [4, 0, 2]], groups=region).groups
    assert three[0].selection_rate is None
    assert three[0].cost.low < three[0].cost.value < three[0].cost.high
    clustered = evaluate_decisions(y, p, costs, groups=region, clusters=region).groups
    assert (clustered[0].ppv.low, clustered[0].ppv.high) == (0.0, 1.0)
    none = evaluate_decisions([0, 0], [0.1, 0.2], costs, groups=["a", "b"]).groups
    assert none[0].false_negative_rate is None
    assert none[0].ppv is None
    assert evaluate_decisions(y, p, costs).groups == []


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_the_standard_error_of_a_predictive_value_at_a_prevalence_is_that_of_the_delta_method(level):
    found = predictive_values(
        [0, 0, 0, 1, 1] * 20_000, [0.1, 0.2, 0.6, 0.7, 0.2] * 20_000, threshold=0.5, prevalence=0.1, level=level
    )
    hits = found.sensitivity.value
    alarms = 1.0 - found.specificity.value
    relative_variance = (1.0 - hits) / (hits * 40_000) + (1.0 - alarms) / (alarms * 60_000)
    expected = found.ppv.value * (1.0 - found.ppv.value) * np.sqrt(relative_variance)
    assert found.ppv.standard_error == pytest.approx(expected, rel=0.01)


def test_predictive_values_are_those_of_bayes():
    y, p, _, _ = decided_groups()
    found = predictive_values(y, p, threshold=0.3)
    acts = p >= 0.3
    assert found.sensitivity.value == pytest.approx(acts[y == 1].mean())
    assert found.specificity.value == pytest.approx(1 - acts[y == 0].mean())
    assert found.ppv.value == pytest.approx(y[acts].mean())
    assert found.npv.value == pytest.approx(1 - y[~acts].mean())
    same = predictive_values(y, p, threshold=0.3, prevalence=y.mean())
    assert same.ppv.value == pytest.approx(found.ppv.value)
    assert same.npv.value == pytest.approx(found.npv.value)
    # With the prevalence known, the interval is narrower, but not by much.
    assert found.ppv.low < same.ppv.low < same.ppv.value < same.ppv.high < found.ppv.high + 0.02
    rare = predictive_values(y, p, threshold=0.3, prevalence=0.001)
    se, sp = found.sensitivity.value, found.specificity.value
    assert rare.ppv.value == pytest.approx(se * 0.001 / (se * 0.001 + (1 - sp) * 0.999))
    perfect = predictive_values([0] * 30 + [1] * 30, [0.1] * 30 + [0.9] * 30, threshold=0.5, prevalence=0.01)
    assert perfect.ppv.value == 1.0 == perfect.ppv.high
    assert 0.0 < perfect.ppv.low < 0.2
    of_few = predictive_values([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.9], threshold=0.9, prevalence=0.01)
    assert 0.0 < of_few.ppv.low < of_few.ppv.value == 1.0
    with pytest.raises(ParameterError, match="prevalence"):
        predictive_values(y, p, threshold=0.3, prevalence=0.0)


@pytest.mark.parametrize("prevalence", [None, 0.1])
def test_a_decision_that_no_row_gets_has_no_predictive_value(prevalence):
    y, p, _, _ = decided_groups()
    nobody = predictive_values(y, p, threshold=1.0, prevalence=prevalence)
    assert nobody.sensitivity.value == 0.0
    assert nobody.ppv is None
    assert nobody.npv.value == pytest.approx(0.9 if prevalence else 1 - y.mean())
    everybody = predictive_values(y, p, threshold=0.0, prevalence=prevalence)
    assert everybody.npv is None
    assert everybody.ppv.value == pytest.approx(prevalence or y.mean())
    of_no_weight = predictive_values(
        [0, 1, 0, 1], [0.1, 0.2, 0.3, 0.9], threshold=0.5, sample_weight=[1.0, 2.0, 1.0, 0.0], prevalence=prevalence
    )
    assert of_no_weight.ppv is None


def test_the_interval_of_a_predictive_value_at_a_prevalence_covers():
    held = 0
    n_trials = 500
    truth_of_positives = 1 - 0.75 * 0.7**4 / 0.75  # P(p < 0.3 | y = 0) is 1 - 0.7⁴
    alarms = 0.7**4
    hits = (0.7**3 - 0.75 * 0.7**4) / 0.25
    truth = hits * 0.05 / (hits * 0.05 + alarms * 0.95)
    assert truth_of_positives == pytest.approx(1 - alarms)
    for seed in range(n_trials):
        rng = np.random.default_rng(seed)
        p = rng.beta(1, 3, 150)
        y = (rng.random(150) < p).astype(int)
        interval = predictive_values(y, p, threshold=0.3, prevalence=0.05).ppv
        held += interval.low <= truth <= interval.high
    assert held / n_trials == pytest.approx(0.95, abs=0.025)


def test_groups_of_two_classes_count_the_action_that_is_called_as_class_1():
    # Rows of the costs were matched with the classes by name, but the second column was taken for the positive action.
    rng = np.random.default_rng(0)
    p = rng.random(400)
    y = (rng.random(400) < p).astype(int)
    region = np.where(np.arange(400) % 2, "north", "south")
    costs = cost_matrix(false_positive=1.0, false_negative=4.0)
    named = pd.DataFrame(costs, index=["no", "yes"], columns=["no", "yes"]).loc[["yes", "no"], ["yes", "no"]]
    frame = pd.DataFrame({"no": 1.0 - p, "yes": p})
    found = evaluate_decisions(np.array(["no", "yes"])[y], frame, named, groups=region, abstain=0.5)
    expected = evaluate_decisions(y, p, costs, groups=region, abstain=0.5)
    assert found.cost == expected.cost
    assert found.groups == expected.groups
    # Actions are columns of the costs.
    assert (best_actions(frame, named).action == 1 - best_actions(p, costs).action).all()


@pytest.mark.parametrize("columns", [None, ["0", "1", "2"], ["2", "0", "1"]])
def test_rows_of_costs_are_matched_with_classes_by_number_too(columns):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 100)
    costs = np.array([[0.0, 2.0, 8.0], [3.0, 0.0, 8.0], [60.0, 60.0, 0.0]])
    expected = best_actions(p, costs)
    rows = p if columns is None else pd.DataFrame(p, columns=["0", "1", "2"])[columns]
    found = best_actions(rows, pd.DataFrame(costs).loc[[2, 0, 1]])
    np.testing.assert_array_equal(found.action, expected.action)


def test_actions_of_rows_of_logits_are_those_of_their_probabilities():
    # Logits were refused as no probabilities, and taken for these where they looked like them.
    log_odds = np.array([-0.8, 0.0, 0.9])
    costs = cost_matrix(false_positive=1.0, false_negative=2.0)
    expected = best_actions(1.0 / (1.0 + np.exp(-log_odds)), costs)
    for first in (np.zeros(3), (1.0 - log_odds) / 2.0):  # rows of the second sum to 1
        rows = Predictions(np.stack([first, first + log_odds], axis=1), np.array([0, 1, 1]), "logits")
        made = best_actions(rows, costs)
        assert_allclose(made.expected_cost, expected.expected_cost, rtol=1e-12)
        np.testing.assert_array_equal(made.action, expected.action)


@pytest.mark.parametrize(
    "names", [[0, 1], ["0", "1"], [0.0, 1.0], [False, True], ["false", "true"], pd.Categorical([0, 1])], ids=str
)
def test_rows_of_costs_are_called_as_labels_are_however_numbers_are_stored(names):
    # Costs of True and False, in this order, were those of False and True, as were other numbers than integers.
    p = np.random.default_rng(0).beta(1, 3, 400)
    y = (np.random.default_rng(1).random(400) < p).astype(int)
    region = np.where(np.arange(400) % 2, "north", "south")
    costs = cost_matrix(false_positive=1.0, false_negative=4.0)
    expected = evaluate_decisions(y, p, costs, groups=region)
    table = pd.DataFrame(costs, index=names, columns=names)
    for scores in (p, pd.DataFrame({False: 1 - p, True: p}), pd.DataFrame({"no": 1 - p, "yes": p})):
        for given in (table, table.iloc[::-1], table.iloc[::-1, ::-1] if scores is p else table):
            made = evaluate_decisions(y, scores, given, groups=region)
            assert made.cost.value == pytest.approx(expected.cost.value)
            rates = [group.false_positive_rate.value for group in made.groups]
            assert rates == [group.false_positive_rate.value for group in expected.groups]


def test_numbers_of_rows_of_costs_beside_names_that_are_numbers_are_names():
    p = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    scores = pd.DataFrame(p, columns=[1, 2, 3])
    costs = pd.DataFrame([[0.0, 2.0, 8.0], [3.0, 0.0, 8.0], [60.0, 60.0, 0.0]], index=[1, 2, 3])
    expected = best_actions(p, costs.to_numpy())
    made = best_actions(scores, costs.loc[[3, 1, 2]])
    assert_allclose(made.expected_cost, expected.expected_cost)
    with pytest.raises(InputError, match="'0' in one of them only"):
        best_actions(scores, costs.set_axis([2, 0, 1]))


@pytest.mark.parametrize("index", [["yes", "no"], [7, 5]])
def test_names_of_costs_beside_classes_without_names_are_taken_in_their_order_with_a_warning(index):
    costs = pd.DataFrame(cost_matrix(false_positive=1.0, false_negative=4.0), index=index)
    text = f"rows of costs are called {index[0]}, {index[1]}, and taken in this order for classes without names"
    with pytest.warns(InputWarning, match=text):
        assert best_actions([0.1, 0.3], costs).action.tolist() == [0, 1]
    with pytest.warns(InputWarning, match=text):
        assert optimal_threshold(costs) == pytest.approx(0.2)


@pytest.mark.parametrize(
    "measure",
    [
        lambda y, p, **how: evaluate_decisions(y, p, cost_matrix(false_positive=1, false_negative=2), **how),
        automation_curve,
        net_benefit_curve,
        lambda y, p, **how: predictive_values(y, p, threshold=0.5, **how),
    ],
)
def test_a_single_cluster_is_refused(measure):
    p = np.random.default_rng(0).random(60)
    with pytest.raises(DataError, match=r"'clusters' of .* must be of at least two different ones: a single cluster"):
        measure((p > 0.4).astype(int), p, clusters=np.zeros(60))


def test_errors_of_automated_rows_of_one_cluster_may_be_any():
    # The rows of cluster b are left to a person.
    y, p = np.array([1, 0, 0, 1, 0, 1]), np.array([0.9, 0.1, 0.95, 0.5, 0.45, 0.55])
    costs = cost_matrix(false_positive=1, false_negative=1)
    found = evaluate_decisions(y, p, costs, abstain=0.2, clusters=[*"aaabbb"])
    assert found.error is not None
    assert (found.error.value, found.error.low, found.error.high) == (pytest.approx(1 / 3), 0.0, 1.0)


def test_a_curve_of_weighted_rows_begins_with_one_row_without_a_raw_warning():
    # The suite makes errors of warnings. One row says nothing about a variance, which is infinite.
    curve = automation_curve([1, 0, 1], [0.9, 0.3, 0.6], sample_weight=[1.0, 2.0, 3.0])
    assert np.all((curve.error_low <= curve.error) & (curve.error <= curve.error_high))


def test_the_scale_of_weights_does_not_change_a_decision_curve_of_one_class():
    p, weight = np.array([0.7, 0.4, 0.5, 0.6, 0.3, 0.55]), np.array([5.0, 1.0, 2.0, 1.0, 1.0, 2.0])
    curves = [
        net_benefit_curve(np.ones(6), p, sample_weight=scale * weight, thresholds=[0.2, 0.5]) for scale in (1, 1e-3)
    ]
    assert_allclose(curves[0].low, curves[1].low, rtol=1e-9)
    assert_allclose(curves[0].high, curves[1].high, rtol=1e-9)


def test_a_predictive_value_of_1_holds_where_rows_of_the_other_class_would_weigh_more():
    # Rows of class 0 were sampled: one in ten was kept, and weighs 10. None of those at the threshold came along.
    y, p = np.repeat([1, 0], [12, 20]), np.repeat([0.9, 0.1], [12, 20])
    weight = np.where(y == 1, 1.0, 10.0)
    study = predictive_values(y, p, threshold=0.5, sample_weight=weight).ppv
    assert study is not None
    # As many as 12 rows of class 1 stand for 12 / 10 rows of class 0: Wilson's lower end of a share of 1.
    z2 = stats.norm.ppf(0.975) ** 2
    assert (study.value, study.low) == (1.0, pytest.approx(1.2 / (1.2 + z2)))
    costs = cost_matrix(false_positive=1, false_negative=1)
    (group,) = evaluate_decisions(y, p, costs, sample_weight=weight, groups=["a"] * 32).groups
    assert group.ppv is not None
    assert group.ppv.low == pytest.approx((1.0 - 0.95 ** (1 / 6)) ** (1 / 1.2) / 2 ** (1 / 1.2))
    # The weight of the other class has no say in the rates of one class.
    assert predictive_values(y, p, threshold=0.5, sample_weight=weight).sensitivity.low == pytest.approx(12 / (12 + z2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shared", [(1e6, 1e6), (-1e6, -1e6), (3e5, -2e6)])
def test_what_every_action_costs_of_a_class_does_not_decide(dtype, shared):
    p = np.append(np.linspace(0.0, 1.0, 1001), [0.19, 0.21]).astype(dtype)
    costs = np.array([[0.0, 1.0], [4.0, 0.0]])
    decided = best_actions(p, costs + np.array(shared)[:, None]).action
    np.testing.assert_array_equal(decided, best_actions(p, costs).action)
    if shared[0] == shared[1]:
        with_price = best_actions(p, costs + shared[0], abstain=shared[0] + 0.25).action
        np.testing.assert_array_equal(with_price, best_actions(p, costs, abstain=0.25).action)
