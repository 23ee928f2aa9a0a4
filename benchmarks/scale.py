"""How fast rows larger than memory are fitted, and how much memory that takes (docs/scale.md).

    python benchmarks/scale.py make FOLDER --rows 6e7 --classes 100    a float16 file of logits and one of labels
    python benchmarks/scale.py fit FOLDER --method ts                  fitted as a memory map
    python benchmarks/scale.py fit FOLDER --method ts --rows 4e6 --in-memory

Each fit prints a line of JSON. `seconds` is what a clock shows and `cpu_seconds` what the processor spent, which other
programs on the machine do not change; `peak_mb` is the process's largest resident set (VmHWM: private memory and mapped
pages), `peak_private_mb` its private memory alone (RssAnon, looked at every 50 ms), `start_mb` what it had before.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from pathlib import Path

import numpy as np

from refocal.calibrators.registry import make as calibrator_of
from refocal.scale import rows_of

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


def fit(folder: Path, method: str, rows: int | None, in_memory: bool) -> None:
    logits = np.load(folder / "logits.npy", mmap_mode="r")[:rows]
    labels = np.load(folder / "labels.npy", mmap_mode="r")[:rows]
    if in_memory:
        logits, labels = np.array(logits), np.array(labels)
    calibrator, peak, done = calibrator_of(method), [0], threading.Event()

    def look() -> None:
        while not done.wait(0.05):
            peak[0] = max(peak[0], memory()["RssAnon"])

    start_mb = memory()["VmRSS"]
    threading.Thread(target=look, daemon=True).start()
    clock, cpu = time.perf_counter(), time.process_time()
    if in_memory:
        calibrator.fit(logits, labels)
    else:
        calibrator.fit(rows_of(logits, labels))
    seconds, cpu_seconds = time.perf_counter() - clock, time.process_time() - cpu
    done.set()
    found = {
        "rows": len(labels),
        "classes": int(logits.shape[1]),
        "gigabytes": round(logits.size * 2 / 1e9, 2),
        "method": method,
        "in_memory": in_memory,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        "rows_per_cpu_second": round(len(labels) / cpu_seconds),
        "passes": calibrator.solution_.passes,
        "start_mb": start_mb,
        "peak_mb": memory()["VmHWM"],
        "peak_private_mb": peak[0],
        "fitted": [float(x) for x in calibrator.scaling()],
    }
    print(json.dumps(found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "fit"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=lambda text: int(float(text)))
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--method", default="ts")
    parser.add_argument("--in-memory", action="store_true")
    given = parser.parse_args()
    if given.what == "make":
        make(given.folder, given.rows or 60_000_000, given.classes)
    else:
        fit(given.folder, given.method, given.rows, given.in_memory)


if __name__ == "__main__":
    main()
