"""The chart of a search over γ and T: the objective as a surface."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from refocal._arrays import Indices, Vector
from refocal._svg import Axes, Bar, Color, Line, Plot, Point, Text, tick_label
from refocal.evaluate import SearchSurface
from refocal.fitting.objective import BALANCE, NAMED
from refocal.report.charts.frames import sheet

# Shades of a surface from the best to the worst level; dark is good, in both themes.
SHADES = ["#00204c", "#123570", "#31446b", "#4a546c", "#61646f", "#757575", "#8b8778", "#a39876", "#bcaa6f", "#f1d24d"]


class _Cells(NamedTuple):
    """The part of a surface that is drawn: a rectangle for each γ (G) and each of some temperatures (K)."""

    temperatures: list[float]
    """(K,)"""
    edges: list[float]
    """The temperatures between which the rectangles lie, (K + 1,)."""
    value: Vector
    """The objective, (G, K)."""
    log_loss: Vector
    """(G, K)"""
    limit: float
    """The largest log-loss within the tolerance."""

    @classmethod
    def of(cls, searched: SearchSurface) -> _Cells:
        """The temperatures at which some log-loss is close to the best, and no more of them than can be pointed at."""
        log_loss = np.array(searched.log_loss)
        limit = (1.0 + tolerance_of(searched)) * float(log_loss.min())
        far = 1.6 * limit  # beyond it nothing needs to be seen
        near = np.flatnonzero((log_loss <= far).any(axis=0))
        # More columns are narrower than what can be pointed at; every second, or so, is then drawn.
        most_columns = 64
        near = near[:: math.ceil(len(near) / most_columns)]
        temperatures = np.array(searched.temperatures)[near]
        value = np.array(searched.value)[:, near]
        return cls(temperatures.tolist(), _edges_around(temperatures), value, log_loss[:, near], limit)

    def border(self) -> Line:
        """The line around the cells whose log-loss is within the tolerance."""
        is_inside = self.log_loss <= self.limit
        points: list[tuple[float, float]] = []
        gap = (math.nan, math.nan)  # ends a piece of the line
        for g, k in np.argwhere(is_inside[:, 1:] != is_inside[:, :-1]):
            points += [(self.edges[k + 1], g - 0.5), (self.edges[k + 1], g + 0.5), gap]
        for g, k in np.argwhere(is_inside[1:] != is_inside[:-1]):
            points += [(self.edges[k], g + 0.5), (self.edges[k + 1], g + 0.5), gap]
        return Line([x for x, _ in points], [y for _, y in points], "#fff", 2, "5 3")


def _edges_around(temperatures: Vector) -> list[float]:
    """Half-way, in log T, between temperatures (K,), and as far outside the first and the last: (K + 1,)."""
    log_t = np.log(temperatures)
    middle = (log_t[1:] + log_t[:-1]) / 2 if len(log_t) > 1 else log_t - 0.1
    first_edge = 2 * log_t[0] - middle[0]
    last_edge = 2 * log_t[-1] - middle[-1]
    edges: list[float] = np.exp([first_edge, *middle, last_edge]).tolist()
    return edges


class _ShadeScale(NamedTuple):
    """From values of an objective to `SHADES`: shade s begins at best + spread (s / number of shades)²."""

    best: float
    spread: float

    @classmethod
    def of(cls, value: Vector) -> _ShadeScale:
        """The scale of all values of a surface; the three tenths that are worst share the last shade."""
        best = float(value.min())
        spread = float(np.sort(value, axis=None)[int(0.7 * value.size)]) - best
        return cls(best, spread or 1e-9)

    def shades(self, value: Vector) -> Indices:
        """The number of the shade of each value."""
        levels = np.sqrt((value - self.best) / self.spread) * len(SHADES)
        return np.asarray(np.minimum(len(SHADES) - 1, levels), dtype=np.int64)

    def beginning(self, shade: int) -> float:
        """The value at which a shade begins."""
        return self.best + self.spread * (shade / len(SHADES)) ** 2


def surface(searched: SearchSurface) -> Plot:
    """The objective over γ and T by shade, the point that was taken, and the border of the log-loss tolerance."""
    n_gammas = len(searched.gammas)
    cells = _Cells.of(searched)
    scale = _ShadeScale.of(np.array(searched.value))
    objective = NAMED[searched.objective].title if searched.objective in NAMED else searched.objective
    taken = f"γ = {searched.gamma:.3f}, T = {searched.temperature:.3f}"
    plot = Plot((cells.edges[0], cells.edges[-1]), (-0.5, n_gammas - 0.5), log_x=True, is_crisp=True)
    plot.size = (440.0, 400.0)
    plot.margins = (52.0, 12.0, 104.0, 44.0)
    plot.description = (
        f"Objective {searched.objective} of {searched.method} on the validation set over {n_gammas} values of γ and "
        f"{len(searched.temperatures)} of T. Taken: {taken}. The dashed border "
        f"encloses the points of a log-loss at most {100 * tolerance_of(searched):g} % above the best."
    )
    names = [tick_label(gamma) if n_gammas <= 16 or g % 2 == 0 else "" for g, gamma in enumerate(searched.gammas)]
    plot.marks.append(Axes("temperature T", "γ", names=names))
    for (g, k), shade in np.ndenumerate(scale.shades(cells.value)):
        numbers = f"{objective} {cells.value[g, k]:.4g}, log-loss {cells.log_loss[g, k]:.4g}"
        tip = f"γ {searched.gammas[g]:g}, T {cells.temperatures[k]:.3g}: {numbers}"
        across = (cells.edges[k], cells.edges[k + 1] * 1.0005)  # no gap shows between neighbours
        plot.marks.append(Bar(across, (g - 0.5, g + 0.5), SHADES[shade], tip))
    plot.marks.append(cells.border())
    temperature = min(max(searched.temperature, cells.edges[0]), cells.edges[-1])
    gamma = float(np.interp(searched.gamma, searched.gammas, range(n_gammas)))
    plot.marks.append(Point(temperature, gamma, Color.FIRST, f"the point taken: {taken}", "target"))
    plot.marks.append(_shade_legend(plot.size, objective, scale))
    return plot


def _shade_legend(size: tuple[float, float], objective: str, scale: _ShadeScale) -> Plot:
    """The shades at the right of a surface, with words and numbers beside them."""
    left = size[0] - 94
    height = 14  # pixels of a shade
    legend = sheet(size)
    for text, y in ((objective, 12), ("best: dark", 28), ("worse: light", 52 + height * len(SHADES))):
        legend.marks.append(Text(left, y, text))
    for shade, color in enumerate(SHADES):
        legend.marks.append(Bar((left, left + 14), (54.5 + height * shade, 40 + height * shade), color))
        if shade % 2 == 0:
            legend.marks.append(Text(left + 20, 47 + height * shade, f"{scale.beginning(shade):.4g}"))
    return legend


def tolerance_of(surface: SearchSurface) -> float:
    """The tolerance of the search, or a usual one to draw where it had none."""
    return BALANCE.nll_tolerance if surface.tolerance is None else surface.tolerance
