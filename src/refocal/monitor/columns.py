"""The columns of a batch beside those of the batches before."""

from __future__ import annotations

from typing import Any, NamedTuple

from refocal.errors import Remedy, ShapeError
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


class KnownColumns(NamedTuple):
    """What a monitor knows of its columns."""

    names: tuple[str, ...] | None
    """Their names; None where they have none, or none yet."""
    knows_number: bool
    """Whether the number of classes is known."""
    has_rows: bool
    """Whether rows were added before."""

    def beside(self, given: tuple[Any, ...] | None, n_classes: int, function: str) -> tuple[str, ...] | None:
        """The names of the columns of a batch, which are those of all batches in their order; None if they count.

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
