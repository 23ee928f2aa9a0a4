"""What a metric is not for, and arguments beside Predictions, are refused by every entry."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from helpers import draw_logits
from refocal import GroupCalibration, PredictionSets, metrics
from refocal.decomposition import RefinedStopping, log_loss_decomposition, refined_log_loss
from refocal.errors import ParameterError, ShapeError
from refocal.forensics import training_loss
from refocal.io import Predictions
from refocal.metrics.records import METRICS

OF_TWO = [name for name, record in METRICS.items() if record.two_classes]


def softmax(logits):
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("name", OF_TWO)
def test_metrics_of_two_classes_refuse_three(name):
    logits, labels = draw_logits(120, 3)
    p = softmax(logits)
    values = np.log(p) if METRICS[name].takes_logs else p
    estimator = SimpleNamespace(classes_=np.arange(3), predict_proba=lambda _: p)
    with pytest.raises(ShapeError, match=r"of two classes\. Got 3 classes"):
        metrics.scorer(name)(estimator, None, labels)
    with pytest.raises(ShapeError, match=r"of two classes\. Got 3 classes"):
        metrics.bootstrap_interval(name, labels, values, n_resamples=20)
    with pytest.raises(ShapeError, match=r"of two classes\. Got 3 classes"):
        metrics.paired_bootstrap(name, labels, values, values, n_resamples=20)


def test_what_predictions_have_of_their_own_is_refused_beside_them():
    logits, labels = draw_logits(200, 3)
    rows = Predictions.from_logits(logits, labels)
    weight = np.ones(200)
    calls = [
        lambda: refined_log_loss(rows, sample_weight=weight, by="temperature"),
        lambda: refined_log_loss(rows, softmax(logits), by="temperature"),
        lambda: log_loss_decomposition(rows, sample_weight=weight, by="temperature"),
        lambda: log_loss_decomposition(rows, logits, by="temperature"),
        lambda: log_loss_decomposition(rows, ignore_index=0, by="temperature"),
        lambda: RefinedStopping(by="temperature").update(rows, logits),
        lambda: training_loss(rows, logits),
    ]
    for call in calls:
        with pytest.raises(ParameterError, match="left out where y_true are Predictions"):
            call()
    grouped = rows.with_groups({"region": np.arange(200) % 2})
    for calibrator in (GroupCalibration(method="ts"), PredictionSets(conditional="group")):
        with pytest.raises(ParameterError, match=r"'ignore_index' of .*fit must be given where the rows are opened"):
            calibrator.fit(grouped, ignore_index=0)


def test_one_number_per_row_is_not_read_with_the_classes_1_and_0():
    with pytest.raises(ParameterError, match="0 and 1 in this order where there is one number per row"):
        metrics.mean_bias([0, 1, 1], [0.2, 0.7, 0.4], classes=["1", "0"])
    for classes in ([True, False], ["true", "false"]):
        with pytest.raises(ParameterError, match=f"{classes[1]} and {classes[0]} in this order"):
            metrics.mean_bias([False, True, True], [0.2, 0.7, 0.4], classes=classes)
    assert metrics.mean_bias([0, 1, 1], [0.2, 0.7, 0.4], classes=[0, 1]) == pytest.approx(1.3 / 3 - 2 / 3)


@pytest.mark.parametrize("carrier", [list, np.array, pd.Series, lambda names: pd.DataFrame({"group": names})])
def test_groups_of_any_carrier(carrier):
    rows = Predictions.from_logits([[2.0, 0.5], [0.1, 0.3]], [0, 1], groups=carrier(["north", "south"]))
    assert rows.groups["group"].tolist() == ["north", "south"]
