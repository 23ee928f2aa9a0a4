"""Rows of half precision: the class of a row is that of the same numbers in single precision."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import torch

from refocal import GroupCalibration, MultiLabelCalibration, VectorScaling
from refocal.io import Predictions


def fitted(name):
    """A calibrator whose map does not keep the order of the scores, and so many rows that some are nearly tied."""
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(400, 3))
    labels = np.argmax(logits / 1.5 + [1.0, 0.0, 0.3] + rng.gumbel(size=logits.shape), axis=1)
    if name == "labels":
        targets = (rng.random((400, 3)) < 1.0 / (1.0 + np.exp(0.3 - logits))).astype(int)
        calibrator = MultiLabelCalibration(method="logistic").fit(logits, targets)
    elif name == "groups":
        two = labels < 2
        calibrator = GroupCalibration().fit(logits[two, :2], labels[two], groups=np.arange(400)[two] % 2)
    else:
        calibrator = VectorScaling().fit(logits, labels)
    rows = rng.normal(size=(100_000, 3)).astype(np.float16)
    return calibrator, rows[:, :2] if name == "groups" else rows


@pytest.mark.parametrize("name", ["classes", "groups", "labels"])
def test_no_class_of_half_precision_is_decided_by_its_rounding(name):
    calibrator, rows = fitted(name)
    options = {"groups": np.arange(len(rows)) % 2} if name == "groups" else {}
    wanted = calibrator.predict(rows.astype(np.float32), **options)
    np.testing.assert_array_equal(calibrator.predict(rows, **options), wanted)
    np.testing.assert_array_equal(np.asarray(calibrator.predict(torch.from_numpy(rows), **options)), wanted)
    in_chunks = calibrator.predict(da.from_array(rows, chunks=(30_000, -1)), **options)
    np.testing.assert_array_equal(np.asarray(in_chunks), wanted)


def test_nor_that_of_predictions():
    calibrator, rows = fitted("classes")
    wanted = calibrator.predict(rows.astype(np.float32))
    predictions = Predictions.from_logits(rows, np.zeros(len(rows), dtype=int))
    np.testing.assert_array_equal(calibrator.predict(predictions), wanted)
