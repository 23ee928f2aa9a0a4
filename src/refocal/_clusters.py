"""The clusters that rows belong to: rows of one customer, day or patient, which are not independent of one another."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Indices
from refocal._groups import columns_of_table, names_of_column
from refocal.errors import DataError, ParameterError

KEY_BITS = 62
"""The bits of the keys of clusters in blocks of rows: they fit into signed integers of 64 bits."""
UNNAMED = "cluster"
"""What clusters without a name are called."""


class Clusters(NamedTuple):
    """The number of the cluster of each row, (rows,), and what the clusters are called."""

    numbers: Indices
    name: str
    names: NDArray[np.str_] | None = None
    """The name of each cluster, by its number; None in blocks of rows."""


def as_clusters(clusters: Any, n_rows: int, function: str) -> Clusters:
    """The clusters of rows in memory, numbered from 0 in the order of their names.

    One array, a Series, or a mapping or data frame of one column. Values are compared as those of groups are: 1.0 and 1
    are one cluster. A missing one is an error, since the rows that its row belongs with are not known.

    >>> as_clusters({"customer": ["b", "a", "b"]}, 3, "f")
    Clusters(numbers=array([1, 0, 1]), name='customer', names=array(['a', 'b'], dtype='<U1'))
    """
    name, names = _named(clusters, n_rows, function)
    distinct, numbers = np.unique(names, return_inverse=True)
    return Clusters(numbers.astype(np.int64), name, distinct)


def cluster_keys(clusters: Any, n_rows: int, function: str) -> Clusters:
    """The clusters of a block of rows, numbered by a hash of their names: the same in every block.

    >>> first, second = cluster_keys(["a", "b"], 2, "f").numbers, cluster_keys(["b"], 1, "f").numbers
    >>> bool(first[1] == second[0])
    True
    """
    name, names = _named(clusters, n_rows, function)
    distinct, place = np.unique(names, return_inverse=True)
    keys = np.array([_key(text) for text in distinct.tolist()], dtype=np.int64)
    return Clusters(keys[place], name)


def _key(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> (64 - KEY_BITS)


def column_of_clusters(clusters: Any, function: str) -> tuple[str, Any]:
    """The name of clusters and their column, which may be alone in a mapping or data frame.

    >>> column_of_clusters({"customer": ["b", "a"]}, "f"), column_of_clusters(["b", "a"], "f")
    (('customer', ['b', 'a']), ('cluster', ['b', 'a']))
    """
    columns = columns_of_table(clusters)
    if columns is None:
        # A Series may have a name; that of a Dask array is one of Dask's own.
        given = getattr(clusters, "name", None) if hasattr(clusters, "to_frame") else None
        return str(given or UNNAMED), clusters
    if len(columns) != 1:
        raise ParameterError("clusters", function, expected="one column", got=f"{len(columns)} columns")
    return next(iter(columns.items()))


def _named(clusters: Any, n_rows: int, function: str) -> tuple[str, NDArray[np.str_]]:
    """The name of clusters, and the name of each row's cluster."""
    name, column = column_of_clusters(clusters, function)
    names = names_of_column(column, name, n_rows, "clusters", function, missing="")
    is_missing = names == ""
    if is_missing.any():
        got = f"none in row {int(np.argmax(is_missing))} of {name!r}"
        raise DataError("clusters", function, expected="known of every row", got=got)
    return name, names
