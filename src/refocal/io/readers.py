"""From a file to Predictions. The ending names the format; nothing in a file is ever executed.

Files of arrays (.npz, .npy, .safetensors, .pt) hold a matrix `logits` or `probabilities` and a vector `labels`; files
of columns (.csv, .tsv, .jsonl, .parquet) one column per class and a column `label`. For two classes one column, `p`
or `log_odds` of the positive one, is enough. All names can be given.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from refocal._groups import names_of_column
from refocal._validation import check_path
from refocal.engine.blocked import BlockedDataset
from refocal.errors import FormatError
from refocal.io.arrays import open_arrays
from refocal.io.columns import Columns, choose
from refocal.io.datasets import Map, of_parts
from refocal.io.files import TABLES, Options, check_expansion, ending_of, files_of, is_several, refusing
from refocal.io.parts import Part, Table, array_parts, n_columns, objects
from refocal.io.query import Query
from refocal.io.tables import open_table, table_parts
from refocal.rows import Origin, Predictions, RawRows, RowReader
from refocal.rows.class_names import check_class_names, names_in_order
from refocal.rows.gate import check_same_order, read_raw
from refocal.rows.label_errors import listed
from refocal.rows.labels import IgnoreIndex, raw_labels
from refocal.rows.marks import check_marks
from refocal.rows.scores import Input


class Opened(NamedTuple):
    """The contents of a file or a data set of which nothing is read yet, and what its columns hold.

    Arrays are one raw row set whose values may be mapped; tables are parts.
    """

    columns: Columns
    raw: RawRows | None = None
    tables: list[Table] = []  # noqa: RUF012
    class_names: tuple[str, ...] | None = None
    labels: str = ""
    """What the labels are called."""


def read(
    path: str | os.PathLike[str],
    *,
    input: Input | None = None,  # noqa: A002
    values: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    weight: str | None = None,
    class_names: Sequence[str] | None = None,
    first_label: int | None = None,
    positive_label: Any = None,
    ignore_index: IgnoreIndex = None,
    renormalise: bool = False,
    groups: Sequence[str] = (),
    clusters: str | None = None,
    classes: Sequence[str] | None = None,
) -> Predictions:
    r"""Predictions from a file.

    If the columns have names, labels are matched with the names (numbers and booleans by their text; 2.0 is 2); they
    are column numbers only where the columns have no names, or no label is a name and all are whole numbers from 0;
    what fits both ways or neither is refused. `described()` of the result says what was read.

    Parameters
    ----------
    path : path
        .npz, .npy, .safetensors or .pt (arrays); .csv, .tsv, .jsonl or .parquet (columns). Text may be compressed:
        .csv.gz.
    input : "logits", "probabilities" or "log-odds", optional
        What the numbers are. By default what their names say: `p`, `prob`, `proba`, `probability` and columns that
        begin so hold probabilities, `logits` and `log_odds` do not; where names say nothing, logits. Numbers are never
        looked at to tell. Log-odds are one number per row for two classes.
    values : str, optional
        Name of the matrix, by default `logits` or `probabilities`; for columns a pattern such as "logit_*", "*" for
        all, or several with commas, which say the order of the classes. By default columns that are plainly classes:
        those with a beginning such as logit_ or p_, those that labels are called by, those called by whole numbers, and
        those whose probabilities sum to 1. One column, or an array of one axis, is about the positive class of two; `p`
        and `log_odds` are found automatically.
    labels : str or path, optional
        Name of the array or column, by default `labels` or `label`; or the path of a second file, .npy, with them.
    weight : str, optional
        Name of the array or column with the weights of the rows.
    class_names : list of str, optional
        By default an array `class_names`, or the names of the columns.
    first_label : int, optional
        The label of the first class where labels count columns: 1 if they start at 1.
    positive_label : int or str, optional
        Of two classes, the label of the positive one, which becomes class 1: columns and labels move together.
    ignore_index : int or several, optional
        Rows with this label, such as 255 or -100, are left out.
    renormalise : bool
        Divide rows of probabilities by their sums, where they were rounded.
    groups : str or list of str
        Names of the arrays or columns with groups that the rows belong to.
    clusters : str, optional
        Name of the array or column with the clusters of the rows, such as customers or days: rows of one cluster are
        not independent, and intervals of `evaluate` and of metrics then rest on the clusters.
    classes : list of str, optional
        Such as the `classes_` of a calibrator: columns of a table are found by their names, and rows that have no names
        for their classes are of these, in this order; one number per row is about the second.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "rows.csv"
    ...     _ = file.write_text("cat,dog,label\n0.9,0.1,cat\n0.3,0.7,cat\n")
    ...     read(file, input="probabilities").labels
    array([0, 0])
    """
    marks = check_marks(ignore_index, "read")
    known = None if classes is None else names_in_order(classes, "read", "classes")
    query = Query(
        input=input,
        values=values,
        labels=os.fspath(labels) if labels else None,
        weight=weight,
        groups=groups,
        labelled=True,
        marks=marks,
        classes=known,
    )
    raw, reader = read_source(path, query.with_clusters(clusters))
    reader = replace(
        reader,
        ignore_index=marks,
        positive_label=positive_label,
        renormalise=renormalise,
        first_label=first_label,
    )
    return read_raw(raw, reader.of_classes(known) if class_names is None else named(reader, class_names))


def named(reader: RowReader, class_names: Sequence[str]) -> RowReader:
    """The reader of the same rows whose columns a caller gives names, in place of those of the file."""
    of_table = reader.source.columns if reader.source.n_columns else None  # arrays have a name, and columns none
    class_names = names_in_order(class_names, reader.function)
    check_same_order(class_names, reader.class_names or of_table, reader.function)
    names = check_class_names(class_names, reader.n_classes, reader.function)
    return replace(reader, class_names=names, whole_names=tuple(str(name) for name in class_names))


def read_values(
    path: str | os.PathLike[str],
    *,
    input: Input | None = None,  # noqa: A002
    values: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    weight: str | None = None,
    groups: Sequence[str] = (),
    storage_options: Options = None,
) -> RawRows:
    """The contents of a file as they are, with or without labels; the arguments are those of `read`.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "rows.npz", logits=np.zeros((5, 3)))
    ...     raw = read_values(Path(folder) / "rows.npz")
    >>> raw.values.shape, raw.labels
    ((5, 3), None)
    """
    query = Query(input, values, os.fspath(labels) if labels else None, weight, groups, storage_options)
    return read_source(path, query)[0]


def open_rows(
    path: str | os.PathLike[str],
    *,
    input: Input | None = None,  # noqa: A002
    values: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    weight: str | None = None,
    groups: Sequence[str] = (),
    clusters: str | None = None,
    class_names: Sequence[str] | None = None,
    first_label: int | None = None,
    positive_label: Any = None,
    ignore_index: IgnoreIndex = None,
    renormalise: bool = False,
    classes: Sequence[str] | None = None,
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
        A folder of tables (.parquet, .csv, .tsv, .jsonl), whose folders key=value are columns, a pattern such as
        "logits/*.parquet", an address that fsspec knows (s3://…), a Zarr group, or a file that `refocal.io.read`
        reads; .npy and uncompressed .npz files are mapped.
    input, values, labels, weight, groups, clusters, class_names, first_label, positive_label, ignore_index,
    renormalise, classes
        As for `refocal.io.read`. Where labels could be names of columns or column numbers, all labels are read once
        more, before the first pass, to tell.
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
    marks = check_marks(ignore_index, "open_rows")
    known = None if classes is None else names_in_order(classes, "open_rows", "classes")
    query = Query(
        input=input,
        values=values,
        labels=os.fspath(labels) if labels else None,
        weight=weight,
        groups=groups,
        options=storage_options,
        lenient=skip_bad_rows,
        function="open_rows",
        labelled=True,
        classes=known,
        marks=marks,
        bad=[] if skip_bad_parts else None,
    ).with_clusters(clusters)
    parts, reader = open_parts(path, query)
    reader = replace(
        reader,
        ignore_index=marks,
        positive_label=positive_label,
        renormalise=renormalise,
        first_label=first_label,
    )
    reader = reader.of_classes(known) if class_names is None else named(reader, class_names)
    reader = reader.in_order_of_numbers()
    rows = of_parts(parts, reader, scheduler, client, map)
    rows.bad_parts = tuple(query.bad or ())
    return rows


def read_source(path: str | os.PathLike[str], query: Query) -> tuple[RawRows, RowReader]:
    """All raw rows of a file or a data set, and how they are understood."""
    place = check_path(path, "path", query.function)
    opened = open_source(place, query)
    raw = _gathered(opened.tables) if opened.raw is None else opened.raw
    n_classes = opened.columns.n_classes
    if opened.raw is not None and raw.values is not None:
        n_classes = n_columns(raw.values.shape) or 0
    return raw, _reader(place, opened, query, max(n_classes, len(opened.columns.classes), 2))


def open_source(place: str, query: Query) -> Opened:
    """The arrays of a file or a Zarr group, or the parts of a data set of tables, of which nothing is read yet."""
    if query.labels is not None and query.labels.endswith(".npy"):
        opened = open_source(place, replace(query, labels=None, labelled=False))
        raw = _gathered(opened.tables) if opened.raw is None else opened.raw
        labels = open_arrays(query.labels).get("labels")
        return opened._replace(raw=raw._replace(labels=labels), tables=[], labels=query.labels)
    if is_tables(place):
        tables = table_parts(place, query)
        columns = tables[0].columns
        labels = listed(columns.labels) if query.several else "".join(columns.labels[:1])
        return Opened(columns, None, tables, columns.class_names, labels)
    contents = open_arrays(place, query.options)
    columns = choose(contents, query)
    raw = RawRows(
        contents.get(columns.classes[0]) if columns.classes else None,
        contents.get(columns.labels[0]) if columns.labels else None,
        None if query.weight is None else contents.get(query.weight),
        where=place,
        groups={name: contents.get(name) for name in query.groups},
    )
    names = None
    if "class_names" in contents.names:
        texts = raw_labels(np.ravel(contents.get("class_names")), "class_names", query.function).values
        names = tuple(str(name) for name in texts)
    return Opened(columns, raw, [], names, "".join(columns.labels[:1]))


def open_parts(
    path: str | os.PathLike[str], query: Query, *, several_labels: bool = False
) -> tuple[Sequence[Part], RowReader]:
    """The parts of a data set, and how their rows are understood; `several_labels`: one for each column."""
    place = check_path(path, "path", query.function)
    opened = open_source(place, query)
    if opened.raw is None:
        n_classes = opened.columns.n_classes
        if n_classes == 0:
            raise FormatError(f"{opened.tables[0].where}: none of the {len(opened.tables)} files has any rows.")
        _check_two_classes(place, n_classes, several_labels=query.several or query.passes_several)
        return opened.tables, _reader(place, opened, query, n_classes)
    raw = opened.raw
    counted = n_columns(raw.values.shape)
    if counted is None:
        expected = f"the {opened.columns.input} must be two-dimensional, or one number per row for two classes"
        raise FormatError(f"{place}: {expected}. Got shape {tuple(raw.values.shape)} instead.")
    _check_two_classes(place, counted, several_labels=several_labels or query.several or query.passes_several)
    parts = array_parts(
        raw.values,
        raw.labels,
        raw.weight,
        raw.groups,
        place,
        several_labels=several_labels,
        is_moved=raw.is_moved,
    )
    return parts, _reader(place, opened, query, counted)


def _check_two_classes(place: str, n_classes: int, *, several_labels: bool) -> None:
    """Refuse rows of one column, which could be of either of two classes; those of several labels may have one."""
    if n_classes == 1 and not several_labels:
        expected = "two or more columns, one per class, or one number per row for two classes"
        raise FormatError(f"{place}: the scores must have {expected}. Got one column.")


def _reader(place: str, opened: Opened, query: Query, n_classes: int) -> RowReader:
    """How rows of a file are understood, before a caller says more."""
    columns = opened.columns
    is_table = bool(opened.tables)
    source = Origin(
        place=place,
        columns=columns.classes,
        labels=opened.labels,
        unused=columns.unused(query) if is_table else (),
        n_columns=len(columns.names) if is_table else 0,
        repeated_id=_repeated_id(opened, query),
        is_named=query.values is not None,
        class_names=() if is_table else tuple(map(str, opened.class_names or ())),
    )
    class_names = opened.class_names
    if not query.several:
        class_names = check_class_names(class_names, n_classes, query.function)
    return RowReader(
        n_classes,
        input=columns.input,
        class_names=class_names,
        whole_names=columns.whole_names or tuple(opened.class_names or ()),
        skip_bad_rows=query.lenient,
        function=query.function,
        source=source,
        clusters=query.clusters,
        clusters_are_groups=query.clusters_are_groups,
        has_one_number=_has_one_number(opened),
    )


def _has_one_number(opened: Opened) -> bool:
    """Whether each row is one number: an array of one axis, or one column that holds no lists."""
    if opened.raw is None or opened.tables:
        return len(opened.columns.classes) == 1 and not opened.columns.nested
    return opened.raw.values is not None and len(opened.raw.values.shape) == 1


def _repeated_id(opened: Opened, query: Query) -> str:
    """A column of ids that repeat and that nobody asked for, of tables that are measured; '' without any."""
    if not opened.tables or query.clusters is not None or not query.labelled:
        return ""
    return opened.tables[0].repeated_id(opened.columns.unused(query))


def names_in(path: str | os.PathLike[str], options: Options = None) -> list[str]:
    """The names of the arrays or columns of a file, or of the first file of a data set."""
    place = os.fspath(path)
    if is_tables(place):
        return open_table(files_of(place, options)[0], Query(options=options), place).names
    return open_arrays(place, options).names


def is_tables(place: str) -> bool:
    """Whether a place is a file of columns, or a data set of such files."""
    return is_several(place) or ending_of(place) in TABLES


def _gathered(parts: Sequence[Table]) -> RawRows:
    """All rows of tables together."""
    columns = parts[0].columns
    query = parts[0].query
    for part in parts:
        if part.n_rows is not None and "://" not in part.where:
            with refusing(part.where, "cannot be read"):
                check_expansion(8 * part.n_rows * len(columns.names), Path(part.where).stat().st_size)
    chunks = [chunk for part in parts for chunk in part.blocks()] if columns.n_classes else []
    if not chunks:
        nothing = np.empty(0)
        values = np.empty((0, max(len(columns.classes), 2)))
        labels = nothing if columns.labels else None
        chunks = [RawRows(values, labels, groups=dict.fromkeys(query.groups, nothing))]

    def together(arrays: list[Any], name: str = "") -> Any:
        values = None if arrays[0] is None else np.concatenate(arrays)
        if values is None or values.dtype.kind != "O" or not all(isinstance(cell, str) for cell in values):
            return values
        # An array of text takes as much for each row as for the longest.
        longest = max(len(cell) for cell in values)
        longest_name = 1000  # characters of the name of a class
        if longest > longest_name:
            raise FormatError(f"{parts[0].where}: the column {name!r} holds a text of {longest:,} characters.")
        return values.astype(str)

    def of_one_type(columns: list[Any], name: str) -> list[Any]:
        """Groups of several blocks; of several types by their names, which NumPy would change with the values."""
        if len({column.dtype for column in columns}) < 2:
            return columns
        return [names_of_column(each, name, len(each), "groups", query.function, missing="") for each in columns]

    kept = [name for name in chunks[0].kept if name not in columns.labels]
    return RawRows(
        together([chunk.values for chunk in chunks]),
        together([chunk.labels for chunk in chunks], *columns.labels[:1]),
        together([chunk.weight for chunk in chunks]),
        where=parts[0].where,
        kept={name: objects([cell for chunk in chunks for cell in chunk.kept[name].tolist()]) for name in kept},
        groups={
            name: together(of_one_type([chunk.groups[name] for chunk in chunks], name), name) for name in query.groups
        },
        is_moved=any(chunk.is_moved for chunk in chunks),
    )
