"""Steps of users in ONNX graphs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnxruntime
import pytest

from refocal.calibrators import Calibrator
from refocal.errors import UnsupportedError
from refocal.export import to_onnx
from refocal.maps import Step

pytestmark = [pytest.mark.core, pytest.mark.filterwarnings("ignore::refocal.errors.FitWarning")]

FORMULAS = {
    "tanh": lambda xp, x: 2.0 * xp.tanh(x / 2.0),
    "power": lambda xp, x: xp.sign(x) * xp.abs(x) ** 1.5,
    "mean": lambda xp, x: x - xp.mean(x, axis=-1, keepdims=True),
    "clip": lambda xp, x: xp.clip(x, -1.0, 1.5),
    "root": lambda xp, x: x / xp.sqrt(1.0 + xp.sum(xp.square(x), axis=-1, keepdims=True)),
    "least": lambda xp, x: xp.minimum(x - xp.min(x, axis=-1, keepdims=True), 3.0),
    "inverse": lambda xp, x: 1.0 / (1.0 + xp.exp(-x)),
    "function": lambda xp, x: xp.pow(xp.abs(x), 0.5),
}


def calibrator_of(formula):
    @dataclass(frozen=True)
    class OwnStep(Step):
        def apply(self, xp, scores):
            return formula(xp, scores)

    class OwnCalibrator(Calibrator):
        def fit_chain(self, logits, labels, weight):
            return OwnStep()

    rng = np.random.default_rng(0)
    logits = rng.normal(size=(200, 4))
    return OwnCalibrator().fit(logits, rng.integers(4, size=200)), logits.astype(np.float32)


@pytest.mark.parametrize("formula", FORMULAS.values(), ids=FORMULAS)
def test_a_graph_computes_the_formula_of_a_step(formula, tmp_path):
    calibrator, logits = calibrator_of(formula)
    to_onnx(calibrator, tmp_path / "own.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "own.onnx", providers=["CPUExecutionProvider"])
    (p,) = session.run(None, {session.get_inputs()[0].name: logits})
    np.testing.assert_allclose(p, calibrator.predict_proba(logits), rtol=1e-5, atol=1e-7)


def test_a_function_that_graphs_lack_is_named(tmp_path):
    calibrator, _ = calibrator_of(lambda xp, x: x + xp.argsort(x, axis=-1))
    with pytest.raises(UnsupportedError, match=r"OwnCalibrator cannot be exported: .* xp\.argsort, .* tanh, where"):
        to_onnx(calibrator, tmp_path / "own.onnx")
    assert not (tmp_path / "own.onnx").exists()
    broken, _ = calibrator_of(lambda xp, x: x)
    broken.chain_ = calibrator_of(lambda xp, x: x.no_such_name if x.shape[0] is None else x)[0].chain_
    with pytest.raises(AttributeError, match="no_such_name"):
        to_onnx(broken, tmp_path / "own.onnx")
