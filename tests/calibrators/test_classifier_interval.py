"""Venn-Abers bounds through CalibratedClassifier, and the names of classes in what it saves."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from refocal import CalibratedClassifier, VennAbersCalibration, load
from refocal.errors import UnsupportedError


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3))
    y = np.where(x[:, 0] + rng.normal(size=600) > 0, "late", "early")
    return x, y


def test_bounds_are_those_of_the_calibrator(rows):
    x, y = rows
    model = LogisticRegression().fit(x[:300], y[:300])
    whole = CalibratedClassifier(model, VennAbersCalibration(), cv="prefit").fit(x[300:], y[300:])
    lower, upper = whole.predict_interval(x)
    scores = model.decision_function(x)
    alone = VennAbersCalibration().fit(np.stack([-scores, scores], axis=1)[300:] / 2, y[300:])
    expected = alone.predict_interval(np.stack([-scores, scores], axis=1) / 2)
    assert lower == pytest.approx(expected[0])
    assert upper == pytest.approx(expected[1])
    p = whole.predict_proba(x)
    assert ((lower <= p) & (p <= upper)).all()


def test_an_ensemble_has_their_mean(rows):
    x, y = rows
    whole = CalibratedClassifier(GaussianNB(), "venn-abers", cv=3, ensemble=True).fit(x, y)
    lower, upper = whole.predict_interval(x)
    each = [member.predict_interval(x) for member in whole.calibrated_classifiers_]
    assert lower == pytest.approx(np.mean([low for low, _ in each], axis=0))
    assert upper == pytest.approx(np.mean([high for _, high in each], axis=0))


def test_a_calibrator_without_bounds_says_so(rows):
    x, y = rows
    whole = CalibratedClassifier(GaussianNB(), "ts", cv=3).fit(x, y)
    with pytest.raises(UnsupportedError, match="VennAbersCalibration; not TemperatureScaling"):
        whole.predict_interval(x)


def test_a_saved_calibrator_knows_the_names_of_the_classes(rows, tmp_path):
    x, y = rows
    whole = CalibratedClassifier(GaussianNB(), "logistic", cv=3, ensemble=False).fit(x, y)
    whole.calibrated_classifiers_[0].calibrator.save(tmp_path / "calibrator.json")
    assert load(tmp_path / "calibrator.json").classes_.tolist() == ["early", "late"]
