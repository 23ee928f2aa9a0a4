"""Timings and a long stream for `refocal.metrics`: they make benchmarks/results/metrics.md.

python benchmarks/metrics.py [--write]     one run at N = 1e6, beside the peers that can be imported
python benchmarks/metrics.py --bootstrap   the default interval of every measure that has one, at N = 1e4
python benchmarks/metrics.py --stream      2e8 rows through CalibrationHistogram
python benchmarks/metrics.py --peers       values of peers whose definitions differ
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import resource
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tables

import refocal.metrics as rm
from refocal.errors import ParameterError
from refocal.metrics.bins import norm_of_gaps, quantile_bins

N = 1_000_000


def best_of(function: Callable[[], Any], repeats: int = 7) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def peer(name: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError:
        print(f"(no {name})")
        return None


def partition_and_sum(y: Any, p: Any, n_bins: int = 15) -> float:
    cuts = [b * len(p) // n_bins for b in range(1, n_bins)]
    order = np.argpartition(p, cuts)
    return float(np.abs(np.add.reduceat((p - y)[order], [0, *cuts])).sum() / len(p))


def binned_ece(p: Any, right: Any) -> float:
    (bins,) = quantile_bins(p, right, None, (15,))
    return norm_of_gaps(bins, "l1")


def bincount(y: Any, p: Any, n_bins: int = 15) -> float:
    index = np.minimum((p * n_bins).astype(np.intp), n_bins - 1)
    count = np.bincount(index, minlength=n_bins)
    confidence, accuracy = np.bincount(index, p, n_bins), np.bincount(index, y, n_bins)
    used = count > 0
    gap = np.abs(confidence[used] - accuracy[used]) / count[used]
    return float((count[used] / len(p)) @ gap)


def timings(write: bool = False) -> None:
    rng = np.random.default_rng(0)
    p = rng.beta(5, 1, N)
    y = (rng.random(N) < p).astype(np.int64)
    right = y == 1
    netcal, torchmetrics = peer("netcal.metrics"), peer("torchmetrics.functional.classification")
    relplot, probcal, calibre = peer("relplot.metrics"), peer("probcal.metrics"), peer("calibre.metrics")
    sklearn = peer("sklearn.calibration")
    rows: list[tuple[str, str, Callable[[], Any], int]] = [
        ("equal mass", "refocal", lambda: rm.expected_calibration_error(y, p), 7),
        (
            "equal mass",
            "refocal, checked vectors",
            lambda: norm_of_gaps(quantile_bins(p, right, None, (15,))[0], "l1"),
            7,
        ),
        ("equal mass", "NumPy partition and sum", lambda: partition_and_sum(y, p), 7),
        ("equal width", "refocal", lambda: rm.expected_calibration_error(y, p, strategy="uniform"), 7),
        ("equal width", "NumPy bincount", lambda: bincount(y, p), 7),
        ("smooth", "refocal", lambda: rm.smooth_ece(y, p), 7),
    ]
    if probcal:
        rows += [
            ("equal mass", "probcal", lambda: probcal.ece(y, p, strategy="mass"), 3),
            ("equal width", "probcal", lambda: probcal.ece(y, p, strategy="width"), 3),
            ("smooth", "probcal", lambda: probcal.smooth_ece(y, p), 3),
        ]
    if netcal:
        rows += [
            ("equal mass", "netcal", lambda: netcal.ECE(15, equal_intervals=False).measure(p, y), 3),
            ("equal width", "netcal", lambda: netcal.ECE(15).measure(p, y), 3),
        ]
    if torchmetrics:
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
        tp, ty = torch.asarray(p), torch.asarray(y)
        rows.append(
            ("equal width", "torchmetrics", lambda: torchmetrics.binary_calibration_error(tp, ty, n_bins=15), 3)
        )
    if calibre:
        rows.append(("equal width", "calibre", lambda: calibre.expected_calibration_error(y, p, n_bins=15), 3))
    if sklearn:
        rows += [
            ("equal mass", "scikit-learn calibration_curve", lambda: sklearn.calibration_curve(
                y, p, n_bins=15, strategy="quantile"), 3),
            ("equal width", "scikit-learn calibration_curve", lambda: sklearn.calibration_curve(y, p, n_bins=15), 3),
        ]  # fmt: skip
    if relplot:
        rows += [
            ("equal width", "relplot", lambda: relplot.binnedECE(p, y, 15), 3),
            ("smooth", "relplot", lambda: relplot.smECE(p, y), 1),
        ]
    seconds = {(kind, who): best_of(function, repeats) for kind, who, function, repeats in sorted(rows, key=kind_of)}
    whole = tables.table(
        [f"N = {N:.0e}", "", "ms", "times refocal"],
        [
            [kind, who, f"{1e3 * each:.1f}", f"{each / seconds[kind, 'refocal']:.2f}"]
            for (kind, who), each in seconds.items()
        ],
    )
    others = (rm.ks_calibration_error, rm.corp_reliability, rm.ece_sweep, rm.debiased_ece, rm.spiegelhalter_test)
    work = {f.__name__: lambda f=f: f(y, p) for f in (*others, rm.brier_score, rm.reliability_curve)}
    histogram = rm.CalibrationHistogram()
    work["CalibrationHistogram.update"] = lambda: histogram.update(y, p)
    cells = [[name, f"{1e3 * best_of(function, 3):.1f}"] for name, function in work.items()]
    whole += ["", *tables.table(["other measures, refocal", "ms"], cells)]
    print("\n".join(whole))
    if write:
        tables.write(tables.RESULTS / "metrics.md", "timings", whole)
        tables.write(
            tables.PAGE, "metrics", tables.table(["1,000,000 rows", "refocal", "fastest peer"], short(seconds))
        )


def kind_of(row: tuple[str, str, Callable[[], Any], int]) -> str:
    return row[0]


def short(seconds: dict[tuple[str, str], float]) -> list[list[str]]:
    """Each kind of calibration error beside the fastest package that has it."""
    found = []
    for kind in dict.fromkeys(kind for kind, _ in seconds):
        peers_of = {w: s for (k, w), s in seconds.items() if k == kind and not w.startswith(("refocal", "NumPy"))}
        peer_name = min(peers_of, key=lambda name: peers_of[name])
        ours = f"{1e3 * seconds[kind, 'refocal']:.0f} ms"
        found.append([f"ECE, {kind}", ours, f"{1e3 * peers_of[peer_name]:.0f} ms ({peer_name})"])
    return found


def bootstrap() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(10, 0.3), 10_000)
    y = (p.cumsum(axis=1) > rng.random((10_000, 1)) * p.sum(axis=1, keepdims=True)).argmax(axis=1)
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    print("\n| default interval, 1000 draws, N = 1e4, C = 10 | CPU s |\n|---|---|")
    for metric in rm.METRICS.values():
        values = log_p if metric.takes_logs else p
        if metric.two_classes:
            continue
        try:
            seconds = best_of(partial(rm.bootstrap_interval, metric.function, y, values), repeats=3)
        except ParameterError:  # it has no interval
            continue
        print(f"| {metric.name} | {seconds:.2f} |", flush=True)


def draw_block(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    p = 1 / (1 + np.exp(-3 - 3 * rng.standard_normal(n)))
    return (rng.random(n) < p).astype(np.int64), p


def stream(total: int = 200_000_000, block: int = 1_000_000) -> None:
    rng = np.random.default_rng(0)
    draw_block(rng, block)
    # What drawing the data takes is not the histogram's; its own cells are, and so are its temporaries.
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    histogram = rm.CalibrationHistogram()
    right, updating, peaks = 0, 0.0, []
    for _ in range(total // block):
        y, p = draw_block(rng, block)
        right += int(y.sum())
        start = time.perf_counter()
        histogram.update(y, p)
        updating += time.perf_counter() - start
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    result = histogram.compute()
    assert result.count == total
    assert round(result.accuracy * total) == right
    print(f"\n{total:.0e} rows in blocks of {block:.0e}: {updating:.1f} s in update")
    print(f"count {result.count}, correct {round(result.accuracy * total)} (drawn: {right})")
    print(f"ECE {result.ece:.3e}, error bound {result.error_bound:.1e}")
    print(f"peak RSS: +{(peaks[-1] - before) / 1024:.0f} MB over the drawing of one block, "
          f"+{(peaks[-1] - peaks[0]) / 1024:.0f} MB after the first block")  # fmt: skip


def adaptive_ece(y: Any, p: Any, n_bins: int = 15) -> float:
    """AdaptiveECE as focal_calibration and others publish it: bins (low, high], so that the lowest row is in none."""
    edges = np.interp(np.linspace(0, len(p), n_bins + 1), np.arange(len(p)), np.sort(p))
    inside = [(p > low) & (p <= high) for low, high in itertools.pairwise(edges)]
    return float(sum(abs(p[rows].mean() - y[rows].mean()) * rows.mean() for rows in inside if rows.any()))


def peers() -> None:
    """Confidence ~ Beta(5, 1), the event has probability c^1.3; N = 1007 is no multiple of 15."""
    netcal, probcal, relplot = peer("netcal.metrics"), peer("probcal.metrics"), peer("relplot.metrics")
    torch, torchmetrics = peer("torch"), peer("torchmetrics.functional.classification")
    rng = np.random.default_rng(0)
    p = rng.beta(5, 1, 1007)
    y = (rng.random(1007) < p**1.3).astype(int)
    print("\n| N = 1007 | refocal | peer |\n|---|---|---|")
    ece = rm.expected_calibration_error(y, p)
    print(f"| equal mass, netcal | {ece:.5f} | {netcal.ECE(15, equal_intervals=False).measure(p, y):.5f} |")
    print(f"| equal mass, probcal | {ece:.5f} | {probcal.ece(y, p):.5f} |")
    print(f"| smooth, relplot | {rm.smooth_ece(y, p):.5f} | {relplot.smECE(p, y):.5f} |")
    print(f"| smooth, probcal | {rm.smooth_ece(y, p):.5f} | {probcal.smooth_ece(y, p):.5f} |")
    print(f"| debiased, probcal | {rm.debiased_ece(y, p):.5f} | {probcal.ece_debiased(y, p):.5f} |")
    print(f"| sweep, probcal | {rm.ece_sweep(y, p):.5f} | {probcal.ece_sweep(y, p):.5f} |")
    near_one = 1 - 10 ** -rng.uniform(1, 5, 10_000)
    for power in (1.0, 1.3, 2.0):
        hit = (rng.random(10_000) < near_one**power).astype(int)
        name = f"smooth, relplot, N = 10,000, c = 1 - 10^-U(1, 5), P(y = 1) = c^{power}"
        print(f"| {name} | {rm.smooth_ece(hit, near_one):.5f} | {relplot.smECE(near_one, hit):.5f} |")
    for n in (1000, 10_000):
        off = []
        for _ in range(200):
            c = rng.beta(4, 1, n)
            hit = (rng.random(n) < c).astype(int)
            off.append(abs(adaptive_ece(hit, c) - rm.expected_calibration_error(hit, c, strategy="interpolated")))
        print(f"| published AdaptiveECE, N = {n:,}, 200 draws: largest distance | {max(off):.5f} | |")
    many, none = torch.full((40_000_000,), 0.75), torch.zeros(40_000_000, dtype=torch.int64)
    theirs = float(torchmetrics.binary_calibration_error(many, none, n_bins=15))
    ours = rm.expected_calibration_error(none, many, strategy="uniform")
    print(f"| 40 million float32 rows of 0.75, none right, torchmetrics | {ours:.5f} | {theirs:.5f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"bootstrap": bootstrap, "stream": stream, "peers": peers}
    for name in parts:
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--write", action="store_true", help="the timings into the pages")
    arguments = parser.parse_args()
    for part in [part for name, part in parts.items() if getattr(arguments, name)] or [
        lambda: timings(arguments.write)
    ]:
        part()
