"""GroupCalibration beside multicalibration, which corrects every group at every score, on groups that overlap.

Rows belong to one group of each of three columns. The true log-odds are the score plus an effect of the groups:
"none"; "columns", an intercept and a slope for each group of each column; "crossed", an intercept for each pair of
groups of two columns; "curve", a bump of the score in a third of the groups. The two multicalibrators boost log-odds
from the same common calibrator: "patches" (Hébert-Johnson et al. 2018) moves the cell of a group and a tenth of the
scores that is off the most, and "trees" (as MCBoost and MCGrad do) adds small trees of the score and the groups; both
stop where five held-out folds say. The table has the expected log-loss above that of the truth, in thousandths, and
the largest |mean p - mean truth| of a group, in points, on fresh rows. Run it with

    python benchmarks/multicalibration.py --output benchmarks/results/multicalibration.md
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from pathlib import Path

import numpy as np
from sklearn.model_selection import KFold
from sklearn.tree import DecisionTreeRegressor

from refocal import GroupCalibration, LogisticCalibration
from refocal.errors import FitWarning

SIZES, ROWS, TEST_ROWS = (4, 5, 6), (1_000, 4_000), 20_000
EFFECTS = ("none", "columns", "crossed", "curve")
STEP, MOST_ROUNDS = 0.3, 150


def sigmoid(x):
    """Probabilities of log-odds."""
    return 1.0 / (1.0 + np.exp(-x))


def draw_effect(kind, rng):
    """A function of scores and groups: the true log-odds."""
    shift = [rng.normal(0.0, 0.5, size) for size in SIZES]
    slope = [np.exp(rng.normal(0.0, 0.2, size)) for size in SIZES]
    pairs = rng.normal(0.0, 0.7, SIZES[:2])

    def truth(score, groups):
        if kind == "none":
            return score
        if kind == "crossed":
            return score + pairs[groups[0], groups[1]]
        if kind == "curve":
            return score + 1.5 * np.exp(-((score + 1.0) ** 2)) * (groups[2] < 2)
        for own_shift, own_slope, group in zip(shift, slope, groups, strict=True):
            score = own_slope[group] * score + own_shift[group]
        return score

    return truth


def draw(rng, truth, n_rows):
    """Scores, groups, true probabilities and outcomes."""
    score = rng.normal(-1.0, 1.5, n_rows)
    groups = [rng.choice(size, n_rows, p=np.arange(1, size + 1) / sum(range(size + 1))) for size in SIZES]
    p = sigmoid(truth(score, groups))
    return score, groups, p, (rng.random(n_rows) < p).astype(int)


class Patches:
    """Rounds of moves, each of one cell of a group and a tenth of the scores."""

    def __init__(self, score):
        self.edges = np.quantile(score, np.arange(1, 10) / 10)

    def table(self, score, groups):
        """The cells of each row, one for each column."""
        tenth = np.searchsorted(self.edges, score)
        starts = np.cumsum((0, *SIZES[:-1]))
        return np.stack([(start + group) * 10 + tenth for start, group in zip(starts, groups, strict=True)], axis=1)

    def fit_round(self, table, p, y):
        """A function of such a table: the next step of the log-odds."""
        terms = [np.repeat(each, len(SIZES)) for each in (y - p, p * (1.0 - p))]
        gap, room = (np.bincount(table.ravel(), each, 10 * sum(SIZES)) for each in terms)
        cell = int(np.argmax(np.abs(gap) / np.sqrt(room + 1.0)))
        return lambda table: STEP * gap[cell] / (room[cell] + 1.0) * (table == cell).any(axis=1)


class Trees:
    """Rounds of small trees of the score and of which groups a row is in, by Newton steps."""

    def __init__(self, score):
        self.leaf = max(20, len(score) // 100)

    def table(self, score, groups):
        """The score, and a column for each group."""
        members = [group == i for group, size in zip(groups, SIZES, strict=True) for i in range(size)]
        return np.column_stack([score, *members]).astype(np.float32)

    def fit_round(self, table, p, y):
        """A function of such a table: the next step of the log-odds."""
        room = p * (1.0 - p) + 1e-9
        tree = DecisionTreeRegressor(max_depth=3, min_samples_leaf=self.leaf, random_state=0)
        tree.fit(table, (y - p) / room, sample_weight=room)
        return lambda table: STEP * tree.predict(table)


def log_loss(p, y):
    """The log-loss of outcomes, or of the probabilities that they have."""
    p = np.clip(p, 1e-9, 1.0 - 1e-9)
    return float(-np.mean(y * np.log(p) + (1.0 - y) * np.log1p(-p)))


def boosted(method, train, test, y):
    """The log-odds of test rows after each round of boosting on training rows."""
    boosting = method(train[0])
    mine, theirs = boosting.table(*train), boosting.table(*test)
    x, found = train[0].copy(), test[0].copy()
    yield found
    for _ in range(MOST_ROUNDS):
        move = boosting.fit_round(mine, sigmoid(x), y)
        x, found = x + move(mine), found + move(theirs)
        yield found


def stopped(method, train, test, y):
    """The log-odds of test rows after as many rounds as held-out folds find best."""
    losses = np.zeros(MOST_ROUNDS + 1)
    for kept, held in KFold(5, shuffle=True, random_state=0).split(y):
        parts = [(train[0][rows], [group[rows] for group in train[1]]) for rows in (kept, held)]
        losses += [log_loss(sigmoid(x), y[held]) for x in boosted(method, *parts, y[kept])]
    return next(itertools.islice(boosted(method, train, test, y), int(np.argmin(losses)), None))


def compare(kind, n_rows, seed):
    """Excess log-loss in thousandths and worst group in points, of each way."""
    rng = np.random.default_rng(seed)
    truth = draw_effect(kind, rng)
    score, groups, _, y = draw(rng, truth, n_rows)
    there, there_groups, p, _ = draw(rng, truth, TEST_ROWS)
    names = ("a", "b", "c")
    common = LogisticCalibration(input="log-odds").fit(score, y)
    own = GroupCalibration(method="logistic", input="log-odds").fit(
        score, y, groups=dict(zip(names, groups, strict=True))
    )
    x, x_there = (np.subtract(*common.predict_log_proba(each)[:, ::-1].T) for each in (score, there))
    ways = [
        sigmoid(x_there),
        own.predict_proba(there, groups=dict(zip(names, there_groups, strict=True)))[:, 1],
        *(sigmoid(stopped(method, (x, groups), (x_there, there_groups), y)) for method in (Patches, Trees)),
    ]
    members = [group == i for group, size in zip(there_groups, SIZES, strict=True) for i in range(size)]
    return [
        (
            1000.0 * (log_loss(each, p) - log_loss(p, p)),
            100.0 * max(abs(float(np.mean(each[mine] - p[mine]))) for mine in members),
        )
        for each in ways
    ]


def main():
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore", FitWarning)
    ways = ("one for all", "group calibration", "patches", "trees")
    lines = [
        "# Group calibration beside multicalibration: excess of the log-loss in thousandths / worst group in points",
        "",
        f"Simulated, {given.draws} draws each: `python benchmarks/multicalibration.py --draws {given.draws}`.",
        "",
        f"| effect | rows | {' | '.join(ways)} |",
        "|---|---|---|---|---|---|",
    ]
    for kind, n_rows in itertools.product(EFFECTS, ROWS):
        found = np.mean([compare(kind, n_rows, seed) for seed in range(given.draws)], axis=0)
        lines.append(f"| {kind} | {n_rows:,} | {' | '.join(f'{a:.1f} / {b:.1f}' for a, b in found)} |")
        print(lines[-1], flush=True)
    if given.output is not None:
        given.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
