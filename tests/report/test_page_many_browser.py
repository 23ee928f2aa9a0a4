"""The page of a comparison of many networks, in a headless Chromium."""

from __future__ import annotations

import numpy as np
import pytest
from selenium.webdriver.common.by import By

from helpers import smallest_letters, worst_contrast
from refocal.evaluate import Run, compare_many
from refocal.io import Predictions
from refocal.report import write_report

pytestmark = pytest.mark.slow


def make_rows(rng):
    logits = 1.5 * rng.normal(size=(100, 3))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return Predictions.from_logits(2.5 * logits, labels)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    rng = np.random.default_rng(0)
    names = [f"a network <with> a long name & number {i}" for i in range(5)]
    runs = [Run(make_rows(rng), make_rows(rng), "data", name, seed) for name in names for seed in (1, 2)]
    path = tmp_path_factory.mktemp("many") / "many.html"
    write_report(compare_many(runs, ["ts", "vs", "isotonic"], metrics=["log_loss", "ece"]), path)
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_fits_and_can_be_read(page, browser, width, scheme):
    driver = browser(page, width, scheme)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    ratio, node = worst_contrast(driver)
    assert ratio >= 4.5, node
    figures = driver.find_elements(By.CSS_SELECTOR, "figure svg")
    assert len(figures) == 4
    for svg in figures:
        assert smallest_letters(driver, svg) >= 9.0
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
