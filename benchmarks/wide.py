"""Wide arrays: `python benchmarks/wide.py [--rows 2000] [--classes 50257 128000] [--dtypes float16 bfloat16]`.

Fits and applies temperature scaling, focal temperature scaling by log-loss and by its default rule, and the default
calibrator on logits of a made-up language model, and prints a table: processor time in bare log-softmax passes over the
same logits (float32 blocks of NumPy), and the memory beside the logits as a multiple of them. Linux only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from refocal.calibrators.registry import make


def rows_of(n_rows: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a model that is overconfident by T = 1.5, with one likely token in each row."""
    rng = np.random.default_rng(0)
    logits, labels = np.empty((n_rows, n_classes), np.float16), np.empty(n_rows, np.int64)
    for start in range(0, n_rows, 100):
        z = 2.0 * rng.standard_normal((min(100, n_rows - start), n_classes), dtype=np.float32)
        z[np.arange(len(z)), rng.integers(n_classes, size=len(z))] += rng.uniform(12.0, 30.0, len(z))
        noise = -np.log(-np.log(rng.uniform(1e-12, 1.0, z.shape)))
        labels[start : start + len(z)], logits[start : start + len(z)] = np.argmax(z / 1.5 + noise, axis=1), z
    return logits, labels


def bare_pass(logits: Any) -> float:
    """Processor seconds of one log-softmax."""
    start = time.process_time()
    for first in range(0, len(logits), 50):
        block = logits[first : first + 50]
        block = (block.float().numpy() if isinstance(block, torch.Tensor) else block.astype(np.float32)).copy()
        block -= block.max(axis=1, keepdims=True)
        block -= np.log(np.exp(block).sum(axis=1, keepdims=True))
    return time.process_time() - start


def memory(name: str) -> int:
    """The process's memory in bytes, by the names of /proc."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def measured(work: Callable[[], Any], bare: float, n_bytes: int) -> tuple[Any, str]:
    """What a function returns, and its time in passes and memory in multiples of the logits, as cells of the table."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
    before, start = memory("VmRSS"), time.process_time()
    found = work()
    passes = (time.process_time() - start) / bare
    return found, f"{passes:.0f} | {(memory('VmHWM') - before) / n_bytes:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--classes", type=int, nargs="+", default=[50_257, 128_000])
    parser.add_argument("--dtypes", nargs="+", default=["float16", "bfloat16"])
    parser.add_argument("--methods", nargs="+", default=["ts", "fts-nll", "fts", "auto"])
    arguments = parser.parse_args()
    print("| rows × classes | precision | method | fit, passes | fit, memory | apply, passes | apply, memory |")
    print("|---|---|---|---|---|---|---|")
    for n_classes in arguments.classes:
        half, labels = rows_of(arguments.rows, n_classes)
        for dtype in arguments.dtypes:
            logits: Any = half if dtype == "float16" else torch.from_numpy(half).bfloat16()
            bare = min(bare_pass(logits) for _ in range(2))
            for method in arguments.methods:
                fitted, fit = measured(lambda m=method, x=logits, y=labels: make(m).fit(x, y), bare, half.nbytes)
                _, apply = measured(lambda c=fitted, x=logits: c.predict_proba(x), bare, half.nbytes)
                size = f"{arguments.rows:,} × {n_classes:,}"
                print(f"| {size} | {dtype} | `{method}` | {fit} | {apply} |", flush=True)


if __name__ == "__main__":
    main()
