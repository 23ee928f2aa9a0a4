"""Three classes as a triangle: every prediction is a point, every corner a class that is sure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from refocal.report.figures import INK, MUTED
from refocal_paper.figures._base import Vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT = np.sqrt(3.0) / 2.0
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, HEIGHT]])


def to_plane(q: Vector) -> tuple[Vector, Vector]:
    """Coordinates of predictions in the triangle; distances in it are those between the predictions, up to a factor."""
    xy = np.asarray(q) @ CORNERS
    return xy[..., 0], xy[..., 1]


def triangle_grid(steps: int, *, edges: bool) -> Vector:
    """Predictions with all three probabilities a multiple of 1/steps; without the edges, a positive one."""
    numbers = np.arange(0 if edges else 1, steps + 1)
    i, j = np.meshgrid(numbers, numbers, indexing="ij")
    inside = i + j <= steps - numbers[0]
    counts = np.stack([i[inside], j[inside], steps - i[inside] - j[inside]], axis=-1)
    return counts / steps


def draw_triangle(ax: Axes, title: str) -> None:
    """The outline with the classes' numbers at its corners."""
    outline = np.vstack([CORNERS, CORNERS[:1]])
    ax.plot(outline[:, 0], outline[:, 1], color=MUTED, linewidth=0.8, zorder=3)
    for number, (x, y), (dx, dy) in zip("123", CORNERS, [(-0.03, -0.03), (0.03, -0.03), (0.0, 0.035)], strict=True):
        ax.text(x + dx, y + dy, number, ha="center", va="bottom" if dy > 0 else "top", color=INK, fontsize=8.0)
    ax.set(xlim=(-0.06, 1.06), ylim=(-0.1, HEIGHT + 0.1), aspect="equal", title=title)
    ax.set_axis_off()
