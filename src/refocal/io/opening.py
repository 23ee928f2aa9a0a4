"""From a path, an address or an array to a Dataset of rows in blocks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from refocal._validation import IgnoreIndex, check_marks
from refocal.engine.blocked import BlockedDataset
from refocal.engine.reading import Reading
from refocal.errors import DataError, FormatError, LabelError, Remedy, ShapeError
from refocal.io import cluster
from refocal.io.addresses import Options
from refocal.io.columns import LABELS, listed
from refocal.io.files import files_of, is_several, is_table
from refocal.io.local import LocalDataset, Map, MappedDataset
from refocal.io.parts import Mapped, PairsPart, Part, array_parts, n_columns, table_parts
from refocal.io.readers import read_values


class Opened(NamedTuple):
    """Parts, and what they hold; labels may be missing where only probabilities are to be made."""

    parts: list[Part]
    n_classes: int
    class_names: tuple[str, ...] | None


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
    function = "open_rows"
    reading_of: dict[str, Any] = {"input": input, "values": values, "labels": labels, "weight": weight}
    reading_of["groups"] = tuple(groups)
    bad: list[str] | None = [] if skip_bad_parts else None
    opened = open_parts(path, **reading_of, storage_options=storage_options, lenient=skip_bad_rows, bad=bad)
    names = opened.class_names if class_names is None else class_names
    marks = check_marks(ignore_index, function)
    reading = Reading(opened.n_classes, input, first_label, skip_bad_rows, function, _texts(names), ignore_index=marks)
    if scheduler is not None and client is None:
        client = cluster.connect(scheduler)
    rows = _rows(opened.parts, reading, client, map)
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
    function, marks = "blocks", check_marks(ignore_index, "blocks")
    reading = Reading(n_classes, input, first_label, skip_bad_rows, function, _texts(class_names), ignore_index=marks)
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
    if type(X).__module__.startswith("dask"):
        return _rows_of_dask(X, y, sample_weight, groups, _texts(class_names), input, skip_bad_rows, client)
    n_classes = n_columns(X.shape)
    if n_classes is None:
        raise ShapeError("X", "rows_of", expected="two-dimensional", got=f"shape {tuple(X.shape)}")
    names = _names(y, n_classes, _texts(class_names), client)
    reading = Reading(n_classes, input, 0, skip_bad_rows, "fit", *names)
    name = getattr(X, "filename", None) or getattr(X, "path", None) or "X"
    return _rows(_array_parts(X, y, sample_weight, _group_columns(groups), str(name)), reading, client)


def open_parts(
    path: str | os.PathLike[str],
    *,
    input: str = "logits",  # noqa: A002
    values: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    weight: str | None = None,
    groups: Sequence[str] = (),
    need_labels: bool = True,
    storage_options: Options = None,
    lenient: bool = False,
    bad: list[str] | None = None,
) -> Opened:
    """The parts of a data set; the arguments are those of `open_rows`."""
    place, name = os.fspath(path), None if labels is None else os.fspath(labels)
    if is_several(place) or (is_table(place) and not (name or "").endswith(".npy")):
        files = files_of(place, storage_options)
        more: dict[str, Any] = {"lenient": lenient, "keeping": not need_labels, "bad": bad}
        parts = table_parts(files, input, values, name, weight, groups, options=storage_options, **more)
        columns = parts[0].columns
        if columns.n_classes == 0:
            raise FormatError(f"{files[0]}: none of the {len(files)} files has any rows.")
        if need_labels and columns.labels is None:
            raise FormatError(f"{files[0]}: no labels: no column {' or '.join(map(repr, LABELS))}.", Remedy.LABELS)
        return Opened(list(parts), columns.n_classes, columns.class_names)
    kind: Any = input
    reading_of: dict[str, Any] = {"labels": labels, "weight": weight, "groups": groups}
    found = read_values(place, input=kind, values=values, **reading_of, storage_options=storage_options)
    n_classes = n_columns(found.values.shape)
    if n_classes is None:
        raise FormatError(
            f"{place}: the {input} must be two-dimensional, or one number a row of two classes. "
            f"Got shape {tuple(found.values.shape)} instead."
        )
    if need_labels and found.labels is None:
        raise FormatError(f"{place}: no labels. It has {listed(found.names)}.", Remedy.LABELS)
    parts_of = _array_parts(found.values, found.labels, found.weight, found.groups, place)
    return Opened(parts_of, n_classes, found.class_names)


def _rows(parts: list[Part], reading: Reading, client: Any, map_parts: Map | None = None) -> BlockedDataset:
    if map_parts is not None:
        return MappedDataset(parts, reading, map_parts)
    if client is None:
        return LocalDataset(parts, reading)
    return cluster.DaskDataset(cluster.part_leaves(parts, reading, client), reading, client)


def _rows_of_dask(
    values: Any, y: Any, weight: Any, groups: Any, given: tuple[str, ...] | None, kind: str, skip: bool, client: Any
) -> BlockedDataset:
    if hasattr(values, "to_dask_array"):
        # Series become columns: on its own each would be cut into partitions of its own.
        series = {f"refocal {what}": v for what, v in (("y", y), ("weight", weight)) if hasattr(v, "to_dask_array")}
        values = values.assign(**series) if series else values
        y, weight = (
            f"refocal {what}" if f"refocal {what}" in series else v for what, v in (("y", y), ("weight", weight))
        )
    if isinstance(y, str):
        columns = [groups] if isinstance(groups, str) else list(groups or ())
        names = [name for name in (y, weight, *columns) if name is not None]
        missing = [name for name in names if name not in values.columns]
        if missing:
            raise DataError("y", "fit", expected=f"a column of X: {list(values.columns)}", got=repr(missing[0]))
        classes = [name for name in values.columns if name not in names]
        names_of = _names(values[y], len(classes), given, client)
        reading = Reading(len(classes), kind, 0, skip, "fit", *names_of)
        return cluster.DaskDataset(cluster.frame_leaves(values, classes, y, weight, columns, reading), reading, client)
    values = values.to_dask_array() if hasattr(values, "to_dask_array") else values
    if values.ndim != 2:
        raise ShapeError("X", "fit", expected="two-dimensional", got=f"shape {tuple(values.shape)}")
    reading = Reading(int(values.shape[1]), kind, 0, skip, "fit", *_names(y, int(values.shape[1]), given, client))
    leaves = cluster.array_leaves(values, y, weight, _group_columns(groups), reading)
    return cluster.DaskDataset(leaves, reading, client)


def _names(
    y: Any, n_classes: int, given: tuple[str, ...] | None, client: Any
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Names of the columns, and what `classes_` will be: text labels stand for the columns in sorted order."""
    dtype = getattr(y, "dtype", None) or np.asarray(y).dtype
    if getattr(dtype, "kind", "O") in "biuf":
        return given, None
    if given is not None:
        return given, given
    found = tuple(sorted(cluster.distinct(y, client)))
    if len(found) != n_classes:
        expected = f"of {n_classes} distinct classes, as X has columns"
        got = f"{len(found)} distinct labels" + (f" from {found[0]!r} to {found[-1]!r}" if found else "")
        raise LabelError("y", "fit", expected=expected, got=got, remedy=Remedy.CLASS_NAMES)
    return found, found


def _group_columns(groups: Any) -> dict[str, Any]:
    """Columns of groups by their names; one array is called "group", as in memory."""
    if groups is None:
        return {}
    return {str(name): each for name, each in groups.items()} if isinstance(groups, Mapping) else {"group": groups}


def _texts(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(str(name) for name in names)


def _array_parts(values: Any, labels: Any, weight: Any, groups: Mapping[str, Any], where: str) -> list[Part]:
    """Parts of arrays that can be sliced; chunks of Zarr are not cut."""
    n_rows = int(values.shape[0])

    def checked(vector: Any, what: str) -> Any:
        if vector is None:
            return None
        array = vector if hasattr(vector, "shape") else np.asarray(vector)
        if tuple(array.shape) != (n_rows,):
            expected = f"of shape {(n_rows,)}, one for each row"
            raise ShapeError(what, "fit", expected=expected, got=f"shape {tuple(array.shape)}")
        return Mapped.of(array)

    columns = {name: checked(column, "groups") for name, column in groups.items()}
    rows_of_a_chunk = int(values.chunks[0]) if getattr(values, "chunks", None) else 1
    y, w = checked(labels, "y"), checked(weight, "sample_weight")
    return list(array_parts(Mapped.of(values), y, w, where, rows_of_a_chunk, columns))


__all__ = ["Opened", "blocks", "open_parts", "open_rows", "rows_of"]
