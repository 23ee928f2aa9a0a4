"""Passes over rows in blocks: their sums and the sample."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from helpers import draw_logits
from refocal import TemperatureScaling, metrics
from refocal.engine import Block, Pass, blocked, dataset, refining, scoring
from refocal.errors import LabelError
from refocal.evaluate import evaluate
from refocal.io import Predictions, blocks, rows_of
from refocal.maps import focal_temperature
from refocal.maps.chain import Chain
from refocal.maps.steps import Focal, Temperature

pytestmark = [pytest.mark.core, pytest.mark.numerics]

POINTS = ((0.0, 1.0), (1.0, 2.0), (3.0, 1.0), (0.0, 2.0), (1.0, 2.0))
CHAINS = [Chain((Temperature(temperature), Focal(gamma))) for gamma, temperature in POINTS]


def draw_weighted(n_rows=400, n_classes=4):
    """Logits, labels and weights."""
    return *draw_logits(n_rows, n_classes, temperature=1.4), np.random.default_rng(1).uniform(0.0, 3.0, n_rows)


def started(pairs, look=False):
    rows = blocks(pairs)
    rows.start(look=look)
    return rows


def terms_by_hand(logits, labels):
    """Log-loss, Brier score and correctness of every row at each of the points."""
    terms = []
    for gamma, temperature in POINTS:
        log_p = focal_temperature(logits, gamma, temperature)
        p, rows = np.exp(log_p), np.arange(len(labels))
        brier = ((p - np.eye(p.shape[1])[labels]) ** 2).sum(axis=1)
        terms.append((-log_p[rows, labels], brier, p.argmax(axis=1) == labels))
    return np.array(terms).transpose(1, 0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("part", [1 << 18, 70])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_hold_the_means(weighted, part, monkeypatch):
    monkeypatch.setattr(scoring, "PART_ROWS", part)
    logits, labels, weight = draw_weighted()
    block = Block(logits, labels, weight if weighted else None)
    weight = weight if weighted else np.ones(len(labels))
    empty = (metrics.CalibrationHistogram(),) * len(POINTS)
    found = scoring.sums_of(block, CHAINS, empty)
    terms = terms_by_hand(logits, labels)
    assert found.weight == pytest.approx(weight.sum(), rel=1e-12)
    assert [each.count for each in empty] == [0] * len(POINTS)  # they are patterns, and stay empty
    measured = scoring.measures(found, (15,), refine=True)
    (log_loss, ece, *others), (_, mean_ece, *_) = measured.values, scoring.measures(found, (5, 15)).values
    np.testing.assert_allclose([log_loss, *others], np.average(terms, axis=2, weights=weight), rtol=1e-12)
    without = scoring.sums_of(block, CHAINS, ())
    np.testing.assert_array_equal(scoring.measures(without, ()).values, [log_loss, np.zeros(len(CHAINS)), *others])
    for at, (gamma, temperature) in enumerate(POINTS):
        p = np.exp(focal_temperature(logits, gamma, temperature))
        errors = [metrics.expected_calibration_error(labels, p, n_bins=n, sample_weight=block.weight) for n in (5, 15)]
        assert mean_ece[at] == pytest.approx(np.mean(errors), abs=1e-4)
        assert ece[at] == pytest.approx(errors[1], abs=measured.bound + 1e-15)
    assert measured.bound <= refining.ECE_TOLERANCE
    assert measured.finer == ()  # known well enough


@pytest.mark.slow
def test_joined_sums_of_two_blocks_are_those_of_both():
    logits, labels, weight = draw_weighted()
    cells = (metrics.CalibrationHistogram(),) * len(POINTS)
    whole = scoring.sums_of(Block(logits, labels, weight), CHAINS, cells)
    parts = [scoring.sums_of(Block(logits[at], labels[at], weight[at]), CHAINS, cells) for at in np.s_[:150, 150:]]
    joined = parts[0].merge(parts[1])
    for name in ("weight", "sums"):
        np.testing.assert_allclose(getattr(joined, name), getattr(whole, name), rtol=1e-12)
    assert [h.count for h in joined.histograms] == [len(labels)] * len(POINTS)


def test_whole_numbers_are_logits_too():
    logits, labels, _ = draw_weighted()
    whole = np.round(logits).astype(np.int8)
    found = scoring.sums_of(Block(whole, labels), CHAINS, ())
    np.testing.assert_allclose(found.sums, terms_by_hand(whole.astype(float), labels).sum(axis=2), rtol=1e-12)


def test_the_first_walk_finds_what_memory_finds():
    logits, labels, weight = draw_weighted()
    here = Block(logits, labels, weight)
    found = started([(logits[:90], labels[:90], weight[:90]), (logits[90:], labels[90:], weight[90:])], look=True)
    assert (found.n_rows, found.n_classes, found.n_skipped, found.passes) == (400, 4, 0, 0)
    assert found.total_weight == pytest.approx(weight.sum(), rel=1e-12)
    assert found.mean_gap == pytest.approx(here.mean_gap, rel=1e-12)
    assert found.precision == here.precision
    for name, settings in (("temperature", (0.8,)), ("focal", (1.0, 1 / 1.5))):
        ours, theirs = found.means(name, *settings), here.means(name, *settings)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    assert found.passes == 2  # one for each kind of means; what was inspected is not read again


def test_the_sample_is_made_of_the_rows_alone(monkeypatch):
    monkeypatch.setattr(dataset, "SAMPLE_ROWS", 0)
    monkeypatch.setattr(dataset, "FEWEST_SAMPLE_ROWS", 50)
    logits, labels, weight = draw_weighted(3000)

    def sampled(order, *cuts):
        parts = [(logits[some], labels[some], weight[some]) for some in np.split(order, cuts)]
        problem = started(parts, look=True)
        return problem.look(lambda p: (p.logits, p.labels, p.weight), 50)

    plain = sampled(np.arange(3000))
    rng = np.random.default_rng(1)
    for cuts in ((), (1, 40, 1500), (2999,)):
        for one, other in zip(plain, sampled(rng.permutation(3000), *cuts), strict=True):
            np.testing.assert_array_equal(one, other)
    # Rows of the data with their own labels and weights, each once, and no bias among them.
    at = [int(np.flatnonzero((logits == row).all(axis=1))[0]) for row in plain[0]]
    assert len(set(at)) == 50
    np.testing.assert_array_equal(plain[1], labels[at])
    np.testing.assert_array_equal(plain[2], weight[at])
    assert 1000 < np.mean(at) < 2000


def test_how_many_rows_a_search_begins_with():
    few, many = (started([draw_weighted(1000, c)[:2]]) for c in (2, 900))
    assert few.part(10).n_rows == 10
    assert few.part(10).logits.dtype == np.float32
    assert many.part(1000).n_rows == blocked.FEWEST_START_ROWS
    with_look = started([draw_weighted(1000, 900)[:2]], look=True)
    assert with_look.look(lambda block: block.n_rows, 1000) == 1000
    assert with_look.part(1000).n_rows == blocked.FEWEST_START_ROWS


def test_an_error_that_is_in_doubt_is_measured_again(monkeypatch):
    rng = np.random.default_rng(0)
    logits = np.stack([np.zeros(4000), 0.8 + 1e-4 * rng.random(4000)], axis=1)  # crowded into a few cells
    labels = (rng.random(4000) < 0.7).astype(int)
    problem = started([(logits, labels)])
    ece = scoring.measure_chains(problem, [Chain()])[1]
    exact = metrics.expected_calibration_error(labels, np.exp(focal_temperature(logits, 0.0, 1.0)))
    assert ece == pytest.approx([exact], abs=refining.ECE_TOLERANCE)
    walks = problem.passes
    assert 1 < walks <= 1 + refining.MAX_REFINEMENTS
    monkeypatch.setattr(refining, "ECE_TOLERANCE", -1.0)  # never settled
    scoring.measure_chains(problem, [Chain()])
    assert problem.passes == walks + 1 + refining.MAX_REFINEMENTS


def test_an_error_that_is_known_is_measured_once():
    logits, labels, _ = draw_weighted(3000)
    problem = started([(logits, labels)])
    ece = scoring.measure_chains(problem, [Chain((Temperature(1.5), Focal(1.0)))])[1]
    assert problem.passes == 1  # nothing is in doubt, so that no pass refines the cells
    exact = metrics.expected_calibration_error(labels, np.exp(focal_temperature(logits, 1.0, 1.5)), n_bins=15)
    assert ece == pytest.approx([exact], abs=refining.ECE_TOLERANCE)


def test_one_block_that_looks_like_probabilities_is_no_reason_to_warn():
    logits, labels, _ = draw_weighted()
    p = np.exp(focal_temperature(logits, 0.0, 1.0))
    for pairs in ([(p, labels), (logits, labels)], [(logits, labels), (p, labels)], [(p, labels), (100.0 * p, labels)]):
        assert started(pairs).n_rows == 800  # a warning would be an error here


@pytest.mark.parametrize("travels", [False, True])
def test_answers_that_travel_are_small_and_as_exact(travels, monkeypatch):
    """Coarser histograms are sent from other processes, and looked at more closely where the ECE is in doubt."""
    patterns, sums_of = [], scoring.sums_of

    def noted(block, chains, empty_histograms, rough):
        patterns.append(empty_histograms[0])
        return sums_of(block, chains, empty_histograms, rough)

    monkeypatch.setattr(scoring, "sums_of", noted)
    logits, labels = draw_logits(5000, 4)
    rows = started([(logits[:2000], labels[:2000]), (logits[2000:], labels[2000:])])
    rows.answers_travel = travels
    (log_loss,), (ece,), *_ = scoring.measure_chains(rows, [Chain((Temperature(2.0), Focal(0.5)))])
    p = np.exp(focal_temperature(logits, 0.5, 2.0))
    assert ece == pytest.approx(metrics.expected_calibration_error(labels, p), abs=1e-4)
    assert log_loss == pytest.approx(metrics.log_loss(labels, np.log(p)), rel=1e-12)
    sent = patterns[0]
    size = len(pickle.dumps(sent.update(np.zeros(100_000), np.linspace(0.0, 1.0, 100_000))))
    assert (size < 1_000_000) == travels


@pytest.mark.parametrize("names", [None, ("cat", "dog", "emu")])
def test_labels_that_count_from_one_are_no_bad_rows(names):
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(300, 3))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    skipping = {"class_names": names, "skip_bad_rows": True}
    for given in (labels + 1, [str(label) for label in labels + 1]):
        with pytest.raises(LabelError, match=r"between 0 and 2. Got labels from 1 to 3 .*first_label=1"):
            TemperatureScaling().fit(blocks([(logits, given)], **skipping))
        with pytest.raises(LabelError, match=r"Got labels from 1 to 3"):
            evaluate(blocks([(logits, given)], **skipping), {})
    expected = TemperatureScaling().fit(logits, labels).temperature_
    counted = blocks([(logits, labels + 1)], first_label=1, **skipping)
    assert TemperatureScaling().fit(counted).temperature_ == pytest.approx(expected, rel=1e-6)
    # Rows of no class beside labels that count from 0 are left out.
    some = blocks([(logits, np.where(labels == 2, 3, labels))], **skipping)
    some.start()
    assert (some.n_rows, some.n_skipped) == (np.count_nonzero(labels < 2), np.count_nonzero(labels == 2))


@pytest.mark.parametrize(
    ("names", "other", "options"),
    [
        ([0, 1], -1, {"positive_label": 1}),
        ([0, 1], -1, {"positive_label": 0}),
        (["no", "yes"], "?", {"positive_label": "yes"}),
        ([1, 2], 0, {"class_names": ["1", "2"]}),
    ],
)
def test_labels_of_rows_of_weight_0_do_not_say_how_others_are_read(names, other, options):
    logits, column = draw_logits(60, 2)
    labels = np.array(names, dtype=object)[column]
    labels[:5] = other
    weight = np.r_[np.zeros(5), np.ones(55)]
    expected = Predictions.from_logits(logits, labels, weight=weight, **options)
    rows = blocks([(logits[:20], labels[:20], weight[:20]), (logits[20:], labels[20:], weight[20:])], **options)
    found = rows.reduce(Pass(lambda block: block.labels.tolist(), lambda one, two: one + two))
    assert found == expected.labels.tolist()


@pytest.mark.parametrize("names", [[0, 1], ["no", "yes"], [5, 7]])
def test_labels_of_rows_of_weight_0_do_not_name_columns(names):
    logits, column = draw_logits(60, 2)
    labels = np.array(names, dtype=object)[column]
    labels[:5] = "?" if isinstance(names[0], str) else -1
    labels = np.array(labels.tolist())
    weight = np.r_[np.zeros(5), np.ones(55)]
    expected = TemperatureScaling().fit(logits, labels, weight)
    found = TemperatureScaling().fit(rows_of(logits, labels, weight))
    assert found.classes_.tolist() == expected.classes_.tolist() == names
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)


def test_blocks_without_labels_are_refused():
    with pytest.raises(LabelError, match=r"'y' of blocks must be given, one label for each row. Got none in block 0"):
        started([(np.eye(2), None)])
