"""From predictions and calibrators to numbers: every measure with its interval, ready for reports and for JSON."""

from refocal.evaluate.compute import compare, evaluate
from refocal.evaluate.evaluation import (
    ClassDetail,
    ClassRow,
    Evaluation,
    Histogram,
    MapFacts,
    Measured,
    Reliability,
    SearchSurface,
    load_evaluation,
)
from refocal.evaluate.summary import comparison_table, recommendation, verdict

__all__ = [
    "ClassDetail",
    "ClassRow",
    "Evaluation",
    "Histogram",
    "MapFacts",
    "Measured",
    "Reliability",
    "SearchSurface",
    "compare",
    "comparison_table",
    "evaluate",
    "load_evaluation",
    "recommendation",
    "verdict",
]
