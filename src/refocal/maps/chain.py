"""What a fitted calibrator is: a chain of steps.

A step takes scores (..., C), the logarithms of probabilities up to a constant for each row, and returns scores. It is
a frozen object of a few parameters with one body for NumPy, torch, JAX and the ONNX graph, so predictions, torch
layers, ONNX files and JSON all come from the same chain.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import array_api_compat
import numpy as np

from refocal._arrays import Array, as_floating, is_recorded, is_torch, namespace, on_gpu, row_blocks, without_warnings
from refocal.errors import ParameterError
from refocal.maps.row import normalised, spoiled

# Larger arrays are processed in blocks of this size, so that temporaries stay small; on a GPU of the second size.
BLOCK, GPU_BLOCK = 1 << 18, 1 << 23

# What a field of a step holds: a finite number above a bound, or finite numbers in the precision they are saved in.
ANY: dict[str, Any] = {"above": -math.inf}
POSITIVE: dict[str, Any] = {"above": 0.0}
ABOVE_MINUS_1: dict[str, Any] = {"above": -1.0}
SINGLE: dict[str, Any] = {"dtype": np.dtype(np.float32)}
DOUBLE: dict[str, Any] = {"dtype": np.dtype(np.float64)}


class Instruction(NamedTuple):
    """A step in the form the C engine takes: its code and its numbers.

    `is_steep`: of curves so steep that a score's last digits in double precision are seen in the result.
    """

    code: str
    numbers: Any
    is_steep: bool = False


class Program(NamedTuple):
    """A chain in the form the C engine takes: leading steps for array functions, then steps as numbers."""

    before: Chain
    steps: Array  # (K, 3): the place in CODES, where its numbers start, how many there are
    numbers: Array
    n_classes: int | None  # the number of classes it requires, if any
    is_steep: bool = False

    @classmethod
    def of(cls, before: Chain, instructions: list[Instruction]) -> Program:
        """From the steps one by one."""
        parts = [np.ravel(each.numbers).astype(np.float64) for each in instructions]
        starts = np.cumsum([0, *map(len, parts)])
        rows = [(CODES.index(each.code), starts[i], len(parts[i])) for i, each in enumerate(instructions)]
        n_curves = next((len(each.numbers) for each in instructions if each.code in CURVES), None)
        steps = np.array(rows, dtype=np.int64).reshape(-1, 3)
        n_classes, is_steep = 2 if n_curves == 1 else n_curves, any(each.is_steep for each in instructions)
        return cls(before, steps, np.concatenate([*parts, np.zeros(1)]), n_classes, is_steep)


# The order of the steps in engine/apply.h, of which the GPU knows the simple ones. Scores come first, then the focal
# map, then one of the others; "one vs rest" and "uniform" take scores. "member" ends the steps of a mixture's member.
SIMPLE = ("floor", "temperature", "affine", "offset", "focal", "confidence", "two classes", "reweight")
CODES = (*SIMPLE, "one vs rest", "uniform", "member")
STAGES = {"focal": 1, "confidence": 2, "two classes": 2, "reweight": 2, "one vs rest": 2, "uniform": 2}
CURVES = ("two classes", "one vs rest")


@dataclass(frozen=True)
class Step(ABC):
    """One step of a chain; a subclass is a frozen dataclass.

    Its fields are numbers and arrays, which say in their metadata what they may hold, options, and further steps.
    `keeps_order` says whether the class of the largest score stays the same in every row; `code` is what the C engine
    calls a step whose numbers it takes as they are.
    """

    keeps_order: ClassVar[bool] = False
    code: ClassVar[str] = ""

    def __init_subclass__(cls, **facts: Any) -> None:
        for name, fact in facts.items():
            setattr(cls, name, fact)

    @abstractmethod
    def apply(self, xp: Any, scores: Array) -> Array:
        """The scores after this step; `xp` are the functions of their array library."""

    def fits(self, n_classes: int) -> bool:
        """Whether the parameters have the shapes and values of a step for `n_classes` classes."""
        return True

    def instruction(self, is_last: bool) -> Instruction | None:
        """The step for the C engine; None if it is not supported."""
        return Instruction(self.code, [value for _, value in self._own()]) if self.code else None

    def with_parameters(self, change: Callable[[Any], Any]) -> Self:
        """The same step with every number and array changed, those of inner steps included."""
        changed = {name: change(value) for name, value in self._own()}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Step):
                changed[each.name] = value.with_parameters(change)
            elif isinstance(value, tuple):
                changed[each.name] = tuple(step.with_parameters(change) for step in value)
        return replace(self, **changed)

    def parameters(self) -> Iterator[tuple[str, Any]]:
        """Names and values of all numbers and arrays, in the order in which `with_parameters` changes them."""
        for step in self.walk():
            yield from step._own()

    def walk(self) -> Iterator[Step]:
        """The step itself and all within it."""
        yield self
        for each in fields(self):
            value = getattr(self, each.name)
            for step in value if isinstance(value, tuple) else (value,):
                if isinstance(step, Step):
                    yield from step.walk()

    def find(self, kind: type[Step], name: str, default: Any = None) -> Any:
        """A parameter of the first step of that kind, this one or within it; the default if there is none."""
        return next((getattr(step, name) for step in self.walk() if isinstance(step, kind)), default)

    def check(self, n_classes: int | None = None) -> None:
        """Refuse parameters that no fit can have found; with the number of classes, also their shapes."""
        for step in self.walk():
            kind, values = type(step).__name__, {each: getattr(step, each.name) for each in fields(step)}
            for each, value in values.items():
                above = each.metadata.get("above")
                if above is not None and not (isinstance(value, float) and above < value < math.inf):
                    domain = f" greater than {above:g}" if above > -math.inf else ""
                    raise ParameterError(each.name, kind, expected=f"a finite number{domain}", got=repr(value))
                if "dtype" in each.metadata and not np.all(np.isfinite(value)):
                    got = f"shape {np.shape(value)}"
                    raise ParameterError(each.name, kind, expected="an array of finite numbers", got=got)
            if n_classes is not None and not step.fits(n_classes):
                expected = f"made of parameters that fit each other and {n_classes} classes"
                shapes = ", ".join(f"{each.name} of shape {np.shape(value)}" for each, value in values.items())
                raise ParameterError("parameters", kind, expected=expected, got=shapes)

    def _own(self) -> list[tuple[str, Any]]:
        """The fields that hold a number or an array."""
        values = [(each.name, getattr(self, each.name)) for each in fields(self)]
        return [(name, value) for name, value in values if not isinstance(value, (str, Step, tuple))]


@dataclass(frozen=True)
class Chain(Step):
    """One step after the other; an empty chain leaves the scores as they are.

    >>> from refocal.maps.steps import Focal, Temperature
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
        return spoiled(xp, x, here.apply(xp, x))

    def log_probabilities(self, logits: Array, row_axes: int = 1) -> Array:
        """Log-probabilities of checked logits, of the same array kind, dtype and device; `row_axes` axes form a row."""
        return in_row_blocks(self._log_probabilities, logits, row_axes)

    def probabilities(self, logits: Array) -> Array:
        """Their exponentials."""
        xp = namespace(logits)
        return in_row_blocks(lambda rows: xp.exp(self._log_probabilities(rows)), logits)

    @without_warnings
    def _log_probabilities(self, logits: Array) -> Array:
        scores = self.scores(logits)
        xp = namespace(scores)
        is_floating = xp.isdtype(logits.dtype, "real floating")
        return xp.astype(normalised(xp, scores), logits.dtype if is_floating else scores.dtype, copy=False)

    @functools.cached_property
    def program(self) -> Program:
        """The longest end of the chain that the C engine and the GPU support, and the chain before it."""
        found = _instructions(self.steps, SIMPLE)
        return Program.of(Chain(self.steps[: len(self.steps) - len(found)]), found)

    @functools.cached_property
    def _mixture(self) -> Program | None:
        """A mixture at the end for the C engine; None if it does not support it."""
        found: list[Instruction] = []
        last: Any = self.steps[-1] if self.steps else None
        for i, member in enumerate(getattr(last, "members", ())):  # which the C engine computes one by one
            steps = member.steps if isinstance(member, Chain) else (member,)
            own = _instructions(steps, CODES)
            if len(own) < len(steps):
                return None
            found += [*own, Instruction("member", (float(last.weights[i]),))]
        return Program.of(Chain(self.steps[:-1]), found) if found else None

    def program_for(self, logits: Array) -> Program:
        """The program of the C engine for these logits, which also supports a mixture at the end."""
        mixture = self._mixture
        return self.program if mixture is None or (mixture.is_steep and logits.dtype.itemsize > 4) else mixture


def _instructions(steps: tuple[Step, ...], codes: tuple[str, ...]) -> list[Instruction]:
    """The longest end of some steps with these codes."""
    found: list[Instruction] = []
    stage = 3
    for left in range(len(steps), 0, -1):
        known = steps[left - 1].instruction(is_last=left == len(steps))
        own = STAGES.get(known.code, 0) if known is not None else 0
        if known is None or known.code not in codes or own > stage or own == stage > 0:
            break
        found.insert(0, known)
        stage = own if known.code in SIMPLE else min(own, 1)
    return found


def in_row_blocks(function: Callable[[Array], Array], logits: Array, row_axes: int = 1) -> Array:
    """A function applied to the rows of logits, block by block if they are many and in memory.

    `row_axes` is the number of axes of a row. Only the result and one block's temporaries are held.
    """
    there = on_gpu(logits)
    entries = GPU_BLOCK if there else BLOCK
    if is_torch(logits):  # with gradients or tracing, the graph is one of all rows, whose number may be unknown
        in_memory = not is_recorded(logits) and (there or logits.device.type == "cpu")
    else:
        in_memory = isinstance(logits, np.ndarray)
    if not in_memory or math.prod(logits.shape) <= entries:
        return function(logits)
    rows = logits.reshape(-1, *logits.shape[-row_axes:])
    found: Array = None
    for some in row_blocks(len(rows), math.prod(rows.shape[1:]), entries=entries):
        part = function(rows[some])
        if found is None:
            found = part.new_empty(rows.shape) if is_torch(part) else np.empty(rows.shape, part.dtype)
        found[some] = part
    return found.reshape(logits.shape)
