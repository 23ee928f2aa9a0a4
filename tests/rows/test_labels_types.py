"""Labels come back from a fit as they went in, whichever way they came."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from helpers import draw_logits
from refocal import CalibratedClassifier, TemperatureScaling, load, metrics
from refocal.errors import LabelError
from refocal.io import Predictions, blocks, open_rows, read, rows_of

rng = np.random.default_rng(0)
LOGITS = rng.normal(size=(60, 2))
NUMBERS = np.argmax(LOGITS + rng.gumbel(size=LOGITS.shape), axis=1)
FORMS = {
    "integers": NUMBERS,
    "truths": NUMBERS.astype(bool),
    "text": NUMBERS.astype(str),
    "objects": NUMBERS.astype(str).astype(object),
    "text of truths": NUMBERS.astype(bool).astype(str),
}
COLUMNS = {"none": None, "counted": ["0", "1"], "integers": [0, 1], "reversed": ["1", "0"], "truths": ["True", "False"]}


def in_pieces(logits, labels, **options):
    return blocks([(logits[:30], labels[:30]), (logits[30:], labels[30:])], **options)


def of_dask(logits, labels):
    if isinstance(logits, np.ndarray):
        return TemperatureScaling().fit(da.from_array(logits, chunks=(30, 2)), da.from_array(labels, chunks=30))
    return TemperatureScaling().fit(dd.from_pandas(logits.assign(y=labels), npartitions=2), "y")


def of_dask_rows(logits, labels):
    if isinstance(logits, np.ndarray):
        return TemperatureScaling().fit(rows_of(da.from_array(logits, chunks=(30, 2)), labels))
    return TemperatureScaling().fit(rows_of(dd.from_pandas(logits.assign(y=labels), npartitions=2), "y"))


ENTRIES = {
    "fit": lambda logits, labels: TemperatureScaling().fit(logits, labels),
    "Predictions": lambda logits, labels: TemperatureScaling().fit(Predictions.from_logits(logits, labels)),
    "positive label": lambda logits, labels: TemperatureScaling().fit(
        Predictions.from_logits(logits, labels, positive_label=labels.tolist()[0])
    ),
    "blocks": lambda logits, labels: TemperatureScaling().fit(in_pieces(logits, labels)),
    "blocks, positive label": lambda logits, labels: TemperatureScaling().fit(
        in_pieces(logits, labels, positive_label=labels.tolist()[0])
    ),
    "Dask": of_dask,
    "rows of Dask": of_dask_rows,
}


SAMPLED = {("text", "none"), ("truths", "reversed"), ("objects", "none"), ("text", "truths")}
CASES = [
    pytest.param(form, columns, entry, marks=() if (form, columns) in SAMPLED else pytest.mark.long)
    for form in FORMS
    for columns in COLUMNS
    for entry in ENTRIES
]


@pytest.mark.parametrize(("form", "columns", "entry"), CASES)
def test_classes_are_labels_as_they_went_in(tmp_path, form, columns, entry):
    labels = FORMS[form]
    names = COLUMNS[columns]
    logits = LOGITS if names is None else pd.DataFrame(LOGITS, columns=names)
    fitted = ENTRIES[entry](logits, labels)
    fitted.save(tmp_path / "c.json")
    # Which label is that of each column, by the names of the columns alone.
    is_reversed = columns in ("reversed", "truths")
    column = 1 - NUMBERS if is_reversed else NUMBERS
    label_of = dict(zip(column.tolist(), labels.tolist(), strict=True))
    wanted = [label_of[0], label_of[1]]
    for calibrator in (fitted, load(tmp_path / "c.json")):
        classes = calibrator.classes_.tolist()
        # Columns called 1 and 0 may be in the order of the numbers, and a positive label puts its column second.
        assert classes in (wanted, wanted[::-1])
        is_text = isinstance(label_of[0], str)
        assert all(isinstance(name, str) == is_text for name in classes)
    if columns == "none" and "positive label" not in entry:
        assert fitted.predict(LOGITS).tolist() == [label_of[int(number)] for number in LOGITS.argmax(axis=1)]


@pytest.mark.parametrize("form", ["truths", "text", "objects", "text of truths"])
def test_predictions_have_the_classes_of_a_fit_on_arrays(form):
    of_arrays = TemperatureScaling().fit(LOGITS, FORMS[form])
    rows = Predictions.from_logits(LOGITS, FORMS[form])
    assert rows.classes.tolist() == of_arrays.classes_.tolist()
    assert rows.classes.dtype == of_arrays.classes_.dtype
    fitted = TemperatureScaling().fit(rows)
    np.testing.assert_array_equal(fitted.predict(LOGITS), of_arrays.predict(LOGITS))
    assert fitted.score(LOGITS, FORMS[form]) == of_arrays.score(LOGITS, FORMS[form])


@pytest.mark.parametrize("form", FORMS)
def test_classes_of_a_calibrated_classifier_and_of_its_calibrators_are_the_labels(tmp_path, form):
    labels = FORMS[form]
    model = CalibratedClassifier(LogisticRegression(), "ts", cv=3).fit(LOGITS, labels)
    calibrator = model.calibrated_classifiers_[0].calibrator
    calibrator.save(tmp_path / "c.json")
    for classes in (model.classes_, calibrator.classes_, load(tmp_path / "c.json").classes_):
        assert classes.tolist() == sorted({*labels.tolist()})
        assert [type(name) for name in classes.tolist()] == [type(labels.tolist()[0])] * 2


CARRIED = [(carrier, form) for carrier in (pl.Series, pd.Series, list) for form in ("truths", "text", "integers")]


@pytest.mark.parametrize(("carrier", "form"), [*CARRIED, (torch.tensor, "truths"), (torch.tensor, "integers")])
def test_blocks_of_any_carrier_have_the_classes_of_a_fit_on_arrays(carrier, form):
    labels = FORMS[form].tolist()
    pairs = [(LOGITS[:30], carrier(labels[:30])), (LOGITS[30:], carrier(labels[30:]))]
    fitted = TemperatureScaling().fit(blocks(pairs))
    assert fitted.classes_.tolist() == sorted({*labels})
    assert [type(name) for name in fitted.classes_.tolist()] == [type(labels[0])] * 2


def test_numbers_of_columns_called_by_words_come_back_from_a_fit_on_dask_as_from_one_on_pandas():
    frame = pd.DataFrame(LOGITS, columns=["a", "b"])
    for labels in (NUMBERS, np.array(["a", "b"])[NUMBERS]):
        fitted = [ENTRIES[name](frame, labels) for name in ("fit", "Dask")]
        assert fitted[0].classes_.tolist() == fitted[1].classes_.tolist() == sorted({*labels.tolist()})
    rows = Predictions.from_logits(LOGITS, NUMBERS, class_names=["a", "b"])  # which are known by their names
    assert TemperatureScaling().fit(rows).classes_.tolist() == ["a", "b"]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "npz"])
def test_text_of_numbers_in_a_file_is_numbers(tmp_path, ending):
    path = tmp_path / f"rows.{ending}"
    table = pd.DataFrame(LOGITS, columns=["logit_0", "logit_1"]).assign(label=NUMBERS.astype(str))
    if ending == "csv":
        table.to_csv(path, index=False)
    elif ending == "jsonl":
        table.to_json(path, orient="records", lines=True)
    elif ending == "parquet":
        table.to_parquet(path)
    else:
        np.savez(path, logits=LOGITS, labels=NUMBERS.astype(str))
    assert TemperatureScaling().fit(read(path)).classes_.tolist() == [0, 1]


@pytest.mark.parametrize(("names", "positive"), [(["1", "2"], None), (["-1", "1"], None), (["0", "1"], 0), (None, 0)])
def test_numbers_of_a_csv_file_are_the_classes_of_the_same_parquet_file(tmp_path, names, positive):
    counted = np.array([0, 1] if names is None else [int(name) for name in names])
    scores = {"log_odds": LOGITS[:, 1]} if names is None else dict(zip(names, LOGITS.T, strict=True))
    table = pd.DataFrame(scores).assign(label=counted[NUMBERS])
    table.to_csv(tmp_path / "rows.csv", index=False)
    table.to_parquet(tmp_path / "rows.parquet")
    options = {} if positive is None else {"positive_label": positive}
    classes = [
        TemperatureScaling(input="logits" if names else "log-odds").fit(reader(tmp_path / name, **options)).classes_
        for name in ("rows.parquet", "rows.csv")
        for reader in (read, open_rows)
    ]
    wanted = counted.tolist() if positive is None else [1, 0]
    assert [of_file.tolist() for of_file in classes] == [wanted] * 4


def test_several_labels_of_a_row_are_refused(tmp_path):
    labels = np.empty(60, dtype=object)
    labels[:] = [[number] for number in NUMBERS.tolist()]
    with pytest.raises(LabelError, match=r"one label for each row\. Got \[[01]\] instead"):
        Predictions.from_logits(LOGITS, labels)
    with pytest.raises(LabelError, match=r"one label for each row\. Got \[[01]\] instead"):
        TemperatureScaling().fit(blocks([(LOGITS, labels)]))
    pd.DataFrame(LOGITS, columns=["cat", "dog"]).assign(label=labels).to_parquet(tmp_path / "rows.parquet")
    for reading in (read, lambda *given, **options: open_rows(*given, **options).start()):
        with pytest.raises(LabelError, match=r"one label for each row\. Got array"):
            reading(tmp_path / "rows.parquet", values="cat,dog")


@pytest.mark.parametrize("name", [lambda label: label, str], ids=["names as labels", "names as text"])
@pytest.mark.parametrize(
    "labels", [[1.5, 0.5], [2.0, 0.5], pd.to_datetime(["2020-01-03", "2020-01-01"]).tolist()], ids=str
)
def test_fractions_and_times_that_columns_are_called_come_back_as_they_went_in(tmp_path, labels, name):
    y = np.array(labels)[NUMBERS]
    frame = pd.DataFrame(LOGITS, columns=[name(label) for label in labels])
    for entry in ("fit", "Predictions"):
        fitted = ENTRIES[entry](frame, y)
        fitted.save(tmp_path / "c.json")
        for calibrator in (fitted, load(tmp_path / "c.json")):
            X = frame if entry == "fit" else LOGITS
            predicted = calibrator.predict(X)
            assert (predicted == np.array(labels)[LOGITS.argmax(axis=1)]).all()
            assert calibrator.score(X, y) == np.mean(predicted == y)


def test_a_class_without_a_label_is_a_number_or_a_time_as_the_others_are():
    for names in ([0.5, 1.5, 2.5], pd.to_datetime(["2020-01-03", "2020-01-01", "2020-01-02"])):
        frame = pd.DataFrame(np.column_stack([LOGITS, LOGITS[:, 0] - 9.0]), columns=names)
        fitted = TemperatureScaling().fit(frame, np.array(names)[NUMBERS])
        assert (fitted.classes_ == np.array(names)).all()
    words = pd.DataFrame(LOGITS, columns=["0.5", "other"])
    assert TemperatureScaling().fit(words, np.array(["0.5", "other"])[NUMBERS]).classes_.tolist() == ["0.5", "other"]


@pytest.mark.parametrize("names", [None, ["cat", "dog", "emu"]], ids=["unnamed", "named"])
@pytest.mark.parametrize(
    "form",
    [np.array, list, lambda y: np.array(y, dtype=object), pd.Series, lambda y: pd.Series(y, dtype="category")],
    ids=["array", "list", "objects", "Series", "category"],
)
def test_bytes_are_read_as_text_in_every_form(names, form):
    logits, column = draw_logits(120, 3, seed=0)
    X = logits if names is None else pd.DataFrame(logits, columns=names)
    text = np.array(["cat", "dog", "emu"])[column]
    labels = form([label.encode() for label in text])
    wanted = TemperatureScaling().fit(X, text)
    fitted = TemperatureScaling().fit(X, labels)
    assert fitted.classes_.tolist() == ["cat", "dog", "emu"]
    np.testing.assert_array_equal(fitted.predict(X), wanted.predict(X))
    assert fitted.score(X, labels) == fitted.score(X, text) == wanted.score(X, labels)
    rows = Predictions.from_logits(logits, labels, class_names=["cat", "dog", "emu"])
    np.testing.assert_array_equal(rows.labels, column)
    p = np.asarray(wanted.predict_proba(X))
    assert metrics.accuracy(labels, p, classes=["cat", "dog", "emu"]) == np.mean(p.argmax(axis=1) == column)


def test_text_of_any_length_in_numpy_is_saved_as_text(tmp_path):
    logits, column = draw_logits(120, 3, seed=0)
    text = np.array(["cat", "dog", "emu"])[column]
    fitted = TemperatureScaling().fit(logits, text.astype(np.dtypes.StringDType()))
    fitted.save(tmp_path / "c.json")
    wanted = TemperatureScaling().fit(logits, text)
    for calibrator in (fitted, load(tmp_path / "c.json")):
        assert calibrator.classes_.dtype == wanted.classes_.dtype
        np.testing.assert_array_equal(calibrator.predict(logits), wanted.predict(logits))


def test_bytes_that_are_no_text_are_refused_in_objects_too():
    with pytest.raises(LabelError, match=r"'y' of .* text in UTF-8"):
        TemperatureScaling().fit(np.eye(2), np.array([b"\xff", b"a"], dtype=object))


def test_text_that_ends_in_nul_is_refused():
    # Arrays of text drop it: such a label was then none of the classes.
    logits, column = draw_logits(60, 3, seed=0)
    labels = np.array(["a\0", "b\0", "c"], dtype=object)[column]
    p = np.eye(3)[column]
    for refused in (
        lambda: TemperatureScaling().fit(logits, labels),
        lambda: Predictions.from_logits(logits, labels, class_names=["a", "b", "c"]),
        lambda: metrics.accuracy(labels, p, classes=["a", "b", "c"]),
    ):
        with pytest.raises(LabelError, match=r"text that does not end in NUL.* Got 'a\\x00'"):
            refused()


@pytest.mark.parametrize("columns", [np.datetime64, pd.Timestamp, str])
def test_days_are_labels_however_they_and_the_columns_are_stored(columns):
    """Days were no names of columns called by midnights, and the labels of pandas were integers of nanoseconds."""
    logits, column = draw_logits(60, 3, seed=0)
    days = np.array(["2026-01-01", "2026-01-02", "2026-01-03"], dtype="M8[D]")
    table = pd.DataFrame(logits, columns=[columns(day) for day in days])
    labels = days[column]
    stored = [
        labels,
        labels.astype("M8[s]"),
        pd.Series(labels.astype("M8[ns]")),
        pd.DatetimeIndex(labels).tolist(),
        labels.tolist(),
        labels.astype(str),
        pl.Series(labels),
    ]
    for each in stored:
        assert np.array_equal(Predictions.from_logits(table, each).labels, column)
    plain = TemperatureScaling().fit(logits, stored[2])
    assert np.array_equal(plain.classes_, days)
    assert np.array_equal(plain.predict(logits), days[logits.argmax(axis=1)])
