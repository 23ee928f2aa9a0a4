"""Detections and true boxes from files in COCO's JSON form."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any

import numpy as np

from refocal._arrays import Flags, Indices, Vector
from refocal._json import read_json
from refocal._validation import check_integer, check_number
from refocal.detection.detections import Detections
from refocal.detection.matching import match_overlaps, overlaps, read_boxes
from refocal.errors import FormatError, InputError

MAX_BYTES = 4 << 30

Source = str | os.PathLike[str] | dict[str, Any] | list[Any]


def read_coco(
    annotations: Source, results: Source, *, iou_threshold: float = 0.5, max_detections: int = 100
) -> Detections:
    """Match detections to true boxes, class by class and image by image, as COCO's evaluation does.

    Detections that match a box marked `iscrowd` are neither true nor false, and left out. Labels are the names of the
    categories, or their ids where the file names none.

    Parameters
    ----------
    annotations : path or dict
        The true boxes: `images`, `annotations` with `image_id`, `category_id`, `bbox` and `iscrowd`, `categories`.
    results : path or list
        The detections, each with `image_id`, `category_id`, `bbox` (x, y, width, height) and `score`.
    iou_threshold : float
        The overlap from which on a detection is of a true object.
    max_detections : int
        How many detections, those of the highest scores, are kept for each class and image.

    Examples
    --------
    >>> true = {"images": [{"id": 1, "width": 100, "height": 100}], "categories": [{"id": 7, "name": "cat"}],
    ...         "annotations": [{"image_id": 1, "category_id": 7, "bbox": [10, 10, 40, 40]}]}
    >>> found = [{"image_id": 1, "category_id": 7, "bbox": [10, 12, 40, 40], "score": 0.8},
    ...          {"image_id": 1, "category_id": 7, "bbox": [60, 60, 30, 30], "score": 0.3}]
    >>> detections = read_coco(true, found)
    >>> detections.correct, detections.iou.round(2), detections.labels
    (array([ True, False]), array([0.9, 0. ]), array(['cat', 'cat'], dtype='<U3'))
    """
    check_number(iou_threshold, "iou_threshold", "read_coco", above=0.0, most=1.0)
    check_integer(max_detections, "max_detections", "read_coco")
    truth, found = _load(annotations, dict, "annotations"), _load(results, list, "results")
    try:
        at, correct, iou = _matched(truth, found, iou_threshold, max_detections)
        names = {each["id"]: str(each["name"]) for each in truth.get("categories", ())}
        sizes = {each["id"]: (each["width"], each["height"]) for each in truth["images"] if "width" in each}
    except (KeyError, TypeError, IndexError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = f"an entry lacks {error}" if isinstance(error, KeyError) else str(error)
        raise FormatError(f"not COCO's form: {reason}.") from error
    if not len(at):
        raise FormatError("no detection of these results is of an image of these annotations.")
    picked = [found[i] for i in at]
    category, image = [each["category_id"] for each in picked], [each["image_id"] for each in picked]
    return Detections.of(
        [each["score"] for each in picked],
        correct,
        labels=[names[each] for each in category] if names.keys() >= set(category) else category,
        boxes=[each["bbox"] for each in picked],
        iou=iou,
        images=image,
        image_sizes=[sizes[each] for each in image] if sizes.keys() >= set(image) else None,
    )


def _matched(
    truth: dict[str, Any], found: list[Any], iou_threshold: float, max_detections: int
) -> tuple[Indices, Flags, Vector]:
    """The places of the detections that count, whether each is right, and its overlap."""
    images, annotations = {each["id"] for each in truth["images"]}, truth["annotations"]
    (true, true_boxes), (detected, boxes) = _places(annotations, "annotations"), _places(found, "results")
    scores = np.array([each["score"] for each in found], dtype=np.float64)
    crowd = np.array([bool(each.get("iscrowd", 0)) for each in annotations], dtype=bool)
    correct, iou, counts = np.zeros(len(found), dtype=bool), np.zeros(len(found)), np.zeros(len(found), dtype=bool)
    for key, some in detected.items():
        if key[0] not in images:
            continue
        at = np.array(some)[np.argsort(-scores[some], kind="stable")[:max_detections]]
        counts[at] = True
        if key in true:
            of = np.array(true[key])
            overlap = overlaps(boxes[at], true_boxes[of], crowd[of])
            match = match_overlaps(overlap, scores[at], crowd[of], iou_threshold)
            in_crowd = (match.true >= 0) & crowd[of][match.true]
            counts[at], correct[at], iou[at] = ~in_crowd, match.true >= 0, match.iou
    return np.flatnonzero(counts), correct[counts], iou[counts]


def _places(entries: list[Any], argument: str) -> tuple[dict[Any, list[int]], Vector]:
    """The numbers of the entries of each image and category, and the boxes of all."""
    places = defaultdict(list)
    for i, each in enumerate(entries):
        places[each["image_id"], each["category_id"]].append(i)
    return places, read_boxes([each["bbox"] for each in entries], argument, "read_coco")


def _load(source: Source, kind: type[Any], argument: str) -> Any:
    data: Any = source
    if isinstance(source, (str, os.PathLike)):
        data = read_json(source, lambda data: data, what="COCO's form", max_bytes=MAX_BYTES)
    if not isinstance(data, kind) or (kind is dict and not {"images", "annotations"} <= {*data}):
        expected = "an object with 'images' and 'annotations'" if kind is dict else "a list of detections"
        where = "" if data is source else f"{source}: "
        keys = ", ".join(map(repr, data)) or "nothing" if isinstance(data, dict) else ""
        got = f"an object of {keys}" if keys else type(data).__name__
        raise FormatError(f"{where}The '{argument}' of read_coco must be {expected}. Got {got} instead.")
    return data
