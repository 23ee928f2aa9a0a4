"""Continuing when one of several methods fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from refocal.calibrators.registry import NONE
from refocal.errors import RefocalError


@dataclass
class Failures:
    """The methods that failed, by their names, and why; an error of one that is needed is raised.

    Those are the uncalibrated model, the one that is shown in detail, and the last that has not failed.
    """

    methods: Iterable[str]
    chosen: str | None
    reasons: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Record an error in one line and continue, unless the method is needed."""
        try:
            yield
        except Exception as error:
            if name in (NONE, self.chosen) or {*self.methods} - {NONE} - self.reasons.keys() == {name}:
                raise
            text = " ".join(str(error).split())
            self.reasons[name] = text if isinstance(error, RefocalError) else f"{type(error).__name__}: {text}"
