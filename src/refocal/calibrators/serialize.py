"""Calibrators as JSON: a few numbers that any program can read, and that loading never executes."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

import refocal
from refocal._files import write_atomically
from refocal.calibrators._base import Calibrator
from refocal.calibrators.focal import FocalCalibration, FocalTemperatureScaling, TemperatureScaling
from refocal.calibrators.focal_structured import FocalStructuredScaling
from refocal.calibrators.scaling import (
    AffineFamily,
    DirichletCalibration,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    VectorScaling,
)
from refocal.errors import FormatError
from refocal.search import Solution

FORMAT = "refocal-calibrator"
VERSION = 1
MAX_BYTES = 64 << 20
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
    )
}
# The numbers that make the calibrator, and the values that they must be greater than.
FITTED = {"gamma": -1.0, "temperature": 0.0}


def save(calibrator: Calibrator, path: str | os.PathLike[str]) -> None:
    """Write a fitted calibrator to a JSON file, whole or not at all."""
    text = json.dumps(to_dict(calibrator), indent=2, allow_nan=False)
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
    file = Path(path)
    if file.stat().st_size > MAX_BYTES:
        raise FormatError(f"{file}: a calibrator is a small JSON file; this one has {file.stat().st_size} bytes.")
    try:
        data = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise FormatError(f"{file}: not a JSON file that can be read: {error}.") from error
    except FormatError as error:
        raise FormatError(f"{file}: {error}") from error
    try:
        return from_dict(data)
    except FormatError as error:
        raise FormatError(f"{file}: {error}") from error


def to_dict(calibrator: Calibrator) -> dict[str, Any]:
    """A fitted calibrator as plain values."""
    check_is_fitted(calibrator)
    solution = calibrator.solution_
    return {
        "format": FORMAT,
        "version": VERSION,
        "refocal": refocal.__version__,
        "method": type(calibrator).__name__,
        "parameters": {name: _plain(value) for name, value in calibrator.get_params(deep=False).items()},
        "classes": calibrator.classes_.tolist(),
        "fitted": {name: getattr(calibrator, f"{name}_") for name in FITTED} | _front(calibrator),
        "search": {name: getattr(solution, name) for name in ("value", "status", "message", "passes")},
        "fit": calibrator.fit_report_,
    }


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
    fitted = _field(data, "fitted", dict)
    numbers = {name: _number(fitted, name, above) for name, above in FITTED.items()}
    classes = _classes(_field(data, "classes", list))
    search = _field(data, "search", dict)
    calibrator.classes_ = classes
    calibrator.n_features_in_ = len(classes)
    for name, value in numbers.items():
        setattr(calibrator, f"{name}_", value)
    calibrator.solution_ = Solution(
        **numbers,
        value=_number(search, "value", -math.inf),
        status=_field(search, "status", str),
        message=_field(search, "message", str),
        passes=_field(search, "passes", int),
    )
    calibrator.path_ = None
    calibrator.fit_report_ = _field(data, "fit", dict)
    if isinstance(calibrator, AffineFamily):
        calibrator.inner_temperature_ = _number(fitted, "inner_temperature", 0.0)
        calibrator.weights_ = _array(fitted, "weights", len(classes), (1, 2))
        calibrator.intercept_ = _array(fitted, "intercept", len(classes), (1,))
        calibrator.choice_ = _field(calibrator.fit_report_, "scaling", dict)
    return calibrator


def _front(calibrator: Calibrator) -> dict[str, Any]:
    """The affine map of a calibrator that has one. A float32 is written with as many digits as tell it apart."""
    if not isinstance(calibrator, AffineFamily):
        return {}
    arrays = {"weights": calibrator.weights_, "intercept": calibrator.intercept_}
    return {
        "inner_temperature": calibrator.inner_temperature_,
        **{name: array.astype(str).astype(np.float64).tolist() for name, array in arrays.items()},
    }


def _array(data: dict[str, Any], name: str, n_classes: int, axes: tuple[int, ...]) -> Any:
    """Finite float32 numbers, `n_classes` on each axis."""
    given = _field(data, name, list)
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(())
    fits = values.ndim in axes and set(values.shape) == {n_classes}
    if not (fits and np.abs(values).max() <= np.finfo(np.float32).max):
        raise FormatError(f"{name!r} must hold finite numbers, {n_classes} on each axis.")
    return values.astype(np.float32)


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


def _number(data: dict[str, Any], name: str, above: float) -> float:
    if name not in data:
        raise FormatError(f"the field {name!r} is missing.")
    value = data[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= above:
        raise FormatError(f"{name!r} must be a finite number greater than {above:g}. Got {value!r} instead.")
    return float(value)


def _classes(values: list[Any]) -> Any:
    kinds = {type(value) for value in values}
    if len(values) < 2 or len(set(map(repr, values))) < len(values) or kinds not in ({int}, {float}, {str}, {bool}):
        raise FormatError("'classes' must be two or more distinct numbers or names.")
    return np.array(values)


def _refuse_constant(name: str) -> Any:
    raise FormatError(f"{name} is not a number that a calibrator may hold.")
