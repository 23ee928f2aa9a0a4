"""Optional libraries, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from refocal.errors import MissingExtraError


def need(module: str, extra: str, what: str) -> Any:
    """A module, or an error that names what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(what, extra, module.partition(".")[0]) from error
