"""What a search returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Status = Literal["converged", "at a bound", "not converged", "flat"]


@dataclass(frozen=True)
class Solution:
    """The point that a search chose, the value of its objective there, and how the search ended.

    `passes` counts evaluations on all rows, not those on a part; `message` explains the status and, where something
    should be done about it, names the remedy.

    >>> from refocal import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(1000, 3))
    >>> fitted = TemperatureScaling().fit(logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1))
    >>> fitted.solution_.status, fitted.solution_.message
    ('converged', 'the log-loss has a minimum here')
    """

    gamma: float
    temperature: float
    value: float
    status: Status
    message: str
    passes: int


@dataclass(frozen=True)
class Surface:
    """Objective and log-loss at every pair of γ and T, for plots and for choosing again.

    The values of the best points and those of small grids are exact; the others are interpolated, to 1e-3 or so.

    On a grid all arrays have shape (len(gammas), len(temperatures)); along a line they have one axis.

    >>> from refocal import FocalTemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(1000, 3))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> path = FocalTemperatureScaling().fit(logits, labels).path_
    >>> path.value.shape == path.log_loss.shape == (9, 121)
    True
    """

    gamma: NDArray[np.float64]
    temperature: NDArray[np.float64]
    log_loss: NDArray[np.float64]
    value: NDArray[np.float64]

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, for JSON."""
        return {name: getattr(self, name).tolist() for name in ("gamma", "temperature", "log_loss", "value")}
