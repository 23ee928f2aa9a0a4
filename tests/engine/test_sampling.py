"""Samples of rows: how often a value is in them, and that only the rows decide."""

from __future__ import annotations

import numpy as np
import pytest

from refocal import AutoCalibration, TemperatureScaling
from refocal.engine import Block, sampling
from refocal.io import blocks
from refocal.metrics import log_loss

pytestmark = pytest.mark.numerics


def rounded_rows(n_rows, decimals=2):
    """Overconfident probabilities of class 1, rounded; the true ones; labels."""
    rng = np.random.default_rng(0)
    log_odds = rng.normal(0.5, 1.5, n_rows)
    true_p = 1.0 / (1.0 + np.exp(-log_odds))
    labels = (rng.random(n_rows) < true_p).astype(np.int64)
    p = np.round(1.0 / (1.0 + np.exp(-2.0 * log_odds)), decimals)
    return np.stack([1.0 - p, p], axis=1), np.stack([1.0 - true_p, true_p], axis=1), labels


def forest_votes(n_rows):
    """Shares of the votes of ten trees for four classes, labels drawn from sharper probabilities."""
    rng = np.random.default_rng(1)
    true_p = rng.dirichlet([0.6] * 4, size=n_rows)
    labels = (true_p.cumsum(axis=1) > rng.random((n_rows, 1))).argmax(axis=1)
    blurred = 0.6 * true_p + 0.1
    votes = rng.multinomial(10, blurred / blurred.sum(axis=1, keepdims=True)) / 10.0
    return votes, true_p, labels


def rows_with_a_crowd(n_rows, share=0.3, seed=2):
    """Different rows of three logits, and one row whose number is a share of all."""
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n_rows, 3))
    logits[: int(share * n_rows)] = (9.0, 0.0, -1.0)
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    labels[: int(share * n_rows)] = 0
    return logits, labels


def in_parts(order, n_parts):
    return np.array_split(order, n_parts)


def of_blocks(logits, labels, parts, n_rows, weight=None):
    columns = [logits, labels] if weight is None else [logits, labels, weight]
    dataset = blocks([tuple(column[some] for column in columns) for some in parts])
    dataset.start()
    return dataset.look(lambda block: (block.logits, block.labels, block.weight), n_rows)


@pytest.fixture
def small_looks(monkeypatch):
    """Samples are as large as they are asked for."""
    from refocal.engine import blocked, dataset

    monkeypatch.setattr(dataset, "FEWEST_SAMPLE_ROWS", 1)
    monkeypatch.setattr(dataset, "SAMPLE_ROWS", 1)
    monkeypatch.setattr(blocked, "START_ROWS", 64)


@pytest.mark.parametrize("n_rows", [200_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_the_default_on_rounded_probabilities_has_the_rate_of_the_labels(n_rows):
    p, true_p, labels = rounded_rows(n_rows)
    calibrated = AutoCalibration(input="probabilities").fit(p, labels).predict_proba(p)
    assert calibrated[:, 1].mean() == pytest.approx(labels.mean(), abs=1e-3)
    floored = np.clip(p, 0.005, 1.0)
    assert log_loss(labels, np.log(calibrated)) < log_loss(labels, np.log(floored / floored.sum(axis=1, keepdims=True)))
    assert log_loss(labels, np.log(calibrated)) < log_loss(labels, np.log(true_p)) + 1e-3


@pytest.mark.long
@pytest.mark.slow
def test_the_default_on_votes_of_a_forest_has_the_rates_of_the_labels():
    votes, _, labels = forest_votes(250_000)
    calibrated = AutoCalibration(input="probabilities").fit(votes, labels).predict_proba(votes)
    shares = np.bincount(labels) / len(labels)
    np.testing.assert_allclose(calibrated.mean(axis=0), shares, rtol=0.0, atol=3e-3)
    # As good as on rows of the same kind that were not sampled.
    few = AutoCalibration(input="probabilities").fit(votes[:100_000], labels[:100_000]).predict_proba(votes)
    assert log_loss(labels, np.log(calibrated)) == pytest.approx(log_loss(labels, np.log(few)), abs=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rounded", pytest.param("votes", marks=pytest.mark.long)])
def test_blocks_and_any_order_give_the_sample_of_memory(kind):
    p, _, labels = rounded_rows(150_000) if kind == "rounded" else forest_votes(150_000)
    expected = AutoCalibration(input="probabilities").fit(p, labels).predict_proba(p[:1000])
    order = np.random.default_rng(3).permutation(len(p))
    shuffled = AutoCalibration(input="probabilities").fit(p[order], labels[order]).predict_proba(p[:1000])
    np.testing.assert_allclose(shuffled, expected, rtol=0.0, atol=1e-6)
    rows = blocks([(p[some], labels[some]) for some in in_parts(order, 6)], input="probabilities")
    in_blocks = AutoCalibration(input="probabilities").fit(rows).predict_proba(p[:1000])
    np.testing.assert_allclose(in_blocks, expected, rtol=0.0, atol=1e-6)


def test_a_sample_of_different_rows_has_the_smallest_keys():
    rng = np.random.default_rng(4)
    block = Block(rng.normal(size=(5000, 3)), rng.integers(0, 3, 5000))
    keys = sampling.row_keys(block)
    expected = block.logits[np.argsort(keys)[:300]]
    np.testing.assert_array_equal(sampling.sampled(block, 300).logits, expected)


@pytest.mark.parametrize("n_rows", [40, 400, 4000])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_equal_rows_are_sampled_as_often_as_they_occur(n_rows, is_weighted):
    """To one row for each value, in memory; equal rows of different weights have their mean weight."""
    rng = np.random.default_rng(5)
    values = rng.normal(size=(30, 2))
    row = rng.choice(30, 20_000, p=np.arange(1, 31) / 465)
    weight = rng.random(20_000) + 0.5 if is_weighted else None
    sample = sampling.sampled(Block(values[row], np.zeros(20_000, dtype=np.int64), weight), n_rows)
    assert sample.n_rows == n_rows
    counts = np.array([(sample.logits == value).all(axis=1).sum() for value in values])
    expected = np.bincount(row) * n_rows / 20_000
    assert np.abs(counts - expected).max() <= 1.5
    if is_weighted:
        means = np.bincount(row, weight) / np.bincount(row)
        at = [int(np.flatnonzero((values == each).all(axis=1))[0]) for each in sample.logits]
        np.testing.assert_allclose(sample.weight, means[at], rtol=1e-12)


@pytest.mark.parametrize("n_rows", [100, 1000])
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("n_parts", [1, 2, 13])
def test_a_row_that_is_frequent_among_different_ones_keeps_its_share(n_rows, is_weighted, n_parts, small_looks):
    """Also in blocks, which cannot count all different rows."""
    logits, labels = rows_with_a_crowd(20_000)
    weight = np.random.default_rng(6).random(20_000) + 0.5 if is_weighted else None
    weight = weight if weight is None else np.where(weight < 0.6, 0.0, weight)
    used = slice(None) if weight is None else weight > 0.0
    block = Block(logits[used], labels[used], None if weight is None else weight[used])
    expected = sampling.sampled(block, n_rows)
    order = np.random.default_rng(7).permutation(20_000)
    found = of_blocks(logits, labels, in_parts(order, n_parts), n_rows, weight)
    np.testing.assert_array_equal(found[0], expected.logits)
    np.testing.assert_array_equal(found[1], expected.labels)
    if is_weighted:
        # Shares of a mean below 1 are scaled; the order of summation decides on the last bit.
        np.testing.assert_allclose(found[2] / found[2].mean(), expected.weight / expected.weight.mean(), rtol=1e-12)


@pytest.mark.parametrize("n_rows", [100, 1000])
def test_the_share_of_a_frequent_row_is_right_on_average(n_rows):
    """The number of other rows in a sample varies by chance, and by it the share: by 0.3 √(0.7/n) in one sample."""
    n_samples = 20
    shares = []
    for seed in range(n_samples):
        sample = sampling.sampled(Block(*rows_with_a_crowd(20_000, seed=seed)), n_rows)
        shares.append((sample.logits == (9.0, 0.0, -1.0)).all(axis=1).mean())
    error = 0.3 * (0.7 / n_rows / n_samples) ** 0.5
    assert np.mean(shares) == pytest.approx(0.3, abs=3.0 * error)


def test_rows_that_differ_in_a_few_of_many_columns_are_told_apart():
    """Votes for 40 classes: nearly all of a row are zeros, also the columns that keys are computed from."""
    rng = np.random.default_rng(8)
    votes = np.zeros((3000, 40))
    for _ in range(3):
        votes[np.arange(3000), rng.integers(0, 40, 3000)] += 1.0
    labels = np.zeros(3000, dtype=np.int64)
    n_different = len(np.unique(votes, axis=0))
    assert len(np.unique(sampling.row_keys(Block(votes, labels)))) == n_different
    assert n_different > 2000


def test_zeros_have_the_same_key_before_and_after_they_are_raised():
    raised = Block(np.log([[0.005, 0.995], [0.3, 0.7]]), np.array([1, 0]))
    read = Block(np.log([[1e-38, 0.995], [0.3, 0.7]]), np.array([1, 0]))
    expected = sampling.row_keys(raised, lowest=float(np.log(0.005)))
    np.testing.assert_array_equal(sampling.row_keys(read, lowest=float(np.log(1e-38))), expected)


def test_counters_miss_no_frequent_row_however_they_are_merged():
    """The error of a count is at most N / (k + 1)."""
    rng = np.random.default_rng(9)
    keys = np.concatenate([np.repeat(np.arange(5), 400), np.arange(100, 4100)]).astype(np.uint64)
    for _ in range(5):
        parts = np.array_split(rng.permutation(keys), int(rng.integers(1, 12)))
        counted = [sampling.Counters(*np.unique(part, return_counts=True)) for part in parts]
        merged = counted[0]
        for part in counted[1:]:
            merged = sampling.joined_counters([merged, part], 30)
        merged = sampling.joined_counters([merged], 30)
        assert len(merged.keys) <= 30
        lost = 400 - merged.counts[np.searchsorted(merged.keys, np.arange(5, dtype=np.uint64))]
        assert np.all(lost >= 0)
        assert np.all(lost <= len(keys) / 31)


@pytest.mark.parametrize("weighted_first", [False, True])
def test_a_block_without_weights_beside_one_with_weights_has_weights_of_one(weighted_first):
    """In samples, which say how objectives other than the log-loss are minimised."""
    logits, labels = rows_with_a_crowd(2_000)
    weight = np.random.default_rng(7).random(1_200) * 20.0
    parts = [(logits[:800], labels[:800]), (logits[800:], labels[800:], weight)]
    with_ones = [(*parts[0], np.ones(800)), parts[1]]
    order = slice(None, None, -1 if weighted_first else 1)
    found, expected = (
        TemperatureScaling(objective="ece").fit(blocks(given[order])).temperature_ for given in (parts, with_ones)
    )
    assert found == expected
    weights = []
    for given in (parts, with_ones):
        dataset = blocks(given[order])
        weights.append(dataset.look(lambda block: block.weights, 500))
    np.testing.assert_array_equal(*weights)
