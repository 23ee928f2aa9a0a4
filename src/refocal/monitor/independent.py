"""The evidence of independent rows against calibration, by likelihood ratios.

If the event of a row has the predicted probability p, then the ratio of the likelihoods of another probability and of p
is 1 on average. Products of such ratios over independent rows are martingales, and so is their mean over several
alternatives and over the times at which a change may have begun: an e-process. Rows that share a day are not
independent, and raise false alarms; `evidence` is for them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from refocal._arrays import Flags, Vector

# Alternatives (intercept, slope) of the log-odds, which are (0, 1) under calibration: probabilities that are too low or
# too high, and too extreme (slopes below 1) or too timid (above 1).
ALTERNATIVES = np.array([
    *((-shift, 1.0) for shift in (0.125, 0.25, 0.5, 1.0)),
    *((shift, 1.0) for shift in (0.125, 0.25, 0.5, 1.0)),
    *((0.0, slope) for slope in (0.6, 0.8, 1.25, 1.7)),
])  # fmt: skip
# Probabilities are clipped to this distance from 0 and 1: an "impossible" event may occur.
SMALLEST_P = 1e-12


def log_ratios(p: Vector, happened: Flags) -> Vector:
    """The logarithms of the likelihood ratios of all alternatives, added up over rows, (alternatives,).

    -log p(outcome) is log(1 + exp(∓l)) of the log-odds l; those of the alternative (a, b) are a + b l.
    """
    p = np.clip(p, SMALLEST_P, 1.0 - SMALLEST_P)
    log_odds = np.log(p) - np.log1p(-p)
    sign = np.where(happened, -1.0, 1.0)
    loss = np.logaddexp(0.0, sign * log_odds)
    ratios = []
    for intercept, slope in ALTERNATIVES:
        alternative_loss = np.logaddexp(0.0, sign * (intercept + slope * log_odds))
        ratios.append(float(np.sum(loss - alternative_loss)))
    return np.array(ratios)


@dataclass(frozen=True)
class Wealth:
    """Where the e-process stands: the logarithm of what each alternative has won, and how many batches there were.

    It starts with an e-value of 1.
    """

    # -1e300 is the logarithm of 0, since JSON has no infinity.
    log_won: list[float] = field(default_factory=lambda: [-1e300] * len(ALTERNATIVES))
    n_periods: int = 0

    @property
    def log_e(self) -> float:
        """The logarithm of the e-value."""
        won = np.logaddexp.reduce(self.log_won) - math.log(len(ALTERNATIVES))
        return float(np.logaddexp(won, math.log(left_after(self.n_periods))))

    def after(self, log_ratios: ArrayLike) -> Wealth:
        """One batch later: a part of what was left is bet from here on."""
        won = np.logaddexp(self.log_won, log_bet(self.n_periods)) + log_ratios
        return Wealth(won.tolist(), self.n_periods + 1)

    def averaged(self, other: Wealth) -> Wealth:
        """Half of the capital in each: the mean of two e-processes is one, whatever they share."""
        won = np.logaddexp(self.log_won, other.log_won) - math.log(2.0)
        return Wealth(won.tolist(), max(self.n_periods, other.n_periods))

    def moved(self) -> str:
        """What the alternative that has won most says."""
        intercept, slope = ALTERNATIVES[int(np.argmax(self.log_won))]
        if slope != 1.0:
            # Slopes turn the log-odds about 0: of rare events they move the mean too.
            return "probabilities too extreme" if slope < 1.0 else "probabilities too close to 1/2"
        return "probabilities too low" if intercept > 0.0 else "probabilities too high"


def left_after(n_periods: int) -> float:
    """The capital that has not been bet after some batches; it falls to 0 slowly, so that late changes are found too.

    >>> left_after(0), left_after(2)
    (1.0, 0.5)
    """
    return 1.0 / math.log2(n_periods + 2)


def log_bet(n_periods: int) -> float:
    """The logarithm of the capital that is bet from the next batch on, after `n_periods` others."""
    return math.log(left_after(n_periods) - left_after(n_periods + 1))
