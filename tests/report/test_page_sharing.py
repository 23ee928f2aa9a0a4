"""Reports that people send to each other: titles, notes, requirements, several evaluations, differences."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from scipy.stats import t as student

from refocal.errors import ParameterError
from refocal.evaluate import check_requirements, differences, evaluate
from refocal.evaluate.difference import CHOSEN
from refocal.io import Predictions
from refocal.report import render
from refocal.report.page import notes_html


@pytest.mark.parametrize(
    ("requirement", "passed"),
    [("ece<{}%", False), ("ece<={}%", True), ("ece>{}%", False), ("ece >= {} %", True), ("ece<99%", True)],
)
def test_a_requirement_compares_as_it_says(evaluation, requirement, passed):
    ece = evaluation.after.measures["ece"]
    found = replace(evaluation.after, measures={**evaluation.after.measures, "ece": replace(ece, value=0.25)})
    others = [method for method in evaluation.methods if method.name != found.name]
    exact = replace(evaluation, methods=[*others, found])
    (check,) = check_requirements(exact, [requirement.format("25")])
    assert check.passed is passed
    assert "ECE 25.00 %" in check.text


def test_a_requirement_may_name_another_method_or_a_measure_without_interval(evaluation):
    better, same, other = check_requirements(evaluation, ["log_loss<none", "log_loss<=fts", "classwise_ece<0.5"])
    assert better.passed
    assert same.passed
    assert other.passed == (evaluation.after.values["classwise_ece"] < 0.5)
    assert "of none" in better.text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("ece", "of the form"),
        ("ece=1", "of the form"),
        ("ecee<1", "did you mean 'ece'"),
        ("ece<tts", "did you mean 'ts'"),
    ],
)
def test_a_wrong_requirement_is_explained(evaluation, wrong, message):
    with pytest.raises(ParameterError, match=message):
        check_requirements(evaluation, [wrong])


def test_the_page_says_what_passed_and_what_failed(evaluation):
    text = render(evaluation, title="Ours & yours", notes="Trained in *May*.", require=["ece<99%", "accuracy>99%"])
    assert "Calibration of Ours &amp; yours" in text
    assert "<em>May</em>" in text
    assert text.count('<li class="passed">') == text.count('<li class="failed">') == 1


def test_notes_load_and_run_nothing():
    html = notes_html("# Big\n<script>x</script> ![a](http://x/y.png) [b](javascript:alert(1)) [c](https://x.org)")
    assert "<script" not in html
    assert "<img" not in html
    assert 'href="javascript' not in html
    assert "<h2>Big</h2>" in html


def test_several_evaluations_stand_side_by_side(evaluation):
    later = replace(evaluation, title="later", chosen="ts")
    text = render([evaluation, later, evaluation])
    assert "3 evaluations side by side" in text
    assert text.count('id="fig-diagram-') == 3
    assert "→ later" not in text  # models are no moments in time
    assert "What changed?" not in text
    assert "a &lt;test&gt; &amp; more (1) → later" in render([evaluation, later, evaluation], over_time=True)


def test_the_lowest_of_several_evaluations_may_be_shared(evaluation):
    """Of two equal ones the first was said to be the lowest; of nearly equal ones the digits say which it is."""

    def with_ece(title, value):
        ece = replace(evaluation.after.measures["ece"], value=value)
        after = replace(evaluation.after, measures=evaluation.after.measures | {"ece": ece})
        return replace(evaluation, title=title, methods=[evaluation.before, after])

    assert "a and c share the lowest ECE, 1.20\u00a0%." in render(
        [with_ece("a", 0.012), with_ece("b", 0.02), with_ece("c", 0.012)]
    )
    assert "b has the lowest ECE, 1.203\u00a0%." in render([with_ece("a", 0.01204), with_ece("b", 0.01203)])
    assert "b has the lowest ECE, 1.20\u00a0%." in render([with_ece("a", 0.02), with_ece("b", 0.01204)])


def test_differences_are_those_of_independent_normal_means(evaluation):
    """With symmetric intervals the method recovers the normal interval of a difference."""

    def with_loss(value, half):
        loss = replace(evaluation.after.measures["log_loss"], value=value, low=value - half, high=value + half)
        method = replace(evaluation.after, measures={**evaluation.after.measures, "log_loss": loss})
        return replace(evaluation, methods=[evaluation.before, method])

    for new, verdict in ((0.8, "better"), (1.2, "worse"), (1.04, "statistically indistinguishable")):
        changes = differences(with_loss(1.0, 0.03), with_loss(new, 0.04))
        change = next(c for c in changes if (c.method, c.measure) == ("fts", "log_loss"))
        np.testing.assert_allclose([change.low, change.high], [new - 1.0 - 0.05, new - 1.0 + 0.05], atol=1e-12)
        assert change.verdict == verdict
    assert math.isclose(0.05, math.hypot(0.03, 0.04))
    accuracy = [c for c in differences(evaluation, evaluation) if c.measure == "accuracy"]
    assert {c.verdict for c in accuracy} == {"statistically indistinguishable"}


def test_verdicts_on_several_measures_are_adjusted_together(evaluation):
    """Holm in each of two families, and Šidák for the two: one change of p = 0.02 among several is no statement."""

    def with_loss(value):
        """An evaluation whose chosen method alone has another log-loss, with an interval of ± 1.96 / √2."""
        half = 1.959964 / 2**0.5
        loss = replace(evaluation.after.measures["log_loss"], value=value, low=value - half, high=value + half)
        method = replace(evaluation.after, measures={**evaluation.after.measures, "log_loss": loss})
        return replace(evaluation, methods=[evaluation.before, method])

    for z, verdict in ((2.326, "statistically indistinguishable"), (4.0, "worse")):
        changes = differences(with_loss(10.0), with_loss(10.0 + z))
        of_chosen = [change for change in changes if change.method == CHOSEN]
        of_methods = [change for change in changes if change.method != CHOSEN]
        alone = 2 * NormalDist().cdf(-z)  # the standard error of the difference is 1
        for family in (of_chosen, of_methods):
            (change,) = [change for change in family if change.p_value < 1.0]
            assert change.measure == "log_loss"
            assert change.p_value == pytest.approx(1 - (1 - min(1.0, len(family) * alone)) ** 2, rel=1e-4)
            assert change.verdict == verdict
            assert change.low > 0.0  # the interval is not adjusted


def test_changes_of_few_clusters_have_the_quantiles_of_student(evaluation):
    def with_loss(value, **run):
        loss = replace(evaluation.after.measures["log_loss"], value=value, low=value - 0.1, high=value + 0.1)
        method = replace(evaluation.after, measures={**evaluation.after.measures, "log_loss": loss})
        return replace(evaluation, methods=[evaluation.before, method], run={**evaluation.run, **run})

    of_rows = differences(with_loss(1.0), with_loss(1.3))
    of_clusters = differences(with_loss(1.0, clusters="8"), with_loss(1.3, clusters="30"))
    pairs = list(zip(of_rows, of_clusters, strict=True))
    n_tested = sum(change.method == CHOSEN for change in of_rows)
    for rows, clusters in pairs:
        assert (rows.low, rows.high) == (clusters.low, clusters.high)
    t = 2.364624 * 0.3 / (0.1 * 2**0.5)  # the quantile of 7 degrees of freedom, by as many margins as the change is
    alone = 2 * student.sf(t, 7)
    adjusted = next(change.p_value for change in of_clusters if change.p_value < 1.0)
    assert adjusted == pytest.approx(1 - (1 - n_tested * alone) ** 2, rel=1e-4)
    assert adjusted > next(change.p_value for change in of_rows if change.p_value < 1.0)


@pytest.fixture(scope="module")
def of_two():
    """A function (mean p less the rate, half of its interval) → an evaluation of two classes."""
    rng = np.random.default_rng(0)
    p = rng.beta(2, 3, 400)
    rows = Predictions.from_probabilities(p, (rng.random(400) < p).astype(int))
    found = evaluate(rows, {}, n_resamples=20)

    def with_bias(value, half):
        bias = replace(found.after.measures["mean_bias"], value=value, low=value - half, high=value + half)
        return replace(found, methods=[replace(found.after, measures={**found.after.measures, "mean_bias": bias})])

    return with_bias


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (-0.0015, -0.1223, "worse"),
        (-0.1223, -0.0015, "better"),
        (0.0015, 0.1223, "worse"),
        (0.1, -0.01, "better"),
        (0.1, -0.1, "statistically indistinguishable"),
        (-0.01, 0.2, "worse"),
    ],
)
def test_a_bias_is_judged_by_its_distance_from_0(of_two, old, new, verdict):
    changes = differences(of_two(old, 0.003), of_two(new, 0.004))
    change = next(c for c in changes if c.measure == "mean_bias")
    assert change.verdict == verdict
    assert (change.old, change.new) == (old, new)
    if min(abs(old), abs(new)) > 0.004:  # neither interval holds 0
        distance = abs(new) - abs(old)
        np.testing.assert_allclose([change.low, change.high], [distance - 0.005, distance + 0.005], atol=1e-12)


@pytest.mark.parametrize(("requirement", "passed"), [("mean_bias<1%", False), ("mean_bias<13%", True)])
@pytest.mark.parametrize("value", [-0.12, 0.12])
def test_a_requirement_on_a_bias_is_on_its_distance_from_0(of_two, value, requirement, passed):
    (check,) = check_requirements(of_two(value, 0.004), [requirement])
    assert check.passed is passed
    with pytest.raises(ParameterError, match="a limit of 0 or more: mean_bias is compared by its distance from 0"):
        check_requirements(of_two(value, 0.004), ["mean_bias>-1%"])
