"""The sections of the page, in their order. To add one, write a function (Evaluation) -> Section | None and list it."""

from __future__ import annotations

from collections.abc import Callable

from refocal.evaluate import Evaluation
from refocal.report.section import Section
from refocal.report.sections.decisions import decisions
from refocal.report.sections.diagrams import confidence, reliability, surface
from refocal.report.sections.tables import classes, groups, methods, run
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
