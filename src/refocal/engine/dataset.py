"""What a fit needs from its data, whether one block in memory or many blocks elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

from refocal._arrays import Vector
from refocal.engine.cache import Cache
from refocal.engine.passes import Pass
from refocal.engine.protocol import Summed

if TYPE_CHECKING:
    from refocal.engine.block import Block

AnswerT = TypeVar("AnswerT")

SAMPLE_ROWS = 100_000
"""The most rows of the sample on which a grid is evaluated first."""

FEWEST_SAMPLE_ROWS = 600
"""Its fewest rows, however many classes they have."""

FINE_BINS = 5
"""`condensed` rows have 2⁵ bins an octave for Newton's method, which gives six digits of the log-loss."""


class Dataset(ABC):
    """Rows of logits with labels and weights, in blocks: a fit takes a few passes over them.

    `passes` counts the passes over all rows; `cache` keeps results that several fits on the same rows share.

    >>> import numpy as np
    >>> from refocal import TemperatureScaling
    >>> from refocal.io import blocks
    >>> X, y = np.array([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), [0, 1, 1]
    >>> together, apart = TemperatureScaling().dataset(X, y), blocks([(X[:2], y[:2]), (X[2:], y[2:])])
    >>> apart.start()
    >>> together.means("temperature", 1.0) == apart.means("temperature", 1.0)  # log-loss and its derivatives
    True
    """

    n_rows: int
    n_classes: int
    total_weight: float
    """The sum of all weights; the number of rows where there are none."""
    mean_gap: float
    """Mean distance from the top logit of a row to the others; 0 if all are equal."""
    precision: float
    """The machine epsilon that rows are computed in."""
    input: str = "logits"
    """What the columns held when they were read: logits, or probabilities of which the logarithm was taken."""
    in_memory: bool = False
    """Whether all rows are in memory, as one `Block`."""
    on_gpu: bool = False
    """Whether all rows are in the memory of a GPU."""
    answers_travel: bool = False
    """Whether the answers of a pass come from other processes or machines."""
    floor: float | None = None
    """Where the columns held probabilities: the logarithm of the smallest that counts, to which zeros are raised."""
    classes: NDArray[Any] | None = None
    """The class of each column; None: the column numbers."""
    columns: tuple[str, ...] = ()
    """The columns of a table that a caller named as those of the scores."""
    n_skipped = 0
    bad_parts: tuple[str, ...] = ()
    """For each file that was left out, the reason."""

    passes: int
    cache: Cache

    def start(self, *, look: bool = False) -> None:  # noqa: B027
        """Make sure that the rows are checked and counted; with `look`, also take the sample that `look` uses."""

    @abstractmethod
    def reduce(self, task: Pass[Any]) -> Any:
        """The answer of all blocks: one pass."""

    @abstractmethod
    def part(self, n_rows: int) -> Block:
        """About `n_rows` of the rows, or fewer, in memory."""

    @abstractmethod
    def look(self, question: Callable[[Block], AnswerT], n_rows: int) -> AnswerT:
        """The result of a function of `n_rows` of the rows, computed where they are stored."""

    def condensed(self, unit: float, fine: int = FINE_BINS) -> Dataset:
        """Shorter rows that give the same rough results at temperatures up to 6 units, where they can be kept.

        Many classes are sorted into 2^`fine` bins an octave of their distance to the best.
        """
        return self

    @abstractmethod
    def sums(self, name: Summed, *settings: Any, rough: bool = False) -> Vector:
        """Sums over all rows that a pass of the engine computes, such as "focal" (see `protocol.Engine`)."""

    def means(self, name: Summed, *settings: float, rough: bool = False) -> list[float]:
        """The weighted means of what `sums` sums up: log-loss and its derivatives; `rough`: six digits suffice."""
        means: list[float] = (self.sums(name, *settings, rough=rough) / self.total_weight).tolist()
        return means


def weight_unit(total: float, n_used: int) -> float:
    """The factor of the weights, given their sum and the number of rows with any: priors count in rows.

    Weights of a mean below 1 cannot be numbers of equal rows: they are shares, and count as one row on average.
    """
    # Beside more rows a single one, which priors and pseudo-counts are, has no digits left in a sum.
    most_rows = 1e12
    return min(max(1.0, n_used / total), most_rows / total)


def sample_rows(n_classes: int) -> int:
    """How many rows suffice to locate the promising region of a grid."""
    most_entries = 5_000_000  # 40 MB in double precision
    return max(FEWEST_SAMPLE_ROWS, min(SAMPLE_ROWS, most_entries // n_classes))
