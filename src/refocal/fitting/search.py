"""The entry point of the searches: picks the one that suits the objective and returns what it found."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from refocal._arrays import Vector
from refocal._validation import check_number, check_option
from refocal.engine.block import Block
from refocal.engine.dataset import Dataset, sample_rows
from refocal.errors import ParameterError, UnsupportedError
from refocal.fitting.grid import by_score, interpolation, scan_grid, scan_points
from refocal.fitting.newton import Free, newton
from refocal.fitting.objective import NAMED, Objective, as_objective, by_own_name
from refocal.fitting.refine import polish, refine
from refocal.fitting.solution import Solution, Status, Surface
from refocal.fitting.temperature import laplace_temperature, newton_temperature

PAPER_GAMMAS = (-0.5, -0.25, 0.05, 0.25, 0.37, 0.5, 0.75, 1.0, 5.0)
"""The values of γ that the paper's experiments try."""

PAPER_TEMPERATURES = tuple(round(0.01 * i, 2) for i in range(1, 501))
"""The temperatures that the paper's experiments try: 0.01, 0.02, … 5."""

# The most confidences that a scan of the grid holds at once, in float64 numbers.
TABLE = 40_000_000
# From this many rows on, the steps of that grid exceed the noise of a calibration error: a sample narrows the grid
# down, and the optimum by log-loss and finer steps around the best point are candidates too.
MANY_ROWS = 20_000
# With more rows on a GPU a sample is evaluated, since the table of a grid is computed on the host.
GPU_ROWS = 100_000


def find(
    dataset: Dataset,
    *,
    objective: Any,
    search: str,
    gammas: Any = None,
    temperatures: Any = None,
    nll_tolerance: float | None = None,
    function: str = "find",
    progress: Callable[[float], None] | None = None,
) -> tuple[Solution, Surface | None]:
    """The best (γ, T) for an objective, and the surface that was evaluated, if any.

    `gammas` or `temperatures` with one value fix that parameter; None leaves the choice to the search. `progress` is
    called with the share of the grid that is done, from 0 to 1.

    With many rows a sample narrows the grid down, and the best candidates are measured on all rows.

    >>> rng = np.random.default_rng(0)
    >>> logits = 2.0 * rng.normal(size=(1000, 3))
    >>> labels = np.argmax(logits / 2.0 + rng.gumbel(size=logits.shape), axis=1)  # true T = 2
    >>> solution, surface = find(Block(logits, labels), objective="ece", search="grid")
    >>> solution.gamma in PAPER_GAMMAS, solution.temperature in PAPER_TEMPERATURES, surface.value.shape
    (True, True, (9, 500))
    """
    check_option(search, ("auto", "newton", "grid", "line"), "search", function)
    if nll_tolerance not in (None, math.inf):
        check_number(nll_tolerance, "nll_tolerance", function, also="None, inf or ", least=0.0)
    given_gammas = _points(gammas, "gammas", function, above=-1.0)
    given_temperatures = _points(temperatures, "temperatures", function, above=0.0)
    is_grid = any(points is not None and len(points) > 1 for points in (given_gammas, given_temperatures))
    by_newton = search == "newton" or (search == "auto" and by_own_name(objective) == "nll" and not is_grid)
    dataset.start(look=not by_newton)
    dataset.passes = 0
    goal = as_objective(objective, dataset.total_weight, function)
    if not by_newton:
        tolerance = goal.nll_tolerance if nll_tolerance is None else nll_tolerance
        return _on_grid(dataset, goal, search, given_gammas, given_temperatures, tolerance, progress)
    if goal.name != "nll":
        expected = f"'auto', 'grid' or 'line' for objective={goal.name!r}"
        raise ParameterError("search", function, expected=expected, got="'newton'")
    for values, argument in (gammas, "gammas"), (temperatures, "temperatures"):
        if np.size(values) > 1:
            expected = "None or one number for search='newton'"
            raise ParameterError(argument, function, expected=expected, got=repr(values))
    gamma = None if given_gammas is None else float(given_gammas[0])
    temperature = None if given_temperatures is None else float(given_temperatures[0])
    return newton(dataset, fixed_gamma=gamma, fixed_temperature=temperature), None


def _on_grid(
    dataset: Dataset,
    objective: Objective,
    search: str,
    given_gammas: Vector | None,
    given_temperatures: Vector | None,
    tolerance: float | None,
    progress: Callable[[float], None] | None,
) -> tuple[Solution, Surface]:
    """The best point of a grid or of a line through it, and around it in search="auto"."""
    is_auto = search == "auto"
    # Temperatures of search="auto" are relative to the one of least log-loss: the scale of the logits does not matter.
    auto_gammas = (-0.5, -0.25, 0.0, 0.05, 0.25, 0.5, 1.0, 2.0, 5.0)
    auto_temperatures = np.geomspace(0.3, 6.0, 121)
    gammas = given_gammas
    if gammas is None:
        gammas = np.array(auto_gammas if is_auto else PAPER_GAMMAS)
    temperatures = given_temperatures
    if temperatures is None:
        temperatures = np.array(auto_temperatures if is_auto else PAPER_TEMPERATURES)
    base = None
    if is_auto and given_temperatures is None:
        base = _base_temperature(dataset)
        temperatures = temperatures * base.temperature
        if base.status == "at a bound":  # any objective would continue to a T that is absurd on other rows
            gammas = gammas[[np.argmin(np.abs(gammas))]]
            temperatures = np.array([base.temperature])

    scan: Callable[[Block], Surface]
    if search == "line" and len(gammas) > 1 and len(temperatures) > 1:
        scan = partial(_scan_line, objective=objective, gammas=gammas, temperatures=temperatures)
    else:
        scan = partial(
            scan_grid,
            objective=objective,
            gammas=gammas,
            temperatures=temperatures,
            nll_tolerance=tolerance,
            progress=progress,
        )
    chosen, surface = _best(dataset, objective, scan, _most_rows(gammas, temperatures, is_auto), tolerance)
    if base is not None and base.status == "at a bound":
        return replace(chosen, status=base.status, message=base.message), surface
    if is_auto and dataset.n_rows >= MANY_ROWS and objective.polished:
        is_one_temperature = given_temperatures is not None and len(given_temperatures) == 1
        free = Free(
            gamma=given_gammas is None and (given_temperatures is None or is_one_temperature),
            temperature=given_temperatures is None,
        )
        chosen = polish(dataset, objective, surface, chosen, tolerance, free)
    return chosen, surface


def _base_temperature(dataset: Dataset) -> Solution:
    """The temperature of least log-loss; where every row is right there is none, and it is Laplace's."""
    base = newton_temperature(dataset)
    if base.status == "at a bound" and isinstance(dataset, Block) and dataset.correct.all():
        message = (
            "every row is right, so that no temperature is best: this one is best if each of n rows is right "
            "with probability (n+1)/(n+2). Fit on more data, and on data the model was not trained on"
        )
        return replace(base, temperature=laplace_temperature(dataset), message=message)
    return base


def _most_rows(gammas: Vector, temperatures: Vector, is_auto: bool) -> int:
    """The most rows on which a grid is scanned; those with more are sampled first."""
    always_allowed = 2_000
    nodes, _ = interpolation(np.log(temperatures))
    most = max(always_allowed, TABLE // (len(gammas) * len(nodes)))
    return min(most, MANY_ROWS) if is_auto else most


def _best(
    dataset: Dataset, objective: Objective, scan: Callable[[Block], Surface], most_rows: int, tolerance: float | None
) -> tuple[Solution, Surface]:
    """The best point of a surface, and the surface: of all rows if in memory and few, else of a sample first."""
    if dataset.in_memory and objective.metric is not None:
        most_rows = dataset.n_rows
    elif dataset.on_gpu:
        most_rows = min(most_rows, GPU_ROWS)
    n_scanned = min(dataset.n_rows, most_rows)
    if n_scanned < dataset.n_rows or not dataset.in_memory:
        n_scanned = min(n_scanned, sample_rows(dataset.n_classes))
    if objective.metric is not None and n_scanned < dataset.n_rows:
        *others, last = map(repr, NAMED)
        fine = f"{', '.join(others)} and {last} do not"
        raise UnsupportedError(f"The objective {objective.name!r} needs all rows in memory. {fine}.")
    surface = dataset.look(scan, n_scanned)
    if n_scanned == dataset.n_rows:
        index = np.unravel_index(by_score(surface.log_loss, surface.value, tolerance)[0], surface.value.shape)
    else:
        surface, index = refine(dataset, objective, surface, tolerance)
    temperature = float(surface.temperature[index])
    lowest = surface.temperature.min()
    highest = surface.temperature.max()
    status: Status = "converged"
    message = "the best of the points that were tried"
    if lowest < highest and temperature in (lowest, highest):
        status = "at a bound"
        message = "the best temperature is the first or last that was tried; give a wider range of temperatures"
    value = float(surface.value[index])
    return Solution(float(surface.gamma[index]), temperature, value, status, message, dataset.passes), surface


def _scan_line(block: Block, objective: Objective, gammas: Vector, temperatures: Vector) -> Surface:
    """The paper's 3m search: the best T for γ = 0 and γ = 1, the line through them, then as many points along it."""
    best = []
    for gamma in (0.0, 1.0):
        surface = scan_grid(block, objective, np.array([gamma]), temperatures)
        index = by_score(surface.log_loss, surface.value, None)[0]
        best.append(float(surface.temperature.flat[index]))
    along = np.linspace(gammas.min(), gammas.max(), len(temperatures))
    on_line = best[0] + (best[1] - best[0]) * along
    inside = on_line > 0.0
    return scan_points(block, objective, along[inside], on_line[inside])


def _points(values: Any, argument: str, function: str, above: float) -> Vector | None:
    """The values of γ or T that are given, if any are."""
    if values is None:
        return None
    try:
        points: Vector = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        points = np.empty(0)
    if points.ndim != 1 or len(points) == 0 or not (np.isfinite(points).all() and points.min() > above):
        expected = f"a number or a list of numbers, finite and greater than {above:g}"
        raise ParameterError(argument, function, expected=expected, got=repr(values))
    return points
