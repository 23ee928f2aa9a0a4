"""Fits of refocal and of every peer that is installed, on the same logits, in one run.

    make bench        (or: OMP_NUM_THREADS=1 python benchmarks/fit_speed.py [-o benchmarks/results] [--quick])

Each fit is warmed up once and then timed in rounds: every package once a round, so that a busy moment of the machine
hits all of them; reported is the median of five, or of two where a fit takes over ten seconds. With OMP_NUM_THREADS=1
time is that of the processor, which other programs hardly change; else that of the clock. The extra memory is the
growth of a child process that fits once. `bare` is one log-softmax of the whole array by NumPy, the least that a fit
could do. Peers get logits where they take them, and probabilities in float64 where they do not.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from refocal import AutoCalibration, FocalTemperatureScaling, TemperatureScaling
from refocal._files import write_atomically
from refocal.fitting import PAPER_GAMMAS, PAPER_TEMPERATURES
from refocal.fitting.objective import mean_error
from refocal.maps import focal_temperature

TRUE = 1.8
SHAPES = [(n, c) for n in (10_000, 50_000) for c in (10, 100, 1000)]
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
    times: dict[str, list[float]] = {name: [] for name in fits}
    found = {name: timed(fit, logits, labels)[1] for name, fit in fits.items()}
    for done in range(rounds):
        for name, fit in fits.items():
            if done < 2 or times[name][0] < SLOW:
                times[name].append(timed(fit, logits, labels)[0])
    return {
        name: {
            "seconds": statistics.median(times[name]),
            "temperature": found[name],
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
    """How time grows: with N from 10,000 to 50,000 at C = 1000, and with C from 100 to 1000 at N = 50,000."""
    seconds = {shape: rows[name]["seconds"] for shape, rows in results.items()}
    return {
        "N": float(np.log(seconds["50000x1000"] / seconds["10000x1000"]) / np.log(5.0)),
        "C": float(np.log(seconds["50000x1000"] / seconds["50000x100"]) / np.log(10.0)),
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
    for axis, fixed, label in ((axes[0], "x1000", "rows, C = 1000"), (axes[1], "50000x", "classes, N = 50,000")):
        for i, name in enumerate(names):
            points = []
            for shape, rows in results.items():
                n, c = map(int, shape.split("x"))
                if shape.endswith(fixed) or shape.startswith(fixed):
                    points.append((n if fixed == "x1000" else c, rows[name]["seconds"]))
            axis.loglog(*zip(*points, strict=True), "o-" if "refocal" in name else ".--", color=f"C{i}", label=name)
        axis.set_xlabel(label)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds a fit")
    axes[1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--name", default="fit_speed", help="of the files in the output folder")
    parser.add_argument("--quick", action="store_true", help="10,000 rows alone, fewer rounds")
    options = parser.parse_args()
    _one_thread()
    fits, missing = installed()
    rounds = 3 if options.quick else 5
    shapes = SHAPES[:3] if options.quick else SHAPES
    results = {f"{n}x{c}": compare(fits, n, c, rounds) for n, c in shapes}
    about = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "clock": CLOCK.__name__,
        "missing": missing,
    }
    lines = table(results)
    searched = grid(rounds)
    ratio = searched["brute force"] / searched["paper grid"]
    lines += [
        "",
        f"Search by ECE over the paper's grid, 9 γ × 500 T, {GRID_SHAPE[0]} × {GRID_SHAPE[1]} logits: "
        f"{searched['paper grid']:.2f} s; point by point {searched['brute force']:.0f} s, {ratio:.0f} times as long. "
        f"The default rule: {searched['default rule']:.2f} s.",
    ]
    if not options.quick:
        for name in ("refocal TS", "refocal FTS"):
            grown = exponents(results, name)
            lines.append(f"{name} grows as N^{grown['N']:.2f} and C^{grown['C']:.2f}.")
    lines += [
        "",
        f"Python {about['python']}, NumPy {about['numpy']}, threads: {about['threads']}, clock: {about['clock']}.",
    ]
    lines += [f"Not here: {name} ({why})." for name, why in missing.items()]
    print("\n".join(lines))
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        text = (
            "# How long a fit takes\n\n`make bench`; how to read it: docs/performance.md\n\n" + "\n".join(lines) + "\n"
        )
        write_atomically(options.output / f"{options.name}.md", text)
        found = {"about": about, "fits": results, "grid": searched}
        write_atomically(options.output / f"{options.name}.json", json.dumps(found, indent=1) + "\n")
        if not options.quick:
            plot(results, options.output / f"{options.name}.svg")


def _one_thread() -> None:
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


if __name__ == "__main__":
    main()
