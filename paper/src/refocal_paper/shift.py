"""Beyond the test set: corrupted test images, and images of another data set, before and after calibration.

The corruptions and their strengths are those of CIFAR-10-C (Hendrycks & Dietterich 2019) that need no other files:
Gaussian noise and blur, contrast and JPEG.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter1d
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from refocal import metrics
from refocal.calibrators import AutoCalibration
from refocal.maps import log_softmax
from refocal_paper.datasets import Dataset, Images
from refocal_paper.measure import ROWS, scores

ROWS_KEPT = 5000  # of the test images, and of those of another data set

STRENGTHS: dict[str, tuple[float, ...]] = {
    "noise": (0.04, 0.06, 0.08, 0.09, 0.10),
    "blur": (0.4, 0.6, 0.7, 0.8, 1.0),
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
    "jpeg": (80, 65, 58, 50, 40),
}

Logits = NDArray[np.float32]
LogProbabilities = Callable[[Logits], NDArray[Any]]


class Unknown(NamedTuple):
    """Images of none of the classes, and the data set that they are of."""

    name: str
    images: Images


def corrupt(images: Images, kind: str, value: float) -> Images:
    """Images with one corruption: `value` is the noise's deviation, the blur's, the share of contrast, the quality."""
    if kind == "jpeg":
        return _compressed(images, int(value))
    x = images.astype(np.float32) / 255.0
    if kind == "noise":
        x += np.float32(value) * np.random.default_rng(0).standard_normal(x.shape, dtype=np.float32)
    elif kind == "blur":
        # A filter of rows and columns is a matrix on either side.
        blur = gaussian_filter1d(np.eye(x.shape[1], dtype=np.float32), value, axis=0, mode="nearest")
        planes = np.moveaxis(x, 3, 1)
        x = np.moveaxis(blur @ planes @ blur.T, 1, 3)
    else:
        mean = x.mean(axis=(1, 2), keepdims=True)
        x = (x - mean) * np.float32(value) + mean
    return (x.clip(0.0, 1.0) * 255.0).astype(np.uint8)


def resized(images: Images, side: int) -> Images:
    """Square images at another size."""
    if images.shape[1] == side:
        return images
    return _each(images, lambda image: Image.fromarray(image).resize((side, side), Image.Resampling.BILINEAR))


def measure_shift(
    logits_of: Callable[[Images], Logits], val: Logits, y_val: Any, data: Dataset, unknown: Unknown | None
) -> dict[str, Any]:
    """Accuracy, log-loss and ECE of the test images, as they are and corrupted, for each way to calibrate on `val`.

    `unknown` adds how well the largest probability tells the test images from those: the area under the ROC curve.
    """
    methods: dict[str, LogProbabilities] = {"raw": log_softmax}
    chosen = {"ts": ROWS["ts"]["nll"], "fts": ROWS["fts"]["nll"], "default": ROWS["default"]["auto"]}
    for name, calibrator in {**chosen, "auto": AutoCalibration()}.items():
        methods[name] = clone(calibrator).fit(val, y_val).predict_log_proba
    test, labels = data.test[:ROWS_KEPT], data.test_labels[:ROWS_KEPT]
    logits = logits_of(test)
    result: dict[str, Any] = {"rows": len(labels), "clean": _measures(methods, logits, labels), "corrupted": {}}
    for kind, values in STRENGTHS.items():
        result["corrupted"][kind] = [
            _measures(methods, logits_of(corrupt(test, kind, value)), labels) for value in values
        ]
    if unknown is not None:
        result["unknown"] = _detection(methods, logits, logits_of, unknown, data.test.shape[1])
    return result


def _detection(
    methods: dict[str, LogProbabilities],
    known: Logits,
    logits_of: Callable[[Images], Logits],
    unknown: Unknown,
    side: int,
) -> dict[str, Any]:
    others = logits_of(resized(unknown.images[:ROWS_KEPT], side))
    is_known = np.repeat([1, 0], [len(known), len(others)])
    # By logarithms, since probabilities next to 1 would be rounded to ties.
    tops = {name: np.concatenate([f(x).max(axis=1) for x in (known, others)]) for name, f in methods.items()}
    auroc = {name: round(float(roc_auc_score(is_known, top)), 5) for name, top in tops.items()}
    return {"dataset": unknown.name, "rows": len(others), "auroc": auroc}


def _measures(methods: dict[str, LogProbabilities], logits: Logits, labels: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"accuracy": metrics.accuracy(labels, np.exp(log_softmax(logits)))}
    for name, log_probabilities in methods.items():
        measured = scores(labels, log_probabilities(logits))
        found[name] = {measure: round(value, 5) for measure, value in measured.items()}
    return found


def _compressed(images: Images, quality: int) -> Images:
    def compress(image: Images) -> Image.Image:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=quality)
        return Image.open(buffer)

    return _each(images, compress)


def _each(images: Images, change: Callable[[Images], Image.Image]) -> Images:
    """Pillow works outside of Python's lock, so threads help."""
    with ThreadPoolExecutor() as pool:
        return np.stack(list(pool.map(lambda image: np.asarray(change(image)), images)))
