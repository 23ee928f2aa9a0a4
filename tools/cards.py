"""Writes docs/methods.md and docs/metric-cards.md from the registry, the metrics' records and tools/cards.toml.

python tools/cards.py
"""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from typing import Any

from refocal.calibrators import registry
from refocal.metrics import METRICS
from refocal.metrics.record import Metric

ROOT = Path(__file__).parents[1]
TEXTS = tomllib.loads((ROOT / "tools" / "cards.toml").read_text(encoding="utf-8"))
METHODS_PAGE, METRICS_PAGE = ROOT / "docs" / "methods.md", ROOT / "docs" / "metric-cards.md"

METHODS_HEAD = """# Method cards

One card for each calibrator. z are logits, C classes, n rows. Changes of log-loss are against temperature scaling
unless said otherwise; [the calibrators](calibrators.md) has how they were measured. Costs are of one fit on one core.
Which one to take: [choosing](guide/choosing.md).

<!-- Written by tools/cards.py. -->
"""
METRICS_HEAD = """# Metric cards

One card for each metric. c is the confidence, y whether it was right (of two classes p and whether class 1 occurred),
w weights that sum to 1; c_b, a_b, w_b, n_b are mean confidence, accuracy, weight and rows of bin b. Which one when,
details and peers: [measuring calibration](metrics.md).

<!-- Written by tools/cards.py. -->
"""


def methods_page() -> str:
    """The cards of all calibrators."""
    return METHODS_HEAD + "".join(map(_method_card, registry.kinds().values()))


def metrics_page() -> str:
    """The cards of all metrics."""
    return METRICS_HEAD + "".join(map(_metric_card, METRICS.values()))


def _method_card(kind: type[Any]) -> str:
    text = TEXTS["methods"][kind.__name__]
    named = registry.NAMED | registry.SETS | registry.GROUPED
    rows = {name: method for name, method in named.items() if method.kind is kind}
    facts = {
        "formula": f"`{text['formula']}`" if "softmax(" in text["formula"] else text["formula"],
        "corrects": text["corrects"],
        "cannot correct": text["cannot"],
        "rows": text["rows"],
        "cost": text["cost"],
        "keeps the order of classes": _yes(any(method.keeps_order for method in rows.values())),
        "rows in blocks": _yes(any(method.in_blocks for method in rows.values())),
        "export": text.get("export", "JSON, torch, ONNX"),
        "not when": text["avoid"],
        "reference": text.get("reference", ""),
    }
    names = ", ".join(f"`{name}`" for name in rows)
    call = f"`refocal fit val.npz --method {next(iter(rows))}`" if rows else f"`{kind.__name__}().fit(scores, labels)`"
    summary = inspect.getdoc(kind).splitlines()[0]
    example = f"[{kind.__name__}](reference/calibrators.md#refocal.calibrators.{kind.__name__})"
    return f"\n## {kind.__name__}\n\n{summary}\n\n{_table(facts | {'names': names, 'example': f'{call}; {example}'})}"


def _metric_card(metric: Metric) -> str:
    text = TEXTS["metrics"][metric.name]
    low, high = (f"{value:g}".replace("inf", "∞") for value in metric.range)
    function = getattr(metric.function, "__name__", "expected_calibration_error")
    facts = {
        "formula": text["formula"].replace("|", "\\|"),
        "use": text["use"],
        "caution": text["caution"],
        "better": f"{'lower' if metric.lower_is_better else 'higher'}, {low} … {high}",
        "in evaluations": f"{metric.shown}, as {metric.heading}" if metric.shown != "no" else "no",
        "for": "two classes" if metric.two_classes else "any number of classes",
        "function": f"[{function}](reference/metrics.md#refocal.metrics.{function})",
    }
    return f"\n## {metric.name}\n\n{_table(facts)}"


def _table(facts: dict[str, str]) -> str:
    first, *others = [f"| {name} | {fact} |\n" for name, fact in facts.items() if fact]
    return first + "|---|---|\n" + "".join(others)


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


if __name__ == "__main__":
    METHODS_PAGE.write_text(methods_page(), encoding="utf-8")
    METRICS_PAGE.write_text(metrics_page(), encoding="utf-8")
