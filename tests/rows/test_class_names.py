"""The names of columns: which part of them is the name of a class, and in which order they are."""

from __future__ import annotations

import numpy as np
import pytest

from refocal.errors import ParameterError, ShapeError
from refocal.io import Predictions, blocks, open_rows, read, read_multilabel
from refocal.metrics import brier_score
from refocal.monitor import CalibrationMonitor
from refocal.rows.class_names import check_class_names, check_label_order, column_order, shared_beginning


@pytest.mark.parametrize(
    ("columns", "ends"),
    [
        (["logit_cat", "logit_dog"], ["cat", "dog"]),
        (["p_new_york", "p_new_jersey"], ["new_york", "new_jersey"]),  # a beginning of scores ends at its separator
        (["p0", "p1", "p10"], ["0", "1", "10"]),
        (["eu_north", "eu_south"], ["north", "south"]),
        (["2.0", "2.1"], ["2.0", "2.1"]),
        (["cat", "car"], ["cat", "car"]),  # no separator
        (["logit_cat"], ["logit_cat"]),
        ([0, 1], [0, 1]),
    ],
)
def test_what_names_share_is_no_part_of_them(columns, ends):
    start = shared_beginning(columns)
    assert [name[start:] if start else name for name in columns] == ends


def test_class_names_are_different_texts_without_the_beginning_of_scores():
    assert check_class_names(["logit_cat", "logit_dog"], 2, "f") == ("cat", "dog")
    assert check_class_names([1, 2], 2, "f") == ("1", "2")
    assert check_class_names(None, 2, "f") is None
    with pytest.raises(ShapeError, match=r"3 different names, one for each column. Got 2 different ones"):
        check_class_names(["cat", "dog", "cat"], 3, "f")
    with pytest.raises(ParameterError, match=r"a sequence of names, in the order of the columns. Got a set"):
        check_class_names({"cat", "dog"}, 2, "f")


def test_names_without_an_order_are_refused_by_every_entry(tmp_path):
    logits = np.array([[2.0, 0.5, 0.1], [0.1, 0.3, 1.0]])
    np.savez(tmp_path / "rows.npz", logits=logits, labels=[0, 2])
    np.savez(tmp_path / "labels.npz", log_odds=logits, labels=[[1, 0, 0], [0, 1, 1]])
    entries = [
        lambda names: CalibrationMonitor(class_names=names),
        lambda names: read(tmp_path / "rows.npz", classes=names),
        lambda names: read(tmp_path / "rows.npz", class_names=names),
        lambda names: open_rows(tmp_path / "rows.npz", classes=names),
        lambda names: read_multilabel(tmp_path / "labels.npz", classes=names),
        lambda names: blocks([(logits, [0, 2])], class_names=names),
        lambda names: Predictions.from_logits(logits, [0, 2], class_names=names),
        lambda names: brier_score([0, 1], [[0.2, 0.3, 0.5], [0.5, 0.3, 0.2]], classes=names),
    ]
    for entry in entries:
        entry(["cat", "dog", "emu"])
        # Columns called in the order of a set or of a dictionary {"emu": 2, …} had the labels of others.
        for names in ({"cat", "dog", "emu"}, {"emu": 2, "dog": 1, "cat": 0}, "cde", 3):
            with pytest.raises(ParameterError, match="must be a sequence of names, in the order of the columns"):
                entry(names)


def test_columns_are_found_by_their_names():
    np.testing.assert_array_equal(column_order(("c", "a", "b"), ("a", "b", "c"), "f"), [1, 2, 0])
    assert column_order(("a", "b"), ("a", "b"), "f") is None
    assert column_order(("1.0", "2.0"), ("1", "2"), "f") is None
    np.testing.assert_array_equal(column_order(("1.0", "2.0", "cat"), ("cat", "2", "1"), "f"), [2, 1, 0])
    assert column_order(None, ("a", "b"), "f") is None
    with pytest.raises(ShapeError, match="'d' in one of them only"):
        column_order(("a", "d"), ("a", "b"), "f")


def test_labels_are_in_the_order_of_their_scores():
    check_label_order(["score_cat", "score_dog"], ["label_cat", "label_dog"], "y", "f")
    check_label_order(["score_cat", "score_dog"], None, "y", "f")
    with pytest.raises(ShapeError, match=r"'label_dog' at 1. Got 'label_dog' at 0"):
        check_label_order(["score_cat", "score_dog"], ["label_dog", "label_cat"], "y", "f")


def test_names_that_are_stored_as_bytes_are_those_of_text():
    names = np.array([b"cat", b"\xc3\xa9mu"])
    rows = Predictions.from_logits([[2.0, 0.5], [0.1, 0.3]], names[[1, 0]], class_names=names)
    assert rows.class_names == ("cat", "ému")
    assert rows.labels.tolist() == [1, 0]
