"""Labels of every kind, in every function that takes some: what is understood, and what is refused with a remedy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from helpers import draw_logits
from refocal import FocalTemperatureScaling, TemperatureScaling, decomposition, losses, metrics
from refocal.cli.run import run
from refocal.errors import LabelError, ParameterError, ShapeError
from refocal.evaluate import compare
from refocal.evaluate.summary import remarks, verdict
from refocal.io import Predictions, blocks, open_rows, read

P = np.array([[0.7, 0.3], [0.2, 0.8], [0.4, 0.6], [0.9, 0.1]])
TAKERS = {
    "fit": lambda y: TemperatureScaling().fit(np.log(P), y).temperature_,
    "metrics": lambda y: metrics.expected_calibration_error(y, P),
    "metrics of class 1": lambda y: metrics.expected_calibration_error(y, P[:, 1]),
    "histogram": lambda y: metrics.CalibrationHistogram().update(y, P).compute().ece,
    "losses": lambda y: losses.cross_entropy(np.log(P), y).sum(),
    "predictions": lambda y: Predictions.from_probabilities(P, y).labels.sum(),
    "decomposition": lambda y: decomposition.log_loss_decomposition(y, np.log(P), cv=2).total,
}


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize(
    "kind",
    [
        lambda y: y.astype(float),
        lambda y: y.astype(np.float32),
        lambda y: y.astype(bool),
        lambda y: y.astype(np.uint8),
        lambda y: y.tolist(),
        lambda y: [float(label) for label in y],
        lambda y: torch.tensor(y, dtype=torch.float32),
        lambda y: pd.Series(y.astype(float), index=[3, 1, 2, 0]),
        lambda y: pl.Series(y),
    ],
    ids=["float64", "float32", "bool", "uint8", "list", "floats", "torch", "pandas", "polars"],
)
def test_zeros_and_ones_of_every_kind(taker, kind):
    y = np.array([0, 1, 0, 1])
    assert float(TAKERS[taker](kind(y))) == pytest.approx(float(TAKERS[taker](y)), rel=1e-6)


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("bad", [[0.0, 0.5, 1.0, 1.0], [0.0, np.nan, 1.0, 1.0], [0.0, np.inf, 1.0, 1.0]])
def test_fractions_are_no_labels(taker, bad):
    with pytest.raises(LabelError, match=r"whole numbers|none is missing"):
        TAKERS[taker](bad)


@pytest.mark.parametrize("ignored", [255, -100, -1])
@pytest.mark.parametrize("n_absent", [0, 1])
@pytest.mark.parametrize("asarray", [np.asarray, torch.asarray], ids=["numpy", "torch"])
def test_labels_that_mark_rows_without_one_are_no_class(ignored, n_absent, asarray):
    """With one class absent there are as many different labels as columns, and each was taken for a class."""
    logits, labels = draw_logits(500, 6)
    used = labels < 6 - n_absent
    logits, labels = logits[used], labels[used]
    marked = np.where(np.arange(len(labels)) % 10 == 0, ignored, labels)
    with pytest.raises(
        LabelError,
        match=rf"between 0 and 5; {ignored} names no class. Got labels .*ignore_index=",
    ):
        TemperatureScaling().fit(asarray(logits), asarray(marked))
    with pytest.raises(LabelError, match=rf"between 0 and 5; {ignored} names no class. Got labels .*ignore_index="):
        metrics.accuracy(asarray(marked), asarray(np.full(logits.shape, 1 / 6)))
    with pytest.raises(LabelError, match=rf"between 0 and 5; {ignored} names no class"):
        Predictions.from_logits(asarray(logits), asarray(marked))


TABLES = {"numpy": np.asarray, "torch": torch.asarray, "pandas": pd.DataFrame, "polars": pl.DataFrame}


@pytest.mark.parametrize("table", TABLES)
def test_rows_without_a_label_are_left_out_where_that_is_said(table):
    kind = TABLES[table]
    logits, labels = draw_logits(500, 6)
    marked = np.where(np.arange(500) % 10 == 0, 255, np.where(np.arange(500) % 10 == 1, -100, labels))
    used = (marked != 255) & (marked != -100)
    unlabelled = logits.copy()
    unlabelled[~used] = np.nan  # what stands there does not matter
    weight = np.random.default_rng(0).random(500)
    expected = TemperatureScaling().fit(logits[used], labels[used], weight[used])
    found = TemperatureScaling().fit(kind(unlabelled), marked, weight, ignore_index=(255, -100))
    assert found.temperature_ == expected.temperature_
    assert found.fit_report_ == expected.fit_report_
    if table in ("numpy", "torch"):
        rows = Predictions.from_logits(kind(unlabelled), kind(marked), weight=weight, ignore_index=[255, -100])
        np.testing.assert_array_equal(rows.labels, labels[used])
        np.testing.assert_array_equal(rows.weight, weight[used])
        np.testing.assert_array_equal(np.asarray(rows.values), logits[used])


def test_pixels_without_a_label_are_left_out():
    logits, labels = draw_logits(600, 3)
    marked = np.where(np.arange(600) % 7 == 0, 255, labels)
    expected = TemperatureScaling().fit(logits[marked < 3], labels[marked < 3]).temperature_
    images, masks = logits.reshape(6, 10, 10, 3), marked.reshape(6, 10, 10)
    assert TemperatureScaling().fit(images, masks, ignore_index=255).temperature_ == expected
    first = np.moveaxis(images, -1, 1)
    assert TemperatureScaling().fit(first, masks, class_axis=1, ignore_index=255).temperature_ == expected


def test_ignored_rows_in_blocks_and_in_files(tmp_path):
    logits, labels = draw_logits(400, 4)
    marked = np.where(np.arange(400) % 5 == 0, 255, labels)
    expected = TemperatureScaling().fit(logits, marked, ignore_index=255)
    rows = blocks([(logits[:150], marked[:150]), (logits[150:], marked[150:])], ignore_index=255)
    found = TemperatureScaling().fit(rows)
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-12)
    assert found.fit_report_["n_samples"] == 320
    np.savez(tmp_path / "rows.npz", logits=logits, labels=marked)
    assert len(read(tmp_path / "rows.npz", ignore_index=255)) == 320
    opened = open_rows(tmp_path / "rows.npz", ignore_index=255)
    assert TemperatureScaling().fit(opened).temperature_ == pytest.approx(expected.temperature_, rel=1e-12)
    with pytest.raises(LabelError, match=r"Got 255 in row 0 of .* Leave such rows out with ignore_index="):
        TemperatureScaling().fit(blocks([(logits, marked)]))
    with pytest.raises(LabelError, match=r"Leave such rows out with ignore_index="):
        read(tmp_path / "rows.npz")
    with pytest.raises(
        ParameterError, match=r"'ignore_index' of TemperatureScaling\.fit must be given where the rows are"
    ):
        TemperatureScaling().fit(rows, ignore_index=255)
    assert run(["fit", str(tmp_path / "rows.npz"), "--ignore-index", "255", "-o", str(tmp_path / "c.json")]) == 0


def test_not_all_rows_can_be_left_out():
    for call in (
        lambda: TemperatureScaling().fit(P, [255, 255, 255, 255], ignore_index=255),
        lambda: Predictions.from_probabilities(P, [255, 255, 255, 255], ignore_index=255),
    ):
        with pytest.raises(LabelError, match="of at least one row that 'ignore_index' does not leave out"):
            call()
    with pytest.raises(
        ParameterError, match=r"'ignore_index' of TemperatureScaling\.fit must be an integer or several"
    ):
        TemperatureScaling().fit(P, [0, 1, 0, 1], ignore_index="none")
    with pytest.raises(
        ShapeError, match=r"'y' of TemperatureScaling.fit must be of shape \(4,\), one label for each row"
    ):
        TemperatureScaling().fit(P, [0, 1, 255], ignore_index=255)


@pytest.mark.parametrize(
    ("n_classes", "names"),
    [(2, [-1, 1]), (2, [1, 2]), (2, [3, 255]), (3, [1, 2, 3]), (3, [10, 20, 30]), (3, [2, 3, 7])],
)
def test_integers_that_are_names_of_all_columns_stay_names(n_classes, names):
    logits, labels = draw_logits(300, n_classes)
    named = TemperatureScaling().fit(logits, np.array(names)[labels])
    assert named.classes_.tolist() == names
    assert named.temperature_ == TemperatureScaling().fit(logits, labels).temperature_


@pytest.mark.parametrize("kind", [pd.Categorical, lambda y, categories: pl.Series(y, dtype=pl.Enum(categories))])
@pytest.mark.parametrize("absent", [False, True])
def test_categories_name_columns_that_have_no_names(kind, absent):
    logits, labels = draw_logits(300, 3)
    if absent:
        logits, labels = logits[labels < 2], labels[labels < 2]
    names = ["high", "low", "middle"]
    y = kind(np.array(names)[labels], categories=names)
    fitted = TemperatureScaling().fit(logits, y if isinstance(y, pl.Series) else pd.Series(y))
    assert fitted.classes_.tolist() == names
    assert fitted.temperature_ == TemperatureScaling().fit(logits, labels).temperature_
    with pytest.raises(LabelError, match="class_names="):  # whose columns have no names but those that are given
        Predictions.from_logits(logits, y)


def test_categories_that_are_not_used_are_no_columns():
    logits, labels = draw_logits(300, 2)
    y = pd.Categorical(np.array(["no", "yes"])[labels], categories=["no", "perhaps", "yes"])
    assert TemperatureScaling().fit(logits, y).classes_.tolist() == ["no", "yes"]


def test_the_report_of_a_fit_says_which_classes_it_never_saw():
    logits, labels = draw_logits(2000, 4)
    assert "n_absent_classes" not in TemperatureScaling().fit(logits, labels).fit_report_
    some = labels < 2
    fitted = TemperatureScaling().fit(logits[some], labels[some])
    assert fitted.fit_report_["n_absent_classes"] == 2
    assert "2 of them without a row" in fitted._repr_html_inner()
    weight = (labels > 0).astype(float)
    assert TemperatureScaling().fit(logits, labels, weight).fit_report_["n_absent_classes"] == 1


@pytest.mark.slow
def test_a_validation_set_without_a_class_never_means_that_nothing_is_needed():
    logits, labels = draw_logits(3000, 4)
    some = labels[:1000] < 3
    validation = Predictions.from_logits(logits[:1000][some], labels[:1000][some])
    test = Predictions.from_logits(logits[1000:], labels[1000:])
    for methods in (["ts"], ["fts-nll"]):
        found = compare(validation, test, methods, chosen="none", n_resamples=20)
        assert "Nothing shows a need of calibration" not in verdict(replace(found, recommended=True))
        assert any("1 of 4 classes does not occur among the rows" in line for line in remarks(found))
    whole = compare(Predictions.from_logits(logits[:1000], labels[:1000]), test, ["ts"], chosen="none", n_resamples=20)
    assert "Nothing shows a need of calibration" in verdict(replace(whole, recommended=True))
    assert FocalTemperatureScaling().fit(logits, labels).fit_report_["n_classes"] == 4


def test_bytes_are_text_in_utf_8():
    logits, labels = draw_logits(100, 2)
    names = np.array(["möglich".encode(), "unmöglich".encode()])
    fitted = TemperatureScaling().fit(logits, names[labels])
    assert fitted.classes_.tolist() == ["möglich", "unmöglich"]
    assert fitted.temperature_ == TemperatureScaling().fit(logits, labels).temperature_
    with pytest.raises(LabelError, match=r"'y' of TemperatureScaling.fit must be text in UTF-8"):
        TemperatureScaling().fit(logits, np.array([b"\xff", b"a"])[labels])


@pytest.mark.parametrize("names", [("True", "False"), ("p_true", "p_false"), ("1", "0")])
@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_columns_of_truths_are_in_the_order_of_truths_wherever_they_come_from(names, suffix, tmp_path):
    p = np.array([0.9, 0.8, 0.3, 0.6])
    truths = [True, True, False, True]
    bias = p.mean() - 0.75
    frame = pd.DataFrame({names[0]: p, names[1]: 1.0 - p})
    path = tmp_path / f"rows.{suffix}"
    written = frame.assign(label=truths)
    if suffix == "csv":
        written.to_csv(path, index=False)
    elif suffix == "parquet":
        written.to_parquet(path)
    else:
        written.to_json(path, orient="records", lines=True)

    rows = read(path, input="probabilities")
    in_blocks = open_rows(path, input="probabilities")
    opposite = read(path, input="probabilities", positive_label=False)

    assert metrics.mean_bias(truths, frame) == pytest.approx(bias)
    assert metrics.mean_bias(rows) == pytest.approx(bias)
    assert metrics.mean_bias(opposite) == pytest.approx(-bias)
    assert rows.labels.tolist() == [1, 1, 0, 1]
    calibrator = TemperatureScaling(input="probabilities").fit(in_blocks)
    assert [str(name).lower() for name in calibrator.classes_] == [str(name).lower() for name in rows.classes]


def test_labels_that_may_be_the_numbers_in_names_or_column_numbers_are_refused(tmp_path):
    logits, labels = draw_logits(60, 3)
    frame = pd.DataFrame(logits, columns=["c1", "c2", "c3"])
    some = labels < 2
    numbers = labels[some] + 1  # the class 3 is not among them, so that all could be column numbers
    path = tmp_path / "rows.csv"
    frame[some].assign(label=numbers).to_csv(path, index=False)
    message = "plainly names .* or plainly column numbers. Got 1: 'c1' by its number, 'c2' counted from 0"
    with pytest.raises(LabelError, match=message):
        read(path, values="c*")
    with pytest.raises(LabelError, match=message):
        TemperatureScaling().fit(open_rows(path, values="c*"))
    with pytest.raises(LabelError, match=message):
        TemperatureScaling().fit(frame[some], numbers)
    assert read(path, values="c*", first_label=1).labels.tolist() == (numbers - 1).tolist()
    # By their names, and where 0 says that columns are counted.
    frame.assign(label=[f"c{label + 1}" for label in labels]).to_csv(path, index=False)
    assert read(path, values="c*").labels.tolist() == labels.tolist()
    frame.assign(label=labels).to_csv(path, index=False)
    assert read(path, values="c*").labels.tolist() == labels.tolist()
    in_blocks = TemperatureScaling().fit(open_rows(path, values="c*")).temperature_
    assert in_blocks == pytest.approx(TemperatureScaling().fit(logits, labels).temperature_)


@pytest.mark.parametrize(
    ("columns", "labels", "by_number"),
    [
        (("1_prob", "0_prob"), ("1", "0"), "1_prob"),
        (("P(True)", "P(False)"), (True, False), r"P\(True\)"),
        (("x.1.0.y", "x.0.0.y"), (1.0, 0.0), "1.0.y"),
        (("pTrue", "pFalse"), ("true", "false"), "pTrue"),
        (("m1_class2_s", "m1_class0_s", "m1_class1_s"), (2, 0, 1), "class2_s"),
        (("-1_s", "0_s", "1_s"), (0, 0, 1), "-1_s"),
        (("c3", "c1", "c2"), (2, 0, 1), "c3"),  # counted from 1, where labels are from 0
    ],
)
def test_numbers_within_the_names_of_columns_are_not_counted_past(tmp_path, columns, labels, by_number):
    logits, drawn = draw_logits(60, len(columns))
    numbers = [labels[i] for i in drawn]
    path = tmp_path / "rows.csv"
    frame = pd.DataFrame(logits, columns=list(columns))
    frame.assign(label=numbers).to_csv(path, index=False)
    named = ",".join(columns)
    message = f"or plainly column numbers. Got [01]: '.*' by its number, '{by_number}' counted from 0"
    for rows in (
        lambda: read(path, values=named),
        lambda: TemperatureScaling().fit(open_rows(path, values=named)),
        lambda: TemperatureScaling().fit(frame, numbers),
    ):
        with pytest.raises(LabelError, match=message):
            rows()
    # In the order of their numbers, and where these are no labels.
    counted = [name for name in sorted(columns) if not name.startswith("-")]
    pd.DataFrame(logits[:, : len(counted)], columns=counted).assign(label=drawn % 2).to_csv(path, index=False)
    assert read(path, values=",".join(counted)).labels.tolist() == (drawn % 2).tolist()


@pytest.mark.parametrize("carrier", [np.array, lambda labels: np.array(labels, dtype=object), pd.Series, list])
def test_empty_text_is_a_missing_label_of_a_fit_as_of_a_score(carrier):
    logits = 2.0 * np.eye(3)[[0, 1, 2, 1] * 5]
    labels = carrier(["", "a", "b", "a"] * 5)
    with pytest.raises(LabelError, match=r"'y' of TemperatureScaling\.fit must be labels of which none is missing"):
        TemperatureScaling().fit(logits, labels)
    fitted = TemperatureScaling().fit(logits, ["c", "a", "b", "a"] * 5)
    with pytest.raises(LabelError, match=r"'y' of TemperatureScaling\.score must be labels of which none is missing"):
        fitted.score(logits, labels)
