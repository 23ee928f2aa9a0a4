"""The steps that a fitted calibrator is a chain of.

A step takes scores (..., C), the logarithms of probabilities up to a constant for each row, and returns scores. It is
a frozen object of a few parameters with one body for NumPy, torch, JAX and the ONNX graph, so predictions, torch
layers, ONNX files and JSON all come from the same chain.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import array_api_compat
import numpy as np

from refocal._arrays import Array, as_floating, is_recorded, is_torch, namespace, on_gpu, row_blocks, without_warnings
from refocal.errors import ParameterError
from refocal.maps.affine import KINDS, features, keep_top, transform
from refocal.maps.forward import focal_gaps
from refocal.maps.row import gaps, normalise, softmax_row
from refocal.maps.smoothing import unsmoothed

# Larger arrays are processed in blocks of this size, so that temporaries stay small; on a GPU of the second size.
BLOCK, GPU_BLOCK = 1 << 18, 1 << 23

# What a field of a step holds: a finite number above a bound, or finite numbers in the precision they are saved in.
ANY: dict[str, Any] = {"above": -math.inf}
POSITIVE: dict[str, Any] = {"above": 0.0}
ABOVE_MINUS_1: dict[str, Any] = {"above": -1.0}
SINGLE: dict[str, Any] = {"dtype": np.dtype(np.float32)}
DOUBLE: dict[str, Any] = {"dtype": np.dtype(np.float64)}


class Instruction(NamedTuple):
    """A step in the form the C engine takes: its code and its numbers."""

    code: str
    numbers: Any


class Program(NamedTuple):
    """A chain in the form the C engine takes: leading steps for array functions, then steps as numbers."""

    before: Chain
    steps: Array  # (K, 3): the place in CODES, where its numbers start, how many there are
    numbers: Array
    n_classes: int | None  # the number of classes it requires, if any

    @classmethod
    def of(cls, before: Chain, instructions: list[Instruction]) -> Program:
        """From the steps one by one."""
        parts = [np.asarray(each.numbers, dtype=np.float64) for each in instructions]
        starts = np.cumsum([0, *map(len, parts)])
        rows = [(CODES.index(each.code), starts[i], len(parts[i])) for i, each in enumerate(instructions)]
        for_two = any(each.code == "two classes" for each in instructions)
        steps = np.array(rows, dtype=np.int64).reshape(-1, 3)
        return cls(before, steps, np.concatenate([*parts, np.zeros(1)]), 2 if for_two else None)


# The order of the steps in engine/apply.h. Scores come first, then the focal map, then one of the last three.
CODES = ("floor", "temperature", "affine", "offset", "focal", "confidence", "two classes", "reweight")
STAGES = {"focal": 1, "confidence": 2, "two classes": 2, "reweight": 2}


@dataclass(frozen=True)
class Step(ABC):
    """One step of a chain; a subclass is a frozen dataclass.

    Its fields are numbers and arrays, which say in their metadata what they may hold, options, and further steps.
    """

    keeps_order: ClassVar[bool] = False
    """Whether the class of the largest score stays the same in every row."""

    @abstractmethod
    def apply(self, xp: Any, scores: Array) -> Array:
        """The scores behind this step; `xp` are the functions of their array library."""

    def fits(self, n_classes: int) -> bool:
        """Whether the parameters have the shapes and values of a step for so many classes."""
        return True

    def instruction(self, is_last: bool) -> Instruction | None:
        """The step for the C engine; None if it is not supported."""
        return None

    def with_parameters(self, change: Callable[[Any], Any]) -> Self:
        """The same step with every number and array changed, those of inner steps included."""
        own = {name: change(value) for name, value in self._own()}
        return replace(self, **own, **{name: _changed(value, change) for name, value in self._inner()})

    def parameters(self) -> Iterator[tuple[str, Any]]:
        """Names and values of all numbers and arrays, in the order in which `with_parameters` changes them."""
        for step in self.walk():
            yield from step._own()

    def walk(self) -> Iterator[Step]:
        """The step itself and all within it."""
        yield self
        for _, value in self._inner():
            for step in value if isinstance(value, tuple) else (value,):
                yield from step.walk()

    def find(self, kind: type[Step], name: str, default: Any = None) -> Any:
        """A parameter of the first step of that kind, this one or within it; the default if there is none."""
        return next((getattr(step, name) for step in self.walk() if isinstance(step, kind)), default)

    def check(self, n_classes: int | None = None) -> None:
        """Refuse parameters that no fit can have found; with the number of classes, also their shapes."""
        for step in self.walk():
            for each in fields(step):
                _check_field(step, each)
            if n_classes is not None and not step.fits(n_classes):
                expected = f"made of parameters that fit each other and {n_classes} classes"
                shapes = ", ".join(
                    f"{each.name} of shape {np.shape(getattr(step, each.name))}" for each in fields(step)
                )
                raise ParameterError("parameters", type(step).__name__, expected=expected, got=shapes)

    def _own(self) -> list[tuple[str, Any]]:
        """The fields that hold a number or an array."""
        return [(name, value) for name, value in self._fields() if not isinstance(value, (str, Step, tuple))]

    def _inner(self) -> list[tuple[str, Any]]:
        """The fields that hold a step or a tuple of them."""
        return [(name, value) for name, value in self._fields() if isinstance(value, (Step, tuple))]

    def _fields(self) -> list[tuple[str, Any]]:
        return [(each.name, getattr(self, each.name)) for each in fields(self)]


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(step.with_parameters(change) for step in value)
    return value.with_parameters(change)


def _check_field(step: Step, each: Field[Any]) -> None:
    value, of = getattr(step, each.name), (each.name, type(step).__name__)
    if "above" in each.metadata:
        above = each.metadata["above"]
        if not (isinstance(value, float) and above < value < math.inf):
            domain = f" greater than {above:g}" if above > -math.inf else ""
            raise ParameterError(*of, expected=f"a finite number{domain}", got=repr(value))
    elif "dtype" in each.metadata and not np.all(np.isfinite(value)):
        raise ParameterError(*of, expected="an array of finite numbers", got=f"shape {np.shape(value)}")


@dataclass(frozen=True)
class Chain(Step):
    """One step after the other; an empty chain leaves the scores as they are.

    >>> chain = Chain((Temperature(2.0), Focal(1.0)))
    >>> np.exp(chain.log_probabilities(np.array([[4.0, 2.0, 0.0]]))).round(3)
    array([[0.784, 0.159, 0.057]])
    """

    steps: tuple[Step, ...] = ()

    @property
    def keeps_order(self) -> bool:  # type: ignore[override]
        """As all of its steps do."""
        return all(step.keeps_order for step in self.steps)

    def apply(self, xp: Any, scores: Array) -> Array:
        """All steps in turn."""
        for step in self.steps:
            scores = step.apply(xp, scores)
        return scores

    @without_warnings
    def scores(self, logits: Array) -> Array:
        """The scores of checked logits, in their array library and the precision to compute in."""
        x, _ = as_floating(logits, "X", "predict_log_proba")
        xp, device = namespace(x), array_api_compat.device(x)
        here = self.with_parameters(lambda value: xp.asarray(value, dtype=x.dtype, device=device))
        return here.apply(xp, x)

    def log_probabilities(self, logits: Array, row_axes: int = 1) -> Array:
        """Log-probabilities of checked logits, of the same array kind, dtype and device; `row_axes` axes form a row."""
        return in_row_blocks(self._log_probabilities, logits, row_axes)

    def probabilities(self, logits: Array) -> Array:
        """Their exponentials."""
        return in_row_blocks(self._probabilities, logits)

    def _probabilities(self, logits: Array) -> Array:
        log_p = self._log_probabilities(logits)
        return namespace(log_p).exp(log_p)

    @without_warnings
    def _log_probabilities(self, logits: Array) -> Array:
        scores = self.scores(logits)
        xp = namespace(scores)
        is_floating = xp.isdtype(logits.dtype, "real floating")
        return xp.astype(normalised(xp, scores), logits.dtype if is_floating else scores.dtype, copy=False)

    @functools.cached_property
    def program(self) -> Program:
        """The longest end of the chain that the C engine supports, and the chain before it."""
        found: list[Instruction] = []
        stage, left = 3, len(self.steps)
        while left > 0:
            known = self.steps[left - 1].instruction(is_last=left == len(self.steps))
            if known is None:
                break
            own = STAGES.get(known.code, 0)
            if own > stage or own == stage > 0:
                break
            found.insert(0, known)
            stage, left = own, left - 1
        return Program.of(Chain(self.steps[:left]), found)

    def split(self) -> tuple[Chain, float, float]:
        """The chain without a temperature and a focal map at its end, and their γ and T: 0 and 1 if there is none."""
        for kinds in ((Temperature, Focal), (Focal,), (Temperature,)):
            tail = self.steps[len(self.steps) - len(kinds) :]
            if tuple(map(type, tail)) == kinds:
                last = Chain(tail)
                gamma, temperature = last.find(Focal, "gamma", 0.0), last.find(Temperature, "temperature", 1.0)
                return Chain(self.steps[: -len(kinds)]), gamma, temperature
        return self, 0.0, 1.0


def in_row_blocks(function: Callable[[Array], Array], logits: Array, row_axes: int = 1) -> Array:
    """A function applied to the rows of logits, block by block if they are many and in memory.

    `row_axes` is the number of axes of a row. Only the result and one block's temporaries are held.
    """
    entries = block_entries(logits)
    if not is_walkable(logits) or math.prod(logits.shape) <= entries:
        return function(logits)
    rows = logits.reshape(-1, *logits.shape[-row_axes:])
    found: Array = None
    for some in row_blocks(len(rows), math.prod(rows.shape[1:]), entries=entries):
        part = function(rows[some])
        if found is None:
            found = part.new_empty(rows.shape) if is_torch(part) else np.empty(rows.shape, part.dtype)
        found[some] = part
    return found.reshape(logits.shape)


def block_entries(logits: Array) -> int:
    """How many numbers a block has."""
    return GPU_BLOCK if on_gpu(logits) else BLOCK


def is_walkable(logits: Array) -> bool:
    """Whether rows can be processed block by block: NumPy arrays or tensors, without gradients or tracing."""
    if not is_torch(logits):
        return isinstance(logits, np.ndarray)
    return not is_recorded(logits) and (logits.device.type == "cpu" or on_gpu(logits))


def normalised(xp: Any, scores: Array) -> Array:
    """Log-probabilities from scores."""
    return normalise(xp, *gaps(xp, scores, 1.0))


@dataclass(frozen=True)
class Floor(Step):
    """Log-probabilities below `log_p` count as that: a probability of 0 says only that it was small.

    >>> np.exp(Floor(np.log(1e-3)).apply(np, np.log([0.9999, 0.0001]))).round(4)
    array([0.9999, 0.001 ])
    """

    log_p: float = field(metadata=ANY)
    keeps_order: ClassVar[bool] = True

    def apply(self, xp: Any, scores: Array) -> Array:
        """Scores of at least `log_p`."""
        return xp.where(scores > self.log_p, scores, self.log_p)

    def instruction(self, is_last: bool) -> Instruction | None:
        """For the compiled engine."""
        return Instruction("floor", (self.log_p,))


@dataclass(frozen=True)
class Temperature(Step):
    """Scores divided by the temperature T.

    >>> Temperature(2.0).apply(np, np.array([[3.0, 1.0]]))
    array([[ 0., -1.]])
    """

    temperature: float = field(metadata=POSITIVE)
    keeps_order: ClassVar[bool] = True

    def apply(self, xp: Any, scores: Array) -> Array:
        """Distances to the top class divided by T, which keep their digits under a large common offset."""
        return gaps(xp, scores, self.temperature).gap

    def instruction(self, is_last: bool) -> Instruction | None:
        """For the compiled engine."""
        return Instruction("temperature", (self.temperature,))


@dataclass(frozen=True)
class Focal(Step):
    """The focal calibration map with γ.

    >>> Focal(2.0).apply(np, np.log([[0.6266, 0.3734]])).round(3)
    array([[ 0.   , -1.386]])
    """

    gamma: float = field(metadata=ABOVE_MINUS_1)
    keeps_order: ClassVar[bool] = True

    def apply(self, xp: Any, scores: Array) -> Array:
        """Log p_j - log p_top behind the map."""
        return focal_gaps(xp, softmax_row(xp, scores, 1.0), self.gamma)

    def instruction(self, is_last: bool) -> Instruction | None:
        """For the compiled engine."""
        return Instruction("focal", (self.gamma,))


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

    def instruction(self, is_last: bool) -> Instruction | None:
        """For the compiled engine; at the end of a chain probabilities are multiplied."""
        if is_last:
            return Instruction("reweight", np.exp(self.offset - np.max(self.offset)))
        return Instruction("offset", self.offset)


@dataclass(frozen=True)
class Unsmooth(Step):
    """Label smoothing by ε undone: probabilities in proportion to u - ε/C, and to a hundredth of u if that is more.

    Smoothed labels lead to no u below ε/C. Networks predict some, and no class is ruled out for it.

    >>> np.exp(Unsmooth(0.3).apply(np, np.log([0.7, 0.25, 0.05]))).round(4).tolist()
    [0.6, 0.15, 0.0005]
    """

    label_smoothing: float = field(metadata=POSITIVE)
    keeps_order: ClassVar[bool] = True

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
        found = transform(features(xp, scores, self.kind, self.inner_temperature), self.weights, self.intercept)
        return xp.where(scores == -xp.inf, -xp.inf, found)

    def fits(self, n_classes: int) -> bool:
        """Shapes of C on each axis, and a known kind of z."""
        shape = np.shape(self.weights)
        right = shape in ((n_classes,), (n_classes, n_classes)) and np.shape(self.intercept) == (n_classes,)
        return self.kind in KINDS and right

    def instruction(self, is_last: bool) -> Instruction | None:
        """For the compiled engine, where the matrix is a diagonal."""
        if np.ndim(self.weights) != 1:
            return None
        return Instruction("affine", (KINDS.index(self.kind), self.inner_temperature, *self.weights, *self.intercept))


@dataclass(frozen=True)
class KeepTop(Step):
    """The steps within, and each row's top class kept on top: where another would pass it, they share probability.

    >>> up = Affine("tempered", 1.0, np.ones(3), np.array([0.0, 0.0, 2.0]))
    >>> np.exp(KeepTop((up,)).apply(np, np.log([[0.5, 0.3, 0.2]]))).round(3)
    array([[0.434, 0.132, 0.434]])
    """

    steps: tuple[Step, ...]
    keeps_order: ClassVar[bool] = True

    def apply(self, xp: Any, scores: Array) -> Array:
        """Log-probabilities with the top class of `scores` on top."""
        return keep_top(xp, Chain(self.steps).apply(xp, scores), xp.argmax(scores, axis=-1, keepdims=True))


@dataclass(frozen=True)
class Uniform(Step):
    """The same for all classes that can occur.

    >>> Uniform().apply(np, np.array([[1.0, 2.0, -np.inf]]))
    array([[  0.,   0., -inf]])
    """

    keeps_order: ClassVar[bool] = True

    def apply(self, xp: Any, scores: Array) -> Array:
        """0, or -inf where the score is -inf."""
        return xp.where(scores > -xp.inf, 0.0, scores)


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
        largest = parts[0]
        for part in parts[1:]:
            largest = xp.maximum(largest, part)
        shift = xp.where(largest == -xp.inf, 0.0, largest)
        total = xp.exp(parts[0] - shift)
        for part in parts[1:]:
            total = total + xp.exp(part - shift)
        return shift + xp.log(total)

    def fits(self, n_classes: int) -> bool:
        """Weights of at least 0 that sum to 1, one for each member."""
        known = np.shape(self.weights) == (len(self.members),) and len(self.members) > 0
        return known and bool(np.all(self.weights >= 0.0)) and abs(float(np.sum(self.weights)) - 1.0) < 1e-9
