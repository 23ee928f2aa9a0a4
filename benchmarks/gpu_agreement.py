"""The same answers on the GPU as on the CPU: maps, losses, layers, walks through a model, and fits by every rule.

    python benchmarks/gpu_agreement.py [--rows 5000] [--classes 100] [--device cuda] [-o benchmarks/results]

Each line says how far apart the two are; the exit status is 1 if one is too far.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

import numpy as np
import torch
from gpu_fit import data

from refocal import FocalCalibration, FocalTemperatureScaling, TemperatureScaling
from refocal._files import write_atomically
from refocal.calibrators.fitted import focal_point
from refocal.maps import focal, focal_temperature, inverse_focal
from refocal.nn import (
    MMCE,
    AdaFocalLoss,
    BrierLoss,
    FocalLoss,
    ProperFocalLoss,
    SampleDependentFocalLoss,
    collect_logits,
)

LOSSES = {
    "FocalLoss(2)": lambda **o: FocalLoss(2.0, **o),
    "FocalLoss(-0.5)": lambda **o: FocalLoss(-0.5, **o),
    "ProperFocalLoss(3)": lambda **o: ProperFocalLoss(3.0, **o),
    "SampleDependentFocalLoss": SampleDependentFocalLoss,
    "AdaFocalLoss": AdaFocalLoss,
    "BrierLoss": BrierLoss,
    "MMCE": MMCE,
}
FITS = {
    "TemperatureScaling": (TemperatureScaling, ("nll", "ece")),
    "FocalCalibration": (FocalCalibration, ("auto", "nll", "ece")),
    "FocalTemperatureScaling": (FocalTemperatureScaling, ("auto", "nll", "ece")),
}


class Table:
    """The lines of the page, and whether one of them was too far."""

    def __init__(self) -> None:
        self.lines = ["| what | apart by | allowed |", "|---|---|---|"]
        self.too_far = False

    def say(self, what: str, apart: float, allowed: float) -> None:
        """How far apart the two devices are."""
        far = not apart <= allowed
        self.too_far |= far
        self.lines.append(f"| {what} | {apart:.1e}{' **too far**' if far else ''} | {allowed:.0e} |")
        print(self.lines[-1], flush=True)

    def answer(self, what: str, text: str) -> None:
        """What was said on the device."""
        self.lines.append(f"| {what} | {text} | |")
        print(self.lines[-1], flush=True)


def apart(on_gpu: torch.Tensor, on_cpu: torch.Tensor) -> float:
    """The largest difference, relative where numbers are larger than 1."""
    here, there = on_gpu.cpu().to(torch.float64), on_cpu.to(torch.float64)
    return float(((here - there).abs() / there.abs().clamp(min=1.0)).max())


def maps(table: Table, logits: torch.Tensor) -> None:
    for gamma, dtype in itertools.product((-0.5, 0.7, 5.0), (torch.float64, torch.float32)):
        rows = logits[:500].to(dtype).log_softmax(dim=1)
        allowed = 1e-12 if dtype == torch.float64 else 3e-6
        for name, function in {
            "focal": lambda x, gamma=gamma: focal(x, gamma),
            "inverse_focal": lambda x, gamma=gamma: inverse_focal(x, gamma),
            "focal_temperature": lambda x, gamma=gamma: focal_temperature(x, gamma, 1.7),
        }.items():
            table.say(f"{name}, γ = {gamma:g}, {dtype}", apart(function(rows), function(rows.cpu())), allowed)


def losses(table: Table, logits: torch.Tensor, labels: torch.Tensor) -> None:
    device = logits.device.type
    for name, make in LOSSES.items():
        value, slope = [], []
        for at in (device, "cpu"):
            x = logits[:512].to(at).detach().requires_grad_()
            loss = make().to(at)(x, labels[:512].to(at))
            loss.backward()
            value.append(loss.detach())
            slope.append(512 * x.grad)
        table.say(f"{name}: value", apart(*value), 1e-5)
        table.say(f"{name}: gradient of a row", apart(*slope), 1e-5)
        with torch.autocast(device, dtype=torch.bfloat16):
            x = (logits[:512] * 20).requires_grad_()
            loss = make().to(device)(x.to(torch.bfloat16), labels[:512])
        loss.backward()
        finite = bool(loss.isfinite()) and bool(x.grad.isfinite().all())
        table.say(f"{name}: bfloat16 autocast, logits × 20, values that are not finite", float(not finite), 0.0)
        wrong = labels[:512].clone()
        wrong[3] = logits.shape[1]
        try:
            make(validate=True).to(device)(logits[:512], wrong)
            table.say(f"{name}: a label out of range is let through", 1.0, 0.0)
        except ValueError as error:
            table.answer(f"{name}: a label out of range", str(error))
        compiled = torch.compile(make().to(device), fullgraph=True)
        table.say(f"{name}: compiled", apart(compiled(logits[:512], labels[:512]), value[1]), 1e-5)


def layers(table: Table, logits: torch.Tensor, labels: torch.Tensor) -> None:
    model = FocalTemperatureScaling(objective="nll").fit(logits, labels)
    layer = model.to_torch()
    table.say("CalibrationLayer", apart(layer.to(logits.device)(logits), layer.to("cpu")(logits.cpu())), 1e-5)
    table.say(
        "predict_proba of a tensor",
        apart(model.predict_proba(logits), torch.as_tensor(model.predict_proba(logits.cpu()))),
        1e-6,
    )
    batches = list(zip(logits.cpu().split(1000), labels.cpu().split(1000), strict=True))
    collected = collect_logits(
        torch.nn.Identity(), batches, device=logits.device, keep_on=logits.device, progress=False
    )
    table.say("collect_logits", apart(torch.as_tensor(collected.logits), logits.cpu()), 0.0)


def fits(table: Table, logits: torch.Tensor, labels: torch.Tensor) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = logits.to(dtype)
        for name, (make, objectives) in FITS.items():
            for objective in objectives:
                on_gpu = np.asarray(focal_point(make(objective=objective).fit(x, labels).chain_))
                on_cpu = np.asarray(focal_point(make(objective=objective).fit(x.cpu(), labels.cpu()).chain_))
                what = f"{name}, {objective}, {dtype}: γ and T ({on_cpu[0]:.4g}, {on_cpu[1]:.4g})"
                table.say(what, float(np.abs(on_gpu - on_cpu).max()), 1e-5)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    logits, labels = data(options.rows, options.classes, options.device)
    table = Table()
    maps(table, logits)
    losses(table, logits, labels)
    layers(table, logits, labels)
    fits(table, logits, labels)
    device = torch.cuda.get_device_name() if options.device == "cuda" else options.device
    where = f"{device}, torch {torch.__version__}, {options.rows:,} × {options.classes} logits."
    if options.output is not None:
        text = f"# The GPU beside the CPU\n\n`python benchmarks/gpu_agreement.py`\n\n{where}\n\n"
        write_atomically(options.output / "gpu_agreement.md", text + "\n".join(table.lines) + "\n")
    return int(table.too_far)


if __name__ == "__main__":
    sys.exit(main())
