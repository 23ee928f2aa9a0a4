"""What an evaluation states: tests against formulas and simulations, and sentences on models that are calibrated."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax

from refocal import metrics
from refocal.errors import FitWarning
from refocal.evaluate import compare, recommendation, verdict
from refocal.evaluate.statements import (
    MethodTests,
    ScoreTest,
    holm,
    score_terms,
    statement_levels,
)
from refocal.evaluate.summary import ece_against_none, group_verdict, remarks
from refocal.io import Predictions
from refocal.metrics import PairedDifference


def calibrated(rng, n_rows, n_classes, sharp=1.0):
    """Rows whose labels are drawn from the probabilities of their logits."""
    logits = 2.0 * rng.normal(size=(n_rows, n_classes))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return Predictions.from_logits(sharp * logits, labels)


def test_holm_is_the_step_down_procedure():
    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 20):
        p_values = rng.random(n) ** 3
        adjusted = holm(dict(enumerate(p_values)))
        for alpha in (0.01, 0.05, 0.3):
            # The definition: going up from the smallest, reject while p < α / (number of those left).
            rejected = set()
            for rank, i in enumerate(np.argsort(p_values)):
                if p_values[i] > alpha / (n - rank):
                    break
                rejected.add(int(i))
            assert {i for i, p in adjusted.items() if p <= alpha} == rejected


def test_the_level_is_shared_by_all_statements():
    levels = statement_levels(0.9, n_methods=3, n_groups=4, n_classes=5, n_shown=2)
    assert levels.methods * levels.of_one**18 == pytest.approx(0.9)  # 9 diagrams and means each
    assert statement_levels(0.9, 0, 0, 5).of_one == 0.9


def test_a_score_is_the_derivative_of_the_log_loss():
    rng = np.random.default_rng(1)
    log_p, log_q = (log_softmax(rng.normal(size=(50, 4)), axis=1) for _ in range(2))
    labels = rng.integers(4, size=50)

    def log_loss(step):
        return -log_softmax(log_p + step * (log_q - log_p), axis=1)[np.arange(50), labels]

    score, variance = score_terms(log_p, log_q, labels)
    np.testing.assert_allclose(score, (log_loss(1e-6) - log_loss(-1e-6)) / 2e-6, atol=1e-8)
    # Its variance over the labels that the model expects, by a plain sum.
    of_label = np.stack([score_terms(log_p, log_q, np.full(50, k))[0] for k in range(4)], axis=1)
    p = np.exp(log_p)
    np.testing.assert_allclose((p * of_label).sum(axis=1), 0.0, atol=1e-12)
    np.testing.assert_allclose(variance, (p * of_label**2).sum(axis=1), rtol=1e-9)


def test_a_class_that_the_model_excludes_has_no_say_in_the_score():
    with np.errstate(divide="ignore"):
        log_p = np.log(np.array([[0.25, 0.75, 0.0]]))
        log_q = np.log(np.array([[0.5, 0.5, 0.0]]))
    score, variance = score_terms(log_p, log_q, np.array([0]))
    expected = np.log(0.5) - (0.25 * np.log(0.5) + 0.75 * np.log(1.5))
    assert score[0] == pytest.approx(expected)
    assert np.isfinite(variance[0])


def test_an_infinite_score_improves_nothing():
    assert ScoreTest(-np.inf, 1.0).p_value == 1.0
    assert ScoreTest(-0.1, 0.0).p_value == 1.0
    assert ScoreTest(-3.0, 1.0, n_clusters=5).p_value > ScoreTest(-3.0, 1.0).p_value


def test_statements_are_significant_by_the_p_value_at_the_level_and_not_by_the_interval():
    """An interval of resamples may exclude 0 at p = 0.056."""
    lower = PairedDifference(-0.1, -0.2, -0.001, 0.95, 0.056, 0.4, 0.5, 500)
    assert MethodTests({"ts": {"log_loss": lower}}, 0.95).side("ts", "log_loss") == 0
    assert MethodTests({"ts": {"log_loss": lower}}, 0.94).side("ts", "log_loss") == -1


@pytest.mark.parametrize(("p_value", "shown"), [(0.026, "p = 0.051"), (0.025, "p = 0.049"), (0.5, "p = 0.750")])
def test_the_p_value_of_the_recommendation_is_one_of_all_statements(p_value, shown):
    """Methods have the level √0.95, so p = 0.026 of them is not significant at 95 %; what is shown says so."""
    rng = np.random.default_rng(0)
    found = compare(calibrated(rng, 400, 2, 3.0), calibrated(rng, 400, 2, 3.0), ["ts", "histogram"], n_resamples=10)
    assert found.chosen == "ts"
    methods = [
        replace(method, against_chosen={"log_loss": replace(method.against_chosen["log_loss"], p_value=p_value)})
        if method.name == "histogram"
        else method
        for method in found.methods
    ]
    said = recommendation(replace(found, methods=methods))
    assert said.endswith(f"{shown}).")
    assert ("significantly better than histogram" in said) == (p_value == 0.025)


@pytest.mark.parametrize(("side", "p_value"), [(-1, 1e-6), (1, 1e-6), (-1, 0.5), (1, 0.5)])
def test_a_sentence_on_the_ece_does_not_contradict_the_test_of_squared_errors(side, p_value):
    """Methods were indistinguishable, with p < 0.001, where the one of higher ECE has lower squared errors."""
    rng = np.random.default_rng(0)
    found = compare(calibrated(rng, 400, 5, 3.0), calibrated(rng, 400, 5, 3.0), ["ts", "histogram"], n_resamples=10)
    assert found.chosen == "ts"
    other = found["histogram"]
    assert other.measures["ece"].value > max(found["ts"].measures["ece"].value, 0.0)
    tested = replace(other.against_chosen["squared_ece"], difference=side * 0.001, p_value=p_value)
    # Without calibration its ECE is lower than with it, by as much as the squared errors say the opposite.
    falls = replace(found["ts"].measures["ece"], value=found.before.measures["ece"].value - 0.01)
    against_none = {**other.against_none, "squared_ece": tested}
    changed = replace(other, against_chosen={**other.against_chosen, "squared_ece": tested}, against_none=against_none)
    said = recommendation(replace(found, methods=[changed if each is other else each for each in found.methods]))
    is_significant = p_value < 0.05
    assert ("indistinguishable" in said) == (not is_significant)
    assert ("significantly better than histogram" in said) == (is_significant and side > 0)
    contradicts = (
        "The squared calibration error of histogram is significantly lower, but not its ECE (histogram less ts: +"
    )
    assert (contradicts in said) == (is_significant and side < 0)
    lower = replace(changed, measures={**changed.measures, "ece": falls})
    cell = ece_against_none(replace(found, methods=[found.before, lower]), lower)
    assert cell.startswith("−1.00 points")
    assert ("but squared errors are significantly higher" in cell) == (is_significant and side > 0)


def test_groups_that_are_not_off_are_none():
    rng = np.random.default_rng(0)
    rows = calibrated(rng, 400, 2).with_groups({"half": ["first"] * 200 + ["second"] * 200})
    said = group_verdict(compare(rows, rows, ["ts"], chosen="ts", n_resamples=10))
    start = "In none of 2 groups the mean probability differs significantly from the rate"
    assert said == f"{start} with temperature scaling, and in none before."


@pytest.mark.parametrize("is_rival", [False, True])
def test_a_lower_ece_counts_among_methods_of_nearly_the_best_log_loss_alone(is_rival):
    rng = np.random.default_rng(0)
    found = compare(calibrated(rng, 400, 5, 3.0), calibrated(rng, 400, 5, 3.0), ["ts", "histogram"], n_resamples=10)
    assert found.chosen == "ts"
    best, other = found["ts"].measures, found["histogram"].measures
    loss = replace(best["log_loss"], value=(1.005 if is_rival else 1.02) * best["log_loss"].value)
    lower = {**other, "ece": replace(other["ece"], value=0.5 * best["ece"].value), "log_loss": loss}
    methods = [replace(method, measures=lower) if method.name == "histogram" else method for method in found.methods]
    said = recommendation(replace(found, methods=methods))
    beginning = "Recommendation: ts (temperature scaling)"
    among = "ECE among the methods within 1 % of the best log-loss"
    assert said.startswith(f"{beginning}: no {among} is" if is_rival else f"{beginning}, the lowest {among}.")


def test_the_predictions_as_they_are_may_have_a_lower_ece_than_the_recommended_method():
    rng = np.random.default_rng(8)
    drawn = []
    for _ in range(2):
        logits = 1.5 * rng.normal(size=(4000, 4))
        labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
        drawn.append(Predictions.from_logits(logits + np.array([0.13, -0.13, 0.1, -0.1]), labels))
    found = compare(*drawn, ["vs"], n_resamples=10)
    before, after = found.before.measures, found.after.measures
    assert found.chosen == "vs"
    assert before["ece"].value < after["ece"].value
    assert before["log_loss"].value < 1.01 * after["log_loss"].value
    among = "ECE among the methods within 1 % of the best log-loss"
    beginning = "Recommendation: vs (vector scaling)"
    assert recommendation(found) == f"{beginning}: no {among} is significantly lower."
    surely_lower = replace(found.before.against_chosen["squared_ece"], difference=-0.01, p_value=0.001)
    before = replace(found.before, against_chosen={**found.before.against_chosen, "squared_ece": surely_lower})
    assert recommendation(replace(found, methods=[before, found.after])) == f"{beginning}."


@pytest.mark.parametrize(("n_classes", "n_rows"), [(2, 400), pytest.param(10, 400, marks=pytest.mark.long)])
def test_a_calibrated_model_is_left_as_it_is(n_classes, n_rows):
    """Before a method had to improve by a test, one was recommended in 53 of 60 runs of 1,000 rows and ten classes."""
    n_recommended = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        found = compare(
            calibrated(rng, n_rows, n_classes),
            calibrated(rng, n_rows, n_classes),
            ["auto", "ts", "beta"],
            n_resamples=10,
        )
        n_recommended += found.chosen != "none"
        if found.chosen == "none":
            assert recommendation(found).startswith("Recommendation: leave the predictions as they are: no method")
    assert n_recommended <= 1


@pytest.mark.parametrize("n_classes", [2, 10])
def test_a_model_that_is_off_is_calibrated(n_classes):
    rng = np.random.default_rng(3)
    found = compare(
        calibrated(rng, 600, n_classes, sharp=1.6), calibrated(rng, 600, n_classes, sharp=1.6), ["ts", "auto"]
    )
    assert found.chosen in ("ts", "auto")
    assert found.recommended
    assert "lowers the" in verdict(found)
    assert found.after.improvement_p_value < 1e-3


def test_the_score_test_sees_what_the_difference_of_log_losses_does_not_yet():
    rng = np.random.default_rng(5)
    rejected = np.zeros(2)
    for _ in range(100):
        log_odds = rng.normal(-1.0, 1.5, 1000)
        y = (rng.random(1000) < 1 / (1 + np.exp(-(log_odds - 0.25)))).astype(int)
        log_p, log_q = (log_softmax(np.stack([0 * z, z], axis=1), axis=1) for z in (log_odds, log_odds - 0.25))
        score, _ = score_terms(log_p, log_q, y)
        difference = (log_p - log_q)[np.arange(1000), y]
        for i, terms in enumerate((score, difference)):
            rejected[i] += terms.mean() / (terms.std() / np.sqrt(1000)) < -1.645
    assert rejected[0] > 1.5 * rejected[1] > 0


@pytest.mark.numerics
def test_the_score_test_holds_its_level_on_calibrated_models():
    rng = np.random.default_rng(7)
    n_rejected = 0
    n_draws = 2000
    for _ in range(n_draws):
        log_p = log_softmax(2.0 * rng.normal(size=(100, 3)), axis=1)
        y = np.argmax(log_p + rng.gumbel(size=log_p.shape), axis=1)
        log_q = log_softmax(rng.uniform(0.6, 1.6) * log_p + rng.normal(0.0, 0.3, 3), axis=1)
        score, variance = score_terms(log_p, log_q, y)
        error = np.sqrt(max(score.var(ddof=1) / 100, variance.sum() / 100**2))
        n_rejected += ScoreTest(score.mean(), error).p_value < 0.05
    assert n_rejected / n_draws <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / n_draws)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_that_no_method_helps_and_a_recommendation_are_never_said_together(n_classes):
    said_both = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        noise = rng.normal(size=(400, n_classes))
        labels = rng.integers(n_classes, size=400)
        # From pure noise to a little knowledge.
        logits = noise + 0.2 * seed * np.eye(n_classes)[labels]
        parts = [Predictions.from_logits(logits[half], labels[half]) for half in (slice(0, 200), slice(200, 400))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)
            found = compare(*parts, ["ts", "auto"], n_resamples=10)
        lines = [verdict(found), recommendation(found), *remarks(found)]
        no_help = any("No method helps" in line for line in lines)
        said_both.append(no_help and any("Recommendation:" in line for line in lines))
    assert not any(said_both)
    contradiction = replace(found, recommended=True)
    assert not any("No method helps" in line for line in remarks(contradiction))


def test_an_error_smaller_than_chance_has_an_interval():
    """The upper end was 0: no model is off so little that it shows no error at all."""
    y = [0, 1] * 100
    interval = metrics.bootstrap_interval(metrics.expected_calibration_error, y, [0.5] * 200)
    assert (interval.value, interval.low) == (0.0, 0.0)
    assert 0.04 < interval.high < 0.2


def test_few_rows_recommend_nothing_though_a_method_is_far_better():
    rng = np.random.default_rng(2)
    validation = calibrated(rng, 500, 2, sharp=6.0)
    for n_rows, is_recommended in ((99, False), (200, True)):
        found = compare(validation, calibrated(rng, n_rows, 2, sharp=6.0), ["ts"], n_resamples=10)
        assert found.recommended == is_recommended
        assert (found.chosen == "ts") == is_recommended
