"""The page to explore with, in a headless Chromium: its JavaScript beside the Python, its sliders, its looks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from helpers import smallest_letters, worst_contrast
from refocal import losses, theory
from refocal.explore import render_page
from refocal.maps import focal_temperature, log_softmax

pytestmark = pytest.mark.slow

PLOTS = ["fig-binary", "fig-loss", "fig-arrows", "fig-difference", "fig-closest"]
DOCS = Path(__file__).parents[2] / "docs"
# JSON knows no -inf; null stands for it on both ways.
CALL = """
const back = (v) => (v === null ? -Infinity : v);
const out = (v) => (Array.isArray(v) ? v.map(out) : v === -Infinity ? null : v);
return arguments[0].map(([name, logits, ...rest]) => out(window.refocal[name](logits.map(back), ...rest)));
"""


class Maps:
    """The address of the second page, another one each time: with the same one a browser would not load it again."""

    def __init__(self, path):
        self.path, self.loads = path, 0

    def as_uri(self):
        self.loads += 1
        return f"{self.path.as_uri()}?{self.loads}#maps"


@pytest.fixture(scope="module")
def page(explorer):
    return Maps(explorer)


@pytest.fixture(scope="module")
def rows():
    """Rows of logits of every kind: usual, tied, far apart, with impossible classes, with one class alone."""
    rng = np.random.default_rng(0)
    usual = [rng.normal(size=n) * scale for n in (2, 3, 5, 20) for scale in (0.1, 1.0, 10.0, 100.0) for _ in range(3)]
    inf = np.inf
    special = [[0, 0], [1, 1, -3], [0, 0, 0, 0], [800, 0], [40, 0, 0], [1e4, 0, -5], [3, -inf, 1], [0, -inf], [1e-9, 0]]
    return [np.asarray(row, dtype=np.float64) for row in (*usual, *special)]


def ask(driver, calls):
    """What the page's functions return for lists of (name, logits, …)."""
    sent = [[name, [None if v == -np.inf else float(v) for v in x], *rest] for name, x, *rest in calls]
    return [
        np.array([-np.inf if v is None else v for v in found]) if isinstance(found, list) else found
        for found in driver.execute_script(CALL, sent)
    ]


def assert_same(found, expected):
    """Equal to 1e-9 as log-probabilities, absolutely or, where they are large, relatively; and as probabilities."""
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.exp(found), np.exp(expected), rtol=0, atol=1e-9)


GAMMAS = (-0.9, -0.5, 0.0, 0.3, 1.0, 3.0, 10.0)


def test_the_maps_are_those_of_python(browser, page, rows):
    driver = browser(page)
    cases = [(x, g, t) for x in rows for g in GAMMAS for t in (0.1, 1.0, 5.0)]
    for (x, g, t), found in zip(cases, ask(driver, [("focalTemperature", *case) for case in cases]), strict=True):
        assert_same(found, focal_temperature(x, g, t))
    for x, found in zip(rows, ask(driver, [("logSoftmax", x, 0.7) for x in rows]), strict=True):
        assert_same(found, log_softmax(x, 0.7))


def test_a_confident_class_keeps_its_digits(browser, page):
    """log p of a class close to 1 is a tiny number, and right to nine digits of its own."""
    (found,) = ask(browser(page), [("focalTemperature", [30.0, 0.0], 2.0, 1.0)])
    assert found[0] == pytest.approx(focal_temperature(np.array([30.0, 0.0]), 2.0, 1.0)[0], rel=1e-9, abs=0.0)
    assert -1e-35 < found[0] < 0.0


def test_the_losses_are_those_of_python(browser, page, rows):
    finite = [x for x in rows if np.isfinite(x).all()]
    python = {"crossEntropy": losses.cross_entropy, "focalLoss": losses.focal}
    driver = browser(page)
    for name, function in python.items():
        gammas = [()] if name == "crossEntropy" else [(g,) for g in GAMMAS]
        cases = [(x, label, *g) for x in finite for label in range(len(x)) for g in gammas]
        found = np.array(ask(driver, [(name, *case) for case in cases]))
        for n_classes in {len(x) for x in finite}:
            at = [i for i, (x, *_) in enumerate(cases) if len(x) == n_classes]
            expected = function(*(np.array(each) for each in zip(*(cases[i] for i in at), strict=True)))
            np.testing.assert_allclose(found[at], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_curve_of_the_proper_part_is_that_of_python(browser, page, gamma):
    p, loss = np.array(browser(page).execute_script("return window.refocal.properFocal(arguments[0])", gamma)).T
    expected = losses.proper_focal(np.log(np.stack([p, 1.0 - p], axis=1)), np.zeros(len(p), dtype=int), gamma)
    np.testing.assert_allclose(loss, expected, rtol=1e-9, atol=1e-9)
    assert p[0] < 0.003
    assert p[-1] > 0.997
    assert np.all(np.diff(p) < 0.1)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_closest_temperature_is_that_of_python(browser, page, n_classes):
    driver = browser(page)
    for gamma in (-0.5, 0.0, 0.5, 2.0, 7.35):
        found = driver.execute_script(
            "const c = window.refocal.closest(arguments[0], arguments[1]); return [c.temperature, c.error]",
            gamma,
            n_classes,
        )
        np.testing.assert_allclose(found, theory.closest_temperature(gamma, n_classes), rtol=0, atol=1e-9)


def test_the_numbers_of_theory_are_those_of_python(browser, page):
    driver = browser(page)
    for gamma in (-0.5, 0.5, 1.0, 4.0):
        found = driver.execute_script("return window.refocal.temperatureBounds(arguments[0])", gamma)
        np.testing.assert_allclose(found, theory.temperature_bounds(gamma), rtol=0, atol=1e-12)
    for gamma in (0.05, 1.0, 10.0):
        found = driver.execute_script("return window.refocal.confidenceThreshold(arguments[0])", gamma)
        assert found == pytest.approx(theory.confidence_threshold(gamma), abs=1e-12)


def drawn(driver):
    """The content of every plot, once what was asked for has been drawn."""
    driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    return [driver.find_element(By.CSS_SELECTOR, f"#{name} svg").get_attribute("innerHTML") for name in PLOTS]


@pytest.mark.parametrize("slider", ["gamma", "temperature"])
def test_a_slider_moved_by_keyboard_changes_every_plot(browser, page, slider):
    driver = browser(page)
    before, control = drawn(driver), driver.find_element(By.ID, slider)
    for key in ("ARROW_RIGHT", "ARROW_LEFT", "PAGE_UP", "HOME"):
        control.send_keys(getattr(Keys, key))
        assert driver.switch_to.active_element == control
        after = drawn(driver)
        for name, old, new in zip(PLOTS, before, after, strict=True):
            assert old != new, (key, name)
        before = after
        # The number beside the slider, its text for those who listen and the state agree.
        value = driver.execute_script("return window.refocal.state")[slider]
        assert float(control.get_attribute("value")) == pytest.approx(value)
        assert float(driver.find_element(By.ID, f"{slider}-number").get_attribute("value")) == pytest.approx(value)
        assert control.get_attribute("aria-valuetext").replace("−", "-") == f"{value:.2f}"


def test_numbers_can_be_typed_and_are_kept_in_range(browser, page):
    driver = browser(page)
    field = driver.find_element(By.ID, "gamma-number")
    for typed, kept in (("0.37", 0.37), ("99", 10.0), ("-3", -0.9), ("", -0.9)):
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(Keys.BACKSPACE, typed, Keys.TAB)
        assert driver.execute_script("return window.refocal.state.gamma") == kept
        assert float(field.get_attribute("value")) == kept
    assert "NaN" not in "".join(drawn(driver))


def test_what_is_shown_is_what_python_says(browser, page):
    driver = browser(page)
    driver.find_element(By.ID, "take-3").click()
    drawn(driver)
    closest = theory.closest_temperature(2.0, 3)
    text = {e.get_attribute("id"): e.text for e in driver.find_elements(By.CSS_SELECTOR, "dd, pre code")}
    assert text["out-closest-3"] == f"{closest.temperature:.4f}"
    assert text["out-error-3"] == f"{closest.error:.4f}"
    assert text["out-at-3"] == f"{closest.error:.4f}"
    assert text["out-threshold"] == f"{theory.confidence_threshold(2.0):.4f}"
    temperature = round(closest.temperature, 4)
    after = np.exp(focal_temperature(np.log([0.35, 0.65]), 2.0, temperature))[0]
    assert text["out-after"] == f"{after:.4f}"
    assert text["out-call"] == f"focal_temperature(logits, gamma=2, temperature={temperature})"
    driver.find_element(By.ID, "reset").click()
    assert driver.execute_script("return window.refocal.state.temperature") == 0.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_it_fits_and_can_be_read(browser, page, width, scheme):
    driver = browser(page, width, scheme)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    for name in PLOTS:
        svg = driver.find_element(By.CSS_SELECTOR, f"#{name} svg")
        assert svg.size["width"] >= 300
        assert len(driver.find_element(By.ID, f"{name}-title").get_attribute("textContent")) > 40
        assert smallest_letters(driver, svg) >= 9.0, name
    ratio, node = worst_contrast(driver)
    assert ratio >= 4.5, node
    for control in driver.find_elements(By.CSS_SELECTOR, "#page-maps input"):
        label = (
            control.get_attribute("aria-label")
            or driver.find_element(By.CSS_SELECTOR, f'label[for="{control.get_attribute("id")}"]').text
        )
        assert label


def test_light_and_dark_differ(browser, page):
    found = [
        browser(page, 800, scheme).execute_script(
            "return [getComputedStyle(document.body).backgroundColor,"
            " getComputedStyle(document.querySelector('#fig-binary svg text')).fill,"
            " getComputedStyle(document.querySelector('#fig-difference .s10')).fill]"
        )
        for scheme in ("light", "dark")
    ]
    assert all(light != dark for light, dark in zip(*found, strict=True))


def test_no_request_and_no_error(browser, page):
    driver = browser(page)
    driver.get_log("browser"), driver.get_log("performance")
    driver = browser(page)
    for name in ("gamma", "temperature", "q"):
        for key in (Keys.HOME, Keys.END, Keys.ARROW_LEFT):
            driver.find_element(By.ID, name).send_keys(key)
            drawn(driver)
    assert [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url.split("?")[0] for url in sent if not url.startswith("data:")] == [page.path.as_uri()]


def test_the_page_of_the_docs_is_the_page_of_the_package():
    text = render_page()
    assert (DOCS / "explore.html").read_text(encoding="utf-8") == text, "run: refocal explore -o docs/explore.html"
    assert not re.search(r"https?://", text)
    assert not re.search(r"<(script|img|link|iframe)[^>]+src=", text)
    assert "default-src 'none'" in text
