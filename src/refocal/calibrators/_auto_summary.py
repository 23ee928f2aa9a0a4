"""What the default has fitted: as numbers, in sentences, and what to beware of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from refocal._arrays import Indices, to_numpy
from refocal.engine import Block
from refocal.fitting.affine import Scaling
from refocal.fitting.confidence import Tail
from refocal.fitting.mean_scaling import rows_for_matrix
from refocal.maps.chain import Chain


@dataclass(frozen=True, kw_only=True)
class FitSummary:
    """What was fitted; None where there is no such part.

    `form` is "curve" (of the log-odds of two classes), "vector" or "matrix" (a mean of scalings as one scaling),
    "temperature", or "laplace" (a temperature for rows that are all right).
    """

    form: str
    scaling: Scaling | None = None
    weights: dict[str, float] | None = None
    """Of the members of the mean."""
    share_uncalibrated: float | None = None
    """Of no calibration, with which the mean of curves is mixed at the end."""
    log_losses_left_out: dict[str, float] | None = None
    """Of the whole fit ("mean") and of the members, on rows left out."""
    log_loss_of_fit: float | None = None
    """On the rows of the fit, where none were left out."""
    tail: Tail | None = None

    @property
    def choice(self) -> dict[str, Any]:
        """The same as plain values: `choice_` of the calibrator."""
        plain: dict[str, Any] = {"chosen": self.form}
        if self.scaling is not None:
            # Each member of the mean has a strength of its own, and the mean has none.
            plain |= {name: value for name, value in self.scaling.choice.items() if name != "strength"}
        if self.weights is not None:
            plain["weights"] = self.weights
        if self.share_uncalibrated is not None:
            plain["share_uncalibrated"] = self.share_uncalibrated
        if self.log_losses_left_out is not None:
            plain["log_loss_out_of_fold"] = self.log_losses_left_out
        if self.log_loss_of_fit is not None:
            plain["log_loss"] = {self.form: self.log_loss_of_fit}
        if self.tail is not None:
            plain["gamma"] = self.tail.gamma
            plain["temperature"] = self.tail.temperature
        return plain


class AutoFit(NamedTuple):
    """A fit of the default: the chain, and what is said about it."""

    chain: Chain
    summary: FitSummary


@dataclass(frozen=True)
class References:
    """Log-losses that a calibrator should stay below."""

    uncalibrated: float
    shares: float
    """Of predicting the share of each class; infinite where the shares say nothing about other rows."""

    @classmethod
    def of(cls, rows: Block) -> References:
        """Those of the rows of a fit."""
        share = np.bincount(to_numpy(rows.labels), weights=rows.weight, minlength=rows.n_classes) / rows.total_weight
        # Shares of classes that occur once say nothing about other rows.
        by_share = -float(xlogy(share, share).sum()) if rows.n_classes < rows.n_rows else math.inf
        return cls(rows.means("temperature", 1.0, rough=True)[0], by_share)

    @property
    def named(self) -> dict[str, float]:
        """Each with its name."""
        return {"no calibration": self.uncalibrated, "predicting the share of each class": self.shares}


def max_rows(n_classes: int) -> int:
    """The most rows that all but the last fit of the scaling use: more would change the log-loss by less than 1e-4."""
    most = 100_000
    max_entries = 1 << 25  # of a matrix of logits
    return min(most, max_entries // n_classes)


CLASSES_PER_ROW = 10


def is_vocabulary(n_rows: int, n_classes: int) -> bool:
    """Whether there are too many classes to tell even one parameter for each: most of them never occur."""
    return n_rows * CLASSES_PER_ROW < n_classes


def sentences(rows: Block, summary: FitSummary, references: References) -> list[str]:
    """What was fitted and why."""
    if summary.form == "laplace":
        return ["Every row is right, so the temperature was fitted as if each were right with probability (n+1)/(n+2)."]
    negligible = 0.005  # a share that would be written as 0 %
    lines = []
    if summary.weights is not None:
        parts = ", ".join(f"{name} {share:.0%}" for name, share in summary.weights.items() if share >= negligible)
        of = "curves of the log-odds" if rows.n_classes == 2 else "scalings"
        lines.append(f"A mean of {of} was fitted: {parts}.")
    elif summary.form == "temperature":
        lines.append("Temperature scaling was fitted.")
    if summary.log_losses_left_out is not None:
        of_all = ", ".join(f"{name} {value:.4f}" for name, value in references.named.items() if value < math.inf)
        # The shares are those of the same rows: on rows left out they do a little worse.
        left_out = summary.log_losses_left_out["mean"]
        lines.append(f"Log-loss on rows left out: mean {left_out:.4f}; of all rows: {of_all}.")
    if summary.tail is not None:
        lines.append(
            f"It is followed by the focal map with γ = {summary.tail.gamma:.2f}, T = {summary.tail.temperature:.2f} "
            "and a curve of the confidence, fitted together by log-loss."
        )
    if summary.share_uncalibrated is not None and summary.share_uncalibrated >= negligible:
        share = summary.share_uncalibrated
        lines.append(f"{share:.0%} of the uncalibrated probabilities are mixed in: calibration is not clearly better.")
    if summary.form == "temperature" and is_vocabulary(rows.n_rows, rows.n_classes):
        lines.append(
            f"A scaling of the {rows.n_classes:,} classes was left out: there are more than {CLASSES_PER_ROW} for each "
            "row."
        )
    elif summary.log_losses_left_out is None:
        lines.append(f"{rows.n_rows:,} rows are too few to divide: nothing was cross-validated.")
    elif rows.n_classes > 2 and rows.n_rows < rows_for_matrix(rows.n_classes):
        needed = rows_for_matrix(rows.n_classes)
        most = max_rows(rows.n_classes)
        used = f", and at most {most:,} are used" if needed > most else ""
        lines.append(f"A matrix was left out: it needs {needed:,} rows for {rows.n_classes:,} classes{used}.")
    return lines


def reference_warnings(summary: FitSummary, references: References) -> list[str]:
    """Warnings about references that the result is worse than."""
    lines = []
    if summary.log_losses_left_out is not None:
        log_loss = summary.log_losses_left_out["mean"]
        where = "rows left out"
    else:
        log_loss = math.nan if summary.log_loss_of_fit is None else summary.log_loss_of_fit
        where = "the rows of the fit"
    for reference, value in references.named.items():
        if log_loss > value:
            lines.append(f"On {where} the log-loss, {log_loss:.4f}, is higher than that of {reference}, {value:.4f}.")
    return lines


def event_warnings(count: Indices, classes: NDArray[Any] | None) -> list[str]:
    """A warning about classes that hardly occur, from the number of rows of each, by their names if they have any.

    >>> event_warnings(np.array([3, 100, 97]), np.array(["hail", "rain", "sun"]))[0][:55]
    "Only 3 of 200 rows are of class 'hail': probabilities t"
    """
    few_events = 10  # below it even the share of a class is known to no better than about a third
    most_named = 3
    n_rows = int(count.sum())
    n_classes = len(count)
    # Of many classes each has few rows if there are few in all, which is no property of a class: one that is rare has
    # less than a fifth of an even share. And a class that does not occur may be one that cannot.
    if n_classes > 2 and n_rows < 5 * few_events * n_classes:
        return []
    least = 0 if n_classes == 2 else 1
    rare = np.flatnonzero((count >= least) & (count < few_events))
    if len(rare) == 0:
        return []
    rare = rare[np.argsort(count[rare], kind="stable")]
    names = list(range(n_classes)) if classes is None else classes.tolist()
    parts = [f"{count[i]} of {n_rows:,} rows are of class {names[i]!r}" for i in rare[:most_named]]
    n_others = len(rare) - len(parts)
    others = f", and as few of {n_others:,} more" if n_others else ""
    return [
        f"Only {', '.join(parts)}{others}: probabilities that are calibrated on fewer than {few_events} rows of a "
        "class are uncertain, however many rows there are of others."
    ]
