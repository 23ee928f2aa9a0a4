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

from refocal._validation import IgnoreIndex, check_marks
from refocal.errors import FormatError
from refocal.io.arrays import open_arrays
from refocal.io.columns import Query, choose
from refocal.io.files import TABLES, Options, check_expansion, files_of, is_several, refusing
from refocal.io.parts import Table, plain
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

    def checked(self, class_names: Sequence[str] | None = None, first_label: int = 0, **options: Any) -> Predictions:
        """Predictions, which need labels; the options are those of `Predictions.from_logits`."""
        names = self.class_names if class_names is None else class_names
        values, labels, weight = (None if x is None else x[...] for x in (self.values, self.labels, self.weight))
        options |= {"weight": weight, "class_names": names, "first_label": first_label or self.first_label}
        made = Predictions._of(values, labels, self.input, **options)
        return made.with_groups(self.labelled(self.groups, options.get("ignore_index")))

    def labelled(self, columns: Mapping[str, Any], ignore_index: IgnoreIndex = None) -> dict[str, Any]:
        """Columns without the rows whose label is `ignore_index`."""
        has_label = ... if ignore_index is None else ~np.isin(np.asarray(self.labels), ignore_index)
        return {name: np.asarray(column)[has_label] for name, column in columns.items()}


def read(
    path: str | os.PathLike[str],
    *,
    input: Input = "logits",  # noqa: A002
    values: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    weight: str | None = None,
    class_names: Sequence[str] | None = None,
    first_label: int = 0,
    positive_label: Any = None,
    ignore_index: IgnoreIndex = None,
    renormalise: bool = False,
    groups: Sequence[str] = (),
) -> Predictions:
    r"""Predictions from a file.

    Parameters
    ----------
    path : path
        .npz, .npy, .safetensors or .pt (arrays); .csv, .tsv, .jsonl or .parquet (columns).
    input : "logits", "probabilities" or "log-odds"
        What the numbers are; never guessed. Log-odds are one number per row for two classes.
    values : str, optional
        Name of the matrix, by default `logits` or `probabilities` as `input` says; for columns a pattern such as
        "logit_*" or several with commas, by default every column but those of labels and weights. One column, or an
        array of one axis, is about the positive class of two; `p` and `log_odds` are found automatically.
    labels : str or path, optional
        Name of the array or column, by default `labels` or `label`; or the path of a second file, .npy, with them.
    weight : str, optional
        Name of the array or column with the weights of the rows.
    class_names : list of str, optional
        By default an array `class_names`, or the names of the columns.
    first_label : int
        1 if labels start at 1.
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


def read_source(path: str | os.PathLike[str], query: Query) -> Values:
    """The contents of a file or a data set."""
    found = open_source(os.fspath(path), query)
    return found if isinstance(found, Values) else _gathered(found)


def open_source(place: str, query: Query, bad: list[str] | None = None) -> Values | list[Table]:
    """The arrays of a file or a Zarr group, or the parts of a data set of tables, of which nothing is read yet."""
    if query.labels is not None and query.labels.endswith(".npy"):
        found = read_source(place, replace(query, labels=None, labelled=False))
        return found._replace(labels=open_arrays(query.labels).get("labels"), first_label=0)
    if _is_tables(place):
        return table_parts(files_of(place, query.options), query, bad)
    contents = open_arrays(place, query.options)
    columns = choose(contents, query)
    y = contents.get(columns.labels[0]) if columns.labels else None
    w = None if query.weight is None else contents.get(query.weight)
    names = tuple(map(str, np.ravel(contents.get("class_names")))) if "class_names" in contents.names else None
    groups = {name: contents.get(name) for name in query.groups}
    return Values(query.input, contents.get(columns.classes[0]), y, w, names, groups)


def names_in(path: str | os.PathLike[str]) -> list[str]:
    """The names of the arrays or columns of a file, or of the first file of a data set."""
    place = os.fspath(path)
    return (open_table(files_of(place)[0]) if _is_tables(place) else open_arrays(place)).names


def _is_tables(place: str) -> bool:
    return is_several(place) or Path(place).suffix.lower() in TABLES


def _gathered(parts: Sequence[Table]) -> Values:
    """All rows of tables together."""
    columns, query = parts[0].columns, parts[0].query
    for part in parts:
        if part.n_rows is not None and "://" not in part.where:
            with refusing(part.where, "cannot be read"):
                check_expansion(8 * part.n_rows * len(columns.names), Path(part.where).stat().st_size)
    chunks = [chunk for part in parts for chunk in part.blocks()] if columns.n_classes else []
    if not chunks:
        empty = np.empty((0, max(len(columns.classes), 2)))
        return Values(query.input, empty, np.empty(0) if columns.labels else None, None, columns.class_names, {})

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
            name: np.concatenate([plain(chunk.kept[name]) for chunk in chunks])
            for name in chunks[0].kept
            if name not in columns.labels
        },
    )
