"""Which evaluations can be compared: those of the same classes and, of two, of the same positive one."""

from __future__ import annotations

import numpy as np
import pytest

from refocal.errors import DataError
from refocal.evaluate import Change, differences, evaluate
from refocal.evaluate.difference import unnamed_classes
from refocal.io import MultiLabelPredictions, Predictions
from refocal.report import render


def of_classes(names, order=None, seed=0):
    """An evaluation of rows whose classes have these names, in this order; None: no names."""
    n_classes = 3 if names is None else len(names)
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(200, n_classes))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    rows = Predictions.from_logits(logits, labels, class_names=names, first_label=0)
    return evaluate(rows if order is None else rows.reordered(np.array(order)), {}, n_resamples=20)


def of_two(names, positive=None):
    """An evaluation of the same rows of two classes, whichever is the positive one."""
    rng = np.random.default_rng(1)
    p = rng.beta(2, 5, 300)
    labels = (rng.random(300) < p).astype(int)
    if names is None:
        return evaluate(Predictions.from_probabilities(p, labels), {}, n_resamples=20)
    rows = Predictions.from_probabilities(
        np.stack([1 - p, p], axis=1), np.array(names)[labels], class_names=names, positive_label=positive
    )
    return evaluate(rows, {}, n_resamples=20)


def test_evaluations_of_other_classes_are_refused():
    old = of_classes(["cat", "dog", "emu"])
    with pytest.raises(DataError, match=r"of the same classes as the old one, .* Got one with 'fox' instead"):
        differences(old, of_classes(["cat", "dog", "fox"]))
    with pytest.raises(DataError, match="Got one with 'fox' instead"):
        render([old, of_classes(["cat", "dog", "fox"])], over_time=True)
    with pytest.raises(DataError, match=r"of 3 classes, as the old one\. Got one of 2 classes instead"):
        differences(old, of_two(["no", "yes"]))
    with pytest.raises(DataError, match="Got one with '3' instead"):
        differences(of_classes(["2", "5", "8"]), of_classes(["2", "3", "5"]))


def test_diagrams_side_by_side_are_of_the_same_class():
    """The labels of all diagrams were those of the first evaluation: "of yes" beside numbers about no."""
    yes = of_two(["no", "yes"], "yes")
    with pytest.raises(DataError, match=r"whose positive class is 'yes', as .* Got one of 'no' instead"):
        render([yes, of_two(["no", "yes"], "no")])
    three = of_classes(["cat", "dog", "emu"])
    with pytest.raises(DataError, match=r"of 2 classes, as the old one\. Got one of 3 classes instead"):
        render([yes, three])
    # Confidence and accuracy are those of any classes, and names that one evaluation lacks are those of the other.
    assert "2 evaluations side by side" in render([three, of_classes(None)])
    assert "probability of class 1" in render([yes, of_two(None)])


def test_evaluations_of_other_levels_are_refused():
    """Intervals of 90 and of 99 % make no p-value: it was 9e-9 for 8e-4."""
    rows = Predictions.from_probabilities([0.2, 0.4] * 50, [0, 0, 0, 1] * 25)
    old, new = (evaluate(rows, {}, n_resamples=20, level=level) for level in (0.9, 0.99))
    with pytest.raises(DataError, match=r"intervals are of 90 %, as those of the old one\. Got one of 99 % instead"):
        differences(old, new)
    assert {change.level for change in differences(new, new)} == {0.99}


def test_the_order_of_more_than_two_classes_changes_nothing():
    old = of_classes(["cat", "dog", "emu"])
    moved = of_classes(["cat", "dog", "emu"], order=[2, 0, 1])
    assert moved.class_names == ["emu", "cat", "dog"]
    for change in differences(old, moved):
        assert change.new == pytest.approx(change.old, abs=1e-12), change.measure


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((["no", "yes"], "yes"), (["no", "yes"], "no")),
        ((["0", "1"], "1"), (["0", "1"], "0")),
        ((["False", "True"], "True"), (["0", "1"], "0")),
        ((None,), (["0", "1"], "0")),
    ],
)
def test_another_positive_class_is_refused(old, new):
    for first, second in ((old, new), (new, old)):
        with pytest.raises(DataError, match=r"an evaluation whose positive class is .* Got one of "):
            differences(of_two(*first), of_two(*second))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((["no", "yes"], "yes"), (["no", "yes"],)),
        ((["False", "True"],), (["0", "1"],)),
        ((["0", "1"],), (None,)),
        ((None,), (["no", "yes"], "yes")),
    ],
)
def test_the_same_classes_are_compared_however_they_are_called(old, new):
    first, second = of_two(*old), of_two(*new)
    assert {change.verdict for change in differences(first, second)} == {"statistically indistinguishable"}
    note = unnamed_classes(first, second)
    assert note == (
        "The classes of the old evaluation have no names: they are taken for no, yes of the new one, in this order."
        if (first.class_names, second.class_names) == (None, ["no", "yes"])
        else ""
    )
    assert ("have no names" in render([first, second], over_time=True)) is bool(note)


def test_several_labels_per_row_are_compared_with_the_same_labels():
    rng = np.random.default_rng(2)

    def of_labels(names, unknown=None):
        log_odds = 2 * rng.normal(size=(150, len(names)))
        labels = (rng.random(log_odds.shape) < 1 / (1 + np.exp(-log_odds))).astype(int)
        if unknown is not None:
            labels[:, unknown] = -1
        rows = MultiLabelPredictions.from_log_odds(log_odds, labels, class_names=names, ignore_index=-1)
        return evaluate(rows, {}, n_resamples=20)

    old = of_labels(["red", "round"])
    assert differences(old, of_labels(["round", "red"]))
    assert differences(old, of_labels(["red", "round"], unknown=0))
    with pytest.raises(DataError, match=r"the same 2 labels as the old one\. Got one of 2 with 'soft' instead"):
        differences(old, of_labels(["red", "soft"]))
    with pytest.raises(DataError, match="Got one of 3 with 'soft' instead"):
        differences(old, of_labels(["red", "round", "soft"]))
    with pytest.raises(DataError, match="of several labels per row, as the old one"):
        differences(old, of_two(None))


def test_a_measure_that_is_best_at_a_value_is_better_the_nearer_it_is():
    rng = np.random.default_rng(3)
    log_odds = rng.normal(size=2000)
    labels = (rng.random(2000) < 1 / (1 + np.exp(-log_odds))).astype(int)

    def of_slope(slope):
        rows = Predictions.from_logits(np.stack([0 * log_odds, slope * log_odds], axis=1), labels)
        return evaluate(rows, {}, metrics=["spiegelhalter_test"], n_resamples=20)

    timid = of_slope(0.3)
    right = of_slope(1.0)
    bold = of_slope(3.0)
    for pair, expected in (((timid, right), "better"), ((bold, right), "better"), ((right, timid), "worse")):
        change = next(each for each in differences(*pair) if each.measure == "spiegelhalter_test")
        assert change.verdict == expected
    nearer = Change("ts", "calibration_slope", old=0.5, new=1.1, low=-0.6, high=-0.2, p_value=0.001)
    assert nearer.verdict == "better"
