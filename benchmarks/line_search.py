"""The paper's open question: what searching along a line loses against the full grid of (γ, T).

    python benchmarks/line_search.py FOLDER

For each network of FOLDER (.npz with `val`, `yv`, `test`, `yt`) and for 100 synthetic ones: the paper's 9 × 500 grid
against its 3m search (the best T for γ = 0 and for γ = 1, the line through both, 500 points along it), by validation
ECE and by log-loss. A miss is a value above the grid's; the line may also find a better point, since it tries other γ.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from refocal.engine import Block
from refocal.fitting import find
from refocal.maps import focal_temperature, inverse_focal
from refocal.metrics import expected_calibration_error

N_SYNTHETIC = 100


def synthetic(seed: int) -> tuple[np.ndarray, ...]:
    """A calibrated model seen through an inverse focal map, a temperature and some noise of its own."""
    rng = np.random.default_rng(seed)
    n_classes = int(rng.choice([3, 10, 30]))
    log_p = rng.uniform(1.0, 4.0) * rng.normal(size=(4000, n_classes))
    labels = np.argmax(log_p + rng.gumbel(size=log_p.shape), axis=1)
    seen = inverse_focal(log_p, float(np.exp(rng.uniform(-0.5, 1.8)) - 0.5)) * rng.uniform(0.5, 2.0)
    seen = seen + rng.uniform(0.0, 0.5) * rng.normal(size=seen.shape)
    return seen[:2000], labels[:2000], seen[2000:], labels[2000:]


def compare(objective: str, val: np.ndarray, y: np.ndarray, test: np.ndarray, y_test: np.ndarray) -> np.ndarray:
    """Relative excess of the line over the grid: on the validation objective, and on the test ECE."""
    values, eces = [], []
    for search in ("grid", "line"):
        found, _ = find(Block(val, y), objective=objective, search=search)
        values.append(found.value)
        p = np.exp(focal_temperature(test, found.gamma, found.temperature))
        eces.append(expected_calibration_error(y_test, p))
    return np.array([values[1] / values[0] - 1.0, eces[1] / eces[0] - 1.0])


def report(name: str, rows: np.ndarray) -> None:
    value, ece = 100.0 * rows.T
    print(
        f"| {name} | {int((value > 1e-7).sum())}/{len(value)} | {np.median(value):+.1f} % | {value.mean():+.1f} % "
        f"| {value.max():+.1f} % | {np.median(ece):+.1f} % | {ece.mean():+.1f} % |",
        flush=True,
    )


def main() -> None:
    print("| data, objective | line is worse | median | mean | worst | test ECE, median | mean |")
    print("|---|---|---|---|---|---|---|")
    for objective in ("ece", "nll"):
        real = []
        for path in sorted(Path(sys.argv[1]).glob("*.npz")):
            data = np.load(path)
            logits = [data[name].astype(np.float32) for name in ("val", "test")]
            labels = [data[name].astype(np.int64) for name in ("yv", "yt")]
            real.append(compare(objective, logits[0], labels[0], logits[1], labels[1]))
            report(f"{path.stem}, {objective}", np.array(real[-1:]))
        report(f"all real, {objective}", np.array(real))
        made = [compare(objective, *synthetic(seed)) for seed in range(N_SYNTHETIC)]
        report(f"{N_SYNTHETIC} synthetic, {objective}", np.array(made))


if __name__ == "__main__":
    main()
