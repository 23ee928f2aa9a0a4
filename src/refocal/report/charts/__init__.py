"""The charts of pages and figures, as data: every mark says its numbers, every chart says in words what it shows."""

from refocal.report.charts.diagrams import (
    confidence,
    costs,
    feature_bias,
    flexible_curve,
    highest_bar,
    highest_point,
    reliability,
)
from refocal.report.charts.methods import comparison, intervals, many_differences, mean_ranks, near_range
from refocal.report.charts.monitoring import evidence, loss, rates, savings
from refocal.report.charts.search import surface, tolerance_of

__all__ = [
    "comparison",
    "confidence",
    "costs",
    "evidence",
    "feature_bias",
    "flexible_curve",
    "highest_bar",
    "highest_point",
    "intervals",
    "loss",
    "many_differences",
    "mean_ranks",
    "near_range",
    "rates",
    "reliability",
    "savings",
    "surface",
    "tolerance_of",
]
