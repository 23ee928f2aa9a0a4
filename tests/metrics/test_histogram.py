from __future__ import annotations

import json
import pickle
import tracemalloc

import numpy as np
import pandas as pd
import pytest

from refocal.errors import DataError, InputError, LabelError, ParameterError, ShapeError
from refocal.metrics import CalibrationHistogram, expected_calibration_error, ks_calibration_error, reliability_curve
from refocal.metrics.bins import bins_of
from refocal.metrics.histogram import _compensated_add
from refocal.metrics.histogram_cells import Cells, ordered_key
from refocal.metrics.inputs import read_probabilities
from refocal.metrics.reliability import curve_of

pytestmark = [pytest.mark.core, pytest.mark.numerics]


def compare(y, p, n_bins=15, weight=None):
    result = CalibrationHistogram().update(y, p, sample_weight=weight).compute(n_bins=n_bins)
    exact = expected_calibration_error(y, p, n_bins=n_bins, sample_weight=weight)
    return abs(result.ece - exact), result.error_bound


@pytest.mark.slow
@pytest.mark.parametrize("n_bins", [1, 2, 15, 100])
@pytest.mark.parametrize("weighted", [False, True])
def test_exact_value_lies_within_the_bound(binary, n_bins, weighted):
    y, p = binary
    weight = np.random.default_rng(0).random(len(p)) if weighted else None
    off, bound = compare(y, p, n_bins, weight)
    assert off <= bound + 1e-12


def models(n):
    rng = np.random.default_rng(5)
    z = rng.normal(4, 3, n)
    beta = rng.beta(8, 1, n)
    flat = rng.random(n)
    sharp = 1 / (1 + np.exp(-z))
    return {
        "flat": (flat, rng.random(n) < flat),
        "flat and wrong": (flat, rng.random(n) < flat**2),
        "beta": (beta, rng.random(n) < beta),
        "over-confident": (sharp, rng.random(n) < 1 / (1 + np.exp(-z / 2))),
        "float32": (sharp.astype(np.float32), rng.random(n) < 0.9),
        "atoms": (rng.integers(0, 1000, n) / 999, rng.random(n) < 0.5),
        "atom and rest": (np.where(flat < 0.4, 0.85, beta), rng.random(n) < 0.8),
        "zeros and ones": ((flat < 0.5).astype(float), rng.random(n) < 0.5),
        "one value": (np.full(n, 1 / 3), rng.random(n) < 0.5),
        "saturated": (1 / (1 + np.exp(-6 * z)), rng.random(n) < 0.9),
    }


def crowds(n):
    """More different values than the histogram has cells where they lie."""
    rng = np.random.default_rng(6)
    flat = np.sort(rng.random(n))
    return {
        "a millionth": (0.9 + 1e-6 * flat, rng.random(n) < flat),
        "a billionth, sorted labels": (0.7 + 1e-9 * flat, np.arange(n) > n // 2),
        "below every octave": (1e-30 * flat**20, rng.random(n) < flat),
        "ends": (np.where(flat < 0.5, 1e-12 * flat, 1 - 1e-12 * flat), rng.random(n) < 0.5),
    }


@pytest.mark.slow
@pytest.mark.parametrize("bits", [1, 3, 12])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_largest_gap_and_the_ks_error_lie_within_their_bounds(bits, weighted):
    doubted = 0
    for name, (p, correct) in {**models(3000), **crowds(3000)}.items():
        y, weight = correct.astype(int), np.random.default_rng(0).random(3000) if weighted else None
        found = CalibrationHistogram(bits=bits).update(y, p, sample_weight=weight).compute()
        largest = expected_calibration_error(y, p, norm="max", sample_weight=weight)
        ks = ks_calibration_error(y, p, sample_weight=weight)
        assert abs(found.largest_gap - largest) <= found.largest_gap_bound + 1e-9, name
        assert found.ks - 1e-9 <= ks <= found.ks + found.ks_bound + 1e-9, name
        doubted += 0.0 < found.largest_gap_bound < 1.0
    assert doubted >= 1  # a bound of 0 or 1 everywhere would be no test


@pytest.mark.slow
@pytest.mark.parametrize("n_bins", [1, 2, 3, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_bounds_hold_and_are_reached_on_few_rows_in_wide_cells(n_bins, weighted):
    """Tens of rows in a handful of cells: whatever the cells cannot tell occurs in some of these data sets."""
    used = {"ece": [], "largest_gap": [], "ks": []}
    for seed in range(250):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 30))
        p = np.sort(rng.beta(rng.uniform(0.3, 3.0), rng.uniform(0.3, 3.0), n))
        y = np.arange(n) >= rng.integers(n + 1) if seed % 3 == 0 else rng.random(n) < rng.random()
        y = np.asarray(~y if seed % 2 else y, dtype=int)
        weight = rng.uniform(0.1, 2.0, n) if weighted else None
        found = CalibrationHistogram(bits=1).update(y, p, sample_weight=weight).compute(n_bins=n_bins)
        exact = {
            "ece": expected_calibration_error(y, p, n_bins=n_bins, sample_weight=weight),
            "largest_gap": expected_calibration_error(y, p, n_bins=n_bins, norm="max", sample_weight=weight),
            "ks": ks_calibration_error(y, p, sample_weight=weight),
        }
        for name, value in exact.items():
            bound = getattr(found, "error_bound" if name == "ece" else f"{name}_bound")
            off = abs(value - getattr(found, name))
            assert off <= bound + 1e-12, (seed, name)
            assert bound <= (2.0 if name == "ece" else 1.0)
            used[name].append(off / bound if bound > 1e-12 else 0.0)
        assert found.ks - 1e-12 <= exact["ks"]
    for name, shares in used.items():
        if n_bins == 1 and name != "ks":
            assert max(shares) == 0.0  # one bin holds all cells
        else:
            assert max(shares) > 0.4, name


MODELS = models(400_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(MODELS))
def test_within_a_ten_thousandth_of_the_exact_value(name):
    p, y = MODELS[name]
    off, bound = compare(y.astype(int), p)
    assert off <= bound + 1e-12
    assert off <= 1e-4
    # A heavy value that shares its cell with others widens the bound though the value itself stays close.
    assert bound <= 1e-4 or name == "atom and rest"


@pytest.mark.slow
@pytest.mark.parametrize("name", [*crowds(10), "atom and rest"])
def test_further_passes_settle_what_one_leaves_open(name):
    p, y = {**crowds(100_000), **MODELS}[name]
    y = y.astype(int)
    histogram, passes = CalibrationHistogram().update(y, p), 1
    exact = expected_calibration_error(y, p)
    assert histogram.compute().error_bound > 1e-4
    while passes < 6 and histogram.compute().error_bound > 0:
        result = histogram.compute()
        assert abs(result.ece - exact) <= result.error_bound + 1e-12
        text = histogram.refined().to_json()
        # The blocks of the next pass may go to different machines.
        histogram = CalibrationHistogram.from_json(text).update(y[::2], p[::2])
        histogram.merge(CalibrationHistogram.from_json(text).update(y[1::2], p[1::2]))
        passes += 1
    assert histogram.compute().error_bound == 0
    assert histogram.compute().ece == pytest.approx(exact, abs=1e-12)


def test_cells_of_a_zoom_follow_the_order_of_the_confidence():
    rng = np.random.default_rng(0)
    p = np.sort(np.concatenate([0.7 + 1e-9 * rng.random(20_000), rng.random(2000)]))
    cells = Cells(12)
    crowded = np.unique(cells.index(p[(p > 0.7) & (p < 0.7 + 1e-9)]))
    low, high = np.full(len(crowded), 0.7), np.full(len(crowded), 0.7 + 1e-9)
    zoomed = cells.zoomed(crowded, low, high)
    number = zoomed.index(p)
    assert len(np.unique(number)) > 4 * len(np.unique(cells.index(p)))
    assert number.max() < zoomed.size
    # Each cell is met once: no cell is left and entered again.
    assert np.count_nonzero(np.diff(number)) == len(np.unique(number)) - 1


def test_half_precision_is_exact():
    rng = np.random.default_rng(0)
    for p in (rng.random(50_000).astype(np.float16), 1 / (1 + np.exp(-rng.normal(3, 3, 50_000))).astype(np.float16)):
        off, bound = compare(rng.integers(0, 2, 50_000), p)
        assert bound == 0.0
        assert off < 1e-13


def test_cells_follow_the_order_of_the_confidence():
    rng = np.random.default_rng(0)
    edges = 2.0 ** -np.arange(1, 1075.0)
    p = np.sort(np.concatenate([rng.random(100_000), edges, 1 - edges, [0.0, 0.5, 1.0], rng.random(9) * 5e-324]))
    cell = Cells(12).index(p)
    assert np.all(np.diff(cell) >= 0)
    assert cell[0] == 0
    assert cell[-1] == Cells(12).size - 1


def blocks(n=11, size=2000):
    rng = np.random.default_rng(1)
    for _ in range(n):
        p = rng.beta(3, 1, size)
        p[rng.random(size) < 0.1] = 0.875
        yield (rng.random(size) < p).astype(int), p, rng.random(size)


@pytest.mark.slow
def test_merging_is_associative_and_commutative():
    parts = [CalibrationHistogram().update(y, p, sample_weight=w) for y, p, w in blocks()]
    texts = [part.to_json() for part in parts]

    def rebuild(i):
        return CalibrationHistogram.from_json(texts[i])

    left = rebuild(0)
    for i in range(1, len(texts)):
        left.merge(rebuild(i))
    right = rebuild(len(texts) - 1)
    for i in reversed(range(len(texts) - 1)):
        right = rebuild(i).merge(right)
    pairs = [rebuild(i) for i in np.random.default_rng(2).permutation(len(texts))]
    while len(pairs) > 1:
        pairs = [pairs[i].merge(pairs[i + 1]) if i + 1 < len(pairs) else pairs[i] for i in range(0, len(pairs), 2)]
    results = [histogram.compute() for histogram in (left, right, pairs[0])]
    for other in results[1:]:
        assert other.ece == pytest.approx(results[0].ece, abs=1e-15)
        assert other.error_bound == pytest.approx(results[0].error_bound, abs=1e-15)
        assert other.count == results[0].count == 22_000
        assert other.curve.count == results[0].curve.count
        assert other.weight == pytest.approx(results[0].weight, rel=1e-15)


def test_blocks_add_up_to_the_whole():
    data = list(blocks())
    whole = CalibrationHistogram()
    for y, p, w in data:
        whole.update(y, p, sample_weight=w)
    y, p, w = (np.concatenate(x) for x in zip(*data, strict=True))
    once = CalibrationHistogram().update(y, p, sample_weight=w).compute()
    assert whole.compute().ece == pytest.approx(once.ece, abs=1e-14)
    assert whole.compute().ece == pytest.approx(expected_calibration_error(y, p, sample_weight=w), abs=once.error_bound)


def test_curve_is_that_of_all_rows_when_every_value_has_its_cell():
    rng = np.random.default_rng(0)
    p, y = rng.integers(0, 65, 5000) / 64, rng.integers(0, 2, 5000)
    result = CalibrationHistogram().update(y, p).compute(n_bins=10)
    expected = reliability_curve(y, p, n_bins=10)
    assert result.curve.count == expected.count
    for field in ("weight", "confidence", "accuracy", "low", "high"):
        assert getattr(result.curve, field) == pytest.approx(getattr(expected, field), abs=1e-12)
    assert result.accuracy == pytest.approx(y.mean())
    assert result.confidence == pytest.approx(p.mean())


def test_multiclass_and_weights():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(10), (20, 30))
    y = rng.integers(0, 10, (20, 30))
    off, bound = compare(y, p, weight=rng.random((20, 30)))
    assert off <= bound + 1e-12 <= 1e-4


def test_long_sums_do_not_drift():
    histogram = CalibrationHistogram()
    for _ in range(300):
        histogram.update(np.zeros(1000, dtype=int), np.full(1000, 0.1), sample_weight=np.full(1000, 0.1))
    result = histogram.compute()
    assert result.weight == pytest.approx(30_000.0, rel=1e-13)
    assert result.confidence == pytest.approx(0.1, rel=1e-15)


def test_sums_are_compensated():
    total, carry = np.zeros((1, 1)), np.zeros((1, 1))
    for value in (1e16, 1.0, 1.0, -1e16, 1e-3):
        _compensated_add(total, carry, slice(None), np.array([[value]]))
    assert float(total[0, 0] + carry[0, 0]) == 2.001


def test_json_keeps_every_bit():
    histogram = CalibrationHistogram()
    for y, p, w in blocks(5):
        histogram.update(y, p, sample_weight=w)
    again = CalibrationHistogram.from_json(histogram.to_json())
    assert again.compute() == histogram.compute()
    assert again.to_json() == histogram.to_json()


@pytest.mark.parametrize("text", ["{}", "[]", "no", '{"format": "other", "version": 1}', "null"])
def test_bad_json_is_a_typed_error(text):
    with pytest.raises(DataError, match=r"'text' of CalibrationHistogram\.from_json"):
        CalibrationHistogram.from_json(text)


def test_damaged_json_is_a_typed_error():
    state = json.loads(CalibrationHistogram().update([0, 1], [0.2, 0.8]).to_json())
    for key in ("cell", "count", "sums", "low", "bits", "zooms"):
        with pytest.raises(InputError):
            CalibrationHistogram.from_json(json.dumps({k: v for k, v in state.items() if k != key}))


def test_bad_use_is_a_typed_error():
    with pytest.raises(DataError, match="has seen rows"):
        CalibrationHistogram().compute()
    with pytest.raises(ParameterError, match="'other'"):
        CalibrationHistogram().merge(CalibrationHistogram(bits=8))
    with pytest.raises(ParameterError, match="'n_bins'"):
        CalibrationHistogram().update([0], [0.5]).compute(n_bins=0)
    with pytest.raises(ParameterError, match="'level'"):
        CalibrationHistogram().update([0], [0.5]).compute(level=95.0)
    with pytest.raises(ParameterError, match="'bits'"):
        CalibrationHistogram(bits=0)
    with pytest.raises(DataError, match=r"CalibrationHistogram\.update"):
        CalibrationHistogram().update([0], [np.nan])


@pytest.mark.slow
def test_five_million_rows_in_flat_memory():
    rng = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-rng.normal(3, 3, 1 << 20)))
    y = (rng.random(1 << 20) < p).astype(int)
    histogram = CalibrationHistogram().update(y, p)
    tracemalloc.start()
    for _ in range(4):
        histogram.update(y, p)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1 << 20
    assert peak < 100 << 20
    result = histogram.compute()
    assert result.count == 5 << 20
    assert result.accuracy == y.mean()
    assert abs(result.ece - expected_calibration_error(y, p)) <= result.error_bound <= 1e-4


@pytest.mark.parametrize("bits", [4, 7])
def test_an_octave_has_as_many_cells_as_is_promised(bits):
    for octave, more in enumerate([3, 2, 1, 0, 0]):
        inside = 2.0 ** -(octave + 2) * np.linspace(1.0, 2.0, 1 << 14, endpoint=False)
        for p in (inside, 1.0 - inside):
            assert len(np.unique(Cells(bits).index(p))) in (1 << bits + more, (1 << bits + more) + 1)
    deep = 2.0**-40 * np.linspace(1.0, 2.0, 1000, endpoint=False)
    assert len(np.unique(Cells(bits).index(deep))) == 1 << bits - 4
    shallow = 2.0**-33 * np.linspace(1.0, 2.0, 1000, endpoint=False)
    assert len(np.unique(Cells(bits).index(shallow))) == 1 << bits


def test_rows_beyond_what_a_cell_had_seen_stay_in_it():
    cells = Cells(4)
    p = np.array([0.2505, 0.25051, 0.2515, 0.4, 0.40001])
    first, other = cells.index(p[[0, 3]])
    assert first == cells.index(p[2:3])[0]
    zoomed = cells.zoomed(np.array([first, other]), p[[0, 3]], p[[1, 4]])
    assert np.all(np.diff(zoomed.index(p[:3])) > 0)
    # The third lies above all that was seen: it gets the last part of its cell, which is not the next cell's first.
    assert zoomed.index(p[2:3])[0] == cells.size + (1 << 14) - 1
    assert zoomed.index(p[3:4])[0] == cells.size + (1 << 14)


def test_keys_rise_with_the_confidence():
    p = np.sort(np.concatenate([np.random.default_rng(0).random(1000), [0.0, 0.25, 0.5, 0.75, 1.0, 1e-300]]))
    assert np.all(np.diff(ordered_key(p)) > 0)


def zoom_of(**changes):
    return {"bits": 4, "zooms": [{"cell": [1, 2], "origin": [0, 0], "shift": [0, 62], **changes}]}


def test_cells_come_back_and_impossible_ones_are_refused():
    assert Cells.from_dict(zoom_of()).to_dict() == zoom_of()
    many = list(range(1024))
    assert Cells.from_dict({**zoom_of(cell=many, origin=many, shift=[0] * 1024), "bits": 12}).zooms[0].cell.size == 1024
    more = list(range(1025))
    for state in (
        {**zoom_of(cell=more, origin=more, shift=[0] * 1025), "bits": 12},
        zoom_of(cell=[2, 1]),
        zoom_of(cell=[-1, 2]),
        zoom_of(cell=[1, Cells(4).size]),
        zoom_of(cell=[[1], [2]]),
        zoom_of(cell=[], origin=[], shift=[]),
        zoom_of(origin=[0]),
        zoom_of(shift=[0]),
        zoom_of(shift=[0, 63]),
        zoom_of(shift=[0, -1]),
    ):
        with pytest.raises(ValueError, match="cell"):
            Cells.from_dict(state)


@pytest.mark.parametrize(
    "damage",
    [
        {"count": [1]}, {"count": [1, 0]}, {"cell": [5, 3]}, {"low": [0.2]}, {"low": [-0.1, 0.8]}, {"high": [0.2, 1.1]},
        {"low": [0.3, 0.8]}, {"sums": [[1.0, 1.0], [0.2, 0.8], [-1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]},
        {"carry": [[1e400, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]},
    ],
    ids=str,
)  # fmt: skip
def test_numbers_that_no_histogram_has_are_refused(damage):
    state = json.loads(CalibrationHistogram().update([0, 1], [0.2, 0.8]).to_json())
    assert CalibrationHistogram.from_json(json.dumps(state)).count == 2
    with pytest.raises(DataError, match=r"'text' of CalibrationHistogram\.from_json"):
        CalibrationHistogram.from_json(json.dumps({**state, **damage}))


def test_what_rounding_lost_counts_like_the_sums():
    """All that was seen may stand in the carry: small rows beside large ones that were taken away again."""
    histogram = CalibrationHistogram().update([0, 1, 1], [0.2, 0.8, 0.8])
    state = json.loads(histogram.to_json())
    moved = CalibrationHistogram.from_json(json.dumps({**state, "sums": state["carry"], "carry": state["sums"]}))
    assert moved.compute() == histogram.compute()


def test_a_single_value_leaves_no_doubt():
    found = CalibrationHistogram(bits=1).update([0, 1, 1, 0, 1], [0.7] * 5).compute(n_bins=3)
    assert (found.error_bound, found.largest_gap_bound, found.ks_bound) == (0.0, 0.0, 0.0)


def test_what_rounding_lost_is_merged_too():
    parts = [CalibrationHistogram().update([1], [0.75], sample_weight=[w]) for w in (1e16, 1.0, 1.0, 3.0, 1e16)]
    large = parts[0].merge(parts[1])  # whose 1 stands in the carry
    small = parts[2].merge(parts[3])
    both = small.merge(large).merge(parts[4])
    (at,) = np.flatnonzero(both._count)
    assert int(both._sums[0, at]) + int(both._carry[0, at]) == 2 * 10**16 + 5


def test_other_formats_and_versions_are_refused(monkeypatch):
    state = json.loads(CalibrationHistogram().update([0, 1], [0.0, 1.0]).to_json())
    assert CalibrationHistogram.from_json(json.dumps(state)).count == 2  # 0 and 1 are confidences
    for other in ({"format": "other"}, {"version": 2}):
        with pytest.raises(DataError, match=r"Got ValueError: (other 1|refocal.CalibrationHistogram 2)"):
            CalibrationHistogram.from_json(json.dumps({**state, **other}))

    def without_words(text):
        raise MemoryError

    monkeypatch.setattr("refocal.metrics.histogram.parse_json", without_words)
    with pytest.raises(DataError, match="Got MemoryError: "):
        CalibrationHistogram.from_json("{}")


def test_a_histogram_without_rows_travels():
    empty = CalibrationHistogram(bits=5)
    assert CalibrationHistogram.from_json(empty.to_json()).count == 0
    full = pickle.loads(pickle.dumps(empty.fresh().update([0, 1], [0.2, 0.8])))  # noqa: S301
    assert full.compute() == CalibrationHistogram(bits=5).update([0, 1], [0.2, 0.8]).compute()


def test_weights_reach_the_curve_and_the_widths():
    rng = np.random.default_rng(3)
    p, y, w = rng.random(4000).astype(np.float16), rng.integers(0, 2, 4000), rng.random(4000) + 0.1
    p[p * 4 % 1 == 0] = 0.3  # none lies on an edge
    found = CalibrationHistogram().update(y, p, sample_weight=w).compute(n_bins=10)
    expected = reliability_curve(y, p, n_bins=10, sample_weight=w)
    for name in ("count", "weight", "confidence", "accuracy"):
        np.testing.assert_allclose(getattr(found.curve, name), getattr(expected, name), rtol=1e-9)
    # A histogram has no rows: its intervals are those of the sums of its bins.
    of_sums = curve_of(bins_of(read_probabilities(y, p, w, "f"), n_bins=10), 0.95)
    for name in ("low", "high"):
        np.testing.assert_allclose(getattr(found.curve, name), getattr(of_sums, name), rtol=1e-9)
    for flags, widths in ((y == 1, found.right), (y == 0, found.wrong)):
        counted, _ = np.histogram(p[flags].astype(np.float64), 20, (0.0, 1.0), weights=w[flags])
        np.testing.assert_allclose(widths, counted, rtol=1e-9)


def _in_two_orders():
    p = np.array([0.1, 0.8, 0.3, 0.6, 0.9, 0.2])
    labels = np.array(["no", "yes", "yes", "no", "yes", "no"])
    frame = pd.DataFrame({"no": 1.0 - p, "yes": p})
    return labels, frame, frame[["yes", "no"]]


def test_blocks_of_two_classes_are_about_the_same_class_whatever_the_order_of_their_columns():
    labels, frame, swapped = _in_two_orders()
    histogram = CalibrationHistogram().update(labels[:3], frame[:3])
    travelled = pickle.loads(pickle.dumps(histogram))  # noqa: S301 - its own bytes
    copies = [travelled, CalibrationHistogram.from_json(histogram.to_json())]
    for one in (histogram, *copies):
        found = one.update(labels[3:], swapped[3:]).compute(n_bins=2)
        assert found.ece == pytest.approx(expected_calibration_error(labels, frame, n_bins=2))
        assert found.confidence == pytest.approx(frame["yes"].mean())


def test_column_numbers_of_blocks_in_two_orders_are_refused():
    labels, frame, swapped = _in_two_orders()
    histogram = CalibrationHistogram().update(labels, frame)
    with pytest.raises(LabelError, match="names of classes where data frames have their columns in several orders"):
        histogram.update((labels == "yes").astype(int), swapped)


def test_histograms_about_different_classes_do_not_merge():
    labels, frame, swapped = _in_two_orders()
    of_yes = CalibrationHistogram().update(labels, frame)
    of_no = CalibrationHistogram().update(labels, swapped)
    with pytest.raises(ParameterError, match="of the classes no, yes"):
        of_yes.merge(of_no)
    with pytest.raises(ParameterError, match="of the classes yes, no"):
        of_no.fresh().merge(of_yes)
    assert of_yes.fresh().merge(CalibrationHistogram().update([0, 1], [0.2, 0.9])).count == 2


def test_rows_of_two_classes_and_of_more_are_not_counted_together():
    # The probability of class 1 and the largest of a row are two quantities.
    two = ([0, 1, 1], [0.2, 0.9, 0.6])
    more = ([0, 2], [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    for one, other in ((two, more), (more, two)):
        histogram = CalibrationHistogram().update(*one)
        travelled = pickle.loads(pickle.dumps(histogram))  # noqa: S301 - its own bytes
        for known in (histogram, travelled, CalibrationHistogram.from_json(histogram.to_json()), histogram.refined()):
            with pytest.raises(ShapeError, match=r"classes, with the .*, as in the rows before"):
                known.update(*other)
            with pytest.raises(ParameterError, match=r"a histogram of .* classes, with the"):
                known.merge(CalibrationHistogram().update(*other))
        assert histogram.merge(CalibrationHistogram().update(*one)).count == 2 * len(one[0])
        with pytest.raises(ShapeError, match="as in the rows before"):
            CalibrationHistogram().merge(histogram).update(*other)


@pytest.mark.parametrize("said", [1, "yes", []])
def test_a_kind_of_rows_that_no_histogram_has_is_refused(said):
    state = json.loads(CalibrationHistogram().update([0], [0.5]).to_json())
    with pytest.raises(DataError, match="'text'"):
        CalibrationHistogram.from_json(json.dumps(state | {"two_classes": said}))
