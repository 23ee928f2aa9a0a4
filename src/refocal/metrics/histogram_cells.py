"""The fine cells of a `CalibrationHistogram`: which cell a confidence lies in, read off its bits.

Let v = min(c, 1 - c). Every octave 2^-k > v ≥ 2^-(k+1) is cut into 2^bits cells of equal width, so the cells are about
equal in log-odds; the three octaves around 1/2 have 8, 4 and 2 times as many, those below 2^-33 a sixteenth. Floating
point stores exactly this, so no logarithm is taken and every machine finds the same cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from refocal._arrays import Indices, Vector
from refocal._validation import check_integer

MOST_BITS = 20
# Of a float64: the bits of its mantissa, and the stored exponent of 1/2 ≤ v < 1.
_MANTISSA_BITS = 52
_HALF_EXPONENT = 1022
# Octaves with cells of their own: below 2^-53, where 1 - c rounds to 1, all confidences share one.
_OCTAVES = 53
# A cell that is cut further has 2^14 parts.
_ZOOM_BITS = 14


@dataclass(frozen=True)
class Zoom:
    """Cells that are cut further: their numbers (rising), the lowest value of each, and the width of a part."""

    cell: Indices
    origin: Indices
    shift: Indices


class Cells:
    """A numbering of cells. Those of the grid are numbered by confidence, those of a zoom follow after them."""

    def __init__(self, bits: int, zooms: tuple[Zoom, ...] = ()) -> None:
        self.bits = bits
        self.zooms = zooms
        depth = np.full(_OCTAVES, bits)  # the logarithm of the number of cells of each octave
        depth[:3] += [3, 2, 1]
        depth[32:] = max(0, bits - 4)
        self._shift = _MANTISSA_BITS - depth
        # How many cells lie between 1/2 and the lower end of each octave.
        self._reach = np.cumsum(1 << depth)
        self._half = int(self._reach[-1]) + 1
        self._grid = 2 * self._half + 1
        self.size: int = self._grid + (sum(len(zoom.cell) for zoom in zooms) << _ZOOM_BITS)
        """Number of cells."""

    def index(self, confidence: Vector) -> Indices:
        """The cell of each confidence."""
        upper = confidence > 0.5
        # 1 - c is exact for c ≥ 1/2.
        pattern = np.where(upper, 1.0 - confidence, confidence).view(np.int64)
        octave = _HALF_EXPONENT - 1 - (pattern >> _MANTISSA_BITS)
        in_reach = np.clip(octave, 0, _OCTAVES - 1)
        mantissa = (pattern & ((1 << _MANTISSA_BITS) - 1)) >> self._shift[in_reach]
        away = self._reach[in_reach] - mantissa
        away[octave < 0] = 0
        away[octave >= _OCTAVES] = self._half
        cell: Indices = np.where(upper, self._half + away, self._half - away)
        if not self.zooms:
            return cell
        key = ordered_key(confidence)
        first_part = self._grid
        last_part = (1 << _ZOOM_BITS) - 1
        for zoom in self.zooms:
            candidate = np.minimum(np.searchsorted(zoom.cell, cell), zoom.cell.shape[0] - 1)
            inside = np.flatnonzero(zoom.cell[candidate] == cell)
            zoomed = candidate[inside]
            distance = key[inside] - zoom.origin[zoomed]
            # Rows outside the range that was seen when the cell was cut go to its ends: order is kept.
            part = np.clip(distance >> zoom.shift[zoomed], 0, last_part)
            cell[inside] = first_part + (zoomed << _ZOOM_BITS) + part
            first_part += zoom.cell.shape[0] << _ZOOM_BITS
        return cell

    def zoomed(self, cell: Indices, low: Vector, high: Vector) -> Cells:
        """The same cells, with some cut into 16,384 parts of the range from `low` to `high`."""
        order = np.argsort(cell)
        origin = ordered_key(low[order])
        spans = ordered_key(high[order]) - origin
        shift = [max(0, int(span).bit_length() - _ZOOM_BITS) for span in spans]
        return Cells(self.bits, (*self.zooms, Zoom(cell[order], origin, np.array(shift, dtype=np.int64))))

    def to_dict(self) -> dict[str, Any]:
        """The numbering as plain values, for `from_dict`."""
        zooms = [{name: getattr(z, name).tolist() for name in ("cell", "origin", "shift")} for z in self.zooms]
        return {"bits": self.bits, "zooms": zooms}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Cells:
        """The numbering that `to_dict` described; a ValueError for one that cannot have come from there."""
        # Cells that are cut further, in all: each takes 1.7 MB. A stream of 15 bins cuts 14 in at most five passes.
        most_zoomed = 1024
        bits = check_integer(state["bits"], "bits", "CalibrationHistogram.from_json", most=MOST_BITS)
        cells = cls(bits)
        for zoom in state["zooms"]:
            cell, origin, shift = (np.array(zoom[name], dtype=np.int64) for name in ("cell", "origin", "shift"))
            if not (cell.ndim == 1 and 0 < cell.size == origin.size == shift.size and are_cells(cell, cells.size)):
                raise ValueError("cells that cannot be cut")
            if shift.min() < 0 or shift.max() > _MANTISSA_BITS + 10:
                raise ValueError("cells cut into parts of an impossible width")
            cells = cls(bits, (*cells.zooms, Zoom(cell, origin, shift)))
            if sum(len(zoom.cell) for zoom in cells.zooms) > most_zoomed:
                raise ValueError("more cells than a histogram has")
        return cells


@cache
def finest_bits(n_cells: int, most: int) -> int:
    """The bits of the finest grid with at most this number of cells."""
    return max((bits for bits in range(2, most + 1) if Cells(bits).size <= n_cells), default=1)


def are_cells(cell: Indices, size: int) -> bool:
    """Whether numbers rise and each names a cell."""
    return cell[0] >= 0 and cell[-1] < size and bool(np.all(np.diff(cell) > 0))


def ordered_key(confidence: Vector) -> Indices:
    """A whole number for each confidence, in the same order and a different one for different values."""
    half = _HALF_EXPONENT << _MANTISSA_BITS
    upper = confidence > 0.5
    pattern = np.where(upper, 1.0 - confidence, confidence).view(np.int64)
    key: Indices = np.where(upper, 2 * half - pattern, pattern)
    return key
