"""New class shares against a general optimiser, by simulation, and where something else has changed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from refocal import (
    AutoCalibration,
    FocalCalibration,
    GroupCalibration,
    IsotonicCalibration,
    LogisticCalibration,
    TemperatureScaling,
    load,
)
from refocal.errors import InputWarning, ParameterError, UnsupportedError
from refocal.io import Predictions
from refocal.maps.chain import Chain
from refocal.maps.steps import Temperature
from refocal.report.details import shares_table
from refocal.shift import adapt, update


def drawn(rng, n, shares, spread=1.5):
    """Rows of three classes whose look does not depend on the shares; the logits are those of the fit's shares."""
    labels = rng.choice(3, n, p=shares)
    centres = spread * np.eye(3)
    x = centres[labels] + rng.normal(size=(n, 3))
    return x @ centres.T + np.log([0.4, 0.3, 0.3]), labels  # log-likelihoods up to a constant, and the prior


@pytest.fixture
def fitted():
    logits, labels = drawn(np.random.default_rng(0), 3000, [0.4, 0.3, 0.3])
    return TemperatureScaling().fit(logits, labels), Predictions.from_logits(logits, labels)


def test_an_adapted_calibrator_is_a_chain_that_can_be_saved_and_is_better(fitted, tmp_path):
    calibrator, known = fitted
    logits, labels = drawn(np.random.default_rng(3), 4000, [0.05, 0.15, 0.8])
    adapted, result = calibrator.adapt(logits[:1000], fit_rows=known)
    assert result.refused == ""
    errors = [np.abs(np.array(shares) - [0.05, 0.15, 0.8]).max() for shares in (result.shares, result.shares_of_fit)]
    assert errors[0] < errors[1] / 5
    assert max(np.array(result.high) - np.array(result.low)) < 0.2
    assert sum(result.shares) == pytest.approx(1.0)
    rows = np.arange(3000)
    before, after = (
        -each.predict_log_proba(logits[1000:])[rows, labels[1000:]].mean() for each in (calibrator, adapted)
    )
    assert after < 0.85 * before
    # p'_k ∝ p_k π_k / π⁰_k
    p = calibrator.predict_proba(logits[:5]) * np.array(result.shares) / np.array(result.shares_of_fit)
    np.testing.assert_allclose(adapted.predict_proba(logits[:5]), p / p.sum(axis=1, keepdims=True), rtol=1e-6)
    adapted.save(tmp_path / "c.json")
    np.testing.assert_allclose(load(tmp_path / "c.json").predict_proba(logits), adapted.predict_proba(logits))
    assert calibrator.fit_report_["class_shares"] != adapted.fit_report_["class_shares"]
    # What it is adapted to is where it begins the next time.
    np.testing.assert_allclose(adapted.adapt(logits[:1000])[1].shares_of_fit, result.shares)


def plain(result):
    """All numbers of a result."""
    return [result.shares_of_fit, result.estimated, result.low, result.high, result.label_shift.p_value]


def test_with_rows_of_the_fit_a_second_adaptation_takes_the_place_of_the_first(fitted, tmp_path):
    """The shift was applied twice: on those rows an adapted calibrator is off."""
    calibrator, known = fitted
    logits, _ = drawn(np.random.default_rng(1), 2000, [0.05, 0.15, 0.8])
    later, _ = drawn(np.random.default_rng(2), 2000, [0.2, 0.15, 0.65])
    adapted, _ = calibrator.adapt(logits, fit_rows=known)
    adapted.save(tmp_path / "c.json")
    # After one adaptation, after a file, and after a second one that has not seen the rows of the fit.
    for each in (adapted, load(tmp_path / "c.json"), adapted.adapt(shares=[0.5, 0.4, 0.1])[0]):
        for rows in (logits, later):
            expected, of_first = calibrator.adapt(rows, fit_rows=known)
            again, of_second = each.adapt(rows, fit_rows=known)
            for one, other in zip(plain(of_first), plain(of_second), strict=True):
                np.testing.assert_allclose(other, one, rtol=1e-9)
            np.testing.assert_allclose(again.predict_proba(rows), expected.predict_proba(rows), rtol=1e-9)
        expected, _ = calibrator.adapt(shares=[0.1, 0.2, 0.7], fit_rows=known)
        again, _ = each.adapt(shares=[0.1, 0.2, 0.7], fit_rows=known)
        np.testing.assert_allclose(again.predict_proba(logits), expected.predict_proba(logits), rtol=1e-9)
    # Rows of the shares of the fit lead back to the calibrator that was fitted.
    back, result = adapted.adapt(known, fit_rows=known)
    assert result.evidence.weight == 0.0
    np.testing.assert_array_equal(back.predict_proba(logits), calibrator.predict_proba(logits))
    assert back.fit_report_ == calibrator.fit_report_


def test_two_classes_are_adapted_twice_to_the_same_rows():
    rng = np.random.default_rng(12)

    def rows(share, n=3000):
        labels = (rng.random(n) < share).astype(int)
        return 2.4 * rng.normal(2.4 * labels - 1.2) + np.log(0.3 / 0.7), labels

    known = Predictions.from_log_odds(*rows(0.3))
    june, july = rows(0.1)[0], rows(0.1)[0]
    calibrator = LogisticCalibration(input="log-odds").fit(known)
    # One in twenty tests of label shift rejects it by chance.
    adapted, _ = calibrator.adapt(june, fit_rows=known, force=True)
    again, result = adapted.adapt(july, fit_rows=known, force=True)
    assert result.shares[1] == pytest.approx(0.1, abs=0.02)
    assert result.shares_of_fit[1] == pytest.approx(0.3, abs=0.02)
    expected, _ = calibrator.adapt(july, fit_rows=known, force=True)
    np.testing.assert_allclose(again.predict_proba(july), expected.predict_proba(july), rtol=1e-9)
    # The estimates are those without the rows of the fit, to their precision.
    assert adapted.adapt(july)[1].shares == pytest.approx(result.shares, abs=0.01)


def test_an_adapted_calibrator_stays_so_where_another_adaptation_is_refused(fitted):
    calibrator, known = fitted
    logits, _ = drawn(np.random.default_rng(1), 2000, [0.05, 0.15, 0.8])
    adapted, first = calibrator.adapt(logits, fit_rows=known)
    with pytest.warns(InputWarning, match="the calibrator is unchanged"):
        again, result = adapted.adapt(0.2 * logits, fit_rows=known)
    assert again is adapted
    assert result.shares == pytest.approx(first.shares)
    expected = adapted.predict_proba(0.2 * logits).max(axis=1).mean()
    assert result.performance.accuracy.value == pytest.approx(expected, abs=0.01)


def test_an_update_of_an_adapted_calibrator_is_kept_by_the_next_adaptation(fitted):
    calibrator, _ = fitted
    adapted, _ = calibrator.adapt(shares=[0.05, 0.15, 0.8])
    logits, labels = drawn(np.random.default_rng(1), 2000, [0.05, 0.15, 0.8])
    rows = Predictions.from_logits(0.5 * logits, labels)
    updated = update(adapted, rows)
    again, result = updated.adapt(rows, fit_rows=rows)
    np.testing.assert_allclose(result.shares_of_fit, updated.predict_proba(rows).mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(again.predict_proba(rows), updated.predict_proba(rows))


def test_rows_of_the_old_shares_leave_the_calibrator_as_it_was(fitted):
    """Adapting to chance cost weak models 4 to 5 % of their log-loss."""
    calibrator, _ = fitted
    unchanged = []
    for seed in range(10):
        logits, _ = drawn(np.random.default_rng(200 + seed), 200, [0.4, 0.3, 0.3])
        adapted, result = calibrator.adapt(logits, seed=seed)
        unchanged.append(adapted is calibrator)
        assert (result.evidence.weight == 0.0) == (adapted is calibrator)
        if adapted is calibrator:
            assert result.shares == result.shares_of_fit
            assert result.evidence.gain <= result.evidence.gain_by_chance
        low_is_below = np.array(result.low) <= np.array(result.shares)
        assert low_is_below.all()
    assert np.count_nonzero(unchanged) >= 8


def test_shares_of_the_fit_are_known_to_the_calibrator(fitted):
    calibrator, known = fitted
    shares = np.bincount(known.labels) / len(known)
    np.testing.assert_allclose(calibrator.fit_report_["class_shares"], shares, atol=1e-6)
    logits, _ = drawn(np.random.default_rng(4), 300, [0.2, 0.2, 0.6])
    with_rows = calibrator.adapt(logits, fit_rows=known)[1]
    np.testing.assert_allclose(calibrator.adapt(logits)[1].shares, with_rows.shares, atol=1e-4)


def test_shares_are_those_of_the_probabilities_where_a_fit_has_no_intercepts():
    """With the shares of the labels for π⁰ a temperature alone moved shares that had not changed."""
    rng = np.random.default_rng(12)
    old = np.full(5, 0.2)

    def shifted(n):
        labels = rng.choice(5, n)
        x = rng.normal(size=(n, 5)) + 1.2 * np.eye(5)[labels]
        return 1.2 * x + np.array([0.5, -0.3, 0.2, -0.5, 0.1]), labels

    known = Predictions.from_logits(*shifted(2000))
    calibrator = TemperatureScaling().fit(known)
    means = calibrator.predict_proba(known).mean(axis=0)
    assert np.abs(means - old).max() > 0.03
    logits, _ = shifted(1000)
    adapted, result = calibrator.adapt(logits)
    np.testing.assert_allclose(result.shares_of_fit, means, atol=1e-6)
    assert adapted is calibrator
    of_labels = calibrator.adapt(logits, shares_of_fit=calibrator.fit_report_["class_shares"])[1]
    assert np.abs(np.array(of_labels.shares) - old).max() > 0.05


def test_intervals_are_as_wide_as_both_samples_make_them():
    """Against the delta method: π̂ - π⁰ is the difference of two means of p, divided by Var p / (π⁰ (1 - π⁰))."""
    rng = np.random.default_rng(13)
    labels = rng.choice(2, 1400, p=[0.6, 0.4])
    log_odds = rng.normal(labels - 0.5, 1.0) + np.log(2 / 3)
    calibrator = LogisticCalibration(input="log-odds").fit(log_odds[:400], labels[:400])
    _, result = calibrator.adapt(log_odds[400:])
    p = calibrator.predict_proba(log_odds[400:])[:, 1]
    share = result.shares_of_fit[1]
    sd = share * (1.0 - share) * np.sqrt((1 / 400 + 1 / 1000) / p.var())
    assert result.high[1] - result.low[1] == pytest.approx(2.0 * 1.96 * sd, rel=0.25)


def test_probabilities_that_were_too_extreme_on_their_own_rows_are_not_believed():
    """A calibrator that is shrunk towards the scores before stays too extreme: intervals began above the true share."""
    rng = np.random.default_rng(15)
    labels = rng.choice(2, 2000, p=[0.6, 0.4])
    log_odds = rng.normal(labels - 0.5, 1.0) + np.log(2 / 3)
    calibrator = LogisticCalibration(input="log-odds").fit(log_odds, labels)
    new_labels = rng.choice(2, 2000, p=[0.93, 0.07])
    new = rng.normal(new_labels - 0.5, 1.0) + np.log(2 / 3)
    calibrator.chain_ = Chain((*calibrator.chain_.steps, Temperature(0.5)))
    assert calibrator.adapt(new)[1].low[1] > 0.07
    calibrator.fit_report_["mean_probabilities"]["slope"] = 0.5
    assert calibrator.adapt(new)[1].low[1] < 0.07


def test_classes_that_do_not_overlap_have_the_intervals_of_counts():
    """Against Clopper and Pearson's; a class without rows too."""
    rng = np.random.default_rng(14)
    logits = 9.0 * np.eye(4)[rng.integers(4, size=40000)]
    calibrator = TemperatureScaling().fit(logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1))
    counts = [0, 4, 40, 156]
    _, result = calibrator.adapt(9.0 * np.eye(4)[np.repeat(np.arange(4), counts)])
    for k, count in enumerate(counts):
        expected = binomtest(count, 200).proportion_ci(0.95)
        assert result.low[k] == pytest.approx(expected.low, abs=0.012)
        assert result.high[k] == pytest.approx(expected.high, abs=0.012)
    assert result.high[0] > 0.01


@pytest.mark.parametrize("n_events", [0, 3, 60])
def test_the_intervals_of_two_classes_are_complements(n_events):
    """An interval of one share says that of the other: from 1 - its upper end to 1 - its lower one."""
    rng = np.random.default_rng(16)
    labels = rng.choice(2, 1000, p=[0.6, 0.4])
    log_odds = rng.normal(3.0 * labels - 1.5, 1.0)
    calibrator = LogisticCalibration(input="log-odds").fit(log_odds, labels)
    new_labels = (np.arange(200) < n_events).astype(int)
    _, result = calibrator.adapt(rng.normal(3.0 * new_labels - 1.5, 1.0))
    assert result.low[0] == pytest.approx(1.0 - result.high[1], abs=1e-12)
    assert result.low[1] == pytest.approx(1.0 - result.high[0], abs=1e-12)
    assert result.low[1] <= result.shares[1] <= result.high[1]
    assert result.low[1] < result.high[1]


def test_the_report_says_that_its_measures_are_those_before_the_shares_changed(tmp_path):
    rng = np.random.default_rng(16)
    labels = rng.choice(2, 300)
    calibrator = LogisticCalibration(input="log-odds").fit(rng.normal(3.0 * labels - 1.5, 1.0), labels)
    adapted = calibrator.adapt(shares=[0.9, 0.1])[0].adapt(shares=[0.8, 0.2])[0]
    adapted.save(tmp_path / "adapted.json")
    said = "The measures are those of the fit, before the calibrator was adapted or updated."
    assert load(tmp_path / "adapted.json").fit_report_["sentences"].count(said) == 1
    assert said not in calibrator.fit_report_.get("sentences", ())


def test_undersampling_is_undone_by_known_shares():
    """Against a fit on all rows."""
    rng = np.random.default_rng(5)
    log_odds = rng.normal(-3.0, 2.0, 60000)
    y = (rng.random(60000) < 1 / (1 + np.exp(-log_odds))).astype(int)
    rate = y.mean()
    kept = np.flatnonzero((y == 1) | (rng.random(60000) < rate / (1 - rate)))
    balanced = IsotonicCalibration(input="log-odds").fit(log_odds[kept], y[kept])
    assert abs(balanced.predict_proba(log_odds)[:, 1].mean() - rate) > 0.1
    adapted, result = balanced.adapt(shares=[1 - rate, rate])
    assert adapted.predict_proba(log_odds)[:, 1].mean() == pytest.approx(rate, abs=0.004)
    assert result.performance is None
    by_name, _ = balanced.adapt(shares={"1": rate, "0": 1 - rate})
    np.testing.assert_array_equal(by_name.predict_proba(log_odds[:9]), adapted.predict_proba(log_odds[:9]))


def test_other_changes_are_refused_and_label_shift_is_not(fitted):
    calibrator, known = fitted
    rng = np.random.default_rng(6)
    for seed in range(5):
        logits, _ = drawn(np.random.default_rng(100 + seed), 500, rng.dirichlet([2.0, 2.0, 2.0]))
        assert not calibrator.adapt(logits, fit_rows=known)[1].label_shift.p_value < 0.01
    logits, _ = drawn(rng, 1000, [0.3, 0.3, 0.4])
    noisy = logits + 4.0 * rng.normal(size=logits.shape)
    with pytest.warns(InputWarning, match="the calibrator is unchanged: new class shares do not explain"):
        unchanged, result = calibrator.adapt(noisy, fit_rows=known)
    assert unchanged is calibrator
    assert "something else has changed" in result.refused
    forced, of_forced = calibrator.adapt(noisy, fit_rows=known, force=True)
    assert (forced is calibrator, of_forced.refused, of_forced.label_shift.rejects) == (False, "", True)
    # The shares are those of the calibrator that is returned.
    assert result.shares == result.shares_of_fit
    assert result.estimated == of_forced.estimated == of_forced.shares != result.shares
    (row, *_), (of_force, *_) = shares_table(result), shares_table(of_forced)
    assert row["share if nothing else had changed %"] == of_force["share now %"]


def test_an_adapted_calibrator_keeps_the_slope_of_its_fit():
    rng = np.random.default_rng(4)
    labels = rng.choice(2, 500, p=[0.6, 0.4])
    log_odds = 3.0 * rng.normal(2.0 * labels - 1.0, 1.0)
    calibrator = FocalCalibration(gamma=0.0, input="log-odds").fit(log_odds, labels)
    slope = calibrator.fit_report_["mean_probabilities"]["slope"]
    assert slope < 0.8
    for options in ({"X": log_odds[:200] - 3.0}, {"shares": [0.8, 0.2]}):
        adapted, _ = calibrator.adapt(**options)
        assert adapted is not calibrator
        assert adapted.fit_report_["mean_probabilities"]["slope"] == slope


def test_a_class_of_two_that_would_be_gone_is_named_in_the_refusal():
    rng = np.random.default_rng(7)
    log_odds = rng.normal(0.0, 0.5, 3000)
    happened = rng.random(3000) < 1.0 / (1.0 + np.exp(-log_odds))
    logits = np.stack([np.zeros(3000), log_odds], axis=1)
    names = np.where(happened, "late", "in time")
    known = Predictions.from_logits(logits, happened.astype(int), class_names=["in time", "late"])
    calibrator = TemperatureScaling().fit(logits, names)
    moved = np.stack([np.zeros(200), rng.normal(0.3, 0.5, 200)], axis=1)
    with pytest.warns(InputWarning, match="class in time would have no rows at all"):
        unchanged, result = calibrator.adapt(moved, fit_rows=known)
    assert unchanged is calibrator
    assert result.label_shift.gone == 0
    assert result.to_dict()["label_shift"]["gone"] == 0


@pytest.mark.long
@pytest.mark.slow
def test_intervals_cover_the_shares_and_the_accuracy(fitted):
    calibrator, _ = fitted
    covered = {"shares": [], "accuracy": [], "log-loss": []}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        shares = rng.dirichlet([2.0, 2.0, 2.0])
        logits, labels = drawn(rng, 300, shares)
        adapted, result = calibrator.adapt(logits, seed=seed)
        covered["shares"] += [*((np.array(result.low) <= shares) & (shares <= np.array(result.high)))]
        log_p = adapted.predict_log_proba(logits)
        for name, value, interval in (
            ("accuracy", np.mean(log_p.argmax(axis=1) == labels), result.performance.accuracy),
            ("log-loss", -np.mean(log_p[np.arange(300), labels]), result.performance.log_loss),
        ):
            covered[name].append(interval.low <= value <= interval.high)
    assert 0.88 <= np.mean(covered["shares"]) <= 0.99
    assert np.mean(covered["accuracy"]) >= 0.87
    assert np.mean(covered["log-loss"]) >= 0.87


def test_the_expected_log_loss_of_many_classes_is_not_too_high():
    """The error of 60 shares, drawn with each replicate, raised it."""
    rng = np.random.default_rng(11)
    centres = rng.normal(size=(60, 12)) * 1.2

    def many(n, shares):
        labels = rng.choice(60, n, p=shares)
        x = centres[labels] + rng.normal(size=(n, 12))
        return x @ centres.T - 0.5 * np.sum(centres**2, axis=1), labels

    calibrator = TemperatureScaling().fit(*many(6000, np.full(60, 1 / 60)))
    ratios = []
    for seed in range(6):
        logits, labels = many(200, 0.9 * rng.dirichlet(np.full(60, 0.7)) + 0.1 / 60)
        adapted, result = calibrator.adapt(logits, seed=seed)
        log_loss = -adapted.predict_log_proba(logits)[np.arange(200), labels].mean()
        ratios.append(result.performance.log_loss.value / log_loss)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.1)


def test_rows_in_another_order_of_columns_are_matched(fitted):
    logits, labels = drawn(np.random.default_rng(7), 2000, [0.4, 0.3, 0.3])
    names = np.array(["a", "b", "c"])
    known = Predictions.from_logits(logits, names[labels], class_names=names)
    calibrator = AutoCalibration().fit(known)
    new, new_labels = drawn(np.random.default_rng(8), 500, [0.1, 0.1, 0.8])
    order = [2, 0, 1]
    moved = Predictions.from_logits(new[:, order], names[new_labels], class_names=names[order])
    known_moved = known.reordered(np.array(order))
    one = calibrator.adapt(new, fit_rows=known)[1]
    other = calibrator.adapt(moved, fit_rows=known_moved)[1]
    np.testing.assert_allclose(one.shares, other.shares, rtol=1e-6)
    assert other.classes == ("a", "b", "c")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"'rows' .* must be rows without labels, or give the new shares with shares="),
        ({"shares": [0.5, 0.5]}, r"'shares' .* must be 3 numbers"),
        ({"shares": [0.5, 0.4, 0.3]}, r"'shares' .* must be positive numbers of sum 1"),
        ({"shares": [0.5, 0.5, 0.0]}, r"'shares' .* must be positive numbers of sum 1"),
        ({"shares": {"0": 0.5, "1": 0.5}}, r"'shares' .* must be of the classes 0, 1, 2"),
        ({"shares": [0.2, 0.3, 0.5], "fit_rows": [1]}, r"'fit_rows' .* must be Predictions"),
    ],
)
def test_wrong_arguments_are_named(fitted, options, message):
    with pytest.raises(ParameterError, match=message):
        fitted[0].adapt(**options)


def test_calibrators_that_are_no_chain_are_refused():
    rng = np.random.default_rng(9)
    logits = rng.normal(size=(300, 2))
    labels = rng.integers(2, size=300)
    grouped = GroupCalibration().fit(logits, labels, groups=np.arange(300) % 2)
    with pytest.raises(UnsupportedError, match="one chain of steps"):
        adapt(grouped, logits)


def test_old_files_must_say_the_shares(fitted):
    calibrator, _ = fitted
    del calibrator.fit_report_["mean_probabilities"]
    logits, _ = drawn(np.random.default_rng(4), 300, [0.2, 0.2, 0.6])
    of_labels = calibrator.fit_report_["class_shares"]
    np.testing.assert_allclose(calibrator.adapt(logits)[1].shares_of_fit, of_labels, atol=1e-6)
    del calibrator.fit_report_["class_shares"]
    with pytest.raises(ParameterError, match="this calibrator does not know the class shares of its fit"):
        calibrator.adapt(logits)
    assert calibrator.adapt(logits, shares_of_fit=[0.4, 0.3, 0.3])[1].shares_of_fit == pytest.approx((0.4, 0.3, 0.3))


@pytest.mark.parametrize("kind", ["plain", "half", "recorded"])
def test_shares_may_be_a_tensor(kind):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(300, 2))
    calibrator = TemperatureScaling().fit(logits, rng.random(300) < 1 / (1 + np.exp(logits[:, 0] - logits[:, 1])))
    shares = torch.tensor([0.25, 0.75])
    given = {"plain": shares, "half": shares.bfloat16(), "recorded": shares.requires_grad_()}[kind]
    adapted, _ = adapt(calibrator, shares=given)
    expected, _ = adapt(calibrator, shares=[0.25, 0.75])
    np.testing.assert_array_equal(adapted.predict_proba(logits), expected.predict_proba(logits))
