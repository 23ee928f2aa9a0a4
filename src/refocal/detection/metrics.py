"""Calibration errors of detections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refocal._arrays import Flags, Indices, Vector
from refocal._validation import check_integer, check_option
from refocal.detection.detections import Detections, between_0_and_1, check_detections
from refocal.errors import ShapeError
from refocal.metrics._bins import uniform_index


def detection_ece(
    detections: Detections, *, covariates: Any = None, n_bins: int | Sequence[int] = 10, min_rows: int = 1
) -> float:
    """D-ECE (Küppers et al. 2020): Σ_b n_b/n |mean score - precision| over bins of the score and of covariates.

    Bins have equal widths. Covariates (n, d) lie between 0 and 1, as the centre, width and height of a box do in shares
    of its image; their bins are crossed with those of the score, so that a detector which is too sure at the edge of
    images and not sure enough in the middle is not called calibrated.

    Parameters
    ----------
    covariates : array (n, d) or (n,), optional
        By default only the score is binned.
    n_bins : int or several
        For the score and each covariate.
    min_rows : int
        Bins with fewer detections count as 0, as in netcal, whose figures most papers report.

    Examples
    --------
    >>> found = Detections.of([0.9, 0.9, 0.9, 0.9], [1, 1, 1, 0])
    >>> round(detection_ece(found), 3)  # 75 % are right
    0.15
    >>> round(detection_ece(found, covariates=[0.1, 0.1, 0.8, 0.8], n_bins=2), 3)
    0.25
    """
    name = "detection_ece"
    check_detections(detections, name, {}, least=1)
    columns = [detections.scores]
    if covariates is not None:
        given = between_0_and_1(covariates, "covariates", name)
        if given.ndim not in (1, 2) or len(given) != len(detections):
            expected = f"of {len(detections)} rows, one for each detection"
            raise ShapeError("covariates", name, expected=expected, got=f"shape {np.atleast_2d(given.T).T.shape}")
        columns += [*np.atleast_2d(given.T)]
    bins = [n_bins] * len(columns) if isinstance(n_bins, int) else list(n_bins)
    if len(bins) != len(columns):
        expected = f"an integer, or {len(columns)} of them, for the score and each covariate"
        raise ShapeError("n_bins", name, expected=expected, got=f"{len(bins)} of them")
    cell = np.zeros(len(detections), dtype=np.int64)
    for column, each in zip(columns, bins, strict=True):
        cell = cell * check_integer(each, "n_bins", name) + uniform_index(column, each)
    return _error(cell, detections.scores, detections.correct, check_integer(min_rows, "min_rows", name))


def localisation_aware_ece(detections: Detections, *, n_bins: int = 25, average: str = "classes") -> float:
    """LaECE (Oksuz et al. 2023): the score should be precision × mean overlap of the true positives.

    Σ_b n_b/n |mean score - precision × mean IoU| over bins of equal width of the score, for each class, averaged over
    the classes that were detected; `average="none"` takes all detections together.

    >>> found = Detections.of([0.9, 0.9], [1, 0], iou=[0.8, 0.0], labels=[3, 3])
    >>> localisation_aware_ece(found)  # 0.9 against 0.5 × 0.8
    0.5
    """
    name = "localisation_aware_ece"
    check_detections(detections, name, {"iou": ""}, least=1)
    check_integer(n_bins, "n_bins", name)
    check_option(average, ("classes", "none"), "average", name)
    wanted = np.where(detections.correct, np.asarray(detections.iou), 0.0)
    labels = detections.labels if average == "classes" else None
    groups = [slice(None)] if labels is None else [labels == label for label in np.unique(labels)]
    cell, scores = uniform_index(detections.scores, n_bins), detections.scores
    return float(np.mean([_error(cell[some], scores[some], wanted[some]) for some in groups]))


def _error(cell: Indices, scores: Vector, wanted: Vector | Flags, min_rows: int = 1) -> float:
    """Σ_b n_b/n |mean score - mean of what it should be| over the cells of at least `min_rows` rows."""
    _, cell = np.unique(cell, return_inverse=True)
    gap = np.abs(np.bincount(cell, scores - wanted))
    return float(gap[np.bincount(cell) >= min_rows].sum() / len(scores))
