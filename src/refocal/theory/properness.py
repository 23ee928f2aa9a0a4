"""Focal loss as a proper loss behind a map (Propositions 1, 2 and 4): minimisers, risks, curvature."""

from __future__ import annotations

from collections.abc import Callable

from refocal._arrays import Array, as_floating, namespace, without_warnings
from refocal._validation import check_number, check_parameter, check_probabilities
from refocal.errors import DataError
from refocal.maps import inverse_focal


@without_warnings
def focal_minimizer(p: Array, gamma: float | Array) -> Array:
    """The prediction q that minimises expected focal loss when the true probabilities are p.

    >>> focal_minimizer([0.8, 0.2], gamma=2.0).round(4)
    array([0.6266, 0.3734])
    """
    p = check_probabilities(p, "p", "focal_minimizer")
    xp = namespace(p)
    return xp.exp(inverse_focal(xp.log(p), gamma))


@without_warnings
def conditional_risk(p: Array, q: Array, loss: Callable[[Array, Array], Array]) -> Array:
    """Expected loss of predicting q when the true probabilities are p: R(p, q) = Σ_i p_i L(q, i).

    `loss` takes (log-probabilities, labels) and returns one value for each row, as those of `refocal.losses` do.

    >>> from functools import partial
    >>> from refocal import losses
    >>> loss = partial(losses.focal, gamma=2.0)
    >>> bool(conditional_risk([0.8, 0.2], [0.6266, 0.3734], loss) < conditional_risk([0.8, 0.2], [0.8, 0.2], loss))
    True
    """
    p = check_probabilities(p, "p", "conditional_risk")
    q = check_probabilities(q, "q", "conditional_risk")
    xp = namespace(p, q)
    p, q = xp.broadcast_arrays(p, q)
    log_q = xp.log(q)
    label = xp.zeros(tuple(q.shape[:-1]), dtype=xp.int64, device=getattr(q, "device", None))
    # A class that cannot occur costs nothing, even where its loss is infinite.
    terms = [xp.where(p[..., i] > 0, p[..., i] * loss(log_q, label + i), 0.0) for i in range(q.shape[-1])]
    return xp.sum(xp.stack(terms), axis=0)


@without_warnings
def proper_weight(p: Array, gamma: float) -> Array:
    """The weight w(p) of the proper part L* of binary focal loss, for 0 < p < 1 and γ ≥ 0 (Proposition 2).

    A binary loss is proper if dL*(p, 0)/dp = p w(p) and dL*(p, 1)/dp = -(1-p) w(p) with some w(p) > 0, which says how
    much the loss cares about probabilities near p. With l(q) = -(1-q)^γ log q and q = `focal_minimizer` of p,

        w = s³ / (l''(q) |l'(1-q)| + l''(1-q) |l'(q)|),   s = |l'(q)| + |l'(1-q)|.

    At γ = 0 it is that of cross-entropy, 1 / (p (1-p)).

    >>> proper_weight([0.5, 0.8], gamma=0.0)
    array([4.  , 6.25])
    >>> proper_weight([0.5, 0.8], gamma=2.0).round(3)
    array([0.892, 1.559])
    """
    p, _ = as_floating(p, "p", "proper_weight")
    xp = namespace(p)
    if not bool(xp.all((p > 0.0) & (p < 1.0))):
        raise DataError("p", "proper_weight", expected="between 0 and 1, both excluded", got="other values")
    g = check_number(gamma, "gamma", "proper_weight", least=0.0)
    q = focal_minimizer(xp.stack([p, 1.0 - p], axis=-1), g)
    rest = xp.flip(q, axis=-1)
    slope = rest**g * (1.0 - g * q * xp.log(q) / rest) / q  # |l'| of q and of 1-q
    other = xp.flip(slope, axis=-1)
    return xp.sum(slope, axis=-1) ** 3 / xp.sum(focal_curvature(q, g) * other, axis=-1)


@without_warnings
def focal_curvature(q: Array, gamma: float) -> Array:
    """Second derivative of focal loss -(1-q)^γ log q in q, for 0 < q < 1 (Proposition 1).

    (1-q)^γ [1/q² + γ (2/q - (1-γ) (-log q)/(1-q)) / (1-q)];  positive for every q if γ ≥ 0, so the loss is convex.
    For -1 < γ < 0 it is negative close to q = 1: there focal loss is not convex.

    >>> focal_curvature([0.25, 0.5], gamma=1.0)
    array([20.,  6.])
    """
    q, _ = as_floating(q, "q", "focal_curvature")
    xp = namespace(q)
    if not bool(xp.all((q > 0.0) & (q < 1.0))):
        raise DataError("q", "focal_curvature", expected="between 0 and 1, both excluded", got="other values")
    g = check_parameter(gamma, "gamma", "focal_curvature", above=-1.0, like=q[..., None])[..., 0]
    ratio = -xp.log(q) / (1.0 - q)
    return (1.0 - q) ** g * (1.0 / q**2 + g * (2.0 / q - (1.0 - g) * ratio) / (1.0 - q))
