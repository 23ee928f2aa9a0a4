"""`refocal decide`: what it prints and writes is what the Python interface computes."""

from __future__ import annotations

import json
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest

from refocal import load
from refocal.decide import best_actions, cost_matrix, evaluate_decisions
from refocal.io import read


@pytest.fixture
def table(folder):
    rng = np.random.default_rng(0)
    p = rng.beta(1, 3, 500).round(6)
    found = pd.DataFrame({"p": p, "label": (rng.random(500) < p).astype(int)})
    found.to_csv(folder / "rows.csv", index=False)
    found[["p"]].to_csv(folder / "new.csv", index_label="id")
    return found


def test_two_classes_are_decided_by_their_costs(refocal, table, folder):
    options = ("--probability-column", "p", "--false-positive", "1", "--false-negative", "4", "--abstain", "0.3")
    code, out, err = refocal("decide", "rows.csv", *options, "-o", "decisions.csv", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    costs = cost_matrix(false_positive=1.0, false_negative=4.0)
    expected = evaluate_decisions(table.label, table.p, costs, abstain=0.3)
    assert found["threshold"] == 0.2
    assert found["abstain_between"] == pytest.approx([0.075, 0.7])
    assert found["reports"]["uncalibrated"]["cost"]["value"] == pytest.approx(expected.cost.value)
    actions = best_actions(table.p, costs, abstain=0.3).action
    assert found["abstained"] == (actions == -1).sum()
    written = pd.read_csv("decisions.csv", dtype=str)
    assert written.decision.tolist() == ["abstain" if action < 0 else str(action) for action in actions]
    assert written.label.tolist() == table.label.astype(str).tolist()
    shown = refocal("decide", "new.csv", *options, "-o", "decisions.csv")[1]
    assert "Class 1 is decided from a probability of 0.7 on, class 0 up to 0.075." in shown
    written = pd.read_csv("decisions.csv")
    assert list(written) == ["id", "p_1", "decision", "expected_cost"]
    assert written.id.tolist() == list(range(500))


@pytest.mark.parametrize("more", [[], ["--positive-label", "0"]])
def test_rows_of_weight_0_have_no_decision_without_labels_either(refocal, table, folder, more):
    weight = np.arange(500) % 4
    table[["p"]].assign(w=weight, id=np.arange(500)).to_csv("new.csv", index=False)
    costs = ("--false-positive", "1", "--false-negative", "4", "--weights", "w", *more, "-o", "d.csv")
    code, out, _ = refocal("decide", "new.csv", "--probability-column", "p", *costs, "--json")
    found = json.loads(out)
    assert (code, found["rows"], found["rows_left_out"]) == (0, 375, 125)
    assert pd.read_csv("d.csv").id.tolist() == np.flatnonzero(weight > 0).tolist()


def test_an_action_of_the_same_cost_for_all_classes_has_no_warning_in_groups(refocal, table, folder):
    table.assign(region=np.where(table.index % 2, "north", "south")).to_csv("rows.csv", index=False)
    code, out, err = refocal("decide", "rows.csv", "--costs", "0,1,0.3;4,0,0.3", "--groups", "region", "--json")
    assert (code, err) == (0, "")
    for group in json.loads(out)["reports"]["uncalibrated"]["groups"]:
        assert 0.0 < group["cost"]["low"] < group["cost"]["value"] < group["cost"]["high"] < 4.0


def test_costs_in_a_file_that_is_no_text_are_refused(refocal, table, folder):
    np.save("costs.npy", [[0.0, 1.0], [4.0, 0.0]])
    code, _, err = refocal("decide", "rows.csv", "--costs", "costs.npy")
    assert code == 2
    assert "--costs must be numbers" in err


def test_more_classes_and_a_calibrator(refocal, folder):
    refocal("fit", "val.npz", "-m", "ts")
    rows = read("test.npz")
    costs = 1.0 - np.eye(rows.n_classes)
    costs[0] = 3.0 * costs[0]
    np.savetxt("costs.csv", costs, delimiter=",")
    arguments = ("decide", "test.npz", "--calibrator", "calibrator.json", "--costs", "costs.csv")
    found = json.loads(refocal(*arguments, "--json")[1])["reports"]
    expected = evaluate_decisions(rows.labels, load("calibrator.json").predict_proba(rows.values), costs)
    assert found["calibrated"]["cost"]["value"] == pytest.approx(expected.cost.value, rel=1e-6)
    assert set(found) == {"uncalibrated", "calibrated"}
    text = (folder / "costs.csv").read_text()
    (folder / "costs.csv").write_text(text, encoding="utf-8-sig")  # as spreadsheets save it
    assert json.loads(refocal(*arguments, "--json")[1])["reports"] == found
    shown = refocal(*arguments)[1]
    assert "calibrated" in shown
    assert "One action for all rows costs" in shown


@pytest.mark.parametrize(
    ("costs", "abstain", "words"),
    [
        ("0,1;4,0", "-1", "No row is decided: each decision costs more than leaving a row undecided"),
        ("0,4;4,1", "0.5", "Class 0 is decided up to a probability of 0.125, class 1 never."),
        ("1,4;4,0", "0.5", "Class 1 is decided from a probability of 0.875 on, class 0 never."),
        ("0,1;4,0", "0", "Class 1 is decided from a probability of 1 on, class 0 up to 0."),
        ("0,1;104,100", "50.5", "Class 1 is decided above a probability of 0.2 and up to 0.5, class 0 up to 0.2."),
        ("100,101;4,0", "80.4", "Class 1 is decided from a probability of 0.204 on, class 0 never."),
        ("100,104;1,0", "50.5", "Class 1 is decided above a probability of 0.8, class 0 from 0.5 on and up to 0.8."),
    ],
)
def test_a_class_that_is_never_decided_is_named(refocal, folder, costs, abstain, words):
    p = np.linspace(0.0, 1.0, 101)
    pd.DataFrame({"p": p}).to_csv("grid.csv", index_label="id")
    options = ("--probability-column", "p", f"--costs={costs}", f"--abstain={abstain}")
    assert words in refocal("decide", "grid.csv", *options)[1]
    table = [[float(cost) for cost in row.split(",")] for row in costs.split(";")]
    actions = best_actions(p, table, abstain=float(abstain)).action
    assert (1 in actions) == ("Class 1 is decided" in words)


def test_what_is_said_of_a_threshold_holds_at_the_threshold_too(refocal, folder):
    p = np.array([0.2, 0.25, 0.5, 0.75, 0.8])
    pd.DataFrame({"p": p}).to_csv("ties.csv", index_label="id")
    options = ("--probability-column", "p", "--costs=0,1;1,0")
    assert "Class 1 is decided above a probability of 0.5." in refocal("decide", "ties.csv", *options)[1]
    assert best_actions(p, [[0, 1], [1, 0]]).action.tolist() == [0, 0, 0, 1, 1]
    shown = refocal("decide", "ties.csv", *options, "--abstain=0.25")[1]
    assert "Class 1 is decided from a probability of 0.75 on, class 0 up to 0.25." in shown
    assert best_actions(p, [[0, 1], [1, 0]], abstain=0.25).action.tolist() == [0, 0, -1, 1, 1]
    assert "Class 1 is decided above" in refocal("decide", "ties.csv", *options, "--abstain=0.5")[1]


def test_what_is_wrong_is_said_in_a_line(refocal, table):
    for arguments, words in (
        ((), "Say what mistakes cost"),
        (("--false-positive", "1"), "must be given together"),
        (("--costs", "0,1;x,0"), "--costs must be numbers"),
        (("--costs", "0,1;1"), "--costs must be numbers, as many in each row"),
        (("--costs", "0,1;1,0;1,1"), "refocal: --costs must be a matrix with a row for each of 2 classes"),
        (("--costs", "0,1;1,0", "--abstain", "nan"), "refocal: --abstain must be finite"),
        (("--false-positive", "-1", "--false-negative", "1"), "--false-positive must be greater than 0. Got -1"),
        (("--false-positive", "1", "--false-negative", "0"), "--false-negative must be greater than 0. Got 0"),
        (("--false-positive", "nan", "--false-negative", "1"), "refocal: --false-positive must be a finite number"),
        (("--costs", "0,1;1,0", "-o", "d.npz"), "must end in .csv"),
    ):
        code, _, err = refocal("decide", "rows.csv", "--probability-column", "p", *arguments)
        assert code in (1, 2)
        assert words in err, arguments


def test_rows_without_a_label_are_left_out_where_that_is_said(refocal, table, folder):
    marked = table.assign(label=table.label.where(table.index % 5 != 0, 255))
    marked.to_csv("marked.csv", index_label="id")
    options = ("marked.csv", "--probability-column", "p", "--false-positive", "1", "--false-negative", "4", "--json")
    code, _, err = refocal("decide", *options)
    assert code == 1
    assert "Leave such rows out with --ignore-index." in err
    _, out, _ = refocal("decide", *options, "--ignore-index", "255", "-o", "decisions.csv")
    kept = table[table.index % 5 != 0]
    expected = evaluate_decisions(kept.label, kept.p, cost_matrix(false_positive=1.0, false_negative=4.0))
    assert json.loads(out)["rows"] == len(kept)
    assert pd.read_csv("decisions.csv").id.tolist() == kept.index.tolist()
    assert json.loads(out)["reports"]["uncalibrated"]["cost"]["value"] == pytest.approx(expected.cost.value)


def test_a_column_of_the_file_is_not_overwritten(refocal, table, folder):
    table.assign(decision="yes").to_csv("decided.csv", index=False)
    options = ("--probability-column", "p", "--false-positive", "1", "--false-negative", "4", "-o", "decisions.csv")
    code, _, err = refocal("decide", "decided.csv", *options)
    assert code == 1
    assert "have a column 'decision'" in err


@pytest.fixture
def animals(folder):
    """Rows of three named classes, twice: the columns of the second file are in another order."""
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(900, 3)).round(4)
    names = np.array(["cat", "dog", "horse"])
    label = names[np.argmax(logits + np.array([0.0, 0.0, 1.0]) + rng.gumbel(size=logits.shape), axis=1)]
    found = pd.DataFrame(dict(zip(names, logits.T, strict=True))).assign(label=label)
    found.to_csv("animals.csv", index=False)
    found[["horse", "cat", "dog", "label"]].to_csv("moved.csv", index=False)
    return found


def test_columns_are_matched_with_the_classes_of_the_calibrator_by_name(refocal, animals):
    assert refocal("fit", "animals.csv", "-m", "vs")[0] == 0
    costs = np.array([[0.0, 1, 4], [2, 0, 1], [3, 5, 0]])  # rows: cat, dog, horse, in both files
    p = load("calibrator.json").predict_proba(animals[["cat", "dog", "horse"]].to_numpy())
    actions = np.argmin(p @ costs, axis=1)
    classes = animals.label.map({"cat": 0, "dog": 1, "horse": 2})
    text = ";".join(",".join(map(str, row)) for row in costs)
    for file in ("animals.csv", "moved.csv"):
        options = ("--calibrator", "calibrator.json", "--costs", text, "-o", "decisions.csv", "--json")
        found = json.loads(refocal("decide", file, *options)[1])["reports"]["calibrated"]
        assert found["cost"]["value"] == pytest.approx(costs[classes, actions].mean(), rel=1e-6)
        written = pd.read_csv("decisions.csv")
        assert written.decision.tolist() == np.array(["cat", "dog", "horse"])[actions].tolist()
        assert written.label.tolist() == animals.label.tolist()
    animals.rename(columns={"horse": "cow"}).assign(label="cat").to_csv("cows.csv", index=False)
    code, _, err = refocal("decide", "cows.csv", "--calibrator", "calibrator.json", "--costs", text)
    assert (code, "no column of the class 'horse', which the calibrator knows" in err) == (1, True)


def test_the_positive_class_is_the_one_that_is_said_also_behind_a_calibrator(refocal, folder):
    rng = np.random.default_rng(4)
    p = rng.beta(1, 2, 600).round(6)
    label = np.where(rng.random(600) < p**1.5, "late", "ontime")
    pd.DataFrame({"late": p, "ontime": (1 - p).round(6), "label": label}).to_csv("rows.csv", index=False)
    assert refocal("fit", "rows.csv", "--probabilities", "-m", "vs")[0] == 0
    of_late = load("calibrator.json").predict_proba(np.column_stack([p, 1 - p]))[:, 0]
    costs = ("--false-positive", "1", "--false-negative", "4", "--positive-label", "late")
    # The calibrator knows that it takes probabilities.
    code, _, err = refocal("decide", "rows.csv", "--calibrator", "calibrator.json", *costs, "-o", "decisions.csv")
    assert (code, err) == (0, "")
    assert pd.read_csv("decisions.csv").decision.tolist() == np.where(of_late >= 0.2, "late", "ontime").tolist()


def test_the_positive_class_is_the_one_that_is_said_also_without_labels(refocal, folder):
    (folder / "new.csv").write_text("late,ontime\n0.2,0.8\n0.05,0.95\n")
    options = ("--probabilities", "--false-positive", "1", "--false-negative", "9", "-o", "decisions.csv")
    assert refocal("decide", "new.csv", "--positive-label", "late", *options)[0] == 0
    written = pd.read_csv("decisions.csv")
    assert written.decision.tolist() == ["late", "ontime"]  # 0.1 and more is late
    assert written.expected_cost.tolist() == pytest.approx([0.8, 9 * 0.05])
    code, _, err = refocal("decide", "new.csv", "--positive-label", "early", *options)
    assert (code, "--positive-label must be one of 'late' and 'ontime'" in err) == (2, True)
    (folder / "p.csv").write_text("id,p\n1,0.2\n2,0.05\n")
    assert refocal("decide", "p.csv", "--positive-label", "late", *options)[0] == 0
    assert pd.read_csv("decisions.csv").decision.tolist() == ["late", "not late"]


def test_decisions_name_classes_keep_the_name_of_the_outcome_and_have_the_probability(refocal, folder):
    rng = np.random.default_rng(5)
    p = rng.beta(1, 3, 400).round(6)
    outcome = np.where(rng.random(400) < p, "late", "on time")
    region = rng.choice(["north", "south"], 400)
    flights = pd.DataFrame({"id": range(400), "score": p, "outcome": outcome, "region": region})
    flights.to_csv("flights.csv", index=False)
    options = ("--probability-column", "score", "--labels", "outcome", "--positive-label", "late")
    costs = ("--false-positive", "1", "--false-negative", "4", "--groups", "region", "-o", "decisions.csv")
    code, out, err = refocal("decide", "flights.csv", *options, *costs)
    assert (code, err) == (0, "")
    assert "late is decided above a probability of 0.2." in out
    assert "region = north" in out
    assert "FPR %" in out
    written = pd.read_csv("decisions.csv")
    assert list(written) == ["id", "region", "p_late", "decision", "expected_cost", "outcome"]
    assert written.p_late.to_numpy() == pytest.approx(p, abs=1e-6)
    assert written.outcome.tolist() == outcome.tolist()
    assert written.decision.tolist() == np.where(p >= 0.2, "late", "on time").tolist()
    found = json.loads(refocal("decide", "flights.csv", *options, *costs, "--json")[1])
    groups = found["reports"]["uncalibrated"]["groups"]
    assert [group["name"] for group in groups] == ["north", "south"]
    is_north = region == "north"
    selected = p >= 0.2
    assert groups[0]["selection_rate"]["value"] == pytest.approx(selected[is_north].mean())


def test_an_action_beyond_the_classes_is_no_class(refocal, folder):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(50, 3)), columns=["fine", "worn", "cracked"])
    table.assign(label=rng.choice(table.columns, 50)).to_csv("rows.csv", index=False)
    code, out, _ = refocal("decide", "rows.csv", "--costs", "0,2,8,1;3,0,8,1;60,60,0,1", "-o", "d.csv")
    assert code == 0
    assert "Read classes: fine, worn, cracked (columns of rows.csv)" in out
    assert {"3"} <= {*pd.read_csv("d.csv", dtype=str)["decision"]} <= {"fine", "worn", "cracked", "3"}


def test_an_action_beyond_the_classes_is_told_from_a_class_of_its_number(refocal, folder):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(50, 3)), columns=["1", "2", "3"])
    table.assign(label=rng.choice(table.columns, 50)).to_csv("rows.csv", index=False)
    costs = np.array([[0.0, 2, 8, 1], [3, 0, 8, 1], [60, 60, 0, 1]])
    text = ";".join(",".join(map(str, row)) for row in costs)
    assert refocal("decide", "rows.csv", "--costs", text, "-o", "d.csv")[0] == 0
    p = np.exp(table) / np.exp(table).sum(axis=1).to_numpy()[:, None]
    names = np.array(["1", "2", "3", "action 3"])
    assert pd.read_csv("d.csv", dtype=str)["decision"].tolist() == names[np.argmin(p @ costs, axis=1)].tolist()


def test_a_class_called_as_rows_that_are_left_undecided_is_refused(refocal, folder):
    rng = np.random.default_rng(0)
    pd.DataFrame(rng.normal(size=(50, 2)), columns=["logit_abstain", "logit_vote"]).to_csv("rows.csv", index=False)
    costs = ("--false-positive", "1", "--false-negative", "4")
    code, _, err = refocal("decide", "rows.csv", *costs, "--abstain", "0.2", "-o", "d.csv")
    assert (code, "--abstain: rows left undecided are called 'abstain', as a class is" in err) == (2, True)
    assert refocal("decide", "rows.csv", *costs, "-o", "d.csv")[0] == 0


@pytest.mark.parametrize("output", [(), ("-o", "d.csv")])
def test_a_table_of_costs_may_be_longer_than_the_name_of_a_file(refocal, folder, output):
    """That of forty classes has 3,200 characters; a name has 255 at most."""
    n = 40
    rng = np.random.default_rng(0)
    np.savez("rows.npz", logits=rng.normal(size=(100, n)), labels=np.arange(100) % n)
    costs = ";".join(",".join(str(int(i != j)) for j in range(n)) for i in range(n))
    code, out, _ = refocal("decide", "rows.npz", "--costs", costs, "--json", *output)
    found = json.loads(out)["reports"]["uncalibrated"]["cost"]["value"]
    rows = read("rows.npz")
    assert (code, found) == (0, pytest.approx(float(np.mean(rows.values.argmax(axis=1) != rows.labels))))


def test_fewer_actions_than_classes_are_called_by_their_numbers(refocal, folder):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(50, 3)), columns=["fine", "worn", "cracked"])
    table.assign(label=rng.choice(table.columns, 50)).to_csv("rows.csv", index=False)
    code, out, _ = refocal("decide", "rows.csv", "--costs", "0,2;3,0;60,1", "-o", "d.csv")
    assert code == 0
    assert "(action 1)" in out
    p = np.exp(table) / np.exp(table).sum(axis=1).to_numpy()[:, None]
    actions = np.argmin(p.to_numpy() @ np.array([[0, 2], [3, 0], [60, 1]]), axis=1)
    assert pd.read_csv("d.csv")["decision"].tolist() == actions.tolist()


def test_rows_that_have_no_decision_are_counted(refocal, table, folder):
    weight = np.arange(500) % 4
    marked = table["label"].where(np.arange(500) % 5 > 0, 255)
    table.assign(w=weight, label=marked).to_csv("weighted.csv", index=False)
    costs = ("--probability-column", "p", "--false-positive", "1", "--false-negative", "4", "-o", "d.csv")
    n_used = int(((weight > 0) & (marked != 255)).sum())
    chosen = ("--weights", "w", "--ignore-index", "255")
    code, out, _ = refocal("decide", "weighted.csv", *costs, *chosen)
    assert code == 0
    assert (
        f"a decision for each of {n_used} rows. Rows of weight 0 or without a label have none: {500 - n_used}." in out
    )
    found = json.loads(refocal("decide", "weighted.csv", *costs, *chosen, "--json")[1])
    assert (found["rows"], found["rows_left_out"], len(pd.read_csv("d.csv"))) == (n_used, 500 - n_used, n_used)


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_a_duration_is_written_alike_by_decide_and_apply(refocal, table, folder, unit):
    """One second was 1000000, 1 or 0:00:01."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    took = arrow.array([timedelta(seconds=1)] * len(table), arrow.duration(unit))
    parquet.write_table(arrow.table({"p": table.p.array, "label": table.label.array, "took": took}), "rows.parquet")
    assert refocal("fit", "rows.parquet", "-m", "ts", "-o", "c.json")[0] == 0
    decide = ("decide", "rows.parquet", "--costs", "0,1;5,0", "--probability-column", "p", "-o", "out.csv")
    apply = ("apply", "c.json", "rows.parquet", "-o")
    for command in (decide, (*apply, "out.csv"), (*apply, "out.jsonl")):
        code, _, err = refocal(*command)
        assert (code, err) == (0, "")
        assert "0 days 00:00:01" in (folder / command[-1]).read_text().splitlines()[1]


def test_costs_that_are_no_numbers_are_named(refocal, table, folder):
    """A header, a text and a missing file were all said to be no numbers, without which."""
    (folder / "header.csv").write_text("no,yes\n0,1\n5,0\n")
    (folder / "text.csv").write_text("0,one\n5,0\n")
    for costs, message in (
        ("header.csv", "Got 'no' in header.csv; a table of costs has no header."),
        ("text.csv", "Got 'one' in text.csv; a table of costs has no header."),
        ("missing.csv", "missing.csv: no such file."),
        ("0,1;a,0", "Got '0,1;a,0'."),
        ("0,1;5", "Got '0,1;5'."),
    ):
        code, _, err = refocal("decide", "rows.csv", "--probability-column", "p", "--costs", costs)
        assert message in err
        assert code == 2
