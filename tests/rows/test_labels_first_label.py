"""Labels that count from 1, also beside a positive one: columns without names are then the classes 1, 2, 3."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from helpers import draw_logits
from refocal import load
from refocal.calibrators import TemperatureScaling
from refocal.cli.run import run
from refocal.evaluate import evaluate
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


CARRIERS = {
    "memory": lambda z, y: Predictions.from_logits(z, y, first_label=1),
    "frame": lambda z, y: Predictions.from_logits(pd.DataFrame(z), y, first_label=1),
    "file": lambda z, y: read("three.npz", first_label=1),
    "table": lambda z, y: read("three.csv", first_label=1),
    "file in blocks": lambda z, y: open_rows("three.npz", first_label=1),
    "table in blocks": lambda z, y: open_rows("three.csv", first_label=1),
    "blocks": lambda z, y: blocks([(z[:50], y[:50]), (z[50:], y[50:])], first_label=1),
}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_calibrator_answers_with_labels_as_they_went_in(tmp_path, monkeypatch, carrier):
    monkeypatch.chdir(tmp_path)
    z, column = draw_logits(200, 3, 2)
    np.savez("three.npz", logits=z, labels=column + 1)
    pd.DataFrame(z, columns=["logit_0", "logit_1", "logit_2"]).assign(label=column + 1).to_csv("three.csv", index=False)
    rows = CARRIERS[carrier](z, column + 1)
    assert rows.classes.tolist() == [1, 2, 3]
    assert rows.described().startswith("classes: 1, 2, 3")
    plain = TemperatureScaling().fit(z, column + 1)
    fitted = TemperatureScaling().fit(rows)
    assert fitted.classes_.tolist() == plain.classes_.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(fitted.predict(z), plain.predict(z))
    evaluation = evaluate(rows, {"ts": fitted}, **({"n_resamples": 20} if isinstance(rows, Predictions) else {}))
    assert evaluation.class_names == ["1", "2", "3"]
    assert evaluation["ts"].measures["log_loss"].value == pytest.approx(plain.fit_report_["after"]["log_loss"])
    apply(fitted, "three.csv", "applied.csv")
    written = pd.read_csv("applied.csv")[["1", "2", "3"]]
    np.testing.assert_allclose(written, plain.predict_proba(z), rtol=1e-5)


def test_rows_whose_labels_count_from_1_call_their_classes_so():
    z, column = draw_logits(60, 3, 2)
    rows = Predictions.from_logits(z, np.array(["01", "02", "03"])[column], first_label=1)
    assert rows.classes.tolist() == ["01", "02", "03"]
    counted = Predictions.from_logits(z, column + 1, first_label=1)
    assert (counted.classes.tolist(), counted.name_of(1), counted.class_names) == ([1, 2, 3], "2", None)
    np.testing.assert_array_equal(counted.event("2")[1], counted.event(2)[1])
    np.testing.assert_array_equal(counted.event(2)[1], column == 1)
    turned = counted.reordered([2, 0, 1])
    assert turned.classes.tolist() == [3, 1, 2]
    in_blocks = blocks([(z, column + 1)], first_label=1).reordered(np.array([2, 0, 1]))
    assert in_blocks.classes.tolist() == [3, 1, 2]
    named = Predictions.from_logits(z, column + 1, first_label=1, class_names=["a", "b", "c"])
    assert named.classes.tolist() == ["a", "b", "c"]
