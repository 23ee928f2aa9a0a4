"""The interface of an engine, a module that computes passes over logits, labels and weights.

`c_engine` and `triton_engine` accept some logits, `array_engine` accepts all.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

from refocal._arrays import Array, Vector

Summed = Literal["temperature", "focal", "vector"]
"""The passes whose results are added up."""
OCTAVES = 12
"""The octaves of distances that `condense` divides into bins, as in kernel.c."""


class Plan(NamedTuple):
    """How an engine computes with given logits."""

    part_entries: int
    """How many entries are computed at a time."""
    n_threads: int
    """How many parts are computed at the same time."""
    precision: float
    """The machine epsilon of what is computed."""
    has_rough: bool = False
    """Whether there is a faster mode with six digits."""
    has_affine: bool = False
    """Whether there are the passes `levels` and `affine`."""
    has_condense: bool = False
    """Whether there is the pass `condense`."""
    is_rough: bool = False
    """Whether all passes use that mode: long rows in half precision have no more digits."""


class Engine(Protocol):
    """The passes of an engine, for logits `x` (rows, classes), labels `y` and weights.

    Sums come back as one vector, on the device of the logits: adding up parts then needs no transfer. `rough` asks for
    six digits where that is faster; an engine that has one precision ignores it. A pass that an engine lacks, as its
    plan says, is `missing`.
    """

    def plan(self, logits: Array) -> Plan | None:
        """How these logits will be processed; None if the engine cannot read them."""

    def temperature(self, x: Array, y: Array, weight: Array, slope: float, *, rough: bool = False) -> Array:
        """Log-loss of temperature scaling at 1/T = `slope`: sums of the value, its first and second derivative."""

    def focal(self, x: Array, y: Array, weight: Array, gamma: float, slope: float, *, rough: bool = False) -> Array:
        """Log-loss of focal temperature scaling: sums of the value and its derivatives γ, b, γγ, γb, bb; b = 1/T."""

    def split(self, x: Array, y: Array, gamma: float, slope: float, *, rough: bool = False) -> Array:
        """For each row (2, 6, rows) with derivatives γ, b, γγ, γb, bb: the log-odds of the top class under focal
        temperature scaling, and the logarithm of the label's share among the others, 0 if it is the top.
        """

    def predict(self, x: Array, y: Array, gammas: tuple[float, ...], slope: float, *, rough: bool = False) -> Array:
        """For each γ and row: log p of the label, p of the top class, the sum of all p²."""

    def vector(self, x: Array, y: Array, weight: Array, parameters: Array, *, rough: bool = False) -> Array:
        """Log-loss of softmax(w x + b), `parameters` = (w, b): sums of the value, and of five numbers for each class.

        These are the derivatives in w and b, and the second ones, ww, wb and bb, of each class alone.
        """

    def inspect(self, x: Array, y: Array) -> tuple[Array, Any]:
        """Whether each row's first largest logit is its label's, and the sum of all finite distances to the top."""

    def condense(self, x: Array, y: Array, unit: float, fine: int) -> Array:
        """Rows of a few hundred entries that predict the same: gaps to the top, counts of classes (2, rows, entries).

        The top comes first, then the label or, if that is the top, nothing. Accurate for temperatures up to 6 units;
        there are 2^`fine` bins an octave.
        """

    def levels(self, x: Array, kind: str, temperature: float, *, exact: bool) -> Array:
        """The top of each row and its level, (2, rows): what the passes `affine` of a fit have in common."""

    def affine(self, x: Array, y: Array, weight: Array, tops: Array, temperature: float, parameters: Vector) -> Array:
        """Sums over rows of log-loss and its gradient in (W - I, b), W a diagonal, in the precision of the levels."""


def missing(*arguments: Any, **options: Any) -> Any:
    """A pass that an engine lacks; its plan says so, and a block then takes another way."""
    raise NotImplementedError("This engine lacks the pass. Its plan says which passes it has.")
