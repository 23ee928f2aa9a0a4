"""Processor time of a fit of each method, for the cards: `OMP_NUM_THREADS=1 python benchmarks/card_costs.py`."""

from __future__ import annotations

import time
import warnings

import numpy as np

from refocal.calibrators.registry import NAMED, SETS, make

N_ROWS = 10_000


def seconds(name: str, n_classes: int) -> float:
    """The processor time of one fit on made-up float32 logits."""
    rng = np.random.default_rng(0)
    truth = 3.0 * rng.normal(size=(N_ROWS, n_classes)).astype(np.float32)
    labels = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)
    start = time.process_time()
    make(name).fit(1.5 * truth, labels)
    return time.process_time() - start


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for each in NAMED | SETS:
        print(f"{each:18} {seconds(each, 100):8.2g} s × 100 {seconds(each, 2):8.2g} s × 2", flush=True)
