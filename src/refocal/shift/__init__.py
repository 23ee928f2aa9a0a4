"""Calibration after the world has changed: new class shares, expected performance without labels, small updates."""

from refocal.shift.correction import OnlineUpdate, update
from refocal.shift.performance import estimate_performance
from refocal.shift.shares import adapt

__all__ = [
    "OnlineUpdate",
    "adapt",
    "estimate_performance",
    "update",
]
