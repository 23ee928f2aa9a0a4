"""Predictions of Dask arrays and DataFrames, lazily, chunk by chunk of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from refocal._arrays import Array
from refocal.errors import ShapeError


def in_chunks_of_rows(X: Any) -> Any:
    """A Dask array whose chunks hold whole rows; of a DataFrame, the array of its columns."""
    values = X.to_dask_array() if hasattr(X, "to_dask_array") else X
    return values.rechunk(dict.fromkeys(range(1, values.ndim), -1))


def floating_dtype(values: Any) -> Any:
    """The dtype of predictions for values of a Dask array."""
    return values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)


def with_known_lengths(values: Any) -> Any:
    """The array with the lengths of its chunks; those that Dask does not know, as of a DataFrame, are computed."""
    return values.copy().compute_chunk_sizes() if np.isnan(values.chunks[0]).any() else values


def by_chunk(predict: Callable[[Array], Array], values: Any) -> Any:
    """Predictions of the shape of the rows; of one number per row, (N,), two columns."""
    dtype = floating_dtype(values)
    if values.ndim == 1:
        chunks = (values.chunks[0], (2,))
        return values.map_blocks(predict, dtype=dtype, meta=np.empty((0, 0), dtype), new_axis=1, chunks=chunks)
    whole_rows = values.rechunk({values.ndim - 1: -1})
    return whole_rows.map_blocks(predict, dtype=dtype, meta=np.empty((0,) * values.ndim, dtype))


def classes_by_chunk(predict: Callable[[Array], Array], values: Any, dtype: Any) -> Any:
    """Predicted classes of this dtype, one for each row."""
    if values.ndim == 1:
        return values.map_blocks(predict, dtype=dtype, meta=np.empty(0, dtype))
    axis = values.ndim - 1  # of the classes
    whole_rows = values.rechunk({axis: -1})
    return whole_rows.map_blocks(predict, dtype=dtype, meta=np.empty((0,) * axis, dtype), drop_axis=axis)


def by_places(predict: Callable[[Array, slice], Array], values: Any, n_columns: int, function: str) -> Any:
    """Predictions (N, `n_columns`) for rows (N, C), or (N,) of one number per row, in chunks of known lengths.

    `predict` gets the rows of a chunk and their places among all.
    """
    if values.ndim > 2:
        raise ShapeError("X", function, expected="two-dimensional in a Dask array", got=f"shape {values.shape}")

    def predict_block(block: Array, block_info: Any = None) -> Array:
        first, last = block_info[0]["array-location"][0]
        return predict(block, slice(first, last))

    dtype = floating_dtype(values)
    more = {"new_axis": 1} if values.ndim == 1 else {}
    chunks = (values.chunks[0], (n_columns,))
    return values.map_blocks(predict_block, dtype=dtype, meta=np.empty((0, 0), dtype), chunks=chunks, **more)
