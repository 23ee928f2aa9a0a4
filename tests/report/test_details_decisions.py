"""The panel of decisions: its numbers against plain loops, and what is there without JavaScript."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from refocal import LogisticCalibration
from refocal.evaluate import Evaluation, evaluate
from refocal.io import Predictions
from refocal.report import render

rng = np.random.default_rng(0)
P = rng.beta(1, 4, 1000)
Y = (rng.random(1000) < P).astype(int)


@pytest.fixture(scope="module")
def two_classes():
    return evaluate(Predictions.from_probabilities(P, Y), {}, n_resamples=20)


def test_the_table_counts_rows(two_classes):
    found = two_classes.before.decisions
    for i, t in enumerate(found.threshold):
        acted = t <= P
        assert found.decided[i] == pytest.approx(acted.mean(), abs=1e-6)
        assert found.right[i] == pytest.approx((acted & (Y == 1)).mean(), abs=1e-6)
        assert found.promised[i] == pytest.approx(P[acted].sum() / 1000, abs=1e-6)


def test_weights_count(two_classes):
    weight = rng.random(1000) + 0.1
    found = evaluate(Predictions.from_probabilities(P, Y, weight=weight), {}, n_resamples=20).before.decisions
    i = found.threshold.index(0.3)
    assert found.right[i] == pytest.approx(weight[(P >= 0.3) & (Y == 1)].sum() / weight.sum(), abs=1e-6)


def test_costs_are_those_of_a_plain_loop(two_classes):
    html = render(two_classes)
    (row,) = re.findall(r'<tr><th scope="row">0.2</th>(.*?)</tr>', html)
    price, acted, alarms, cost = re.findall(r"<td>(.*?)</td>", row)
    chosen = P >= 0.2
    false, missed = (chosen & (Y == 0)).sum(), (~chosen & (Y == 1)).sum()
    assert price == "4 false alarms"
    assert re.search(r'<th scope="row">0.5</th><td>1 false alarm</td>', html)
    assert float(acted) == pytest.approx(100 * chosen.mean(), abs=0.006)
    assert float(alarms) == pytest.approx(100 * false / chosen.sum(), abs=0.006)
    assert float(cost) == pytest.approx(0.2 * false + 0.8 * missed, abs=0.06)


def test_text_and_slider_start_at_one_threshold(two_classes, evaluation):
    for found, at in ((two_classes, Y.mean()), (evaluation, 0.9)):
        text, thresholds = render(found), found.before.decisions.threshold
        start = int(re.search(r'id="decide-at" min="0" value="(\d+)"', text)[1])
        assert abs(thresholds[start] - at) == min(abs(t - at) for t in thresholds)
        assert f"<p>From {100 * thresholds[start]:g}\u00a0% on, " in text


def test_no_share_of_errors_where_nothing_is_decided():
    """The rate is higher than all probabilities: from it on no row is acted on."""
    p = 0.3 * P
    rows = Predictions.from_probabilities(p, rng.random(1000) < 0.5)
    page = render(evaluate(rows, {}, n_resamples=2))
    assert re.search(r"on, 0.00\u00a0% of the rows would be acted on, at a cost of", page)
    after = LogisticCalibration(input="probabilities").fit(p, rows.labels)
    page = render(evaluate(rows, {"mine": after}, chosen="mine", n_resamples=2))
    assert re.search(r"before calibration 0.00\u00a0% and \d", page)


def test_more_classes_are_decided_by_confidence(evaluation):
    html = render(evaluation)
    (row,) = re.findall(r'<tr><th scope="row">0.9</th>(.*?)</tr>', html)
    cells = re.findall(r"<td>(.*?)</td>", row)
    assert cells[0] == "0.1 mistakes"
    table = evaluation.after.decisions
    i = table.threshold.index(0.9)
    wrong = table.decided[i] - table.right[i]
    assert float(cells[4]) == pytest.approx(100 * table.decided[i], abs=0.006)
    assert float(cells[6]) == pytest.approx(1000 * (wrong + 0.1 * (1 - table.decided[i])), abs=0.06)
    cheapest = [float(cell) for cell in (cells[3], cells[6])]
    assert cheapest[1] < cheapest[0]  # the network was too sure: deciding by its confidence costs more


def test_without_javascript_there_is_a_table_and_a_chart(two_classes):
    page = render(two_classes)
    assert '<div id="decide" hidden>' in page
    assert 'id="decision-cost-title"' in page
    assert '<table id="decisions-table">' in page
    data = json.loads(re.search(r'id="decide-data">(.*?)</script>', page)[1])
    assert list(data) == ["as they are"]
    assert data["as they are"][0][:2] == ["0", "any number of false alarms"]


def test_old_evaluations_have_no_panel(two_classes):
    data = json.loads(json.dumps(two_classes.to_dict()))
    for method in data["methods"]:
        del method["decisions"]
    assert 'id="decisions"' in render(two_classes)
    assert 'id="decisions"' not in render(Evaluation.from_dict(data))
