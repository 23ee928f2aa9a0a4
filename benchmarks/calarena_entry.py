"""An entry for CalArena's custom_calibrators.py: the default calibrator of refocal under CalArena's interface.

Copy the class and the dictionary into custom_calibrators.py, then

    pip install refocal
    python run_benchmark.py --benchmark tabrepo-binary --calibrator refocal-auto

Everything is at its default; nothing was tuned on CalArena's files.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refocal import AutoCalibration


class RefocalAuto:
    """`refocal.AutoCalibration` of probabilities: (n,) or (n, 1) of the second of two classes, or (n, k) of all.

    >>> p = np.array([0.1, 0.3, 0.4, 0.6, 0.7, 0.9] * 10)
    >>> calibrator = RefocalAuto()
    >>> calibrator.fit(p, p > 0.35)
    >>> calibrator.predict_proba(p).shape
    (60, 2)
    """

    def fit(self, p_cal: Any, y_cal: Any) -> None:
        """Fit to probabilities and labels 0 … k-1."""
        self.calibrator_ = AutoCalibration(input="probabilities").fit(_rows(p_cal), np.asarray(y_cal).astype(int))

    def predict_proba(self, p_test: Any) -> np.ndarray:
        """Calibrated probabilities (n, k)."""
        return np.asarray(self.calibrator_.predict_proba(_rows(p_test)))


def _rows(p: Any) -> np.ndarray:
    """Probabilities (n, k) whose rows sum to 1."""
    p = np.asarray(p, dtype=np.float64)
    if p.ndim == 1 or p.shape[1] == 1:
        p = np.stack([1.0 - p.ravel(), p.ravel()], axis=1)
    return np.asarray(p / p.sum(axis=1, keepdims=True))


CUSTOM_CALIBRATORS = {"refocal-auto": RefocalAuto}
