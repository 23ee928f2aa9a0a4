"""Random divisions of rows into folds that depend on the rows alone, and not on their order or on that of classes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Indices, Vector, as_floating, in_library_of, namespace, to_numpy, without_last_digits
from refocal.engine import Block


def joined_folds(fold: Indices) -> Indices:
    """Folds joined to at most five parts, where more would take longer and teach nothing.

    >>> joined_folds(np.array([0, 4, 5, 9, 7])).tolist()
    [0, 4, 0, 4, 2]
    """
    max_parts = 5
    return fold % max_parts


def folds(rows: Block, n_folds: int, seed: int) -> Indices:
    """A random fold for each row, with every class spread evenly over the folds."""
    order = _order_of_values(rows)
    shuffled = np.empty(rows.n_rows, dtype=np.int64)
    shuffled[np.random.default_rng(seed).permutation(rows.n_rows)] = order.by_loss_in_class
    fold = np.empty(rows.n_rows, dtype=np.int64)
    fold[order.by_class(shuffled)] = np.arange(rows.n_rows) % n_folds
    return fold


def random_folds(rows: Block, n_folds: int, seed: int) -> Indices:
    """A random fold for each row, whatever its class.

    Where every class is spread evenly, the folds cannot show that the share of a class is uncertain: intercepts then
    look better than they are.
    """
    fold = np.empty(rows.n_rows, dtype=np.int64)
    fold[_order_of_values(rows).by_loss_in_class] = np.random.default_rng(seed).permutation(rows.n_rows) % n_folds
    return fold


class _ValueOrder(NamedTuple):
    """An order of rows that neither the order they are given in, nor that of classes, nor last digits decide on.

    The rows of a class are in the order of their log-loss, equal ones in that of their weights, and the classes in that
    of their total log-loss.
    """

    rank: NDArray[Any]
    """The place of each row's class."""
    by_loss_in_class: Indices

    def by_class(self, order: Indices) -> Indices:
        """Rows in some order, those of the first class first."""
        return order[np.argsort(self.rank[order], kind="stable")]


def _order_of_values(rows: Block) -> _ValueOrder:
    labels = to_numpy(rows.labels)
    (predictions,) = rows.predictions((0.0,), 1.0)
    log_p = predictions.label_log_p
    rank_of_class = np.argsort(np.argsort(np.bincount(labels, log_p, minlength=rows.n_classes)))
    rank = rank_of_class.astype(np.min_scalar_type(len(rank_of_class)))[labels]  # small integers are sorted fast
    by_loss = np.argsort(log_p, kind="stable")
    tied = 1e-6  # of log-loss: closer rows, as of forests of few trees, are in the order of another number
    steps = np.diff(log_p[by_loss]) > tied
    if not steps.all():
        place = np.empty(rows.n_rows, dtype=np.int64)
        place[by_loss] = np.append(0, np.cumsum(steps))
        by_loss = np.lexsort([rows.weights, _mixed_gaps(rows, rank_of_class), place])
    return _ValueOrder(rank, by_loss[np.argsort(rank[by_loss], kind="stable")])


def _mixed_gaps(rows: Block, rank_of_class: Indices) -> Vector:
    """A number for each row that differs where any of its logits does, and not with the order of the classes."""
    xp = namespace(rows.logits)
    logits, _ = as_floating(rows.logits, "logits", "fit")
    gap = xp.max(logits, axis=-1, keepdims=True) - logits
    largest = 1e8  # gaps above it are masks, as infinite ones are
    gap = xp.where(gap > largest, 0.0, gap)
    factors = in_library_of(gap, np.sqrt(2.0 + rank_of_class))
    mixed = np.asarray(to_numpy(xp.sum(gap * xp.astype(factors, gap.dtype), axis=-1)), dtype=np.float64)
    return without_last_digits(mixed)
