"""`refocal monitor`: files in, the state and the page out, as the Python interface does it."""

from __future__ import annotations

import json
import re
from itertools import permutations

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
    expected = CalibrationMonitor(alpha=0.01, independent=True)
    for day, (p, y) in days.items():
        expected.update(p, y, period=day)
    code, out, err = refocal(
        "monitor", *files(days), "--probability-column", "p", "--alpha", "0.01", "--independent", "-o", "m.html"
    )
    assert (code, err) == (0, "")
    found = CalibrationMonitor.load("monitor.json")
    assert [numbers(each) for each in found.history()] == [numbers(each) for each in expected.history()]
    assert found.e_value == pytest.approx(expected.e_value, rel=1e-9)
    assert found.alpha == 0.01
    assert "day5.csv: 300 rows counted in day5." in out
    assert "Recalibrate now" in out
    # The ECE of an evaluation of the same rows is another number, of which nothing was said.
    of_bins = "The ECE of a monitor is over 10 bins of equal width, that of an evaluation over 15 of equal mass."
    assert of_bins in " ".join(out.split())
    assert of_bins in (folder / "m.html").read_text(encoding="utf-8")
    assert f"ECE of ten bins of equal width {100 * expected.present().window.ece:.2f} %" in " ".join(out.split())
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
    name = "mean/all rows"  # the slope is measured by the scores that a state has seen
    assert one.streams()[name] == pytest.approx(other.streams()[name], rel=1e-9)
    assert numbers(one.summary(2)) == numbers(other.summary(2))
    assert "No labels since the restart." in refocal("monitor", "--restart", "--state", "all.json")[1]


def test_predictions_whose_labels_came_before_are_said_to_count_twice(refocal, days):
    """Nothing was said of the same predictions and outcomes a second time."""
    waiting = ("said1.csv", "--probabilities", "--ids", "id", "--period", "day1")
    assert "in day1. Read" in refocal("monitor", *waiting)[1]
    refocal("monitor", "--outcomes", "came1.csv")
    out = " ".join(refocal("monitor", *waiting)[1].split())
    assert "300 rows wait for labels in day1, which had 300 already; the same rows again count twice." in out


def test_labels_of_waiting_predictions_are_not_counted_beside_those_of_outcomes(refocal, days, folder):
    """Without --ids the rows of a labelled file counted, and again when --outcomes had their labels."""
    refocal("monitor", "said1.csv", "--probabilities", "--ids", "id", "--period", "day0")
    before = (folder / "monitor.json").read_bytes()
    code, _, err = refocal("monitor", "day1.csv", "--probability-column", "p", "--outcomes", "came1.csv")
    wanted = "day1.csv: 'ids' must be none of predictions that wait, whose labels are for add_labels or --outcomes."
    assert (code, wanted in " ".join(err.split())) == (1, True), err
    assert (folder / "monitor.json").read_bytes() == before
    # Other rows are counted, though an id may have several.
    table = pd.read_csv(folder / "day2.csv")
    pd.concat([table, table]).to_csv(folder / "day2.csv", index=False)
    code, out, err = refocal("monitor", "day2.csv", "--probability-column", "p", "--outcomes", "came1.csv")
    assert (code, err) == (0, "")
    assert "600 rows counted in day2" in out
    assert CalibrationMonitor.load("monitor.json").summary().n == 900


def test_predictions_that_wait_are_not_counted_when_they_come_again_with_labels(refocal, days, folder):
    """Such rows counted, and again when --outcomes had their labels; ids of rows with labels were not looked at."""
    refocal("monitor", "said1.csv", "--probabilities", "--ids", "id", "--period", "same")
    before = (folder / "monitor.json").read_bytes()
    reading = ("--probability-column", "p", "--ids", "id", "--period", "same")
    code, _, err = refocal("monitor", "day1.csv", *reading)
    assert code == 1
    waits = "must be none of predictions that wait, whose labels are for add_labels or --outcomes. Got '1-0' instead."
    assert f"day1.csv: 'ids' {waits}" in " ".join(err.split())
    twice = pd.concat([pd.read_csv("day2.csv"), pd.read_csv("day2.csv").tail(1)])
    twice.to_csv("twice.csv", index=False)
    code, _, err = refocal("monitor", "twice.csv", *reading)
    assert (code, "'ids' must be different for all rows. Got '2-299' twice instead." in err) == (1, True)
    assert (folder / "monitor.json").read_bytes() == before
    assert refocal("monitor", "day2.csv", *reading)[0] == 0
    assert "300 labels matched" in refocal("monitor", "--outcomes", "came1.csv")[1]
    assert CalibrationMonitor.load("monitor.json").summary().n == 600


def test_labels_alone_begin_no_state(refocal, days, folder):
    """A --state that was mistyped became a new one, without a match of any label."""
    refocal("monitor", "said1.csv", "--probabilities", "--ids", "id")
    for labels in ((), ("--outcomes", "came1.csv")):
        code, _, err = refocal("monitor", *labels, "--state", "nope.json", "-o", "page.html")
        assert (code, "nope.json: no such file; a new state begins with batches." in err) == (2, True), err
    assert not (folder / "nope.json").exists()
    # Of predictions that come in the same command, or with a merged state, there may be labels.
    predicted = ("said2.csv", "--probabilities", "--ids", "id")
    for i, waiting in enumerate((predicted, ("--merge", "monitor.json"))):
        code, out, _ = refocal("monitor", *waiting, "--outcomes", f"came{2 - i}.csv", "--state", f"new{i}.json")
        assert (code, "300 labels matched" in out) == (0, True)


def test_batches_are_calibrated_and_grouped_as_those_before(refocal, days, folder):
    """A forgotten --calibrator or --groups was silent: raw and calibrated rows in one state."""
    for file in files(days):
        table = pd.read_csv(file)
        table.assign(region=np.where(table.index % 2, "north", "south")).to_csv(file, index=False)
    refocal("fit", "day1.csv", "--probability-column", "p", "-o", "c.json")
    refocal("fit", "day2.csv", "--probability-column", "p", "-o", "other.json")
    reading = ("--probability-column", "p", "--groups", "region", "--calibrator", "c.json")
    assert refocal("monitor", "day1.csv", *reading)[0] == 0
    before = (folder / "monitor.json").read_bytes()
    restart = "After a recalibration, add --restart."
    same = "--calibrator must be the same calibrator, as in monitor.json so far. Got"
    for changed, message in (
        (reading[:4], f"{same} none instead. {restart}"),
        ((*reading[:4], "--calibrator", "other.json"), f"{same} other.json instead. {restart}"),
        ((*reading[:2], *reading[4:]), "--groups must name region, as in monitor.json so far. Got none instead."),
    ):
        code, _, err = refocal("monitor", "day2.csv", *changed)
        assert message in err, err
        assert code == 2
        assert (folder / "monitor.json").read_bytes() == before
    assert refocal("monitor", "day2.csv", *reading)[0] == 0
    assert refocal("monitor", "day3.csv", *reading[:2], "--restart")[0] == 0
    code, _, err = refocal("monitor", "day4.csv", *reading)
    assert (code, "--calibrator must be left out, as in monitor.json so far. Got c.json instead." in err) == (2, True)
    assert refocal("monitor", "day4.csv", *reading[:4])[0] == 0  # groups may be watched from now on


def test_states_of_other_calibrators_are_not_merged(refocal, days, folder):
    refocal("fit", "day1.csv", "--probability-column", "p", "-o", "c.json")
    reading = ("--probability-column", "p")
    refocal("monitor", "day2.csv", *reading, "--state", "raw.json")
    refocal("monitor", "day3.csv", *reading, "--calibrator", "c.json", "--state", "calibrated.json")
    before = (folder / "raw.json").read_bytes()
    code, _, err = refocal("monitor", "--merge", "calibrated.json", "--state", "raw.json")
    got = "Got one of another calibrator instead."
    said = f"calibrated.json: --merge must be a monitor of rows without a calibrator, as this one. {got}"
    assert (code, said in " ".join(err.split())) == (1, True), err
    code, _, err = refocal("monitor", "--merge", "raw.json", "--merge", "calibrated.json", "--state", "all.json")
    assert code == 1
    assert "--merge must be a monitor of" in err  # either is the one that does not fit the other
    assert "calibrator, as this one. Got one of" in " ".join(err.split())
    assert ((folder / "raw.json").read_bytes(), (folder / "all.json").exists()) == (before, False)
    refocal("monitor", "day4.csv", *reading, "--calibrator", "c.json", "--state", "also.json")
    assert refocal("monitor", "--merge", "also.json", "--merge", "calibrated.json", "--state", "all.json")[0] == 0
    code, _, err = refocal("monitor", "day5.csv", *reading, "--state", "all.json")
    assert (code, "--calibrator must be the same calibrator" in err) == (2, True)


def test_what_is_expected_is_of_a_period_that_waits(refocal, days):
    """The last period was named, whose labels had all come."""
    for day in (1, 2):
        refocal("monitor", f"said{day}.csv", "--probabilities", "--ids", "id", "--period", f"day{day}")
    out = " ".join(refocal("monitor", "--outcomes", "came2.csv")[1].split())
    assert "300 rows wait for labels. Expected of all 300 predictions of day1, if the probabilities are right" in out


@pytest.mark.parametrize(("labels", "by"), [(["no", "yes"], "by name"), ([0, 1], "column numbers")])
def test_it_is_said_how_labels_that_come_later_are_read(refocal, folder, labels, by):
    pd.DataFrame({"id": [1, 2], "p_no": [0.4, 0.7], "p_yes": [0.6, 0.3]}).to_csv("said.csv", index=False)
    pd.DataFrame({"id": [1, 2], "label": labels}).to_csv("came.csv", index=False)
    refocal("monitor", "said.csv", "--ids", "id")
    code, out, err = refocal("monitor", "--outcomes", "came.csv")
    assert (code, err) == (0, "")
    assert f"2 labels matched with predictions. Read classes: no, yes; labels: label, {by}." in out


@pytest.mark.parametrize("n_days", [30, 80])  # the first 20 of 80 periods are closed
def test_a_merged_state_does_not_depend_on_the_order_of_merging(refocal, folder, n_days):
    """What the first states said was the alarm of all, and the tests of closed periods had shares by their order."""
    shifts = {"north": 0.05, "south": 0.1, "west": 0.02}
    for place, (name, shift) in enumerate(shifts.items()):
        part = CalibrationMonitor()
        rng = np.random.default_rng(place)
        for day in range(n_days):
            p = rng.beta(2, 3, 200)
            part.update(p, rng.random(200) < p + (shift if day >= n_days - 25 else 0.0), period=f"day{day}")
        part.save(folder / f"{name}.json")
    found = []
    for order in permutations(shifts):
        merge = [each for name in order for each in ("--merge", f"{name}.json")]
        assert refocal("monitor", *merge, "--state", f"{'-'.join(order)}.json")[0] == 0
        found.append(CalibrationMonitor.load(f"{'-'.join(order)}.json"))
    assert len({str(each.alarms) for each in found}) == 1
    assert len({each.e_value for each in found}) == 1
    own = [alarm.period for alarm in found[0].alarms if not alarm.monitor]
    if n_days == 30:  # the alarm is that of the rows of all, period by period
        assert own == [next(day for day, e_value in found[0].evidence() if e_value >= 20.0)]
    else:
        assert own == ["day79"]


def test_groups_of_states_are_merged_in_any_order(refocal, folder):
    """A state with more groups before one with fewer was refused, and read in the other order."""
    rows = pd.DataFrame({"p": [0.2, 0.7], "label": [0, 1], "region": ["north", "south"]})
    rows.to_csv(folder / "rows.csv", index=False)
    reading = ("rows.csv", "--probability-column", "p")
    refocal("monitor", *reading, "--groups", "region", "--state", "grouped.json")
    refocal("monitor", *reading, "--state", "plain.json")
    for order in (("grouped", "plain"), ("plain", "grouped")):
        merge = [each for name in order for each in ("--merge", f"{name}.json")]
        assert refocal("monitor", *merge, "--state", f"{order[0]}-first.json")[0] == 0
        assert CalibrationMonitor.load(f"{order[0]}-first.json").group_columns == ("region",)


def test_a_state_is_merged_once(refocal, days):
    for i, day in enumerate(days):
        refocal("monitor", f"{day}.csv", "--probability-column", "p", "--state", f"part{i % 2}.json")
    merge = ("monitor", "--merge", "part0.json", "--merge", "part1.json", "--state", "all.json")
    assert refocal(*merge)[0] == 0
    before = CalibrationMonitor.load("all.json").to_dict()
    code, _, err = refocal(*merge)
    assert code == 1
    assert ".json: --merge must be a monitor whose rows are not in this one. Got one that was merged when" in err
    assert "merge all states into a new --state" in err
    code, _, err = refocal("monitor", "--merge", "all.json", "--state", "all.json")
    assert code == 1
    assert "Got the same monitor instead." in err
    assert CalibrationMonitor.load("all.json").to_dict() == before


def test_ids_are_text_as_it_stands_in_the_file(refocal, folder):
    ids = [90071992547409931, 90071992547409932, 7]  # the first two are one number in floating point
    pd.DataFrame({"id": ids, "p": [0.1, 0.8, 0.4]}).to_csv(folder / "said.csv", index=False)
    pd.DataFrame({"id": ids, "label": [0, 1, 1]}).to_parquet(folder / "came.parquet")
    assert refocal("monitor", "said.csv", "--probability-column", "p", "--ids", "id")[0] == 0
    said = refocal("monitor", "--outcomes", "came.parquet", "--ids", "id")[1]
    assert "came.parquet: 3 labels matched with predictions." in said


@pytest.mark.parametrize("times", [["2026-01-01", "2026-01-02"], ["2026-01-01 08:00", "2026-01-01 09:30:00.5"]])
def test_times_are_the_same_ids_in_every_format(refocal, folder, times):
    table = pd.DataFrame({"id": pd.to_datetime(times, format="ISO8601"), "p": [0.2, 0.7], "label": [0, 1]})
    table[["id", "p"]].to_parquet("said.parquet", index=False)
    table[["id", "label"]].to_csv("came.csv", index=False)
    assert refocal("monitor", "said.parquet", "--probability-column", "p", "--ids", "id")[0] == 0
    assert "came.csv: 2 labels matched with predictions." in refocal("monitor", "--outcomes", "came.csv")[1]


def test_there_may_be_more_ids_and_periods_than_groups(refocal, folder):
    n = 2100  # rows, each of a period of its own
    rng = np.random.default_rng(4)
    p = rng.random(n).round(6)
    y = (rng.random(n) < p).astype(int)
    table = pd.DataFrame({"id": np.arange(n), "p": p, "label": y, "hour": [f"hour{i}" for i in range(n)]})
    table[["id", "p"]].to_csv("said.csv", index=False)
    table[["id", "label"]].to_csv("came.csv", index=False)
    code, out, _ = refocal("monitor", "said.csv", "--ids", "id")
    assert (code, "2,100 rows wait for labels in said." in out) == (0, True)
    assert "2,100 labels matched" in refocal("monitor", "--outcomes", "came.csv", "--ids", "id")[1]
    found = CalibrationMonitor.load("monitor.json").summary()
    assert (found.n, found.rate.value) == (n, pytest.approx(y.mean()))
    table.to_csv("hours.csv", index=False)
    code, out, _ = refocal("monitor", "hours.csv", "--cluster", "hour", "--state", "hours.json")
    assert (code, "2,100 rows counted in 2,100 periods of hour" in out) == (0, True)
    history = CalibrationMonitor.load("hours.json").history()
    assert (sum(each.n for each in history), history[-1].last) == (n, "hour2099")


def test_a_row_without_a_period_is_refused(refocal, folder):
    pd.DataFrame({"p": [0.2, 0.7], "label": [0, 1], "day": ["May", None]}).to_csv("some.csv", index=False)
    code, _, err = refocal("monitor", "some.csv", "--cluster", "day")
    assert (code, "must be known of every row. Got none in row 1 of 'day'" in err) == (1, True)


@pytest.mark.parametrize(
    ("n_classes", "what", "outcome"), [(2, "mean probability", "rate"), (3, "mean confidence", "accuracy")]
)
def test_what_is_compared_has_its_name_for_two_classes_and_for_more(refocal, folder, n_classes, what, outcome):
    logits = np.random.default_rng(0).normal(size=(400, n_classes))
    np.savez(folder / "day.npz", logits=8 * logits, labels=np.arange(400) % n_classes)
    code, out, _ = refocal("monitor", "day.npz", "--independent", "-o", "history.html")
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


def test_files_of_outcomes_that_contradict_each_other_are_refused(refocal, folder):
    (folder / "said.csv").write_text("id,p\na,0.2\nb,0.8\n")
    (folder / "one.csv").write_text("id,label\na,0\nb,1\n")
    (folder / "other.csv").write_text("id,label\na,1\n")
    assert refocal("monitor", "said.csv", "--ids", "id")[0] == 0
    code, _, err = refocal("monitor", "--outcomes", "one.csv", "--outcomes", "other.csv", "--ids", "id")
    assert (code, "other.csv: 'labels' must be one for each id" in err) == (1, True)
    (folder / "two.csv").write_text("id,label,labels\na,0,1\n")
    code, _, err = refocal("monitor", "--outcomes", "two.csv", "--ids", "id")
    assert (code, "has 'label' and 'labels'; say which one" in err) == (1, True)
    code, out, _ = refocal("monitor", "--outcomes", "one.csv", "--outcomes", "one.csv", "--ids", "id")
    assert (code, "one.csv: 2 labels matched with predictions." in out) == (0, True)


def test_the_positive_label_is_remembered_before_both_labels_have_occurred(refocal, folder):
    (folder / "all_bad.csv").write_text("p,label\n0.7,bad\n0.6,bad\n")
    (folder / "both.csv").write_text("p,label\n0.7,bad\n0.1,good\n")
    (folder / "said.csv").write_text("id,p\na,0.7\nb,0.1\n")
    (folder / "came.csv").write_text("id,label\na,bad\nb,good\n")
    for first, second in ((("all_bad.csv",), ("both.csv",)), (("said.csv",), ("--outcomes", "came.csv"))):
        state = ("--ids", "id", "--state", f"{first[0]}.json")
        assert refocal("monitor", *first, *state, "--positive-label", "bad")[0] == 0
        code, _, err = refocal("monitor", *second, *state, "--positive-label", "good")
        assert (code, "--positive-label must be 'bad'" in err) == (2, True)
        assert refocal("monitor", *second, *state)[0] == 0
        watched = CalibrationMonitor.load(f"{first[0]}.json")
        assert watched.history()[-1].rate.value == 0.5
        assert watched.history()[-1].log_loss == pytest.approx(-np.log([0.7, 0.9]).mean())


def test_monitors_of_other_positive_labels_are_not_merged(refocal, folder):
    (folder / "said.csv").write_text("id,p\na,0.7\nb,0.1\n")
    (folder / "more.csv").write_text("id,p\nc,0.7\nd,0.1\n")
    assert refocal("monitor", "said.csv", "--ids", "id", "--positive-label", "bad", "--state", "a.json")[0] == 0
    assert refocal("monitor", "more.csv", "--ids", "id", "--positive-label", "good", "--state", "b.json")[0] == 0
    code, _, err = refocal("monitor", "--merge", "b.json", "--state", "a.json")
    assert (code, "whose positive class is 'bad'" in err) == (1, True)


@pytest.mark.parametrize("option", ["--fail-if-alarm", "--restart"])
def test_a_state_that_is_not_there_has_no_alarm_to_ask_for(refocal, folder, option):
    code, _, err = refocal("monitor", "--state", "typo.json", option)
    assert (code, err) == (2, "refocal: typo.json: no such file; a new state begins with batches.\n")
    assert not (folder / "typo.json").exists()


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


@pytest.fixture
def batches(folder):
    """Predictions of three named classes that wait, and their outcomes, as names and counted from 0."""
    rng = np.random.default_rng(7)
    p = rng.dirichlet([1.0, 2.0, 3.0], size=400)
    labels = np.array([rng.choice(3, p=row) for row in p])
    ids = [f"row {i}" for i in range(400)]
    return p, labels, pd.DataFrame({"id": ids})


def joined(refocal, p, labels, *options):
    """Whether the state is what the Python interface makes of the same predictions and labels."""
    expected = CalibrationMonitor()
    expected.update(p, labels, period="said")
    code, out, err = refocal("monitor", "--outcomes", "came.csv", "--ids", "id", *options)
    assert (code, err) == (0, "")
    assert f"came.csv: {len(labels)} labels matched" in out
    found = CalibrationMonitor.load("monitor.json")
    return [numbers(each) for each in found.history()] == [numbers(each) for each in expected.history()]


NAMES = ["cat", "dog", "horse"]


@pytest.mark.parametrize(
    ("columns", "outcome", "options"),
    [
        (NAMES, lambda k: NAMES[k], ()),
        (NAMES, lambda k: k, ()),
        (NAMES, lambda k: k + 1, ("--first-label", "1")),
        (["p_0", "p_1", "p_2"], lambda k: k + 1, ("--first-label", "1")),
        (["1", "2", "3"], lambda k: k + 1, ()),
        (["3", "5", "8"], lambda k: [3, 5, 8][k], ()),
    ],
)
def test_outcomes_are_read_as_the_labels_of_batches_are(refocal, batches, columns, outcome, options):
    p, labels, table = batches
    table.assign(**dict(zip(columns, p.T, strict=True))).to_csv("said.csv", index=False)
    said = ("--probabilities", "--values", ",".join(columns), "--ids", "id")
    assert "400 rows wait for labels" in refocal("monitor", "said.csv", *said)[1]
    table.assign(label=[outcome(k) for k in labels]).sample(frac=1.0, random_state=0).to_csv("came.csv", index=False)
    assert joined(refocal, p, labels, *options)


def test_outcomes_that_are_not_known_are_left_out_and_others_must_be_classes(refocal, batches):
    p, labels, table = batches
    known = np.arange(400) % 4 > 0
    table.assign(**dict(zip(NAMES, p.T, strict=True))).to_csv("said.csv", index=False)
    refocal("monitor", "said.csv", "--probabilities", "--values", "cat,dog,horse", "--ids", "id")
    table.assign(label=np.where(known, labels, -1)).to_csv("came.csv", index=False)
    code, _, err = refocal("monitor", "--outcomes", "came.csv")
    assert (code, "--ignore-index" in err) == (1, True)
    assert joined(refocal, p[known], labels[known], "--ignore-index", "-1")
    table.assign(label="cow").to_csv("came.csv", index=False)
    code, _, err = refocal("monitor", "--outcomes", "came.csv")
    assert (code, "must be among the class names (cat, dog, horse). Got 'cow'" in err) == (1, True)


def test_the_positive_class_of_outcomes_is_that_of_the_predictions(refocal, folder):
    rng = np.random.default_rng(8)
    p = rng.beta(1, 3, 300)
    late = rng.random(300) < p
    table = pd.DataFrame({"id": np.arange(300), "late": p, "ontime": 1.0 - p})
    table.to_csv("said.csv", index=False)
    table[["id", "late"]].rename(columns={"late": "p"}).to_csv("one.csv", index=False)
    pd.DataFrame({"id": np.arange(300), "label": np.where(late, "late", "ontime")}).to_csv("came.csv", index=False)
    for file, columns in (("said.csv", "late,ontime"), ("one.csv", "p")):
        options = ("--probabilities", "--values", columns, "--ids", "id", "--positive-label", "late")
        assert refocal("monitor", file, *options, "--period", "said", "--state", "monitor.json")[0] == 0
        assert joined(refocal, p, late.astype(int), "--positive-label", "late")
        code, _, err = refocal("monitor", file, *options[:-1], "ontime")
        assert code == 2
        assert "--positive-label must be 'late', as in monitor.json so far. Got 'ontime' instead." in err
        (folder / "monitor.json").unlink()


@pytest.mark.parametrize("positive", [(), ("--positive-label", "no")])
def test_outcomes_may_be_whole_names_of_columns(refocal, folder, positive):
    rng = np.random.default_rng(2)
    p = rng.beta(2, 3, 300).round(6)
    labels = np.where(rng.random(300) < p, "yes", "no")
    table = pd.DataFrame({"id": range(300), "p_no": 1.0 - p, "p_yes": p})
    table.to_csv("said.csv", index=False)
    table.assign(label=labels).to_csv("all.csv", index=False)
    pd.DataFrame({"id": range(300), "label": np.char.add("p_", labels)}).to_csv("came.csv", index=False)
    assert refocal("monitor", "said.csv", "--ids", "id", "--state", "later.json", *positive)[0] == 0
    assert "300 labels matched" in refocal("monitor", "--outcomes", "came.csv", "--state", "later.json")[1]
    assert refocal("monitor", "all.csv", "--state", "once.json", *positive)[0] == 0
    later, once = (CalibrationMonitor.load(file).summary() for file in ("later.json", "once.json"))
    assert later.log_loss == pytest.approx(once.log_loss, rel=1e-12)
    assert later.rate.value == once.rate.value


def test_outcomes_do_not_count_columns_that_were_in_another_order(refocal, folder):
    p = np.array([0.1, 0.3, 0.8, 0.9])
    pd.DataFrame({"id": range(4), "p_no": 1.0 - p, "p_yes": p}).to_csv("said.csv", index=False)
    pd.DataFrame({"id": range(4), "label": [0, 0, 1, 1]}).to_csv("numbers.csv", index=False)
    pd.DataFrame({"id": range(4), "label": ["no", "no", "yes", "yes"]}).to_csv("came.csv", index=False)
    assert refocal("monitor", "said.csv", "--ids", "id", "--positive-label", "no")[0] == 0
    state = (folder / "monitor.json").read_text()
    for known in (state, state.replace(',"columns_moved":true', "")):  # a state of an older version
        (folder / "monitor.json").write_text(known)
        code, _, err = refocal("monitor", "--outcomes", "numbers.csv")
        assert (code, "'labels' must be names of classes (yes, no)" in err) == (1, True)
        assert "0 is 'yes' in this order and 'no' in that of a batch" in err
    assert joined(refocal, 1.0 - p, np.array([1, 1, 0, 0]))
    # Without a positive label the columns stay in their order, which numbers count.
    (folder / "monitor.json").unlink()
    assert refocal("monitor", "said.csv", "--ids", "id")[0] == 0
    (folder / "numbers.csv").rename("came.csv")
    assert joined(refocal, p, np.array([0, 0, 1, 1]))


def test_outcomes_do_not_count_columns_of_batches_in_two_orders(refocal, folder):
    p = pd.DataFrame({"cat": [0.7, 0.1], "dog": [0.2, 0.1], "emu": [0.1, 0.8]})
    p.assign(id=["a", "b"]).to_csv("first.csv", index=False)
    p[["emu", "cat", "dog"]].assign(id=["c", "d"]).to_csv("second.csv", index=False)
    pd.DataFrame({"id": ["a", "d"], "label": [0, 2]}).to_csv("came.csv", index=False)
    for file in ("first.csv", "second.csv"):
        assert refocal("monitor", file, "--probabilities", "--values", "cat,dog,emu", "--ids", "id")[0] == 0
    assert refocal("monitor", "--outcomes", "came.csv")[0] == 0
    (folder / "monitor.json").unlink()
    for file in ("first.csv", "second.csv"):
        assert refocal("monitor", file, "--probabilities", "--values", "*", "--ids", "id")[0] == 0
    code, _, err = refocal("monitor", "--outcomes", "came.csv")
    assert (code, "0 is 'cat' in this order and another class in that of a batch" in err) == (1, True)


def test_named_columns_of_batches_are_matched(refocal, folder):
    rng = np.random.default_rng(9)
    p = rng.beta(1, 3, (2, 300)).round(6)
    late = rng.random(p.shape) < p
    for name, columns, each, y in (("a", ["late", "ontime"], p[0], late[0]), ("b", ["ontime", "late"], p[1], late[1])):
        found = pd.DataFrame({"late": each, "ontime": 1.0 - each})[columns]
        found.assign(label=np.where(y, "late", "ontime")).to_csv(f"{name}.csv", index=False)
    for options, sign in ((("--positive-label", "late"), 1), ((), 0)):
        expected = CalibrationMonitor()
        for i, period in enumerate("ab"):
            expected.update(p[i] if sign else 1.0 - p[i], late[i] == sign, period=period)
        for file in ("a.csv", "b.csv"):
            assert refocal("monitor", file, "--probabilities", "--state", f"{sign}.json", *options)[0] == 0
        found = CalibrationMonitor.load(f"{sign}.json")
        assert [numbers(each) for each in found.history()] == [numbers(each) for each in expected.history()]
    code, _, err = refocal("monitor", "--merge", "0.json", "--state", "1.json")
    assert code == 1
    assert "must be a monitor of the classes ontime, late. Got one of late, ontime instead." in err
    pd.DataFrame({"early": [0.5], "late": [0.5], "label": ["late"]}).to_csv("c.csv", index=False)
    code, _, err = refocal("monitor", "c.csv", "--probabilities", "--state", "1.json")
    assert (code, "'early' in one of them only" in err) == (1, True)


def test_a_day_of_negative_labels_is_read_by_the_names_that_the_state_knows(refocal, folder):
    pd.DataFrame({"p": [0.2, 0.7], "label": ["no", "yes"]}).to_csv("first.csv", index=False)
    pd.DataFrame({"p": [0.3, 0.1], "label": ["no", "no"]}).to_csv("second.csv", index=False)
    for file in ("first.csv", "second.csv"):
        code, _, err = refocal("monitor", file, "--probability-column", "p", "--positive-label", "yes")
        assert (code, err) == (0, "")
    assert [each.rate.value for each in CalibrationMonitor.load("monitor.json").history()] == [0.5, 0.0]


def test_columns_named_after_one_number_per_row_must_say_which_is_positive(refocal, folder):
    pd.DataFrame({"p": [0.2, 0.7], "label": [0, 1]}).to_csv("first.csv", index=False)
    pd.DataFrame({"yes": [0.3, 0.1], "no": [0.7, 0.9], "label": ["no", "yes"]}).to_csv("second.csv", index=False)
    assert refocal("monitor", "first.csv", "--probability-column", "p")[0] == 0
    code, _, err = refocal("monitor", "second.csv", "--probabilities")
    assert (code, "must be of columns without names, as those before" in err, "--positive-label" in err) == (1, 1, 1)
    assert refocal("monitor", "second.csv", "--probabilities", "--positive-label", "yes")[0] == 0
    assert CalibrationMonitor.load("monitor.json").summary(1).mean_p == pytest.approx(0.2)


def test_clusters_and_groups_are_columns(refocal, folder):
    rng = np.random.default_rng(1)
    p = rng.beta(2, 3, 3000).round(6)
    region = np.array(["north", "south"])[rng.integers(2, size=3000)]
    y = (rng.random(3000) < p + np.where(region == "south", 0.2, 0.0)).astype(int)
    day = [f"2026-05-{1 + i % 30:02}" for i in range(3000)]
    table = pd.DataFrame({"p": p, "label": y, "day": day, "region": region})
    table.to_csv("may.csv", index=False)
    code, out, _ = refocal("monitor", "may.csv", "--cluster", "day", "--groups", "region")
    assert code == 0
    assert "3,000 rows counted in 30 periods of day" in out
    expected = CalibrationMonitor()
    expected.update(p, y, clusters=day, groups={"region": region})
    found = CalibrationMonitor.load("monitor.json")
    assert found.e_value == pytest.approx(expected.e_value, rel=1e-9)
    code, out, _ = refocal("monitor", "--json")
    alarms = json.loads(out)["alarms"]
    assert "region = south: probabilities too low" in alarms[0]["moved"]
    assert refocal("monitor", "may.csv", "--cluster", "day", "--period", "May")[0] == 2
    assert refocal("monitor", "--independent")[0] == 2


def test_rows_that_wait_say_what_to_expect(refocal, days, folder):
    for day in (1, 2, 3, 4):
        refocal("monitor", f"said{day}.csv", "--probability-column", "p", "--ids", "id", "--period", f"day{day}")
        if day < 4:
            refocal("monitor", "--outcomes", f"came{day}.csv", "--ids", "id")
    out = refocal("monitor")[1]
    p = days["day4"][0]
    accuracy = 100 * np.maximum(p, 1 - p).mean()
    of_all = "Expected of all 300 predictions of day4, if the probabilities are right"
    assert f"{of_all}: accuracy {accuracy:.2f} %" in out
    assert "No evidence that estimates without labels were off, but they may have been by up to" in " ".join(
        out.split()
    )


def test_files_of_one_command_enter_in_the_order_of_their_periods(refocal, folder):
    rng = np.random.default_rng(1)
    day = np.repeat(np.arange(1, 17), 75)
    p = rng.beta(2, 5, len(day)).round(6)
    table = pd.DataFrame({"p": p, "label": (rng.random(len(day)) < p + 0.25).astype(int), "day": day})
    table["region"] = rng.choice(["east", "west"], len(day))
    table.to_csv(folder / "all.csv", index=False)
    for name, rows in table.groupby("day"):
        rows.to_csv(folder / f"day{name}.csv", index=False)
    for name, rows in table.groupby("region"):
        rows.to_csv(folder / f"{name}.csv", index=False)
    found = {}
    by_shell = sorted(f"day{number}.csv" for number in range(1, 17))  # day10 before day2
    for state, batches in (
        ("all", ["all.csv", "--cluster", "day"]),
        ("days", by_shell),
        ("regions", ["west.csv", "east.csv", "--cluster", "day"]),
    ):
        code, out, err = refocal("monitor", *batches, "--probability-column", "p", "--state", f"{state}.json")
        assert (code, err) == (0, "")
        found[state] = CalibrationMonitor.load(f"{state}.json")
    assert found["all"].alarm is not None
    for state, prefix in (("days", "day"), ("regions", "")):
        assert found[state].e_value == pytest.approx(found["all"].e_value, rel=1e-9)
        assert found[state].alarm == f"{prefix}{found['all'].alarm}"
        assert found[state].alarms[0].since == f"{prefix}{found['all'].alarms[0].since}"
    assert "east.csv: " in out
    assert ", which had" in out  # rows of the same days are named; they may be the same
    code, out, _ = refocal("monitor", "all.csv", "--cluster", "day", "--probability-column", "p", "--state", "all.json")
    assert "which had 1,200 already; the same rows again count twice" in out


def test_files_in_one_command_leave_the_state_of_a_command_for_each(refocal, days, folder):
    for file in files(days):
        assert refocal("monitor", file, "--probability-column", "p", "--state", "apart.json")[0] == 0
    assert refocal("monitor", *files(days), "--probability-column", "p", "--state", "together.json")[0] == 0
    apart, together = (json.loads((folder / f"{name}.json").read_text()) for name in ("apart", "together"))
    assert together["history"]["path"][-1]["log_e"] != 0.0
    assert together["history"] == apart["history"]


def test_periods_of_which_no_order_is_known_are_refused(refocal, folder):
    table = pd.DataFrame({"p": [0.2, 0.7] * 4, "label": [0, 1] * 4, "day": ["30.11.2025", "1.12.2025"] * 4})
    table.to_csv(folder / "rows.csv", index=False)
    for options in ([], ["--backtest"]):
        code, _, err = refocal("monitor", "rows.csv", "--cluster", "day", *options)
        assert code == 2
        assert "a date such as 2026-01-31" in err
    assert not (folder / "monitor.json").exists()


def test_files_called_by_words_come_by_a_command_for_each(refocal, folder):
    for name in ("autumn", "spring"):
        pd.DataFrame({"p": [0.2, 0.7] * 4, "label": [0, 1] * 4}).to_csv(folder / f"{name}.csv", index=False)
    for options in ([], ["--backtest"]):
        code, _, err = refocal("monitor", "autumn.csv", "spring.csv", "--probability-column", "p", *options)
        assert (code, "differ in their numbers alone where several come together" in err) == (2, True)
    assert not (folder / "monitor.json").exists()
    for name in ("autumn", "spring"):
        assert refocal("monitor", f"{name}.csv", "--probability-column", "p")[0] == 0


def test_outcomes_in_two_files_of_one_command_are_those_of_one_file(refocal, days, folder):
    outcomes = pd.concat([pd.read_csv(file) for file in files(days, "came")]).sample(frac=1.0, random_state=0)
    outcomes[:900].to_csv("first.csv", index=False)
    outcomes[900:].to_csv("second.csv", index=False)
    outcomes.to_csv("all.csv", index=False)
    found = {}
    for state, given in (("one", ["all.csv"]), ("two", ["first.csv", "second.csv"])):
        shared = ("--ids", "id", "--state", f"{state}.json")
        assert refocal("monitor", *files(days, "said"), "--probability-column", "p", *shared)[0] == 0
        named = [option for file in given for option in ("--outcomes", file)]
        assert refocal("monitor", *named, *shared)[0] == 0
        found[state] = CalibrationMonitor.load(f"{state}.json")
    assert found["one"].summary().n == found["two"].summary().n == 1500
    assert found["two"].e_value == pytest.approx(found["one"].e_value, rel=1e-9)


@pytest.mark.parametrize("order", [("no", "yes"), ("yes", "no")])
def test_a_first_batch_of_one_class_in_words_is_read_by_the_positive_label(refocal, folder, order):
    for day, label in enumerate(order):
        pd.DataFrame({"p": [0.2, 0.7], "label": [label] * 2}).to_csv(f"day{day}.csv", index=False)
        code, _, err = refocal("monitor", f"day{day}.csv", "--probability-column", "p", "--positive-label", "yes")
        assert (code, err) == (0, "")
    watched = CalibrationMonitor.load("monitor.json")
    assert [each.rate.value for each in watched.history()] == [float(label == "yes") for label in order]
    pd.DataFrame({"p": [0.2], "label": ["maybe"]}).to_csv("day3.csv", index=False)
    code, _, err = refocal("monitor", "day3.csv", "--probability-column", "p")
    assert (code, "among the class names (no, yes)" in err) == (1, True)
    code, _, err = refocal("monitor", "day0.csv", "--probability-column", "p", "--state", "new.json")
    assert (code, "say which label is the positive one with --positive-label" in err) == (1, True)


def test_a_positive_label_that_is_true_is_the_1_of_the_state(refocal, folder):
    for day, labels in enumerate(([0, 1], [False, True])):
        pd.DataFrame({"p": [0.2, 0.7], "label": labels}).to_csv(f"day{day}.csv", index=False)
        positive = str(labels[1])
        code, _, err = refocal("monitor", f"day{day}.csv", "--probability-column", "p", "--positive-label", positive)
        assert (code, err) == (0, "")
    assert [each.rate.value for each in CalibrationMonitor.load("monitor.json").history()] == [0.5, 0.5]
    code, _, err = refocal("monitor", "day1.csv", "--probability-column", "p", "--positive-label", "False")
    assert (code, "--positive-label must be" in err) == (2, True)


def test_a_day_without_events_counts_after_a_positive_label(refocal, folder):
    p = np.array([0.1, 0.3, 0.2, 0.4])
    pd.DataFrame({"p": p, "label": [0, 1, 0, 1]}).to_csv(folder / "day1.csv", index=False)
    pd.DataFrame({"p": p, "label": [0, 0, 0, 0]}).to_csv(folder / "day2.csv", index=False)
    assert refocal("monitor", "day1.csv", "--positive-label", "1")[0] == 0
    assert refocal("monitor", "day2.csv")[0] == 0
    found = CalibrationMonitor.load("monitor.json").history()
    assert [each.n for each in found] == [4, 4]
    assert found[1].log_loss == pytest.approx(-np.log(1 - p).mean(), rel=1e-9)


def test_outcomes_of_ids_that_do_not_wait_are_named(refocal, folder):
    pd.DataFrame({"id": ["a1", "a2"], "p": [0.2, 0.7]}).to_csv(folder / "said.csv", index=False)
    pd.DataFrame({"id": ["a1", "a2"], "label": [0, 1]}).to_csv(folder / "came.csv", index=False)
    pd.DataFrame({"id": ["a1", "b7"], "label": [1, 1]}).to_csv(folder / "again.csv", index=False)
    refocal("monitor", "said.csv", "--ids", "id")
    assert "Warning" not in refocal("monitor", "--outcomes", "came.csv")[1]
    code, out, _ = refocal("monitor", "--outcomes", "again.csv")
    text = (
        "Warning: 2 of 2 ids are not those of waiting predictions: a1, b7 ignored. A label that an id had before stays."
    )
    assert (code, f"again.csv: 0 labels matched with predictions. {text}" in out) == (0, True)


@pytest.mark.parametrize("with_ids", [False, True])
def test_labels_of_a_later_batch_count_as_those_of_the_first(refocal, batches, with_ids):
    """Without the option too, on a day without the last class, whose labels might be columns counted from 0."""
    p, labels, _ = batches
    is_low = labels < 2
    np.savez("first.npz", probabilities=p, labels=labels + 1)
    assert refocal("monitor", "first.npz", "--first-label", "1", "--period", "1")[0] == 0
    ids = np.arange(np.count_nonzero(is_low))
    later = {"probabilities": p[is_low], "id": ids} if with_ids else {"probabilities": p[is_low]}
    np.savez("later.npz", **later, **({} if with_ids else {"labels": labels[is_low] + 1}))
    option = ("--ids", "id") if with_ids else ()
    code, out, err = refocal("monitor", "later.npz", *option, "--period", "2")
    assert (code, err) == (0, "")
    assert "Read classes: 1, 2, 3" in out
    if with_ids:
        pd.DataFrame({"id": ids, "label": labels[is_low] + 1}).to_csv("came.csv", index=False)
        assert refocal("monitor", "--outcomes", "came.csv", "--ids", "id")[0] == 0
    found = CalibrationMonitor.load("monitor.json").history()[1]
    assert found.rate.value == pytest.approx(np.mean(p[is_low].argmax(axis=1) == labels[is_low]))


@pytest.mark.parametrize("ending", ["csv", "npz"])
@pytest.mark.parametrize("negative", ["0", "False", "2"])
def test_the_positive_class_of_rows_without_names_is_1_from_the_first_batch_on(refocal, folder, ending, negative):
    p = np.array([0.2, 0.9, 0.3, 0.8])
    labels = np.array([0, 1, 0, 1])
    for day in (1, 2):
        if ending == "csv":
            pd.DataFrame({"p": p, "label": labels}).to_csv(f"day{day}.csv", index=False)
        else:
            np.savez(f"day{day}.npz", probabilities=np.stack([1 - p, p], axis=1), labels=labels)
    assert refocal("monitor", f"day1.{ending}")[0] == 0
    code, _, err = refocal("monitor", f"day2.{ending}", "--positive-label", negative)
    assert (code, f"--positive-label must be '1', as in monitor.json so far. Got '{negative}'" in err) == (2, True)
    assert refocal("monitor", f"day2.{ending}", "--positive-label", "1")[0] == 0
    expected = -np.log(np.where(labels == 1, p, 1 - p)).mean()
    found = CalibrationMonitor.load("monitor.json").history()
    assert [each.log_loss for each in found] == pytest.approx([expected, expected], rel=1e-9)


def test_a_new_state_of_merged_monitors_alarms_as_they_do(refocal, days):
    for i, day in enumerate(days):
        alpha = () if i > 1 else ("--alpha", "0.2")
        assert refocal("monitor", f"{day}.csv", "--state", f"part{i % 2}.json", *alpha)[0] == 0
    merge = ("monitor", "--merge", "part0.json", "--merge", "part1.json")
    assert refocal(*merge, "--state", "all.json")[0] == 0
    assert CalibrationMonitor.load("all.json").alpha == 0.2
    assert refocal(*merge, "--state", "said.json", "--alpha", "0.1")[0] == 0
    assert CalibrationMonitor.load("said.json").alpha == 0.1
    assert refocal("monitor", "day1.csv", "--state", "other.json", "--alpha", "0.01")[0] == 0
    code, _, err = refocal("monitor", "--merge", "part1.json", "--merge", "other.json", "--state", "both.json")
    words = "The monitors to merge have other probabilities of a false alarm, 0.01 and 0.2; say which with --alpha."
    assert (code, words in err) == (2, True)


@pytest.mark.parametrize(
    "given",
    [
        ("--positive-label", "cat"),
        ("--labels", "y"),
        ("--probability-column", "p"),
        ("--calibrator", "calibrator.json"),
        ("--cluster", "day"),
        ("--groups", "region"),
        ("--period", "May"),
        ("--ids", "id"),
    ],
)
def test_options_of_batches_are_refused_where_there_are_none(refocal, days, folder, given):
    (folder / "calibrator.json").write_text("{}")
    assert refocal("monitor", "day1.csv")[0] == 0
    before = (folder / "monitor.json").read_bytes()
    for besides in ((), ("--restart",)):
        code, _, err = refocal("monitor", *besides, *given)
        assert (code, err) == (2, f"refocal: {given[0]}: for batches or --outcomes, of which none are given.\n")
    assert (folder / "monitor.json").read_bytes() == before
