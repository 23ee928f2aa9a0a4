"""Decisions group by group, with the rates that fairness reviews ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from refocal._arrays import Flags, Indices
from refocal._groups import Groups
from refocal.metrics.intervals import Interval, ShareSummary
from refocal.rows import Predictions

__all__ = ["GroupDecisions"]


@dataclass(frozen=True)
class GroupDecisions:
    """The decisions in one group. The intervals of all measures and groups of a report hold together.

    The four rates are those of two classes and two actions, the second of which is the positive one, unless the columns
    of a data frame of costs are called as the classes: None for others, and where no row of the group can say something
    about them.

    >>> from refocal.decide import evaluate_decisions
    >>> y, p, region = [0, 1, 1, 0], [0.1, 0.8, 0.4, 0.6], ["north", "north", "south", "south"]
    >>> north, south = evaluate_decisions(y, p, [[0, 1], [1, 0]], groups={"region": region}).groups
    >>> north.name, north.selection_rate.value, north.cost.value, south.false_positive_rate.value
    ('north', 0.5, 0.0, 1.0)
    """

    column: str
    name: str
    n: int
    cost: Interval
    """The mean cost of a row."""
    expected_cost: float
    automated: Interval
    """The share of rows that were decided."""
    selection_rate: Interval | None = None
    """The share of all rows that the positive action is taken for."""
    false_positive_rate: Interval | None = None
    """The same among the rows of class 0."""
    false_negative_rate: Interval | None = None
    """The share of the rows of class 1 that another action is taken for; undecided rows are no mistakes."""
    ppv: Interval | None = None
    """The share of class 1 among the rows that the positive action is taken for: the positive predictive value."""


CostOfRows = Callable[[Indices, float], tuple[Interval, float]]
"""The mean cost of some rows at a level, and the expected one."""


def decisions_by_group(
    rows: Predictions,
    action: Indices,
    n_actions: int,
    positive: int,
    cost_of: CostOfRows,
    groups: Groups,
    level: float,
) -> list[GroupDecisions]:
    """Every group of every column, in the order of their names.

    An action of -1, ABSTAIN, is none; `positive` is the positive one of two. Each of m intervals has the level to the
    power of 1/m (Šidák 1967), close to 1, for which those of shares are exact.
    """
    members: dict[tuple[str, str], Indices] = {}
    for column, names in groups.items():
        for name in np.unique(names).tolist():
            members[column, name] = np.flatnonzero(names == name)
    is_two = rows.n_classes == 2 and n_actions == 2
    n_intervals = len(members) * (6 if is_two else 2)
    level_of_one = level ** (1.0 / max(n_intervals, 1))
    table = []
    for (column, name), of_group in members.items():
        happened = rows.labels[of_group] == 1
        action_of_group = action[of_group]
        selected = action_of_group == positive

        def share(
            event: Flags, among: Flags, of_group: Indices = of_group, *, is_class: bool = False
        ) -> Interval | None:
            """The share of an event among some rows of the group; None where there are none of these."""
            return exact_share_of_rows(rows, of_group[among], event[among], level_of_one, is_class=is_class)

        everyone = np.ones(len(of_group), dtype=np.bool_)
        decided = action_of_group >= 0
        automated = share(decided, everyone)
        assert automated is not None  # noqa: S101 - a group has rows
        cost, expected_cost = cost_of(of_group, level_of_one)
        table.append(
            GroupDecisions(
                column=column,
                name=name,
                n=len(of_group),
                cost=cost,
                expected_cost=expected_cost,
                automated=automated,
                selection_rate=share(selected, everyone) if is_two else None,
                false_positive_rate=share(selected, ~happened) if is_two else None,
                false_negative_rate=share(decided & ~selected, happened) if is_two else None,
                ppv=share(happened, selected, is_class=True) if is_two else None,
            )
        )
    return table


def share_of_rows(
    rows: Predictions, members: Indices, event: Flags, level: float, *, is_class: bool = False
) -> Interval | None:
    """The share of an event among some of the rows; None without rows, and from 0 to 1 where all are one cluster.

    `is_class` says that the event is the class of a row of two classes, on which weights may depend.
    """
    share = _share(rows, members, event, is_class=is_class)
    return None if share is None else share.interval(level=level)


def exact_share_of_rows(
    rows: Predictions, members: Indices, event: Flags, level: float, *, is_class: bool = False
) -> Interval | None:
    """The same for a level close to 1, of intervals that hold together."""
    share = _share(rows, members, event, is_class=is_class)
    return None if share is None else share.exact_interval(level=level)


def _share(rows: Predictions, members: Indices, event: Flags, *, is_class: bool) -> ShareSummary | None:
    """The share of an event among some of the rows; None where there are none."""
    if not len(members):
        return None
    weight = None if rows.weight is None else rows.weight[members]
    clusters = None if rows.clusters is None else rows.clusters[members]
    share = ShareSummary.of(event, weight, clusters)
    if not is_class or weight is None or 0.0 < share.value < 1.0:
        return share
    # All are of one class. How much a row of the other one would weigh is known from those that are elsewhere.
    of_other = rows.weights[rows.labels != rows.labels[members[0]]]
    if not len(of_other):
        return share
    weight_of_one = float(of_other @ of_other / of_other.sum())
    return replace(share, size=min(share.size, float(weight.sum()) / weight_of_one))
