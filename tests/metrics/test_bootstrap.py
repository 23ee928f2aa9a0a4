from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import refocal.metrics as rm
from refocal import TemperatureScaling
from refocal.errors import DataError, InputError, InputWarning, ParameterError
from refocal.evaluate import evaluate
from refocal.io import blocks
from refocal.metrics import resampling
from refocal.metrics.bootstrap import MetricRows
from refocal.metrics.inputs import read_log_probabilities, read_probabilities
from refocal.metrics.intervals import InfluenceSummary
from refocal.metrics.records import metric_of
from refocal.metrics.resampling import draw_counts, draw_resamples
from refocal.rows import Predictions

pytestmark = [pytest.mark.core, pytest.mark.numerics]

NUMBER = {"SpiegelhalterResult": "z", "CorpReliability": "miscalibration", "BrierDecomposition": "calibration"}


def data(n=300, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(classes), n)
    p[: n // 3] = np.roll([0.7, 0.1, 0.1, 0.1], seed)[:classes] if classes == 4 else p[: n // 3]
    y = (p.cumsum(axis=1) > rng.random((n, 1)) * p.sum(axis=1, keepdims=True)).argmax(axis=1)
    return y, p


def number(result):
    return result if isinstance(result, float) else getattr(result, NUMBER[type(result).__name__])


OPTIONS = [
    (metric.function, {})
    for metric in rm.METRICS.values()
    if not metric.two_classes  # tests/metrics/test_two_classes.py
] + [
    (rm.expected_calibration_error, {"strategy": "uniform", "norm": "l2", "n_bins": 7}),
    (rm.expected_calibration_error, {"strategy": "interpolated", "norm": "max"}),
    (rm.expected_calibration_error, {"kind": "top_label", "norm": "max", "n_bins": 5}),
    (rm.classwise_ece, {"strategy": "uniform", "norm": "l2"}),
    (rm.classwise_ece, {"strategy": "interpolated"}),
    (rm.debiased_ece, {"norm": "l1"}),
    (rm.smooth_ece, {"bandwidth": 0.1}),
]  # fmt: skip


@pytest.mark.parametrize(("metric", "options"), [*OPTIONS, (rm.brier_decomposition, {"method": "binned"})])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_resample_is_the_metric_of_the_drawn_rows(metric, options, weighted):
    y, p = data()
    p = np.log(p) if metric is rm.log_loss else p
    weight = np.random.default_rng(1).random(len(y)) if weighted else None
    read = read_log_probabilities if metric is rm.log_loss else read_probabilities
    evaluate = MetricRows.of(metric_of(metric, "test"), read(y, p, weight, "test"), **options).resampled(**options)
    counts = draw_counts(np.random.default_rng(2), 4, len(y))
    for row, value in zip(counts.astype(int), evaluate(counts), strict=True):
        drawn = np.repeat(np.arange(len(y)), row)
        w = None if weight is None else weight[drawn]
        assert value == pytest.approx(number(metric(y[drawn], p[drawn], sample_weight=w, **options)), abs=1e-9)


REFUSED = [
    (rm.ece_sweep, {}),
    (rm.corp_reliability, {}),
    (rm.brier_decomposition, {}),
    (rm.classwise_ece, {"strategy": "uniform", "norm": "l2"}),
]
"""Metrics that noise raises, and for which no test is inverted."""


@pytest.mark.parametrize(("metric", "options"), REFUSED)
def test_what_resampled_rows_do_not_cover_has_no_default_interval(metric, options):
    y, p = data()
    with pytest.raises(ParameterError, match="noise raises the"):
        rm.bootstrap_interval(metric, y, p, n_resamples=40, **options)
    with pytest.warns(InputWarning, match="often do not cover it"):
        rm.bootstrap_interval(metric, y, p, n_resamples=4, method="percentile", **options)
    with pytest.warns(InputWarning, match="often do not cover it"):
        rm.paired_bootstrap(metric, y, p, p, n_resamples=4, **options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::refocal.errors.InputWarning")
@pytest.mark.parametrize(("metric", "options"), [case for case in OPTIONS if case not in REFUSED])
def test_interval_of_every_metric(metric, options):
    y, p = data()
    p = np.log(p) if metric is rm.log_loss else p
    one = rm.bootstrap_interval(metric, y, p, n_resamples=40, **options)
    assert one == rm.bootstrap_interval(metric, y, p, n_resamples=40, **options)
    if one.n_resamples > 0 and metric is not rm.squared_ece:  # other intervals do not come from resampled rows
        assert one != rm.bootstrap_interval(metric, y, p, n_resamples=40, seed=1, **options)
    assert one.value == pytest.approx(number(metric(y, p, **options)), abs=1e-12)
    assert one.low <= one.high
    of = metric_of(metric, "test")
    ends = (rm.bootstrap_interval(metric, y, p, n_resamples=40, method=m, **options) for m in ("percentile", "basic"))
    plain, basic = (np.array([each.low, each.high]) for each in ends)
    np.testing.assert_allclose(basic, np.clip(2 * one.value - plain[::-1], *of.range))


def test_counts_are_those_of_draws_with_replacement():
    counts = draw_counts(np.random.default_rng(0), 500, 50)
    assert np.all(counts.sum(axis=1) == 50)
    assert counts.var() == pytest.approx(1 - 1 / 50, rel=0.05)


def test_resamples_are_the_same_whether_they_are_kept_or_not(monkeypatch):
    kept = list(draw_resamples(50, 20, seed=3))
    monkeypatch.setattr(resampling, "_KEPT", 0)
    np.testing.assert_array_equal(list(draw_resamples(50, 20, seed=3)), kept)


def test_standard_error_of_a_mean():
    y, p = data(2000)
    interval = rm.bootstrap_interval(rm.accuracy, y, p, n_resamples=4000, method="percentile")
    expected = math.sqrt(interval.value * (1 - interval.value) / 2000)
    assert interval.standard_error == pytest.approx(expected, rel=0.05)
    z = stats.norm.ppf(0.975)
    assert interval.high - interval.low == pytest.approx(2 * z * expected, rel=0.07)


@pytest.mark.slow
def test_paired_difference_is_narrower_than_the_parts():
    y, p = data(4000)
    warm = p**0.8 / (p**0.8).sum(axis=1, keepdims=True)
    paired = rm.paired_bootstrap(rm.log_loss, y, np.log(warm), np.log(p))
    first = rm.bootstrap_interval(rm.log_loss, y, np.log(warm))
    assert paired.difference == pytest.approx(rm.log_loss(y, np.log(warm)) - rm.log_loss(y, np.log(p)), abs=1e-12)
    assert paired.high - paired.low < 0.5 * (first.high - first.low)
    assert paired.low > 0
    assert paired.p_value < 0.01
    same = rm.paired_bootstrap(rm.brier_score, y, p, p)
    assert (same.difference, same.low, same.high, same.p_value) == (0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize("metric", ["log_loss", "brier_score", "accuracy", "roc_auc", "squared_ece"])
def test_a_paired_difference_is_that_of_an_evaluation(metric):
    rng = np.random.default_rng(0)
    logits = np.stack([np.zeros(300), rng.normal(size=300)], axis=1)
    labels = (rng.random(300) < 1 / (1 + np.exp(-logits[:, 1]))).astype(int)
    groups = np.arange(300) % 7
    rows = Predictions.from_logits(logits, labels).with_clusters({"day": groups})
    calibrator = TemperatureScaling().fit(2.0 * logits, labels)
    found = evaluate(rows, {"ts": calibrator}, n_resamples=10)["ts"].against_none[metric]
    takes_logs = rm.METRICS[metric].takes_logs
    predict = calibrator.predict_log_proba if takes_logs else calibrator.predict_proba
    model = TemperatureScaling(temperatures=[1.0]).fit(logits, labels)
    before = (model.predict_log_proba if takes_logs else model.predict_proba)(logits)
    paired = rm.paired_bootstrap(metric, labels, predict(logits), before, clusters=groups)
    assert (paired.low, paired.high) == pytest.approx((found.low, found.high), rel=1e-9, abs=1e-12)
    assert paired.p_value == pytest.approx(found.p_value, rel=1e-6)


def test_few_clusters_do_not_tell_equal_models_apart():
    n_clusters, n_trials = 3, 200
    cluster = np.repeat(np.arange(n_clusters), 20)
    rejected = 0
    for seed in range(n_trials):
        rng = np.random.default_rng(seed)
        scores = rng.normal(size=len(cluster))
        labels = (rng.random(len(cluster)) < 1 / (1 + np.exp(-scores))).astype(int)
        first, second = (1 / (1 + np.exp(-scores - 0.7 * rng.normal(size=n_clusters)[cluster])) for _ in range(2))
        rejected += rm.paired_bootstrap("brier_score", labels, first, second, clusters=cluster).p_value <= 0.05
    # 10 expected at 5 %, and 20 is more than three standard deviations above: of resampled clusters it was 50.
    assert rejected <= 20


def test_confidence_band_covers_wilsons_interval_roughly():
    y, p = data(5000)
    band = rm.reliability_band(y, p, n_bins=8)
    curve = rm.reliability_curve(y, p, n_bins=8)
    assert band.confidence == curve.confidence
    np.testing.assert_allclose(band.low, curve.low, atol=0.01)
    np.testing.assert_allclose(band.high, curve.high, atol=0.01)


def test_consistency_band_holds_a_calibrated_curve_and_not_another():
    rng = np.random.default_rng(0)
    p = rng.random(5000)
    inside = []
    for _ in range(20):
        band = rm.reliability_band((rng.random(5000) < p).astype(int), p, kind="consistency")
        inside += [low <= a <= high for low, a, high in zip(band.low, band.accuracy, band.high, strict=True)]
    assert 0.9 < np.mean(inside) < 0.99
    band = rm.reliability_band((rng.random(5000) < p**2).astype(int), p, kind="consistency")
    assert sum(a < low for a, low in zip(band.accuracy, band.low, strict=True)) > 10


@pytest.mark.slow
@pytest.mark.parametrize("metric", [rm.log_loss, rm.brier_score])
def test_coverage(metric):
    """95 % intervals over 200 trials; `python benchmarks/interval_coverage.py` runs those of the docs."""
    rng = np.random.default_rng(0)
    a, b = 2.0, 1.0
    if metric is rm.brier_score:
        truth = a * b / ((a + b) * (a + b + 1))
    else:
        from scipy.integrate import quad

        truth = quad(lambda q: -(q * np.log(q) + (1 - q) * np.log1p(-q)) * stats.beta.pdf(q, a, b), 0, 1)[0]
    covered = 0
    for trial in range(200):
        p = rng.beta(a, b, 500)
        y = (rng.random(500) < p).astype(int)
        values = np.log(np.stack([1 - p, p], axis=1)) if metric is rm.log_loss else p
        interval = rm.bootstrap_interval(metric, y, values, n_resamples=400, seed=trial)
        covered += interval.low <= truth <= interval.high
    # 190 expected; 180 … 198 is some three standard deviations either way.
    assert 180 <= covered <= 198


def test_a_metric_is_its_function_its_name_or_its_record():
    y, p = data()
    by_function = rm.bootstrap_interval(rm.expected_calibration_error, y, p, n_resamples=50)
    assert rm.bootstrap_interval("ece", y, p, n_resamples=50) == by_function
    assert rm.bootstrap_interval(rm.METRICS["ece"], y, p, n_resamples=50) == by_function
    own = rm.Metric.of_function(lambda labels, q: float(np.mean(q[:, 0])))
    difference = rm.paired_bootstrap(own, y, p, p[::-1], n_resamples=50)  # without a warning: a record is no guess
    assert difference.difference == pytest.approx(0.0)
    assert difference.low < 0.0 < difference.high


def test_bad_use_is_a_typed_error():
    y, p = data()
    with pytest.raises(ParameterError, match=r"'metric' of bootstrap_interval must be a metric of refocal"):
        rm.bootstrap_interval(0.5, y, p)
    with pytest.raises(ParameterError, match=r"'metric' of bootstrap_interval .*did you mean 'ece'"):
        rm.bootstrap_interval("ecee", y, p)
    with pytest.warns(InputWarning), pytest.raises(ParameterError, match="Got mean, which failed"):
        rm.bootstrap_interval(np.mean, y, p)
    with pytest.raises(ParameterError, match="'n_resamples'"):
        rm.bootstrap_interval(rm.accuracy, y, p, n_resamples=0)
    with pytest.raises(ParameterError, match="'level'"):
        rm.paired_bootstrap(rm.accuracy, y, p, p, level=1.5)
    with pytest.raises(ParameterError, match="'n_bins' of expected_calibration_error"):
        rm.bootstrap_interval(rm.expected_calibration_error, y, p, n_bins=0)
    with pytest.raises(InputError):
        rm.paired_bootstrap(rm.accuracy, y, p, p[:-1])
    with pytest.raises(DataError, match="log_loss is finite"):
        rm.bootstrap_interval(rm.log_loss, [1], np.array([[0.0, -np.inf]]))


def test_a_p_value_counts_the_resamples_on_the_other_side_of_zero():
    zero = rm.Resamples(0.0, np.zeros(19))
    for negative, expected in ((0, 0.1), (1, 0.2), (4, 0.5), (9, 1.0), (10, 1.0), (17, 0.3), (19, 0.1)):
        draws = np.where(np.arange(19) < negative, -1.0, 1.0)
        assert rm.Resamples(0.5, draws).minus(zero).p_value == pytest.approx(expected)


def test_the_spread_of_one_resample_is_nothing_and_of_two_their_deviation():
    assert rm.Resamples(1.0, np.array([3.0])).interval().standard_error == 0.0
    assert rm.Resamples(1.0, np.array([3.0, 5.0])).interval().standard_error == pytest.approx(math.sqrt(2.0))
    assert rm.Resamples(1.0, np.array([3.0, 5.0])).interval().bias == 3.0


@pytest.mark.parametrize("kind", ["confidence", "consistency"])
def test_a_band_leaves_rows_without_weight_out(kind):
    y, p, weight = np.arange(90) % 2, np.repeat([0.1, 0.5, 0.9], 30), np.repeat([0.0, 1.0, 2.0], 30)
    options = {"kind": kind, "strategy": "uniform", "n_bins": 3}
    found = rm.reliability_band(y, p, sample_weight=weight, **options)
    assert found == rm.reliability_band(y[30:], p[30:], sample_weight=weight[30:], **options)


def test_a_band_has_the_level_and_the_bins_that_it_says():
    y, p = data(5000)
    assert len(rm.reliability_band([0, 1] * 50, np.linspace(0, 1, 100)).low) == 15
    for level in (0.5, 0.8):
        band = rm.reliability_band(y, p, n_bins=8, level=level)
        curve = rm.reliability_curve(y, p, n_bins=8, level=level)
        width, wilson = (np.sum(np.subtract(each.high, each.low)) for each in (band, curve))
        assert width == pytest.approx(wilson, rel=0.06)


def test_an_unknown_kind_of_interval_is_refused():
    y, p = data(20)
    with pytest.raises(ParameterError, match="'method' of bootstrap_interval"):
        rm.bootstrap_interval(rm.brier_score, y, p, method="bca")


def test_what_differs_by_rounding_alone_does_not_differ_significantly():
    """As the areas of two methods that keep the order of all rows."""
    influence = np.array([0.1, -0.1])
    found = InfluenceSummary(0.1 + 0.2, influence, (0.0, 1.0)).minus(
        InfluenceSummary(0.3, influence * (1 + 1e-15), (0.0, 1.0))
    )
    assert (found.difference, found.p_value) == (0.0, 1.0)
    assert found.low <= 0.0 <= found.high


def test_a_function_of_ones_own_is_resampled_with_a_caveat():
    y, p = data(400)

    def brier(labels, probabilities, sample_weight=None):
        outcome = np.eye(4)[labels]
        return np.average(((probabilities - outcome) ** 2).sum(axis=1), weights=sample_weight)

    weight = np.random.default_rng(0).random(400)
    for given in (None, weight):
        with pytest.warns(InputWarning, match="interval of brier comes from resampled rows"):
            own = rm.bootstrap_interval(brier, y, p, n_resamples=50, sample_weight=given)
        ours = rm.bootstrap_interval(rm.brier_score, y, p, n_resamples=50, sample_weight=given, method="percentile")
        assert (own.value, own.low, own.high) == pytest.approx((ours.value, ours.low, ours.high))


@pytest.mark.parametrize("metric", [rm.log_loss, rm.brier_score])
def test_the_interval_of_a_loss_is_students_on_the_scale_of_its_logarithm(metric):
    y, p = data(50)
    terms = -np.log(p[np.arange(50), y]) if metric is rm.log_loss else ((p - np.eye(4)[y]) ** 2).sum(axis=1)
    interval = rm.bootstrap_interval(metric, y, np.log(p) if metric is rm.log_loss else p)
    reach = stats.t.ppf(0.975, 49) * stats.sem(terms) / terms.mean()
    assert (interval.low, interval.high) == pytest.approx((terms.mean() * np.exp(-reach), terms.mean() * np.exp(reach)))


def test_a_loss_without_any_mistake_is_not_known_to_be_nothing():
    interval = rm.bootstrap_interval(rm.brier_score, [0, 1] * 20, [0.0, 1.0] * 20)
    assert interval.low == interval.value == 0.0
    assert 0.05 < interval.high < 0.25


def test_predictions_are_resampled_as_their_arrays():
    p = np.random.default_rng(0).dirichlet(np.ones(3), 60)
    labels = np.arange(60) % 3
    rows = Predictions.from_probabilities(p, labels)
    found = rm.resample(rm.brier_score, rows, n_resamples=50)
    np.testing.assert_array_equal(found.draws, rm.resample(rm.brier_score, labels, p, n_resamples=50).draws)
    with pytest.raises(ParameterError, match="'probabilities' of resample must be given"):
        rm.resample(rm.brier_score, labels)


def test_resamples_refuse_intervals_that_they_do_not_have():
    # Any other word for the method gave the percentile interval.
    y = np.arange(60) % 2
    p = np.linspace(0.1, 0.9, 60)
    some = rm.resample("brier_score", y, p, n_resamples=50)
    with pytest.raises(ParameterError, match=r"'method' of Resamples.interval must be one of 'percentile', 'basic'"):
        some.interval(method="bca")
    with pytest.raises(ParameterError, match=r"'level' of Resamples.interval"):
        some.interval(level=95)
    with pytest.raises(InputError, match=r"'other' of Resamples.minus must be of 50 resamples"):
        some.minus(rm.resample("brier_score", y, p, n_resamples=40))


def test_the_brier_score_of_two_classes_is_at_most_1():
    """Of more it may be 2: an interval of two must not reach there, nor be as wide where all rows are alike."""
    p = np.array([0.9, 0.3, 0.8, 0.05])
    assert rm.bootstrap_interval("brier_score", [0, 1, 0, 1], p).high == 1.0
    sure = rm.bootstrap_interval("brier_score", [1] * 20, [1.0] * 20)
    z2 = 1.959964**2
    assert sure.high == pytest.approx(z2 / (20 + z2), rel=1e-6)  # Wilson's of no mistake in 20
    three = np.eye(3)[[0] * 20]
    assert rm.bootstrap_interval("brier_score", [0] * 20, three).high == pytest.approx(2 * z2 / (20 + z2), rel=1e-6)
    logits = np.log(np.column_stack([1 - p, p]))
    for rows in (Predictions.from_logits(logits, [0, 1, 0, 1]), blocks([(logits, [0, 1, 0, 1])])):
        assert evaluate(rows, {}).before.measures["brier_score"].high == 1.0
