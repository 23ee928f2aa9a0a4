"""Calibrators as JSON: a few numbers that any program can read, and that loading never executes."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

import refocal
from refocal._files import write_atomically
from refocal._json import read_json
from refocal.calibrators._base import Calibrator, checked_number
from refocal.calibrators.beta import BetaCalibration
from refocal.calibrators.binning import BayesianBinning, HistogramBinning
from refocal.calibrators.ensemble import EnsembleTemperatureScaling
from refocal.calibrators.focal import FocalCalibration, FocalTemperatureScaling, TemperatureScaling
from refocal.calibrators.focal_structured import FocalStructuredScaling
from refocal.calibrators.isotonic import IsotonicCalibration
from refocal.calibrators.logistic import LogisticCalibration
from refocal.calibrators.scaling import (
    DirichletCalibration,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    VectorScaling,
)
from refocal.calibrators.spline import SplineCalibration
from refocal.errors import FormatError
from refocal.fitting import Solution

FORMAT = "refocal-calibrator"
VERSION = 1
MAX_BYTES = 64 << 20
# Up to this size a file has a line for each number.
READABLE = 20_000
METHODS: dict[str, type[Calibrator]] = {
    kind.__name__: kind
    for kind in (
        TemperatureScaling,
        FocalCalibration,
        FocalTemperatureScaling,
        VectorScaling,
        MatrixScaling,
        DirichletCalibration,
        StructuredVectorScaling,
        StructuredMatrixScaling,
        FocalStructuredScaling,
        EnsembleTemperatureScaling,
        IsotonicCalibration,
        LogisticCalibration,
        HistogramBinning,
        BayesianBinning,
        BetaCalibration,
        SplineCalibration,
    )
}


def save(calibrator: Calibrator, path: str | os.PathLike[str]) -> None:
    """Write a fitted calibrator to a JSON file, whole or not at all."""
    data = to_dict(calibrator)
    text = json.dumps(data, allow_nan=False)
    if len(text) < READABLE:
        text = json.dumps(data, indent=2, allow_nan=False)
    if len(text) > MAX_BYTES:
        raise FormatError(f"{path}: the calibrator has {len(text):,} bytes as JSON, more than would be read again.")
    write_atomically(path, text + "\n")


def load(path: str | os.PathLike[str]) -> Calibrator:
    """Read a calibrator from a JSON file. Nothing is executed, and what does not fit is refused with its reason.

    >>> import tempfile, numpy as np
    >>> from refocal import TemperatureScaling, load
    >>> fitted = TemperatureScaling().fit(np.array([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), [0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fitted.save(f"{folder}/c.json")
    ...     load(f"{folder}/c.json").temperature_ == fitted.temperature_
    True
    """
    data = read_json(path, what="a calibrator", max_bytes=MAX_BYTES)
    try:
        return from_dict(data)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error


def to_dict(calibrator: Calibrator) -> dict[str, Any]:
    """A fitted calibrator as plain values."""
    check_is_fitted(calibrator)
    data = {
        "format": FORMAT,
        "version": VERSION,
        "refocal": refocal.__version__,
        "method": type(calibrator).__name__,
        "parameters": {name: _plain(value) for name, value in calibrator.get_params(deep=False).items()},
        "classes": calibrator.classes_.tolist(),
        "fitted": calibrator._state(),
    }
    if hasattr(calibrator, "solution_"):
        solution = calibrator.solution_
        data["search"] = {name: getattr(solution, name) for name in ("value", "status", "message", "passes")}
    return {**data, "fit": calibrator.fit_report_}


def from_dict(data: Any) -> Calibrator:
    """The calibrator that `to_dict` described."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise FormatError(f"not a calibrator: 'format' must be {FORMAT!r}.")
    if data.get("version") != VERSION:
        raise FormatError(f"version {data.get('version')!r} is not known here; this refocal reads version {VERSION}.")
    method = METHODS.get(_field(data, "method", str))
    if method is None:
        raise FormatError(f"unknown method {data['method']!r}; known are {', '.join(METHODS)}.")
    calibrator = method(**_parameters(method, _field(data, "parameters", dict)))
    classes = _classes(_field(data, "classes", list))
    calibrator.classes_ = classes
    calibrator.n_features_in_ = len(classes)
    calibrator.fit_report_ = _report(_field(data, "fit", dict))
    calibrator._restore(_field(data, "fitted", dict), len(classes))
    if "solution_" in _annotations(method):
        calibrator.solution_ = _solution(_field(data, "search", dict), calibrator)
    return calibrator


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return np.asarray(value, dtype=np.float64).tolist()


def _parameters(method: type[Calibrator], parameters: dict[str, Any]) -> dict[str, Any]:
    known = set(method._get_param_names())
    unknown = sorted(set(parameters) - known)
    if unknown:
        raise FormatError(f"unknown parameter {unknown[0]!r} of {method.__name__}.")
    return parameters


def _field(data: dict[str, Any], name: str, kind: type) -> Any:
    if name not in data:
        raise FormatError(f"the field {name!r} is missing.")
    value = data[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise FormatError(f"the field {name!r} must be of type {kind.__name__}. Got {type(value).__name__} instead.")
    return value


def _report(report: dict[str, Any]) -> dict[str, Any]:
    """The report of a fit, as far as it is shown: sizes, and measures before and after."""
    for name in ("n_samples", "n_classes"):
        _field(report, name, int)
    for name in ("before", "after"):
        for measure in _field(report, name, dict):
            checked_number(report[name], measure, above=-math.inf)
    return report


def _annotations(method: type[Calibrator]) -> set[str]:
    """The names of the fitted attributes that a method and its bases declare."""
    return {name for base in method.__mro__ for name in vars(base).get("__annotations__", {})}


def _solution(search: dict[str, Any], calibrator: Any) -> Solution:
    return Solution(
        gamma=getattr(calibrator, "gamma_", 0.0),
        temperature=calibrator.temperature_,
        value=checked_number(search, "value", above=-math.inf),
        status=_field(search, "status", str),
        message=_field(search, "message", str),
        passes=_field(search, "passes", int),
    )


def _classes(values: list[Any]) -> Any:
    kinds = {type(value) for value in values}
    if len(values) < 2 or len(set(map(repr, values))) < len(values) or kinds not in ({int}, {float}, {str}, {bool}):
        raise FormatError("'classes' must be two or more distinct numbers or names.")
    return np.array(values)
