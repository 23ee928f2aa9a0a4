"""What torchmetrics' test_calibration_error.py asserts of its calibration errors, asserted of ours.

Its reference is netcal, so is ours. torchmetrics takes scores outside of [0, 1] for logits; refocal never guesses, so
`probabilities` is the adapter. Extra dimensions are rows.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax

from refocal.metrics import CalibrationHistogram, expected_calibration_error

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from netcal.metrics import ECE, MCE

N_CLASSES = 5
IGNORED = [None, -1, 0]


def draw(kind, extra, n_classes):
    """Ten batches of 32 rows (times 3 with an extra dimension) as torchmetrics draws them."""
    generator = torch.Generator().manual_seed(42)
    shape = (10, 32, *([n_classes] if n_classes else []), *([3] if extra else []))
    scores = torch.rand(shape, generator=generator)
    if kind == "logits":
        scores = torch.randn(shape, generator=generator)
    elif n_classes:
        scores = scores / scores.sum(2, keepdim=True)
    labels = torch.randint(n_classes or 2, (10, 32, *([3] if extra else [])), generator=generator)
    return scores, labels


def probabilities(scores, kind, n_classes):
    """Scores of any shape as rows of probabilities."""
    scores = scores.double().numpy()
    if not n_classes:
        return (expit(scores) if kind == "logits" else scores).ravel()
    rows = np.moveaxis(scores, 2, -1).reshape(-1, n_classes)
    return softmax(rows, axis=1) if kind == "logits" else rows


def without(labels, p, ignored):
    """The rows whose label is not the ignored one; every fourth row is given it first."""
    labels = labels.numpy().ravel().copy()
    if ignored is None:
        return labels, p
    labels[::4] = ignored
    return labels[labels != ignored], p[labels != ignored]


GRID = [
    pytest.param(kind, extra, n_classes, ignored, marks=[] if (kind, extra) == ("logits", True) else [pytest.mark.long])
    for kind in ("probabilities", "logits")
    for extra in (False, True)
    for n_classes in (0, N_CLASSES)
    for ignored in IGNORED
]


@pytest.mark.parametrize(("kind", "extra", "n_classes", "ignored"), GRID)
@pytest.mark.parametrize("n_bins", [10, 15, 20])
@pytest.mark.parametrize("norm", ["l1", "max"])
def test_the_error_is_netcals(kind, extra, n_classes, ignored, n_bins, norm):
    scores, labels = draw(kind, extra, n_classes)
    y, p = without(labels, probabilities(scores, kind, n_classes), ignored)
    reference = (ECE if norm == "l1" else MCE)(n_bins).measure(p, y)
    ours = expected_calibration_error(y, p, n_bins=n_bins, strategy="uniform", norm=norm)
    assert ours == pytest.approx(reference, abs=1e-9)


@pytest.mark.parametrize("n_classes", [0, N_CLASSES])
def test_batches_in_any_order_and_on_any_machine_are_one_metric(n_classes):
    scores, labels = draw("logits", False, n_classes)
    halves = [CalibrationHistogram(), CalibrationHistogram()]
    for i, (s, y) in enumerate(zip(scores, labels, strict=True)):
        p = probabilities(s[None], "logits", n_classes)
        halves[i % 2].update(y.numpy(), p)
    merged = halves[1].merge(halves[0]).compute(n_bins=15)
    y, p = without(labels, probabilities(scores, "logits", n_classes), None)
    assert merged.count == len(y)
    assert abs(merged.ece - expected_calibration_error(y, p, n_bins=15)) <= merged.error_bound + 1e-12


@pytest.mark.parametrize("n_classes", [0, N_CLASSES])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_half_and_double_tensors_are_measured_as_they_are(n_classes, dtype):
    scores, labels = draw("probabilities", False, n_classes)
    rows = torch.as_tensor(probabilities(scores, "probabilities", n_classes)).to(dtype)
    exact = ECE(15).measure(rows.double().numpy(), labels.ravel().numpy())
    assert expected_calibration_error(labels.ravel(), rows, strategy="uniform") == pytest.approx(exact, abs=1e-3)
