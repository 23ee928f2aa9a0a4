"""A fitted calibrator as a piece of HTML, which notebooks show: its parameters, its measures, a chart of its map."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from refocal._svg import Axes, Color, Line, Plot
from refocal.calibrators.description import describe, report_rows
from refocal.maps import log_softmax
from refocal.maps.chain import Chain


def map_chart(chain: Chain, n_classes: int) -> str:
    """The calibrated probability of a class while the others are equally probable: one curve per class.

    >>> from refocal.maps.steps import Temperature
    >>> map_chart(Chain((Temperature(2.0),)), 3).count("<path")
    3
    """
    most_classes = 10  # more curves would be unreadable
    log_odds = np.linspace(-7.0, 7.0, 57)  # at which the map is drawn: probabilities from 0.001 to 0.999
    diagonal = Line([0, 1], [0, 1], dash="4 3")
    plot = Plot((0, 1), (0, 1), [Axes("probability before", "after"), diagonal], size=(320, 280))
    n_shown = min(n_classes, most_classes)
    curves = {}
    for label in range(n_shown):
        logits = np.zeros((len(log_odds), n_classes))
        logits[:, label] = log_odds + np.log(n_classes - 1)
        before = np.exp(np.asarray(log_softmax(logits))[:, label])
        after = np.exp(np.asarray(chain.log_probabilities(logits))[:, label])
        curves[tuple(after.round(4).tolist())] = before  # classes with the same curve share one
    width = 1.6 if len(curves) == 1 else 0.9
    for after, before in curves.items():
        plot.marks.append(Line(before.tolist(), after, Color.FIRST, width))
    if len(curves) == 1:
        shown = "all classes"
    elif n_shown < n_classes:
        shown = f"{n_shown} of {n_classes} classes"
    else:
        shown = "each class"
    plot.description = f"The probability of a class after calibration against that before it, of {shown}."
    return plot.svg()


def html_of_fit(chain: Chain, report: dict[str, Any], has_chart: bool) -> str:
    """The fitted parameters, a table of the measures, and a chart of the map unless the model is multi-label."""
    fitted_on, rows = report_rows(report)
    headings = (fitted_on, "before", "after") if rows else (fitted_on,)
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    chart = f'<div style="max-width:20rem">{map_chart(chain, report["n_classes"])}</div>' if has_chart else ""
    side_by_side = f'<div style="display:flex;flex-wrap:wrap;gap:1.5rem;align-items:start">{table}{chart}</div>'
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in report.get("sentences", ()))
    return f"<p>{escape(describe(chain))}</p>{side_by_side}{sentences}"
