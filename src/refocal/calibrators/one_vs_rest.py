"""One curve per class: what the one-versus-rest calibrators share, and the curves of two or three coefficients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, Flags, Indices, Vector, as_floating, row_blocks, to_numpy, without_warnings
from refocal.calibrators import settings as setting
from refocal.calibrators._base import FLOOR, Calibrator
from refocal.calibrators.description import is_guessing
from refocal.calibrators.fitted import Fitted
from refocal.engine import Block, Dataset
from refocal.engine.cache import CacheKey
from refocal.engine.scoring import ENTRIES
from refocal.fitting.curves import line
from refocal.fitting.logistic import clip_masks, fit_line, fit_logistic
from refocal.fitting.temperature import newton_temperature
from refocal.maps.chain import Chain, Step
from refocal.maps.curves import Beta, Curve, OneVsRest, Pieces, log_odds
from refocal.maps.row import softplus
from refocal.maps.steps import FLOOR as FLOOR_OF_FEATURES
from refocal.maps.steps import Affine, Mixture, Temperature, Uniform

# Log-odds that differ by less than this, relative to their size, are equal but for rounding.
TIE = 1e-12
# The number of log-odds, in float64, held at once while curves are fitted.
TABLE = 1 << 24


@dataclass(eq=False)
class ClassRows:
    """One class against the rest: sorted log-odds of the class, whether it is the label, and the weights."""

    score: Vector
    target: Flags
    weight: Vector

    @cached_property
    def q(self) -> Vector:
        """The probability of the class."""
        return np.asarray(np.exp(-softplus(np, -self.score)))

    @cached_property
    def _cumulative(self) -> Vector:
        """Hits, expected hits and weights of all rows before each row, (3, N + 1)."""
        terms = [self.weight * self.target, self.weight * self.q, self.weight]
        return np.concatenate([np.zeros((3, 1)), np.cumsum(terms, axis=1)], axis=1)

    def sums(self, starts: Indices) -> ClassBins:
        """Hits, expected hits and weights of the bins that begin at these rows, each ending where the next begins.

        A start at 0 begins a new set of bins, so the bin before it ends with the last row.
        """
        ends = np.append(starts[1:], 0)
        ends = np.where(ends == 0, len(self.score), ends)
        hits, expected, total = self._cumulative[:, ends] - self._cumulative[:, starts]
        return ClassBins(hits, expected, total)


def starts_of_ties(score: Vector) -> Indices:
    """The first of the rows of each distinct score, where a bin may begin; rounding alone makes none distinct."""
    least = TIE * (min(1.0, float(np.abs(score).mean())) + np.abs(score[1:]))
    return np.append(0, np.flatnonzero(np.diff(score) > least) + 1)


class ClassBins(NamedTuple):
    """For each bin: how often the class occurred, how often the model expected it, and the number of rows."""

    hits: Vector
    expected: Vector
    total: Vector

    @property
    def misses(self) -> Vector:
        """How often another class occurred."""
        return np.maximum(self.total - self.hits, 0.0)

    @property
    def mean(self) -> Vector:
        """The mean probability given by the model, kept away from 0 and 1."""
        tiny = np.finfo(np.float64).tiny
        return np.clip(self.expected / np.maximum(self.total, tiny), 1e-12, 1.0 - 1e-12)

    def shift(self, smoothing: float) -> Vector:
        """By how much the log-odds in a bin were too low.

        log((hits + m) / (expected hits + m)) minus the same for misses: a bin with few rows hardly moves, and one
        without hits moves only as far as its rows justify.
        """
        expected_misses = np.maximum(self.total - self.expected, 0.0)
        observed = np.log(self.hits + smoothing) - np.log(self.misses + smoothing)
        return np.asarray(observed - np.log(self.expected + smoothing) + np.log(expected_misses + smoothing))

    def log_odds(self, smoothing: float) -> Vector:
        """Log-odds of the share of hits, with `smoothing` additional rows per bin that follow the model."""
        hits = self.hits + smoothing * self.mean
        misses = self.misses + smoothing * (1.0 - self.mean)
        return np.asarray(np.log(hits) - np.log(misses))


@dataclass(kw_only=True, eq=False, repr=False)
class OneVsRestCalibrator(Calibrator):
    """A curve for each class from its log-odds to calibrated ones; the probabilities of a row are then normalised.

    Two classes need one curve, that of the second class. A curve starts from temperature scaling, or for two classes
    from Platt's line, which has an intercept, and moves away from it only as far as the rows of its class justify, so
    that a thousand classes with ten rows each are no worse than temperature scaling. No probability is 0 unless a logit
    is -inf. The order of the classes can change, and with it the accuracy: `fit_report_` says by how much.

    `temperature_` is the temperature of the model (1 with `base="softmax"`), `floor_` the share of every row that is
    spread over its classes, and `curve_` the curves.
    """

    base: str = setting.option("temperature", "softmax")
    input: str = "logits"
    _needs_line: ClassVar[bool] = True

    temperature_ = setting.fitted(Temperature, "temperature", float, "The temperature of the model; 1 without.")
    floor_ = setting.fitted(Mixture, "weights", lambda weights: float(weights[1]), "What is spread over all classes.")
    curve_ = setting.fitted(OneVsRest, "curve", lambda curve: curve, "The curves of all classes, of log-odds.")

    @abstractmethod
    def _fit_curve(self, rows: ClassRows) -> Any:
        """The curve of one class; there is at least one row."""

    def _joined(self, curves: list[Any]) -> Step:
        """The curves of all classes, combined from the results of `_fit_curve`."""
        return Pieces.of(*curves)

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        block = self._block_of(dataset)
        labels = to_numpy(block.labels)
        weights = block.weights
        temperature = temperature_of(block) if self.base == "temperature" else 1.0
        has_line = block.n_classes == 2 and self.base == "temperature" and self._needs_line
        platt_line = None
        curves = []
        for of_class in _sorted_classes(block, temperature):
            order = of_class.rows
            rows = ClassRows(of_class.log_odds, labels[order] == of_class.label, weights[order])
            if len(order) == 0:  # no row says anything about this class
                rows = ClassRows(np.zeros(1), np.zeros(1, dtype=bool), np.zeros(1))
            elif has_line:
                platt_line = _line(rows)
                rows = replace(rows, score=_score_after(platt_line, rows.score))
            curves.append(self._fit_curve(rows))
            if progress is not None:
                progress(len(curves) / block.n_classes)
        floor = FLOOR / (1.0 + block.total_weight)
        return Fitted(one_vs_rest(temperature, self._joined(curves), floor, platt_line))


@dataclass(kw_only=True, eq=False, repr=False)
class Pooled(OneVsRestCalibrator):
    """Curves of pools of rows, whose log-odds are moved together or replaced by those of one probability."""

    smoothing: float = setting.number(5.0, above=0.0)
    within: str = setting.option("shift", "constant")


class LogisticCalibration(OneVsRestCalibrator):
    """Platt's calibration of each class against the rest: a slope and an intercept in log-odds.

    scikit-learn calls it "sigmoid". It is fitted by log-loss to Platt's targets, (n₊ + 1)/(n₊ + 2) for the n₊ rows of a
    class and 1/(n₋ + 2) for the others, so that its coefficients stay finite on rows without an error.

    Parameters
    ----------
    base : "temperature" or "softmax"
        Where the log-odds of more than two classes come from; irrelevant for two classes.
    input : "logits" or "probabilities"
        What the columns hold.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(5000, 2))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> fitted = LogisticCalibration(base="softmax").fit(2.0 * logits + [0.0, 1.0], labels)
    >>> intercept, slope = fitted.curve_.coefficients[:, 0, 0]
    >>> float(slope.round(1)), float(intercept.round(1))
    (0.5, -0.5)
    """

    _needs_line = False  # it is one

    def _fit_curve(self, rows: ClassRows) -> Curve:
        return line(*fit_line(rows.score, rows.target, rows.weight))


@dataclass(kw_only=True, eq=False, repr=False)
class BetaCalibration(OneVsRestCalibrator):
    """Beta calibration (Kull, Silva Filho & Flach 2017), of each class against the rest where there are more than two.

    log-odds = a·log q - b·log(1-q) + c with a, b ≥ 0, fitted by log-loss; a = b = 1, c = 0 changes nothing.

    Parameters
    ----------
    smoothing : float
        The weight of the prior: a, b and c lie around those of the identity with standard deviation 1/√smoothing. Near
        0 the fit is unregularised and diverges on separable rows.
    base : "temperature" or "softmax"
        The starting point of the curves.
    input : "logits" or "probabilities"
        What the columns hold.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(5000, 2))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> fitted = BetaCalibration(base="softmax").fit(2.0 * logits, labels)
    >>> fitted.curve_.coefficients[0, :2].round(1)
    array([0.5, 0.5])
    """

    smoothing: float = setting.number(30.0, above=0.0)

    def _fit_curve(self, rows: ClassRows) -> Vector:
        # log q, -log(1-q) and 1, whose coefficients are a, b and c.
        features = np.stack([-softplus(np, -rows.score), softplus(np, rows.score), np.ones_like(rows.score)], axis=1)
        identity = np.array([1.0, 1.0, 0.0])
        lower = np.array([0.0, 0.0, -np.inf])
        penalty = self.smoothing * np.eye(3)
        return fit_logistic(features, rows.target, rows.weight, identity, penalty, lower).theta

    def _joined(self, curves: list[Vector]) -> Step:
        return Beta(np.stack(curves))


def _line(rows: ClassRows) -> Affine:
    """Platt's line of the log-odds of two classes as a step; a temperature alone cannot correct wrong class shares.

    Platt's targets raise the share of a rare class. Where scores say so little that the line is then worse on its own
    rows than the share alone, the line of the labels is taken.
    """
    slope, intercept = fit_line(rows.score, rows.target, rows.weight, increasing=True)
    hits = float(rows.weight @ rows.target)
    misses = float(rows.weight @ ~rows.target)
    if hits and misses:
        sign = np.where(rows.target, -1.0, 1.0)
        loss_of_line = rows.weight @ softplus(np, sign * (slope * rows.score + intercept))
        loss_of_share = hits * np.log1p(misses / hits) + misses * np.log1p(hits / misses)
        if loss_of_line > loss_of_share:
            slope, intercept = fit_line(rows.score, rows.target, rows.weight, increasing=True, pseudo_count=0.0)
    # The step clips what lies farther apart than FLOOR: divided by this, only what the fit has clipped as masks does.
    # And the slope of scores next to 0 is no number of single precision.
    smallest = 1e-6
    largest = float(np.abs(clip_masks(rows.score)).max())
    temperature = 1.0 if smallest <= largest <= FLOOR_OF_FEATURES or largest == 0.0 else largest / FLOOR_OF_FEATURES
    weights = np.array([slope * temperature] * 2, dtype=np.float32)
    intercepts = np.array([0.0, intercept], dtype=np.float32)
    return Affine("logits", temperature, weights, intercepts)


def _score_after(platt_line: Affine, score: Vector) -> Vector:
    """The log-odds of the second of two classes behind the line, as the step computes them."""
    z = np.clip(score / platt_line.inner_temperature, -FLOOR_OF_FEATURES, FLOOR_OF_FEATURES)
    return np.asarray(platt_line.weights[1] * z + platt_line.intercept[1])


def one_vs_rest(temperature: float, curve: Step, floor: float, platt_line: Affine | None = None) -> Chain:
    """The chain of a temperature and a curve for each class; `floor` of every row is spread over its classes."""
    before: tuple[Step, ...] = (Temperature(temperature),)
    if platt_line is not None:
        before = (*before, platt_line)
    curved = Chain((*before, OneVsRest(curve)))
    return Chain((Mixture((curved, Uniform()), np.array([1.0 - floor, floor])),))


@without_warnings
def _log_odds(logits: Array, temperature: float) -> Vector:
    """The log-odds of every class in float64; inf in rows where it cannot occur or must."""
    x = to_numpy(as_floating(logits, "logits", "fit")[0]).astype(np.float64, copy=False)
    scaled = log_odds(np, Temperature(temperature).apply(np, x))
    possible = x > -np.inf
    decided = ~possible | (possible.sum(axis=1, keepdims=True) == 1)
    return np.where(decided, np.inf, scaled)


def temperature_of(block: Block) -> float:
    """The temperature of least log-loss; 1 if there is none, as when all rows are correct.

    If the logits are unrelated to the labels, it is so large that the curves start from the uniform distribution.
    """
    solution = newton_temperature(block)
    if solution.status == "at a bound" and is_guessing(solution.value, block.n_classes):
        x = to_numpy(as_floating(block.logits, "logits", "fit")[0]).astype(np.float64)
        lowest = np.min(x, axis=1, where=x > -np.inf, initial=np.inf)
        return 1e6 * float(np.max(np.max(x, axis=1) - lowest))
    return solution.temperature if solution.status == "converged" else 1.0


class SortedClass(NamedTuple):
    """A class, its rows by rising log-odds, and these; rows in which the class must or cannot occur are left out."""

    label: int
    rows: NDArray[np.int32]
    log_odds: Vector


@dataclass(frozen=True)
class _SortedKey(CacheKey[list[SortedClass]]):
    """Under what the sorted classes of a block are cached."""

    temperature: float


def _sorted_classes(block: Block, temperature: float) -> Iterable[SortedClass]:
    """All classes but the first of two; cached for other methods where a table holds all of them."""
    classes = range(1 if block.n_classes == 2 else 0, block.n_classes)
    if block.n_rows * len(classes) > TABLE:
        return _sort_classes(block, temperature, classes)
    key = _SortedKey(temperature)
    cached = block.cache.get(key)
    if cached is None:
        cached = block.cache.keep(key, list(_sort_classes(block, temperature, classes)))
    return cached


def _sort_classes(block: Block, temperature: float, classes: range) -> Iterator[SortedClass]:
    """What `_sorted_classes` returns, by tables of some classes (N, width)."""
    width = max(1, TABLE // block.n_rows)
    for first in range(0, len(classes), width):
        some = classes[first : first + width]
        table = np.empty((block.n_rows, len(some)), order="F")
        for rows in row_blocks(block.n_rows, block.n_classes, ENTRIES):
            table[rows] = _log_odds(block.logits[rows, :], temperature)[:, some.start : some.stop]
        for label, score in zip(some, table.T, strict=True):
            usable = np.flatnonzero((block.weights > 0.0) & np.isfinite(score)).astype(np.int32)
            order = usable[np.argsort(score[usable])]
            yield SortedClass(label, order, score[order])
