"""Calibration after the world has changed: new class shares, expected performance without labels, small updates."""

from refocal.shift.correction import OnlineUpdate, update
from refocal.shift.performance import Performance, estimate_performance
from refocal.shift.shares import Adaptation, LabelShiftTest, adapt

__all__ = [
    "Adaptation",
    "LabelShiftTest",
    "OnlineUpdate",
    "Performance",
    "adapt",
    "estimate_performance",
    "update",
]
