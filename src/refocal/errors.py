"""The exceptions that refocal raises.

Every complaint about what a caller passed in is an `InputError`, which is also a `ValueError`, and reads
"The 'gamma' of focal must be greater than -1. Got -2.0 instead."
"""

from __future__ import annotations


class RefocalError(Exception):
    """The root of every exception that refocal raises on purpose."""


class ConvergenceError(RefocalError, ArithmeticError):
    """An iteration ended without an answer."""


class InputError(RefocalError, ValueError):
    """An argument is not what the function needs; knows which, what was expected and what came."""

    def __init__(self, argument: str, function: str, *, expected: str, got: str) -> None:
        self.argument = argument
        self.function = function
        self.expected = expected
        self.got = got
        super().__init__(argument, function, expected, got)

    def __str__(self) -> str:
        return f"The '{self.argument}' of {self.function} must be {self.expected}. Got {self.got} instead."

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.argument, self.function, self.expected, self.got)


class ParameterError(InputError):
    """A setting lies outside its domain: gamma ≤ -1, a temperature ≤ 0, an unknown option."""


class ShapeError(InputError):
    """An array has the wrong number of axes, or sizes that do not match."""


class DataError(InputError):
    """An array holds values that cannot be used: NaN, +inf, the wrong kind of number."""


class LabelError(InputError):
    """Labels are not integers, or name a class that does not exist."""


class FormatError(RefocalError, ValueError):
    """A file is not what it should be: not a calibrator, cut short, of an unknown version, with impossible values."""


class UnsupportedError(RefocalError, TypeError):
    """What was asked for does not exist for this kind of object; the message names what does."""


class MissingExtraError(RefocalError, ImportError):
    """A room needs a library that is not installed; the message says what to install."""

    def __init__(self, room: str, extra: str, missing: str) -> None:
        self.room, self.extra, self.missing = room, extra, missing
        super().__init__(room, extra, missing)

    def __str__(self) -> str:
        return (
            f"{self.room} needs {self.missing}, which is not installed. "
            f"Install it with: pip install 'refocal[{self.extra}]'"
        )


class ClusterError(RefocalError, ConnectionError):
    """A scheduler cannot be reached, or its workers did not live to give an answer."""


class InputWarning(UserWarning):
    """What came in can be used, but is probably not what was meant."""


def _rebuild(kind: type[InputError], argument: str, function: str, expected: str, got: str) -> InputError:
    return kind(argument, function, expected=expected, got=got)
