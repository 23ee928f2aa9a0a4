"""The interval of a calibration error, by inverting a test.

An inverted test gives the true values that fit the data. A calibration error is never below 0 and every bin adds its
noise, so that it is measured too high, and resampling rows adds the same noise once more. Here the confidences stay and
outcomes are simulated, from models that are off by t times the gaps that were seen (smoothed over neighbouring bins): t
= 0 is a calibrated model. The interval holds the true error of every such model under which a value as small, or as
large, as the measured one is not rare. Gaps that are mostly noise change their sign from bin to bin and hide less than
gaps of one sign, so that the upper end also asks models whose log-odds are all too high, or too low. Smoothing makes a
peak flat, and noise lifts the largest of several equal gaps more than one that stands out: the upper end of a largest
gap also asks models off by the gaps as they were seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Indices, Vector
from refocal.metrics.bins import Bins
from refocal.metrics.influence import critical_value
from refocal.metrics.intervals import Interval, number_of
from refocal.rows import Predictions


class ErrorModel(NamedTuple):
    """A calibration error as a function of the gaps between confidence and accuracy in cells of similar rows.

    Most errors are one function of the gaps of a sample and of the true ones. Others are measured without the bias of
    the noise, or by a curve or a bandwidth that depends on the sample.
    """

    cells: Bins
    statistic: Callable[[Vector], Any]
    """What is measured: gaps of (draws, cells) ↦ one number for each draw."""
    true_error: Callable[[Vector], Any]
    """The error of a model with these true gaps, (cells,)."""
    error_scale: Callable[[Vector], Any]
    """The error that noise beyond that of outcomes is in proportion to, of gaps (cells,)."""
    observed: float | None = None
    """The measured value, where it is not the statistic of the cells."""
    seen: Vector | None = None
    """The gaps of the cells, smoothed, where those of bins by confidence do not show where the model is off."""
    by_confidence: bool = True
    """Whether each row is in one cell, with rows of similar confidence; noise of clusters is computed only then."""
    total_variance: float | None = None
    """The variance of the error to the first order, where rows have a part in several cells."""
    power: float = 1.0
    """The error is (Σ share · |gap|^k)^power for some k: how much the shares of the cells move it."""
    is_maximum: bool = False
    """Whether the error is the largest gap, which smoothing makes smaller than it was seen."""

    def observed_error(self) -> float:
        """The measured value."""
        return float(self.statistic(self.cells.gap / self.cells.weight)) if self.observed is None else self.observed

    def smoothed_gaps(self, shape: Bins) -> Vector:
        """The gaps of the cells, or else those of the bins of `shape`, smoothed."""
        return _smoothed_gaps(shape, self.cells) if self.seen is None else self.seen

    def slopes(self, gap: Vector) -> tuple[Vector, Vector]:
        """How a row moves the error at some gaps: the slope κ and the rest of its influence in each cell.

        The statistic T is homogeneous in the gaps g_b: with its slopes κ_b = ∂T/∂g_b over the shares s_b of the cells,
        T = Σ s_b κ_b g_b, and a row of weight w in cell b moves it by w / Σw times κ_b (c - y - g_b), which is the
        noise of outcomes, plus power · (κ_b g_b - T): a sample may have more rows of cells with large gaps than the
        population.
        """
        step = 1e-4 * max(float(np.abs(gap).max()), 1e-9)
        moves = step * np.eye(len(gap))
        difference = np.asarray(self.statistic(gap + moves) - self.statistic(gap - moves))
        slope = difference / (2.0 * step * self.cells.share)
        value = float(self.cells.share @ (slope * gap))
        return slope, self.power * (slope * gap - value)

    def gaps_beyond_noise(self, shape: Bins) -> Vector:
        """The gaps of the cells, or those of the bins of `shape`, smoothed, where cells are much smaller than these.

        The gap of a cell of a few rows is noise, whose square would be taken for how much true gaps differ.
        """
        if len(self.cells.weight) > 2 * len(shape.weight) and self.seen is None:
            return _smoothed_gaps(shape, self.cells)
        return np.asarray(self.cells.gap / self.cells.weight)

    def further_variance(self, gap: Vector) -> float:
        """The variance of the error at some gaps, to the first order, beyond that of outcomes in their cells.

        Of plain rows it is small. Where weights depend on the label, rows that missed weigh more or less than those
        that did not, and it is not.
        """
        cells = self.cells
        slope, rest = self.slopes(gap)
        # The rows of a cell count as of its mean confidence: c - y - g is rate - y.
        noise_of_zero = slope * cells.rate
        noise_of_one = noise_of_zero - slope
        squares_of_zero = np.square(noise_of_zero + rest) - np.square(noise_of_zero)
        squares_of_one = np.square(noise_of_one + rest) - np.square(noise_of_one)
        of_zeros = (cells.squared_weight - cells.squared_correct) @ squares_of_zero
        of_ones = cells.squared_correct @ squares_of_one
        return max(float(of_zeros + of_ones), 0.0) / float(cells.weight.sum()) ** 2

    def covariance_of_clusters(self, rows: Predictions, shape: Bins) -> Vector:
        """The covariance of the gaps of the cells and, in the last place, of the rest of the error, by clusters.

        (cells + 1, cells + 1): Σ_u d_u d_uᵀ, where d_u sums over the rows of a cluster what they add to the gap of
        their cell, w (c - y - g_b) / W_b, and to the error besides, by the factors of `_deviations`.
        """
        # SciPy loads when it is needed.
        from scipy.sparse import csr_array

        assert rows.clusters is not None  # noqa: S101 - callers ask
        cells = self.cells
        n_cells = len(cells.weight)
        p, happened = rows.confidence()
        cell_of_row = np.empty(len(p), dtype=np.int64)
        cell_of_row[np.argsort(p, kind="stable")] = np.repeat(np.arange(n_cells), cells.count)
        _, unit_of_row = np.unique(rows.clusters, return_inverse=True)
        n_units = int(unit_of_row.max()) + 1
        # The rows of a cluster in a cell are added first.
        pairs, pair = np.unique(unit_of_row * n_cells + cell_of_row, return_inverse=True)
        unit, cell = np.divmod(pairs, n_cells)
        weight = np.bincount(pair, rows.weights).astype(np.float64)
        residual = np.bincount(pair, rows.weights * (p - happened)).astype(np.float64)
        _, rest = self.slopes(self.gaps_beyond_noise(shape))
        of_gap = self._deviations(residual, weight, cell, n_units, self.smoothed_gaps(shape))
        of_rest = math.sqrt(n_units / max(n_units - 1, 1)) * weight * rest[cell] / cells.weight.sum()
        places = (np.tile(unit, 2), np.concatenate([cell, np.full(len(pairs), n_cells)]))
        sums = csr_array((np.concatenate([of_gap, of_rest]), places), shape=(n_units, n_cells + 1))
        return np.asarray((sums.T @ sums).toarray())

    def covariance_of_sums(self, residual: Vector, weight: Vector) -> Vector:
        """The same from Σ w (c - y) and Σ w of each cluster in each cell, (cells, clusters)."""
        cells = self.cells
        gap = cells.gap / cells.weight
        _, rest = self.slopes(gap)
        n_units = weight.shape[1]
        of_gap = np.zeros_like(residual)
        cell, unit = np.nonzero(weight)
        of_gap[cell, unit] = self._deviations(residual[cell, unit], weight[cell, unit], cell, n_units, smoothed(gap))
        of_rest = math.sqrt(n_units / max(n_units - 1, 1)) * rest @ weight / cells.weight.sum()
        of_units = np.concatenate([of_gap, of_rest[None]])
        return np.asarray(of_units @ of_units.T)

    def _deviations(
        self, residual: Vector, weight: Vector, cell: Indices, n_units: int, smoothed_gaps: Vector
    ) -> Vector:
        """What clusters add to the gaps of cells, from Σ w (c - y) and Σ w of each cluster in a cell, (pairs,) each.

        That of a cluster is (Σ w (c - y) - g W_u) / W_b. A cell of few clusters has their mean for its own gap g, from
        which they are less far than from the true one: as in `metrics.influence` it is that of the others that counts,
        √((m - 1) / m) W_b / (W_b - W_u) times as far. Of a cell that one cluster has for itself, and of cells that are
        so small that most have, the gap is the smoothed one.
        """
        most_bins = 30  # of many rows each
        gap = self.cells.gap / self.cells.weight
        n_clusters = np.bincount(cell, minlength=len(gap))[cell]
        is_alone = (n_clusters == 1) | (len(gap) > most_bins)
        smooth = smoothed_gaps if self.seen is None else self.seen
        own_weight = self.cells.weight[cell]
        deviation = (residual - np.where(is_alone, smooth[cell], gap[cell]) * weight) / own_weight
        others = np.where(is_alone, 1.0, own_weight - weight)
        of_jackknife = np.sqrt(1.0 - 1.0 / n_clusters) * own_weight / others
        return np.asarray(deviation * np.where(is_alone, math.sqrt(n_units / max(n_units - 1, 1)), of_jackknife))


class ClusterNoise(NamedTuple):
    """The covariance of `ErrorModel.covariance_of_clusters`, and the number of clusters."""

    covariance: Vector
    n_clusters: int

    def draws(self, generator: np.random.Generator, n_draws: int, level: float) -> tuple[Vector, Vector]:
        """Noise of the gaps, (n_draws, cells), and of the rest of the error, (n_draws,), with the tails of t."""
        eigenvalues, eigenvectors = np.linalg.eigh(self.covariance)
        root = eigenvectors * np.sqrt(np.maximum(eigenvalues, 0.0))
        noise = generator.standard_normal((n_draws, len(root))) @ root.T
        noise *= critical_value(level, self.n_clusters) / critical_value(level)
        return noise[:, :-1], noise[:, -1]


@dataclass(frozen=True)
class InvertedError:
    """A calibration error of some rows, with what its interval needs.

    `shape` are bins, by rising confidence, whose gaps show where the model is off.
    """

    value: float
    model: ErrorModel
    shape: Bins
    n_draws: int = 500
    """The number of replicates of the outcomes."""
    seed: int = 0
    clusters: ClusterNoise | None = None

    def minus(self, other: InvertedError, *, level: float = 0.95) -> None:
        """None; `squared_ece_difference` has a valid test instead."""

    def interval(self, *, level: float = 0.95) -> Interval:
        """The true errors under which the value is not unlikely.

        The ends are the true errors of the models (see `_Simulation`) of which a share (1 ± level) / 2 of the
        replicates have at most the observed value; for the upper end, at least the median of a calibrated model.
        """
        cells = self.model.cells
        confidence = cells.p
        seen = self.model.smoothed_gaps(self.shape)
        simulation = self._simulation(seen, level)
        observed = self.model.observed_error()
        low = simulation.true_error_at(seen, 0.5 + level / 2.0, observed)
        # A value so low that even calibrated models rarely have it would reject every model, and the upper end would be
        # 0. It says no more than the value that half of them exceed does.
        for_high = max(observed, float(np.median(simulation.replicates(seen, 0.0))))
        shift = confidence * (1.0 - confidence)  # the change of the probability as all log-odds rise
        directions = [seen, shift, -shift]
        if self.model.is_maximum and self.model.seen is None:
            directions.append(_gaps_at(self.shape, cells, self.shape.gap / self.shape.weight))
        high = max(simulation.true_error_at(direction, 0.5 - level / 2.0, for_high) for direction in directions)
        as_seen = simulation.replicates(seen, 1.0)
        true_error = float(self.model.true_error(simulation.true_gaps(seen, 1.0)))
        return Interval(
            value=self.value,
            low=low,
            high=high,
            level=level,
            standard_error=float(np.std(as_seen, ddof=1)) if self.n_draws > 1 else 0.0,
            bias=float(np.mean(as_seen)) - true_error,
            n_resamples=self.n_draws,
        )

    def _simulation(self, seen: Vector, level: float) -> _Simulation:
        """The noise that all models are simulated with; `seen` are the smoothed gaps."""
        confidence = self.model.cells.p
        generator = np.random.default_rng(self.seed)
        noise = generator.standard_normal((self.n_draws, len(confidence)))
        gap = self.model.gaps_beyond_noise(self.shape)
        if self.clusters is None:
            zeros = np.zeros_like(confidence)
            simulation = _Simulation(self.model, noise, zeros, zeros)
            if self.model.total_variance is None:
                further_variance = self.model.further_variance(gap)
            else:
                # The rest is what the replicates lack, not what the cells lack: noise of a gap near 0 moves |gap| less.
                of_outcomes = float(np.var(simulation.of_outcomes(simulation.true_gaps(seen, 1.0))))
                further_variance = max(self.model.total_variance - of_outcomes, 0.0)
            further_noise = math.sqrt(further_variance) * generator.standard_normal(self.n_draws)
        else:
            shared_noise, further_noise = self.clusters.draws(generator, self.n_draws, level)
            shared_variance = np.diag(self.clusters.covariance)[:-1]
            simulation = _Simulation(self.model, noise, shared_noise, shared_variance)
        error = float(self.model.error_scale(gap))
        return replace(simulation, further_noise=further_noise / error) if error > 0.0 else simulation


@dataclass(frozen=True)
class _Simulation:
    """Simulated errors of models that are off by t times the gaps of a direction.

    A model of direction d, (cells,), and size t has the true rates clip(c - t d, 0, 1) at the confidences c. Its
    replicates, (n_draws, cells), are its gaps plus normal noise of the variance rate (1 - rate) / size of each cell.
    Of clusters, the noise has the covariance of their sums, and independent noise makes up for what the variance of a
    cell lacks. What varies besides (`ErrorModel.further_variance`) is added to the statistic, in proportion to its
    error.
    """

    model: ErrorModel
    noise: Vector
    """Standard normal, (n_draws, cells)."""
    shared_noise: Vector
    """The noise of gaps that clusters share, (n_draws, cells); zeros without clusters."""
    shared_variance: Vector
    """The variance of the shared noise, (cells,)."""
    further_noise: Vector | float = 0.0
    """Noise of the statistic as a share of its error, (n_draws,)."""

    def true_gaps(self, direction: Vector, t: float) -> Vector:
        """The true gaps of a model, (cells,)."""
        confidence = self.model.cells.p
        return confidence - np.clip(confidence - t * direction, 0.0, 1.0)

    def of_outcomes(self, gap: Vector) -> Vector:
        """The statistic of replicates of a model with these true gaps, (n_draws,), by the noise of outcomes alone."""
        cells = self.model.cells
        rate = cells.p - gap
        variance = np.maximum(rate * (1.0 - rate), 0.0) / cells.size_at(rate)
        own_variance = np.maximum(variance - self.shared_variance, 0.0)
        return np.asarray(self.model.statistic(gap + self.shared_noise + np.sqrt(own_variance) * self.noise))

    def replicates(self, direction: Vector, t: float) -> Vector:
        """The statistic of replicates of a model, (n_draws,)."""
        gap = self.true_gaps(direction, t)
        return self.of_outcomes(gap) + float(self.model.error_scale(gap)) * self.further_noise

    def true_error_at(self, direction: Vector, share: float, value: float) -> float:
        """The true error of the model of which this share of replicates is at most the value."""

        def share_below(t: float) -> float:
            return float(np.mean(self.replicates(direction, t) <= value))

        t = _crossing(share_below, share)
        return float(self.model.true_error(self.true_gaps(direction, t)))


def noise_of_clusters(model: ErrorModel, rows: Predictions, shape: Bins) -> ClusterNoise | None:
    """The noise that clusters of rows have in common; None without clusters."""
    n_clusters = number_of(rows.clusters)
    return None if n_clusters is None else ClusterNoise(model.covariance_of_clusters(rows, shape), n_clusters)


def _crossing(share_below: Callable[[float], float], share: float) -> float:
    """The t at which a falling function reaches a share, by bisection; 0 where it begins below."""
    largest_t = 64.0  # a model that is off by 64 times what was seen is at 0 or 1 nearly everywhere
    n_halvings = 12  # to 1/4096 of the bracket: less than the noise of some hundred replicates
    if share_below(0.0) <= share:
        return 0.0
    low = 0.0
    high = 1.0
    while share_below(high) > share:
        low = high
        high = 2.0 * high
        if high > largest_t:
            return low
    for _ in range(n_halvings):
        middle = (low + high) / 2.0
        if share_below(middle) > share:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _smoothed_gaps(bins: Bins, cells: Bins) -> Vector:
    """The smoothed gaps of bins, at the ranks of the cells."""
    return _gaps_at(bins, cells, smoothed(bins.gap / bins.weight))


def _gaps_at(bins: Bins, cells: Bins, gap: Vector) -> Vector:
    """Gaps of bins at the ranks of the cells."""
    return np.asarray(np.interp(_mid_ranks(cells), _mid_ranks(bins), gap))


def smoothed(gap: Vector) -> Vector:
    """The gaps of bins, each averaged twice with its neighbours."""
    for _ in range(2):
        padded = np.concatenate([gap[:1], gap, gap[-1:]])
        gap = (padded[:-2] + 2.0 * gap + padded[2:]) / 4.0
    return gap


def _mid_ranks(bins: Bins) -> Vector:
    """The share of the weight below the middle of each bin."""
    ranks: Vector = (np.cumsum(bins.weight) - bins.weight / 2.0) / bins.weight.sum()
    return ranks
