"""Detections: matching against a loop in COCO's order and pycocotools, errors against loops and netcal, calibration."""

from __future__ import annotations

import contextlib
import io
import json

import numpy as np
import pytest
from netcal.metrics import ECE
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from refocal.detection import (
    DetectionCalibration,
    Detections,
    box_iou,
    detection_ece,
    localisation_aware_ece,
    match_boxes,
    read_coco,
)
from refocal.errors import DataError, FormatError, InputWarning, LabelError, ParameterError, ShapeError
from refocal.evaluate import evaluate


def images_of(n_images, seed, n_classes=3):
    """True boxes and detections around them, on whole pixels and scores with two digits so that there are ties."""
    rng = np.random.default_rng(seed)
    true = {"images": [{"id": i, "width": 200, "height": 150} for i in range(n_images)], "annotations": []}
    true["categories"] = [{"id": 3 * c + 1, "name": f"class {c}"} for c in range(n_classes)]
    found = []

    def box(values):
        return np.maximum(np.round(values), 1.0).tolist()

    for image in range(n_images):
        for _ in range(rng.integers(8)):
            category = 3 * int(rng.integers(n_classes)) + 1
            here = np.array([*rng.uniform(0, 120, 2), *rng.uniform(5, 60, 2)])
            entry = {"image_id": image, "category_id": category}
            true["annotations"].append({**entry, "bbox": box(here), "iscrowd": int(rng.random() < 0.15)})
            for _ in range(rng.integers(5)):
                found.append({**entry, "bbox": box(here + rng.normal(0, 4, 4)), "score": round(rng.random(), 2)})
    return true, found


def pixels(box):
    x, y, width, height = map(int, box)
    return {(i, j) for i in range(x, x + width) for j in range(y, y + height)}


def test_overlap_is_that_of_the_pixels():
    rng = np.random.default_rng(0)
    found, true = rng.integers(1, 20, size=(2, 6, 4))
    crowd = np.array([False, False, True, False, True, False])
    want = [
        [
            len(pixels(a) & pixels(b)) / len(pixels(a) if many else pixels(a) | pixels(b))
            for b, many in zip(true, crowd, strict=True)
        ]
        for a in found
    ]
    assert box_iou(found, true, crowd=crowd) == pytest.approx(np.array(want), abs=1e-15)
    assert box_iou(found, []).shape == (6, 0)
    assert box_iou([[0, 0, 0, 0]], [[0, 0, 0, 0]]).tolist() == [[0.0]]  # nothing overlaps nothing


def matched_by_loop(boxes, scores, true, crowd, threshold):
    """After the text of COCO's evaluation: crowds last, a match is left only for a better one that is no crowd."""
    overlap = box_iou(boxes, true, crowd=crowd)
    order = sorted(range(len(true)), key=lambda g: crowd[g])
    taken, match = set(), [-1] * len(boxes)
    for d in sorted(range(len(boxes)), key=lambda d: -scores[d]):
        best = min(threshold, 1 - 1e-10)
        for g in order:
            if g in taken and not crowd[g]:
                continue
            if match[d] > -1 and not crowd[match[d]] and crowd[g]:
                break
            if overlap[d, g] < best:
                continue
            best, match[d] = overlap[d, g], g
        taken.add(match[d])
    return match


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.75])
def test_boxes_are_matched_as_coco_does(threshold):
    true, found = images_of(60, seed=1)
    for image in true["images"]:
        here, there = (
            [each for each in some if each["image_id"] == image["id"]] for some in (found, true["annotations"])
        )
        boxes, scores = [each["bbox"] for each in here], [each["score"] for each in here]
        truth, crowd = [each["bbox"] for each in there], [bool(each["iscrowd"]) for each in there]
        match = match_boxes(boxes, scores, truth, crowd=crowd, iou_threshold=threshold)
        assert match.true.tolist() == matched_by_loop(boxes, scores, truth, crowd, threshold)


def by_pycocotools(true, found, threshold):
    pytest.importorskip("pycocotools", reason="pycocotools is not installed")
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    numbered = [{**each, "id": i + 1, "area": 1.0} for i, each in enumerate(true["annotations"])]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {**true, "annotations": numbered, "info": {}}
        truth.createIndex()
        run = COCOeval(truth, truth.loadRes([dict(each) for each in found]), "bbox")
        run.params.iouThrs, run.params.areaRng, run.params.areaRngLbl = np.array([threshold]), [[0, 1e10]], ["all"]
        run.evaluate()
    return {
        number - 1: bool(each["dtMatches"][0][k] > 0)
        for each in run.evalImgs
        if each is not None
        for k, number in enumerate(each["dtIds"])
        if not each["dtIgnore"][0][k]
    }


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.75])
def test_files_are_matched_as_by_pycocotools(threshold, tmp_path):
    true, found = images_of(60, seed=2)
    want = by_pycocotools(true, found, threshold)
    for name, data in (("true", true), ("found", found)):
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    got = read_coco(tmp_path / "true.json", tmp_path / "found.json", iou_threshold=threshold)
    assert got.correct.tolist() == [want[at] for at in sorted(want)]
    assert got.scores.tolist() == [found[at]["score"] for at in sorted(want)]


def test_what_files_say_of_detections():
    true, found = images_of(30, seed=3)
    got = read_coco(true, found)
    assert set(got.labels) == {"class 0", "class 1", "class 2"}
    assert np.array_equal(got.iou > 0, got.correct)
    assert got.iou[got.correct].min() >= 0.5
    assert got.relative_boxes.shape == (len(got), 4)
    strangers = [{**each, "image_id": 10**6} for each in found]
    assert len(read_coco(true, found + strangers)) == len(got)
    assert read_coco({**true, "categories": []}, found).labels.tolist() == [int(n[6:]) * 3 + 1 for n in got.labels]
    assert len(read_coco(true, found, max_detections=1)) < len(got)
    with pytest.raises(FormatError, match="no detection of these results is of an image"):
        read_coco(true, strangers)


def test_a_category_that_is_not_listed_is_left_out_and_the_others_keep_their_names():
    true, found = images_of(30, seed=3)
    want = read_coco(true, found)
    strangers = [{**each, "category_id": 999} for each in found]
    got = read_coco(true, found + strangers)
    assert got.labels.tolist() == want.labels.tolist()
    assert got.correct.tolist() == want.correct.tolist()
    with pytest.raises(FormatError, match="is of an image and a category of these annotations"):
        read_coco(true, strangers)


@pytest.mark.parametrize("key", ["category_id", "image_id"])
@pytest.mark.parametrize("kind", [str, float])
def test_ids_match_however_they_are_written(key, kind):
    true, found = images_of(30, seed=3)
    want = read_coco(true, found)
    got = read_coco(true, [{**each, key: kind(each[key])} for each in found])
    assert got.labels.tolist() == want.labels.tolist()
    assert got.correct.tolist() == want.correct.tolist()
    assert np.array_equal(got.relative_boxes, want.relative_boxes)


def test_numbers_of_bins_may_be_numbers_of_numpy():
    found = Detections.of([0.9, 0.9, 0.6, 0.1], [1, 0, 1, 0])
    assert detection_ece(found, n_bins=np.int64(5)) == detection_ece(found, n_bins=5)
    both = {"covariates": [0.1, 0.1, 0.8, 0.8]}
    assert detection_ece(found, n_bins=np.array([5, 2]), **both) == detection_ece(found, n_bins=[5, 2], **both)
    with pytest.raises(ParameterError, match=r"'n_bins' of detection_ece must be an integer .* Got '5'"):
        detection_ece(found, n_bins="5")


def test_errors_against_loops_and_netcal():
    rng = np.random.default_rng(0)
    features = rng.random((2000, 3))
    features[:20, 0], features[20:40, 1] = 1.0, 0.5
    score, label = features[:, 0], rng.integers(3, size=2000)
    correct = rng.random(2000) < score**1.5
    iou = np.where(correct, rng.uniform(0.5, 1.0, 2000), 0.0)
    found = Detections.of(score, correct, labels=label, iou=iou)
    for n_bins, min_rows in ((10, 1), ((8, 4, 2), 1), ((8, 4, 2), 35)):
        for covariates in (None, features[:, 1:]):
            if covariates is None and n_bins != 10:
                continue
            used = features[:, :1] if covariates is None else features
            want = ECE(bins=n_bins, detection=True, sample_threshold=min_rows).measure(used, correct.astype(int))
            got = detection_ece(found, covariates=covariates, n_bins=n_bins, min_rows=min_rows)
            assert got == pytest.approx(want, abs=1e-12)
    errors = []
    for each in range(3):
        total = 0.0
        for low in range(25):
            inside = (label == each) & (score >= low / 25) & ((score < (low + 1) / 25) | (low == 24))
            if inside.any():
                hits = inside & correct
                target = hits.sum() / inside.sum() * (iou[hits].mean() if hits.any() else 0.0)
                total += inside.sum() * abs(score[inside].mean() - target)
        errors.append(total / (label == each).sum())
    assert localisation_aware_ece(found) == pytest.approx(np.mean(errors), abs=1e-12)
    alone = found.take(label == 1)
    assert localisation_aware_ece(alone, average="none") == pytest.approx(errors[1], abs=1e-12)


def detections_of(n, seed, *, rare=10):
    """Four classes with their own slopes and intercepts, the last of them rare; small boxes are overconfident."""
    rng = np.random.default_rng(seed)
    label = rng.choice(4, size=n, p=[0.5, 0.3, 0.2 - rare / n, rare / n])
    x = rng.normal(0.0, 1.5, size=n)
    size = rng.normal(size=n)
    odds = np.array([1.0, 0.6, 1.3, 1.0])[label] * (x + 0.7 * size) + np.array([0.0, -1.0, 0.5, 0.0])[label]
    boxes = np.stack([np.zeros(n), np.zeros(n), 40 * np.exp(size / 2), 40 * np.exp(size / 2)], axis=1)
    truth = 1 / (1 + np.exp(-odds))
    return Detections.of(1 / (1 + np.exp(-x)), rng.random(n) < truth, labels=label, boxes=boxes), truth


def loss(truth, p):
    """The expected log-loss, which no calibrator can bring below that of the truth."""
    return -np.mean(truth * np.log(p) + (1 - truth) * np.log1p(-p))


def log_odds(p):
    return np.log(p / (1 - p))[:, None]


def test_lines_of_classes_and_the_size_of_boxes_come_near_the_truth():
    fitted_on, (test, truth) = detections_of(8000, seed=0)[0], detections_of(8000, seed=1)
    best = loss(truth, truth)
    excess = {
        (per_class, box_size): loss(
            truth, DetectionCalibration(per_class=per_class, box_size=box_size).fit(fitted_on).predict_proba(test)
        )
        - best
        for per_class in (False, True)
        for box_size in (False, True)
    }
    assert excess[True, True] < 0.002
    assert excess[True, True] < 0.1 * min(excess[True, False], excess[False, True])
    assert max(excess.values()) == excess[False, False] < loss(truth, test.scores) - best

    # scikit-learn with all interactions, almost without a penalty, on the same rows
    def design(found):
        one_hot, z = np.eye(4)[found.labels], np.log(found.boxes[:, 2] * found.boxes[:, 3])
        return np.column_stack([one_hot, one_hot * log_odds(found.scores), one_hot * z[:, None]])

    peer = LogisticRegression(C=1e4, fit_intercept=False, max_iter=2000).fit(design(fitted_on), fitted_on.correct)
    assert excess[True, True] < loss(truth, peer.predict_proba(design(test))[:, 1]) - best + 0.0005


@pytest.mark.slow
def test_a_rare_class_is_drawn_to_the_others_and_an_unknown_one_is_calibrated_as_all_are():
    excess = np.zeros(2)
    for seed in range(10):
        found, (test, truth) = detections_of(1500, seed=seed)[0], detections_of(20_000, seed=100, rare=2000)
        rare, of = found.take(found.labels == 3), test.labels == 3
        fitted = DetectionCalibration().fit(found)
        alone = LogisticRegression().fit(log_odds(rare.scores), rare.correct).predict_proba(log_odds(test.scores))
        excess += [loss(truth[of], p[of]) / 10 for p in (fitted.predict_proba(test), alone[:, 1])]
    assert excess[0] < excess[1] - 0.03
    unknown = found.take(slice(100))
    unknown = Detections.of(unknown.scores, unknown.correct, labels=np.full(100, 77))
    alone = DetectionCalibration(per_class=False).fit(found)
    with pytest.warns(InputWarning, match="no groups of 'class' were given that the fit has seen"):
        p = fitted.predict_proba(unknown)
    assert p == pytest.approx(alone.predict_proba(unknown), abs=1e-15)
    same = detections_of(4000, seed=2)[0]
    alike = DetectionCalibration().fit(Detections.of(same.scores, same.correct, labels=np.arange(4000) % 40))
    assert alike.calibrator_.fit_report_["deviations"]["class"] <= 0.1  # labels that mean nothing


def test_the_order_of_the_detections_of_a_class_stays():
    found, _ = detections_of(2000, seed=5)
    wrong = np.where(found.labels == 1, found.scores < 0.5, found.correct)  # a class whose scores mean the opposite
    calibrated = DetectionCalibration().fit(Detections.of(found.scores, wrong, labels=found.labels)).transform(found)
    for label in range(4):
        some = found.labels == label
        order = np.argsort(found.scores[some])
        assert (np.diff(calibrated.scores[some][order]) >= 0.0).all()


def test_an_evaluation_has_groups_by_class_and_size():
    found, _ = detections_of(600, seed=6)
    boxes = np.array([[0, 0, 31, 32], [0, 0, 32, 32], [0, 0, 96, 96]])
    assert Detections.of([0.1] * 3, [0] * 3, boxes=boxes).predictions().groups["size"].tolist() == [
        "small",
        "medium",
        "large",
    ]
    calibrated = DetectionCalibration(box_size=True).fit(found).transform(found)
    before, after = (evaluate(each.predictions(), {}, n_resamples=20).before for each in (found, calibrated))
    assert after.measures["log_loss"].value < before.measures["log_loss"].value
    rates = {(row.column, row.name): (row.n, row.rate) for row in before.groups}
    assert rates["class", "1"] == ((found.labels == 1).sum(), pytest.approx(found.correct[found.labels == 1].mean()))
    assert {name for column, name in rates if column == "size"} <= {"small", "medium", "large"}


def test_a_fitted_calibrator_is_written_and_read(tmp_path):
    found, _ = detections_of(1000, seed=4)
    for options in (
        {"box_size": True},
        {"per_class": False},
        {"method": "fts-ece", "per_class": False},
        {"method": "ts"},
    ):
        fitted = clone(DetectionCalibration(**options)).fit(found)
        fitted.save(tmp_path / "c.json")
        again = DetectionCalibration.load(tmp_path / "c.json")
        assert np.array_equal(again.predict_proba(found), fitted.predict_proba(found))
        assert again.get_params() == fitted.get_params()
        assert again.transform(found).scores.max() <= 1.0
        assert len(again.transform(found.take([]))) == 0  # an image in which nothing was found
    data = json.loads((tmp_path / "c.json").read_text())
    for damaged in ({"size": {"score": 1.0}}, {"calibrator": {}}, {"calibrator": {**data["calibrator"], "groups": {}}}):
        (tmp_path / "c.json").write_text(json.dumps({**data, **damaged}))
        with pytest.raises(FormatError, match=r"fields of Size|not a calibrator|with groups by class or none"):
            DetectionCalibration.load(tmp_path / "c.json")
    (tmp_path / "c.json").write_text("{}")
    with pytest.raises(FormatError, match="not a calibrator of detections"):
        DetectionCalibration.load(tmp_path / "c.json")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Detections.of([0.5, 1.2], [0, 1]), DataError, "'scores' of Detections.of must be at most 1"),
        (lambda: Detections.of([-3.0], [1]), DataError, "are these some"),
        (lambda: Detections.of([0.5], [2]), LabelError, "'correct' of Detections.of must be true or false"),
        (lambda: Detections.of([0.5], [1, 0]), ShapeError, r"'correct' of Detections.of must be of shape \(1,\)"),
        (lambda: Detections.of([0.5], [1], boxes=[[5, 5, -1, 2]]), DataError, "not two corners"),
        (lambda: Detections.of([0.5], [1], boxes=[[5, 5, 1]]), ShapeError, r"of shape \(n, 4\)"),
        (lambda: Detections.of([0.5], [1]).relative_boxes, DataError, "made with boxes"),
        (lambda: match_boxes([[0, 0, 1, 1]], [0.5, 0.5], []), ShapeError, "'scores' of match_boxes"),
        (lambda: match_boxes([[0, 0, 1, 1]], [0.5], [], iou_threshold=0.0), ParameterError, "'iou_threshold'"),
        (lambda: box_iou([[0, 0, 1, 1]], [[0, 0, 1, 1]], crowd=[1, 0]), ShapeError, "'crowd' of box_iou"),
        (lambda: detection_ece(Detections.of([0.5], [1]), n_bins=(3, 4)), ShapeError, "'n_bins' of detection_ece"),
        (lambda: detection_ece(Detections.of([0.5], [1]), covariates=[7.0]), DataError, "'covariates'"),
        (lambda: localisation_aware_ece(Detections.of([0.5], [1])), DataError, r"Detections.of\(…, iou=…\)"),
        (lambda: Detections.of([0.5], [1], labels=[["cat"]]), ShapeError, r"'labels' .* of shape \(1,\).* Got shape"),
        (lambda: Detections.of([0.5], [1], image_sizes=[[640]]), ShapeError, r"'image_sizes' .* of shape \(1, 2\)"),
        (lambda: detection_ece([0.5]), DataError, "'detections' of detection_ece must be Detections.* Got a list"),
        (
            lambda: match_boxes([[0, 0, 1, 1]], ["a"], []),
            DataError,
            "'scores' .* must be an array of numbers",
        ),
        (lambda: Detections.of([0.5], [1], boxes=[[5, 5, np.nan, 2]]), DataError, "'boxes' .* must be finite"),
        (lambda: detection_ece(Detections.of([], [])), ShapeError, "at least one detection. Got none"),
        (lambda: localisation_aware_ece(Detections.of([], [], iou=[])), ShapeError, "at least one detection"),
        (
            lambda: read_coco(
                {"images": [{"id": 1}], "annotations": []},
                [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": "high"}],
            ),
            FormatError,
            "not COCO's form",
        ),
        (lambda: read_coco([], []), FormatError, "The 'annotations' of read_coco must be an object with 'images'"),
        (lambda: read_coco({"images": [], "annotations": []}, {}), FormatError, "must be a list of detections"),
        (lambda: read_coco({"images": [{"id": 1}], "annotations": [{}]}, []), FormatError, "lacks 'image_id'"),
        (lambda: DetectionCalibration().fit([0.5]), DataError, "'detections' of DetectionCalibration.fit must be"),
        (
            lambda: DetectionCalibration().fit(Detections.of([0.5, 0.1], [1, 0])),
            DataError,
            "labels.*per_class=False",
        ),
        (
            lambda: DetectionCalibration(per_class=False).fit(Detections.of([0.5, 0.1], [1, 1])),
            DataError,
            "some true and some false positives. Got only true ones",
        ),
        (
            lambda: DetectionCalibration(method="best", per_class=False).fit(Detections.of([0.5, 0.1], [1, 0])),
            ParameterError,
            "'method'",
        ),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("labels", "got"),
    [(["cat", None], "None"), (["cat", 3], "3"), ([1, "cat"], "'cat'"), ([1.0, float("nan")], "nan")],
)
def test_classes_of_detections_are_all_text_or_all_numbers(labels, got):
    with pytest.raises(LabelError, match=rf"'labels' .* must be .* for each detection, as for the first.* Got {got}"):
        Detections.of([0.9, 0.4], [True, False], labels=labels)


def test_classes_of_detections_may_be_of_any_type_of_their_kind():
    for labels in (["cat", "dog"], np.array(["cat", "dog"], dtype=object), np.array([3, 5], dtype=np.uint8), [3, 5]):
        detections = Detections.of([0.9, 0.4], [True, False], labels=labels)
        assert repr(detections) == "Detections(2, 1 of true objects, 2 classes)"


def test_classes_that_were_gathered_one_by_one_are_those_of_an_array():
    """As a loop over the detections of each image appends them."""
    numbers = np.array([7, 2, 7])
    names = np.array(["cat", "dog", "cat"])
    for classes in (numbers, numbers.astype(np.float32), names):
        expected = Detections.of([0.9, 0.4, 0.2], [True, False, True], labels=classes).labels
        items = list(classes)
        for gathered in (items, tuple(items), np.array(items, dtype=object), [np.array(item) for item in items]):
            detections = Detections.of([0.9, 0.4, 0.2], [True, False, True], labels=gathered)
            assert detections.labels.tolist() == expected.tolist()


def test_masked_classes_and_images_are_missing():
    masked = np.ma.array([1, 2], mask=[False, True])
    with pytest.raises(LabelError, match=r"'labels' of Detections\.of must be a number for each detection"):
        Detections.of([0.9, 0.8], [1, 0], labels=masked)
    with pytest.raises(LabelError, match=r"'labels' of Detections\.of must be text for each detection"):
        Detections.of([0.9, 0.8], [1, 0], labels=np.ma.array(["cat", "dog"], mask=[False, True]))
    assert Detections.of([0.9, 0.8], [1, 0], images=masked).images.tolist() == [1, None]
