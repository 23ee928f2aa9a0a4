"""The library alone: what works where only the four hard dependencies are installed, and what is said of the rest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
# Python runs this at its start, from a folder on the path: to imports and to find_spec, these packages do not exist.
HIDE = """
from importlib.machinery import PathFinder

HIDDEN = {hidden!r}
find_spec = PathFinder.find_spec


def find_others(name, path=None, target=None):
    return None if name.partition(".")[0] in HIDDEN else find_spec(name, path, target)


PathFinder.find_spec = find_others
"""
# The packages of every extra, by the names they are imported by.
HIDDEN = {
    "cli": ["jinja2", "markdown_it", "markupsafe", "rich", "typer"],
    "plot": ["matplotlib"],
    "torch": ["torch"],
    "onnx": ["onnx", "onnxruntime"],
    "dask": ["dask", "distributed", "fsspec"],
    "parquet": ["pyarrow"],
    "s3": ["s3fs"],
    "zarr": ["zarr"],
    "safetensors": ["safetensors"],
}
# Not of an extra, and not to be needed either.
OTHERS = ["pandas", "polars", "click", "IPython"]

WORK = """
import sys

import numpy as np

import refocal
from refocal import metrics
from refocal.evaluate import compare, evaluate

validation, test = refocal.io.load_sample("cifar10-focal3")
calibrator = refocal.AutoCalibration().fit(validation.values, validation.labels)
probabilities = calibrator.predict_proba(test.values)
calibrator.save("calibrator.json")
assert np.array_equal(refocal.load("calibrator.json").predict_proba(test.values), probabilities)
assert metrics.expected_calibration_error(test.labels, probabilities) < 0.03
evaluation = evaluate(test, {"calibrator": calibrator}, n_resamples=20)
assert "rows" in repr(evaluation) and evaluation._repr_html_() is None
assert "<svg" in calibrator._repr_html_inner()
assert len(compare(validation, test, ["ts", "platt"], n_resamples=20).methods) == 3
np.savez("rows.npz", logits=test.values, labels=test.labels)
assert len(refocal.io.read("rows.npz").labels) == len(test.labels)
from refocal import *
assert "TemperatureScaling" in dir() and "nn" not in dir()
print("worked")
"""


@pytest.fixture
def core(tmp_path):
    """Runs Python with the core's dependencies alone, in a folder of its own."""
    hidden = [*OTHERS, *(module for modules in HIDDEN.values() for module in modules)]
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "sitecustomize.py").write_text(HIDE.format(hidden=hidden), encoding="utf-8")
    path = os.pathsep.join([str(tmp_path / "hide"), *(entry for entry in sys.path if entry)])

    def run(*arguments):
        command = [sys.executable, *arguments]
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)  # noqa: S603

    return run


def test_fit_apply_save_measure_and_evaluate_need_no_extra(core):
    ran = core("-W", "error", "-c", WORK)
    assert ran.stdout == "worked\n", ran.stderr


# A call, the module that it lacks and the extra that brings it.
CALLS = [
    ("refocal.report.plot_confidence(refocal.evaluate.Histogram([0.0, 1.0], [1.0], [2.0]))", "matplotlib", "plot"),
    ("refocal.report.page.notes_html('*')", "markdown_it", "cli"),
    ("refocal.explore.render_page()", "jinja2", "cli"),
    ("refocal.nn", "torch", "torch"),
    ("refocal.export.to_onnx(None, 'x.onnx')", "onnx", "onnx"),
    ("refocal.io.open_rows('x.parquet')", "pyarrow", "parquet"),
    ("refocal.io.open_rows('x.safetensors')", "safetensors", "safetensors"),
]
MISSING = """
import pathlib
import refocal
for name in ("x.parquet", "x.safetensors"):
    pathlib.Path(name).touch()
for call in {calls!r}:
    try:
        eval(call)
    except refocal.errors.MissingExtraError as error:
        print(error)
"""


def test_a_missing_extra_is_named_with_the_command_that_installs_it(core):
    ran = core("-c", MISSING.format(calls=[call for call, _, _ in CALLS]))
    lines = ran.stdout.splitlines()
    assert len(lines) == len(CALLS), ran.stdout + ran.stderr
    for line, (_, missing, extra) in zip(lines, CALLS, strict=True):
        said = f" needs {missing}, which is not installed. Install it with: pip install 'refocal[{extra}]'"
        assert line.endswith(said)


def test_the_program_says_in_one_line_that_its_extra_is_missing(core):
    script = "import sys; from refocal.cli import main; sys.exit(main())"  # what the console script is
    for arguments in (["-m", "refocal", "demo"], ["-c", script, "--help"]):
        ran = core(*arguments)
        assert ran.returncode == 1
        assert ran.stdout == ""
        assert ran.stderr == (
            "refocal: The command line needs typer, which is not installed. "
            "Install it with: pip install 'refocal[cli]'\n"
        )
    assert core("-m", "refocal", "--version").stdout.startswith("refocal ")


def test_the_project_names_the_extras_that_are_tested_here():
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert set(HIDDEN) == set(extras) - {"all", "test", "dev", "docs", "bench"}
    assert extras["all"] == [f"refocal[{','.join(sorted(HIDDEN))}]"]
    assert [re.split("[<>=]", line)[0] for line in project["dependencies"]] == [
        "array-api-compat", "numpy", "scikit-learn", "scipy",
    ]  # fmt: skip
