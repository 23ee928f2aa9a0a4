"""Continuing when one of several methods fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from refocal.calibrators.registry import NONE
from refocal.errors import RefocalError


class Failures:
    """The errors of methods that failed, by their names; an error of one that is needed is raised.

    Those are the uncalibrated model, the one that is shown in detail, and the last that has not failed.
    """

    def __init__(self, methods: Iterable[str], chosen: str | None) -> None:
        self.errors: dict[str, Exception] = {}
        self._methods, self._needed = {*methods} - {NONE}, {NONE, chosen}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Record an error and continue, unless the method is needed."""
        try:
            yield
        except Exception as error:
            if name in self._needed or self._methods - self.errors.keys() == {name}:
                raise
            self.errors[name] = error

    def reasons(self) -> dict[str, str]:
        """One line for each method that failed."""
        return {name: _line(error) for name, error in self.errors.items()}


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, RefocalError) else f"{type(error).__name__}: {text}"
