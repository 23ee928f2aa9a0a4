"""Train a small network with focal loss, calibrate it on held-out data, and ship model and calibrator as one.

python examples/train_with_focal_loss.py
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from refocal import FocalTemperatureScaling
from refocal.nn import FocalLoss, collect_logits


# %% Three overlapping clouds of points
def make_data(n: int, generator: torch.Generator) -> TensorDataset:
    """Three overlapping clouds in the plane."""
    labels = torch.randint(3, (n,), generator=generator)
    centres = torch.tensor([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]])
    return TensorDataset(
        centres[labels] + torch.randn(n, 2, generator=generator), labels
    )


# %% Train with focal loss
torch.manual_seed(0)
generator = torch.Generator().manual_seed(0)
train, validation, test = (make_data(n, generator) for n in (1500, 1000, 4000))

model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 3))
loss = FocalLoss(gamma=3.0)
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(10):
    for features, labels in DataLoader(
        train, batch_size=100, shuffle=True, generator=generator
    ):
        optimiser.zero_grad()
        loss(model(features), labels).backward()
        optimiser.step()

# %% Calibrate on held-out data
found = collect_logits(model, DataLoader(validation, batch_size=500))
calibrator = FocalTemperatureScaling().fit(found)
print(f"gamma = {calibrator.gamma_:.2f}, temperature = {calibrator.temperature_:.2f}")

# %% Model and calibrator as one
calibrated = nn.Sequential(model, calibrator.to_torch()).eval()
features, labels = test.tensors
with torch.no_grad():
    before = nn.functional.cross_entropy(model(features), labels)
    after = nn.functional.nll_loss(calibrated(features), labels)
print(f"log-loss on test data: {before:.4f} before, {after:.4f} after")
