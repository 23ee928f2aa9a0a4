"""Dask: threads, and a cluster of two processes of which one is killed."""

from __future__ import annotations

import os
import signal
import threading

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from distributed.comm import tcp
from distributed.utils import nbytes
from sklearn.exceptions import DataConversionWarning

from block_rows import make_rows
from helpers import wait_until
from refocal import FocalTemperatureScaling, TemperatureScaling, VectorScaling
from refocal.calibrators.fitted import focal_point
from refocal.cli.run import run
from refocal.errors import ClusterError, DataError, ShapeError
from refocal.evaluate import evaluate
from refocal.io import apply, connect, open_rows, rows_of
from refocal.metrics import classwise_ece, smooth_ece

pytestmark = [pytest.mark.core, pytest.mark.slow]

LOGITS, LABELS = make_rows(24_000, 4, dtype=np.float64)
EXACT = FocalTemperatureScaling(objective="nll")


@pytest.fixture(scope="module", autouse=True)
def expected():
    return EXACT.fit(LOGITS, LABELS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("rows")
    for i, rows in enumerate(np.array_split(np.arange(len(LABELS)), 12)):
        frame = pd.DataFrame(LOGITS[rows], columns=[f"logit_{k}" for k in range(4)])
        frame.assign(label=LABELS[rows]).to_parquet(place / f"part{i:02d}.parquet")
    return place


@pytest.fixture(scope="module")
def cluster():
    settings = {
        "distributed.worker.multiprocessing-method": "forkserver",  # which imports once for all workers
        "distributed.worker.daemon": True,
        "distributed.comm.timeouts.connect": "20s",
    }
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0") as local,
        Client(local, set_as_default=False) as client,
    ):
        client.wait_for_workers(2)
        yield client


@pytest.mark.parametrize("columns", [4, 2], ids=["whole rows", "cut columns"])
def test_predictions_of_dask_arrays_are_lazy_and_those_of_memory(columns, expected):
    X = da.from_array(LOGITS, chunks=(7000, columns))
    for method in ("predict_log_proba", "predict_proba", "predict"):
        found, here = getattr(expected, method)(X), getattr(expected, method)(LOGITS)
        assert isinstance(found, da.Array)
        assert (found.shape, found.dtype) == (here.shape, here.dtype)
        np.testing.assert_array_equal(found.compute(), here)
    named = TemperatureScaling().fit(LOGITS, np.array(list("abcd"))[LABELS])
    np.testing.assert_array_equal(named.predict(X).compute(), named.predict(LOGITS))
    frame = dd.from_pandas(pd.DataFrame(LOGITS), npartitions=3)
    np.testing.assert_array_equal(expected.predict_proba(frame).compute(), expected.predict_proba(LOGITS))
    whole = da.from_array(np.round(LOGITS).astype(np.int64), chunks=7000)
    np.testing.assert_array_equal(expected.predict_proba(whole).compute(), expected.predict_proba(np.round(LOGITS)))
    p = da.from_array(expected.predict_proba(LOGITS), chunks=7000)
    of_p = TemperatureScaling(input="probabilities").fit(p, LABELS)
    np.testing.assert_array_equal(of_p.predict_proba(p).compute(), of_p.predict_proba(p.compute()))
    with pytest.raises(ShapeError, match="of 4 columns"):
        expected.predict_proba(X[:, :3]).compute()


@pytest.mark.parametrize("chunks", [(24_000,), (7000, 7000, 10_000), (1, 20_000, 3_999)])
def test_arrays_by_threads(chunks, expected):
    logits = da.from_array(LOGITS, chunks=(chunks, (2, 2)))
    found = FocalTemperatureScaling(objective="nll").fit(logits, da.from_array(LABELS, chunks=5000))
    np.testing.assert_allclose(focal_point(found.chain_), focal_point(expected.chain_), rtol=1e-9)
    assert found.fit_report_["after"]["ece"] == pytest.approx(expected.fit_report_["after"]["ece"], abs=1e-4)


def test_a_column_of_labels_is_taken_as_in_memory():
    logits = da.from_array(LOGITS, chunks=(7000, 4))
    plain = TemperatureScaling().fit(logits, LABELS).temperature_
    for column in (LABELS[:, None], da.from_array(LABELS[:, None], chunks=(5000, 1)), pd.DataFrame({"y": LABELS})):
        with pytest.warns(DataConversionWarning, match="column-vector y"):
            assert TemperatureScaling().fit(logits, column).temperature_ == plain


def test_frames_by_threads(folder, expected):
    frame = dd.read_parquet(folder)
    found = FocalTemperatureScaling(objective="nll").fit(frame, "label")
    np.testing.assert_allclose(focal_point(found.chain_), focal_point(expected.chain_), rtol=1e-9)
    classes, labels = frame[[f"logit_{k}" for k in range(4)]], frame["label"]
    assert TemperatureScaling().fit(classes, labels).fit_report_["n_samples"] == 24_000
    with pytest.raises(DataError, match=r"a column of X.*Got 'truth'"):
        TemperatureScaling().fit(frame, "truth")


def test_arrays_that_do_not_belong_together():
    logits = da.from_array(LOGITS, chunks=(6000, 4))
    with pytest.raises(ShapeError, match=r"of 24000 rows, as X has\. Got 5 rows"):
        TemperatureScaling().fit(logits, LABELS[:5])
    spoiled = LOGITS.copy()
    spoiled[13_000, 1] = np.nan
    with pytest.raises(DataError, match="NaN in row 13000 of chunk 2"):
        TemperatureScaling().fit(da.from_array(spoiled, chunks=(6000, 4)), LABELS)
    rows = rows_of(da.from_array(spoiled, chunks=(6000, 4)), LABELS, skip_bad_rows=True)
    assert TemperatureScaling().fit(rows).fit_report_["n_skipped"] == 1


class Traffic:
    """Bytes that this process, where client and scheduler live, sends and receives."""

    def __init__(self, monkeypatch):
        self.bytes = 0
        for name in ("to_frames", "from_frames"):
            monkeypatch.setattr(tcp, name, self.counting(getattr(tcp, name), name))

    def counting(self, function, name):
        async def counted(message, *arguments, **options):
            found = await function(message, *arguments, **options)
            frames = found if name == "to_frames" else message
            self.bytes += sum(nbytes(frame) for frame in frames)
            return found

        return counted


def traffic_of(rows, monkeypatch):
    """Count from now on; what is returned gives the bytes of each pass, the last one up to then."""
    traffic, before = Traffic(monkeypatch), []
    go_through = rows.go_through
    rows.go_through = lambda task: (before.append(traffic.bytes), go_through(task))[1]
    return lambda: np.diff([*before, traffic.bytes])


def test_a_cluster_gives_the_same_and_little_goes_through_the_scheduler(cluster, folder, expected, monkeypatch):
    rows = open_rows(folder, client=cluster)
    passes = traffic_of(rows, monkeypatch)
    found = FocalTemperatureScaling(objective="nll").fit(rows)
    np.testing.assert_allclose(focal_point(found.chain_), focal_point(expected.chain_), rtol=1e-9)
    assert found.fit_report_["after"]["ece"] == pytest.approx(expected.fit_report_["after"]["ece"], abs=1e-4)
    each = passes()
    assert len(each) >= 5
    assert 0 < each.max() < 1e6


def test_the_ece_by_histograms_on_a_cluster(cluster, folder, monkeypatch):
    monkeypatch.setattr("refocal.engine.dataset.SAMPLE_ROWS", 20_000)  # more than a megabyte, which stays with a worker
    grid = {"objective": "ece", "search": "grid", "temperatures": (1.4, 1.7, 2.0), "gammas": (0.0, 1.0)}
    expected = FocalTemperatureScaling(**grid).fit(LOGITS, LABELS)
    rows = open_rows(folder, client=cluster)
    passes = traffic_of(rows, monkeypatch)
    found = FocalTemperatureScaling(**grid).fit(rows)
    assert focal_point(found.chain_) == focal_point(expected.chain_)
    assert found.solution_.value == pytest.approx(expected.solution_.value, abs=1e-4)
    assert found.fit_report_["after"]["ece"] == pytest.approx(expected.fit_report_["after"]["ece"], abs=1e-4)
    each = passes()
    assert len(each) >= 4
    assert 0 < each.max() < 5e5


def test_vector_scaling_on_a_cluster(cluster, folder):
    expected = VectorScaling(strength=1.0).fit(LOGITS, LABELS)
    found = VectorScaling(strength=1.0).fit(open_rows(folder, client=cluster))
    np.testing.assert_allclose(found.predict_proba(LOGITS), expected.predict_proba(LOGITS), atol=1e-6)


def test_a_worker_killed_in_the_middle_changes_nothing(cluster, folder, expected):
    rows = open_rows(folder, client=cluster)
    victim = next(iter(cluster.run(os.getpid).values()))
    done, reduce = [], rows.reduce

    def reduce_and_kill(task):
        done.append(task)
        if len(done) == 3:
            threading.Timer(0.02, os.kill, (victim, signal.SIGKILL)).start()
        found = reduce(task)
        if len(done) == 3:
            wait_until(lambda: victim not in cluster.run(os.getpid).values())
        return found

    rows.reduce = reduce_and_kill
    found = FocalTemperatureScaling(objective="nll").fit(rows)
    assert victim not in cluster.run(os.getpid).values()
    assert len(done) > 3
    np.testing.assert_allclose(focal_point(found.chain_), focal_point(expected.chain_), rtol=1e-9)
    cluster.wait_for_workers(2)


def test_evaluate_and_apply_on_a_cluster(cluster, folder, expected, tmp_path):
    found = evaluate(open_rows(folder, client=cluster), {"fts": expected})
    assert found["fts"].measures["log_loss"].value == pytest.approx(expected.fit_report_["after"]["log_loss"], rel=1e-9)
    values, p = found["fts"].values, expected.predict_proba(LOGITS)
    assert values["smooth_ece"] == pytest.approx(smooth_ece(LABELS, p), abs=1e-9)
    assert abs(values["classwise_ece"] - classwise_ece(LABELS, p)) <= values["classwise_ece_bound"] < 1e-3
    assert [row.n for row in found["fts"].classes] == np.bincount(LABELS).tolist()
    written = apply(expected, folder, tmp_path / "probs", client=cluster)
    assert sum(each.n_rows for each in written) == 24_000
    table = pd.read_parquet(tmp_path / "probs" / "part03.parquet")
    np.testing.assert_array_equal(np.stack(table["probabilities"]), expected.predict_proba(LOGITS[6000:8000]))
    assert all(each.was_there for each in apply(expected, folder, tmp_path / "probs", client=cluster))


def test_the_command_line_with_a_scheduler(cluster, folder, tmp_path, capsys):
    command = ["fit", f"{folder}/*.parquet", "--scheduler", cluster.scheduler.address, "-m", "ts"]
    assert run([*command, "-o", str(tmp_path / "c.json")]) == 0
    assert "on its 24,000 rows" in capsys.readouterr().out


def test_bad_rows_on_a_cluster_are_named(cluster, folder, tmp_path):
    frame = pd.read_parquet(folder / "part05.parquet")
    frame.loc[7, "logit_2"] = np.inf
    frame.to_parquet(tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=r"\+inf in row 7 of .*bad\.parquet"):
        TemperatureScaling().fit(open_rows(tmp_path, client=cluster))


def test_an_unreachable_scheduler_is_one_line(monkeypatch):
    monkeypatch.setattr("refocal.io.datasets.CONNECT_SECONDS", 0.5)
    for address in ("tcp://127.0.0.1:1", "nonsense://x"):
        with pytest.raises(ClusterError, match="the scheduler cannot be reached") as caught:
            connect(address)
        assert "\n" not in str(caught.value)
