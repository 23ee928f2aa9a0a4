"""Calibrators as files that other programs run: ONNX graphs (extra `onnx`) and exported torch programs (extra `torch`).

>>> import tempfile, numpy as np
>>> from refocal import FocalCalibration
>>> fitted = FocalCalibration(gamma=2.0).fit(np.log([[0.6, 0.4], [0.3, 0.7]]), [0, 1])
>>> with tempfile.TemporaryDirectory() as folder:
...     model = to_onnx(fitted, f"{folder}/calibrator.onnx")
>>> model.graph.input[0].name, model.graph.output[0].name
('logits', 'probabilities')
"""

from refocal.export.onnx import OPSET, append_to_onnx, to_onnx
from refocal.export.program import to_torch_export
from refocal.export.vllm import to_vllm

__all__ = ["OPSET", "append_to_onnx", "to_onnx", "to_torch_export", "to_vllm"]
