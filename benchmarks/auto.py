"""The default calibrator on real networks and tabular models, with few rows and many, beside its peers.

    python benchmarks/auto.py networks FOLDER … [--rows 5000 1000 300] [--draws 1 2 3] [-o OUT]
    python benchmarks/auto.py tabular FOLDER [--rows 5000 1000 500 300 100] [-o OUT]
    python benchmarks/auto.py report OUT
    python benchmarks/auto.py speed

`networks` reads .npz files of `val`, `yv`, `test`, `yt` (one network each) or of `logits` and `labels`, which are split
in random halves; methods are fitted on so many rows drawn from the first half and measured on all of the second.
`tabular` reads files of `p` (the probability of the positive class) and `labels`; methods are fitted on rows drawn at
random, with both classes among them, and measured on all others. Both write their figures to OUT as JSON, a line for
each file, size, draw and method, and take up where they stopped; `report` prints the tables of
benchmarks/results/auto.md.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from real_logits import name_of, read
from scipy.special import log_softmax as scipy_log_softmax

import peers
from refocal import metrics
from refocal.calibrators.registry import make
from refocal.maps import log_softmax

PEER_METHODS = tuple(
    name
    for name in (
        "scikit-learn temperature",
        "scikit-learn sigmoid",
        "scikit-learn isotonic",
        "betacal",
        "venn-abers",
        "probmetrics svs",
        "probmetrics sms",
    )
    if name in peers.PEERS
)
NETWORK_METHODS = (
    "ts",
    "ts-ece",
    "fts",
    "auto",
    "auto, order kept",
    *PEER_METHODS,
)
TABULAR_METHODS = ("none", "fts", "logistic", "beta", "isotonic", "spline", "auto", *PEER_METHODS)
SIGMOID, ISOTONIC = "scikit-learn sigmoid", "scikit-learn isotonic"
DRAWS = {5000: 8, 1000: 8, 500: 16, 300: 16, 100: 48}
LEAST = 1e-12
CHANCE = 10  # draws of labels for the ECE that chance gives


def chance_ece(p: np.ndarray) -> float:
    """The mean ECE of labels drawn by the probabilities themselves: what a perfectly calibrated model has."""
    rng, confidence = np.random.default_rng(0), p.max(axis=1)
    right = [rng.random(len(p)) < confidence for _ in range(CHANCE)]
    two = np.stack([1.0 - confidence, confidence], axis=1)
    return float(np.mean([ece(each.astype(int), two, confidence, each) for each in right]))


def ece(labels: np.ndarray, p: np.ndarray, confidence: Any = None, right: Any = None) -> float:
    """The ECE of the top class, 15 bins of equal mass."""
    confidence = p.max(axis=1) if confidence is None else confidence
    right = p.argmax(axis=1) == labels if right is None else right
    order = np.argsort(confidence, kind="stable")
    parts = zip(np.array_split(confidence[order], 15), np.array_split(right[order], 15), strict=True)
    return float(sum(abs(c.sum() - r.sum()) for c, r in parts) / len(order))


def measures(labels: np.ndarray, log_p: np.ndarray) -> dict[str, float]:
    p = np.exp(log_p)
    return {
        "log_loss": float(-np.mean(log_p[np.arange(len(labels)), labels])),
        "ece": ece(labels, p),
        "chance": chance_ece(p),
        "smooth_ece": float(metrics.smooth_ece(labels, p)),
        "classwise_ece": float(metrics.classwise_ece(labels, p)),
        "brier": float(metrics.brier_score(labels, p)),
        "accuracy": float(metrics.accuracy(labels, p)),
    }


def network_predictions(method: str, val: np.ndarray, y: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, Any]:
    if method in peers.PEERS:
        p, p_test = (np.exp(log_softmax(x.astype(np.float64))) for x in (val, test))
        return np.log(np.maximum(peers.predict(method, p, y, p_test), LEAST)), None
    calibrator = make("auto", order_preserving=True) if method == "auto, order kept" else make(method)
    calibrator.fit(val, y)
    return calibrator.predict_log_proba(test).astype(np.float64), calibrator.fit_report_.get("scaling")


def networks(options: argparse.Namespace, done: set[str]) -> Iterator[dict[str, Any]]:
    files = sorted({p for source in options.sources for p in source.rglob("*.npz")})
    for size, draws in zip(options.rows, options.draws, strict=True):
        for path in files:
            val, y, test, y_test = read(path)
            for draw in range(draws):
                some = np.random.default_rng(draw).permutation(len(y))[:size]
                for method in options.methods or NETWORK_METHODS:
                    if method in peers.PEERS and val.shape[1] > peers.FEW_CLASSES.get(method, val.shape[1]):
                        continue
                    row = {"data": name_of(path), "rows": size, "draw": draw, "method": method}
                    if key(row) in done:
                        continue
                    start = time.perf_counter()
                    log_p, choice = network_predictions(method, val[some], y[some], test)
                    seconds = time.perf_counter() - start
                    yield row | {"seconds": seconds, "choice": choice} | measures(y_test, log_p)


def binary(log_odds: np.ndarray) -> np.ndarray:
    return np.stack([-np.logaddexp(0.0, log_odds), -np.logaddexp(0.0, -log_odds)], axis=1)


def tabular_predictions(method: str, p: np.ndarray, y: np.ndarray, test: np.ndarray) -> np.ndarray:
    two, two_test = (np.stack([1.0 - each, each], axis=1) for each in (p, test))
    if method in peers.PEERS:
        return np.log(np.maximum(peers.predict(method, two, y, two_test), LEAST))
    if method == "none":
        return np.log(np.maximum(two_test, LEAST))
    return make(method, input="probabilities").fit(two, y).predict_log_proba(two_test)


def tabular(options: argparse.Namespace, done: set[str]) -> Iterator[dict[str, Any]]:
    for size in options.rows:
        for path in sorted(options.sources[0].rglob("*.npz")):
            data = np.load(path)
            p, labels = data["p"].astype(np.float64), data["labels"].astype(np.int64)
            for draw in range(DRAWS[size]):
                rng = np.random.default_rng([size, draw])
                while True:
                    fit, rest = np.split(rng.permutation(len(labels)), [size])
                    if 0 < labels[fit].sum() < size:
                        break
                for method in options.methods or TABULAR_METHODS:
                    row = {"data": path.stem, "rows": size, "draw": draw, "method": method}
                    if key(row) in done:
                        continue
                    log_p = tabular_predictions(method, p[fit], labels[fit], p[rest])
                    loss = -np.mean(log_p[np.arange(len(rest)), labels[rest]])
                    p_1 = np.exp(log_p[:, 1])
                    # The rate is known as well as the rows of the fit tell it: that is what is to be met.
                    error = np.sqrt(labels.mean() * (1.0 - labels.mean()) / size)
                    off = (p_1.mean() - labels[rest].mean()) / error
                    halves = np.stack([1.0 - p_1, p_1], axis=1)
                    order = np.argsort(p_1, kind="stable")
                    parts = zip(np.array_split(p_1[order], 15), np.array_split(labels[rest][order], 15), strict=True)
                    yield row | {
                        "log_loss": float(loss),
                        "ece_of_class_1": float(sum(abs(a.sum() - b.sum()) for a, b in parts) / len(rest)),
                        "brier": float(metrics.brier_score(labels[rest], halves)),
                        "standard_errors_off": float(off),
                    }


def speed() -> None:
    """CPU seconds of a fit on 10,000 rows, also in passes of a bare log-softmax; at 10 classes the matrix is tried."""
    for n_classes in (2, 10, 100, 1000):
        rng = np.random.default_rng(0)
        logits = (2.0 * rng.normal(size=(10_000, n_classes))).astype(np.float32)
        labels = np.argmax(logits / 1.8 + rng.gumbel(size=logits.shape), axis=1)
        times = {}
        for name, run in (("softmax", lambda x, _: scipy_log_softmax(x, axis=1)), ("auto", make("auto").fit)):
            spent = []
            for _ in range(20 if name == "softmax" else 2):
                start = time.process_time()
                run(logits, labels)
                spent.append(time.process_time() - start)
            times[name] = min(spent)
        print(f"10,000 × {n_classes}: {times['auto']:.2f} s, {times['auto'] / times['softmax']:.0f} log-softmax passes")


def key(row: dict[str, Any]) -> str:
    return f"{row['data']}|{row['rows']}|{row['draw']}|{row['method']}"


def by_method(rows: list[dict[str, Any]], measure: str) -> dict[str, dict[str, float]]:
    """The mean of a measure over the draws, for each method and data set."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row["method"]][row["data"]].append(row[measure])
    return {m: {d: float(np.mean(v)) for d, v in each.items()} for m, each in found.items()}


def change(of: dict[str, float], to: dict[str, float]) -> np.ndarray:
    return np.array([100.0 * (value / to[data] - 1.0) for data, value in of.items()])


def network_table(rows: list[dict[str, Any]]) -> str:
    size, n = rows[0]["rows"], len({row["data"] for row in rows})
    names = ("log_loss", "ece", "chance", "smooth_ece", "classwise_ece", "brier", "accuracy", "seconds")
    found = {name: by_method(rows, name) for name in names}
    lines = [
        f"{size:,} rows, {n} networks:\n",
        "| method | ECE | better | log-loss | worst log-loss | excess | smooth ECE | classwise ECE | Brier | accuracy "
        "|",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    base, by_ece = "ts", "ts-ece"
    for m in found["ece"]:
        against = {name: change(found[name][m], found[name][base]) for name in names}
        against["ece"] = change(found["ece"][m], found["ece"][by_ece])
        data = found["ece"][m]
        beyond, beyond_ts = (
            sum(found["ece"][which][d] - found["chance"][which][d] for d in data) for which in (m, by_ece)
        )
        accuracy = 100.0 * np.mean([found["accuracy"][m][d] - found["accuracy"][base][d] for d in data])
        some = "" if len(data) == n else f" ({len(data)} networks)"
        lines.append(
            f"| {m}{some} | {against['ece'].mean():+.1f} % | {(against['ece'] < 0.0).sum()}/{len(data)} "
            f"| {against['log_loss'].mean():+.2f} % | {against['log_loss'].max():+.2f} % | {beyond / beyond_ts:.2f} "
            f"| {against['smooth_ece'].mean():+.1f} % | {against['classwise_ece'].mean():+.1f} % "
            f"| {against['brier'].mean():+.2f} % | {accuracy:+.3f} |"
        )
    return "\n".join(lines)


def tabular_table(rows: list[dict[str, Any]]) -> str:
    size = rows[0]["rows"]
    loss, off = by_method(rows, "log_loss"), by_method(rows, "standard_errors_off")
    error, brier = by_method(rows, "ece_of_class_1"), by_method(rows, "brier")
    best = {d: min(loss[SIGMOID][d], loss[ISOTONIC][d]) for d in loss[SIGMOID]}
    lines = [
        f"{size:,} rows, {len(best)} models, {DRAWS[size]} draws each:\n",
        "| method | log-loss | worst against the best of sigmoid and isotonic | ECE of p(class 1) | Brier "
        "| largest mean of (mean p - rate), in standard errors |",
        "|---|---|---|---|---|---|",
    ]
    for m in loss:
        lines.append(
            f"| {m} | {change(loss[m], loss[SIGMOID]).mean():+.2f} % | {change(loss[m], best).max():+.2f} % "
            f"| {100.0 * np.mean(list(error[m].values())):.2f} % | {change(brier[m], brier[SIGMOID]).mean():+.2f} % "
            f"| {max(map(abs, off[m].values())):.2f} |"
        )
    return "\n".join(lines)


def report(out: Path) -> None:
    tables: dict[str, Callable[[list[dict[str, Any]]], str]] = {"networks": network_table, "tabular": tabular_table}
    for name, table in tables.items():
        rows = [json.loads(line) for line in (out / f"auto_{name}.jsonl").read_text().splitlines()]
        for size in sorted({row["rows"] for row in rows}, reverse=True):
            print(table([row for row in rows if row["rows"] == size]), end="\n\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("networks", "tabular", "report", "speed"))
    parser.add_argument("sources", type=Path, nargs="*")
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--draws", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("-o", "--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    if options.what == "speed":
        return speed()
    if options.what == "report":
        return report(options.sources[0])
    options.rows = options.rows or ([5000, 1000, 300] if options.what == "networks" else sorted(DRAWS, reverse=True))
    warnings.simplefilter("ignore")
    file = options.out / f"auto_{options.what}.jsonl"
    done = {key(json.loads(line)) for line in file.read_text().splitlines()} if file.exists() else set()
    with file.open("a") as lines:
        for row in (networks if options.what == "networks" else tabular)(options, done):
            print(json.dumps(row), file=lines, flush=True)
    return None


if __name__ == "__main__":
    main()
