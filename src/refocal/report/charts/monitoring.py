"""Charts from period to period, of a monitor or a backtest."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from refocal._svg import Axes, Color, Line, Plot, Point, Text
from refocal.evaluate.summary import capital, percent
from refocal.metrics import METRICS
from refocal.monitor import CalibrationMonitor, WindowSummary
from refocal.monitor.backtest import Backtest
from refocal.report.charts.frames import with_room
from refocal.report.details import period_name


def rates(history: Sequence[WindowSummary], probability: str, outcome: str) -> Plot:
    """The mean probability of each period of a monitor as a line, and the rates with their intervals."""
    ends = [end for period in history for end in (period.rate.low, period.rate.high)]
    plot = _over_periods(
        _ends(history), [period.mean_p for period in history], f"{probability} (line) and {outcome}", also=ends
    )
    plot.description = f"{probability} and {outcome} of {len(history)} periods; the table below has the numbers."
    for i, period in enumerate(history):
        low = percent(period.rate.low)
        high = percent(period.rate.high)
        said = f"{probability} {percent(period.mean_p)} %, {outcome} {percent(period.rate.value)} % ({low} to {high} %)"
        plot.marks.append(Line([i, i], [period.rate.low, period.rate.high], Color.SECOND, 1.4))
        plot.marks.append(
            Point(i, period.rate.value, Color.SECOND, f"{period_name(period)}: {said}, {period.n:,} rows")
        )
    return plot


def evidence(monitor: CalibrationMonitor) -> Plot:
    """The logarithm of a monitor's e-value after each period of the test, and where the alarm is raised."""
    e_values = monitor.evidence()
    alarm = math.log10(1.0 / monitor.alpha)
    smallest = 1e-3  # an e-value beyond either is shown as this
    largest = 1e12
    shown = [math.log10(min(max(value, smallest), largest)) for _, value in e_values]
    tips = [f"{period}: e-value {value:.3g}" for period, value in e_values]
    ends = (e_values[0][0], e_values[-1][0])
    plot = _over_periods(ends, shown, "logarithm of the e-value (base 10)", tips, also=(0.0, 1.1 * alarm))
    plot.marks.append(Line(plot.x, [alarm, alarm], Color.SECOND, 1.4, "6 4"))
    where = f"the alarm was raised in {monitor.alarm}" if monitor.alarm else "no alarm of this monitor is open"
    plot.description = f"The e-value after each period; now it is {monitor.e_value:.3g}, and {where}."
    return plot


def savings(found: Backtest, policy: str) -> Plot:
    """The log-loss that a policy has saved against keeping the calibrator, summed over the rows so far."""
    n_rows = np.array(found.n_rows)
    saved = np.cumsum(n_rows * (np.array(found.result("keep").path) - np.array(found.result(policy).path))).tolist()
    tips = [f"{period}: {value:+.2f}" for period, value in zip(found.periods, saved, strict=True)]
    plot = _over_periods((found.periods[0], found.periods[-1]), saved, "log-loss saved", tips, also=(0.0,))
    plot.marks.append(Line(plot.x, [0.0, 0.0], Color.SECOND, 1.4, "6 4"))
    plot.description = f"The log-loss that {policy} has saved after each batch; {saved[-1]:+.2f} in all."
    return plot


def loss(history: Sequence[WindowSummary], measure: str, by_chance: str = "") -> Plot:
    """A measure of each period of a monitor; dashed what it would be by chance."""
    heading = capital(METRICS[measure].label)
    values = [getattr(each, measure) for each in history]
    chance = [getattr(each, by_chance) for each in history] if by_chance else []
    tips = [f"{period_name(each)}: {heading} {x:.4f}, {each.n:,} rows" for each, x in zip(history, values, strict=True)]
    plot = _over_periods(_ends(history), values, heading, tips, chance)
    plot.size = (400.0, 260.0)
    plot.description = f"{heading} of {len(history)} periods."
    plot.marks += _line(chance, Color.SECOND, "6 4")
    return plot


def _over_periods(
    ends: tuple[str, str], values: Sequence[float], label: str, tips: Sequence[str] = (), also: Sequence[float] = ()
) -> Plot:
    """A line from period to period, the names of the first and the last; the axis holds what is `also` drawn."""
    x = (-0.5, len(values) - 0.5)
    y = with_room(min([*values, *also]), max([*values, *also]))
    plot = Plot(x, y, [Axes("", label, ticks="y")], size=(440.0, 260.0), margins=(60.0, 12.0, 16.0, 44.0))
    plot.marks.append(Text(x[0], y[0], ends[0], offset=(0, 18)))
    if len(values) > 1:
        plot.marks.append(Text(x[1], y[0], ends[1], "end", (0, 18)))
    plot.marks += [*_line(values), *(Point(i, values[i], Color.FIRST, tip) for i, tip in enumerate(tips))]
    return plot


def _line(values: Sequence[float], color: str = Color.FIRST, dash: str = "") -> list[Line]:
    """A line from period to period, of a single one a level line."""
    if len(values) == 1:
        return [Line([-0.4, 0.4], [*values, *values], color, 1.8, dash)]
    return [Line(range(len(values)), values, color, 1.8, dash)] if values else []


def _ends(history: Sequence[WindowSummary]) -> tuple[str, str]:
    return history[0].first, history[-1].last
