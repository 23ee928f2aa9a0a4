"""The affine family as a torch layer, an exported program and an ONNX graph."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from helpers import draw_biased_logits
from refocal import (
    AutoCalibration,
    DirichletCalibration,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    VectorScaling,
)
from refocal.export import append_to_onnx, to_onnx, to_torch_export

pytestmark = pytest.mark.core

LOGITS, LABELS = draw_biased_logits(300, 6)
FITTED = [
    VectorScaling(strength=1.0).fit(LOGITS, LABELS),
    MatrixScaling(strength=1.0, focal=True, n_folds=2).fit(LOGITS, LABELS),
    DirichletCalibration(strength=1.0).fit(LOGITS, LABELS),
    StructuredVectorScaling().fit(LOGITS, LABELS),
    StructuredMatrixScaling().fit(LOGITS, LABELS),
    AutoCalibration(n_folds=2).fit(LOGITS, LABELS),
]
KEPT = AutoCalibration(n_folds=2, order_preserving=True).fit(LOGITS, LABELS)


def rows():
    """Ordinary rows, extreme ones, ties and impossible classes."""
    x = np.concatenate([LOGITS, 50.0 * LOGITS, np.round(LOGITS)])
    x[::11, 2] = -np.inf
    return x


@pytest.mark.parametrize("calibrator", [*FITTED, KEPT], ids=str)
def test_the_layer_predicts_what_the_calibrator_does(calibrator):
    x = rows()
    expected = calibrator.predict_log_proba(x)
    layer = calibrator.to_torch(dtype=torch.float64)
    np.testing.assert_allclose(layer(torch.tensor(x)).numpy(), expected, rtol=1e-9, atol=1e-9)
    assert {"weights", "intercept", "inner_temperature"} <= set(layer.state_dict())
    images = torch.tensor(x[:24]).reshape(2, 3, 4, 6).movedim(-1, 1)
    shaped = calibrator.to_torch(class_axis=1, dtype=torch.float64)(images).movedim(1, -1).reshape(24, 6)
    np.testing.assert_allclose(shaped.numpy(), expected[:24], rtol=1e-9, atol=1e-9)
    half = calibrator.to_torch().half()(torch.tensor(LOGITS).half())
    assert half.dtype == torch.float16
    np.testing.assert_allclose(half.float().exp().numpy(), calibrator.predict_proba(LOGITS), atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("calibrator", [FITTED[1], KEPT], ids=str)
def test_the_exported_program_predicts_the_same(calibrator):
    program = to_torch_export(calibrator, n_classes=6).module()
    for x in (LOGITS, LOGITS[:7]):
        found = program(torch.tensor(x, dtype=torch.float32)).exp().numpy()
        np.testing.assert_allclose(found, calibrator.predict_proba(x.astype(np.float32)), atol=2e-6)


@pytest.mark.parametrize("calibrator", [*FITTED, KEPT], ids=str)
def test_onnxruntime_predicts_the_same(calibrator, tmp_path):
    x = rows().astype(np.float32)
    to_onnx(calibrator, tmp_path / "c.onnx")
    (p,) = onnxruntime.InferenceSession(str(tmp_path / "c.onnx")).run(None, {"logits": x})
    np.testing.assert_allclose(p, calibrator.predict_proba(x.astype(np.float64)), atol=2e-5)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-6)
    assert np.all(p[::11, 2] == 0.0)
    to_onnx(calibrator, tmp_path / "images.onnx", class_axis=1, n_axes=4)
    images = np.moveaxis(x[:24].reshape(2, 3, 4, 6), -1, 1)
    (q,) = onnxruntime.InferenceSession(str(tmp_path / "images.onnx")).run(None, {"logits": images})
    np.testing.assert_allclose(np.moveaxis(q, 1, -1).reshape(24, 6), p[:24], atol=1e-6)


def test_behind_a_classifier(tmp_path):
    model = torch.nn.Linear(3, 6)
    _linear(model, tmp_path / "m.onnx")
    append_to_onnx(tmp_path / "m.onnx", FITTED[4], tmp_path / "both.onnx")
    inputs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    (p,) = onnxruntime.InferenceSession(str(tmp_path / "both.onnx")).run(None, {"x": inputs})
    logits = model(torch.tensor(inputs)).detach().numpy()
    np.testing.assert_allclose(p, FITTED[4].predict_proba(logits), atol=2e-6)


def _linear(model, path):
    parts = {"w": model.weight.T, "b": model.bias}
    constants = [numpy_helper.from_array(np.ascontiguousarray(v.detach().numpy()), name) for name, v in parts.items()]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["logits"])],
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 6])],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
