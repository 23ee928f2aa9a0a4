"""Runs the scripts of examples/, keeps what each prints and draws its thumbnail, into docs/gallery/.

python tools/gallery_pictures.py [NAME ...]
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refocal.maps import log_softmax
from refocal.report.figures import FIRST, LINE, MUTED, SECOND

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "gallery"
Found = dict[str, Any]


def reliability(ax: Axes, right: Any, before: Any, after: Any) -> None:
    """How often it was right, by confidence, in bins of equal mass: before and after."""
    ax.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    for p, outcome, color in ((before, right[0], SECOND), (after, right[1], FIRST)):
        bins = np.array_split(np.argsort(p, kind="stable"), 10)
        ax.plot([p[i].mean() for i in bins], [outcome[i].mean() for i in bins], "o-", color=color, markersize=3)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability", ylabel="rate")


def top_class(ax: Axes, labels: Any, before: Any, after: Any) -> None:
    """The reliability of the most probable class."""
    labels, before, after = (np.asarray(x) for x in (labels, before, after))
    right = [p.argmax(axis=1) == labels for p in (before, after)]
    reliability(ax, right, before.max(axis=1), after.max(axis=1))


def softmax(logits: Any) -> Any:
    """Probabilities, in NumPy, of logits of any library."""
    return np.exp(log_softmax(np.asarray(logits.detach().double() if hasattr(logits, "detach") else logits, float)))


def bars(ax: Axes, names: Any, rate: Any, before: Any, after: Any) -> None:
    """The rate of each group or label, as a line, between two bars."""
    place = np.arange(len(names))
    ax.bar(place - 0.2, before, 0.38, color=SECOND)
    ax.bar(place + 0.2, after, 0.38, color=FIRST)
    ax.hlines(rate, place - 0.42, place + 0.42, color="black")
    ax.set_xticks(place, names)


def of_fit(ax: Axes, found: Found) -> None:
    """Scripts that collect the logits of a network and fit on them."""
    rows = found["found"]
    p = found["calibrator"].predict_proba(rows.logits)
    top_class(ax, rows.labels, softmax(rows.logits), p.detach().double())


def tokens(ax: Axes, found: Found) -> None:
    """The mean probability of the best words."""
    logits = next(found["blocks_of_tokens"]())[0].float()
    before, after = softmax(logits), np.asarray(found["calibrator"].predict_proba(logits))
    for p, color in ((before, SECOND), (after, FIRST)):
        ax.plot(np.arange(1, 31), np.sort(p, axis=1)[:, ::-1][:, :30].mean(axis=0), color=color)
    ax.set(yscale="log", xlabel="rank of the word", ylabel="probability")


def detections(ax: Axes, found: Found) -> None:
    """How often a detection is right, by its score."""
    before, after = found["test"], found["calibrated"]
    reliability(ax, [before.correct, after.correct], before.scores, after.scores)


def segments(ax: Axes, found: Found) -> None:
    """One image."""
    image = found["calibrated"](found["images"][:1]).detach().exp()[0]
    ax.imshow(image.max(0).values.numpy(), vmin=1 / 3, vmax=1, cmap="Blues")
    ax.set(xticks=[], yticks=[], xlabel="confidence of each pixel")


def labels_of(ax: Axes, found: Found) -> None:
    """The rate of each label beside its mean probability."""
    means = [found[name].mean(axis=0) for name in ("before", "after")]
    bars(ax, found["LABELS"], found["test"].labels.mean(axis=0), *means)
    ax.tick_params("x", rotation=45)


def costs(ax: Axes, found: Found) -> None:
    """What was paid, with its interval, and what was expected."""
    reports = [found["reports"][when] for when in ("before", "after")]
    for place, report, color in zip((0, 1), reports, (SECOND, FIRST), strict=True):
        ax.bar(place, report.cost.value, 0.6, color=color)
        ax.vlines(place, report.cost.low, report.cost.high, color="black")
    ax.hlines([r.expected_cost for r in reports], [-0.4, 0.6], [0.4, 1.4], color="black", linestyle=":")
    ax.set_xticks([0, 1], ["before", "after"])
    ax.set(ylabel="cost of a payment")


def groups(ax: Axes, found: Found) -> None:
    """The rate of each group beside its mean probability."""
    region, late = found["region"][found["test"]], found["late"][found["test"]]
    names = np.unique(region)
    means = [[found[p][region == name, 1].mean() for name in names] for p in ("p_before", "p_after")]
    bars(ax, names, [late[region == name].mean() for name in names], *means)


def days(ax: Axes, found: Found) -> None:
    """The rate of each day, the mean probability, and the day of the alarm."""
    ax.plot(found["labels"].mean(axis=1), color=FIRST)
    ax.plot(found["p"].mean(axis=1), color=SECOND)
    ax.axvline(found["today"], color="black", linestyle=":")
    ax.set(xlabel="day", ylabel="rate")


def rates(ax: Axes, found: Found) -> None:
    """The rate by the judge, by labels and by both, with intervals; the truth as a line."""
    rate = found["rate"]
    ax.axhline(found["good"].mean(), color="black", linestyle=":")
    ax.plot([0], [rate.of_judge], "o", color=SECOND)
    for place, interval in ((1, rate.of_labels), (2, rate.interval)):
        margins = [[interval.value - interval.low], [interval.high - interval.value]]
        ax.errorbar([place], [interval.value], margins, fmt="o", color=FIRST, capsize=4)
    ax.set_xticks([0, 1, 2], ["judge", "labels", "both"])
    ax.set(xlim=(-0.5, 2.5), ylabel="rate")


def networks(ax: Axes, found: Found) -> None:
    """The log-loss of every network, before and after."""
    rows = found["found"].by_network("log_loss")
    for method, color in (("none", SECOND), ("entropy-scaling", FIRST)):
        ax.plot([row.methods[method].mean for row in rows], range(len(rows)), "o", color=color, markersize=3)
    ax.set(xlabel="log-loss", ylabel="network", yticks=[])


PICTURES: dict[str, Callable[[Axes, Found], None]] = {
    "start_file": lambda ax, v: top_class(ax, v["test"].labels, softmax(v["test"].values), v["probabilities"]),
    "start_sklearn": lambda ax, v: top_class(ax, v["y_test"], v["p_before"], v["p_after"]),
    "start_torch": lambda ax, v: top_class(
        ax, v["truth"], softmax(v["model"](v["inputs"])), softmax(v["calibrated"](v["inputs"]))
    ),
    "start_onnx": lambda ax, v: top_class(ax, v["labels"][2000:], softmax(v["before"]), v["after"]),
    "shifted_prior": lambda ax, v: reliability(ax, [v["y"][v["test"]]] * 2, v["p_before"], v["p_after"]),
    "fraud_costs": costs,
    "groups": groups,
    "monitoring": days,
    "larger_than_memory": lambda ax, v: top_class(
        ax, v["labels_of"](100), softmax(v["logits_of"](100)), v["calibrator"].predict_proba(v["logits_of"](100))
    ),
    "published_table": lambda ax, v: top_class(
        ax, v["test_labels"], softmax(v["test_logits"]), v["by_ece"].predict_proba(v["test_logits"])
    ),
    "methods_paper": networks,
    "train_with_focal_loss": of_fit,
    "hugging_face": of_fit,
    "language_model_tokens": tokens,
    "llm_multiple_choice": lambda ax, v: top_class(ax, v["test"].labels, v["p_before"], v["p_after"]),
    "llm_judge": rates,
    "multilabel": labels_of,
    "segmentation": segments,
    "detection": detections,
}


def run(name: str) -> tuple[Found, str]:
    """The variables of a script, which is run in a folder of its own, and what it printed."""
    home, printed = Path.cwd(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed):
        os.chdir(folder)
        try:
            found = runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
        finally:
            os.chdir(home)
    return found, printed.getvalue()


def main(names: list[str]) -> None:
    """Run and draw every script, or those named."""
    FOLDER.mkdir(exist_ok=True)
    for name in names or PICTURES:
        found, printed = run(name)
        (FOLDER / f"{name}.txt").write_text(printed, encoding="utf-8")
        settings = {"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "sans-serif", "font.size": 9}
        with mpl.rc_context({**settings, "axes.edgecolor": LINE, "axes.spines.top": False, "axes.spines.right": False}):
            figure = Figure(figsize=(3.2, 2.4), layout="constrained", facecolor="white")
            PICTURES[name](figure.subplots(), found)
            figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1:])
