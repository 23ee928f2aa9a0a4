"""Which arrays or columns of a file hold what."""

from __future__ import annotations

import os
import string
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType

from refocal._validation import INPUTS, check_option
from refocal.errors import FormatError, Remedy
from refocal.io.files import Options

LABELS = ("labels", "label")
ONE_COLUMN = {"probabilities": ("p", "probability"), "log-odds": ("log_odds",), "logits": ("log_odds",)}
"""Names of a single column or array for two classes."""
COUNTS_ROWS = ("", "id", "index", "Unnamed: 0", "__index_level_0__")
WEIGHTS = ("weight", "weights", "sample_weight")
# Names that an error shows.
MOST_LISTED = 8


class Contents:
    """The names of the arrays or columns of a file."""

    where: str
    names: list[str]
    is_table = False
    is_anonymous = False
    """Whether the file holds one array without a name."""
    nested: Collection[str] = ()
    """The columns that hold a list of numbers in each cell."""
    partitions: Mapping[str, str | None] = MappingProxyType({})
    """The columns that are folders of a data set, key=value, which are no classes, with their value."""


@dataclass(frozen=True)
class Query:
    """What a caller states about files; the first five are arguments of `read`."""

    input: str = "logits"
    values: str | None = None
    labels: str | None = None
    weight: str | None = None
    groups: Sequence[str] = ()
    options: Options = None
    """The options of a file system."""
    lenient: bool = False
    """Whether cells that are no numbers become NaN, and lines that cannot be read are left out and counted."""
    function: str = "read"
    """The function that was called, for error messages."""
    keeping: bool = False
    """Whether chunks also have the columns that hold no classes, as they are."""
    several: bool = False
    """Whether a row may have several labels: each class has a column of labels of its own."""
    labelled: bool = False
    """Whether rows without labels are an error."""
    marks: tuple[int, ...] = ()
    """Labels of rows that have none."""
    labels_of: Sequence[str] | None = None
    """The names of the classes, perhaps none, that the labels of a file without scores are of; None: it has scores."""
    bad: list[str] | None = None
    """Files that cannot be read, or have other columns, are left out, and this list says why; None: they are errors."""

    def __post_init__(self) -> None:
        check_option(self.input, INPUTS, "input", self.function)


ANYTHING = Query()


@dataclass(frozen=True)
class Columns:
    """Which arrays or columns of a file hold what; one array or column of lists may hold all classes."""

    names: tuple[str, ...]
    """All arrays or columns of the file."""
    classes: tuple[str, ...]
    nested: bool
    """Whether the classes are one column of lists."""
    labels: tuple[str, ...]
    """None, one, or with several labels per row one for each class."""
    class_names: tuple[str, ...] | None
    n_classes: int = 0
    """The number of classes, of a table that has rows."""
    text_labels: bool = False
    """Whether the labels of a table are names of classes."""
    first_label: int = 0
    """The label of the first class of a table, where labels are numbers."""

    @property
    def spelt_out(self) -> dict[str, str]:
        """The names of classes by whole names of columns, which labels may be as well: logit_cat for cat."""
        names = self.class_names or ()
        return {whole: name for whole, name in zip(self.classes, names, strict=False) if whole not in names}


def choose(contents: Contents, query: Query) -> Columns:
    """The names of the arrays or columns that hold the values and the labels."""
    pairs = query.several and contents.is_table
    for name in (None if pairs else query.labels, query.weight, *query.groups):
        if name is not None:
            known_name(contents, name)
    if pairs:
        return _pairs(contents, query)
    usual = (name for name in LABELS if name in contents.names and name != query.values)
    labels = query.labels or (None if contents.is_anonymous else next(usual, None))
    if query.several:
        labels = known_name(contents, labels or LABELS[0])
    class_names = None
    if query.labels_of is not None:
        classes, class_names = [], tuple(query.labels_of) or None
    elif not contents.is_table:
        # A .npy file has one array without a name: it is what the caller says it is.
        likely = contents.names if contents.is_anonymous else (query.input, *ONE_COLUMN[query.input])
        default = next((name for name in likely if name in contents.names), query.input.replace("-", "_"))
        classes = [known_name(contents, query.values or default)]
    elif (query.values or query.input) in contents.nested:
        classes = [query.values or query.input]
    else:
        taken = {labels, query.weight, *query.groups, *contents.partitions}
        classes = class_columns(contents, query.values, taken, query.input)
        class_names = names_of(classes)
    if query.labelled and labels is None:
        raise FormatError(f"{contents.where}: no labels. It has {listed(contents.names)}.", Remedy.LABELS)
    nested = bool(classes) and classes[0] in contents.nested
    return Columns(tuple(contents.names), tuple(classes), nested, (labels,) if labels else (), class_names)


def _pairs(contents: Contents, query: Query) -> Columns:
    """Columns of scores and of labels, the latter in the order of the former."""
    labels = class_columns(contents, query.labels or "label_*", set(), query.input)
    scores = class_columns(contents, query.values or "score_*", set(labels), query.input)
    names, others = (names_of(each) or tuple(map(str, range(len(each)))) for each in (scores, labels))
    if len(scores) == len(labels) == 1:  # one column alone: what follows its last separator
        names, others = ((each[0][_beginning(each) :],) for each in (scores, labels))
        others = names if query.labels else others
    alone = sorted(set(names) ^ set(others))
    if alone:
        shown = f"{listed(scores)} and {listed(labels)}"
        raise FormatError(f"{contents.where}: {alone[0]!r} has a column of scores or of labels alone, among {shown}.")
    ordered = tuple(labels[others.index(name)] for name in names)
    return Columns(tuple(contents.names), tuple(scores), False, ordered, names)


def known_name(contents: Contents, name: str) -> str:
    """The name itself, if the file has it."""
    other = {"logits": "probabilities", "probabilities": "logits"}.get(name)
    if name not in contents.names and other in contents.names:
        raise _of_other_kind(contents, name, other)
    if name not in contents.names:
        what = "column" if contents.is_table else "array"
        raise FormatError(f"{contents.where}: no {what} {name!r}. It has {listed(contents.names)}.", Remedy.ARRAYS)
    return name


def _of_other_kind(contents: Contents, wanted: str, found: str) -> FormatError:
    """The error about logits where probabilities were asked for, or the other way round."""
    remedy = Remedy.READ_LOGITS if wanted == "probabilities" else Remedy.READ_PROBABILITIES
    return FormatError(f"{contents.where}: no {wanted!r} but {found!r}.", remedy)


def class_columns(contents: Contents, pattern: str | None, taken: Collection[str | None], kind: str) -> list[str]:
    """The columns that match the patterns, in the order of these; without any all that are not taken.

    A column of two classes is found by its name, whatever stands beside it, and where some columns are no classes, such
    as ids, those of more by the beginning that they share: logit_cat, logit_dog. Columns that are numbered from 0 or 1
    are in the order of their numbers, which labels are, also where the file has class_10 before class_2.
    """
    columns = [name for name in contents.names if name not in taken]
    if pattern is not None:
        matching = {each: [name for name in columns if fnmatchcase(name, each)] for each in pattern.split(",")}
        if missing := [each for each, names in matching.items() if not names]:
            sought = f"that matches {missing[0]!r}"
            raise FormatError(f"{contents.where}: no column {sought}. It has {listed(contents.names)}.")
        return list(dict.fromkeys(name for names in matching.values() for name in _counted(names)))
    others = columns if len(columns) > 1 and _beginning(columns) else [name for name in columns if not _is_id(name)]
    if found := _one_column(others, ONE_COLUMN[kind]):
        columns = [found]
    elif found := _one_column(others, ONE_COLUMN["log-odds" if kind == "probabilities" else "probabilities"]):
        raise _of_other_kind(contents, kind, found)
    elif doubtful := [name for name in columns if name not in others or name in WEIGHTS]:
        columns = others
        if len(others) < 2 or not _beginning(others):
            problem = f"the column {doubtful[0]!r} does not look like a class."
            raise FormatError(f"{contents.where}: {problem}", Remedy.COLUMNS)
    if not columns:
        raise FormatError(f"{contents.where}: no column besides the labels. It has {listed(contents.names)}.")
    return _counted(columns)


def _counted(columns: list[str]) -> list[str]:
    """Columns that are numbered from 0 or 1 in the order of their numbers, others as they are."""
    prefix = columns[0].rstrip(string.digits)
    counted = ([f"{prefix}{first + i}" for i in range(len(columns))] for first in (0, 1))
    return next((each for each in counted if set(each) == set(columns)), columns)


def _is_id(name: str) -> bool:
    """Whether a column counts rows, as id and row_id do."""
    return name in COUNTS_ROWS or name.lower().endswith("_id")


def _one_column(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """The column of one of these names; none where it is a class of one letter among others: n, p."""
    if len(columns) > 1 and all(len(name) == 1 for name in columns):
        return None
    return next((name for name in columns if name in names), None)


def names_of(columns: list[str]) -> tuple[str, ...] | None:
    """The names of the columns, unless they only count, as logit_0, logit_1 do, or one stands for two classes."""
    if len(columns) == 1:
        return None
    prefix, start = columns[0].removesuffix("0"), _beginning(columns)
    if columns == [f"{prefix}{i}" for i in range(len(columns))]:
        return None
    # logit_cat, logit_dog: what they share says what the numbers are, not of which class.
    return tuple(name[start:] for name in columns)


def are_numbers(names: Sequence[str] | None) -> bool:
    """Whether the names of the columns are numbers that labels stand for, such as 3, 5, 8 or -1, 1, and do not count.

    >>> are_numbers(("3", "5", "8")), are_numbers(("1", "2", "3")), are_numbers(("cat", "dog"))
    (True, False, False)
    """
    numbers = [int(name) for name in names or () if name.removeprefix("-").isdecimal()]
    counts = (list(range(first, first + len(numbers))) for first in (0, 1))
    return 0 < len(numbers) == len(names or ()) and numbers not in counts


def _beginning(columns: list[str]) -> int:
    """How many letters up to a separator all names share."""
    shared = os.path.commonprefix(columns)  # noqa: RUF071 - names, not paths
    return max(shared.rfind(separator) + 1 for separator in "_.: ")


def listed(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    shown = ", ".join(repr(name) for name in names[:MOST_LISTED]) or "none"
    return f"{shown} and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else shown
