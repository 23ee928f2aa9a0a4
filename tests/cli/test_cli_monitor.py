"""`refocal monitor`: files in, the state and the page out, as the Python interface does it."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest

from refocal import load
from refocal.monitor import CalibrationMonitor


@pytest.fixture
def days(folder):
    """Five days of 300 rows: p, outcome, and ids of their own."""
    rng = np.random.default_rng(0)
    found = {}
    for day in range(1, 6):
        p = rng.beta(2, 3, 300).round(6)
        y = (rng.random(300) < p + (0.15 if day > 3 else 0.0)).astype(int)
        table = pd.DataFrame({"id": [f"{day}-{i}" for i in range(300)], "p": p, "label": y})
        for name, columns in (("day", ["id", "p", "label"]), ("said", ["id", "p"]), ("came", ["id", "label"])):
            table[columns].to_csv(folder / f"{name}{day}.csv", index=False)
        found[f"day{day}"] = p, y
    return found


def numbers(summary):
    kept = (summary.log_loss, summary.brier_score, summary.ece, summary.mean_p, summary.rate.low, summary.bias.high)
    return (summary.first, summary.last, summary.n, *(round(each, 9) for each in kept))


def files(days, prefix="day"):
    return [f"{prefix}{day[3:]}.csv" for day in days]


def test_batches_are_what_the_api_sees(refocal, days, folder):
    expected = CalibrationMonitor(alpha=0.01)
    for day, (p, y) in days.items():
        expected.update(p, y, period=day)
    code, out, err = refocal("monitor", *files(days), "--probability-column", "p", "--alpha", "0.01", "-o", "m.html")
    assert (code, err) == (0, "")
    found = CalibrationMonitor.load("monitor.json")
    assert [numbers(each) for each in found.history()] == [numbers(each) for each in expected.history()]
    assert found.e_value == pytest.approx(expected.e_value, rel=1e-9)
    assert found.alpha == 0.01
    assert "day5.csv: 300 rows counted in day5." in out
    assert "Recalibrate now" in out
    page = (folder / "m.html").read_text(encoding="utf-8")
    assert "Content-Security-Policy" in page
    assert "Recalibrate now" in page
    assert all(f'<th scope="row">{day}</th>' in page for day in days)
    code, out, _ = refocal("monitor", "--json", "--fail-if-alarm")
    assert code == 3
    assert json.loads(out)["advice"]["action"] == "recalibrate"
    assert "which had 300" in refocal("monitor", "day1.csv", "--probability-column", "p")[1]


def test_labels_come_later_and_states_are_merged(refocal, days):
    refocal("monitor", *files(days), "--probability-column", "p", "--state", "at_once.json")
    for i, day in enumerate(days):
        state = f"part{i % 2}.json"
        waiting = (f"said{day[3:]}.csv", "--probabilities", "--ids", "id", "--period", day)
        assert "300 rows wait for labels" in refocal("monitor", *waiting, "--state", state)[1]
        assert "300 labels matched" in refocal("monitor", "--outcomes", f"came{day[3:]}.csv", "--state", state)[1]
    refocal("monitor", "--merge", "part0.json", "--merge", "part1.json", "--state", "all.json")
    one, other = (CalibrationMonitor.load(name) for name in ("at_once.json", "all.json"))
    assert one.e_value == pytest.approx(other.e_value, rel=1e-9)
    assert numbers(one.summary(2)) == numbers(other.summary(2))
    assert "No labels yet" in refocal("monitor", "--restart", "--state", "all.json")[1]


def test_ids_are_text_as_it_stands_in_the_file(refocal, folder):
    ids = [90071992547409931, 90071992547409932, 7]  # the first two are one number in floating point
    pd.DataFrame({"id": ids, "p": [0.1, 0.8, 0.4]}).to_csv(folder / "said.csv", index=False)
    pd.DataFrame({"id": ids, "label": [0, 1, 1]}).to_parquet(folder / "came.parquet")
    assert refocal("monitor", "said.csv", "--probability-column", "p", "--ids", "id")[0] == 0
    said = refocal("monitor", "--outcomes", "came.parquet", "--ids", "id")[1]
    assert "came.parquet: 3 labels matched with predictions." in said


@pytest.mark.parametrize(
    ("n_classes", "what", "outcome"), [(2, "mean probability", "rate"), (3, "mean confidence", "accuracy")]
)
def test_what_is_compared_has_its_name_for_two_classes_and_for_more(refocal, folder, n_classes, what, outcome):
    logits = np.random.default_rng(0).normal(size=(400, n_classes))
    np.savez(folder / "day.npz", logits=8 * logits, labels=np.arange(400) % n_classes)
    code, out, _ = refocal("monitor", "day.npz", "-o", "history.html")
    assert code == 0
    assert re.search(rf"{what} % +{outcome} %", out)
    assert re.search(rf"{what} is 0\.\d+ and the {outcome} 0\.\d+", out)
    assert f"Does the {what} match the {outcome}?" in (folder / "history.html").read_text(encoding="utf-8")


def test_a_batch_may_be_a_folder_and_a_file_without_rows_is_ignored(refocal, days, folder):
    (folder / "many").mkdir()
    for name in ("said1.csv", "said2.csv"):
        (folder / name).rename(folder / "many" / name)
    (folder / "none.csv").write_text("id,label\n")
    assert "600 rows wait for labels" in refocal("monitor", "many", "--probabilities", "--ids", "id")[1]
    code, out, _ = refocal("monitor", "--outcomes", "none.csv", "--outcomes", "came1.csv", "--ids", "id")
    assert code == 0
    assert "none.csv: no rows; ignored." in out
    assert "came1.csv: 300 labels matched with predictions." in out


def test_rows_without_a_label_can_be_left_out(refocal, folder):
    (folder / "some.csv").write_text("p,label\n0.5,1\n0.25,255\n0.75,0\n")
    code, _, err = refocal("monitor", "some.csv", "--probability-column", "p")
    assert (code, "--ignore-index" in err) == (1, True)
    _, out, _ = refocal("monitor", "some.csv", "--probability-column", "p", "--ignore-index", "255")
    assert "some.csv: 2 rows counted in some." in out


def test_what_is_wrong_is_said_in_a_line(refocal, days, folder):
    (folder / "empty.csv").write_text("p,label\n")
    code, out, _ = refocal("monitor", "empty.csv", "--probabilities")
    assert code == 0
    assert "empty.csv: no rows; ignored." in out
    assert "No labels yet." in out
    for arguments, words in (
        (("said1.csv", "--probability-column", "p"), "or ids to wait for them with --ids"),
        (("--outcomes", "said1.csv"), "no column 'label'; name it with --labels"),
        (("--alpha", "0.1"), "--alpha is for a new state"),
        (("--alpha", "0", "--state", "new.json"), "--alpha must be a finite number greater than 0"),
        (("day1.csv", "--probability-column", "p", "-o", "page.txt"), "must end in .html"),
        (("--merge", "day1.csv"), "not a JSON file"),
    ):
        code, _, err = refocal("monitor", *arguments)
        assert code in (1, 2)
        assert words in err, arguments


def test_columns_are_matched_with_the_classes_of_the_calibrator_by_name(refocal, folder):
    rng = np.random.default_rng(3)
    p = rng.dirichlet([1.0, 2.0, 3.0], size=600)
    right = rng.random(600) < 0.7
    label = np.array(["cat", "dog", "horse"])[np.where(right, p.argmax(axis=1), 0)]
    table = pd.DataFrame(p, columns=["cat", "dog", "horse"]).assign(label=label)
    table.to_csv("first.csv", index=False)
    table[["horse", "cat", "dog", "label"]].to_csv("moved.csv", index=False)
    assert refocal("fit", "first.csv", "--probabilities", "-m", "vs")[0] == 0
    expected = load("calibrator.json").predict_proba(p)
    for file in ("first.csv", "moved.csv"):
        assert refocal("monitor", file, "--calibrator", "calibrator.json", "--state", f"{file}.json")[0] == 0
        found = CalibrationMonitor.load(f"{file}.json").summary()
        assert found.mean_p == pytest.approx(expected.max(axis=1).mean(), rel=1e-6)
        assert found.rate.value == np.mean(table.columns[expected.argmax(axis=1)] == label)
