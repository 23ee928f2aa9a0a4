"""The columns of a batch beside those of the batches before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from refocal.errors import LabelError, Remedy, ShapeError
from refocal.rows.gate import names_of_columns


def given_names(columns: tuple[Any, ...] | None, n_classes: int) -> tuple[Any, ...] | None:
    """The names that the columns of a batch have, or their numbers; None where the batch is no data frame.

    >>> given_names(("p_cat", "p_dog"), 2), given_names((0, 1), 2), given_names(None, 2)
    (('cat', 'dog'), (0, 1), None)
    """
    names, _ = names_of_columns(columns)
    if names is None and columns is not None:
        return tuple(range(n_classes))
    return names


def check_counted(names: Sequence[str], moved: bool | None, function: str) -> None:
    """Refuse later labels that are column numbers, if some batch had its columns in another order than these names.

    A state of an older version does not tell (None): then one of two classes may have been moved.

    >>> check_counted(("cat", "dog", "emu"), None, "f")
    """
    if moved is False or (moved is None and len(names) > 2):
        return
    other = repr(names[1]) if len(names) == 2 else "another class"
    may_have = "had" if moved else "may have had"
    expected = f"names of classes ({', '.join(names)}), since columns of batches {may_have} another order"
    got = f"column numbers, of which 0 is {names[0]!r} in this order and {other} in that of a batch"
    raise LabelError("labels", function, expected=expected, got=got)


def either_moved(first: bool | None, second: bool | None) -> bool | None:
    """Whether the columns of either of two monitors have moved; None if one does not tell and the other's have not.

    >>> either_moved(True, None), either_moved(False, None), either_moved(False, False)
    (True, None, False)
    """
    if first or second:
        return True
    return None if None in (first, second) else False


class KnownColumns(NamedTuple):
    """What a monitor knows of its columns."""

    names: tuple[str, ...] | None
    """Their names; None where they have none, or none yet."""
    knows_number: bool
    """Whether the number of classes is known."""
    has_rows: bool
    """Whether rows were added before."""

    def beside(self, given: tuple[Any, ...] | None, n_classes: int, function: str) -> tuple[str, ...] | None:
        """The names of the columns of a batch, None if they only count; refused unless they are those before.

        >>> KnownColumns(("cat", "dog"), True, True).beside(None, 2, "f")
        ('cat', 'dog')
        """
        counted = tuple(str(i) for i in range(n_classes))
        known = counted if self.names is None and self.knows_number else self.names
        if given is not None:
            names = tuple(str(name) for name in given)
        elif known is not None and {*known} != {*counted}:
            names = known
        else:
            names = counted
        learns = self.names is None and given is not None and {*names} != {*counted}
        if learns and self.has_rows:
            expected = "of columns without names, as those before"
            got = f"columns {', '.join(names)}"
            raise ShapeError("probabilities", function, expected=expected, got=got, remedy=Remedy.NAMES_BEFORE)
        if known is not None and names != known and not learns:
            expected = f"of the columns {', '.join(known)}, as those before"
            raise ShapeError("probabilities", function, expected=expected, got=", ".join(names))
        return None if names == counted else names
