"""Batches that enter the test of a monitor together, in whatever order they are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from refocal.monitor.monitor import CalibrationMonitor


@contextmanager
def entering_together(monitor: CalibrationMonitor) -> Iterator[None]:
    """Within this context added batches wait; at its end they enter the test, period by period in the order of time.

    Files that match a pattern are in no order of time, and those of several regions have rows of the same days.

    >>> monitor = CalibrationMonitor()
    >>> with entering_together(monitor):
    ...     for day in ("day10", "day2"):
    ...         _ = monitor.update([0.2, 0.7], [0, 1], period=day)
    >>> [period for period, _ in monitor.evidence()]
    ['day2', 'day10']
    """
    monitor._gathered = []
    monitor._keys_together = []
    try:
        yield
        gathered = monitor._gathered
    finally:
        monitor._gathered = None
        monitor._keys_together = []
    if gathered:
        monitor._enter(gathered)
