"""refocal turns the logits of any classifier into probabilities that can be trusted.

Importing it loads NumPy and nothing heavy: each subpackage is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what editors and type checkers see
    from . import (  # noqa: F401
        calibrators,
        decide,
        decomposition,
        detection,
        engine,
        errors,
        evaluate,
        explore,
        export,
        fitting,
        forensics,
        io,
        losses,
        maps,
        metrics,
        monitor,
        nn,
        report,
        rows,
        segments,
        shift,
        theory,
    )
    from .calibrators import *  # noqa: F403

_MODULES = {name for _, name, _ in iter_modules(__path__) if not name.startswith("_")}  # noqa: F405


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"refocal.{name}")
    if name == "__version__":
        return _version()
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module 'refocal' has no attribute {name!r}")
    calibrators = import_module("refocal.calibrators")
    if name == "__all__":
        # Without the program; `from refocal import *` works without torch, which refocal.nn needs.
        offered = _MODULES - {"cli"} - (set() if find_spec("torch") else {"nn"})
        return ["__version__", *sorted(offered), *sorted(calibrators.__all__)]
    if name in calibrators.__all__:
        return getattr(calibrators, name)
    raise AttributeError(f"module 'refocal' has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("refocal")
    except PackageNotFoundError:  # run from the sources, not installed
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted(__getattr__("__all__"))
