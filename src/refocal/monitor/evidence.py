"""Evidence against calibration: an e-process, which remains valid however often it is inspected.

If the event of a row has the predicted probability p, then the ratio of the likelihoods of another probability
and of p is 1 on average. Products of such ratios over rows are martingales, and so is their mean over several
alternatives and over the periods with which a change may have begun. Such a martingale ever exceeds 1/α with a
probability of at most α (Ville 1939).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from refocal._arrays import Flags, Vector

# Alternatives: intercepts and slopes of the log-odds, which are 0 and 1 under calibration.
SHIFTS, SLOPES = (0.125, 0.25, 0.5, 1.0), (0.6, 0.8, 1.25, 1.7)
ALTERNATIVES = np.array([*((sign * shift, 1.0) for sign in (-1, 1) for shift in SHIFTS), *((0.0, b) for b in SLOPES)])
# Probabilities are clipped to this distance from 0 and 1: an "impossible" event may occur.
LEAST = 1e-12
# The logarithm of nothing; JSON has no infinity.
NOTHING = -1e300


@dataclass(frozen=True)
class Wealth:
    """Where the e-process stands: the logarithm of what each alternative has won, and how many periods there were.

    It starts with an e-value of 1.
    """

    log_won: list[float] = field(default_factory=lambda: [NOTHING] * len(ALTERNATIVES))
    n_periods: int = 0

    @property
    def log_e(self) -> float:
        """The logarithm of the e-value."""
        won = np.logaddexp.reduce(self.log_won) - math.log(len(ALTERNATIVES))
        return float(np.logaddexp(won, math.log(left_after(self.n_periods))))

    def after(self, log_ratios: ArrayLike) -> Wealth:
        """One period later: a part of what was left is bet from here on."""
        n = self.n_periods + 1
        bet = math.log(left_after(n - 1) - left_after(n))
        return Wealth((np.logaddexp(self.log_won, bet) + log_ratios).tolist(), n)


def left_after(n_periods: int) -> float:
    """What has not been bet after so many periods; it falls to 0 slowly, so that late changes are found too.

    >>> left_after(0), left_after(2)
    (1.0, 0.5)
    """
    return 1.0 / math.log2(n_periods + 2)


def log_ratios(p: Vector, happened: Flags) -> Vector:
    """The logarithms of the likelihood ratios of all alternatives, added up over rows."""
    p = np.clip(p, LEAST, 1.0 - LEAST)
    odds = np.log(p) - np.log1p(-p)
    sign = np.where(happened, -1.0, 1.0)
    said = np.logaddexp(0.0, sign * odds)
    return np.array([float(np.sum(said - np.logaddexp(0.0, sign * (a + b * odds)))) for a, b in ALTERNATIVES])


def likely_start(ratios: list[list[float]], first: int) -> int:
    """Which of the periods the change began with, by the alternative that won most; `first` have gone before them."""
    total = np.cumsum(np.array(ratios)[::-1], axis=0)[::-1]
    bets = np.array([math.log(left_after(k) - left_after(k + 1)) for k in range(first, first + len(ratios))])
    return int(np.unravel_index(np.argmax(total + bets[:, None]), total.shape)[0])
