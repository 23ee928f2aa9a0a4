from __future__ import annotations

import shutil

import numpy as np
import pytest

from refocal.data import Predictions, split
from refocal.evaluate import compare
from refocal.report import write_report


@pytest.fixture(scope="session")
def evaluation():
    """Too sure a network with thirty classes, the names of which need care in HTML."""
    rng = np.random.default_rng(0)
    logits = 1.5 * rng.normal(size=(3000, 30))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    names = ["<b>&$x$", *(f"class {i}" for i in range(1, 30))]
    validation, test = split(Predictions.from_logits(2.5 * logits, labels, class_names=names))
    return compare(validation, test, ["ts", "fts", "fts-nll"], chosen="fts", title="a <test> & more", n_resamples=40)


@pytest.fixture(scope="session")
def page(evaluation, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(evaluation, path)
    return path


@pytest.fixture(scope="session")
def open_browser(page):
    """A function (width, scheme) → a headless Chromium that shows the page; skipped where there is none."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver_path = shutil.which("chromedriver")
    if chromium is None or driver_path is None:
        pytest.skip("no chromium and chromedriver here: the page is not tested in a browser")
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

    def show(width=1200, scheme="light", media=""):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(page.as_uri())
        return driver

    yield show
    driver.quit()
