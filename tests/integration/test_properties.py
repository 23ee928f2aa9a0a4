"""What must hold for any rows, over the whole public interface: calibrators, measures, losses, readers, splits.

The maps have theirs in tests/maps/test_softmax_properties.py.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import save_file

import refocal
from refocal import losses, maps, metrics
from refocal.calibrators.answers import Answers
from refocal.calibrators.registry import NAMED, make
from refocal.io import Predictions, read, split
from refocal.io.writers import FILES, Form, columns_of

pytestmark = [pytest.mark.core, pytest.mark.numerics]

few, some = settings(max_examples=5), settings(max_examples=12)

# Of these the order of all classes stays; auto-order keeps the top alone.
KEEP_ORDER = ("ts", "ts-ece", "focal", "fts", "fts-nll", "fts-ece", "ets")
TEMPERATURES = np.geomspace(0.05, 50.0, 31)
ITERATED = ("auto", "vs", "ms", "dirichlet", "svs", "sms", "auto-order")
# Their ridge, their rule or their folds look at the number of rows, which repetition raises and a weight does not.
COUNT_ROWS = ("auto", "focal", "fts", "vs", "ms", "dirichlet", "auto-order", "venn-abers-cross")


@st.composite
def labelled_logits(draw, most_rows=70):
    """Rows with every class among the labels; multiples of 1/64, so that a shift by whole numbers is exact."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_classes = draw(st.integers(2, 4))
    n_rows = draw(st.integers(5 * n_classes, most_rows))
    scale = draw(st.sampled_from([0.05, 1.0, 8.0, 300.0]))
    logits = np.round(scale * rng.normal(size=(n_rows, n_classes)) * 64.0) / 64.0
    labels = np.argmax(logits / scale + rng.gumbel(size=logits.shape), axis=1)
    labels[:n_classes] = np.arange(n_classes)
    return logits, labels, rng


def probabilities_of(logits):
    return np.exp(maps.log_softmax(logits))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
@few
@given(rows=labelled_logits())
def test_every_calibrator_gives_probabilities_and_comes_back_from_its_file(name, rows):
    logits, labels, rng = rows
    fitted = make(name).fit(logits, labels)
    unseen = np.concatenate([logits, 10.0 * logits[::-1] + 1.0])
    p = fitted.predict_proba(unseen)
    assert np.all((p >= 0.0) & (p <= 1.0))
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=0.0, atol=1e-12)
    order = rng.permutation(len(unseen))
    np.testing.assert_allclose(fitted.predict_proba(unseen[order]), p[order], rtol=1e-12, atol=1e-15)
    if name in KEEP_ORDER:
        rising = np.take_along_axis(p, np.argsort(unseen, axis=1), axis=1)
        assert np.all(np.diff(rising, axis=1) >= -1e-15)
    if name in (*KEEP_ORDER, "auto-order"):
        top = np.take_along_axis(p, np.argmax(unseen, axis=1)[:, None], axis=1)
        np.testing.assert_array_equal(top[:, 0], p.max(axis=1))
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(Path(folder) / "calibrator.json")
        np.testing.assert_array_equal(refocal.load(Path(folder) / "calibrator.json").predict_proba(unseen), p)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
@few
@given(rows=labelled_logits(), shift=st.integers(-1000, 1000))
def test_a_fit_depends_neither_on_the_order_of_rows_nor_on_a_shift_of_logits(name, rows, shift):
    logits, labels, rng = rows
    by_error = name.endswith("-ece")
    # An ECE jumps where confidences that are equal but for rounding part: temperatures must be the same to the bit.
    new = partial(make, name, temperatures=TEMPERATURES if by_error else None)
    p = new().fit(logits, labels).predict_proba(logits)
    order = rng.permutation(len(logits))
    again = new().fit(logits[order] + shift, labels[order]).predict_proba(logits - shift)
    if by_error:  # of few rows several points have the same error
        p, again = (metrics.expected_calibration_error(labels, each) for each in (p, again))
    # Iterations end where the next step is small; they do so a little earlier or later.
    np.testing.assert_allclose(again, p, rtol=0.0, atol=1e-6 if name in ITERATED else 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMED if name not in COUNT_ROWS])
@few
@given(rows=labelled_logits(most_rows=40))
def test_a_weight_is_a_repetition(name, rows):
    logits, labels, rng = rows
    times = rng.integers(1, 4, len(labels))
    weighted = make(name).fit(logits, labels, sample_weight=times).predict_proba(logits)
    repeated = make(name).fit(np.repeat(logits, times, axis=0), np.repeat(labels, times)).predict_proba(logits)
    np.testing.assert_allclose(weighted, repeated, rtol=0.0, atol=1e-9)


# Every measure, as a number; how large it may be; whether a weight of k is the same as k rows.
MEASURES = {
    "log_loss": (lambda y, p, **w: metrics.log_loss(y, np.log(p), **w), np.inf, True),
    "brier_score": (metrics.brier_score, 2.0, True),
    "accuracy": (metrics.accuracy, 1.0, True),
    "ece": (metrics.expected_calibration_error, 1.0, True),
    "ece, width": (lambda *a, **w: metrics.expected_calibration_error(*a, strategy="uniform", **w), 1.0, True),
    "ece, max": (lambda *a, **w: metrics.expected_calibration_error(*a, norm="max", **w), 1.0, True),
    "ece, l2": (lambda *a, **w: metrics.expected_calibration_error(*a, norm="l2", **w), 1.0, True),
    "classwise": (metrics.classwise_ece, 1.0, True),
    "debiased": (metrics.debiased_ece, 1.0, False),
    "sweep": (metrics.ece_sweep, 1.0, False),
    "smooth": (metrics.smooth_ece, 1.0, True),
    "ks": (metrics.ks_calibration_error, 1.0, True),
    "corp": (lambda *a, **w: metrics.corp_reliability(*a, **w).miscalibration, 1.0, True),
    "murphy": (lambda *a, **w: metrics.brier_decomposition(*a, **w).calibration, 2.0, True),
    "spiegelhalter": (lambda *a, **w: metrics.spiegelhalter_test(*a, **w).p_value, 1.0, False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURES)
@some
@given(rows=labelled_logits(), binary=st.booleans())
def test_every_measure_is_in_its_range_whatever_the_order_of_rows(name, rows, binary):
    measure, highest, repeats = MEASURES[name]
    logits, labels, rng = rows
    p = np.maximum(probabilities_of(logits), 1e-300)
    if binary:
        p, labels = p[:, 0], (labels == 0).astype(int)
    value, order = measure(labels, p), rng.permutation(len(labels))
    assert -1e-12 <= value <= highest + 1e-12
    assert measure(labels[order], p[order]) == pytest.approx(value, rel=1e-9, abs=1e-9)
    times = rng.integers(0, 4, len(labels)) + (np.arange(len(labels)) == 0)
    if repeats:
        repeated = measure(np.repeat(labels, times), np.repeat(p, times, axis=0))
        assert measure(labels, p, sample_weight=times) == pytest.approx(repeated, rel=1e-9, abs=1e-9)
    assert measure(labels, p, sample_weight=np.full(len(labels), 0.25)) == pytest.approx(value, rel=1e-9, abs=1e-9)


@some
@given(rows=labelled_logits(), n_parts=st.integers(1, 5), n_bins=st.integers(1, 20))
def test_histograms_of_parts_make_the_histogram_of_all(rows, n_parts, n_bins):
    logits, labels, rng = rows
    p, part = probabilities_of(logits), rng.integers(0, n_parts, len(labels))
    weight = rng.random(len(labels)) + 0.1
    whole = metrics.CalibrationHistogram(bits=6).update(labels, p, sample_weight=weight)
    merged = metrics.CalibrationHistogram(bits=6)
    for i in rng.permutation(n_parts):
        if np.any(part == i):
            one = metrics.CalibrationHistogram(bits=6)
            one.update(labels[part == i], p[part == i], sample_weight=weight[part == i])
            merged.merge(metrics.CalibrationHistogram.from_json(one.to_json()))
    found, expected = merged.compute(n_bins=n_bins), whole.compute(n_bins=n_bins)
    exact = metrics.expected_calibration_error(labels, p, n_bins=n_bins, sample_weight=weight)
    assert abs(found.ece - exact) <= found.error_bound + 1e-12
    assert merged.count == len(labels)
    for name in ("ece", "error_bound", "accuracy", "confidence", "weight"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9, abs=1e-12)


@some
@given(rows=labelled_logits(), gamma=st.floats(-0.9, 10.0))
def test_losses_agree_with_each_other(rows, gamma):
    logits, labels, _ = rows
    p = probabilities_of(logits)
    ce, brier = losses.cross_entropy(logits, labels), losses.brier(logits, labels)
    of_label = p[np.arange(len(labels)), labels]
    np.testing.assert_allclose(ce, -maps.log_softmax(logits)[np.arange(len(labels)), labels], rtol=1e-12)
    np.testing.assert_allclose(brier, np.sum((p - np.eye(p.shape[1])[labels]) ** 2, axis=1), rtol=1e-9, atol=1e-12)
    of_both = 2 if p.shape[1] == 2 else 1  # the metric of two classes is that of class 1
    assert of_both * metrics.brier_score(labels, p) == pytest.approx(brier.mean(), rel=1e-9, abs=1e-12)
    for loss in (losses.focal, losses.proper_focal):
        np.testing.assert_allclose(loss(logits, labels, 0.0), ce, rtol=1e-9, atol=1e-12)
        assert np.all(loss(logits, labels, gamma) >= 0.0)
    certain = of_label < 1.0  # else 1 - p has lost its digits
    plain = -((1.0 - of_label[certain]) ** gamma) * maps.log_softmax(logits)[np.arange(len(labels)), labels][certain]
    near = of_label[certain] < 0.999
    np.testing.assert_allclose(losses.focal(logits, labels, gamma)[certain][near], plain[near], rtol=1e-9, atol=1e-12)
    # The proper part of what the focal map makes of q is the focal loss of q.
    mapped = losses.proper_focal(maps.focal(logits, gamma), labels, gamma)
    np.testing.assert_allclose(mapped, losses.focal(logits, labels, gamma), rtol=1e-7, atol=1e-9)


values = arrays(np.float64, st.tuples(st.integers(2, 12), st.integers(2, 4)), elements=st.floats(-1e6, 1e6))


def write(path, logits, labels):
    frame = pd.DataFrame(logits, columns=[f"logit_{i}" for i in range(logits.shape[1])]).assign(label=labels)
    match path.suffix:
        case ".npz":
            np.savez(path, logits=logits, labels=labels)
        case ".npy":
            np.save(path, logits)
            np.save(path.parent / "y.npy", labels)
            return {"labels": path.parent / "y.npy"}
        case ".csv" | ".tsv":
            frame.to_csv(path, index=False, sep="," if path.suffix == ".csv" else "\t")
        case ".parquet":
            frame.to_parquet(path)
        case ".safetensors":
            save_file({"logits": logits, "labels": labels}, path)
        case _:
            torch.save({"logits": torch.from_numpy(logits), "labels": torch.from_numpy(labels)}, path)
    return {}


@pytest.mark.parametrize("ending", [".npz", ".npy", ".csv", ".tsv", ".parquet", ".safetensors", ".pt"])
@some
@given(logits=values, seed=st.integers(0, 1000), single=st.booleans())
def test_every_format_gives_back_what_was_written(ending, logits, seed, single):
    logits = 2.0 + np.abs(logits.astype(np.float32) if single else logits)  # no row sums to 1
    labels = np.random.default_rng(seed).integers(0, logits.shape[1], len(logits))
    labels[0] = 0  # not all counted from 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"rows{ending}"
        options = write(path, logits, labels)
        found = read(path, **options)
        np.testing.assert_array_equal(np.asarray(found.values).astype(logits.dtype), logits)
        np.testing.assert_array_equal(found.labels, labels)
        del found  # some formats are mapped


@pytest.mark.parametrize(("ending", "form"), [(".npz", Form.ARRAYS), (".csv", Form.TEXT), (".tsv", Form.TEXT)])
@some
@given(rows=labelled_logits(most_rows=20), single=st.booleans())
def test_probabilities_are_written_to_the_last_bit(ending, form, rows, single):
    logits, labels, _ = rows
    p = probabilities_of(logits).astype(np.float32 if single else np.float64)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"p{ending}"
        names = [f"class_{i}" for i in range(p.shape[1])]
        with FILES[ending](path, ending) as add:
            add(columns_of(Answers(p, {}), names, form, {}, {"label": labels}))
        found = read(path, input="probabilities")
        np.testing.assert_array_equal(np.asarray(found.values).astype(p.dtype), p)
        np.testing.assert_array_equal(found.labels, labels)
        del found


@some
@given(rows=labelled_logits(), fraction=st.floats(0.1, 0.9), seed=st.integers(0, 100))
def test_a_split_loses_no_row_and_keeps_the_classes(rows, fraction, seed):
    logits, labels, _ = rows
    weight = np.arange(1.0, len(labels) + 1.0)  # a weight of its own for each row
    given_rows = Predictions.from_logits(logits, labels, weight=weight)
    first, second = split(given_rows, fraction, seed=seed)
    np.testing.assert_array_equal(np.sort(np.concatenate([first.weight, second.weight])), weight)
    for part in (first, second):
        at = part.weight.astype(int) - 1
        np.testing.assert_array_equal(part.values, logits[at])
        np.testing.assert_array_equal(part.labels, labels[at])
    n_classes = logits.shape[1]
    share = np.bincount(labels, minlength=n_classes) * fraction
    assert np.all(np.abs(np.bincount(first.labels, minlength=n_classes) - share) < 1.0 + 1e-6)
    again, _ = split(given_rows, fraction, seed=seed)
    np.testing.assert_array_equal(again.weight, first.weight)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ts", "focal", "fts", "vs", "sms", "auto-order"])
@few
@given(rows=labelled_logits())
def test_the_layer_of_a_calibrator_says_the_same(name, rows):
    logits, labels, _ = rows
    fitted = make(name).fit(logits, labels)
    layer = fitted.to_torch(dtype=torch.float64)
    found = np.exp(layer(torch.from_numpy(logits)).detach().numpy())
    np.testing.assert_allclose(found, fitted.predict_proba(logits), rtol=0.0, atol=1e-9)
