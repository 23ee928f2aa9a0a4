"""The data of a search, and everything that is measured on it, as sums over blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, as_floating, namespace, row_blocks, take_label, to_numpy, without_warnings
from refocal.maps.derivatives import derivatives
from refocal.maps.forward import focal_gaps, focal_temperature
from refocal.maps.row import gaps, softmax_row

Vector = NDArray[np.float64]


class Curvature(NamedTuple):
    """Mean log-loss with its gradient and Hessian in (γ, 1/T)."""

    value: float
    gradient: Vector
    hessian: Vector


class Predictions(NamedTuple):
    """What calibration is measured on, for each row: log-probability of the label, probability of the top class."""

    label_log_p: Vector
    confidence: Vector


class Problem:
    """Checked logits (N, C), labels and weights; `passes` counts how often all of them were walked through."""

    def __init__(self, logits: Array, labels: Array, weight: Vector | None = None) -> None:
        self.logits = logits
        self.labels = labels
        self.weight = weight
        self.passes = 0
        self._xp = namespace(logits)
        self._total = float(len(labels)) if weight is None else float(weight.sum())
        top = [to_numpy(self._xp.argmax(x, axis=-1) == y) for x, y, _ in self._blocks()]
        self.correct: NDArray[np.bool_] = np.concatenate(top)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.logits.shape[0])

    @property
    def precision(self) -> float:
        """The machine epsilon that rows are computed in; half precision is computed in float32."""
        dtype = self.logits.dtype
        xp = self._xp
        return float(xp.finfo(xp.float64 if dtype == xp.float64 else xp.float32).eps)

    def part(self, n_rows: int) -> Problem:
        """About `n_rows` of the rows, evenly spread."""
        step = max(1, self.n_rows // n_rows)
        weight = None if self.weight is None else self.weight[::step]
        return Problem(self.logits[::step, :], self.labels[::step], weight)

    @without_warnings
    def typical_gap(self) -> float:
        """Mean distance from the top logit to the mean of the others: the scale of the logits, 0 if all are equal."""
        total = 0.0
        for x, _, _ in self._blocks():
            row = gaps(self._xp, x, 1.0)
            finite = self._xp.where(row.gap > -self._xp.inf, row.gap, 0.0)
            total -= float(self._xp.sum(finite)) / (x.shape[-1] - 1)
        return total / self.n_rows

    @without_warnings
    def temperature_curvature(self, slope: float) -> tuple[float, float, float]:
        """Mean log-loss of temperature scaling with first and second derivative in 1/T = `slope`; convex in it."""
        xp, sums = self._xp, np.zeros(3)
        self.passes += 1
        for x, y, weight in self._blocks():
            raw, is_top = gaps(xp, x, 1.0)
            q = xp.exp(raw * slope)
            norm = 1.0 + xp.sum(xp.where(is_top, 0.0, q), axis=-1)
            raw = xp.where(raw == -xp.inf, 0.0, raw)
            mean = xp.sum(q * raw, axis=-1) / norm
            label = take_label(raw, y)
            terms = (
                xp.log1p(norm - 1.0) - label * slope,
                mean - label,
                xp.sum(q * raw**2, axis=-1) / norm - mean**2,
            )
            sums += [_total(term, weight) for term in terms]
        value, first, second = sums / self._total
        return float(value), float(first), float(second)

    @without_warnings
    def curvature(self, gamma: float, temperature: float) -> Curvature:
        """Mean log-loss of focal temperature scaling with gradient and Hessian."""
        sums = np.zeros(7)
        self.passes += 1
        for x, y, weight in self._blocks():
            found = derivatives(self._xp, x, y, gamma, temperature)
            flat = [found.gradient[..., 0], found.gradient[..., 1]]
            flat += [found.hessian[..., i, j] for i in range(2) for j in range(2)]
            sums -= [_total(term, weight) for term in (found.log_p, *flat)]
        sums /= self._total
        return Curvature(float(sums[0]), sums[1:3], sums[3:].reshape(2, 2))

    @without_warnings
    def predictions(self, gammas: tuple[float, ...], temperature: float) -> list[Predictions]:
        """The predictions at one temperature for several γ, which share the softmax."""
        xp = self._xp
        self.passes += len(gammas)
        parts: list[list[tuple[Any, Any]]] = [[] for _ in gammas]
        for x, y, _ in self._blocks():
            row = softmax_row(xp, x, temperature)
            for i, gamma in enumerate(gammas):
                gap = row.gap if gamma == 0.0 else focal_gaps(xp, row, gamma)
                log_norm = xp.log1p(xp.sum(xp.where(row.is_top, 0.0, xp.exp(gap)), axis=-1))
                parts[i].append((to_numpy(take_label(gap, y) - log_norm), to_numpy(xp.exp(-log_norm))))
        return [
            Predictions(*(np.concatenate(column).astype(np.float64) for column in zip(*part, strict=True)))
            for part in parts
        ]

    def measure(self, metric: Any, gamma: float, temperature: float) -> float:
        """A metric (labels, probabilities) → float of the whole data."""
        probabilities = np.exp(to_numpy(focal_temperature(self.logits, gamma, temperature)))
        weights = {} if self.weight is None else {"sample_weight": self.weight}
        return float(metric(to_numpy(self.labels), probabilities, **weights))

    def mean(self, values: Vector) -> float:
        """The weighted mean of one number a row."""
        return float(values.mean()) if self.weight is None else float(values @ self.weight) / self._total

    def _blocks(self) -> Iterator[tuple[Array, Array, Vector | None]]:
        for rows in row_blocks(*self.logits.shape):
            x, _ = as_floating(self.logits[rows, :], "logits", "fit")
            yield x, self.labels[rows], None if self.weight is None else self.weight[rows]


def _total(values: Array, weight: Vector | None) -> float:
    """The sum in float64, whatever the precision of the values."""
    column = to_numpy(values).astype(np.float64, copy=False)
    return float(column.sum() if weight is None else column @ weight)
