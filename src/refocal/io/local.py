"""Data sets that are processed in this process, one block after the other, or by a function like Python's `map`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from operator import methodcaller
from typing import Any, TypeAlias

from refocal.engine.blocked import Ask, BlockedDataset
from refocal.engine.passes import Partial, Pass, finish, merge, reduce_chunks
from refocal.engine.reading import Chunk, Reading
from refocal.io.parts import PairsPart, Part

Map: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""A function like Python's `map`: what a function says of each of some things, in their order."""


class LocalDataset(BlockedDataset):
    """Parts read in this process, where memory holds two blocks at a time, or wherever `map` reads them."""

    def __init__(self, parts: Sequence[Part], reading: Reading, map: Map | None = None) -> None:  # noqa: A002
        sizes = [part.n_rows for part in parts]
        super().__init__(reading, None if None in sizes else sum(size or 0 for size in sizes))
        self.parts, self.map, self.answers_travel = list(parts), map, map is not None

    def go_through(self, task: Pass) -> tuple[Partial, Ask]:
        """The answer of all parts, merged in their order."""
        whole, done = Partial(None, 0, 0), 0
        for found in self._partials(task):
            whole, done = merge(task, whole, found), done + found.n_rows + found.n_skipped
            if self.watch is not None:
                self.watch(done, self.n_given)
        self.n_given = done
        return finish(task, whole), lambda question: question(whole.answer)

    def _partials(self, task: Pass) -> Iterable[Partial]:
        if self.map is not None:
            return self.map(partial(reduce_chunks, methodcaller("blocks"), self.reading, task), self.parts)
        chunks: Iterator[Chunk] = chain.from_iterable(part.blocks() for part in self.parts)
        if not any(isinstance(part, PairsPart) for part in self.parts):  # a caller's own code stays in its thread
            chunks = _ahead(chunks)
        return (reduce_chunks(iter, self.reading, task, [chunk]) for chunk in chunks)

    def __repr__(self) -> str:
        size = "rows" if self.n_given is None else f"{self.n_given:,} rows"
        return f"Dataset({size} in {len(self.parts):,} parts, {self.reading.n_classes:,} classes, {self.reading.input})"


def _ahead(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The same chunks, each read while the one before is in use."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, chunks, None)
        while (chunk := coming.result()) is not None:
            coming = reader.submit(next, chunks, None)
            yield chunk
