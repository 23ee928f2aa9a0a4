"""How often the interval of `metrics.judged_rate` holds the rate, beside that of the labels alone.

python benchmarks/judged_coverage.py [--runs 2000]

3,000 rows without labels; a judge whose scores differ by 0.4 between good and bad answers with noise of 0.15, and one
that guesses. Two minutes.
"""

from __future__ import annotations

import argparse

import numpy as np

from refocal.metrics import judged_rate


def main() -> None:
    """Print a table: coverage of both intervals, their widths, and the mean error of the estimate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    arguments = parser.parse_args()
    rng = np.random.default_rng(1)
    print("| rate | labels | judge | coverage; labels alone | width; labels alone | mean error |")
    print("|---|---|---|---|---|---|", flush=True)
    for rate in (0.5, 0.7, 0.9, 0.95, 0.99):
        for n_labels in (20, 50, 200):
            for judge in ("good", "guesses"):
                results = []
                for _ in range(arguments.runs):
                    y = rng.random(3000 + n_labels) < rate
                    score = rng.random(len(y))
                    if judge == "good":
                        score = np.clip(np.where(y, 0.85, 0.45) + 0.15 * rng.normal(size=len(y)), 0.0, 1.0)
                    found = judged_rate(score[n_labels:], score[:n_labels], y[:n_labels])
                    both = (found.interval, found.of_labels)
                    covers = [each.low <= rate <= each.high for each in both]
                    results.append([*covers, *(each.high - each.low for each in both), found.interval.value - rate])
                mean = np.mean(results, axis=0)
                print(
                    f"| {rate:.0%} | {n_labels} | {judge} | {mean[0]:.1%}; {mean[1]:.1%} "
                    f"| {mean[2]:.3f}; {mean[3]:.3f} | {mean[4]:+.4f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
