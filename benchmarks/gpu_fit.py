"""A fit that stays on the GPU: time, bytes moved, and the CPU's answer beside it.

    python benchmarks/gpu_fit.py [--rows 1000000] [--classes 1000] [-o benchmarks/results]

Needs an NVIDIA GPU with torch and Triton. The first fit compiles the kernels and is reported apart.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch

from refocal import FocalTemperatureScaling, TemperatureScaling
from refocal._files import write_atomically
from refocal.calibrators._fitted import focal_point
from refocal.engine import Block, array_engine


def data(rows: int, classes: int, device: str = "cuda") -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that are 1.8 times too large, and labels drawn from their distribution."""
    torch.manual_seed(0)
    logits = torch.empty(rows, classes, device=device)
    labels = torch.empty(rows, dtype=torch.int64, device=device)
    for some in torch.arange(rows, device=device).split(1 << 16):
        x = 2.0 * torch.randn(len(some), classes, device=device)
        gumbel = -torch.empty_like(x).exponential_().log()
        labels[some] = (x + gumbel).argmax(dim=1)
        logits[some] = 1.8 * x
    return logits, labels


def seconds(function, repeats: int = 5) -> float:
    found = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def copy_bandwidth(logits: torch.Tensor) -> float:
    """Bytes read and written in a second by a plain copy."""
    copy = torch.empty_like(logits)
    return 2 * logits.numel() * logits.element_size() / seconds(lambda: copy.copy_(logits))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    lines = [f"{torch.cuda.get_device_name()}, torch {torch.__version__}", ""]

    def say(text: str) -> None:
        lines.append(text)
        print(text, flush=True)

    logits, labels = data(options.rows, options.classes)
    size = logits.numel() * logits.element_size()
    bandwidth = copy_bandwidth(logits)
    say(f"- logits: {options.rows:,} × {options.classes:,} float32, {size / 1e9:.1f} GB on the device")
    once = 1e3 * size / bandwidth
    say(f"- bandwidth of a copy: {bandwidth / 1e12:.2f} TB/s; one reading of the logits takes {once:.2f} ms")

    model = FocalTemperatureScaling(objective="nll")
    start = time.perf_counter()
    model.fit(logits, labels)
    say(f"- first fit, kernels compiled: {time.perf_counter() - start:.2f} s")
    problem = Block(logits, labels)
    for name, step in {
        "temperature pass": lambda: problem.temperature_curvature(0.5),
        "focal pass": lambda: problem.curvature(0.3, 1.8),
        "predictions": lambda: problem.predictions((0.3,), 1.8),
        "looking at the rows": lambda: Block(logits, labels),
    }.items():
        taken = seconds(step)
        say(f"- {name}: {1e3 * taken:.2f} ms, {taken * bandwidth / size:.1f} readings")
    for model in (TemperatureScaling(), FocalTemperatureScaling(objective="nll")):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        taken = seconds(lambda model=model: model.fit(logits, labels), 3)
        extra = (torch.cuda.max_memory_allocated() - before) / 1e6
        n = model.solution_.passes
        say(
            f"- **{model}: {taken:.3f} s**, γ = {model.gamma_:.5f}, T = {model.temperature_:.5f}, {n} passes: "
            f"{n * size / 1e9:.0f} GB, {n * once:.0f} ms at that bandwidth; {extra:.0f} MB beside the logits"
        )
    rows = slice(0, 20_000)
    few, y = logits[rows], labels[rows]
    with_passes = Block(few, y)
    with_passes.engine, with_passes.plan = array_engine, array_engine.plan(few)
    plain = seconds(lambda: with_passes.curvature(0.3, 1.8)) * options.rows / 20_000
    say(f"- a focal pass by array functions, from 20,000 rows: {1e3 * plain:.0f} ms")
    for model in (TemperatureScaling(), FocalTemperatureScaling(objective="nll")):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            x = few.to(dtype)
            on_gpu, on_cpu = focal_point(model.fit(x, y).chain_), focal_point(model.fit(x.cpu(), y.cpu()).chain_)
            apart = max(abs(a - b) for a, b in zip(on_gpu, on_cpu, strict=True))
            say(f"- {model} on 20,000 rows, {dtype}: GPU {on_gpu}, CPU {on_cpu}, apart by {apart:.1e}")
    y = labels[rows].clone()
    y[5] = options.classes
    try:
        TemperatureScaling().fit(few, y)
    except ValueError as error:
        say(f"- a label out of range: {error}")
    if options.output is not None:
        write_atomically(
            options.output / "gpu_fit.md",
            "# Fitting on the GPU\n\n`python benchmarks/gpu_fit.py`\n\n" + "\n".join(lines) + "\n",
        )


if __name__ == "__main__":
    main()
