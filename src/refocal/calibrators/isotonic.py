"""Isotonic calibration: an increasing curve for each class, with no other assumption."""

from __future__ import annotations

import numpy as np
from scipy.optimize import isotonic_regression

from refocal._arrays import Vector
from refocal.calibrators._one_vs_rest import Curve, Pooled, Rows, starts_of_ties


class IsotonicCalibration(Pooled):
    """Isotonic regression of each class against the rest, with probabilities that are never 0 or 1.

    Plain isotonic regression gives probability 0 below the first hit of a class, and so an infinite log-loss to the
    first row that is different. Here the pools of the regression are the bins, and each shifts the log-odds of its
    rows by what it saw, shrunk by `smoothing`; where the result would decrease it is levelled: the curve is monotone.

    Parameters
    ----------
    smoothing : float
        The weight of prior hits and misses in each pool that agree with the model. With `within="constant"`: the weight
        of additional rows with the share of the class, hits below all others and misses above them.
    within : "shift" or "constant"
        "shift" moves the rows of a pool together; "constant" gives them the same probability, as in textbooks, which
        loses much with many classes.
    base : "temperature" or "softmax"
        The starting point of the curves.
    input : "logits" or "probabilities"
        What the columns hold.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(2000, 3))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> report = IsotonicCalibration().fit(4.0 * logits, labels).fit_report_
    >>> report["after"]["log_loss"] < report["before"]["log_loss"]
    True
    """

    def _fit_curve(self, rows: Rows) -> Curve:
        ties = starts_of_ties(rows.score)
        points = rows.sums(ties)
        ends = np.append(ties[1:], len(rows.score)) - 1
        hits, total = points.hits.copy(), points.total.copy()
        if self.within == "constant":
            # So many rows with the share of the class, hits at the bottom and misses at the top: no pool is 0 or 1, and
            # the log-loss of the rows cannot exceed that of their share.
            n_rows = float(total.sum())
            least = 1.0 / (n_rows + 2.0)
            share = min(max(float(hits.sum()) / max(n_rows, 1e-300), least), 1.0 - least)
            hits[0] += self.smoothing * share
            total[0] += self.smoothing * share
            total[-1] += self.smoothing * (1.0 - share)
        # Points without weight, of which there are any only where a class has no rows, do not matter.
        pools = isotonic_regression(hits / np.maximum(total, 1e-300), weights=np.maximum(total, 1e-300)).blocks
        first, last = pools[:-1], pools[1:] - 1
        score = np.stack([rows.score[ties[first]], rows.score[ends[last]]], axis=1)
        if self.within == "constant":
            pooled_hits, pooled = np.add.reduceat(hits, first), np.add.reduceat(total, first)
            level = np.log(pooled_hits) - np.log(pooled - pooled_hits)
            value = np.stack([level, level], axis=1)
        else:
            shift = rows.sums(ties[first]).shift(self.smoothing)
            weight = np.repeat(np.maximum(np.add.reduceat(total, first), 1e-300), 2)
            value = isotonic_regression((score + shift[:, None]).ravel(), weights=weight).x.reshape(score.shape)
        _, distinct = np.unique(score.ravel(), return_index=True)
        return polyline(score.ravel()[distinct], value.ravel()[distinct], self.within)


def polyline(score: Vector, log_odds: Vector, within: str) -> Curve:
    """The pieces of the straight lines between points. Beyond the last of them its shift or its value holds on."""
    beyond = 1.0 if within == "shift" else 0.0
    slope = np.concatenate([[beyond], np.diff(log_odds) / np.diff(score), [beyond]])
    return score, (np.append(log_odds[0], log_odds), slope)
