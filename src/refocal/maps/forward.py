"""Softmax with a temperature, the focal calibration map, the two composed, and label smoothing undone."""

from __future__ import annotations

from typing import Any

from refocal._arrays import Array, namespace, stop_gradient, without_warnings
from refocal._validation import check_class_weight, check_logits, check_number, check_parameter
from refocal.maps.row import Row, gaps, log_minus, normalise, normalised, softmax_row


@without_warnings
def log_softmax(logits: Array, temperature: float | Array = 1.0) -> Array:
    """Log-probabilities of temperature-scaled logits: log softmax(logits / T), T > 0.

    >>> import numpy as np
    >>> np.exp(log_softmax(np.log([0.9, 0.1]), temperature=2.0)).round(3)
    array([0.75, 0.25])
    """
    x, dtype = check_logits(logits, "logits", "log_softmax")
    scale = check_parameter(temperature, "temperature", "log_softmax", above=0.0, like=x)
    xp = namespace(x)
    return xp.astype(normalise(xp, *gaps(xp, x, scale)), dtype, copy=False)


@without_warnings
def focal(log_q: Array, gamma: float | Array, *, class_weight: Array = None) -> Array:
    """Focal calibration map: what a focal-loss minimiser predicts → the probabilities it stands for.

    log p_j = log q_j - γ log(1-q_j) - log1p(γ h(q_j)) + const,  h(q) = -q log q / (1-q),  γ > -1; γ = 0 is the identity

    Rows of `log_q` are normalised first, so unnormalised log-probabilities (logits) do as well. Where the loss of class
    j was multiplied by `class_weight[j]`, p_j is divided by it after the map; the order of the classes may change.

    >>> import numpy as np
    >>> np.exp(focal(np.log([0.6266, 0.3734]), gamma=2.0)).round(3)
    array([0.8, 0.2])
    >>> np.exp(focal(np.log([0.6, 0.4]), gamma=2.0, class_weight=[0.75, 0.25])).round(3)
    array([0.497, 0.503])
    """
    return _focal(log_q, "log_q", gamma, 1.0, class_weight, "focal")


@without_warnings
def focal_temperature(
    logits: Array, gamma: float | Array, temperature: float | Array, *, class_weight: Array = None
) -> Array:
    """Focal temperature scaling: the logits are divided by T, then the focal calibration map is applied.

    `class_weight` is taken out after the map, as in `focal`.

    >>> import numpy as np
    >>> np.exp(focal_temperature([2.0, 1.0, 0.0], gamma=1.0, temperature=1.5)).round(3)
    array([0.649, 0.237, 0.115])
    """
    return _focal(logits, "logits", gamma, temperature, class_weight, "focal_temperature")


def _focal(values: Any, argument: str, gamma: Any, temperature: Any, class_weight: Any, function: str) -> Array:
    x, dtype = check_logits(values, argument, function)
    gamma = check_parameter(gamma, "gamma", function, above=-1.0, like=x)
    scale = check_parameter(temperature, "temperature", function, above=0.0, like=x)
    xp = namespace(x)
    log_p = focal_map_of_row(xp, softmax_row(xp, x, scale), gamma)
    if class_weight is not None:
        log_weight = xp.log(check_class_weight(class_weight, function, like=log_p))
        log_p = normalised(xp, log_p - log_weight)
    return xp.astype(log_p, dtype, copy=False)


def focal_map_of_row(xp: Any, row: Row, gamma: Any) -> Array:
    """The focal calibration map of a prepared row."""
    return normalise(xp, focal_gaps(xp, row, gamma), row.is_top)


def focal_gaps(xp: Any, row: Row, gamma: Any) -> Array:
    """Log p_j - log p_top: all relative to the top, so that γ = 0 gives the softmax's bits."""
    log_not_q = xp.where(row.is_top, row.top_log_not_q, row.log_not_q)
    gap = (
        row.gap
        - gamma * (log_not_q - row.top_log_not_q)
        - (xp.log1p(gamma * row.h) - xp.log1p(gamma * row.top_h))
    )  # fmt: skip
    # The map keeps the order of the classes; keep it against the last bit of rounding too, ties included.
    return gap - stop_gradient(xp.where((row.gap == 0.0) | (gap > 0.0), gap, 0.0))


@without_warnings
def unsmooth(log_u: Array, label_smoothing: float) -> Array:
    """Inverse of label smoothing: log p with p = (u - ε/C) / (1-ε), from unnormalised log u.

    With labels smoothed by ε the truth p is seen as u = (1-ε) p + ε/C, and that is what a network learns to predict.
    No p leads to a u below ε/C: such a class gets probability 0, and the others share what is left in proportion.
    For focal loss with weights: ``unsmooth(focal(log_q, gamma, class_weight=w), label_smoothing)``.

    >>> import numpy as np
    >>> np.exp(unsmooth(np.log([0.75, 0.21, 0.04]), label_smoothing=0.1)).round(3)
    array([0.796, 0.196, 0.007])
    """
    x, dtype = check_logits(log_u, "log_u", "unsmooth")
    epsilon = check_number(label_smoothing, "label_smoothing", "unsmooth", least=0.0, below=1.0)
    xp = namespace(x)
    found = unsmoothed(xp, normalised(xp, x), epsilon)
    return xp.astype(normalised(xp, found), dtype, copy=False)


def unsmoothed(xp: Any, log_u: Array, epsilon: Any) -> Array:
    """log(u - ε/C) of log-probabilities, which are scores of p; -inf where u is no larger than ε/C."""
    found, is_larger = log_minus(xp, log_u, epsilon / log_u.shape[-1])
    return xp.where(is_larger, found, -xp.inf)
