"""Monitoring of calibration in production: batches, delayed labels, and an alarm of known false-alarm rate."""

from refocal.monitor.advice import Advice, ExpectedPerformance, PresentState, Trust
from refocal.monitor.backtest import Backtest, PolicyResult, backtest
from refocal.monitor.history import Alarm, WindowSummary
from refocal.monitor.monitor import CalibrationMonitor
from refocal.monitor.policies import AtAlarm, Forgetting, Keep, Policy, Window, usual_policies

__all__ = [
    "Advice",
    "Alarm",
    "AtAlarm",
    "Backtest",
    "CalibrationMonitor",
    "ExpectedPerformance",
    "Forgetting",
    "Keep",
    "Policy",
    "PolicyResult",
    "PresentState",
    "Trust",
    "Window",
    "WindowSummary",
    "backtest",
    "usual_policies",
]
