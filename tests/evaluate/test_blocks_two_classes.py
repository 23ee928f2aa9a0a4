"""Two classes in blocks: every measure of memory, with its interval, from sums alone."""

import warnings

import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from refocal import GroupCalibration, LogisticCalibration, MultiLabelCalibration
from refocal.errors import DataError, InputWarning, ParameterError
from refocal.evaluate import evaluate
from refocal.io import Predictions, blocks, open_rows, rows_of
from refocal.metrics import METRICS, CalibrationHistogram
from refocal.metrics.record import BlockSums

pytestmark = pytest.mark.core


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    log_odds = 2.0 * rng.normal(size=n) - 2.0
    y = (rng.random(n) < 1 / (1 + np.exp(-log_odds))).astype(np.int64)
    return 1 / (1 + np.exp(-(1.5 * log_odds + 1.0))), y, rng.random(n)


@pytest.fixture(scope="module", params=[False, True], ids=["unweighted", "weighted"])
def both(request):
    """The same rows and calibrator evaluated in memory and in blocks."""
    p, y, w = rows(3000)
    w = w if request.param else None
    mine = LogisticCalibration(input="probabilities").fit(p, y)
    in_memory = evaluate(Predictions.from_probabilities(p, y, weight=w), {"mine": mine}, n_resamples=20)
    parts = [(p[i::3], y[i::3], None if w is None else w[i::3]) for i in range(3)]
    return in_memory, evaluate(blocks(parts, input="probabilities"), {"mine": mine})


@pytest.mark.parametrize("name", ["log_loss_skill", "brier_skill", "roc_auc", "average_precision"])
def test_measures_of_two_classes_in_blocks_are_those_of_memory(both, name):
    in_memory, in_blocks = both
    for method in ("none", "mine"):
        exact, found = in_memory[method].measures[name], in_blocks[method].measures[name]
        bound = in_blocks[method].values.get(f"{name}_bound", 0.0)
        assert abs(found.value - exact.value) <= bound + 1e-12
        assert found.standard_error == pytest.approx(exact.standard_error, rel=1e-4)
    exact, found = (each["mine"].against_none[name] for each in both)
    assert found.difference == pytest.approx(exact.difference, abs=1e-5)
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1e-5)


def test_weights_count_in_blocks_as_in_memory(both):
    """The band and the noise of a bin rest on the effective number of its rows, (Σw)² / Σw²."""
    in_memory, in_blocks = both
    for method in ("none", "mine"):
        exact, found = in_memory[method], in_blocks[method]
        widths = [sum(each.reliability.high) - sum(each.reliability.low) for each in (found, exact)]
        assert widths[0] == pytest.approx(widths[1], rel=0.02)  # the number of rows makes it narrower by a seventh
        assert found.measures["squared_ece"].value == pytest.approx(exact.measures["squared_ece"].value, abs=1e-6)


def test_decisions_in_blocks_are_those_of_memory(both):
    in_memory, in_blocks = both
    for method in ("none", "mine"):
        exact, found = in_memory[method].decisions, in_blocks[method].decisions
        for name in ("threshold", "decided", "right", "promised"):
            assert getattr(found, name) == pytest.approx(getattr(exact, name), abs=1.1e-6)


@pytest.mark.parametrize("width", [1e-12, 1e-4, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_bounds_of_areas_hold_where_scores_crowd_into_few_cells(width, weighted):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        p = 0.7 + width * rng.random(60)
        y, w = (rng.random(60) < rng.choice([0.05, 0.5])).astype(np.int64), rng.random(60) if weighted else np.ones(60)
        y[:2] = 0, 1
        histogram = CalibrationHistogram(bits=1).update(y, p, sample_weight=w)
        sums = BlockSums(histogram=histogram, classes=[], residuals=np.zeros(0), means={})
        area = METRICS["roc_auc"].streamed(sums)
        assert abs(area.value - roc_auc_score(y, p, sample_weight=w)) <= area.bound + 1e-12
        precision = METRICS["average_precision"].streamed(sums)
        exact = average_precision_score(y, p, sample_weight=w)
        assert abs(precision.value - exact) <= precision.bound + 1e-12


def test_distinct_scores_leave_no_doubt():
    _, y, w = rows(500)
    p = np.round(rows(500)[0], 2)
    histogram = CalibrationHistogram().update(y, p, sample_weight=w)
    sums = BlockSums(histogram=histogram, classes=[], residuals=np.zeros(0), means={})
    for name, peer in (("roc_auc", roc_auc_score), ("average_precision", average_precision_score)):
        found = METRICS[name].streamed(sums)
        assert found.bound == 0.0
        assert found.value == pytest.approx(peer(y, p, sample_weight=w), abs=1e-12)


def grouped(n=4000):
    p, y, w = rows(n)
    rng = np.random.default_rng(5)
    return p, y, w, {"region": rng.choice(["north", "south", "west"], n), "age": rng.choice([30.0, 45.5, np.nan], n)}


def as_blocks(p, y, w, groups, n_blocks=3):
    cut = np.array_split(np.random.default_rng(1).permutation(len(p)), n_blocks)
    return [(p[i], y[i], None if w is None else w[i], {name: each[i] for name, each in groups.items()}) for i in cut]


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_groups_in_blocks_are_those_of_memory(weighted):
    p, y, w, groups = grouped()
    w = w if weighted else None
    by_group = GroupCalibration(method="logistic", input="probabilities").fit(p, y, w, groups=groups)
    whole = Predictions.from_probabilities(p, y, weight=w)
    in_memory = evaluate(whole, {"mine": by_group}, chosen="mine", groups=groups, n_resamples=20)
    in_blocks = evaluate(blocks(as_blocks(p, y, w, groups), input="probabilities"), {"mine": by_group}, chosen="mine")
    for method in ("none", "mine"):
        # The calibrator is applied with its lines too.
        value = in_memory[method].measures["log_loss"].value
        assert in_blocks[method].measures["log_loss"].value == pytest.approx(value, rel=1e-9)
        exact = {(row.column, row.name): row for row in in_memory[method].groups}
        found = {(row.column, row.name): row for row in in_blocks[method].groups}
        assert found.keys() == exact.keys()
        assert {("age", name) for name in ("30", "45.5", "missing")} <= set(found)
        for key, row in found.items():
            assert (row.n, row.mean, row.rate) == pytest.approx((exact[key].n, exact[key].mean, exact[key].rate))
            for end in ("value", "low", "high"):
                assert getattr(row.difference, end) == pytest.approx(getattr(exact[key].difference, end), abs=2e-5)
            assert row.ece == pytest.approx(exact[key].ece, abs=2e-3)
            assert row.ece_by_chance == pytest.approx(exact[key].ece_by_chance, rel=0.12)
            assert (row.reliability is None) == (exact[key].reliability is None)
    assert [row.name for row in in_blocks.before.groups][:2] == [row.name for row in in_memory.before.groups][:2]


@pytest.mark.slow
def test_groups_of_tables_arrays_and_dask_are_read_with_the_rows(tmp_path):
    p, y, _, groups = grouped(600)
    frame = pd.DataFrame({"p": p, "label": y, **groups})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    np.savez(tmp_path / "rows.npz", p=p, labels=y, **groups)
    expected = evaluate(Predictions.from_probabilities(p, y), {}, groups=groups, n_resamples=20).before.groups
    names = ["region", "age"]
    opened = [
        open_rows(tmp_path / f"rows.{ending}", input="probabilities", groups=names)
        for ending in ("csv", "parquet", "npz")
    ]
    two = np.stack([1 - p, p], axis=1)
    opened.append(rows_of(two, y, input="probabilities", groups=groups))
    chunked = {name: dask.array.from_array(each, chunks=250) for name, each in groups.items()}
    of_dask = [dask.array.from_array(each, chunks=(200, *each.shape[1:])) for each in (two, y)]
    opened.append(rows_of(*of_dask, input="probabilities", groups=chunked))
    of_frame = dask.dataframe.from_pandas(
        pd.DataFrame({"a": two[:, 0], "b": two[:, 1], "label": y, **groups}), npartitions=2
    )
    opened.append(rows_of(of_frame, "label", input="probabilities", groups=names))
    for each in opened:
        found = evaluate(each, {}).before.groups
        assert {(row.column, row.name, row.n) for row in found} == {(row.column, row.name, row.n) for row in expected}


def test_groups_of_rows_that_are_left_out_are_left_out_too():
    p, y, _, groups = grouped(300)
    y[:40] = -1
    found = evaluate(blocks(as_blocks(p, y, None, groups), input="probabilities", ignore_index=-1), {}).before.groups
    for row in found:
        name = {"45.5": 45.5, "30": 30.0}.get(row.name, row.name)
        member = groups[row.column] == name if row.name != "missing" else np.isnan(groups[row.column])
        assert row.n == np.sum(member & (y >= 0))


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ((0, 1), r"in the columns of the first block \(region\) in every block. Got none in block 1"),
        ((1, 0), r"in the columns of the first block \(none\) in every block. Got region in block 1"),
    ],
)
def test_blocks_of_which_some_have_no_groups_are_refused(order, words):
    p, y, _ = rows(400)
    parts = [(p[:200], y[:200], None, {"region": ["north", "south"] * 100}), (p[200:], y[200:])]
    with pytest.raises(DataError, match=f"^The 'groups' of blocks must be {words}"):
        evaluate(blocks([parts[i] for i in order], input="probabilities"), {})
    empty = (p[:0], y[:0])
    found = evaluate(blocks([parts[0], empty], input="probabilities"), {}).before.groups
    assert [(row.name, row.n) for row in found] == [("north", 100), ("south", 100)]


def test_more_groups_than_can_be_shown_are_refused():
    p, y, _, _ = grouped(3000)
    parts = as_blocks(p, y, None, {"id": np.arange(3000)})
    with pytest.raises(ParameterError, match=r"at most 2,000 groups in a column. Got 3,000 or more in 'id'"):
        evaluate(blocks(parts, input="probabilities"), {})


def test_calibrators_of_other_inputs_are_applied_in_blocks_as_in_memory_or_refused():
    p, y, _ = rows(400)
    log_odds = np.log(p) - np.log1p(-p)
    two = np.stack([np.ones_like(p), 1.0 + log_odds], axis=1)
    mine = LogisticCalibration(input="log-odds").fit(log_odds, y)
    exact = evaluate(Predictions.from_logits(two, y), {"mine": mine}, n_resamples=20)
    found = evaluate(blocks([(two, y)]), {"mine": mine})
    assert found["mine"].measures["log_loss"].value == pytest.approx(exact["mine"].measures["log_loss"].value, rel=1e-9)
    with pytest.raises(DataError, match=r"must be log-odds, as the calibrator 'mine' takes. Got probabilities"):
        evaluate(blocks([(p, y)], input="probabilities"), {"mine": mine})
    of_labels = MultiLabelCalibration(method="logistic").fit(two, np.stack([1 - y, y], axis=1))
    with pytest.raises(ParameterError, match="classes that exclude one another"):
        evaluate(blocks([(two, y)]), {"mine": of_labels})


def test_groups_that_the_fit_has_not_seen_are_warned_of_in_blocks_as_in_memory():
    p, y, _ = rows(300)
    region = np.array(["north", "south"] * 150)
    mine = GroupCalibration(method="logistic", input="probabilities").fit(p, y, groups={"region": region})

    def evaluated(names):
        in_memory = Predictions.from_probabilities(p, y).with_groups({"region": names})
        return in_memory, blocks(as_blocks(p, y, None, {"region": names}), input="probabilities")

    for data in evaluated(np.char.add("new ", region)):
        with pytest.warns(InputWarning, match="no groups of 'region' were given that the fit has seen"):
            evaluate(data, {"mine": mine})
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        for data in evaluated(
            np.where(np.arange(300) < 290, "new", region)
        ):  # only the last rows have groups of the fit
            evaluate(data, {"mine": mine})
