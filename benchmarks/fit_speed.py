"""Fits of refocal and of every peer that is installed, on the same logits, in one run.

    make bench        (or: OMP_NUM_THREADS=1 python benchmarks/fit_speed.py [--write] [--quick])

Each fit is warmed up once and then timed in rounds: every package once a round, so that a busy moment of the machine
hits all of them; reported is the median of five; a fit that takes over ten seconds is timed once. With one thread the
time is that of the processor, which other programs hardly change; else that of the clock. The extra memory is the
growth of a child process that fits once. `bare` is one log-softmax of the whole array by NumPy, the least that a fit
could do. Peers get logits where they take them, and probabilities in float64 where they do not.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import tables

from refocal import AutoCalibration, FocalTemperatureScaling, TemperatureScaling
from refocal._files import write_atomically
from refocal.engine.scoring import mean_error
from refocal.fitting import PAPER_GAMMAS, PAPER_TEMPERATURES
from refocal.maps import focal_temperature

TRUE = 1.8
# 50,000 × 1,000 is left out: the slowest peer alone would take minutes.
SHAPES = [(10_000, 10), (10_000, 100), (10_000, 1000), (50_000, 10), (50_000, 100)]
GRID_SHAPE = (5000, 100)
SLOW = 10.0
Fit = Callable[[np.ndarray, np.ndarray], float]
CLOCK = time.process_time if os.environ.get("OMP_NUM_THREADS") == "1" else time.perf_counter


def data(rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(rows, classes))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return (TRUE * logits).astype(np.float32), labels


def bare(logits: np.ndarray, labels: np.ndarray) -> float:
    gap = logits - logits.max(axis=1, keepdims=True)
    gap -= np.log(np.exp(gap).sum(axis=1, keepdims=True))
    return float("nan")


def probabilities(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def with_refocal(logits: np.ndarray, labels: np.ndarray) -> float:
    return TemperatureScaling().fit(logits, labels).temperature_


def with_refocal_fts(logits: np.ndarray, labels: np.ndarray) -> float:
    return FocalTemperatureScaling(objective="nll").fit(logits, labels).temperature_


def with_refocal_auto(logits: np.ndarray, labels: np.ndarray) -> float:
    return AutoCalibration().fit(logits, labels).temperature_


def with_scikit_learn() -> Fit:
    # What CalibratedClassifierCV(method="temperature") fits, without its cross-validation.
    from sklearn.calibration import _TemperatureScaling

    return lambda logits, labels: 1.0 / _TemperatureScaling().fit(logits, labels).beta_


def with_netcal() -> Fit:
    from netcal.scaling import TemperatureScaling as Model

    def fit(logits: np.ndarray, labels: np.ndarray) -> float:
        model = Model()
        model.fit(probabilities(logits), labels)
        return float(1.0 / np.ravel(model.temperature)[0])

    return fit


def with_probmetrics() -> Fit:
    import torch
    from probmetrics.calibrators import TemperatureScalingCalibrator
    from probmetrics.distributions import CategoricalLogits

    def fit(logits: np.ndarray, labels: np.ndarray) -> float:
        model = TemperatureScalingCalibrator()
        model.fit_torch(CategoricalLogits(torch.from_numpy(logits)), torch.from_numpy(labels))
        return 1.0 / float(model.invtemp_)

    return fit


def with_torch_lbfgs() -> Fit:
    """The script that most people copy: T from 1.5 by LBFGS with a step of 0.01 and 50 iterations."""
    import torch

    def fit(logits: np.ndarray, labels: np.ndarray) -> float:
        x, y = torch.from_numpy(logits), torch.from_numpy(labels)
        temperature = torch.tensor([1.5], requires_grad=True)
        optimizer = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            value = torch.nn.functional.cross_entropy(x / temperature, y)
            value.backward()
            return value

        optimizer.step(loss)
        return float(temperature)

    return fit


def with_calibre() -> Fit:
    from calibre.multiclass import TemperatureScaler

    return lambda logits, labels: float(TemperatureScaler().fit(probabilities(logits), labels).temperature_)


PEERS: dict[str, tuple[str, Callable[[], Fit]]] = {
    "scikit-learn": ("scikit-learn", with_scikit_learn),
    "probmetrics": ("probmetrics", with_probmetrics),
    "netcal": ("netcal", with_netcal),
    "LBFGS script": ("torch", with_torch_lbfgs),
    "calibre": ("calibre", with_calibre),
}


def installed() -> tuple[dict[str, Fit], dict[str, str]]:
    """The fits that can be run here, and why others cannot."""
    fits: dict[str, Fit] = {
        "bare": bare,
        "refocal TS": with_refocal,
        "refocal FTS": with_refocal_fts,
        "refocal auto": with_refocal_auto,
    }
    missing = {}
    for name, (package, make) in PEERS.items():
        try:
            fits[f"{name} {version(package)}"] = make()
        except (ImportError, PackageNotFoundError) as error:
            missing[name] = str(error)
    return fits, missing


def timed(fit: Fit, logits: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = CLOCK()
        found = fit(logits, labels)
        return CLOCK() - start, float(found)


def extra_memory(fit: Fit, logits: np.ndarray, labels: np.ndarray) -> float:
    """MB by which a process grows at most while it fits."""

    def child(sender: Any) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        timed(fit, logits, labels)
        sender.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024.0)

    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=child, args=(sender,))
    process.start()
    grown = receiver.recv() if receiver.poll(600) else float("nan")
    process.join()
    return grown


def compare(fits: dict[str, Fit], rows: int, classes: int, rounds: int) -> dict[str, dict[str, float]]:
    logits, labels = data(rows, classes)
    first = {name: timed(fit, logits, labels) for name, fit in fits.items()}
    times: dict[str, list[float]] = {name: [] for name in fits}
    for _ in range(rounds):
        for name, fit in fits.items():
            if first[name][0] < SLOW:
                times[name].append(timed(fit, logits, labels)[0])
    return {
        name: {
            "seconds": statistics.median(times[name] or first[name][:1]),
            "temperature": first[name][1],
            "extra_mb": extra_memory(fit, logits, labels),
        }
        for name, fit in fits.items()
    }


def brute_force(logits: np.ndarray, labels: np.ndarray, points: int = 45, clock: Callable[[], float] = CLOCK) -> float:
    """Seconds of the paper's search, point by point, scaled up from an even selection of its grid."""
    grid = [(gamma, t) for gamma in PAPER_GAMMAS for t in PAPER_TEMPERATURES]
    some = grid[:: len(grid) // points]
    correct = np.argmax(logits, axis=1) == labels
    start = clock()
    for gamma, t in some:
        log_p = focal_temperature(logits, gamma, t)
        log_p[np.arange(len(labels)), labels].mean()
        mean_error(np.exp(log_p.max(axis=1)).astype(np.float64), correct, None, resolutions=(15,))
    return (clock() - start) * len(grid) / len(some)


def grid(rounds: int) -> dict[str, float]:
    logits, labels = data(*GRID_SHAPE)
    model = FocalTemperatureScaling(objective="ece", search="grid")
    ours = [timed(lambda x, y: model.fit(x, y).temperature_, logits, labels)[0] for _ in range(rounds)]
    default = [timed(lambda x, y: FocalTemperatureScaling().fit(x, y).temperature_, logits, labels)[0] for _ in ours]
    return {
        "paper grid": statistics.median(ours),
        "default rule": statistics.median(default),
        "brute force": brute_force(logits, labels),
    }


def exponents(results: dict[str, Any], name: str) -> dict[str, float]:
    """How time grows: with N from 10,000 to 50,000 at C = 100, and with C from 100 to 1000 at N = 10,000."""
    seconds = {shape: rows[name]["seconds"] for shape, rows in results.items()}
    return {
        "N": float(np.log(seconds["50000x100"] / seconds["10000x100"]) / np.log(5.0)),
        "C": float(np.log(seconds["10000x1000"] / seconds["10000x100"]) / np.log(10.0)),
    }


def table(results: dict[str, Any]) -> list[str]:
    shapes = list(results)
    names = list(results[shapes[0]])
    lines = ["| seconds (of bare passes), extra memory | " + " | ".join(s.replace("x", " × ") for s in shapes) + " |"]
    lines.append("|---" * (len(shapes) + 1) + "|")
    for name in names:
        cells = []
        for shape in shapes:
            row, unit = results[shape][name], results[shape]["bare"]["seconds"]
            cells.append(f"{row['seconds']:.4f} ({row['seconds'] / unit:.1f}), {row['extra_mb']:.0f} MB")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "Temperatures found (FTS has a γ beside its own, auto a scaling of the classes before it):", ""]
    for name in names[1:]:
        lines.append(f"- {name}: " + ", ".join(f"{results[shape][name]['temperature']:.6f}" for shape in shapes))
    return lines


def plot(results: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams["svg.hashsalt"] = "refocal"
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    names = list(next(iter(results.values())))
    for axis, fixed, label in ((axes[0], "x100", "rows, C = 100"), (axes[1], "10000x", "classes, N = 10,000")):
        for i, name in enumerate(names):
            points = []
            for shape, rows in results.items():
                n, c = map(int, shape.split("x"))
                if shape.endswith(fixed) or shape.startswith(fixed):
                    points.append((n if fixed == "x100" else c, rows[name]["seconds"]))
            axis.loglog(*zip(*points, strict=True), "o-" if "refocal" in name else ".--", color=f"C{i}", label=name)
        axis.set_xlabel(label)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds a fit")
    axes[1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    figure.savefig(path, metadata={"Date": None})


def shown(name: str) -> str:
    """A shape as pages write it."""
    return " × ".join(f"{int(n):,}" for n in name.split("x"))


def fastest_peer(rows: dict[str, Any]) -> str:
    return min((name for name in rows if name != "bare" and "refocal" not in name), key=lambda n: rows[n]["seconds"])


def short_table(results: dict[str, Any]) -> list[str]:
    """What docs/performance.md shows: refocal beside the fastest peer."""
    head = ["N × C", "`TemperatureScaling`", "fastest peer", "`FocalTemperatureScaling`, log-loss"]
    lines = []
    for shape, rows in results.items():
        peer = fastest_peer(rows)
        seconds = [rows[name]["seconds"] for name in ("refocal TS", peer, "refocal FTS", "refocal auto")]
        ts, theirs, fts, auto = (f"{each:.3g}" for each in seconds)
        lines.append([shown(shape), ts, f"{theirs} ({peer.rsplit(' ', 1)[0]})", fts, auto])
    return tables.table([*head, "`AutoCalibration`"], lines)


def sentences(results: dict[str, Any], searched: dict[str, float]) -> list[str]:
    def spread(name: str, other: str | None = None) -> str:
        """The least and the most, over all shapes, of the time of one fit in units of another, or of a peer in its."""
        of = [
            rows[name]["seconds"] / rows[other]["seconds"]
            if other
            else rows[fastest_peer(rows)]["seconds"] / rows[name]["seconds"]
            for rows in results.values()
        ]
        return f"{min(of):.1f} to {max(of):.1f}"

    return [
        f"- **Temperature scaling** is {spread('refocal TS')} times faster than the fastest peer, at the same "
        f"temperature, and costs {spread('refocal TS', 'bare')} log-softmax passes of NumPy over the same array.",
        f"- **Focal temperature scaling** by log-loss costs {spread('refocal FTS', 'bare')} such passes, "
        f"**`AutoCalibration`** {spread('refocal auto', 'bare')}.",
        f"- **The paper's grid** by ECE on {GRID_SHAPE[0]:,} × {GRID_SHAPE[1]} logits takes "
        f"{searched['paper grid']:.2f} s, computing its 9 × 500 points one by one {searched['brute force']:.0f} s, "
        f"and the default rule {searched['default rule']:.2f} s.",
    ]


def beside_calibre(results: dict[str, Any]) -> list[str]:
    """Calibre needs another Python, so that its figures are from a run of its own, beside refocal's."""
    name = next(name for name in results[next(iter(results))] if name.startswith("calibre"))
    cells = [(shape, rows[name]["seconds"], rows["refocal TS"]["seconds"]) for shape, rows in results.items()]
    times = ", ".join(f"{theirs / ours:.0f} at {shown(shape)}" for shape, theirs, ours in cells)
    return [f"- **{name}**, in a run of its own, takes this many times as long: {times}."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="the tables in benchmarks/results and docs/performance.md")
    parser.add_argument("--calibre", action="store_true", help="this is the run beside calibre")
    parser.add_argument("--quick", action="store_true", help="10,000 rows alone, fewer rounds; nothing is written")
    options = parser.parse_args()
    _one_thread()
    fits, missing = installed()
    rounds = 3 if options.quick else 5
    shapes = SHAPES[:3] if options.quick or options.calibre else SHAPES
    about = {
        "machine": tables.machine(),
        "numpy": np.__version__,
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "clock": CLOCK.__name__,
        "missing": missing,
    }
    results = {f"{n}x{c}": compare(fits, n, c, rounds) for n, c in shapes}
    lines, searched = table(results), {}
    if not options.calibre:
        searched = grid(rounds)
        lines += ["", *sentences(results, searched)]
    if shapes == SHAPES:
        for name in ("refocal TS", "refocal FTS"):
            grown = exponents(results, name)
            lines.append(f"- {name} grows as N^{grown['N']:.2f} and C^{grown['C']:.2f}.")
    lines += ["", f"{about['machine']}, NumPy {about['numpy']}, threads: {about['threads']}, clock: {about['clock']}."]
    lines += [f"Not here: {name} ({why})." for name, why in missing.items()]
    print("\n".join(lines))
    if options.write and not options.quick:
        name = "fit_speed_calibre" if options.calibre else "fit_speed"
        text = "# How long a fit takes\n\n`make bench`; see docs/performance.md\n\n" + "\n".join(lines) + "\n"
        write_atomically(tables.RESULTS / f"{name}.md", text)
        found = {"about": about, "fits": results, "grid": searched}
        write_atomically(tables.RESULTS / f"{name}.json", json.dumps(found, indent=1) + "\n")
        if options.calibre:
            tables.write(tables.PAGE, "calibre", beside_calibre(results))
        else:
            plot(results, tables.RESULTS / f"{name}.svg")
            whole = "[all packages](../benchmarks/results/fit_speed.md)"
            about_run = f"CPU seconds, one thread, float32 logits, {about['machine']} ({whole}):"
            page = [about_run, "", *short_table(results), "", *sentences(results, searched)]
            tables.write(tables.PAGE, "fit", page)


def _one_thread() -> None:
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


if __name__ == "__main__":
    main()
