"""Limits on memory that suit any machine, and the environment variables that change them.

They are read when they are used, so that a program may set them; processes that it starts inherit them.
"""

from __future__ import annotations

import os

from refocal.errors import ParameterError


def limit(variable: str, default: int) -> int:
    """The whole number that an environment variable holds; the default where it is not set or empty.

    >>> os.environ["REFOCAL_LARGE_FILE"] = "4_000_000"
    >>> limit("REFOCAL_LARGE_FILE", 1 << 30)
    4000000
    >>> del os.environ["REFOCAL_LARGE_FILE"]
    >>> limit("REFOCAL_LARGE_FILE", 1 << 30) == 1 << 30
    True
    """
    text = os.environ.get(variable)
    if not text:
        return default
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ParameterError(variable, "the environment", expected="a whole number of at least 1", got=repr(text))
    return number


def block_entries() -> int:
    """How many numbers a block of rows has that is read at a time: many beside Python's overhead, few in any memory."""
    return limit("REFOCAL_BLOCK_ENTRIES", 1 << 24)


def large_file() -> int:
    """The number of bytes from which a file is gone through in blocks instead of being read whole."""
    return limit("REFOCAL_LARGE_FILE", 1 << 30)
