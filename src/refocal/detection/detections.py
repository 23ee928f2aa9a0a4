"""Detections after matching, checked once, and their calibration errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Flags, Indices, Vector, as_array, to_numpy
from refocal._groups import as_column
from refocal._validation import check_finite, check_integer, check_one_column, check_option, check_shape, whole_numbers
from refocal.errors import DataError, LabelError, ShapeError
from refocal.io import Predictions
from refocal.metrics.bins import uniform_index

PER_DETECTION = ", one row for each detection"


@dataclass(frozen=True, eq=False)
class Detections:
    """Scored detections and whether each is of a true object; made by `of`, or by `read_coco` from files.

    `labels` are the predicted classes, `boxes` (n, 4) are x, y, width and height in pixels, `iou` is the overlap with
    the true box that was matched, 0 without one, `image_sizes` (n, 2) are width and height of the image. Unknown
    fields are None.

    >>> found = Detections.of([0.9, 0.8, 0.3], [True, False, False], labels=["cat", "dog", "dog"])
    >>> found
    Detections(3, 1 of true objects, 2 classes)
    """

    scores: Vector
    correct: Flags
    labels: NDArray[Any] | None = None
    boxes: Vector | None = None
    iou: Vector | None = None
    images: NDArray[Any] | None = None
    image_sizes: Vector | None = None

    @classmethod
    def of(
        cls,
        scores: Any,
        correct: Any,
        *,
        labels: Any = None,
        boxes: Any = None,
        iou: Any = None,
        images: Any = None,
        image_sizes: Any = None,
    ) -> Self:
        """Checked detections: scores between 0 and 1, and flags or zeros and ones for true and false positives."""
        name = "Detections.of"
        p = between_0_and_1(scores, "scores", name)
        if p.ndim != 1:
            expected = "one-dimensional, one number for each detection"
            raise ShapeError("scores", name, expected=expected, got=f"shape {p.shape}")
        hit = to_numpy(whole_numbers(as_array(correct, "correct", name), "correct", name))
        if not np.isin(hit, (0, 1)).all():
            raise LabelError("correct", name, expected="true or false, 1 or 0", got=f"{np.setdiff1d(hit, (0, 1))[0]}")
        columns = {
            "correct": hit.astype(bool),
            "labels": None if labels is None else read_classes(labels, "labels", name),
            "boxes": None if boxes is None else read_boxes(boxes, "boxes", name),
            "iou": None if iou is None else between_0_and_1(iou, "iou", name),
            "images": None if images is None else as_column(images),
            "image_sizes": None if image_sizes is None else check_finite(image_sizes, "image_sizes", name),
        }
        for argument, column in columns.items():
            shape = p.shape + {"boxes": (4,), "image_sizes": (2,)}.get(argument, ())
            check_shape(column, shape, argument, name, PER_DETECTION)
        return cls(p, **columns)

    @property
    def relative_boxes(self) -> Vector:
        """Centre x and y, width and height in shares of the image, for `detection_ece(…, covariates=…)`.

        >>> found = Detections.of([0.9], [True], boxes=[[10, 20, 40, 20]], image_sizes=[[100, 50]])
        >>> found.relative_boxes
        array([[0.3, 0.6, 0.4, 0.4]])
        """
        check_detections(self, "relative_boxes", {"boxes": "", "image_sizes": ""})
        corner, size = np.split(np.asarray(self.boxes), 2, axis=1)
        shares: Vector = np.concatenate([corner + size / 2.0, size], axis=1) / np.tile(np.asarray(self.image_sizes), 2)
        return np.clip(shares, 0.0, 1.0)

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        classes = "" if self.labels is None else f", {len(np.unique(self.labels)):,} classes"
        return f"Detections({len(self):,}, {int(self.correct.sum()):,} of true objects{classes})"

    def predictions(self) -> Predictions:
        """Score against true or false positive, for `evaluate` and the report; grouped by class and size of the box.

        Sizes are COCO's: small below 32², large from 96² square pixels on.

        >>> Detections.of([0.9, 0.4], [1, 0], labels=["cat", "dog"]).predictions().groups["class"].tolist()
        ['cat', 'dog']
        """
        groups = {} if self.labels is None else {"class": self.labels}
        if self.boxes is not None:
            sizes = np.array(["small", "medium", "large"])
            edges = (32.0**2, 96.0**2)  # of COCO, in pixels
            groups["size"] = sizes[np.digitize(np.prod(self.boxes[:, 2:], axis=1), edges)]
        return Predictions.from_probabilities(self.scores, self.correct).with_groups(groups)

    def take(self, rows: Any) -> Self:
        """Some of the detections: indices or flags."""
        columns = {name: value[rows] for name, value in vars(self).items() if value is not None}
        return replace(self, **columns)

    def with_scores(self, scores: Any) -> Self:
        """The same detections with other scores, such as calibrated ones."""
        p = between_0_and_1(scores, "scores", "with_scores")
        check_shape(p, self.scores.shape, "scores", "with_scores", PER_DETECTION)
        return replace(self, scores=p)


def check_detections(detections: Any, function: str, needed: Mapping[str, str], *, least: int = 0) -> None:
    """Require `least` detections with the fields that are `needed`, each with what can be done instead."""
    if not isinstance(detections, Detections):
        expected = "Detections: refocal.detection.Detections.of(scores, correct, …), or read_coco"
        raise DataError("detections", function, expected=expected, got=f"a {type(detections).__name__}")
    if len(detections) < least:
        raise ShapeError("detections", function, expected="at least one detection", got="none")
    for name, instead in needed.items():
        if getattr(detections, name) is None:
            expected = f"made with {name}: Detections.of(…, {name}=…), or read_coco{instead}"
            raise DataError("detections", function, expected=expected, got=f"detections without {name}")


def read_classes(values: Any, argument: str, function: str) -> NDArray[Any]:
    """The class of each detection: text for all of them, or a number for all."""
    # NumPy would make text of None and of numbers that stand beside text in a list.
    column = np.array(values, dtype=object) if isinstance(values, (list, tuple)) else as_column(values)
    if column.ndim != 1:
        return column  # an error of its shape
    # Classes that a loop gathered are NumPy's numbers or arrays of one number, in a list.
    classes = [label.item() if hasattr(label, "item") else label for label in column.tolist()]
    is_text = bool(classes) and isinstance(classes[0], str)
    for label in classes:
        is_number = isinstance(label, (int, float)) and label == label  # NaN is a missing class
        if not (isinstance(label, str) if is_text else is_number):
            expected = f"{'text' if is_text else 'a number'} for each detection, as for the first"
            raise LabelError(argument, function, expected=expected, got=repr(label))
    return np.array(classes) if column.dtype == object else column


def between_0_and_1(values: Any, argument: str, function: str) -> Vector:
    """Numbers, checked to lie between 0 and 1."""
    checked: Vector = to_numpy(check_one_column(values, "probabilities", argument, function))[..., 1]
    return checked.astype(np.float64)


def read_boxes(values: Any, argument: str, function: str) -> Vector:
    """Boxes (n, 4) of finite numbers, none of a negative width or height; no boxes at all are fine."""
    boxes = check_finite(values, argument, function)
    if boxes.size == 0:
        return boxes.reshape(0, 4)
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        expected = "of shape (n, 4): x, y, width, height"
        raise ShapeError(argument, function, expected=expected, got=f"shape {boxes.shape}")
    negative = np.flatnonzero((boxes[:, 2:] < 0.0).any(axis=1))
    if len(negative):
        expected = "of a width and a height of at least 0 (x, y, width, height; not two corners)"
        bad = negative[0]
        raise DataError(argument, function, expected=expected, got=f"{boxes[bad].tolist()} in row {bad}")
    return boxes


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
    bins = [n_bins] * len(columns) if np.ndim(n_bins) == 0 else list(np.asarray(n_bins))
    if len(bins) != len(columns):
        expected = f"an integer, or {len(columns)} of them, for the score and each covariate"
        raise ShapeError("n_bins", name, expected=expected, got=f"{len(bins)} of them")
    cell = np.zeros(len(detections), dtype=np.int64)
    for column, size in zip(columns, bins, strict=True):
        n_cells = check_integer(size, "n_bins", name)
        cell = cell * n_cells + uniform_index(column, n_cells)
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
    cell = uniform_index(detections.scores, n_bins)
    scores = detections.scores
    return float(np.mean([_error(cell[some], scores[some], wanted[some]) for some in groups]))


def _error(cell: Indices, scores: Vector, wanted: Vector | Flags, min_rows: int = 1) -> float:
    """Σ_b n_b/n |mean score - mean of what it should be| over the cells of at least `min_rows` rows."""
    _, cell = np.unique(cell, return_inverse=True)
    gap = np.abs(np.bincount(cell, scores - wanted))
    return float(gap[np.bincount(cell) >= min_rows].sum() / len(scores))
