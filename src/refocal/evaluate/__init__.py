"""Evaluation of predictions and calibrators: every measure with its interval, for reports and JSON."""

from refocal.evaluate.compute import compare, evaluate
from refocal.evaluate.difference import Change, differences
from refocal.evaluate.evaluation import (
    ClassDetail,
    ClassRow,
    DecisionTable,
    Evaluation,
    GroupRow,
    Histogram,
    MapFacts,
    Measured,
    Reliability,
    SearchSurface,
    load_evaluation,
)
from refocal.evaluate.requirements import Check, check_requirements
from refocal.evaluate.summary import comparison_table, recommendation, verdict

__all__ = [
    "Change",
    "Check",
    "ClassDetail",
    "ClassRow",
    "DecisionTable",
    "Evaluation",
    "GroupRow",
    "Histogram",
    "MapFacts",
    "Measured",
    "Reliability",
    "SearchSurface",
    "check_requirements",
    "compare",
    "comparison_table",
    "differences",
    "evaluate",
    "load_evaluation",
    "recommendation",
    "verdict",
]
