"""The bins of all classes at once, as for tensors on a GPU, against those of one class after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from refocal._arrays import is_torch
from refocal.metrics import classwise_ece, column_bins
from refocal.metrics.bins import NORMS, make_bins, norm_of_gaps, norms_of_gaps
from refocal.rows.predictions import probability_rows

pytestmark = pytest.mark.numerics


@pytest.fixture(autouse=True)
def pretended(monkeypatch):
    """Every tensor counts as one on a GPU."""
    monkeypatch.setattr(column_bins, "on_gpu", is_torch)


def probabilities(kind, n_rows, n_classes):
    """Softmax of normal scores; with ties, with zeros of both signs, beyond 1 by rounding, or in half precision."""
    rng = np.random.default_rng(n_rows)
    scores = 3.0 * rng.normal(size=(n_rows, n_classes))
    if kind == "ties":
        scores = 6.0 * np.round(scores / 6.0)
    if kind == "tiny":
        scores = 20.0 * scores
    p = torch.softmax(torch.from_numpy(scores), 1).float()
    if kind == "tiny":
        p = torch.where(p < 1e-30, -0.0, p)
    if kind == "above 1":
        p[::7] = 0.0
        p[::7, 1] = 1.0005
    return p.half() if kind == "half" else p, rng.integers(n_classes, size=n_rows)


@pytest.mark.parametrize(
    ("kind", "n_rows", "n_classes", "n_bins"),
    [
        ("plain", 2000, 5, 15),
        ("plain", 1, 3, 15),
        ("plain", 7, 4, 2),
        ("plain", 300, 3, 1),
        ("plain", 300, 40, 15),
        ("ties", 1000, 5, 15),
        ("tiny", 1000, 4, 40),
        ("above 1", 1000, 4, 15),
        ("half", 1000, 5, 15),
    ],
)
def test_bins_are_those_of_each_class(kind, n_rows, n_classes, n_bins):
    p, y = probabilities(kind, n_rows, n_classes)
    columns = column_bins.column_bins(probability_rows(y, p), n_bins)
    of_classes = []
    for label in range(n_classes):
        of_class = np.clip(np.abs(p[:, label].double().numpy()), 0.0, 1.0)
        bins = make_bins(of_class, y == label, None, n_bins=n_bins, strategy="quantile")
        has_rows = columns.count[label] > 0
        np.testing.assert_array_equal(columns.count[label][has_rows], bins.count)
        np.testing.assert_array_equal(columns.correct[label][has_rows], bins.correct)
        of_classes.append(bins)
    for norm in NORMS:
        errors = norms_of_gaps(columns.confidence - columns.correct, columns.count, norm)
        expected = [norm_of_gaps(bins, norm) for bins in of_classes]
        np.testing.assert_allclose(errors, expected, rtol=1e-12, atol=1e-15)


def test_several_blocks_of_rows_and_of_classes_agree_with_one(monkeypatch):
    p, y = probabilities("ties", 500, 11)
    whole = column_bins.column_bins(probability_rows(y, p), 3)
    monkeypatch.setattr(column_bins, "COUNTERS", 5 * 2 * column_bins.LOW_VALUES)  # five classes at a time
    monkeypatch.setattr(column_bins, "row_blocks", lambda n_rows, *_: [slice(0, 123), slice(123, n_rows)])
    parts = column_bins.column_bins(probability_rows(y, p), 3)
    np.testing.assert_array_equal(parts.count, whole.count)
    np.testing.assert_array_equal(parts.confidence, whole.confidence)
    np.testing.assert_array_equal(parts.correct, whole.correct)


def test_kernels_count_as_torch_does(monkeypatch):
    pytest.importorskip("triton", reason="Triton exists for Linux alone")
    p, y = probabilities("ties", 90, 5)
    # Where there is a GPU nothing interprets kernels for the CPU.
    rows = probability_rows(y, p.to("cuda" if torch.cuda.is_available() else "cpu"))
    monkeypatch.setattr(column_bins, "can_use_kernels", lambda p: False)
    by_torch = column_bins.column_bins(rows, 4)
    monkeypatch.setattr(column_bins, "can_use_kernels", lambda p: True)
    by_kernels = column_bins.column_bins(rows, 4)
    np.testing.assert_array_equal(by_kernels.count, by_torch.count)
    np.testing.assert_array_equal(by_kernels.confidence, by_torch.confidence)
    np.testing.assert_array_equal(by_kernels.correct, by_torch.correct)


def test_the_metric_uses_them():
    p, y = probabilities("ties", 500, 5)
    rows = probability_rows(y, p)
    assert column_bins.can_count(rows, 15, "quantile")
    assert classwise_ece(rows) == pytest.approx(classwise_ece(y, p.numpy()), rel=1e-12)


def test_rows_it_does_not_apply_to_are_left_to_others():
    p, y = probabilities("plain", 50, 3)
    assert not column_bins.can_count(probability_rows(y, p.double()), 15, "quantile")
    assert not column_bins.can_count(probability_rows(y, p, np.ones(50)), 15, "quantile")
    assert not column_bins.can_count(probability_rows(y, p), 15, "uniform")
    assert not column_bins.can_count(probability_rows(y, p.numpy()), 15, "quantile")
    assert not column_bins.can_count(probability_rows(y, p), 1_025, "quantile")


def test_a_cell_can_hold_the_last_bits_and_the_number_of_all_rows():
    highest = column_bins.MOST_ROWS * (column_bins.ONE_ROW + column_bins.LOW_VALUES - 1)
    assert highest <= np.iinfo(np.int64).max
    assert column_bins.MOST_ROWS * (column_bins.LOW_VALUES - 1) < column_bins.ONE_ROW
