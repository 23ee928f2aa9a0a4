"""The wheels: one with the compiled kernel for this platform and any Python 3, one for machines without a compiler."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from refocal.engine import c_engine

ROOT = Path(__file__).parents[2]
USE = """
import sys
import numpy as np
import refocal
from refocal.engine import c_engine
assert refocal.__file__.startswith(sys.argv[1]), refocal.__file__
rng = np.random.default_rng(0)
logits = rng.normal(size=(500, 3))
labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
fitted = refocal.TemperatureScaling().fit(2.0 * logits, labels)
print(c_engine.is_compiled(), round(fitted.temperature_, 6))
"""
# A quick compilation, which optimises little and for this processor alone; a warning fails.
# psabi: vectors are passed to inlined functions alone.
STRICT = "sh -c 'cc \"$@\" -Og -march=native -Wall -Wextra -Wno-psabi -Werror' cc"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """What a source archive holds of the package, so that building leaves nothing in the working tree."""
    place = tmp_path_factory.mktemp("sources of refocal")  # a path with spaces
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place)
    without = shutil.ignore_patterns("__pycache__", "libkernel*")
    shutil.copytree(ROOT / "src", place / "src", ignore=without)
    return place


def build(sources, place, **environment):
    """The wheel of `sources`, unpacked beside it."""
    made = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(place)]
    subprocess.run(made, check=True, cwd=sources, env={**os.environ, **environment})  # noqa: S603
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "installed")
    return wheel


def use(wheel):
    """What an unpacked wheel prints when it is used from an empty folder."""
    place = wheel.parent
    path = os.pathsep.join([str(place / "installed"), *sys.path[1:]])
    command = [sys.executable, "-c", USE, str(place / "installed")]
    used = subprocess.run(  # noqa: S603
        command, check=True, capture_output=True, text=True, cwd=place, env={**os.environ, "PYTHONPATH": path}
    )
    return used.stdout.split()


@pytest.mark.long
def test_wheels_with_and_without_the_kernel_give_the_same(sources, tmp_path):
    for name in ("compiled", "pure"):
        (tmp_path / name).mkdir()
    pure = build(sources, tmp_path / "pure", REFOCAL_NO_KERNEL="1")
    assert pure.name.endswith("-py3-none-any.whl")
    no_kernel, temperature = use(pure)
    assert no_kernel == "False"
    if shutil.which("cc") is None:
        pytest.skip("no C compiler: the wheel with the kernel is not built")
    compiled = build(sources, tmp_path / "compiled", CC=STRICT)
    assert "-py3-none-" in compiled.name
    assert not compiled.name.endswith("-any.whl"), "the kernel did not compile, or not without warnings"
    has_kernel, same = use(compiled)
    assert has_kernel == "True"
    assert same == temperature


def test_a_missing_compiler_is_no_failure(sources, tmp_path):
    wheel = build(sources, tmp_path, CC="no-such-compiler")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert list((tmp_path / "installed").rglob("libkernel*")) == []


@pytest.mark.skipif(not c_engine.is_compiled(), reason="the kernel was not compiled")
def test_an_editable_install_keeps_a_kernel_that_is_current(monkeypatch, tmp_path):
    """A wheel never does: what lies in the working tree may have been compiled for this machine alone."""
    fcntl = pytest.importorskip("fcntl", reason="Windows has no locks of this kind")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    script, compiled = importlib.util.module_from_spec(spec), []
    spec.loader.exec_module(script)
    library, source = tmp_path / "libkernel.so", tmp_path / "kernel.c"
    monkeypatch.setattr(script, "FOLDER", tmp_path)
    monkeypatch.setattr(script, "LIBRARY", library)

    def compile_kernel():
        """No other install compiles at the same time."""
        with open(script.SOURCES[0], "rb") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        compiled.append(1)

    monkeypatch.setattr(script, "compile_kernel", compile_kernel)

    def compiles(version, age):
        """Whether a build compiles when its source is older than the library by `age` seconds."""
        written = library.stat().st_mtime - age
        source.touch()
        os.utime(source, (written, written))
        compiled.clear()
        data = {"artifacts": []}
        script.KernelHook.initialize(SimpleNamespace(target_name="wheel"), version, data)
        assert data["artifacts"] == ["src/refocal/engine/libkernel.so"]
        return bool(compiled)

    library.write_bytes(b"for another machine")
    assert compiles("editable", 10)
    library.unlink()
    shutil.copy(Path(c_engine.__file__).with_name("libkernel.so"), library)
    assert not compiles("editable", 10)
    assert compiles("standard", 10)
    assert compiles("editable", -10)
    monkeypatch.setenv("REFOCAL_NO_KERNEL", "1")
    assert compiles("editable", 10)
