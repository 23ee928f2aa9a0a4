from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from importlib.metadata import version

os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # compiled in half the time, for a few rows each
if version("jaxlib") == "0.10.2":  # and by older emitters in half of that; a version that lacks a flag would not start
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")

import hypothesis
import pytest

from array_libraries import MAKE
from helpers import PATIENCE, set_screen

# Where methods and metrics are registered.
REGISTERS = (("refocal._methods", "NAMED"), ("refocal.metrics.records", "METRICS"))

hypothesis.settings.register_profile("steady", deadline=None, max_examples=60, derandomize=True)
hypothesis.settings.load_profile("steady")
gc.disable()  # until the tests are collected: a million objects are made, and stay


def pytest_configure(config):
    """Prepare torch in every process that runs tests; one that only hands them out to workers does not load it."""
    if config.getoption("numprocesses", None):
        return
    # Python's collector ended one run of these tests in a segmentation fault where torch calls it after compiling.
    os.environ.setdefault("TORCH_DYNAMO_RUN_GC_AFTER_COMPILE", "0")
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")  # the GPU's passes, step by step on the CPU
    torch.set_num_threads(1)


def pytest_ignore_collect(collection_path, config):
    """With `-m core` or `-m numerics` import only the files that have the mark: others may need packages that are not
    installed, or make thousands of cases."""
    mark = config.option.markexpr.partition(" ")[0]
    if mark in ("core", "numerics") and collection_path.name.startswith("test_"):
        return f"pytest.mark.{mark}" not in collection_path.read_text(encoding="utf-8") or None
    return None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With several workers a module stays on one of them, and all browser tests on one: fixtures are made once.

    The cells of the matrix have none, and are shared out by their entries.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ModulesOnWorkers(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            module = nodeid.split("::")[0]
            if module.endswith("test_matrix.py"):
                return nodeid.split("-")[0]
            return "browser" if module.endswith("_browser.py") else module

        def remove_node(self, node):
            """Of a worker that crashed only what it has not finished is run elsewhere.

            Without this the finished modules go back to the queue too; a worker that takes one has nothing to run, and
            the others wait for it for ever.
            """
            work = self.assigned_work[node]
            for scope in [scope for scope, tests in work.items() if all(tests.values())]:
                del work[scope]
            return super().remove_node(node)

    return ModulesOnWorkers(config, log)


def pytest_collection_modifyitems(items):
    """JAX compiles every operation for every shape, so its share of a slow test is a long one.

    Tests of all libraries by the fixture below keep it.
    """
    for item in items:
        if item.get_closest_marker("slow") and "jax" in _ids(item) and "library" not in item.fixturenames:
            item.add_marker(pytest.mark.long)


def pytest_collection_finish():
    """What is loaded by now stays: the garbage collector need not go through it, nor run every 700 objects."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_unconfigure():
    """Libraries that watch their own objects would report them as leaked, were they still held at the end."""
    gc.unfreeze()


def _ids(item):
    return item.callspec.id.split("-") if hasattr(item, "callspec") else []


def pytest_terminal_summary(terminalreporter):
    """Say in one line which tests were skipped, and why."""
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped"))
    if reasons:
        terminalreporter.write_line("skipped: " + "; ".join(f"{n} ({reason})" for reason, n in reasons.items()))


@pytest.fixture(autouse=True)
def nothing_stays_registered():
    """Methods and metrics that a test, an example or a page registers are forgotten after it."""
    tables = [sys.modules[module].__dict__[name] for module, name in REGISTERS if module in sys.modules]
    before = [dict(table) for table in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        if table.keys() != kept.keys():
            table.clear()
            table.update(kept)


@pytest.fixture(params=sorted(MAKE))
def library(request):
    """A function that makes an array of each library out of a NumPy array."""
    return MAKE[request.param]


@pytest.fixture(scope="session")
def browser():
    """A function (page, width, scheme, media) → a headless Chromium that shows it; skipped where there is none."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver_path = shutil.which("chromedriver")
    if chromium is None or driver_path is None:
        pytest.skip("no chromium and chromedriver on the path: pages are not tested in a browser")
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = chromium
    quiet = ["disable-background-networking", "disable-component-update", "no-first-run"]
    for argument in ["headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", *quiet]:
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver_path))

    def show(page, width=1200, scheme="light", media=""):
        set_screen(driver, width, scheme, media)
        driver.get(page.as_uri())
        return driver

    yield show
    driver.quit()


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """axe-core, which looks for barriers in a page: a function (driver) → what it found; skipped where npm has none."""
    folder = tmp_path_factory.mktemp("axe")
    pack = [shutil.which("npm") or "npm", "pack", "axe-core@4.10.3", "--silent", "--fetch-retries=0"]
    try:
        subprocess.run(pack, cwd=folder, check=True, capture_output=True, timeout=PATIENCE)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        pytest.skip("npm cannot fetch axe-core: pages are not looked at by it")
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        source = archive.extractfile("package/axe.min.js").read().decode()

    def violations(driver):
        driver.execute_script(source)
        found = driver.execute_async_script("axe.run().then(arguments[0])")["violations"]
        return [(each["id"], [node["html"][:120] for node in each["nodes"]][:3]) for each in found]

    return violations
