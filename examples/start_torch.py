"""Calibrate a torch model: collect logits of held-out data, fit, and ship model and calibrator as one module.

python examples/start_torch.py
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from refocal import AutoCalibration
from refocal.nn import collect_logits

# Stands for your model and data: a network that overfits 300 points, and new points.
torch.manual_seed(0)
points = torch.randn(4300, 2)
labels = (points[:, 0] + 0.8 * torch.randn(4300) > 0).long() + (
    points[:, 1] > 0.5
).long()
train, validation, test = (
    TensorDataset(points[i], labels[i])
    for i in torch.arange(4300).split([300, 2000, 2000])
)
model = nn.Sequential(
    nn.Linear(2, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3)
)
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(150):
    optimiser.zero_grad()
    nn.functional.cross_entropy(model(train.tensors[0]), train.tensors[1]).backward()
    optimiser.step()

# From here on it is the same for any model.
found = collect_logits(model, DataLoader(validation, batch_size=256))
calibrator = AutoCalibration().fit(found)
calibrated = nn.Sequential(model, calibrator.to_torch())  # log-probabilities out

inputs, truth = test.tensors
with torch.no_grad():
    before = nn.functional.cross_entropy(model(inputs), truth)
    after = nn.functional.nll_loss(calibrated(inputs), truth)
print(f"log-loss on test data: {before:.3f} before, {after:.3f} after")
