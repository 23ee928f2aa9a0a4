"""The README's table: temperature scaling of refocal and its peers on the same logits, one thread.

    OMP_NUM_THREADS=1 python benchmarks/temperature_peers.py

Logits of 10,000 rows and 100 classes whose true temperature is 1.8, and the same logits times 30.
"""

from __future__ import annotations

import time
import warnings

import numpy as np

ROWS, CLASSES, TRUE = 10_000, 100, 1.8


def data(scale: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(ROWS, CLASSES))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return (scale * TRUE * logits).astype(np.float32), labels


def probabilities(logits: np.ndarray) -> np.ndarray:
    z = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return z / z.sum(axis=1, keepdims=True)


def with_refocal(logits, labels):
    from refocal import TemperatureScaling

    return TemperatureScaling().fit(logits, labels).temperature_


def with_scikit_learn(logits, labels):
    # What CalibratedClassifierCV(method="temperature") fits, without its cross-validation.
    from sklearn.calibration import _TemperatureScaling

    return 1.0 / _TemperatureScaling().fit(logits, labels).beta_


def with_netcal(logits, labels):
    from netcal.scaling import TemperatureScaling

    model = TemperatureScaling()
    model.fit(probabilities(logits).astype(np.float32), labels)
    return float(1.0 / np.ravel(model.temperature)[0])


def with_probmetrics(logits, labels):
    import torch
    from probmetrics.calibrators import TemperatureScalingCalibrator
    from probmetrics.distributions import CategoricalLogits

    model = TemperatureScalingCalibrator()
    model.fit_torch(CategoricalLogits(torch.from_numpy(logits)), torch.from_numpy(labels))
    return 1.0 / float(model.invtemp_)


PEERS = {
    "refocal": with_refocal,
    "scikit-learn": with_scikit_learn,
    "netcal": with_netcal,
    "probmetrics": with_probmetrics,
}


def main() -> None:
    for scale in (1.0, 30.0):
        logits, labels = data(scale)
        print(f"logits times {scale:g}: the true temperature is {scale * TRUE:g}")
        for name, fit in PEERS.items():
            seconds = []
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for _ in range(3):
                    start = time.process_time()
                    found = fit(logits, labels)
                    seconds.append(time.process_time() - start)
            print(f"  {name:14s} T = {found:.4g}   {min(seconds):.3f} s")


if __name__ == "__main__":
    main()
