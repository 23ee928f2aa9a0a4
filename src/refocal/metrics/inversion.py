"""Intervals for calibration errors by inverting a test: the true errors that are consistent with the data.

A calibration error is never below 0 and every bin adds its noise, so that it is measured too high, and resampling rows
adds the same noise once more. Here the confidences stay and outcomes are drawn anew, from models that are off by
t times the gaps that were seen (smoothed over neighbouring bins): t = 0 is a calibrated model. The interval holds the
true error of every such model under which a value as small, or as large, as the measured one is not rare. Gaps that are
mostly noise change their sign from bin to bin and hide less than gaps of one sign, so that the upper end also asks
models whose log-odds are all too high, or too low.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from refocal._arrays import Vector
from refocal.metrics._bins import Bins
from refocal.metrics.intervals import Interval

N_DRAWS = 500
"""How often outcomes are drawn, by default."""
SHAPE_BINS = 8
_STEPS, _FARTHEST = 12, 64.0


class ErrorModel(NamedTuple):
    """A calibration error as a function of the gaps between confidence and accuracy in cells of similar rows."""

    cells: Bins
    statistic: Callable[[Vector], Vector]
    """What is measured: gaps of (draws, cells) ↦ one number for each draw."""
    population: Callable[[Vector], float]
    """The true error of a model with these gaps."""
    observed: float


@dataclass(frozen=True)
class InvertedError:
    """A calibration error of some rows, with what its interval needs.

    `shape` are bins, by rising confidence, whose gaps show where the model is off.
    """

    value: float
    model: ErrorModel
    shape: Bins
    n_draws: int = N_DRAWS
    seed: int = 0

    def minus(self, other: InvertedError, *, level: float = 0.95) -> None:
        """None: see `squared_ece_difference` for what can be said."""

    def interval(self, *, level: float = 0.95) -> Interval:
        """The true errors under which the value is no surprise."""
        cells, model = self.model.cells, self.model
        confidence, size = cells.confidence / cells.weight, np.square(cells.weight) / cells.squared_weight
        noise = np.random.default_rng(self.seed).standard_normal((self.n_draws, len(confidence)))

        def gaps(off: Vector, t: float) -> Vector:
            return confidence - np.clip(confidence - t * off, 0.0, 1.0)

        def drawn(off: Vector, t: float) -> Vector:
            gap = gaps(off, t)
            accuracy = confidence - gap
            return model.statistic(gap + np.sqrt(np.maximum(accuracy * (1.0 - accuracy), 0.0) / size) * noise)

        def error_at(off: Vector, share: float) -> float:
            t = _crossing(lambda t: float(np.mean(drawn(off, t) <= model.observed)), share)
            return model.population(gaps(off, t))

        seen, lean = _smoothed_gaps(self.shape, cells), confidence * (1.0 - confidence)
        low = error_at(seen, 0.5 + level / 2.0)
        high = max(error_at(off, 0.5 - level / 2.0) for off in (seen, lean, -lean))
        likely = drawn(seen, 1.0)
        spread = float(np.std(likely, ddof=1)) if self.n_draws > 1 else 0.0
        bias = float(np.mean(likely)) - model.population(gaps(seen, 1.0))
        return Interval(self.value, low, high, level, spread, bias, self.n_draws)


def _crossing(share_below: Callable[[float], float], share: float) -> float:
    """The t at which a falling function reaches a share; 0 where it begins below."""
    if share_below(0.0) <= share:
        return 0.0
    low, high = 0.0, 1.0
    while share_below(high) > share:
        low, high = high, 2.0 * high
        if high > _FARTHEST:
            return low
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if share_below(middle) > share else (low, middle)
    return (low + high) / 2.0


def _smoothed_gaps(bins: Bins, cells: Bins) -> Vector:
    """The gaps of bins, each averaged twice with its neighbours, at the ranks of the cells."""
    gap = bins.gap / bins.weight
    for _ in range(2):
        padded = np.concatenate([gap[:1], gap, gap[-1:]])
        gap = (padded[:-2] + 2.0 * gap + padded[2:]) / 4.0
    return np.interp(_ranks(cells), _ranks(bins), gap)


def _ranks(bins: Bins) -> Vector:
    """The share of the weight below the middle of each bin."""
    ranks: Vector = (np.cumsum(bins.weight) - bins.weight / 2.0) / bins.weight.sum()
    return ranks
