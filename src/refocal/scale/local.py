"""Rows that are walked through in this process, one block after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from refocal.scale.parts import PairsPart, Part
from refocal.search.rows import Ask, Block, Job, Reading, Rows, Walked, finish_walked, walk_blocks


class LocalRows(Rows):
    """Parts read in this process; memory holds two blocks at a time, whatever the number of rows."""

    def __init__(self, parts: Sequence[Part], reading: Reading) -> None:
        self.parts = list(parts)
        self.reading = reading
        sizes = [part.n_rows for part in self.parts]
        self.n_rows = None if None in sizes else sum(size or 0 for size in sizes)

    def walk(self, job: Job) -> Walked:
        """Do a job on all blocks; the next one is read while a block is worked on."""
        return self.walk_and_keep(job)[0]

    def walk_and_keep(self, job: Job) -> tuple[Walked, Ask]:
        """The same, and the answer for questions to come."""
        done = 0

        def tell(n_rows: int) -> None:
            nonlocal done
            done += n_rows
            if self.watch is not None:
                self.watch(done, self.n_rows)

        blocks: Iterator[Block] = chain.from_iterable(part.blocks() for part in self.parts)
        if not any(isinstance(part, PairsPart) for part in self.parts):  # a caller's own code stays in its thread
            blocks = _ahead(blocks)
        walked = walk_blocks(blocks, self.reading, job, tell)
        self.n_rows = done
        return finish_walked(job, walked), lambda question: question(walked.answer)

    def __repr__(self) -> str:
        size = "rows" if self.n_rows is None else f"{self.n_rows:,} rows"
        return f"Rows({size} in {len(self.parts):,} parts, {self.reading.n_classes:,} classes, {self.reading.input})"


def _ahead(blocks: Iterator[Block]) -> Iterator[Block]:
    """The same blocks, each read while the one before is in use."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = reader.submit(next, blocks, None)
            yield block
