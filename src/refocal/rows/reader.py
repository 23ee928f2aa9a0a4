"""The gate for rows in blocks: raw rows of a part of a data set in, checked `Predictions` out, by the same rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import (
    NUMBERS,
    Flags,
    Indices,
    as_floating,
    in_single,
    row_blocks,
    to_numpy,
    two_columns,
)
from refocal._clusters import cluster_keys
from refocal._groups import as_groups, columns_of_groups
from refocal._validation import (
    FINITE_LABELS,
    FINITE_ROWS,
    IGNORED,
    INPUTS,
    SUM_TOLERANCE,
    check_option,
    not_finite,
    without_rounding_of_sums,
)
from refocal.errors import DataError, FormatError, InputError, LabelError, ParameterError, Remedy, ShapeError
from refocal.rows.class_names import column_order, without_beginnings
from refocal.rows.keys import consecutive_numbers, label_key, number_keys, order_of_numbers
from refocal.rows.label_errors import missing_label
from refocal.rows.labels import (
    LabelMap,
    LabelRule,
    raw_labels,
    sorted_classes,
    typed_classes,
)
from refocal.rows.marks import are_marks
from refocal.rows.positive import is_called_by_other, order_with_positive
from refocal.rows.predictions import Origin, Predictions
from refocal.rows.scores import bad_rows, stored_kind


class RawRows(NamedTuple):
    """Some rows as a file, an array or a caller has them; `where` and `first_row` say their place, for messages.

    >>> RawRows([[2.0, 0.5]], ["cat"], where="rows.csv").where
    'rows.csv'
    """

    values: Any
    labels: Any
    """As they are stored: numbers, text or Python's objects; None where there are none."""
    weight: Any = None
    where: str = "the rows"
    first_row: int = 0
    kept: Mapping[str, Any] = {}
    """Further columns by name, which writers pass on."""
    groups: Mapping[str, Any] = {}
    """Columns of groups that the rows belong to, and of clusters: see `RowReader.clusters`."""
    n_lost: int = 0
    """How many rows before these, or between them, could not be read at all."""
    columns: tuple[Any, ...] | None = None
    """The names of the columns of a data frame."""
    is_moved: bool = False
    """Whether the file has the columns in another order than the first of its data set, so that numbers say nothing."""
    is_bfloat16: bool = False
    """Whether the scores were given in bfloat16, in which probabilities sum to 1 less precisely."""


@dataclass(frozen=True)
class RowReader:
    """How raw rows are understood: what their columns and labels mean, and what becomes of bad rows.

    >>> raw = RawRows(np.array([[2.0, 0.5], [np.nan, 1.0]]), ["dog", "cat"])
    >>> rows, n_bad = RowReader(2, class_names=("cat", "dog"), skip_bad_rows=True).read(raw)
    >>> rows.labels, n_bad
    (array([1]), 1)
    """

    n_classes: int
    input: str = "logits"
    class_names: tuple[str, ...] | None = None
    """The names of the columns, in the order in which rows are read; labels may be these names."""
    whole_names: tuple[str, ...] = ()
    """The names with the beginning that they share; labels may be these as well."""

    # What a caller states.
    first_label: int | None = None
    """The label of the first column, where labels count the columns."""
    positive_label: Any = None
    """The label of the positive class of two; None: that of the second column."""
    ignore_index: tuple[int, ...] = ()
    """Labels that mark rows without one, which are left out."""
    skip_bad_rows: bool = False
    """Whether bad rows are left out and counted; otherwise they are errors."""
    renormalise: bool = False
    """Whether rows of rounded probabilities are divided by their sums."""
    clusters: str | None = None
    """The column among those of groups that has the clusters of the rows."""
    clusters_are_groups: bool = False
    """Whether that column has groups to measure separately as well."""
    function: str = "fit"
    """The function that was called, for error messages."""

    # What opening the rows shows: their file, their first block, or all labels in memory.
    source: Origin = field(default_factory=Origin)
    columns: tuple[Any, ...] | None = None
    """The names of the columns as the first block, a data frame, has them."""
    group_columns: tuple[str, ...] | None = None
    """The columns of groups of the first block, which all have; None where those of all blocks are known to agree."""
    has_one_number: bool = False
    """Whether each row is one number, about the second of two classes."""
    sorts: bool = False
    """Whether labels name columns without names in sorted order, as in scikit-learn."""
    types_classes: bool = False
    """Whether labels are text or truths, as which they come back where columns have no names; in files they do not."""

    # What `with_labels`, which knows the labels of all rows, and the methods that change the order of columns settle.
    order: Indices | None = None
    """The positions of the columns in the raw rows, where they are read in another order."""
    label_map: LabelMap | None = None
    """How labels of all rows are read, as column numbers of the raw rows; None: each block decides for itself."""
    classes: tuple[Any, ...] | None = None
    """The class of each column in the type of the labels, where labels named columns without names."""

    def __post_init__(self) -> None:
        check_option(self.input, INPUTS, "input", self.function)
        if self.renormalise and self.input != "probabilities":
            expected = "left out: it is for probabilities"
            raise ParameterError("renormalise", self.function, expected=expected, got="True")

    @property
    def rule(self) -> LabelRule:
        """What decides how labels are read."""
        names = self.class_names
        if names is not None and self.order is not None:  # as the raw rows have the columns
            names = tuple(names[i] for i in np.argsort(self.order))
        options = (self.whole_names, self.first_label, self.sorts, "y", self.function)
        return LabelRule(self.n_classes, names, *options)

    def numbers_of_columns(self) -> NDArray[np.int64] | None:
        """The numbers by which labels count columns without names; None where these are the usual ones, from 0 on."""
        if self.class_names is not None or not self.first_label:
            return None
        return np.arange(self.first_label, self.first_label + self.n_classes)

    @property
    def called(self) -> NDArray[Any] | None:
        """The class of each column; None: the column numbers."""
        if self.classes is not None:
            return np.array(self.classes)
        return self.numbers_of_columns() if self.class_names is None else np.array(self.class_names)

    @property
    def needs_labels(self) -> bool:
        """Whether the labels of all rows must be known before those of any can be read."""
        if self.label_map is not None:
            return False
        if self.positive_label is not None or self.rule.needs_distinct:
            return True
        if self.class_names is None:
            return self.types_classes
        # Labels that are numbers or truths tell that the classes are, too.
        return all(isinstance(number, int) for number in number_keys(self.class_names))

    def with_labels(self, distinct: Collection[Any], has_one_column: bool = False) -> Self:
        """The reader that knows how labels are read; `distinct` are the distinct labels of all rows."""
        labels = [label for label in distinct if label_key(label) not in self.ignore_index]
        if self.skip_bad_rows:
            labels = self._without_bad(labels)
        if self.positive_label is not None:
            return self._with_positive(labels, has_one_column)
        rule = self.rule
        by_whole_name = rule.by_whole_name(labels)
        if by_whole_name is not None:
            classes = self.whole_names if self.types_classes else self.classes
            return replace(self, label_map=by_whole_name, classes=classes)
        if rule.names_by_labels(labels):
            names = sorted_classes(labels, rule).tolist()
            return replace(self, label_map=LabelMap.of_names(names), classes=tuple(names))
        if rule.names is None and not rule.sorts:  # a label that is no column number is an error of its row
            label_map = rule.by_number()
            labels = [label for label in labels if label_map.column(label) >= 0]
        else:
            label_map = rule.decide(labels)
        classes = self._given_classes(rule.names, label_map, labels, self.order)
        return replace(self, label_map=label_map, classes=classes or self.classes)

    def _with_positive(self, labels: Collection[Any], has_one_column: bool) -> Self:
        """The reader of two classes whose columns are swapped where the positive label is that of the first."""
        label_map, names, swaps = order_with_positive(self.positive_label, self.rule, labels, has_one_column)
        order = np.array([1, 0]) if swaps and not has_one_column else None
        classes = self._given_classes(names, label_map, labels, order)
        if names is not None and order is not None:
            names = (names[1], names[0])
        if has_one_column:
            self.check_one_column(names)
        source = replace(self.source, swapped=order is not None)
        return replace(self, label_map=label_map, class_names=names, order=order, source=source, classes=classes)

    def _without_bad(self, distinct: Collection[Any]) -> list[Any]:
        """The distinct labels without those of bad rows, which will be left out.

        Labels name columns without names if they can, as in memory. If they cannot, only those that are names or column
        numbers are kept. Labels that count from 1 are all kept, which makes them an error: as column numbers the last
        class would be a bad label, and each of the others would be taken for the next class.
        """
        rule = self.rule
        by_name = rule.by_name()
        by_number = rule.by_number()
        usable = [label for label in distinct if by_name.column(label) >= 0 or by_number.column(label) >= 0]
        known = [label for label in distinct if label_key(label) is not None]
        if not rule.names_by_labels(known):
            return usable
        keys = {label_key(label) for label in known}
        count_from_one = 0 not in keys and self.n_classes in keys
        return known if count_from_one or _can_name_columns(known, rule) else usable or known

    def check_start(self, distinct: Collection[Any]) -> None:
        """Refuse labels 1 … C that are read as column numbers, where rows with a bad label are left out.

        The rows of the last class would be, and the others would count for the next class.

        >>> RowReader(2, skip_bad_rows=True).check_start([0, 1, 2])
        """
        if self.first_label is not None or (self.label_map is not None and self.label_map.columns is not None):
            return
        keys = {label_key(label) for label in distinct} - {*self.ignore_index}
        if keys & {0, "True", "False", *self.rule.columns_by_name()} or self.n_classes not in keys:
            return
        lowest = min(key for key in keys if isinstance(key, int))
        expected = f"between 0 and {self.n_classes - 1}"
        got = f"labels from {lowest} to {self.n_classes}"
        raise LabelError("y", self.function, expected=expected, got=got, remedy=Remedy.FIRST_LABEL)

    def _given_classes(
        self, names: Sequence[Any] | None, label_map: LabelMap, labels: Collection[Any], order: Indices | None
    ) -> tuple[Any, ...] | None:
        """The classes in the type of the labels, in the order in which rows are read; None for the usual ones.

        Both `names` and `label_map` are of the columns as the raw rows have them.
        """
        if names is None and not self.types_classes:
            return None
        classes = typed_classes(names, self.rule, label_map, labels)
        if classes is None:
            return None
        ordered = tuple((classes if order is None else classes[order]).tolist())
        return ordered if self.types_classes else numbers_of_text(ordered)

    def of_classes(self, classes: Sequence[Any] | None) -> Self:
        """The reader that names the columns by the classes of a calibrator, unless the rows have names of their own.

        Columns are in the order of the classes or, if the classes are consecutive numbers such as 0 … C-1, in the order
        of the numbers. One number per row is about the second class, the positive one; a positive label that says
        otherwise is an error.

        >>> reader = RowReader(2, "probabilities", has_one_number=True).of_classes(("late", "on time"))
        >>> rows, _ = reader.read(RawRows(np.array([0.9, 0.2]), ["on time", "late"]))
        >>> rows.class_names, rows.labels
        (('late', 'on time'), array([1, 0]))
        """
        if classes is None or self.class_names is not None or len(classes) != self.n_classes:
            return self
        names = tuple(str(name) for name in classes)
        ends = consecutive_numbers(number_keys(without_beginnings(names)))
        if ends is not None and consecutive_numbers(number_keys(names)) is None and not self.has_one_number:
            names = tuple(names[i] for i in np.argsort(ends))  # class_2, class_0, class_1, which labels may be
        if self.has_one_number:
            self._check_positive(names)
            self.check_one_column(names)
        numbers = consecutive_numbers([label_key(name) for name in names])
        positive = self.positive_label
        if positive is None and numbers is not None and len(names) == 2 and numbers[0] > numbers[1]:
            positive = names[1]
        if numbers is not None and (not self.has_one_number or numbers == [*range(self.n_classes)]):
            counted = tuple(str(number) for number in sorted(numbers))
            return replace(self, class_names=None if min(numbers) == 0 else counted, positive_label=positive)
        return replace(self, class_names=names, positive_label=positive)

    def _check_positive(self, classes: tuple[str, ...]) -> None:
        """Refuse a positive label, for one number per row, that is not the positive class of the calibrator."""
        if self.positive_label is None:
            return
        rule = LabelRule(2, classes, function=self.function)
        if rule.by_name().column(self.positive_label) == 0:
            expected = f"{classes[1]!r} or left out: one number per row is about the positive class of the calibrator"
            got = f"{self.positive_label!r}, as if it were about the other class"
            raise ParameterError("positive_label", self.function, expected=expected, got=got)

    def check_one_column(self, classes: Sequence[Any] | None) -> None:
        """Refuse a single column that is called by the first of two classes, since its numbers are about the second.

        Without names the classes are 0 and 1, or False and True, or count from `first_label`.

        >>> RowReader(2, source=Origin("rows.csv", ("p_ok",), n_columns=2)).check_one_column(("late", "ok"))
        """
        if len(self.source.columns) != 1 or self.source.n_columns == 0:
            return
        column = self.source.columns[0]
        if classes is None:
            lowest = self.first_label or 0
            classes = (lowest, lowest + 1)
        if is_called_by_other(column, classes):
            contradiction = (
                f"the column {column!r} is called by the class {classes[0]!r}, but read as the positive {classes[1]!r}"
            )
            raise FormatError(f"{self.source.place}: {contradiction}.")

    def in_order(self, order: Indices) -> Self:
        """The reader of the same rows with the columns in another order; `order` has their present positions."""
        names = None if self.class_names is None else tuple(self.class_names[i] for i in order)
        called = self.called if names is None else self.classes
        classes = None if called is None else tuple(called[i] for i in order)
        whole = order if self.order is None else self.order[order]
        return replace(self, class_names=names, classes=classes, order=whole)

    def in_order_of_numbers(self) -> Self:
        """The reader with columns called 0 … C-1, or False and True, put in this order; else the reader as it is.

        A positive label has put the columns in order already, and one number per row has no columns.
        """
        order = order_of_numbers(self.class_names)
        if order is None or self.positive_label is not None or self.has_one_number:
            return self
        moved = self.in_order(np.array(order))
        are_numbers = {label_key(name) for name in self.class_names or ()} == {*range(self.n_classes)}
        return replace(moved, classes=tuple(range(self.n_classes))) if are_numbers else moved

    def read(self, raw: RawRows, check: bool = True) -> tuple[Predictions, int]:
        """Checked rows, and how many bad ones were left out: none unless `skip_bad_rows` is set, where one is an error.

        Rows without a label or of weight 0 are left out as well, and not counted.
        """
        if self.has_one_number:
            self.check_one_column(self.class_names)
        values = self.matrix(raw)
        rows = self._shaped(raw._replace(values=values))
        label_map = self._label_map(rows)
        # The column of each label, as the raw rows have the columns; -1 where a label has none: a bad row.
        numbers = label_map.numbers(rows.labels)
        weight = rows.weight
        kept = ~are_marks(rows.labels, self.ignore_index)
        if weight is not None:
            kept &= weight != 0.0  # NaN is kept, and is an error below
        n_bad = 0
        if check or self.skip_bad_rows or (numbers < 0).any():
            bad = self._bad_rows(rows, numbers) & kept
            if bad.any() and not self.skip_bad_rows:
                raise self._error_of(rows, int(np.argmax(bad)), numbers)
            n_bad = int(np.count_nonzero(bad))
            kept &= ~bad
        some: Any = slice(None) if kept.all() else kept
        of_groups, of_clusters = self.split_groups(rows)
        self._check_group_columns(rows)
        groups = as_groups(of_groups, len(numbers), self.function) if _has_groups(of_groups) else {}
        clusters = None if of_clusters is None else cluster_keys(of_clusters, len(numbers), self.function)
        values = values[some]
        if self.input != "probabilities" and values.dtype.kind != "f":
            values = values.astype(np.float64)
        read = Predictions(
            values,
            numbers[some],
            stored_kind(self.input),
            None if weight is None else weight[some],
            groups={name: column[some] for name, column in groups.items()},
            clusters=None if clusters is None else clusters.numbers[some],
            cluster_name="" if clusters is None else clusters.name,
        )
        if self.order is not None:
            read = read.reordered(self.order)
        return replace(read, class_names=self.class_names, label_map=label_map), n_bad

    def split_groups(self, raw: RawRows) -> tuple[Any, dict[str, Any] | None]:
        """The columns of groups of raw rows, and that of clusters, if these were asked for."""
        if self.clusters is None:
            return raw.groups, None
        if not isinstance(raw.groups, Mapping) or self.clusters not in raw.groups:
            got = f"none in {raw.where}"
            raise DataError("clusters", self.function, expected=f"a column {self.clusters!r}", got=got)
        groups = dict(raw.groups)
        clusters = {self.clusters: groups[self.clusters]}
        if not self.clusters_are_groups:
            del groups[self.clusters]
        return groups, clusters

    def _check_group_columns(self, raw: RawRows) -> None:
        """Refuse rows in other columns of groups than those of the first block, from which they would be missing."""
        columns = tuple(columns_of_groups(raw.groups))
        if self.group_columns is None or {*columns} == {*self.group_columns} or len(raw.labels) == 0:
            return
        expected = f"in the columns of the first block ({', '.join(self.group_columns) or 'none'}) in every block"
        got = f"{', '.join(columns) or 'none'} in {raw.where}"
        raise DataError("groups", self.function, expected=expected, got=got)

    def matrix(self, raw: RawRows) -> NDArray[Any]:
        """The scores of raw rows, one column per class; one number per row becomes two columns."""
        values: NDArray[Any] = to_numpy(raw.values)
        if values.dtype.kind not in "fiu":
            got = f"dtype {values.dtype} in {raw.where}"
            raise DataError("X", self.function, expected=NUMBERS, got=got)
        if values.ndim == 1 and self.n_classes == 2:
            is_impossible = values == -np.inf  # which log-odds are not: such a row is bad, as one of -inf alone
            values = two_columns(in_single(values), self.input)
            if is_impossible.any():
                values[is_impossible] = -np.inf
        if values.ndim != 2 or values.shape[1] != self.n_classes:
            expected = f"of {self.n_classes} columns in every block, as in the first"
            raise ShapeError("X", self.function, expected=expected, got=f"shape {values.shape} in {raw.where}")
        order = self._order_of_block(raw)
        if order is not None:
            values = values[:, order]
        if self.renormalise:
            sums = values.sum(axis=1, keepdims=True, dtype=np.float64)
            values = np.divide(values, sums, out=np.full(values.shape, np.nan), where=sums > 0)
        elif raw.is_bfloat16 and self.input == "probabilities":
            values = without_rounding_of_sums(values)
        return values

    def _order_of_block(self, raw: RawRows) -> Indices | None:
        """The positions of the columns of the first block among those of another data frame; None where they agree."""
        if raw.columns == self.columns:
            return None
        if raw.columns is None or self.columns is None:
            names = raw.columns or self.columns or ()
            if [label_key(name) for name in names] == list(range(len(names))):
                return None  # columns that only count have no names
            expected = "of blocks of which all have names of columns, or none"
            got = f"{', '.join(str(name) for name in names)} in one of {raw.where} and the first block"
            raise ShapeError("X", self.function, expected=expected, got=got)
        return column_order([str(name) for name in raw.columns], [str(name) for name in self.columns], self.function)

    def _shaped(self, raw: RawRows) -> RawRows:
        """Raw rows with arrays of labels and weights, one for each row."""
        if raw.labels is None:
            raise LabelError("y", self.function, expected="given, one label for each row", got=f"none in {raw.where}")
        labels = to_numpy(raw_labels(raw.labels, "y", self.function).values)
        weight = None
        if raw.weight is not None:
            weight = to_numpy(as_floating(raw.weight, "sample_weight", self.function)[0]).astype(np.float64, copy=False)
        for name, column in (("y", labels), ("sample_weight", weight)):
            if column is not None and tuple(column.shape) != raw.values.shape[:1]:
                got = f"shape {tuple(column.shape)} in {raw.where}"
                expected = f"of shape {raw.values.shape[:1]}, one for each row"
                raise ShapeError(name, self.function, expected=expected, got=got)
        return raw._replace(labels=labels, weight=weight)

    def _label_map(self, raw: RawRows) -> LabelMap:
        """How the labels of a block are read: as those of all rows, or by themselves where that is not decided yet.

        A block in which some label is a name of a column is read by name, and any other by column numbers.
        """
        label_map = self.label_map
        rule = self.rule
        by_number = rule.by_number()
        if label_map is None and rule.names is None:
            label_map = by_number
            if self.whole_names and raw.labels.dtype.kind in "UTO":
                by_whole_name = rule.by_name()
                label_map = by_whole_name if (by_whole_name.numbers(raw.labels) >= 0).any() else by_number
        if label_map is None:
            by_name = rule.by_name()
            is_counted = self.first_label is not None and (by_number.numbers(raw.labels) >= 0).all()
            has_name = (by_name.numbers(raw.labels) >= 0).any()
            label_map = by_name if has_name and not is_counted else by_number
        is_moved = raw.is_moved or self._order_of_block(raw) is not None
        # Numbers are names too where the columns are called by their own.
        are_names = [label_key(name) for name in rule.names or ()] == [*by_number.counted()]
        if is_moved and rule.names is not None and label_map.columns is None and not are_names:
            raise moved_error(raw.where, self.function)
        return label_map

    def _bad_rows(self, raw: RawRows, numbers: Indices) -> Flags:
        bad = np.zeros(len(numbers), dtype=np.bool_)
        for some in row_blocks(len(bad), self.n_classes):  # what is computed stays in the cache
            bad[some] = bad_rows(raw.values[some], self.input)
        outside = numbers < 0
        bad |= outside
        if self.input != "probabilities":
            column = np.where(outside, 0, numbers)
            bad |= np.take_along_axis(raw.values, column[:, None], axis=1)[:, 0] == -np.inf
        if raw.weight is not None:
            bad |= ~((raw.weight >= 0.0) & (raw.weight < np.inf))
        return bad

    def _error_of(self, raw: RawRows, row: int, numbers: Indices) -> InputError:
        """What is wrong with one row, and where."""
        place = f"row {raw.first_row + row} of {raw.where}"
        if numbers[row] < 0:
            return self._label_error(raw.labels, row, place)
        if raw.weight is not None and not 0.0 <= raw.weight[row] < np.inf:
            got = f"{raw.weight[row]} in {place}"
            return DataError("sample_weight", self.function, expected="finite and not negative", got=got)
        return self.score_error(raw.values[row], place)

    def _label_error(self, labels: NDArray[Any], row: int, place: str) -> LabelError:
        label = labels[row].item() if isinstance(labels[row], np.generic) else labels[row]
        key = label_key(label)
        if key is None:
            return missing_label("y", self.function, place)
        remedy = Remedy.IGNORE_INDEX if key in IGNORED else None
        whole = {each for each in (label_key(given) for given in labels.tolist()) if isinstance(each, int)}
        if self.n_classes == 2 and whole <= {-1, 1}:
            remedy = Remedy.POSITIVE_LABEL
        elif self.first_label is None and whole <= {*range(1, self.n_classes + 1)}:
            remedy = Remedy.FIRST_LABEL
        first = self.first_label or 0
        numbers = f"whole numbers from {first} to {first + self.n_classes - 1}"
        if self.class_names is None:
            if isinstance(key, str) and not isinstance(label, (bool, float)):
                got = f"text such as {label!r} in {place}"
                is_two = self.n_classes == 2 and len({label_key(each) for each in labels.tolist()} - {None}) <= 2
                named_by = Remedy.POSITIVE_LABEL if is_two else Remedy.CLASS_NAMES
                return LabelError("y", self.function, expected="integers", got=got, remedy=named_by)
            return LabelError("y", self.function, expected=numbers, got=f"{label} in {place}", remedy=remedy)
        shown = ", ".join(self.class_names[:6]) + (", …" if self.n_classes > 6 else "")
        expected = f"among the class names ({shown})"
        if isinstance(key, int):
            expected += f", or {numbers} of which none is such a name"
        return LabelError("y", self.function, expected=expected, got=f"{label!r} in {place}", remedy=remedy)

    def score_error(self, values: NDArray[Any], place: str) -> DataError:
        """What is wrong with the scores of one row."""
        if self.input == "probabilities":
            expected = f"rows of probabilities: at least 0, and 1 in sum within {SUM_TOLERANCE:g}"
            outside = values[(values < 0.0) | (values > 1.0)]
            got = f"{place}, which sums to {values.sum(dtype=np.float64):.6g}"
            if len(outside):  # of one number a row the other is 1 less it, so that both sum to 1
                got = f"{outside.max():.6g} in {place}"
            return DataError("X", self.function, expected=expected, got=got)
        if np.isnan(values).any() or not np.isfinite(values.max()):
            return DataError("X", self.function, expected=FINITE_ROWS, got=f"{not_finite(values)} in {place}")
        return DataError("X", self.function, expected=FINITE_LABELS, got=f"-inf at the label of {place}")


def _can_name_columns(distinct: Collection[Any], rule: LabelRule) -> bool:
    """Whether columns without names can have these distinct labels as their names.

    >>> _can_name_columns([1, 2], LabelRule(2)), _can_name_columns([0, 1, 7], LabelRule(2))
    (True, False)
    """
    try:
        sorted_classes(distinct, rule)
    except LabelError:
        return False
    return True


def moved_error(where: str, function: str) -> LabelError:
    """The error about labels that count columns which are in several orders."""
    expected = "names of classes where files have their columns in several orders"
    return LabelError("y", function, expected=expected, got=f"column numbers in {where}, which has another order")


def numbers_of_text(classes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Classes of a file, whose text of whole numbers is numbers: in CSV everything is text. Codes such as 01 stay text.

    >>> numbers_of_text(("-1", "1.0")), numbers_of_text(("01", "02")), numbers_of_text(("True", "False"))
    ((-1, 1), ('01', '02'), ('True', 'False'))
    """
    numbers = tuple(label_key(name) for name in classes)
    are_plain = all(
        isinstance(number, int) and str(name).partition(".")[0] == str(number)
        for name, number in zip(classes, numbers, strict=True)
    )
    return numbers if are_plain else classes


def _has_groups(groups: Any) -> bool:
    return groups is not None and not (isinstance(groups, Mapping) and not groups)
