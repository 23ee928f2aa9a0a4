"""O/E, intercept, slope, ICI and the flexible curve in evaluations, in memory and in blocks, in pages and sentences."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from refocal import AutoCalibration, GroupCalibration, LogisticCalibration
from refocal._json import to_json
from refocal.errors import ParameterError
from refocal.evaluate import Evaluation, check_requirements, evaluate, verdict
from refocal.evaluate.standards import STANDARDS, standards_table, still_off
from refocal.io import Predictions, blocks
from refocal.metrics import METRICS, calibration_slope, flexible_curve, integrated_calibration_index
from refocal.report.page import render


def draw(n=4000, shift=0.0, slope=0.7, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(shift, 1.2, n)
    y = (rng.random(n) < 1 / (1 + np.exp(-(slope * z - 0.5)))).astype(int)
    return y, 1 / (1 + np.exp(-z)), rng


@pytest.fixture(scope="module")
def found():
    y, p, rng = draw()
    region = rng.choice(["north", "south"], len(y))
    rows = Predictions.from_probabilities(p, y, class_names=["on time", "late"])
    fitted = LogisticCalibration(input="probabilities").fit(p, y)
    return evaluate(rows, {"logistic": fitted}, chosen="logistic", n_resamples=50, groups={"region": region})


def test_an_evaluation_of_two_classes_has_them_with_intervals(found):
    y, p, _ = draw()
    for name in STANDARDS[:-1]:
        interval = found.before.measures[name]
        assert interval.low < interval.high
    # Predictions of probabilities are stored as they came, and measured from their logarithms.
    assert found.before.measures["calibration_slope"].value == pytest.approx(calibration_slope(y, p), rel=1e-9)
    assert found.before.measures["ici"].value == pytest.approx(integrated_calibration_index(y, p), rel=1e-9)
    assert found.before.measures["calibration_slope"].high < 0.8
    after = found.after.measures
    assert after["calibration_slope"].low < 1.0 < after["calibration_slope"].high
    assert after["observed_expected"].value == pytest.approx(1.0, abs=1e-3)
    curve = flexible_curve(y, p)
    assert found.before.curve.rate == pytest.approx(curve.rate, rel=1e-9)
    assert found.after.curve is not None
    assert Evaluation.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_rows_in_blocks_have_the_same_but_for_the_curve():
    y, p, rng = draw(3000)
    weight = rng.random(3000)
    cluster = rng.integers(0, 300, 3000)
    for more in ({}, {"weight": weight}):
        memory = evaluate(Predictions.from_probabilities(p, y, **more), {}, n_resamples=20)
        parts = [slice(0, 1000), slice(1000, 3000)]
        if more:
            given = [(np.stack([1 - p[part], p[part]], axis=1), y[part], weight[part]) for part in parts]
        else:
            given = [(np.stack([1 - p[part], p[part]], axis=1), y[part]) for part in parts]
        streamed = evaluate(blocks(given, input="probabilities"), {})
        for name in STANDARDS[:3]:
            mine = streamed.before.measures[name]
            theirs = memory.before.measures[name]
            assert mine.value == pytest.approx(theirs.value, rel=1e-6, abs=1e-7)
            assert (mine.low, mine.high) == pytest.approx((theirs.low, theirs.high), rel=1e-3)
        assert "ici" not in streamed.before.measures
        assert streamed.before.curve is None
        assert standards_table(streamed)
    clustered = evaluate(Predictions.from_probabilities(p, y), {}, n_resamples=20, clusters=cluster)
    assert clustered.before.measures["calibration_slope"].low < clustered.before.measures["calibration_slope"].high


def test_a_table_has_values_and_claims_no_deviation(found):
    table = standards_table(found)
    assert [row["measure"] for row in table] == [
        "O/E",
        "calibration intercept",
        "calibration slope",
        "ICI %",
        "E-max %",
    ]
    assert [row["best"] for row in table] == ["1", "0", "1", "0", "0"]
    alone = standards_table(replace(found, chosen="none"))
    assert set(table[0]) == {"measure", "best", "before", "after"}
    assert set(alone[0]) == {"measure", "best", "as it is"}
    assert "too extreme" not in str(table + alone)
    many = evaluate(Predictions.from_logits(3.0 * np.eye(3), [0, 1, 2]), {}, n_resamples=5)
    assert standards_table(many) == []


def test_a_verdict_says_what_is_still_off():
    y, p, rng = draw(6000)
    region = np.where(rng.random(6000) < 0.5, "north", "south")
    y = np.where((region == "south") & (rng.random(6000) < 0.5), 0, y)
    rows = Predictions.from_probabilities(p, y)
    fitted = AutoCalibration(input="probabilities").fit(p, y)
    found = evaluate(rows, {"auto": fitted}, chosen="auto", n_resamples=20, groups={"region": region})
    assert still_off(found) == "Still significantly off: the mean of 2 of 2 groups."
    assert verdict(found).endswith(still_off(found))
    right = evaluate(rows, {"auto": fitted}, chosen="auto", n_resamples=20)
    assert still_off(right) == ""
    assert "Still" not in verdict(right)
    shifted = evaluate(Predictions.from_probabilities(p, 1 - y), {"auto": fitted}, chosen="auto", n_resamples=20)
    assert "the mean probability (" in still_off(shifted)
    assert "points of the reliability diagram" in still_off(shifted)


@pytest.mark.parametrize(
    ("requirement", "ends"),
    [
        ("ece<-2%", "at least 0 % and at most 100 %"),
        ("ece<150%", "at least 0 % and at most 100 %"),
        ("log_loss<-1", "at least 0"),
        ("roc_auc>1.5", "at least 0 and at most 1"),
        ("log_loss_skill>101%", "at most 100 %"),
    ],
)
def test_a_requirement_that_no_method_can_meet_or_miss_is_refused(found, requirement, ends):
    measure = re.match(r"\w+", requirement)[0]
    expected = f"must be a limit that {measure} can reach, of {ends}. Got '{requirement}' instead"
    with pytest.raises(ParameterError, match=re.escape(expected)):
        check_requirements(found, [requirement])
    assert check_requirements(found, ["calibration_slope>-1"])[0].passed


def test_requirements_compare_the_slope_as_it_is(found):
    checks = check_requirements(found, ["calibration_slope>0.9", "calibration_slope<1.1", "calibration_intercept<0.1"])
    assert [check.passed for check in checks] == [True, True, True]
    alone = replace(found, chosen="none")
    checks = check_requirements(alone, ["calibration_slope>=0.9", "observed_expected<0.5", "calibration_intercept<0.1"])
    assert [check.passed for check in checks] == [False, False, False]
    assert METRICS["calibration_slope"].judged(0.7) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("measure", "nearer", "farther", "best"),
    [
        ("observed_expected", 1.1, 0.7, 1),
        ("observed_expected", 0.9, 1.3, 1),
        ("calibration_slope", 0.8, 1.4, 1),
        ("calibration_slope", 1.1, 0.6, 1),
        ("calibration_intercept", 0.1, -0.5, 0),
        ("mean_bias", -0.01, 0.05, 0),
    ],
)
def test_requirements_compare_methods_by_the_distance_from_the_best_value(found, measure, nearer, farther, best):
    def of(method, value):
        measures = method.measures | {measure: replace(method.measures[measure], value=value)}
        return replace(method, measures=measures)

    first, second = found.methods
    for values, is_better in (((farther, nearer), True), ((nearer, farther), False)):
        methods = [of(first, values[0]), of(second, values[1])]
        both = replace(found, methods=methods, chosen=second.name)
        below, above = check_requirements(both, [f"{measure}<={first.name}", f"{measure}>{first.name}"])
        assert (below.passed, above.passed) == (is_better, not is_better)
        assert f" from {best} of {first.name}" in below.text


def test_a_page_begins_with_them(found):
    page = render(found)
    assert page.index('id="standards"') < page.index('id="reliability"')
    assert page.count("Flexible calibration curve") == 2
    assert "even in log-odds" not in page


def test_the_axes_of_a_rare_class_are_even_in_log_odds():
    y, p, _ = draw(4000, shift=-4.0)
    page = render(evaluate(Predictions.from_probabilities(p, y), {}, n_resamples=20))
    assert "both axes even in log-odds" in page
    assert ">0.01</text>" in page


@pytest.mark.parametrize(
    ("y", "p"), [([0, 0, 1, 1], [0.1, 0.2, 0.7, 0.8]), ([0, 1, 1, 1], [0.5] * 4), ([0, 0], [0.1, 0.2])]
)
def test_what_does_not_exist_is_left_out(y, p):
    found = evaluate(Predictions.from_probabilities(p, y), {}, n_resamples=5)
    assert "calibration_slope" not in found.before.measures
    assert "observed_expected" in found.before.measures
    json.loads(to_json(found.to_dict()), parse_constant=pytest.fail)
    assert 'id="standards"' in render(found)


def test_a_slope_that_only_one_side_has_is_no_obstacle():
    rng = np.random.default_rng(0)
    region = rng.choice(["north", "south"], 2000)
    y = (rng.random(2000) < np.where(region == "north", 0.2, 0.6)).astype(int)
    rows = Predictions.from_probabilities(np.full(2000, 0.4), y).with_groups({"region": region})
    fitted = GroupCalibration(input="probabilities").fit(rows)
    found = evaluate(rows, {"group": fitted}, chosen="group", n_resamples=5)
    assert "calibration_slope" not in found.before.measures
    assert "calibration_slope" in found.after.measures
    table = {row["measure"]: row for row in standards_table(found)}
    assert table["calibration slope"]["before"] == "–"
    assert "(" in table["calibration slope"]["after"]
    assert 'id="standards"' in render(found)
