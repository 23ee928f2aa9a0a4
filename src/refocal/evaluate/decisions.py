"""What deciding from a threshold on does: how many rows are decided, how many of them wrongly, at what cost."""

from __future__ import annotations

from typing import NamedTuple

from refocal.evaluate.evaluation import DecisionTable


class Decision(NamedTuple):
    """Deciding the rows whose probability reaches a threshold; shares are of the weight of all rows."""

    threshold: float
    decided: float
    """The share of rows that is decided."""
    right: float
    """The share of rows that is decided and in which the event occurred."""
    promised: float
    """That share by the probabilities."""
    error: float
    """The share of errors among the decided rows; 0 if there are none."""
    cost: float
    """The cost of 1,000 rows."""


def decisions_of(table: DecisionTable, n_classes: int) -> list[Decision]:
    """What each threshold decides.

    Of two classes, a threshold t is right where a false alarm costs t and a missed event 1 - t: the cost of a row is
    t · P(false alarm) + (1 - t) · P(missed). Of more classes a mistake costs 1 and an undecided row 1 - t.

    >>> table = DecisionTable([0.0, 0.5], decided=[1.0, 0.5], right=[0.4, 0.3], promised=[0.5, 0.4])
    >>> [round(decision.cost) for decision in decisions_of(table, 2)], decisions_of(table, 2)[1].error
    ([0, 150], 0.4)
    """
    decisions = []
    columns = zip(table.threshold, table.decided, table.right, table.promised, strict=True)
    for threshold, decided, right, promised in columns:
        wrong = decided - right
        if n_classes == 2:
            cost_of_wrong = threshold
            missed = table.right[0] - right
        else:
            cost_of_wrong = 1.0
            missed = 1.0 - decided
        cost = 1000.0 * (cost_of_wrong * wrong + (1.0 - threshold) * missed)
        error = wrong / decided if decided else 0.0
        decisions.append(Decision(threshold, decided, right, promised, error, cost))
    return decisions


def usual_threshold(table: DecisionTable, n_classes: int) -> int:
    """The place of a threshold to begin with: of two classes the one nearest to the rate, else to 0.9."""
    wanted = min(max(table.right[0], 0.01), 0.5) if n_classes == 2 else 0.9
    return min(range(len(table.threshold)), key=lambda i: abs(table.threshold[i] - wanted))
