"""The default calibrator on real networks and tabular models, with few rows and many, beside its peers.

    python benchmarks/auto.py networks FOLDER … [--rows 5000 1000 300] [--draws 1 2 3] [--pooled] [-o OUT]
    python benchmarks/auto.py tabular FOLDER … [--rows 5000 500 100] [--draws 8 16 32] [-o OUT]
    python benchmarks/auto.py report OUT
    python benchmarks/auto.py draws OUT …    # the default over all draws of networks, a line for each folder and size
    python benchmarks/auto.py networks FOLDER … --settings --draws 1 1 1 -o OUT2    # likewise tabular
    python benchmarks/auto.py leave-out OUT2
    python benchmarks/auto.py speed

`networks` reads .npz files of `val`, `yv`, `test`, `yt` (one network each) or of `logits` and `labels`, which are split
in random halves; methods are fitted on rows drawn from the first half and measured on all of the second. With
`--pooled` they are fitted on rows drawn from both and measured on all others: rows that are easier for a network in one
half than in the other then play no part.
`tabular` reads files of `p` (the probability of the positive class, or of each class) and `labels`, as
benchmarks/tabular_models.py writes them; methods are fitted on rows drawn at random, with both classes among them, and
measured on all others. Both write their figures to OUT as JSON, a line for each file, size, draw and method, and take
up where they stopped; `report` prints the tables of benchmarks/results/auto.md.

`--settings` fits `auto` with each of SETTINGS instead of the methods. `leave-out` leaves the networks or models of each
data set out in turn, picks the setting of least mean log-loss on all others, and prints how that does on those left
out, beside the settings that are shipped.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from real_logits import is_network, name_of, read
from scipy.special import log_softmax as scipy_log_softmax

import peers
from refocal import metrics
from refocal.calibrators.registry import make
from refocal.fitting import affine, confidence, curves, logistic, mean_scaling
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
BASE = {"networks": "ts", "tabular": SIGMOID}
# What `auto` is made with instead of what is shipped.
OFFSET_1 = curves.SHRINKAGE.prior._replace(offset=1.0)
OFFSET_3 = curves.SHRINKAGE.prior._replace(offset=3.0)
SETTINGS: dict[str, tuple[Any, str, Any]] = {
    "auto, 4 knots": (curves, "SHRINKAGE", curves.SHRINKAGE._replace(n_knots=4)),
    "auto, 8 knots": (curves, "SHRINKAGE", curves.SHRINKAGE._replace(n_knots=8)),
    "auto, offset 1": (
        curves,
        "SHRINKAGE",
        curves.SHRINKAGE._replace(prior=OFFSET_1),
    ),
    "auto, offset 3": (curves, "SHRINKAGE", curves.SHRINKAGE._replace(prior=OFFSET_3)),
    "auto, offset 1, 9 knots": (curves, "SHRINKAGE", curves.SHRINKAGE._replace(prior=OFFSET_1, n_knots=9)),
    "auto, offset 3, 9 knots": (curves, "SHRINKAGE", curves.SHRINKAGE._replace(prior=OFFSET_3, n_knots=9)),
    "auto, strengths to 64": (curves, "SHRINKAGE", curves.SHRINKAGE._replace(strengths=(1.0, 4.0, 16.0, 64.0))),
    "auto, γ and T wider": (confidence, "DEVIATIONS", 2.0 * confidence.DEVIATIONS),
    "auto, γ and T narrower": (confidence, "DEVIATIONS", 0.5 * confidence.DEVIATIONS),
    "auto, slope wider": (logistic, "SLOPE_DEVIATION", 1e3),
    "auto, slope narrower": (logistic, "SLOPE_DEVIATION", 0.5),
    "auto, pseudo-rows halved": (mean_scaling, "WEIGHTS", mean_scaling.WEIGHTS._replace(pseudo_rows=4.0)),
    "auto, pseudo-rows doubled": (mean_scaling, "WEIGHTS", mean_scaling.WEIGHTS._replace(pseudo_rows=16.0)),
    "auto, pseudo-rows 100": (mean_scaling, "WEIGHTS", mean_scaling.WEIGHTS._replace(pseudo_rows=100.0)),
    "auto, temperature as others": (mean_scaling, "WEIGHTS", mean_scaling.WEIGHTS._replace(temperature=1.0)),
    "auto, least weight 0.1": (mean_scaling, "WEIGHTS", mean_scaling.WEIGHTS._replace(least_weight=0.1)),
}
TWO_CLASSES = [name for name in SETTINGS if not re.search("γ|pseudo|temperature|weight", name)]
MANY_CLASSES = [name for name in SETTINGS if "slope" not in name]
LEAST = 1e-12
LEAST_TESTED = 250
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


def measures(labels: np.ndarray, log_p: np.ndarray, kind: str) -> dict[str, float]:
    p = np.exp(log_p)
    return {
        "log_loss": float(-np.mean(log_p[np.arange(len(labels)), labels])),
        "ece": ece(labels, p),
        "chance": chance_ece(p) if kind == "logits" else np.nan,
        "smooth_ece": float(metrics.smooth_ece(labels, p)),
        "classwise_ece": float(metrics.classwise_ece(labels, p)),
        "brier": float(metrics.brier_score(labels, p)),
        "accuracy": float(metrics.accuracy(labels, p)),
    }


def made(method: str, **options: Any) -> Any:
    """A calibrator by its name."""
    if method in SETTINGS:
        method = "auto"
    return make(method.replace(", order kept", "-order"), **options)


def predictions(method: str, x: np.ndarray, y: np.ndarray, test: np.ndarray, kind: str) -> tuple[np.ndarray, Any]:
    """Logarithms of probabilities for the rows to test, and what `auto` chose."""
    if method in peers.PEERS:
        p, p_test = (np.exp(log_softmax(each.astype(np.float64))) if kind == "logits" else each for each in (x, test))
        return np.log(np.maximum(peers.predict(method, p, y, p_test), LEAST)), None
    if method == "none":
        return np.log(np.maximum(test, LEAST)), None
    with patch.object(*SETTINGS[method]) if method in SETTINGS else nullcontext():
        calibrator = made(method, input=kind).fit(x, y)
    choice = calibrator.fit_report_.get("scaling", {}).get("chosen")
    return calibrator.predict_log_proba(test).astype(np.float64), choice


def networks(options: argparse.Namespace) -> Iterator[tuple[dict[str, Any], tuple[Any, ...]]]:
    """What is to be fitted and measured: names, and the rows to fit on and to test."""
    for size, draws in zip(options.rows, options.draws, strict=True):
        for path in sorted({p for source in options.sources for p in source.rglob("*.npz") if is_network(p)}):
            val, y, test, y_test = read(path)
            for draw in range(draws):
                rng, row = np.random.default_rng(draw), {"data": name_of(path), "rows": size, "draw": draw}
                if options.pooled:
                    x, labels = np.concatenate([val, test]), np.concatenate([y, y_test])
                    fit, rest = np.split(rng.permutation(len(labels)), [size])
                    yield row, (x[fit], labels[fit], x[rest], labels[rest], "logits")
                    continue
                some = rng.permutation(len(y))[:size]
                yield row, (val[some], y[some], test, y_test, "logits")


def tabular(options: argparse.Namespace) -> Iterator[tuple[dict[str, Any], tuple[Any, ...]]]:
    """As `networks`."""
    for size, draws in zip(options.rows, options.draws, strict=True):
        for path in sorted({p for source in options.sources for p in source.rglob("*.npz")}):
            data = np.load(path)
            p, labels = data["p"].astype(np.float64), data["labels"].astype(np.int64)
            if len(labels) < size + LEAST_TESTED:
                continue
            p = np.stack([1.0 - p, p], axis=1) if p.ndim == 1 else p / p.sum(axis=1, keepdims=True)
            for draw in range(draws):
                rng = np.random.default_rng([size, draw])
                while True:
                    fit, rest = np.split(rng.permutation(len(labels)), [size])
                    if len(np.unique(labels[fit])) == p.shape[1]:
                        break
                row = {"data": path.stem, "rows": size, "draw": draw}
                yield row, (p[fit], labels[fit], p[rest], labels[rest], "probabilities")


def measured(options: argparse.Namespace, done: set[str]) -> Iterator[dict[str, Any]]:
    """A line of figures for each network or model, size, draw and method that is not done."""
    for names, (x, y, test, y_test, kind) in (networks if options.what == "networks" else tabular)(options):
        n_classes = x.shape[1]
        methods = options.methods or (NETWORK_METHODS if kind == "logits" else TABULAR_METHODS)
        if options.settings:
            others = TWO_CLASSES if n_classes == 2 else MANY_CLASSES
            methods = [BASE[options.what], *(["ts-ece"] if kind == "logits" else [ISOTONIC]), "auto", *others]
        with patch.object(affine, "out_of_fold", once(affine.out_of_fold)) if options.settings else nullcontext():
            for method in methods:
                row = names | {"method": method}
                if key(row) in done or n_classes > peers.FEW_CLASSES.get(method, n_classes):
                    continue
                start = time.perf_counter()
                log_p, choice = predictions(method, x, y, test, kind)
                row |= {"seconds": time.perf_counter() - start, "choice": choice}
                if n_classes == 2:
                    # The rate is known as well as the rows of the fit tell it: that is what is to be met.
                    error = np.sqrt(y_test.mean() * (1.0 - y_test.mean()) / len(y))
                    row["standard_errors_off"] = float((np.exp(log_p[:, 1]).mean() - y_test.mean()) / error)
                yield row | measures(y_test, log_p, kind)


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function's first answer ever after: no setting has a part in it."""
    found: list[Any] = []

    def answer(*arguments: Any, **options: Any) -> Any:
        return found[0] if found else found.append(function(*arguments, **options)) or found[0]

    return answer


def speed() -> None:
    """CPU seconds of a fit on 10,000 rows, and in passes of a bare log-softmax; 10 classes also without matrices."""
    for n_classes, matrices in ((2, True), (10, True), (10, False), (100, True), (1000, True)):
        rng = np.random.default_rng(0)
        logits = (2.0 * rng.normal(size=(10_000, n_classes))).astype(np.float32)
        labels = np.argmax(logits / 1.8 + rng.gumbel(size=logits.shape), axis=1)
        times = {}
        for name, run in (("softmax", lambda x, _: scipy_log_softmax(x, axis=1)), ("auto", make("auto").fit)):
            spent = []
            for _ in range(20 if name == "softmax" else 10):
                start = time.process_time()
                with (
                    nullcontext()
                    if matrices
                    else patch.object(mean_scaling, "rows_for_matrix", lambda n_classes: np.inf)
                ):
                    run(logits, labels)
                spent.append(time.process_time() - start)
            times[name] = min(spent)
        without = "" if matrices else " without matrices"
        passes = times["auto"] / times["softmax"]
        print(f"10,000 × {n_classes}{without}: {times['auto']:.3f} s, {passes:.0f} log-softmax passes")


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


def by_loss(loss: dict[str, dict[str, float]], base: str) -> list[str]:
    """The methods, the one of least mean change first."""
    return sorted(loss, key=lambda m: change(loss[m], loss[base]).mean())


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
    for m in by_loss(found["log_loss"], base):
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
    if "auto" in found["chance"]:
        perfect = change(found["chance"]["auto"], found["ece"][by_ece]).mean()
        percent = {m: 100.0 * np.mean(list(found["ece"][m].values())) for m in ("auto", by_ece)}
        lines.append(
            f"\nPerfectly calibrated models as confident as `auto` would have an ECE of {perfect:+.1f} %. Mean "
            f"ECE of `auto` {percent['auto']:.3f} %, of `{by_ece}` {percent[by_ece]:.3f} %."
        )
        changes = ece_by_draw(rows, "auto", by_ece)
        if len(changes) > 1:
            error = np.std(changes, ddof=1) / len(changes) ** 0.5
            lines.append(
                f"ECE of `auto` by draw: {', '.join(f'{value:+.1f}' for value in changes)} %; "
                f"mean {np.mean(changes):+.1f} ± {error:.1f} %."
            )
    return "\n".join(lines)


def ece_by_draw(rows: list[dict[str, Any]], method: str, base: str) -> list[float]:
    """The mean change of the ECE over the networks, for each draw: rows of a data set are the same for its networks."""
    changes = []
    for draw in sorted({row["draw"] for row in rows}):
        of_draw = by_method([row for row in rows if row["draw"] == draw], "ece")
        changes.append(float(change(of_draw[method], of_draw[base]).mean()))
    return changes


def tabular_table(rows: list[dict[str, Any]]) -> str:
    names = ("log_loss", "ece", "smooth_ece", "classwise_ece", "brier", "accuracy")
    found = {name: by_method(rows, name) for name in names}
    off = by_method([row for row in rows if "standard_errors_off" in row], "standard_errors_off")
    loss = found["log_loss"]
    best = {d: min(loss[SIGMOID][d], loss[ISOTONIC][d]) for d in loss[SIGMOID]}
    lines = [
        f"{rows[0]['rows']:,} rows, {len(best)} models:\n",
        "| method | log-loss | worst | worst against the best of sigmoid and isotonic | ECE | smooth ECE "
        "| classwise ECE | Brier | accuracy | largest (mean p - rate), in standard errors |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for m in by_loss(loss, SIGMOID):
        data, against = loss[m], change(loss[m], loss[SIGMOID])
        percent = {name: 100.0 * np.mean(list(found[name][m].values())) for name in names[1:4]}
        accuracy = 100.0 * np.mean([found["accuracy"][m][d] - found["accuracy"][SIGMOID][d] for d in data])
        some = "" if len(data) == len(best) else f" ({len(data)} models)"
        lines.append(
            f"| {m}{some} | {against.mean():+.2f} % | {against.max():+.2f} % | {change(loss[m], best).max():+.2f} % "
            f"| {percent['ece']:.2f} % | {percent['smooth_ece']:.2f} % | {percent['classwise_ece']:.2f} % "
            f"| {change(found['brier'][m], found['brier'][SIGMOID]).mean():+.2f} % | {accuracy:+.3f} "
            f"| {max(map(abs, off.get(m, {'': np.nan}).values())):.2f} |"
        )
    least: dict[tuple[str, int], float] = {}
    for row in rows:
        which = row["data"], row["draw"]
        least[which] = min(row["log_loss"], least.get(which, np.inf))
    oracle = by_method([{"method": "", "data": d, "log_loss": value} for (d, _), value in least.items()], "log_loss")
    mean = change(oracle[""], loss[SIGMOID]).mean()
    lines.append(f"\nThe best of all for each model and draw, chosen on the test rows: {mean:+.2f} %")
    return "\n".join(lines)


TABLES: dict[str, Callable[[list[dict[str, Any]]], str]] = {"networks": network_table, "tabular": tabular_table}


def rows_of(out: Path, name: str) -> list[dict[str, Any]]:
    file = out / f"auto_{name}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def report(out: Path) -> None:
    for name, table in TABLES.items():
        rows = rows_of(out, name)
        for size in sorted({row["rows"] for row in rows}, reverse=True):
            print(table([row for row in rows if row["rows"] == size]), end="\n\n")


def draws(*outs: Path) -> None:
    """The default over all draws, each against temperature scaling and `fts` on the same rows."""
    print(
        "| rows | networks × draws | ECE | ECE against `ts` | log-loss | worst log-loss | excess | scalings chosen "
        "| ECE and log-loss of `fts` | ECE less that of `fts` |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    for out in outs:
        rows = rows_of(out, "networks")
        for size in sorted({row["rows"] for row in rows}, reverse=True):
            by_draw: dict[tuple[str, int], dict[str, Any]] = defaultdict(dict)
            for row in rows:
                if row["rows"] == size:
                    by_draw[row["data"], row["draw"]][row["method"]] = row
            each = list(by_draw.values())

            def against(m: str, base: str, name: str, each: list[dict[str, Any]] = each) -> np.ndarray:
                return np.array([100.0 * (one[m][name] / one[base][name] - 1.0) for one in each])

            ece, fts = against("auto", "ts-ece", "ece"), against("fts", "ts-ece", "ece")
            to_ts, loss = against("auto", "ts", "ece"), against("auto", "ts", "log_loss")
            beyond = [sum(one[m]["ece"] - one[m]["chance"] for one in each) for m in ("auto", "ts-ece")]
            chosen = Counter(one["auto"]["choice"] for one in each).most_common()
            print(
                f"| {size:,} ({out.name}) | {len(each)} | {ece.mean():+.1f} % | {to_ts.mean():+.1f} % "
                f"| {loss.mean():+.2f} % | {loss.max():+.2f} % | {beyond[0] / beyond[1]:.2f} "
                f"| {', '.join(f'{n} {name}' for name, n in chosen)} "
                f"| {fts.mean():+.1f} %, {against('fts', 'ts', 'log_loss').mean():+.2f} % "
                f"| {(ece - fts).mean():+.1f} ± {(ece - fts).std(ddof=1) / len(each) ** 0.5:.1f} |"
            )


def data_set(name: str) -> str:
    """The data set that a network or model was trained on."""
    known = re.search(r"cifar-?(100|10)(?!\d)|tinyimagenet", name)
    return known.group().replace("-", "") if known else name.split("_")[0]


def leave_out(out: Path) -> None:
    for name, table in TABLES.items():
        rows = rows_of(out, name)
        loss: dict[str, dict[str, float]] = defaultdict(dict)
        for row in rows:
            loss[row["method"]][f"{row['data']} {row['rows']} {row['draw']}"] = row["log_loss"]
        picked = []
        for left_out in sorted({data_set(row["data"]) for row in rows}):
            kept = [each for each in loss[BASE[name]] if data_set(each) != left_out]
            means = {
                # A setting that does not apply is what is shipped.
                m: np.mean([loss[m].get(each, loss["auto"][each]) / loss[BASE[name]][each] for each in kept])
                for m in ("auto", *SETTINGS)
                if m in loss
            }
            best = min(means, key=lambda m: means[m])
            print(f"{left_out} left out: {best} {100.0 * means[best] - 100.0:+.2f} % on the others")
            for row in rows:
                own = loss[best].get(f"{row['data']} {row['rows']} {row['draw']}") is not None
                if data_set(row["data"]) == left_out and row["method"] == (best if own else "auto"):
                    picked.append(row | {"method": "auto, picked on other data sets"})
        for size in sorted({row["rows"] for row in rows}, reverse=True):
            print("\n" + table([row for row in rows + picked if row["rows"] == size]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("networks", "tabular", "report", "draws", "leave-out", "speed"))
    parser.add_argument("sources", type=Path, nargs="*")
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--draws", type=int, nargs="+")
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--settings", action="store_true")
    parser.add_argument("--pooled", action="store_true")
    parser.add_argument("-o", "--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    if options.what in ("speed", "report", "draws", "leave-out"):
        run = {"speed": speed, "report": report, "draws": draws, "leave-out": leave_out}[options.what]
        return run(*options.sources)
    options.rows = options.rows or ([5000, 1000, 300] if options.what == "networks" else [5000, 500, 100])
    options.draws = options.draws or ([1, 2, 3] if options.what == "networks" else [8, 16, 32])
    warnings.simplefilter("ignore")
    done = {key(row) for row in rows_of(options.out, options.what)}
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / f"auto_{options.what}.jsonl").open("a") as lines:
        for row in measured(options, done):
            print(json.dumps(row), file=lines, flush=True)
    return None


if __name__ == "__main__":
    main()
