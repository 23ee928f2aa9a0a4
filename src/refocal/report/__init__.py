"""Figures and a self-contained HTML page, from an Evaluation or a monitor and nothing else."""

from refocal.report.figures import plot_comparison, plot_confidence, plot_many, plot_reliability, plot_surface
from refocal.report.page import (
    render,
    render_monitor,
    write_monitor_page,
    write_report,
)

__all__ = [
    "plot_comparison",
    "plot_confidence",
    "plot_many",
    "plot_reliability",
    "plot_surface",
    "render",
    "render_monitor",
    "write_monitor_page",
    "write_report",
]
