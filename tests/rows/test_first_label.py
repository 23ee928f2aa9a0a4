"""Labels that count from 1, beside a positive one: columns without names are then the classes 1 and 2."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from helpers import draw_logits
from refocal import load
from refocal.calibrators import TemperatureScaling
from refocal.cli.run import run
from refocal.io import Predictions, apply, blocks, open_rows, read
from refocal.metrics import log_loss
from refocal.monitor import CalibrationMonitor


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """Probabilities of two columns and labels 1 and 2, also in files: with labels, without, and the labels alone."""
    monkeypatch.chdir(tmp_path)
    logits, labels = draw_logits(200, 2, 3)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.savez("rows.npz", probabilities=p, labels=labels + 1)
    np.savez("new.npz", probabilities=p, id=np.arange(200))
    pd.DataFrame({"id": np.arange(200), "label": labels + 1}).to_csv("labels.csv", index=False)
    return p, labels + 1


@pytest.mark.parametrize("positive", [1, 2])
@pytest.mark.parametrize("carrier", ["memory", "file", "file in blocks", "blocks"])
def test_classes_of_columns_without_names_are_called_as_labels_call_them(counted, positive, carrier):
    p, labels = counted
    said = {"first_label": 1, "positive_label": positive}
    rows = {
        "memory": lambda: Predictions.from_probabilities(p, labels, **said),
        "file": lambda: read("rows.npz", **said),
        "file in blocks": lambda: open_rows("rows.npz", **said),
        "blocks": lambda: blocks([(p[:90], labels[:90]), (p[90:], labels[90:])], input="probabilities", **said),
    }[carrier]()
    assert rows.classes.tolist() == [3 - positive, positive]
    assert rows.class_names == (str(3 - positive), str(positive))
    if isinstance(rows, Predictions):
        p_of_positive, is_positive = rows.event(str(positive))
        np.testing.assert_allclose(p_of_positive, p[:, positive - 1])
        np.testing.assert_array_equal(is_positive, labels == positive)


@pytest.mark.parametrize("positive", [1, 2])
@pytest.mark.parametrize("file", ["rows.npz", "new.npz"])
def test_decisions_are_called_as_the_labels(counted, positive, file):
    p, labels = counted
    costs = ("--false-positive", "1", "--false-negative", "3", "-o", "d.csv")
    assert run(["decide", file, "--first-label", "1", "--positive-label", str(positive), *costs]) == 0
    written = pd.read_csv("d.csv")
    np.testing.assert_allclose(written[f"p_{positive}"], p[:, positive - 1])
    assert written["decision"].tolist() == np.where(p[:, positive - 1] >= 0.25, positive, 3 - positive).tolist()
    if file == "rows.npz":
        assert written["labels"].tolist() == labels.tolist()


@pytest.mark.parametrize("positive", [1, 2])
def test_rows_without_names_are_those_of_a_fit_whose_labels_counted_from_1(counted, positive, capsys):
    p, _ = counted
    said = ["--first-label", "1", "--positive-label", str(positive)]
    assert run(["fit", "rows.npz", "-m", "ts", *said, "-o", "c.json"]) == 0
    calibrator = load("c.json")
    assert calibrator.classes_.tolist() == [3 - positive, positive]
    plain = TemperatureScaling(input="probabilities").fit(*counted)
    expected = plain.fit_report_["after"]["log_loss"]
    for options in ([], said[:2], said[2:], said):
        capsys.readouterr()
        assert run(["evaluate", "rows.npz", "c.json", *options, "--resamples", "2", "--json"]) == 0
        evaluation = json.loads(capsys.readouterr().out)
        assert evaluation["methods"][1]["measures"]["log_loss"]["value"] == pytest.approx(expected, rel=1e-6)
        assert evaluation["class_names"] == [str(3 - positive), str(positive)]
    apply(calibrator, "new.npz", "applied.npy")
    np.testing.assert_allclose(np.load("applied.npy"), plain.predict_proba(p), rtol=1e-5)


def test_costs_move_with_the_positive_label(counted):
    p, _ = counted
    costs = ("--costs", "0,1;3,0", "-o", "d.csv")  # of the class 1, then of the class 2
    for positive in (1, 2):
        assert run(["decide", "new.npz", "--first-label", "1", "--positive-label", str(positive), *costs]) == 0
        assert pd.read_csv("d.csv")["decision"].tolist() == np.where(p[:, 1] >= 0.25, 2, 1).tolist()


@pytest.mark.parametrize("positive", [1, 2])
def test_late_labels_that_count_from_1_are_those_of_the_classes(counted, positive):
    said = ["--first-label", "1", "--positive-label", str(positive), "--ids", "id"]
    assert run(["monitor", "new.npz", "--probabilities", "--period", "2026-05-01", *said]) == 0
    assert run(["monitor", "--outcomes", "labels.csv", *said]) == 0
    assert run(["monitor", "rows.npz", "--period", "2026-05-02", *said]) == 0
    history = CalibrationMonitor.load("monitor.json").history()
    p, labels = counted
    expected = log_loss(labels - 1, np.log(p))
    assert [period.n for period in history] == [200, 200]
    assert [period.log_loss for period in history] == pytest.approx([expected, expected])
