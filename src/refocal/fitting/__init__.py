"""Searches for (γ, T): what is minimised, over which points, and what was found."""

from refocal.fitting.search import PAPER_GAMMAS, PAPER_TEMPERATURES, find
from refocal.fitting.solution import Solution, Surface

__all__ = ["PAPER_GAMMAS", "PAPER_TEMPERATURES", "Solution", "Surface", "find"]
