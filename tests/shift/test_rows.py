"""Rows of refocal.shift come in by the rules of every other function: labels, weights, clusters, shares by class."""

import warnings

import numpy as np
import pandas as pd
import pytest

from refocal import LogisticCalibration, PredictionSets, TemperatureScaling, VectorScaling, VennAbersCalibration
from refocal.errors import DataError, InputWarning, LabelError, ParameterError, ShapeError, UnsupportedError
from refocal.io import Predictions
from refocal.shift import OnlineUpdate, adapt, estimate_performance, update
from refocal.shift.label_shift import label_shift_test
from refocal.shift.likelihood import likely_shares, share_evidence


@pytest.fixture(scope="module")
def three():
    """Logits of three classes and their column numbers; those of the last 400 rows are never 2."""
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(1800, 3))
    columns = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    recent = np.flatnonzero(columns[1000:] < 2)[:400] + 1000
    return logits[:1000], columns[:1000], logits[recent], columns[recent]


@pytest.fixture(scope="module")
def two():
    """A calibrator of log-odds, and later rows with an effect of each of ten days."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000)
    y = (rng.random(2000) < 1 / (1 + np.exp(-x))).astype(int)
    day = np.repeat(np.arange(10), 40)
    later = rng.normal(size=400)
    happened = rng.random(400) < 1 / (1 + np.exp(-later - rng.normal(size=10)[day]))
    return LogisticCalibration(input="log-odds").fit(x, y), later, happened.astype(int), day


def updated(calibrator, *rows, **options):
    found = update(calibrator, *rows, **options).fit_report_["updated"]
    return [found["slope"], *found["intercept"]]


@pytest.mark.parametrize("names", [[1, 2, 3], [0, 2, 5], [-2, 0, 1], ["1", "2", "3"], [1.0, 2.0, 3.0]])
def test_labels_of_an_update_are_matched_with_the_classes(three, names):
    logits, columns, recent, recent_columns = three
    names = np.array(names)
    expected = updated(TemperatureScaling().fit(logits, columns), recent, recent_columns)
    calibrator = TemperatureScaling().fit(logits, names[columns])
    assert updated(calibrator, recent, names[recent_columns]) == expected
    unnamed = Predictions.from_logits(recent, recent_columns)
    if {0, 1} <= {*names.tolist()}:  # the labels are names too
        with pytest.raises(LabelError, match="read with the calibrator's classes"):
            updated(calibrator, unnamed)
    else:
        assert updated(calibrator, unnamed) == expected
    named = Predictions.from_logits(recent, names[recent_columns], class_names=[str(name) for name in names])
    assert updated(calibrator, named) == expected


def test_labels_that_are_no_classes_are_refused_by_the_name_of_the_function(three):
    logits, columns, recent, _ = three
    calibrator = TemperatureScaling().fit(logits, columns + 1)
    with pytest.raises(LabelError, match="'labels' of update must be among the class names"):
        update(calibrator, recent, np.arange(400) % 4)


def test_swapped_columns_keep_their_labels(two):
    _, later, happened, _ = two
    logits = np.stack([np.zeros(400), later], axis=1)
    calibrator = TemperatureScaling().fit(logits, happened)
    swapped = Predictions.from_logits(logits, happened, class_names=["no", "yes"], positive_label="no")
    np.testing.assert_allclose(updated(calibrator, swapped), updated(calibrator, logits, happened), rtol=1e-9)


def test_clusters_of_predictions_are_those_of_the_argument(two):
    calibrator, later, happened, day = two
    rows = Predictions.from_log_odds(later, happened)
    by_day = updated(calibrator, rows, clusters=day)
    assert by_day != updated(calibrator, rows)
    assert updated(calibrator, rows.with_clusters({"day": day})) == by_day
    assert updated(calibrator, rows, clusters=day.astype(float)) == by_day
    assert updated(calibrator, rows, clusters=pd.DataFrame({"day": day})) == by_day
    assert updated(calibrator, rows, clusters=[str(d) if d % 2 else int(d) for d in day]) == by_day


@pytest.mark.parametrize("missing", [None, np.nan])
def test_a_missing_cluster_is_refused(two, missing):
    calibrator, later, happened, day = two
    with pytest.raises(DataError, match="'clusters' of update must be known of every row"):
        update(calibrator, later, happened, clusters=[missing, *day[1:].tolist()])
    with pytest.raises(ShapeError, match="'clusters' of update"):
        update(calibrator, later, happened, clusters=day[1:])


def test_weights_of_an_update_are_read_as_in_fits(two):
    calibrator, later, happened, day = two
    plain = updated(calibrator, Predictions.from_log_odds(later, happened))
    for weight in (1.0, 1.0 / 400.0):
        weighted = Predictions.from_log_odds(later, happened, weight=np.full(400, weight))
        np.testing.assert_allclose(updated(calibrator, weighted), plain, rtol=1e-9)
    count = np.random.default_rng(1).integers(0, 4, 400)
    weighted = Predictions.from_log_odds(later, happened, weight=count).with_clusters(day[count > 0])
    repeated = Predictions.from_log_odds(np.repeat(later, count), np.repeat(happened, count))
    repeated = repeated.with_clusters(np.repeat(day, count))
    np.testing.assert_allclose(updated(calibrator, weighted), updated(calibrator, repeated), rtol=1e-6)


def online(*batch):
    found = OnlineUpdate(3).partial_fit(*batch).correction
    return [found.slope, *found.intercept]


def test_an_online_update_reads_labels_and_weights(three):
    logits, columns, recent, recent_columns = three
    log_p = TemperatureScaling().fit(logits, columns).predict_log_proba(recent)
    expected = online(log_p, recent_columns)
    assert online(log_p, recent_columns.astype(str)) == expected
    assert online(log_p, recent_columns.astype(float)) == expected
    np.testing.assert_allclose(online(log_p, recent_columns, np.full(400, 0.01)), expected, rtol=1e-9)
    count = np.arange(400) % 3
    repeated = online(np.repeat(log_p, count, axis=0), np.repeat(recent_columns, count))
    np.testing.assert_allclose(online(log_p, recent_columns, count), repeated, rtol=1e-9)
    impossible = np.where(np.arange(3) == 2, -np.inf, log_p)
    assert np.isfinite(online(impossible, recent_columns)).all()
    with pytest.raises(LabelError, match=r"'labels' of OnlineUpdate.partial_fit"):
        online(log_p, recent_columns + 5)
    with pytest.raises(ShapeError, match=r"'log_p' of OnlineUpdate.partial_fit"):
        online(log_p[:, :2], recent_columns)
    flags = OnlineUpdate(2).partial_fit(log_p[:, :2], recent_columns == 1).correction
    numbers = OnlineUpdate(2).partial_fit(log_p[:, :2], recent_columns).correction
    assert flags.slope == numbers.slope


def drawn(rng, n, shares):
    labels = rng.choice(3, n, p=shares)
    return 4.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(n, 3)), labels


@pytest.fixture(scope="module")
def shifted():
    """A calibrator, labelled rows like its own, and rows with other shares."""
    rng = np.random.default_rng(0)
    calibrator = VectorScaling().fit(*drawn(rng, 1500, [0.7, 0.2, 0.1]))
    return calibrator, *drawn(rng, 800, [0.7, 0.2, 0.1]), *drawn(rng, 800, [0.2, 0.3, 0.5])


def test_weights_of_the_rows_of_the_fit_have_no_scale(shifted):
    calibrator, logits, labels, new, _ = shifted
    plain = adapt(calibrator, new, fit_rows=Predictions.from_logits(logits, labels))[1]
    shares = adapt(calibrator, new, fit_rows=Predictions.from_logits(logits, labels, weight=np.full(800, 1 / 800)))[1]
    np.testing.assert_allclose(shares.shares_of_fit, plain.shares_of_fit, rtol=1e-9)
    np.testing.assert_allclose(shares.shares, plain.shares, rtol=1e-6)
    assert shares.label_shift.p_value == plain.label_shift.p_value


def test_the_test_of_label_shift_weighs_the_rows_of_the_fit(shifted):
    # Half of the labelled rows, those with a large second logit, were sampled five times as often.
    calibrator, logits, labels, _, _ = shifted
    rng = np.random.default_rng(3)
    p = calibrator.predict_proba(logits)
    population, of_population = drawn(rng, 3000, [0.7, 0.2, 0.1])
    often = population[:, 1] > 0.0
    kept = rng.random(3000) < np.where(often, 1.0, 0.2)
    sampled = calibrator.predict_proba(population[kept])
    weight = np.where(often[kept], 1.0, 5.0)
    rows = (sampled, of_population[kept], p)
    assert label_shift_test(*rows, np.random.default_rng(0)).rejects
    assert not label_shift_test(*rows, np.random.default_rng(0), weight_known=weight).rejects
    swapped = (p, labels, sampled)
    assert label_shift_test(*swapped, np.random.default_rng(0)).rejects
    assert not label_shift_test(*swapped, np.random.default_rng(0), weight_new=weight).rejects


def test_weights_of_new_rows_are_honoured(shifted):
    calibrator, _, _, new, labels = shifted
    weight = np.array([1.0, 1.0, 0.1])[labels]
    again = np.random.default_rng(1).choice(800, 8000, p=weight / weight.sum())
    weighted = Predictions.from_logits(new, labels, weight=weight)
    found = adapt(calibrator, weighted)[1]
    truth = np.bincount(labels, weight) / weight.sum()
    np.testing.assert_allclose(found.shares, truth, atol=0.03)
    assert np.all(np.array(found.low) < truth)
    assert np.all(truth < np.array(found.high))
    performance = estimate_performance(calibrator, weighted)
    resampled = estimate_performance(calibrator, new[again])
    for name in ("accuracy", "log_loss", "brier_score"):
        assert getattr(performance, name).value == pytest.approx(getattr(resampled, name).value, abs=0.02)
    np.testing.assert_allclose(performance.confusion, resampled.confusion, atol=0.02)
    known = adapt(calibrator, weighted, shares=truth)[1].performance
    assert known.accuracy.value != pytest.approx(adapt(calibrator, new, shares=truth)[1].performance.accuracy.value)


def test_equal_weights_of_new_rows_change_nothing(shifted):
    calibrator, _, _, new, labels = shifted
    plain = adapt(calibrator, new)[1]
    for weight in (0.01, 7.0):
        found = adapt(calibrator, Predictions.from_logits(new, labels, weight=np.full(800, weight)))[1]
        np.testing.assert_allclose(found.low, plain.low, rtol=1e-6)
        np.testing.assert_allclose(found.shares, plain.shares, rtol=1e-6)
        assert found.performance.log_loss.value == pytest.approx(plain.performance.log_loss.value)


def test_evidence_of_weights_is_that_of_repeated_rows(shifted):
    calibrator, _, _, new, _ = shifted
    p = calibrator.predict_proba(new)
    old = np.array([0.7, 0.2, 0.1])
    count = np.random.default_rng(2).integers(0, 3, len(p))
    repeated = np.repeat(p, count, axis=0)
    expected = share_evidence(repeated, old, likely_shares(repeated, old), 500.0)
    found = share_evidence(p, old, likely_shares(p, old, count.astype(float)), 500.0, count.astype(float))
    assert found.gain == pytest.approx(expected.gain)
    assert found.gain_by_chance == pytest.approx(expected.gain_by_chance)


def test_clusters_of_new_rows_are_said_to_be_unused(shifted):
    calibrator, _, _, new, labels = shifted
    rows = Predictions.from_logits(new, labels).with_clusters(np.arange(800) // 10)
    with pytest.warns(InputWarning, match="cluster"):
        estimate_performance(calibrator, rows)


def test_shares_by_class(three):
    logits, columns, _, _ = three
    names = np.array(["a", "b", "c"])
    calibrator = VectorScaling().fit(logits, names[columns])
    expected = adapt(calibrator, shares=[0.2, 0.5, 0.3], shares_of_fit=[0.1, 0.2, 0.7])[1]
    by_name = pd.Series({"b": 0.5, "c": 0.3, "a": 0.2})
    of_fit = pd.Series({"c": 0.7, "a": 0.1, "b": 0.2})
    assert adapt(calibrator, shares=by_name, shares_of_fit=of_fit)[1] == expected
    by_number = pd.Series([0.5, 0.3, 0.2], index=[1, 2, 0])
    assert adapt(calibrator, shares=by_number, shares_of_fit=dict(of_fit))[1] == expected
    assert adapt(calibrator, shares=pd.Series([0.2, 0.5, 0.3]), shares_of_fit=of_fit)[1] == expected
    for wrong in (by_name[:2], by_name.rename({"a": "d"}), pd.Series([0.2, 0.5, 0.3], index=["a", "a", "b"])):
        with pytest.raises(ParameterError, match=r"'shares' of .* must be of the classes a, b, c, each once"):
            adapt(calibrator, shares=wrong)


def test_shares_of_classes_that_are_numbers(three):
    logits, columns, _, _ = three
    calibrator = VectorScaling().fit(logits, columns + 1)
    expected = adapt(calibrator, shares=[0.2, 0.5, 0.3])[1]
    assert adapt(calibrator, shares=pd.Series({3: 0.3, 2: 0.5, 1: 0.2}))[1] == expected
    assert adapt(calibrator, shares={3.0: 0.3, "2": 0.5, 1: 0.2})[1] == expected
    with pytest.raises(ParameterError, match="of the classes 1, 2, 3, each once"):
        adapt(calibrator, shares=pd.Series([0.2, 0.5, 0.3]))


@pytest.mark.parametrize("kind", [PredictionSets, VennAbersCalibration])
def test_what_rests_on_old_scores_is_neither_adapted_nor_updated(three, kind):
    logits, columns, recent, recent_columns = three
    fitted = kind().fit(logits, columns)
    with pytest.raises(UnsupportedError, match=f"{kind.__name__} belongs to the old scores"):
        adapt(fitted, recent)
    with pytest.raises(UnsupportedError, match=f"{kind.__name__} belongs to the old scores"):
        update(fitted, recent, recent_columns)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert 0.0 < estimate_performance(fitted, recent).accuracy.value < 1.0


@pytest.mark.parametrize("labels", [[1, 2, 3], [0, 1, 255], ["x", "y", "z"]])
def test_errors_name_a_remedy_that_the_caller_has(three, labels):
    logits, columns, _, _ = three
    calibrator = TemperatureScaling().fit(logits, columns)
    with pytest.raises(LabelError, match=r"pass Predictions, which take class_names=, first_label="):
        update(calibrator, logits[:3], labels)
    with pytest.raises(LabelError, match=r"pass Predictions, which take class_names=, first_label="):
        OnlineUpdate(3).partial_fit(logits[:3], labels)
