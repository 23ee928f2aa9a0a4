"""A figure of matplotlib as inline SVG that follows the page's theme and says what it shows."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from refocal.report.figures import BAND, FIRST, INK, LINE, MUTED, SECOND

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VARIABLES = {INK: "--ink", MUTED: "--muted", LINE: "--line", FIRST: "--first", SECOND: "--second", BAND: "--band"}


def inline_svg(
    draw: Callable[[Axes], Any],
    name: str,
    description: str,
    size: tuple[float, float],
    margins: tuple[float, float] | None = None,
) -> str:
    """Draw on a new axes; `name` must be unique in the page, `description` is read out instead of the figure.

    `margins` are the inches left of the axes and below it; without them the layout is worked out, which takes longer
    than all else.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": 10,
        "axes.linewidth": 0.8,
        "text.color": INK,
        "axes.edgecolor": MUTED,
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained" if margins is None else None)
        if margins is not None:
            left, bottom = margins[0] / size[0], margins[1] / size[1]
            figure.subplots_adjust(left=left, bottom=bottom, right=1 - 0.12 / size[0], top=1 - 0.12 / size[1])
        figure.patch.set_visible(False)
        ax = figure.add_subplot()
        ax.patch.set_visible(False)
        draw(ax)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return themed(buffer.getvalue(), name, description)


def themed(svg: str, name: str, description: str) -> str:
    """Colours as variables, fonts of the page, no fixed size, ids of its own, and a text alternative."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    for color, variable in VARIABLES.items():
        svg = svg.replace(color, f"var({variable})")
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px var(--sans)", svg)
    # matplotlib numbers its groups (figure_1, text_3) in every figure alike; ids must be unique in a page.
    svg = re.sub(r' id="[A-Za-z0-9.]*[a-z]_\d+"', "", svg)
    title = f'<title id="{name}-title">{escape(description)}</title>'
    opened = svg.index(">") + 1
    head = svg[: opened - 1] + f' role="img" aria-labelledby="{name}-title" class="figure">'
    return head + title + svg[opened:]
