"""What a fitted calibrator is: a chain of steps.

A step takes scores (..., C), the logarithms of probabilities up to a constant for each row, and returns scores. It is
a frozen object of a few parameters with one body for NumPy, torch, JAX and the ONNX graph, so predictions, torch
layers, ONNX files and JSON all come from the same chain.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import array_api_compat
import numpy as np

from refocal._arrays import Array, as_floating, is_recorded, is_torch, namespace, on_gpu, row_blocks, without_warnings
from refocal.errors import ParameterError
from refocal.maps.row import normalised, spoiled

BLOCK = 1 << 18
"""Larger arrays are processed in blocks of so many entries: temporaries then take 2 MB each in double precision."""

# The metadata of a field of a step that holds one number: it is finite and above this bound.
ANY: dict[str, Any] = {"above": -math.inf}
POSITIVE: dict[str, Any] = {"above": 0.0}
ABOVE_MINUS_1: dict[str, Any] = {"above": -1.0}

# The metadata of a field that holds an array of finite numbers: the precision in which they are saved.
SINGLE: dict[str, Any] = {"dtype": np.dtype(np.float32)}
DOUBLE: dict[str, Any] = {"dtype": np.dtype(np.float64)}


def number_field(*, above: float = -math.inf) -> Any:
    """A field of a step of your own that holds one finite number, above a bound: `slope: float = number_field()`.

    >>> from dataclasses import dataclass
    >>> from refocal.maps import Step, number_field
    >>> @dataclass(frozen=True)
    ... class Shrink(Step, keeps_order=True):
    ...     factor: float = number_field(above=0.0)
    ...     def apply(self, xp, scores):
    ...         return self.factor * scores
    >>> Shrink(-1.0).check()
    Traceback (most recent call last):
    refocal.errors.ParameterError: The 'factor' of Shrink must be a finite number greater than 0. Got -1.0 instead.
    """
    return field(metadata={"above": above})


def array_field() -> Any:
    """A field of a step of your own that holds an array of finite numbers, in float64: `offsets: Any = array_field()`.

    >>> from dataclasses import dataclass
    >>> from typing import Any
    >>> import numpy as np
    >>> from refocal.maps import Chain, Step, array_field
    >>> @dataclass(frozen=True)
    ... class Shift(Step):
    ...     offsets: Any = array_field()
    ...     def apply(self, xp, scores):
    ...         return scores + self.offsets
    >>> np.exp(Chain((Shift(np.log([1.0, 3.0])),)).log_probabilities(np.zeros((1, 2)))).round(3)
    array([[0.25, 0.75]])
    """
    return field(metadata=DOUBLE)


@dataclass(frozen=True)
class Step(ABC):
    """One step of a chain; a subclass is a frozen dataclass, and may be one of your own.

    Its fields are numbers and arrays (`number_field`, `array_field`), options, and further steps. `apply` takes scores
    (..., C) and the functions `xp` of their array library: NumPy, torch, JAX or the ONNX graph. `keeps_order` says
    whether the class of the largest score stays the same in every row.

    >>> from dataclasses import dataclass
    >>> from refocal.maps import Chain, Step, number_field
    >>> @dataclass(frozen=True)
    ... class Squash(Step, keeps_order=True):
    ...     scale: float = number_field(above=0.0)
    ...     def apply(self, xp, scores):
    ...         return self.scale * xp.tanh(scores / self.scale)
    >>> np.exp(Chain((Squash(2.0),)).log_probabilities(np.array([[10.0, 0.0]]))).round(3)
    array([[0.881, 0.119]])
    """

    keeps_order: ClassVar[bool] = False

    def __init_subclass__(cls, *, keeps_order: bool | None = None) -> None:
        """`class Temperature(Step, keeps_order=True)` says it of a new kind of step; otherwise it is inherited."""
        super().__init_subclass__()
        if keeps_order is not None:
            cls.keeps_order = keeps_order

    @abstractmethod
    def apply(self, xp: Any, scores: Array) -> Array:
        """The scores after this step; `xp` are the functions of their array library."""

    def fits(self, n_classes: int) -> bool:
        """Whether the parameters have the shapes and values of a step for `n_classes` classes."""
        return True

    def with_parameters(self, change: Callable[[Any], Any]) -> Self:
        """The same step with every number and array changed, those of inner steps included."""
        changed = {name: change(value) for name, value in self._own_parameters()}
        for name, value in self._values().items():
            if isinstance(value, Step):
                changed[name] = value.with_parameters(change)
            elif isinstance(value, tuple):
                changed[name] = tuple(step.with_parameters(change) for step in value)
        return replace(self, **changed)

    def parameters(self) -> Iterator[tuple[str, Any]]:
        """Names and values of all numbers and arrays, in the order in which `with_parameters` changes them."""
        for step in self.walk():
            yield from step._own_parameters()

    def walk(self) -> Iterator[Step]:
        """The step itself and all within it."""
        yield self
        for value in self._values().values():
            inner = value if isinstance(value, tuple) else (value,)
            for step in inner:
                if isinstance(step, Step):
                    yield from step.walk()

    def find(self, kind: type[Step], name: str, default: Any = None) -> Any:
        """A parameter of the first step of that kind, this one or within it; the default if there is none."""
        for step in self.walk():
            if isinstance(step, kind):
                return getattr(step, name)
        return default

    def check(self, n_classes: int | None = None) -> None:
        """Refuse parameters that no fit can have found; with the number of classes, also their shapes."""
        for step in self.walk():
            step._check_own(n_classes)

    def _check_own(self, n_classes: int | None) -> None:
        """Refuse parameters of this step, without those within it."""
        kind = type(self).__name__
        for parameter in fields(self):
            value = getattr(self, parameter.name)
            above = parameter.metadata.get("above")
            if above is not None and not (isinstance(value, float) and above < value < math.inf):
                domain = f" greater than {above:g}" if above > -math.inf else ""
                raise ParameterError(parameter.name, kind, expected=f"a finite number{domain}", got=repr(value))
            if "dtype" in parameter.metadata and not np.all(np.isfinite(value)):
                got = f"shape {np.shape(value)}"
                raise ParameterError(parameter.name, kind, expected="an array of finite numbers", got=got)
        if n_classes is not None and not self.fits(n_classes):
            expected = f"made of parameters that fit each other and {n_classes} classes"
            shapes = ", ".join(f"{name} of shape {np.shape(value)}" for name, value in self._values().items())
            raise ParameterError("parameters", kind, expected=expected, got=shapes)

    def _values(self) -> dict[str, Any]:
        """The value of each field."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _own_parameters(self) -> list[tuple[str, Any]]:
        """The fields that hold a number or an array: those that hold no option and no further steps."""
        values = self._values().items()
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
        xp = namespace(x)
        device = array_api_compat.device(x)
        chain = self.with_parameters(lambda value: xp.asarray(value, dtype=x.dtype, device=device))
        return spoiled(xp, x, chain.apply(xp, x))

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
        dtype = logits.dtype if is_floating else scores.dtype
        return xp.astype(normalised(xp, scores), dtype, copy=False)


def in_row_blocks(function: Callable[[Array], Array], logits: Array, row_axes: int = 1) -> Array:
    """A function applied to the rows of logits, block by block if they are many and in memory.

    `row_axes` is the number of axes of a row. Only the result and one block's temporaries are held.
    """
    gpu_block = 1 << 23  # entries: temporaries of 64 MB each in double precision
    is_on_gpu = on_gpu(logits)
    block = gpu_block if is_on_gpu else BLOCK
    if is_torch(logits):  # with gradients or tracing, the graph is one of all rows, whose number may be unknown
        in_memory = not is_recorded(logits) and (is_on_gpu or logits.device.type == "cpu")
    else:
        in_memory = isinstance(logits, np.ndarray)
    if not in_memory or math.prod(logits.shape) <= block:
        return function(logits)
    rows = logits.reshape(-1, *logits.shape[-row_axes:])
    row_size = math.prod(rows.shape[1:])
    result: Array = None
    for part in row_blocks(len(rows), row_size, entries=block):
        values = function(rows[part])
        if result is None:  # the dtype of the result is that of the first values
            result = values.new_empty(rows.shape) if is_torch(values) else np.empty(rows.shape, values.dtype)
        result[part] = values
    return result.reshape(logits.shape)
