"""What a setting of the default with two classes does in the arena, and what would be picked with data sets left out.

    python benchmarks/arena_settings.py FOLDER PEERS.csv.gz [--every N]

FOLDER is that of benchmarks/arena.py, and PEERS.csv.gz holds the scores of the peers. The setting is the power of the
likelihood ratio that no calibration is mixed in by (`LIKELIHOOD_POWER` of refocal.fitting.two_classes). For each data
set left out, the power of least mean log-loss on the others is picked among those with which no model loses more than
4 % there by calibration.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from unittest.mock import patch

import numpy as np
from arena import BASE, Table, experiments, open_benchmark, predict, read_table, scores_of, win_rates
from numpy.typing import NDArray

from refocal.fitting import two_classes

POWERS = (1.0, 0.5, 0.35, 0.25, 0.2, 0.15)
MOST_LOST = 0.04
METHOD = "refocal-auto"


def log_losses(folder: Path, every: int) -> tuple[list[tuple[str, str]], NDArray[np.float64]]:
    """The experiments, and the log-losses of the default with each power (S, E)."""
    keys = []
    rows = []
    with open_benchmark(folder, "binary", every) as (store, listed):
        for experiment in experiments(store, listed):
            keys.append((experiment.dataset, experiment.model))
            row = []
            for power in POWERS:
                with patch.object(two_classes, "LIKELIHOOD_POWER", power):
                    p = predict(METHOD, experiment)
                row.append(scores_of(p, experiment.labels_test)["logloss"])
            rows.append(row)
    return keys, np.array(rows).T


def pick(losses: NDArray[np.float64], base: NDArray[np.float64]) -> int:
    """The setting of least mean log-loss relative to that of no calibration, of those that nowhere lose too much."""
    change = losses / base - 1.0
    is_safe = change.max(axis=1) <= MOST_LOST
    mean = np.where(is_safe, change.mean(axis=1), np.inf)
    return int(mean.argmin()) if is_safe.any() else int(change.max(axis=1).argmin())


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("peers", type=Path)
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    keys, losses = log_losses(given.folder, given.every)
    peers = read_table([given.peers], "logloss")
    rows = [peers.keys.index(key) for key in keys]
    columns = {name: column[rows] for name, column in peers.columns.items() if not name.startswith("refocal")}
    base = columns[BASE]
    datasets = np.array([dataset for dataset, _ in keys])
    shipped = POWERS.index(two_classes.LIKELIHOOD_POWER)

    picked = np.empty(len(keys))
    choices: dict[float, list[str]] = {}
    for dataset in np.unique(datasets):
        is_left_out = datasets == dataset
        setting = pick(losses[:, ~is_left_out], base[~is_left_out])
        picked[is_left_out] = losses[setting, is_left_out]
        choices.setdefault(POWERS[setting], []).append(str(dataset))

    print("| power | win rate | log-loss against that of the shipped | worse than none by more than 1 % | worst |")
    print("|---|---|---|---|---|")
    titles = [f"{power:g}" for power in POWERS]
    for title, values in zip([*titles, "picked on other data sets"], [*losses, picked], strict=True):
        rate = win_rates(Table(keys, columns | {METHOD: values}))[METHOD].mean()
        change = values / losses[shipped] - 1.0
        lost = values / base - 1.0
        print(
            f"| {title} | {rate:.3f} | {change.mean():+.3%} | {np.mean(lost > 0.01):.1%} "
            f"| {lost.max():+.1%} ({', '.join(keys[int(lost.argmax())])}) |"
        )
    for power, left_out in choices.items():
        text = ", ".join(left_out) if len(left_out) <= 3 else f"{len(left_out)} data sets"
        print(f"\n{text} left out: power {power:g}")


if __name__ == "__main__":
    main()
