"""Intervals that hold for calibration errors: the squared error and its difference, and inverted tests."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

import refocal.metrics as rm
from refocal.errors import DataError, ParameterError
from refocal.metrics.bins import Bins, bins_of
from refocal.metrics.inputs import read_probabilities
from refocal.metrics.intervals import MeanSummary, ShareSummary, share_interval, skewed_difference
from refocal.metrics.inverted_error import _smoothed_gaps
from refocal.metrics.record import BlockSums
from refocal.metrics.smooth import _kernel
from refocal.metrics.squared import SquaredSummary, gap_squares, standard_error

pytestmark = pytest.mark.numerics


def draw(seed, n=400, power=1.3):
    rng = np.random.default_rng(seed)
    p = rng.beta(4, 1, n)
    return (rng.random(n) < p**power).astype(int), p


def pairs_by_loop(y, p, weight, n_bins):
    """Every pair of rows of a bin, one at a time: (i, j, what the pair adds)."""
    below = np.array([weight[p < each].sum() for each in p]) / weight.sum()
    index = np.floor(n_bins * below + 1e-12).astype(int)
    found = {}
    for i in range(len(p)):
        for j in range(len(p)):
            if i != j and index[i] == index[j]:
                w = weight[index == index[i]]
                share = w.sum() / weight.sum() / (w.sum() ** 2 - (w**2).sum())
                found[i, j] = share * weight[i] * weight[j] * (p[i] - y[i]) * (p[j] - y[j])
    return found


@pytest.mark.parametrize("weighted", [False, True])
def test_squared_error_is_a_sum_over_pairs(weighted):
    y, p = draw(0, n=60)
    p = p.round(2)
    weight = np.random.default_rng(1).random(60) if weighted else np.ones(60)
    expected = sum(pairs_by_loop(y, p, weight, 5).values())
    given = weight if weighted else None
    assert rm.squared_ece(y, p, n_bins=5, sample_weight=given) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("is_noise", [True, False], ids=["noise", "overconfident"])
def test_standard_error_of_a_difference_by_a_loop_over_pairs(is_noise, weighted):
    """Where noise is most of it, half of the jackknife is the least that is returned; otherwise pairs are taken off."""
    y, p = draw(0, n=60)
    q = np.random.default_rng(3).permutation(p) ** 0.5 if is_noise else p**6
    weight = np.random.default_rng(1).uniform(0.5, 1.5, 60) if weighted else np.ones(60)
    first, second = (pairs_by_loop(y, each, weight, 5) for each in (p, q))
    apart = {pair: first.get(pair, 0.0) - second.get(pair, 0.0) for pair in {*first, *second}}
    of_row = np.zeros(60)
    for (i, _), value in apart.items():
        of_row[i] += value
    jackknife = 4 * np.sum((of_row - weight / weight.sum() * of_row.sum()) ** 2)
    without_pairs = jackknife - 2 * sum(value**2 for value in apart.values())
    assert bool(without_pairs < jackknife / 2) is is_noise
    expected = max(without_pairs, jackknife / 2) ** 0.5
    given = weight if weighted else None
    found = [gap_squares(read_probabilities(y, each, given, "test"), 5) for each in (p, q)]
    assert standard_error(*found) == pytest.approx(expected, rel=1e-9)
    difference = rm.squared_ece_difference(y, p, q, n_bins=5, sample_weight=given)
    assert difference.difference == pytest.approx(sum(apart.values()), abs=1e-12)
    n_effective = int(weight.sum() ** 2 / (weight @ weight) + 1e-6)
    quantile = student.ppf(0.975, n_effective - 1)
    assert (difference.high - difference.low) / 2 == pytest.approx(quantile * expected, rel=1e-6)
    assert difference.n_resamples == 0  # nothing is resampled
    same = rm.squared_ece_difference(y, p, p)
    assert (same.difference, same.low, same.high, same.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_few_weighted_rows_in_each_bin_are_no_evidence_of_an_error():
    # Of 27 rows most bins have one or two. Weights that have nothing to do with the labels leave a calibrated model
    # calibrated: an interval of 95 % begins above 0 in one of 40 samples.
    begins_above = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        p = rng.random(27)
        y = (rng.random(27) < p).astype(int)
        weight = rng.choice([1.0, 2.0], 27)
        begins_above.append(rm.bootstrap_interval("squared_ece", y, p, sample_weight=weight).low > 0.0)
    assert np.mean(begins_above) < 0.1  # four standard errors of a share of 0.025


def test_squared_error_is_the_square_of_the_debiased_one():
    y, p = draw(0, n=20_000)
    assert rm.squared_ece(y, p) == pytest.approx(rm.debiased_ece(y, p) ** 2, rel=0.01)


def test_squared_error_of_a_calibrated_model_averages_to_zero():
    found = [rm.squared_ece(*draw(seed, power=1.0)) for seed in range(300)]
    assert abs(np.mean(found)) < 3 * np.std(found) / 300**0.5


def weighted_draw(seed, n=300):
    """Rows of a calibrated model; class 1 was kept with probability 0.3 and weighs 1 / 0.3, times a random factor."""
    rng = np.random.default_rng(seed)
    p = rng.beta(2, 2, 3 * n)
    y = (rng.random(3 * n) < p).astype(np.int64)
    kept = np.flatnonzero((y == 0) | (rng.random(3 * n) < 0.3))[:n]
    weight = np.where(y == 1, 1 / 0.3, 1.0) * np.exp(rng.standard_normal(3 * n))
    return y[kept], p[kept], weight[kept]


def squared_error_in_blocks(y, p, weight):
    histogram = rm.CalibrationHistogram()
    for block in np.array_split(np.arange(len(y)), 3):
        histogram.update(y[block], p[block], sample_weight=None if weight is None else weight[block])
    sums = BlockSums(histogram=histogram, classes=[], residuals=np.zeros(1), means={})
    return rm.METRICS["squared_ece"].streamed(sums)


@pytest.mark.parametrize("n", [20, 300, 5_000])  # 20 rows leave bins of one row, which have no pairs
@pytest.mark.parametrize("weighted", [False, True])
def test_squared_error_in_blocks_is_that_of_memory(n, weighted):
    y, p, weight = weighted_draw(n, n)
    p = p.round(4)  # each value has a cell of its own, so that nothing is rounded
    weight = weight if weighted else None
    exact = SquaredSummary.of(read_probabilities(y, p, weight, "test"))
    streamed = squared_error_in_blocks(y, p, weight)
    assert streamed.value == pytest.approx(exact.value, abs=1e-12)
    assert streamed.summary.interval().high == pytest.approx(exact.interval().high, rel=1e-9)


def test_squared_error_of_weighted_rows_averages_to_zero_in_blocks_too():
    errors = np.array([squared_error_in_blocks(*weighted_draw(seed)).value for seed in range(200)])
    assert abs(errors.mean()) < 3 * errors.std() / 200**0.5


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(0.99, 1.01), (0.8, 1.0), (0.8, 1.25)])
def test_difference_of_squared_errors_covers(first, second):
    """95 % intervals over 300 trials; `python benchmarks/interval_coverage.py` runs the tables of the docs."""
    c = np.random.default_rng(0).beta(4, 1, 1_000_000)
    truth = np.mean((c**first - c) ** 2) - np.mean((c**second - c) ** 2)
    covered = 0
    for seed in range(300):
        y, p = draw(seed, n=600, power=1.0)
        found = rm.squared_ece_difference(y, p**first, p**second)
        covered += found.low <= truth <= found.high
    assert 0.91 * 300 <= covered <= 0.985 * 300


@pytest.mark.slow
@pytest.mark.parametrize("power", [pytest.param(1.0, marks=pytest.mark.long), 1.3])
@pytest.mark.parametrize(
    "metric",
    [
        rm.expected_calibration_error,
        rm.debiased_ece,
        rm.ks_calibration_error,
        pytest.param(rm.smooth_ece, marks=pytest.mark.long),
    ],
)
def test_default_interval_of_a_calibration_error_covers(metric, power):
    c = np.random.default_rng(0).beta(4, 1, 1_000_000)
    gap = c - c**power
    truth = np.sqrt(np.mean(gap**2)) if metric is rm.debiased_ece else np.mean(gap)
    n_trials = 40 if metric is rm.smooth_ece else 100
    covered = 0
    for seed in range(n_trials):
        found = rm.bootstrap_interval(metric, *draw(seed, n=600, power=power), n_resamples=100)
        assert 0.0 <= found.low <= found.high <= 1.0
        covered += found.low <= truth + 1e-12 and truth <= found.high
    # Percentiles of resampled rows cover 0 and 58 % of the ECEs.
    assert covered >= 0.85 * n_trials


@pytest.mark.parametrize("seed", [0, 5])
def test_the_interval_of_the_largest_gap_holds_models_off_by_the_gaps_as_they_were_seen(seed):
    """Against binomial draws: a model under which 5 % of the values are as small as the one seen is not ruled out."""
    rng = np.random.default_rng(seed)
    n = 12_000
    u = np.sort(rng.random(n))
    p = 0.25 + 0.7 * u
    y = (rng.random(n) < p - (0.03 + 0.06 * np.sin(np.pi * u))).astype(int)
    found = rm.bootstrap_interval("max_calibration_error", y, p)
    gaps_of_eighths = (p - y).reshape(8, -1).mean(axis=1)
    gap = np.interp((np.arange(15) + 0.5) / 15, (np.arange(8) + 0.5) / 8, gaps_of_eighths)
    confidence = p.reshape(15, -1).mean(axis=1)
    observed = np.abs((p - y).reshape(15, -1).mean(axis=1)).max()
    assert found.value == pytest.approx(observed)
    largest = 0.0
    for t in np.arange(0.9, 1.6, 0.02):
        rates = rng.binomial(n // 15, confidence - t * gap, (2000, 15)) / (n // 15)
        if np.mean(np.abs(confidence - rates).max(axis=1) <= observed) > 0.05:
            largest = float(np.abs(t * gap).max())
    assert observed < largest < found.high < 1.1 * largest


def test_kernel_is_that_of_the_smooth_error():
    y, p = draw(0)
    for width in (0.01, 0.1, 0.7):
        kernel = _kernel(p, width)
        assert np.abs((p - y) @ kernel / len(p)).mean() == pytest.approx(rm.smooth_ece(y, p, bandwidth=width), rel=2e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::refocal.errors.InputWarning")
def test_intervals_keep_to_the_range_of_the_metric():
    y, p = [1] * 30, [0.999] * 30
    for metric in (rm.expected_calibration_error, rm.brier_score, rm.accuracy, rm.smooth_ece, rm.squared_ece):
        for method in (None, "basic", "percentile"):
            found = rm.bootstrap_interval(metric, y, p, n_resamples=50, method=method)
            assert 0.0 <= found.low <= found.high <= 1.0
    y, p = draw(0, n=100, power=1.0)
    assert rm.bootstrap_interval(rm.expected_calibration_error, y, p, method="basic").low == 0.0


def test_a_wider_level_has_a_wider_interval_and_more_rows_a_narrower_one():
    y, p = draw(0, n=4000)
    widths = [
        found.high - found.low
        for found in (
            rm.bootstrap_interval(rm.expected_calibration_error, y, p, level=0.5),
            rm.bootstrap_interval(rm.expected_calibration_error, y, p),
            rm.bootstrap_interval(rm.expected_calibration_error, y[:400], p[:400]),
        )
    ]
    assert widths == sorted(widths)


@pytest.mark.slow
def test_weights_of_two_narrow_no_interval():
    """A weight of 2 for all is no second look at the rows."""
    y, p = draw(0)
    for metric in (rm.expected_calibration_error, rm.smooth_ece, rm.squared_ece):
        one, two = (rm.bootstrap_interval(metric, y, p, sample_weight=np.full(400, w)) for w in (1.0, 2.0))
        assert (one.low, one.high) == pytest.approx((two.low, two.high), abs=1e-12)


def test_an_unknown_level_is_refused():
    with pytest.raises(ParameterError, match="'level' of squared_ece_difference"):
        rm.squared_ece_difference([0, 1], [0.1, 0.9], [0.2, 0.8], level=95)


def test_standard_errors_of_a_share_and_of_a_shift_are_those_of_binomials():
    rng = np.random.default_rng(0)
    assert share_interval(0.2, 50.0, 0.9).standard_error == pytest.approx(np.sqrt(0.2 * 0.8 / 50.0))
    p = rng.random(2000)
    found = rm.mean_bias_interval(rng.random(2000) < p, p)
    assert found.standard_error == pytest.approx(np.sqrt((p * (1.0 - p)).sum()) / 2000, rel=0.02)


def test_a_heavy_row_moves_the_band_of_its_bin():
    y, weight = np.array([1] + [0] * 9), np.array([1000.0] + [1.0] * 9)
    band = rm.reliability_band(y, np.full(10, 0.6), n_bins=1, sample_weight=weight)
    assert band.accuracy[0] == pytest.approx(1000.0 / 1009.0)
    assert band.high[0] > 0.99
    assert band.low[0] < 0.3  # the other rows count as nearly none beside it


@pytest.mark.parametrize("level", [0.0, 1.0, 1.5])
def test_a_level_lies_between_0_and_1(level):
    y, p = draw(0, 20)
    for measure, values in ((rm.set_coverage, np.ones((20, 2))), (rm.reliability_band, p), (rm.mean_bias_interval, p)):
        with pytest.raises(ParameterError, match=f"'level' of {measure.__name__}"):
            measure(y, values, level=level)


def test_the_gaps_of_an_inverted_test_are_averaged_twice_with_their_neighbours():
    weight, gap = np.full(6, 10.0), np.array([0.3, -0.1, 0.2, 0.0, 0.4, -0.2])
    bins = Bins(weight.astype(int), weight, weight * (0.5 + gap), weight * 0.5, weight, weight * 0.5)
    expected = gap
    for _ in range(2):
        last = len(gap) - 1
        expected = [
            (expected[max(i - 1, 0)] + 2.0 * expected[i] + expected[min(i + 1, last)]) / 4.0 for i in range(last + 1)
        ]
    np.testing.assert_allclose(_smoothed_gaps(bins, bins), expected, rtol=1e-12)


def sampled_by_class(seed, n=20_000, kept=0.1, which=1):
    """Rows of a calibrated model, those of one class sampled and weighted up."""
    rng = np.random.default_rng(seed)
    p = rng.beta(1, 6, n)
    y = (rng.random(n) < p).astype(int)
    found = (rng.random(n) < kept) | (y != which)
    return y[found], p[found], np.where(y == which, 1.0 / kept, 1.0)[found]


def test_the_bias_has_one_interval_whichever_function_gives_it():
    rng = np.random.default_rng(0)
    y, p = draw(0, n=200)
    for weight in (None, np.exp(rng.normal(size=200))):
        of_bias = rm.mean_bias_interval(y, p, sample_weight=weight)
        of_metric = rm.bootstrap_interval("mean_bias", y, p, sample_weight=weight)
        # The metric puts rows into cells of a thousandth of the weight.
        assert (of_bias.low, of_bias.high) == pytest.approx((of_metric.low, of_metric.high), abs=1e-4)


def test_equal_weights_do_not_change_the_interval_of_the_bias():
    y, p = draw(0, n=20)
    plain = rm.mean_bias_interval(y, p)
    weighted = rm.mean_bias_interval(y, p, sample_weight=np.full(20, 0.3))
    assert (weighted.low, weighted.high) == pytest.approx((plain.low, plain.high), abs=1e-9)


@pytest.mark.parametrize("which", [0, 1])
def test_errors_hold_for_weights_that_depend_on_the_label(which):
    y, p, weight = sampled_by_class(0, which=which)
    squares = weight**2 * (y - p) ** 2
    expected = np.sqrt(squares.sum()) / weight.sum()
    assert rm.mean_bias_interval(y, p, sample_weight=weight).standard_error == pytest.approx(expected, rel=0.03)
    one_bin = rm.bootstrap_interval(
        rm.expected_calibration_error, y, np.full(len(y), p @ weight / weight.sum()), n_bins=1, sample_weight=weight
    )
    rate = weight @ y / weight.sum()
    spread = np.sqrt((weight**2 * (y - rate) ** 2).sum()) / weight.sum()
    # Of a value near 0 half of the draws are turned over: compare the reach of the interval instead.
    assert one_bin.high == pytest.approx(one_bin.value + 1.96 * spread, rel=0.15)
    curve = rm.reliability_curve(y, p, n_bins=1, sample_weight=weight)
    assert (curve.high[0] - curve.low[0]) / 3.92 == pytest.approx(spread, rel=0.01)
    excess = (y - p) * (1 - 2 * p)
    z = weight @ excess / np.sqrt((weight**2 * excess**2).sum())
    assert rm.spiegelhalter_test(y, p, sample_weight=weight).z == pytest.approx(z, rel=0.03)
    two = np.column_stack([1 - p, p, np.zeros(len(p))])  # the same by the formula of several classes
    assert rm.spiegelhalter_test(y, two, sample_weight=weight).z == pytest.approx(z, rel=0.03)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
def test_calibrated_models_pass_with_weights_that_depend_on_the_label(which):
    calm = np.zeros(4)
    for seed in range(100):
        y, p, weight = sampled_by_class(seed, n=1000, kept=0.3, which=which)
        errors = [rm.expected_calibration_error, rm.debiased_ece, rm.squared_ece]
        found = [rm.bootstrap_interval(each, y, p, sample_weight=weight, n_resamples=200).low for each in errors]
        calm += [*(each == 0.0 for each in found), rm.spiegelhalter_test(y, p, sample_weight=weight).p_value > 0.05]
    assert calm.min() >= 90, calm


def test_bins_of_blocks_know_the_weights_of_each_label():
    y, p, weight = sampled_by_class(0, n=2000)
    histogram = rm.CalibrationHistogram()
    for some in np.array_split(np.arange(len(y)), 3):
        histogram.merge(rm.CalibrationHistogram().update(y[some], p[some], sample_weight=weight[some]))
    histogram = copy.deepcopy(rm.CalibrationHistogram.from_json(histogram.to_json()))
    bins = bins_of(read_probabilities(y, p, weight, "test", None), n_bins=15)
    streamed = histogram.equal_mass().bins
    np.testing.assert_allclose(streamed.size_at(streamed.p), bins.size_at(bins.p), rtol=1e-9)
    of_one, of_zero = bins.outcome_weights
    np.testing.assert_allclose([of_one, of_zero], [[10.0] * 15, [1.0] * 15], rtol=1e-9)


def test_few_rows_of_a_label_borrow_the_weights_of_others():
    weight, correct = np.array([100.0, 100.0]), np.array([0.0, 30.0])
    bins = Bins(np.array([100, 73]), weight, weight * [0.1, 0.3], correct, np.array([100.0, 370.0]), correct * 10)
    np.testing.assert_allclose(bins.outcome_weights, [[10.0, 10.0], [1.0, 1.0]])
    np.testing.assert_allclose(bins.size_at(np.array([0.2, 0.0])), [100 / 8.2, 10.0])
    never = Bins(np.array([50]), np.array([100.0]), np.array([10.0]), np.zeros(1), np.array([200.0]), np.zeros(1))
    np.testing.assert_allclose(never.outcome_weights, [[2.0], [2.0]])


def test_equal_weights_are_no_weights():
    y, p = draw(5)
    weight = np.full(len(y), 0.1)
    for metric in (rm.expected_calibration_error, rm.smooth_ece, rm.debiased_ece, rm.squared_ece, rm.mean_bias):
        with_weights = rm.bootstrap_interval(metric, y, p, sample_weight=weight)
        without = rm.bootstrap_interval(metric, y, p)
        assert (with_weights.low, with_weights.high) == pytest.approx((without.low, without.high), rel=1e-9)
    assert rm.spiegelhalter_test(y, p, sample_weight=weight).z == pytest.approx(rm.spiegelhalter_test(y, p).z)
    pair = [rm.reliability_band(y, p, kind="consistency", sample_weight=w) for w in (weight, None)]
    np.testing.assert_allclose(pair[0].high, pair[1].high, rtol=1e-9)


@pytest.mark.parametrize("skewness", [0.0, 1e-9, 0.05, -0.3, 0.9])
def test_the_ends_of_a_skewed_difference_are_those_that_its_p_value_does_not_reject(skewness):
    found = skewed_difference(0.4, 0.1, 0.2, skewness, 0.95, 50)
    mirrored = skewed_difference(0.1, 0.4, 0.2, -skewness, 0.95, 50)
    assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low))
    assert mirrored.p_value == pytest.approx(found.p_value)
    for end in (found.low, found.high):
        assert skewed_difference(0.4 - end, 0.1, 0.2, skewness, 0.95, 50).p_value == pytest.approx(0.05, rel=1e-6)
    if abs(skewness) < 1e-6:
        margin = 0.2 * student.ppf(0.975, 49)
        assert (found.low, found.high) == pytest.approx((0.3 - margin, 0.3 + margin), rel=1e-6)


def test_differences_of_skewed_losses_cover():
    """Of 60 rows of exponential terms Student's interval misses in 8 %, nearly always below the truth."""
    rng = np.random.default_rng(0)
    missed = np.zeros(2)
    missed_by_student = 0
    n_samples = 1500
    for _ in range(n_samples):
        terms = rng.exponential(size=60) ** 1.5
        second = np.zeros(60)
        summary = MeanSummary(terms.mean(), terms, None, None, (0.0, np.inf))
        difference = summary.minus(MeanSummary(0.0, second, None, None, (0.0, np.inf)))
        true = 1.329340388179137  # Γ(2.5)
        missed += [difference.low > true, difference.high < true]
        margin = student.ppf(0.975, 59) * terms.std(ddof=1) / np.sqrt(60)
        missed_by_student += abs(terms.mean() - true) > margin
    assert missed_by_student > 0.075 * n_samples
    assert missed.sum() < 0.065 * n_samples
    assert missed.max() < 0.05 * n_samples


def test_differences_of_few_units_that_are_not_skewed_cover():
    """The skewness that 20 symmetric terms have by chance is not taken off: with it the intervals missed in 7 %."""
    rng = np.random.default_rng(0)
    n_samples = 3000
    missed = 0
    for _ in range(n_samples):
        terms = rng.laplace(size=20)
        zeros = np.zeros(20)
        summary = MeanSummary(terms.mean(), terms, None, None, (-np.inf, np.inf))
        difference = summary.minus(MeanSummary(0.0, zeros, None, None, (-np.inf, np.inf)))
        missed += not difference.low <= 0.0 <= difference.high
        assert (difference.p_value <= 0.05) == (not difference.low <= 0.0 <= difference.high)
    # 150 expected at 5 %; 186 is three standard deviations above.
    assert missed <= 186


def test_a_share_is_of_no_more_rows_than_there_are_effectively():
    """Events of small weights alone were seen: those of large ones are as rare as a row of these."""
    weight = np.repeat([0.1, 1.0], [50, 50])
    happened = np.zeros(100)
    happened[:3] = 1.0
    n_effective = weight.sum() ** 2 / (weight @ weight)
    share = 0.3 / weight.sum()
    interval = ShareSummary.of(happened, weight).interval()
    assert interval.value == pytest.approx(share)
    expected = share_interval(share, n_effective, 0.95, int(n_effective))
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    plain = ShareSummary.of(happened, None).interval()
    of_rows = share_interval(0.03, 100, 0.95)
    assert (plain.low, plain.high) == pytest.approx((of_rows.low, of_rows.high))


@pytest.mark.parametrize("name", ["ks_calibration_error", "smooth_ece"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_upper_end_of_an_error_without_bins_is_not_that_of_any_model(name, weighted):
    """The noise of cells of two rows was taken for true gaps, and no model was off too far: the end was 0.5."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        p = 1.0 / (1.0 + np.exp(-rng.normal(0.0, 1.5, 400)))
        y = (rng.random(400) < p).astype(int)
        weight = rng.uniform(0.1, 3.0, 400) if weighted else None
        interval = rm.bootstrap_interval(name, y, p, sample_weight=weight)
        # Kolmogorov: the cumulative sum of residuals of variance p (1 - p) stays below 1.36 standard errors.
        weights = np.ones(400) if weight is None else weight
        error = np.sqrt(np.sum(weights**2 * p * (1.0 - p))) / weights.sum()
        assert interval.high < interval.value + 2.0 * 1.36 * error


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0.01, 0.09, 0.7])
def test_terms_that_are_equal_but_for_rounding_are_equal(value, dtype):
    """Their mean rounds with some numbers of rows: with each others may be anywhere within the limits."""
    terms = np.full(60, value, dtype=dtype)
    terms[::2] = np.nextafter(dtype(value), dtype(1.0))
    z2 = norm.ppf(0.975) ** 2
    for n_rows in range(2, 61):
        some = terms[:n_rows].astype(np.float64)
        interval = MeanSummary(some.mean(), some, None, None, (0.0, 1.0)).interval()
        ends = np.array([value * n_rows, value * n_rows + z2]) / (n_rows + z2)
        assert (interval.low, interval.high) == pytest.approx(ends, rel=1e-6)


@pytest.mark.parametrize("metric", ["log_loss", "average_precision"])
def test_equal_weights_are_no_fewer_rows_by_rounding(metric):
    """Of 3 rows that weigh 0.3 the sums round to 2.9999 rows, of which Student's t is that of 2."""
    p = np.array([0.2, 0.5, 0.7, 0.6])
    given = np.log(np.column_stack([1 - p, p])) if metric == "log_loss" else p
    for kept in ([0, 1, 2], [0, 1, 2, 3]):
        plain = rm.bootstrap_interval(metric, np.array([0, 1, 1, 1])[kept], given[kept])
        for weight in (0.1, 0.3, 0.7):
            found = rm.bootstrap_interval(
                metric, np.array([0, 1, 1, 1])[kept], given[kept], sample_weight=[weight] * len(kept)
            )
            assert (found.low, found.high) == pytest.approx((plain.low, plain.high), rel=1e-6)


@pytest.mark.parametrize(
    "measure",
    [
        lambda y, p, **how: rm.bootstrap_interval("accuracy", y, p, **how),
        lambda y, p, **how: rm.bootstrap_interval("roc_auc", y, p, **how),
        lambda y, p, **how: rm.paired_bootstrap("ece", y, p, p**2, **how),
        lambda y, p, **how: rm.resample("aurc", y, p, **how),
        lambda y, p, **how: rm.squared_ece_difference(y, p, p**2, **how),
        lambda y, p, **how: rm.set_coverage(y, np.stack([p < 0.5, p >= 0.5], axis=1), **how),
        lambda y, p, **how: rm.risk_at_coverage(y, p, coverage=0.5, **how),
        lambda y, p, **how: rm.coverage_at_risk(y, p, risk=0.2, **how),
        rm.flexible_curve,
        rm.mean_bias_interval,
        rm.reliability_band,
        rm.reliability_curve,
    ],
)
def test_a_single_cluster_is_refused(measure):
    y, p = draw(0, n=60)
    with pytest.raises(DataError, match=r"'clusters' of .* must be of at least two different ones: a single cluster"):
        measure(y, p, clusters=np.zeros(60))
    weight = np.where(np.arange(60) < 30, 1.0, 0.0)
    with pytest.raises(DataError, match="at least two different ones"):
        measure(y, p, clusters=weight, sample_weight=weight)  # the other cluster has no weight


def test_a_single_row_does_not_tell_two_shares_apart():
    difference = ShareSummary.of(np.array([1.0]), None).minus(ShareSummary.of(np.array([0.0]), None))
    assert (difference.difference, difference.p_value) == (1.0, 1.0)
    assert (difference.low, difference.high) == (-np.inf, np.inf)


def test_a_share_of_rows_of_one_cluster_may_be_any():
    share = ShareSummary.of(np.array([True, False, True, True]), None, np.zeros(4, dtype=np.int64))
    for interval in (share.interval(), share.exact_interval(level=0.99)):
        assert (interval.value, interval.low, interval.high) == (0.75, 0.0, 1.0)


def test_two_clusters_do_not_tell_two_squared_errors_apart():
    # Every pair of rows of different clusters is one of the same two: the jackknife saw a variance of 0.
    y, p = draw(0, n=200)
    found = rm.squared_ece_difference(y, p**0.8, p, clusters=np.arange(200) % 2)
    assert (found.low, found.high, found.p_value) == (-np.inf, np.inf, 1.0)
    of_three = rm.squared_ece_difference(y, p**0.8, p, clusters=np.arange(200) % 3)
    assert np.isfinite([of_three.low, of_three.high]).all()
