"""Charts as data: axes and marks in the units of the axes. Drawn as SVG here, by matplotlib in `report.figures`.

Colours are names of the theme. In SVG they are variables of a page's style sheet with the light theme to fall back on,
so a chart follows the theme of the report and still has its colours in a notebook or in a file of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from typing import NamedTuple


class Color(StrEnum):
    """The colours of charts, by what they are for."""

    INK = "ink"
    MUTED = "muted"
    LINE = "line"
    FIRST = "first"
    SECOND = "second"
    BAND = "band"


THEME: dict[str, str] = {
    Color.INK: "#1b1f24",
    Color.MUTED: "#5c6570",
    Color.LINE: "#d5dae0",
    Color.FIRST: "#0b62b8",
    Color.SECOND: "#b8480b",
    Color.BAND: "#c7dcf2",
}
"""The light theme."""

VARIABLES = {name: f"var(--{name},{color})" for name, color in THEME.items()}
# Marks at a point; what is transparent is easier to hit with a finger.
SHAPES = {
    "dot": '<circle {at} r="4.5" fill="{color}" stroke="transparent" stroke-width="14"/>',
    "ring": '<circle {at} r="4" fill="var(--paper,#fff)" stroke="{color}" stroke-width="1.6"/>'
    '<circle {at} r="11" fill="transparent"/>',
    "target": '<g shape-rendering="auto" fill="none"><circle {at} r="7" stroke="#000" stroke-width="4"/>'
    '<circle {at} r="7" stroke="#fff" stroke-width="2.2"/></g>',
    "hidden": '<circle {at} r="7" fill="transparent"/>',
    "left": '<path transform="translate({x:.1f} {y:.1f})" d="M10 -5L0 0L10 5Z" fill="{color}"/>',
    "right": '<path transform="translate({x:.1f} {y:.1f})" d="M-10 -5L0 0L-10 5Z" fill="{color}"/>',
}


class Axes(NamedTuple):
    """Two lines with labels and round numbers, `ticks` says at which; `names` stand beside y = 0, 1, … instead."""

    x_label: str = ""
    y_label: str = ""
    ticks: str = "xy"
    names: Sequence[str] = ()
    grid: bool = False

    def numbers(self, x: Scale, y: Scale) -> tuple[list[float], list[float]]:
        """Where the ticks are."""
        return x.ticks if "x" in self.ticks else [], y.ticks if "y" in self.ticks and not self.names else []


class Line(NamedTuple):
    """A line through points; NaN leaves a gap."""

    x: Sequence[float]
    y: Sequence[float]
    color: str = Color.MUTED
    width: float = 1.0
    dash: str = ""


class Band(NamedTuple):
    """The area between two lines."""

    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


class Point(NamedTuple):
    """One of `SHAPES`; `tip` is what it says when it is pointed at."""

    x: float
    y: float
    color: str = Color.FIRST
    tip: str = ""
    shape: str = "dot"


class Bar(NamedTuple):
    """A rectangle between two values of x and two of y."""

    x: tuple[float, float]
    y: tuple[float, float]
    color: str = Color.FIRST
    tip: str = ""


class Text(NamedTuple):
    """Text, some pixels to the right of a point and below it."""

    x: float
    y: float
    text: str
    anchor: str = "start"
    offset: tuple[float, float] = (0.0, 4.0)


class Scale(NamedTuple):
    """From values between `low` and `high` to pixels between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log(v) for v in (self.low, self.high, value)) if self.log else (*self[:2], value)
        return self.start + (at - low) / ((high - low) or 1.0) * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """About five round numbers in the range."""
        if self.log:
            usual = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50)
            return [tick for tick in usual if self.low <= tick <= self.high]
        raw = (self.high - self.low or 1.0) / 5
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= 0.999 * raw)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(i * step, 10) for i in range(first, last + 1)]


@dataclass
class Plot:
    """Marks over ranges of x and y, in the order in which they are drawn; `description` is read out instead of them.

    A plot among the marks of another one has its own ranges and margins on the same sheet.

    >>> plot = Plot((0, 1), (0, 1), [Axes("confidence", "accuracy"), Line([0, 1], [0, 1])], "A line from 0 to 1.")
    >>> plot.svg("example").startswith('<svg class="figure"')
    True
    """

    x: tuple[float, float]
    y: tuple[float, float]
    marks: list[Axes | Line | Band | Point | Bar | Text | Plot] = field(default_factory=list)
    description: str = ""
    size: tuple[float, float] = (400.0, 320.0)
    margins: tuple[float, float, float, float] = (52.0, 12.0, 12.0, 44.0)
    log_x: bool = False
    is_crisp: bool = False  # without seams between bars, for a plot of level lines

    @property
    def scales(self) -> tuple[Scale, Scale]:
        """Where values of x and of y are, in pixels."""
        (width, height) = self.size
        (left, top, right, bottom) = self.margins
        return Scale(*self.x, left, width - right, self.log_x), Scale(*self.y, height - bottom, top)

    def svg(self, name: str = "") -> str:
        """The chart; `name` must be unique in a page or empty."""
        named = f'aria-label="{escape(self.description)}"'
        title = ""
        if name:
            named = f'aria-labelledby="{escape(name)}-title"'
            title = f'<title id="{escape(name)}-title">{escape(self.description)}</title>'
        box = f'viewBox="0 0 {self.size[0]:g} {self.size[1]:g}" role="img" {named}'
        crisp = ' shape-rendering="crispEdges"' if self.is_crisp else ""
        head = f'<svg class="figure" xmlns="http://www.w3.org/2000/svg" {box}{crisp}'
        font = "12px var(--sans,system-ui,sans-serif)"
        return f'{head} fill="{VARIABLES[Color.INK]}" style="font:{font}">{title}{"".join(_drawn(self))}</svg>'


def _drawn(plot: Plot) -> Iterator[str]:
    """The marks of a plot as SVG."""
    x, y = plot.scales
    for mark in plot.marks:
        match mark:
            case Plot():
                yield from _drawn(mark)
            case Axes():
                yield from _axes(mark, x, y, plot.size[1])
            case Line(xs, ys, color, width, dash):
                dashed = f' stroke-dasharray="{dash}"' if dash else ""
                stroke = f'stroke="{VARIABLES.get(color, color)}" stroke-width="{width:g}"{dashed}'
                yield f'<path fill="none" {stroke} d="{_path(x, y, xs, ys)}"/>'
            case Band(xs, low, high):
                around = _path(x, y, [*xs, *reversed(xs)], [*high, *reversed(low)])
                yield f'<path fill="{VARIABLES[Color.BAND]}" d="{around}Z"/>'
            case Point(a, b, color, tip, shape):
                at = f'cx="{x(a):.1f}" cy="{y(b):.1f}"'
                yield _tipped(SHAPES[shape].format(x=x(a), y=y(b), at=at, color=VARIABLES[color]), tip)
            case Bar((left, right), (low, high), color, tip):
                at = f'x="{x(left):.1f}" y="{y(high):.1f}" fill="{VARIABLES.get(color, color)}"'
                size = f'width="{x(right) - x(left):.1f}" height="{y(low) - y(high):.1f}"'
                yield _tipped(f"<rect {at} {size}/>", tip)
            case Text(a, b, text, anchor, (right, down)):
                yield _text(x(a) + right, y(b) + down, text, anchor)


def _axes(axes: Axes, x: Scale, y: Scale, height: float) -> Iterator[str]:
    drawn = [f"M{x.start:.1f} {y.end:.1f}V{y.start:.1f}H{x.end:.1f}"]
    x_ticks, y_ticks = axes.numbers(x, y)
    for tick in x_ticks:
        if axes.grid:
            grid = f'stroke="{VARIABLES[Color.LINE]}" stroke-width="1"'
            yield f'<path fill="none" {grid} d="M{x(tick):.1f} {y.end:.1f}L{x(tick):.1f} {y.start:.1f}"/>'
        drawn.append(f"M{x(tick):.1f} {y.start:.1f}v4")
        yield _text(x(tick), y.start + 17, tick_label(tick), "middle")
    for tick in y_ticks:
        drawn.append(f"M{x.start:.1f} {y(tick):.1f}h-4")
        yield _text(x.start - 7, y(tick) + 4, tick_label(tick), "end")
    for i, name in enumerate(axes.names):
        yield _text(x.start - 8, y(i) + 4, name, "end")
    yield f'<path fill="none" stroke="{VARIABLES[Color.MUTED]}" d="{"".join(drawn)}"/>'
    if axes.x_label:
        yield _text((x.start + x.end) / 2, height - 8, axes.x_label, "middle")
    if axes.y_label:
        middle = (y.start + y.end) / 2
        turned = f' transform="rotate(-90 12 {middle:.1f})"' if len(axes.y_label) > 2 else ""
        yield _text(12 if turned else 6, middle, axes.y_label, "middle", turned)


def _path(x: Scale, y: Scale, xs: Sequence[float], ys: Sequence[float]) -> str:
    points = "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in zip(xs, ys, strict=True))
    return "M" + points.replace("Lnan nanL", "M").removesuffix("Lnan nan") if points else ""


def _tipped(drawn: str, tip: str) -> str:
    """Something that says what it stands for when it is pointed at."""
    return f'<g class="mark"><title>{escape(tip)}</title>{drawn}</g>' if tip else drawn


def _text(x: float, y: float, text: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def tick_label(value: float) -> str:
    """A number beside an axis."""
    return f"{value:g}".replace("-", "−")
