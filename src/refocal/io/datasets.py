"""Data sets in blocks, processed in this process, by a function like Python's `map`, or by Dask."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from operator import methodcaller
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from refocal._arrays import is_dask, to_numpy
from refocal._clusters import UNNAMED
from refocal._groups import columns_of_groups, exact
from refocal._validation import check_iterable
from refocal.engine.blocked import Ask, BlockedDataset
from refocal.engine.passes import Partial, Pass, finish, merge, reduce_chunks
from refocal.errors import ClusterError, DataError, LabelError, ParameterError, ShapeError, need
from refocal.io.parts import PairsPart, Part, array_parts, n_columns, one_chunk
from refocal.rows import Predictions, RawRows, RowReader
from refocal.rows.class_names import check_class_names, names_in_order
from refocal.rows.gate import check_same_order, names_of_columns
from refocal.rows.keys import categories_of, label_key, number_keys
from refocal.rows.labels import IgnoreIndex, LabelRule, used_categories
from refocal.rows.marks import check_marks
from refocal.rows.positive import check_series
from refocal.rows.scores import column_names

Map: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""A function like Python's `map`: the results of a function for some items, in their order."""
CONNECT_SECONDS = 10.0
_PAIRS = "pairs of logits and labels, with weights or without"


def blocks(
    pairs: Iterable[Any],
    *,
    input: str = "logits",  # noqa: A002
    class_names: Sequence[str] | None = None,
    first_label: int | None = None,
    positive_label: Any = None,
    ignore_index: IgnoreIndex = None,
    clusters: str | None = None,
    skip_bad_rows: bool = False,
) -> BlockedDataset:
    """Rows from any iterable of (logits, labels) or (logits, labels, weights) that can be iterated again.

    A fourth entry has the groups of the rows, in every block or in none: one array, or several by their names; weights
    may then be None. `clusters` names the column among them that has the clusters of the rows, such as customers. With
    `class_names`, one for each column, labels may be these names. The columns of data frames are names of classes,
    and may be in another order in each block. Rows whose label is `ignore_index` are left out.

    >>> import numpy as np
    >>> from refocal import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> class Days:
    ...     def __iter__(self):
    ...         for day in range(3):
    ...             rng = np.random.default_rng(day)
    ...             logits = 2.0 * rng.normal(size=(4000, 5))
    ...             yield 1.5 * logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> round(TemperatureScaling().fit(blocks(Days())).temperature_, 1)
    1.5
    """
    if isinstance(pairs, Iterator):
        expected = "iterable more than once: a list, or an object whose __iter__ begins again"
        raise DataError("pairs", "blocks", expected=expected, got=f"a {type(pairs).__name__}")
    check_iterable(pairs, "pairs", "blocks", _PAIRS)
    scores = None
    labels = None
    groups = None
    for pair in pairs:
        if isinstance(pair, Predictions):
            raise DataError("pairs", "blocks", expected=_PAIRS, got="Predictions, which fits take as they are")
        if not isinstance(pair, Sequence):
            raise DataError("pairs", "blocks", expected=_PAIRS, got=f"a {type(pair).__name__} in place of a pair")
        if n_columns(np.shape(pair[0])) is not None:
            scores = pair[0]
            labels = pair[1]
            groups = pair[3] if len(pair) == 4 else None
            if len(scores):  # a block without rows says nothing of labels and groups
                break
    if scores is None:
        raise ShapeError("pairs", "blocks", expected="blocks of two-dimensional logits", got="none")
    n_classes = n_columns(np.shape(scores)) or 2
    columns = column_names(scores)
    whole_names: tuple[str, ...] = ()
    if class_names is None:
        class_names, whole_names = names_of_columns(columns)
    else:
        class_names = names_in_order(class_names, "blocks")
        check_same_order(class_names, columns, "blocks")
        whole_names = tuple(str(name) for name in class_names)
    if len(np.shape(scores)) == 1:
        is_zero = class_names is None and number_keys([positive_label]) == [0]  # the positive class is then called 0
        check_series(scores, (1, 0) if is_zero else class_names, "pairs", "blocks")
    reader = RowReader(
        n_classes,
        input,
        check_class_names(class_names, n_classes, "blocks"),
        whole_names,
        columns=columns,
        first_label=first_label,
        positive_label=positive_label,
        ignore_index=check_marks(ignore_index, "blocks"),
        skip_bad_rows=skip_bad_rows,
        types_classes=not _are_numbers(labels),
        function="blocks",
        clusters=clusters,
        group_columns=tuple(columns_of_groups(groups)),
    )
    return LocalDataset([PairsPart(pairs)], reader.in_order_of_numbers())


def rows_of(
    X: Any,  # noqa: N803
    y: Any,
    sample_weight: Any = None,
    *,
    input: str = "logits",  # noqa: A002
    groups: Any = None,
    clusters: Any = None,
    class_names: Sequence[str] | None = None,
    ignore_index: IgnoreIndex = None,
    skip_bad_rows: bool = False,
    client: Any = None,
) -> BlockedDataset:
    """Rows of arrays that are not in memory: memory-mapped, Zarr, or Dask (arrays, or a DataFrame of the classes).

    `y` and `sample_weight` of a DataFrame are names of its columns, or Dask Series of the same partitions; `groups` is
    a list of names. Of arrays `groups` is one more array, or several by their names. `clusters`, of which rows are not
    independent, are the name of a column, or one more array. The columns of a DataFrame are
    names of classes. Labels of columns without names stand for them in sorted order, as in memory, unless `class_names`
    gives another or they are column numbers.

    >>> import dask.array
    >>> from refocal import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = 2.0 * rng.normal(size=(4000, 5))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> X, y = dask.array.from_array(1.5 * logits, chunks=(1000, 5)), dask.array.from_array(labels, chunks=1000)
    >>> rows = rows_of(X, y)
    >>> round(TemperatureScaling().fit(rows).temperature_, 1)
    1.5
    """
    cluster_name: str | None = None
    if clusters is not None:
        cluster_name = clusters if isinstance(clusters, str) else UNNAMED
    reading = _Reading(input, class_names, ignore_index, skip_bad_rows, cluster_name)
    return _rows(X, y, sample_weight, groups, clusters, reading, client)


def rows_of_fit(
    X: Any,  # noqa: N803
    y: Any,
    sample_weight: Any = None,
    *,
    input: str = "logits",  # noqa: A002
    ignore_index: IgnoreIndex = None,
) -> BlockedDataset:
    """The same for `fit(X, y)`, which keeps the order of the columns of a DataFrame."""
    reading = _Reading(input, None, ignore_index, skip_bad_rows=False, clusters=None, keeps_order=True)
    return _rows(X, y, sample_weight, None, None, reading, None)


def _rows(
    X: Any,  # noqa: N803
    y: Any,
    sample_weight: Any,
    groups: Any,
    clusters: Any,
    reading: _Reading,
    client: Any,
) -> BlockedDataset:
    """Rows of arrays that are not in memory, read as the arguments of `rows_of` say."""
    if y is None:
        raise LabelError("y", "rows_of", expected="given, one label for each row of X", got="None")
    if not hasattr(X, "shape"):
        expected = "an array, or a collection of Dask (fits take lists and Predictions as they are)"
        raise DataError("X", "rows_of", expected=expected, got=f"a {type(X).__name__}")
    is_collection = hasattr(X, "to_dask_array")  # a DataFrame or a Series of Dask
    columns = tuple(X.columns) if is_collection and hasattr(X, "columns") else None
    if columns is not None and (isinstance(y, str) or hasattr(y, "to_dask_array")):
        return _of_frame(X, y, sample_weight, groups, reading, client)
    if columns is not None:
        # An array in memory knows its length, and that of the rows is then counted.
        X = X.to_dask_array(lengths=None if is_dask(y) else True)  # noqa: N806
    elif is_collection:  # a Series of one number per row
        X = X.to_dask_array()  # noqa: N806
    n_classes = n_columns(X.shape)
    if n_classes is None:
        raise ShapeError("X", "fit", expected="two-dimensional", got=f"shape {tuple(X.shape)}")
    reader = reading.reader(n_classes, columns, y)
    if is_collection and columns is None and hasattr(y, "to_dask_array"):
        y = y.to_dask_array()
    by_name = columns_of_groups(groups)
    if reading.clusters is not None:
        by_name[reading.clusters] = clusters
    if is_dask(X):
        return _of_dask_arrays(X, y, sample_weight, by_name, reader, client)
    where = getattr(X, "filename", None) or getattr(X, "path", None) or "X"
    return of_parts(array_parts(X, y, sample_weight, by_name, str(where)), reader, client=client)


class _Reading(NamedTuple):
    """How rows of arrays are read; the arguments of `rows_of`."""

    input: str
    class_names: Sequence[str] | None
    ignore_index: IgnoreIndex
    skip_bad_rows: bool
    clusters: str | None
    """Under which name the clusters are."""
    keeps_order: bool = False
    """Whether columns called 0 … C-1, or False and True, keep the order of a DataFrame, as in a fit."""

    def reader(
        self, n_classes: int, columns: Sequence[Any] | None, labels: Any, *, clusters_are_groups: bool = False
    ) -> RowReader:
        """The reader of rows of so many classes, whose columns may have names; labels are looked at."""
        names, whole_names = names_of_columns(None if columns is None else tuple(columns))
        if self.class_names is not None and columns is not None:
            check_same_order(self.class_names, tuple(columns), "rows_of")
        has_names = names is not None or self.class_names is not None
        sorts = not has_names and not _are_column_numbers(labels, n_classes)
        if sorts:
            _check_categories(labels, LabelRule(n_classes, sorts=True, argument="y", function="fit"))
        reader = RowReader(
            n_classes,
            self.input,
            check_class_names(names if self.class_names is None else self.class_names, n_classes, "fit"),
            whole_names if self.class_names is None else (),
            ignore_index=check_marks(self.ignore_index, "fit"),
            sorts=sorts,
            skip_bad_rows=self.skip_bad_rows,
            types_classes=not _are_numbers(labels),
            clusters=self.clusters,
            clusters_are_groups=clusters_are_groups,
        )
        if not self.keeps_order:
            return reader.in_order_of_numbers()
        are_words = names is not None and not any(isinstance(number, int) for number in number_keys(names))
        if are_words and _are_numbers(labels):  # they count the columns, and come back as they are
            return replace(reader, classes=tuple(range(n_classes)))
        return reader


def _of_frame(frame: Any, y: Any, sample_weight: Any, groups: Any, reading: _Reading, client: Any) -> DaskDataset:
    """The rows of a Dask DataFrame with labels in it or beside it: each partition is a leaf.

    A Series beside the frame has partitions of its own, so it is joined as a column. Dask joins by the index, whereas
    rows in memory are matched by their places: both must agree.
    """
    if not (sample_weight is None or isinstance(sample_weight, str) or hasattr(sample_weight, "to_dask_array")):
        expected = "the name of a column of X, or a Dask Series, as y is"
        raise ParameterError("sample_weight", "fit", expected=expected, got=f"a {type(sample_weight).__name__}")
    given = {"refocal y": y, "refocal weight": sample_weight}
    series = {name: vector for name, vector in given.items() if hasattr(vector, "to_dask_array")}
    places = {f"place of {name}": _places_of(vector) for name, vector in series.items()}
    frame = frame.assign(**{PLACE: _places_of(frame)}, **series, **places)
    label_column = "refocal y" if "refocal y" in series else y
    weight_column = "refocal weight" if "refocal weight" in series else sample_weight
    group_columns = [groups] if isinstance(groups, str) else list(groups or ())
    clusters_are_groups = reading.clusters in group_columns
    if reading.clusters is not None and not clusters_are_groups:
        group_columns.append(reading.clusters)
    group_columns = list(dict.fromkeys(group_columns))
    named = [name for name in (label_column, weight_column, *group_columns) if name is not None]
    missing = next((name for name in named if name not in frame.columns), None)
    if missing is not None:
        raise DataError("y", "fit", expected=f"a column of X: {list(frame.columns)}", got=repr(missing))
    classes = [name for name in frame.columns if name not in (*named, PLACE, *places)]

    def chunks_of(where: str, rows: Any) -> list[RawRows]:
        for name, place in zip(series, places, strict=True):
            if not rows[place].equals(rows[PLACE].astype(rows[place].dtype)):
                argument = "y" if name == label_column else "sample_weight"
                expected = "a Series with the index of X, in the same order"
                raise DataError(argument, "fit", expected=expected, got=f"another index in {where}")
        columns = {name: rows[name].to_numpy() for name in named}
        by_name = {name: columns[name] for name in group_columns}
        weight = columns.get(weight_column)
        return one_chunk(rows[classes].to_numpy(), columns[label_column], weight, by_name, where)

    reader = reading.reader(len(classes), classes, frame[label_column], clusters_are_groups=clusters_are_groups)
    partitions = frame[[*classes, *named, PLACE, *places]].to_delayed()
    pieces = ((f"partition {i}", partition) for i, partition in enumerate(partitions))
    return DaskDataset(chunks_of, pieces, reader, client)


# The place of each row in its partition, as a column beside those of a Dask DataFrame.
PLACE = "refocal place"


def _places_of(frame: Any) -> Any:
    """The place of each row of a Dask DataFrame or Series in its partition."""
    import pandas as pd  # type: ignore[import-untyped]

    def places(part: Any) -> Any:
        return pd.Series(np.arange(len(part)), index=part.index)

    return frame.map_partitions(places, meta=pd.Series(dtype=np.int64))


def _are_numbers(labels: Any) -> bool:
    """Whether labels are stored as numbers, which are neither text nor truths."""
    kind = getattr(getattr(labels, "dtype", None), "kind", None)
    if kind is None:  # lists, and arrays of torch and polars, whose types are of another kind
        kind = to_numpy(labels).dtype.kind
    return kind in "iuf"


def _are_column_numbers(labels: Any, n_classes: int) -> bool:
    """Whether labels are stored as numbers that all are column numbers, or cannot be told without a pass."""
    labels = labels if hasattr(labels, "dtype") else np.asarray(labels)
    kind = getattr(labels.dtype, "kind", "O")
    if kind not in "iuf":
        return kind == "b"
    if is_dask(labels):
        import dask

        lowest, highest = dask.compute(labels.min(), labels.max())
    else:
        values = labels[...]
        lowest, highest = (values.min(), values.max()) if len(values) else (0, 0)
    return bool(np.isnan(lowest) or np.isnan(highest) or (lowest >= 0 and highest < n_classes))


def _check_categories(labels: Any, rule: LabelRule) -> None:
    """Refuse categories in an order of their own, as in memory: columns without names may be in either order.

    Of labels that are not in memory all categories count, whichever occur.
    """
    categories = categories_of(labels)
    if categories is None:
        return
    occurring = categories if is_dask(labels) else set(np.asarray(labels).tolist())
    used_categories(categories, {label_key(label) for label in occurring}, rule)


def _of_dask_arrays(
    values: Any, labels: Any, weight: Any, groups: Mapping[str, Any], reader: RowReader, client: Any
) -> DaskDataset:
    """Dask arrays: each chunk of rows is a leaf."""
    import dask.array as da

    values = values if values.ndim == 1 else values.rechunk({1: -1})
    function = reader.function
    sizes = values.chunks[0]

    def aligned(vector: Any, name: str) -> Any:
        """A vector in the chunks of the rows."""
        if vector is None:
            return [None] * len(sizes)
        if not isinstance(vector, da.Array):
            vector = da.from_array(exact(vector) if name == "groups" else np.asarray(vector), chunks=-1)
        if vector.ndim != 1:
            raise ShapeError(name, function, expected="one-dimensional", got=f"shape {vector.shape}")
        theirs = vector.chunks[0]
        is_known = not np.isnan([*sizes, *theirs]).any()
        count, unit = (sum, "rows") if is_known else (len, "chunks of unknown length")
        wanted = count(sizes)
        given = count(theirs)
        if wanted != given:
            raise ShapeError(name, function, expected=f"of {wanted} {unit}, as X has", got=f"{given} {unit}")
        return (vector.rechunk((sizes,)) if is_known else vector).to_delayed()

    vectors = aligned(labels, "y"), aligned(weight, "sample_weight")
    columns = {name: aligned(vector, "groups") for name, vector in groups.items()}
    firsts = np.nan_to_num(np.cumsum([0, *sizes[:-1]]))
    pieces = (
        (*arrays, {name: each[i] for name, each in columns.items()}, f"chunk {i}", int(firsts[i]), function)
        for i, arrays in enumerate(zip(values.to_delayed().reshape(len(sizes)), *vectors, strict=True))
    )
    return DaskDataset(one_chunk, pieces, reader, client)


class LocalDataset(BlockedDataset):
    """Parts read in this process, where memory holds two blocks at a time, or wherever `map` reads them."""

    def __init__(self, parts: Sequence[Part], reader: RowReader, map: Map | None = None) -> None:  # noqa: A002
        sizes = [part.n_rows for part in parts]
        super().__init__(reader, None if None in sizes else sum(size or 0 for size in sizes))
        self.parts = list(parts)
        self.map = map
        self.answers_travel = map is not None

    def go_through(self, task: Pass[Any]) -> tuple[Partial, Ask]:
        """The answer of all parts, merged in their order."""
        whole = Partial(None, 0, 0)
        done = 0
        n_answers = 0
        for found in self._partials(task):
            n_answers += 1
            whole = merge(task, whole, found)
            done = done + found.n_seen
            if self.watch is not None:
                self.watch(done, self.n_given)
        if self.map is not None and n_answers != len(self.parts):
            expected = f"like Python's map: one answer for each of {len(self.parts):,} parts"
            raise DataError("map", self.reader_for(task).function, expected=expected, got=f"{n_answers:,} answers")
        self.n_given = done
        return finish(task, whole), lambda question: question(whole.answer)

    def _partials(self, task: Pass[Any]) -> Iterable[Partial]:
        if self.map is not None:
            return self.map(partial(reduce_chunks, methodcaller("blocks"), self.reader_for(task), task), self.parts)
        chunks = _chunks_of(self.parts)
        if not any(isinstance(part, PairsPart) for part in self.parts):  # a caller's own code stays in its thread
            chunks = _ahead(chunks)
        reader = self.reader_for(task)
        return (reduce_chunks(iter, reader, task, [chunk]) for chunk in chunks)

    def __repr__(self) -> str:
        size = "rows" if self.n_given is None else f"{self.n_given:,} rows"
        return f"Dataset({size} in {len(self.parts):,} parts, {self.n_classes:,} classes, {self.input})"


def _chunks_of(parts: Sequence[Part]) -> Iterator[RawRows]:
    return chain.from_iterable(part.blocks() for part in parts)


def _ahead(chunks: Iterator[RawRows]) -> Iterator[RawRows]:
    """The same chunks, each read while the one before is in use."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, chunks, None)
        while (chunk := coming.result()) is not None:
            coming = reader.submit(next, chunks, None)
            yield chunk


class DaskDataset(BlockedDataset):
    """Pieces of data that Dask goes through: by threads of this process, processes of this machine, or a cluster.

    A pass is a tree: each leaf reads its rows where they are, as chunks that `chunks_of` makes of a piece, and answers
    in a few numbers, answers are merged eight at a time, and the root comes back. A leaf or a join that is lost with
    its worker is done again by Dask; the tree is the same whoever computes it, so the answer is, to the last bit.
    `client` is a distributed one; None takes what is in force, or else threads.
    """

    answers_travel = True

    def __init__(
        self,
        chunks_of: Callable[..., Iterable[RawRows]],
        pieces: Iterable[Sequence[Any]],
        reader: RowReader,
        client: Any,
    ) -> None:
        super().__init__(reader)
        self.chunks_of = chunks_of
        self.pieces = list(pieces)
        self.client = client if client is not None else current_client()

    def go_through(self, task: Pass[Any]) -> tuple[Partial, Ask]:
        """The answer of all leaves; the whole answer stays with the worker that merged it, which is asked for more."""
        from dask import delayed

        # One node holds the pass: the others name it, and are small.
        shared = delayed(task, pure=False, traverse=False)
        reduce = delayed(partial(reduce_chunks, self.chunks_of, self.reader_for(task)), pure=False)
        level = leaves = [reduce(shared, *piece) for piece in self.pieces]
        fan_in = 8  # answers that are merged together
        while len(level) > 1 or level is leaves:
            groups = [level[i : i + fan_in] for i in range(0, len(level), fan_in)]
            level = [delayed(merge, pure=False)(shared, *group) for group in groups]
        root = level[0]
        if self.client is None:
            whole = root.compute()
            self.n_given = whole.n_seen
            return finish(task, whole), lambda question: question(whole.answer)
        finished = delayed(finish, pure=False)(task, root)
        # If the worker that keeps the root dies, Dask computes it again.
        future, kept, *coming = self.client.compute([finished, root, *leaves])
        self._watch(coming)
        answer = result_of(future)
        self.n_given = answer.n_seen
        submit = partial(self.client.submit, pure=False)
        return answer, lambda question: result_of(submit(lambda whole: question(whole.answer), kept))

    def _watch(self, leaves: list[Any]) -> None:
        """Tell how many leaves are done; once joined they need not be kept."""
        done = 0

        def tell(leaf: Any) -> None:
            nonlocal done
            done += 1
            leaf.release()
            if self.watch is not None and self.n_given is not None:
                self.watch(self.n_given * done // len(leaves), self.n_given)

        for leaf in leaves:
            leaf.add_done_callback(tell)

    def __repr__(self) -> str:
        kind = f"{self.n_classes:,} classes, {self.input}"
        return f"Dataset({len(self.pieces):,} leaves of a Dask tree, {kind})"


def connect(scheduler: str) -> Any:
    """A client of the scheduler at an address such as tcp://host:8786.

    >>> from unittest.mock import patch
    >>> with patch("distributed.Client") as client:  # stands for a cluster that is there
    ...     _ = connect("tcp://host:8786")
    >>> client.call_args.args
    ('tcp://host:8786',)
    """
    distributed = need("distributed", "dask", "A scheduler")
    try:
        return distributed.Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ClusterError(f"{scheduler}: the scheduler cannot be reached: {reason}") from error


def current_client() -> Any:
    """The distributed client in force, if there is one."""
    with suppress(KeyError, ValueError):  # distributed was not imported, or there is no client
        return sys.modules["distributed"].get_client()
    return None


def of_parts(
    parts: Sequence[Part], reader: RowReader, scheduler: str | None = None, client: Any = None, by: Map | None = None
) -> BlockedDataset:
    """Parts that this process goes through, or a function like `map`, or the workers of a scheduler.

    The workers get as many groups of them as keep all busy; these are sent once, and later passes only name them.
    """
    if client is None and scheduler is not None:
        client = connect(scheduler)
    if client is None or by is not None:
        return LocalDataset(parts, reader, by)
    from dask import delayed

    leaves_per_thread = 4  # several, so that a slow one does not keep all others waiting
    n_groups = min(len(parts), leaves_per_thread * max(1, sum(client.nthreads().values())))
    cuts = [len(parts) * i // n_groups for i in range(n_groups + 1)]
    groups = [delayed(list(parts[a:b]), pure=False, traverse=False) for a, b in pairwise(cuts)]
    return DaskDataset(_chunks_of, ((group,) for group in client.persist(groups)), reader, client)


def result_of(future: Any) -> Any:
    """The result of a future; problems of the cluster are raised as one line."""
    try:
        return future.result()
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "distributed":
            raise
        reason = " ".join(str(error).split())
        raise ClusterError(f"the cluster gave no answer: {type(error).__name__}: {reason[:300]}") from error
