"""Vector, matrix and Dirichlet calibration with many classes: how close to temperature scaling, and how fast.

    OMP_NUM_THREADS=1 python benchmarks/many_classes.py > benchmarks/results/many_classes.md

N = 10,000 rows of float32 logits that need a temperature of 1.8 and nothing else, the hardest case for a matrix;
10,000 rows to test on.
Each method runs in its own process, whose largest memory is shown, data and libraries included.
"""

from __future__ import annotations

import resource
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from refocal import metrics
from refocal.calibrators.registry import make

ROWS = 10_000
METHODS = ("ts", "vs", "svs", "ms", "dirichlet", "sms", "auto")


def data(n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    truth = 2.0 * rng.standard_normal((2 * ROWS, n_classes), dtype=np.float32)
    labels = np.array([np.argmax(row + rng.gumbel(size=n_classes)) for row in truth])
    return 1.8 * truth, labels


def run(method: str, n_classes: int) -> tuple[float, float, float, str]:
    logits, labels = data(n_classes)
    calibrator = make(method)
    start = time.perf_counter()
    calibrator.fit(logits[:ROWS], labels[:ROWS])
    seconds = time.perf_counter() - start
    loss = metrics.log_loss(labels[ROWS:], calibrator.predict_log_proba(logits[ROWS:]))
    choice = getattr(calibrator, "choice_", {})
    chosen = " ".join(str(choice[key]) for key in ("chosen", "strength") if key in choice)
    return loss, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, chosen


def main() -> None:
    for n_classes in (100, 1000):
        print(f"\n## C = {n_classes}, N = {ROWS:,}\n")
        print("| method | test log-loss | against ts | fit, s | memory, GiB | chosen |\n|---|---|---|---|---|---|")
        base = None
        for method in METHODS:
            with ProcessPoolExecutor(1) as pool:
                loss, seconds, memory, chosen = pool.submit(run, method, n_classes).result()
            base = base or loss
            change = f"{100 * (loss / base - 1):+.2f} %"
            print(f"| {method} | {loss:.4f} | {change} | {seconds:.1f} | {memory:.2f} | {chosen} |", flush=True)


if __name__ == "__main__":
    main()
