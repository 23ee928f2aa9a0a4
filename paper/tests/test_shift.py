"""Beyond the test set: corruptions against plain loops, and what they and other images do to measures."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter
from sklearn.metrics import roc_auc_score

from refocal import metrics
from refocal.calibrators import TemperatureScaling
from refocal.errors import FitWarning
from refocal.maps import log_softmax
from refocal_paper import sweep
from refocal_paper.datasets import synthetic
from refocal_paper.recipe import short
from refocal_paper.shift import STRENGTHS, Unknown, corrupt, measure_shift, resized

IMAGES = synthetic().test[:40]


def test_blur_and_contrast_of_single_images():
    blurred, dull = corrupt(IMAGES, "blur", 0.8), corrupt(IMAGES, "contrast", 0.3)
    for image, soft, grey in zip(IMAGES / 255.0, blurred, dull, strict=True):
        for channel in range(3):
            plane = image[:, :, channel]
            expected = 255.0 * gaussian_filter(plane, 0.8, mode="nearest")
            assert np.abs(soft[:, :, channel] - (expected - 0.5)).max() <= 0.51  # cut off, not rounded
            mean = plane.mean()
            assert np.abs(grey[:, :, channel] - (255.0 * (0.3 * (plane - mean) + mean) - 0.5)).max() <= 0.51


def test_noise_and_jpeg_of_single_images():
    even = np.full((50, 16, 16, 3), 128, np.uint8)
    noisy = corrupt(even, "noise", 0.08)
    assert noisy.std() == pytest.approx(0.08 * 255, rel=0.02)
    assert noisy.mean() == pytest.approx(127.5, abs=0.3)
    np.testing.assert_array_equal(noisy, corrupt(even, "noise", 0.08))
    for image, packed in zip(IMAGES, corrupt(IMAGES, "jpeg", 40), strict=True):
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=40)
        np.testing.assert_array_equal(packed, np.asarray(Image.open(buffer)))


@pytest.mark.parametrize("kind", STRENGTHS)
def test_stronger_is_further_from_the_image(kind):
    smooth = np.asarray(resized(IMAGES[:, ::4, ::4], 32))
    away = [np.abs(corrupt(smooth, kind, value).astype(float) - smooth).mean() for value in STRENGTHS[kind]]
    assert len(away) == 5
    assert away == sorted(away)
    assert away[0] > 0


def test_images_at_another_size():
    assert resized(IMAGES, 16) is IMAGES
    assert resized(IMAGES, 24).shape == (40, 24, 24, 3)
    np.testing.assert_allclose(resized(IMAGES, 8).mean(), IMAGES.mean(), rtol=0.01)


def test_what_is_measured_beyond_the_test_set():
    """A classifier that reads one corner of an image: each measure against the functions that define it."""
    data = synthetic()
    weights = np.random.default_rng(1).normal(size=(3 * 16 * 16, 4))

    def logits_of(images):
        return (images.reshape(len(images), -1) / 255.0 @ weights).astype(np.float32)

    unknown = Unknown("grey", np.full((60, 8, 8, 3), 128, np.uint8))
    val, y_val = logits_of(data.train[:160]), data.train_labels[:160]
    found = measure_shift(logits_of, val, y_val, data, unknown)
    ts = TemperatureScaling(objective="nll", search="grid").fit(val, y_val)
    assert found["rows"] == 320
    assert {kind: len(some) for kind, some in found["corrupted"].items()} == dict.fromkeys(STRENGTHS, 5)
    for measured, images in (
        (found["clean"], data.test),
        (found["corrupted"]["contrast"][4], corrupt(data.test, "contrast", 0.15)),
    ):
        logits = logits_of(images)
        assert set(measured) == {"accuracy", "raw", "ts", "fts", "default", "auto"}
        assert measured["accuracy"] == (logits.argmax(axis=1) == data.test_labels).mean()
        for name, p in (("raw", np.exp(log_softmax(logits))), ("ts", ts.predict_proba(logits))):
            ece = metrics.expected_calibration_error(data.test_labels, p)
            assert measured[name]["ece"] == pytest.approx(ece, abs=1e-5)
    known, others = (log_softmax(logits_of(x)).max(axis=1) for x in (data.test, resized(unknown.images, 16)))
    auroc = roc_auc_score(np.repeat([1, 0], [320, 60]), np.concatenate([known, others]))
    assert found["unknown"]["auroc"]["raw"] == pytest.approx(auroc, abs=1e-5)
    assert (found["unknown"]["dataset"], found["unknown"]["rows"]) == ("grey", 60)


def test_a_cell_keeps_what_lies_beyond_its_test_set(tmp_path):
    recipe = short("synthetic", epochs=1, network="tiny")
    options = ["--out", str(tmp_path), "--network", "tiny", "--losses", "cross-entropy", "--epochs", "1"]
    with pytest.warns(FitWarning, match="TemperatureScaling.fit"):  # after one epoch it only guesses
        assert sweep.main([*options, "--dataset", "synthetic", "--shift", "--ood", "synthetic"]) == 0
    found = json.loads((tmp_path / recipe.key / "shift.json").read_text())
    assert found["unknown"]["dataset"] == "synthetic"
    assert found["unknown"]["auroc"]["raw"] == 0.5  # the same images
