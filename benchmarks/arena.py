"""CalArena's protocol (Berta, Holzmüller, Jordan & Bach 2026, arXiv:2605.30188) for the default and its peers.

    python benchmarks/arena.py download FOLDER BENCHMARK … [--source ADDRESS]
    python benchmarks/arena.py run FOLDER BENCHMARK -o OUT.csv [--methods NAME …] [--every N]
    python benchmarks/arena.py report FOLDER BENCHMARK OUT.csv … [--method refocal-auto] [--metric logloss]

BENCHMARK names two files in FOLDER: `BENCHMARK.h5`, with a group {dataset}/{model} of `probas_cal`, `labels_cal`,
`probas_test` and `labels_test` for each experiment, and `BENCHMARK-experiments.csv`, which lists them. `download` gets
both from the Hugging Face repository probkit/CalArena, for tabrepo-binary, tabarena-multiclass and its other names, or
from another address: https://…, http://… or file://….

`run` fits methods to the first half of each experiment and writes their scores on the second, a column METHOD:METRIC
each: `logloss`, `brier` and `ece-15`. Names are those of OURS and, through probmetrics, of PEERS. `report` reads such
files (and CalArena's own results/BENCHMARK/METHOD.csv, whose columns are METHOD_METRIC) and prints the table of
benchmarks/results/arena.md: the win rate of a method is the share of all experiments and other methods in which its
score is strictly lower; its interval resamples whole data sets.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import time
import urllib.request
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal.calibrators.registry import make
from refocal.evaluate import ranks

METRICS = ("logloss", "brier", "ece-15")
BASE = "Base-model"
SOURCE = "https://huggingface.co/datasets/probkit/CalArena/resolve/main"

OURS = {"refocal-auto": "auto", "refocal-auto-order": "auto-order", "refocal-sms": "sms", "refocal-beta": "beta"}

# The methods of CalArena that probmetrics computes by itself: for two classes, and for more.
PEERS: dict[str, tuple[str | None, str | None]] = {
    "TS": ("TemperatureScalingCalibrator()", "TemperatureScalingCalibrator()"),
    "ETS": ("ETSCalibrator()", "ETSCalibrator()"),
    "Platt-logits": ('BinaryLogisticCalibrator(type="affine")', None),
    "Quadratic": ('BinaryLogisticCalibrator(type="quadratic")', None),
    "Beta": ("BetacalCalibrator()", None),
    "Isotonic": ('SklearnCalibrator(method="isotonic", cv="prefit")',) * 2,
    "Venn-Abers": ("BinaryVennAbersCalibrator()", "VennAbersCalibrator()"),
    "Spline": ("MLISplineCalibrator()", "MLISplineCalibrator()"),
    "VS": (None, "VectorScalingCalibrator()"),
    "SVS": (None, "SVSCalibrator()"),
    "MS": (None, "MatrixScalingCalibrator()"),
    "SMS": (None, "SMSCalibrator()"),
}


class Experiment(NamedTuple):
    """One model on one data set: probabilities (N, C) and labels to fit on, and others to measure on."""

    dataset: str
    model: str
    p: NDArray[np.float64]
    labels: NDArray[np.int64]
    p_test: NDArray[np.float64]
    labels_test: NDArray[np.int64]


def experiments(store: Mapping[str, Any], rows: Sequence[Mapping[str, str]]) -> Iterator[Experiment]:
    """The experiments of an open HDF5 file, or anything that is indexed like one, in the order of the list."""
    for row in rows:
        group = store[f"{row['dataset']}/{row['model']}"]
        labels, labels_test = (np.asarray(group[key][:], dtype=np.int64) for key in ("labels_cal", "labels_test"))
        p, p_test = (two_dimensional(group[key][:]) for key in ("probas_cal", "probas_test"))
        yield Experiment(row["dataset"], row["model"], p, labels, p_test, labels_test)


def two_dimensional(p: Any) -> NDArray[np.float64]:
    """Probabilities of all classes (N, C), from those of the second of two (N,) or of all; rows sum to 1."""
    p = np.asarray(p, dtype=np.float64)
    if p.ndim == 1 or p.shape[1] == 1:
        p = np.stack([1.0 - p.ravel(), p.ravel()], axis=1)
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def scores_of(p: NDArray[np.float64], labels: NDArray[np.int64]) -> dict[str, float]:
    """Log-loss, Brier score (summed over the classes), and ECE of the top class in 15 bins of equal width."""
    n_bins = 15
    index = np.arange(len(labels))
    top = p.max(axis=1)
    right = p.argmax(axis=1) == labels
    cell = np.minimum((top * n_bins).astype(int), n_bins - 1)
    gap = np.abs(np.bincount(cell, right - top, minlength=n_bins))
    return {
        "logloss": float(-np.log(np.maximum(p[index, labels], 1e-30)).mean()),
        "brier": float(np.sum((p - np.eye(p.shape[1])[labels]) ** 2, axis=1).mean()),
        "ece-15": float(gap.sum() / len(labels)),
    }


def predict(name: str, experiment: Experiment) -> NDArray[np.float64]:
    """The calibrated probabilities of the test rows by one of OURS or PEERS, or without calibration."""
    if name == BASE:
        return experiment.p_test
    if name in OURS:
        calibrator: Any = make(OURS[name]).set_params(input="probabilities")
    else:
        from probmetrics import calibrators

        expression = PEERS[name][experiment.p.shape[1] > 2]
        if expression is None:
            raise ValueError(f"{name} does not calibrate {experiment.p.shape[1]} classes")
        calibrator = eval(expression, vars(calibrators))  # noqa: S307 - one of PEERS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calibrator.fit(experiment.p, experiment.labels)
        return np.asarray(calibrator.predict_proba(experiment.p_test), dtype=np.float64)


class Table(NamedTuple):
    """Scores by method: for each a column, with an entry for each of the experiments (dataset, model)."""

    keys: list[tuple[str, str]]
    columns: dict[str, NDArray[np.float64]]

    @property
    def datasets(self) -> NDArray[Any]:
        """The data set of each experiment."""
        return np.array([dataset for dataset, _ in self.keys])


def win_rates(table: Table) -> dict[str, NDArray[np.float64]]:
    """For each method and experiment the share of the other methods whose score is strictly higher."""
    return ranks.win_rates(table.columns)


def interval(values: NDArray[np.float64], datasets: NDArray[Any], n_resamples: int = 1000) -> tuple[float, float]:
    """The 95 % interval of a mean over experiments, by drawing whole data sets with replacement."""
    _, codes = np.unique(datasets, return_inverse=True)
    sums = np.bincount(codes, values)
    counts = np.bincount(codes)
    drawn = np.random.default_rng(0).integers(len(sums), size=(n_resamples, len(sums)))
    low, high = np.quantile(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1), [0.025, 0.975])
    return float(low), float(high)


def read_table(paths: Sequence[Path], metric: str) -> Table:
    """The columns METHOD:METRIC or METHOD_METRIC of all files, for the experiments that all of them have.

    Of a method that several files have, the last one counts.
    """
    columns: dict[str, dict[tuple[str, str], float]] = {}
    for path in paths:
        rows = _rows_of(path)
        for header in rows[0]:
            for separator in (":", "_"):
                name, _, of = header.rpartition(separator)
                if name and of == metric:
                    columns[name] = {(row["dataset"], row["model"]): float(row[header] or "nan") for row in rows}
    keys = sorted(set.intersection(*(set(column) for column in columns.values())))
    return Table(keys, {name: np.array([column[key] for key in keys]) for name, column in columns.items()})


def _rows_of(path: Path) -> list[dict[str, str]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(csv.DictReader(data.decode().splitlines()))


@contextmanager
def open_benchmark(folder: Path, benchmark: str, every: int = 1) -> Iterator[tuple[Any, list[dict[str, str]]]]:
    """The open HDF5 file of a benchmark, and every n-th line of its list of experiments."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError(
            f"benchmarks/arena.py reads {benchmark}.h5 by the package h5py, which is not installed: pip install h5py, "
            "or pip install -e '.[bench]' in a clone of refocal."
        ) from error
    rows = _rows_of(folder / f"{benchmark}-experiments.csv")[::every]
    with h5py.File(folder / f"{benchmark}.h5") as store:
        yield store, rows


def run(folder: Path, benchmark: str, methods: Sequence[str], out: Path, every: int) -> None:
    """Write the scores of all methods on all experiments, or every n-th of them."""
    headers = ["dataset", "model", *(f"{name}:{metric}" for name in methods for metric in METRICS)]
    headers += [f"{name}:seconds" for name in methods]
    with open_benchmark(folder, benchmark, every) as (store, rows), out.open("w", newline="") as file:
        writer = csv.DictWriter(file, headers)
        writer.writeheader()
        for experiment in experiments(store, rows):
            line: dict[str, Any] = {"dataset": experiment.dataset, "model": experiment.model}
            for name in methods:
                started = time.process_time()
                p = predict(name, experiment)
                line[f"{name}:seconds"] = f"{time.process_time() - started:.4f}"
                measured = scores_of(p, experiment.labels_test)
                line |= {f"{name}:{metric}": f"{value:.6g}" for metric, value in measured.items()}
            writer.writerow(line)


def report(folder: Path, benchmark: str, paths: Sequence[Path], method: str, metric: str) -> str:
    """The tables of benchmarks/results/arena.md for one benchmark."""
    table = read_table(paths, metric)
    # Other variants of ours are no competitors of ours.
    table = Table(table.keys, {k: v for k, v in table.columns.items() if k == method or not k.startswith("refocal")})
    rates = win_rates(table)
    ours = table.columns[method]
    base = table.columns[BASE]
    lines = [f"{benchmark}: {len(table.keys)} experiments, {len(set(table.datasets))} data sets, by {metric}", ""]
    lines += [
        "| method | win rate | 95 % interval | " + method + " leads by | 95 % interval |",
        "|---|---|---|---|---|",
    ]
    for name in sorted(rates, key=lambda name: -rates[name].mean()):
        low, high = interval(rates[name], table.datasets)
        lead = rates[method] - rates[name]
        lead_low, lead_high = interval(lead, table.datasets)
        text = "" if name == method else f"{lead.mean():+.3f} | {lead_low:+.3f}, {lead_high:+.3f}"
        lines.append(f"| {name} | {rates[name].mean():.3f} | {low:.3f}, {high:.3f} | {text or ' | '} |")
    worse = ours / base - 1.0
    lines += [
        "",
        f"Higher than without calibration by more than 1 %: {np.mean(worse > 0.01):.1%} of the experiments, at most "
        f"{worse.max():+.1%}.",
        "",
        "| stratum | experiments | " + method + " | lowest peer |",
        "|---|---|---|---|",
    ]
    details = {(row["dataset"], row["model"]): row for row in _rows_of(folder / f"{benchmark}-experiments.csv")}
    for title, column, low, high in STRATA:
        values = np.array([float(details[key].get(column) or "nan") for key in table.keys])
        inside = (values >= low) & (values < high)
        if not inside.any():
            continue
        means = {name: float(scores[inside].mean()) for name, scores in table.columns.items() if name != method}
        means = {name: value for name, value in means.items() if value < np.inf}
        best = min(means, key=lambda name: means[name])
        lines.append(f"| {title} | {inside.sum()} | {ours[inside].mean():.4f} | {means[best]:.4f} ({best}) |")
    return "\n".join(lines)


STRATA = (
    ("fewer than 200 rows", "cal_size", 0, 200),
    ("200 to 1,000 rows", "cal_size", 200, 1001),
    ("more than 1,000 rows", "cal_size", 1001, np.inf),
    ("rarest class below 20 rows", "rarest", 0, 20),
    ("20 to 100", "rarest", 20, 101),
    ("more than 100", "rarest", 101, np.inf),
)


def download(folder: Path, benchmarks: Sequence[str], source: str = SOURCE) -> None:
    """Both files of each benchmark, unless they are there; one that breaks off leaves nothing that looks whole."""
    folder.mkdir(parents=True, exist_ok=True)
    for benchmark in benchmarks:
        for name in (f"{benchmark}.h5", f"{benchmark}-experiments.csv"):
            path = folder / name
            if path.exists():
                continue
            address = f"{source.rstrip('/')}/{name}"
            part = path.with_name(f"{name}.part")
            try:
                urllib.request.urlretrieve(address, part)  # noqa: S310 - the address is the user's
            except OSError as error:
                part.unlink(missing_ok=True)
                raise SystemExit(f"{address} could not be downloaded: {error}") from error
            part.replace(path)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    getting = commands.add_parser("download")
    getting.add_argument("folder", type=Path)
    getting.add_argument("benchmarks", nargs="+")
    getting.add_argument("--source", default=SOURCE)
    running = commands.add_parser("run")
    reporting = commands.add_parser("report")
    for command in (running, reporting):
        command.add_argument("folder", type=Path)
        command.add_argument("benchmark")
    running.add_argument("-o", "--out", type=Path, required=True)
    running.add_argument("--methods", nargs="+", default=["refocal-auto"], choices=[BASE, *OURS, *PEERS])
    running.add_argument("--every", type=int, default=1)
    reporting.add_argument("results", nargs="+", type=Path)
    reporting.add_argument("--method", default="refocal-auto")
    reporting.add_argument("--metric", default="logloss", choices=METRICS)
    given = parser.parse_args()
    if given.command == "download":
        download(given.folder, given.benchmarks, given.source)
    elif given.command == "run":
        run(given.folder, given.benchmark, given.methods, given.out, given.every)
    else:
        print(report(given.folder, given.benchmark, given.results, given.method, given.metric))


if __name__ == "__main__":
    main()
