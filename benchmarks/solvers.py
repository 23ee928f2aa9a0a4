"""Our two minimisers beside scipy's, in passes over the rows: the table of docs/architecture.md.

    python benchmarks/solvers.py [FOLDER]

FOLDER has networks' logits: .npz with `val` and `yv`, or with `logits` and `labels`, of which the first 5,000 rows are
used; without it, the samples that come with refocal are. On each network the fits of refocal are run, and the problems
that they hand to a solver are recorded, with their starts and bounds. Each is then minimised by every method that can:
an evaluation of F with its derivatives is one pass, whichever of them the method uses. The table has the mean number of
passes until F is within 1e-6 (relative to F where that is above 1) of the lowest value that any method reached; in
brackets, until the method ends, ours by the tolerance of the fit. Both are means over the problems in which all methods
arrive; how many a method ends elsewhere, in another minimum or outside the bounds, comes after them.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import Bounds, minimize, minimize_scalar

from refocal import AutoCalibration
from refocal.calibrators.registry import make
from refocal.engine import Block
from refocal.fitting import affine, confidence, logistic, newton, temperature
from refocal.fitting.solver import LBFGS, Newton, Tolerance
from refocal.io import load_sample

MAX_ROWS = 5_000
CLOSE = 1e-6


@dataclass
class Problem:
    """What a fit hands to a solver."""

    name: str
    solver: Newton | LBFGS
    start: np.ndarray

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each parameter; a parameter whose bounds are equal is fixed."""
        if isinstance(self.solver, LBFGS):
            return np.full(len(self.start), -np.inf), np.full(len(self.start), np.inf)
        return np.array(self.solver.lower), np.array(self.solver.upper)


class Trace:
    """The values of F in the order of the passes; asked again at the same point, it takes no further pass."""

    def __init__(self, problem: Problem) -> None:
        self.objective: Callable[..., Any] = problem.solver.objective
        self.as_numbers = isinstance(problem.solver, Newton)
        self.values: list[float] = []
        self.last_point: np.ndarray | None = None
        self.last: Any = None

    def __call__(self, x: Any) -> Any:
        """F with its derivatives at x."""
        point = np.array(x, dtype=np.float64)
        if self.last_point is None or not np.array_equal(point, self.last_point):
            self.last = self.objective(tuple(point.tolist()) if self.as_numbers else point)
            self.last_point = point
            self.values.append(float(self.last[0]))
        return self.last


@dataclass
class Run:
    """One method on one problem."""

    values: list[float]
    """Of F at each pass."""
    final: float
    """At the point that the method returned."""

    def passes_to(self, goal: float) -> float:
        """The number of passes after which F is at most `goal`; infinite if it never is."""
        for i, value in enumerate(self.values):
            if value <= goal:
                return i + 1
        return len(self.values) if self.final <= goal else math.inf


def ours(problem: Problem, tolerance: Tolerance) -> Run:
    """By the solver of the fit."""
    trace = Trace(problem)
    solver = problem.solver
    if isinstance(solver, Newton):
        solver = Newton(trace, tolerance, solver.lower, solver.upper, solver.longest_step)
    else:
        solver = LBFGS(trace, solver.precondition, tolerance)
    start = problem.start.tolist() if isinstance(solver, Newton) else problem.start
    state = solver.init(solver.evaluate(start))
    while not solver.terminate(state):
        state = solver.step(state)
    values = list(trace.values)
    return Run(values, float(trace(state.at.point)[0]))


def scipys(problem: Problem, method: str, *, preconditioned: bool = False) -> Run | None:
    """By scipy, until it sees no further progress; None where the method needs what a pass does not give."""
    trace = Trace(problem)
    lower, upper = problem.bounds
    is_free = lower < upper
    has_hessian = isinstance(problem.solver, Newton)
    matrix = np.eye(len(problem.start))[:, is_free]
    if preconditioned:
        if has_hessian:
            return None
        # x = start + M v, where M Mᵀ is the estimate of the inverse Hessian.
        columns = [problem.solver.precondition(unit) for unit in np.eye(len(problem.start))]
        inverse = np.stack(columns, axis=1)
        eigenvalues, vectors = np.linalg.eigh(0.5 * (inverse + inverse.T))
        matrix = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))

    def at(v: np.ndarray) -> np.ndarray:
        return problem.start + matrix @ v

    zero = np.zeros(matrix.shape[1])
    if method == "minimize_scalar":
        if len(zero) != 1:
            return None
        low = float((lower - problem.start)[is_free][0])
        high = float((upper - problem.start)[is_free][0])
        result = minimize_scalar(
            lambda v: trace(at(np.array([v])))[0], bounds=(low, high), method="bounded", options={"xatol": 1e-8}
        )
        return Run(list(trace.values), float(result.fun))
    options: dict[str, Any] = {"gtol": 1e-9, "maxiter": 500}
    arguments: dict[str, Any] = {"jac": lambda v: matrix.T @ np.array(trace(at(v))[1])}
    if method == "trust-exact":
        if not has_hessian:
            return None
        arguments["hess"] = lambda v: matrix.T @ np.array(trace(at(v))[2]) @ matrix
    else:
        options |= {"ftol": 1e-15, "maxcor": 10, "maxfun": 2000}
        if not preconditioned:
            arguments["bounds"] = Bounds((lower - problem.start)[is_free], (upper - problem.start)[is_free])
    result = minimize(lambda v: trace(at(v))[0], zero, method=method, options=options, **arguments)
    values = list(trace.values)
    end = at(result.x)
    is_inside = bool(np.all(end >= lower - 1e-9) and np.all(end <= upper + 1e-9))
    return Run(values, float(trace(end)[0])) if is_inside else Run([math.inf] * len(values), math.inf)


def ours_exactly(problem: Problem) -> Run:
    """By the solver of the fit, until next to nothing is gained."""
    tolerance = problem.solver.tolerance
    return ours(problem, tolerance._replace(gain=min(tolerance.gain, 1e-9)))


METHODS: dict[str, Callable[[Problem], Run | None]] = {
    "refocal": ours_exactly,
    "trust-exact": lambda problem: scipys(problem, "trust-exact"),
    "L-BFGS-B": lambda problem: scipys(problem, "L-BFGS-B"),
    "L-BFGS-B, preconditioned": lambda problem: scipys(problem, "L-BFGS-B", preconditioned=True),
    "minimize_scalar": lambda problem: scipys(problem, "minimize_scalar"),
}


def problems_of(logits: np.ndarray, labels: np.ndarray) -> Iterator[Problem]:
    """What the fits on one network hand to the solvers."""
    block = Block(logits, labels)
    scale = temperature.scale_of(block)
    log_t = math.log(temperature.first_temperature(block.part(10), scale))
    solver = Newton(
        lambda u: temperature._log_loss(block, False, u),
        temperature.FULL.tolerance(block),
        (math.log(scale.lowest),),
        (math.log(scale.highest),),
        temperature.LONGEST_STEP,
    )
    yield Problem("T: 1", solver, np.array([log_t]))
    best = temperature.newton_temperature(block).temperature
    for gamma in (0.0, 1.0, 5.0):
        solver = Newton(
            lambda u: newton._log_loss(block, False, u),
            temperature.FULL.tolerance(block),
            (math.log1p(temperature.GAMMA_BOUNDS[0]), math.log(scale.lowest)),
            (math.log1p(temperature.GAMMA_BOUNDS[1]), math.log(scale.highest)),
            temperature.LONGEST_STEP,
        )
        start = newton._matched(gamma, best, newton.Free(gamma=True, temperature=True))
        yield Problem("γ and T: 2", solver, np.array([math.log1p(start.gamma), math.log(start.temperature)]))
    by_name: dict[str, list[Problem]] = defaultdict(list)
    for problem in recorded_problems(logits, labels):
        by_name[problem.name].append(problem)
    most_of_a_kind = 12  # fits in folds are alike
    for problems in by_name.values():
        yield from problems[:: max(1, len(problems) // most_of_a_kind)]


def recorded_problems(logits: np.ndarray, labels: np.ndarray) -> list[Problem]:
    """What `AutoCalibration` and, of few classes, one logistic curve per class hand to `minimise`."""
    n_classes = logits.shape[1]
    recorded: list[Problem] = []

    def name_of(module: Any, n_parameters: int) -> str:
        if module is logistic:
            return "curve: 2 to 7"
        if module is confidence:
            return "γ, T and curve: 9"
        return f"vector: {n_parameters}" if n_parameters == 2 * n_classes else f"matrix: {n_parameters}"

    def recording(module: Any, minimise: Callable[..., Any]) -> Callable[..., Any]:
        def record(solver: Any, at: Any) -> Any:
            recorded.append(Problem(name_of(module, len(at.point)), solver, np.array(at.point)))
            return minimise(solver, at)

        return record

    modules = (affine, confidence, logistic)
    originals = [module.minimise for module in modules]
    try:
        for module, original in zip(modules, originals, strict=True):
            module.minimise = recording(module, original)
        AutoCalibration().fit(logits, labels)
        if n_classes <= 10:
            make("logistic").fit(logits, labels)
    finally:
        for module, original in zip(modules, originals, strict=True):
            module.minimise = original
    return recorded


def networks(folder: str | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Logits and labels of each file, or of each sample that comes with refocal."""
    if folder is None:
        for name in ("cifar10-focal3", "cifar10-cross-entropy"):
            validation, _ = load_sample(name)
            yield np.asarray(validation.logits, dtype=np.float64)[:MAX_ROWS], np.asarray(validation.labels)[:MAX_ROWS]
        return
    for path in sorted(Path(folder).rglob("*.npz")):
        data = np.load(path)
        logits, labels = ("val", "yv") if "val" in data else ("logits", "labels")
        yield data[logits][:MAX_ROWS].astype(np.float64), data[labels][:MAX_ROWS].astype(np.int64)


def main() -> None:
    warnings.simplefilter("ignore")
    passes: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    ended: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for logits, labels in networks(sys.argv[1] if len(sys.argv) > 1 else None):
        for problem in problems_of(logits, labels):
            runs = {name: method(problem) for name, method in METHODS.items()}
            lowest = min(min(run.final, *run.values) for run in runs.values() if run is not None and run.values)
            goal = lowest + CLOSE * max(1.0, abs(lowest))
            for name, run in runs.items():
                if run is not None:
                    passes[problem.name][name].append(run.passes_to(goal))
                    ended[problem.name][name].append(len(run.values))
            ended[problem.name]["refocal"][-1] = len(ours(problem, problem.solver.tolerance).values)
    print("| problem: parameters | number | " + " | ".join(METHODS) + " |")
    print("|---|---|" + "---|" * len(METHODS))
    for problem_name, by_method in passes.items():
        has_arrived = {name: np.isfinite(counts) for name, counts in by_method.items()}
        in_all = np.all(list(has_arrived.values()), axis=0)
        cells = []
        for name in METHODS:
            if name not in by_method:
                cells.append("–")
                continue
            mean = np.array(by_method[name])[in_all].mean()
            mean_end = np.array(ended[problem_name][name])[in_all].mean()
            n_elsewhere = int(np.count_nonzero(~has_arrived[name]))
            cells.append(f"{mean:.1f} ({mean_end:.1f})" + (f", elsewhere {n_elsewhere}" if n_elsewhere else ""))
        print(f"| {problem_name} | {len(in_all)} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
