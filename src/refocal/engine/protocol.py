"""The interface of an engine, a module that computes passes over logits, labels and weights.

`c_engine` and `triton_engine` accept some logits, `array_engine` accepts all.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from refocal._arrays import Array


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
    """Whether there is a pass of diagonal affine maps (`triton_affine`)."""
    is_rough: bool = False
    """Whether all passes use that mode: long rows in half precision have no more digits."""


class Engine(Protocol):
    """The functions that every engine has, for logits `x` (rows, classes), labels `y` and weights.

    Sums come back as one vector, on the device of the logits: adding up parts then needs no transfer. `rough` asks for
    six digits where that is faster; an engine that has one precision ignores it.
    """

    def plan(self, logits: Any) -> Plan | None:
        """How these logits will be processed; None if the engine cannot read them."""

    def temperature(self, x: Any, y: Any, weight: Any, slope: float, *, rough: bool = False) -> Array:
        """Log-loss of temperature scaling at 1/T = `slope`: sums of the value, its first and second derivative."""

    def focal(self, x: Any, y: Any, weight: Any, gamma: float, slope: float, *, rough: bool = False) -> Array:
        """Log-loss of focal temperature scaling: sums of the value and its derivatives γ, b, γγ, γb, bb; b = 1/T."""

    def split(self, x: Any, y: Any, gamma: float, slope: float, *, rough: bool = False) -> Array:
        """For each row (2, 6, rows) with derivatives γ, b, γγ, γb, bb: the log-odds of the top class under focal
        temperature scaling, and the logarithm of the label's share among the others, 0 if it is the top.
        """

    def predict(self, x: Any, y: Any, gammas: tuple[float, ...], slope: float, *, rough: bool = False) -> Array:
        """For each γ and row: log p of the label, p of the top class, the sum of all p²."""

    def vector(self, x: Any, y: Any, weight: Any, parameters: Any, *, rough: bool = False) -> Array:
        """Log-loss of softmax(w x + b), `parameters` = (w, b): sums of the value, and of five numbers for each class.

        These are the derivatives in w and b, and the second ones, ww, wb and bb, of each class alone.
        """

    def inspect(self, x: Any, y: Any) -> tuple[Array, Any]:
        """Whether each row's first largest logit is its label's, and the sum of all finite distances to the top."""
