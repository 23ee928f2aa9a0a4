"""Calibrators as ONNX graphs, alone or behind a classifier."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from refocal._arrays import SMALLEST, without_warnings
from refocal._files import write_atomically
from refocal.calibrators import Calibrator
from refocal.errors import FormatError, MissingExtraError, ParameterError, ShapeError, UnsupportedError
from refocal.maps.row import gaps

if TYPE_CHECKING:
    import onnx

    from refocal.export.graph import Graph

OPSET = 17
"""The opset of the graphs that `to_onnx` writes: read by onnxruntime since 1.12."""

OLDEST_OPSET = 13
"""The oldest opset of a model that `append_to_onnx` can put its nodes into."""

Path_ = str | os.PathLike[str]


def to_onnx(
    calibrator: Calibrator,
    path: Path_,
    n_classes: int | None = None,
    *,
    class_axis: int = -1,
    n_axes: int = 2,
) -> onnx.ModelProto:
    """Write a fitted calibrator as an ONNX model from `logits` to `probabilities`, both float32, and return it.

    The opset is `OPSET`. The file is written whole or not at all.

    Parameters
    ----------
    n_classes : int, optional
        The size of the class axis; must be the number that the calibrator was fitted with.
    class_axis, n_axes : int
        Where the classes lie, and of how many axes: class_axis=1, n_axes=4 for images (N, C, H, W). All other axes
        may have any size.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from refocal import FocalCalibration
    >>> fitted = FocalCalibration(gamma=2.0).fit(np.log([[0.6, 0.4], [0.3, 0.7]]), [0, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = to_onnx(fitted, f"{folder}/calibrator.onnx")
    >>> model.opset_import[0].version == OPSET
    True
    """
    _need_onnx("to_onnx")
    import onnx
    from onnx import TensorProto, helper

    from refocal.export.graph import Graph

    classes = _n_classes(calibrator, n_classes, "to_onnx")
    axis = _axis(class_axis, n_axes, "to_onnx")
    graph = Graph(OPSET, n_axes)
    _build(graph, calibrator, "logits", "probabilities", Layout(classes, axis, n_axes, not calibrator.has_class_axis))
    numbers = (f"{name} = {value!r}" for name, value in calibrator.chain_.parameters() if isinstance(value, float))
    shape: list[int | str] = [f"axis_{i}" for i in range(n_axes)]
    shape[0], shape[axis] = ("batch" if axis else classes), classes
    given = shape if calibrator.has_class_axis else [size for i, size in enumerate(shape) if i != axis]
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "refocal",
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, given)],
            [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, shape)],
            graph.constants,
        ),
        producer_name="refocal",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=8,  # the one that belongs to opset 17; a newer one would shut out runtimes that know the opset
        doc_string=f"{type(calibrator).__name__}: {', '.join(numbers)}",
    )
    onnx.checker.check_model(model, full_check=True)
    write_atomically(path, model.SerializeToString())
    return model


def append_to_onnx(
    model_path: Path_,
    calibrator: Calibrator,
    out_path: Path_,
    *,
    output: str | None = None,
    class_axis: int = -1,
) -> onnx.ModelProto:
    """Append a fitted calibrator to an ONNX classifier: its logits output is replaced by `probabilities`.

    A classifier of two classes may have one number a row, log-odds or the probability of class 1: an output (N,), or
    one with a class axis of size 1. The result has two columns.

    The model keeps its opset, which must be 13 or newer, its other outputs and its weights. Weights in files beside the
    model stay there if the result is written beside it too; otherwise they move into the result. The result has the
    precision of the logits; half precision is computed in float32.

    Parameters
    ----------
    output : str, optional
        The output that holds the logits; required if there are several.
    class_axis : int
        Where the classes lie in it.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from refocal import FocalCalibration
    >>> fitted = FocalCalibration(gamma=2.0).fit(np.log([[0.6, 0.4], [0.3, 0.7]]), [0, 1])
    >>> from onnx import TensorProto, helper, save
    >>> x, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2]) for name in ("x", "z"))
    >>> graph = helper.make_graph([helper.make_node("Neg", ["x"], ["z"])], "classifier", [x], [z])
    >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/model.onnx")
    ...     calibrated = append_to_onnx(f"{folder}/model.onnx", fitted, f"{folder}/calibrated.onnx")
    >>> [output.name for output in calibrated.graph.output]
    ['probabilities']
    """
    name = "append_to_onnx"
    _need_onnx(name)
    import onnx
    from onnx import TensorProto, helper

    source, target = Path(model_path), Path(out_path)
    model = onnx.load(source, load_external_data=False)
    if source.resolve().parent != target.resolve().parent:
        onnx.load_external_data_for_model(model, str(source.parent))
    logits = _logits_output(model, output, calibrator, name)
    kind: int = logits.type.tensor_type.elem_type
    if kind not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16):
        expected = "an output of floating-point numbers"
        raise ParameterError("output", name, expected=expected, got=TensorProto.DataType.Name(kind))
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset < OLDEST_OPSET:
        raise FormatError(f"{source}: opset {opset} is too old; {name} needs {OLDEST_OPSET} or newer.")
    dims = [d.dim_value if d.HasField("dim_value") else d.dim_param for d in logits.type.tensor_type.shape.dim]
    layout, squeezed = _layout(calibrator, dims, class_axis, name)
    result = _append(model, logits.name, kind, opset, calibrator, layout, squeezed)
    if layout.one_number:
        dims = [dims[i] for i in range(len(dims)) if not squeezed or i != layout.axis]
        dims.insert(layout.axis, 2)
    outputs = [
        helper.make_tensor_value_info(result, kind, dims) if value.name == logits.name else value
        for value in model.graph.output
    ]
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    _write(model, target)
    return model


class Layout(NamedTuple):
    """Where the classes are in the result; of `one_number` a row of two classes the scores have no such axis."""

    n_classes: int
    axis: int
    n_axes: int
    one_number: bool = False


def _layout(calibrator: Calibrator, dims: list[Any], class_axis: int, function: str) -> tuple[Layout, bool]:
    """How a model's output is laid out, and whether its class axis is of size 1 and is to be taken out."""
    if getattr(calibrator, "n_features_in_", None) == 2 and calibrator.row_axes == 1:
        squeezed = dims[_axis(class_axis, len(dims), function)] == 1 if dims else False
        if squeezed or len(dims) == 1 or not calibrator.has_class_axis:
            n_axes = len(dims) + (not squeezed)
            n_classes = _n_classes(calibrator, None, function)
            return Layout(n_classes, _axis(class_axis, n_axes, function), n_axes, one_number=True), squeezed
    axis = _axis(class_axis, len(dims), function)
    n_classes = _n_classes(calibrator, dims[axis] if isinstance(dims[axis], int) else None, function)
    return Layout(n_classes, axis, len(dims)), False


def _append(
    model: onnx.ModelProto, logits: str, kind: int, opset: int, calibrator: Calibrator, layout: Layout, squeezed: bool
) -> str:
    """Add the nodes from logits to probabilities to a model, under names that it has not; how the result is called."""
    from onnx import TensorProto

    from refocal.export.graph import Graph

    taken = {value for node in model.graph.node for value in (*node.input, *node.output)}
    taken |= {value.name for value in (*model.graph.input, *model.graph.initializer, *model.graph.output)}
    result, prefix, others = "probabilities", "refocal_", (f"probabilities_{i}" for i in itertools.count(1))
    while result in taken:
        result = next(others)
    while any(name.startswith(prefix) for name in taken):
        prefix += "_"
    graph = Graph(opset, layout.n_axes, prefix, np.float64 if kind == TensorProto.DOUBLE else np.float32)
    if squeezed:
        logits = graph.node("Squeeze", [logits, graph.constant([layout.axis], np.int64)])
    if kind in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
        inside = f"{prefix}result"
        _build(graph, calibrator, graph.node("Cast", [logits], to=TensorProto.FLOAT), inside, layout)
        graph.node("Cast", [inside], result, to=kind)
    else:
        _build(graph, calibrator, logits, result, layout)
    model.graph.node.extend(graph.nodes)
    model.graph.initializer.extend(graph.constants)
    return result


@without_warnings
def _build(graph: Graph, calibrator: Calibrator, source: str, target: str, layout: Layout) -> None:
    """The nodes from logits to probabilities: the maps' own, with the class axis last."""
    n_classes, axis, n_axes, one_number = layout
    order = [i for i in range(n_axes) if i != axis] + [axis]
    moved = axis != n_axes - 1
    of_labels = calibrator.row_axes == 2
    if moved and not one_number:
        source = graph.node("Transpose", [source], perm=order)
    if of_labels or one_number:
        sign, absent = ([-1.0, 1.0], [1.0, 0.0]) if calibrator.input == "probabilities" else ([0.0, 1.0], [0.0, 0.0])
        column = graph.node("Unsqueeze", [source, graph.constant([-1], np.int64)])
        source = graph.node("Add", [graph.node("Mul", [column, graph.constant(sign)]), graph.constant(absent)])
        n_classes = 2
    x = graph.symbol(source, n_classes)
    if calibrator.input == "probabilities":
        x = graph.symbol(graph.node("Max", [x.name, graph.constant(SMALLEST)]), n_classes).apply("Log")
    xp: Any = x.__array_namespace__()
    # p_j / p_top, from which dividing by the sum gives p to the last digit.
    weight = xp.exp(gaps(xp, calibrator.chain_.apply(xp, x), 1.0).gap)
    p = graph.node(
        "Div", [weight.name, xp.sum(weight, axis=-1, keepdims=True).name], None if moved or of_labels else target
    )
    if of_labels:
        p = graph.node("Gather", [p, graph.constant(1, np.int64)], None if moved else target, axis=-1)
    if moved:
        graph.node("Transpose", [p], target, perm=[order.index(i) for i in range(n_axes)])


def _need_onnx(function: str) -> None:
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"refocal.export.{function}", "onnx", "onnx") from error


def _n_classes(calibrator: Any, given: int | None, function: str) -> int:
    if isinstance(calibrator, (str, os.PathLike)):
        expected = f"a fitted calibrator: refocal.load({os.fspath(calibrator)!r}) reads one"
        raise ParameterError("calibrator", function, expected=expected, got="a path")
    if not isinstance(calibrator, Calibrator):
        kind = type(calibrator).__name__
        such = f"{function} takes a calibrator of logits, such as TemperatureScaling"
        raise UnsupportedError(f"{kind} has no form as an ONNX graph: {such}.")
    if calibrator.needs_groups:
        raise UnsupportedError(f"{type(calibrator).__name__} has no form as a graph, which does not know the groups.")
    check_is_fitted(calibrator)
    fitted = int(calibrator.n_features_in_)
    if given is not None and given != fitted:
        if function == "append_to_onnx":  # where the model says how many
            raise ShapeError("calibrator", function, expected=f"fitted on {given} classes", got=f"one of {fitted}")
        raise ShapeError("n_classes", function, expected=f"{fitted}, as the calibrator was fitted with", got=str(given))
    return fitted


def _axis(class_axis: int, n_axes: int, function: str) -> int:
    if not (n_axes >= 1 and -n_axes <= class_axis < n_axes):
        raise ShapeError("class_axis", function, expected=f"an axis of {n_axes}", got=str(class_axis))
    return class_axis % n_axes


def _logits_output(
    model: onnx.ModelProto, output: str | None, calibrator: Calibrator, function: str
) -> onnx.ValueInfoProto:
    known: dict[str, onnx.ValueInfoProto] = {value.name: value for value in model.graph.output}
    names = ", ".join(repr(name) for name in known)
    if output is None and len(known) != 1:
        raise ParameterError("output", function, expected=f"given: one of {names}", got="None")
    name = next(iter(known)) if output is None else output
    if name not in known:
        raise ParameterError("output", function, expected=f"one of {names}", got=repr(output))
    if not known[name].type.tensor_type.HasField("shape"):
        raise ParameterError("output", function, expected="of a known number of axes", got=f"{name!r} without a shape")
    made = next((node for node in model.graph.node if name in node.output), None)
    if made is not None and all(value.startswith("refocal_") for value in made.input):
        raise ParameterError("output", function, expected="logits", got=f"{name!r}, which a calibrator has made")
    maker = "" if made is None else made.op_type
    if maker in ("Softmax", "Sigmoid") and getattr(calibrator, "input", "logits") != "probabilities":
        fix = "leave the node out of the model, or fit with input='probabilities'"
        got = f"{name!r}, which a {maker} node makes: {fix}"
        raise ParameterError("output", function, expected="logits, as the calibrator was fitted on", got=got)
    return known[name]


def _write(model: onnx.ModelProto, path: Path) -> None:
    import onnx
    from onnx.external_data_helper import uses_external_data

    if model.ByteSize() >= 2**31:
        raise FormatError(
            f"{path}: an ONNX file holds at most 2 GiB. Keep the model's weights in files beside it and write the "
            "result into the same folder."
        )
    if not any(uses_external_data(tensor) for tensor in model.graph.initializer):  # which the checker cannot find
        onnx.checker.check_model(model)
    write_atomically(path, model.SerializeToString())
