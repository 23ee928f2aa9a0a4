"""onnxruntime gives our probabilities: the calibrator alone and behind a classifier."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.exceptions import NotFittedError

from refocal import CalibratedClassifier, FocalTemperatureScaling, TemperatureScaling
from refocal.errors import FormatError, MissingExtraError, ParameterError, ShapeError, UnsupportedError
from refocal.export import OPSET, append_to_onnx, to_onnx, to_torch_export
from refocal.maps import Chain, Focal, Temperature, focal_temperature

pytestmark = pytest.mark.core


def fitted(gamma, temperature, n_classes, kind=FocalTemperatureScaling, **options):
    """A calibrator with known parameters, as if it had been fitted."""
    calibrator = kind(**options)
    calibrator.chain_ = Chain((Temperature(temperature), Focal(gamma)))
    calibrator.n_features_in_, calibrator.classes_ = n_classes, np.arange(n_classes)
    return calibrator


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def rows_of_every_scale(n_classes):
    rng = np.random.default_rng(n_classes)
    rows = [scale * rng.normal(size=(20, n_classes)) for scale in (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4)]
    ties = rng.normal(size=(10, n_classes))
    ties[:, :2] = ties.max(axis=1, keepdims=True)
    saturated = np.zeros((4, n_classes))
    saturated[0, 0], saturated[1, 1] = 1e4, 200.0
    saturated[2, 1:] = saturated[3, :-1] = -np.inf
    all_equal = np.array([[0.0], [1e4], [-1e4]]) * np.ones(n_classes)
    return np.concatenate([*rows, ties, saturated, all_equal]).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 5, 1000])
@pytest.mark.parametrize("gamma", [-0.9, -0.5, 0.0, 0.05, 1.0, 5.0])
def test_onnxruntime_equals_ours_within_1e_6(gamma, n_classes, tmp_path):
    x = rows_of_every_scale(n_classes)
    for temperature in (0.01, 0.5, 1.0, 1.7, 30.0):
        to_onnx(fitted(gamma, temperature, n_classes), tmp_path / "c.onnx", n_classes)
        (p,) = session(tmp_path / "c.onnx").run(None, {"logits": x})
        assert p.dtype == np.float32
        np.testing.assert_allclose(p, np.exp(focal_temperature(x, gamma, temperature)), rtol=0, atol=1e-6)
        exact = np.exp(focal_temperature(x.astype(np.float64), gamma, temperature))
        np.testing.assert_allclose(p, exact, rtol=0, atol=1e-6)
        np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-6)
        # The predicted class is among the largest, also where probabilities round to the same number.
        assert (np.take_along_axis(p, x.argmax(axis=1)[:, None], axis=1)[:, 0] == p.max(axis=1)).all()


def test_long_rows_keep_their_digits(tmp_path):
    """One number added after the other in float32 would be off by 1e-5 here."""
    x = (100.0 * np.random.default_rng(0).normal(size=(20, 32_000))).astype(np.float32)
    to_onnx(fitted(0.0, 30.0, 32_000), tmp_path / "c.onnx")
    (p,) = session(tmp_path / "c.onnx").run(None, {"logits": x})
    exact = np.exp(focal_temperature(x.astype(np.float64), 0.0, 30.0))
    np.testing.assert_allclose(p, exact, rtol=0, atol=1e-6)
    np.testing.assert_allclose(p.astype(np.float64).sum(axis=1), 1.0, atol=1e-6)


def test_the_file_says_what_it_is(tmp_path):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(300, 4))
    calibrator = FocalTemperatureScaling(objective="nll").fit(logits, np.argmax(logits + rng.gumbel(size=(300, 4)), 1))
    to_onnx(calibrator, tmp_path / "c.onnx", n_classes=4)
    model = onnx.load(tmp_path / "c.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [(o.domain, o.version) for o in model.opset_import] == [("", OPSET)]
    assert repr(calibrator.gamma_) in model.doc_string
    assert [p.name for p in tmp_path.iterdir()] == ["c.onnx"]
    for rows in (0, 1, 7):
        x = rng.normal(size=(rows, 4)).astype(np.float32)
        (p,) = session(tmp_path / "c.onnx").run(None, {"logits": x})
        assert p.shape == (rows, 4)
        if rows:
            np.testing.assert_allclose(p, calibrator.predict_proba(x), atol=1e-6)


@pytest.mark.parametrize("n_classes", [3, 100])
def test_images_with_the_classes_on_axis_1(n_classes, tmp_path):
    to_onnx(fitted(1.0, 1.5, n_classes), tmp_path / "c.onnx", n_classes, class_axis=1, n_axes=4)
    x = (5.0 * np.random.default_rng(0).normal(size=(2, n_classes, 4, 6))).astype(np.float32)
    (p,) = session(tmp_path / "c.onnx").run(None, {"logits": x})
    want = np.moveaxis(np.exp(focal_temperature(np.moveaxis(x, 1, -1), 1.0, 1.5)), -1, 1)
    np.testing.assert_allclose(p, want, atol=1e-6)


def test_probabilities_come_in_where_the_calibrator_was_fitted_on_them(tmp_path):
    calibrator = fitted(0.5, 2.0, 3, input="probabilities")
    to_onnx(calibrator, tmp_path / "c.onnx")
    p = np.float32([[0.7, 0.2, 0.1], [1.0, 0.0, 0.0], [0.4, 0.4, 0.2]])
    (got,) = session(tmp_path / "c.onnx").run(None, {"logits": p})
    np.testing.assert_allclose(got, calibrator.predict_proba(p), atol=1e-6)


def linear(path, kind=TensorProto.FLOAT, opset=17, *, last=None, external=False, weights=None):
    """A linear classifier of 4 features and 5 classes, which names its things as awkwardly as possible."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    rng = np.random.default_rng(1)
    w = (rng.normal(size=(4, 5)) if weights is None else weights).astype(dtype)
    constants = [numpy_helper.from_array(w, "refocal_constant_0")]
    nodes = [helper.make_node("MatMul", ["x", "refocal_constant_0"], ["probabilities"])]
    outputs = [helper.make_tensor_value_info("probabilities", kind, ["n", 5])]
    if last:
        nodes.append(helper.make_node(last, ["probabilities"], ["last"]))
        outputs = [helper.make_tensor_value_info("last", kind, ["n", 5])]
    graph = helper.make_graph(nodes, "linear", [helper.make_tensor_value_info("x", kind, ["n", 4])], outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    if external:
        onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    else:
        onnx.save(model, path)
    return w.astype(np.float64)


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize(("gamma", "temperature"), [(-0.9, 1.0), (5.0, 0.01), (0.0, 1.5), (1.0, 0.7)])
def test_a_classifier_gives_calibrated_probabilities(gamma, temperature, opset, tmp_path):
    linear(tmp_path / "model.onnx", opset=opset)
    append_to_onnx(tmp_path / "model.onnx", fitted(gamma, temperature, 5), tmp_path / "calibrated.onnx")
    rng = np.random.default_rng(2)
    x = np.concatenate([scale * rng.normal(size=(20, 4)) for scale in (1e-3, 1.0, 100.0, 1e4)]).astype(np.float32)
    (logits,) = session(tmp_path / "model.onnx").run(None, {"x": x})
    behind = session(tmp_path / "calibrated.onnx")
    (p,) = behind.run(None, {"x": x})
    np.testing.assert_allclose(p, np.exp(focal_temperature(logits, gamma, temperature)), rtol=0, atol=1e-6)
    assert [o.name for o in behind.get_outputs()] == ["probabilities_1"]


@pytest.mark.parametrize(
    ("kind", "tolerance"), [(TensorProto.FLOAT16, 1e-3), (TensorProto.DOUBLE, 1e-14)], ids=["float16", "float64"]
)
def test_the_precision_is_the_models(kind, tolerance, tmp_path):
    linear(tmp_path / "model.onnx", kind)
    append_to_onnx(tmp_path / "model.onnx", fitted(1.0, 0.7, 5), tmp_path / "calibrated.onnx")
    x = np.random.default_rng(2).normal(size=(20, 4)).astype(helper.tensor_dtype_to_np_dtype(kind))
    (logits,) = session(tmp_path / "model.onnx").run(None, {"x": x})
    (p,) = session(tmp_path / "calibrated.onnx").run(None, {"x": x})
    assert p.dtype == x.dtype
    want = np.exp(focal_temperature(logits.astype(np.float64), 1.0, 0.7))
    np.testing.assert_allclose(p, want, rtol=0, atol=tolerance)


def test_bfloat16_logits_give_bfloat16_probabilities(tmp_path):
    x, z = (
        helper.make_tensor_value_info(name, kind, ["n", 5])
        for name, kind in (("x", TensorProto.FLOAT), ("z", TensorProto.BFLOAT16))
    )
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["z"], to=TensorProto.BFLOAT16)], "half", [x], [z])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "model.onnx"
    )
    model = append_to_onnx(tmp_path / "model.onnx", fitted(1.0, 0.7, 5), tmp_path / "calibrated.onnx")
    assert model.graph.output[0].type.tensor_type.elem_type == TensorProto.BFLOAT16
    # NumPy has no bfloat16: what comes out is read through one more node.
    model.graph.node.append(helper.make_node("Cast", [model.graph.output[0].name], ["seen"], to=TensorProto.FLOAT))
    model.graph.output.append(helper.make_tensor_value_info("seen", TensorProto.FLOAT, ["n", 5]))
    onnx.save(model, tmp_path / "seen.onnx")
    x = torch.tensor(np.random.default_rng(2).normal(scale=3.0, size=(20, 5)), dtype=torch.float32)
    (p,) = session(tmp_path / "seen.onnx").run(["seen"], {"x": x.numpy()})
    want = focal_temperature(x.bfloat16().double(), 1.0, 0.7).exp()
    torch.testing.assert_close(torch.tensor(p), want.bfloat16().float(), rtol=2**-7, atol=0)  # the last of its bits


def test_weights_in_a_file_beside_the_model_are_found(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    linear(tmp_path / "model.onnx", external=True)
    x = np.ones((2, 4), dtype=np.float32)
    for out in (tmp_path / "calibrated.onnx", tmp_path / "elsewhere" / "calibrated.onnx"):
        append_to_onnx(tmp_path / "model.onnx", fitted(1.0, 0.7, 5), out)
        (p,) = session(out).run(None, {"x": x})
        np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-6)


def test_other_outputs_stay(tmp_path):
    linear(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    model.graph.node.append(helper.make_node("Relu", ["probabilities"], ["features"]))
    model.graph.output.append(helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", 5]))
    onnx.save(model, tmp_path / "two.onnx")
    with pytest.raises(ParameterError, match=r"'output' of append_to_onnx must be given: one of 'probabilities', 'fea"):
        append_to_onnx(tmp_path / "two.onnx", fitted(1.0, 0.7, 5), tmp_path / "out.onnx")
    append_to_onnx(tmp_path / "two.onnx", fitted(1.0, 0.7, 5), tmp_path / "out.onnx", output="probabilities")
    names = [o.name for o in session(tmp_path / "out.onnx").get_outputs()]
    assert names == ["probabilities_1", "features"]


def test_what_does_not_fit_is_refused_with_its_reason(tmp_path):
    good, out = fitted(1.0, 0.7, 5), tmp_path / "out.onnx"
    linear(tmp_path / "model.onnx")
    linear(tmp_path / "softmax.onnx", last="Softmax")
    linear(tmp_path / "old.onnx", opset=11)
    with pytest.raises(ShapeError, match=r"'n_classes' of to_onnx must be 5, as the calibrator was fitted with. Got 6"):
        to_onnx(good, out, 6)
    with pytest.raises(ShapeError, match="'calibrator' of append_to_onnx must be fitted on 5 classes"):
        append_to_onnx(tmp_path / "model.onnx", fitted(1.0, 0.7, 3), out)
    for axis in (2, -3, "1"):
        with pytest.raises(ParameterError, match=f"'class_axis' of to_onnx .* from -2 to 1. Got {axis!r}"):
            to_onnx(good, out, class_axis=axis)
    with pytest.raises(ParameterError, match="which a Softmax node makes"):
        append_to_onnx(tmp_path / "softmax.onnx", good, out)
    with pytest.raises(ParameterError, match=r"one of 'probabilities'. Got 'other'"):
        append_to_onnx(tmp_path / "model.onnx", good, out, output="other")
    with pytest.raises(ParameterError, match=r"'n_axes' of to_onnx must be an integer of at least 1. Got 0"):
        to_onnx(good, out, n_axes=0)
    (tmp_path / "text.onnx").write_text("hello")
    with pytest.raises(FormatError, match=r"text.onnx: not an ONNX model"):
        append_to_onnx(tmp_path / "text.onnx", good, out)
    with pytest.raises(FormatError, match="opset 11 is too old"):
        append_to_onnx(tmp_path / "old.onnx", good, out)
    with pytest.raises(UnsupportedError, match=r"CalibratedClassifier cannot be exported.*TemperatureScaling"):
        to_onnx(CalibratedClassifier(), out)
    with pytest.raises(NotFittedError):
        to_onnx(TemperatureScaling(), out)
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("subpackage", "missing"), [("nn", "torch"), ("export", "onnx")])
def test_a_missing_library_is_named_with_the_way_to_get_it(subpackage, missing):
    script = f"""
import sys
sys.modules[{missing!r}] = None
import refocal
from refocal.errors import MissingExtraError
try:
    refocal.export.to_onnx(None, "x") if {subpackage!r} == "export" else refocal.nn
except MissingExtraError as error:
    print(error)
"""
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout  # noqa: S603
    assert f"needs {missing}" in shown
    assert f"pip install 'refocal[{missing}]'" in shown
    assert issubclass(MissingExtraError, ImportError)


def test_what_a_newcomer_gets_wrong(tmp_path):
    linear(tmp_path / "model.onnx")
    append_to_onnx(tmp_path / "model.onnx", fitted(1.0, 0.7, 5), tmp_path / "once.onnx")
    with pytest.raises(ParameterError, match="which a calibrator has made"):
        append_to_onnx(tmp_path / "once.onnx", fitted(1.0, 0.7, 5), tmp_path / "twice.onnx")
    with pytest.raises(ParameterError, match=r"refocal.load\('calibrator.json'\) reads one"):
        append_to_onnx(tmp_path / "model.onnx", "calibrator.json", tmp_path / "x.onnx")
    to_onnx(fitted(1.0, 0.7, 5), tmp_path / "alone.onnx")
    with pytest.raises(ParameterError, match="which a calibrator has made"):
        append_to_onnx(tmp_path / "alone.onnx", fitted(1.0, 0.7, 5), tmp_path / "twice.onnx")
    with pytest.raises(ParameterError, match=r"'calibrator' of to_torch_export .* refocal.load\('calibrator.json'\)"):
        to_torch_export("calibrator.json")
    with pytest.raises(ShapeError, match=r"must be fitted on 5 classes. Got one of 4"):
        append_to_onnx(tmp_path / "model.onnx", fitted(1.0, 0.7, 4), tmp_path / "x.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.onnx", "model.onnx", "once.onnx"]
