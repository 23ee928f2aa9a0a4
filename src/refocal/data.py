"""A former name of `refocal.io`."""

from typing import Any
from warnings import warn

from refocal import io


def __getattr__(name: str) -> Any:
    if name not in io.__all__:
        raise AttributeError(f"module 'refocal.io' has no attribute {name!r}")
    warn("refocal.data and refocal.scale are now refocal.io.", DeprecationWarning, stacklevel=2)
    return getattr(io, name)
