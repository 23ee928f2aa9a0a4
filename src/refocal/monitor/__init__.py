"""Monitoring of calibration in production: batches, delayed labels, and an alarm of known false-alarm rate."""

from refocal.monitor.history import WindowSummary
from refocal.monitor.monitor import Advice, CalibrationMonitor

__all__ = ["Advice", "CalibrationMonitor", "WindowSummary"]
