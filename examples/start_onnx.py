"""Calibrate an ONNX model and write one that returns calibrated probabilities.

python examples/start_onnx.py
"""

import numpy as np
import onnxruntime
from onnx import parser, save

from refocal import TemperatureScaling, metrics
from refocal.export import append_to_onnx
from refocal.maps import log_softmax

# Stands for your model.onnx: its logits are too large by a factor of three.
save(
    parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        classifier (float[batch, 4] x) => (float[batch, 4] logits)
        <float three = {3.0}> {logits = Mul(x, three)}
    """),
    "model.onnx",
)
rng = np.random.default_rng(0)
x = 2.0 * rng.normal(size=(4000, 4)).astype(np.float32)
labels = np.argmax(x + rng.gumbel(size=x.shape), axis=1)

# Run it over rows that it was not trained on, fit, and write both as one file.
(logits,) = onnxruntime.InferenceSession("model.onnx").run(["logits"], {"x": x[:2000]})
calibrator = TemperatureScaling().fit(logits, labels[:2000])
append_to_onnx("model.onnx", calibrator, "calibrated.onnx")

# The new file, in the place of the old one.
(before,) = onnxruntime.InferenceSession("model.onnx").run(["logits"], {"x": x[2000:]})
(after,) = onnxruntime.InferenceSession("calibrated.onnx").run(
    ["probabilities"], {"x": x[2000:]}
)
losses = [
    metrics.log_loss(labels[2000:], log_p)
    for log_p in (log_softmax(before), np.log(after))
]
print(f"log-loss on test data: {losses[0]:.3f} before, {losses[1]:.3f} after")
