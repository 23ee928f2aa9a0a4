"""Files and commands come through the same gate: cases that once were read wrongly."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers import draw_logits
from refocal import GroupCalibration, TemperatureScaling, load
from refocal.cli.run import run
from refocal.errors import FormatError, InputWarning
from refocal.evaluate import evaluate
from refocal.io import Predictions, apply, open_rows, read
from refocal.monitor import CalibrationMonitor

NAMES = np.array(["cat", "dog", "emu"])


@pytest.fixture
def two():
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 2.0, 1500)
    return p, (rng.random(1500) < p**2).astype(int)


def test_a_positive_label_does_not_turn_columns_of_rows_without_names(tmp_path, two, capsys):
    p, y = two
    np.savez(tmp_path / "a.npz", probabilities=np.column_stack([1 - p, p]), labels=y)
    fit = ["fit", tmp_path / "a.npz", "-m", "logistic", "--positive-label", "0", "-o", tmp_path / "c.json"]
    assert run([*map(str, fit)]) == 0
    assert run([*map(str, ["apply", tmp_path / "c.json", tmp_path / "a.npz", "-o", tmp_path / "o.csv"])]) == 0
    written = pd.read_csv(tmp_path / "o.csv")
    assert written["1"].mean() == pytest.approx(y.mean(), abs=1e-3)
    capsys.readouterr()
    losses = []
    for more in ([], ["--positive-label", "0"]):
        command = ["evaluate", tmp_path / "a.npz", tmp_path / "c.json", "--resamples", "5", "--json", *more]
        assert run([*map(str, command)]) == 0
        methods = {method["name"]: method for method in json.loads(capsys.readouterr().out)["methods"]}
        losses.append(methods["c"]["measures"]["log_loss"]["value"])
    truth = -np.mean(np.log(np.where(y == 1, written["1"], written["0"])))
    np.testing.assert_allclose(losses, truth, rtol=1e-6)


def test_costs_are_in_the_order_of_the_calibrators_classes_whichever_is_positive(tmp_path, two, capsys):
    p, y = two
    table = pd.DataFrame({"ok": 1 - p, "fraud": p})
    names = np.array(["ok", "fraud"])
    TemperatureScaling(input="probabilities").fit(table, names[y]).save(tmp_path / "d.json")
    pd.DataFrame({"p_fraud": p, "p_ok": 1 - p}).to_csv(tmp_path / "d.csv", index=False)
    decisions = []
    for more in ([], ["--positive-label", "fraud"], ["--positive-label", "ok"]):
        command = ["decide", tmp_path / "d.csv", "--calibrator", tmp_path / "d.json", "--costs", "0,1;9,0", *more]
        assert run([*map(str, [*command, "-o", tmp_path / "x.csv"])]) == 0
        decisions.append(pd.read_csv(tmp_path / "x.csv")["decision"].tolist())
        capsys.readouterr()
    assert decisions[0] == decisions[1] == decisions[2]
    assert 0.05 < np.mean(np.array(decisions[0]) == "fraud") < 0.95


def test_ids_that_are_large_numbers_are_matched_as_they_stand(tmp_path):
    rng = np.random.default_rng(1)
    ids = 1790000000000000000 + 1000 * np.arange(300)
    p = rng.choice([0.05, 0.95], 300)
    y = (rng.random(300) < p).astype(int)
    pd.DataFrame({"id": ids, "p": p}).to_csv(tmp_path / "b.csv", index=False)
    others = {"id": np.append(ids + 7, ids), "label": np.append(1 - y, y)}  # and labels of other rows
    pd.DataFrame(others).to_csv(tmp_path / "o.csv", index=False)
    state = ["--state", tmp_path / "m.json", "--ids", "id"]
    assert run([*map(str, ["monitor", tmp_path / "b.csv", *state])]) == 0
    assert run([*map(str, ["monitor", "--outcomes", tmp_path / "o.csv", *state])]) == 0
    summary = CalibrationMonitor.load(tmp_path / "m.json").summary()
    assert summary.n == 300
    assert summary.rate.value == pytest.approx(y.mean())


def test_groups_that_are_codes_are_the_same_in_every_format(tmp_path):
    logits, labels = draw_logits(300, 3)
    table = pd.DataFrame(logits, columns=[f"logit_{name}" for name in NAMES])
    table = table.assign(label=NAMES[labels], region=np.array(["01", "02", "10"])[np.arange(300) % 3])
    table.to_csv(tmp_path / "g.csv", index=False)
    table.to_parquet(tmp_path / "g.parquet")
    for name in ("g.csv", "g.parquet"):
        assert set(read(tmp_path / name, groups=["region"]).groups["region"]) == {"01", "02", "10"}


def test_outputs_of_apply_keep_the_names_of_the_classes(tmp_path):
    logits, labels = draw_logits(600, 3)
    table = pd.DataFrame(logits, columns=["logit_1", "logit_2", "logit_3"]).assign(label=labels + 1)
    table[table["label"] < 3].to_csv(tmp_path / "t.csv", index=False)
    fitted = TemperatureScaling().fit(logits, labels + 1)
    apply(fitted, tmp_path / "t.csv", tmp_path / "t.npz")
    before, after = read(tmp_path / "t.csv"), read(tmp_path / "t.npz")
    assert after.class_names == ("1", "2", "3")
    assert after.labels.tolist() == before.labels.tolist()


def test_tables_of_two_models_are_not_guessed(tmp_path):
    logits, labels = draw_logits(300, 3)
    table = {f"{model}_{name}": logits[:, i] for model in ("old", "new") for i, name in enumerate(NAMES)}
    pd.DataFrame(table).assign(label=NAMES[labels]).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(FormatError, match="do not look like classes"):
        read(tmp_path / "b.csv")
    fitted = TemperatureScaling().fit(logits, NAMES[labels])
    with pytest.raises(FormatError, match="do not look like classes"):
        apply(fitted, tmp_path / "b.csv", tmp_path / "o.csv")
    apply(fitted, tmp_path / "b.csv", tmp_path / "o.csv", values="new_*")
    # A fit that was told which columns to take knows them.
    told = TemperatureScaling().fit(read(tmp_path / "b.csv", values="new_*"))
    apply(told, tmp_path / "b.csv", tmp_path / "p.csv")
    assert "old_cat" in (tmp_path / "p.csv").read_text()
    assert "new_cat" not in (tmp_path / "p.csv").read_text()


def test_the_columns_of_a_calibrators_classes_come_before_one_called_prob(tmp_path, two):
    p, y = two
    names = np.array(["cat", "dog"])
    table = pd.DataFrame({"cat": 1 - p, "dog": p})
    fitted = TemperatureScaling(input="probabilities").fit(table.to_numpy(), names[y])
    table.assign(prob=np.maximum(p, 1 - p)).to_csv(tmp_path / "two.csv", index=False)
    apply(fitted, tmp_path / "two.csv", tmp_path / "o.csv")
    np.testing.assert_allclose(pd.read_csv(tmp_path / "o.csv")["dog"], fitted.predict_proba(table.to_numpy())[:, 1])


def test_two_columns_of_one_name_and_folders_of_several_formats_are_refused(tmp_path):
    logits, labels = draw_logits(100, 3)
    columns = [pa.array(logits[:, i]) for i in range(3)]
    names = [*(f"logit_{name}" for name in NAMES), "label", "label"]
    pq.write_table(pa.table([*columns, pa.array(labels), pa.array(labels)], names=names), tmp_path / "a.parquet")
    with pytest.raises(FormatError, match="two columns 'label'"):
        read(tmp_path / "a.parquet")
    pd.DataFrame(logits, columns=names[:3]).assign(label=labels).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(FormatError, match=r"holds \.parquet and \.csv files; say which with a pattern"):
        read(tmp_path)


def test_other_columns_are_written_as_they_are_or_refused(tmp_path):
    logits, _ = draw_logits(4, 3)
    fitted = TemperatureScaling().fit(*draw_logits(100, 3))
    (tmp_path / "k").mkdir()
    table = pd.DataFrame(logits, columns=["logit_0", "logit_1", "logit_2"])
    table[:2].assign(id=[1, 2]).to_parquet(tmp_path / "k" / "a.parquet")
    table[2:].assign(id=["007", "010"]).to_parquet(tmp_path / "k" / "b.parquet")
    with pytest.raises(FormatError, match="other kinds of values than in the rows before"):
        apply(fitted, tmp_path / "k", tmp_path / "k.parquet")
    table.assign(label=["001", "002", "010", "001"]).to_csv(tmp_path / "c.csv", index=False)
    apply(fitted, tmp_path / "c.csv", tmp_path / "c.parquet")
    assert pd.read_parquet(tmp_path / "c.parquet")["label"].tolist() == ["001", "002", "010", "001"]


def test_names_behind_a_beginning_may_share_one_too(tmp_path):
    logits, labels = draw_logits(100, 2)
    names = np.array(["new_york", "new_jersey"])
    pd.DataFrame(logits, columns=[f"logit_{name}" for name in names]).assign(label=names[labels]).to_csv(
        tmp_path / "a.csv", index=False
    )
    rows = read(tmp_path / "a.csv")
    assert rows.class_names == ("new_york", "new_jersey")
    assert rows.labels.tolist() == labels.tolist()


def test_rows_of_one_class_are_measured_in_blocks_as_in_memory(tmp_path):
    logits, _ = draw_logits(200, 3)
    table = pd.DataFrame(logits, columns=[f"logit_{name}" for name in NAMES]).assign(label="dog")
    table.to_csv(tmp_path / "a.csv", index=False)
    in_memory = evaluate(read(tmp_path / "a.csv"), {}, n_resamples=2).before.measures["log_loss"].value
    in_blocks = evaluate(open_rows(tmp_path / "a.csv"), {}).before.measures["log_loss"].value
    assert in_blocks == pytest.approx(in_memory, rel=1e-9)


@pytest.mark.parametrize("storage", [bool, str])
def test_labels_to_ignore_are_the_same_however_they_are_stored(storage):
    logits, labels = draw_logits(200, 2)
    stored = labels.astype(bool).astype(storage)
    assert len(Predictions.from_logits(logits, stored, ignore_index=0)) == np.count_nonzero(labels)


@pytest.mark.parametrize("ending", [".csv", ".npz", ".jsonl", ".parquet", ""])
def test_what_apply_wrote_is_read_by_the_names_of_its_classes(tmp_path, ending):
    logits, labels = draw_logits(600, 3)
    names = ["stars_1", "stars_2", "stars_3"]
    pd.DataFrame(logits, columns=names).assign(label=labels + 1).to_csv(tmp_path / "val.csv", index=False)
    seen = labels < 2  # the last class does not occur in the test rows
    test = pd.DataFrame(logits[seen], columns=names).assign(label=labels[seen] + 1)
    test.to_csv(tmp_path / "test.csv", index=False)
    fitted = TemperatureScaling().fit(read(tmp_path / "val.csv"))
    apply(fitted, tmp_path / "test.csv", tmp_path / f"out{ending}")
    p = fitted.predict_proba(logits[seen])
    expected = -np.mean(np.log(p[np.arange(len(p)), labels[seen]]))
    rows = open_rows(tmp_path / "out", input="probabilities") if not ending else None
    rows = read(tmp_path / f"out{ending}", input="probabilities") if rows is None else rows
    found = evaluate(rows, {}).methods[0].measures["log_loss"].value
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("said", ["False", "false", "0"])
@pytest.mark.parametrize("are_booleans", [True, False])
def test_late_labels_know_which_truth_was_positive(tmp_path, monkeypatch, two, said, are_booleans):
    monkeypatch.chdir(tmp_path)
    p, happens = two  # p is the probability that the label is false
    label = happens == 0
    pd.DataFrame({"id": range(len(p)), "p": p}).to_csv("batch.csv", index=False)
    outcomes = pd.DataFrame({"id": range(len(p)), "label": label if are_booleans else label.astype(int)})
    outcomes.to_csv("outcomes.csv", index=False)
    assert run(["monitor", "batch.csv", "--ids", "id", "--positive-label", said]) == 0
    assert run(["monitor", "--outcomes", "outcomes.csv", "--ids", "id"]) == 0
    summary = CalibrationMonitor.load("monitor.json").summary()
    assert summary.rate.value == pytest.approx(happens.mean())


def test_decimals_that_are_no_numbers_keep_their_text(tmp_path, two):
    p, happens = two
    version = np.array(["2.1", "2.10"])[np.arange(len(p)) % 2]
    frame = pd.DataFrame({"p": p, "label": happens, "version": version})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    for ending in ("csv", "parquet"):
        groups = read(tmp_path / f"rows.{ending}", groups=["version"]).groups["version"]
        np.testing.assert_array_equal(groups, version)


@pytest.mark.parametrize("names", [["logit_new_york", "logit_new_jersey", "logit_old"], ["cat", "dog", "emu"]])
def test_a_later_file_with_a_class_more_is_refused(tmp_path, names):
    logits, labels = draw_logits(600, 3)
    seen = labels < 2
    logits, labels = logits[seen], np.array([name.removeprefix("logit_") for name in names])[labels[seen]]
    folder = tmp_path / "rows"
    folder.mkdir()
    pd.DataFrame(logits[:100, :2], columns=names[:2]).assign(label=labels[:100]).to_csv(folder / "1.csv", index=False)
    pd.DataFrame(logits[100:], columns=names).assign(label=labels[100:]).to_csv(folder / "2.csv", index=False)
    with pytest.raises(FormatError, match=f"has a class '{names[2]}' more than the first file"):
        evaluate(open_rows(folder), {})


def test_a_class_whose_logits_are_0_is_not_passed_over(tmp_path):
    logits, labels = draw_logits(600, 3)
    seen = labels < 2
    reference = (logits - logits[:, 2:])[seen]
    frame = pd.DataFrame(reference, columns=NAMES).assign(label=NAMES[labels[seen]])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(FormatError, match="'emu'"):
        read(tmp_path / "rows.csv")
    log_p = reference - np.log(np.exp(reference).sum(axis=1, keepdims=True))
    expected = -np.mean(log_p[np.arange(len(log_p)), labels[seen]])
    found = evaluate(read(tmp_path / "rows.csv", values="*"), {}).methods[0].measures["log_loss"].value
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_positive_label_does_not_change_what_a_calibrator_without_names_sees(tmp_path, monkeypatch, two, capsys):
    monkeypatch.chdir(tmp_path)
    p, happens = two
    np.savez("val.npz", probabilities=np.column_stack([1 - p, p]), labels=happens)
    assert run(["fit", "val.npz", "--probabilities", "-m", "logistic", "-o", "c.json"]) == 0
    frame = pd.DataFrame({"p_no": 1 - p, "p_yes": p, "label": np.array(["no", "yes"])[happens]})
    frame.to_csv("test.csv", index=False)
    q = load("c.json").predict_proba(np.column_stack([1 - p, p]))
    expected = -np.mean(np.log(q[np.arange(len(q)), happens]))
    for said in ([], ["--positive-label", "yes"], ["--positive-label", "no"]):
        capsys.readouterr()
        assert run(["evaluate", "test.csv", "c.json", *said, "--json"]) == 0
        methods = json.loads(capsys.readouterr().out)["methods"]
        assert methods[-1]["measures"]["log_loss"]["value"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", [bool, int, float, str])
def test_truths_name_columns_however_they_are_stored(tmp_path, two, kind):
    p, happens = two
    labels = [str(bool(label)) if kind is str else kind(label) for label in happens.tolist()]
    pd.DataFrame({"p_True": p, "p_False": 1 - p, "label": labels}).to_csv(tmp_path / "rows.csv", index=False)
    log_odds = pd.DataFrame({"True": np.log(p), "False": np.log(1 - p), "label": labels})
    log_odds.to_csv(tmp_path / "logits.csv", index=False)
    expected = -np.mean(np.log(np.where(happens == 1, p, 1 - p)))
    for file in ("rows.csv", "logits.csv"):
        found = evaluate(read(tmp_path / file), {}).methods[0].measures["log_loss"].value
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.fixture
def months():
    """Rows whose rate depends on the month, and a group of every row."""
    rng = np.random.default_rng(0)
    month = pd.to_datetime(rng.choice(["2026-01-01", "2026-02-01", "2026-03-01"], 1500))
    log_odds = rng.normal(size=1500)
    happens = (rng.random(1500) < 1 / (1 + np.exp(-log_odds - 2 * (month.month - 2)))).astype(int)
    third = np.float32([1 / 3, 2 / 3])[np.arange(1500) % 2]
    return pd.DataFrame({"log_odds": log_odds, "label": happens, "month": month, "third": third})


@pytest.mark.parametrize("column", ["month", "third"])
def test_groups_are_called_alike_in_every_format(tmp_path, months, column):
    months.to_csv(tmp_path / "rows.csv", index=False)
    months.to_parquet(tmp_path / "rows.parquet")
    months.to_json(tmp_path / "rows.jsonl", orient="records", lines=True, date_format="iso", double_precision=15)
    endings = ("csv", "parquet", "jsonl") if column == "month" else ("csv", "parquet")
    for ending in endings:
        groups = read(tmp_path / f"rows.{ending}", groups=[column]).groups[column]
        expected = months["month"].dt.strftime("%Y-%m-%d") if column == "month" else months["third"].astype(str)
        np.testing.assert_array_equal(groups, expected)


def test_groups_that_no_fit_has_seen_are_said_by_every_command(tmp_path, monkeypatch, months, capsys):
    monkeypatch.chdir(tmp_path)
    months["month"] = months["month"].dt.strftime("%Y-%m")
    months.to_csv("val.csv", index=False)
    months.assign(month="in " + months["month"]).to_csv("test.csv", index=False)
    assert run(["fit", "val.csv", "--groups", "month", "-m", "group", "-o", "g.json"]) == 0
    commands = [
        ["evaluate", "test.csv", "g.json", "--groups", "month"],
        ["decide", "test.csv", "--calibrator", "g.json", "--false-positive", "1", "--false-negative", "1"],
        ["apply", "g.json", "test.csv", "-o", "p.csv"],
    ]
    for command in commands:
        capsys.readouterr()
        run(command)
        captured = capsys.readouterr()
        assert "no groups of 'month' were given that the fit has seen" in captured.out + captured.err


@pytest.fixture
def two_columns(tmp_path, months):
    """A calibrator of two columns of groups, and rows whose regions it has not seen."""
    months["month"] = months["month"].dt.strftime("%Y-%m")
    months["region"] = np.array(["north", "south"])[np.arange(len(months)) % 2]
    months.to_csv(tmp_path / "val.csv", index=False)
    fitted = GroupCalibration(method="ts").fit(read(tmp_path / "val.csv", groups=["month", "region"]))
    return fitted, months.assign(region="in " + months["region"])


def test_every_column_of_groups_must_have_some_that_the_fit_has_seen(tmp_path, two_columns):
    fitted, unseen = two_columns
    unseen.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.warns(InputWarning, match="no groups of 'region' were given that the fit has seen \\(north, south"):
        (written,) = apply(fitted, tmp_path / "rows.csv", tmp_path / "p.csv")
    assert written.n_unseen == len(unseen)


def test_a_row_of_an_unseen_group_in_one_column_is_counted(tmp_path, two_columns):
    fitted, unseen = two_columns
    seen = pd.read_csv(tmp_path / "val.csv")
    folder = tmp_path / "rows"
    folder.mkdir()
    seen.to_parquet(folder / "a.parquet")
    unseen.iloc[:600].to_parquet(folder / "b.parquet")
    written = apply(fitted, folder, tmp_path / "out")
    assert [(part.n_unseen, part.unused_columns) for part in written] == [(0, ()), (600, ("region",))]


def test_a_part_may_have_groups_that_no_fit_has_seen(tmp_path, months):
    months["month"] = months["month"].dt.strftime("%Y-%m")
    seen = months[months["month"] != "2026-03"]
    seen.to_csv(tmp_path / "val.csv", index=False)
    folder = tmp_path / "rows"
    folder.mkdir()
    for name, part in months.groupby("month"):
        part.to_parquet(folder / f"{name}.parquet")
    rows = read(tmp_path / "val.csv", groups=["month"])
    fitted = GroupCalibration(method="ts").fit(rows)
    written = apply(fitted, folder, tmp_path / "out")
    assert [part.unused_columns for part in written] == [(), (), ("month",)]
    last = pd.read_parquet(tmp_path / "out" / "2026-03.parquet")
    expected = fitted.predict_proba(months.loc[months["month"] == "2026-03", "log_odds"].to_numpy(), groups={})[:, 1]
    np.testing.assert_allclose(last["p"], expected, rtol=1e-6)


def test_actions_of_a_table_with_one_more_are_called_as_its_columns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    p = np.array([0.05, 0.1, 0.9, 0.4])
    pd.DataFrame({"p_no": 1 - p, "p_yes": p, "label": ["no", "no", "yes", "no"]}).to_csv("rows.csv", index=False)
    for said in ([], ["--positive-label", "no"], ["--positive-label", "yes"]):
        assert run(["decide", "rows.csv", "--costs", "0,1,0.3;1,0,0.3", *said, "-o", "out.csv"]) == 0
        assert pd.read_csv("out.csv")["decision"].tolist() == ["no", "no", "yes", "2"]


@pytest.mark.parametrize("names", [("1", "0"), ("True", "False")])
def test_named_arrays_in_blocks_have_the_positive_class_of_those_in_memory(names, tmp_path):
    p = np.array([0.9, 0.8, 0.3, 0.6])
    labels = np.array(names)[[0, 0, 1, 0]]
    np.savez(tmp_path / "rows.npz", probabilities=np.column_stack([p, 1.0 - p]), labels=labels, class_names=names)
    wanted = p.mean() - 0.75

    in_memory = evaluate(read(tmp_path / "rows.npz", input="probabilities"), {})
    in_blocks = evaluate(open_rows(tmp_path / "rows.npz", input="probabilities"), {})

    assert in_memory.before.measures["mean_bias"].value == pytest.approx(wanted)
    assert in_blocks.before.measures["mean_bias"].value == pytest.approx(wanted)


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_column_called_by_the_other_class_is_not_read_as_the_positive_one(tmp_path, two, is_folder):
    p, happens = two
    table = pd.DataFrame({"p_late": p, "p_on time": 1 - p, "label": np.where(happens == 1, "late", "on time")})
    place = tmp_path / ("rows" if is_folder else "rows.parquet")
    if is_folder:
        place.mkdir()
    table.to_parquet(place / "part.parquet" if is_folder else place)
    opened = open_rows if is_folder else read
    calibrator = TemperatureScaling(input="probabilities").fit(opened(place, values="p_late", positive_label="late"))
    text = "the column 'p_on time' is called by the class 'on time', but read as the positive 'late'"
    with pytest.raises(FormatError, match=text):
        TemperatureScaling(input="probabilities").fit(opened(place, values="p_on time", positive_label="late"))
    with pytest.raises(FormatError, match=text):
        opened(place, values="p_on time", classes=calibrator.classes_)
    with pytest.raises(FormatError, match=text):
        apply(calibrator, place, tmp_path / "out", values="p_on time")
    apply(calibrator, place, tmp_path / "out", values="p_late")


@pytest.mark.parametrize("opened", [read, open_rows])
@pytest.mark.parametrize("column", ["prob_0", "p0", "prob_class_0", "prob_false", "0", "0_prob", "P(0)"])
def test_a_column_called_by_class_0_is_not_read_as_class_1(tmp_path, two, column, opened):
    p, happens = two
    place = tmp_path / "rows.parquet"
    pd.DataFrame({column: 1 - p, "label": happens}).to_parquet(place)
    text = f"'{re.escape(column)}' is called by the class '?0'?, but read as the positive '?1'?"
    for positive_label in (None, 1):
        with pytest.raises(FormatError, match=text):
            evaluate(opened(place, values=column, input="probabilities", positive_label=positive_label), {})
    other = evaluate(opened(place, values=column, input="probabilities", positive_label=0), {})
    assert other.before.measures["mean_bias"].value == pytest.approx(happens.mean() - p.mean())


def test_a_column_called_by_class_1_is_read_as_such(tmp_path, two):
    p, happens = two
    for column, labels, options in [("p_1", happens, {}), ("prob_2", happens + 1, {"first_label": 1})]:
        pd.DataFrame({column: p, "label": labels}).to_csv(tmp_path / "rows.csv", index=False)
        rows = read(tmp_path / "rows.csv", values=column, input="probabilities", **options)
        assert rows.labels.tolist() == happens.tolist()
    pd.DataFrame({"prob_1": p, "label": happens + 1}).to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(FormatError, match="'prob_1' is called by the class 1, but read as the positive 2"):
        read(tmp_path / "rows.csv", values="prob_1", input="probabilities", first_label=1)


@pytest.mark.parametrize("column", ["p", "model_p", "n"])
def test_a_column_that_only_looks_like_the_other_class_is_read(tmp_path, two, column):
    p, happens = two
    pd.DataFrame({column: p, "label": np.where(happens == 1, "n", "p")}).to_csv(tmp_path / "rows.csv", index=False)
    rows = read(tmp_path / "rows.csv", values=column, input="probabilities", positive_label="n")
    assert rows.labels.tolist() == happens.tolist()
    assert rows.values[:, 1] == pytest.approx(p, rel=1e-9)
