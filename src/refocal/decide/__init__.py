"""Decisions from probabilities: actions of least cost, what they cost, and how much can be automated."""

from refocal.decide.costs import ABSTAIN, Decisions, abstention_interval, best_actions, cost_matrix, optimal_threshold
from refocal.decide.outcome import (
    AutomationCurve,
    DecisionReport,
    NetBenefitCurve,
    automation_curve,
    evaluate_decisions,
    net_benefit_curve,
)

__all__ = [
    "ABSTAIN",
    "AutomationCurve",
    "DecisionReport",
    "Decisions",
    "NetBenefitCurve",
    "abstention_interval",
    "automation_curve",
    "best_actions",
    "cost_matrix",
    "evaluate_decisions",
    "net_benefit_curve",
    "optimal_threshold",
]
