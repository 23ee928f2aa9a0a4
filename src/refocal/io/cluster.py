"""Data sets that Dask computes: threads of this process, processes of this machine, or a cluster.

A pass is a tree: each leaf reads its rows where they are and answers in a few numbers, answers are merged eight at a
time, and the root comes back. A leaf or a join that is lost with its worker is done again by Dask; the tree is the same
whoever computes it, so the answer is, to the last bit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np

from refocal.engine.blocked import Ask, BlockedDataset
from refocal.engine.passes import Partial, Pass, finish, merge, reduce_chunks
from refocal.engine.reading import Chunk, Reading
from refocal.errors import ClusterError, RefocalError, ShapeError, need
from refocal.io.parts import Part, plain_chunk

FAN_IN = 8
# Leaves for each thread of the cluster: several, so that a slow one does not keep all others waiting.
LEAVES_PER_THREAD = 4
CONNECT_SECONDS = 10.0
# So many labels are looked at together.
SLICE = 1 << 20


class DaskDataset(BlockedDataset):
    """Leaves that Dask computes; `client` is a distributed one, None takes what is in force or else threads."""

    answers_travel = True

    def __init__(self, leaves: Sequence[Callable[[Any], Any]], reading: Reading, client: Any = None) -> None:
        super().__init__(reading)
        self.leaves = list(leaves)
        self.client = client if client is not None else current_client()

    def go_through(self, task: Pass) -> tuple[Partial, Ask]:
        """The answer of all leaves; the whole answer stays with the worker that merged it, and questions go there."""
        root, leaves = self._tree(task)
        ask: Ask
        if self.client is None:
            whole = root.compute()
            found, ask = finish(task, whole), lambda question: question(whole.answer)
        else:
            finished = need("dask", "dask", "refocal.io with Dask").delayed(finish, pure=False)(task, root)
            # Should the worker die that keeps the root, Dask makes it again.
            future, kept, *coming = self.client.compute([finished, root, *leaves])
            self._watch(coming)
            found = result_of(future)
            ask = lambda question: result_of(self.client.submit(_asked, question, kept, pure=False))  # noqa: E731
        self.n_given = found.n_rows + found.n_skipped
        return found, ask

    def _tree(self, task: Pass) -> tuple[Any, list[Any]]:
        """The root, not yet finished, and the leaves."""
        delayed = need("dask", "dask", "refocal.io with Dask").delayed
        # One node holds the pass: the others name it, and are small.
        shared = delayed(partial(_same, task), pure=False)()
        level = leaves = [leaf(shared) for leaf in self.leaves]
        while True:
            groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
            level = [delayed(merge, pure=False)(shared, *group) for group in groups]
            if len(level) == 1:
                return level[0], leaves

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
        kind = f"{self.reading.n_classes:,} classes, {self.reading.input}"
        return f"Dataset({len(self.leaves):,} leaves of a Dask tree, {kind})"


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
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_client()
    except ValueError:
        return None


def part_leaves(parts: Sequence[Part], reading: Reading, client: Any) -> list[Callable[[Any], Any]]:
    """Parts in as many groups as keep the cluster busy; the groups are sent once, and later passes only name them."""
    delayed = need("dask", "dask", "refocal.io with Dask").delayed
    threads = 8 if client is None else max(1, sum(client.nthreads().values()))
    n_groups = min(len(parts), LEAVES_PER_THREAD * threads)
    cuts = [len(parts) * i // n_groups for i in range(n_groups + 1)]
    groups = [delayed(partial(_same, list(parts[a:b])), pure=False)() for a, b in pairwise(cuts)]
    if client is not None:
        groups = client.persist(groups)
    return [_leaf(_chunks_of_parts, reading, group) for group in groups]


def array_leaves(
    values: Any, labels: Any, weight: Any, groups: Mapping[str, Any], reading: Reading
) -> list[Callable[[Any], Any]]:
    """One leaf for each chunk of rows of Dask arrays."""
    values = values.rechunk({1: -1})
    columns = [values.to_delayed()[:, 0]]
    for name, vector in (("y", labels), ("sample_weight", weight), *(("groups", each) for each in groups.values())):
        missing = [None] * len(columns[0])
        columns.append(missing if vector is None else _aligned(vector, values, name, reading.function).to_delayed())
    sizes = values.chunks[0]
    firsts = np.cumsum([0, *sizes]) if not np.isnan(sizes).any() else [0] * (len(sizes) + 1)
    return [
        _leaf(partial(_chunk_of_arrays, f"chunk {i}", int(firsts[i]), reading.function, list(groups)), reading, *arrays)
        for i, arrays in enumerate(zip(*columns, strict=True))
    ]


def frame_leaves(
    frame: Any, classes: list[str], labels: str, weight: str | None, groups: list[str], reading: Reading
) -> list[Callable[[Any], Any]]:
    """One leaf for each partition of a Dask DataFrame."""
    wanted = frame[[*classes, labels, *([] if weight is None else [weight]), *groups]]
    return [
        _leaf(partial(_chunk_of_frame, f"partition {i}", classes, labels, weight, groups), reading, partition)
        for i, partition in enumerate(wanted.to_delayed())
    ]


def distinct(labels: Any, client: Any) -> set[str]:
    """The different labels that are text, of a Dask array or Series or of anything that can be sliced."""
    if type(labels).__module__.startswith("dask"):
        parts = [need("dask", "dask", "refocal.io with Dask").delayed(_texts_of)(part) for part in _parts_of(labels)]
        client = client if client is not None else current_client()
        if client is not None:
            return set().union(*client.gather(client.compute(parts)))
        return set().union(*need("dask", "dask", "refocal.io with Dask").compute(*parts))
    return set().union(*(_texts_of(labels[i : i + SLICE]) for i in range(0, len(labels), SLICE)))


def _parts_of(labels: Any) -> list[Any]:
    return list(np.ravel(labels.to_delayed()))


def _texts_of(labels: Any) -> set[str]:
    return {label for label in set(np.asarray(labels).tolist()) if isinstance(label, str)}


def _aligned(vector: Any, values: Any, name: str, function: str) -> Any:
    """A vector in the chunks of the values' rows."""
    da = need("dask.array", "dask", "refocal.io with Dask")
    vector = vector if isinstance(vector, da.Array) else da.from_array(np.asarray(vector))
    if vector.ndim != 1:
        raise ShapeError(name, function, expected="one-dimensional", got=f"shape {vector.shape}")
    ours, theirs = values.chunks[0], vector.chunks[0]
    if np.isnan([*ours, *theirs]).any():
        if len(ours) != len(theirs):
            expected = f"in {len(ours)} chunks, as X: the lengths of some are not known"
            raise ShapeError(name, function, expected=expected, got=f"{len(theirs)} chunks")
        return vector
    if sum(ours) != sum(theirs):
        raise ShapeError(name, function, expected=f"of {sum(ours)} rows, as X has", got=f"{sum(theirs)} rows")
    return vector.rechunk((ours,))


def _leaf(chunks_of: Callable[..., Iterable[Chunk]], reading: Reading, *data: Any) -> Callable[[Any], Any]:
    """A leaf of the tree: what a pass, given later, finds in the chunks of some data."""
    delayed = need("dask", "dask", "refocal.io with Dask").delayed
    return partial(delayed(partial(_reduce, chunks_of, reading), pure=False), *data)


def _reduce(chunks_of: Callable[..., Iterable[Chunk]], reading: Reading, *data_and_task: Any) -> Partial:
    *data, task = data_and_task
    return reduce_chunks(chunks_of(*data), reading, task)


def _chunks_of_parts(parts: list[Part]) -> Iterable[Chunk]:
    return chain.from_iterable(part.blocks() for part in parts)


def _chunk_of_arrays(
    where: str, first: int, function: str, names: list[str], values: Any, labels: Any, weight: Any, *groups: Any
) -> Iterable[Chunk]:
    chunk = plain_chunk(values, labels, weight, where, first, function=function)
    return [chunk._replace(groups=dict(zip(names, groups, strict=True)))]


def _chunk_of_frame(
    where: str, classes: list[str], labels: str, weight: str | None, groups: list[str], frame: Any
) -> Iterable[Chunk]:
    weights = None if weight is None else frame[weight].to_numpy()
    columns = {name: frame[name].to_numpy() for name in groups}
    return [Chunk(frame[classes].to_numpy(), frame[labels].to_numpy(), weights, where, groups=columns)]


def result_of(future: Any) -> Any:
    """What a future holds; trouble of the cluster in one line."""
    try:
        return future.result()
    except RefocalError:
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "distributed":
            raise
        reason = " ".join(str(error).split())
        raise ClusterError(f"the cluster gave no answer: {type(error).__name__}: {reason[:300]}") from error


def _same(value: Any) -> Any:
    return value


def _asked(question: Callable[[Any], Any], kept: Partial) -> Any:
    return question(kept.answer)
