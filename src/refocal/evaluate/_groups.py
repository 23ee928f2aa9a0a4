"""Calibration group by group, with intervals that hold for all groups at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from refocal._groups import Groups
from refocal.evaluate._look import N_BINS
from refocal.evaluate.evaluation import GroupRow, Reliability
from refocal.metrics import Interval
from refocal.metrics._bins import Bins, make_bins, norm_of_gaps
from refocal.metrics._inputs import Rows
from refocal.metrics._resampling import base_weight, chunks
from refocal.metrics.reliability import band_of, curve_of
from refocal.metrics.shift import shift_interval

# A bin of a group has so many rows, as long as that leaves a bin.
ROWS_OF_A_BIN = 50
# So many groups have a reliability diagram, the worst.
DRAWN = 12
DRAWS = 200


def measure_groups(rows: Rows, groups: Groups, level: float, seed: int) -> list[GroupRow]:
    """Every group of every column, the worst first: the one whose mean is farthest from its rate beyond chance.

    The intervals hold for all groups together: by Šidák each has the level to the power of 1 over their number.
    """
    parts = [(column, name, rows.take(chosen)) for column, names in groups.items() for name, chosen in _members(names)]
    parts = [(column, name, part) for column, name, part in parts if base_weight(part).sum() > 0]
    each = level ** (1.0 / max(len(parts), 1))
    found = [(shift_interval(part, each), column, name, part) for column, name, part in parts]
    found.sort(key=lambda row: (-_surely_off(row[0]), -abs(row[0].value)))
    return [
        _row(column, name, part, difference, level, seed, drawn=i < DRAWN)
        for i, (difference, column, name, part) in enumerate(found)
    ]


def _members(names: NDArray[np.str_]) -> list[tuple[str, NDArray[np.int64]]]:
    """The rows of each group."""
    values, place, counts = np.unique(names, return_inverse=True, return_counts=True)
    order = np.argsort(place, kind="stable")
    return list(zip(values.tolist(), np.split(order, np.cumsum(counts)[:-1]), strict=True))


def _surely_off(difference: Interval) -> float:
    """How far a mean is from its rate at least."""
    return max(difference.low, -difference.high, 0.0)


def _row(column: str, name: str, part: Rows, difference: Interval, level: float, seed: int, *, drawn: bool) -> GroupRow:
    p, happened = part.confidence()
    n_bins = min(N_BINS, max(1, len(p) // ROWS_OF_A_BIN))
    bins = make_bins(p, happened, part.weight, n_bins=n_bins, strategy="quantile")
    curve = None
    if drawn:
        band = band_of(part, kind="consistency", n_bins=n_bins, strategy="quantile", n_resamples=DRAWS, level=level,
                       seed=seed)  # fmt: skip
        found = curve_of(bins, level)
        curve = Reliability(found.count, found.confidence, found.accuracy, band.low, band.high)
    return GroupRow(
        column=column,
        name=name,
        n=len(p),
        mean=float(np.average(p, weights=part.weight)),
        rate=float(np.average(happened, weights=part.weight)),
        difference=difference,
        ece=norm_of_gaps(bins, "l1"),
        ece_by_chance=_ece_by_chance(part, bins, seed),
        reliability=curve,
    )


def _ece_by_chance(part: Rows, bins: Bins, seed: int) -> float:
    """The mean ECE of labels that are drawn from the probabilities: what a calibrated model would show."""
    p, _ = part.confidence()
    order = np.argsort(p, kind="stable")
    weight = base_weight(part)[order]
    starts = np.cumsum(bins.count) - bins.count
    generator = np.random.default_rng(seed)
    errors = []
    for size in chunks(DRAWS, len(p)):
        gaps = weight * (p[order] - (generator.random((size, len(p))) < p[order]))
        errors.append(np.abs(np.add.reduceat(gaps, starts, axis=1)).sum(axis=1) / weight.sum())
    return float(np.concatenate(errors).mean())
