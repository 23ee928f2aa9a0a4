"""One curve a class: what the calibrators share that look at one class against the rest at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import array_api_compat
import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from refocal._arrays import Array, as_floating, namespace, row_blocks, to_numpy, without_warnings
from refocal._validation import check_option
from refocal.calibrators._base import FLOOR, Calibrator, checked_number
from refocal.calibrators._logistic import softplus
from refocal.calibrators._words import is_guessing
from refocal.engine import Block, Dataset
from refocal.errors import FormatError, ParameterError
from refocal.fitting.newton import newton_temperature
from refocal.maps.row import softmax_row

Vector = NDArray[np.float64]
Curve = Mapping[str, Vector]

# So many log-odds are held at once while curves are fitted, in numbers of float64.
TABLE = 1 << 24
# Log-odds farther from 0 than this count as this: between a mask of finite logits and the rest no curve has any digits.
FARTHEST = 1e8


class Rows:
    """One class against the rest: log-odds of the class in rising order, whether it is the label, and the weights."""

    def __init__(self, score: Vector, target: NDArray[np.bool_], weight: Vector) -> None:
        self.score = score
        self.target = target
        self.weight = weight
        self.q: Vector = np.exp(-softplus(-score))
        columns = [weight * target, weight * self.q, weight]
        self._before = np.concatenate([np.zeros((3, 1)), np.cumsum(columns, axis=1)], axis=1)

    def starts_of_ties(self) -> NDArray[np.int64]:
        """Where each distinct score begins: the places where a bin may begin."""
        return np.append(0, np.flatnonzero(np.diff(self.score) > 0.0) + 1)

    def sums(self, starts: NDArray[np.int64]) -> Bins:
        """Hits, expected hits and weights of the bins that begin at these rows, each ending where the next begins.

        A start at 0 begins a new set of bins, so the bin before it ends with the last row.
        """
        ends = np.append(starts[1:], 0)
        return Bins(*(self._before[:, np.where(ends == 0, len(self.score), ends)] - self._before[:, starts]))


class Bins(NamedTuple):
    """Of each bin: how often the class occurred, how often the network expected it, and how many rows there are."""

    hits: Vector
    expected: Vector
    total: Vector

    @property
    def misses(self) -> Vector:
        """How often another class occurred."""
        return np.maximum(self.total - self.hits, 0.0)

    @property
    def mean(self) -> Vector:
        """The mean probability that the network gives, kept off 0 and 1."""
        tiny = np.finfo(np.float64).tiny
        return np.clip(self.expected / np.maximum(self.total, tiny), 1e-12, 1.0 - 1e-12)

    def shift(self, smoothing: float) -> Vector:
        """By how much the log-odds in a bin were too low.

        log((hits + m) / (expected hits + m)) less the same for misses: a bin with few rows hardly moves, and one
        without hits moves by what its rows can bear out.
        """
        expected_misses = np.maximum(self.total - self.expected, 0.0)
        seen = np.log(self.hits + smoothing) - np.log(self.misses + smoothing)
        return np.asarray(seen - np.log(self.expected + smoothing) + np.log(expected_misses + smoothing))

    def log_odds(self, smoothing: float) -> Vector:
        """Log-odds of the share of hits, with `smoothing` further rows a bin that say what the network says."""
        hits, misses = self.hits + smoothing * self.mean, self.misses + smoothing * (1.0 - self.mean)
        return np.asarray(np.log(hits) - np.log(misses))


class OneVsRest(Calibrator):
    """A curve for each class from its log-odds to calibrated ones; the probabilities of a row are then normalised.

    With two classes one curve does, that of the second class. A curve starts from what the network says at its best
    temperature and moves away from it only as far as the rows of its class bear out, so that a thousand classes with
    ten rows each are no worse than temperature scaling. No probability is 0 unless a logit is -inf. The order of the
    classes can change, and so can the accuracy: `fit_report_` says by how much.

    `curves_` holds the curves, `temperature_` the temperature of the network (1 with `base="softmax"`).
    """

    curves_: list[dict[str, Vector]]
    temperature_: float
    floor_: float
    smoothing: float
    base: str
    FIELDS: ClassVar[tuple[str, ...]]

    @abstractmethod
    def _fit_curve(self, rows: Rows) -> Curve:
        """The curve of one class; there is at least one row."""

    @abstractmethod
    def _log_odds(self, curve: Curve, score: Vector) -> Vector:
        """Calibrated log-odds, finite for finite scores."""

    @abstractmethod
    def _check_curve(self, curve: Curve) -> bool:
        """Whether a curve from a file is one; its fields are finite vectors."""

    def _check_settings(self) -> None:
        name = type(self).__name__
        check_option(self.base, ("temperature", "softmax"), "base", name)
        check_positive(self.smoothing, "smoothing", name)

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> dict[str, Any]:
        self._check_settings()
        block = self._block_of(dataset)
        codes, n_classes = to_numpy(block.labels), block.n_classes
        weights = np.ones(len(codes)) if block.weight is None else block.weight
        temperature = _temperature(block) if self.base == "temperature" else 1.0
        curves = []
        for k, score in _columns(block.logits, temperature, [1] if n_classes == 2 else list(range(n_classes))):
            # A class that cannot occur in a row says nothing there, and one that must occur neither.
            some = np.flatnonzero((weights > 0.0) & np.isfinite(score))
            order = some[np.argsort(score[some], kind="stable")]
            rows = Rows(score[order], codes[order] == k, weights[order])
            if len(order) == 0:
                rows = Rows(np.zeros(1), np.zeros(1, dtype=bool), np.zeros(1))
            curves.append(dict(self._fit_curve(rows)))
            if progress is not None:
                progress(len(curves) / n_classes)
        return {"temperature_": temperature, "floor_": FLOOR / (1.0 + float(weights.sum())), "curves_": curves}

    def _log_proba(self, logits: Array) -> Array:
        flat = namespace(logits).reshape(logits, (-1, logits.shape[-1]))
        blocks = row_blocks(flat.shape[0], flat.shape[1], entries=1 << 20)
        parts = [self._log_p(log_odds(flat[rows, :], self.temperature_)) for rows in blocks]
        return _like(np.concatenate(parts).reshape(logits.shape), logits)

    @without_warnings
    def _log_p(self, score: Vector) -> Vector:
        possible = score > -np.inf
        finite = np.clip(score, -FARTHEST, FARTHEST)
        if score.shape[1] == 2:
            z = self._log_odds(self.curves_[0], finite[:, 1])
            log_p = np.stack([-softplus(z), -softplus(-z)], axis=1)
        else:
            log_p = np.empty_like(score)
            for k, curve in enumerate(self.curves_):
                log_p[:, k] = -softplus(-self._log_odds(curve, finite[:, k]))
        log_p[~possible] = -np.inf
        log_p -= logsumexp(log_p, axis=1, keepdims=True)
        spread = np.log(self.floor_) - np.log(possible.sum(axis=1, keepdims=True))
        found: Vector = np.where(possible, np.logaddexp(log_p + np.log1p(-self.floor_), spread), -np.inf)
        return found

    def _state(self) -> dict[str, Any]:
        curves = [{name: value.tolist() for name, value in curve.items()} for curve in self.curves_]
        return {"temperature": self.temperature_, "floor": self.floor_, "curves": curves}

    def _restore(self, state: dict[str, Any], n_classes: int) -> None:
        self.temperature_ = checked_number(state, "temperature")
        self.floor_ = checked_number(state, "floor", below=1.0)
        curves, needed = state.get("curves"), 1 if n_classes == 2 else n_classes
        if not isinstance(curves, list) or len(curves) != needed:
            raise FormatError(f"'curves' must be a list of {needed} for {n_classes} classes.")
        self.curves_ = [self._read_curve(i, curve) for i, curve in enumerate(curves)]

    def _read_curve(self, i: int, data: Any) -> dict[str, Vector]:
        if not isinstance(data, dict) or set(data) != set(self.FIELDS):
            raise FormatError(f"curve {i} must have the fields {', '.join(self.FIELDS)}.")
        for name, values in data.items():
            if not isinstance(values, list) or any(type(value) not in (int, float) for value in values):
                raise FormatError(f"{name!r} of curve {i} must be a list of numbers.")
        try:
            curve = {name: np.array(data[name], dtype=np.float64) for name in self.FIELDS}
        except OverflowError:
            curve = {}
        if not curve or not all(np.isfinite(v).all() for v in curve.values()) or not self._check_curve(curve):
            raise FormatError(f"the numbers of curve {i} do not make a curve of {type(self).__name__}.")
        return curve


def check_positive(value: Any, argument: str, function: str) -> None:
    """A finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0.0 < float(value) < np.inf:
        raise ParameterError(argument, function, expected="a finite number greater than 0", got=repr(value))


def is_rising(values: Vector) -> bool:
    """Whether each value is greater than the one before."""
    return bool(np.all(np.diff(values) > 0.0))


@without_warnings
def log_odds(logits: Array, temperature: float = 1.0) -> Vector:
    """log(q / (1-q)) of every class in float64, with all digits where q is close to 1; ±inf where q is 0 or 1."""
    x = to_numpy(as_floating(logits, "logits", "fit")[0]).astype(np.float64, copy=False)
    row = softmax_row(namespace(x), x, temperature)
    found: Vector = row.log_q - row.log_not_q
    return np.where(np.isfinite(found), np.clip(found, -FARTHEST, FARTHEST), found)


def _temperature(block: Block) -> float:
    """The temperature of least log-loss; 1 where there is none, as on rows that are all right.

    Where the logits say nothing about the labels, it is so large that no curve starts from them.
    """
    found = newton_temperature(block)
    if found.status == "at a bound" and is_guessing(found.value, block.n_classes):
        x = to_numpy(as_floating(block.logits, "logits", "fit")[0]).astype(np.float64)
        lowest = np.min(x, axis=1, where=x > -np.inf, initial=np.inf)
        return 1e6 * float(np.max(np.max(x, axis=1) - lowest))
    return found.temperature if found.status == "converged" else 1.0


def _columns(logits: Array, temperature: float, classes: list[int]) -> Iterator[tuple[int, Vector]]:
    """The log-odds of each class, a table of some classes at a time."""
    n_rows = int(logits.shape[0])
    width = max(1, TABLE // n_rows)
    for first in range(0, len(classes), width):
        some = classes[first : first + width]
        table = np.empty((n_rows, len(some)), order="F")
        for rows in row_blocks(logits.shape[0], logits.shape[1], entries=1 << 20):
            table[rows] = log_odds(logits[rows, :], temperature)[:, some[0] : some[-1] + 1]
        yield from zip(some, table.T, strict=True)


def _like(values: Vector, logits: Array) -> Array:
    """As an array of the logits' library, dtype and device."""
    if isinstance(logits, np.ndarray):
        return values.astype(logits.dtype, copy=False)
    xp = namespace(logits)
    return xp.astype(xp.asarray(values, device=array_api_compat.device(logits)), logits.dtype)
