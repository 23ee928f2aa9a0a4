"""The sections of the page, in their order. To add one, write a function (Evaluation) -> Section | None and list it."""

from __future__ import annotations

from collections.abc import Callable

from refocal.evaluate import Evaluation
from refocal.report.section import Section
from refocal.report.sections.classes import classes
from refocal.report.sections.confidence import confidence
from refocal.report.sections.decisions import decisions
from refocal.report.sections.groups import groups
from refocal.report.sections.methods import methods
from refocal.report.sections.reliability import reliability
from refocal.report.sections.run import run
from refocal.report.sections.surface import surface
from refocal.report.sections.use import use

SECTIONS: tuple[Callable[[Evaluation], Section | None], ...] = (
    reliability,
    groups,
    methods,
    confidence,
    decisions,
    classes,
    surface,
    use,
    run,
)
