"""The search of γ and T on the validation set."""

from __future__ import annotations

from refocal.evaluate import Evaluation
from refocal.report import charts
from refocal.report.section import Section, inline
from refocal.report.sentences import about_surface


def surface(evaluation: Evaluation) -> Section | None:
    """How γ and T were chosen, where a search looked at both."""
    if evaluation.surface is None:
        return None
    html = inline(f'<figure id="fig-surface" class="wide">{charts.surface(evaluation.surface)}</figure>')
    return Section("surface", "How γ and T were chosen", (about_surface(evaluation),), html)
