"""`import refocal` is quick and brings nothing heavy."""

from __future__ import annotations

import subprocess
import sys

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
