"""Which method is recommended, and when none is."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from helpers import draw_logits
from refocal import AutoCalibration
from refocal.errors import FitWarning
from refocal.evaluate import (
    compare,
    recommendation,
    verdict,
)
from refocal.evaluate._recommendation import best_method
from refocal.evaluate.statements import ScoreTest
from refocal.evaluate.summary import remarks
from refocal.io import Predictions
from refocal.maps.chain import Chain
from refocal.maps.steps import Focal, Temperature
from refocal.metrics import PairedDifference

pytestmark = pytest.mark.core


class Known(NamedTuple):
    """A summary whose differences are sure from `error` on."""

    value: float
    error: float

    def minus(self, other, *, level):
        gap = self.value - other.value
        p_value = 0.5 if abs(gap) <= self.error else 0.001
        return PairedDifference(gap, gap - self.error, gap + self.error, level, p_value, self.value, other.value, 60)


@pytest.mark.parametrize(
    ("ece", "log_loss", "expected"),
    [
        ({"none": 5, "ts": 2, "fts": 3, "auto": 4}, {"none": 50, "ts": 40, "fts": 40, "auto": 40}, "ts"),
        ({"none": 5, "ts": 2, "fts": 3, "auto": 2.1}, {"none": 50, "ts": 40, "fts": 40, "auto": 40.01}, "auto"),
        ({"none": 5, "ts": 2, "fts": 3, "auto": 2.1}, {"none": 50, "ts": 40, "fts": 40, "auto": 40.3}, "ts"),
        ({"none": 5, "ts": 2, "fts": 2.1}, {"none": 50, "ts": 40.3, "fts": 40}, "fts"),
        ({"none": 5, "ts": 2.1, "fts": 2}, {"none": 50, "ts": 40, "fts": 40}, "ts"),
        ({"none": 5, "ts": 2, "auto": 2}, {"none": 50, "ts": 40, "auto": 45}, "ts"),
        ({"none": 2, "ts": 2.1, "auto": 2.1}, {"none": 40, "ts": 40, "auto": 40}, "none"),
    ],
    ids=["ece", "auto", "log-loss against auto", "log-loss", "simplest", "not close", "none"],
)
def test_ties_are_broken_by_log_loss_then_auto_then_simplicity(ece, log_loss, expected):
    looks = {
        name: SimpleNamespace(
            summaries={
                "ece": Known(ece[name], 0.5),
                "squared_ece": Known(ece[name], 0.5),
                "log_loss": Known(loss, 0.1),
            },
            score=None if name == "none" else ScoreTest(loss - log_loss["none"], 1.0),
        )
        for name, loss in log_loss.items()
    }
    made = {"none": None, "auto": AutoCalibration()}
    for name, chain in (("ts", Chain((Temperature(2.0),))), ("fts", Chain((Temperature(2.0), Focal(1.0))))):
        made[name] = SimpleNamespace(chain_=chain, averages=False)
    assert best_method(looks, made, 4, 0.95) == expected
    if expected == "auto":  # of two classes log-loss alone counts
        assert best_method(looks, made, 2, 0.95) == "auto"


@pytest.mark.parametrize("n_classes", [2, 3])
def test_few_test_rows_recommend_nothing(n_classes):
    logits, labels = draw_logits(400, n_classes, scale=6.0, temperature=2.5)
    validation = Predictions.from_logits(logits[:300], labels[:300])
    for n_rows, is_recommended in ((6, False), (99, False), (100, True)):
        test = Predictions.from_logits(logits[300 : 300 + n_rows], labels[300 : 300 + n_rows])
        found = compare(validation, test, ["ts", "vs"], n_resamples=20)
        assert found.recommended == is_recommended
        assert ("Recommendation:" in recommendation(found)) == is_recommended
        if not is_recommended:
            assert found.chosen == "none"
            assert recommendation(found) == "No recommendation: it takes 100 test rows to tell methods apart."
            assert "no method that was tried has a significantly lower one" not in verdict(found)
            assert "No method improves" not in verdict(found)
            shown = compare(validation, test, ["ts", "vs"], chosen="ts", n_resamples=20)
            assert recommendation(shown).startswith("Shown in detail: ts")


@pytest.mark.parametrize("n_classes", [2, 3])
def test_nothing_is_recommended_where_no_method_helps(n_classes):
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(1200, n_classes))
    labels = rng.integers(n_classes, size=1200)
    parts = [Predictions.from_logits(logits[rows], labels[rows]) for rows in (slice(0, 600), slice(600, 1200))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        found = compare(*parts, ["auto", "ts"], n_resamples=20)
    said = [verdict(found), recommendation(found), *remarks(found)]
    assert any(text.startswith("No method helps: ") for text in said)
    assert recommendation(found) == "No recommendation: the log-loss of no method is below that of guessing."
    assert not any("Recommendation:" in text or "a need of calibration" in text for text in said)
