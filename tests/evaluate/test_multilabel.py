"""Comparing methods of several labels: in Python, on the command line, and in the report."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss

from refocal import MultiLabelCalibration, load
from refocal.cli.run import run
from refocal.errors import ParameterError, ShapeError
from refocal.evaluate import compare, evaluate
from refocal.io import MultiLabelPredictions, split
from refocal.report import render

pytestmark = pytest.mark.numerics

NAMES = ["cat", "dog", "tree"]


def draw(n, seed, *, probabilities=False):
    """Rows of which some labels are unknown; "tree" is expected too often."""
    rng = np.random.default_rng(seed)
    x = 1.5 * rng.normal(size=(n, 3))
    labels = (rng.random((n, 3)) < expit(x - [0.0, 0.0, 1.5])).astype(int)
    labels[: n // 10, 1] = -1
    make = MultiLabelPredictions.from_probabilities if probabilities else MultiLabelPredictions.from_log_odds
    return make(expit(x) if probabilities else x, labels, class_names=NAMES, ignore_index=-1)


@pytest.fixture(scope="module")
def found():
    return compare(draw(600, 0), draw(800, 1), ["ts", "logistic-per-label"], n_resamples=20)


def test_methods_are_measured_on_all_labels_that_are_known(found):
    validation, test = draw(600, 0), draw(800, 1)
    assert [method.name for method in found.methods] == ["none", "ts", "ts-per-label", "logistic-per-label"]
    assert (found.n_validation, found.n_test) == (600 * 3 - 60, 800 * 3 - 80)
    known = test.labels != -1
    fitted = MultiLabelCalibration(method="ts", per_label=True)
    fitted.fit(validation.values, validation.labels, ignore_index=-1, class_names=NAMES)
    for name, p in (("none", expit(test.values)), ("ts-per-label", fitted.predict_proba(test.values))):
        want = log_loss(test.labels[known], p[known])
        assert found[name].measures["log_loss"].value == pytest.approx(want, rel=1e-9)
    by_label = {row.name: row for row in found[found.chosen].groups}
    assert found.chosen.endswith("-per-label")
    assert set(by_label) == set(NAMES)
    p = expit(test.values)
    before = {row.name: row for row in found.before.groups}
    assert before["dog"].n == 720
    assert before["tree"].mean == pytest.approx(p[:, 2].mean())
    assert before["tree"].rate == pytest.approx(test.labels[:, 2].mean())
    assert by_label["tree"].mean == pytest.approx(test.labels[:, 2].mean(), abs=0.05)
    assert found["ts-per-label"].title == "temperature scaling with a line for each label"


def test_probabilities_give_the_same(found):
    other = compare(draw(600, 0, probabilities=True), draw(800, 1, probabilities=True), "ts", n_resamples=20)
    for name in ("ts", "ts-per-label"):
        want = found[name].measures["log_loss"].value
        assert other[name].measures["log_loss"].value == pytest.approx(want, rel=1e-6)


def test_the_report_has_the_labels_and_how_to_use_them(found, tmp_path):
    page = render(found)
    assert all(name in page for name in NAMES)
    assert "--multi-label" in page
    assert "predict_proba(log_odds)" in page
    assert "known labels of the test rows" in page
    assert "Does the probability of a label match the share of rows that have it?" in page
    assert "a missed label costs" in page
    (tmp_path / "c.json").write_text(json.dumps({k: v for k, v in found.after.calibrator.items() if k != "fitted"}))
    assert load(tmp_path / "c.json").classes_.tolist() == NAMES


def test_other_labels_and_unknown_methods_are_refused():
    rows = draw(300, 2)
    with pytest.raises(ParameterError, match="'methods' of compare"):
        compare(rows, rows, ["best-per-label"])
    fitted = MultiLabelCalibration(method="ts").fit(
        rows.values, rows.labels, ignore_index=-1, class_names=["a", "b", "c"]
    )
    with pytest.raises(ShapeError, match=r"'labels' .* must be of those that the calibrator was fitted on. Got 'cat'"):
        evaluate(rows, {"mine": fitted}, n_resamples=20)


def test_parts_of_the_rows_have_labels_alike():
    rows = draw(1000, 3)
    first, second = split(rows, 0.5)
    assert len(first) == len(second) == 500
    assert (first.labels == 1).sum() == pytest.approx((second.labels == 1).sum(), abs=60)
    swapped = rows.in_order_of(["tree", "cat", "dog"])
    assert np.array_equal(swapped.labels[:, 0], rows.labels[:, 2])
    assert np.array_equal(swapped.values[:, 0], rows.values[:, 2])


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, seed, order in (("val", 0, NAMES), ("test", 1, NAMES[::-1])):
        rows = draw(300, seed).in_order_of(order)
        table = {f"score_{label}": rows.values[:, i] for i, label in enumerate(order)}
        table |= {f"label_{label}": rows.labels[:, i] for i, label in enumerate(order)}
        pd.DataFrame(table).to_csv(f"{name}.csv", index=False)
    return tmp_path


def call(capsys, line):
    code = run(line.split())
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_the_command_line(files, capsys):
    more = "--multi-label --ignore-index -1"
    code, out, _ = call(capsys, f"compare val.csv test.csv {more} -m ts --resamples 20 --report r.html")
    assert code == 0
    assert "label = tree" in out
    assert "Next: refocal fit val.csv --method ts-per-label" in out
    said = "Read labels of a row: cat, dog, tree (columns of {}.csv); labels: {}."
    assert said.format("test", "label_tree, label_dog, label_cat") in out
    code, out, _ = call(capsys, f"fit val.csv {more} -m ts-per-label -o c.json")
    assert code == 0
    assert said.format("val", "label_cat, label_dog, label_tree") in out
    fitted = load("c.json")
    assert fitted.classes_.tolist() == NAMES
    code, _, _ = call(capsys, "apply c.json test.csv -o p.csv")
    assert code == 0
    test = pd.read_csv("test.csv")
    want = fitted.predict_proba(test[[f"score_{name}" for name in NAMES]].to_numpy())
    assert pd.read_csv("p.csv")[NAMES].to_numpy() == pytest.approx(want, abs=1e-12)
    code, out, _ = call(capsys, f"evaluate test.csv c.json {more} --resamples 20 --json")
    assert code == 0
    assert json.loads(out)["chosen"] == "c"
    assert json.loads(out)["run"]["rows read"].startswith("labels of a row: ")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("compare val.csv --multi-label --ignore-index -1 -m best", "must be one of"),
        ("compare val.csv --multi-label --first-label 1", "--first-label cannot be combined with --multi-label."),
        ("fit val.csv --multi-label --ignore-index -1 --objective ece", "cannot be combined with --multi-label."),
        ("fit val.csv --multi-label", "-1 names no class"),
        ("compare val.csv --multi-label --values logit_*", "no column that match"),
    ],
)
def test_what_the_command_line_cannot_do_is_said(files, capsys, line, said):
    code, _, err = call(capsys, line)
    assert code != 0
    assert said in err


def test_a_calibrator_of_probabilities_measures_log_odds_by_their_probabilities():
    rng = np.random.default_rng(4)
    x = 2.0 * rng.normal(size=(300, 3))
    y = (rng.random(x.shape) < expit(0.5 * x)).astype(int)
    fitted = MultiLabelCalibration(method="ts", input="probabilities").fit(expit(x), y)
    of_both = [
        evaluate(rows, {"ts": fitted}, chosen="ts", n_resamples=2).after.measures
        for rows in (MultiLabelPredictions.from_log_odds(x, y), MultiLabelPredictions.from_probabilities(expit(x), y))
    ]
    for name, measured in of_both[0].items():
        assert measured.value == pytest.approx(of_both[1][name].value, rel=1e-9)


def test_groups_beside_rows_of_several_labels_are_refused():
    with pytest.raises(ParameterError, match="whose groups are the labels"):
        evaluate(draw(100, 0), {}, groups=["north", "south"] * 50)
