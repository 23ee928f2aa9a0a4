"""What a search needs of focal temperature scaling: the label's log-probability, slope and curvature in one pass."""

from __future__ import annotations

from typing import Any, NamedTuple

from refocal._arrays import Array, namespace, take_label, without_warnings
from refocal._validation import check_labels, check_logits, check_parameter
from refocal.maps.forward import focal_map_of_row
from refocal.maps.row import Row, softmax_row


class LabelDerivatives(NamedTuple):
    """log p of each row's label and its derivatives with respect to (γ, 1/T).

    >>> import numpy as np
    >>> found = label_derivatives(np.array([[2.0, 0.0]]), np.array([0]), gamma=0.0, temperature=1.0)
    >>> np.exp(found.log_p).round(4), found.gradient.shape, found.hessian.shape
    (array([0.8808]), (1, 2), (1, 2, 2))
    """

    log_p: Array  # (...)
    gradient: Array  # (..., 2)
    hessian: Array  # (..., 2, 2)


# First and second derivatives of the log-weight x_j with respect to γ (g) and b = 1/T: g, b, gg, gb and bb.
_Slopes = tuple[Array, Array, Array, Array, Array]


@without_warnings
def label_derivatives(
    logits: Array, labels: Array, gamma: float | Array, temperature: float | Array
) -> LabelDerivatives:
    """Value, gradient and Hessian of the label's log-probability under focal temperature scaling in (γ, 1/T).

    A label whose logit is -inf has log-probability -inf wherever (γ, T) lies, and derivatives 0.

    >>> import numpy as np
    >>> label_derivatives(np.array([[2.0, 0.0]]), np.array([0]), gamma=1.0, temperature=1.0).gradient.round(4)
    array([[0.0467, 0.0987]])
    """
    name = "label_derivatives"
    x, dtype = check_logits(logits, "logits", name)
    y = check_labels(labels, x, name)
    gamma = check_parameter(gamma, "gamma", name, above=-1.0, like=x)
    scale = check_parameter(temperature, "temperature", name, above=0.0, like=x)
    xp = namespace(x)
    return LabelDerivatives(*(xp.astype(part, dtype, copy=False) for part in derivatives(xp, x, y, gamma, scale)))


def derivatives(xp: Any, x: Array, y: Array, gamma: Any, scale: Any) -> LabelDerivatives:
    """`label_derivatives` of checked arrays."""
    row = softmax_row(xp, x, scale)
    return derivatives_of_row(xp, row, focal_map_of_row(xp, row, gamma), y, gamma, scale)


def derivatives_of_row(xp: Any, row: Row, log_p: Array, y: Array, gamma: Any, scale: Any) -> LabelDerivatives:
    """The derivatives at log-probabilities that the focal map made of a row, with constants added after it."""
    # Slopes are taken along the raw gaps; an impossible class has no weight, so any finite stand-in does.
    raw = xp.where(row.gap == -xp.inf, 0.0, row.gap * scale)
    top, others = _top_slopes(xp, row, raw, gamma), _others_slopes(xp, row, raw, gamma)
    # With x_j - x_top for x_j the top drops out of every sum, and nothing large cancels where it is close to 1.
    g, b, gg, gb, bb = (xp.where(row.is_top, 0.0, of - at_top) for of, at_top in zip(others, top, strict=True))

    p = xp.exp(log_p)
    mean_g, mean_b = xp.vecdot(p, g), xp.vecdot(p, b)
    over_all = (
        mean_g,
        mean_b,
        xp.vecdot(p, gg + g * g) - mean_g * mean_g,
        xp.vecdot(p, gb + g * b) - mean_g * mean_b,
        xp.vecdot(p, bb + b * b) - mean_b * mean_b,
    )
    possible = take_label(row.gap, y) > -xp.inf
    slope_g, slope_b, gg, gb, bb = (
        xp.where(possible, take_label(at_label, y) - mean, 0.0)
        for at_label, mean in zip((g, b, gg, gb, bb), over_all, strict=True)
    )
    hessian = xp.stack([xp.stack([gg, gb], axis=-1), xp.stack([gb, bb], axis=-1)], axis=-2)
    return LabelDerivatives(take_label(log_p, y), xp.stack([slope_g, slope_b], axis=-1), hessian)


def _sum(xp: Any, x: Array) -> Array:
    return xp.sum(x, axis=-1, keepdims=True)


def _top_slopes(xp: Any, row: Row, raw: Array, gamma: Array) -> _Slopes:
    """The top class along log((1-q)/q), whose slope in 1/T is the others' mean gap, its curvature their variance."""
    mean = _sum(xp, row.share * raw)
    variance = _sum(xp, row.share * (raw - mean) ** 2)
    q = 1.0 / (1.0 + row.top_rest)
    not_q = row.top_rest * q
    h = row.top_h
    h_1 = q - h
    h_2 = -not_q * q - h_1
    damp = 1.0 / (1.0 + gamma * h)
    x_1 = -not_q - gamma * q - gamma * damp * h_1
    x_2 = (gamma - 1.0) * not_q * q - gamma * damp * h_2 + (gamma * damp * h_1) ** 2
    mixed, bent = -(q + h_1 * damp**2) * mean, x_2 * mean**2 + x_1 * variance
    return -row.top_log_not_q - h * damp, x_1 * mean, (h * damp) ** 2, mixed, bent


def _others_slopes(xp: Any, row: Row, raw: Array, gamma: Array) -> _Slopes:
    """Every other class along log q_j."""
    not_top = row.top_rest / (1.0 + row.top_rest)
    mean = not_top * _sum(xp, row.share * raw)
    slope = raw - mean
    curvature = mean**2 - not_top * _sum(xp, row.share * raw**2)
    odds, h = row.odds, row.h
    bend = odds * (h - 1.0)
    h_1 = h + bend
    damp = 1.0 / (1.0 + gamma * h)
    part = gamma * damp
    turn = part * h_1
    x_1 = 1.0 + gamma * odds - turn
    x_2 = (1.0 + odds) * (gamma * odds - part * (h_1 + bend)) + turn * turn
    lost = h * damp
    mixed, bent = (odds - h_1 * damp * damp) * slope, x_2 * slope * slope + x_1 * curvature
    return -row.log_not_q - lost, x_1 * slope, lost * lost, mixed, bent
