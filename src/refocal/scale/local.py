"""Data sets that are gone through in this process, one block after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from refocal.engine.blocked import Ask, BlockedDataset
from refocal.engine.passes import Partial, Pass, finish, reduce_chunks
from refocal.engine.reading import Chunk, Reading
from refocal.scale.parts import PairsPart, Part


class LocalDataset(BlockedDataset):
    """Parts read in this process; memory holds two blocks at a time, whatever the number of rows."""

    def __init__(self, parts: Sequence[Part], reading: Reading) -> None:
        super().__init__(reading)
        self.parts = list(parts)
        sizes = [part.n_rows for part in self.parts]
        self._n_given = None if None in sizes else sum(size or 0 for size in sizes)

    def go_through(self, task: Pass) -> tuple[Partial, Ask]:
        """The answer of all chunks; the next one is read while a chunk is worked on."""
        done = 0

        def tell(n_rows: int) -> None:
            nonlocal done
            done += n_rows
            if self.watch is not None:
                self.watch(done, self._n_given)

        chunks: Iterator[Chunk] = chain.from_iterable(part.blocks() for part in self.parts)
        if not any(isinstance(part, PairsPart) for part in self.parts):  # a caller's own code stays in its thread
            chunks = _ahead(chunks)
        whole = reduce_chunks(chunks, self.reading, task, tell)
        self._n_given = done
        return finish(task, whole), lambda question: question(whole.answer)

    def __repr__(self) -> str:
        size = "rows" if self._n_given is None else f"{self._n_given:,} rows"
        return f"Dataset({size} in {len(self.parts):,} parts, {self.reading.n_classes:,} classes, {self.reading.input})"


def _ahead(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The same chunks, each read while the one before is in use."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, chunks, None)
        while (chunk := coming.result()) is not None:
            coming = reader.submit(next, chunks, None)
            yield chunk
