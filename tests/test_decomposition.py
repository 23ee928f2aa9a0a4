"""The log-loss decomposition against probmetrics and against what is known of synthetic data."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import skew
from scipy.stats import t as student

from refocal.calibrators import TemperatureScaling
from refocal.decomposition import RefinedStopping, log_loss_decomposition, refined_log_loss
from refocal.errors import LabelError, ParameterError
from refocal.forensics import training_loss
from refocal.io import Predictions
from refocal.maps import inverse_focal, log_softmax
from refocal.metrics import log_loss

rng = np.random.default_rng(0)
LOGITS = 2.0 * rng.normal(size=(6000, 5))
LABELS = np.argmax(LOGITS + rng.gumbel(size=LOGITS.shape), axis=1)


def test_the_parts_add_up_and_tell_miscalibration_from_ignorance():
    best = log_loss(LABELS, log_softmax(LOGITS))
    for factor in (0.3, 1.0, 4.0):
        found = log_loss_decomposition(LABELS, factor * LOGITS)
        assert found.total == pytest.approx(log_loss(LABELS, log_softmax(factor * LOGITS)), rel=1e-12)
        assert found.calibration + found.refinement == pytest.approx(found.total, rel=1e-12)
        assert found.refinement == pytest.approx(best, abs=4e-3)
        by_temperature = log_loss_decomposition(LABELS, factor * LOGITS, by="temperature")
        assert by_temperature.refinement == pytest.approx(best, abs=2e-3)


def test_focal_temperature_scaling_removes_what_temperature_cannot():
    trained = inverse_focal(LOGITS, 5.0)
    by_temperature = log_loss_decomposition(LABELS, trained, by="temperature")
    by_fts = log_loss_decomposition(LABELS, trained, by="fts")
    assert by_fts.refinement < by_temperature.refinement - 1e-3
    assert log_loss_decomposition(LABELS, trained, by=TemperatureScaling()) == by_temperature


def test_it_agrees_with_probmetrics():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a dependency of it uses what torch has deprecated
        from probmetrics.metrics import Metrics
    logits = torch.tensor(3.0 * LOGITS, dtype=torch.float32)
    names = ["calib-err_logloss_ts-mix_cv-5", "refinement_logloss_ts-mix_cv-5"]
    theirs = Metrics.from_names(names).compute_all_from_labels_logits(torch.tensor(LABELS), logits)
    ours = log_loss_decomposition(LABELS, 3.0 * LOGITS, by="temperature")
    # Their folds differ, and their temperature scaling is mixed with a little of the uniform distribution.
    assert ours.refinement == pytest.approx(float(theirs[names[1]]), abs=1e-3)
    assert ours.calibration == pytest.approx(float(theirs[names[0]]), abs=1e-3)


def test_the_order_of_rows_does_not_matter():
    order = np.random.default_rng(1).permutation(300)
    weight = np.random.default_rng(2).random(300)
    for by in ("temperature", "fts"):
        one = log_loss_decomposition(LABELS[:300], 3.0 * LOGITS[:300], by=by, sample_weight=weight)
        two = log_loss_decomposition(LABELS[order], 3.0 * LOGITS[order], by=by, sample_weight=weight[order])
        assert two[:3] == pytest.approx(one[:3], rel=1e-6)


def test_bad_input():
    for by in ("magic", 3):
        with pytest.raises(ParameterError, match="'by' of log_loss_decomposition must be one of 'auto', 'temp"):
            log_loss_decomposition(LABELS, LOGITS, by=by)
    with pytest.raises(ParameterError, match="'cv' of log_loss_decomposition must be an integer from 2"):
        log_loss_decomposition(LABELS, LOGITS, cv=1)
    with pytest.raises(LabelError, match="'y_true' of log_loss_decomposition"):
        log_loss_decomposition(LABELS + 1, LOGITS)


def test_the_default_finds_what_is_off_class_by_class():
    """True part 0.19 and more, of which a temperature finds about half."""
    generator = np.random.default_rng(3)
    truth = 1.5 * generator.normal(size=(3000, 4))
    labels = np.argmax(truth + generator.gumbel(size=truth.shape), axis=1)
    given = 1.6 * (truth + np.array([0.8, 0.0, 0.0, -0.8]))
    exact = log_loss(labels, log_softmax(given)) - log_loss(labels, log_softmax(truth))
    found = log_loss_decomposition(labels, given)
    by_temperature = log_loss_decomposition(labels, given, by="temperature")
    assert found.calibration == pytest.approx(exact, abs=0.02)
    assert by_temperature.calibration < 0.7 * exact
    assert found.calibration_interval.low < exact < found.calibration_interval.high


def ends_of_mean(saved, n_units, level):
    """The ends at which Hall's (1992) statistic of a mean reaches Student's quantiles, or Student's own where farther.

    The former are roots of the cubic.
    """
    mean = saved.mean()
    error = saved.std(ddof=1) / len(saved) ** 0.5
    g = skew(saved) / len(saved) ** 0.5
    quantile = student.ppf(0.5 + level / 2, n_units - 1)

    def excess(end, target):
        w = (mean - end) / error
        return w + g / 3 * w**2 + g**2 / 27 * w**3 + g / 6 - target

    reach = 20 * error
    low, high = (brentq(excess, mean - reach, mean + reach, args=(q,), xtol=1e-14) for q in (quantile, -quantile))
    return min(low, mean - quantile * error), max(high, mean + quantile * error)


def test_the_interval_reaches_from_rows_left_out_to_rows_seen():
    logits = 2.0 * LOGITS[:300]
    labels = LABELS[:300]
    parts = log_loss_decomposition(labels, logits, by="temperature", level=0.9, cv=300)
    saved_left_out = np.empty(300)
    for i in range(300):
        others = np.arange(300) != i
        fitted = TemperatureScaling().fit(logits[others], labels[others])
        of_row = fitted.predict_log_proba(logits[i : i + 1]) - log_softmax(logits[i : i + 1])
        saved_left_out[i] = of_row[0, labels[i]]
    after = TemperatureScaling().fit(logits, labels).predict_log_proba(logits)
    saved_seen = (after - log_softmax(logits))[np.arange(300), labels]
    interval = parts.calibration_interval
    assert (interval.value, interval.level) == (parts.calibration, 0.9)
    assert interval.low == pytest.approx(ends_of_mean(saved_left_out, 300, 0.9)[0], rel=1e-5)
    assert interval.high == pytest.approx(ends_of_mean(saved_seen, 300, 0.9)[1], rel=1e-5)


def test_rows_of_a_cluster_are_predicted_by_fits_that_have_seen_none_of_them():
    """Against a plain loop over the folds: the losses, and Student's interval of the sums of clusters."""
    clusters = np.repeat(np.arange(20), 15)
    logits = 2.0 * LOGITS[:300]
    labels = LABELS[:300]
    day = 10 + clusters  # in the order of their names
    parts = log_loss_decomposition(labels, logits, by="temperature", clusters={"day": day})
    fold = (np.random.default_rng(0).permutation(20) % 5)[clusters]
    saved = np.empty(300)
    for i in range(5):
        fitted = TemperatureScaling().fit(logits[fold != i], labels[fold != i])
        own = np.flatnonzero(fold == i)
        after = fitted.predict_log_proba(logits[own])[np.arange(len(own)), labels[own]]
        saved[own] = after - log_softmax(logits[own])[np.arange(len(own)), labels[own]]
    assert parts.calibration == pytest.approx(saved.mean(), rel=1e-6)
    means = saved.reshape(20, 15).mean(axis=1)
    error = means.std(ddof=1) / 20**0.5
    interval = parts.calibration_interval
    assert interval.standard_error == pytest.approx(error, rel=1e-6)
    assert interval.low == pytest.approx(ends_of_mean(means, 20, 0.95)[0], rel=1e-5)
    with pytest.raises(ParameterError, match="'cv' of log_loss_decomposition must be an integer from 2 to 20"):
        log_loss_decomposition(labels, logits, by="temperature", clusters=clusters, cv=21)


def test_clusters_of_predictions_are_those_of_arguments():
    clusters = np.repeat(np.arange(20), 15)
    rows = Predictions.from_logits(2.0 * LOGITS[:300], LABELS[:300])
    of_arguments = log_loss_decomposition(LABELS[:300], 2.0 * LOGITS[:300], by="temperature", clusters=clusters)
    assert log_loss_decomposition(rows.with_clusters(clusters), by="temperature") == of_arguments
    assert log_loss_decomposition(rows, by="temperature", clusters=clusters) == of_arguments
    assert log_loss_decomposition(rows, by="temperature") != of_arguments


def test_a_calibrator_of_probabilities_is_refused_by_its_own_name():
    with pytest.raises(ParameterError, match="'by' of log_loss_decomposition must be a calibrator of logits"):
        refined_log_loss(LABELS[:100], LOGITS[:100], input="logits", by=TemperatureScaling(input="probabilities"))


@pytest.mark.parametrize("wrong", [LABELS + 1, np.array(list("abcde"))[LABELS]], ids=["counted", "text"])
@pytest.mark.parametrize(
    "function",
    [log_loss_decomposition, refined_log_loss, training_loss, RefinedStopping().update],
    ids=lambda function: function.__name__,
)
def test_the_remedies_of_labels_are_those_that_a_function_has(function, wrong):
    options = {"input": "logits"} if function is refined_log_loss else {}
    with pytest.raises(LabelError, match="pass Predictions, which take class_names="):
        function(wrong, LOGITS, **options)


def test_rows_without_a_label_are_left_out_where_a_function_can():
    labels = np.where(np.arange(len(LABELS)) < 5, -1, LABELS)
    with pytest.raises(LabelError, match="Leave such rows out with ignore_index="):
        log_loss_decomposition(labels, LOGITS)
    with pytest.raises(LabelError, match="pass Predictions, which take"):
        refined_log_loss(labels, LOGITS, input="logits")
