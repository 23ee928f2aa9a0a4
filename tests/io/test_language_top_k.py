"""The best k classes alone: what is exact, what the approximation of the others leaves, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from refocal import FocalTemperatureScaling, TemperatureScaling, VectorScaling
from refocal.errors import DataError, InputError, LabelError, ParameterError
from refocal.io import Predictions, TopK, blocks, load_sample
from refocal.maps import log_softmax
from refocal.metrics import accuracy, brier_score, expected_calibration_error, log_loss

pytestmark = pytest.mark.core

SAMPLE = load_sample("cifar100-focal7").validation
LOG_P = np.asarray(log_softmax(SAMPLE.values.astype(np.float64)))


def best(log_p, k):
    indices = np.argsort(-log_p, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(log_p, indices, axis=1), indices


def test_the_rest_of_a_power_law_is_found():
    exponents = np.array([0.0, 0.7, 1.3, 4.0])
    log_p = np.asarray(log_softmax(-exponents[:, None] * np.log(np.arange(1, 301))))
    shuffled = np.random.default_rng(0).permutation(300)
    given, indices = best(log_p, 10)
    found = TopK(given, shuffled[indices], None, 300).whole(slice(None))
    np.testing.assert_allclose(np.sort(found, axis=1)[:, ::-1], log_p, atol=2e-3)
    np.testing.assert_allclose(np.take_along_axis(found, shuffled[indices], axis=1), given, atol=1e-6)
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1.0, atol=1e-5)


def test_a_uniform_rest_is_even():
    found = TopK(np.log([[0.5, 0.2]]), [[4, 1]], [4], 6, tail="uniform").whole(slice(None))
    np.testing.assert_allclose(np.exp(found), [[0.075, 0.2, 0.075, 0.075, 0.5, 0.075]], rtol=1e-6)


@pytest.mark.parametrize("k", [1, 5])
def test_what_depends_on_the_top_class_is_exact(k):
    found = Predictions.from_top_k(*best(LOG_P, k), SAMPLE.labels, 100)
    p, full = np.exp(found.values), np.exp(LOG_P)
    assert accuracy(SAMPLE.labels, p) == accuracy(SAMPLE.labels, full)
    expected = expected_calibration_error(SAMPLE.labels, full)
    assert expected_calibration_error(SAMPLE.labels, p) == pytest.approx(expected, abs=1e-6)
    is_right = full.argmax(axis=1) == SAMPLE.labels
    top_label = [brier_score(is_right, each.max(axis=1)) for each in (p, full)]
    assert top_label[0] == pytest.approx(top_label[1], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "of_t", "of_loss"), [(5, 0.05, 1e-3), (20, 0.01, 1e-4)])
def test_fits_are_near_those_of_all_classes(k, of_t, of_loss):
    rows = TopK(*best(LOG_P, k), SAMPLE.labels, 100)
    for kind in (TemperatureScaling(), FocalTemperatureScaling(objective="nll")):
        full = kind.fit(LOG_P, SAMPLE.labels)
        loss, temperature = log_loss(SAMPLE.labels, full.predict_log_proba(LOG_P)), full.temperature_
        found = kind.fit(blocks(rows))
        assert abs(found.temperature_ - temperature) < of_t
        assert log_loss(SAMPLE.labels, found.predict_log_proba(LOG_P)) - loss < of_loss
        whole = kind.fit(*[getattr(Predictions.from_top_k(*best(LOG_P, k), SAMPLE.labels, 100), name)
                           for name in ("values", "labels")])  # fmt: skip
        assert whole.temperature_ == pytest.approx(found.temperature_, rel=1e-9)
    calibrated = rows.predict_log_proba(found)
    exact = np.take_along_axis(found.predict_log_proba(LOG_P), rows.indices, axis=1)
    assert np.abs(np.exp(calibrated) - np.exp(exact)).max() < 0.05


def test_predictions_do_not_depend_on_the_labels_of_their_rows():
    log_p, indices = best(LOG_P, 5)
    calibrator = VectorScaling(strength=0.1).fit(LOG_P, SAMPLE.labels)
    expected = TopK(log_p, indices, None, 100).predict_log_proba(calibrator)
    of_labels = LOG_P[np.arange(len(LOG_P)), SAMPLE.labels]
    for options in ({}, {"label_log_p": of_labels}):
        found = TopK(log_p, indices, SAMPLE.labels, 100, **options).predict_log_proba(calibrator)
        np.testing.assert_array_equal(found, expected)


def test_labels_beyond_the_best():
    log_p, indices = np.log([[0.5, 0.2], [0.5, 0.2]]), [[0, 1], [0, 1]]
    labels = np.array([7, 0])
    rows = TopK(log_p, indices, labels, 10)
    tail = np.exp(TopK(log_p, indices, None, 10).whole(slice(None)))[0, 2:]
    typical = np.exp(np.sum(tail * np.log(tail)) / tail.sum())
    found = np.exp(rows.whole(slice(None)))
    assert found[0, 7] in found[1, 2:]
    assert np.abs(found[0, 7] / typical - 1) < 0.2
    np.testing.assert_allclose(np.sort(found[0]), np.sort(found[1]), rtol=1e-6)
    known = np.exp(TopK(log_p, indices, labels, 10, label_log_p=np.log([0.1, 0.5])).whole(slice(None)))
    assert known[0, 7] == pytest.approx(0.1, rel=1e-6)
    np.testing.assert_allclose(known.sum(axis=1), 1.0, rtol=1e-6)
    with np.errstate(all="raise"):  # the label is the only class of the tail
        alone = TopK(np.log([[0.9]]), [[0]], [1], 2, label_log_p=np.log([0.1])).whole(slice(None))
    np.testing.assert_allclose(np.exp(alone), [[0.9, 0.1]], rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"log_p": [[0.5, 0.2]]}, "sum to at most 1 in each row. Got a sum of 2.87"),
        ({"log_p": [-0.5, -2.0]}, r"of shape \(N, k\) with at least one row and k from 1 to 4"),
        ({"log_p": np.empty((0, 2)), "indices": np.empty((0, 2), int), "labels": []}, "with at least one row"),
        ({"labels": [2], "label_log_p": [-0.5]}, "leave, at most 0.258134 in row 0. Got 0.606531"),
        ({"indices": [[0, 0]]}, "different classes from 0 to 4"),
        ({"indices": [[0, 5]]}, "different classes from 0 to 4"),
        ({"labels": [5]}, "between 0 and 4. Got labels from 5 to 5"),
        ({"labels": [0, 1]}, r"of shape \(1,\). Got shape \(2,\)"),
        ({"n_classes": 2}, "k from 1 to 1"),
        ({"tail": "power"}, "one of 'power law', 'uniform'"),
    ],
)
def test_what_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        TopK(**{"log_p": [[-0.5, -2.0]], "indices": [[0, 1]], "labels": [0], "n_classes": 5} | change)


def test_rows_without_labels_can_only_be_calibrated():
    with pytest.raises(LabelError, match="'labels' of TopK must be given"):
        list(TopK([[-0.5]], [[0]], None, 5))


def test_a_temperature_is_found_within_the_best_classes_whatever_the_tail():
    """On flat rows of many classes the approximated tail makes T too low; within the k best it is that of all."""
    rng = np.random.default_rng(0)
    truth = 1.5
    logits = 4.0 * rng.normal(size=(3000, 1000))
    labels = np.argmax(logits / truth + rng.gumbel(size=logits.shape), axis=1)
    log_p = np.asarray(log_softmax(logits))
    given, indices = best(log_p, 5)
    top = TopK(given, indices, labels, n_classes=1000)
    rows = top.within()
    known = (indices == labels[:, None]).any(axis=1)
    assert len(rows) == known.sum() < len(top)
    np.testing.assert_array_equal(indices[known, rows.labels], labels[known])
    assert TemperatureScaling().fit(blocks(top)).temperature_ < 1.35
    assert TemperatureScaling().fit(rows).temperature_ == pytest.approx(truth, abs=0.12)  # three standard errors
    with pytest.raises(LabelError, match="'labels' of TopK"):
        TopK(given, indices, None, n_classes=1000).within()
    with pytest.raises(DataError, match=r"'indices' of TopK.within .*k = 1"):
        TopK(given[:5, :1], indices[:5, :1], labels[:5], n_classes=1000).within()


def test_a_temperature_found_within_the_best_classes_calibrates_all_of_them():
    given, indices = best(LOG_P, 5)
    top = TopK(given, indices, SAMPLE.labels, n_classes=100, tail="uniform")
    calibrator = TemperatureScaling().fit(top.within())
    # The others share what is left evenly.
    tail = np.log(1.0 - np.exp(given).sum(axis=1)) - np.log(95)
    log_sum = np.logaddexp.reduce(given / calibrator.temperature_, axis=1)
    log_sum = np.logaddexp(log_sum, tail / calibrator.temperature_ + np.log(95))
    expected = given / calibrator.temperature_ - log_sum[:, None]
    np.testing.assert_allclose(top.predict_log_proba(calibrator), expected, atol=1e-3)
    with pytest.raises(ParameterError, match="fitted to all 100 classes, or a temperature fitted to"):
        top.predict_log_proba(VectorScaling(strength=1.0).fit(top.within()))


def test_masked_log_probabilities_are_refused():
    log_p, indices = np.log([[0.5, 0.2], [0.7, 0.2]]), [[3, 0], [1, 2]]
    masked = np.ma.array(log_p, mask=[[False, False], [False, True]])
    with pytest.raises(DataError, match="'log_p' of TopK must be an array without masked entries"):
        TopK(masked, indices, None, n_classes=4)
    with pytest.raises(DataError, match="'label_log_p' of TopK must be an array without masked entries"):
        TopK(log_p, indices, [3, 1], n_classes=4, label_log_p=masked[1])
