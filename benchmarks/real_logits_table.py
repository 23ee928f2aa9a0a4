"""The results of real_logits.py as Markdown: a summary over the networks, where each method loses, a table a network.

python benchmarks/real_logits_table.py benchmarks/results/real_logits.json > benchmarks/results/real_logits.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

Results = dict[str, dict[str, dict]]
BASELINE, BY_ECE = "ts", "ts-ece"

HEAD = """# Calibrators on real networks

By `python benchmarks/real_logits.py`, see its first lines. Fitted on the validation rows, measured on the test rows. In
brackets 95 % intervals by the bootstrap; in parentheses the difference to temperature scaling (`ts`), with a star where
its paired 95 % interval does not hold 0. Calibration errors in percent: ECE has 15 equal-mass bins, multi-ECE is the
mean over 5, 8, 12, 15, 20, 30 and 50 bins. Accuracy in points against the network's own. Times are of a busy machine,
one thread. A probability below 1e-12 counts as 1e-12; "zeros" tells for how many test rows the true class got one.
"""


def render(results: Results) -> str:
    """The whole page."""
    methods = list(dict.fromkeys(m for rows in results.values() for m in rows))
    text = [HEAD, "## All networks", "", *_summary(results, methods), "", "## Where each method loses", ""]
    text += [_loses(results, method) for method in methods if method != BASELINE]
    for network, rows in results.items():
        text += ["", f"## {network}", "", *_table(rows)]
    return "\n".join(text) + "\n"


def _summary(results: Results, methods: list[str]) -> list[str]:
    lines = [
        f"Mean relative change against `ts` over {len(results)} networks; ECE also against `{BY_ECE}`, whose "
        "temperature is chosen by ECE. Worst: the largest relative change of the log-loss on one network.",
        "",
        "| method | log-loss | worst | ECE | ECE against ts-ece | multi-ECE | smooth ECE | classwise ECE | Brier | "
        "accuracy | fit, s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for method in methods:
        rows = [(rows[method], rows[BASELINE], rows.get(BY_ECE)) for rows in results.values() if method in rows]
        loss = [_change(mine, base, "log_loss") for mine, base, _ in rows]
        by_ece = [_change(mine, other, "ece") for mine, _, other in rows if other is not None]
        others = [
            _percent(_mean([_change(mine, base, key) for mine, base, _ in rows]))
            for key in ("multi_ece", "smooth_ece", "classwise_ece", "brier")
        ]
        seconds = [mine["seconds"] for mine, _, _ in rows if "seconds" in mine]
        cells = [
            method if len(rows) == len(results) else f"{method} ({len(rows)} networks)",
            _percent(_mean(loss), 2),
            _percent(max(loss), 2),
            _percent(_mean([_change(mine, base, "ece") for mine, base, _ in rows])),
            _percent(_mean(by_ece)) if by_ece else "–",
            *others,
            f"{100 * _mean([mine['accuracy']['value'] - base['accuracy']['value'] for mine, base, _ in rows]):+.2f}",
            f"{_mean(seconds):.1f}" if seconds else "–",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _loses(results: Results, method: str) -> str:
    """Networks on which a method is worse than temperature scaling beyond chance, in one sentence."""
    said, better = [], []
    for key, words in (("log_loss", "log-loss"), ("ece", "ECE"), ("accuracy", "accuracy")):
        sign = -1.0 if key == "accuracy" else 1.0
        worse, gains, n = [], 0, 0
        for network, rows in results.items():
            if method not in rows:
                continue
            n += 1
            apart = rows[method][f"{key}_difference"]
            low, high = sorted((sign * apart["low"], sign * apart["high"]))
            if low > 0:
                worse.append(network)
            gains += high < 0
        if worse:
            where = "on every network" if len(worse) == n else f"on {len(worse)} of {n} ({', '.join(worse)})"
            said.append(f"{words} {where}")
        if gains:
            better.append(f"{words} on {gains} of {n}")
    text = f"loses {'; '.join(said)}" if said else "loses nowhere beyond chance"
    return f"- **{method}** {text}. Gains {', '.join(better)}." if better else f"- **{method}** {text}. Gains nowhere."


def _table(rows: dict[str, dict]) -> list[str]:
    lines = [
        "| method | γ, T | log-loss | ECE | multi-ECE | smooth ECE | classwise ECE | Brier | accuracy | fit, s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for method, row in rows.items():
        scaling = row.get("choice", {}).get("chosen", "")
        found = f"{row['gamma']:.2f}, {row['temperature']:.3f}" if "gamma" in row else "–"
        cells = [
            f"{method}, {row['zeros']} zeros" if row.get("zeros") else method,
            f"{found} {scaling}".strip(),
            _cell(row, "log_loss", 1.0, 4, method),
            _cell(row, "ece", 100.0, 2, method),
            *(f"{100 * row[key]:.2f}" for key in ("multi_ece", "smooth_ece")),
            f"{100 * row['classwise_ece']:.3f}",
            _cell(row, "brier", 1.0, 4, method),
            f"{100 * row['accuracy_difference']['difference']:+.2f}",
            f"{row['seconds']:.1f}" if "seconds" in row else "–",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _cell(row: dict, key: str, scale: float, digits: int, method: str) -> str:
    value, low, high = (f"{scale * row[key][part]:.{digits}f}" for part in ("value", "low", "high"))
    text = f"{value} [{low}, {high}]"
    if method == BASELINE:
        return text
    apart = row[f"{key}_difference"]
    star = "*" if apart["low"] > 0 or apart["high"] < 0 else ""
    return f"{text} ({scale * apart['difference']:+.{digits}f}{star})"


def _change(mine: dict, other: dict, key: str) -> float:
    first, second = (row[key]["value"] if isinstance(row[key], dict) else row[key] for row in (mine, other))
    return float(first / second - 1.0)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:+.{digits}f} %"


if __name__ == "__main__":
    sys.stdout.write(render(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
