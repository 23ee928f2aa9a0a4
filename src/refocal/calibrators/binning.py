"""Calibration by bins for each class: one set of them, an average over many, or those of isotonic regression."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import expit, gammaln, logit

from refocal._arrays import Indices, Vector
from refocal.calibrators import settings as setting
from refocal.calibrators.one_vs_rest import ClassBins, ClassRows, Pooled, starts_of_ties
from refocal.maps.curves import Curve
from refocal.metrics.bins import isotonic_pools


def bins(edges: Vector, value: Vector, within: str) -> Curve:
    """The pieces of bins between edges: `value` shifts the log-odds of a bin, or replaces them."""
    if len(edges) == 0:  # one bin: an edge within it changes nothing
        edges = np.zeros(1)
        value = np.repeat(value, 2)
    if within == "constant":
        return edges, (value,)
    return edges, (np.append(edges[0], edges) + value, np.ones(len(value)))


@dataclass(eq=False, repr=False)
class HistogramBinning(Pooled):
    """Histogram binning (Zadrozny & Elkan 2001) of each class against the rest.

    Parameters
    ----------
    n_bins : int
        Number of bins.
    strategy : "quantile", "uniform" or "information"
        Bins with equally many rows, of equal width in probability, or with an equal share of Σq(1-q), which are
        narrow where the model is unsure.
    smoothing : float
        The weight, in rows, of prior observations in each bin that agree with the model.
    within : "shift" or "constant"
        "shift" moves the log-odds of the rows of a bin together; "constant" gives them all the same probability, as in
        textbooks, which loses much with many classes.
    base : "temperature" or "softmax"
        The starting point of the curves.
    input : "logits" or "probabilities"
        What the columns hold.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(2000, 3))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> report = HistogramBinning().fit(4.0 * logits, labels).fit_report_
    >>> report["after"]["log_loss"] < report["before"]["log_loss"]
    True
    """

    n_bins: int = setting.integer(10)
    _: KW_ONLY
    strategy: str = setting.option("quantile", "uniform", "information")
    smoothing: float = setting.number(3.0, above=0.0)

    def _fit_curve(self, rows: ClassRows) -> Curve:
        if self.strategy == "uniform":
            edges = logit(np.arange(1, self.n_bins) / self.n_bins)
        else:
            mass = rows.weight if self.strategy == "quantile" else rows.weight * rows.q * (1.0 - rows.q)
            edges = _edges(rows, _starts(rows, mass, range(self.n_bins, self.n_bins + 1))[0])
        index = np.searchsorted(edges, rows.score, side="right")
        counted = rows.sums(np.flatnonzero(np.diff(index, prepend=-1)))
        filled = np.unique(index)
        value = np.zeros(len(edges) + 1) if self.within == "shift" else _middles(edges)
        value[filled] = counted.shift(self.smoothing) if self.within == "shift" else counted.log_odds(self.smoothing)
        return bins(edges, value, self.within)


class BayesianBinning(Pooled):
    """Bayesian binning into quantiles (BBQ; Naeini, Cooper & Hauskrecht 2015) of each class against the rest.

    Sets of equal-mass bins, from n^⅓/10 to 10·n^⅓ of them, are averaged, each by its marginal likelihood under a Beta
    prior around the model's probability.

    Parameters
    ----------
    smoothing : float
        The weight of the prior, in rows: spread over all bins of a set in the marginal likelihood and with "constant",
        as in the paper (its N′ = 2); for each bin in the shifts.
    within : "shift" or "constant"
        "shift" moves the log-odds of the rows of a bin together; "constant" gives them all the same probability, as in
        the paper, which loses much with many classes.
    base : "temperature" or "softmax"
        The starting point of the curves.
    input : "logits" or "probabilities"
        What the columns hold.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(2000, 3))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> report = BayesianBinning().fit(4.0 * logits, labels).fit_report_
    >>> report["after"]["log_loss"] < report["before"]["log_loss"]
    True
    """

    def _fit_curve(self, rows: ClassRows) -> Curve:
        numbers = _numbers_of_bins(float(rows.weight.sum()), len(starts_of_ties(rows.score)))
        negligible = 1e-2  # sets of bins with a smaller share of the best one's evidence are left out
        starts, set_of_bin = _starts(rows, rows.weight, numbers)
        counted = rows.sums(starts)
        prior_weight = self.smoothing / np.bincount(set_of_bin)[set_of_bin]
        log_evidence = np.bincount(set_of_bin, _log_evidence(counted, prior_weight))
        share = np.exp(log_evidence - log_evidence.max())
        sets = [(share[i], starts[set_of_bin == i]) for i in np.flatnonzero(share >= negligible)]
        return self._average(rows, sets)

    def _average(self, rows: ClassRows, sets: list[tuple[float, Indices]]) -> Curve:
        """The average of all sets of bins, of their shifts or of their probabilities."""
        union = np.unique(np.concatenate([starts for _, starts in sets]))
        total = np.zeros(len(union))
        for share, starts in sets:
            counted = rows.sums(starts)
            if self.within == "shift":
                value = counted.shift(self.smoothing)
            else:
                value = expit(counted.log_odds(self.smoothing / len(starts)))
            total += share * value[np.searchsorted(starts, union, side="right") - 1]
        mean = total / sum(share for share, _ in sets)
        if self.within == "constant":
            mean = logit(np.clip(mean, np.finfo(float).tiny, 1.0 - np.finfo(float).epsneg))
        return bins(_edges(rows, union), mean, self.within)


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

    def _fit_curve(self, rows: ClassRows) -> Curve:
        ties = starts_of_ties(rows.score)
        ends = np.append(ties[1:], len(rows.score)) - 1
        hits = np.add.reduceat(rows.weight * rows.target, ties)
        misses = np.add.reduceat(rows.weight * ~rows.target, ties)
        total = hits + misses
        if self.within == "constant":
            # `smoothing` rows with the share of the class are added, hits at the bottom and misses at the top: no pool
            # is 0 or 1, and the log-loss of the rows cannot exceed that of their share.
            n_rows = float(total.sum())
            least = 1.0 / (n_rows + 2.0)
            share = min(max(float(hits.sum()) / max(n_rows, 1e-300), least), 1.0 - least)
            hits[0] += self.smoothing * share
            total[0] += self.smoothing * share
            misses[-1] += self.smoothing * (1.0 - share)
            total[-1] += self.smoothing * (1.0 - share)
        # Points without weight, which exist only where a class has no rows, do not matter.
        total = np.maximum(total, 1e-300)
        first = isotonic_pools(hits / total, total)
        last = np.append(first[1:], len(ties)) - 1
        score = np.stack([rows.score[ties[first]], rows.score[ends[last]]], axis=1)
        if self.within == "constant":
            pooled_hits = np.add.reduceat(hits, first)
            level = np.log(pooled_hits) - np.log(np.add.reduceat(misses, first))
            value = np.stack([level, level], axis=1)
        else:
            shift = rows.sums(ties[first]).shift(self.smoothing)
            weight = np.repeat(np.add.reduceat(total, first), 2)
            value = isotonic_regression((score + shift[:, None]).ravel(), weights=weight).x.reshape(score.shape)
        _, distinct = np.unique(score.ravel(), return_index=True)
        return polyline(score.ravel()[distinct], value.ravel()[distinct], self.within)


def polyline(score: Vector, log_odds: Vector, within: str) -> Curve:
    """The pieces of the straight lines between points. Beyond the last of them its shift or its value holds on."""
    beyond = 1.0 if within == "shift" else 0.0
    slope = np.concatenate([[beyond], np.diff(log_odds) / np.diff(score), [beyond]])
    return score, (np.append(log_odds[0], log_odds), slope)


def _starts(rows: ClassRows, mass: Vector, numbers: range) -> tuple[Indices, Indices]:
    """Where the bins of equal mass begin, one set of bins for each number of them; and the set that each belongs to.

    Rows with the same score share a bin, so a set can have fewer bins than asked for.
    """
    ties = starts_of_ties(rows.score)
    before = np.append(0.0, np.cumsum(mass))
    set_of_bin = np.repeat(np.arange(len(numbers)), numbers)
    quantiles = before[-1] * np.concatenate([np.arange(n) / n for n in numbers])
    # The tie that begins closest to each quantile; the upper one half-way between two, whatever rounding says.
    nearly_half = 0.49999
    above = np.minimum(np.searchsorted(before[ties], quantiles), len(ties) - 1)
    below = np.maximum(above - 1, 0)
    width = before[ties[above]] - before[ties[below]]
    is_below = quantiles - before[ties[below]] < nearly_half * width
    starts = ties[np.where(is_below, below, above)]
    is_new = np.append(True, (np.diff(starts) > 0) | (np.diff(set_of_bin) > 0))
    return starts[is_new], set_of_bin[is_new]


def _edges(rows: ClassRows, starts: Indices) -> Vector:
    """Half-way between the last score of a bin and the first of the next."""
    later = starts[1:]
    below = rows.score[later - 1]
    above = rows.score[later]
    middle = below + 0.5 * (above - below)
    edges: Vector = np.where(middle > below, middle, above)  # two neighbouring floats have no middle
    return edges


def _middles(edges: Vector) -> Vector:
    """The centre of each bin in probability, as log-odds: the value of an empty bin."""
    q = np.concatenate([[0.0], expit(edges), [1.0]])
    return np.asarray(logit(np.clip(0.5 * (q[1:] + q[:-1]), 1e-12, 1.0 - 1e-12)))


def _numbers_of_bins(n: float, n_scores: int) -> range:
    """The numbers of bins as in the paper, with at least five rows per bin and no more bins than distinct scores."""
    n = round(n, 6)  # sums of weights are whole numbers but for rounding where those of rows are
    root = round(max(n, 1.0) ** (1.0 / 3.0), 9)
    fewest = min(n_scores, max(1, int(root / 10.0)))
    return range(fewest, max(fewest, min(n_scores, int(np.ceil(n / 5.0)), int(np.ceil(10.0 * root)))) + 1)


def _log_evidence(bins: ClassBins, weight: Vector) -> Vector:
    """What each bin adds to the log of the marginal likelihood of its set: log B(hits + a, misses + b) / B(a, b).

    The Beta prior has the mean that the model expects, a / (a + b), and the weight a + b.
    """
    a = weight * bins.mean
    b = weight * (1.0 - bins.mean)
    terms = gammaln(weight) - gammaln(bins.total + weight) + gammaln(bins.hits + a) - gammaln(a)
    return np.asarray(terms + gammaln(bins.misses + b) - gammaln(b))
