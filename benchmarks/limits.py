"""How far each pass is from what the processor allows: reading the bytes, and computing exponentials.

    OMP_NUM_THREADS=1 python benchmarks/limits.py [--write]

One thread, float32 logits of 10,000 × 1,000, processor time, the best of several runs. A reading is the time in which
memory delivers the logits once (a sum over them by NumPy); an exponential is that of NumPy's `exp` for one number of an
array in the cache. What is measured is given in nanoseconds an entry and in both units.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import tables

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
    work: dict[str, dict[str, Callable[[], object]]] = {
        "pass of temperature scaling": {
            "rough": lambda: block.sums("temperature", 1.0, rough=True),
            "exact": lambda: block.sums("temperature", 1.0),
        },
        "pass of focal temperature scaling": {
            "rough": lambda: block.sums("focal", 0.5, 1.0, rough=True),
            "exact": lambda: block.sums("focal", 0.5, 1.0),
        },
        "pass of vector scaling": {"rough": lambda: block.sums("vector", parameters, rough=True)},
        "`predict_proba`": {f"`{name}`": lambda f=f: f.predict_proba(logits) for name, f in fitted.items()},
        "metrics": {
            "`log_loss`": lambda: metrics.log_loss(labels, np.log(p)),
            "`brier_score`": lambda: metrics.brier_score(labels, p),
            "`expected_calibration_error`": lambda: metrics.expected_calibration_error(labels, p),
            "`classwise_ece`": lambda: metrics.classwise_ece(labels, p),
        },
    }
    found = []
    for what, kinds in work.items():
        spent = [nanoseconds(each, logits.size) for each in kinds.values()]
        of_units = ("; ".join(f"{each / unit:.1f}" for each in spent) for unit in (reading, exponential))
        found.append([f"{what}: {'; '.join(kinds)}", *of_units])
    gigabytes = logits.itemsize / reading
    return [
        f"Memory delivers {gigabytes:.0f} GB/s, {reading:.2f} ns for an entry of 10,000 × 1,000 float32 logits, and an "
        f"exponential takes {exponential:.2f} ns. In these units an entry costs:",
        "",
        *tables.table(["", "readings", "exponentials"], found),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="into benchmarks/results/limits.md")
    is_written = parser.parse_args().write
    warnings.simplefilter("ignore")
    found = lines()
    print("\n".join(found))
    if is_written:
        tables.write(tables.RESULTS / "limits.md", "limits", found)


if __name__ == "__main__":
    main()
