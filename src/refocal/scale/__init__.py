"""Rows that do not fit into memory, or on one machine: mapped files, Parquet data sets, Zarr, Dask.

`open_rows`, `blocks` and `rows_of` make rows that the `fit` of a calibrator and `refocal.evaluate.evaluate` take in
place of arrays; `apply` writes calibrated probabilities as Parquet, part by part.
"""

from refocal.scale.apply import apply
from refocal.scale.cluster import connect
from refocal.scale.opening import blocks, open_rows, rows_of

__all__ = ["apply", "blocks", "connect", "open_rows", "rows_of"]
