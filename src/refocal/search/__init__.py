"""Searches for (γ, T): what is minimised, over which points, and what was found."""

from refocal.search.find import PAPER_GAMMAS, PAPER_TEMPERATURES, find
from refocal.search.problem import Problem
from refocal.search.rows import Rows
from refocal.search.solution import Solution, Surface
from refocal.search.streamed import StreamedProblem

__all__ = ["PAPER_GAMMAS", "PAPER_TEMPERATURES", "Problem", "Rows", "Solution", "StreamedProblem", "Surface", "find"]
