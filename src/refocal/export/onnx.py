"""Calibrators as ONNX graphs, alone or after a classifier."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from refocal._arrays import SMALLEST, without_warnings
from refocal._files import write_atomically
from refocal._validation import check_integer
from refocal.calibrators import Calibrator, MultiLabelCalibration
from refocal.errors import FormatError, ParameterError, ShapeError, UnsupportedError, need
from refocal.maps.row import gaps, spoiled

if TYPE_CHECKING:
    import onnx

    from refocal.export.graph import Symbol

OPSET = 17
"""The opset of the graphs that `to_onnx` writes: read by onnxruntime since 1.12."""


Path_ = str | os.PathLike[str]


def to_onnx(
    calibrator: Calibrator, path: Path_, n_classes: int | None = None, *, class_axis: int = -1, n_axes: int = 2
) -> onnx.ModelProto:
    """Write a fitted calibrator as an ONNX model from `logits` to `probabilities`, both float32, and return it.

    The opset is `OPSET`. The file is written whole or not at all.

    Parameters
    ----------
    n_classes : int, optional
        The size of the class axis; must be the number that the calibrator was fitted with.
    class_axis, n_axes : int
        Where the classes lie, and of how many axes: class_axis=1, n_axes=4 for images (N, C, H, W). All other axes
        may have any size. For two classes, n_axes=1 is one number per row, as in `predict_proba`; the result has two
        columns.

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
    need("onnx", "onnx", "refocal.export.to_onnx")
    import onnx
    from onnx import TensorProto, helper

    axis = class_axis_of(class_axis, n_axes, "to_onnx")
    size = fitted_classes(calibrator, n_classes, "to_onnx")
    shape: list[int | str] = ["batch", *(f"axis_{i}" for i in range(1, n_axes))]
    if not takes_one_number(calibrator, size, n_axes):
        shape[axis : axis + 1] = [size] if calibrator.has_class_axis else []
    numbers = (f"{name} = {value!r}" for name, value in calibrator.chain_.parameters() if isinstance(value, float))
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)
    model = helper.make_model(
        helper.make_graph([], "refocal", [logits], [logits]),
        producer_name="refocal",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=8,  # the one that belongs to opset 17; a newer one would shut out runtimes that know the opset
        doc_string=f"{type(calibrator).__name__}: {', '.join(numbers)}",
    )
    _append(model, logits, calibrator, class_axis, "to_onnx")
    onnx.checker.check_model(model, full_check=True)
    write_atomically(path, model.SerializeToString())
    return model


def append_to_onnx(
    model_path: Path_, calibrator: Calibrator, out_path: Path_, *, output: str | None = None, class_axis: int = -1
) -> onnx.ModelProto:
    """Append a fitted calibrator to an ONNX classifier: its logits output is replaced by `probabilities`.

    A classifier of two classes may have one number per row, log-odds or the probability of class 1: an output (N,), or
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
    need("onnx", "onnx", f"refocal.export.{name}")
    import onnx
    from google.protobuf.message import DecodeError
    from onnx import TensorProto

    source = Path(model_path)
    target = Path(out_path)
    try:
        model = onnx.load(source, load_external_data=False)
    except DecodeError as error:
        raise FormatError(f"{source}: not an ONNX model: {error}.") from error
    if source.resolve().parent != target.resolve().parent:
        onnx.load_external_data_for_model(model, str(source.parent))
    logits = _logits_output(model, output, calibrator, name)
    kind = logits.type.tensor_type.elem_type
    if kind not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16):
        expected = "an output of floating-point numbers"
        raise ParameterError("output", name, expected=expected, got=TensorProto.DataType.Name(kind))
    # The oldest opset of a model that `append_to_onnx` can put its nodes into.
    oldest_opset = 13
    if (opset := _opset(model)) < oldest_opset:
        raise FormatError(f"{source}: opset {opset} is too old; {name} needs {oldest_opset} or newer.")
    _append(model, logits, calibrator, class_axis, name)
    _write(model, target)
    return model


def _opset(model: onnx.ModelProto) -> int:
    return next((int(each.version) for each in model.opset_import if each.domain in ("", "ai.onnx")), 0)


def _append(
    model: onnx.ModelProto, logits: onnx.ValueInfoProto, calibrator: Calibrator, class_axis: int, function: str
) -> None:
    """Put probabilities in the place of an output of logits, under names that the model does not use."""
    from onnx import TensorProto, helper

    from refocal.export.graph import Graph, Symbol

    taken = {value for node in model.graph.node for value in (*node.input, *node.output)}
    taken |= {value.name for value in (*model.graph.input, *model.graph.initializer, *model.graph.output)}
    names = itertools.chain(["probabilities"], (f"probabilities_{i}" for i in itertools.count(1)))
    result = next(name for name in names if name not in taken)
    prefix = "refocal_"
    while any(name.startswith(prefix) for name in taken):
        prefix += "_"
    kind = logits.type.tensor_type.elem_type
    dims = logits.type.tensor_type.shape.dim
    shape = [size.dim_value if size.HasField("dim_value") else size.dim_param for size in dims]
    # For two classes the scores may be one number per row, with an axis of size 1 in the place of the classes or none.
    of_two = fitted_classes(calibrator, None, function) == 2 and not isinstance(calibrator, MultiLabelCalibration)
    squeezed = of_two and -len(shape) <= class_axis < len(shape) and shape[class_axis] == 1
    one_number = squeezed or (of_two and (len(shape) == 1 or not calibrator.has_class_axis))
    axis = class_axis_of(class_axis, len(shape) + (one_number and not squeezed), function)
    if one_number:
        shape[axis : axis + squeezed] = [2]
    n_classes = fitted_classes(calibrator, shape[axis] if isinstance(shape[axis], int) else None, function)
    graph = Graph(_opset(model), len(shape), prefix, np.float64 if kind == TensorProto.DOUBLE else np.float32)
    is_half = kind in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    x = Symbol(graph, logits.name, n_classes, graph.dtype)
    if squeezed:
        x = graph.node("Squeeze", x, graph.indices(axis))
    if is_half:
        x = graph.node("Cast", x, to=TensorProto.FLOAT)
    p = _probabilities(x, calibrator, axis, one_number)
    if is_half:
        graph.node("Cast", p, to=kind)
    graph.nodes[-1].output[0] = result
    model.graph.node.extend(graph.nodes)
    model.graph.initializer.extend(graph.constants)
    next(value for value in model.graph.output if value.name == logits.name).CopyFrom(
        helper.make_tensor_value_info(result, kind, shape)
    )


@without_warnings
def _probabilities(x: Symbol, calibrator: Calibrator, axis: int, one_number: bool) -> Symbol:
    """The nodes from logits to probabilities: the maps' own, with the class axis last."""
    graph = x.graph
    n_axes = graph.n_axes
    order = [i for i in range(n_axes) if i != axis] + [axis]
    moved = axis != n_axes - 1
    of_labels = isinstance(calibrator, MultiLabelCalibration)
    if moved and not one_number:
        x = graph.node("Transpose", x, perm=order)
    if of_labels or one_number:
        column = graph.node("Unsqueeze", x, graph.indices(-1), columns=1)
        if calibrator.input == "probabilities":  # (1 - p, p)
            x = column * [-1.0, 1.0] + [1.0, 0.0]
        else:  # (0, s)
            x = column * [0.0, 1.0] + [0.0, 0.0]
    xp: Any = x.__array_namespace__()
    if calibrator.input == "probabilities":
        x = xp.log(xp.maximum(x, SMALLEST))
    # p_j / p_top, from which dividing by the sum gives p to the last digit.
    try:
        scores = spoiled(xp, x, calibrator.chain_.apply(xp, x))
    except AttributeError as error:
        if error.obj is not xp:
            raise
        known = ", ".join(sorted(name for name in vars(xp) if not name.startswith("_")))
        kind = type(calibrator).__name__
        raise UnsupportedError(
            f"{kind} cannot be exported: a step of it calls xp.{error.name}, which ONNX graphs do not have here; they"
            f" have {known}, and the operators of arrays"
        ) from error
    weight = xp.exp(gaps(xp, scores, 1.0).gap)
    p: Symbol = weight / xp.sum(weight, axis=-1, keepdims=True)
    if of_labels:
        p = graph.node("Gather", p, graph.constant(1, np.int64), axis=-1)
    return graph.node("Transpose", p, perm=[order.index(i) for i in range(n_axes)]) if moved else p


def fitted_classes(calibrator: object, n_classes: int | None, function: str) -> int:
    """The number of classes of a fitted calibrator that can be exported, checked against what is known of it."""
    kind = type(calibrator).__name__
    if isinstance(calibrator, (str, os.PathLike)):
        expected = f"a fitted calibrator: refocal.load({os.fspath(calibrator)!r}) reads one"
        raise ParameterError("calibrator", function, expected=expected, got="a path")
    if not isinstance(calibrator, Calibrator):
        such = f"{function} takes a calibrator of logits, such as TemperatureScaling"
        raise UnsupportedError(f"{kind} cannot be exported: {such}.")
    if calibrator.needs_groups:
        raise UnsupportedError(f"{kind} cannot be exported: a graph does not know the groups.")
    check_is_fitted(calibrator)
    fitted = int(calibrator.n_features_in_)
    if n_classes not in (None, fitted):
        if function == "append_to_onnx":  # where the model says how many
            raise ShapeError("calibrator", function, expected=f"fitted on {n_classes} classes", got=f"one of {fitted}")
        expected = f"{fitted}, as the calibrator was fitted with"
        raise ShapeError("n_classes", function, expected=expected, got=repr(n_classes))
    return fitted


def takes_one_number(calibrator: Calibrator, n_classes: int, n_axes: int) -> bool:
    """Whether an input of this many axes has one number per row, for two classes, and no axis of them."""
    return n_axes == 1 and n_classes == 2 and not isinstance(calibrator, MultiLabelCalibration)


def class_axis_of(class_axis: int, n_axes: int, function: str) -> int:
    """Where the classes lie, counted from the first axis."""
    check_integer(n_axes, "n_axes", function)
    return check_integer(class_axis, "class_axis", function, least=-n_axes, most=n_axes - 1) % n_axes


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
    if not known[name].type.tensor_type.shape.dim:
        expected = "of a known number of axes, at least one"
        raise ParameterError("output", function, expected=expected, got=f"{name!r} without a shape")
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
