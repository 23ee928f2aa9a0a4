"""The evidence of whole batches against calibration, valid where the rows of a batch share a day.

A stream is a bounded weight g of the rows: 1 for the mean, their place on the score axis for the slope, the members of
a class or a group. Batch t gives

    x_t = Σ g (y - p) / √Σ g² p (1 - p),

whose scale is known before the labels. If x_t is symmetric around 0 given the past, as it is for a day effect of any
size, then exp(λ Σx - λ² Σx²/2) is a supermartingale for every λ, and so is its mean over λ ~ N(0, 1/ρ²),

    e(S, V) = √(ρ²/(V + ρ²)) exp(S²/(2 (V + ρ²))),    S = Σx, V = Σx²

(de la Peña, Klass and Lai 2004). A stream owns a capital of 1 that it spreads over ρ² and over starting times, so that
a change after a long calm is noticed; a test spreads a capital of 1 over its streams. Capital may be moved between
strategies at its present value. The total is an e-process: it ever reaches 1/α with a probability of at most α (Ville
1939), however often one looks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from refocal._arrays import Vector
from refocal.errors import FormatError

PRECISIONS = np.array([3.0, 12.0])
"""ρ²: λ, which is best at E x / E x², is spread around 0 by 1/ρ."""
LEAST_INFORMATION = 5.0
"""The variance Σ g² p (1 - p), in events, of what enters a stream at once; smaller batches are pooled until then.

The outcome of a few rare events is not symmetric.
"""
MOST_STARTS = 16
"""The starting times that a stream keeps; those of long ago stand for their neighbours."""


def left_after(n_periods: int) -> float:
    """The capital that has not been bet after some periods; it falls to 0 slowly, so that late changes are found too.

    >>> left_after(0), round(left_after(3), 3)
    (1.0, 0.465)
    """
    return 0.5 / math.sqrt(1.0 + n_periods) + 0.5 / math.log2(n_periods + 2)


def log_bet(n_periods: int) -> float:
    """The logarithm of the capital that is bet from the next period on, after `n_periods` others."""
    return math.log(left_after(n_periods) - left_after(n_periods + 1))


@dataclass
class Stream:
    """The capital of one stream, by starting time: plain values, for JSON.

    >>> stream = Stream()
    >>> for _ in range(30):
    ...     stream.add(residual=8.0, information=16.0)  # two standard deviations too many events each time
    >>> stream.log_e > math.log(20)
    True
    """

    log_weight: list[float] = field(default_factory=list)
    """The logarithm of the capital put into each start, oldest first."""
    s: list[float] = field(default_factory=list)
    v: list[float] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    """How many batches had entered before each start."""
    n_entered: int = 0
    residual: float = 0.0
    """Σ g (y - p) of batches that are not enough to enter yet."""
    information: float = 0.0
    """Σ g² p (1 - p) of the same."""

    @property
    def log_e(self) -> float:
        """The logarithm of the present capital."""
        kept = math.log(left_after(self.n_entered))
        return float(np.logaddexp.reduce([kept, *self._log_capital()]))

    @property
    def mean(self) -> float:
        """The mean of x, in standard deviations of independent rows, since the start whose capital has grown the most.

        Its sign is that of y - p.
        """
        if not self.begun:
            return 0.0
        best = int(np.argmax(self._log_capital() - np.array(self.log_weight)))
        return self.s[best] / (self.n_entered - self.begun[best])

    def add(self, residual: float, information: float) -> None:
        """A batch; it enters together with later ones if it has little information.

        Probabilities next to 0 and 1 have hardly any, however wrong they are. So a batch enters, too, if its outcomes
        are 20 events or more from what is expected: with a variance below 5 this has a probability below 1e-9 if the
        model is calibrated.
        """
        surplus = 20.0
        self.residual += residual
        self.information += information
        if self.information < LEAST_INFORMATION and abs(self.residual) < surplus:
            return
        x = self.residual / math.sqrt(max(self.information, LEAST_INFORMATION))
        self.residual = 0.0
        self.information = 0.0
        self.log_weight.append(log_bet(self.n_entered))
        self.begun.append(self.n_entered)
        self.s = [s + x for s in (*self.s, 0.0)]
        self.v = [v + x * x for v in (*self.v, 0.0)]
        self.n_entered += 1
        if len(self.begun) > MOST_STARTS:
            self._join()

    def copied(self) -> Stream:
        """Another stream of the same capital."""
        lists = ([*self.log_weight], [*self.s], [*self.v], [*self.begun])
        return Stream(*lists, self.n_entered, self.residual, self.information)

    def scaled(self, log_share: float) -> Stream:
        """The same strategies with a part of the capital; nothing is kept back."""
        log_weight = [weight + log_share for weight in self.log_weight]
        return Stream(log_weight, self.s, self.v, self.begun, self.n_entered, self.residual, self.information)

    def averaged(self, other: Stream, log_shares: tuple[float, float]) -> Stream:
        """Parts of the capital, of sum 1, in the strategies of each: a weighted mean of two e-processes is one."""
        parts = [self.scaled(log_shares[0]), other.scaled(log_shares[1])]
        n_entered = max(self.n_entered, other.n_entered)
        made = Stream(
            log_weight=[weight for part in parts for weight in part.log_weight],
            s=[s for part in parts for s in part.s],
            v=[v for part in parts for v in part.v],
            begun=[begun + n_entered - part.n_entered for part in parts for begun in part.begun],
            n_entered=n_entered,
            residual=self.residual + other.residual,
            information=self.information + other.information,
        )
        order = np.argsort(made.begun, kind="stable")
        for name in ("log_weight", "s", "v", "begun"):
            setattr(made, name, [getattr(made, name)[i] for i in order])
        while len(made.begun) > MOST_STARTS:
            made._join()
        return made

    def check(self) -> None:
        """Refuse what no stream can have written."""
        lengths = {len(values) for values in (self.log_weight, self.s, self.v, self.begun)}
        if len(lengths) != 1 or min([0.0, self.information, *self.v, *self.begun]) < 0.0:
            raise FormatError("a stream must have as many weights as sums, and no squares below 0.")
        if max(self.begun, default=-1) >= max(self.n_entered, 0):
            raise FormatError("a stream must have begun before its last batch.")

    def _log_capital(self) -> Vector:
        """The logarithm of the capital of each start."""
        s = np.array(self.s)[:, None]
        v = np.array(self.v)[:, None]
        log_e: Vector = 0.5 * np.log(PRECISIONS / (v + PRECISIONS)) + s**2 / (2.0 * (v + PRECISIONS))
        mean_log_e: Vector = np.logaddexp.reduce(log_e, axis=1) - math.log(len(PRECISIONS))
        capital: Vector = mean_log_e + np.array(self.log_weight)
        return capital

    def _join(self) -> None:
        """Move the capital of a start into a neighbour, where the ages of the two differ least in proportion."""
        age = self.n_entered - np.array(self.begun, dtype=np.float64)
        first = int(np.argmin(age[:-1] / age[1:]))
        capital = self._log_capital()
        kept, dropped = (first, first + 1) if capital[first] >= capital[first + 1] else (first + 1, first)
        self.log_weight[kept] += float(np.logaddexp(capital[kept], capital[dropped]) - capital[kept])
        for values in (self.log_weight, self.s, self.v, self.begun):
            del values[dropped]


@dataclass
class BatchTest:
    """Streams by name, in families of equal shares of the capital; a new stream is given an equal part of its family.

    >>> test = BatchTest()
    >>> for _ in range(30):
    ...     test.add({"mean/all rows": (8.0, 16.0), "shape/slope": (0.0, 9.0)})
    >>> test.log_e > math.log(20), test.moved(0.05)
    (True, ['mean/all rows'])
    """

    streams: dict[str, Stream] = field(default_factory=dict)
    log_share: dict[str, float] = field(default_factory=dict)
    """The logarithm of the part of the capital that each stream was given, by stream."""

    @property
    def log_e(self) -> float:
        """The logarithm of the e-value, the capital of all streams."""
        capital = [self.log_share[name] + stream.log_e for name, stream in self.streams.items()]
        return float(np.logaddexp.reduce(capital)) if capital else 0.0

    def add(self, sums: dict[str, tuple[float, float]]) -> None:
        """The sums Σ g (y - p) and Σ g² p (1 - p) of a batch, by stream."""
        for name in sums:
            if name not in self.streams:
                self._begin(name)
        for name, (residual, information) in sums.items():
            self.streams[name].add(residual, information)

    def copied(self) -> BatchTest:
        """Another test of the same capital."""
        return BatchTest({name: stream.copied() for name, stream in self.streams.items()}, dict(self.log_share))

    def _begin(self, name: str) -> None:
        """A new stream gets an equal part of the present capital of its family, a new family one of all.

        So streams that begin together have equal shares of their family.
        """
        family = name.split("/")[0]
        givers = [other for other in self.streams if other.split("/")[0] == family]
        parts = len(givers) + 1
        if not givers:
            givers = [*self.streams]
            parts = len({other.split("/")[0] for other in self.streams}) + 1
        capital = [self.log_share[other] + self.streams[other].log_e for other in givers]
        self.streams[name] = Stream()
        self.log_share[name] = float(np.logaddexp.reduce(capital)) - math.log(parts) if givers else 0.0
        for other in givers:
            self.log_share[other] += math.log1p(-1.0 / parts)

    def moved(self, alpha: float) -> list[str]:
        """The streams that have moved, with a familywise error of at most alpha, most evidence first.

        A stream is named where the weighted mean e-value of every set of streams that has it in reaches 1/alpha: the
        closed test, whose least mean has the streams of the smallest e-values beside it (Vovk and Wang 2021).
        """
        weights = {name: math.exp(share) for name, share in self.log_share.items()}
        log_e = {name: stream.log_e for name, stream in self.streams.items()}
        ascending = sorted(log_e, key=lambda name: log_e[name])
        named = []
        for name in reversed(ascending):
            weight = weights[name]
            log_total = math.log(weight) + log_e[name]
            for other in ascending:
                if other == name or log_e[other] >= log_total - math.log(weight):
                    continue
                log_total = float(np.logaddexp(log_total, math.log(weights[other]) + log_e[other]))
                weight += weights[other]
            if log_total - math.log(weight) >= -math.log(alpha):
                named.append(name)
        return named

    def averaged(self, other: BatchTest) -> BatchTest:
        """The mean of two tests: half of the capital of each, stream by stream."""
        streams = {}
        log_share = {}
        for name in dict.fromkeys([*self.streams, *other.streams]):
            both = [test for test in (self, other) if name in test.streams]
            log_total = float(np.logaddexp.reduce([test.log_share[name] for test in both]))
            log_share[name] = log_total - math.log(2.0)
            streams[name] = both[0].streams[name]
            if len(both) == 2:
                # Tests may have given a stream other shares: what it has won counts with those it was won with.
                log_parts = (self.log_share[name] - log_total, other.log_share[name] - log_total)
                streams[name] = self.streams[name].averaged(other.streams[name], log_parts)
        return BatchTest(streams, log_share)
