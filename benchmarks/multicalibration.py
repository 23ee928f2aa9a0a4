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

SIZES, ROWS, TEST_ROWS = (4, 5, 6), (1_000, 4_000, 16_000), 20_000
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


def patches(score, groups, y):
    """Rounds of moves: each gives the log-odds of any rows a step in one cell."""
    edges = np.quantile(score, np.arange(1, 10) / 10)

    def cells(score, groups):
        tenth = np.searchsorted(edges, score)
        return np.stack([(start + group) * 10 + tenth for start, group in zip((0, 4, 9), groups, strict=True)])

    mine, n_cells = cells(score, groups), 10 * sum(SIZES)
    moved = score.copy()
    while True:
        p = sigmoid(moved)
        gap, room = (sum(np.bincount(row, each, n_cells) for row in mine) for each in (y - p, p * (1.0 - p)))
        cell = int(np.argmax(np.abs(gap) / np.sqrt(room + 1.0)))
        step = STEP * gap[cell] / (room[cell] + 1.0)
        moved = moved + step * (mine == cell).any(axis=0)
        yield lambda score, groups, cell=cell, step=step: step * (cells(score, groups) == cell).any(axis=0)


def trees(score, groups, y):
    """Rounds of small trees of the score and of which groups a row is in, by Newton steps."""

    def table(score, groups):
        members = [group == i for group, size in zip(groups, SIZES, strict=True) for i in range(size)]
        return np.column_stack([score, *members])

    mine, moved = table(score, groups), score.copy()
    while True:
        p = sigmoid(moved)
        room = p * (1.0 - p) + 1e-9
        tree = DecisionTreeRegressor(max_depth=3, min_samples_leaf=max(20, len(y) // 100), random_state=0)
        tree.fit(mine, (y - p) / room, sample_weight=room)
        moved = moved + STEP * tree.predict(mine)
        yield lambda score, groups, tree=tree: STEP * tree.predict(table(score, groups))


def log_loss(p, y):
    """The log-loss of outcomes, or of the probabilities that they have."""
    p = np.clip(p, 1e-9, 1.0 - 1e-9)
    return float(-np.mean(y * np.log(p) + (1.0 - y) * np.log1p(-p)))


def boosted(method, train, test):
    """The log-odds of test rows after as many rounds as held-out folds find best."""
    score, groups, y = train
    losses = np.zeros(MOST_ROUNDS + 1)
    for kept, held in KFold(5, shuffle=True, random_state=0).split(score):
        theirs = score[held].copy()
        losses[0] += log_loss(sigmoid(theirs), y[held])
        rounds = method(score[kept], [group[kept] for group in groups], y[kept])
        for i, move in enumerate(itertools.islice(rounds, MOST_ROUNDS), start=1):
            theirs += move(score[held], [group[held] for group in groups])
            losses[i] += log_loss(sigmoid(theirs), y[held])
    found = test[0].copy()
    for move in itertools.islice(method(score, groups, y), int(np.argmin(losses))):
        found += move(*test)
    return found


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
        *(sigmoid(boosted(method, (x, groups, y), (x_there, there_groups))) for method in (patches, trees)),
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
