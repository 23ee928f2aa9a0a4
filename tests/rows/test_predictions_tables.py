"""Groups and clusters of tables of every library: the same names, whatever stores them."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from refocal.errors import ParameterError, ShapeError
from refocal.io import Predictions

ROWS = Predictions.from_log_odds([0.1, 0.2, 0.3], [0, 1, 1])
IDS = [1234567890123456789, 1234567890123456790, None]


@pytest.mark.parametrize(
    "column",
    [
        IDS,
        pd.Series(IDS, dtype="Int64"),
        pd.Series(IDS, dtype="int64[pyarrow]"),
        pd.array(IDS, dtype="Int64"),
        pl.Series(IDS),
        pa.array(IDS),
        pa.chunked_array([IDS[:1], IDS[1:]]),
    ],
    ids=["list", "Int64", "pyarrow", "array", "polars", "arrow", "chunked"],
)
def test_large_numbers_beside_a_missing_one_are_not_rounded(column):
    groups = ROWS.with_groups({"shop": column}).groups["shop"]
    assert groups.tolist() == ["1234567890123456789", "1234567890123456790", "missing"]


def test_small_numbers_beside_a_missing_one_are_whole():
    for column in (pd.Series([2, 1, None], dtype="Int64"), pl.Series([2, 1, None]), pd.Series([2.0, 1.0, np.nan])):
        assert ROWS.with_groups({"shop": column}).groups["shop"].tolist() == ["2", "1", "missing"]


@pytest.mark.parametrize("table", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_tables_of_groups_and_clusters(table):
    rows = ROWS.with_groups(table({"region": ["a", "b", "a"], "age": [3, 4, 5]}))
    assert {name: column.tolist() for name, column in rows.groups.items()} == {
        "region": ["a", "b", "a"],
        "age": ["3", "4", "5"],
    }
    rows = ROWS.with_clusters(table({"day": [7, 8, 7]}))
    assert (rows.clusters.tolist(), rows.cluster_name) == ([0, 1, 0], "day")
    with pytest.raises(ParameterError, match=r"'clusters' of Predictions.with_clusters must be one column"):
        ROWS.with_clusters(table({"day": [7, 8, 7], "hour": [1, 2, 3]}))
    with pytest.raises(ShapeError, match=r"'groups' of Predictions.with_groups"):
        ROWS.with_groups(table({"region": ["a", "b"]}))
