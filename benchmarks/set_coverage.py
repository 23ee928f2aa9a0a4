"""How often prediction sets hold the truth, and whether one of the two Venn-Abers probabilities is calibrated.

python benchmarks/set_coverage.py                    writes benchmarks/results/set_coverage.md
python benchmarks/set_coverage.py --trials 200       fewer draws
python benchmarks/set_coverage.py --peers            beside MAPIE and venn-abers, where they are installed
python benchmarks/set_coverage.py --only groups      prints the table of groups and classes
"""

from __future__ import annotations

import argparse
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_softmax, logit, softmax

from refocal import PredictionSets, VennAbersCalibration
from refocal.metrics import set_coverage

RESULTS = Path(__file__).parent / "results" / "set_coverage.md"
N_TEST = 1000
MODELS = {"calibrated": 1.0, "four times too sure": 4.0, "far too unsure": 0.2}
SCORES: dict[str, dict[str, Any]] = {
    "LAC": {"conformity_score": "lac"},
    "APS": {"conformity_score": "aps"},
    "RAPS": {"conformity_score": "raps", "penalty": 0.05, "rank": 3},
    "APS, not randomised": {"conformity_score": "aps", "randomised": False},
}


def draw(rng: np.random.Generator, n: int, sureness: float) -> tuple[Any, Any]:
    truth = 1.5 * rng.normal(size=(n, 10))
    return sureness * truth, np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)


def sets_table(trials: int) -> list[str]:
    """Mean coverage over fits, whose expectation theory gives, and the spread of the coverage of single fits."""
    lines = ["| score | model | rows of the fit | theory | coverage | ± | one fit in 20 is below | mean size |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    rng = np.random.default_rng(0)
    for name, settings in SCORES.items():
        for model, sureness in MODELS.items():
            for n in (100, 1000):
                found = []
                for _ in range(trials):
                    x, y = draw(rng, n + N_TEST, sureness)
                    seed = int(rng.integers(1 << 30))
                    fitted = PredictionSets(coverage=0.9, allow_empty=True, random_state=seed, **settings).fit(
                        x[:n], y[:n]
                    )
                    report = set_coverage(y[n:], fitted.predict_set(x[n:], seed=seed + 1))
                    found.append((report.coverage.value, report.mean_size))
                coverage, size = np.array(found).T
                theory = math.ceil(0.9 * (n + 1)) / (n + 1)
                error, low = coverage.std() / trials**0.5, np.quantile(coverage, 0.05)
                lines.append(
                    f"| {name} | {model} | {n:,} | {theory:.4f} | {coverage.mean():.4f} | {error:.4f} | {low:.3f} | "
                    f"{size.mean():.2f} |"
                )
    return lines


def parts_table(trials: int) -> list[str]:
    """The coverage of the smaller of two groups, in which the model is worse, and of the rarest of three classes."""
    lines = ["| sets for | part | its rows of the fit | theory | coverage | ± | one fit in 20 is below | mean size |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    rng = np.random.default_rng(3)
    for n in (5, 20, 50, 200):
        for conditional, part in (("none", "group"), ("group", "group"), ("none", "class"), ("class", "class")):
            coverages = []
            sizes = []
            for _ in range(trials):
                is_part = np.arange(n + 500 + N_TEST) < n  # of the fit, and below of the new rows
                is_part[n + 500 : n + 500 + N_TEST // 2] = True
                labels = rng.integers(2 if part == "class" else 3, size=len(is_part))
                labels = np.where(is_part & (part == "class"), 2, labels)
                x = rng.normal(size=(len(is_part), 3))
                x[np.arange(len(x)), labels] += np.where(is_part, 0.3, 2.0)
                fit = slice(0, n + 500)
                new = slice(n + 500, n + 500 + N_TEST // 2)
                of_groups = {"groups": is_part.astype(int)} if conditional == "group" else {}
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of parts that have too few rows
                    fitted = PredictionSets(conditional=conditional, allow_empty=True).fit(
                        x[fit], labels[fit], **{name: column[fit] for name, column in of_groups.items()}
                    )
                sets = fitted.predict_set(x[new], **{name: column[new] for name, column in of_groups.items()})
                coverages.append(sets[np.arange(N_TEST // 2), labels[new]].mean())
                sizes.append(sets.sum(axis=1).mean())
            k = math.ceil(0.9 * (n + 1))
            theory = "–" if conditional == "none" else "1.0000" if k > n else f"{k / (n + 1):.4f}"
            what = {"none": "all rows", "group": "each group", "class": "each class"}[conditional]
            error, low = np.std(coverages) / trials**0.5, np.quantile(coverages, 0.05)
            lines.append(
                f"| {what} | {part} | {n} | {theory} | {np.mean(coverages):.4f} | {error:.4f} | {low:.3f} | "
                f"{np.mean(sizes):.2f} |"
            )
    return lines


def venn_abers_table(trials: int) -> list[str]:
    """The probability that the label picks (p₁ of a hit, p₀ of a miss) against the outcome, at low and high scores."""
    lines = ["| model | rows of the fit | picked, p below ½ | hits there | picked, p above ½ | hits there | width |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    rng = np.random.default_rng(1)
    for model, sureness in MODELS.items():
        for n in (30, 300):
            picked, hits, width = [], [], []
            for _ in range(trials):
                p = rng.beta(1, 2, n + 50)
                y = (rng.random(n + 50) < p).astype(int)
                score = sureness * logit(p)
                if y[:n].min() == y[:n].max():
                    continue
                lower, upper = (
                    b[:, 1] for b in VennAbersCalibration().fit(score[:n], y[:n]).predict_interval(score[n:])
                )
                picked.append(np.where(y[n:] == 1, upper, lower))
                hits.append(y[n:])
                width.append(upper - lower)
            p, y = np.concatenate(picked), np.concatenate(hits)
            low = p < 0.5
            lines.append(
                f"| {model} | {n} | {p[low].mean():.4f} | {y[low].mean():.4f} | {p[~low].mean():.4f} | "
                f"{y[~low].mean():.4f} | {np.mean(width):.3f} |"
            )
    return lines


def peers_lines() -> list[str]:
    """The largest difference from MAPIE's sets and from the intervals of venn-abers, on the same rows."""
    from mapie.classification import SplitConformalClassifier
    from sklearn.base import BaseEstimator, ClassifierMixin
    from venn_abers import VennAbers

    class Given(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        """A classifier whose features are its probabilities."""

        classes_ = np.arange(10)
        is_fitted_ = True

        def fit(self, x: Any, y: Any) -> Any:
            return self

        def predict_proba(self, x: Any) -> Any:
            return x

        def predict(self, x: Any) -> Any:
            return np.argmax(x, axis=1)

    rng = np.random.default_rng(2)
    x, y = draw(rng, 2000, 2.0)
    p = softmax(x, axis=1)
    lines = ["| compared with | rows of the fit | sets or intervals | how many differ |", "|---|---|---|---|"]
    peer = SplitConformalClassifier(Given(), confidence_level=0.9, conformity_score="lac", prefit=True)
    theirs = peer.conformalize(p[:500], y[:500]).predict_set(p[500:])[1][:, :, 0]
    lac = PredictionSets(coverage=0.9, allow_empty=True, input="probabilities").fit(p[:500], y[:500])
    differ = (lac.predict_set(p[500:]) != theirs).any(axis=1)
    lines.append(f"| MAPIE, LAC | 500 | {len(differ):,} sets | {int(differ.sum())} |")
    two = np.exp(log_softmax(x[:, :2], axis=1))
    labels = (rng.random(2000) < two[:, 1]).astype(int)
    peer = VennAbers()
    peer.fit(two[:500], labels[:500])
    theirs = peer.predict_proba(two[500:])[1]
    lower, upper = VennAbersCalibration(input="probabilities").fit(two[:500], labels[:500]).predict_interval(two[500:])
    apart = np.abs(np.stack([lower[:, 1], upper[:, 1]], axis=1) - theirs).max(axis=1) > 1e-9
    lines.append(f"| venn-abers, inductive | 500 | {len(apart):,} intervals | {int(apart.sum())} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--peers", action="store_true", help="also compare with MAPIE and venn-abers")
    parser.add_argument("--only", choices=["groups"], help="one table, which is printed")
    arguments = parser.parse_args()
    if arguments.only:
        print("\n".join(parts_table(arguments.trials)))
        return
    said = [
        "# Coverage of prediction sets, and of Venn-Abers intervals",
        "",
        f"`python benchmarks/set_coverage.py --peers`: {arguments.trials} fits a line, {N_TEST:,} new rows each.",
        "Ten classes; sets asked to hold the truth in 90 % of rows, with `allow_empty=True`. Theory: the mean",
        "over fits is ⌈0.9 (n + 1)⌉ / (n + 1) for any model. Single fits differ from it, less with more rows.",
        "",
        *sets_table(arguments.trials),
        "",
        "Of groups and classes, three classes; in the part that is shown the model is far worse than in 500 other rows",
        "of the fit. Sets for all rows together leave it uncovered; sets for each hold there too. With fewer than 9",
        "rows of a group its sets hold all classes, and a class with fewer is in every set.",
        "",
        *parts_table(arguments.trials),
        "",
        "Venn-Abers: of the two probabilities of a row, the one that its label picks is calibrated: its mean is the",
        "rate of hits, wherever one looks.",
        "",
        *venn_abers_table(arguments.trials),
    ]
    if arguments.peers:
        said += ["", "The same rows and settings in other packages:", "", *peers_lines()]
    RESULTS.write_text("\n".join(said) + "\n", encoding="utf-8")
    print("\n".join(said))


if __name__ == "__main__":
    main()
