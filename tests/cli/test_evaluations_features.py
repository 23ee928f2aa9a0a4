"""`--features`: segments are sought by the columns of a table."""

from __future__ import annotations

import numpy as np
import pandas as pd


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
