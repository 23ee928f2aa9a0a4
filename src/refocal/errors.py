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


def _rebuild(kind: type[InputError], argument: str, function: str, expected: str, got: str) -> InputError:
    return kind(argument, function, expected=expected, got=got)
