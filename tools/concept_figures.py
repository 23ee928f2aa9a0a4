"""Draws the figures of the concepts and of the guide, the same every time: `python tools/concept_figures.py [FOLDER]`.

Networks are the embedded ones; all else is drawn at random from a fixed seed, or computed. What the guide shows of
validation sizes comes from benchmarks/results/validation_size.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refocal import FocalTemperatureScaling, metrics
from refocal.evaluate import compare
from refocal.io import load_sample
from refocal.losses import brier, cross_entropy, focal
from refocal.maps import focal_temperature, inverse_focal
from refocal.report import plot_reliability
from refocal.report.figures import MUTED
from refocal_paper.figures._base import BLUE, GREEN, SKY, STYLE, VERMILION

ROOT = Path(__file__).parents[1]
FIRST, SECOND, THIRD, FOURTH = BLUE, VERMILION, GREEN, SKY


def reliability(figure: Figure) -> None:
    """A network that is too sure, before and after temperature scaling."""
    found = compare(*load_sample("cifar10-cross-entropy"), ["ts"], chosen="ts", n_resamples=50)
    for ax, method, when in zip(figure.subplots(1, 2), (found.before, found.after), ("before", "after"), strict=True):
        plot_reliability(method.reliability, ax=ax, title=f"{when}: ECE {100 * method.measures['ece'].value:.2f} %")


def ece_bins(figure: Figure) -> None:
    """The ECE of the same 1,000 predictions of one calibrated model, by the number and the kind of bins."""
    (ax,) = _axes(figure, 1)
    confidence, right = _calibrated(1000, np.random.default_rng(3))
    bins = np.arange(2, 61)
    for strategy, label, color in (("quantile", "equal mass", FIRST), ("uniform", "equal width", SECOND)):
        values = [metrics.expected_calibration_error(right, confidence, n_bins=int(n), strategy=strategy) for n in bins]
        ax.plot(bins, 100 * np.array(values), color=color, label=label)
    ax.axhline(0, color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
    ax.annotate("the truth", (60, 0), (60, 0.12), ha="right", color=MUTED)
    ax.set(xlabel="number of bins", ylabel="ECE (%)", ylim=(-0.1, None))
    ax.legend()


def ece_bias(figure: Figure) -> None:
    """What measures of calibration show for a perfectly calibrated model, by the number of rows."""
    (ax,) = _axes(figure, 1)
    sizes = np.array([100, 300, 1000, 3000, 10_000, 30_000, 100_000])
    measures: dict[str, tuple[Callable[..., float], dict[str, Any], str, str]] = {
        "ECE, 50 bins": (metrics.expected_calibration_error, {"n_bins": 50}, SECOND, "-"),
        "ECE, 15 bins": (metrics.expected_calibration_error, {"n_bins": 15}, FIRST, "-"),
        "ECE, 5 bins": (metrics.expected_calibration_error, {"n_bins": 5}, THIRD, "-"),
        "debiased, 15 bins": (metrics.debiased_ece, {"n_bins": 15}, FIRST, ":"),
    }
    for label, (measure, options, color, line) in measures.items():
        rng = np.random.default_rng(0)
        drawn = [
            mean(measure(right, c, **options) for c, right in (_calibrated(int(n), rng) for _ in range(20)))
            for n in sizes
        ]
        ax.plot(sizes, 100 * np.array(drawn), color=color, linestyle=line, label=label)
    ax.set(xscale="log", xlabel="rows", ylabel="measured (%), truth 0", ylim=(0, None))
    ax.legend()


def proper(figure: Figure) -> None:
    """The expected loss of predicting q where the event has probability 0.8."""
    (ax,) = _axes(figure, 1)
    q, truth = np.linspace(0.01, 0.99, 981), 0.8
    log_q = np.log(np.stack([q, 1 - q], axis=1))
    ones, zeros = np.zeros(len(q), int), np.ones(len(q), int)
    losses: dict[str, Callable[[Any], Any]] = {
        "log-loss": lambda y: cross_entropy(log_q, y),
        "Brier score": lambda y: brier(log_q, y),
        "focal loss, γ = 2": lambda y: focal(log_q, y, gamma=2.0),
    }
    for (label, loss), color in zip(losses.items(), (FIRST, THIRD, SECOND), strict=True):
        risk = truth * loss(ones) + (1 - truth) * loss(zeros)
        best = int(np.argmin(risk))
        ax.plot(q, risk, color=color, label=f"{label}: minimum at {q[best]:.3f}")
        ax.plot(q[best], risk[best], "o", color=color)
    ax.axvline(truth, color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
    ax.set(xlabel="prediction q; the truth is 0.8", ylabel="expected loss", xlim=(0.3, 1), ylim=(0, 1.2))
    ax.legend(loc="upper left")


def focal_map(figure: Figure) -> None:
    """Left: what a minimiser of focal loss predicts. Right: the map that takes it back."""
    left, right = _axes(figure, 2)
    p = 1 / (1 + np.exp(-np.linspace(-40, 40, 1600)))
    one_minus_p = p[::-1]
    for gamma, shade in zip((0.5, 1.0, 2.0, 5.0), (0.4, 0.6, 0.8, 1.0), strict=True):
        q = np.exp(inverse_focal(np.log(np.stack([p, one_minus_p], axis=1)), gamma))[:, 0]
        for ax, (x, y) in ((left, (p, q)), (right, (q, p))):
            ax.plot(x, y, color=FIRST, alpha=shade, label=f"γ = {gamma:g}")
    left.set(xlabel="true probability p", ylabel="prediction q that minimises focal loss", aspect="equal")
    right.set(xlabel="prediction q", ylabel="true probability p", aspect="equal")
    for ax in (left, right):
        ax.plot([0, 1], [0, 1], color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
        ax.set(xlim=(0, 1), ylim=(0, 1))
    left.legend()


def ts_fts(figure: Figure) -> None:
    """Confidence before and after, for a row of ten classes whose other nine are alike."""
    (ax,) = _axes(figure, 1)
    gap = np.linspace(0, 12, 400)
    logits = np.concatenate([gap[:, None], np.zeros((len(gap), 9))], axis=1)
    before = np.exp(focal_temperature(logits, 0.0, 1.0))[:, 0]
    for gamma, color in ((0.0, MUTED), (-0.5, SECOND), (2.0, FIRST), (5.0, THIRD)):
        # The temperature at which every curve passes through the same point: 0.8 becomes 0.6.
        at = logits[np.argmin(np.abs(before - 0.8))]
        temperatures = np.geomspace(0.3, 10, 4000)
        there = np.exp(focal_temperature(np.broadcast_to(at, (4000, 10)), gamma, temperatures))[:, 0]
        temperature = float(temperatures[np.argmin(np.abs(there - 0.6))])
        after = np.exp(focal_temperature(logits, gamma, temperature))[:, 0]
        ax.plot(before, after, color=color, label=f"γ = {gamma:g}, T = {temperature:.2f}")
    ax.plot([0.1, 1], [0.1, 1], color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
    ax.set(xlabel="confidence before", ylabel="confidence after", xlim=(0.1, 1), ylim=(0.1, 1), aspect="equal")
    ax.legend(loc="upper left", fontsize=9)


def tradeoff(figure: Figure) -> None:
    """Every (γ, T) of the search by log-loss and ECE on the validation set, and what three rules choose."""
    (ax,) = _axes(figure, 1)
    validation, _ = load_sample("cifar100-focal7")
    surface = FocalTemperatureScaling(objective="ece").fit(validation.values, validation.labels).path_
    if surface is None:
        raise ValueError("a search by ECE keeps its surface")
    near = surface.log_loss <= 1.06 * surface.log_loss.min()
    plain = near & (surface.gamma == 0.0)
    ax.plot(surface.log_loss[near], 100 * surface.value[near], ".", color=MUTED, alpha=0.5, markersize=4, label="γ, T")
    ax.plot(surface.log_loss[plain], 100 * surface.value[plain], "-", color=SECOND, label="γ = 0: temperature scaling")
    for objective, marker in (("nll", "s"), ("auto", "o"), ("ece", "^")):
        fitted = FocalTemperatureScaling(objective=objective).fit(validation.values, validation.labels)
        after, label = fitted.fit_report_["after"], f'objective="{objective}"'
        ax.plot(after["log_loss"], 100 * after["ece"], marker, color=FIRST, markersize=8, label=label)
    ax.set(xlabel="log-loss on the validation set", ylabel="ECE on the validation set (%)", ylim=(0, 10))
    ax.legend(fontsize=9, loc="upper right", frameon=True, framealpha=1.0, edgecolor="none")


def validation_size(figure: Figure) -> None:
    """Test ECE and log-loss of fitted calibrators by the rows they were fitted on: the mean over networks."""
    left, right = _axes(figure, 2)
    found = json.loads((ROOT / "benchmarks" / "results" / "validation_size.json").read_text())["networks"]
    sizes = [200, 500, 1000, 2000, 5000]
    titles = {"ts": "TS", "fts": "FTS, default", "fts-nll": "FTS by log-loss", "isotonic": "isotonic"}
    colors = dict(zip(titles, (SECOND, FIRST, FOURTH, THIRD), strict=True))

    def average(method: str, size: int, score: Callable[[list[float], list[float]], float]) -> float:
        pairs = ((draw[method][str(size)], draw["none"][str(size)]) for draws in found.values() for draw in draws)
        return mean(score(after, before) for after, before in pairs)

    for method, title in titles.items():
        ece = [100 * average(method, n, lambda after, _: after[1]) for n in sizes]
        loss = [100 * average(method, n, lambda after, before: after[0] / before[0] - 1) for n in sizes]
        left.plot(sizes, ece, "o-", color=colors[method], label=title, markersize=4)
        right.plot(sizes, loss, "o-", color=colors[method], markersize=4)
    for name, text in (("none", "not calibrated"), ("calibrated", "noise of 5,000 test rows")):
        level = 100 * average(name, 200, lambda after, _: after[1])
        left.axhline(level, color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
        left.annotate(f"{text}: {level:.1f}", (5000, level), (5000, level + 0.08), ha="right", color=MUTED)
    left.set(ylabel="test ECE (%)", ylim=(0, None))
    right.set(ylabel="test log-loss against no calibration (%)")
    for ax in (left, right):
        ax.set(xscale="log", xlabel="rows to fit on")
        ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
        ax.set_xticks([], minor=True)
    left.legend(loc="center right", bbox_to_anchor=(1.0, 0.7), fontsize=9)


FIGURES: dict[str, tuple[Callable[[Figure], None], tuple[float, float]]] = {
    "reliability": (reliability, (7.6, 3.9)),
    "ece-bins": (ece_bins, (5.6, 3.4)),
    "ece-bias": (ece_bias, (5.6, 3.4)),
    "proper": (proper, (5.6, 3.6)),
    "focal-map": (focal_map, (7.6, 3.9)),
    "ts-fts": (ts_fts, (4.8, 4.6)),
    "tradeoff": (tradeoff, (5.6, 3.8)),
    "validation-size": (validation_size, (8.4, 3.6)),
}


def main(folder: Path) -> None:
    """Draw every figure."""
    with mpl.rc_context({**STYLE, "svg.hashsalt": "refocal"}):
        for name, (draw, size) in FIGURES.items():
            figure = Figure(figsize=size, layout="constrained", facecolor="white")
            draw(figure)
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def _axes(figure: Figure, n: int) -> list[Axes]:
    return list(np.ravel(figure.subplots(1, n)))


def _calibrated(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Confidences between 1/2 and 1, mostly high, each right as often as it says."""
    confidence = 0.5 + 0.5 * rng.beta(3, 1, n)
    return confidence, (rng.random(n) < confidence).astype(int)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "concepts" / "figures")
