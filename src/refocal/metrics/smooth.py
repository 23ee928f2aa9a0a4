"""Calibration measures without bins: smooth ECE, the Kolmogorov-Smirnov error and CORP reliability."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from refocal._arrays import Flags, Vector
from refocal._validation import check_number
from refocal.metrics.bins import Bins, bins_of, isotonic_fit, rank
from refocal.metrics.inputs import mean, read_probabilities
from refocal.metrics.inverted_error import ErrorModel
from refocal.metrics.record import OF_CONFIDENCE, Metric, StreamedMetric
from refocal.metrics.scores import murphy
from refocal.rows import Predictions
from refocal.rows.labels import IgnoreIndex

__all__ = ["CorpReliability", "corp_reliability", "ks_calibration_error", "smooth_ece"]

_CELLS = 1 << 16
GRID_POINTS = _CELLS + 1
"""The points of the grid on which `residuals_on_grid` adds up residuals."""


@dataclass(frozen=True)
class CorpReliability:
    """The pools of the isotonic regression, of rising accuracy, and the parts of the Brier score.

    brier = miscalibration - discrimination + uncertainty.

    >>> found = corp_reliability([0, 1, 1, 1], [0.25, 0.75, 0.75, 1.0])
    >>> found.count, found.accuracy
    ([1, 3], [0.0, 1.0])
    >>> found.brier == found.miscalibration - found.discrimination + found.uncertainty
    True
    """

    count: list[int]
    weight: list[float]
    confidence: list[float]
    accuracy: list[float]
    brier: float
    miscalibration: float
    discrimination: float
    uncertainty: float


def smooth_ece(
    y_true: Any,
    probabilities: Any = None,
    *,
    bandwidth: float | None = None,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """Smooth calibration error (Błasiok & Nakkiran 2023), a consistent measure without bins.

    smECE_σ = ∫₀¹ |Σ_i w_i (c_i - y_i) K_σ(t, c_i)| dt, where K_σ is the Gaussian kernel reflected at 0 and 1 and the
    weights sum to 1. The bandwidth is the one for which smECE_σ = σ, unless `bandwidth` fixes it. In cosines
    K_σ(t, c) = 1 + 2 Σ_k exp(-k²π²σ²/2) cos(kπt) cos(kπc), so one Fourier transform of the residuals on a fine grid
    serves every σ.

    >>> y, p = [0, 1] * 50, [0.75] * 100
    >>> round(smooth_ece(y, p), 6)
    0.25
    """
    rows = read_probabilities(y_true, probabilities, sample_weight, "smooth_ece", ignore_index, class_names=classes)
    if bandwidth is not None:
        check_number(bandwidth, "bandwidth", "smooth_ece", above=0.0, also="None or ")
    return smooth_error(*rows.confidence(), rows.weight, bandwidth=bandwidth)


def smooth_error(
    confidence: Vector, correct: Vector | Flags, weight: Vector | None, *, bandwidth: float | None = None
) -> float:
    """`smooth_ece` of checked vectors."""
    total = confidence.shape[0] if weight is None else float(weight.sum())
    return smooth_error_of(residuals_on_grid(confidence, correct, weight) / total, bandwidth=bandwidth)


def smooth_error_of(residuals: Vector, *, bandwidth: float | None = None) -> float:
    """The smooth error of residuals on the grid, divided by the weight of their rows."""
    cells_per_bandwidth = 32  # the grid of the integral must be fine beside the bandwidth
    cosines = _cosine_transform(residuals)
    width = 0.0 if bandwidth is None else bandwidth
    for n_cells in (1 << 12, 1 << 14, _CELLS):
        smoothed = _smoother(cosines, n_cells)
        if bandwidth is None:
            width = _fixed_point(smoothed, guess=width)
        if width * n_cells >= cells_per_bandwidth:
            break
    return smoothed(width)


def ks_calibration_error(
    y_true: Any,
    probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """Largest gap between cumulative confidence and cumulative accuracy (Gupta et al. 2021).

    max over x of |Σ_{c_i ≤ x} w_i (c_i - y_i)| with weights that sum to 1; rows of equal
    confidence are added together, so their order does not matter.

    >>> ks_calibration_error([0, 1, 1, 1], [0.25, 0.25, 0.75, 0.75])
    0.25
    """
    rows = read_probabilities(
        y_true, probabilities, sample_weight, "ks_calibration_error", ignore_index, class_names=classes
    )
    ties = rank(*rows.confidence(), rows.weight).ties()
    return float(np.abs(np.cumsum(ties.gap)).max() / ties.weight.sum())


def corp_reliability(
    y_true: Any,
    probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> CorpReliability:
    """CORP reliability (Dimitriadis et al. 2021): recalibration by isotonic regression, without bins.

    The Brier score of the confidence splits into miscalibration (what recalibration removes), discrimination (what
    the recalibrated confidence gains over the base rate) and the uncertainty of the base rate.

    >>> corp = corp_reliability([0, 1, 1, 1], [0.25, 0.25, 0.75, 0.75])
    >>> corp.accuracy, corp.miscalibration, corp.discrimination, corp.uncertainty
    ([0.5, 1.0], 0.0625, 0.0625, 0.1875)
    """
    rows = read_probabilities(
        y_true, probabilities, sample_weight, "corp_reliability", ignore_index, class_names=classes
    )
    confidence, correct = rows.confidence()
    pools = isotonic_fit(confidence, correct, rows.weight)
    brier = mean(np.square(confidence - correct), rows.weight)
    _, recalibrated, uncertainty = murphy(pools)
    return CorpReliability(
        count=pools.count.tolist(),
        weight=pools.weight.tolist(),
        confidence=pools.p.tolist(),
        accuracy=pools.rate.tolist(),
        brier=brier,
        miscalibration=brier - recalibrated,
        discrimination=uncertainty - recalibrated,
        uncertainty=uncertainty,
    )


def residuals_on_grid(confidence: Vector, correct: Vector | Flags, weight: Vector | None) -> Vector:
    """Σ w(c - y), each sample shared between its two nearest grid points in proportion: what blocks can add up."""
    block_rows = 1 << 15  # temporaries that stay in the cache
    whole = np.zeros(_CELLS)  # the residuals of each cell
    shifted = np.zeros(_CELLS)  # and what of them belongs to its upper end
    for start in range(0, confidence.shape[0], block_rows):
        block = slice(start, start + block_rows)
        residual = confidence[block] - correct[block]
        if weight is not None:
            residual *= weight[block]
        position = confidence[block] * _CELLS
        cell = np.minimum(position.astype(np.int64), _CELLS - 1)
        position -= cell
        np.add.at(whole, cell, residual)
        position *= residual
        np.add.at(shifted, cell, position)
    grid = np.append(whole - shifted, 0.0)
    grid[1:] += shifted
    return grid


def _cosine_transform(grid: Vector) -> Vector:
    """Σ_j grid_j cos(kπ j/cells) for k = 0 … cells."""
    mirrored = np.concatenate([grid, grid[-2:0:-1]])
    mirrored[1 : grid.shape[0] - 1] /= 2.0
    mirrored[grid.shape[0] :] /= 2.0
    return np.fft.rfft(mirrored).real


def _smoother(cosines: Vector, cells: int) -> Callable[[float], float]:
    """The function σ ↦ smECE_σ, integrated over `cells` cells: 1/cells must be small compared with σ."""
    waves = cosines[: cells + 1] * (2.0 * cells)
    rates = np.square(np.arange(cells + 1) * math.pi) / 2.0

    @cache
    def smoothed(bandwidth: float) -> float:
        density = np.abs(np.fft.irfft(waves * np.exp(-rates * bandwidth**2), 2 * cells)[: cells + 1])
        return float(density.sum() - (density[0] + density[-1]) / 2.0) / float(cells)

    return smoothed


def _fixed_point(smoothed: Callable[[float], float], guess: float) -> float:
    """The σ with smoothed(σ) = σ; smoothed falls with σ and lies in [0, 1].

    A guess from a coarser grid narrows the search where it holds.
    """
    # SciPy loads when it is needed, as everywhere.
    from scipy.optimize import brentq

    low = 0.98 * guess
    high = 1.02 * guess
    if not smoothed(low) > low:
        low = 0.0
    if not smoothed(high) < high:
        high = 1.0
    return float(brentq(lambda width: smoothed(width) - width, low, high, xtol=1e-14))


def _cells_of(rows: Predictions) -> Bins:
    """Cells of rows for the interval of an error without bins; with clusters of several rows each.

    What a cluster has in common shows in how the outcomes of a cell vary, and not in a cell of one row.
    """
    rows_of_a_cell = 10
    n_cells = 256  # which an error without bins hardly notices
    if rows.clusters is not None:
        n_cells = min(n_cells, max(len(rows.labels) // rows_of_a_cell, 1))
    return bins_of(rows, n_bins=n_cells)


def _ks_model(rows: Predictions) -> ErrorModel:
    cells = _cells_of(rows)

    def error(gap: Vector) -> Any:
        return np.abs(np.cumsum(gap * cells.share, axis=-1)).max(axis=-1)

    return ErrorModel(cells, error, true_error=error, error_scale=error)


def _smooth_model(rows: Predictions, *, bandwidth: float | None = None) -> ErrorModel:
    """The bandwidth of a draw is at most the observed error exactly if its error at that bandwidth is."""
    value = smooth_ece(rows, None, bandwidth=bandwidth)
    cells = _cells_of(rows)
    width = max(value, 1.0 / _CELLS) if bandwidth is None else bandwidth
    smoothed = cells.share[:, None] * _kernel(cells.p, width)

    def true_error(gap: Vector) -> float:
        return smooth_error(cells.p, cells.p - gap, cells.share, bandwidth=bandwidth)

    def at_width(gap: Vector) -> Any:
        return np.abs(gap @ smoothed).mean(axis=-1)

    return ErrorModel(cells, at_width, true_error=true_error, error_scale=at_width, observed=value)


def _kernel(confidence: Vector, width: float) -> Vector:
    """K_σ(t, c) for each confidence, at the middles of intervals of t that are narrow beside σ."""
    n = int(min(max(64.0, 8.0 / width), 4096.0))
    t = (np.arange(n) + 0.5) / n
    reach = math.ceil(4.0 * width) + 1
    images = [2.0 * period + sign * confidence for period in range(-reach, reach + 1) for sign in (1.0, -1.0)]
    density = sum(np.exp(-0.5 * np.square((t - image[:, None]) / width)) for image in images)
    return np.asarray(density / (width * math.sqrt(2.0 * math.pi)))


METRICS = (
    Metric(
        "smooth_ece",
        smooth_ece,
        "smooth ECE",
        lambda sums: StreamedMetric(smooth_error_of(sums.residuals)),
        _smooth_model,
        shown="value",
        **OF_CONFIDENCE,
    ),
    Metric(
        "ks_calibration_error",
        ks_calibration_error,
        "KS error",
        lambda sums: StreamedMetric(sums.calibration.ks, sums.calibration.ks_bound),
        _ks_model,
        shown="value",
        **OF_CONFIDENCE,
    ),
    Metric(
        "corp_reliability",
        corp_reliability,
        "CORP miscalibration",
        of_rows=lambda rows: corp_reliability(rows, None).miscalibration,
        of_confidence=True,
        raised_by_noise=True,
    ),
)
