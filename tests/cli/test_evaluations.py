"""`refocal evaluate`, `compare`, `report` and `decide` with clusters: the intervals are those of Python."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from refocal.decide import cost_matrix, evaluate_decisions
from refocal.evaluate import evaluate
from refocal.io import read


@pytest.fixture
def frame(folder):
    """Rows of forty customers, whose labels go together."""
    rng = np.random.default_rng(0)
    customer = rng.integers(40, size=800)
    log_odds = rng.normal(size=800)
    rate = 1.0 / (1.0 + np.exp(-(log_odds + 2.0 * rng.normal(size=40)[customer])))
    rows = pd.DataFrame({"p": 1.0 / (1.0 + np.exp(-log_odds)), "label": (rng.random(800) < rate).astype(int)})
    rows["customer_id"] = customer
    rows["amount"] = rng.normal(size=800)
    rows.to_csv(folder / "rows.csv", index=False)
    Path("rows").mkdir()
    rows[:500].to_parquet("rows/0.parquet")
    rows[500:].to_parquet("rows/1.parquet")
    return rows


def test_evaluations_rest_on_clusters(refocal, frame):
    code, out, _ = refocal("evaluate", "rows.csv", "--clusters", "customer_id", "--resamples", "20", "--json")
    assert code == 0
    said = json.loads(out)
    assert said["run"]["unit of intervals"] == "customer_id"
    rows = read("rows.csv", clusters="customer_id")
    expected = evaluate(rows, {}, n_resamples=20).before.measures["mean_bias"]
    found = said["methods"][0]["measures"]["mean_bias"]
    assert (found["low"], found["high"]) == (expected.low, expected.high)
    code, out, _ = refocal("evaluate", "rows", "--clusters", "customer_id", "--json")
    in_blocks = json.loads(out)["methods"][0]["measures"]["mean_bias"]
    assert (in_blocks["low"], in_blocks["high"]) == pytest.approx((expected.low, expected.high), abs=5e-3)
    _, out, _ = refocal("evaluate", "rows.csv", "--clusters", "customer_id", "--resamples", "20")
    assert "rest on 40 clusters of rows (customer_id)" in " ".join(out.split())


def test_a_comparison_of_one_file_keeps_clusters_apart_and_names_none_in_the_next_command(refocal, frame):
    options = ("--clusters", "customer_id", "-m", "ts,logistic", "--resamples", "20")
    code, out, _ = refocal("compare", "rows.csv", *options, "--report", "report.html")
    assert code == 0
    assert "rest on 20 clusters" in " ".join(out.split())  # the other twenty are the rows of the fit
    next_line = [line for line in out.splitlines() if line.startswith("Next:")]
    assert not any("--clusters" in line for line in next_line)
    assert "clusters of test rows (customer_id)" in Path("report.html").read_text()
    code, *_ = refocal("report", "rows.csv", *options, "-o", "again.html")
    assert code == 0
    assert "clusters of test rows (customer_id)" in Path("again.html").read_text()


def test_decisions_rest_on_clusters(refocal, frame):
    options = ("--probability-column", "p", "--false-positive", "1", "--false-negative", "4")
    _, out, _ = refocal("decide", "rows.csv", *options, "--clusters", "customer_id", "--json")
    found = json.loads(out)["reports"]["uncalibrated"]["cost"]
    costs = cost_matrix(false_positive=1, false_negative=4)
    expected = evaluate_decisions(frame["label"], frame["p"], costs, clusters=frame["customer_id"]).cost
    alone = evaluate_decisions(frame["label"], frame["p"], costs).cost
    assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high))
    assert expected.high - expected.low > 1.05 * (alone.high - alone.low)
    _, out, _ = refocal("decide", "rows.csv", *options, "--clusters", "customer_id")
    assert "Intervals rest on 40 clusters (customer_id) of the 800 rows." in " ".join(out.split())


def test_ids_that_repeat_are_said(refocal, frame):
    _, out, _ = refocal("evaluate", "rows.csv", "--resamples", "20")
    assert "'customer_id' has the same value in several rows" in " ".join(out.split())


def test_a_column_that_is_not_there_is_named(refocal, frame):
    for place in ("rows.csv", "rows"):
        code, _, err = refocal("evaluate", place, "--clusters", "client")
        assert code == 1
        assert "client" in err


def test_one_file_of_labels_is_not_that_of_two_files_of_rows(refocal, folder):
    """Which may have as many rows, so that nothing else would tell."""
    for name in ("val", "test"):
        rows = read(f"{name}.npz")
        np.save(f"{name}.npy", rows.values[:800])
        np.save(f"{name}_labels.npy", rows.labels[:800])
    days = ["1.npy", "2.npy"]
    for place, day in zip(("val.npy", "test.npy"), days, strict=True):
        np.save(day, np.load(place))
    labels = ("--labels", "val_labels.npy")
    for arguments in (
        ("compare", "val.npy", "test.npy", "-m", "ts"),
        ("report", "val.npy", "test.npy", "-m", "ts"),
        ("monitor", *days),
        ("monitor", *days, "--backtest"),
    ):
        code, _, err = refocal(*arguments, *labels)
        assert (code, "--labels: val_labels.npy holds the labels of one file, not of" in err) == (2, True)
    pd.DataFrame({"validation": ["val.npy"], "test": ["test.npy"]}).to_csv("runs.csv", index=False)
    code, _, err = refocal("compare-many", "runs.csv", "-m", "ts", *labels)
    assert (code, "'labels' must be the name of an array or a column of each file" in err) == (2, True)
    assert refocal("compare", "val.npy", "-m", "ts", "--resamples", "5", *labels)[0] == 0
    assert refocal("compare-many", "val.npy", "-m", "ts", *labels)[0] == 0
    assert refocal("monitor", "1.npy", *labels)[0] == 0


def test_a_difference_in_json_says_what_its_interval_is_of(refocal, folder):
    rng = np.random.default_rng(0)
    p = rng.random(600)
    table = pd.DataFrame({"p": p, "label": (rng.random(600) < p).astype(int)})
    for name, part in (("old", table[:300]), ("new", table[300:])):
        part.to_csv(f"{name}.csv", index=False)
        assert refocal("evaluate", f"{name}.csv", "-o", f"{name}.json")[0] == 0
    changes = json.loads(refocal("diff", "old.json", "new.json", "--json")[1])
    compared = {change["measure"]: change["compared"] for change in changes}
    assert compared["mean_bias"] == "distance from 0"
    assert compared["log_loss"] == "value"
