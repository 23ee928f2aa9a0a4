"""Straight lines by least squares."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class Line(NamedTuple):
    """A straight line by least squares, and the share of the variance that it explains."""

    slope: float
    intercept: float
    r_squared: float

    def at(self, x: Vector) -> Vector:
        """Its height."""
        return self.slope * x + self.intercept

    def __str__(self) -> str:
        sign = "-" if self.intercept < 0 else "+"
        return f"{self.slope:.3f} γ {sign} {abs(self.intercept):.3f}"


def fit_line(x: Vector, y: Vector) -> Line:
    """The line through the points.

    >>> line = fit_line(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0]))
    >>> print(line, f"R² {line.r_squared:.3f}")
    2.000 γ + 1.000 R² 1.000
    """
    slope, intercept = np.polyfit(x, y, 1)
    residual = y - (slope * x + intercept)
    spread = y - y.mean()
    total = float(spread @ spread)
    return Line(float(slope), float(intercept), 1.0 - float(residual @ residual) / total if total > 0.0 else 1.0)
