"""Calibration in production: batch by batch, with labels that come late, and an alarm that can be trusted."""

from refocal.monitor.monitor import Advice, CalibrationMonitor
from refocal.monitor.periods import WindowSummary

__all__ = ["Advice", "CalibrationMonitor", "WindowSummary"]
