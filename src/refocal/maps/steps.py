"""The steps that chains are made of: temperature, focal map, offset, affine map, mixture and others.

Curves of confidence and log-odds are steps too; see `curves`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from refocal._arrays import Array, cumulative_sum, namespace, take
from refocal.maps.chain import ABOVE_MINUS_1, ANY, DOUBLE, POSITIVE, SINGLE, Chain, Step
from refocal.maps.row import gaps, normalised, softmax_row
from refocal.maps.softmax import focal_gaps, unsmoothed

FLOOR = 87.0
"""How far below the top class a feature z lies at most: minus the logarithm of float32's smallest number.

One stray logit of -10,000 would otherwise outweigh all other rows.
"""

MASKED = 2e4
"""How far below the top class, in units of T, a class counts as masked: by -inf, -1e9 or, in half precision, -65504.

Its feature is twice as low as any other, and takes no part in the mean of its row: how many classes are masked says
nothing about the others.
"""

KINDS = ("logits", "tempered", "log-probabilities")
"""The kinds of features of an affine map; see `features`."""


@dataclass(frozen=True)
class Floor(Step, keeps_order=True):
    """Log-probabilities below `log_p` count as that: a probability of 0 says only that it was small.

    >>> np.exp(Floor(np.log(1e-3)).apply(np, np.log([0.9999, 0.0001]))).round(4)
    array([0.9999, 0.001 ])
    """

    log_p: float = field(metadata=ANY)

    def apply(self, xp: Any, scores: Array) -> Array:
        """Scores of at least `log_p`."""
        return xp.where(scores < self.log_p, self.log_p, scores)


@dataclass(frozen=True)
class Temperature(Step, keeps_order=True):
    """Scores divided by the temperature T.

    >>> Temperature(2.0).apply(np, np.array([[3.0, 1.0]]))
    array([[ 0., -1.]])
    """

    temperature: float = field(metadata=POSITIVE)

    def apply(self, xp: Any, scores: Array) -> Array:
        """Distances to the top class divided by T, which keep their digits under a large common offset."""
        return gaps(xp, scores, self.temperature).gap


@dataclass(frozen=True)
class Focal(Step, keeps_order=True):
    """The focal calibration map with γ.

    >>> Focal(2.0).apply(np, np.log([[0.6266, 0.3734]])).round(3)
    array([[ 0.   , -1.386]])
    """

    gamma: float = field(metadata=ABOVE_MINUS_1)

    def apply(self, xp: Any, scores: Array) -> Array:
        """Log p_j - log p_top after the map."""
        return focal_gaps(xp, softmax_row(xp, scores, 1.0), self.gamma)


@dataclass(frozen=True)
class Offset(Step):
    """A number added to the score of each class: -log w removes the class weights w of the training loss.

    >>> Offset(np.log([1.0, 3.0])).apply(np, np.zeros((1, 2))).round(3)
    array([[0.   , 1.099]])
    """

    offset: Array = field(metadata=DOUBLE)

    def apply(self, xp: Any, scores: Array) -> Array:
        """Scores and offsets added."""
        return scores + self.offset

    def fits(self, n_classes: int) -> bool:
        """One number for each class."""
        return np.shape(self.offset) == (n_classes,)


@dataclass(frozen=True)
class Unsmooth(Step, keeps_order=True):
    """Label smoothing by ε undone: probabilities in proportion to u - ε/C, and to a hundredth of u if that is more.

    Smoothed labels lead to no u below ε/C. Networks predict some, and no class is ruled out for it.

    >>> np.exp(Unsmooth(0.3).apply(np, np.log([0.7, 0.25, 0.05]))).round(4).tolist()
    [0.6, 0.15, 0.0005]
    """

    label_smoothing: float = field(metadata=POSITIVE)

    def apply(self, xp: Any, scores: Array) -> Array:
        """Scores of the probabilities before smoothing."""
        log_u = normalised(xp, scores)
        return xp.maximum(unsmoothed(xp, log_u, self.label_smoothing), log_u + math.log(0.01))

    def fits(self, n_classes: int) -> bool:
        """Less than all of a label is smoothed away."""
        return self.label_smoothing < 1.0


@dataclass(frozen=True)
class Affine(Step):
    """W z + b of the scores brought to a common level, z. W is a matrix (C, C) or, for a diagonal one, a vector (C,).

    >>> Affine("tempered", 1.0, np.ones(2), np.array([0.0, 1.0])).apply(np, np.log([[0.25, 0.75]])).round(3)
    array([[-1.386,  0.712]])
    """

    kind: str
    inner_temperature: float = field(metadata=POSITIVE)
    weights: Array = field(metadata=SINGLE)
    intercept: Array = field(metadata=SINGLE)

    def apply(self, xp: Any, scores: Array) -> Array:
        """W z + b; -inf where the score is -inf."""
        z = features(xp, scores, self.kind, self.inner_temperature)
        transformed = self.of_features(z)
        return xp.where(scores == -xp.inf, -xp.inf, transformed)

    def of_features(self, z: Array) -> Array:
        """W z + b of a diagonal; of a matrix W u + diag(W) (z - u) + b, where u is z with masked classes filled in.

        So a masked class counts for its own score alone.
        """
        if self.weights.ndim == 1:
            return z * self.weights + self.intercept
        filled = unmasked(namespace(z), z)
        diagonal = namespace(self.weights).linalg.diagonal(self.weights)
        return filled @ self.weights.T + (z - filled) * diagonal + self.intercept

    def fits(self, n_classes: int) -> bool:
        """Shapes of C on each axis, and a known kind of z."""
        shape = np.shape(self.weights)
        right = shape in ((n_classes,), (n_classes, n_classes)) and np.shape(self.intercept) == (n_classes,)
        return self.kind in KINDS and right


@dataclass(frozen=True)
class KeepTop(Step, keeps_order=True):
    """The steps within, and each row's top class kept on top: where another would pass it, they share probability.

    >>> up = Affine("tempered", 1.0, np.ones(3), np.array([0.0, 0.0, 2.0]))
    >>> np.exp(KeepTop((up,)).apply(np, np.log([[0.5, 0.3, 0.2]]))).round(3)
    array([[0.434, 0.132, 0.434]])
    """

    steps: tuple[Step, ...]

    def apply(self, xp: Any, scores: Array) -> Array:
        """Log-probabilities with the top class of `scores` on top."""
        return keep_top(xp, Chain(self.steps).apply(xp, scores), xp.argmax(scores, axis=-1, keepdims=True))


@dataclass(frozen=True)
class Uniform(Step, keeps_order=True):
    """The same for all classes that can occur.

    >>> Uniform().apply(np, np.array([[1.0, 2.0, -np.inf]]))
    array([[  0.,   0., -inf]])
    """

    def apply(self, xp: Any, scores: Array) -> Array:
        """0, or -inf where the score is -inf."""
        return xp.where((scores > -xp.inf) & (scores < xp.inf), 0.0, scores)


@dataclass(frozen=True)
class Mixture(Step):
    """A weighted mean of the probabilities that several members give.

    >>> mixed = Mixture((Chain(), Uniform()), np.array([0.8, 0.2]))
    >>> np.exp(mixed.apply(np, np.log([[0.9, 0.1]]))).round(3)
    array([[0.82, 0.18]])
    """

    members: tuple[Step, ...]
    weights: Array = field(metadata=DOUBLE)

    @property
    def keeps_order(self) -> bool:  # type: ignore[override]
        """As all members do."""
        return all(member.keeps_order for member in self.members)

    def apply(self, xp: Any, scores: Array) -> Array:
        """The logarithm of the mean."""
        log_weights = xp.log(self.weights)
        parts = [normalised(xp, each.apply(xp, scores)) + log_weights[i] for i, each in enumerate(self.members)]
        largest = reduce(xp.maximum, parts)
        is_impossible = largest == -xp.inf
        shift = xp.where(is_impossible, 0.0, largest)
        total = reduce(add, [xp.exp(part - shift) for part in parts])
        # The logarithm of 0 is -inf, but its slope is none: it would make the gradient of the whole row NaN.
        return xp.where(is_impossible, -xp.inf, shift + xp.log(xp.where(is_impossible, 1.0, total)))

    def fits(self, n_classes: int) -> bool:
        """Weights of at least 0 that sum to 1, one for each member."""
        known = np.shape(self.weights) == (len(self.members),) and len(self.members) > 0
        return known and bool(np.all(self.weights >= 0.0)) and abs(float(np.sum(self.weights)) - 1.0) < 1e-9


def features(xp: Any, logits: Array, kind: str, temperature: Any) -> Array:
    """z: the gaps to the top class divided by T, brought to a common level.

    "logits": the mean is 0. "tempered": log softmax(logits / T). "log-probabilities": log softmax(logits) / T. Gaps
    below -`FLOOR` count as -`FLOOR`, those of masked classes as twice that; masked classes take no part in the level.
    """
    gap = (logits - xp.max(logits, axis=-1, keepdims=True)) / temperature
    is_masked = gap <= -MASKED  # false for NaN, which stays NaN
    gap = xp.where(is_masked, -2.0 * FLOOR, xp.where(gap < -FLOOR, -FLOOR, gap))
    if kind == "logits":
        return gap - _mean_of_others(xp, gap, is_masked)
    scale = temperature if kind == "log-probabilities" else 1.0
    weight = xp.where(is_masked, 0.0, xp.exp(gap * scale))
    return gap - xp.log(xp.sum(weight, axis=-1, keepdims=True)) / scale


def unmasked(xp: Any, z: Array) -> Array:
    """Features z in which masked classes are filled in: they have the mean of the others of the row."""
    is_masked = z < xp.max(z, axis=-1, keepdims=True) - 1.5 * FLOOR
    return xp.where(is_masked, _mean_of_others(xp, z, is_masked), z)


def _mean_of_others(xp: Any, z: Array, is_masked: Array) -> Array:
    """The mean of the features of each row that are not masked."""
    count = xp.sum(xp.where(is_masked, 0.0, 1.0 + 0.0 * z), axis=-1, keepdims=True)  # in the precision of z
    return xp.sum(xp.where(is_masked, 0.0, z), axis=-1, keepdims=True) / count


def keep_top(xp: Any, scores: Array, top: Array) -> Array:
    """Log-probabilities of `scores` with class `top` of each row, (..., 1), made the most probable.

    Where another class is more probable, the two, or as many as it takes, share their probability equally: of all
    probabilities with `top` on top these lie closest, in Kullback-Leibler divergence, to softmax(scores). Rows in which
    `top` is on top already are only normalised.

    >>> import numpy as np
    >>> from refocal._arrays import namespace
    >>> p = np.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])
    >>> np.exp(keep_top(namespace(p), np.log(p), np.array([[0], [2]]))).round(3)
    array([[0.5 , 0.3 , 0.2 ],
           [0.35, 0.3 , 0.35]])
    """
    roundings = 64.0  # by how many rounding errors the top exceeds the others, so that it alone is the largest

    log_p = normalised(xp, scores)
    device = getattr(scores, "device", None)
    is_top = xp.arange(scores.shape[-1], device=device) == top
    p = xp.exp(log_p)
    # The others from the largest on; the place of the top class, a -1 at the end, lowers every mean it enters.
    others = -xp.sort(xp.where(is_top, 1.0, -p), axis=-1)
    count = xp.astype(xp.arange(2, scores.shape[-1] + 2, device=device), p.dtype)
    pool = (take(p, top) + cumulative_sum(others)) / count
    # Sharing with the first m others raises the mean as long as the m-th of them lies above it: the largest is it.
    shared = xp.max(pool, axis=-1, keepdims=True)
    violated = shared > take(p, top)
    level = xp.log(shared)
    top_level = level * (1.0 - roundings * xp.finfo(p.dtype).eps)
    kept = xp.where(is_top, top_level, xp.where(log_p < level, log_p, level))
    return xp.where(violated, kept, log_p)
