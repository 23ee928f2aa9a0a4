"""JSON from files that may be damaged or hostile: bounded in size, every number finite, nothing executed."""

from __future__ import annotations

import json
import math
import os
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from refocal.errors import FormatError

T = TypeVar("T")


def read_json(path: str | os.PathLike[str], make: Callable[[Any], T], *, what: str, max_bytes: int) -> T:
    """The result of `make` for the contents of a JSON file; `what` names in an error what the file should be."""
    file = Path(path)
    with file.open("rb") as content:
        data = content.read(max_bytes + 1)  # a pipe or a device has no size, and perhaps no end
    if len(data) > max_bytes:
        size = max(len(data), file.stat().st_size)
        raise FormatError(f"{file}: {what} is a small JSON file; this one has {size} bytes or more.")
    try:
        return make(parse_json(data.decode("utf-8")))
    except UnicodeDecodeError as error:
        raise FormatError(f"{file}: not a JSON file that can be read: {error}.") from error
    except FormatError as error:
        raise FormatError(f"{file}: {error}") from error


# What null stands for in these fields of an interval: that of a single row has no ends.
ENDLESS = {"low": -math.inf, "high": math.inf, "standard_error": math.inf}


def to_json(data: Any, **layout: Any) -> str:
    """The text of results, in which ends that an interval does not have are null; other numbers must be finite.

    >>> to_json({"value": 0.5, "low": -math.inf, "high": 1.0})
    '{"value": 0.5, "low": null, "high": 1.0}'
    """
    return json.dumps(_without_ends(data), allow_nan=False, **layout)


def _without_ends(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: None if _is_no_end(key, value) else _without_ends(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_without_ends(entry) for entry in data]
    return data


def _is_no_end(name: Any, value: Any) -> bool:
    return name in ENDLESS and isinstance(value, float) and not math.isfinite(value)


def without_format(data: Any, what: str, name: str, *versions: int) -> dict[str, Any]:
    """The other fields of an object whose fields `format` and `version` are as they should be."""
    if not isinstance(data, dict) or data.get("format") != name:
        raise FormatError(f"not {what}: 'format' must be {name!r}.")
    if data.get("version") not in versions:
        known = f"version{'s' if len(versions) > 1 else ''} {' and '.join(map(str, versions))}"
        raise FormatError(f"version {data.get('version')!r} is not known; this refocal reads {known}.")
    return {key: value for key, value in data.items() if key not in ("format", "version")}


def parse_json(text: str) -> Any:
    """The value of a text. NaN, infinities and whole numbers of more than 64 bits are refused: a float holds the rest.

    >>> parse_json('{"temperature": 1.5}')
    {'temperature': 1.5}
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite, parse_int=_whole)
    except (json.JSONDecodeError, RecursionError) as error:
        raise FormatError(f"not a JSON file that can be read: {error}.") from error


def _refuse(name: str) -> Any:
    raise FormatError(f"{name} is not a number that such a file may hold.")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _refuse("Infinity")
    return value


def _whole(text: str) -> int:
    largest_whole = 2**63  # of 64 bits, as other programs read them
    # The length first: Python takes long over thousands of digits, and refuses more with an error of its own.
    if len(text) > len(str(-largest_whole)) or not -largest_whole <= int(text) < largest_whole:
        _refuse(f"A whole number of {len(text)} digits")
    return int(text)


def build(kind: type[T], data: Any, where: str) -> T:
    """A dataclass from an object with its fields, all the way down; `where` names it in errors."""
    hints = typing.get_type_hints(kind)
    known = fields(kind)  # type: ignore[arg-type]
    names = {entry.name for entry in known}
    needed = {entry.name for entry in known if entry.default is entry.default_factory is MISSING}
    if not isinstance(data, dict) or not needed <= set(data) <= names:
        given = set(data) if isinstance(data, dict) else set()
        odd = next(iter(sorted((needed - given) | (given - names))), "")
        raise FormatError(f"{where} must have the fields of {kind.__name__}; {odd!r} is missing or not one of them.")
    values = {}
    for name, value in data.items():
        is_endless = value is None and name in ENDLESS and hints[name] is float
        values[name] = ENDLESS[name] if is_endless else _value(hints[name], value, f"{where}.{name}")
    return kind(**values)


def _value(kind: Any, value: Any, where: str) -> Any:
    """`value` as the annotation `kind` says."""
    if kind is Any:
        return value
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _value(arguments[0], value, where)
    if is_dataclass(kind):
        return build(kind, value, where)  # type: ignore[arg-type]
    wanted = origin or kind
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise FormatError(f"{where} must be of type {wanted.__name__}. Got {type(value).__name__} instead.")
    if origin is list:
        return [_value(arguments[0], entry, f"{where}[{i}]") for i, entry in enumerate(value)]
    if origin is dict:
        return {key: _value(arguments[1], entry, f"{where}.{key}") for key, entry in value.items()}
    return value


def field(data: dict[str, Any], name: str, kind: type) -> Any:
    """An entry of an object, of this type."""
    if name not in data:
        raise FormatError(f"the field {name!r} is missing.")
    return _value(kind, data[name], f"the field {name!r}")


def number(data: dict[str, Any], name: str) -> float:
    """A number of an object; those that are not finite have been refused before."""
    value = field(data, name, object)
    if type(value) not in (int, float):
        raise FormatError(f"the field {name!r} must be a number. Got {value!r} instead.")
    return float(value)
