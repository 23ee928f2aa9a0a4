"""A pass over rows in blocks: what is computed for each block, and how the answers are merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from refocal.engine.block import Block
    from refocal.rows import RawRows, RowReader

T = TypeVar("T")


@dataclass(frozen=True)
class Pass(Generic[T]):
    """The function of a block, how two answers are merged, and what to extract from the final one.

    All of it can be pickled, and answers can be merged in any order, so the blocks may be on other machines.

    >>> from refocal.io import blocks
    >>> rows = blocks([([[2.0, 0.0], [0.0, 1.0]], [0, 1]), ([[1.0, 0.0]], [1])])
    >>> rows.reduce(Pass(map=lambda block: int(block.correct.sum()), merge=lambda one, other: one + other))
    2
    """

    map: Callable[[Block], T]
    merge: Callable[[T, T], T]
    finish: Callable[[T], Any] | None = None
    check: bool = False
    """Whether the rows still need to be checked."""
    of_raw_rows: bool = False
    """Whether `map` takes `RawRows`, before anything is known of their labels, instead of a block."""


class Partial(NamedTuple):
    """The answer of some blocks (None if they have no rows), with the numbers of rows used and skipped.

    >>> Partial(answer=2.5, n_rows=10, n_skipped=1).n_rows
    10
    """

    answer: Any
    n_rows: int
    n_skipped: int
    n_left_out: int = 0
    """Rows without a label, or of weight 0."""
    n_by_name: int = 0
    """Blocks whose labels were read by the names of the columns."""
    n_by_number: int = 0
    """Blocks whose labels were read as column numbers, beside names of columns."""

    @property
    def n_seen(self) -> int:
        """All rows, used or not."""
        return self.n_rows + self.n_skipped + self.n_left_out


def partial(block: Block, task: Pass[Any]) -> Partial:
    """The result of a pass for one block: a few numbers that can be sent, merged in any order, and finished.

    >>> import numpy as np
    >>> from refocal.engine import Block
    >>> hits = Pass(map=lambda block: int(block.correct.sum()), merge=lambda one, other: one + other)
    >>> parts = [partial(Block(np.eye(3), np.array(labels)), hits) for labels in ([0, 1, 1], [0, 1, 2])]
    >>> finish(hits, merge(hits, *parts))
    Partial(answer=5, n_rows=6, n_skipped=0, n_left_out=0, n_by_name=0, n_by_number=0)
    """
    return Partial(task.map(block) if block.n_rows else None, block.n_rows, 0)


def reduce_chunks(
    chunks_of: Callable[..., Iterable[RawRows]], reader: RowReader, task: Pass[Any], *piece: Any
) -> Partial:
    """Map the raw rows of a piece of data one by one and merge their answers; the caller finishes the whole."""
    from refocal.engine.block import Block

    total = Partial(None, 0, 0)
    for raw in chunks_of(*piece):
        n_given = len(raw.values)
        if task.of_raw_rows:
            part = Partial(task.map(raw), n_given, raw.n_lost)  # type: ignore[arg-type]
        else:
            rows, n_bad = reader.read(raw, task.check)
            part = partial(Block.of(rows), task)
            is_read_by_name = rows.label_map is not None and rows.label_map.columns is not None
            part = part._replace(
                n_skipped=n_bad + raw.n_lost,
                n_left_out=n_given - len(rows) - n_bad,
                n_by_name=int(is_read_by_name and len(rows) > 0),
                n_by_number=int(not is_read_by_name and len(rows) > 0),
            )
        total = merge(task, total, part)
    return total


def merge(task: Pass[Any], *parts: Partial) -> Partial:
    """Several answers merged into one.

    >>> total = Pass(map=lambda block: block.n_rows, merge=max)
    >>> merge(total, Partial(3, 3, 0), Partial(None, 0, 2), Partial(4, 4, 0))
    Partial(answer=4, n_rows=7, n_skipped=2, n_left_out=0, n_by_name=0, n_by_number=0)
    """
    total = parts[0]
    for part in parts[1:]:
        if total.answer is None:
            answer = part.answer
        elif part.answer is None:
            answer = total.answer
        else:
            answer = task.merge(total.answer, part.answer)
        total = Partial(
            answer=answer,
            n_rows=total.n_rows + part.n_rows,
            n_skipped=total.n_skipped + part.n_skipped,
            n_left_out=total.n_left_out + part.n_left_out,
            n_by_name=total.n_by_name + part.n_by_name,
            n_by_number=total.n_by_number + part.n_by_number,
        )
    return total


def finish(task: Pass[Any], total: Partial) -> Partial:
    """The final result, from the merged answer.

    >>> half = Pass(map=lambda block: block.n_rows, merge=max, finish=lambda answer: answer / 2)
    >>> finish(half, Partial(3, 3, 0)).answer
    1.5
    """
    if task.finish is None or total.answer is None:
        return total
    return total._replace(answer=task.finish(total.answer))
