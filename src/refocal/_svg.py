"""Small charts as SVG text, for the report and for notebooks; nothing here knows what is drawn.

Colours are variables of a page's style sheet with a light theme to fall back on, so a chart follows the theme of the
report and still has its colours in a notebook or in a file of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import NamedTuple, Self

THEME = {
    "ink": "#1b1f24",
    "muted": "#5c6570",
    "line": "#d5dae0",
    "first": "#0b62b8",
    "second": "#b8480b",
    "band": "#c7dcf2",
}
INK, MUTED, LINE, FIRST, SECOND, BAND = (f"var(--{name},{color})" for name, color in THEME.items())
FONT = "12px var(--sans,system-ui,sans-serif)"


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
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(i * step, 10) for i in range(first, last + 1)]


class Plot:
    """Axes over ranges of x and y on which marks are put; a mark's `tip` is what it says when it is pointed at.

    >>> plot = Plot((0, 1), (0, 1)).axes("confidence", "accuracy").line([0, 1], [0, 1])
    >>> plot.svg("example", "A line from 0 to 1.").startswith('<svg class="figure"')
    True
    """

    def __init__(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        size: tuple[float, float] = (400, 320),
        margins: tuple[float, float, float, float] = (52, 12, 12, 44),
        log_x: bool = False,
    ) -> None:
        self.size, (left, top, right, bottom) = size, margins
        self.x = Scale(*x, left, size[0] - right, log_x)
        self.y = Scale(*y, size[1] - bottom, top)
        self.parts: list[str] = []

    def axes(
        self, x_label: str, y_label: str = "", *, x_ticks: Sequence[float] | None = None, y_ticks: bool = True
    ) -> Self:
        """Two lines with ticks and labels."""
        left, right, low, high = self.x.start, self.x.end, self.y.start, self.y.end
        drawn = [f"M{_n(left)} {_n(high)}V{_n(low)}H{_n(right)}"]
        for tick in self.x.ticks if x_ticks is None else x_ticks:
            drawn.append(f"M{_n(self.x(tick))} {_n(low)}v4")
            self.text(self.x(tick), low + 17, _tick(tick), anchor="middle")
        for tick in self.y.ticks if y_ticks else ():
            drawn.append(f"M{_n(left)} {_n(self.y(tick))}h-4")
            self.text(left - 7, self.y(tick) + 4, _tick(tick), anchor="end")
        self.parts.append(f'<path fill="none" stroke="{MUTED}" d="{"".join(drawn)}"/>')
        if x_label:
            self.text((left + right) / 2, self.size[1] - 8, x_label, anchor="middle")
        if y_label:
            middle = (low + high) / 2
            turned = f' transform="rotate(-90 12 {_n(middle)})"' if len(y_label) > 2 else ""
            self.text(12 if turned else 6, middle, y_label, anchor="middle", more=turned)
        return self

    def line(
        self, xs: Iterable[float], ys: Iterable[float], color: str = MUTED, width: float = 1, dash: str = ""
    ) -> Self:
        """A line through points."""
        return self.path([(self.x(a), self.y(b)) for a, b in zip(xs, ys, strict=True)], color, width, dash)

    def area(self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], color: str = BAND) -> Self:
        """The area between two lines."""
        points = [*zip(xs, high, strict=True), *reversed([*zip(xs, low, strict=True)])]
        drawn = "L".join(f"{_n(self.x(a))} {_n(self.y(b))}" for a, b in points)
        self.parts.append(f'<path fill="{color}" d="M{drawn}Z"/>')
        return self

    def dot(self, x: float, y: float, color: str = FIRST, tip: str = "", filled: bool = True) -> Self:
        """A point; its transparent border is easier to hit with a finger."""
        at = f'cx="{_n(self.x(x))}" cy="{_n(self.y(y))}"'
        if not filled:
            ring = f'<circle {at} r="4" fill="var(--paper,#fff)" stroke="{color}" stroke-width="1.6"/>'
            return self.mark(f'{ring}<circle {at} r="11" fill="transparent"/>', tip)
        said = f' class="mark"><title>{escape(tip)}</title></circle>' if tip else "/>"
        self.parts.append(f'<circle {at} r="4.5" fill="{color}" stroke="transparent" stroke-width="14"{said}')
        return self

    def bar(self, x: tuple[float, float], y: tuple[float, float], color: str = FIRST, tip: str = "") -> Self:
        """A rectangle between two values of x and two of y."""
        left, right, top, low = self.x(x[0]), self.x(x[1]), self.y(y[1]), self.y(y[0])
        shape = f'x="{_n(left)}" y="{_n(top)}" width="{_n(right - left)}" height="{_n(low - top)}"'
        said = f' class="mark"><title>{escape(tip)}</title></rect>' if tip else "/>"
        self.parts.append(f'<rect {shape} fill="{color}"{said}')
        return self

    def text(self, x: float, y: float, text: str, *, anchor: str = "start", more: str = "") -> Self:
        """Text at pixels."""
        self.parts.append(f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"{more}>{escape(text)}</text>')
        return self

    def path(self, points: Iterable[tuple[float, float]], color: str, width: float, dash: str = "") -> Self:
        """A line through pixels."""
        drawn = "L".join(f"{_n(a)} {_n(b)}" for a, b in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<path fill="none" stroke="{color}" stroke-width="{width:g}"{dashed} d="M{drawn}"/>')
        return self

    def mark(self, drawn: str, tip: str) -> Self:
        """Something drawn that says what it stands for when it is pointed at."""
        self.parts.append(f'<g class="mark"><title>{escape(tip)}</title>{drawn}</g>' if tip else drawn)
        return self

    def svg(self, name: str, description: str) -> str:
        """The chart; `name` must be unique in a page or empty, and `description` is read out instead of it."""
        named, title = f'aria-label="{escape(description)}"', ""
        if name:
            named, title = f'aria-labelledby="{escape(name)}-title"', escape(description)
            title = f'<title id="{escape(name)}-title">{title}</title>'
        box = f'viewBox="0 0 {self.size[0]:g} {self.size[1]:g}" role="img" {named}'
        head = f'<svg class="figure" xmlns="http://www.w3.org/2000/svg" {box}'
        return f'{head} fill="{INK}" style="font:{FONT}">{title}{"".join(self.parts)}</svg>'


def tips_script() -> str:
    """The script by which the marks of charts say their tips to a hand, to keys and to those who listen."""
    return (files("refocal") / "_tips.js").read_text(encoding="utf-8").rstrip("\n")


def _tick(value: float) -> str:
    """A number beside an axis."""
    return f"{value:g}".replace("-", "−")


def _n(value: float) -> str:
    """A coordinate with a digit behind the point."""
    return f"{value:.1f}".removesuffix(".0")
