"""From a path, an address or an array to a Dataset of rows in blocks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from refocal._arrays import is_dask
from refocal._validation import IgnoreIndex, check_class_names, check_marks
from refocal.engine.blocked import BlockedDataset
from refocal.engine.reading import Reading
from refocal.errors import DataError, FormatError, LabelError, Remedy, ShapeError
from refocal.io import datasets
from refocal.io.columns import Query
from refocal.io.datasets import LocalDataset, Map
from refocal.io.files import Options
from refocal.io.parts import PairsPart, Part, array_parts, n_columns
from refocal.io.readers import Values, open_source


def open_rows(
    path: str | os.PathLike[str],
    *,
    input: str = "logits",  # noqa: A002
    values: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    weight: str | None = None,
    groups: Sequence[str] = (),
    class_names: Sequence[str] | None = None,
    first_label: int = 0,
    ignore_index: IgnoreIndex = None,
    skip_bad_rows: bool = False,
    skip_bad_parts: bool = False,
    storage_options: Options = None,
    scheduler: str | None = None,
    client: Any = None,
    map: Map | None = None,  # noqa: A002
) -> BlockedDataset:
    """Rows of a file or a data set, for `fit` and `evaluate`, in constant memory.

    Parameters
    ----------
    path : path or address
        A folder of tables (.parquet, .csv, .tsv, .jsonl), a pattern such as "logits/*.parquet", an address that fsspec
        knows (s3://…), a Zarr group, or a file that `refocal.io.read` reads; .npy and uncompressed .npz files are
        mapped.
    input, values, labels, weight, groups, class_names, first_label, ignore_index
        As for `refocal.io.read`; labels may be names of classes.
    skip_bad_rows : bool
        Leave out rows that cannot be used, and count them; by default the first one is an error that names its place.
    skip_bad_parts : bool
        Leave out files of a data set that cannot be read or have other columns than the first: all files are checked
        first. `bad_parts` of the result lists them with the reasons.
    storage_options : dict, optional
        Options of fsspec for addresses of stores: endpoint, keys. By default taken from the environment.
    scheduler : str, optional
        Address of a Dask scheduler that does the work, such as "tcp://host:8786". Its workers need access to the
        files.
    client : distributed.Client, optional
        An existing client instead of `scheduler`.
    map : callable, optional
        A function like Python's `map` that processes the parts elsewhere: `multiprocessing.Pool().map`, or what
        joblib, Ray or Spark have. It sends the names of the parts and receives a few numbers for each.

    Examples
    --------
    >>> import tempfile
    >>> from refocal import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 2.0 * rng.normal(size=(4000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/rows.npz", logits=1.5 * logits, labels=labels)
    ...     fitted = TemperatureScaling().fit(open_rows(f"{folder}/rows.npz"))
    >>> round(fitted.temperature_, 1)
    1.5
    """
    named, marks = os.fspath(labels) if labels else None, check_marks(ignore_index, "open_rows")
    query = Query(
        input, values, named, weight, groups, storage_options, skip_bad_rows, "open_rows", labelled=True, marks=marks
    )
    bad: list[str] | None = [] if skip_bad_parts else None
    parts, reading = open_parts(path, query, bad, class_names, first_label)
    rows = datasets.of_parts(parts, reading, scheduler, client, map)
    rows.bad_parts = tuple(bad or ())
    return rows


def blocks(
    pairs: Iterable[Any],
    *,
    input: str = "logits",  # noqa: A002
    class_names: Sequence[str] | None = None,
    first_label: int = 0,
    ignore_index: IgnoreIndex = None,
    skip_bad_rows: bool = False,
) -> BlockedDataset:
    """Rows from any iterable of (logits, labels) or (logits, labels, weights) that can be iterated again.

    A fourth entry are the groups that the rows belong to, an array or several by their names; weights may be None.
    With `class_names`, one for each column, labels may be these names. Rows whose label is `ignore_index` are left out.

    >>> import numpy as np
    >>> from refocal import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> class Days:
    ...     def __iter__(self):
    ...         for day in range(3):
    ...             rng = np.random.default_rng(day)
    ...             logits = 2.0 * rng.normal(size=(4000, 5))
    ...             yield 1.5 * logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> round(TemperatureScaling().fit(blocks(Days())).temperature_, 1)
    1.5
    """
    if isinstance(pairs, Iterator):
        expected = "iterable more than once: a list, or an object whose __iter__ begins again"
        raise DataError("pairs", "blocks", expected=expected, got=f"a {type(pairs).__name__}")
    n_classes = next(filter(None, (n_columns(np.shape(pair[0])) for pair in pairs)), None)
    if n_classes is None:
        raise ShapeError("pairs", "blocks", expected="blocks of two-dimensional logits", got="none")
    names, marks = check_class_names(class_names, n_classes, "blocks"), check_marks(ignore_index, "blocks")
    reading = Reading(n_classes, input, first_label, skip_bad_rows, "blocks", names, ignore_index=marks)
    return LocalDataset([PairsPart(pairs)], reading)


def rows_of(
    X: Any,  # noqa: N803
    y: Any,
    sample_weight: Any = None,
    *,
    input: str = "logits",  # noqa: A002
    groups: Any = None,
    class_names: Sequence[str] | None = None,
    skip_bad_rows: bool = False,
    client: Any = None,
) -> BlockedDataset:
    """Rows of arrays that are not in memory: memory-mapped, Zarr, or Dask (arrays, or a DataFrame of the classes).

    `y` and `sample_weight` of a DataFrame are names of its columns, or Dask Series of the same partitions; `groups` is
    a list of names. Of arrays `groups` is one more array, or several by their names. Labels that
    are text stand for the columns in their sorted order, as in memory, unless `class_names` gives another.

    >>> import dask.array
    >>> from refocal import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 2.0 * rng.normal(size=(4000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> X, y = dask.array.from_array(1.5 * logits, chunks=(1000, 5)), dask.array.from_array(labels, chunks=1000)
    >>> rows = rows_of(X, y)
    >>> round(TemperatureScaling().fit(rows).temperature_, 1)
    1.5
    """
    if y is None:
        raise LabelError("y", "rows_of", expected="given, one label for each row of X", got="None")
    if hasattr(X, "to_dask_array") and not (isinstance(y, str) or hasattr(y, "to_dask_array")):
        X = X.to_dask_array()  # noqa: N806
    elif hasattr(X, "to_dask_array"):
        given = {"refocal y": y, "refocal weight": sample_weight}
        series = {name: each for name, each in given.items() if hasattr(each, "to_dask_array")}
        # On its own a Series would be cut into partitions of its own.
        X = X.assign(**series)  # noqa: N806
        y, sample_weight = (name if name in series else each for name, each in given.items())
        columns = [groups] if isinstance(groups, str) else list(groups or ())
        named = [name for name in (y, sample_weight, *columns) if name is not None]
        missing = next((name for name in named if name not in X.columns), None)
        if missing is not None:
            raise DataError("y", "fit", expected=f"a column of X: {list(X.columns)}", got=repr(missing))
        classes = [name for name in X.columns if name not in named]
        names = _names(X[y], len(classes), class_names, client)
        reading = Reading(len(classes), input, 0, skip_bad_rows, "fit", *names)
        return datasets.of_frame(X, classes, y, sample_weight, columns, reading, client)
    n_classes = n_columns(X.shape)
    if n_classes is None or (is_dask(X) and X.ndim != 2):
        raise ShapeError("X", "fit", expected="two-dimensional", got=f"shape {tuple(X.shape)}")
    reading = Reading(n_classes, input, 0, skip_bad_rows, "fit", *_names(y, n_classes, class_names, client))
    of_rows = groups if isinstance(groups, Mapping) else {} if groups is None else {"group": groups}
    by_name = {str(name): each for name, each in of_rows.items()}
    if is_dask(X):
        return datasets.of_arrays(X, y, sample_weight, by_name, reading, client)
    where = getattr(X, "filename", None) or getattr(X, "path", None) or "X"
    parts = array_parts(X, y, sample_weight, by_name, str(where))
    return datasets.of_parts(parts, reading, client=client)


def open_parts(
    path: str | os.PathLike[str],
    query: Query,
    bad: list[str] | None = None,
    class_names: Sequence[str] | None = None,
    first_label: int = 0,
) -> tuple[Sequence[Part], Reading]:
    """The parts of a data set, and what their rows mean; names of classes that are given stand for those of the files.

    With a list `bad`, files that cannot be read are left out, and the list says why.
    """
    place = os.fspath(path)
    found = open_source(place, query, bad)
    parts: Sequence[Part]
    if isinstance(found, Values):
        n_classes, names, first = n_columns(found.values.shape), found.class_names, found.first_label
        if n_classes is None:
            expected = f"the {query.input} must be two-dimensional, or one number per row for two classes"
            raise FormatError(f"{place}: {expected}. Got shape {tuple(found.values.shape)} instead.")
        parts = array_parts(found.values, found.labels, found.weight, found.groups, place)
    else:
        parts, columns = found, found[0].columns
        n_classes, names, first = columns.n_classes, columns.class_names, columns.first_label
        if n_classes == 0:
            raise FormatError(f"{found[0].where}: none of the {len(found)} files has any rows.")
    names = check_class_names(names if class_names is None else class_names, n_classes, query.function)
    about = n_classes, query.input, first_label or first, query.lenient, query.function, names
    return parts, Reading(*about, ignore_index=query.marks)


def _names(
    y: Any, n_classes: int, class_names: Sequence[str] | None, client: Any
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Names of the columns, and what `classes_` will be: text labels stand for the columns in sorted order."""
    given = check_class_names(class_names, n_classes, "fit")
    dtype = getattr(y, "dtype", None) or np.asarray(y).dtype
    if getattr(dtype, "kind", "O") in "biuf":
        return given, None
    if given is not None:
        return given, given
    found = tuple(sorted(datasets.distinct(y, client)))
    if len(found) != n_classes:
        expected = f"of {n_classes} distinct classes, as X has columns"
        got = f"{len(found)} distinct labels" + (f" from {found[0]!r} to {found[-1]!r}" if found else "")
        raise LabelError("y", "fit", expected=expected, got=got, remedy=Remedy.CLASS_NAMES)
    return found, found
