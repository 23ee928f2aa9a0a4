"""Conversion of steps to plain values and back, with checks of the contents of a file."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any

import numpy as np

from refocal.errors import FormatError
from refocal.maps.chain import Step


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
        # A float32 is written with just enough digits to identify it.
        return (value.astype(str).astype(np.float64) if value.dtype == np.float32 else value).tolist()
    return value


def _read_value(data: dict[str, Any], name: str, each: Field[Any]) -> Any:
    if "above" in each.metadata:
        value = field(data, name, object)
        return float(value) if type(value) in (int, float) else value  # which `check` refuses
    if "dtype" in each.metadata:
        entries = field(data, name, list)
        try:
            values = np.asarray(entries)
        except ValueError:  # rows of different lengths
            values = np.empty(0, dtype=object)
        if values.dtype.kind not in "if":
            raise FormatError(f"the field {name!r} must hold numbers alone, in rows of equal length.")
        with np.errstate(over="ignore"):
            return values.astype(each.metadata["dtype"])
    if each.type == "str":
        return field(data, name, str)
    if each.type == "Step":
        return step_from_dict(field(data, name, dict))
    return tuple(step_from_dict(step) for step in field(data, name, list))


def field(data: dict[str, Any], name: str, kind: type) -> Any:
    if name not in data:
        raise FormatError(f"the field {name!r} is missing.")
    value = data[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise FormatError(f"the field {name!r} must be of type {kind.__name__}. Got {type(value).__name__} instead.")
    return value


def number(data: dict[str, Any], name: str) -> float:
    value = field(data, name, object)
    if type(value) not in (int, float):  # `read_json` has refused numbers that are not finite
        raise FormatError(f"the field {name!r} must be a number. Got {value!r} instead.")
    return float(value)
