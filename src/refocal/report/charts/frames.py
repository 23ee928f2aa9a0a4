"""What charts share: sheets, room around a range, short names."""

from __future__ import annotations

from refocal._svg import Plot


def with_room(low: float, high: float) -> tuple[float, float]:
    """A little more than a range; what cannot be negative stays so."""
    room = 0.04 * (high - low) or 0.01
    return low - room if low < 0.0 else max(low - room, 0.0), high + room


def sheet(size: tuple[float, float]) -> Plot:
    """A plot whose units are pixels, counted from above."""
    return Plot((0, size[0]), (size[1], 0), size=size, margins=(0, 0, 0, 0))


def shortened(text: str) -> str:
    """A name that has room beside an axis."""
    longest = 20  # letters; the mark of the chart says all of it
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
