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

One card for each calibrator. z are logits, C the number of classes, n the number of rows. Changes of log-loss are
against temperature scaling unless said otherwise
([how they were measured](../benchmarks/results/how_defaults_were_picked.md)). Costs are CPU time of a fit of
10,000 × 100 (`python benchmarks/card_costs.py`). Every calibrator exports to JSON, torch and ONNX unless its card says
otherwise. Which one to take: [choosing](guide/choosing.md).

<!-- Written by tools/cards.py. -->

*Usual*: `compare` tries it by default. *Order*: the order of the classes stays, and so does the accuracy. *Blocks*: it
fits on rows that do not fit into memory.

| name | method | class | usual | order | blocks |
|---|---|---|---|---|---|
"""
METRICS_HEAD = """# Metric cards

One card for each metric. c is the confidence and y whether it was right (for two classes: p and whether class 1
occurred); w are weights that sum to 1; $c_b$, $a_b$, $w_b$ and $n_b$ are the mean confidence, accuracy, weight and rows
of bin b. Which one when: [measuring calibration](metrics.md).

<!-- Written by tools/cards.py. -->
"""


def methods_page() -> str:
    """The cards of all calibrators."""
    names = "".join(_name_row(name, method) for name, method in registry.NAMED.items())
    return METHODS_HEAD + names + "".join(map(_method_card, registry.kinds().values()))


def metrics_page() -> str:
    """The cards of all metrics."""
    return METRICS_HEAD + "".join(map(_metric_card, METRICS.values()))


def _name_row(name: str, method: registry.Method) -> str:
    settings = ", ".join(f"{key}={value!r}" for key, value in method.settings.items())
    call = f"{method.kind.__name__}({settings})" if settings else method.kind.__name__
    marks = ("yes" if flag else "" for flag in (method.usual, method.keeps_order, method.in_blocks))
    address = f"reference/calibrators.md#refocal.calibrators.{method.kind.__name__}"
    return f"| `{name}` | {method.title} | [`{call}`]({address}) | {' | '.join(marks)} |\n"


def _method_card(kind: type[Any]) -> str:
    text = TEXTS["methods"][kind.__name__]
    named = registry.METHODS
    rows = {name: method for name, method in named.items() if method.kind is kind}
    facts = {
        "formula": text["formula"],
        "corrects": text["corrects"],
        "cannot correct": text["cannot"],
        "rows": text["rows"],
        "cost": text["cost"],
        "export": text.get("export", ""),
        "not when": text["avoid"],
        "reference": text.get("reference", ""),
    }
    if rows:  # the table above has their links
        call = f"`--method {next(iter(rows))}`"
    else:
        reference = f"reference/calibrators.md#refocal.calibrators.{kind.__name__}"
        call = f"[`{kind.__name__}().fit(scores, labels)`]({reference})"
    summary = inspect.getdoc(kind).splitlines()[0]
    known_as = f" ({text['known_as']})" if "known_as" in text else ""
    return f"\n## {kind.__name__}{known_as}\n\n{summary} {call}.\n\n{_table(facts)}"


def _metric_card(metric: Metric) -> str:
    text = TEXTS["metrics"][metric.name]
    low, high = (f"{value:g}".replace("inf", "∞") for value in metric.range)
    function = getattr(metric.function, "__name__", "expected_calibration_error")
    facts = {
        "formula": text["formula"],
        "use": text["use"],
        "caution": text["caution"],
        "better": f"{_best(metric)}, {low} … {high}",
        "for": "two classes" if metric.two_classes else "",
        "function": f"[{function}](reference/metrics.md#refocal.metrics.{function})",
    }
    return f"\n## {metric.name}\n\n{_table(facts)}"


def _best(metric: Metric) -> str:
    """Which values of a metric are better."""
    if metric.best is not None:
        return f"nearer to {metric.best:g}"
    return "lower" if metric.lower_is_better else "higher"


def _table(facts: dict[str, str]) -> str:
    first, *others = [f"| {name} | {fact} |\n" for name, fact in facts.items() if fact]
    return first + "|---|---|\n" + "".join(others)


if __name__ == "__main__":
    METHODS_PAGE.write_text(methods_page(), encoding="utf-8")
    METRICS_PAGE.write_text(metrics_page(), encoding="utf-8")
