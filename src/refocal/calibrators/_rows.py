"""Fitting on rows in blocks: which they are, and what is reported of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from refocal.search import Rows, StreamedProblem
from refocal.search.tally import ACCURACY, BRIER, LOG_LOSS, Measures

# Memory-mapped logits from so many bytes on are walked through in blocks.
LARGE_MAP = 1 << 30


def rows_of(X: Any, y: Any, sample_weight: Any, kind: str) -> Rows | None:
    """Rows that are walked through in blocks; None for arrays that are at hand."""
    if isinstance(X, Rows):
        return X
    library = type(X).__module__.partition(".")[0]
    is_large_map = isinstance(X, np.memmap) and X.ndim == 2 and X.nbytes >= LARGE_MAP
    if library not in ("dask", "dask_expr", "zarr") and not is_large_map:
        return None
    from refocal import scale

    return scale.rows_of(X, y, sample_weight, input=kind)


def report_of(problem: StreamedProblem, found: Measures) -> dict[str, Any]:
    """What `_report` says, from sums over blocks: the first predictor before, the second after."""
    before, after = (
        {
            "log_loss": float(found.means.values[LOG_LOSS, i]),
            "ece": calibration.ece,
            "brier_score": float(found.means.values[BRIER, i]),
            "accuracy": float(found.means.values[ACCURACY, i]),
        }
        for i, calibration in enumerate(found.calibration)
    )
    report = {"n_samples": problem.n_rows, "n_classes": problem.n_classes, "before": before, "after": after}
    return report | ({"n_skipped": problem.n_skipped} if problem.n_skipped else {})
