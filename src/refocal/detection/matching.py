"""Which detections are of a true object: overlap of boxes, and COCO's way of matching."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Flags, Indices, Vector
from refocal._validation import check_finite, check_number, check_shape
from refocal.errors import DataError, ShapeError


class Match(NamedTuple):
    """For each detection the true box that it matches, -1 for none, and their overlap, 0 for none.

    >>> match_boxes([[0, 0, 10, 10], [50, 50, 10, 10]], [0.9, 0.8], [[0, 0, 10, 8]])
    Match(true=array([ 0, -1]), iou=array([0.8, 0. ]))
    """

    true: Indices
    iou: Vector


def box_iou(boxes: Any, true_boxes: Any, *, crowd: Any = None) -> Vector:
    """Intersection over union of every detected box with every true one; boxes are x, y, width, height.

    Where `crowd` says that a true box is one around many objects, the intersection is divided by the area of the
    detected box alone, as COCO does.

    >>> box_iou([[0, 0, 10, 10]], [[5, 0, 10, 10], [20, 20, 5, 5]]).round(3)
    array([[0.333, 0.   ]])
    """
    return _checked_overlaps(boxes, true_boxes, crowd, "box_iou")[0]


def _checked_overlaps(boxes: Any, true_boxes: Any, crowd: Any, function: str) -> tuple[Vector, Flags]:
    """The overlaps, and which true boxes are crowds."""
    found, true = (read_boxes(each, name, function) for each, name in ((boxes, "boxes"), (true_boxes, "true_boxes")))
    flags = np.zeros(len(true), dtype=bool) if crowd is None else np.asarray(crowd, dtype=bool)
    check_shape(flags, (len(true),), "crowd", function, ", one for each true box")
    return overlaps(found, true, flags), flags


def overlaps(boxes: Vector, true_boxes: Vector, crowd: Flags) -> Vector:
    """As `box_iou`, for checked boxes."""
    found, true = boxes[:, None, :], true_boxes[None, :, :]
    low = np.maximum(found[..., :2], true[..., :2])
    sides = np.maximum(np.minimum(found[..., :2] + found[..., 2:], true[..., :2] + true[..., 2:]) - low, 0.0)
    common: Vector = sides[..., 0] * sides[..., 1]
    area, true_area = found[..., 2] * found[..., 3], true[..., 2] * true[..., 3]
    union = np.where(crowd, area, area + true_area - common)
    return np.divide(common, union, out=np.zeros_like(common), where=union > 0.0)


def match_boxes(boxes: Any, scores: Any, true_boxes: Any, *, crowd: Any = None, iou_threshold: float = 0.5) -> Match:
    """Match the detections of one class in one image to the true boxes, the highest score first, as COCO does.

    Each detection takes the free true box of the largest overlap, if that is at least `iou_threshold`; a box marked as
    `crowd` is taken only by what matches no other, and by any number of detections.

    >>> match_boxes([[0, 0, 10, 10], [1, 0, 10, 10]], [0.6, 0.9], [[0, 0, 10, 10]]).true
    array([-1,  0])
    """
    threshold = check_number(iou_threshold, "iou_threshold", "match_boxes", above=0.0, most=1.0)
    overlap, flags = _checked_overlaps(boxes, true_boxes, crowd, "match_boxes")
    score = check_finite(scores, "scores", "match_boxes")
    check_shape(score, overlap.shape[:1], "scores", "match_boxes", ", one for each box")
    return match_overlaps(overlap, score, flags, threshold)


def match_overlaps(overlap: Vector, scores: Vector, crowd: Flags, threshold: float) -> Match:
    """As `match_boxes`, from the overlaps of checked boxes."""
    true, iou = np.full(len(overlap), -1), np.zeros(len(overlap))
    enough, free = overlap >= threshold, ~crowd
    for i in np.argsort(-scores, kind="stable"):
        if not enough[i].any():
            continue
        for some in (enough[i] & free, enough[i] & crowd):
            if some.any():
                # The last of equal ones, as in pycocotools.
                true[i] = len(crowd) - 1 - np.argmax(np.where(some, overlap[i], -1.0)[::-1])
                iou[i] = overlap[i, true[i]]
                free[true[i]] = False
                break
    return Match(true, iou)


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
