"""Calibrate the confidence of a detector from COCO-style files, class by class and by the size of the box.

python examples/detection.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from refocal.detection import (
    DetectionCalibration,
    Detections,
    detection_ece,
    localisation_aware_ece,
    read_coco,
)
from refocal.metrics import log_loss

# %% Stands for your detector: files in COCO format
CLASSES = ("person", "bicycle", "dog")


def write_files(folder: Path, n_images: int, seed: int) -> tuple[Path, Path]:
    """True boxes and detections, overconfident for small boxes and for bicycles."""
    rng = np.random.default_rng(seed)
    true: dict[str, Any] = {"images": [], "annotations": [], "categories": []}
    true["categories"] = [{"id": i + 1, "name": name} for i, name in enumerate(CLASSES)]
    found = []
    for image in range(n_images):
        true["images"].append({"id": image, "width": 640, "height": 480})
        for _ in range(rng.integers(2, 6)):
            category = int(rng.choice(3, p=[0.6, 0.3, 0.1]))
            size = np.exp(rng.uniform(np.log(16), np.log(200), size=2))
            box = [*rng.uniform(0, 280, size=2), *size]
            score = float(1 / (1 + np.exp(-rng.normal(0.5, 1.5))))
            odds = (
                np.log(score / (1 - score)) * 0.8
                + 0.8 * np.log(size.prod() / 3600)
                - 0.8 * (category == 1)
            )
            if rng.random() < 1 / (1 + np.exp(-odds)):
                true["annotations"].append(
                    {
                        "image_id": image,
                        "category_id": category + 1,
                        "bbox": box,
                        "iscrowd": 0,
                    }
                )
            moved = [*(np.array(box[:2]) + rng.normal(0, 0.05, size=2) * size), *size]
            found.append(
                {
                    "image_id": image,
                    "category_id": category + 1,
                    "bbox": moved,
                    "score": score,
                }
            )
    paths = folder / f"true_{seed}.json", folder / f"found_{seed}.json"
    for path, data in zip(paths, (true, found), strict=True):
        path.write_text(json.dumps(data))
    return paths


def loss(detections: Detections) -> float:
    return log_loss(
        detections.correct,
        np.log(np.stack([1 - detections.scores, detections.scores], axis=1)),
    )


# %% Read both kinds of file: boxes are matched, and each detection is right or wrong
with tempfile.TemporaryDirectory() as name:
    validation = read_coco(*write_files(Path(name), 800, seed=0))
    test = read_coco(*write_files(Path(name), 800, seed=1))
print(
    f"{len(test)} detections, {test.correct.mean():.0%} of true objects, "
    f"mean score {test.scores.mean():.0%}"
)

# %% A slope and an intercept for each class, and the size of the box
calibrator = DetectionCalibration(box_size=True).fit(validation)
calibrated = calibrator.transform(test)
for label, slope, intercept in zip(
    calibrator.classes_, calibrator.slope_, calibrator.intercept_, strict=True
):
    print(f"{label}: log-odds × {slope:.2f} {intercept:+.2f}")
print(f"log-loss: {loss(test):.4f} before, {loss(calibrated):.4f} after")

# %% The calibration error, over scores and boxes
for title, each in (("before", test), ("after", calibrated)):
    by_place = detection_ece(
        each, covariates=each.relative_boxes, n_bins=(10, 2, 2, 3, 3), min_rows=8
    )
    print(
        f"{title}: D-ECE {detection_ece(each):.3f}, over boxes {by_place:.3f}", end=", "
    )
    print(f"LaECE {localisation_aware_ece(each):.3f}")
