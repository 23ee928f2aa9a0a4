"""`import refocal` is quick and brings nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "jax", "sklearn", "scipy.optimize", "matplotlib", "dask", "pandas", "typer", "rich", "jinja2"}

SCRIPT = """
import sys, time
import numpy
start = time.process_time()
import refocal
refocal.maps, refocal.losses
print(time.process_time() - start)
print(" ".join(sys.modules))
"""


def test_import_is_light():
    runs = [
        subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout.splitlines()  # noqa: S603
        for _ in range(3)
    ]
    assert min(float(seconds) for seconds, _ in runs) < 0.3
    assert not HEAVY & set(runs[0][1].split())


def test_every_room_is_reachable_by_name():
    import refocal

    for name in refocal.__all__:
        assert getattr(refocal, name) is not None
    assert set(dir(refocal)) == set(refocal.__all__)


WITHOUT_TORCH = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden())
import importlib.util
importlib.util.find_spec = lambda name, found=importlib.util.find_spec: None if name == "torch" else found(name)
from refocal import *
print(sorted(name for name in dir() if name in ("TemperatureScaling", "nn", "metrics")))
"""


@pytest.mark.slow
def test_everything_can_be_imported_without_torch():
    made = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True)  # noqa: S603
    assert made.stdout == "['TemperatureScaling', 'metrics']\n", made.stderr
