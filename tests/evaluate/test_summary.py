"""Sentences on an evaluation: their numbers tell apart what they say is different."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from refocal._json import to_json
from refocal.calibrators import IsotonicCalibration, LogisticCalibration
from refocal.evaluate import Evaluation, check_requirements, compare, evaluate
from refocal.evaluate.summary import group_verdict, p_value_text, recommendation, remarks, verdict
from refocal.io import Predictions, blocks
from refocal.report import render
from refocal.segments import Segment

NUMBER = r"[+−]?(\d+\.\d+)"


def rare_events():
    """An evaluation of 3 million rows of which 0.0216 % have the event, and 0.0240 % are expected to."""
    rows = Predictions.from_probabilities([0.2, 0.4] * 50, [0, 0, 0, 1] * 25)
    found = evaluate(rows, {}, groups={"region": ["north"] * 100}, n_resamples=10)
    bias = replace(found.before.stated_bias, value=0.000024, low=0.000008, high=0.00004)
    group = replace(found.before.groups[0], mean=0.00024, rate=0.000216, difference=bias)
    histogram = replace(found.before.histogram, right=[648.0], wrong=[3e6 - 648.0])
    measures = found.before.measures | {"mean_bias": bias}
    changes = {"stated_bias": bias, "groups": [group], "histogram": histogram, "measures": measures}
    return replace(found, methods=[replace(found.before, **changes)])


def test_what_differs_significantly_is_written_differently_also_of_rare_events():
    """It was 0.02 %, but occurred in 0.02 % of the rows: 0.00 points too high."""
    found = rare_events()
    mean, rate, off = map(
        float, re.search(f"is {NUMBER} %, but .* in {NUMBER} % .* {NUMBER} points", verdict(found)).groups()
    )
    assert (mean, rate, off) == (0.024, 0.022, 0.002)
    said = group_verdict(found)
    numbers = re.search(f"north: {NUMBER} % against {NUMBER} %, {NUMBER} points .{NUMBER} – {NUMBER}.", said)
    assert tuple(map(float, numbers.groups())) == (0.024, 0.022, 0.002, 0.001, 0.004)
    segment = Segment([], 3_000_000, 0.00024, 0.000216, found.before.groups[0].difference)
    assert "predicted 0.024 %, occurred 0.022 %" in str(segment)


def test_the_sentence_of_a_requirement_shows_why_it_is_met_or_not():
    """An ECE of 1.9999 % was said to be 2.00 %, of which less than 2.00 % were required."""
    found = evaluate(Predictions.from_probabilities([0.2, 0.4] * 50, [0, 0, 0, 1] * 25), {}, n_resamples=10)

    def said(value, requirement):
        ece = replace(found.before.measures["ece"], value=value)
        other = replace(found, methods=[replace(found.before, measures=found.before.measures | {"ece": ece})])
        (check,) = check_requirements(other, [requirement])
        return check.passed, check.text

    assert said(0.019999, "ece<2%") == (True, "ECE 1.9999 % of none; required < 2.0000 %")
    assert said(0.020001, "ece<=0.02") == (False, "ECE 2.0001 % of none; required <= 2.0000 %")
    assert said(0.02, "ece<2%") == (False, "ECE 2.00 % of none; required < 2.00 %")
    assert said(0.05, "ece<2.004%") == (False, "ECE 5.000 % of none; required < 2.004 %")
    assert said(0.05, "ece<7%") == (True, "ECE 5.00 % of none; required < 7.00 %")


@pytest.mark.parametrize("p_value", [0.0499, 0.0501, 0.04999, 0.0123, 0.2, 0.0009])
def test_a_p_value_is_on_the_side_of_the_level_on_which_it_is_written(p_value):
    text = p_value_text(p_value, 1 - 0.95)
    assert (float(text.split()[1]) < 0.05) == (p_value < 0.05)
    assert (float(text.split()[1]) > 0.05) == (p_value > 0.05)


def test_a_log_loss_that_falls_is_written_with_the_digits_that_show_it():
    """Of a model that is nearly always right, which is slightly too sure: it fell from 0.077 to 0.077."""
    rng = np.random.default_rng(0)
    scores = 9.0 * rng.dirichlet(np.full(3, 0.1), 60_000)
    labels = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    validation = Predictions.from_logits(1.08 * scores[:20_000], labels[:20_000])
    test = Predictions.from_logits(1.08 * scores[20_000:], labels[20_000:])
    said = verdict(compare(validation, test, ["ts"], chosen="ts", n_resamples=10))
    numbers = re.search(r"lowers the log-loss from (0\.\d+) to (0\.\d+);", said)
    assert numbers is not None
    assert float(numbers[1]) > float(numbers[2])


@pytest.mark.parametrize("only", [0, 1])
@pytest.mark.parametrize("in_blocks", [False, True])
def test_methods_are_not_told_apart_on_rows_of_one_class(only, in_blocks):
    rng = np.random.default_rng(0)
    log_odds = rng.normal(size=1000) - 1.0
    p = 1.0 / (1.0 + np.exp(-log_odds))
    y = (rng.random(1000) < p).astype(np.int64)
    names = ("no", "yes")
    calibrators = {
        "logistic": LogisticCalibration(input="probabilities").fit(p[:600], y[:600]),
        "isotonic": IsotonicCalibration(input="probabilities").fit(p[:600], y[:600]),
    }
    # The rows of the other class have no weight.
    p, y, weight = p[600:], y[600:], (y[600:] == only).astype(float)
    rows = Predictions.from_probabilities(p, y, weight=weight, class_names=names)
    if in_blocks:
        rows = blocks([(p, y, weight)], input="probabilities", class_names=names)
    said = f"the test rows are all of class {names[only]}: methods cannot be told apart."
    found = evaluate(rows, calibrators)
    assert not found.recommended
    worth = int((weight > 0).sum())
    expected = "it takes 100 test rows" if worth < 100 else said
    assert expected in recommendation(found)
    shown = evaluate(rows, calibrators, chosen="isotonic")
    assert recommendation(shown).endswith(said.replace("the test", "The test"))
    for evaluation in (found, shown):
        assert "does not change the log-loss significantly" in verdict(evaluation) or evaluation.chosen == "none"
        for method in evaluation.methods:
            for difference in (method.against_none | method.against_chosen).values():
                assert (difference.p_value, difference.low, difference.high) == (1.0, -np.inf, np.inf)
        assert Evaluation.from_dict(json.loads(to_json(evaluation.to_dict()))) == evaluation
        assert "significantly better" not in render(evaluation)


def test_one_row_is_said_in_the_singular():
    found = evaluate(Predictions.from_probabilities([0.3], [0]), {}, n_resamples=5)
    assert "1 row is few: the result may be due to chance." in remarks(found)
