"""A guard against slowing down: ratios of processor time within one run, never seconds.

The limits are 1.5 times what benchmarks/fit_speed.py's own functions gave when they were set, on a processor with AVX2
and one thread. A fit is compared with scikit-learn's and with one bare pass of NumPy over the same logits; it counts as
slower only if it is slower than both limits, since on another processor the one or the other may be faster.
"""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest

from refocal import FocalTemperatureScaling
from refocal.search import kernel

TRIES = 3


def benchmark():
    path = Path(__file__).parent.parent / "benchmarks" / "fit_speed.py"
    spec = importlib.util.spec_from_file_location("fit_speed", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def least(function, repeats=5):
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize(
    ("fit", "of_scikit_learn", "of_a_pass"),
    [("with_refocal", 1.5 * 0.10, 1.5 * 4.9), ("with_refocal_fts", 1.5 * 0.30, 1.5 * 15.0)],
)
def test_a_fit_is_not_slower_than_it_was(fit, of_scikit_learn, of_a_pass, monkeypatch):
    assert kernel.usable(benchmark().data(2, 2)[0])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    module = benchmark()
    logits, labels = module.data(10_000, 100)
    found = []
    for _ in range(TRIES):
        ours = least(lambda: getattr(module, fit)(logits, labels))
        peer = least(lambda: module.with_scikit_learn()(logits, labels), repeats=2)
        bare = least(lambda: module.bare(logits, labels))
        found.append((ours / peer / of_scikit_learn, ours / bare / of_a_pass))
        if min(found[-1]) < 1.0:
            return
    pytest.fail(f"slower than both limits, in each of {TRIES} tries: {found}")


def test_the_grid_stays_far_below_the_work_point_by_point(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    module = benchmark()
    logits, labels = module.data(5000, 100)
    model = FocalTemperatureScaling(objective="ece", search="grid")
    ratios = []
    for _ in range(TRIES):
        point_by_point = module.brute_force(logits, labels, points=15, clock=time.process_time)
        ratios.append(point_by_point / least(lambda: model.fit(logits, labels), repeats=1))
        if ratios[-1] > 170.0 / 1.5:
            break
    assert max(ratios) > 170.0 / 1.5
