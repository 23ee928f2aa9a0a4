"""From a file to Predictions. The ending names the format; nothing in a file is ever executed.

Files of arrays (.npz, .npy, .safetensors, .pt) hold a matrix `logits` or `probabilities` and a vector `labels`; files
of columns (.csv, .tsv, .jsonl, .parquet) one column a class and a column `label`. Of two classes one column is enough,
`p` or `log_odds` of the positive one. All names can be given.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from refocal._validation import INPUTS, IgnoreIndex, check_option
from refocal.errors import FormatError, Remedy
from refocal.io.addresses import Options
from refocal.io.columns import choose, listed
from refocal.io.files import files_of, is_several, open_contents
from refocal.io.parts import TablePart, table_parts
from refocal.io.predictions import Input, Predictions
from refocal.io.tables import without_objects


class Values(NamedTuple):
    """The unchecked contents of a file; labels, weight and class names if it has them."""

    values: Any
    labels: Any
    weight: Any
    class_names: tuple[str, ...] | None
    groups: dict[str, Any]
    names: list[str]
    """All that the file has."""
    columns: tuple[str, ...] = ()
    """The columns of a table that hold the values."""


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
        What the numbers are; never guessed. Log-odds are one number a row of two classes.
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
    found = read_values(path, input=input, values=values, labels=labels, weight=weight, groups=groups)
    if found.labels is None:
        raise FormatError(f"{path}: no labels. It has {listed(found.names)}.", Remedy.LABELS)
    names = found.class_names if class_names is None else class_names
    make: Any = MAKE[input]
    made: Predictions = make(
        found.values[...],
        found.labels[...],
        weight=None if found.weight is None else found.weight[...],
        class_names=names,
        first_label=first_label,
        positive_label=positive_label,
        ignore_index=ignore_index,
        **({"renormalise": True} if renormalise else {}),
    )
    if not found.groups:
        return made
    labelled = ... if ignore_index is None else ~np.isin(np.asarray(found.labels), ignore_index)
    return made.with_groups({name: np.asarray(column)[labelled] for name, column in found.groups.items()})


MAKE = {
    "logits": Predictions.from_logits,
    "probabilities": Predictions.from_probabilities,
    "log-odds": Predictions.from_log_odds,
}


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
    check_option(input, INPUTS, "input", "read")
    place, name = os.fspath(path), None if labels is None else os.fspath(labels)
    if name is not None and name.endswith(".npy"):
        reading_of: dict[str, Any] = {"values": values, "weight": weight, "groups": groups}
        found = read_values(place, input=input, **reading_of, storage_options=storage_options)
        return found._replace(labels=open_contents(name).get("labels"))
    if is_several(place):
        files = files_of(place, storage_options)
        return _gathered(table_parts(files, input, values, name, weight, groups, options=storage_options))
    contents = open_contents(place, storage_options)
    if contents.is_table:
        return _gathered(table_parts([place], input, values, name, weight, groups))
    (matrix,), label_name, _ = choose(contents, input, values, name, weight, groups)
    y, w = (None if each is None else contents.get(each) for each in (label_name, weight))
    names = tuple(map(str, np.ravel(contents.get("class_names")))) if "class_names" in contents.names else None
    return Values(contents.get(matrix), y, w, names, {each: contents.get(each) for each in groups}, contents.names)


def _gathered(parts: Sequence[TablePart]) -> Values:
    """All rows of tables together."""
    columns = parts[0].columns
    chunks = [chunk for part in parts for chunk in part.blocks()] if columns.n_classes else []

    def together(arrays: list[Any], name: str | None = None) -> Any:
        if arrays[0] is None:
            return None
        return without_objects(np.concatenate(arrays), parts[0].file, str(name))

    names = [*columns.classes, *filter(None, [columns.labels]), *columns.others]
    if not chunks:
        labels = None if columns.labels is None else np.empty(0)
        return Values(np.empty((0, max(len(columns.classes), 2))), labels, None, columns.class_names, {}, names)
    return Values(
        together([chunk.values for chunk in chunks]),
        together([chunk.labels for chunk in chunks], columns.labels),
        together([chunk.weight for chunk in chunks]),
        columns.class_names,
        {name: together([chunk.groups[name] for chunk in chunks], name) for name in columns.groups},
        names,
        () if columns.nested else columns.classes,
    )
