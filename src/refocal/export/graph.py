"""ONNX as an array library: the operations of the maps on these symbols become the nodes of a graph.

So the graph has the same formulas as all other array libraries. The functions that the maps use are here, and those of
one number or of a row that steps of users may need.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


class Graph:
    """Nodes and constants under names that begin with `prefix`, for values of `n_axes` axes, by one opset's rules."""

    def __init__(self, opset: int, n_axes: int, prefix: str = "", dtype: Any = np.float32) -> None:
        self.opset = opset
        self.n_axes = n_axes
        self.prefix = prefix
        self.dtype = np.dtype(dtype)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._known: dict[tuple[str, bytes, tuple[int, ...]], Symbol] = {}

    def constant(self, value: Any, dtype: Any = None) -> Symbol:
        """Numbers, of the graph's dtype unless another is given; equal ones are kept once."""
        array = np.asarray(value, dtype=self.dtype if dtype is None else dtype)
        key = (str(array.dtype), array.tobytes(), array.shape)
        if key not in self._known:
            name = f"{self.prefix}constant_{len(self._known)}"
            self._known[key] = Symbol(self, name, array.shape[-1] if array.ndim else 1, array.dtype)
            self.constants.append(numpy_helper.from_array(array, name))
        return self._known[key]

    def indices(self, *values: int) -> Symbol:
        """A constant vector of axes, sizes or places."""
        return self.constant(values, np.int64)

    def node(
        self, operator: str, *inputs: Any, columns: int | None = None, dtype: Any = None, **attributes: Any
    ) -> Symbol:
        """Append a node on symbols and on numbers and arrays, which become constants of the first symbol's dtype.

        The result has that dtype and as many columns as the widest input, unless others are given.
        """
        first = next(each for each in inputs if isinstance(each, Symbol))
        values = [each if isinstance(each, Symbol) else self.constant(each, first.dtype) for each in inputs]
        name = f"{self.prefix}{operator.lower()}_{len(self.nodes)}"
        named = [each.name for each in values]
        self.nodes.append(helper.make_node(operator, named, [name], name=f"{name}_node", **attributes))
        columns = max(each.n_columns for each in values) if columns is None else columns
        return Symbol(self, name, columns, first.dtype if dtype is None else np.dtype(dtype))


def _operator(name: str, dtype: Any = None) -> Callable[[Symbol, Any], Symbol]:
    """An operator of arrays as a node."""
    return lambda self, other: self.graph.node(name, self, other, dtype=dtype)


def _reflected(name: str) -> Callable[[Symbol, Any], Symbol]:
    """An operator with the number or array before the symbol."""
    return lambda self, other: self.graph.node(name, other, self)


class Symbol:
    """A tensor of the graph, with the operators of an array."""

    def __init__(self, graph: Graph, name: str, n_columns: int, dtype: np.dtype[Any]) -> None:
        self.graph = graph
        self.name = name
        self.n_columns = n_columns
        self.dtype = dtype
        self.shape = (None, n_columns)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return Functions

    # NumPy arrays leave operators with symbols to the symbols.
    __array_ufunc__ = None

    __add__ = _operator("Add")
    __radd__ = _reflected("Add")
    __sub__ = _operator("Sub")
    __rsub__ = _reflected("Sub")
    __mul__ = _operator("Mul")
    __rmul__ = _reflected("Mul")
    __truediv__ = _operator("Div")
    __rtruediv__ = _reflected("Div")
    __pow__ = _operator("Pow")
    __or__ = _operator("Or")
    __and__ = _operator("And")
    __gt__ = _operator("Greater", np.bool_)
    __ge__ = _operator("GreaterOrEqual", np.bool_)
    __lt__ = _operator("Less", np.bool_)
    __le__ = _operator("LessOrEqual", np.bool_)
    __eq__ = _operator("Equal", np.bool_)  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __matmul__(self, other: Any) -> Symbol:
        return self.graph.node("MatMul", self, other, columns=other.shape[-1])

    def __invert__(self) -> Symbol:
        return self.graph.node("Not", self)

    def __neg__(self) -> Symbol:
        return self.graph.node("Neg", self)


def _function(name: str) -> Any:
    """A function of arrays as a node."""
    return staticmethod(lambda x, *others: x.graph.node(name, x, *others))


class Functions:
    """The functions of the array API that the maps call."""

    inf = np.inf
    finfo = staticmethod(np.finfo)

    reshape = staticmethod(np.reshape)  # of constants alone
    exp = _function("Exp")
    abs = _function("Abs")
    sign = _function("Sign")
    sqrt = _function("Sqrt")
    tanh = _function("Tanh")
    pow = _function("Pow")
    maximum = _function("Max")
    minimum = _function("Min")

    @staticmethod
    def arange(*bounds: int, device: Any = None) -> Any:
        """Plain numbers; they become a constant where they meet a symbol."""
        return np.arange(*bounds, dtype=np.int64)

    @staticmethod
    def astype(x: Any, dtype: Any) -> Any:
        """Constants in another precision."""
        return x.astype(dtype)

    @staticmethod
    def argmax(x: Symbol, *, axis: int, keepdims: bool) -> Symbol:
        """The first of the largest."""
        return x.graph.node("ArgMax", x, columns=1, dtype=np.int64, axis=-1, keepdims=1)

    @staticmethod
    def take_along_axis(x: Symbol, index: Symbol, *, axis: int) -> Symbol:
        """Entries by index."""
        return x.graph.node("GatherElements", x, index, columns=1, axis=-1)

    @staticmethod
    def take(table: Any, index: Symbol, *, axis: int) -> Symbol:
        """Entries of a constant vector."""
        return index.graph.node("Gather", index.graph.constant(table), index, columns=index.n_columns, axis=axis)

    @staticmethod
    def where(condition: Symbol, a: Any, b: Any) -> Symbol:
        """Choose; two constants are of the graph's dtype, unless they are indices."""
        known = next((each.dtype for each in (a, b) if isinstance(each, Symbol)), None)
        is_index = isinstance(a, np.ndarray) and a.dtype.kind == "i"
        dtype = known or (np.dtype(np.int64) if is_index else condition.graph.dtype)
        a, b = (each if isinstance(each, Symbol) else condition.graph.constant(each, dtype) for each in (a, b))
        return condition.graph.node("Where", condition, a, b, dtype=dtype)

    @staticmethod
    def log(x: Any) -> Any:
        """Logarithm."""
        return x.graph.node("Log", x) if isinstance(x, Symbol) else np.log(x)

    @staticmethod
    def square(x: Symbol) -> Symbol:
        """The number times itself."""
        return x * x

    @staticmethod
    def clip(x: Symbol, min: Any = None, max: Any = None) -> Symbol:  # noqa: A002
        """Numbers from `min` to `max`."""
        x = x if min is None else Functions.maximum(x, min)
        return x if max is None else Functions.minimum(x, max)

    @staticmethod
    def isnan(x: Symbol) -> Symbol:
        """Which numbers are NaN."""
        return x.graph.node("IsNaN", x, dtype=np.bool_)

    @staticmethod
    def sort(x: Symbol, *, axis: int) -> Symbol:
        """Each row from its smallest number on."""
        ascending = x.graph.node("TopK", x, x.graph.indices(x.n_columns), largest=0)
        x.graph.nodes[-1].output.append(f"{ascending.name}_at")
        return ascending

    @staticmethod
    def cumulative_sum(x: Symbol, *, axis: int) -> Symbol:
        """Sums of each row up to each column."""
        return x.graph.node("CumSum", x, x.graph.constant(-1, np.int64))

    @staticmethod
    def log1p(x: Symbol) -> Symbol:
        """log(1+x), which ONNX lacks: log(u) · x/(u-1) with u = 1+x rounded, whose errors cancel."""
        u = 1.0 + x
        step = u - 1.0
        nothing = step == 0.0
        return Functions.where(nothing, x, Functions.log(u) * (x / Functions.where(nothing, 1.0, step)))

    @staticmethod
    def max(x: Symbol, *, axis: int, keepdims: bool) -> Symbol:
        """Largest of a row, NaN if there is one, of which ONNX says nothing. Opset 18 made the axes an input."""
        if x.graph.opset >= 18:
            largest = x.graph.node("ReduceMax", x, x.graph.indices(-1), columns=1, keepdims=1)
        else:
            largest = x.graph.node("ReduceMax", x, columns=1, axes=[-1], keepdims=1)
        n_unknown = Functions.sum(Functions.where(Functions.isnan(x), 1.0, 0.0), axis=axis, keepdims=keepdims)
        return Functions.where(n_unknown > 0.0, np.nan, largest)

    @staticmethod
    def min(x: Symbol, *, axis: int, keepdims: bool) -> Symbol:
        """Smallest of a row, NaN if there is one."""
        return -Functions.max(-x, axis=axis, keepdims=keepdims)

    @staticmethod
    def mean(x: Symbol, *, axis: int, keepdims: bool) -> Symbol:
        """Mean of a row."""
        return Functions.sum(x, axis=axis, keepdims=keepdims) / float(x.n_columns)

    @staticmethod
    def sum(x: Symbol, *, axis: int, keepdims: bool) -> Symbol:
        """Sum of a row.

        Runtimes add one number after the other, which costs digits in long rows: 1e-5 of 32,000 classes. Those are
        folded into a square and added in two goes.
        """
        longest_sum = 64  # columns that are added one after the other

        graph = x.graph
        last = graph.indices(-1)
        if x.n_columns > longest_sum:
            side = math.isqrt(x.n_columns - 1) + 1
            before = [0] * (graph.n_axes - 1)
            x = graph.node("Pad", x, graph.indices(*before, 0, *before, side * side - x.n_columns))
            x = graph.node("Reshape", x, graph.indices(*before, side, side))
            x = graph.node("ReduceSum", x, last, keepdims=0)
        return graph.node("ReduceSum", x, last, columns=1, keepdims=1)
