"""How far each pass is from what the processor allows: reading the bytes, and computing exponentials.

    OMP_NUM_THREADS=1 python benchmarks/limits.py [-o benchmarks/results]

One thread, float32 logits of 10,000 × 1,000, processor time, the best of several runs. A reading is the time in which
memory delivers the logits once (a sum over them by NumPy); an exponential is that of NumPy's `exp` for one number of an
array in the cache. What is measured is given in nanoseconds an entry and in both units.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from refocal import AutoCalibration, FocalTemperatureScaling, TemperatureScaling, metrics
from refocal.engine import Block

SHAPE = (10_000, 1_000)
REPEATS = 7


def nanoseconds(work: Callable[[], object], n_entries: int) -> float:
    """The shortest of several runs, for each entry."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return 1e9 * min(times) / n_entries


def lines() -> list[str]:
    rng = np.random.default_rng(0)
    logits = (3.0 * rng.normal(size=SHAPE)).astype(np.float32)
    labels = np.argmax(logits / 1.8 + rng.gumbel(size=SHAPE), axis=1)
    small, out = logits[:16].copy(), np.empty((16, SHAPE[1]), dtype=np.float32)
    reading = nanoseconds(lambda: logits.sum(), logits.size)
    exponential = nanoseconds(lambda: [np.exp(small, out=out) for _ in range(100)], 100 * small.size)
    block, n = Block(logits, labels), SHAPE[1]
    parameters = np.concatenate([np.ones(n), np.zeros(n)])
    fitted = {type(m).__name__: m.fit(logits, labels) for m in (TemperatureScaling(), AutoCalibration())}
    fitted["FocalTemperatureScaling"] = FocalTemperatureScaling(objective="nll").fit(logits, labels)
    p = fitted["TemperatureScaling"].predict_proba(logits)
    work: dict[str, Callable[[], object]] = {
        "fit: pass of temperature scaling, rough": lambda: block.temperature_sums(1.0, rough=True),
        "the same, exact": lambda: block.temperature_sums(1.0),
        "fit: pass of focal temperature scaling, rough": lambda: block.focal_sums(0.5, 1.0, rough=True),
        "the same, exact ": lambda: block.focal_sums(0.5, 1.0),
        "fit: pass of vector scaling, rough": lambda: block.vector_sums(parameters, rough=True),
        **{f"`predict_proba` of `{name}`": lambda f=f: f.predict_proba(logits) for name, f in fitted.items()},
        "`log_loss`": lambda: metrics.log_loss(labels, np.log(p)),
        "`brier_score`": lambda: metrics.brier_score(labels, p),
        "`expected_calibration_error`": lambda: metrics.expected_calibration_error(labels, p),
    }
    found = ["| | ns an entry | readings | exponentials |", "|---|---|---|---|"]
    for name, each in work.items():
        spent = nanoseconds(each, logits.size)
        found.append(f"| {name.strip()} | {spent:.2f} | {spent / reading:.1f} | {spent / exponential:.1f} |")
    found += ["", f"A reading takes {reading:.2f} ns an entry, an exponential {exponential:.2f} ns."]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path)
    folder = parser.parse_args().output
    warnings.simplefilter("ignore")
    text = "\n".join(lines())
    print(text)
    if folder is not None:
        head = "# The distance to the limit\n\n`OMP_NUM_THREADS=1 python benchmarks/limits.py -o benchmarks/results`"
        (folder / "limits.md").write_text(f"{head}: 10,000 × 1,000 float32 logits, one thread.\n\n{text}\n")


if __name__ == "__main__":
    main()
