"""The same fit by Dask, by processes, by joblib, from Polars and in one process: a pass merges in any order."""

from __future__ import annotations

import multiprocessing
import pickle
import re
from pathlib import Path

import dask.array
import joblib
import numpy as np
import pandas as pd
import polars
import pyarrow.parquet as pq
import pytest

from block_rows import make_rows
from refocal import FocalTemperatureScaling, TemperatureScaling
from refocal.engine import Block, Pass, finish, merge, partial
from refocal.evaluate import evaluate
from refocal.io import apply, blocks, open_rows, rows_of
from refocal.metrics import CalibrationHistogram, expected_calibration_error

LOGITS, LABELS = make_rows(6000, 4, dtype=np.float64)
pytestmark = [pytest.mark.core, pytest.mark.slow]

COLUMNS = [f"logit_{k}" for k in range(4)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("rows")
    for i, rows in enumerate(np.array_split(np.arange(6000), 5)):
        polars.DataFrame(LOGITS[rows], schema=COLUMNS).with_columns(label=LABELS[rows]).write_parquet(
            place / f"part{i}.parquet"
        )
    return place


def fit(rows):
    return FocalTemperatureScaling(objective="nll").fit(rows)


@pytest.fixture(scope="module")
def expected():
    return FocalTemperatureScaling(objective="nll").fit(LOGITS, LABELS)


def assert_same(found, expected):
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)
    assert found.gamma_ == pytest.approx(expected.gamma_, rel=1e-9)
    assert found.fit_report_["n_samples"] == 6000


def by_joblib(function, things):
    return joblib.Parallel(n_jobs=2, prefer="threads")(joblib.delayed(function)(thing) for thing in things)


@pytest.mark.slow
def test_one_process_joblib_and_dask_agree(folder, expected):
    assert_same(fit(open_rows(folder)), expected)
    assert_same(fit(open_rows(folder, map=by_joblib)), expected)
    lazy = dask.array.from_array(LOGITS, chunks=(700, 4)), dask.array.from_array(LABELS, chunks=700)
    assert_same(fit(rows_of(*lazy)), expected)


@pytest.mark.long
def test_several_processes_agree(folder, expected, tmp_path):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert_same(fit(open_rows(folder, map=pool.imap)), expected)
        written = apply(expected, folder, tmp_path / "probs", map=pool.map)
    assert sum(part.n_rows for part in written) == 6000
    found = np.concatenate([np.array(pq.read_table(part.file)["probabilities"].to_pylist()) for part in written])
    np.testing.assert_allclose(found, expected.predict_proba(LOGITS), rtol=1e-12)


def test_an_evaluation_by_a_map_is_that_of_one_process(folder, expected):
    alone, mapped = (evaluate(open_rows(folder, **how), {"fts": expected}) for how in ({}, {"map": by_joblib}))
    for name, measure in alone["fts"].measures.items():
        assert mapped["fts"].measures[name].value == pytest.approx(measure.value, rel=1e-12)
        assert mapped["fts"].measures[name].high == pytest.approx(measure.high, rel=1e-9)


def test_the_report_of_a_fit_travels_in_coarse_cells(tmp_path):
    logits, labels = make_rows(60_000, 3, dtype=np.float64)
    for i, rows in enumerate(np.array_split(np.arange(60_000), 2)):
        frame = polars.DataFrame(logits[rows], schema=COLUMNS[:3]).with_columns(label=labels[rows])
        frame.write_parquet(tmp_path / f"part{i}.parquet")
    sizes = []

    def by_pickle(function, things):
        answers = [pickle.dumps(function(thing)) for thing in things]
        sizes.extend(map(len, answers))
        return map(pickle.loads, answers)

    found = TemperatureScaling().fit(open_rows(tmp_path, map=by_pickle))
    assert max(sizes) < 1_500_000  # 5 MB with the cells of one process
    alone = TemperatureScaling().fit(open_rows(tmp_path))
    assert found.temperature_ == pytest.approx(alone.temperature_, rel=1e-9)
    for when in ("before", "after"):
        assert found.fit_report_[when]["ece"] == pytest.approx(alone.fit_report_[when]["ece"], abs=2e-4)


class Scan:
    """A table that Polars reads batch by batch, as often as it is asked."""

    def __init__(self, place):
        self.place = place

    def __iter__(self):
        for file in sorted(self.place.iterdir()):
            for frame in polars.read_parquet(file).iter_slices(500):
                yield frame.select(COLUMNS).to_numpy(), frame["label"].to_numpy()


def test_a_table_of_polars(folder, expected):
    assert_same(fit(blocks(Scan(folder))), expected)


def test_a_query_of_duckdb(folder, expected):
    duckdb = pytest.importorskip("duckdb")

    class Query:
        def __iter__(self):
            found = duckdb.read_parquet(f"{folder}/*.parquet").order("logit_0")
            for batch in found.to_arrow_reader(500):
                yield np.stack([batch[name].to_numpy() for name in COLUMNS], axis=1), batch["label"].to_numpy()

    assert_same(fit(blocks(Query())), expected)


@pytest.mark.long
def test_workers_of_ray_agree(folder, expected):
    ray = pytest.importorskip("ray")
    from ray.util.multiprocessing import Pool

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        assert_same(fit(open_rows(folder, map=Pool(2).imap)), expected)
    finally:
        ray.shutdown()


class StandIn:
    """What the recipe for Spark asks of a DataFrame, on two partitions of two batches each."""

    def mapInPandas(self, function, schema):  # noqa: N802
        batches = [pd.DataFrame(LOGITS[i::4], columns=COLUMNS).assign(label=LABELS[i::4]) for i in range(4)]
        self.found = [*function(iter(batches[:2])), *function(iter(batches[2:]))]
        return self

    def collect(self):
        return [row for frame in self.found for row in frame.itertuples()]


def test_the_recipe_for_spark():
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    (recipe,) = (block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "mapInPandas" in block)
    names = {}
    exec(recipe, names)  # noqa: S102 - of our own page
    task = Pass(map=lambda block: block.sums("focal", 1.0, 1 / 1.5), merge=np.add)
    found = names["reduce_frame"](StandIn(), task, COLUMNS)
    np.testing.assert_allclose(found.answer, Block(LOGITS, LABELS).reduce(task), rtol=1e-12)
    assert found.n_rows == 6000


def test_partial_merge_and_finish_in_any_order():
    task = Pass(map=lambda block: block.sums("focal", 1.0, 1 / 1.5), merge=np.add, finish=lambda sums: sums / 6000)
    whole = Block(LOGITS, LABELS).reduce(task)
    parts = [partial(Block(x, y), task) for x, y in zip(np.split(LOGITS, 6), np.split(LABELS, 6), strict=True)]
    for order in ([0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 2, 4]):
        found = finish(task, merge(task, *(parts[i] for i in order)))
        np.testing.assert_allclose(found.answer, whole, rtol=1e-12)
        assert (found.n_rows, found.n_skipped) == (6000, 0)
    left, right = merge(task, *parts[:2]), merge(task, *parts[2:])
    np.testing.assert_allclose(finish(task, merge(task, left, right)).answer, whole, rtol=1e-12)


def test_a_metric_merges_too(expected):
    p = expected.predict_proba(LOGITS)
    parts = [
        CalibrationHistogram().update(labels, rows)
        for labels, rows in zip(np.split(LABELS, 6), np.split(p, 6), strict=True)
    ]
    found = parts[0]
    for part in parts[1:]:
        found = found.merge(part)
    found = found.compute(n_bins=15)
    assert abs(found.ece - expected_calibration_error(LABELS, p)) <= found.error_bound + 1e-15
