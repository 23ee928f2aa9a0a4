"""Boosters stopped by the log-loss and by the refined log-loss, both calibrated afterwards: test log-loss.

python benchmarks/refined_stopping.py [--seeds 6]

LightGBM on data of scikit-learn's `make_classification` (20 features, 10 % of the labels random): 1,500 rows to train,
1,000 to stop by, 1,000 to calibrate with `AutoCalibration`, 2,500 to test. A minute of one core.
"""

from __future__ import annotations

import argparse
import warnings

import lightgbm
import numpy as np
from sklearn.datasets import make_classification

from refocal import AutoCalibration, LogisticCalibration, TemperatureScaling
from refocal.decomposition import refined_log_loss
from refocal.metrics import log_loss

ROUNDS = range(5, 201, 5)
TRAIN, STOP, CALIBRATE, TEST = slice(0, 1500), slice(1500, 2500), slice(2500, 3500), slice(3500, 6000)


def one_set(n_classes: int, seed: int) -> list[tuple[int, float]]:
    """The round at which either rule stops, and the test log-loss after calibration."""
    x, y = make_classification(
        6000, 20, n_informative=10, n_classes=n_classes, flip_y=0.1, class_sep=0.7, random_state=seed
    )
    model = lightgbm.LGBMClassifier(n_estimators=ROUNDS[-1], learning_rate=0.15, verbose=-1, n_jobs=1)
    model.fit(x[TRAIN], y[TRAIN])
    by = LogisticCalibration() if n_classes == 2 else TemperatureScaling()
    plain = []
    refined = []
    for n_rounds in ROUNDS:
        p = model.predict_proba(x[STOP], num_iteration=n_rounds)
        plain.append(log_loss(y[STOP], np.log(p)))
        refined.append(refined_log_loss(y[STOP], p, by=by))
    results = []
    for values in (plain, refined):
        n_rounds = ROUNDS[int(np.argmin(values))]
        p_calibrate = model.predict_proba(x[CALIBRATE], num_iteration=n_rounds)
        p_test = model.predict_proba(x[TEST], num_iteration=n_rounds)
        calibrator = AutoCalibration(input="probabilities").fit(p_calibrate, y[CALIBRATE])
        results.append((n_rounds, log_loss(y[TEST], calibrator.predict_log_proba(p_test))))
    return results


def main() -> None:
    """Print a table, one line for each number of classes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| classes | sets | rounds by log-loss; refined | test log-loss by log-loss; refined | better in |")
    print("|---|---|---|---|---|")
    for n_classes in (2, 4):
        results = np.array([one_set(n_classes, seed) for seed in range(arguments.seeds)])
        rounds = results[:, :, 0].mean(axis=0)
        losses = results[:, :, 1].mean(axis=0)
        wins = int((results[:, 1, 1] < results[:, 0, 1]).sum())
        print(
            f"| {n_classes} | {len(results)} | {rounds[0]:.0f}; {rounds[1]:.0f} "
            f"| {losses[0]:.4f}; {losses[1]:.4f} | {wins} |"
        )


if __name__ == "__main__":
    main()
