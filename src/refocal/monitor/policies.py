"""What to do about a calibrator in production: policies, which see labelled batches and say how to correct it.

Each starts from the calibrator in use and is shrunk towards it (`refocal.shift.correction`), so that a few hundred rows
are enough. A policy has a `correction`, made from what it has observed, and `observe`, which is given the calibrator's
log-probabilities of a batch with its labels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from refocal._arrays import Indices, Matrix
from refocal._validation import check_integer, check_number
from refocal.monitor.monitor import CalibrationMonitor
from refocal.rows.predictions import probability_rows
from refocal.shift.correction import Correction, OnlineUpdate, Prior, design_effect, fit_correction

# A correction is not made from fewer rows than this.
LEAST_ROWS = 200


class Batch(NamedTuple):
    """A labelled batch: the calibrator's log-probabilities and the labels, as columns."""

    period: str
    log_p: Matrix
    labels: Indices


class Policy(ABC):
    """What is done about a calibrator as labels arrive; it begins anew with `begin`."""

    name: str = ""

    @abstractmethod
    def begin(self, n_classes: int) -> None:
        """Forget everything."""

    @property
    @abstractmethod
    def correction(self) -> Correction:
        """The correction to be used for the next batch."""

    @abstractmethod
    def observe(self, batch: Batch) -> None:
        """The labels of a batch."""


@dataclass
class Keep(Policy):
    """Nothing is changed.

    >>> Keep().name
    'keep'
    """

    name: str = field(default="keep", init=False)  # a backtest and its page know it by this name

    def begin(self, n_classes: int) -> None:
        """Forget everything."""
        self._none = Correction.none(n_classes)

    @property
    def correction(self) -> Correction:
        """That which changes nothing."""
        return self._none

    def observe(self, batch: Batch) -> None:
        """Nothing is learned."""


@dataclass
class Window(Policy):
    """A refit on the last batches, of the intercepts alone or also of the slope.

    >>> Window(14).name, Window(30, intercept_only=True).name
    ('refit, last 14', 'intercept, last 30')
    """

    n_batches: int = 30
    intercept_only: bool = False
    prior: Prior = field(default_factory=Prior)
    name: str = ""

    def __post_init__(self) -> None:
        check_integer(self.n_batches, "n_batches", "Window")
        kind = "intercept" if self.intercept_only else "refit"
        self.name = self.name or f"{kind}, last {self.n_batches}"

    def begin(self, n_classes: int) -> None:
        """Forget everything."""
        self._batches: deque[Batch] = deque(maxlen=self.n_batches)
        self._none = Correction.none(n_classes)
        self._present = self._none

    @property
    def correction(self) -> Correction:
        """That of the last batches."""
        return self._present

    def observe(self, batch: Batch) -> None:
        """A batch enters the window."""
        self._batches.append(batch)
        batches = [*self._batches]
        first = self._present
        self._present = fitted_on(batches, self._none, self.prior, intercept_only=self.intercept_only, first=first)


@dataclass
class Forgetting(Policy):
    """All batches in one pass, older ones with less weight, in bounded memory.

    >>> Forgetting(10.0).name
    'online, half-life 10'
    """

    half_life: float = 20.0
    prior: Prior = field(default_factory=Prior)
    name: str = ""

    def __post_init__(self) -> None:
        check_number(self.half_life, "half_life", "Forgetting", above=0.0)
        self.name = self.name or f"online, half-life {self.half_life:g}"

    def begin(self, n_classes: int) -> None:
        """Forget everything."""
        self._online = OnlineUpdate(n_classes, self.half_life, self.prior)

    @property
    def correction(self) -> Correction:
        """That of all batches so far."""
        return self._online.correction

    def observe(self, batch: Batch) -> None:
        """A batch moves the correction."""
        self._online.partial_fit(batch.log_p, batch.labels)


@dataclass
class AtAlarm(Policy):
    """A refit on the batches since the change, when a monitor raises an alarm; the monitor then starts anew.

    >>> AtAlarm(alpha=0.01).name
    'refit at an alarm'
    """

    alpha: float = 0.05
    most_batches: int = 60
    prior: Prior = field(default_factory=Prior)
    name: str = "refit at an alarm"

    def begin(self, n_classes: int) -> None:
        """Forget everything."""
        self._batches: deque[Batch] = deque(maxlen=self.most_batches)
        self._present = Correction.none(n_classes)
        self._monitor = CalibrationMonitor(alpha=self.alpha)
        self._n_observed = 0
        self.alarms: list[str] = []

    @property
    def correction(self) -> Correction:
        """That of the last alarm."""
        return self._present

    def observe(self, batch: Batch) -> None:
        """A batch is watched, as it was predicted."""
        self._batches.append(batch)
        p = np.exp(self._present.apply(batch.log_p))
        rows = probability_rows(batch.labels, p[:, 1] if p.shape[1] == 2 else p / p.sum(axis=1, keepdims=True))
        self._n_observed += 1
        self._monitor.update(rows, period=self._n_observed)
        alarm = self._monitor.alarms[-1] if self._monitor.alarm is not None else None
        if alarm is None:
            return
        # An alarm may have come before there were rows enough: the batches after it are of the change, too.
        n_back = self._n_observed - int(alarm.since or alarm.period) + 1
        recent = [*self._batches][-n_back:]
        if sum(len(each.labels) for each in recent) < LEAST_ROWS:
            recent = [*self._batches]
        if sum(len(each.labels) for each in recent) < LEAST_ROWS:
            return
        self._present = fitted_on(recent, self._present, self.prior)
        self._monitor.restart()
        self._batches.clear()
        self.alarms.append(batch.period)


def fitted_on(
    batches: list[Batch],
    start: Correction,
    prior: Prior,
    *,
    intercept_only: bool = False,
    first: Correction | None = None,
) -> Correction:
    """The correction of some batches, whose rows count as their scatter allows; `start` with too few rows."""
    if sum(len(batch.labels) for batch in batches) < LEAST_ROWS:
        return start
    log_p = np.concatenate([batch.log_p for batch in batches])
    labels = np.concatenate([batch.labels for batch in batches])
    codes = np.repeat(np.arange(len(batches)), [len(batch.labels) for batch in batches])
    weight = np.full(len(labels), 1.0 / design_effect(start.apply(log_p), labels, codes))
    return fit_correction(log_p, labels, weight, start, prior, intercept_only=intercept_only, first=first)


def usual_policies() -> list[Policy]:
    """Those that a backtest compares unless it is told which.

    >>> [policy.name for policy in usual_policies()][:3]
    ['keep', 'intercept, last 30', 'refit, last 14']
    """
    return [
        Keep(),
        Window(30, intercept_only=True),
        Window(14),
        Window(30),
        Window(60),
        Forgetting(10.0),
        Forgetting(30.0),
        AtAlarm(),
    ]
