"""Decisions from probabilities: actions of least cost, what they cost, and how much can be automated."""

from refocal.decide.actions import ABSTAIN, Decisions, best_actions
from refocal.decide.automation import AutomationCurve, automation_curve
from refocal.decide.costs import abstention_interval, cost_matrix, optimal_threshold
from refocal.decide.evaluation import DecisionReport, evaluate_decisions
from refocal.decide.groups import GroupDecisions
from refocal.decide.net_benefit import NetBenefitCurve, net_benefit_curve
from refocal.decide.predictive import PredictiveValues, predictive_values

__all__ = [
    "ABSTAIN",
    "AutomationCurve",
    "DecisionReport",
    "Decisions",
    "GroupDecisions",
    "NetBenefitCurve",
    "PredictiveValues",
    "abstention_interval",
    "automation_curve",
    "best_actions",
    "cost_matrix",
    "evaluate_decisions",
    "net_benefit_curve",
    "optimal_threshold",
    "predictive_values",
]
