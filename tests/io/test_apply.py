"""What `apply` writes: labels of several per row as arrays, sets of classes in one cell."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers import draw_logits
from refocal import MultiLabelCalibration, PredictionSets, TemperatureScaling, VennAbersCalibration
from refocal.errors import DataError, FormatError, InputWarning, ParameterError
from refocal.io import Predictions, apply, read, read_multilabel


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".jsonl"])
@pytest.mark.parametrize("names", [["red", "round"], ["0", "1"]])
def test_labels_of_several_per_row_are_kept_in_arrays(tmp_path, ending, names):
    rng = np.random.default_rng(0)
    log_odds = 2 * rng.normal(size=(120, 2))
    labels = (rng.random((120, 2)) < 1 / (1 + np.exp(-log_odds))).astype(int)
    table = pd.DataFrame(log_odds, columns=[f"score_{name}" for name in names])
    for i in (1, 0):  # the labels stand in another order than the scores
        table[f"label_{names[i]}"] = labels[:, i]
    table["id"] = np.arange(120)
    file = tmp_path / f"rows{ending}"
    if ending == ".csv":
        table.to_csv(file, index=False)
    elif ending == ".parquet":
        table.to_parquet(file)
    else:
        table.to_json(file, orient="records", lines=True)
    rows = read_multilabel(file)
    fitted = MultiLabelCalibration(method="ts").fit(rows.values, rows.labels, class_names=rows.class_names)
    apply(fitted, file, tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as arrays:
        np.testing.assert_array_equal(arrays["labels"], labels)
        np.testing.assert_allclose(arrays["probabilities"], fitted.predict_proba(log_odds), rtol=1e-6)
    apply(fitted, file, tmp_path / "out.csv")
    written = pd.read_csv(tmp_path / "out.csv")
    np.testing.assert_array_equal(written[[f"label_{name}" for name in names]], labels)
    np.testing.assert_array_equal(written["id"], np.arange(120))
    unlabelled = tmp_path / "new.csv"
    table.drop(columns=[f"label_{name}" for name in names]).to_csv(unlabelled, index=False)
    apply(fitted, unlabelled, tmp_path / "new.npz")
    with np.load(tmp_path / "new.npz") as arrays:
        assert "labels" not in arrays


def test_a_missing_label_of_several_is_nan_in_an_array(tmp_path):
    log_odds = np.array([[1.0, -2.0], [0.5, 3.0], [-1.0, 0.2], [2.0, -0.4]])
    fitted = MultiLabelCalibration(method="ts").fit(log_odds, [[1, 0], [0, 1], [0, 1], [1, 0]], class_names=["a", "b"])
    table = pd.DataFrame(log_odds, columns=["score_a", "score_b"])
    table.assign(label_a=[1, 0, 0, 1], label_b=["0", "", "1", "0"]).to_csv(tmp_path / "rows.csv", index=False)
    apply(fitted, tmp_path / "rows.csv", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as arrays:
        np.testing.assert_array_equal(arrays["labels"], [[1, 0], [0, np.nan], [0, 1], [1, 0]])


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".jsonl"])
@pytest.mark.parametrize("labels", [[0, None, 1, 2], [None, None, None, None], ["b", None, "a", "c"]])
def test_labels_beside_a_missing_one_are_kept(tmp_path, ending, labels):
    logits, of_fit = draw_logits(60, 3)
    is_named = "a" in labels
    names = ["a", "b", "c"] if is_named else ["0", "1", "2"]
    table = pd.DataFrame(logits[:4], columns=[f"logit_{name}" for name in names])
    table["label"] = pd.array(labels, dtype="string" if is_named else "Int64")
    file = tmp_path / f"rows{ending}"
    if ending == ".csv":
        table.to_csv(file, index=False)
    elif ending == ".parquet":
        table.to_parquet(file)
    else:
        table.to_json(file, orient="records", lines=True)
    fitted = TemperatureScaling().fit(logits, np.array(names)[of_fit] if is_named else of_fit)
    for written in ("out.csv", "out.parquet", "out.jsonl"):
        apply(fitted, file, tmp_path / written)
    found = {
        "csv": pd.read_csv(tmp_path / "out.csv")["label"],
        "parquet": pd.read_parquet(tmp_path / "out.parquet")["label"],
        "jsonl": [json.loads(line)["label"] for line in (tmp_path / "out.jsonl").read_text().splitlines()],
    }
    for cells in found.values():
        assert [None if pd.isna(cell) or cell == "" else cell for cell in cells] == labels
    apply(fitted, file, tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as arrays:
        texts = arrays["labels"].astype(str).tolist()
    assert [None if text in ("", "nan") else text for text in texts] == [
        None if label is None else str(label) for label in labels
    ]


def test_a_set_in_a_cell_is_unambiguous_whatever_the_classes_are_called(tmp_path):
    names = ["x;y", "x", 'y"']
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(300, 3))
    label = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    table = pd.DataFrame(logits, columns=[f"logit_{name}" for name in names]).assign(label=np.array(names)[label])
    table.to_csv(tmp_path / "rows.csv", index=False)
    fitted = PredictionSets(coverage=0.9).fit(read(tmp_path / "rows.csv"))
    apply(fitted, tmp_path / "rows.csv", tmp_path / "sets.csv")
    apply(fitted, tmp_path / "rows.csv", tmp_path / "sets.jsonl")
    cells = pd.read_csv(tmp_path / "sets.csv", keep_default_na=False)["set"]
    sets = [json.loads(line)["set"] for line in (tmp_path / "sets.jsonl").read_text().splitlines()]
    parsed = [next(csv.reader([cell], delimiter=";"), []) for cell in cells]
    assert parsed == sets
    assert len({tuple(each) for each in sets}) == len({*cells})


@pytest.mark.parametrize(("labels", "positive"), [([0, 1], 0), ([1, 2], 1), (["no", "yes"], "no")])
def test_sets_of_one_number_per_row_hold_the_classes_that_are_called_so(tmp_path, labels, positive):
    logits, column = draw_logits(400, 2, 1)
    p = 1.0 / (1.0 + np.exp(logits[:, 0] - logits[:, 1]))
    options = {"class_names": labels, "positive_label": positive}
    rows = Predictions.from_probabilities(np.column_stack([1.0 - p, p]), np.array(labels)[column], **options)
    fitted = PredictionSets(input="probabilities", coverage=0.8).fit(rows)
    pd.DataFrame({"p": [0.99, 0.01]}).to_csv(tmp_path / "p.csv", index=False)
    apply(fitted, tmp_path / "p.csv", tmp_path / "out.csv")
    written = pd.read_csv(tmp_path / "out.csv", dtype=str)["set"].tolist()
    sets = fitted.predict_set([0.99, 0.01])
    assert written == [";".join(str(name) for name in fitted.classes_[held]) for held in sets]
    assert written[0] == str(positive)


def test_one_number_about_the_other_class_of_an_array_is_refused(tmp_path):
    logits, column = draw_logits(400, 2, 1)
    fitted = TemperatureScaling().fit(logits, np.array(["no", "yes"])[column])
    np.savez(tmp_path / "one.npz", logits=logits[:, 1] - logits[:, 0], class_names=["yes", "no"])
    with pytest.raises(FormatError, match=r"the numbers are about 'no'.*; the calibrator takes those about 'yes'"):
        apply(fitted, tmp_path / "one.npz", tmp_path / "out.npy")


def test_a_file_of_no_known_ending_is_no_output(tmp_path):
    calibrator = TemperatureScaling().fit(*draw_logits(300, 3))
    np.savez(tmp_path / "rows.npz", logits=np.eye(3))
    target = tmp_path / "probabilities"
    target.write_text("kept")

    with pytest.raises(ParameterError, match=r"must be a folder, or a file that ends in \.npz"):
        apply(calibrator, tmp_path / "rows.npz", target)
    assert target.read_text() == "kept"


@pytest.mark.parametrize("several", [False, True])
def test_what_is_no_probability_of_one_class_of_several_is_not_renormalised(tmp_path, several):
    """Neither logits nor the probabilities of labels that do not exclude one another, whose sum is any number."""
    logits, labels = draw_logits(200, 3)
    p = 1 / (1 + np.exp(-logits))
    fitted = TemperatureScaling().fit(logits, labels)
    if several:
        fitted = MultiLabelCalibration(method="ts", input="probabilities").fit(p, (p > 0.5).astype(int))
    np.save(tmp_path / "rows.npy", p if several else logits)
    expected = "probabilities of several labels have any sum" if several else "it is for probabilities"
    with pytest.raises(ParameterError, match=f"^The 'renormalise' of apply must be left out: {expected}. Got True"):
        apply(fitted, tmp_path / "rows.npy", tmp_path / "out.npy", renormalise=True)
    assert not (tmp_path / "out.npy").exists()


def named_rows(n_rows=40):
    """A calibrator of the classes cat and dog, and a table of its rows."""
    logits, column = draw_logits(n_rows, 2)
    labels = np.array(["cat", "dog"])[column]
    table = pd.DataFrame(logits, columns=["cat", "dog"])
    return TemperatureScaling().fit(table, labels), table.assign(label=labels)


def test_a_column_called_set_is_passed_on_in_every_format(tmp_path):
    fitted, table = named_rows()
    table["set"] = ["train", "test"] * 20
    table.to_parquet(tmp_path / "rows.parquet")
    for name in ("out.parquet", "out.csv"):
        apply(fitted, tmp_path / "rows.parquet", tmp_path / name)
    assert pd.read_parquet(tmp_path / "out.parquet")["set"].tolist() == ["train", "test"] * 20
    assert pd.read_csv(tmp_path / "out.csv")["set"].tolist() == ["train", "test"] * 20


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".jsonl"])
@pytest.mark.parametrize(
    ("made", "names", "twice"),
    [(PredictionSets(), ["set", "dog"], "set"), (VennAbersCalibration(), ["dog", "dog_lower"], "dog_lower")],
)
def test_a_class_called_as_another_column_is_refused_where_it_would_be_lost(tmp_path, ending, made, names, twice):
    logits, column = draw_logits(200, 2)
    table = pd.DataFrame(logits, columns=names)
    fitted = made.fit(table, np.array(names)[column])
    table.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(FormatError, match=f"a class is called '{twice}', as another column"):
        apply(fitted, tmp_path / "rows.csv", tmp_path / f"out{ending}", values=",".join(names))
    apply(fitted, tmp_path / "rows.csv", tmp_path / "out.npz", values=",".join(names))
    with np.load(tmp_path / "out.npz") as arrays:
        np.testing.assert_allclose(arrays["probabilities"], fitted.predict_proba(table), rtol=1e-6)


def test_lines_of_json_hold_no_number_that_json_lacks(tmp_path):
    """Also in columns that are passed on, which may have lists of such numbers."""

    def refuse(name):
        raise ValueError(name)

    fitted, table = named_rows(4)
    table = pa.Table.from_pandas(table).append_column("x", pa.array([np.nan, np.inf, -np.inf, 0.5]))
    table = table.append_column("y", pa.array([[1.0, np.nan], [], None, [np.inf]]))
    pq.write_table(table, tmp_path / "rows.parquet")
    apply(fitted, tmp_path / "rows.parquet", tmp_path / "out.jsonl")
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    rows = [json.loads(line, parse_constant=refuse) for line in lines]
    assert [row["x"] for row in rows] == [None, "Infinity", "-Infinity", 0.5]
    assert [row["y"] for row in rows] == [[1.0, None], [], None, ["Infinity"]]


@pytest.mark.parametrize("source", [".parquet", ".jsonl"])
def test_lists_of_labels_are_passed_on(tmp_path, source):
    fitted, table = named_rows(4)
    table["label"] = [[1, 0], [0], [], [2, 1]]
    if source == ".parquet":
        table.to_parquet(tmp_path / "rows.parquet")
    else:
        table.to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    for name in ("out.parquet", "out.jsonl", "out.csv", "out.npz"):
        apply(fitted, tmp_path / f"rows{source}", tmp_path / name)
    assert [list(each) for each in pd.read_parquet(tmp_path / "out.parquet")["label"]] == table["label"].tolist()
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["label"] for line in lines] == table["label"].tolist()
    assert [json.loads(cell) for cell in pd.read_csv(tmp_path / "out.csv")["label"]] == table["label"].tolist()
    with np.load(tmp_path / "out.npz") as arrays:
        assert [json.loads(cell) for cell in arrays["labels"]] == table["label"].tolist()


@pytest.mark.parametrize("kind", ["log-odds", "probabilities"])
def test_rows_of_several_labels_that_cannot_be_used_are_named_or_left_out(tmp_path, kind):
    log_odds = 2 * np.random.default_rng(0).normal(size=(60, 3))
    scores = log_odds if kind == "log-odds" else 1 / (1 + np.exp(-log_odds))
    fitted = MultiLabelCalibration(method="ts", input=kind).fit(scores, (log_odds + 0.5 > 0).astype(int))
    bad = scores[:6].copy()
    bad[1:5, 1] = [np.nan, np.inf, -np.inf, 0.3] if kind == "log-odds" else [np.nan, 1.5, -0.2, 0.3]
    np.save(tmp_path / "rows.npy", bad)
    (written,) = apply(fitted, tmp_path / "rows.npy", tmp_path / "out.npy", skip_bad_rows=True)
    assert (written.n_rows, written.n_skipped) == (6, 3)
    p = np.load(tmp_path / "out.npy")
    assert np.isnan(p[1:4]).all()
    np.testing.assert_allclose(p[[0, 4, 5]], fitted.predict_proba(bad[[0, 4, 5]]))
    np.save(tmp_path / "rows.npy", bad[[0, 3, 4]])
    with pytest.raises(DataError, match=r"Got -(inf|0.2) in row 1 of .*rows\.npy"):
        apply(fitted, tmp_path / "rows.npy", tmp_path / "out.npy")


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_labels_have_one_type_in_all_blocks_where_some_classes_are_words(tmp_path, ending):
    logits, column = draw_logits(60, 3)
    names = np.array(["1", "2", "other"])
    table = pd.DataFrame(logits, columns=names).assign(label=names[column])
    fitted = TemperatureScaling().fit(table[names], table["label"])
    (tmp_path / "rows").mkdir()
    for name, some in (("a", table[table["label"] != "other"]), ("b", table[table["label"] == "other"])):
        if ending == ".csv":
            some.to_csv(tmp_path / "rows" / f"{name}.csv", index=False)
        else:
            some.to_json(tmp_path / "rows" / f"{name}.jsonl", orient="records", lines=True)
    apply(fitted, tmp_path / "rows", tmp_path / "out")
    assert {pq.read_schema(file).field("label").type for file in (tmp_path / "out").iterdir()} == {pa.string()}
    expected = sorted(table["label"])
    for name in ("out.parquet", "out.jsonl"):
        apply(fitted, tmp_path / "rows", tmp_path / name)
    assert sorted(pd.read_parquet(tmp_path / "out.parquet")["label"]) == expected
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["label"] for line in lines) == expected


@pytest.mark.parametrize("n_bad", [1, 30])
@pytest.mark.parametrize("n_columns", [1, 3])
def test_bad_rows_alone_in_a_file_do_not_look_like_probabilities(tmp_path, n_bad, n_columns):
    logits, labels = draw_logits(200, 3, 0)
    if n_columns == 1:
        logits, labels = logits[:, 0] - logits[:, 1], (labels == 0).astype(int)
    fitted = TemperatureScaling().fit(logits, labels)
    names = ["logit"] if n_columns == 1 else ["logit_0", "logit_1", "logit_2"]
    folder = tmp_path / "rows"
    folder.mkdir()
    good = pd.DataFrame(logits.reshape(200, -1), columns=names)
    good.to_parquet(folder / "a.parquet")
    pd.DataFrame(np.full((n_bad, n_columns), np.nan), columns=names).to_parquet(folder / "b.parquet")
    (written,) = apply(fitted, folder, tmp_path / "probs.csv", skip_bad_rows=True)
    assert (written.n_rows, written.n_skipped) == (200 + n_bad, n_bad)


def test_bad_rows_do_not_hide_that_the_others_are_percentages(tmp_path):
    logits, labels = draw_logits(200, 3, 0)
    fitted = TemperatureScaling().fit(logits, labels)
    percentages = 100.0 * fitted.predict_proba(logits)
    percentages[7] = np.nan
    pd.DataFrame(percentages, columns=["logit_0", "logit_1", "logit_2"]).to_csv(tmp_path / "rows.csv", index=False)
    with pytest.warns(InputWarning, match="sum to 100"):
        apply(fitted, tmp_path / "rows.csv", tmp_path / "probs.csv", skip_bad_rows=True)


def test_truths_in_text_are_labels_of_arrays_that_can_be_read_again(tmp_path):
    log_odds = 2 * np.random.default_rng(0).normal(size=(120, 2))
    labels = log_odds + np.random.default_rng(1).logistic(size=(120, 2)) > 0
    table = pd.DataFrame(log_odds, columns=["score_red", "score_round"])
    table[["label_red", "label_round"]] = labels
    table.to_csv(tmp_path / "rows.csv", index=False)
    rows = read_multilabel(tmp_path / "rows.csv")
    fitted = MultiLabelCalibration(method="ts").fit(rows.values, rows.labels, class_names=rows.class_names)
    apply(fitted, tmp_path / "rows.csv", tmp_path / "out.npz")
    again = read_multilabel(tmp_path / "out.npz", input="probabilities")
    np.testing.assert_array_equal(again.labels, labels)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet", ".npz"])
@pytest.mark.parametrize("classes", [[1, 2, 3], [10, 20, 30], ["cat", "dog", "emu"]])
def test_rows_without_names_are_written_with_the_names_that_their_labels_are(tmp_path, ending, classes):
    """Labels 1 and 2 of the classes 1, 2 and 3 would otherwise be read again as columns counted from 0."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(60, 3))
    truth = np.resize([0, 1, 2], 60)
    fitted = TemperatureScaling().fit(logits, np.array(classes)[truth])
    has_no_last_class = truth < 2
    without_names = {"logits": logits[has_no_last_class], "labels": np.array(classes)[truth[has_no_last_class]]}
    np.savez(tmp_path / "rows.npz", **without_names)

    apply(fitted, tmp_path / "rows.npz", tmp_path / f"probabilities{ending}")

    found = read(tmp_path / f"probabilities{ending}", input="probabilities")
    expected = fitted.predict_proba(logits[has_no_last_class])
    assert [str(name) for name in found.class_names] == [str(name) for name in classes]
    at_label = found.values[np.arange(len(found)), found.labels]
    np.testing.assert_allclose(at_label, expected[np.arange(len(found)), truth[has_no_last_class]], rtol=1e-12)
