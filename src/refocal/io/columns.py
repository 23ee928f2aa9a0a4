"""Which arrays or columns of a file hold what: scores, labels, weights, groups."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from refocal.errors import FormatError, Remedy
from refocal.io.class_columns import (
    SAY_PROBABILITIES,
    Candidates,
    class_columns,
    matching_columns,
    of_other_kind,
    said_kind,
    unclear_columns,
)
from refocal.io.query import Contents, Query, listed
from refocal.rows.class_names import differing_ends, shared_beginning
from refocal.rows.gate import names_of_columns
from refocal.rows.scores import stored_kind

LABELS_OF_EACH_CLASS = "label_*"
"""Columns of labels where a row may have several."""


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
    whole_names: tuple[str, ...] = ()
    """The whole names of the columns, where the names of the classes are a part of them."""
    n_classes: int = 0
    """The number of classes, of a table that has rows."""
    input: str = "logits"
    """What the numbers are."""

    def unused(self, query: Query) -> tuple[str, ...]:
        """Columns that hold nothing that was asked for."""
        used = {*self.classes, *self.labels, query.weight, *query.groups}
        return tuple(name for name in self.names if name not in used)


USUAL_LABELS = ("labels", "label")
"""What an array or a column of labels is called where the caller names none."""


def choose(contents: Contents, query: Query) -> Columns:
    """The names of the arrays or columns that hold the values and the labels."""
    of_pairs = query.several and contents.is_table
    for name in (None if of_pairs else query.labels, query.weight):
        if name is not None:
            known_name(contents, name)
    for name in query.groups:
        if name not in contents.names:
            what = "clusters" if name == query.clusters and not query.clusters_are_groups else "groups"
            text = f"no {contents.sort} {name!r} with the {what}. It has {listed(contents.names)}."
            raise FormatError(f"{contents.where}: {text}")
    if of_pairs:
        return _pairs(contents, query)
    labels = _labels(contents, query)
    if not contents.names:
        raise unclear_columns(contents, [])
    columns = Columns(tuple(contents.names), (), False, (labels,) if labels else (), None)
    if not contents.is_table and not query.only_labels:
        columns = _array(contents, query, columns)
    if query.labelled and labels is None:
        why = next((f": {name!r} is named for something else" for name in USUAL_LABELS if name in contents.names), "")
        raise FormatError(f"{contents.where}: no labels{why}. It has {listed(contents.names)}.", Remedy.LABELS)
    if contents.is_table and not query.only_labels:
        columns = _table(contents, query, columns)
    return columns


def _labels(contents: Contents, query: Query) -> str | None:
    """The array or column of labels: the one that the caller names, or else `label` or `labels`, if there is one."""
    taken_otherwise = {query.values, query.weight, *query.groups}
    usual = [name for name in USUAL_LABELS if name in contents.names and name not in taken_otherwise]
    if len(usual) > 1 and query.labels is None:
        problem = "has 'label' and 'labels'; say which one holds the labels"
        raise FormatError(f"{contents.where}: {problem}.", Remedy.LABELS)
    labels = query.labels or (None if contents.is_anonymous else next(iter(usual), None))
    return known_name(contents, labels or "labels") if query.several else labels


def _table(contents: Contents, query: Query, columns: Columns) -> Columns:
    """The columns of a table that hold scores, beside those of its labels: one of lists, or one for each class."""
    nested = _nested(contents, query)
    if nested is not None:
        return replace(columns, classes=(nested,), nested=True, input=_kind([nested], query, contents))
    of_each_class = _labels_of_each_class(contents, query)
    taken = {*columns.labels, query.weight, *query.groups, *contents.partitions, *of_each_class}
    candidates = [name for name in contents.names if name not in taken]
    classes = class_columns(Candidates(contents, query, candidates, next(iter(columns.labels), None)))
    names, whole_names = names_of_columns(tuple(classes))
    kind = _kind(classes, query, contents)
    columns = replace(columns, classes=tuple(classes), class_names=names, whole_names=whole_names, input=kind)
    ends = differing_ends(classes)
    ends_of_labels = differing_ends(of_each_class)
    if of_each_class and sorted(ends) == sorted(ends_of_labels):
        columns = replace(columns, labels=tuple(of_each_class[ends_of_labels.index(end)] for end in ends))
    return columns


def _labels_of_each_class(contents: Contents, query: Query) -> list[str]:
    """The columns label_cat, label_dog, … where labels are passed on and a calibrator has as many classes."""
    if not query.passes_several or query.labels is not None:
        return []
    columns = [name for name in contents.names if fnmatchcase(name, LABELS_OF_EACH_CLASS)]
    return columns if len(columns) > 1 and len(columns) == query.n_classes else []


def _array(contents: Contents, query: Query, columns: Columns) -> Columns:
    """The array of scores; the caller says what the one array of a .npy file is, which has no name."""
    if contents.is_anonymous:
        return replace(columns, classes=(contents.names[0],), input=query.input or "logits")
    if query.values is not None:
        name = known_name(contents, query.values)
        return replace(columns, classes=(name,), input=_kind([name], query, contents))
    of_kind = {
        "logits": ("logits", "log_odds", "logit"),
        "log-odds": ("log_odds", "logit", "log-odds"),
        "probabilities": ("probabilities", *SAY_PROBABILITIES),
    }
    wanted = [query.input] if query.input is not None else ["logits", "probabilities"]
    likely = [name for kind in wanted for name in of_kind[kind] if name in contents.names]
    if len({said_kind(name) for name in likely}) > 1:
        problem = f"has {likely[0]!r} and {likely[-1]!r}; say which one holds the scores"
        raise FormatError(f"{contents.where}: {problem}.", Remedy.ARRAYS)
    name = likely[0] if likely else known_name(contents, (query.input or "logits").replace("-", "_"))
    return replace(columns, classes=(name,), input=_kind([name], query, contents))


def _nested(contents: Contents, query: Query) -> str | None:
    """The column of lists that holds the scores of all classes, if there is one."""
    if query.values is not None:
        return query.values if query.values in contents.nested else None
    wanted = [query.input] if query.input is not None else ["logits", "probabilities"]
    return next((name for name in wanted if name in contents.nested), None)


def _kind(columns: Sequence[str], query: Query, contents: Contents) -> str:
    """What the numbers of these columns are: what a caller states, or else what their names say, or else logits.

    A contradiction is refused, unless the caller has also named the columns, and so knows better.
    """
    said = {said_kind(name) for name in columns}
    kind = said.pop() if len(said) == 1 else None
    if len(columns) > 1 and kind == "probabilities" and shared_beginning(columns) == 0:
        kind = None  # of classes called p and prob the names say nothing
    if query.input is None:
        return kind or "logits"
    if kind not in (None, stored_kind(query.input)) and query.values is None:
        raise of_other_kind(contents, query.input, columns[0])
    return query.input


def _pairs(contents: Contents, query: Query) -> Columns:
    """Columns of scores and of labels, the latter in the order of the former."""
    labels = matching_columns(contents, query.labels or LABELS_OF_EACH_CLASS, contents.names)
    others = [name for name in contents.names if name not in labels]
    scores = _called_as_labels(query, labels, others) or matching_columns(contents, query.values or "score_*", others)
    names = _names_of_pair(scores)
    ends = differing_ends(scores)
    ends_of_labels = differing_ends(labels)
    if len(scores) == len(labels) == 1:
        ends = list(names)
        ends_of_labels = list(names if query.labels else _names_of_pair(labels))
    alone = sorted(set(ends) ^ set(ends_of_labels))
    if alone:
        shown = f"{listed(scores)} and {listed(labels)}"
        raise FormatError(f"{contents.where}: {alone[0]!r} has a column of scores or of labels alone, among {shown}.")
    ordered = tuple(labels[ends_of_labels.index(end)] for end in ends)
    kind = query.input or "log-odds"
    return Columns(tuple(contents.names), tuple(scores), False, ordered, names, input=kind)


def _called_as_labels(query: Query, labels: Sequence[str], others: Sequence[str]) -> list[str]:
    """The columns of probabilities as `apply` writes them, rain beside label_rain, unless a caller names columns."""
    beginning = LABELS_OF_EACH_CLASS.removesuffix("*")
    called = {label.removeprefix(beginning) for label in labels}
    are_named = query.values is not None or any(name.startswith("score_") for name in others)
    if are_named or query.input != "probabilities" or not called <= {*others}:
        return []
    return [name for name in others if name in called]


def _names_of_pair(columns: Sequence[str]) -> tuple[str, ...]:
    """The names of labels that columns are about: what follows the beginning that they share, or the last separator."""
    if len(columns) == 1:
        return (re.split(r"[_.: ]", columns[0])[-1],)
    prefix = columns[0].removesuffix("0")
    names, _ = names_of_columns(tuple(columns))
    if names is None or list(columns) == [f"{prefix}{i}" for i in range(len(columns))]:
        return tuple(str(i) for i in range(len(columns)))
    return tuple(str(name) for name in names)


def known_name(contents: Contents, name: str) -> str:
    """The name itself, if the file has it."""
    other = {"logits": "probabilities", "probabilities": "logits"}.get(name)
    if name not in contents.names and other in contents.names:
        raise of_other_kind(contents, name, other)
    if name not in contents.names:
        raise FormatError(
            f"{contents.where}: no {contents.sort} {name!r}. It has {listed(contents.names)}.", Remedy.ARRAYS
        )
    return name
