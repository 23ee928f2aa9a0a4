"""Other packages' calibrators, each as a function: probabilities and labels to fit on, probabilities to calibrate."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

Array = np.ndarray
Peer = Callable[[Array, Array, Array], Array]


def _probmetrics(name: str) -> Peer:
    def run(p: Array, y: Array, p_test: Array) -> Array:
        fitted = getattr(import_module("probmetrics.calibrators.logistic"), name)().fit(p.astype(np.float32), y)
        return np.asarray(fitted.predict_proba(p_test.astype(np.float32)), dtype=np.float64)

    return run


def _netcal(module: str, name: str, **options: Any) -> Peer:
    def run(p: Array, y: Array, p_test: Array) -> Array:
        calibrator = getattr(import_module(f"netcal.{module}"), name)(**options)
        calibrator.fit(p, y)
        return np.asarray(calibrator.transform(p_test), dtype=np.float64)

    return run


def _one_vs_rest(fit: Callable[[Array, Array, Array], Array]) -> Peer:
    """What CalibratedClassifierCV does to one classifier: one class against the rest, then normalised.

    With two classes the second one's curve does for both.
    """

    def run(p: Array, y: Array, p_test: Array) -> Array:
        if p.shape[1] == 2:
            found = fit(p[:, 1], y == 1, p_test[:, 1])
            return np.stack([1.0 - found, found], axis=1)
        found = np.stack([fit(p[:, j], y == j, p_test[:, j]) for j in range(p.shape[1])], axis=1)
        total = found.sum(axis=1, keepdims=True)
        return np.where(total > 0.0, found / np.where(total > 0.0, total, 1.0), 1.0 / p.shape[1])

    return run


def _isotonic(p: Array, is_class: Array, p_test: Array) -> Array:
    from sklearn.isotonic import IsotonicRegression

    return IsotonicRegression(out_of_bounds="clip").fit(p, is_class).predict(p_test)


def _sigmoid(p: Array, is_class: Array, p_test: Array) -> Array:
    from sklearn.calibration import _SigmoidCalibration

    return _SigmoidCalibration().fit(p, is_class).predict(p_test)


def _betacal(p: Array, is_class: Array, p_test: Array) -> Array:
    from betacal import BetaCalibration

    if not is_class.any():
        return np.zeros(len(p_test))
    return np.asarray(BetaCalibration(parameters="abm").fit(p[:, None], is_class).predict(p_test[:, None]))


def _temperature(p: Array, y: Array, p_test: Array) -> Array:
    from sklearn.calibration import _TemperatureScaling

    return np.asarray(_TemperatureScaling().fit(p, y).predict(p_test))


def _venn_abers(p: Array, y: Array, p_test: Array) -> Array:
    from venn_abers import VennAbersCalibrator

    return np.asarray(VennAbersCalibrator().predict_proba(p_cal=p, y_cal=y, p_test=p_test))


def _dirichletcal(p: Array, y: Array, p_test: Array) -> Array:
    from dirichletcal.calib.fulldirichlet import FullDirichletCalibrator

    fitted = FullDirichletCalibrator(reg_lambda=1e-3, reg_mu=1e-3).fit(p, y)
    return np.asarray(fitted.predict_proba(p_test), dtype=np.float64)


ALL: dict[str, tuple[str, Peer]] = {
    "probmetrics svs": ("probmetrics", _probmetrics("SVSCalibrator")),
    "probmetrics sms": ("probmetrics", _probmetrics("SMSCalibrator")),
    "scikit-learn temperature": ("sklearn", _temperature),
    "scikit-learn sigmoid": ("sklearn", _one_vs_rest(_sigmoid)),
    "scikit-learn isotonic": ("sklearn", _one_vs_rest(_isotonic)),
    "betacal": ("betacal", _one_vs_rest(_betacal)),
    "venn-abers": ("venn_abers", _venn_abers),
    "netcal isotonic": ("netcal", _netcal("binning", "IsotonicRegression")),
    "netcal histogram": ("netcal", _netcal("binning", "HistogramBinning", bins=15)),
    "netcal bbq": ("netcal", _netcal("binning", "BBQ")),
    "netcal beta": ("netcal", _netcal("scaling", "BetaCalibration")),
    "netcal logistic": ("netcal", _netcal("scaling", "LogisticCalibration")),
    "dirichletcal": ("dirichletcal", _dirichletcal),
}
# These take minutes with a hundred classes.
FEW_CLASSES = {"netcal beta": 20, "netcal logistic": 20, "venn-abers": 20}
PEERS: dict[str, Peer] = {name: run for name, (package, run) in ALL.items() if find_spec(package)}


def predict(name: str, p: Array, y: Array, p_test: Array) -> Array:
    """Probabilities of a peer, rows made to sum to 1; what it warns of is not shown."""
    bars = io.StringIO()
    with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.redirect_stderr(bars):
        warnings.simplefilter("ignore")
        found = np.clip(PEERS[name](p, y, p_test), 0.0, 1.0)
    return found / found.sum(axis=1, keepdims=True)
