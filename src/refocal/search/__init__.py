"""Searches for (γ, T): what is minimised, over which points, and what was found."""

from refocal.search.find import PAPER_GAMMAS, PAPER_TEMPERATURES, find
from refocal.search.problem import Problem
from refocal.search.solution import Solution, Surface

__all__ = ["PAPER_GAMMAS", "PAPER_TEMPERATURES", "Problem", "Solution", "Surface", "find"]
