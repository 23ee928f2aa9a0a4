"""The history of a CalibrationMonitor as one HTML file, which needs no JavaScript."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence

from refocal._files import write_atomically
from refocal._svg import FIRST, SECOND, Axes, Line, Plot, Point, Text
from refocal.errors import DataError
from refocal.evaluate.phrases import interval_percent, percent
from refocal.monitor import CalibrationMonitor, WindowSummary
from refocal.report.page import fill

SIZE, MARGINS = (440.0, 260.0), (60.0, 12.0, 16.0, 44.0)
# An e-value beyond this is shown as this.
LARGEST_E = 1e12


def write_monitor_page(
    monitor: CalibrationMonitor, path: str | os.PathLike[str], *, title: str = "predictions"
) -> None:
    """Write the page of a monitor's history, whole or not at all.

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
    return fill(
        "monitor.html",
        title=title,
        monitor=monitor,
        history=history,
        rates=_rates(history, *monitor.compared),
        evidence=_evidence(monitor),
        log_loss=_loss(history, "Log-loss", [each.log_loss for each in history]),
        ece=_loss(history, "ECE", [each.ece for each in history], [each.ece_by_chance for each in history]),
        periods=periods_table(history[::-1], monitor.compared),
    )


def _rates(history: list[WindowSummary], what: str, outcome: str) -> Plot:
    ends = [*(each.mean_p for each in history), *(x for each in history for x in (each.rate.low, each.rate.high))]
    plot = _plot(history, ends, f"{what} (line) and {outcome}")
    plot.description = f"{what} and {outcome} of {len(history)} periods; the table below has the numbers."
    plot.marks += _line([each.mean_p for each in history])
    for i, each in enumerate(history):
        plot.marks.append(Line([i, i], [each.rate.low, each.rate.high], SECOND, 1.4))
        ends_of = f"{percent(each.rate.low)} to {percent(each.rate.high)} %"
        tip = f"{_name(each)}: {what} {percent(each.mean_p)} %, {outcome} {percent(each.rate.value)} % ({ends_of})"
        plot.marks.append(Point(i, each.rate.value, SECOND, f"{tip}, {each.n:,} rows"))
    return plot


def _evidence(monitor: CalibrationMonitor) -> Plot:
    found, alarm = monitor.evidence(), math.log10(1.0 / monitor.alpha)
    shown = [math.log10(min(max(value, 1e-3), LARGEST_E)) for _, value in found]
    ends = (-0.5, len(found) - 0.5)
    where = f"the alarm was raised in {monitor.alarm}" if monitor.alarm else "there was no alarm"
    plot = Plot(ends, (min(0.0, *shown), max(1.1 * alarm, *shown)), size=SIZE, margins=MARGINS)
    plot.description = f"The e-value after each period; now it is {monitor.e_value:.3g}, and {where}."
    axes = Axes("periods", "logarithm of the e-value (base 10)", x_ticks=())
    tips = [f"{period}: e-value {value:.3g}" for period, value in found]
    plot.marks += [axes, Line(ends, [alarm, alarm], SECOND, 1.4, "6 4"), *_line(shown, tips)]
    return plot


def _loss(history: list[WindowSummary], heading: str, values: Sequence[float], chance: Sequence[float] = ()) -> Plot:
    plot = _plot(history, [*values, *chance], heading, size=(400.0, 260.0))
    plot.description = f"{heading} of {len(history)} periods."
    tips = [f"{_name(each)}: {heading} {x:.4f}, {each.n:,} rows" for each, x in zip(history, values, strict=True)]
    plot.marks += [*_line(values, tips), *_line(chance, (), SECOND, "6 4")]
    return plot


def periods_table(history: Sequence[WindowSummary], compared: tuple[str, str]) -> list[dict[str, str]]:
    """Periods as rows of text by their headings; the terminal shows the same."""
    what, outcome = compared
    return [
        {
            "period": _name(each),
            "rows": f"{each.n:,}",
            f"{what} %": percent(each.mean_p),
            f"{outcome} %": percent(each.rate.value),
            "interval": interval_percent(each.rate),
            "log-loss": f"{each.log_loss:.4f}",
            "Brier score": f"{each.brier_score:.4f}",
            "ECE %": percent(each.ece),
            "by chance %": percent(each.ece_by_chance),
        }
        for each in history
    ]


def _plot(
    history: Sequence[WindowSummary], values: Sequence[float], label: str, size: tuple[float, float] = SIZE
) -> Plot:
    """A plot over the periods, with the names of the first and the last."""
    room = 0.06 * (max(values) - min(values)) or 0.01
    x, low = (-0.5, len(history) - 0.5), max(0.0, min(values) - room)
    plot = Plot(x, (low, max(values) + room), [Axes("", label, x_ticks=())], size=size, margins=MARGINS)
    plot.marks.append(Text(x[0], low, history[0].first, offset=(0, 18)))
    if len(history) > 1:
        plot.marks.append(Text(x[1], low, history[-1].last, "end", (0, 18)))
    return plot


def _line(
    values: Sequence[float], tips: Sequence[str] = (), color: str = FIRST, dash: str = ""
) -> Iterator[Line | Point]:
    """A line from period to period, of a single one a level line, with points that have tips."""
    if values:
        x, y = ([-0.4, 0.4], [*values, *values]) if len(values) == 1 else (range(len(values)), values)
        yield Line(x, y, color, 1.8, dash)
    yield from (Point(i, values[i], color, tip) for i, tip in enumerate(tips))


def _name(each: WindowSummary) -> str:
    return each.first if each.first == each.last else f"{each.first} to {each.last}"
