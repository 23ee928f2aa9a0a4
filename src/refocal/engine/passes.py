"""A pass over rows in blocks: what is computed of each block, and how the answers become one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from refocal.engine.block import Block
    from refocal.engine.reading import Chunk, Reading


@dataclass(frozen=True)
class Pass:
    """What is computed of every block, how two answers are merged, and what is wanted of the last one.

    All of it can be pickled, and merging answers in any order gives the same: the blocks may be anywhere.

    >>> from refocal.scale import blocks
    >>> rows = blocks([([[2.0, 0.0], [0.0, 1.0]], [0, 1]), ([[1.0, 0.0]], [1])])
    >>> rows.reduce(Pass(map=lambda block: int(block.correct.sum()), merge=lambda one, other: one + other))
    2
    """

    map: Callable[[Block], Any]
    merge: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any] | None = None
    check: bool = False
    """Whether the rows are still to be checked."""


class Partial(NamedTuple):
    """The answer of some blocks (None where they have no rows), and how many rows they have and were left out.

    >>> Partial(answer=2.5, n_rows=10, n_skipped=1).n_rows
    10
    """

    answer: Any
    n_rows: int
    n_skipped: int


def partial(block: Block, task: Pass) -> Partial:
    """What a pass finds in one block: a few numbers that can be sent anywhere, merged in any order, and finished.

    >>> import numpy as np
    >>> from refocal.engine import Block
    >>> hits = Pass(map=lambda block: int(block.correct.sum()), merge=lambda one, other: one + other)
    >>> parts = [partial(Block(np.eye(3), np.array(labels)), hits) for labels in ([0, 1, 1], [0, 1, 2])]
    >>> finish(hits, merge(hits, *parts))
    Partial(answer=5, n_rows=6, n_skipped=0)
    """
    return Partial(task.map(block) if block.n_rows else None, block.n_rows, 0)


def reduce_chunks(
    chunks: Iterable[Chunk], reading: Reading, task: Pass, tell: Callable[[int], None] | None = None
) -> Partial:
    """Map some chunks, one after the other, and merge their answers; `finish` is left to who has the whole answer."""
    total = Partial(None, 0, 0)
    for chunk in chunks:
        block = reading.prepared(chunk, task.check)
        n_skipped = len(chunk.labels) - block.n_rows + chunk.n_lost
        total = merge(task, total, partial(block, task)._replace(n_skipped=n_skipped))
        if tell is not None:
            tell(len(chunk.labels))
    return total


def merge(task: Pass, *parts: Partial) -> Partial:
    """Several answers as one.

    >>> total = Pass(map=lambda block: block.n_rows, merge=max)
    >>> merge(total, Partial(3, 3, 0), Partial(None, 0, 2), Partial(4, 4, 0))
    Partial(answer=4, n_rows=7, n_skipped=2)
    """
    total = parts[0]
    for part in parts[1:]:
        found = [each.answer for each in (total, part) if each.answer is not None]
        answer = task.merge(*found) if len(found) == 2 else found[0] if found else None
        total = Partial(answer, total.n_rows + part.n_rows, total.n_skipped + part.n_skipped)
    return total


def finish(task: Pass, total: Partial) -> Partial:
    """What is wanted of the whole answer.

    >>> half = Pass(map=lambda block: block.n_rows, merge=max, finish=lambda answer: answer / 2)
    >>> finish(half, Partial(3, 3, 0)).answer
    1.5
    """
    return total if task.finish is None or total.answer is None else total._replace(answer=task.finish(total.answer))
