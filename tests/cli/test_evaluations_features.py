"""`--features` and `--time`: columns of a table by which segments are sought, or rows divided; columns of a fit."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest


def test_the_command_line_takes_columns(refocal, folder):
    rng = np.random.default_rng(0)
    features = {"age": rng.integers(18, 80, 12_000), "region": rng.choice(["north", "south"], 12_000)}
    features["noise"] = rng.normal(size=12_000).round(3)
    p = rng.beta(1, 6, 12_000).round(6)
    is_off = (features["age"] < 35) & (features["region"] == "north")
    y = (rng.random(12_000) < np.where(is_off, 2.0 * p, p)).astype(int)
    pd.DataFrame({"p": p, **features, "late": y}).to_csv("rows.csv", index=False)
    options = ("--probability-column", "p", "--labels", "late", "--features", "age,region", "--resamples", "10")
    code, out, _ = refocal("evaluate", "rows.csv", *options)
    assert code == 0
    assert "1 segment is significantly off" in out
    assert "region = north: predicted" in out
    code, out, _ = refocal("compare", "rows.csv", *options, "-m", "logistic")
    assert code == 0
    assert "proposed on 3,000 rows" in out
    code, _, err = refocal("evaluate", "rows.csv", *options[:4], "--features", "height")
    assert code != 0
    assert "--features must name columns of rows.csv: age, region, noise. Got 'height'." in err


def test_the_later_half_of_one_file_tests(refocal, folder):
    rng = np.random.default_rng(0)
    p = rng.uniform(size=600).round(6)
    table = pd.DataFrame({"p": p, "late": (rng.random(600) < p).astype(int), "day": np.arange(600) // 2})
    table.sample(frac=1.0, random_state=0).to_csv("rows.csv", index=False)
    table[:300].to_csv("val.csv", index=False)
    table[300:].to_csv("test.csv", index=False)
    options = ("--labels", "late", "-m", "logistic", "--resamples", "10", "--json")
    code, by_time, _ = refocal("compare", "rows.csv", "--time", "day", *options)
    assert code == 0
    _, two_files, _ = refocal("compare", "val.csv", "test.csv", *options)
    measured = [json.loads(text)["methods"][0]["measures"]["log_loss"]["value"] for text in (by_time, two_files)]
    assert measured[0] == pytest.approx(measured[1], rel=1e-12)
    assert json.loads(by_time)["run"]["validation and test rows of one file"] == "divided by time"
    code, _, err = refocal("compare", "rows.csv", "--time", "week", *options)
    assert code != 0
    assert "--time must name columns of rows.csv: day. Got 'week'." in err
    code, _, err = refocal("compare", "val.csv", "test.csv", "--time", "day", *options)
    assert code != 0
    assert "--time divides one file into an earlier and a later part; leave out test.csv." in err


def test_commands_read_the_columns_of_the_fit(refocal, folder):
    rng = np.random.default_rng(0)
    p = rng.uniform(size=300).round(6)
    table = pd.DataFrame({"risk": p, "late": (rng.random(300) < p).astype(int)})
    table.to_csv("fit.csv", index=False)
    table.assign(prob=rng.uniform(size=300).round(6)).to_csv("test.csv", index=False)
    read_so = ("--labels", "late")
    assert refocal("fit", "fit.csv", *read_so, "--probability-column", "risk", "-m", "logistic")[0] == 0
    code, out, _ = refocal("evaluate", "test.csv", "calibrator.json", *read_so, "--resamples", "10")
    assert code == 0
    assert "column risk of test.csv" in out
    costs = ("--false-positive", "1", "--false-negative", "2")
    code, out, _ = refocal("decide", "test.csv", "--calibrator", "calibrator.json", *read_so, *costs)
    assert code == 0
    assert "column risk of test.csv" in out
