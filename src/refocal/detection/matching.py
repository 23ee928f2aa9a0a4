"""Which detections are of a true object: overlap of boxes, COCO's way of matching, and files in COCO's JSON form."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Flags, Indices, Vector
from refocal._json import read_json
from refocal._validation import check_finite, check_integer, check_number, check_shape
from refocal.detection.detections import Detections, read_boxes
from refocal.errors import FormatError, InputError

Source = str | os.PathLike[str] | dict[str, Any] | list[Any]


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
    detected = read_boxes(boxes, "boxes", function)
    true = read_boxes(true_boxes, "true_boxes", function)
    flags = np.zeros(len(true), dtype=bool) if crowd is None else np.asarray(crowd, dtype=bool)
    check_shape(flags, (len(true),), "crowd", function, ", one for each true box")
    return overlaps(detected, true, flags), flags


def overlaps(boxes: Vector, true_boxes: Vector, crowd: Flags) -> Vector:
    """As `box_iou`, for checked boxes."""
    detected = boxes[:, None, :]
    true = true_boxes[None, :, :]
    low = np.maximum(detected[..., :2], true[..., :2])
    sides = np.maximum(np.minimum(detected[..., :2] + detected[..., 2:], true[..., :2] + true[..., 2:]) - low, 0.0)
    common: Vector = sides[..., 0] * sides[..., 1]
    area = detected[..., 2] * detected[..., 3]
    true_area = true[..., 2] * true[..., 3]
    union = np.where(crowd, area, area + true_area - common)
    return np.divide(common, union, out=np.zeros_like(common), where=union > 0.0)


def match_boxes(boxes: Any, scores: Any, true_boxes: Any, *, crowd: Any = None, iou_threshold: float = 0.5) -> Match:
    """Match the detections of one class in one image to the true boxes, the highest score first, as COCO does.

    Boxes are (x, y, width, height), not two corners, as torchvision has them.

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
    true = np.full(len(overlap), -1)
    iou = np.zeros(len(overlap))
    enough = overlap >= threshold
    free = ~crowd
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


def read_coco(
    annotations: Source, results: Source, *, iou_threshold: float = 0.5, max_detections: int = 100
) -> Detections:
    """Match detections to true boxes, class by class and image by image, as COCO's evaluation does.

    Detections that match a box marked `iscrowd` are neither true nor false, and left out, as are those of images and
    of categories that the annotations do not list. Labels are the names of the categories, or their ids where the file
    lists none. Ids are compared by their text: 7 is "7".

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
    truth = _load(annotations, dict, "annotations")
    detections = _load(results, list, "results")
    try:
        at, correct, iou = _matched(truth, detections, iou_threshold, max_detections)
        names = {_key(entry["id"]): str(entry["name"]) for entry in truth.get("categories") or ()}
        sizes = {_key(entry["id"]): (entry["width"], entry["height"]) for entry in truth["images"] if "width" in entry}
    except (KeyError, TypeError, IndexError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = f"an entry lacks {error}" if isinstance(error, KeyError) else str(error)
        raise FormatError(f"not COCO's form: {reason}.") from error
    if not len(at):
        listed = "an image and a category" if names else "an image"
        raise FormatError(f"no detection of these results is of {listed} of these annotations.")
    picked = [detections[i] for i in at]
    category = [entry["category_id"] for entry in picked]
    image = [entry["image_id"] for entry in picked]
    return Detections.of(
        [entry["score"] for entry in picked],
        correct,
        labels=[names[_key(number)] for number in category] if names else category,
        boxes=[entry["bbox"] for entry in picked],
        iou=iou,
        images=image,
        image_sizes=[sizes[_key(number)] for number in image] if sizes.keys() >= set(map(_key, image)) else None,
    )


def _matched(
    truth: dict[str, Any], detections: list[Any], iou_threshold: float, max_detections: int
) -> tuple[Indices, Flags, Vector]:
    """The places of the detections that count, whether each is right, and its overlap."""
    annotations = truth["annotations"]
    images = {_key(entry["id"]) for entry in truth["images"]}
    categories = {_key(entry["id"]) for entry in truth.get("categories") or ()}
    (true, true_boxes) = _places(annotations, "annotations")
    (detected, boxes) = _places(detections, "results")
    scores = np.array([entry["score"] for entry in detections], dtype=np.float64)
    crowd = np.array([bool(entry.get("iscrowd", 0)) for entry in annotations], dtype=bool)
    correct = np.zeros(len(detections), dtype=bool)
    iou = np.zeros(len(detections))
    counts = np.zeros(len(detections), dtype=bool)
    for key, some in detected.items():
        image, category = key
        if image not in images or (categories and category not in categories):
            continue
        at = np.array(some)[np.argsort(-scores[some], kind="stable")[:max_detections]]
        counts[at] = True
        if key in true:
            of = np.array(true[key])
            overlap = overlaps(boxes[at], true_boxes[of], crowd[of])
            match = match_overlaps(overlap, scores[at], crowd[of], iou_threshold)
            in_crowd = (match.true >= 0) & crowd[of][match.true]
            counts[at] = ~in_crowd
            correct[at] = match.true >= 0
            iou[at] = match.iou
    return np.flatnonzero(counts), correct[counts], iou[counts]


def _places(entries: list[Any], argument: str) -> tuple[dict[Any, list[int]], Vector]:
    """The numbers of the entries of each image and category, and the boxes of all."""
    places = defaultdict(list)
    for i, entry in enumerate(entries):
        places[_key(entry["image_id"]), _key(entry["category_id"])].append(i)
    return places, read_boxes([entry["bbox"] for entry in entries], argument, "read_coco")


def _key(number: Any) -> str:
    """An id as text, since some programs write 7 and others "7"; whole numbers have no point."""
    return str(int(number)) if isinstance(number, float) and number.is_integer() else str(number)


def _load(source: Source, kind: type[Any], argument: str) -> Any:
    data: Any = source
    if isinstance(source, (str, os.PathLike)):
        data = read_json(source, lambda data: data, what="COCO's form", max_bytes=4 << 30)
    if not isinstance(data, kind) or (kind is dict and not {"images", "annotations"} <= {*data}):
        expected = "an object with 'images' and 'annotations'" if kind is dict else "a list of detections"
        where = "" if data is source else f"{source}: "
        keys = ", ".join(map(repr, data)) or "nothing" if isinstance(data, dict) else ""
        got = f"an object of {keys}" if keys else type(data).__name__
        raise FormatError(f"{where}The '{argument}' of read_coco must be {expected}. Got {got} instead.")
    return data
