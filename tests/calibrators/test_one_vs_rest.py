"""What holds for every calibrator beside the focal family: ensemble, isotonic, binning, beta and spline."""

from __future__ import annotations

import json
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax
from sklearn.base import clone
from sklearn.calibration import _SigmoidCalibration
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

import refocal
from helpers import NOT_FOR_LOGITS, draw_logits, to_numpy
from refocal import (
    BayesianBinning,
    BetaCalibration,
    EnsembleTemperatureScaling,
    HistogramBinning,
    IsotonicCalibration,
    LogisticCalibration,
    SplineCalibration,
    TemperatureScaling,
    metrics,
)
from refocal.calibrators.registry import make
from refocal.errors import DataError, FormatError, LabelError, ParameterError

pytestmark = pytest.mark.core

CURVES = [
    IsotonicCalibration(),
    IsotonicCalibration(within="constant", smoothing=1.0),
    HistogramBinning(),
    HistogramBinning(strategy="uniform", within="constant", base="softmax"),
    HistogramBinning(strategy="information"),
    BayesianBinning(),
    BayesianBinning(within="constant", smoothing=2.0),
    BetaCalibration(),
    LogisticCalibration(),
    SplineCalibration(),
]
ALL = [EnsembleTemperatureScaling(), *CURVES]


@pytest.fixture(params=ALL, ids=str)
def calibrator(request):
    return clone(request.param)


@pytest.mark.slow
@pytest.mark.parametrize("calibrator", [c for c in ALL if getattr(c, "within", "shift") == "shift"], ids=str)
def test_scikit_learn_checks(calibrator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(calibrator, expected_failed_checks=NOT_FOR_LOGITS, on_fail="raise", on_skip=None)
    assert sum(result["status"] == "passed" for result in results) >= 45
    assert {result["check_name"] for result in results if result["status"] == "xfail"} <= set(NOT_FOR_LOGITS)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3, 20])
@pytest.mark.parametrize("scale", [0.1, 3.0, 500.0])
def test_rows_sum_to_1_and_nothing_is_0(calibrator, n_classes, scale):
    logits, labels = draw_logits(400, n_classes)
    calibrator.fit(scale * logits, labels)
    p = calibrator.predict_proba(3.0 * scale * draw_logits(300, n_classes, seed=1)[0])
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert p.min() > 0.0
    assert np.isfinite(metrics.log_loss(draw_logits(300, n_classes, seed=1)[1], np.log(p)))


def test_rows_that_are_all_right_leave_no_class_without_a_chance(calibrator):
    labels = np.arange(300) % 3
    calibrator.fit(1000.0 * np.eye(3)[labels], labels)
    p = calibrator.predict_proba(1000.0 * np.eye(3))
    assert p.min() > 0.0
    np.testing.assert_array_equal(p.argmax(axis=1), [0, 1, 2])
    assert np.isfinite(calibrator.fit_report_["after"]["log_loss"])


@pytest.mark.slow
@pytest.mark.parametrize("rows", [30, 300])
def test_few_rows_and_many_classes_do_no_harm(rows):
    """100 classes, of which most have no row or one: no worse than temperature scaling by more than 5 %."""
    logits, labels = draw_logits(rows, 100)
    test, truth = draw_logits(2000, 100, seed=1)
    plain = metrics.log_loss(truth, TemperatureScaling().fit(2.5 * logits, labels).predict_log_proba(2.5 * test))
    shrunk = [c for c in ALL if getattr(c, "within", "shift") == "shift" and not isinstance(c, LogisticCalibration)]
    for calibrator in shrunk:  # Platt's line is not held to temperature scaling
        fitted = clone(calibrator).fit(2.5 * logits, labels)
        assert metrics.log_loss(truth, fitted.predict_log_proba(2.5 * test)) < 1.05 * plain, calibrator


@pytest.mark.parametrize("calibrator", CURVES, ids=str)
def test_rows_that_are_all_right_are_so_whatever_the_scale(calibrator):
    """They have no best temperature, so that log-odds stay as large as they come: up to 6,000 here."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=200)
    log_odds = np.where(labels == 1, 1.0, -1.0) * rng.uniform(1.0, 2.0, 200)
    log_losses = []
    for scale in (10.0, 3_000.0):
        rows = np.stack([np.zeros(200), scale * log_odds], axis=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            p = clone(calibrator).fit(rows, labels).predict_proba(rows)
        log_losses.append(-np.log(p[np.arange(200), labels]).mean())
    assert max(log_losses) < 0.05


@pytest.mark.parametrize(
    "calibrator", [IsotonicCalibration(), BayesianBinning(), BetaCalibration(), SplineCalibration()]
)
def test_log_odds_next_to_0_have_a_line(calibrator):
    """Its slope, about 10^60, is no number of single precision; of rows that are all right no temperature helps."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=200)
    log_odds = np.where(labels == 1, 1.0, -1.0) * rng.uniform(1.0, 2.0, 200)
    found = []
    for scale in (1.0, 1e-60):
        rows = np.stack([np.zeros(200), scale * log_odds], axis=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(clone(calibrator).fit(rows, labels).predict_proba(rows))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4)


@pytest.mark.slow
def test_classes_that_need_different_curves_gain():
    """One class is claimed too often: every curve finds out, which no temperature can."""
    logits, labels = draw_logits(4000, 4)
    test, truth = draw_logits(4000, 4, seed=1)
    off = np.array([3.0, 0.0, 0.0, 0.0])
    plain = metrics.log_loss(truth, TemperatureScaling().fit(logits + off, labels).predict_log_proba(test + off))
    oracle = metrics.log_loss(truth, log_softmax(test, axis=1))
    for calibrator in CURVES:
        fitted = clone(calibrator).fit(logits + off, labels)
        found = metrics.log_loss(truth, fitted.predict_log_proba(test + off))
        assert found - oracle < 0.6 * (plain - oracle), calibrator


@pytest.mark.long
def test_the_kind_of_array_follows_the_input(calibrator):
    logits, labels = draw_logits(300)
    expected = clone(calibrator).fit(logits, labels).predict_proba(logits)
    for array in (torch.tensor(logits), jnp.asarray(logits), logits.astype(np.float32), torch.tensor(logits).float()):
        y = torch.tensor(labels) if isinstance(array, torch.Tensor) else labels
        fitted = clone(calibrator).fit(array, y)
        p = fitted.predict_proba(array)
        assert type(p) is type(array)
        assert p.dtype == array.dtype
        np.testing.assert_allclose(to_numpy(p).astype(np.float64), expected, atol=1e-4)
        assert fitted.predict(array).shape == (300,)
    half = calibrator.fit(torch.tensor(logits).half(), torch.tensor(labels)).predict_proba(torch.tensor(logits).half())
    assert half.dtype == torch.float16


def test_leading_axes(calibrator):
    logits, labels = draw_logits(600)
    flat = clone(calibrator).fit(logits, labels)
    shaped = calibrator.fit(logits.reshape(2, 15, 20, 5), labels.reshape(2, 15, 20))
    np.testing.assert_array_equal(
        shaped.predict_proba(logits.reshape(2, 15, 20, 5)).reshape(-1, 5), flat.predict_proba(logits)
    )


@pytest.mark.parametrize("calibrator", CURVES, ids=repr)
def test_ties_are_found_in_every_order_of_the_classes(calibrator):
    """Sums in another order round otherwise: that must not separate rows of equal log-odds."""
    rng = np.random.default_rng(0)
    logits = np.round(3.0 * rng.normal(size=(600, 4)))
    labels = np.argmax(logits / 3.0 + rng.gumbel(size=logits.shape), axis=1)
    order = np.array([2, 0, 3, 1])
    other = clone(calibrator).fit(logits[:, order], np.argsort(order)[labels]).predict_proba(logits[:, order])
    assert clone(calibrator).fit(logits, labels).predict_proba(logits)[:, order] == pytest.approx(other, abs=1e-9)


def test_weights_are_repetitions(calibrator):
    logits, labels = draw_logits(400, 3)
    weight = np.random.default_rng(1).integers(0, 4, 400)
    weighted = clone(calibrator).fit(logits, labels, sample_weight=weight)
    repeated = calibrator.fit(np.repeat(logits, weight, axis=0), np.repeat(labels, weight))
    np.testing.assert_allclose(weighted.predict_proba(logits), repeated.predict_proba(logits), rtol=1e-6, atol=1e-9)


def test_weights_are_at_most_so_many_repetitions(calibrator):
    """Where rows of one class have a weight of 1e16 and more, a row of another has no digits left."""
    logits, labels = draw_logits(200, 3)
    labels = np.where(np.arange(200) == 0, labels, 1)
    labels[0] = 0
    p = clone(calibrator).fit(logits, labels, np.full(200, 1e90)).predict_proba(logits)
    q = clone(calibrator).fit(logits, labels, np.full(200, 1e12 / 200)).predict_proba(logits)
    np.testing.assert_allclose(p, q, rtol=1e-6)


def test_probabilities_when_said_so(calibrator):
    logits, labels = draw_logits()
    p = np.exp(log_softmax(3.0 * logits, axis=1))
    assert p.min() > 1e-15
    by_logits = clone(calibrator).fit(np.log(p), labels).predict_proba(np.log(p))
    by_probabilities = calibrator.set_params(input="probabilities").fit(p, labels).predict_proba(p)
    np.testing.assert_allclose(by_probabilities, by_logits, rtol=1e-9)


def test_a_class_that_cannot_occur_stays_out(calibrator):
    logits, labels = draw_logits(500, 4)
    logits[::2, 3] = np.where(labels[::2] == 3, logits[::2, 3], -np.inf)
    p = calibrator.fit(logits, labels).predict_proba(logits)
    np.testing.assert_array_equal(p == 0.0, logits == -np.inf)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    alone = np.array([[1.0, -np.inf, -np.inf, -np.inf]])
    np.testing.assert_array_equal(calibrator.predict_proba(alone), [[1.0, 0.0, 0.0, 0.0]])


def test_absent_classes_and_names(calibrator):
    logits, labels = draw_logits(500, 4)
    seen = labels < 3
    p = clone(calibrator).fit(logits[seen], labels[seen]).predict_proba(logits)
    assert p.min() > 0.0
    if not isinstance(calibrator, EnsembleTemperatureScaling):
        assert p[seen, 3].mean() < 0.6 * np.exp(log_softmax(logits[seen], axis=1))[:, 3].mean()
    names = np.array(["ape", "bee", "cat", "dog"])
    named = calibrator.fit(logits, names[labels])
    assert set(named.predict(logits)) <= set(names)


def test_bad_input_leaves_the_calibrator_unfitted(calibrator):
    logits, labels = draw_logits(50, 3)
    calibrator.fit(logits, labels)
    with pytest.raises(LabelError, match="of at least two classes"):
        calibrator.fit(logits, np.zeros(50, dtype=int))
    with pytest.raises(NotFittedError):
        calibrator.predict_proba(logits)
    with pytest.raises(DataError, match="NaN in row 0"):
        calibrator.fit(np.full_like(logits, np.nan), labels)


@pytest.mark.parametrize(
    ("calibrator", "words"),
    [
        (IsotonicCalibration(smoothing=0.0), "'smoothing' of IsotonicCalibration must be a finite number greater"),
        (BetaCalibration(smoothing="much"), "'smoothing' of BetaCalibration"),
        (BetaCalibration(smoothing=float("nan")), "'smoothing' of BetaCalibration"),
        (HistogramBinning(0), "'n_bins' of HistogramBinning must be an integer of at least 1. Got 0"),
        (HistogramBinning(strategy="luck"), "'strategy' of HistogramBinning must be one of 'quantile', 'uniform'"),
        (BayesianBinning(within="drift"), "'within' of BayesianBinning must be one of 'shift', 'constant'"),
        (SplineCalibration(1), "'n_knots' of SplineCalibration must be an integer of at least 2. Got 1"),
        (SplineCalibration(base="sigmoid"), "'base' of SplineCalibration must be one of 'temperature', 'softmax'"),
        (EnsembleTemperatureScaling(input="odds"), "'input' of EnsembleTemperatureScaling must be one of 'logits'"),
    ],
)
def test_bad_settings(calibrator, words):
    with pytest.raises(ParameterError, match=words):
        calibrator.fit(*draw_logits(50, 3))
    with pytest.raises(NotFittedError):
        calibrator.predict_proba(draw_logits(50, 3)[0])


@pytest.mark.parametrize("n_classes", [2, 4])
def test_what_is_saved_comes_back_bit_for_bit(calibrator, n_classes, tmp_path):
    logits, labels = draw_logits(400, n_classes)
    calibrator.fit(logits, labels).save(tmp_path / "c.json")
    loaded = refocal.load(tmp_path / "c.json")
    assert type(loaded) is type(calibrator)
    assert loaded.get_params() == calibrator.get_params()
    new = 3.0 * draw_logits(400, n_classes, seed=1)[0]
    np.testing.assert_array_equal(loaded.predict_log_proba(new), calibrator.predict_log_proba(new))
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "c.json").read_bytes()


CURVED = ("chain", 0, "members", 0, "steps")
HOSTILE = [
    (IsotonicCalibration(), ("chain",), {}, "'chain' must be of type list. Got dict"),
    (IsotonicCalibration(), ("chain", 0), "Mixture", "a step must be one of Affine, .*Beta"),
    (IsotonicCalibration(), ("chain", 0, "step"), "os.system", "a step must be one of Affine, .*Beta"),
    (IsotonicCalibration(), ("chain", 0, "extra"), 1.0, "unknown field 'extra' of the step Mixture"),
    (IsotonicCalibration(), (*CURVED, 1, "curve"), [], "'curve' must be of type dict. Got list"),
    (IsotonicCalibration(), (*CURVED, 1, "curve", "knots", 0), [2.0], "'knots' must hold numbers alone, in rows of eq"),
    (IsotonicCalibration(), (*CURVED, 1, "curve", "knots"), "abc", "'knots' must be of type list"),
    (IsotonicCalibration(), (*CURVED, 1, "curve", "knots"), [], "parameters that fit each other and 3 classes"),
    (IsotonicCalibration(), (*CURVED, 1, "curve", "knots", 0, 0), 1e300, "parameters that fit each other"),
    (IsotonicCalibration(), (*CURVED, 1, "curve", "knots", 0, 0), "1.0", "'knots' must hold numbers alone"),
    (IsotonicCalibration(), (*CURVED, 1, "curve", "knots", 0, 0), -(10**400), "not a number that such a file may hold"),
    (HistogramBinning(), (*CURVED, 1, "curve", "coefficients"), [], "parameters that fit each other"),
    (BetaCalibration(), (*CURVED, 1, "curve", "coefficients", 0), [1.0, -1.0, 0.0], "parameters that fit each other"),
    (BetaCalibration(), (*CURVED, 1, "curve", "coefficients", 0), [1.0, 1.0], "in rows of equal length"),
    (BetaCalibration(), (*CURVED, 0, "temperature"), -1, "'temperature' of Temperature must be a finite number"),
    (BetaCalibration(), ("chain", 0, "weights"), [1.5, -0.5], "Mixture must be made of parameters that fit"),
    (EnsembleTemperatureScaling(), ("chain", 0, "weights"), [1.0, 0.0], "Mixture must be made of parameters that fit"),
    (EnsembleTemperatureScaling(), ("chain", 0, "weights"), [0.5, 0.5, 0.5], "Mixture must be made of parameters"),
    (EnsembleTemperatureScaling(), ("chain", 0, "weights", 1), None, "'weights' must hold numbers alone"),
    (EnsembleTemperatureScaling(), ("chain", 0, "members", 0, "temperature"), None, "must be a finite number"),
]


@pytest.mark.parametrize(("calibrator", "keys", "value", "words"), HOSTILE)
def test_hostile_files_are_refused(calibrator, keys, value, words, tmp_path):
    path = tmp_path / "c.json"
    clone(calibrator).fit(*draw_logits(100, 3)).save(path)
    data = json.loads(path.read_text())
    inner = data
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    path.write_text(json.dumps(data))
    with pytest.raises(FormatError, match=words):
        refocal.load(path)


@pytest.mark.slow
def test_a_thousand_classes_are_not_held_often():
    """What is held at once is a few tables of the size of the logits in float64."""
    import tracemalloc

    logits, labels = draw_logits(500, 1000)
    tracemalloc.start()
    IsotonicCalibration().fit(logits.astype(np.float32), labels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * 8 * logits.size


def test_tables_of_classes_make_no_difference(monkeypatch):
    """Where all log-odds are too many to be held, some classes are fitted at a time."""
    logits, labels = draw_logits(300, 7)
    whole = IsotonicCalibration().fit(logits, labels)
    monkeypatch.setattr("refocal.calibrators.one_vs_rest.TABLE", 700)
    parts = IsotonicCalibration().fit(logits, labels)
    np.testing.assert_array_equal(parts.predict_proba(logits), whole.predict_proba(logits))


@pytest.mark.parametrize("within", ["shift", "constant"])
def test_a_class_that_never_may_occur_has_a_curve(within):
    logits, labels = draw_logits(300, 3)
    kept = labels != 2
    logits[:, 2] = -np.inf
    fitted = IsotonicCalibration(within=within).fit(logits[kept], labels[kept])
    p = fitted.predict_proba(logits)
    np.testing.assert_array_equal(p[:, 2], 0.0)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)


def test_logits_that_say_nothing_do_no_harm(calibrator):
    logits, labels = draw_logits(400, 4)
    logits = 4.0 * logits
    worst_first = np.argsort(logits[np.arange(400), labels])  # labels as wrong as can be: no temperature helps
    wrong = np.argmin(logits, axis=1)
    wrong[worst_first[:20]] = labels[worst_first[:20]]
    report = calibrator.fit(logits, wrong).fit_report_
    assert report["after"]["log_loss"] < np.log(4.0) * 1.01 < report["before"]["log_loss"]


@pytest.mark.parametrize("method", ["isotonic", "histogram", "bbq", "beta", "spline"])
@pytest.mark.parametrize("n_rows", [300, 3000])
def test_forests_with_ties_at_0_are_no_worse_than_the_rate(method, n_rows):
    """Rare events, votes of a forest: a curve on its own rows is never worse than the share of the classes."""
    rng = np.random.default_rng(0)
    p = expit(rng.normal(size=n_rows) - 4.5)
    labels = (rng.random(n_rows) < p).astype(int)
    votes = rng.binomial(60, np.clip(2.0 * p, 0.0, 1.0)) / 60.0  # twice too many, as with balanced weights
    report = make(method, input="probabilities").fit(np.stack([1.0 - votes, votes], axis=1), labels).fit_report_
    rate = labels.mean()
    assert (votes == 0.0).mean() > 0.2
    assert report["after"]["log_loss"] <= -rate * np.log(rate) - (1.0 - rate) * np.log(1.0 - rate)


@pytest.mark.parametrize("method", ["isotonic", "histogram", "bbq", "beta", "spline"])
def test_one_hit_among_the_lowest_votes_leaves_the_rate(method):
    """Platt's targets alone would expect two hits, and be worse than the share of the class on its own rows."""
    votes = np.repeat([0.0, 0.1, 0.2, 0.4], 25)
    labels = np.zeros(100, dtype=int)
    labels[3] = 1
    report = make(method, input="probabilities").fit(np.stack([1.0 - votes, votes], axis=1), labels).fit_report_
    assert report["after"]["log_loss"] <= (-0.01 * np.log(0.01) - 0.99 * np.log(0.99)) * (1.0 + 1e-4)


def test_beta_is_no_worse_than_a_sigmoid_where_that_is_right():
    """Scores of a support vector machine with rare positives: a slope and an intercept are all that is needed."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=30_000)
    labels = (rng.random(30_000) < expit(1.5 * x - 5.5)).astype(int)
    logits = np.stack([np.zeros(30_000), 0.3 * x - 0.2], axis=1)
    fit, test = slice(0, 5000), slice(5000, None)
    beta = make("beta").fit(logits[fit], labels[fit]).predict_log_proba(logits[test])
    sigmoid = _SigmoidCalibration().fit(logits[fit, 1], labels[fit]).predict(logits[test, 1])
    theirs = np.stack([np.log1p(-sigmoid), np.log(sigmoid)], axis=1)
    ours, theirs = (-np.mean(log_p[np.arange(25_000), labels[test]]) for log_p in (beta, theirs))
    assert ours <= 1.01 * theirs
