"""Blocks of rows as a search reads them: what is understood, what is skipped, what is complained about and how."""

from __future__ import annotations

import operator

import jax.numpy as jnp
import numpy as np
import pytest

from refocal import TemperatureScaling
from refocal.engine.block import Block
from refocal.engine.c_engine import n_threads
from refocal.engine.passes import Pass, finish, reduce_chunks
from refocal.errors import DataError, LabelError, ParameterError, ShapeError
from refocal.io import Predictions, rows_of
from refocal.rows import RawRows, RowReader
from refocal.rows.scores import bad_rows

pytestmark = [pytest.mark.core, pytest.mark.numerics]

LOGITS = np.array([[1.0, 0.0, -1.0], [0.5, 0.5, 0.0], [0.0, -np.inf, 2.0], [3.0, 1.0, 2.0]])
LABELS = np.array([0, 1, 2, 1])
P = np.array([[0.5, 0.25, 0.25], [0.0, 0.5, 0.5], [0.2, 0.2, 0.6], [1.0, 0.0, 0.0]])
# What zeros count as until the first walk has seen the smallest other probability.
TINY = np.finfo(np.float32).tiny


def changed(array, at, value):
    array = np.array(array, dtype=np.float64)
    array[at] = value
    return array


LOGIT_FAULTS = [
    (changed(LOGITS, (1, 0), np.nan), LABELS, None, DataError, "free of NaN and .inf.*Got NaN in row 11 of here"),
    (changed(LOGITS, (1, 0), np.inf), LABELS, None, DataError, r"Got \+inf in row 11 of here"),
    (changed(LOGITS, 3, -np.inf), LABELS, None, DataError, "Got only -inf in row 13 of here"),
    (LOGITS, np.array([0, 1, 1, 1]), None, DataError, "Got -inf at the label of row 12 of here"),
    (LOGITS, np.array([0, 1, 2, 3]), None, LabelError, "from 0 to 2. Got 3 in row 13 of here"),
    (LOGITS, np.array([-1, 1, 2, 1]), None, LabelError, "from 0 to 2. Got -1 in row 10 of here"),
    (LOGITS, np.array([0.0, 1.0, 2.0, 1.5]), None, LabelError, "whole numbers from 0 to 2. Got 1.5 in row 13 of here"),
    (
        LOGITS,
        np.array([np.nan, 1.0, 2.0, 1.0]),
        None,
        LabelError,
        "none is missing. Got a missing one in row 10 of here",
    ),
    (LOGITS, LABELS, np.array([1.0, -0.5, 1.0, 1.0]), DataError, "finite and not negative. Got -0.5 in row 11 of here"),
    (LOGITS, LABELS, np.array([1.0, 1.0, np.inf, 1.0]), DataError, "Got inf in row 12 of here"),
]


@pytest.mark.parametrize(("values", "labels", "weight", "kind", "words"), LOGIT_FAULTS)
def test_the_first_bad_row_is_named_and_bad_rows_are_skipped(values, labels, weight, kind, words):
    block = RawRows(values, labels, weight, "here", 10)
    with pytest.raises(kind, match=words):
        RowReader(3).read(block, check=True)[0]
    kept = RowReader(3, skip_bad_rows=True).read(block, check=False)[0]
    assert len(kept.labels) == len(kept.values) == 3
    assert weight is None or len(kept.weight) == 3


@pytest.mark.parametrize(
    ("block", "kind", "words"),
    [
        (RawRows(LOGITS[:, :2], LABELS), ShapeError, r"of 3 columns in every block.*shape \(4, 2\) in the rows"),
        (RawRows(LOGITS[0], LABELS), ShapeError, "of 3 columns"),
        (RawRows(LOGITS, LABELS[:3]), ShapeError, r"'y' of fit must be of shape \(4,\).*shape \(3,\)"),
        (RawRows(LOGITS, LABELS, np.ones(5)), ShapeError, "'sample_weight' of fit"),
        (RawRows(LOGITS.astype(complex), LABELS), DataError, "an array of numbers. Got dtype complex128"),
        (RawRows(LOGITS > 0.0, LABELS), DataError, "an array of numbers. Got dtype bool"),
        (
            RawRows(LOGITS, np.array(list("abca"))),
            LabelError,
            "integers. Got text such as 'a' in row 0 of .*class_names=",
        ),
    ],
)
def test_what_is_no_block_of_rows_is_refused_unchecked_too(block, kind, words):
    with pytest.raises(kind, match=words):
        RowReader(3).read(block, check=False)[0]


@pytest.mark.parametrize(
    ("given", "computed_in"), [("int8", "float64"), ("float16", "float16"), ("float32", "float32")]
)
def test_floats_keep_their_precision_and_integers_become_doubles(given, computed_in):
    scores = np.arange(12).reshape(4, 3).astype(given)
    kept = RowReader(3).read(RawRows(scores, LABELS), check=True)[0].values
    assert kept.dtype == computed_in
    np.testing.assert_array_equal(kept, scores)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_one_probability_per_row_is_taken_from_1_as_in_memory(dtype):
    p = np.linspace(0.01, 0.99, 80).astype(dtype)
    labels = np.arange(80) % 2
    rows, _ = RowReader(2, "probabilities").read(RawRows(p, labels))
    in_memory = Predictions.from_probabilities(p, labels)
    np.testing.assert_array_equal(rows.values, in_memory.values)


@pytest.mark.parametrize("kind", ["log-odds", "logits"])
def test_log_odds_of_minus_infinity_are_bad_rows_as_in_memory(kind):
    log_odds = np.array([0.5, -np.inf, -1.0, 2.0])
    block = RawRows(log_odds, [1, 0, 0, 1], None, "here", 10)
    with pytest.raises(DataError, match=r"Got only -inf in row 11 of here"):
        RowReader(2, kind).read(block)
    rows, n_bad = RowReader(2, kind, skip_bad_rows=True).read(block)
    assert (rows.labels.tolist(), n_bad) == ([1, 0, 1], 1)
    with pytest.raises(DataError, match="must be finite log-odds"):
        Predictions.from_log_odds(log_odds, [1, 0, 0, 1])


def test_truths_are_no_weights_in_blocks_either():
    weight = np.array([True, False, True, True])
    for entry in (
        lambda: Predictions.from_logits(LOGITS, LABELS, weight=weight),
        lambda: RowReader(3).read(RawRows(LOGITS, LABELS, weight)),
    ):
        with pytest.raises(DataError, match=r"must be an array of real numbers\. Got dtype bool"):
            entry()


def test_labels_may_be_whole_floats_and_count_from_one():
    block = RawRows(LOGITS, np.array([1.0, 2.0, 3.0, 2.0]))
    np.testing.assert_array_equal(RowReader(3, first_label=1).read(block, check=True)[0].labels, LABELS)
    with pytest.raises(LabelError, match=r"from 1 to 3\. Got 0 in row 0"):
        RowReader(3, first_label=1).read(RawRows(LOGITS, LABELS), check=True)[0]


@pytest.mark.parametrize(
    ("at", "value", "got"),
    [
        ((0, 0), 0.502, "row 0 of the rows, which sums to"),
        ((0, 0), -0.5, "-0.5 in row 0 of the rows"),
        ((2, 1), np.nan, "row 2 of the rows, which sums to"),
    ],
    ids=["sum", "negative", "NaN"],
)
def test_rows_of_probabilities(at, value, got):
    reader = RowReader(3, input="probabilities")
    found = reader.read(RawRows(P, np.array([0, 1, 2, 0])), check=True)[0]
    np.testing.assert_allclose(np.exp(Block.of(found).logits), np.maximum(P, TINY), rtol=1e-12)
    near = changed(P, (0, 0), 0.5009)  # within the tolerance
    assert len(reader.read(RawRows(near, np.array([0, 1, 2, 0])), check=True)[0].labels) == 4
    with pytest.raises(DataError, match=f"rows of probabilities: .* Got {got}"):
        reader.read(RawRows(changed(P, at, value), np.array([0, 1, 2, 0])), check=True)[0]
    with pytest.raises(ParameterError, match="'input' of fit"):
        RowReader(3, input="odds")


def test_a_walk_adds_up():
    job = Pass(lambda block: block.logits.sum(), operator.add, finish=lambda total: -total)
    bad = RawRows(changed(P, 0, -1.0)[:1], LABELS[:1])
    parts = [RawRows(P, LABELS), bad, RawRows(P[:2], LABELS[:2])]
    reader = RowReader(3, skip_bad_rows=True)
    found = reduce_chunks(iter, reader, job, parts)
    assert (found.n_rows, found.n_skipped) == (7, 0)
    found = reduce_chunks(iter, RowReader(3, input="probabilities", skip_bad_rows=True), job, parts)
    expected = np.log(np.maximum(np.concatenate([P, P[:2]]), TINY)).sum()
    assert (found.n_rows, found.n_skipped) == (6, 1)
    assert finish(job, found).answer == pytest.approx(-expected)
    nothing = reduce_chunks(iter, reader, job, [])
    assert finish(job, nothing) == nothing == (None, 0, 0, 0, 0, 0)


def test_threads_are_those_that_were_asked_for(monkeypatch):
    for asked, expected in (("3", 3), ("1", 1)):
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
        assert n_threads() == expected
    for asked in ("", "0", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
        assert n_threads() >= 1


def test_how_far_from_one_a_row_may_sum():
    assert not bad_rows(P * 1.0005, "probabilities").any()
    assert bad_rows(P * 1.0015, "probabilities").all()


def test_the_precision_that_rows_are_computed_in():
    eps = {name: np.finfo(name).eps for name in ("float32", "float64")}
    for name in ("float16", "float32", "float64"):
        logits = np.array([[1.0, 0.0], [0.0, 2.0]], dtype=name)
        assert Block(logits, np.array([0, 1])).precision == eps["float64"]  # the compiled passes add up in double
        by_arrays = Block(jnp.asarray(logits), jnp.array([0, 1]))
        assert by_arrays.precision == eps["float64" if name == "float64" else "float32"]


@pytest.mark.parametrize("names", [("10 a", "2", "9 a"), ("10", "9", "x"), (2, 9, 10), ("C", "a", "b")])
def test_labels_name_columns_in_the_order_in_which_they_do_in_memory(names):
    logits = 2.0 * np.random.default_rng(0).normal(size=(30, 3))
    labels = np.array(names)[np.arange(30) % 3]
    in_memory = TemperatureScaling().fit(logits, labels)
    in_blocks = TemperatureScaling().fit(rows_of(logits, labels))
    assert in_blocks.classes_.tolist() == in_memory.classes_.tolist() == list(names)


def test_labels_of_blocks_are_no_fractions():
    logits = np.zeros((4, 2))
    with pytest.raises(LabelError, match="Unknown label type: continuous numbers"):
        TemperatureScaling().fit(rows_of(logits, np.array([9.5, 10.5, 9.5, 10.5])))


@pytest.mark.parametrize(("names", "wrong"), [(("cat", "dog", "emu"), "fox"), (("good", "bad"), "Bad")])
def test_misspelt_names_of_classes_are_not_said_to_be_numbers_in_blocks_either(names, wrong):
    logits = np.zeros((4, len(names)))
    labels = np.array([names[0], names[1], names[0], wrong])
    with pytest.raises(LabelError) as in_memory:
        Predictions.from_logits(logits, labels, class_names=names)
    with pytest.raises(LabelError) as in_blocks:
        RowReader(len(names), class_names=names).read(RawRows(logits, labels, None, "here"), check=True)
    assert in_blocks.value.remedy is in_memory.value.remedy is None
