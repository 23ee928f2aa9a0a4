"""Calibrate a network with several sigmoid outputs, trained with sigmoid focal loss, and write it as one ONNX model.

python examples/multilabel.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from refocal import MultiLabelCalibration
from refocal.export import to_onnx
from refocal.io import MultiLabelPredictions
from refocal.metrics import brier_score
from refocal.nn import SigmoidFocalLoss, collect_logits

# %% Photographs with up to six labels, the last ones rare
LABELS = ("beach", "people", "boat", "sunset", "dog", "snow")


def make_images(n: int) -> tuple[Tensor, Tensor]:
    """Features of photographs and which of six labels apply; the last ones are rare."""
    x = torch.randn(n, 8)
    odds = (
        1.5 * x[:, :6] + 0.5 * x[:, 1:7] - torch.tensor([0.5, 0.0, 1.5, 2.0, 3.0, 4.5])
    )
    return x, (torch.rand(n, 6) < odds.sigmoid()).float()


# %% Train with sigmoid focal loss
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 6))
# RetinaNet's: scores come out too low, and close to one another
loss = SigmoidFocalLoss(gamma=2.0, alpha=0.25)
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(300):
    x, y = make_images(256)
    optimiser.zero_grad()
    loss(model(x), y).backward()
    optimiser.step()

# %% Collect log-odds, and calibrate each label
validation, test = (
    collect_logits(
        model, [make_images(500) for _ in range(4)], input="log-odds", progress=False
    )
    for _ in range(2)
)
assert isinstance(validation, MultiLabelPredictions)
calibrator = MultiLabelCalibration(per_label=True).fit(
    validation.logits, validation.labels
)
before, after = (
    test.logits.sigmoid().numpy(),
    calibrator.predict_proba(test.logits).numpy(),
)
for label, rate, raw, p in zip(
    LABELS,
    test.labels.mean(axis=0),
    before.mean(axis=0),
    after.mean(axis=0),
    strict=True,
):
    print(f"{label}: applies to {rate:.1%}, mean score {raw:.1%}, calibrated {p:.1%}")
print(
    f"Brier score: {brier_score(test.labels, before):.4f} before, "
    f"{brier_score(test.labels, after):.4f} after"
)

# %% The calibrator as a layer, an ONNX file and JSON
calibrated = nn.Sequential(model, calibrator.to_torch()).eval()
x, _ = make_images(5)
difference = calibrated(x).exp() - calibrator.predict_proba(model(x).detach())
print(f"largest difference of the layer: {difference.abs().max().item():.1e}")
with tempfile.TemporaryDirectory() as folder:
    to_onnx(calibrator, Path(folder) / "calibrator.onnx")
    calibrator.save(Path(folder) / "calibrator.json")
