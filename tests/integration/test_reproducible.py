"""The same numbers on any number of threads, in any blocks, in any process, and as they were when they were written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from helpers import PATIENCE
from refocal import FocalTemperatureScaling, TemperatureScaling
from refocal.calibrators.registry import NAMED, make
from refocal.engine import array_engine, c_engine
from refocal.metrics import bootstrap_interval, expected_calibration_error

sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))
import make as golden

pytestmark = pytest.mark.numerics

rng = np.random.default_rng(0)
LOGITS = 2.0 * rng.normal(size=(1200, 8))
LABELS = np.argmax(LOGITS / 1.5 + rng.gumbel(size=LOGITS.shape), axis=1)


def fit(name: str) -> tuple[float, ...]:
    """What a method predicts for a few rows, after a fit on all."""
    return tuple(np.ravel(make(name).fit(LOGITS, LABELS).predict_log_proba(LOGITS[:20])))


GOLDEN = json.loads(golden.FILE.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("case", golden.CASES)
def test_golden_fits(case):
    found = golden.fit(case)
    for what, values in GOLDEN[case].items():
        np.testing.assert_allclose(found[what], values, rtol=1e-9, atol=1e-9, err_msg=what)


def test_golden_fits_are_kept_for_every_method():
    assert list(GOLDEN) == golden.CASES


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_blocks_and_threads_change_nothing(name, monkeypatch):
    monkeypatch.setattr(c_engine, "THREADS_FROM", 0)
    fits = []
    for block, threads in ((1200, "1"), (1200, "2"), (100, "1")):  # 8 blocks, and 100 of 12 rows
        monkeypatch.setattr(c_engine, "PART", block)
        monkeypatch.setattr(array_engine, "CACHE_PART", block)
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        fits.append(fit(name))
    for other in fits[1:]:
        np.testing.assert_allclose(other, fits[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(fits[1], fits[0])  # the same blocks on two threads: bit for bit


def test_seeds_repeat_and_differ():
    p = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)

    def interval(seed):
        found = bootstrap_interval(expected_calibration_error, LABELS, p, n_resamples=50, seed=seed)
        return found.low, found.high

    assert interval(1) == interval(1)
    assert interval(1) != interval(2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ts", "fts", "isotonic", "bbq"])
def test_threads_fit_side_by_side(name):
    expected = fit(name)
    with ThreadPoolExecutor(4) as pool:
        assert all(found == expected for found in pool.map(fit, [name] * 8))


def test_one_fitted_calibrator_serves_many_threads():
    calibrator = FocalTemperatureScaling().fit(LOGITS, LABELS)
    expected = calibrator.predict_proba(LOGITS)
    wrong = []

    def work():
        for _ in range(5):
            if not np.array_equal(calibrator.predict_proba(LOGITS), expected):
                wrong.append(threading.get_ident())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


PROCESSES = """
import multiprocessing, warnings
from concurrent.futures import ProcessPoolExecutor
import numpy as np
from refocal import FocalTemperatureScaling
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 dislikes to fork beside threads, which is the point
rng = np.random.default_rng(0)
LOGITS = 2.0 * rng.normal(size=(1200, 8))
LABELS = np.argmax(LOGITS / 1.5 + rng.gumbel(size=LOGITS.shape), axis=1)
def fit(seed):
    return FocalTemperatureScaling().fit(LOGITS, LABELS).predict_log_proba(LOGITS[:20]).tolist()
if __name__ == "__main__":
    expected = fit(0)  # the parent has fitted, on threads, before it forks
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        assert all(found == expected for found in pool.map(fit, range(2)))
    print("same")
"""


@pytest.mark.slow
def test_forked_processes_find_the_same(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROCESSES)
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPATH": os.pathsep.join(sys.path)}
    made = subprocess.run(  # noqa: S603
        [sys.executable, str(script)], capture_output=True, text=True, timeout=PATIENCE, env=environment
    )
    assert made.stdout == "same\n", made.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_joblib_keeps_a_fitted_calibrator(name, tmp_path):
    calibrator = make(name).fit(LOGITS, LABELS)
    joblib.dump(calibrator, tmp_path / "c.joblib")
    again = joblib.load(tmp_path / "c.joblib")
    np.testing.assert_array_equal(again.predict_proba(LOGITS), calibrator.predict_proba(LOGITS))


@pytest.mark.slow
def test_processes_that_joblib_starts_find_the_same():
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(TemperatureScaling().fit)(LOGITS, LABELS) for _ in range(2))
    expected = TemperatureScaling().fit(LOGITS, LABELS).temperature_
    assert [calibrator.temperature_ for calibrator in found] == [expected, expected]


INTERRUPTED = """
import signal, sys, numpy as np
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from sklearn.utils.validation import check_is_fitted
from sklearn.exceptions import NotFittedError
from refocal import FocalTemperatureScaling
rng = np.random.default_rng(0)
logits = rng.normal(size=(4000, 20))
labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
grid = {"gammas": list(np.linspace(0, 5, 60)), "temperatures": list(np.linspace(0.5, 3, 300))}
calibrator = FocalTemperatureScaling(objective="ece", search="grid", **grid)
print("fitting", flush=True)
try:
    calibrator.fit(logits, labels, progress=lambda share: print(share, flush=True))
except KeyboardInterrupt:
    try:
        check_is_fitted(calibrator)
    except NotFittedError:
        small = FocalTemperatureScaling(objective="nll").fit(logits[:500], labels[:500])
        print("stopped, unfitted, and fits again", small.temperature_ > 0, flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_during_a_fit_on_threads():
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    child = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert child.stdout.readline() == "fitting\n"
    child.stdout.readline()  # it is on its way
    child.send_signal(signal.SIGINT)
    out, error = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0, error
    assert out.endswith("stopped, unfitted, and fits again True\n")
    assert error == ""


def test_an_interrupted_fit_leaves_nothing_behind():
    def interrupt(share):
        raise KeyboardInterrupt

    calibrator = FocalTemperatureScaling(objective="ece", search="grid")
    with pytest.raises(KeyboardInterrupt):
        calibrator.fit(LOGITS, LABELS, progress=interrupt)
    with pytest.raises(NotFittedError):
        check_is_fitted(calibrator)
