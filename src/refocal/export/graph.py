"""ONNX as an array library: the operations of the maps on these symbols become the nodes of a graph.

So the graph has the same formulas as all other array libraries. Only the functions that the maps use are here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

LONGEST_SUM = 64


class Graph:
    """Nodes and constants under names that begin with `prefix`, for values of `n_axes` axes, by one opset's rules."""

    def __init__(self, opset: int, n_axes: int, prefix: str = "", dtype: Any = np.float32) -> None:
        self.opset = opset
        self.n_axes = n_axes
        self.prefix = prefix
        self.dtype = np.dtype(dtype)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._known: dict[tuple[str, bytes, tuple[int, ...]], str] = {}

    def symbol(self, name: str, n_classes: int, dtype: Any = None) -> Symbol:
        """A value that exists under a name: (..., n_classes)."""
        return Symbol(self, name, n_classes, self.dtype if dtype is None else np.dtype(dtype))

    def constant(self, value: Any, dtype: Any = None) -> str:
        """The name of a constant; equal ones are kept once."""
        array = np.asarray(value, dtype=self.dtype if dtype is None else dtype)
        key = (str(array.dtype), array.tobytes(), array.shape)
        if key not in self._known:
            self._known[key] = f"{self.prefix}constant_{len(self._known)}"
            self.constants.append(numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def node(self, operator: str, inputs: list[str], output: str | None = None, **attributes: Any) -> str:
        """Append a node and give the name of its output."""
        name = output or f"{self.prefix}{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=f"{name}_node", **attributes))
        return name

    def largest(self, x: str) -> str:
        """Along the last axis, which stays. Opset 18 made the axes an input."""
        if self.opset >= 18:
            return self.node("ReduceMax", [x, self._indices(-1)], keepdims=1)
        return self.node("ReduceMax", [x], axes=[-1], keepdims=1)

    def total(self, x: str, n_columns: int) -> str:
        """Along the last axis, which stays.

        Runtimes add one number after the other, which costs digits in long rows: 1e-5 of 32,000 classes. Those are
        folded into a square and added in two goes.
        """
        if n_columns > LONGEST_SUM:
            side = math.isqrt(n_columns - 1) + 1
            before = [0] * (self.n_axes - 1)
            pads = self._indices(*before, 0, *before, side * side - n_columns)
            x = self.node("Reshape", [self.node("Pad", [x, pads]), self._indices(*before, side, side)])
            x = self.node("ReduceSum", [x, self._indices(-1)], keepdims=0)
        return self.node("ReduceSum", [x, self._indices(-1)], keepdims=1)

    def _indices(self, *values: int) -> str:
        return self.constant(values, np.int64)


def _operator(name: str, dtype: Any = None, *, reverse: bool = False) -> Callable[[Symbol, Any], Symbol]:
    """An operator of arrays as a node, with the number or array before the symbol if `reverse`."""

    def apply(self: Symbol, other: Any) -> Symbol:
        return self.apply(name, other, dtype=dtype, reverse=reverse)

    return apply


class Symbol:
    """A tensor of the graph, with the operators of an array."""

    def __init__(self, graph: Graph, name: str, n_columns: int, dtype: np.dtype[Any]) -> None:
        self.graph, self.name, self.dtype = graph, name, dtype
        self.shape = (None, n_columns)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return Functions

    # NumPy arrays leave operators with symbols to the symbols.
    __array_ufunc__ = None

    def apply(self, operator: str, *others: Any, dtype: Any = None, reverse: bool = False) -> Symbol:
        """A node on this value and others, numbers and arrays among them becoming constants."""
        inputs = [self.name, *(self._name_of(other) for other in others)]
        name = self.graph.node(operator, inputs[::-1] if reverse else inputs)
        columns = max(_columns(value) for value in (self, *others))
        return self.graph.symbol(name, columns, self.dtype if dtype is None else dtype)

    def _name_of(self, value: Any) -> str:
        return value.name if isinstance(value, Symbol) else self.graph.constant(value, self.dtype)

    __add__, __radd__ = _operator("Add"), _operator("Add", reverse=True)
    __sub__, __rsub__ = _operator("Sub"), _operator("Sub", reverse=True)
    __mul__, __rmul__ = _operator("Mul"), _operator("Mul", reverse=True)
    __truediv__, __or__ = _operator("Div"), _operator("Or")
    __gt__, __ge__ = _operator("Greater", np.bool_), _operator("GreaterOrEqual", np.bool_)
    __lt__, __le__ = _operator("Less", np.bool_), _operator("LessOrEqual", np.bool_)
    __eq__ = _operator("Equal", np.bool_)  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __matmul__(self, other: Any) -> Symbol:
        name = self.graph.node("MatMul", [self.name, self.graph.constant(other, self.dtype)])
        return self.graph.symbol(name, other.shape[-1], self.dtype)

    def __neg__(self) -> Symbol:
        return self.apply("Neg")


def _function(name: str) -> Any:
    """A function of arrays as a node."""
    return staticmethod(lambda x, *others: x.apply(name, *others))


class Functions:
    """The functions of the array API that the maps call."""

    inf = np.inf
    finfo = staticmethod(np.finfo)

    reshape = staticmethod(np.reshape)  # of constants alone
    exp, abs, maximum = (_function(name) for name in ("Exp", "Abs", "Max"))

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
        name = x.graph.node("ArgMax", [x.name], axis=-1, keepdims=1)
        return x.graph.symbol(name, 1, np.int64)

    @staticmethod
    def take_along_axis(x: Symbol, index: Symbol, *, axis: int) -> Symbol:
        """Entries by index."""
        return x.graph.symbol(x.graph.node("GatherElements", [x.name, index.name], axis=-1), 1, x.dtype)

    @staticmethod
    def take(table: Any, index: Symbol, *, axis: int) -> Symbol:
        """Entries of a constant vector."""
        graph = index.graph
        name = graph.node("Gather", [graph.constant(table), index.name], axis=axis)
        return graph.symbol(name, index.shape[1])

    @staticmethod
    def where(condition: Symbol, a: Any, b: Any) -> Symbol:
        """Choose; two constants are of the graph's dtype, unless they are indices."""
        known = next((v.dtype for v in (a, b) if isinstance(v, Symbol)), None)
        dtype = known or (np.dtype(np.int64) if _is_index(a) else condition.graph.dtype)
        names = [v.name if isinstance(v, Symbol) else condition.graph.constant(v, dtype) for v in (a, b)]
        columns = max(_columns(value) for value in (condition, a, b))
        return condition.graph.symbol(condition.graph.node("Where", [condition.name, *names]), columns, dtype)

    @staticmethod
    def log(x: Any) -> Any:
        """Logarithm."""
        return x.apply("Log") if isinstance(x, Symbol) else np.log(x)

    @staticmethod
    def sort(x: Symbol, *, axis: int) -> Symbol:
        """Each row from its smallest number on."""
        values = f"{x.graph.prefix}sorted_{len(x.graph.nodes)}"
        count = x.graph.constant([x.shape[1]], np.int64)
        x.graph.nodes.append(
            helper.make_node("TopK", [x.name, count], [values, f"{values}_at"], name=f"{values}_node", largest=0)
        )
        return x.graph.symbol(values, x.shape[1], x.dtype)

    @staticmethod
    def cumulative_sum(x: Symbol, *, axis: int) -> Symbol:
        """Sums of each row up to each column."""
        name = x.graph.node("CumSum", [x.name, x.graph.constant(-1, np.int64)])
        return x.graph.symbol(name, x.shape[1], x.dtype)

    @staticmethod
    def log1p(x: Symbol) -> Symbol:
        """log(1+x), which ONNX lacks: log(u) · x/(u-1) with u = 1+x rounded, whose errors cancel."""
        u = 1.0 + x
        step = u - 1.0
        nothing = step == 0.0
        return Functions.where(nothing, x, Functions.log(u) * (x / Functions.where(nothing, 1.0, step)))

    @staticmethod
    def max(x: Symbol, *, axis: int, keepdims: bool) -> Symbol:
        """Largest of a row."""
        return x.graph.symbol(x.graph.largest(x.name), 1, x.dtype)

    @staticmethod
    def sum(x: Symbol, *, axis: int, keepdims: bool) -> Symbol:
        """Sum of a row."""
        return x.graph.symbol(x.graph.total(x.name, x.shape[1]), 1, x.dtype)


def _columns(value: Any) -> int:
    """The size of the last axis."""
    return int(value.shape[-1]) if len(getattr(value, "shape", ())) > 0 else 1


def _is_index(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "i"
