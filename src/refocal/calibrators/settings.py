"""The settings of a method, fields of a dataclass that say which values they may have, and its fitted numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, TypeVar, cast

import numpy as np

from refocal._validation import check_integer, check_number, check_option
from refocal.errors import ParameterError
from refocal.maps.chain import Step

SettingT = TypeVar("SettingT")


def option(*options: str) -> Any:
    """One of a few words, by default the first."""
    return _field(options[0], lambda value, *of: check_option(value, options, *of))


def flag(default: bool) -> Any:
    """True or False: a word, such as "no", would count as true."""

    def check(value: Any, argument: str, function: str) -> None:
        if np.ndim(value) > 0 or value not in (True, False):
            raise ParameterError(argument, function, expected="True or False", got=repr(value))

    return _field(default, check)


def integer(default: int, *, least: int = 1) -> Any:
    """An integer of at least `least`."""
    return _field(default, lambda value, *of: check_integer(value, *of, least=least))


def number(default: Any, *, also: Any = ..., **bounds: Any) -> Any:
    """A finite number within the bounds of `check_number`, or `also`, a word or None."""
    words = "" if also is ... else f"{also!r} or "

    def check(value: Any, *of: str) -> None:
        if not (isinstance(value, str | None) and value == also):
            check_number(value, *of, **bounds, also=words)

    return _field(default, check)


def _field(default: Any, check: Callable[..., Any]) -> Any:
    """A setting with the check of its value that `Calibrator.fit` makes.

    >>> from refocal.calibrators import SplineCalibration
    >>> SplineCalibration(n_knots=1).fit([[0.0, 1.0]], [0])
    Traceback (most recent call last):
    refocal.errors.ParameterError: The 'n_knots' of SplineCalibration must be an integer of at least 2. Got 1 instead.
    """
    return field(default=default, metadata={"check": check})


def fitted(kind: type[Step], name: str, read: Callable[[Any], SettingT], doc: str, default: Any = None) -> SettingT:
    """A fitted attribute, read from a parameter of the first step of this kind in the chain; else from the default.

    >>> from refocal.calibrators import EnsembleTemperatureScaling
    >>> EnsembleTemperatureScaling.temperature_.__doc__
    'T of the first member.'
    """
    return cast(SettingT, property(lambda calibrator: read(calibrator.chain_.find(kind, name, default)), doc=doc))
