"""Figures and a self-contained HTML page, from an Evaluation and nothing else."""

from refocal.report.figures import plot_comparison, plot_confidence, plot_reliability, plot_surface
from refocal.report.monitor_page import render_monitor, write_monitor_page
from refocal.report.page import render, write_report

__all__ = [
    "plot_comparison",
    "plot_confidence",
    "plot_reliability",
    "plot_surface",
    "render",
    "render_monitor",
    "write_monitor_page",
    "write_report",
]
