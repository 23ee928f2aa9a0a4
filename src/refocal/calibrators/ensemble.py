"""Ensemble temperature scaling: a mixture of what the network says hot, says itself, and of saying nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize

from refocal._arrays import Array, as_array, as_floating, namespace, row_blocks, take_label, to_numpy, without_warnings
from refocal.calibrators._base import FLOOR, Calibrator, Vector, checked_number
from refocal.engine import Dataset
from refocal.errors import FormatError
from refocal.fitting import Solution
from refocal.fitting.newton import newton_temperature
from refocal.maps import focal_temperature, log_softmax

# A weight below this is what rounding leaves of 0.
NOTHING = 1e-9


class EnsembleTemperatureScaling(Calibrator):
    """Ensemble temperature scaling (Zhang, Kailkhura & Han 2020).

    p = w₁·softmax(logits / T) + w₂·softmax(logits) + w₃/C: first T, then the weights by the log-loss. Keeps the order
    of the classes. `temperature_` and `weights_` tell what was found.

    Parameters
    ----------
    input : "logits" or "probabilities"
        What the columns hold.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(5000, 10))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> calibrator = EnsembleTemperatureScaling().fit(3.0 * logits, labels)
    >>> calibrator.weights_.sum().round(12)
    np.float64(1.0)
    """

    temperature_: float
    weights_: Vector
    solution_: Solution

    def __init__(self, *, input: str = "logits") -> None:  # noqa: A002
        self.input = input

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> dict[str, Any]:
        block = self._block_of(dataset)
        logits, labels, weight = block.logits, block.labels, block.weight
        solution = newton_temperature(block)
        parts = []
        for rows in row_blocks(logits.shape[0], logits.shape[1], entries=1 << 20):
            x, _ = as_floating(logits[rows, :], "logits", "fit")
            members = _members(x, solution.temperature)
            parts.append([to_numpy(take_label(member, labels[rows])).astype(np.float64) for member in members])
        weights = _mixture(np.concatenate(parts, axis=1), weight)
        return {"temperature_": solution.temperature, "weights_": weights, "solution_": solution}

    @without_warnings
    def _log_proba(self, logits: Array) -> Array:
        x, dtype = as_floating(logits, "X", "predict_log_proba")
        xp = namespace(x)
        members = [m + math.log(w) for m, w in zip(_members(x, self.temperature_), self.weights_, strict=True) if w > 0]
        largest = members[0]
        for member in members[1:]:
            largest = xp.maximum(largest, member)
        shift = xp.where(largest == -xp.inf, 0.0, largest)
        total = sum(xp.exp(member - shift) for member in members)
        return xp.astype(shift + xp.log(total), dtype)

    def _predicted_index(self, X: Array) -> Array:
        # Of the logits themselves: two that differ in the last digit may round to the same probability.
        log_p = self.predict_log_proba(X)
        return namespace(log_p).argmax(as_array(X, "X", "predict"), axis=-1)

    def _state(self) -> dict[str, Any]:
        return {"temperature": self.temperature_, "weights": self.weights_.tolist()}

    def _restore(self, state: dict[str, Any], n_classes: int) -> None:
        self.temperature_ = checked_number(state, "temperature")
        weights = state.get("weights")
        if not isinstance(weights, list) or len(weights) != 3 or any(type(w) not in (int, float) for w in weights):
            raise FormatError("'weights' must be a list of three numbers.")
        if not (min(weights) >= 0.0 and weights[2] > 0.0 and abs(sum(weights) - 1.0) < 1e-9):
            raise FormatError("'weights' must be at least 0, the last above it, and sum to 1.")
        self.weights_ = np.array(weights, dtype=np.float64)


def _members(logits: Array, temperature: float) -> tuple[Array, Array, Array]:
    """The log-probabilities that are mixed; classes that cannot occur have no part in the uniform ones."""
    xp = namespace(logits)
    possible = logits > -xp.inf
    n_possible = xp.sum(xp.astype(possible, logits.dtype), axis=-1, keepdims=True)
    uniform = xp.where(possible, -xp.log(n_possible), -xp.inf)
    return focal_temperature(logits, 0.0, temperature), log_softmax(logits), uniform


def _mixture(log_p: Vector, weight: Vector | None) -> Vector:
    """The weights of least log-loss, a convex problem; the uniform member keeps enough for no probability to be 0."""
    share = np.full(log_p.shape[1], 1.0 / log_p.shape[1]) if weight is None else weight / weight.sum()
    p = np.exp(log_p - log_p.max(axis=0))
    n_rows = log_p.shape[1] if weight is None else float(weight.sum())
    least = np.array([0.0, 0.0, FLOOR / (1.0 + n_rows)])

    def loss(v: Vector) -> tuple[float, Vector]:
        mixed = v @ p
        return -float(share @ np.log(mixed)), -(p / mixed) @ share

    start = np.array([0.9, 0.05, 0.05])
    found = minimize(
        loss,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(low, 1.0) for low in least],
        constraints={"type": "eq", "fun": lambda v: v.sum() - 1.0, "jac": lambda v: np.ones(3)},
        options={"ftol": 1e-13, "maxiter": 500},
    )
    best = np.maximum(np.where(found.x < NOTHING, 0.0, found.x), least)
    return np.asarray(best / best.sum())
