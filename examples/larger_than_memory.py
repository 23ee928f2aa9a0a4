"""Fit on a Dask array that is computed block by block, so that the rows need not fit into memory.

python examples/larger_than_memory.py
"""

import dask.array as da
import numpy as np
from dask import delayed

from refocal import FocalTemperatureScaling
from refocal.evaluate import evaluate
from refocal.io import blocks

ROWS, CLASSES, PARTS = 5_000, 10, 8


# %% Stands for your data: each part is computed (or read) when it is needed
def logits_of(part: int) -> np.ndarray:
    """Logits that are 1.7 times too large."""
    return 3.4 * np.random.default_rng(part).normal(size=(ROWS, CLASSES))


def labels_of(part: int) -> np.ndarray:
    """Labels drawn from what the logits should be."""
    noise = np.random.default_rng(1000 + part).gumbel(size=(ROWS, CLASSES))
    return np.argmax(logits_of(part) / 1.7 + noise, axis=1)


logits, labels = (
    da.concatenate(
        [da.from_delayed(delayed(make)(part), shape, dtype) for part in range(PARTS)]
    )
    for make, shape, dtype in (
        (logits_of, (ROWS, CLASSES), float),
        (labels_of, (ROWS,), int),
    )
)

# %% `fit` takes Dask arrays, a few parts at a time, here or on a cluster
calibrator = FocalTemperatureScaling(objective="nll").fit(logits, labels)
print(
    f"{len(logits):,} rows in {logits.numblocks[0]} parts: "
    f"temperature = {calibrator.temperature_:.2f}"
)

# %% `evaluate` takes blocks of new rows
found = evaluate(
    blocks([(logits_of(part), labels_of(part)) for part in (100, 101)]),
    {"fts": calibrator},
)
before, after = (found[name].measures["log_loss"].value for name in ("none", "fts"))
print(f"log-loss on test data: {before:.4f} before, {after:.4f} after")
