"""Prediction sets: against plain loops, against the coverage that theory gives to the last digit, and their files."""

from __future__ import annotations

import json
import math
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import softmax
from sklearn.utils.estimator_checks import check_estimator

import refocal
from helpers import NOT_FOR_LOGITS, draw_logits
from refocal import PredictionSets, TemperatureScaling, VennAbersCalibration
from refocal.errors import DataError, FitWarning, FormatError, InputError, ParameterError, ShapeError
from refocal.evaluate import evaluate
from refocal.io import Predictions, apply
from refocal.metrics import set_coverage

VARIANTS = {
    "lac": {"conformity_score": "lac"},
    "aps": {"conformity_score": "aps"},
    "raps": {"conformity_score": "raps", "penalty": 0.2, "rank": 1},
    "aps, not randomised": {"conformity_score": "aps", "randomised": False},
}


def score_of(p, label, settings):
    """The score of one class of one row, from the definitions; of randomised scores with the edge in full."""
    if settings["conformity_score"] == "lac":
        return 1.0 - p[label]
    rank = sorted(range(len(p)), key=lambda k: (-p[k], k)).index(label) + 1
    before = sum(q for k, q in enumerate(p) if (-q, k) < (-p[label], label))
    extra = settings.get("penalty", 0.0) * max(0, rank - settings.get("rank", 0)) if "penalty" in settings else 0.0
    return before + p[label] + extra


@pytest.mark.parametrize("name", ["lac", "aps, not randomised", "raps"])
def test_sets_are_those_of_a_plain_loop(name):
    settings = VARIANTS[name] | {"randomised": False}
    logits, labels = draw_logits(83, 4)
    new = draw_logits(50, 4, seed=1)[0]
    fitted = PredictionSets(coverage=0.85, allow_empty=True, **settings).fit(logits, labels)
    scores = sorted(score_of(p, k, settings) for p, k in zip(softmax(logits, axis=1), labels, strict=True))
    threshold = scores[math.ceil(0.85 * 84) - 1]
    assert_allclose(fitted.threshold_, threshold, rtol=1e-12)
    expected = [[score_of(p, k, settings) <= threshold for k in range(4)] for p in softmax(new, axis=1)]
    np.testing.assert_array_equal(fitted.predict_set(new), expected)
    assert 50 < np.sum(expected) < 190


def test_a_randomised_set_takes_the_class_at_the_edge_as_often_as_fits():
    """With u of a row, class y is in the set if the classes before it and u times its own stay below the threshold."""
    logits, labels = draw_logits(200, 4)
    fitted = PredictionSets(coverage=0.8, conformity_score="aps", allow_empty=True).fit(logits, labels)
    p = softmax(logits[:1], axis=1)[0]
    share = np.mean([fitted.predict_set(logits[:1], seed=seed)[0] for seed in range(2000)], axis=0)
    for k in range(4):
        before = sum(q for q in p if q > p[k])
        assert share[k] == pytest.approx(np.clip((fitted.threshold_ - before) / p[k], 0.0, 1.0), abs=0.045)
    same = [fitted.predict_set(logits, seed=7) for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert not np.array_equal(fitted.predict_set(logits), same[0])


@pytest.mark.parametrize("name", ["lac", "aps", "raps"])
def test_coverage_is_what_theory_says(name):
    """Over fits on n rows the coverage is ⌈(n+1)·coverage⌉ / (n+1) on average, here 37/41, for any model."""
    rng = np.random.default_rng(5)
    covered = []
    for _ in range(300):
        logits = 4.0 * rng.normal(size=(140, 4))  # four times too sure
        labels = np.argmax(logits / 4.0 + rng.gumbel(size=logits.shape), axis=1)
        fitted = PredictionSets(
            coverage=0.9, allow_empty=True, random_state=int(rng.integers(1 << 30)), **VARIANTS[name]
        )
        sets = fitted.fit(logits[:40], labels[:40]).predict_set(logits[40:], seed=int(rng.integers(1 << 30)))
        covered.append(sets[np.arange(100), labels[40:]].mean())
    assert abs(np.mean(covered) - 37 / 41) < 3.5 * np.std(covered) / 300**0.5


def test_a_base_is_fitted_on_other_rows_than_the_sets():
    logits, labels = draw_logits(2000, 5, temperature=3.0)
    fitted = PredictionSets(base="ts", coverage=0.9).fit(logits, labels)
    assert fitted.chain_.steps[0].temperature == pytest.approx(3.0, rel=0.15)
    assert fitted.chain_.steps[0].temperature != TemperatureScaling().fit(logits, labels).temperature_
    new, truth = draw_logits(4000, 5, seed=1, temperature=3.0)
    found = set_coverage(truth, fitted.predict_set(new))
    assert found.coverage.value == pytest.approx(0.9, abs=0.03)
    assert_allclose(fitted.predict_proba(new), softmax(new / fitted.chain_.steps[0].temperature, axis=1), rtol=1e-9)


def test_weights_are_repetitions():
    logits, labels = draw_logits(60, 3)
    times = np.random.default_rng(0).integers(1, 4, 60)
    weighted = PredictionSets().fit(logits, labels, sample_weight=times)
    repeated = PredictionSets().fit(np.repeat(logits, times, axis=0), np.repeat(labels, times))
    assert weighted.threshold_ == repeated.threshold_


def test_sets_hold_the_top_class_unless_they_may_be_empty():
    logits, labels = draw_logits(400, 3, scale=4.0)
    new = draw_logits(300, 3, seed=1, scale=0.5)[0]
    for empty in (False, True):
        fitted = PredictionSets(coverage=0.5, allow_empty=empty).fit(logits, labels)
        assert (fitted.predict_set(new).sum(axis=1).min() == 0) == empty
    assert np.all(PredictionSets(coverage=0.5).fit(logits, labels).predict_set(new)[np.arange(300), new.argmax(axis=1)])


def test_too_few_rows_for_the_coverage_mean_all_classes_and_a_warning():
    logits, labels = draw_logits(5, 3, seed=2)
    with pytest.warns(FitWarning, match=r"a coverage of 0\.95 needs 19 rows at least"):
        fitted = PredictionSets(coverage=0.95, conformity_score="raps").fit(logits, labels)
    assert fitted.predict_set(logits).all()


@pytest.mark.parametrize("name", VARIANTS)
def test_it_is_saved_loaded_and_answers_in_kind(name, tmp_path):
    logits, labels = draw_logits(300, 4)
    fitted = PredictionSets(base="ts", **VARIANTS[name]).fit(logits, labels)
    fitted.save(tmp_path / "sets.json")
    loaded = refocal.load(tmp_path / "sets.json")
    assert loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(loaded.predict_set(logits, seed=1), fitted.predict_set(logits, seed=1))
    sets = loaded.predict_set(torch.tensor(logits), seed=1)
    assert isinstance(sets, torch.Tensor)
    assert sets.dtype == torch.bool
    data = json.loads((tmp_path / "sets.json").read_text())
    for least in ({}, {"least": "high"}):
        report = {key: value for key, value in data["fit"].items() if key != "least"}
        (tmp_path / "bad.json").write_text(json.dumps(data | {"fit": report | least}))
        with pytest.raises(FormatError, match="'least'"):
            refocal.load(tmp_path / "bad.json")


def test_probabilities_with_zeros_may_be_given():
    rng = np.random.default_rng(0)
    p = rng.multinomial(20, [0.5, 0.3, 0.2], size=500) / 20
    labels = np.array([rng.choice(3, p=row) for row in p])
    sets = (
        PredictionSets(conformity_score="aps", input="probabilities")
        .fit(p[:250], labels[:250])
        .predict_set(p[250:], seed=0)
    )
    assert set_coverage(labels[250:], sets).coverage.high > 0.9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"coverage": 1.0}, "'coverage' of PredictionSets"),
        ({"conformity_score": "top"}, "one of 'lac', 'aps', 'raps'"),
        ({"base": "magic"}, "'base' of PredictionSets must be one of 'none'"),
        ({"penalty": -1.0}, "'penalty'"),
        ({"rank": 1.5}, "'rank'"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ParameterError, match=message):
        PredictionSets(**settings).fit(*draw_logits(50, 3))


def test_coverage_of_sets_is_that_of_a_plain_loop():
    rng = np.random.default_rng(0)
    labels, sets, weight = rng.integers(4, size=300), rng.random((300, 4)) < 0.4, rng.random(300) + 0.1
    found = set_coverage(labels, sets, sample_weight=weight)
    covered = [bool(sets[i, k]) for i, k in enumerate(labels)]
    assert_allclose(found.coverage.value, np.average(covered, weights=weight))
    assert_allclose(found.mean_size, np.average([sum(row) for row in sets], weights=weight))
    assert_allclose(found.share_empty, np.average([not any(row) for row in sets], weights=weight))
    assert_allclose(found.share_single, np.average([sum(row) == 1 for row in sets], weights=weight))
    by_class = [np.average(np.array(covered)[labels == k], weights=weight[labels == k]) for k in range(4)]
    assert found.worst_class == np.argmin(by_class)
    assert_allclose(found.worst_coverage, min(by_class))
    assert 0.0 <= found.coverage.low < found.coverage.value < found.coverage.high <= 1.0
    assert set_coverage([0, 0], [[True, False], [True, False]]).worst_class == 0  # a class without rows is not counted


@pytest.mark.parametrize(
    ("sets", "error", "message"),
    [
        ([[0.2, 0.8]], DataError, "booleans"),
        ([True, False], ShapeError, r"\(N, C\)"),
        (np.ones((2, 2)), InputError, "(2,)"),
    ],
)
def test_wrong_sets_are_named(sets, error, message):
    with pytest.raises(error, match=message):
        set_coverage([0], sets)


@pytest.mark.slow
@pytest.mark.parametrize(
    "calibrator", [PredictionSets(), PredictionSets(conformity_score="aps"), VennAbersCalibration()], ids=str
)
def test_scikit_learn_checks(calibrator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(calibrator, expected_failed_checks=NOT_FOR_LOGITS, on_fail="raise", on_skip=None)
    assert sum(result["status"] == "passed" for result in results) >= 45


@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
@pytest.mark.parametrize("base", ["none", "ts"])
def test_tied_scores_are_covered_in_every_precision(score, base):
    """Votes of a few trees: many rows have the score of the threshold to the last digit of one precision alone."""
    rng = np.random.default_rng(0)
    true_p = rng.dirichlet([0.5] * 3, size=4000)
    labels = (true_p.cumsum(axis=1) > rng.random((4000, 1))).argmax(axis=1)
    votes = np.stack([rng.multinomial(7, p) for p in 0.7 * true_p + 0.1]) / 7.0
    for first, then in ((np.float64, np.float32), (np.float32, np.float64)):
        options = {"conformity_score": score, "base": base, "randomised": False, "input": "probabilities"}
        fitted = PredictionSets(coverage=0.9, **options).fit(votes.astype(first), labels)
        sets = fitted.predict_set(votes.astype(then))
        np.testing.assert_array_equal(sets, fitted.predict_set(votes.astype(first)))
        if base == "none":  # otherwise half of these rows are new
            assert sets[np.arange(4000), labels].mean() >= 0.9


def draw_too_sure(n_rows, n_classes, seed):
    """Rows of a model that is 18 times too sure: the probability of the truth is often below 1e-6."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n_rows, n_classes))
    return 18.0 * z, np.argmax(z + rng.gumbel(size=z.shape), axis=1)


@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
def test_sets_of_a_model_that_is_too_sure_are_those_of_exact_scores(score, tmp_path):
    logits, labels = draw_too_sure(300, 6, 0)
    new = draw_too_sure(100, 6, 1)[0]
    settings = {"conformity_score": score, "randomised": False}
    penalties = {"penalty": 0.01, "rank": 5} if score == "raps" else {}
    fitted = PredictionSets(coverage=0.9, allow_empty=True, **settings).fit(logits, labels)
    p = [[Fraction(q) for q in row] for row in softmax(logits, axis=1).tolist()]
    truth = [exact_score(row, k, settings | penalties) for row, k in zip(p, labels, strict=True)]
    threshold = sorted(truth)[math.ceil(0.9 * 301) - 1]
    assert threshold > 1 - Fraction(1, 10**6)
    rows = [[Fraction(q) for q in row] for row in softmax(new, axis=1).tolist()]
    expected = [[exact_score(row, k, settings | penalties) <= threshold for k in range(6)] for row in rows]
    assert np.mean(np.sum(expected, axis=1)) < 5.5
    np.testing.assert_array_equal(fitted.predict_set(new), expected)
    fitted.save(tmp_path / "sets.json")
    np.testing.assert_array_equal(refocal.load(tmp_path / "sets.json").predict_set(new), expected)


@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
@pytest.mark.parametrize("base", ["none", "ts"])
def test_tied_scores_of_a_model_that_is_too_sure_are_alike_in_every_precision(score, base):
    """Single precision has the logarithms of small probabilities to seven digits, and so fewer of these themselves."""
    z, labels = draw_too_sure(2000, 4, 0)
    logits = 18.0 * np.round(z / 18.0) / 0.7
    for first, then in ((np.float64, np.float32), (np.float32, np.float64)):
        settings = {"conformity_score": score, "base": base, "randomised": False, "coverage": 0.8}
        fitted = PredictionSets(**settings).fit(logits.astype(first), labels)
        sets = fitted.predict_set(logits.astype(then))
        np.testing.assert_array_equal(sets, fitted.predict_set(logits.astype(first)))
        if base == "none":  # otherwise half of these rows are new
            assert fitted.threshold_ > 1.0 - 1e-6
            assert sets[np.arange(2000), labels].mean() >= 0.8
            assert sets.mean() < 0.95


def exact_score(p, label, settings):
    """The score of one class as `score_of` has it, of fractions, of which the classes after it leave the rest."""
    if settings["conformity_score"] == "lac":
        return 1 - p[label]
    ranked = sorted(range(len(p)), key=lambda k: (-p[k], k))
    rank = ranked.index(label) + 1
    extra = Fraction(settings.get("penalty", 0.0)) * max(0, rank - settings.get("rank", len(p)))
    return 1 - sum(p[k] for k in ranked[rank:]) + extra


@pytest.mark.parametrize("conditional", ["none", "class", "group"])
@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_sets_of_a_model_that_is_too_sure_do_not_hold_all_classes(score, conditional, precision, tmp_path):
    logits, labels = draw_too_sure(2000, 3, 0)
    new, truth = draw_too_sure(4000, 3, 1)
    names = np.array(["north", "south"])
    rows = Predictions.from_logits(logits, labels).with_groups({"region": names[np.arange(2000) % 2]})
    test = Predictions.from_logits(new.astype(precision), truth).with_groups({"region": names[np.arange(4000) % 2]})
    fitted = PredictionSets(coverage=0.9, conformity_score=score, conditional=conditional).fit(rows)
    found = set_coverage(truth, fitted.predict_set(test, seed=0), groups=test.groups)
    assert found.coverage.value == pytest.approx(0.9, abs=0.025)
    assert found.mean_size < 2.3
    assert fitted.fit_report_["set_size"] == pytest.approx(found.mean_size, abs=0.1)
    if score == "lac":
        evaluated = evaluate(test, {"sets": fitted}, chosen="sets", n_resamples=2)
        assert evaluated.after.sets == found
    if score == "lac" and conditional != "group":
        np.savez(tmp_path / "rows.npz", logits=new.astype(precision))
        apply(fitted, tmp_path / "rows.npz", tmp_path / "sets.csv")
        written = pd.read_csv(tmp_path / "sets.csv", dtype=str)["set"]
        assert written.str.split(";").str.len().mean() == found.mean_size


def test_unequal_weights_do_not_lower_the_coverage():
    """50 rows whose weights have a log-sd of 1.5: with a new row of weight 1 the sets would cover 86.8 %."""
    rng = np.random.default_rng(0)
    coverages = []
    for _ in range(150):
        p = rng.random(50)  # of the label: the score 1 - p of the truth is uniform
        labels = np.arange(50) % 2
        probabilities = np.where(np.eye(2)[labels] == 1.0, p[:, None], 1.0 - p[:, None])
        weight = np.exp(rng.normal(0.0, 1.5, 50))
        sets = PredictionSets(coverage=0.9, input="probabilities")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)
            fitted = sets.fit(probabilities, labels, sample_weight=weight)
        coverages.append(min(fitted.threshold_, 1.0))
    assert np.mean(coverages) >= 0.9


def test_the_coverage_of_one_fit_is_a_quantile_of_beta():
    logits, labels = draw_logits(99, 4)
    report = PredictionSets(coverage=0.9).fit(logits, labels).fit_report_
    assert report["coverage_of_fit"] == pytest.approx(stats.beta.ppf(0.05, 90, 10))
    twice = PredictionSets(coverage=0.9).fit(logits, labels, sample_weight=np.full(99, 0.5)).fit_report_
    assert twice["coverage_of_fit"] == pytest.approx(report["coverage_of_fit"])
    few = PredictionSets(coverage=0.99).fit(logits[:50], labels[:50]).fit_report_
    assert few["coverage_of_fit"] == 1.0
    # Of 300 fits about 285 cover that much or more.
    rng = np.random.default_rng(1)
    covered = np.sort(rng.random((300, 99)), axis=1)[:, 89]
    assert 275 <= np.sum(covered >= report["coverage_of_fit"]) <= 295
