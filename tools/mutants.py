"""Mutation testing of the core: `python tools/mutants.py [SUBPACKAGE …]`, what `make mutants` calls.

Writes benchmarks/results/mutants.md.

A mutant is the package with one small fault (`tools/mutations.py`). A test suite that is worth something fails on it.
The whole suite on each of thousands would take days, so one run of the tests marked `numerics` notes with coverage
which tests run which lines; a mutant gets the tests that run its line, the quickest first, in a fork of a process that
has every library loaded already, until one fails. Mutants are a seeded sample of each module. Those that survive are
killed by a better test or explained in tools/mutants.toml, from where the page takes its reasons.
"""

from __future__ import annotations

import argparse
import compileall
import importlib
import importlib.util
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from mutations import Mutation, mutations

ROOT = Path(__file__).resolve().parents[1]
EXPLAINED = ROOT / "tools" / "mutants.toml"
PAGE = ROOT / "benchmarks" / "results" / "mutants.md"
# The modules of each package and how many mutants of each module are made. The tests are those marked numerics.
PACKAGES = {
    "losses": ("losses.py", 30),
    "maps": ("maps/*.py", 30),
    "metrics": ("metrics/*.py", 30),
    "engine": ("engine/*.py", 20),
    "fitting": ("fitting/*.py", 20),
}
# NumPy and torch run the same lines as the other libraries, which compile for seconds.
WITHOUT = "not jax and not array_api_strict"
# A test that takes longer than this is not run; the others are, the quickest first, for this number of seconds in all.
LONGEST, IN_ALL = 2.0, 8.0
# GPU code, which the CPU only interprets, slowly: tests/engine/test_triton_engine.py compares it number by number.
LEFT_OUT = {"__init__.py", "triton_affine.py", "triton_apply.py", "triton_engine.py", "triton_maths.py"}
START_SECONDS, SLACK = 30.0, 10.0


@dataclass
class Profile:
    """The tests of a package: how long each takes, and which lines of which module it runs."""

    seconds: dict[str, float]
    lines: dict[str, dict[str, list[int]]]  # module → test, or file for what its fixtures run → lines
    modules: list[str]
    environ: dict[str, str]

    def touching(self, module: str, lines: range) -> list[str]:
        """Those that run one of the lines, quickest first; for what runs at the import, one of the module's lines."""
        seen = self.lines.get(module, {})
        touched = {test for test, ran in seen.items() if not set(ran).isdisjoint(lines)}
        if "" in touched:
            touched = set(seen)
        return self.quickest([test for test in self.seconds if test in touched or test.split("::")[0] in touched])

    def quickest(self, tests: Iterable[str]) -> list[str]:
        """As many of the tests as the bounds allow, the quickest first."""
        found = sorted(tests, key=self.seconds.__getitem__)
        spent = accumulate(self.seconds[test] for test in found)
        return [t for t, total in zip(found, spent, strict=True) if total <= IN_ALL and self.seconds[t] <= LONGEST]


class Chosen:
    """Runs these tests and no others, in this order."""

    def __init__(self, tests: list[str]) -> None:
        self.order = {test: i for i, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """What pytest calls."""
        items[:] = sorted((item for item in items if item.nodeid in self.order), key=lambda i: self.order[i.nodeid])


class Watch:
    """Notes for each test its duration and, through coverage, the lines that it runs."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = {}
        self.begin = 0.0

    def pytest_runtest_setup(self, item: Any) -> None:
        """A fixture may serve every test of the file."""
        self.coverage.switch_context(item.nodeid.split("::")[0])

    def pytest_runtest_call(self, item: Any) -> None:
        """The test itself; its own time counts, however busy the machine is."""
        self.coverage.switch_context(item.nodeid)
        self.begin = time.process_time()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count what passed."""
        if report.when == "call" and report.passed:
            self.seconds[report.nodeid] = time.process_time() - self.begin


def copy_of_the_tree(place: Path) -> None:
    """The package and its tests, compiled, so that a mutant costs one compilation."""
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis"))
    for name in ("pyproject.toml", "hatch_build.py"):
        shutil.copy(ROOT / name, place)
    compileall.compile_dir(place, quiet=1)


def enter(tree: Path, log: Path) -> None:
    """Make a fork a process of its own that works on the copy."""
    os.setsid()
    os.chdir(tree)
    with log.open("wb") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    sys.path[:0] = [str(tree / "src"), str(tree / "tests")]
    os.environ.update(PYTHONPATH=str(tree / "src"), PYTHONDONTWRITEBYTECODE="1")
    sys.dont_write_bytecode = True


def pytest_on(files: Iterable[str], plugin: object) -> int:
    """The exit status of pytest."""
    import pytest

    quick = [
        "-q",
        "-x",
        "-m",
        "numerics",
        "-k",
        WITHOUT,
        "--tb=line",
        "--assert=plain",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    return int(pytest.main([*quick, *files], [plugin]))


def measure(tree: Path) -> None:
    """In a fork: run the tests once and write their profile."""
    enter(tree, tree / "profile.log")
    from coverage import Coverage

    before = dict(os.environ)
    modules = [f"{tree}/src/refocal/{where}" for where, _ in PACKAGES.values()]
    watch = Coverage(data_file=None, branch=True, include=modules)
    watch.start()
    noted = Watch(watch)
    status = pytest_on(["tests", "src"], noted)
    watch.stop()
    data, lines = watch.get_data(), {}
    for path in data.measured_files():
        at = lines[str(Path(path).relative_to(tree / "src" / "refocal"))] = {}
        for line, tests in data.contexts_by_lineno(path).items():
            for test in tests:
                at.setdefault(test, []).append(line)
    environ = {key: value for key, value in os.environ.items() if before.get(key) != value and "PYTEST" not in key}
    profile = Profile(noted.seconds, lines, [name for name in sys.modules if _is_library(name, tree)], environ)
    (tree / "profile.json").write_text(json.dumps(vars(profile)))
    os._exit(status)


def _is_library(name: str, tree: Path) -> bool:
    origin = getattr(getattr(sys.modules[name], "__spec__", None), "origin", None)
    return name != "__main__" and origin is not None and not origin.startswith(str(tree))


def attempt(tree: Path, tests: list[str]) -> None:
    """In a fork: the exit status is 0 if the mutant survives."""
    enter(tree, tree / "mutant.log")
    status = pytest_on(sorted({test.split("::")[0] for test in tests}), Chosen(tests))
    os._exit(status)


def in_a_fork(work: Any, *arguments: Any, seconds: float) -> int | None:
    """The exit status of some work, or None if it took too long."""
    process = multiprocessing.get_context("fork").Process(target=work, args=arguments)
    process.start()
    process.join(seconds)
    late = process.is_alive()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what the tests left behind as well
    process.join()
    return None if late else process.exitcode


def profile_of(tree: Path) -> Profile:
    """The profile of the tests; afterwards this process has the libraries loaded that they need."""
    if in_a_fork(measure, tree, seconds=3600.0) != 0:
        sys.exit(f"the tests fail without any fault:\n{(tree / 'profile.log').read_text()[-3000:]}")
    profile = Profile(**json.loads((tree / "profile.json").read_text()))
    print(f"{len(profile.seconds)} tests, {sum(profile.seconds.values()):.0f} s", flush=True)
    os.environ.update(profile.environ)
    for name in profile.modules:
        with suppress(Exception):
            importlib.import_module(name)
    if in_a_fork(attempt, tree, profile.quickest(profile.seconds), seconds=3600.0) != 0:
        sys.exit(f"the tests fail in a fork:\n{(tree / 'mutant.log').read_text()[-3000:]}")
    return profile


def survives(tree: Path, module: str, mutation: Mutation, profile: Profile) -> bool:
    """Whether every test that runs the mutant's line passes; a mutant that hangs is killed."""
    tests = profile.touching(module, mutation.lines)
    if not tests:
        return True
    path = tree / "src" / "refocal" / module
    source, compiled = path.read_bytes(), Path(importlib.util.cache_from_source(str(path)))
    path.write_bytes(mutation.apply(source))
    compiled.rename(compiled.with_suffix(".kept"))
    limit = START_SECONDS + SLACK * sum(profile.seconds[test] for test in tests)
    try:
        return in_a_fork(attempt, tree, tests, seconds=limit) == 0
    finally:
        path.write_bytes(source)
        compiled.with_suffix(".kept").rename(compiled)


def described(module: str, mutation: Mutation) -> dict[str, Any]:
    """Where a mutant is, its line as it stands in the source, and the change."""
    source = (ROOT / "src" / "refocal" / module).read_bytes()
    before = " ".join(source[mutation.start : mutation.end].decode().split())
    after = mutation.after[1:-1] if mutation.after.startswith("(") else mutation.after
    line = source[: mutation.start].count(b"\n") + 1
    code = source.splitlines()[line - 1].decode().strip()
    column = mutation.start - source.rfind(b"\n", 0, mutation.start)
    return {"line": line, "column": column, "code": code, "change": f"{before} → {after}"}


def examine(
    package: str, options: argparse.Namespace, tree: Path, profile: Profile, earlier: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The mutants of a package, module by module; where there is an earlier result, only those that survived then."""
    where, usual_sample = PACKAGES[package]
    sample = options.sample or usual_sample
    found = []
    for path in sorted((ROOT / "src" / "refocal").glob(where)):
        module, every = str(path.relative_to(ROOT / "src" / "refocal")), mutations(path)
        if path.name in LEFT_OUT or not every:
            continue
        chosen = random.Random(f"{module} {options.seed}").sample(every, min(sample, len(every)))  # noqa: S311
        begin, tried, survivors = time.monotonic(), len(chosen), []
        for known in (each for each in earlier if each["module"] == module):
            chosen = [each for each in chosen if described(module, each) in known["survivors"]]
        for mutation in sorted(chosen, key=lambda each: each.start):
            if survives(tree, module, mutation, profile):
                survivors.append(described(module, mutation))
                print(f"  {module}:{survivors[-1]['line']} {survivors[-1]['change']}", flush=True)
        taken = f"{time.monotonic() - begin:.0f} s"
        print(f"{module}: {tried} of {len(every)}, {len(survivors)} survive, {taken}", flush=True)
        found.append({"module": module, "possible": len(every), "tried": tried, "survivors": survivors})
    return found


def page(found: list[dict[str, Any]]) -> tuple[str, int]:
    """The page about all mutants, and how many of them neither died nor are explained."""
    known = tomllib.loads(EXPLAINED.read_text()).get("mutant", [])
    reasons = {(each["module"], each["code"], each["change"]): each["why"] for each in known}
    rows, kept, unexplained = [], [], 0
    for each in found:
        module, survivors = each["module"], each["survivors"]
        killed = each["tried"] - len(survivors)
        rows.append(f"| `{module}` | {each['possible']} | {each['tried']} | {killed} | {len(survivors)} |")
        for mutant in survivors:
            why = reasons.get((module, mutant["code"], mutant["change"]))
            unexplained += why is None
            code, change = (mutant[part].replace("|", "\\|") for part in ("code", "change"))
            kept.append(f"| `{module}`, {mutant['line']} | `{code}` | `{change}` | {why or '**not explained**'} |")
    tried, survived = sum(each["tried"] for each in found), len(kept)
    total = f"| in all | {sum(each['possible'] for each in found)} | {tried} | {tried - survived} | {survived} |"
    table = "\n".join(["| module | possible | tried | killed | survived |", "|---|---:|---:|---:|---:|", *rows, total])
    listed = "\n".join(["| where | line | change | why |", "|---|---|---|---|", *kept])
    numbers = {"tried": tried, "killed": tried - survived, "survived": survived, "explained": survived - unexplained}
    return HEAD.format(**numbers) + f"\n{table}\n\n## What survived, and why\n\n{listed}\n", unexplained


HEAD = """# Mutants: do the tests notice?

A mutant is refocal with one small fault: a `<` for a `<=`, a `+` for a `-`, a constant doubled or one off, a sign
lost, a branch always or never taken, a result dropped, a check removed. Tests that prove something fail on it.
`make mutants` makes a seeded sample of such faults in the maps, losses, metrics and searches, and runs the quick tests
that touch the line; `python tools/mutants.py maps fitting` looks at some alone, `--again` at survivors.

**{tried} mutants: {killed} killed, {survived} survived, {explained} of those explained below.**

Left out: `engine/triton_*.py`, the passes of the GPU, which a CPU only interprets
(`tests/engine/test_triton_engine.py` compares them with the CPU's), and `engine/kernel.c`, which
`tests/engine/test_c_engine.py` compares with the maps. Texts of messages are not changed. A mutant that hangs counts as
killed. Tests that take more than two seconds are not asked: a survivor may still fall to the whole suite.
"""


def main() -> None:
    """Examine subpackages, and write the page about all that have a result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("subpackages", nargs="*", help=", ".join(PACKAGES))
    parser.add_argument("--sample", type=int, help="the number of mutants of each module")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="only those that survived the last time")
    parser.add_argument(
        "--results", type=Path, default=ROOT / "build" / "mutants", help="where each package's JSON goes"
    )
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    results = {package: options.results / f"{package}.json" for package in PACKAGES}
    with tempfile.TemporaryDirectory() as place:
        copy_of_the_tree(Path(place))
        profile = profile_of(Path(place))
        for package in options.subpackages or PACKAGES:
            earlier = json.loads(results[package].read_text()) if options.again else []
            found = examine(package, options, Path(place), profile, earlier)
            results[package].write_text(json.dumps(found, indent=1))
    measured = [path for path in results.values() if path.exists()]
    text, unexplained = page([each for path in measured for each in json.loads(path.read_text())])
    PAGE.write_text(text)
    sys.exit(f"{unexplained} mutants survive without an explanation" if unexplained else 0)


if __name__ == "__main__":
    main()
