"""The names of columns: which part of them is the name of a class, and in which order they are."""

from __future__ import annotations

import numbers
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from refocal._arrays import Indices
from refocal._validation import number_of_text
from refocal.errors import ParameterError, Remedy, ShapeError

# Beginnings of names that say that columns are scores, as refocal.io looks for them.
_SCORES = "logits?|log_odds|p|probs?|proba|probability|probabilities|scores?|class"
_SAYS_SCORES = re.compile(rf"({_SCORES})[_.: ]", re.IGNORECASE)
_NUMBERED_SCORES = re.compile(rf"({_SCORES})\d+", re.IGNORECASE)


def names_in_order(names: Any, function: str, argument: str = "class_names") -> tuple[Any, ...]:
    """The names that a caller gives to columns, which must have an order: no text, set or mapping, and no number."""
    if isinstance(names, (str, bytes, set, frozenset, Mapping)) or not isinstance(names, Iterable):
        expected = "a sequence of names, in the order of the columns"
        got = repr(names) if isinstance(names, numbers.Number) else f"a {type(names).__name__}"
        raise ParameterError(argument, function, expected=expected, got=got)
    return tuple(names)


def check_class_names(
    names: Iterable[Any] | None, n_classes: int, function: str, argument: str = "class_names"
) -> tuple[str, ...] | None:
    """The names of the columns as text, if there is a different one for each; None if they have none."""
    if names is None:
        return None
    given = names_in_order(names, function, argument)
    texts = tuple(name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name) for name in given)
    if not len(texts) == len(set(texts)) == n_classes:
        expected = f"{n_classes} different names, one for each column"
        raise ShapeError(argument, function, expected=expected, got=f"{len(set(texts))} different ones")
    # A beginning that says that columns are scores, as in logit_cat, is no part of their names.
    shared = os.path.commonprefix(texts)  # noqa: RUF071 - names, not paths
    of_scores = _SAYS_SCORES.match(shared)
    if of_scores is None or len(texts) < 2:
        return texts
    return tuple(text[of_scores.end() :] for text in texts)


def shared_beginning(columns: Sequence[Any]) -> int:
    """How many letters up to a separator all names share, as in logit_cat, logit_dog; 0 for a single name.

    A beginning that says that columns are scores ends at its separator: p_new_york and p_new_jersey are new_york and
    new_jersey; before numbers it needs none: p0 and p1 are 0 and 1. Numbers such as 2.0 and 2.1 share none.
    """
    if len(columns) < 2 or not all(isinstance(name, str) for name in columns):
        return 0
    shared: str = os.path.commonprefix(list(columns))  # noqa: RUF071 - names, not paths
    of_scores = _SAYS_SCORES.match(shared)
    if of_scores:
        return of_scores.end()
    numbered = [_NUMBERED_SCORES.fullmatch(name) for name in columns]
    words = {match.group(1) for match in numbered if match is not None}
    if None not in numbered and len(words) == 1:
        return len(words.pop())
    if all(_is_number(name) for name in columns):
        return 0
    return max(shared.rfind(separator) + 1 for separator in "_.: ")


def shortened(columns: Iterable[Any]) -> list[list[Any]]:
    """Names as they are, without the beginning that all share, without the one that they then share again, and so on.

    >>> shortened(["p_class_1", "p_class_2"])
    [['p_class_1', 'p_class_2'], ['class_1', 'class_2'], ['1', '2']]
    """
    forms = [[*columns]]
    while start := shared_beginning(forms[-1]):
        forms.append([name[start:] for name in forms[-1]])
    return forms


def without_beginnings(columns: Iterable[Any]) -> list[Any]:
    """What tells names apart: each without all beginnings that they share.

    >>> without_beginnings(["logit_img_cat", "logit_img_dog"]), without_beginnings(["p0", "p1"])
    (['cat', 'dog'], ['0', '1'])
    """
    return shortened(columns)[-1]


def _is_number(text: str) -> bool:
    try:
        number_of_text(text)
    except ValueError:
        return False
    return True


def differing_ends(columns: Sequence[Any]) -> list[str]:
    """What follows the letters that all names share, which tells to which scores labels belong.

    >>> differing_ends(["score_new_york", "score_new_jersey"]), differing_ends(["label_new_york", "label_new_jersey"])
    (['york', 'jersey'], ['york', 'jersey'])
    """
    names = [str(name) for name in columns]
    shared = os.path.commonprefix(names) if len(names) > 1 else ""  # noqa: RUF071 - names, not paths
    return [name[len(shared) :] for name in names]


def check_label_order(
    of_scores: Sequence[Any] | None, of_labels: Sequence[Any] | None, argument: str, function: str
) -> None:
    """Columns of several labels per row that are called as those of the scores must be in their order.

    What names share at the beginning is no part of them: score_cat belongs to label_cat.
    """
    if of_scores is None or of_labels is None:
        return
    position = {name: i for i, name in enumerate(differing_ends(of_scores))}
    for i, name in enumerate(differing_ends(of_labels)):
        if position.get(name, i) != i:
            expected = f"of columns in the order of those of the scores, {str(of_labels[i])!r} at {position[name]}"
            raise ShapeError(argument, function, expected=expected, got=f"{str(of_labels[i])!r} at {i}")


def _without_decimals(name: str) -> str:
    """The text of a whole number without a point and zeros behind it; other names as they are."""
    return name.partition(".")[0] if re.fullmatch(r"-?\d+\.0*", name) else name


def column_order(names: Sequence[str] | None, wanted: Sequence[str] | None, function: str) -> Indices | None:
    """The positions of the columns `wanted` among `names`; None if the order is the same, or there are no names.

    >>> column_order(("dog", "cat"), ("cat", "dog"), "f")
    array([1, 0])
    """
    if names is None or wanted is None:
        return None
    given = [str(name) for name in names]
    texts = [str(name) for name in wanted]
    if given == texts:
        return None
    if sorted(given) != sorted(texts):  # 1.0 and 1 are one name: columns that floats name, and those of a file
        given = [_without_decimals(name) for name in given]
        texts = [_without_decimals(name) for name in texts]
        if given == texts:
            return None
    if sorted(given) != sorted(texts):
        strangers = [name for name in given if name not in texts] or [name for name in texts if name not in given]
        most_shown = 6  # names
        shown = ", ".join(texts[:most_shown]) + (", …" if len(texts) > most_shown else "")
        got = f"{strangers[0]!r} in one of them only"
        raise ShapeError(
            "class_names", function, expected=f"the same in both: {shown}", got=got, remedy=Remedy.CALLED_ALIKE
        )
    position = {name: i for i, name in enumerate(given)}
    return np.array([position[name] for name in texts])
