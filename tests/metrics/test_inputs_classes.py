"""Metrics take labels by the names of classes, with `classes=`."""

import inspect
from functools import partial

import numpy as np
import pandas as pd
import pytest

from refocal import metrics
from refocal.errors import LabelError, ParameterError, RefocalError, ShapeError
from refocal.io import Predictions

NAMES = np.array(["on time", "late"])
OPTIONS = {"risk_at_coverage": {"coverage": 0.5}, "coverage_at_risk": {"risk": 0.2}}
# These take other arguments, and are called below.
OTHERS = ("bootstrap_interval", "by_label", "paired_bootstrap", "resample", "set_coverage", "squared_ece_difference")


def draw():
    rng = np.random.default_rng(0)
    p = rng.beta(1, 3, 400)
    return p, (rng.random(400) < p).astype(int)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in metrics.__all__
        if name not in OTHERS
        and inspect.isfunction(getattr(metrics, name))
        and "y_true" in inspect.signature(getattr(metrics, name)).parameters
    ],
)
def test_names_give_the_same_as_numbers(name):
    function = getattr(metrics, name)
    p, y = draw()
    both = np.stack([1 - p, p], axis=1)
    takes_logs = "log_probabilities" in inspect.signature(function).parameters
    options = OPTIONS.get(name, {})
    for values in [np.log(both)] if takes_logs else [p, both]:
        assert str(function(NAMES[y], values, classes=NAMES, **options)) == str(function(y, values, **options))


def test_names_in_another_order_move_the_columns():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 50)
    y = rng.integers(3, size=50)
    names = np.array(["cat", "dog", "emu"])
    moved = metrics.brier_score(names[y], p[:, [2, 0, 1]], classes=["emu", "cat", "dog"])
    assert moved == pytest.approx(metrics.brier_score(y, p))
    assert metrics.brier_score(y + 1, p, classes=[1, 2, 3]) == metrics.brier_score(y, p)


def test_resampled_metrics_and_sets_take_names():
    p, y = draw()
    labels = NAMES[y]
    of_names = {"classes": NAMES, "n_resamples": 20}
    brier = metrics.brier_score
    assert metrics.bootstrap_interval(brier, labels, p, **of_names) == metrics.bootstrap_interval(
        brier, y, p, n_resamples=20
    )
    assert metrics.paired_bootstrap(brier, labels, p, 1 - p, **of_names) == metrics.paired_bootstrap(
        brier, y, p, 1 - p, n_resamples=20
    )
    assert (
        metrics.resample(brier, labels, p, **of_names).interval()
        == metrics.resample(brier, y, p, n_resamples=20).interval()
    )
    given = metrics.squared_ece_difference(labels, p, 1 - p, classes=NAMES)
    assert given == metrics.squared_ece_difference(y, p, 1 - p)
    sets = np.stack([p < 0.6, p > 0.2], axis=1)
    assert [part.name for part in metrics.set_coverage(labels, sets, classes=NAMES).parts] == ["on time", "late"]


def test_classes_that_do_not_fit_are_refused():
    p, y = draw()
    with pytest.raises(LabelError, match="metrics also take classes="):
        metrics.brier_score(NAMES[y], p)
    with pytest.raises(LabelError, match="among the class names"):
        metrics.brier_score(NAMES[y], p, classes=["early", "late"])
    with pytest.raises(ShapeError, match="'classes' of brier_score must be 2 different names"):
        metrics.brier_score(NAMES[y], p, classes=["early", "late", "never"])
    with pytest.raises(ParameterError, match="'classes' of brier_score must be a sequence of names"):
        metrics.brier_score(NAMES[y], p, classes="late")
    frame = pd.DataFrame({"on time": 1 - p, "late": p})
    with pytest.raises(ParameterError, match="'classes' of brier_score must be left out where the columns"):
        metrics.brier_score(NAMES[y], frame, classes=["late", "on time"])
    with pytest.raises(ParameterError, match="'classes' of brier_score must be left out where y_true are Predictions"):
        metrics.brier_score(Predictions.from_probabilities(p, y), classes=NAMES)


def _two_frames():
    """The same probabilities of two classes in data frames with the columns in both orders, and labels by name."""
    p = np.array([0.1, 0.8, 0.3, 0.6, 0.9, 0.2])
    labels = np.array(["no", "yes", "yes", "no", "yes", "no"])
    frame = pd.DataFrame({"no": 1.0 - p, "yes": p})
    return labels, frame, frame[["yes", "no"]]


@pytest.mark.parametrize("metric", [metrics.mean_bias, metrics.average_precision, metrics.brier_score])
def test_two_frames_with_their_columns_in_two_orders_are_about_the_same_class(metric):
    labels, frame, swapped = _two_frames()
    result = metrics.paired_bootstrap(metric, labels, frame, swapped, n_resamples=10)
    assert (result.difference, result.low, result.high) == pytest.approx((0.0, 0.0, 0.0), abs=1e-12)


def test_a_difference_of_log_losses_matches_the_columns_of_three_classes_by_name():
    rng = np.random.default_rng(0)
    first = pd.DataFrame(rng.dirichlet(np.ones(3), 20), columns=["m", "z", "a"])
    second = pd.DataFrame(rng.dirichlet(np.ones(3), 20), columns=["m", "z", "a"])
    labels = rng.choice(["a", "m", "z"], 20)
    row = np.arange(20)
    column = np.array([["m", "z", "a"].index(label) for label in labels])
    expected = np.mean(np.log(second.to_numpy()[row, column])) - np.mean(np.log(first.to_numpy()[row, column]))
    moved = np.log(second[["a", "m", "z"]])
    result = metrics.paired_bootstrap("log_loss", labels, np.log(first), moved, n_resamples=10)
    assert result.difference == pytest.approx(expected)


@pytest.mark.parametrize("compare", [partial(metrics.paired_bootstrap, "brier_score"), metrics.squared_ece_difference])
def test_column_numbers_do_not_count_the_columns_of_two_orders(compare):
    labels, frame, swapped = _two_frames()
    with pytest.raises(LabelError, match="names of classes where first and second have their columns in different"):
        compare((labels == "yes").astype(int), frame, swapped)


def test_a_pair_of_predictions_has_its_own_labels_and_weights():
    labels, frame, swapped = _two_frames()
    weight = np.array([1.0, 2.0, 0.0, 1.0, 3.0, 1.0])
    half = pd.DataFrame({"no": np.full(6, 0.5), "yes": np.full(6, 0.5)})
    first = Predictions.from_probabilities(swapped, labels, weight=weight)
    second = Predictions.from_probabilities(half, labels, weight=weight)
    of_rows = metrics.paired_bootstrap("brier_score", None, first, second, n_resamples=20)
    given = metrics.paired_bootstrap("brier_score", labels, frame, half, sample_weight=weight, n_resamples=20)
    assert of_rows.difference == pytest.approx(given.difference)
    assert (of_rows.low, of_rows.high) == pytest.approx((given.low, given.high))


@pytest.mark.parametrize(
    ("second", "labels", "text"),
    [
        (Predictions.from_probabilities([0.2, 0.7], [1, 0]), None, "of the same rows as first"),
        (Predictions.from_probabilities([0.2, 0.7], [0, 1], weight=[1.0, 2.0]), None, "of the same rows as first"),
        (Predictions.from_probabilities([0.2, 0.7], [0, 1]), [0, 1], "None where first and second are Predictions"),
        ([0.2, 0.7], None, "both Predictions, or both scores"),
        (Predictions.from_probabilities([0.2, 0.7], [0, 1]).with_clusters([0, 0]), None, "of the same rows as first"),
    ],
)
def test_a_pair_is_of_the_same_rows(second, labels, text):
    first = Predictions.from_probabilities([0.1, 0.9], [0, 1])
    with pytest.raises(RefocalError, match=text):
        metrics.paired_bootstrap("brier_score", labels, first, second)


def test_several_labels_per_row_are_compared_in_one_order_of_columns():
    p = pd.DataFrame({"beach": [0.2, 0.9], "snow": [0.6, 0.1]})
    labels = np.array([[0, 1], [1, 0]])
    with pytest.raises(ShapeError, match="'second'"):
        metrics.paired_bootstrap("brier_score", labels, p, p[["snow", "beach"]])


def test_sets_are_of_the_classes_that_their_columns_are_called_by():
    sets = pd.DataFrame({2: [True, True, False], 1: [False, True, True], 0: [False, False, True]})
    with pytest.raises(ParameterError, match="'classes' of set_coverage must be left out where the columns of sets"):
        metrics.set_coverage([2, 1, 2], sets, classes=[0, 1, 2])
    found = metrics.set_coverage([2, 1, 2], sets)
    assert found.coverage.value == pytest.approx(2 / 3)
    assert [(part.name, part.coverage.value) for part in found.parts] == [("1", 1.0), ("2", 0.5)]
    renamed = sets.rename(columns={i: f"set_{i}" for i in range(3)})
    for labels in ([2, 1, 2], ["set_2", "set_1", "set_2"]):
        assert metrics.set_coverage(labels, renamed).parts == found.parts
        assert metrics.set_coverage(labels, renamed).worst_class == found.worst_class == 2


def test_whole_names_with_the_beginning_that_they_share_are_labels_too():
    names = ["logit_late", "logit_on_time"]
    p = np.array([[0.2, 0.8], [0.6, 0.4]])
    wanted = metrics.brier_score([1, 0], p)
    assert metrics.brier_score(["logit_on_time", "logit_late"], p, classes=names) == wanted
    assert metrics.brier_score(["on_time", "late"], p, classes=names) == wanted
    found = metrics.set_coverage(["logit_on_time", "logit_late"], p > 0.5, classes=names)
    assert found.coverage.value == 1.0
    assert [part.name for part in found.parts] == ["late", "on_time"]


@pytest.mark.parametrize("as_frame", [False, True])
def test_the_coverage_of_a_class_is_under_its_own_name(as_frame):
    """Columns called 1 and 0 are read in the order of their numbers: the sets have the class 1 alone."""
    sets = np.array([[True, False]] * 5)
    y = [1, 1, 1, 0, 0]
    names = ["1", "0"]
    if as_frame:
        found = metrics.set_coverage(y, pd.DataFrame(sets, columns=names))
    else:
        found = metrics.set_coverage(y, sets, classes=names)
    assert {part.name: (part.n, part.coverage.value) for part in found.parts} == {"0": (2, 0.0), "1": (3, 1.0)}
    assert (found.worst_class, found.worst_coverage) == (0, 0.0)
