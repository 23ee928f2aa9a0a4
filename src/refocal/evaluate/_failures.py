"""Continuing when one of several methods fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from refocal.errors import RefocalError


class Failures:
    """The errors of methods that failed, by their names."""

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}

    @contextmanager
    def of(self, name: str, *, needed: bool) -> Iterator[None]:
        """Record an error and continue, unless the method is needed."""
        try:
            yield
        except Exception as error:
            if needed:
                raise
            self.errors[name] = error

    def reasons(self) -> dict[str, str]:
        """One line for each method that failed."""
        return {name: _line(error) for name, error in self.errors.items()}


def is_last_hope(i: int, everything: Mapping[str, Any], done: Mapping[str, Any]) -> bool:
    """Whether no calibrator would be left if the one at position `i` failed; the first is the uncalibrated model."""
    return i == len(everything) - 1 and len(done) <= 1 and len(everything) > 1


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, RefocalError) else f"{type(error).__name__}: {text}"
