"""Monitoring of calibration in production: batches, delayed labels, and an alarm of known false-alarm rate."""

from refocal.monitor.advice import Advice, ExpectedPerformance, PresentState, Trust
from refocal.monitor.history import Alarm, WindowSummary
from refocal.monitor.monitor import CalibrationMonitor

__all__ = [
    "Advice",
    "Alarm",
    "CalibrationMonitor",
    "ExpectedPerformance",
    "PresentState",
    "Trust",
    "WindowSummary",
]
