"""Golden fits: `python tests/golden/make.py` writes fits.json anew, which a test compares to 1e-9 on every machine.

Run it only where a change of the numbers is meant, and say in the commit why they changed.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from refocal.calibrators.registry import NAMED, make
from refocal.io import load_sample
from refocal.metrics import brier_score, expected_calibration_error, log_loss, smooth_ece

FILE = Path(__file__).parent / "fits.json"
SAMPLES = ("cifar10-focal3", "cifar10-cross-entropy")
ROWS = 1500
CASES = [f"{sample} {name}" for sample in SAMPLES for name in NAMED]


def fit(case: str) -> dict[str, list[float]]:
    """The fitted γ and T, and what the test set says; in double precision, in which all engines agree."""
    sample, name = case.split()
    validation, test = load_sample(sample)
    calibrator = make(name).fit(np.asarray(validation.logits, dtype=np.float64)[:ROWS], validation.labels[:ROWS])
    log_p = np.asarray(calibrator.predict_log_proba(np.asarray(test.logits, dtype=np.float64)[:ROWS]))
    y = test.labels[:ROWS]
    p = np.exp(log_p).round(12)  # equal ones stay equal: where ties part by a rounding, an ECE jumps
    measured = (log_loss(y, log_p), expected_calibration_error(y, p), smooth_ece(y, p), brier_score(y, p))
    fitted = [getattr(calibrator, field) for field in ("gamma_", "temperature_") if hasattr(calibrator, field)]
    return {"fitted": list(map(float, fitted)), "measures": list(map(float, measured))}


if __name__ == "__main__":
    FILE.write_text(json.dumps({case: fit(case) for case in CASES}, indent=1) + "\n", encoding="utf-8")
