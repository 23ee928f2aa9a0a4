"""Scores and labels of a multi-label problem from arrays and files."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from refocal import MultiLabelCalibration
from refocal.errors import DataError, FormatError, LabelError, ParameterError, ShapeError
from refocal.evaluate import evaluate
from refocal.io import MultiLabelPredictions, apply, read_multilabel

pytestmark = pytest.mark.core

RNG = np.random.default_rng(0)
SCORES, LABELS = RNG.normal(size=(40, 3)), RNG.integers(2, size=(40, 3))
NAMES = ["cat", "dog", "tree"]


def test_a_label_is_a_two_class_problem_of_the_rows_where_it_is_known():
    marked = LABELS.copy()
    marked[:10, 1] = 9
    weight = np.arange(40) + 1.0
    for make, values in (
        (MultiLabelPredictions.from_log_odds, SCORES),
        (MultiLabelPredictions.from_probabilities, 1 / (1 + np.exp(-SCORES))),
    ):
        rows = make(values, marked, class_names=NAMES, weight=weight, ignore_index=9)
        assert (len(rows), rows.n_classes) == (40, 3)
        assert np.array_equal(rows.labels[:10, 1], [-1] * 10)
        dog = rows["dog"]
        assert np.array_equal(dog.labels, LABELS[10:, 1])
        assert np.array_equal(dog.weight, weight[10:])
        assert np.array_equal(dog.numbers, np.arange(10, 40))
        assert np.array_equal(rows.take(np.arange(5, 15))["dog"].numbers, np.arange(10, 15))
        assert np.array_equal(rows.pooled().numbers, np.nonzero(rows.labels >= 0)[0])
        assert dog.logits[:, 1] - dog.logits[:, 0] == pytest.approx(SCORES[10:, 1], abs=1e-12)
        assert rows.logits == pytest.approx(SCORES, abs=1e-12)
        assert np.array_equal(rows.take(np.array([3, 1])).labels, rows.labels[[3, 1]])
        fitted = MultiLabelCalibration(input=rows.input).fit(rows.values, rows.labels, rows.weight, ignore_index=-1)
        assert fitted.predict_proba(rows.values).shape == (40, 3)


def test_rows_of_one_label_keep_their_clusters_and_groups():
    marked = LABELS.copy()
    marked[:10, 1] = -1
    rows = MultiLabelPredictions.from_log_odds(SCORES, marked, class_names=NAMES, ignore_index=-1)
    region = np.array(["north", "south"] * 20)
    rows = replace(rows, clusters=np.arange(40) // 4, cluster_name="customer", groups={"region": region})
    dog = rows["dog"]
    assert np.array_equal(dog.clusters, np.arange(10, 40) // 4)
    assert dog.cluster_name == "customer"
    assert np.array_equal(dog.groups["region"], region[10:])


def test_examples_of_a_label_are_numbered_as_the_rows_are():
    found = evaluate(MultiLabelPredictions.from_log_odds(SCORES, LABELS), {}, n_resamples=5)
    details = [of_class.detail for of_class in found.before.classes if of_class.detail is not None]
    numbers = [number for detail in details for number in detail.examples]
    assert numbers
    assert max(numbers) < 40


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_files(ending, tmp_path):
    file = tmp_path / f"rows.{ending}"
    if ending == "npz":
        np.savez(file, log_odds=SCORES, labels=LABELS, class_names=NAMES, w=np.ones(40))
    else:
        table = pd.DataFrame({f"score_{name}": SCORES[:, i] for i, name in enumerate(NAMES)})
        for name in reversed(NAMES):  # in another order
            table[f"label_{name}"] = LABELS[:, NAMES.index(name)]
        table["w"] = 1.0
        getattr(table, f"to_{ending}")(file, index=False)
    rows = read_multilabel(file, weight="w")
    assert rows.class_names == tuple(NAMES)
    assert np.array_equal(rows.labels, LABELS)
    assert rows.values == pytest.approx(SCORES, abs=1e-12)
    assert rows.weight.tolist() == [1.0] * 40


def test_columns_that_count_and_patterns_of_ones_own(tmp_path):
    table = pd.DataFrame(SCORES, columns=["p0", "p1", "p2"]).apply(lambda s: 1 / (1 + np.exp(-s)))
    table[["y0", "y1", "y2"]] = LABELS
    table.to_csv(tmp_path / "rows.csv", index=False)
    rows = read_multilabel(tmp_path / "rows.csv", input="probabilities", values="p*", labels="y*")
    assert rows.class_names == ("0", "1", "2")
    assert np.array_equal(rows.labels, LABELS)
    with pytest.raises(FormatError, match="no column that match"):
        read_multilabel(tmp_path / "rows.csv")
    with pytest.raises(FormatError, match="'2' has a column of scores or of labels alone"):
        read_multilabel(tmp_path / "rows.csv", values="p*", labels="y0,y1")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda f: f(SCORES[:, 0], LABELS[:, 0]), ShapeError, "two-dimensional, one row per sample"),
        (lambda f: f(SCORES, LABELS[:, :2]), ShapeError, r"'labels' .* must be of shape \(40, 3\)"),
        (lambda f: f(SCORES, LABELS + 1), LabelError, "between 0 and 1"),
        (lambda f: f(SCORES, LABELS, class_names=["a", "b", "a"]), ShapeError, "3 different names"),
        (lambda f: f(np.where(SCORES > 2, np.nan, SCORES) * np.nan, LABELS), DataError, "finite log-odds"),
        (lambda f: f(SCORES, LABELS, ignore_index="x"), ParameterError, "an integer or several"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call(MultiLabelPredictions.from_log_odds)


def test_one_label_alone_has_its_name(tmp_path):
    (tmp_path / "a.csv").write_text("score_cat,label_cat,truth\n1.5,1,0\n-0.5,0,1\n")
    found = read_multilabel(tmp_path / "a.csv")
    assert (found.class_names, found.labels.tolist()) == (("cat",), [[1], [0]])
    assert read_multilabel(tmp_path / "a.csv", labels="truth").labels.tolist() == [[0], [1]]
    (tmp_path / "a.csv").write_text("score_cat,label_dog\n1.5,1\n-0.5,0\n")
    with pytest.raises(FormatError, match="'cat' has a column of scores or of labels alone"):
        read_multilabel(tmp_path / "a.csv")


@pytest.mark.parametrize("ending", ["npz", "npy", "csv", "jsonl", "parquet"])
def test_a_calibrator_is_applied_to_arrays_that_have_labels(ending, tmp_path):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(300, 3))
    labels = (rng.random((300, 3)) < 1 / (1 + np.exp(-scores))).astype(np.int64)
    labels[:40, 1] = -1
    np.savez(tmp_path / "rows.npz", log_odds=scores, labels=labels, class_names=["cat", "dog", "emu"])
    fitted = MultiLabelCalibration().fit(scores, labels, ignore_index=-1, class_names=["cat", "dog", "emu"])
    (written,) = apply(fitted, tmp_path / "rows.npz", tmp_path / f"probs.{ending}")
    assert written.n_rows == 300
    file, kept = tmp_path / f"probs.{ending}", labels
    if ending == "npz":
        with np.load(file) as found:
            p, kept = found["probabilities"], found["labels"]
    elif ending == "npy":
        p = np.load(file)
    else:
        as_json = partial(pd.read_json, lines=True, precise_float=True)
        read_table = {"csv": pd.read_csv, "parquet": pd.read_parquet, "jsonl": as_json}[ending]
        table = read_table(file)
        p, kept = table[["cat", "dog", "emu"]], table[["label_cat", "label_dog", "label_emu"]]
    np.testing.assert_allclose(p, fitted.predict_proba(scores), rtol=1e-12)
    np.testing.assert_array_equal(kept, labels)


def test_labels_that_do_not_fit_the_scores_are_refused(tmp_path):
    scores, labels = np.array([[0.5, -1.0], [0.2, 2.0], [-0.3, 0.1]]), np.array([[1, 0], [0, 1], [1, 0]])
    fitted = MultiLabelCalibration(method="ts").fit(scores, labels)
    np.savez(tmp_path / "rows.npz", log_odds=scores, labels=labels[:, 0])
    with pytest.raises(ShapeError, match=r"must be of shape \(3, 2\)"):
        apply(fitted, tmp_path / "rows.npz", tmp_path / "p.npz")


def test_names_of_labels_are_not_those_of_a_data_frame_in_another_order():
    scores = pd.DataFrame({"cat": [1.0, -2.0], "dog": [0.5, 2.0]})
    labels = np.array([[1, 0], [0, 1]])
    with pytest.raises(ShapeError, match=r"'class_names' of MultiLabelPredictions\.from_log_odds must be left out"):
        MultiLabelPredictions.from_log_odds(scores, labels, class_names=["dog", "cat"])
    with pytest.raises(ShapeError, match=r"'class_names' of MultiLabelCalibration\.fit must be left out"):
        MultiLabelCalibration().fit(scores, labels, class_names=["dog", "cat"])
    renamed = MultiLabelPredictions.from_log_odds(scores, labels, class_names=["puma", "wolf"])
    assert renamed.class_names == ("puma", "wolf")


def test_labels_that_are_truths_are_the_same_in_every_format(tmp_path):
    table = pd.DataFrame({"score_a": [1.5, -0.5], "score_b": [0.5, 2.5], "label_a": [True, False], "label_b": True})
    table.to_csv(tmp_path / "rows.csv", index=False)
    table.to_parquet(tmp_path / "rows.parquet")
    for ending in ("csv", "parquet"):
        assert read_multilabel(tmp_path / f"rows.{ending}").labels.tolist() == [[1, 1], [0, 1]]
    (tmp_path / "rows.csv").write_text("score_a,score_b,label_a,label_b\n1,2,True,0\n1,2,maybe,1\n")
    with pytest.raises(FormatError, match="row 1 has 'maybe' in the column 'label_a'"):
        read_multilabel(tmp_path / "rows.csv")


def test_a_label_that_there_is_not_is_said_to_be_none():
    rows = MultiLabelPredictions.from_log_odds([[2.0, -1.0], [0.5, 0.3]], [[1, 0], [1, 1]], class_names=["cat", "dog"])
    with pytest.raises(ParameterError, match=r"must be one of the labels cat, dog\. Got 'emu' instead"):
        rows["emu"]


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_what_apply_wrote_is_read_without_naming_columns(tmp_path, ending):
    """The columns of probabilities are called as the labels are: rain beside label_rain."""
    rng = np.random.default_rng(0)
    log_odds = rng.normal(size=(40, 2))
    labels = (rng.random((40, 2)) < 0.5).astype(int)
    fitted = MultiLabelCalibration(method="ts").fit(log_odds, labels, class_names=["rain", "snow"])
    of_labels = {"label_snow": labels[:, 1], "label_rain": labels[:, 0]}
    table = pd.DataFrame({"id": range(40), "score_rain": log_odds[:, 0], "score_snow": log_odds[:, 1], **of_labels})
    table.to_csv(tmp_path / "rows.csv", index=False)
    written = tmp_path / f"probabilities{ending}"
    apply(fitted, tmp_path / "rows.csv", written)
    found = read_multilabel(written, input="probabilities")
    assert found.class_names == ("rain", "snow")
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_allclose(found.values, fitted.predict_proba(log_odds), rtol=1e-12)
    with pytest.raises(FormatError, match=r"no column that matches 'score_\*'"):
        read_multilabel(written)  # as log-odds, which these are not
