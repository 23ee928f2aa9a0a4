"""Selection and errors of each group, from the threshold on that a report begins with."""

from dataclasses import replace

import numpy as np
import pytest

from refocal import AutoCalibration
from refocal.decide import evaluate_decisions
from refocal.evaluate import evaluate, load_evaluation
from refocal.evaluate.summary import group_errors_table, n_events
from refocal.io import MultiLabelPredictions, Predictions
from refocal.report import render


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    p = rng.beta(1, 3, 3000)
    region = rng.choice(["north", "south", "west"], 3000, p=[0.6, 0.395, 0.005])
    y = np.where(rng.random(3000) < p, "late", "on time")
    given = Predictions.from_probabilities(p, y, positive_label="late")
    return given.with_groups({"region": region})


def test_rates_are_those_of_decisions_at_the_same_threshold(rows):
    found = evaluate(rows, {}, n_resamples=10).before.group_errors
    threshold = found[0].threshold
    assert threshold == pytest.approx(np.mean(rows.labels), abs=0.005)
    # A false alarm costs t and a miss 1 - t where acting from t on is the best.
    costs = [[0.0, threshold], [1.0 - threshold, 0.0]]
    decided = evaluate_decisions(rows, None, costs, groups=rows.groups).groups
    assert [group.name for group in found] == ["north", "south", "west"]
    for mine, theirs in zip(found, decided, strict=True):
        assert mine.n == theirs.n
        assert mine.selected.value == pytest.approx(theirs.selection_rate.value)
        assert mine.false_positive_rate.value == pytest.approx(theirs.false_positive_rate.value)
        assert mine.false_negative_rate.value == pytest.approx(theirs.false_negative_rate.value)
        assert mine.ppv.value == pytest.approx(theirs.ppv.value)
        assert mine.selected.level == pytest.approx(0.95 ** (1 / 12))
        assert mine.selected.low < mine.selected.value < mine.selected.high


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_at_the_threshold_are_selected_in_either_precision(dtype):
    p = np.where(np.arange(400) % 2, 0.4, 0.1).astype(dtype)
    labels = np.zeros(400, dtype=int)
    labels[1:280:2] = 1
    labels[0:40:2] = 1
    given = Predictions.from_probabilities(p, labels).with_groups({"half": np.arange(400) % 4 // 2})
    found = evaluate(given, {}, n_resamples=5).before
    (threshold,) = {group.threshold for group in found.group_errors}
    assert threshold == 0.4
    assert [group.selected.value for group in found.group_errors] == [0.5, 0.5]
    assert found.decisions.decided[found.decisions.threshold.index(threshold)] == 0.5


def test_a_page_shows_them_and_the_number_of_events(rows, tmp_path):
    fitted = AutoCalibration(input="probabilities").fit(rows)
    found = evaluate(rows, {"auto": fitted}, chosen="auto", n_resamples=10)
    found.save(tmp_path / "e.json")
    page = render(load_evaluation(tmp_path / "e.json"))
    assert page == render(found)
    assert 'id="group-errors-table"' in page
    north = group_errors_table(found)[0]
    assert north["group"] == "region = north"
    assert north["FPR %"] in page
    assert n_events(found) == f"{int(rows.labels.sum()):,} of them late"
    assert n_events(found) in page


def test_groups_without_rows_of_a_class_have_no_rate_of_it():
    p = [0.2, 0.2, 0.7, 0.7] * 10
    given = Predictions.from_probabilities(p, [0, 0, 1, 1] * 10).with_groups({"half": ["a", "a", "b", "b"] * 10})
    first, second = evaluate(given, {}, n_resamples=5).before.group_errors
    assert first.false_negative_rate is None
    assert first.ppv is None
    assert second.false_positive_rate is None
    assert second.ppv.value == 1.0


def test_a_column_of_groups_may_be_called_label(rows):
    column = next(iter(rows.groups))
    renamed = rows.with_groups({"label": rows.groups[column]})
    expected = [
        replace(group, column="label")
        for group in evaluate(rows.with_groups({column: rows.groups[column]}), {}, n_resamples=5).before.group_errors
    ]
    assert evaluate(renamed, {}, n_resamples=5).before.group_errors == expected
    assert len(expected) >= 2


def test_neither_labels_nor_many_groups_nor_many_classes_are_listed():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.1, 0.9, (200, 2))
    labels = (rng.random((200, 2)) < p).astype(int)
    several = evaluate(MultiLabelPredictions.from_probabilities(p, labels), {}, n_resamples=5)
    assert several.before.group_errors == []
    many = Predictions.from_probabilities(p[:, 0], labels[:, 0]).with_groups(np.arange(200) % 101)
    assert evaluate(many, {}, n_resamples=5).before.group_errors == []
    of_three = Predictions.from_logits(rng.normal(size=(60, 3)), [0, 1, 2] * 20).with_groups(["a", "b"] * 30)
    assert evaluate(of_three, {}, n_resamples=5).before.group_errors == []
