"""The recipes of docs/guide/boosted-trees.md, with boosters that are trained already, where these are installed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GroupKFold, TimeSeriesSplit
from sklearn.naive_bayes import GaussianNB

from refocal import AutoCalibration, CalibratedClassifier
from refocal.metrics import mean_bias

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "boosted-trees.md"
RECIPES = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)


def draw(n=1500):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 4))
    y = (rng.random(n) < 1 / (1 + np.exp(-1.5 * x[:, 0] + 1.5))).astype(int)
    return x, y


def run(recipe, booster):
    """The probabilities of new rows by a recipe; positives weighed five times as much in training."""
    x, y = draw()
    names = {"booster": booster, "X": x[500:1000], "y": y[500:1000], "X_new": x[1000:]}
    exec(recipe, names)  # noqa: S102, a block of our own page
    return y[1000:], names["p"]


def test_a_booster_of_lightgbm():
    lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    x, y = draw()
    data = lightgbm.Dataset(x[:500], y[:500])
    booster = lightgbm.train({"objective": "binary", "scale_pos_weight": 5, "verbose": -1, "num_threads": 1}, data, 20)
    y_new, p = run(RECIPES[0], booster)
    assert abs(mean_bias(y_new, p)) < 0.05 < mean_bias(y_new, booster.predict(x[1000:]))


@pytest.mark.long
def test_a_booster_of_xgboost():
    xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
    x, y = draw()
    settings = {"objective": "binary:logistic", "scale_pos_weight": 5, "nthread": 1}
    booster = xgboost.train(settings, xgboost.DMatrix(x[:500], y[:500]), 20)
    y_new, p = run(RECIPES[1], booster)
    assert abs(mean_bias(y_new, p)) < 0.05 < mean_bias(y_new, booster.predict(xgboost.DMatrix(x[1000:])))


@pytest.mark.long
def test_a_booster_of_catboost():
    catboost = pytest.importorskip("catboost", reason="catboost is not installed")
    x, y = draw()
    settings = {"loss_function": "Logloss", "scale_pos_weight": 5, "iterations": 30, "thread_count": 1}
    pool = catboost.Pool(x[:500], y[:500])
    booster = catboost.train(pool, settings | {"allow_writing_files": False, "logging_level": "Silent"})
    y_new, p = run(RECIPES[2], booster)
    raw = 1 / (1 + np.exp(-booster.predict(x[1000:], prediction_type="RawFormulaVal")))
    assert abs(mean_bias(y_new, p)) < 0.05 < mean_bias(y_new, raw)


def test_a_frame_of_probabilities_as_autogluon_returns_it():
    x, y = draw()
    names = np.array(["on time", "late"])
    model = GaussianNB().fit(x[:500], names[y[:500]])
    frame = pd.DataFrame(model.predict_proba(x), columns=model.classes_)
    calibrator = AutoCalibration(input="probabilities").fit(frame[500:1000], names[y[500:1000]])
    assert calibrator.classes_.tolist() == ["late", "on time"]
    p = calibrator.predict_proba(frame[1000:])[:, 0]
    assert abs(mean_bias(y[1000:], p)) < 0.05


@pytest.mark.long
def test_frames_of_autogluon_itself(tmp_path):
    tabular = pytest.importorskip("autogluon.tabular")
    x, y = draw()
    table = pd.DataFrame(x).add_prefix("x").assign(arrival=np.array(["on time", "late"])[y])
    model = tabular.TabularPredictor(label="arrival", path=str(tmp_path), verbosity=0)
    model.fit(table[:500], hyperparameters={"RF": {}}, num_cpus=1)
    frame = model.predict_proba(table)
    calibrator = AutoCalibration(input="probabilities").fit(frame[500:1000], table["arrival"][500:1000])
    p = calibrator.predict_proba(frame[1000:])[:, list(calibrator.classes_).index("late")]
    assert abs(mean_bias(y[1000:], p)) < 0.05


def test_splits_by_time_and_by_customer():
    x, y = draw()
    customer = np.arange(1500) // 10
    by_time = CalibratedClassifier(GaussianNB(), cv=TimeSeriesSplit(3), ensemble=False).fit(x, y)
    assert by_time.predict_proba(x).shape == (1500, 2)
    by_customer = CalibratedClassifier(GaussianNB(), cv=GroupKFold(3)).fit(x, y, groups=customer)
    assert len(by_customer.calibrated_classifiers_) == 3
