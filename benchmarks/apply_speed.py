"""What it costs to apply a fitted calibrator, in units of scipy's softmax.

    OMP_NUM_THREADS=1 python benchmarks/apply_speed.py [--write]

One thread, float32 logits, processor time, the best of several runs; one row is ten classes.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import tables
from scipy.special import softmax

from refocal import AutoCalibration, FocalTemperatureScaling, TemperatureScaling

SIZES = [(100_000, 10), (50_000, 100), (10_000, 1_000)]
METHODS = {
    "`TemperatureScaling`": TemperatureScaling(),
    "`FocalTemperatureScaling`": FocalTemperatureScaling(objective="nll"),
    "`AutoCalibration`": AutoCalibration(),
}


def best(call, repeats):
    """Seconds of the fastest of some calls."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return min(found)


def draw(n_rows, n_classes):
    """Overconfident logits, and labels."""
    rng = np.random.default_rng(0)
    logits = (3 * rng.normal(size=(n_rows, n_classes))).astype(np.float32)
    return logits, np.argmax(logits / 2 + rng.gumbel(size=logits.shape), axis=1)


def rows():
    """The table's rows: a size, softmax in milliseconds, each method as a multiple of it."""
    for n_rows, n_classes in SIZES:
        logits, labels = draw(n_rows, n_classes)
        base = best(lambda x=logits: softmax(x, axis=1), 9)
        times = []
        for method in METHODS.values():
            fitted = method.fit(logits[:3000], labels[:3000])
            times.append(best(lambda x=logits, fitted=fitted: fitted.predict_proba(x), 9) / base)
        yield f"{n_rows:,} × {n_classes:,}", f"{1e3 * base:.1f} ms", *(f"{each:.2f}" for each in times)
    logits, labels = draw(3000, 10)
    one = logits[:1].copy()
    base = best(lambda: [softmax(one, axis=1) for _ in range(200)], 9) / 200
    times = []
    for method in METHODS.values():
        fitted = method.fit(logits, labels)
        times.append(best(lambda fitted=fitted: [fitted.predict_proba(one) for _ in range(200)], 9) / 200)
    yield "one row", f"{1e6 * base:.0f} µs", *(f"{1e6 * each:.0f} µs" for each in times)


def main():
    """Print the table, and write it into docs/performance.md where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    is_written = parser.parse_args().write
    warnings.simplefilter("ignore")
    lines = tables.table(["N × C", "scipy's softmax", *METHODS], rows())
    print("\n".join(lines))
    if is_written:
        tables.write(tables.PAGE, "apply", lines)


if __name__ == "__main__":
    main()
