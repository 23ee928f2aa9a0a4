"""Calibrators as JSON: a few numbers that any program can read, and that loading never executes."""

from __future__ import annotations

import json
import os
from dataclasses import Field, fields
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

import refocal
from refocal._files import write_atomically
from refocal._json import read_json
from refocal.calibrators._base import Calibrator
from refocal.calibrators._fitted import Fitted, focal_point
from refocal.calibrators._version_1 import chain_of as chain_of_version_1
from refocal.calibrators.registry import kinds
from refocal.errors import FormatError, ParameterError
from refocal.fitting import Solution
from refocal.maps.steps import Chain, Step

FORMAT = "refocal-calibrator"
VERSION = 2
MAX_BYTES = 64 << 20
# Up to this size a file has a line for each number.
READABLE = 20_000


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
        "chain": [step_to_dict(step) for step in calibrator.chain_.steps],
    }
    if hasattr(calibrator, "solution_"):
        solution = calibrator.solution_
        data["search"] = {name: getattr(solution, name) for name in ("value", "status", "message", "passes")}
    return {**data, "fit": calibrator.fit_report_}


def from_dict(data: Any) -> Calibrator:
    """The calibrator that `to_dict` described."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise FormatError(f"not a calibrator: 'format' must be {FORMAT!r}.")
    version = data.get("version")
    if version not in (1, VERSION):
        raise FormatError(f"version {version!r} is not known here; this refocal reads versions 1 and {VERSION}.")
    method = kinds().get(_field(data, "method", str))
    if method is None:
        raise FormatError(f"unknown method {data['method']!r}; known are {', '.join(kinds())}.")
    calibrator = method(**_parameters(method, _field(data, "parameters", dict)))
    classes = _classes(_field(data, "classes", list))
    report = _report(_field(data, "fit", dict))
    chain = _chain(data, calibrator, len(classes))
    solution = _solution(_field(data, "search", dict), chain) if "search" in data else None
    calibrator._set_fitted(Fitted(chain, solution), classes, report)
    return calibrator


def _chain(data: dict[str, Any], calibrator: Calibrator, n_classes: int) -> Chain:
    """The chain of a file, refused where no fit can have found it."""
    try:
        if data["version"] == 1:
            chain = chain_of_version_1(_field(data, "fitted", dict), calibrator)
        else:
            chain = Chain(tuple(step_from_dict(each) for each in _field(data, "chain", list)))
        chain.check(n_classes)
    except KeyError as error:
        raise FormatError(f"the field {error} is missing.") from error
    except ParameterError as error:
        raise FormatError(str(error)) from error
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"the fitted numbers are damaged: {error}.") from error
    return chain


def step_to_dict(step: Step) -> dict[str, Any]:
    """A step as plain values, its name first."""
    return {"step": type(step).__name__, **{each.name: _value(getattr(step, each.name)) for each in fields(step)}}


def step_from_dict(data: Any) -> Step:
    """The step that `step_to_dict` described."""
    known = {kind.__name__: kind for kind in Step.__subclasses__()}
    if not isinstance(data, dict) or data.get("step") not in known:
        raise FormatError(f"a step must be one of {', '.join(sorted(known))}. Got {data!r:.80} instead.")
    kind = known[data["step"]]
    wanted = {each.name: each for each in fields(kind)}
    unknown = sorted(set(data) - {"step", *wanted})
    if unknown:
        raise FormatError(f"unknown field {unknown[0]!r} of the step {kind.__name__}.")
    return kind(**{name: _read_value(data, name, each) for name, each in wanted.items()})


def _value(value: Any) -> Any:
    if isinstance(value, Step):
        return step_to_dict(value)
    if isinstance(value, tuple):
        return [step_to_dict(step) for step in value]
    if isinstance(value, np.ndarray):
        # A float32 is written with as many digits as tell it apart.
        return (value.astype(str).astype(np.float64) if value.dtype == np.float32 else value).tolist()
    return value


def _read_value(data: dict[str, Any], name: str, each: Field[Any]) -> Any:
    if "above" in each.metadata:
        value = _field(data, name, object)
        return float(value) if type(value) in (int, float) else value  # which `check` refuses
    if "dtype" in each.metadata:
        entries = _field(data, name, list)
        try:
            values = np.asarray(entries)
        except ValueError:  # rows of different lengths
            values = np.empty(0, dtype=object)
        if values.dtype.kind not in "if":
            raise FormatError(f"the field {name!r} must hold numbers alone, in rows of equal length.")
        with np.errstate(over="ignore"):
            return values.astype(each.metadata["dtype"])
    if each.type == "str":
        return _field(data, name, str)
    if each.type == "Step":
        return step_from_dict(_field(data, name, dict))
    return tuple(step_from_dict(step) for step in _field(data, name, list))


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
            _number(report[name], measure)
    return report


def _solution(search: dict[str, Any], chain: Chain) -> Solution:
    gamma, temperature = focal_point(chain)
    return Solution(
        gamma=gamma,
        temperature=temperature,
        value=_number(search, "value"),
        status=_field(search, "status", str),
        message=_field(search, "message", str),
        passes=_field(search, "passes", int),
    )


def _number(data: dict[str, Any], name: str) -> float:
    value = _field(data, name, object)
    if type(value) not in (int, float):  # all of them are finite: `read_json` sees to it
        raise FormatError(f"the field {name!r} must be a number. Got {value!r} instead.")
    return float(value)


def _classes(values: list[Any]) -> Any:
    kinds = {type(value) for value in values}
    if len(values) < 2 or len(set(map(repr, values))) < len(values) or kinds not in ({int}, {float}, {str}, {bool}):
        raise FormatError("'classes' must be two or more distinct numbers or names.")
    return np.array(values)
