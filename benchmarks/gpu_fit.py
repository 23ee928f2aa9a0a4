"""Fits, predictions and metrics that stay on the GPU: time, bytes moved, and memory beside the logits.

    python benchmarks/gpu_fit.py [--rows 1000000] [--classes 1000] [--part passes] [-o benchmarks/results]

Needs an NVIDIA GPU with torch and Triton. A reading is the time in which a copy moves as many bytes as the logits have.
Every function runs once before it is timed, so that its kernels are compiled. Layers are called ten times in a row
before the host waits, as in a model's loop: the host prepares a call while the GPU works on the one before.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch

from refocal import AutoCalibration, FocalTemperatureScaling, StructuredVectorScaling, TemperatureScaling, metrics
from refocal._files import write_atomically
from refocal.calibrators.fitted import focal_point
from refocal.engine import Block, array_engine

VOCABULARY = (20_000, 128_000)
FITS = {
    "TemperatureScaling": TemperatureScaling,
    "FocalTemperatureScaling(objective='nll')": lambda: FocalTemperatureScaling(objective="nll"),
    "TemperatureScaling(objective='ece')": lambda: TemperatureScaling(objective="ece"),
    "FocalTemperatureScaling(objective='ece')": lambda: FocalTemperatureScaling(objective="ece"),
    "FocalTemperatureScaling": FocalTemperatureScaling,
    "StructuredVectorScaling": StructuredVectorScaling,
    "AutoCalibration": AutoCalibration,
}
METRICS = {
    "expected_calibration_error": metrics.expected_calibration_error,
    "brier_score": metrics.brier_score,
    "classwise_ece": metrics.classwise_ece,
    "CalibrationHistogram": lambda y, p: metrics.CalibrationHistogram().update(y, p).compute(),
}


def data(
    rows: int, classes: int, device: str = "cuda", dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that are 1.8 times too large, with class-dependent shifts, and labels drawn from their distribution."""
    torch.manual_seed(0)
    logits = torch.empty(rows, classes, device=device, dtype=dtype)
    labels = torch.empty(rows, dtype=torch.int64, device=device)
    shift = 0.3 * torch.randn(classes, device=device)
    for some in torch.arange(rows, device=device).split(max(1, (1 << 26) // classes)):
        x = 2.0 * torch.randn(len(some), classes, device=device)
        gumbel = -torch.empty_like(x).exponential_().log()
        labels[some] = (x + shift + gumbel).argmax(dim=1)
        logits[some] = (1.8 * x).to(dtype)
    return logits, labels


def seconds(function, repeats: int = 5, in_a_row: int = 1) -> float:
    """The time of a call, of as many in a row without waiting for the GPU in between: the median of the repeats."""
    function()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(in_a_row):
            function()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / in_a_row)
    return statistics.median(times)


class Table:
    """Lines of the page, with the time of one reading of some logits."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.size = logits.numel() * logits.element_size()
        copy = torch.empty_like(logits)
        self.once = 0.5 * seconds(lambda: copy.copy_(logits))
        rows, classes = logits.shape
        what = f"{rows:,} × {classes:,} {str(logits.dtype).removeprefix('torch.')}, {self.size / 1e9:.1f} GB"
        bandwidth = self.size / self.once / 1e12
        self.lines = [
            f"Logits: {what}. A copy moves {bandwidth:.2f} TB/s, so one reading takes {1e3 * self.once:.2f} ms.",
            "",
            "| | time | readings | memory beside the logits |",
            "|---|---|---|---|",
        ]

    def say(self, name: str, function, repeats: int = 5, less: int = 0, in_a_row: int = 1) -> None:
        """Measure a function; `less` bytes are its answer and not counted."""
        taken = seconds(function, repeats, in_a_row)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        extra = torch.cuda.max_memory_allocated() - before - less
        time_ = f"{1e3 * taken:.2f} ms" if taken < 0.1 else f"{taken:.3f} s"
        self.lines.append(f"| {name} | {time_} | {taken / self.once:.1f} | {extra / self.size:.3f} × |")
        print(self.lines[-1], flush=True)


def passes(logits: torch.Tensor, labels: torch.Tensor) -> Table:
    table, block = Table(logits), Block(logits, labels)
    table.say("temperature pass", lambda: block.means("temperature", 0.5))
    table.say("focal pass", lambda: block.means("focal", 0.3, 1 / 1.8))
    table.say("predictions of one γ", lambda: block.predictions((0.3,), 1.8, there=True))
    if block.plan.has_affine:
        parameters = 0.01 * torch.randn(2 * logits.shape[1], dtype=torch.float64).numpy()
        for exact in (False, True):
            what = "double" if exact else "single"
            table.say(
                f"vector scaling's pass, {what} precision",
                lambda exact=exact: block.affine_sums("tempered", 1.8, parameters, exact=exact),
            )
    return table


def fits(logits: torch.Tensor, labels: torch.Tensor, names: tuple[str, ...] = tuple(FITS), repeats: int = 3) -> Table:
    table = Table(logits)
    for name in names:
        table.say(f"`{name}` fit", lambda name=name: FITS[name]().fit(logits, labels), repeats)
    return table


def applied(logits: torch.Tensor, labels: torch.Tensor, names: tuple[str, ...]) -> Table:
    table, size = Table(logits), logits.numel() * logits.element_size()
    few = slice(0, 20_000)
    table.say("`torch.softmax`", lambda: torch.softmax(logits, 1), less=size)
    for name in names:
        model = FITS[name]().fit(logits[few], labels[few])
        table.say(f"`{name}.predict_proba`", lambda model=model: model.predict_proba(logits), less=size)
        table.say(f"`{name}.predict_log_proba`", lambda model=model: model.predict_log_proba(logits), less=size)
        with torch.no_grad():
            layer = model.to_torch().to(logits.device)
            table.say(f"`{name}.to_torch()`", lambda layer=layer: layer(logits), less=size, in_a_row=10)
            compiled = torch.compile(layer)
            table.say("the same, compiled", lambda compiled=compiled: compiled(logits), less=size, in_a_row=10)
    return table


def measured(logits: torch.Tensor, labels: torch.Tensor) -> Table:
    table, p = Table(logits), torch.softmax(logits / 1.8, 1)
    for name, function in METRICS.items():
        table.say(f"`{name}`", lambda function=function: function(labels, p), repeats=1)
    log_p = p.log_()
    table.say("`log_loss`", lambda: metrics.log_loss(labels, log_p), repeats=1)
    return table


def agreement(logits: torch.Tensor, labels: torch.Tensor) -> list[str]:
    """How far the GPU is from the CPU on 20,000 rows, and what array functions would take."""
    few, y = logits[:20_000], labels[:20_000]
    block = Block(few, y)
    block.engine, block.plan = array_engine, array_engine.plan(few)
    plain = seconds(lambda: block.means("focal", 0.3, 1 / 1.8)) * len(logits) / 20_000
    found = [f"- a focal pass by array functions, from 20,000 rows: {1e3 * plain:.0f} ms"]
    for name in ("TemperatureScaling", "FocalTemperatureScaling(objective='nll')"):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            x, model = few.to(dtype), FITS[name]()
            on_gpu, on_cpu = focal_point(model.fit(x, y).chain_), focal_point(model.fit(x.cpu(), y.cpu()).chain_)
            apart = max(abs(a - b) for a, b in zip(on_gpu, on_cpu, strict=True))
            found.append(f"- {name} on 20,000 rows, {dtype}: GPU {on_gpu}, CPU {on_cpu}, apart by {apart:.1e}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=1000)
    parts = ("passes", "fits", "apply", "metrics", "agreement", "vocabulary")
    parser.add_argument("--part", action="append", choices=parts, help="all of them by default")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    wanted, lines = options.part or list(parts), [f"{torch.cuda.get_device_name()}, torch {torch.__version__}"]
    if set(wanted) - {"vocabulary"}:
        logits, labels = data(options.rows, options.classes)
        if "passes" in wanted:
            lines += ["", "## Passes", "", *passes(logits, labels).lines]
        if "fits" in wanted:
            lines += ["", "## Fits", "", *fits(logits, labels).lines]
        if "apply" in wanted:
            names = ("TemperatureScaling", "FocalTemperatureScaling(objective='nll')", "AutoCalibration")
            lines += ["", "## Predictions", "", *applied(logits, labels, names).lines]
        if "metrics" in wanted:
            lines += ["", "## Metrics of tensors", "", *measured(logits, labels).lines]
        if "agreement" in wanted:
            lines += ["", "## Agreement", "", *agreement(logits, labels)]
        del logits, labels
        torch.cuda.empty_cache()
    if "vocabulary" in wanted:
        logits, labels = data(*VOCABULARY, dtype=torch.bfloat16)
        names = ("TemperatureScaling", "FocalTemperatureScaling(objective='nll')")
        lines += ["", "## The vocabulary of a language model", "", *applied(logits, labels, names).lines, ""]
        names += ("FocalTemperatureScaling", "AutoCalibration")
        lines += fits(logits, labels, names, repeats=1).lines
    text = "\n".join(lines) + "\n"
    print(text)
    if options.output is not None:
        page = f"# Fitting, predicting and measuring on the GPU\n\n`python benchmarks/gpu_fit.py`\n\n{text}"
        write_atomically(options.output / "gpu_fit.md", page)


if __name__ == "__main__":
    main()
