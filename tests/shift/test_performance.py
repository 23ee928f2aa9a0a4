"""Expected measures against plain sums and scikit-learn, and their intervals by simulation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from refocal import FocalCalibration, LogisticCalibration, TemperatureScaling
from refocal.errors import ParameterError, ShapeError
from refocal.io import Predictions
from refocal.maps.chain import Chain
from refocal.maps.steps import Temperature
from refocal.shift import estimate_performance, update
from refocal.shift.belief import replicate_parameters
from refocal.shift.performance import Belief, _auc, performance_of
from refocal.shift.rows import rows_of_fit


def test_the_auc_counts_rows_in_part():
    rng = np.random.default_rng(0)
    score = rng.random(200).round(1)
    labels = rng.integers(2, size=200)
    assert _auc(score, labels.astype(float)) == pytest.approx(roc_auc_score(labels, score))
    p = rng.random(40)
    pairs = [(p[i] * (1 - p[j]), score[i] > score[j], score[i] == score[j]) for i in range(40) for j in range(40)]
    total = sum(weight for weight, _, _ in pairs)
    assert _auc(score[:40], p) == pytest.approx(sum(w * (above + 0.5 * tie) for w, above, tie in pairs) / total)


def test_expected_measures_are_means_over_labels():
    rng = np.random.default_rng(1)
    log_odds = rng.normal(size=4000)
    y = (rng.random(4000) < 1 / (1 + np.exp(-log_odds))).astype(int)
    calibrator = LogisticCalibration(input="log-odds").fit(log_odds, y)
    costs = np.array([[0.0, 1.0], [5.0, 0.0]])
    found = estimate_performance(calibrator, log_odds, costs=costs)
    p = calibrator.predict_proba(log_odds)
    assert found.accuracy.value == pytest.approx(p.max(axis=1).mean(), abs=2e-3)
    assert found.log_loss.value == pytest.approx(-np.mean(np.sum(p * np.log(p), axis=1)), abs=2e-3)
    assert found.brier_score.value == pytest.approx(np.mean(p[:, 1] * (1 - p[:, 1])), abs=2e-3)
    assert found.cost.value == pytest.approx(np.mean(np.min(p @ costs, axis=1)), abs=5e-3)
    assert found.roc_auc.value == pytest.approx(roc_auc_score(y, p[:, 1]), abs=0.02)
    confusion = np.array(found.confusion)
    assert confusion.sum() == pytest.approx(1.0)
    assert np.trace(confusion) == pytest.approx(found.accuracy.value)
    with pytest.raises(ShapeError, match=r"'costs' .* a row for each of 2 classes"):
        estimate_performance(calibrator, log_odds, costs=np.zeros((3, 2)))


@pytest.mark.long
def test_intervals_cover_what_labels_show():
    covered = []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        logits = rng.normal(0.0, 3.0, size=(800, 3))
        labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
        calibrator = TemperatureScaling().fit(logits[:400], labels[:400])
        found = estimate_performance(calibrator, logits[400:], seed=seed)
        log_p = calibrator.predict_log_proba(logits[400:])
        accuracy = np.mean(log_p.argmax(axis=1) == labels[400:])
        log_loss = -np.mean(log_p[np.arange(400), labels[400:]])
        covered.append(found.accuracy.low <= accuracy <= found.accuracy.high)
        covered.append(found.log_loss.low <= log_loss <= found.log_loss.high)
    assert np.mean(covered) >= 0.88


def test_draws_without_an_event_leave_the_auc_its_interval():
    rng = np.random.default_rng(0)
    log_odds = rng.normal(-6.0, 1.0, 40)
    labels = np.arange(400) % 2
    calibrator = TemperatureScaling(input="log-odds").fit(rng.normal(4.0 * labels - 2.0, 1.0), labels)
    estimate = estimate_performance(calibrator, log_odds)
    assert 0.0 <= estimate.roc_auc.low <= estimate.roc_auc.value <= estimate.roc_auc.high <= 1.0


def test_replicates_that_reach_far_to_one_side_are_in_the_interval():
    """As where a share is near zero: the standard deviation alone knows no sides."""
    p = np.tile([0.9, 0.1], (400, 1))
    far = np.tile([0.5, 0.5], (400, 1))
    draws = [p] * 180 + [far] * 20
    mean = 0.9 * p + 0.1 * far
    plain = performance_of(np.log(p), 1000.0, None, 0.95, 0, Belief(draws, mean))
    adapted = performance_of(np.log(p), 1000.0, None, 0.95, 0, Belief(draws, mean, mean))
    assert plain.accuracy.low > 0.58
    assert adapted.accuracy.low == pytest.approx(0.5, abs=0.03)
    assert adapted.accuracy.high == plain.accuracy.high


def test_a_slope_that_was_too_large_is_lower_in_replicates():
    rng = np.random.default_rng(2)
    p = rng.uniform(0.05, 0.95, 500)
    log_p = np.log(np.stack([1.0 - p, p], axis=1))
    _, slope = replicate_parameters(log_p, np.ones(500), 2000.0, 4000, np.random.default_rng(3))
    _, moved = replicate_parameters(log_p, np.ones(500), 2000.0, 4000, np.random.default_rng(3), 0.1)
    assert slope.mean() == pytest.approx(0.0, abs=0.01)
    known = 0.9 ** (1.0 + np.random.default_rng(4).normal(size=100_000))
    assert moved.mean() == pytest.approx(known.mean() - 1.0, abs=0.01)
    assert moved.var() == pytest.approx(slope.var() + known.var(), rel=0.1)
    # Where probabilities are 0 or 1 no row says anything of the slope, and it stays positive.
    sure = np.maximum(np.log(np.eye(2)[np.arange(50) % 2] + 1e-300), -80.0)
    assert replicate_parameters(sure, np.ones(50), 50.0, 400, rng)[1].min() >= -0.95


@pytest.mark.parametrize("excess", [0.1, 0.64])
def test_a_slope_is_off_elsewhere_by_as_much_again_or_not_at_all(excess):
    """Of so many rows of a fit the error of its labels is nothing."""
    log_p = np.log(np.stack([np.linspace(0.9, 0.1, 500), np.linspace(0.1, 0.9, 500)], axis=1))
    _, moved = replicate_parameters(log_p, np.ones(500), 1e9, 4000, np.random.default_rng(3), excess)
    log_slope = np.log1p(moved[moved > -0.949]) / np.log1p(-excess)
    assert np.median(log_slope) == pytest.approx(1.0, abs=0.05)
    assert np.quantile(log_slope, 0.16) == pytest.approx(0.0, abs=0.08)


def test_probabilities_that_are_turned_round_on_their_own_rows_have_nearly_no_slope():
    log_p = np.log(np.stack([np.linspace(0.9, 0.1, 500), np.linspace(0.1, 0.9, 500)], axis=1))
    _, moved = replicate_parameters(log_p, np.ones(500), 1e9, 4000, np.random.default_rng(3), 3.0)
    assert moved.min() >= -0.95
    assert np.median(moved) == pytest.approx(-0.95, abs=0.01)


def test_an_estimate_of_clearly_too_extreme_probabilities_is_near_what_labels_show():
    """The slope of the report was -0.11 where that of the labels was 0.54, and the expected log-loss 1.46 for 0.34."""
    rng = np.random.default_rng(3)

    def rows(n, share):
        labels = (rng.random(n) < share).astype(int)
        return np.stack([np.zeros(n), 4.0 * rng.normal(2.4 * labels - 1.2, 1.0)], axis=1), labels

    calibrator = FocalCalibration(gamma=0.0).fit(*rows(1500, 0.5))
    adapted, result = calibrator.adapt(rows(2000, 0.2)[0])
    for of, share in ((calibrator, 0.5), (adapted, 0.2)):
        logits, labels = rows(2000, share)
        found = estimate_performance(of, logits).log_loss
        log_loss = -np.mean(of.predict_log_proba(logits)[np.arange(2000), labels])
        assert found.low < log_loss < found.high
        assert abs(found.value - log_loss) < 0.25
    # What was adapted is no surer than it was, though an offset was added: the slope is that of the fit.
    of_adapt = result.performance.log_loss
    assert found.high - found.low == pytest.approx(of_adapt.high - of_adapt.low, rel=0.3)


def test_probabilities_that_were_too_extreme_on_their_own_rows_are_not_believed_to_be_right():
    """The expected accuracy is lower then, and its interval wider, as `adapt` has it: 88 % of intervals covered."""
    rng = np.random.default_rng(21)
    log_odds = rng.normal(size=1300)
    y = (rng.random(1300) < 1 / (1 + np.exp(-log_odds))).astype(int)
    calibrator = LogisticCalibration(input="log-odds").fit(log_odds[:300], y[:300])
    calibrator.chain_ = Chain((*calibrator.chain_.steps, Temperature(0.6)))
    believed = estimate_performance(calibrator, log_odds[300:])
    calibrator.fit_report_["mean_probabilities"]["slope"] = 0.6
    doubted = estimate_performance(calibrator, log_odds[300:])
    of_known_shares = calibrator.adapt(log_odds[300:], shares=calibrator.fit_report_["mean_probabilities"]["values"])[1]
    accuracy = np.mean((log_odds[300:] > 0.0) == y[300:])
    assert believed.accuracy.low > accuracy
    assert doubted.accuracy.low < accuracy < doubted.accuracy.high
    assert of_known_shares.performance.accuracy.low == pytest.approx(doubted.accuracy.low, abs=0.01)


def test_rows_of_costs_are_matched_with_the_classes_of_the_calibrator():
    # They were taken in the order of the data frame, while best_actions matched them by name.
    rng = np.random.default_rng(0)
    names = np.array(["a", "b", "c"])
    logits = pd.DataFrame(rng.normal(size=(300, 3)), columns=names)
    labels = names[np.argmax(logits.to_numpy() + rng.gumbel(size=(300, 3)), axis=1)]
    calibrator = TemperatureScaling().fit(logits, labels)
    costs = pd.DataFrame([[0, 2, 8], [3, 0, 8], [60, 60, 0]], index=names)
    expected = estimate_performance(calibrator, logits, costs=costs.to_numpy()).cost
    assert estimate_performance(calibrator, logits, costs=costs.loc[["c", "a", "b"]]).cost == expected
    _, adapted = calibrator.adapt(logits, costs=costs.to_numpy())
    _, reordered = calibrator.adapt(logits, costs=costs.loc[["c", "a", "b"]])
    assert reordered.performance.cost == adapted.performance.cost
    with pytest.raises(ParameterError, match="'costs' of estimate_performance must be finite"):
        estimate_performance(calibrator, logits, costs=[[0, 1], [1, 0], [np.nan, 0]])


@pytest.mark.parametrize(("n_classes", "largest"), [(2, 1.0), (3, 2.0)])
def test_the_brier_score_is_bounded_by_its_largest_value(n_classes, largest):
    p = np.full((50, n_classes), 0.01)
    p[:, 0] = 1.01 - 0.01 * n_classes
    belief = Belief(draws=[p[:, ::-1], p[:, ::-1]], mean=p[:, ::-1], alternative=p)
    found = performance_of(np.log(p), 100.0, None, 0.95, seed=0, belief=belief).brier_score
    assert 0.9 * largest < found.value < found.high == largest


def test_intervals_after_an_update_are_those_of_its_rows_and_not_of_the_first_fit():
    """The log-loss of 4,000 new rows in 30 worlds, of whose shift 200 labelled rows have told."""
    covered = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        log_odds = rng.normal(-0.5, 1.2, 24_200)
        shift = np.where(np.arange(24_200) < 20_000, 0.0, rng.normal(0.0, 0.5))
        y = (rng.random(24_200) < 1 / (1 + np.exp(-log_odds - shift))).astype(int)
        calibrator = LogisticCalibration(input="log-odds").fit(log_odds[:20_000], y[:20_000])
        updated = update(calibrator, log_odds[20_000:20_200], y[20_000:20_200])
        found = estimate_performance(updated, log_odds[20_200:], seed=seed).log_loss
        p = updated.predict_proba(log_odds[20_200:])
        covered += found.low <= -np.mean(np.log(p[np.arange(4_000), y[20_200:]])) <= found.high
    assert covered >= 27


def test_the_rows_of_an_update_count_by_their_weights_and_clusters():
    rng = np.random.default_rng(0)
    log_odds = rng.normal(size=400)
    day = np.repeat(np.arange(20), 20)
    y = (rng.random(400) < 1 / (1 + np.exp(-log_odds - np.repeat(rng.normal(0.0, 1.0, 20), 20)))).astype(int)
    calibrator = LogisticCalibration(input="log-odds").fit(log_odds, y)
    weight = np.where(np.arange(400) < 100, 1.0, 0.0)
    weighted = update(calibrator, Predictions.from_log_odds(log_odds, y, weight=weight))
    assert rows_of_fit(weighted) == pytest.approx(100.0)
    assert rows_of_fit(update(calibrator, log_odds, y)) == 400.0
    clustered = rows_of_fit(update(calibrator, log_odds, y, clusters=day))
    assert clustered < 300.0
    # The same weight of all rows makes them no more.
    alike = Predictions.from_log_odds(log_odds, y, weight=np.full(400, 3.0))
    assert rows_of_fit(update(calibrator, alike)) == pytest.approx(400.0)
    assert rows_of_fit(update(calibrator, alike, clusters=day)) == pytest.approx(clustered)


def test_a_calibrator_without_a_fit_is_adapted_and_estimated():
    calibrator = FocalCalibration.from_training(2.0, n_classes=3)
    logits = np.random.default_rng(0).normal(0.0, 2.0, size=(2000, 3))
    p = calibrator.predict_proba(logits)
    found = estimate_performance(calibrator, logits)
    assert found.accuracy.value == pytest.approx(p.max(axis=1).mean(), abs=5e-3)
    _, result = calibrator.adapt(logits, shares_of_fit=[0.3, 0.3, 0.4])
    assert result.evidence is not None
    assert result.evidence.gain_by_chance > 0.0


def test_weighted_rows_of_a_fit_are_known_by_as_many_as_their_weights_are_worth():
    """The log-loss of 4,000 new rows after 30 fits on 2,000 rows of weights that are worth some hundred."""
    covered = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        log_odds = 1.5 * rng.normal(size=6_000)
        y = (rng.random(6_000) < 1 / (1 + np.exp(-log_odds))).astype(int)
        weight = rng.lognormal(0.0, 2.0, 2_000)
        calibrator = LogisticCalibration(input="log-odds").fit(log_odds[:2_000], y[:2_000], sample_weight=weight)
        assert rows_of_fit(calibrator) == pytest.approx(weight.sum() ** 2 / (weight @ weight), rel=1e-5)
        found = estimate_performance(calibrator, log_odds[2_000:], seed=seed).log_loss
        p = calibrator.predict_proba(log_odds[2_000:])
        covered += found.low <= -np.mean(np.log(p[np.arange(4_000), y[2_000:]])) <= found.high
    assert covered >= 27
    assert rows_of_fit(LogisticCalibration().fit(log_odds, y, sample_weight=np.full(6_000, 3.0))) == 6_000.0
