"""From a file to Predictions. The ending names the format; nothing in a file is ever executed.

Files of arrays (.npz, .npy, .safetensors, .pt) hold a matrix `logits` or `probabilities` and a vector `labels`; files
of columns (.csv, .tsv, .jsonl, .parquet) one column a class and a column `label`. Of two classes one column is enough,
`p` or `log_odds` of the positive one. All names can be given.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from refocal._validation import INPUTS, IgnoreIndex, check_option
from refocal.errors import FormatError, Remedy
from refocal.io._formats import ENDINGS, Contents, open_contents
from refocal.io.predictions import Input, Predictions

LABELS = ("labels", "label")
ONE_COLUMN = {"probabilities": ("p", "probability"), "log-odds": ("log_odds",), "logits": ("log_odds",)}
"""Names of a single column or array for two classes."""
NOT_CLASSES = ("", "id", "index", "weight", "weights", "sample_weight", "Unnamed: 0", "__index_level_0__")


class Values(NamedTuple):
    """The unchecked contents of a file; labels, weight and class names if it has them."""

    values: Any
    labels: Any
    weight: Any
    class_names: tuple[str, ...] | None
    groups: dict[str, Any]
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
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "rows.csv"
    ...     _ = file.write_text("cat,dog,label\n0.9,0.1,cat\n0.3,0.7,cat\n")
    ...     read(file, input="probabilities").labels
    array([0, 0])
    """
    found = read_values(path, input=input, values=values, labels=labels, weight=weight, groups=groups)
    if found.labels is None:
        contents = open_contents(Path(path))
        held = "It holds one array" if contents.anonymous else f"It has {listed(contents.names)}"
        raise FormatError(f"{path}: no labels. {held}.", Remedy.LABELS)
    names = found.class_names if class_names is None else class_names
    make: Any = MAKE[input]
    made: Predictions = make(
        found.values,
        found.labels,
        weight=found.weight,
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
) -> Values:
    """The contents of a file, with or without labels; the arguments are those of `read`.

    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "rows.npz", logits=np.zeros((5, 3)))
    ...     found = read_values(Path(folder) / "rows.npz")
    >>> found.values.shape, found.labels
    ((5, 3), None)
    """
    check_option(input, INPUTS, "input", "read")
    file = Path(path)
    contents, columns = open_contents(file), []
    labels_file = None if labels is None else Path(labels)
    if labels_file is not None and labels_file.suffix == ".npy":
        named_labels: Any = open_contents(labels_file).get("labels")
        label_name = None
    else:
        label_name = _label_name(contents, None if labels is None else os.fspath(labels), file)
        named_labels = None if label_name is None else contents.get(label_name)
    named_weight = None if weight is None else contents.get(known_name(contents, weight, file))
    if contents.is_table and _is_matrix_column(contents, values or input):
        matrix, names = contents.get(values or input), None
    elif contents.is_table:
        columns = class_columns(contents, values, {label_name, weight, *groups}, file, input)
        matrix, names = contents.matrix(columns), names_of(columns)
        matrix = matrix[:, 0] if len(columns) == 1 else matrix
    else:
        matrix = contents.get(known_name(contents, values or _default(contents, input), file))
        names = tuple(map(str, np.ravel(contents.get("class_names")))) if "class_names" in contents.names else None
    named_groups = {name: contents.get(known_name(contents, name, file)) for name in groups}
    return Values(matrix, named_labels, named_weight, names, named_groups, tuple(columns))


class Chosen(NamedTuple):
    """The columns of a table that hold classes, or one column with all of them; the labels' column; class names."""

    classes: list[str]
    nested: bool
    labels: str | None
    names: tuple[str, ...] | None


def choose_columns(
    names: list[str],
    nested: set[str],
    file: str,
    input: str,  # noqa: A002
    values: str | None,
    labels: str | None,
    weight: str | None,
    groups: Sequence[str] = (),
) -> Chosen:
    """What `read` would take from a table with these columns, for readers that never hold all of it."""
    contents = Contents(Path(file), names, lambda name: name)
    contents.is_table = True
    label_name = _label_name(contents, labels, file)
    for name in (*groups, *([] if weight is None else [weight])):
        known_name(contents, name, file)
    if (values or input) in nested:
        return Chosen([values or input], True, label_name, None)
    columns = class_columns(contents, values, {label_name, weight, *groups}, file, input)
    return Chosen(columns, False, label_name, names_of(columns))


def _default(contents: Contents, kind: Input) -> str:
    """A .npy file has one array without a name: it is what the caller says it is."""
    if contents.anonymous:
        return contents.names[0]
    found = [name for name in (kind, *ONE_COLUMN[kind]) if name in contents.names]
    return found[0] if found else kind


def _label_name(contents: Contents, given: str | None, file: Path | str) -> str | None:
    if given is not None:
        return known_name(contents, given, file)
    return next((name for name in LABELS if name in contents.names and not contents.anonymous), None)


def known_name(contents: Contents, name: str, file: Path | str) -> str:
    """The name itself, if the file has it."""
    other = {"logits": "probabilities", "probabilities": "logits"}.get(name)
    if name not in contents.names and other in contents.names:
        remedy = Remedy.READ_LOGITS if other == "logits" else Remedy.READ_PROBABILITIES
        raise FormatError(f"{file}: no {name!r} but {other!r}.", remedy)
    if name not in contents.names:
        what = "column" if contents.is_table else "array"
        raise FormatError(f"{file}: no {what} {name!r}. It has {listed(contents.names)}.", Remedy.ARRAYS)
    return name


def class_columns(
    contents: Contents,
    pattern: str | None,
    taken: Collection[str | None],
    file: Path | str,
    kind: str,
) -> list[str]:
    """The columns that match one of the patterns; without any all that are not taken.

    Where some of these are no classes, such as ids, a column of two classes is found by its name.
    """
    if pattern is not None:
        patterns = pattern.split(",")
        columns = [name for name in contents.names if name not in taken and any(fnmatchcase(name, p) for p in patterns)]
    else:
        columns = [name for name in contents.names if name not in taken]
        doubtful = [name for name in columns if name in NOT_CLASSES]
        single = [name for name in columns if name in ONE_COLUMN[kind]]
        if doubtful and single:
            return single[:1]
        if doubtful:
            raise FormatError(f"{file}: the column {doubtful[0]!r} does not look like a class.", Remedy.COLUMNS)
    if not columns:
        sought = "besides the labels" if pattern is None else f"that matches {pattern!r}"
        raise FormatError(f"{file}: no column {sought}. It has {listed(contents.names)}.")
    return columns


def _is_matrix_column(contents: Contents, name: str) -> bool:
    return name in contents.names and contents.is_nested(name)


def names_of(columns: list[str]) -> tuple[str, ...] | None:
    """The names of the columns, unless they only count, as logit_0, logit_1 do, or one stands for two classes."""
    if len(columns) == 1:
        return None
    prefix = columns[0].removesuffix("0")
    if columns == [f"{prefix}{i}" for i in range(len(columns))]:
        return None
    shared = os.path.commonprefix(columns)  # noqa: RUF071 - names, not paths
    # logit_cat, logit_dog: what stands before the last separator says what the numbers are, not of which class.
    cut = max((shared.rfind(separator) + 1 for separator in "_.: "), default=0)
    return tuple(name[cut:] for name in columns)


def listed(names: Sequence[str], most: int = 8) -> str:
    """A few names, and how many more there are."""
    shown = ", ".join(repr(name) for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


__all__ = ["ENDINGS", "Values", "choose_columns", "listed", "read", "read_values"]
