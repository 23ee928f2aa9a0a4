"""How fast rows larger than memory are fitted, and how much memory that takes (docs/scale.md).

    python benchmarks/scale.py make FOLDER --rows 6e7 --classes 100    a float16 file of logits and one of labels
    python benchmarks/scale.py fit FOLDER --method ts                  fitted as a memory map
    python benchmarks/scale.py fit FOLDER --method ts --rows 4e6 --in-memory
    python benchmarks/scale.py evaluate FOLDER --rows 4e6              temperature scaling, beside the network as it is

Each of them prints a line of JSON. `seconds` is what a clock shows and `cpu_seconds` what the processor spent, which
other programs on the machine do not change; `peak_mb` is the process's largest resident set (VmHWM: private memory and
mapped pages), `peak_private_mb` its private memory alone (RssAnon, looked at every 50 ms), `start_mb` that before.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from refocal.calibrators.fitted import focal_point
from refocal.calibrators.registry import make as calibrator_of
from refocal.evaluate import evaluate
from refocal.io import rows_of

BASE = 500_000


def make(folder: Path, rows: int, classes: int) -> None:
    """Logits that need a temperature of 1.7: one block of random rows, its columns turned for each repetition."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    logits = np.lib.format.open_memmap(folder / "logits.npy", "w+", np.float16, (rows, classes))
    labels = np.lib.format.open_memmap(folder / "labels.npy", "w+", np.uint16, (rows,))
    z = 2.0 * rng.standard_normal((BASE, classes), dtype=np.float32)
    y = np.argmax(z + rng.gumbel(size=z.shape), axis=1)
    block = (1.7 * z).astype(np.float16)
    for turn, start in enumerate(range(0, rows, BASE)):
        n = min(BASE, rows - start)
        logits[start : start + n] = np.roll(block[:n], turn, axis=1)
        labels[start : start + n] = (y[:n] + turn) % classes
    logits.flush()


def memory() -> dict[str, int]:
    """The process's memory in MB, by the names of /proc."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) // 1024 for line in lines if line.startswith(("Vm", "Rss"))}


class Meter:
    """Clock, processor and memory from where it is made to where it is read."""

    def __init__(self) -> None:
        self.start_mb, self.peak_private_mb, self._done = memory()["VmRSS"], 0, threading.Event()
        threading.Thread(target=self._look, daemon=True).start()
        self._clock, self._cpu = time.perf_counter(), time.process_time()

    def _look(self) -> None:
        while not self._done.wait(0.05):
            self.peak_private_mb = max(self.peak_private_mb, memory()["RssAnon"])

    def read(self, n_rows: int) -> dict[str, float]:
        """What it shows, for a number of rows."""
        seconds, cpu_seconds = time.perf_counter() - self._clock, time.process_time() - self._cpu
        self._done.set()
        return {
            "seconds": round(seconds, 1),
            "cpu_seconds": round(cpu_seconds, 1),
            "rows_per_cpu_second": round(n_rows / cpu_seconds),
            "start_mb": self.start_mb,
            "peak_mb": memory()["VmHWM"],
            "peak_private_mb": self.peak_private_mb,
        }


def opened(folder: Path, rows: int | None) -> tuple[Any, Any, dict[str, Any]]:
    """Logits and labels as maps, and how large they are."""
    logits, labels = (np.load(folder / f"{name}.npy", mmap_mode="r")[:rows] for name in ("logits", "labels"))
    size = {"rows": len(labels), "classes": int(logits.shape[1]), "gigabytes": round(logits.size * 2 / 1e9, 2)}
    return logits, labels, size


def fit(folder: Path, method: str, rows: int | None, in_memory: bool) -> None:
    logits, labels, size = opened(folder, rows)
    if in_memory:
        logits, labels = np.array(logits), np.array(labels)
    calibrator, meter = calibrator_of(method), Meter()
    if in_memory:
        calibrator.fit(logits, labels)
    else:
        calibrator.fit(rows_of(logits, labels))
    found = {"method": method, "in_memory": in_memory, **meter.read(len(labels)), "passes": calibrator.solution_.passes}
    print(json.dumps({**size, **found, "fitted": list(focal_point(calibrator.chain_))}), flush=True)


def measure(folder: Path, rows: int | None) -> None:
    logits, labels, size = opened(folder, rows)
    few = slice(0, 100_000)
    fitted, meter = calibrator_of("ts").fit(np.array(logits[few]), np.array(labels[few])), Meter()
    found = evaluate(rows_of(logits, labels), {"ts": fitted})
    said = {"method": "evaluate", **meter.read(len(labels)), "values": found["ts"].values}
    print(json.dumps({**size, **said}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "fit", "evaluate"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=lambda text: int(float(text)))
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--method", default="ts")
    parser.add_argument("--in-memory", action="store_true")
    given = parser.parse_args()
    if given.what == "make":
        make(given.folder, given.rows or 60_000_000, given.classes)
    elif given.what == "evaluate":
        measure(given.folder, given.rows)
    else:
        fit(given.folder, given.method, given.rows, given.in_memory)


if __name__ == "__main__":
    main()
