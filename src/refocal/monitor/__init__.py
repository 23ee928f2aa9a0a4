"""Monitoring of calibration in production: batches, delayed labels, and an alarm of known false-alarm rate."""

from refocal.monitor.advice import Advice
from refocal.monitor.backtest import backtest
from refocal.monitor.monitor import CalibrationMonitor
from refocal.monitor.period_sums import WindowSummary
from refocal.monitor.policies import AtAlarm, Forgetting, Keep, Window, usual_policies

__all__ = [
    "Advice",
    "AtAlarm",
    "CalibrationMonitor",
    "Forgetting",
    "Keep",
    "Window",
    "WindowSummary",
    "backtest",
    "usual_policies",
]
