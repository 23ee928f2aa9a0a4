"""From a file to Predictions. The ending names the format; nothing in a file is ever executed.

Files of arrays (.npz, .npy, .safetensors, .pt) hold a matrix `logits` or `probabilities` and a vector `labels`; files
of columns (.csv, .tsv, .jsonl, .parquet) one column per class and a column `label`. For two classes one column, `p`
or `log_odds` of the positive one, is enough. All names can be given.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from refocal._label_checks import IgnoreIndex, are_marks, check_class_names, check_marks
from refocal.engine.blocked import BlockedDataset
from refocal.engine.reading import Chunk, Reading
from refocal.errors import FormatError
from refocal.io.arrays import open_arrays
from refocal.io.columns import Query, choose
from refocal.io.datasets import Map, of_parts
from refocal.io.files import TABLES, Options, check_expansion, ending_of, files_of, is_several, refusing
from refocal.io.parts import Part, Table, array_parts, n_columns, objects
from refocal.io.predictions import Input, Predictions
from refocal.io.tables import open_table, table_parts

# Characters of the name of a class.
LONGEST_NAME = 1000


class Values(NamedTuple):
    """The unchecked contents of a file; labels, weight and class names if it has them."""

    input: Any
    values: Any
    labels: Any
    weight: Any
    class_names: tuple[str, ...] | None
    groups: dict[str, Any]
    first_label: int = 0
    kept: Mapping[str, Any] = {}
    """Further columns of a table, where a query asks for them."""

    def checked(
        self, class_names: Sequence[str] | None = None, first_label: int | None = None, **options: Any
    ) -> Predictions:
        """Predictions, of which all labels are 0 if there are none; options are those of `Predictions.from_logits`."""
        names = self.class_names if class_names is None else class_names
        if self.labels is None:
            labels, first_label = np.zeros(len(self.values), dtype=np.int64), 0
            # Without names one column, or the second of two, is that of the positive class, whatever its label.
            kept = ("renormalise",) if names is None else ("renormalise", "positive_label")
            options = {name: value for name, value in options.items() if name in kept}
        else:
            labels, first_label = self.labels[...], self.first_label if first_label is None else first_label
        options |= {"weight": None if self.weight is None else self.weight[...], "class_names": names}
        made = Predictions._of(self.values[...], labels, self.input, first_label=first_label, **options)
        return made.with_groups(self.labelled(self.groups, options.get("ignore_index")))

    def labelled(self, columns: Mapping[str, Any], ignore_index: IgnoreIndex = None) -> dict[str, Any]:
        """Columns without the rows whose label is `ignore_index`."""
        marks = check_marks(ignore_index, "read")
        has_label = ~are_marks(np.asarray(self.labels), marks) if marks else ...
        return {name: np.asarray(column)[has_label] for name, column in columns.items()}


def read(
    path: str | os.PathLike[str],
    *,
    input: Input = "logits",  # noqa: A002
    values: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    weight: str | None = None,
    class_names: Sequence[str] | None = None,
    first_label: int | None = None,
    positive_label: Any = None,
    ignore_index: IgnoreIndex = None,
    renormalise: bool = False,
    groups: Sequence[str] = (),
) -> Predictions:
    r"""Predictions from a file.

    Parameters
    ----------
    path : path
        .npz, .npy, .safetensors or .pt (arrays); .csv, .tsv, .jsonl or .parquet (columns). Text may be compressed:
        .csv.gz.
    input : "logits", "probabilities" or "log-odds"
        What the numbers are; never guessed. Log-odds are one number per row for two classes.
    values : str, optional
        Name of the matrix, by default `logits` or `probabilities` as `input` says; for columns a pattern such as
        "logit_*" or several with commas, which say the order of the classes, by default every column but those of
        labels and weights. One column, or an array of one axis, is about the positive class of two; `p` and `log_odds`
        are found automatically.
    labels : str or path, optional
        Name of the array or column, by default `labels` or `label`; or the path of a second file, .npy, with them.
    weight : str, optional
        Name of the array or column with the weights of the rows.
    class_names : list of str, optional
        By default an array `class_names`, or the names of the columns.
    first_label : int, optional
        1 if labels start at 1. By default 0; 1 for columns called 1, 2, … if labels are among these.
    positive_label : int or str, optional
        Of two classes, the label of the positive one; without it labels are 0 and 1, or names of columns.
    ignore_index : int or several, optional
        Rows with this label, such as 255 or -100, are left out.
    renormalise : bool
        Divide rows of probabilities by their sums, where they were rounded.
    groups : list of str
        Names of the arrays or columns with groups that the rows belong to.

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
    named, marks = os.fspath(labels) if labels else None, check_marks(ignore_index, "read")
    query = Query(input, values, named, weight, groups, labelled=True, marks=marks)
    options = {"positive_label": positive_label, "ignore_index": ignore_index, "renormalise": renormalise}
    return read_source(path, query).checked(class_names, first_label, **options)


def read_values(
    path: str | os.PathLike[str],
    *,
    input: Input = "logits",  # noqa: A002
    values: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    weight: str | None = None,
    groups: Sequence[str] = (),
    storage_options: Options = None,
) -> Values:
    """The contents of a file, with or without labels; the arguments are those of `read`.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "rows.npz", logits=np.zeros((5, 3)))
    ...     found = read_values(Path(folder) / "rows.npz")
    >>> found.values.shape, found.labels
    ((5, 3), None)
    """
    named = os.fspath(labels) if labels else None
    return read_source(path, Query(input, values, named, weight, groups, storage_options))


def open_rows(
    path: str | os.PathLike[str],
    *,
    input: str = "logits",  # noqa: A002
    values: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    weight: str | None = None,
    groups: Sequence[str] = (),
    class_names: Sequence[str] | None = None,
    first_label: int | None = None,
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
        A folder of tables (.parquet, .csv, .tsv, .jsonl), whose folders key=value are columns, a pattern such as
        "logits/*.parquet", an address that fsspec knows (s3://…), a Zarr group, or a file that `refocal.io.read`
        reads; .npy and uncompressed .npz files are mapped.
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
    which = (input, values, named, weight, groups, storage_options, skip_bad_rows, "open_rows")
    query = Query(*which, labelled=True, marks=marks, bad=[] if skip_bad_parts else None)
    parts, reading = open_parts(path, query, class_names, first_label)
    rows = of_parts(parts, reading, scheduler, client, map)
    rows.bad_parts = tuple(query.bad or ())
    return rows


def read_source(path: str | os.PathLike[str], query: Query) -> Values:
    """The contents of a file or a data set."""
    found = open_source(os.fspath(path), query)
    return found if isinstance(found, Values) else _gathered(found)


def open_source(place: str, query: Query) -> Values | list[Table]:
    """The arrays of a file or a Zarr group, or the parts of a data set of tables, of which nothing is read yet."""
    if query.labels is not None and query.labels.endswith(".npy"):
        found = read_source(place, replace(query, labels=None, labelled=False))
        return found._replace(labels=open_arrays(query.labels).get("labels"), first_label=0)
    if _is_tables(place):
        return table_parts(place, query)
    contents = open_arrays(place, query.options)
    columns = choose(contents, query)
    y = contents.get(columns.labels[0]) if columns.labels else None
    w = None if query.weight is None else contents.get(query.weight)
    names = tuple(map(str, np.ravel(contents.get("class_names")))) if "class_names" in contents.names else None
    groups = {name: contents.get(name) for name in query.groups}
    values = contents.get(columns.classes[0]) if columns.classes else None
    return Values(query.input, values, y, w, names, groups)


def open_parts(
    path: str | os.PathLike[str],
    query: Query,
    class_names: Sequence[str] | None = None,
    first_label: int | None = None,
    row_axes: int = 1,
) -> tuple[Sequence[Part], Reading]:
    """The parts of a data set, and what their rows mean; names of classes that are given replace those of the files.

    With two `row_axes` rows of arrays have several labels.
    """
    place = os.fspath(path)
    found = open_source(place, query)
    parts: Sequence[Part]
    if isinstance(found, Values):
        n_classes, names, first = n_columns(found.values.shape), found.class_names, found.first_label
        if n_classes is None:
            expected = f"the {query.input} must be two-dimensional, or one number per row for two classes"
            raise FormatError(f"{place}: {expected}. Got shape {tuple(found.values.shape)} instead.")
        parts = array_parts(found.values, found.labels, found.weight, found.groups, place, row_axes)
    else:
        parts, columns = found, found[0].columns
        n_classes, names, first = columns.n_classes, columns.class_names, columns.first_label
        if n_classes == 0:
            raise FormatError(f"{found[0].where}: none of the {len(found)} files has any rows.")
    names = check_class_names(names if class_names is None else class_names, n_classes, query.function)
    meaning = (
        n_classes,
        query.input,
        first if first_label is None else first_label,
        query.lenient,
        query.function,
        names,
    )
    return parts, Reading(*meaning, ignore_index=query.marks)


def names_in(path: str | os.PathLike[str]) -> list[str]:
    """The names of the arrays or columns of a file, or of the first file of a data set."""
    place = os.fspath(path)
    return (open_table(files_of(place)[0], place=place) if _is_tables(place) else open_arrays(place)).names


def _is_tables(place: str) -> bool:
    return is_several(place) or ending_of(place) in TABLES


def _gathered(parts: Sequence[Table]) -> Values:
    """All rows of tables together."""
    columns, query = parts[0].columns, parts[0].query
    for part in parts:
        if part.n_rows is not None and "://" not in part.where:
            with refusing(part.where, "cannot be read"):
                check_expansion(8 * part.n_rows * len(columns.names), Path(part.where).stat().st_size)
    chunks = [chunk for part in parts for chunk in part.blocks()] if columns.n_classes else []
    if not chunks:
        nothing = np.empty(0)
        values, labels = np.empty((0, max(len(columns.classes), 2))), nothing if columns.labels else None
        chunks = [Chunk(values, labels, groups=dict.fromkeys(query.groups, nothing))]

    def together(arrays: list[Any], name: str = "") -> Any:
        values = None if arrays[0] is None else np.concatenate(arrays)
        if values is None or values.dtype.kind != "O":
            return values
        # An array of text takes as much for each row as for the longest.
        longest = max(len(str(cell)) for cell in values)
        if longest > LONGEST_NAME:
            raise FormatError(f"{parts[0].where}: the column {name!r} holds a text of {longest:,} characters.")
        return values.astype(str)

    return Values(
        query.input,
        together([chunk.values for chunk in chunks]),
        together([chunk.labels for chunk in chunks], *columns.labels[:1]),
        together([chunk.weight for chunk in chunks]),
        columns.class_names,
        {name: together([chunk.groups[name] for chunk in chunks], name) for name in query.groups},
        columns.first_label,
        {
            name: objects([cell for chunk in chunks for cell in chunk.kept[name].tolist()])
            for name in chunks[0].kept
            if name not in columns.labels
        },
    )
