"""Fit on the logits of a language model that lie in a file larger than memory allows: `python benchmarks/tokens.py`.

Writes N rows of 32,000 float16 logits (6.4 GB for the default of 100,000 tokens) to a temporary file, maps it, fits
temperature scaling by log-loss in blocks of rows, and prints the time and the largest amount of memory of its own
(pages of the mapped file, which the system may drop at any time, are not counted).
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from refocal import TemperatureScaling

N_CLASSES = 32_000
POOL = 500  # rows that are drawn; the file repeats them with new labels


def write(path: Path, n_rows: int, temperature: float) -> np.ndarray:
    """Logits of a model that is overconfident by `temperature`, and labels drawn from what it should have said."""
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.standard_normal((POOL, N_CLASSES), dtype=np.float32)
    weights = np.cumsum(np.exp(logits.astype(np.float64)), axis=1)
    file = np.lib.format.open_memmap(path, "w+", np.float16, (n_rows, N_CLASSES))
    labels = np.empty(n_rows, dtype=np.int64)
    for start in range(0, n_rows, POOL):
        n = min(POOL, n_rows - start)
        file[start : start + n] = temperature * logits[:n]
        draws = rng.random(n) * weights[:n, -1]
        labels[start : start + n] = [np.searchsorted(row, draw) for row, draw in zip(weights, draws, strict=False)]
    file.flush()
    return np.minimum(labels, N_CLASSES - 1)


class OwnMemory(threading.Thread):
    """The largest RssAnon of this process, looked at ten times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0

    def run(self) -> None:
        """Look until the process ends."""
        while True:
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon"):
                    self.peak = max(self.peak, int(line.split()[1]) * 1024)
            time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder) / "logits.npy"
        labels = write(path, arguments.tokens, temperature=1.5)
        logits = np.load(path, mmap_mode="r")
        memory = OwnMemory()
        memory.start()
        start = time.perf_counter()
        fitted = TemperatureScaling().fit(logits, labels)
        seconds = time.perf_counter() - start
        print(f"{arguments.tokens} x {N_CLASSES} float16, {path.stat().st_size / 1e9:.1f} GB on disk")
        print(f"T = {fitted.temperature_:.4f} (1.5 is right), {fitted.solution_.passes} passes, {seconds:.0f} s")
        print(f"peak memory of its own: {memory.peak / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
