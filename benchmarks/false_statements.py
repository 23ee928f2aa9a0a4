"""How many reports on calibrated models state a difference that is not there? At most one in twenty may.

Each report is that of `compare` with the usual methods on simulated predictions that are calibrated, with groups that
mean nothing. Every sentence of the page and of the terminal is read; one that states a difference counts as false: a
mean that is too high or low, a group that is off, a method that is recommended, lowers or raises a measure or is better
than another, a p-value of at most 5 %. A sentence with "significant" that is not known to deny a difference counts too.

python benchmarks/false_statements.py --reports 500 --output benchmarks/results/false_statements.md

--clusters draws rows in clusters with an effect of their own, calibrated on average, and names them to `compare`;
--ignored draws the same rows and does not name them. --rare draws two classes, of which one has 2 % of the rows.
"""

from __future__ import annotations

import argparse
import itertools
import re
import time
import warnings
from collections import Counter
from html import unescape
from pathlib import Path
from typing import NamedTuple

import numpy as np

from refocal.evaluate import Evaluation, compare
from refocal.evaluate.summary import group_verdict, recommendation, remarks, verdict
from refocal.io import Predictions
from refocal.report import render

CLASSES = (2, 10)
ROWS = (300, 1000, 5000)
ROWS_OF_A_CLUSTER = 10

CLAIMS = {
    "mean": re.compile(r"points too (high|low)"),
    "group": re.compile(r"In [1-9][\d,]* of [\d,]+ groups|and in [1-9][\d,]* before"),
    "recommended method": re.compile(r"Recommendation: (?!leave the predictions as they are)"),
    "change": re.compile(r"\b(lowers|raises|rises|falls) (the|from)\b"),
    "better": re.compile(r"significantly (better|worse)"),
    "band": re.compile(r"\b[1-9]\d* of them outside the band|than is true"),
    "p-value": re.compile(r"p (< 0\.001|= 0\.0[0-4]\d|= 0\.050)"),
}
DENIALS = re.compile(
    r"does not change the [^.]*significantly|does not differ significantly|no method[^.]*significantly"
    r"|no [^.]* is significantly lower"
    r"|In none of [\d,]+ groups [^.]*significantly|● significant difference"
    r"|so that fewer differences are significant in them"
)


def claims_of(sentence: str) -> list[str]:
    """The differences that a sentence states."""
    stated = [name for name, pattern in CLAIMS.items() if pattern.search(sentence)]
    is_unknown = "significan" in DENIALS.sub("", sentence)
    return stated or (["unknown"] if is_unknown else [])


def sentences_of(evaluation: Evaluation) -> list[str]:
    """All sentences of the page and of the terminal."""
    page = re.sub(r"<(script|style|pre).*?</\1>|<[^>]+>", "\n", render(evaluation), flags=re.S)
    said = [verdict(evaluation), recommendation(evaluation), *remarks(evaluation)]
    if evaluation.after.groups:
        said.append(group_verdict(evaluation))
    lines = [" ".join(unescape(line).split()) for line in [*page.split("\n"), *said]]
    # A full stop within a number ends no sentence.
    return [sentence for line in lines for sentence in re.split(r"(?<=\.)\s+(?=[A-Z])", line) if sentence]


class Rows(NamedTuple):
    """Predictions that are calibrated, and their clusters."""

    predictions: Predictions
    clusters: np.ndarray | None


class Cell(NamedTuple):
    """How the rows of some reports are drawn."""

    n_classes: int
    n_rows: int
    in_clusters: bool = False
    named: bool = True
    """Whether `compare` is told the clusters."""
    rare: bool = False


def draw(rng: np.random.Generator, cell: Cell) -> Rows:
    """Calibrated predictions with two columns of groups, of which one has ten.

    With clusters, the labels of a cluster are drawn from one uniform number each, but for a share of the rows: every
    row has its class by its own probabilities, yet rows of one cluster go together.
    """
    n_rows = cell.n_rows
    logits = 2.0 * rng.normal(size=(n_rows, cell.n_classes))
    if cell.rare:
        logits[:, 1] -= 7.2  # 2 % of the rows, log-odds having a standard deviation of 2.8
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    u = rng.random(n_rows)
    clusters = None
    if cell.in_clusters:
        clusters = np.arange(n_rows) // ROWS_OF_A_CLUSTER
        shared = rng.random(n_rows) < 0.5
        u = np.where(shared, rng.random(clusters[-1] + 1)[clusters], u)
    labels = np.minimum((p.cumsum(axis=1) < u[:, None]).sum(axis=1), cell.n_classes - 1)
    groups = {"region": rng.integers(10, size=n_rows), "channel": rng.integers(3, size=n_rows)}
    return Rows(Predictions.from_logits(logits, labels).with_groups(groups), clusters)


def report(seed: int, cell: Cell) -> tuple[Evaluation, list[str]]:
    """One report, and what it states."""
    rng = np.random.default_rng([seed, cell.n_rows, cell.n_classes])
    validation = draw(rng, cell)
    while len(np.unique(validation.predictions.labels)) == 1:  # no calibrator can be fitted
        validation = draw(rng, cell)
    test = draw(rng, cell)
    clusters = {"customer": test.clusters} if cell.in_clusters and cell.named else None
    evaluation = compare(validation.predictions, test.predictions, n_resamples=100, seed=seed, clusters=clusters)
    return evaluation, sorted({claim for sentence in sentences_of(evaluation) for claim in claims_of(sentence)})


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=int, default=500)
    parser.add_argument("--clusters", action="store_true")
    parser.add_argument("--ignored", action="store_true")
    parser.add_argument("--rare", action="store_true")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--classes", type=int, nargs="+", default=CLASSES)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    in_clusters = given.clusters or given.ignored
    classes = [2] if given.rare else given.classes
    cells = [
        Cell(n_classes, n_rows, in_clusters, not given.ignored, given.rare)
        for n_classes, n_rows in itertools.product(classes, given.rows)
    ]
    n_of_cell = -(-given.reports // len(cells))
    option = " --clusters" * given.clusters + " --ignored" * given.ignored + " --rare" * given.rare
    lines = [
        "",
        f"`python benchmarks/false_statements.py --reports {given.reports}{option}`",
        "",
        "| classes | rows | reports | with a false statement | which |",
        "|---|---|---|---|---|",
    ]
    total = Counter[str]()
    n_reports = 0
    n_false = 0
    start = time.monotonic()
    for cell in cells:
        stated = [report(seed, cell)[1] for seed in range(n_of_cell)]
        false = sum(map(bool, stated))
        which = Counter(claim for claims in stated for claim in claims)
        total += which
        n_reports += n_of_cell
        n_false += false
        named = ", ".join(f"{name} {count}" for name, count in which.most_common()) or "–"
        lines.append(f"| {cell.n_classes} | {cell.n_rows:,} | {n_of_cell} | {false} | {named} |")
        print(lines[-1], f"{time.monotonic() - start:.0f} s", flush=True)
    share = f"{n_false} ({100 * n_false / n_reports:.1f} %)"
    lines.append(f"| all | | {n_reports} | {share} | {', '.join(f'{name} {n}' for name, n in total.most_common())} |")
    print(lines[-1])
    if given.output is not None:
        with given.output.open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
