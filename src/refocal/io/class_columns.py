"""Which columns of a table hold the scores of classes.

Columns are taken for classes only where it is plain that they are: if a caller names them, if their common beginning
says that they are scores (logit_cat, p_dog), if labels are their names, if they are called by whole numbers, if their
probabilities sum to 1, or if they are three or more and as many as a calibrator has classes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._validation import SUM_TOLERANCE
from refocal.errors import FormatError, Remedy
from refocal.io.query import Contents, Query, listed
from refocal.rows.class_names import shared_beginning
from refocal.rows.keys import LabelKey, label_key, order_of_numbers
from refocal.rows.scores import stored_kind

# What names of columns and arrays, or their beginnings, say of the numbers in them.
SAY_PROBABILITIES = ("p", "prob", "proba", "probability", "probabilities", "probs")
SAY_LOGITS = ("logit", "logits", "log_odds")
ONE_COLUMN = (*SAY_PROBABILITIES[:4], "logit", "log_odds")
"""Names of a single column or array for two classes."""


class Candidates(NamedTuple):
    """The columns of a table that may hold the scores of classes: neither labels nor weights nor groups."""

    contents: Contents
    query: Query
    names: list[str]
    labels: str | None
    """The column of labels."""


def class_columns(candidates: Candidates) -> list[str]:
    """The columns of a table that hold the scores of the classes, in the order of the classes.

    Columns that are numbered from 0 or 1 are in the order of their numbers, also where the file has class_10 before
    class_2.
    """
    contents, query, names, _ = candidates
    if query.values is not None:
        return matching_columns(contents, query.values, names)
    # The first rule that finds columns decides; "Columns of a table" in docs/rows.md lists them for users.
    rules = (
        _of_calibrator,
        _one_column,
        _with_beginning,
        _called_by_labels,
        _that_sum_to_one,
        _as_many_as_classes,
        _all_without_rows,
    )
    for rule in rules:
        classes = rule(candidates)
        if classes is not None:
            return _counted(classes)
    raise _without_class(candidates) or unclear_columns(contents, names)


def matching_columns(contents: Contents, pattern: str, candidates: Sequence[str]) -> list[str]:
    """The columns that match patterns with commas between them, in the order of these.

    The name of a column is that column alone, also where it could be a pattern or several, as p[1] and P(a, b).
    """
    patterns = [pattern] if pattern in candidates else pattern.split(",")
    by_pattern = {each: [name for name in candidates if fnmatchcase(name, each)] for each in patterns}
    by_pattern |= {each: [each] for each in patterns if each in candidates}
    missing = [each for each, names in by_pattern.items() if not names]
    if missing:
        if missing[0] in contents.names:
            problem = f"the column {missing[0]!r} is named as that of a class, and of labels, weights or groups as well"
            raise FormatError(f"{contents.where}: {problem}.")
        sought = f"that matches {missing[0]!r}"
        raise FormatError(f"{contents.where}: no column {sought}. It has {listed(contents.names)}.")
    return list(dict.fromkeys(name for names in by_pattern.values() for name in _counted(names)))


def _of_calibrator(candidates: Candidates) -> list[str] | None:
    """The columns that have the names of a calibrator's classes, or these behind one common beginning."""
    query = candidates.query
    if query.classes is None:
        return None
    wanted = {label_key(name) for name in query.classes}
    fitting: list[list[str]] = []
    for columns in (candidates.names, *_by_beginning(candidates.names).values()):
        start = shared_beginning(columns)
        for spelt in ([name[start:] for name in columns], list(columns)):
            by_key = {label_key(name): column for name, column in zip(spelt, columns, strict=True)}
            named = [column for key, column in by_key.items() if key in wanted]
            if wanted <= by_key.keys() and named not in fitting:
                fitting.append(named)
    return _only(candidates, fitting)


def _one_column(candidates: Candidates) -> list[str] | None:
    """The single column of the positive class of two, such as p; None where its name is rather that of a class.

    A column p among columns of one letter each is the class p if the labels are such letters. Beside labels 0 and 1 it
    holds probabilities, and columns such as w and n are no classes.
    """
    contents, query, names, labels = candidates
    if len(names) > 1 and all(len(name) == 1 for name in names):
        given = _first_labels(contents.first_cells([labels] if labels else []), query, labels)
        if given and given <= {label_key(name) for name in names}:
            return None
    stated = None if query.input is None else stored_kind(query.input)
    ones = [name for name in names if name.lower() in ONE_COLUMN]
    fitting = [name for name in ones if stated in (None, said_kind(name))]
    if len(fitting) > 1:
        raise unclear_columns(contents, fitting)
    if ones and not fitting and _with_beginning(candidates) is None:
        raise of_other_kind(contents, query.input or "", ones[0])
    return fitting or None


def _only(candidates: Candidates, fitting: list[list[str]]) -> list[str] | None:
    """The one set of columns that fits; of several sets, such as those of two models, the one of the stated kind."""
    stated = candidates.query.input
    if len(fitting) > 1 and stated is not None:
        fitting = [columns for columns in fitting if said_kind(columns[0]) in (None, stored_kind(stated))]
    if len(fitting) > 1:
        raise unclear_columns(candidates.contents, [name for columns in fitting for name in columns])
    return fitting[0] if fitting else None


def _by_beginning(names: Sequence[str]) -> dict[str, list[str]]:
    """Two or more columns each that share what stands before the first separator."""
    groups: dict[str, list[str]] = {}
    for name in names:
        beginning = re.split(r"[_.: ]", name, maxsplit=1)[0]
        if len(beginning) < len(name):
            groups.setdefault("log_odds" if name.startswith("log_odds") else beginning, []).append(name)
    return {beginning: columns for beginning, columns in groups.items() if len(columns) > 1}


def _with_beginning(candidates: Candidates) -> list[str] | None:
    """The columns whose beginning says that they are scores, or that all have in common."""
    contents, query, names, _ = candidates
    # Beginnings of names that say that columns are scores of classes, but not which.
    say_scores = ("score", "scores", "class", "pred", "output")
    groups = _by_beginning(names)
    plain = [beginning for beginning in groups if beginning.lower() in (*SAY_PROBABILITIES, *SAY_LOGITS)]
    if query.input is not None and len(plain) > 1:
        plain = [beginning for beginning in plain if said_kind(beginning) == stored_kind(query.input)]
    plain = plain or [beginning for beginning in groups if beginning.lower() in say_scores]
    if len(plain) > 1:
        raise unclear_columns(contents, [name for beginning in plain for name in groups[beginning]])
    if plain:
        return groups[plain[0]]
    everything = [columns for columns in groups.values() if len(columns) == len(names)]
    return everything[0] if everything else None


def _called_by_labels(candidates: Candidates) -> list[str] | None:
    """The columns whose names the first labels are, with or without a beginning that the columns share.

    Else columns called by whole numbers, or all columns if the labels count them.
    """
    contents, query, names, labels = candidates
    cells = contents.first_cells([*names, *([labels] if labels else [])])
    keys = {label_key(name): name for name in names}
    numbered = {key: name for key, name in keys.items() if isinstance(key, int)}
    given = _first_labels(cells, query, labels)
    truths = {0: "False", 1: "True"}
    if given <= truths.keys() and keys.keys() >= {*truths.values()}:
        given = {truths[number] for number in given}
    if given and given <= keys.keys():
        # If some labels are whole numbers, all columns called by whole numbers are classes.
        named = given | numbered.keys() if given & numbered.keys() else given
        called = [name for key, name in keys.items() if key in named]
        return _without_strangers(candidates, called, cells)
    with_beginning = [*_by_beginning(names).values()] if given else []
    fitting = [columns for columns in with_beginning if given <= _spellings(columns)]
    if fitting:
        return _only(candidates, fitting)
    if len(numbered) > 1:
        return [*numbered.values()]
    # Labels that count all columns from 0 or 1: no column is left over that could be something else. Labels of two
    # kinds count any two columns, also a score and an age; these have to be named.
    counted = [{*range(first, first + len(names))} for first in (0, 1)]
    are_all_counted = len(names) > 2 and given in counted
    return names if are_all_counted and _are_alike(names, cells) else None


def _spellings(columns: Sequence[str]) -> set[LabelKey]:
    """What labels may call these columns: their names, and these without the beginning that all share."""
    start = shared_beginning(columns)
    return {label_key(name) for column in columns for name in (column, column[start:])}


def _are_alike(columns: Sequence[str], cells: Mapping[str, NDArray[Any]]) -> bool:
    """Whether all columns may hold scores: all have numbers that are not whole, or all have whole numbers alone.

    Whole numbers beside others are rather an age or a month.
    """
    may_be_scores = [name in cells and could_be_scores(name, cells[name], also_whole=True) for name in columns]
    if not all(may_be_scores):
        return False
    are_parted = [could_be_scores(name, cells[name]) for name in columns]
    return all(are_parted) or not any(are_parted)


def _first_labels(cells: Mapping[str, NDArray[Any]], query: Query, labels: str | None) -> set[Any]:
    """The labels of the first rows, less those that mark rows without one."""
    if labels is None or labels not in cells:
        return set()
    return {label_key(cell) for cell in cells[labels].tolist()} - {None, *query.marks}


def _without_strangers(
    candidates: Candidates, called: list[str], cells: Mapping[str, NDArray[Any]]
) -> list[str] | None:
    """The columns that labels are called by, if no other one could be a class that the first labels do not have.

    A column of text or whole numbers, such as an id or an age, is no class. Others are not left out silently: either
    the sums of the rows tell, or the caller must.
    """
    are_whole = all(not could_be_scores(name, cells[name]) for name in called)
    others = [name for name in candidates.names if name not in called]
    doubtful = [name for name in others if could_be_scores(name, cells[name], are_whole)]
    if not doubtful:
        return called if len(called) > 1 else None
    if _sum_to_one(called, cells) and candidates.query.input in (None, "probabilities"):
        return called
    everything = [name for name in candidates.names if name in called or name in doubtful]
    if _sum_to_one(everything, cells) and candidates.query.input in (None, "probabilities"):
        return everything
    raise _without_class(candidates) or unclear_columns(candidates.contents, doubtful)


def could_be_scores(name: str, cells: NDArray[Any], also_whole: bool = False) -> bool:
    """Whether a column may hold scores of a class: no count of rows, no weight, and numbers that are not all whole.

    Beside scores that are whole numbers themselves, `also_whole`, whole numbers may be scores as well. Zeros alone may
    be the logits of a class that the others are compared with.
    """
    usual_weights = ("weight", "weights", "sample_weight")
    counts_rows = re.compile(r"|(.*_)?(id|ids|uid|uuid|idx|index)|unnamed: \d+|__index_level_\d+__", re.IGNORECASE)
    if counts_rows.fullmatch(name) or name.lower() in usual_weights:
        return False
    numbers = _numbers(cells)
    if numbers is None:
        return False
    finite = numbers[np.isfinite(numbers)]
    return bool(also_whole or not finite.any() or (finite != np.round(finite)).any())


def _numbers(cells: NDArray[Any]) -> NDArray[np.float64] | None:
    try:
        return np.asarray(cells, dtype=np.float64)
    except (TypeError, ValueError):
        return None


def _sum_to_one(columns: Sequence[str], cells: Mapping[str, NDArray[Any]]) -> bool:
    """Whether the first rows of these columns are probabilities of all classes."""
    table = [_numbers(cells[name]) for name in columns if name in cells]
    if len(table) < 2 or len(table) < len(columns) or any(column is None for column in table):
        return False
    rows = np.stack([column for column in table if column is not None], axis=1)
    return bool(len(rows) and (rows >= 0.0).all() and (np.abs(rows.sum(axis=1) - 1.0) <= SUM_TOLERANCE).all())


def _that_sum_to_one(candidates: Candidates) -> list[str] | None:
    """All columns of numbers, if they are probabilities of all classes: in each of the first rows their sum is 1."""
    contents, query, names, _ = candidates
    if query.input not in (None, "probabilities"):
        return None
    cells = contents.first_cells(names)
    columns = [name for name in names if name in cells and could_be_scores(name, cells[name])]
    return columns if _sum_to_one(columns, cells) else None


def _as_many_as_classes(candidates: Candidates) -> list[str] | None:
    """All columns, if they may hold scores and are three or more, as many as a calibrator has classes."""
    contents, query, names, _ = candidates
    if len(names) <= 2 or len(names) != query.n_classes:  # any two columns may be a score and a feature
        return None
    cells = contents.first_cells(names)
    return names if all(name in cells and could_be_scores(name, cells[name]) for name in names) else None


def _all_without_rows(candidates: Candidates) -> list[str] | None:
    """All columns of a table without rows, where nothing can be misread."""
    names = candidates.names
    return names if names and not candidates.contents.first_cells(names) else None


def _without_class(candidates: Candidates) -> FormatError | None:
    """The error where a calibrator has a class that no column is called by."""
    contents, query, names, _ = candidates
    known = {label_key(name) for name in names}
    missing = [name for name in query.classes or () if label_key(name) not in known]
    if not missing or len(missing) == len(query.classes or ()):
        return None
    problem = f"no column of the class {missing[0]!r}, which the calibrator knows"
    return FormatError(f"{contents.where}: {problem}. It has {listed(contents.names)}.", Remedy.COLUMNS)


def unclear_columns(contents: Contents, columns: Sequence[str]) -> FormatError:
    """The error where columns are not plainly classes."""
    if not columns:
        return FormatError(f"{contents.where}: no column besides the labels. It has {listed(contents.names)}.")
    is_one = len(columns) == 1
    words = f"the column {columns[0]!r} does" if is_one else f"the columns {listed(columns)} do"
    return FormatError(f"{contents.where}: {words} not look like {'a class' if is_one else 'classes'}.", Remedy.COLUMNS)


def _counted(columns: list[str]) -> list[str]:
    """Columns that are numbered from 0 or 1, or called False and True, in this order; others as they are.

    How a number is written does not matter.

    >>> _counted(["p_1.0", "p_0.0"]), _counted(["logit_02", "logit_00", "logit_01"]), _counted(["b1", "a0"])
    (['p_0.0', 'p_1.0'], ['logit_00', 'logit_01', 'logit_02'], ['b1', 'a0'])
    """
    order = order_of_numbers([column[shared_beginning(columns) :] for column in columns])
    if order is not None:
        return [columns[i] for i in order]
    matches = [re.fullmatch(r"(.*?)(\d+(?:\.0*)?)", column) for column in columns]
    if not all(matches) or len({match[1] for match in matches if match}) > 1:
        return columns
    number = {match[0]: int(match[2].partition(".")[0]) for match in matches if match}
    is_counted = {*number.values()} in ({*range(len(columns))}, {*range(1, len(columns) + 1)})
    return sorted(columns, key=lambda column: number[column]) if is_counted else columns


def said_kind(name: str) -> str | None:
    """What the name of a column, or its beginning, says that the numbers are."""
    lower = name.lower()
    beginning = re.split(r"[_.: ]|\d+$", lower, maxsplit=1)[0]
    if lower.startswith("log_odds") or beginning in SAY_LOGITS:
        return "logits"
    if lower in SAY_PROBABILITIES or beginning in SAY_PROBABILITIES:
        return "probabilities"
    return None


def of_other_kind(contents: Contents, wanted: str, present: str) -> FormatError:
    """The error about logits where probabilities were asked for, or the other way round."""
    remedy = Remedy.READ_LOGITS if wanted == "probabilities" else Remedy.READ_PROBABILITIES
    return FormatError(f"{contents.where}: no {wanted!r} but {present!r}.", remedy)
