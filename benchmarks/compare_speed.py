"""How long `refocal.evaluate.compare` takes with the usual methods on 100,000 × 100 validation and test rows.

    OMP_NUM_THREADS=1 python benchmarks/compare_speed.py [--write]

Processor time of the whole comparison and of its fits, in seconds and in log-softmax passes of NumPy over the rows.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import tables
from fit_speed import bare, timed

from refocal.evaluate import compare
from refocal.io import Predictions

SHAPE = (100_000, 100)


def rows(seed: int) -> Predictions:
    rng = np.random.default_rng(seed)
    logits = (2.0 * rng.normal(size=SHAPE)).astype(np.float32)
    return Predictions.from_logits(logits, np.argmax(0.6 * logits + rng.gumbel(size=SHAPE), axis=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    is_written = parser.parse_args().write
    warnings.simplefilter("ignore")
    validation, test = rows(1), rows(2)
    unit = min(timed(bare, validation.values, validation.labels)[0] for _ in range(5))
    start = time.process_time()
    found = compare(validation, test)
    seconds = time.process_time() - start
    line = (
        f"`refocal compare` with the usual {len(found.methods) - 1} methods on {SHAPE[0]:,} × {SHAPE[1]} "
        f"validation and test rows takes {seconds:.0f} s of one core, {seconds / unit:.0f} log-softmax passes."
    )
    print(line)
    if is_written:
        tables.write(tables.PAGE, "compare", [line])


if __name__ == "__main__":
    main()
