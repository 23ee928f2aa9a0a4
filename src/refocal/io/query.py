"""What is asked of a file, and the names of what it holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from refocal._validation import INPUTS, check_option
from refocal.errors import ParameterError
from refocal.io.files import Options


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

    @property
    def sort(self) -> str:
        """What each name is the name of."""
        return "column" if self.is_table else "array"

    def first_cells(self, columns: Sequence[str]) -> Mapping[str, NDArray[Any]]:
        """The first rows of some columns of a table, which tell what the columns hold."""
        return {}


@dataclass(frozen=True)
class Query:
    """What a caller states about files; the first five are arguments of `read`."""

    input: str | None = None
    """What the numbers are; None: what their names say, or else logits."""
    values: str | None = None
    labels: str | None = None
    weight: str | None = None
    groups: Sequence[str] = ()
    """The columns of groups, and that of clusters."""
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
    passes_several: bool = False
    """Whether a table may have a column of labels for each class, which are passed on as they are."""
    labelled: bool = False
    """Whether rows without labels are an error."""
    classes: Sequence[str] | None = None
    """The names of the classes, where a calibrator knows them."""
    n_classes: int | None = None
    """The number of classes, where a calibrator knows it."""
    marks: tuple[int, ...] = ()
    """Labels that mark rows without one; they are not the names of columns."""
    only_labels: bool = False
    """Whether a file has labels and no scores."""
    bad: list[str] | None = None
    """Files that cannot be read, or have other columns, are left out, and this list says why; None: they are errors."""
    clusters: str | None = None
    """The column of clusters."""
    clusters_are_groups: bool = False
    """Whether the column of clusters was named as one of groups too."""

    def __post_init__(self) -> None:
        if self.input is not None:
            check_option(self.input, INPUTS, "input", self.function)
        if self.values is not None and not isinstance(self.values, str):
            expected = "a text: a name, a pattern, or several with commas between them"
            raise ParameterError("values", self.function, expected=expected, got=repr(self.values))
        if isinstance(self.groups, str):  # the name of one column
            object.__setattr__(self, "groups", (self.groups,))

    def with_clusters(self, name: str | None) -> Query:
        """The query with a column of clusters, which is read like a column of groups."""
        if name is None:
            return self
        is_group = name in self.groups
        groups = self.groups if is_group else (*self.groups, name)
        return replace(self, groups=groups, clusters=name, clusters_are_groups=is_group)


ANYTHING = Query()


def listed(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    most_listed = 8  # names that an error shows
    shown = ", ".join(repr(name) for name in names[:most_listed]) or "none"
    return f"{shown} and {len(names) - most_listed} more" if len(names) > most_listed else shown
