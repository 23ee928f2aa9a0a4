"""Monitoring of calibration in production: batches, delayed labels, and an alarm of known false-alarm rate."""

from refocal.monitor.monitor import Advice, CalibrationMonitor
from refocal.monitor.periods import WindowSummary

__all__ = ["Advice", "CalibrationMonitor", "WindowSummary"]
