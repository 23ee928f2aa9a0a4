"""Networks trained with focal loss as people use it: the settings of the loss alone, calibrators fitted on rows, peers.

    python benchmarks/focal_practice.py [--seeds 5] [--rows 1000] [-o benchmarks/results]

Small networks are trained on data whose true probabilities are known, with γ = 2: sigmoids with α (1 % and 10 %
positives), a softmax with class weights, one sigmoid for each of four classes that exclude one another, and six labels
that do not. Each is trained on 40,000 rows, which it cannot remember, and on 2,000, which it fits. Printed are test
log-loss and the ECE for each class (15 bins of equal mass, mean over the classes) on 40,000 new rows, means over seeds.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import expit, softmax
from sklearn.calibration import _SigmoidCalibration
from sklearn.isotonic import IsotonicRegression
from torch import nn

import peers
from refocal import AutoCalibration, FocalCalibration, FocalTemperatureScaling, TemperatureScaling, metrics
from refocal.calibrators.multilabel import MultiLabelCalibration
from refocal.maps import focal, sigmoid_focal
from refocal.nn import FocalLoss, SigmoidFocalLoss

Array = np.ndarray
GAMMA, FEATURES, TEST_ROWS, LEAST = 2.0, 10, 40_000, 1e-12
TRAININGS = {"40,000 rows, not remembered": (40_000, 12), "2,000 rows, fitted": (2_000, 240)}  # rows, epochs
WANTED_PEERS = ("probmetrics svs", "scikit-learn isotonic")


class Data(NamedTuple):
    """Features, labels (N,) or (N, K), and the true probabilities."""

    x: Array
    y: Array
    p: Array


class Setting(NamedTuple):
    """How labels come about, the loss, and what is compared."""

    title: str
    shift: Array
    """Added to the true scores of the classes or labels: their rarity."""
    loss: nn.Module
    compared: Callable[[Array, Array, Array], Iterator[tuple[str, Array]]]
    """(logits and labels to fit on, logits to calibrate) → names and probabilities."""
    exclusive: bool = True


def draw(setting: Setting, n: int, rng: np.random.Generator, mix: Array) -> Data:
    """Rows whose true scores bend in the features, so that no straight line does."""
    x = rng.normal(size=(n, FEATURES))
    scores = 1.5 * np.tanh(x @ mix[0]) + (x @ mix[1]) * (x @ mix[2]) + setting.shift
    if not setting.exclusive:
        p = expit(scores)
        return Data(x, (rng.random(p.shape) < p).astype(np.int64), p)
    if scores.shape[1] == 1:
        scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
    return Data(x, np.argmax(scores + rng.gumbel(size=scores.shape), axis=1), softmax(scores, axis=1))


def trained(setting: Setting, data: Data, n_epochs: int, seed: int) -> Callable[[Array], Array]:
    """A network at the end of its training, as a function from features to logits."""
    torch.manual_seed(seed)
    width = len(setting.shift)
    network = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, width))
    x, y = torch.tensor(data.x, dtype=torch.float32), torch.tensor(data.y)
    if isinstance(setting.loss, SigmoidFocalLoss) and y.ndim == 1:
        y = y[:, None] if width == 1 else nn.functional.one_hot(y, width)
    solver = torch.optim.Adam(network.parameters(), lr=2e-3)
    for _ in range(n_epochs):
        for some in torch.randperm(len(x)).split(256):
            solver.zero_grad()
            setting.loss(network(x[some]), y[some]).backward()
            solver.step()

    def logits(features: Array) -> Array:
        with torch.no_grad():
            return network(torch.tensor(features, dtype=torch.float32)).numpy().astype(np.float64)

    return logits


def fitted(logits: Array, y: Array, test: Array) -> Iterator[tuple[str, Array]]:
    """What needs rows and knows nothing of the loss: calibrators here, and peers."""
    yield "temperature scaling", TemperatureScaling().fit(logits, y).predict_proba(test)
    by_loss = FocalTemperatureScaling(objective="nll").fit(logits, y)
    yield "focal temperature scaling", by_loss.predict_proba(test)
    yield "automatic calibration", AutoCalibration().fit(logits, y).predict_proba(test)
    columns = [_SigmoidCalibration().fit(logits[:, k], y == k).predict(test[:, k]) for k in range(logits.shape[1])]
    if logits.shape[1] == 2:
        columns[0] = 1.0 - columns[1]
    sigmoid = np.stack(columns, axis=1)
    yield "scikit-learn sigmoid", sigmoid / sigmoid.sum(axis=1, keepdims=True)
    for name in WANTED_PEERS:
        if name in peers.PEERS:
            yield name, peers.predict(name, softmax(logits, axis=1), y, softmax(test, axis=1))


def weighted(weight: Array) -> Callable[[Array, Array, Array], Iterator[tuple[str, Array]]]:
    """A softmax with class weights; one column is that of a sigmoid."""

    def compared(logits: Array, y: Array, test: Array) -> Iterator[tuple[str, Array]]:
        if logits.shape[1] == 1:
            logits, test = (np.concatenate([np.zeros_like(each), each], axis=1) for each in (logits, test))
        yield "as it is", softmax(test, axis=1)
        yield "settings alone, no rows", FocalCalibration.from_training(GAMMA, class_weight=weight).predict_proba(test)
        known = FocalTemperatureScaling(gammas=GAMMA, class_weight=weight).fit(logits, y)
        yield "settings, T fitted", known.predict_proba(test)
        found = FocalTemperatureScaling(class_weight="fit").fit(logits, y)
        yield "γ, T and weights fitted", found.predict_proba(test)
        yield from fitted(logits, y, test)

    return compared


def balanced(alpha: float) -> Callable[[Array, Array, Array], Iterator[tuple[str, Array]]]:
    """A sigmoid with α."""
    return weighted(np.array([1.0 - alpha, alpha]))


def one_against_the_rest(logits: Array, y: Array, test: Array) -> Iterator[tuple[str, Array]]:
    """One sigmoid for each class, as segmentation-models-pytorch and MONAI train by default."""

    def shares(log_odds: Array) -> Array:
        p = expit(log_odds)
        return p / p.sum(axis=1, keepdims=True)

    yield "as it is", shares(test)
    yield "settings alone, no rows", shares(sigmoid_focal(test, GAMMA))
    yield "the softmax map, which is wrong here", np.exp(focal(test, GAMMA))
    yield from fitted(np.log(shares(logits)), y, np.log(shares(test)))


def many_labels(alpha: float) -> Callable[[Array, Array, Array], Iterator[tuple[str, Array]]]:
    """Labels that do not exclude one another."""

    def compared(logits: Array, y: Array, test: Array) -> Iterator[tuple[str, Array]]:
        yield "as it is", expit(test)
        yield "settings alone, no rows", expit(sigmoid_focal(test, GAMMA, alpha))
        for name, method in (("temperature scaling", "ts"), ("automatic calibration", "auto")):
            yield name, np.asarray(MultiLabelCalibration(method=method).fit(logits, y).predict_proba(test))
        own = MultiLabelCalibration(per_label=True).fit(logits, y)
        yield "automatic calibration, a line for each label", np.asarray(own.predict_proba(test))
        for name, kind in (("sigmoid", _SigmoidCalibration), ("isotonic", isotonic)):
            columns = [kind().fit(logits[:, k], y[:, k]).predict(test[:, k]) for k in range(y.shape[1])]
            yield f"scikit-learn {name}, label by label", np.stack(columns, axis=1)

    return compared


def isotonic() -> IsotonicRegression:
    """As CalibratedClassifierCV has it."""
    return IsotonicRegression(out_of_bounds="clip", y_min=0.0, y_max=1.0)


WEIGHTS = np.array([0.3, 1.0, 2.0, 5.0])
SETTINGS = [
    Setting("1 % positives, α = 0.25", np.array([-6.2]), SigmoidFocalLoss(GAMMA, 0.25), balanced(0.25)),
    Setting("10 % positives, α = 0.95", np.array([-3.1]), SigmoidFocalLoss(GAMMA, 0.95), balanced(0.95)),
    Setting(
        "4 classes, class weights",
        np.array([2.0, 1.0, 0.0, -1.0]),
        FocalLoss(GAMMA, weight=torch.tensor(WEIGHTS, dtype=torch.float32)),
        weighted(WEIGHTS),
    ),
    Setting(
        "4 classes, one sigmoid for each",
        np.array([1.0, 0.5, 0.0, -0.5]),
        SigmoidFocalLoss(GAMMA, None),
        one_against_the_rest,
    ),
    Setting(
        "6 labels, α = 0.25",
        np.array([0.0, -1.0, -2.0, -3.0, -4.0, -5.0]),
        SigmoidFocalLoss(GAMMA, 0.25),
        many_labels(0.25),
        exclusive=False,
    ),
]  # fmt: skip


def scores(y: Array, p: Array) -> tuple[float, float]:
    """Log-loss, and the ECE of each class or label, averaged."""
    p = np.clip(p, LEAST, 1.0 - LEAST)
    if y.ndim == 2:
        loss = float(-np.mean(np.where(y == 1, np.log(p), np.log1p(-p)))) * y.shape[1]
        return loss, float(np.mean([metrics.expected_calibration_error(y[:, k], p[:, k]) for k in range(y.shape[1])]))
    loss = float(-np.mean(np.log(p[np.arange(len(y)), y])))
    events = [1] if p.shape[1] == 2 else range(p.shape[1])
    return loss, float(np.mean([metrics.expected_calibration_error(y == k, p[:, k]) for k in events]))


def measured(setting: Setting, training: str, seed: int, n_rows: int) -> Iterator[tuple[str, float, float]]:
    """(method, log-loss, ECE) of one network."""
    n_training, n_epochs = TRAININGS[training]
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(3, FEATURES, len(setting.shift))) / np.sqrt(FEATURES)
    data, held_out, test = (draw(setting, n, rng, mix) for n in (n_training, n_rows, TEST_ROWS))
    logits = trained(setting, data, n_epochs, seed)
    yield "the truth", *scores(test.y, test.p)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, p in setting.compared(logits(held_out.x), held_out.y, logits(test.x)):
            yield name, *scores(test.y, p)


def table(setting: Setting, found: dict[str, dict[str, list[tuple[float, float]]]]) -> str:
    """A Markdown table: a row for each method, log-loss and ECE for each training."""
    head = " | ".join(f"{training}: log-loss | ECE" for training in TRAININGS)
    lines = [f"## {setting.title}", "", f"| | {head} |", "|---" * (1 + 2 * len(TRAININGS)) + "|"]
    for name in next(iter(found.values())):
        means = [np.mean(found[training][name], axis=0) for training in TRAININGS]
        lines.append(f"| {name} | " + " | ".join(f"{loss:.4f} | {100 * ece:.2f} %" for loss, ece in means) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    command = (
        f"`python benchmarks/focal_practice.py --seeds {options.seeds} --rows {options.rows} -o benchmarks/results`"
    )
    parts = ["# Focal loss in practice, measured", (__doc__ or "").split("\n\n")[2].strip(),
             f"Fitted on {options.rows:,} rows, {options.seeds} seeds: {command}."]  # fmt: skip
    for setting in SETTINGS:
        found: dict[str, dict[str, list[tuple[float, float]]]] = {}
        for training in TRAININGS:
            found[training] = defaultdict(list)
            for seed in range(options.seeds):
                for name, loss, ece in measured(setting, training, seed, options.rows):
                    found[training][name].append((loss, ece))
        parts.append(table(setting, found))
        print(parts[-1], flush=True)
    if options.output is not None:
        (options.output / "focal_practice.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
