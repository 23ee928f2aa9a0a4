"""How to choose (γ, T) on a validation set: rules compared on real networks, leaving each network out in turn.

    python benchmarks/selection_rules.py FOLDER

FOLDER holds .npz files: `val`, `yv`, `test`, `yt` of one network each, or `logits` and `labels`. All rows of a network
are pooled and split anew at random, several times, into n rows to choose on and the rest to score on. Every rule is
scored against temperature scaling by the mean relative change over the networks: of the test ECE (15 equal-mass bins)
against T chosen by ECE, of the test log-loss against T chosen by log-loss.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from refocal.engine import Block
from refocal.engine.scoring import mean_error
from refocal.fitting.objective import BALANCE, as_objective
from refocal.fitting.temperature import newton_temperature

GAMMAS = (-0.5, -0.25, 0.0, 0.05, 0.25, 0.5, 1.0, 2.0, 5.0)
SCALES = np.geomspace(0.3, 6.0, 61)
ZERO, FIFTEEN = GAMMAS.index(0.0), BALANCE.resolutions.index(15)
SIZES, DRAWS = (5000, 1000, 300), 4

Table = dict[str, np.ndarray]
Rule = Callable[[Table, int], tuple[int, int]]


def networks(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    found = {}
    for path in sorted(folder.rglob("*.npz")):
        data = np.load(path)
        logits = data["logits"] if "logits" in data else np.concatenate([data["val"], data["test"]])
        labels = data["labels"] if "labels" in data else np.concatenate([data["yv"], data["yt"]])
        found[path.stem] = logits.astype(np.float32), labels.astype(np.int64)
    return found


def surface(problem: Block, temperatures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-loss, and ECE at every resolution, for all γ × T."""
    log_loss = np.empty((len(GAMMAS), len(temperatures)))
    ece = np.empty((*log_loss.shape, len(BALANCE.resolutions)))
    for j, temperature in enumerate(temperatures):
        for i, found in enumerate(problem.predictions(GAMMAS, float(temperature))):
            log_loss[i, j] = -found.label_log_p.mean()
            ece[i, j] = [
                mean_error(found.confidence, problem.correct, None, resolutions=(n,)) for n in BALANCE.resolutions
            ]
    return log_loss, ece


def table(logits: np.ndarray, labels: np.ndarray, size: int, draw: int) -> Table:
    order = np.random.default_rng(draw).permutation(len(labels))
    chosen, rest = order[:size], order[5000:10_000]
    problem = Block(logits[chosen], labels[chosen])
    temperatures = newton_temperature(problem).temperature * SCALES
    nll, ece = surface(problem, temperatures)
    test_nll, test_ece = surface(Block(logits[rest], labels[rest]), temperatures)
    return {"nll": nll, "ece": ece, "test_nll": test_nll, "test_ece": test_ece[..., FIFTEEN]}


def smallest(score: np.ndarray, nll: np.ndarray, tolerance: float | None = None) -> tuple[int, int]:
    if tolerance is not None:
        score = np.where(nll <= (1.0 + tolerance) * nll.min(), score, np.inf)
    i, j = np.unravel_index(np.argmin(score), score.shape)
    return int(i), int(j)


def balance(weight: float, *, adapt: bool, tolerance: float | None) -> Rule:
    """Log-loss / best + weight · mean ECE; `adapt` takes fewer bins and less weight on few rows, as refocal does."""

    def rule(t: Table, n: int) -> tuple[int, int]:
        default = as_objective("auto", n, "selection_rules")
        bins = default.resolutions if adapt else BALANCE.resolutions
        factor = (default.error_weight or 0.0) / BALANCE.error_weight if adapt else 1.0
        ece = t["ece"][..., [BALANCE.resolutions.index(b) for b in bins]].mean(axis=-1)
        return smallest(t["nll"] / t["nll"].min() + weight * factor * ece, t["nll"], tolerance)

    return rule


RULES: dict[str, Rule] = {
    "TS by log-loss": lambda t, n: (ZERO, int(t["nll"][ZERO].argmin())),
    "FTS by log-loss": lambda t, n: smallest(t["nll"], t["nll"]),
    "FTS by ECE (the paper's)": lambda t, n: smallest(t["ece"][..., FIFTEEN], t["nll"]),
    "FTS by ECE, log-loss within 2 %": lambda t, n: smallest(t["ece"][..., FIFTEEN], t["nll"], 0.02),
    "FTS by mean ECE": lambda t, n: smallest(t["ece"].mean(axis=-1), t["nll"]),
    "FTS by mean ECE, within 2 %": lambda t, n: smallest(t["ece"].mean(axis=-1), t["nll"], 0.02),
}
BALANCED = {
    f"balance {weight}{', adaptive' * adapt}{', within 2 %' * (tolerance is not None)}": balance(
        weight, adapt=adapt, tolerance=tolerance
    )
    for weight in (2, 3, 5, 8)
    for adapt in (False, True)
    for tolerance in (None, 0.02)
}


def changes(rule: Rule, tables: list[Table], size: int) -> np.ndarray:
    """Mean relative change of test ECE and log-loss against temperature scaling, over the draws of one network."""
    rows = []
    for t in tables:
        by_ece, by_nll = t["ece"][ZERO, :, FIFTEEN].argmin(), t["nll"][ZERO].argmin()
        at = rule(t, size)
        rows.append(
            (
                t["test_ece"][at] / t["test_ece"][ZERO, by_ece] - 1.0,
                t["test_nll"][at] / t["test_nll"][ZERO, by_nll] - 1.0,
            )
        )
    return np.mean(rows, axis=0)


def left_out(scores: dict[str, np.ndarray]) -> np.ndarray:
    """Each network by the rule with the largest ECE gain on all others among those that cost no log-loss there."""
    names = [name for name in BALANCED if name in scores]
    stack = np.stack([scores[name] for name in names])  # rule × network × (ECE, log-loss)
    result = []
    for network in range(stack.shape[1]):
        others = np.delete(stack, network, axis=1).mean(axis=1)
        allowed = np.where(others[:, 1] <= 0.0, others[:, 0], np.inf)
        result.append(stack[int(np.argmin(allowed)), network])
    return np.array(result)


def main() -> None:
    folder = Path(sys.argv[1])
    nets = networks(folder)
    print(f"{len(nets)} networks, {DRAWS} draws; ECE and log-loss relative to temperature scaling")
    for size in SIZES:
        tables = {
            name: [table(*data, size, draw) for draw in range(DRAWS if data[0].shape[1] <= 10 else 2)]
            for name, data in nets.items()
        }
        scores = {
            name: np.array([changes(rule, t, size) for t in tables.values()])
            for name, rule in (RULES | BALANCED).items()
        }
        scores["chosen leaving the network out"] = left_out(scores)
        print(
            f"\n| chosen on {size} rows | test ECE | better | test log-loss | worst log-loss |\n|---|---|---|---|---|"
        )
        for name, score in scores.items():
            ece, nll = 100.0 * score.mean(axis=0)
            wins, worst = int((score[:, 0] < 0).sum()), 100.0 * score[:, 1].max()
            print(f"| {name} | {ece:+.1f} % | {wins}/{len(nets)} | {nll:+.2f} % | {worst:+.1f} % |", flush=True)


if __name__ == "__main__":
    main()
