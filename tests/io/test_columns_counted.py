"""Columns that are numbered, however the numbers are written, whole and in blocks; labels of such rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from refocal.errors import LabelError, Remedy
from refocal.evaluate import evaluate
from refocal.io import Predictions, open_rows, read, split


@pytest.mark.parametrize("names", [("p_1.0", "p_0.0"), ("p_01", "p_00"), ("p_1", "p_0")])
@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_the_positive_class_is_the_same_whole_and_in_blocks(tmp_path, names, ending):
    rng = np.random.default_rng(0)
    p = rng.random(300)
    y = (rng.random(300) < 0.8 * p).astype(int)
    table = pd.DataFrame({names[0]: p, names[1]: 1.0 - p, "label": y})
    file = tmp_path / f"rows.{ending}"
    write = {"csv": table.to_csv, "parquet": table.to_parquet}.get(ending)
    if write is None:
        table.to_json(file, orient="records", lines=True, double_precision=15)
    else:
        write(file, index=False)
    for rows in (read(file), open_rows(file)):
        found = evaluate(rows, {}).before.measures["mean_bias"].value
        assert found == pytest.approx(p.mean() - y.mean(), abs=1e-9)


def test_shares_of_rare_decisions_are_not_rounded():
    p = np.full(60_000, 0.001)
    p[:2] = 0.95
    y = np.zeros(60_000, dtype=int)
    y[0] = 1
    table = evaluate(Predictions.from_probabilities(p, y), {}, n_resamples=1).before.decisions
    at = table.threshold.index(0.9)
    assert table.right[at] / table.decided[at] == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize(("labels", "remedy"), [([-1, 1], Remedy.POSITIVE_LABEL), ([1, 2], Remedy.FIRST_LABEL)])
def test_blocks_have_the_remedy_of_rows_in_memory(tmp_path, labels, remedy):
    file = tmp_path / "rows.csv"
    pd.DataFrame({"p": [0.2, 0.7, 0.4, 0.9], "label": labels * 2}).to_csv(file, index=False)
    with pytest.raises(LabelError) as whole:
        read(file)
    with pytest.raises(LabelError) as in_blocks:
        open_rows(file).start()
    assert whole.value.remedy is in_blocks.value.remedy is remedy


def test_times_in_nanoseconds_are_told_apart():
    rows = Predictions.from_probabilities([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1])
    early, late = split(rows, 0.5, time=np.array([1_60_000_000_000_000_000 + i for i in range(4)]))
    assert early.numbers.tolist() == [0, 1]
    assert late.numbers.tolist() == [2, 3]
