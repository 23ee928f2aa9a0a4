"""The monitor's test of independent rows: false alarms over 1,000 calibrated batches, and how soon it finds a change.

python benchmarks/monitor.py                writes benchmarks/results/monitor.md
python benchmarks/monitor.py --runs 100     fewer runs
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np

from refocal.metrics.intervals import share_interval
from refocal.monitor import CalibrationMonitor
from refocal.monitor.independent import Wealth, log_ratios

RESULTS = Path(__file__).parent / "results" / "monitor.md"
BATCHES, ALPHA = 1000, 0.05


def common(rng: np.random.Generator, n: int) -> Any:
    return rng.beta(2, 3, n)


def rare(rng: np.random.Generator, n: int) -> Any:
    return rng.beta(0.5, 24.5, n)


def sure(rng: np.random.Generator, n: int) -> Any:
    return 1.0 - 10.0 ** -rng.uniform(0.3, 5.0, n)


MODELS = {"p ~ Beta(2, 3)": common, "2 % positives": rare, "confidence near 1": sure}


def path(rng: np.random.Generator, draw: Any, rows: int, n_batches: int, change: int, shift: float) -> list[float]:
    """The logarithm of the e-value after each batch, up to the alarm; the rate rises by `shift` from a batch on."""
    wealth, found = Wealth(), []
    for batch in range(n_batches):
        p = draw(rng, rows)
        happened = rng.random(rows) < np.clip(p + (shift if batch >= change else 0.0), 0.0, 1.0)
        wealth = wealth.after(log_ratios(p, happened))
        found.append(wealth.log_e)
        if found[-1] >= -math.log(ALPHA):
            break
    return found


def false_alarms(runs: int) -> list[str]:
    lines = [
        f"| model | rows a batch | runs | false alarms within {BATCHES:,} batches | 95 % interval |",
        "|---|---|---|---|---|",
    ]
    for name, draw in MODELS.items():
        for rows in (20, 200):
            rng = np.random.default_rng(rows)
            alarms = sum(path(rng, draw, rows, BATCHES, BATCHES, 0.0)[-1] >= -math.log(ALPHA) for _ in range(runs))
            found = share_interval(alarms / runs, runs, 0.95)
            low, high = 100 * found.low, 100 * found.high
            lines.append(f"| {name} | {rows} | {runs} | {100 * found.value:.1f} % | {low:.1f} – {high:.1f} % |")
    return lines


def delays(runs: int) -> list[str]:
    lines = [
        "| model | shift | rows a batch | change after | found in | median delay, batches | 90 % within |",
        "|---|---|---|---|---|---|---|",
    ]
    cases = [
        (name, shift)
        for name in MODELS
        for shift in (0.05, -0.05)
        if not (name != "p ~ Beta(2, 3)" and (name == "2 % positives") != (shift > 0))
    ]
    for name, shift in cases:
        for rows in (100, 500):
            for change in (0, 100, 500):
                rng = np.random.default_rng(rows + change)
                found = [len(path(rng, MODELS[name], rows, change + 400, change, shift)) - change for _ in range(runs)]
                late = np.array([delay for delay in found if delay > 0])
                seen = f"{np.count_nonzero(late < 400)} of {len(late)}"
                middle, most = np.median(late), np.quantile(late, 0.9)
                lines.append(f"| {name} | {shift:+} | {rows} | {change} batches | {seen} | {middle:.0f} | {most:.0f} |")
    return lines


def same_as_the_monitor() -> None:
    """The loop above is what the monitor does, bit for bit."""
    rng = np.random.default_rng(0)
    monitor, wealth = CalibrationMonitor(independent=True), Wealth()
    for _ in range(100):  # more than are kept one by one
        p = rng.random(50)
        y = rng.random(50) < p
        monitor.update(p, y)
        wealth = wealth.after(log_ratios(p, y))
    assert math.isclose(monitor.e_value, math.exp(wealth.log_e), rel_tol=1e-12)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="of calibrated models; a tenth of them for delays")
    runs = parser.parse_args().runs
    same_as_the_monitor()
    said = [
        "# Independent rows: false alarms of the monitor, and how soon it finds a change",
        "",
        f"`python benchmarks/monitor.py --runs {runs}`, with `independent=True`. A calibrated model, looked at after",
        "every batch, with",
        f"`alpha={ALPHA:g}`: at most {100 * ALPHA:g} % of runs may have an alarm, over all time.",
        "",
        *false_alarms(runs),
        "",
        "A change: from some batch on the event has probability p + shift. Delays count the batches up to the alarm,",
        "its own included; runs with an alarm before the change are left out.",
        "",
        *delays(max(20, runs // 10)),
    ]
    RESULTS.write_text("\n".join(said) + "\n", encoding="utf-8")
    print("\n".join(said))


if __name__ == "__main__":
    main()
