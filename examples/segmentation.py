"""Calibrate a segmentation network, pixel by pixel, and write it with its calibrator as one exported program.

python examples/segmentation.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from refocal import FocalTemperatureScaling
from refocal.nn import FocalLoss, collect_logits

# %% Images with a frame of unlabelled pixels
UNLABELLED = 255


def make_images(n: int) -> tuple[Tensor, Tensor]:
    """Noisy stripes of three kinds; a frame of unlabelled pixels around them."""
    masks = (torch.arange(24)[:, None] // 8).expand(24, 24).repeat(n, 1, 1)
    masks = torch.stack(
        [
            m.roll(int(s), dims=0)
            for m, s in zip(masks, torch.randint(24, (n,)), strict=True)
        ]
    )
    images = nn.functional.one_hot(masks, 3).permute(
        0, 3, 1, 2
    ).float() + 1.5 * torch.randn(n, 3, 24, 24)
    masks[:, :2] = masks[:, -2:] = UNLABELLED
    return images, masks


# %% Train with focal loss
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1))
loss = FocalLoss(gamma=2.0, ignore_index=UNLABELLED)
optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
for _ in range(40):
    images, masks = make_images(8)
    optimiser.zero_grad()
    loss(model(images), masks).backward()
    optimiser.step()

# %% Collect the logits of labelled pixels, and fit
validation = [make_images(8) for _ in range(5)]
found = collect_logits(model, validation, ignore_index=UNLABELLED)
print(f"{len(found)} labelled pixels")
calibrator = FocalTemperatureScaling(objective="nll").fit(found)
report = calibrator.fit_report_
print(
    f"log-loss: {report['before']['log_loss']:.4f} before, "
    f"{report['after']['log_loss']:.4f} after"
)

# %% Model and calibrator as one exported program
calibrated = nn.Sequential(model, calibrator.to_torch(class_axis=1)).eval()
images, _ = make_images(2)
program = torch.export.export(
    calibrated, (images,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
)
with tempfile.TemporaryDirectory() as folder:
    torch.export.save(program, Path(folder) / "segmentation.pt2")
    again = torch.export.load(Path(folder) / "segmentation.pt2").module()
images, _ = make_images(5)
print(
    "largest difference after export: "
    f"{(again(images) - calibrated(images)).abs().max().item():.1e}"
)
