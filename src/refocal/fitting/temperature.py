"""The temperature of least log-loss by a bracketed Newton method, and what it shares with the search over (γ, T)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from refocal._arrays import as_floating, namespace, to_numpy
from refocal._validation import LARGE, SMALL
from refocal.engine.block import Block
from refocal.engine.dataset import Dataset
from refocal.errors import DataError
from refocal.fitting.solution import Solution, Status
from refocal.maps.row import softplus

MAX_STEPS = 100
# How far beyond the distances between logits temperatures are searched; probabilities are long saturated there.
REACH = 1e6
# The number of entries in which runner-ups are searched for.
GAP_ENTRIES = 1 << 20
# A mean distance this many times the typical one comes from classes that are masked by logits like -1e9.
OUTLYING = 1e3
# Close to γ = -1 the map loses its inverse and the log-loss has minima that gain nothing on other data.
GAMMA_BOUNDS = (-0.9, 100.0)
# A log-loss this small means separable data, for which T goes to 0.
NO_LOSS = 1e-9
# The number of rows on which the temperature is searched where every row is right.
LAPLACE_ROWS = 20_000
# The number of rows that a search begins on, and the share of all that it goes on with; a share of more rows than the
# last number is divided once more.
PART, SHARE, MANY = 300, 1 / 5, 6000


class LogitScale(NamedTuple):
    """Distances between the logits of a row: the starting temperature and the range that is searched."""

    typical: float
    lowest: float
    highest: float


class Care(NamedTuple):
    """When to stop: after a step as small as `step`; `rough`: whether six digits suffice."""

    step: float
    rough: bool


# Newton converges quadratically: after a relative step of this size the error is about that size squared.
CLOSE = Care(1e-5, rough=False)
ROUGH = Care(3e-3, rough=True)
LOOK = Care(0.05, rough=True)

MESSAGES: dict[Status, str] = {
    "converged": "the log-loss has a minimum here",
    "at a bound": (
        "the log-loss still falls at the end of the range. For T: every row is right (fit on more data, and on data "
        "the model was not trained on) or the labels have nothing to do with the logits (check their order). For γ: "
        f"the range is {GAMMA_BOUNDS[0]} to {GAMMA_BOUNDS[1]:g}"
    ),
    "not converged": f"no minimum after {MAX_STEPS} steps; try search='grid', and please report the data",
    "flat": "every row of logits is constant, so no temperature matters; it was kept",
}


def newton_temperature(dataset: Dataset) -> Solution:
    """The temperature of least log-loss; found once for each dataset.

    The loss is convex in 1/T, so a bracketed Newton method cannot miss its minimum.
    """
    if "temperature" not in dataset.memo:
        scale = scale_of(dataset)
        slope = 1.0
        status: Status = "flat"
        if scale is None:
            value = dataset.means("temperature", slope)[0]
        else:
            start = first_slope(dataset, scale)
            roughly, _, status = _bracketed(dataset, start, scale, ROUGH)
            slope, value, status = _bracketed(dataset, roughly if status == "converged" else start, scale)
        dataset.memo["temperature"] = Solution(0.0, 1.0 / slope, value, status, MESSAGES[status], dataset.passes)
    found: Solution = dataset.memo["temperature"]
    return found


def laplace_temperature(rows: Block) -> float:
    """The temperature of least log-loss where every one of n rows is right and counts as right by (n+1)/(n+2).

    A temperature that only gave the mean confidence (n+1)/(n+2) would leave no doubt at all where margins are wide.
    """
    from scipy.optimize import minimize_scalar

    target = (rows.total_weight + 1.0) / (rows.total_weight + 2.0)
    some, scale = rows.part(LAPLACE_ROWS), rows.mean_gap
    if scale == 0.0:  # all logits are equal
        return 1.0

    def loss(log_t: float) -> float:
        odds = some.split(0.0, scale * math.exp(log_t))[0, 0]
        return some.average(softplus(np, odds) - target * odds)

    return scale * math.exp(minimize_scalar(loss, bounds=(-20.0, 20.0), method="bounded", options={"xatol": 1e-6}).x)


def scale_of(dataset: Dataset) -> LogitScale | None:
    """The scale of the logits; None if all of each row are equal.

    Below the mean distance to the top there may be much smaller ones that matter, since a class that is far below
    hardly counts, however far: so the runner-ups of some of the rows are examined.
    """
    mean = dataset.mean_gap
    if mean == 0.0:
        return None
    if not SMALL <= mean <= LARGE:
        expected = f"of logits whose distances lie between {SMALL:g} and {LARGE:g} (impossible classes may be -inf)"
        raise DataError("X", "fit", expected=expected, got=f"a mean distance of {mean:g}")
    rows = dataset.part(PART)
    x, given = as_floating(rows.logits[: max(1, GAP_ENTRIES // rows.n_classes), :], "logits", "fit")
    xp = namespace(x)
    ranked = xp.sort(x, axis=-1)
    gaps, rounding = ranked[:, -1] - ranked[:, -2], 64.0 * float(xp.finfo(given).eps) * xp.abs(ranked[:, -1])
    near = to_numpy(gaps[(gaps < xp.inf) & (gaps > rounding)]).astype(np.float64)  # not impossible, not by rounding
    if len(near) == 0:
        near = np.array([mean])
    typical = min(mean, OUTLYING * float(np.median(near)))
    return LogitScale(typical, min(mean, float(near.min())) / REACH, mean * REACH)


def _bracketed(dataset: Dataset, slope: float, scale: LogitScale, care: Care = CLOSE) -> tuple[float, float, Status]:
    """Newton steps from a first 1/T; returns the last 1/T, its log-loss and the status."""
    ends = (1.0 / scale.highest, 1.0 / scale.lowest)
    low, high = ends
    value = math.inf
    status: Status = "not converged"
    for _ in range(MAX_STEPS):
        value, first, second = dataset.means("temperature", slope, rough=care.rough)
        if value < NO_LOSS:
            status = "at a bound"
            break
        target = slope - first / second if second > 0.0 else math.inf
        if abs(target - slope) <= care.step * slope:  # the last step needs no further pass
            slope, value, status = target, value - 0.5 * first * first / second, "converged"
            break
        low, high = (slope, high) if first < 0.0 else (low, slope)
        if low >= ends[1] or high <= ends[0]:
            status = "at a bound"
            break
        # A step that leaves the bracket or changes 1/T by more than a factor of ten is not trusted.
        if not low < target < high or not 0.1 < target / slope < 10.0:
            target = min(10.0 * slope, high) if first < 0.0 else max(0.1 * slope, low)
            if target in (low, high) and target not in ends:
                target = math.sqrt(low * high)
        slope = target
    return slope, value, status


def first_slope(dataset: Dataset, scale: LogitScale) -> float:
    """The first 1/T: the optimum of some of the rows, or else the inverse scale of the logits."""
    slope = 1.0 / scale.typical
    for rows in samples_of(dataset) if dataset.n_rows >= 2 * PART else ():
        if rows.mean_gap > 0.0:
            found, _, status = _bracketed(rows, slope, scale, LOOK)
            slope = found if status == "converged" else slope
    return slope


def samples_of(dataset: Dataset) -> list[Block]:
    """The samples of the rows on which a search begins, from a few rows to a share of all; kept with the dataset."""
    if "samples" not in dataset.memo:
        share = dataset.part(max(PART, int(SHARE * dataset.n_rows)))
        fewer = samples_of(share) if share.n_rows >= MANY else [dataset.part(PART)]
        dataset.memo["samples"] = [*fewer, share]
    found: list[Block] = dataset.memo["samples"]
    return found
