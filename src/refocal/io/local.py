"""Data sets that are processed in this process, one block after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

from refocal.engine.blocked import Ask, BlockedDataset
from refocal.engine.passes import Partial, Pass, finish, merge, reduce_chunks
from refocal.engine.reading import Chunk, Reading
from refocal.io.parts import PairsPart, Part

Map: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""A function like Python's `map`: what a function says of each of some things, in their order."""


class LocalDataset(BlockedDataset):
    """Parts read in this process; memory holds two blocks at a time, whatever the number of rows."""

    def __init__(self, parts: Sequence[Part], reading: Reading) -> None:
        super().__init__(reading, n_rows_of(parts))
        self.parts = list(parts)

    def go_through(self, task: Pass) -> tuple[Partial, Ask]:
        """The answer of all chunks; the next one is read while a chunk is worked on."""
        done = 0

        def tell(n_rows: int) -> None:
            nonlocal done
            done += n_rows
            if self.watch is not None:
                self.watch(done, self.n_given)

        chunks: Iterator[Chunk] = chain.from_iterable(part.blocks() for part in self.parts)
        if not any(isinstance(part, PairsPart) for part in self.parts):  # a caller's own code stays in its thread
            chunks = _ahead(chunks)
        whole = reduce_chunks(chunks, self.reading, task, tell)
        self.n_given = done
        return finish(task, whole), lambda question: question(whole.answer)

    def __repr__(self) -> str:
        size = "rows" if self.n_given is None else f"{self.n_given:,} rows"
        return f"Dataset({size} in {len(self.parts):,} parts, {self.reading.n_classes:,} classes, {self.reading.input})"


class MappedDataset(BlockedDataset):
    """Parts that a function like Python's `map` goes through, in threads, processes or on other machines."""

    answers_travel = True

    def __init__(self, parts: Sequence[Part], reading: Reading, map: Map) -> None:  # noqa: A002
        super().__init__(reading, n_rows_of(parts))
        self.parts, self.map = list(parts), map

    def go_through(self, task: Pass) -> tuple[Partial, Ask]:
        """The answer of all parts, merged here in their order."""
        whole, done = Partial(None, 0, 0), 0
        for found in self.map(partial(_reduce_part, self.reading, task), self.parts):
            whole, done = merge(task, whole, found), done + found.n_rows + found.n_skipped
            if self.watch is not None:
                self.watch(done, None)
        return finish(task, whole), lambda question: question(whole.answer)

    def __repr__(self) -> str:
        kind = f"{self.reading.n_classes:,} classes, {self.reading.input}"
        return f"Dataset({len(self.parts):,} parts of a map, {kind})"


def n_rows_of(parts: Sequence[Part]) -> int | None:
    """How many rows parts have together, if that is known before they are read."""
    sizes = [part.n_rows for part in parts]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _reduce_part(reading: Reading, task: Pass, part: Part) -> Partial:
    return reduce_chunks(part.blocks(), reading, task)


def _ahead(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The same chunks, each read while the one before is in use."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, chunks, None)
        while (chunk := coming.result()) is not None:
            coming = reader.submit(next, chunks, None)
            yield chunk
