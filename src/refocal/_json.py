"""JSON from files that may be damaged or hostile: bounded in size, every number finite, nothing executed."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from refocal.errors import FormatError

LARGEST_WHOLE = 2**63


def read_json(path: str | os.PathLike[str], *, what: str, max_bytes: int) -> Any:
    """What a file of JSON holds; `what` names in an error what it should have been."""
    file = Path(path)
    size = file.stat().st_size
    if size <= max_bytes:
        with file.open("rb") as content:
            data = content.read(max_bytes + 1)  # a pipe or a device has no size, and perhaps no end
        size = len(data)
    if size > max_bytes:
        raise FormatError(f"{file}: {what} is a small JSON file; this one has {size} bytes or more.")
    try:
        return parse_json(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FormatError(f"{file}: not a JSON file that can be read: {error}.") from error
    except FormatError as error:
        raise FormatError(f"{file}: {error}") from error


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
    # The length first: Python takes long over thousands of digits, and refuses more with an error of its own.
    if len(text) > len(str(-LARGEST_WHOLE)) or not -LARGEST_WHOLE <= int(text) < LARGEST_WHOLE:
        _refuse(f"A whole number of {len(text)} digits")
    return int(text)
