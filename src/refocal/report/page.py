"""One HTML file from an Evaluation or a monitor: no network, no other file, light and dark, on paper and telephones."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import refocal
from refocal._files import write_atomically
from refocal._pages import environment
from refocal.errors import DataError, ParameterError, ShapeError, need
from refocal.evaluate import Evaluation, ManyComparison, check_requirements, many_tables, standards, summary
from refocal.monitor import CalibrationMonitor
from refocal.monitor.backtest import Backtest
from refocal.report import charts, details
from refocal.shift.shares import Adaptation

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@cache
def templates() -> Environment:
    """The templates of the pages, with what they read an evaluation with."""
    made = environment("report/templates")
    made.globals |= {
        "charts": charts,
        "details": details,
        "many_tables": many_tables,
        "refocal": refocal,
        "standards": standards,
        "summary": summary,
    }
    made.filters |= {
        "capital": summary.capital,
        "interval_percent": summary.interval_percent,
        "is_off": summary.is_off,
        "percent": summary.percent,
        # No line ends between a number and its percent sign.
        "unbroken": lambda text: text.replace(" %", "\u00a0%"),
    }
    return made


def write_report(
    evaluation: Evaluation | Sequence[Evaluation] | ManyComparison,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    notes: str = "",
    require: Sequence[str] = (),
    over_time: bool = False,
) -> None:
    """Write the page, whole or not at all.

    Parameters
    ----------
    evaluation : Evaluation or several, or ManyComparison
        The evaluation to show; several are shown side by side, those of two classes only if their positive class is the
        same. A comparison of many networks has a page of its own.
    path : path-like
        Where to write it.
    title : str, optional
        A description of the predictions; by default the title of the evaluation.
    notes : str
        Markdown shown below the verdict.
    require : list of str
        Requirements such as "ece<2%" or "log_loss<=ts": `evaluate.check_requirements`.
    over_time : bool
        Whether several evaluations are of one model at one time after the other: each is then compared with the one
        before it.

    Examples
    --------
    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["fts-nll"], n_resamples=20)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(found, f"{folder}/report.html", title="my model", require=["ece<2%"])
    """
    write_atomically(path, render(evaluation, title=title, notes=notes, require=require, over_time=over_time))


def render(
    evaluation: Evaluation | Sequence[Evaluation] | ManyComparison,
    *,
    title: str | None = None,
    notes: str = "",
    require: Sequence[str] = (),
    over_time: bool = False,
) -> str:
    """The page as text; the arguments are those of `write_report`.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["fts-nll"], n_resamples=20)
    >>> render(found).startswith("<!doctype html>")
    True
    """
    if isinstance(evaluation, ManyComparison):
        if require:
            expected = "left out for a comparison of many networks"
            raise ParameterError("require", "render", expected=expected, got=repr(list(require)))
        shown = notes_html(notes) if notes else ""
        return fill(
            "many.html", title=title or evaluation.title, notes=shown, is_interactive=True, comparison=evaluation
        )
    evaluations = [evaluation] if isinstance(evaluation, Evaluation) else list(evaluation)
    if not evaluations:
        raise ShapeError("evaluation", "render", expected="one evaluation or several", got="none")
    for one in evaluations[1:]:
        details.check_same_terms(evaluations[0], one, "render")
    titles = [one.title for one in evaluations]
    numbered = [f"{name} ({i})" if titles.count(name) > 1 else name for i, name in enumerate(titles, 1)]
    titled = dict(zip(numbered, evaluations, strict=True))
    several = len(evaluations) > 1
    checks = [(name, check) for name, one in titled.items() for check in check_requirements(one, require)]
    common = set.intersection(*(set(one.after.measures) for one in evaluations)) - {"ece"}
    return fill(
        "several.html" if several else "evaluation.html",
        title=title or ", ".join(dict.fromkeys(titles)),
        notes=notes_html(notes) if notes else "",
        is_interactive=True,
        checks=[check._replace(text=f"{name}: {check.text}") if several else check for name, check in checks],
        found=evaluations[0],
        titled=titled,
        over_time=over_time,
        others=[metric for metric in summary.columns(evaluations[0]) if metric.name in common],
    )


def write_monitor_page(
    monitor: CalibrationMonitor, path: str | os.PathLike[str], *, title: str = "predictions"
) -> None:
    """Write the page of a monitor's history, which needs no JavaScript, whole or not at all.

    >>> import tempfile
    >>> monitor = CalibrationMonitor()
    >>> _ = monitor.update([0.2, 0.7, 0.4], [0, 1, 0], period="May"), monitor.update([0.3, 0.9], [0, 1], period="June")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_monitor_page(monitor, f"{folder}/monitor.html")
    """
    write_atomically(path, render_monitor(monitor, title=title))


def render_monitor(monitor: CalibrationMonitor, *, title: str = "predictions") -> str:
    """The page as text.

    >>> monitor = CalibrationMonitor()
    >>> _ = monitor.update([0.2, 0.7, 0.4], [0, 1, 0], period="May")
    >>> render_monitor(monitor, title="churn").startswith("<!doctype html>")
    True
    """
    history = monitor.history()
    if not history:
        raise DataError("monitor", "render_monitor", expected="one with labelled rows", got="a monitor without any")
    return fill("monitor.html", title=title, monitor=monitor, history=history)


def write_adaptation_page(found: Adaptation, path: str | os.PathLike[str], *, title: str = "calibrator") -> None:
    """Write the page of an adaptation to new class shares, whole or not at all."""
    write_atomically(path, fill("adaptation.html", title=title, found=found))


def write_backtest_page(found: Backtest, path: str | os.PathLike[str], *, title: str = "calibrator") -> None:
    """Write the page of a backtest of policies, whole or not at all."""
    write_atomically(path, fill("backtest.html", title=title, found=found))


def notebook_view(evaluation: Evaluation) -> str:
    """The verdict, two diagrams and the table, as a piece of HTML.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["fts-nll"], n_resamples=20)
    >>> notebook_view(found).count("<svg")
    2
    """
    return fill("notebook.html", found=evaluation)


def fill(template: str, **values: Any) -> str:
    """A page of `templates` with values; text is escaped, Markup is not."""
    return templates().get_template(template).render(contents=[], **values) + "\n"


def notes_html(text: str) -> Markup:
    r"""Markdown as HTML: markup in it stays text, and images, which a page would have to load, are left out.

    >>> notes_html("**Trained** on <b>May</b> data.")
    Markup('<p><strong>Trained</strong> on &lt;b&gt;May&lt;/b&gt; data.</p>\n')
    """
    markdown = need("markdown_it", "cli", "The notes of a report").MarkdownIt("js-default", {"linkify": False})
    from markupsafe import Markup

    html = markdown.disable("image").render(text)
    # The page has the only heading of the first level.
    below = re.sub(r"<(/?)h([1-5])>", lambda tag: f"<{tag[1]}h{int(tag[2]) + 1}>", html)
    return Markup(below)  # noqa: S704, markdown-it has escaped what stays text
