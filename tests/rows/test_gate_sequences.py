"""Rows that were left out, taken, grouped or named before: what later steps say of them is of the rows as given."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from helpers import draw_logits
from refocal import GroupCalibration, TemperatureScaling, metrics
from refocal.decide import automation_curve, best_actions, evaluate_decisions
from refocal.errors import DataError, LabelError, ShapeError
from refocal.evaluate import compare, evaluate
from refocal.io import Predictions, TopK, blocks, multiple_choice

NAMES = np.array(["fine", "worn", "cracked"])


@pytest.fixture
def probabilities():
    rng = np.random.default_rng(0)
    p = rng.dirichlet([3.0, 1.0, 1.0], 600)
    labels = np.array([rng.choice(3, p=row) for row in p])
    return p, labels


def test_groups_that_are_measured_take_nothing_from_a_calibrator_of_groups():
    rng = np.random.default_rng(0)
    region = rng.choice(["north", "south"], 1500)
    age = rng.choice(["old", "young"], 1500)
    log_odds = 2.0 * rng.normal(size=1500)
    shift = np.where(region == "south", 3.0, -3.0)
    happens = (rng.random(1500) < 1 / (1 + np.exp(-log_odds - shift))).astype(int)
    rows = Predictions.from_log_odds(log_odds, happens).with_groups({"region": region})
    fitted = GroupCalibration(method="ts").fit(rows)
    plain = evaluate(rows, {"by region": fitted}, n_resamples=20)
    by_age = evaluate(rows, {"by region": fitted}, n_resamples=20, groups={"age": age})
    for evaluation in (plain, by_age):
        p = fitted.predict_proba(rows)[:, 1]
        expected = -np.mean(np.log(np.where(happens == 1, p, 1 - p)))
        assert evaluation["by region"].measures["log_loss"].value == pytest.approx(expected, rel=1e-6)
    assert {row.column for row in by_age["by region"].groups} == {"age"}
    assert {row.column for row in plain["by region"].groups} == {"region"}


@pytest.mark.parametrize("left_out", ["weight", "ignore_index", "taken"])
def test_examples_are_numbers_of_the_rows_as_given(left_out):
    logits, labels = draw_logits(400, 3)
    if left_out == "weight":
        weight = np.where(np.arange(400) < 100, 0.0, 1.0)
        rows = Predictions.from_logits(logits, labels, weight=weight)
    elif left_out == "ignore_index":
        rows = Predictions.from_logits(logits, np.where(np.arange(400) < 100, 9, labels), ignore_index=9)
    else:
        rows = Predictions.from_logits(logits, labels).take(np.arange(100, 400))
    for row in evaluate(rows, {}, n_resamples=20).before.classes:
        examples = np.array(row.detail.examples)
        assert len(examples) > 0
        assert (labels[examples] == row.label).all()
        assert (np.argmax(logits[examples], axis=1) != row.label).all()
        assert examples.min() >= 100


def test_rows_of_a_table_of_costs_are_those_of_the_classes_they_are_called_by(probabilities):
    p, labels = probabilities
    frame = pd.DataFrame(p, columns=NAMES)
    costs = pd.DataFrame([[0, 2, 8], [3, 0, 8], [60, 60, 0]], index=NAMES, columns=["keep", "repair", "replace"])
    moved = costs.sort_index()
    expected = np.argmin(p @ costs.to_numpy(), axis=1)
    for given in (frame, Predictions.from_probabilities(frame, NAMES[labels])):
        np.testing.assert_array_equal(best_actions(given, moved).action, expected)
    cost = costs.to_numpy()[labels, expected].mean()
    assert evaluate_decisions(NAMES[labels], frame, moved).cost.value == pytest.approx(cost, rel=1e-12)
    one, other = (automation_curve(NAMES[labels], frame, table, abstain=1.0) for table in (costs, moved))
    np.testing.assert_allclose(one.cost, other.cost)
    with pytest.raises(ShapeError, match="'broken' in one of them only"):
        best_actions(frame, costs.rename(index={"worn": "broken"}))


def test_one_hot_labels_are_not_taken_for_several_labels(probabilities):
    p, labels = probabilities
    for metric in (metrics.accuracy, metrics.brier_score, metrics.log_loss):
        with pytest.raises(LabelError, match="one-hot labels"):
            metric(np.eye(3)[labels], p)
    rng = np.random.default_rng(0)
    several = rng.random((600, 3))
    applies = (rng.random((600, 3)) < several).astype(int)
    assert metrics.brier_score(applies, several) == pytest.approx(np.mean((several - applies) ** 2))


def test_one_hot_labels_of_images_are_not_taken_for_several_labels(probabilities):
    p, labels = probabilities
    for shape in ((60, 10), (4, 15, 10)):
        one_hot = np.eye(3)[labels].reshape(*shape, 3)
        several = p.reshape(*shape, 3)
        for axis in (1, -1):
            ones = np.moveaxis(one_hot, -1, axis)
            scores = np.moveaxis(several, -1, axis)
            unlabelled = np.moveaxis(np.where(np.arange(shape[-1])[:, None] < 3, -1, one_hot), -1, axis)
            for refused in (
                lambda ones=ones, scores=scores: metrics.accuracy(ones, scores),
                lambda ones=ones, scores=scores: metrics.log_loss(ones, np.log(scores)),
                lambda ones=ones, scores=scores: metrics.brier_score(torch.tensor(ones), torch.tensor(scores)),
                lambda ones=unlabelled, scores=scores: metrics.accuracy(ones, scores, ignore_index=-1),
            ):
                with pytest.raises(LabelError, match="the argmax of one-hot labels"):
                    refused()
    # Several labels of a pixel, each with a probability of its own.
    rng = np.random.default_rng(0)
    own = rng.random((6, 3, 5, 4))
    applies = (rng.random(own.shape) < own).astype(int)
    assert metrics.brier_score(applies, own) == pytest.approx(np.mean((own - applies) ** 2))


def test_one_hot_labels_are_known_by_log_probabilities_rounded_ones_and_rows_without_a_label(probabilities):
    p, labels = probabilities
    one_hot = np.eye(3, dtype=int)[labels]
    halves = np.column_stack([1.0 - p[:, 0], p[:, 0]])
    half_labels = np.eye(2, dtype=int)[(labels == 0).astype(int)]
    entries = [
        lambda: metrics.log_loss(one_hot, np.log(p)),
        lambda: metrics.log_loss(one_hot, np.log(p).astype(np.float32)),
        lambda: metrics.log_loss_skill(half_labels, np.log(halves)),
        lambda: metrics.bootstrap_interval(metrics.log_loss, one_hot, np.log(p)),
        lambda: metrics.paired_bootstrap(metrics.log_loss, one_hot, np.log(p), np.log(p[::-1])),
        lambda: metrics.brier_score(one_hot, p.round(2)),
        lambda: metrics.brier_score(one_hot, p.round(2).astype(np.float32)),
        lambda: metrics.brier_score(np.eye(10)[np.arange(60) % 10], np.tile([0.1] * 9 + [0.096], (60, 1))),
        lambda: metrics.roc_auc(half_labels, halves.round(2)),
    ]
    unlabelled = np.where(np.arange(600)[:, None] < 9, -1, one_hot)
    for metric, scores in ((metrics.brier_score, p), (metrics.accuracy, p.round(2)), (metrics.log_loss, np.log(p))):
        entries.append(lambda metric=metric, scores=scores: metric(unlabelled, scores, ignore_index=-1))
    for entry in entries:
        with pytest.raises(LabelError, match="the argmax of one-hot labels"):
            entry()


def test_several_labels_of_which_each_row_has_one_are_no_classes(probabilities):
    _, labels = probabilities
    one_hot = np.eye(3, dtype=int)[labels]
    rng = np.random.default_rng(0)
    # A model that is sure of one label in each row: the sums are near 1, but those of classes they are not.
    sure = np.where(one_hot == 1, 0.99, 0.002) + 0.005 * rng.random((600, 3))
    spread = rng.random((600, 3)).round(2)
    for p in (sure, spread, sure[:5].round(2)):
        ones = one_hot[: len(p)]
        assert metrics.brier_score(ones, p) == pytest.approx(np.mean((p - ones) ** 2))
    # Single labels that are left out are not those of one-hot rows.
    some = np.where(rng.random((600, 3)) < 0.1, -1, one_hot)
    known = some >= 0
    p = np.tile([0.5, 0.3, 0.2], (600, 1))
    expected = np.mean((p[known] - some[known]) ** 2)
    assert metrics.brier_score(some, p, ignore_index=-1) == pytest.approx(expected)


@pytest.mark.parametrize("wrong", [np.exp, np.negative, lambda log_p: np.full_like(log_p, -np.inf)])
def test_log_probabilities_of_labels_are_logarithms(wrong):
    log_p = np.log([[0.5, 0.2], [0.7, 0.2]])
    of_labels = np.log([0.1, 0.7])
    with pytest.raises(DataError, match=r"'label_log_p' .* at most 0"):
        TopK(log_p, [[3, 0], [1, 2]], [1, 1], n_classes=4, label_log_p=wrong(of_labels))


def test_an_order_has_every_column_once():
    rows = Predictions.from_logits([[2.0, 0.5, 0.1], [0.1, 0.3, 0.2]], [0, 1])
    assert rows.reordered([2, 0, 1]).labels.tolist() == [1, 2]
    for order in ([0, 0, 1], [0, 1], [1, 2, 3]):
        with pytest.raises(ShapeError, match="the numbers of all 3 columns, each once"):
            rows.reordered(order)


def test_no_rows_and_single_numbers_are_refused_in_words():
    rows = Predictions.from_logits([[2.0, 0.5, 0.1], [0.1, 0.3, 0.2]], [0, 1])
    empty = rows.take(np.array([], dtype=int))
    entries = [
        lambda: TemperatureScaling().fit(empty),
        lambda: evaluate(empty, {}),
        lambda: compare(rows, empty, ["ts"]),
        lambda: metrics.log_loss(empty),
    ]
    for entry in entries:
        with pytest.raises(ShapeError, match=r"at least one row"):
            entry()
    with pytest.raises(ShapeError, match="indices or flags of rows"):
        rows.take(1)
    with pytest.raises(DataError, match="Predictions, which fits take as they are"):
        blocks([rows])


def test_predictions_are_scored_with_their_own_labels():
    logits, labels = draw_logits(300, 3)
    rows = Predictions.from_logits(logits, NAMES[labels], class_names=NAMES)
    fitted = TemperatureScaling().fit(rows)
    assert fitted.score(rows) == np.mean(np.argmax(logits, axis=1) == labels)


def test_options_of_questions_may_be_tensors():
    torch = pytest.importorskip("torch")
    rows = [torch.tensor([-1.5, -0.25], dtype=torch.bfloat16), torch.tensor([-2.0, -0.5, -3.0], requires_grad=True)]
    np.testing.assert_array_equal(multiple_choice(rows, [1, 1]).values[0], [-1.5, -0.25, -np.inf])
    with pytest.raises((DataError, ShapeError), match="'scores' of multiple_choice"):
        multiple_choice([["a", "b"]], [0])


def test_errors_name_the_row_as_it_was_given_though_others_were_left_out():
    logits, labels = draw_logits(40, 3, seed=0)
    logits[10, 1] = np.nan
    weight = np.r_[np.zeros(5), np.ones(35)]
    with pytest.raises(DataError, match="NaN in row 10 "):
        TemperatureScaling().fit(logits, labels, sample_weight=weight)
    with pytest.raises(DataError, match="NaN in row 10 "):
        Predictions.from_logits(logits, labels, weight=weight)
    marked = np.where(np.arange(40) < 5, -100, labels)
    with pytest.raises(DataError, match="NaN in row 10 "):
        TemperatureScaling().fit(logits, marked, ignore_index=-100)


def test_a_cluster_may_be_called_missing_and_none_may_be():
    logits, labels = draw_logits(40, 3, seed=0)
    names = np.array(["missing", "known"])[np.arange(40) % 2]
    rows = Predictions.from_logits(logits, labels, clusters={"day": names})
    assert len(np.unique(rows.clusters)) == 2
    for nothing in ("", None, float("nan")):
        unknown = [*names[:-1], nothing]
        with pytest.raises(DataError, match="none in row 39 of 'day'"):
            Predictions.from_logits(logits, labels, clusters={"day": unknown})


def test_rows_with_labels_that_all_have_weight_0_are_refused_by_their_weights():
    logits, labels = draw_logits(20, 3, seed=0)
    labels[:10] = -100
    weight = np.r_[np.ones(10), np.zeros(10)]
    with pytest.raises(DataError, match=r"'sample_weight' of .*fit must be above 0 for at least one row that has"):
        TemperatureScaling().fit(logits, labels, weight, ignore_index=-100)
    with pytest.raises(LabelError, match=r"'y' of .*fit must be of at least one row that 'ignore_index'"):
        TemperatureScaling().fit(logits, np.full(20, -100), ignore_index=-100)
