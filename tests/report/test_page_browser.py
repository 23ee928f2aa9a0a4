"""The page as a reader meets it, in a headless Chromium."""

from __future__ import annotations

import csv
import json
from xml.etree import ElementTree

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from helpers import draw_logits, smallest_letters, wait_until, worst_contrast
from refocal import IsotonicCalibration, load
from refocal.evaluate import compare, comparison_table, evaluate
from refocal.io import Predictions
from refocal.maps import focal_temperature
from refocal.report import write_report

pytestmark = pytest.mark.slow

FIGURES = [
    "fig-reliability-before",
    "fig-reliability-after",
    "fig-comparison-ece",
    "fig-comparison-log_loss",
    "fig-confidence-before",
    "fig-confidence-after",
    "fig-surface",
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_every_figure_is_drawn_and_fits(open_browser, width, scheme):
    driver = open_browser(width, scheme)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    for name in FIGURES:
        svg = driver.find_element(By.CSS_SELECTOR, f"#{name} svg")
        assert svg.size["width"] >= 300
        assert svg.size["height"] >= 100
        assert len(svg.find_elements(By.CSS_SELECTOR, "path, circle, rect")) >= 5
        assert svg.get_attribute("role") == "img"
        title = driver.find_element(By.ID, svg.get_attribute("aria-labelledby"))
        assert len(title.get_attribute("textContent")) > 40
        assert smallest_letters(driver, svg) >= 9.0, name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(open_browser, scheme):
    ratio, node = worst_contrast(open_browser(1200, scheme))
    assert ratio >= 4.5, node


def test_dark_and_light_differ(open_browser):
    colors = [
        open_browser(800, scheme).execute_script(
            "return [getComputedStyle(document.body).backgroundColor,"
            " getComputedStyle(document.querySelector('#fig-reliability-after svg text')).fill]"
        )
        for scheme in ("light", "dark")
    ]
    assert colors[0][0] != colors[1][0]
    assert colors[0][1] != colors[1][1]


def test_no_request_and_no_error(open_browser, page):
    driver = open_browser()
    driver.get_log("browser"), driver.get_log("performance")
    driver = open_browser()
    for tab in driver.find_elements(By.CSS_SELECTOR, '[role="tab"]'):
        tab.click()
    assert [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in sent if not url.startswith("data:")] == [page.as_uri()]


def selected(driver, label):
    tabs = driver.find_elements(By.CSS_SELECTOR, f'[aria-label="{label}"] [role="tab"]')
    on = [tab for tab in tabs if tab.get_attribute("aria-selected") == "true"]
    shown = [tab for tab in tabs if driver.find_element(By.ID, tab.get_attribute("aria-controls")).is_displayed()]
    assert on == shown
    assert len(on) == 1
    return on[0].text


@pytest.mark.parametrize(
    ("label", "names"),
    [
        ("Diagrams of every method", None),
        ("How to use the calibrator", ["Python", "torch", "the numbers alone", "command line", "calibrator.json"]),
    ],
)
def test_tabs_by_click_and_by_keyboard(open_browser, evaluation, label, names):
    driver, names = open_browser(), names or [row.name for row in comparison_table(evaluation)]
    for name in names:
        driver.find_element(By.XPATH, f'//*[@aria-label="{label}"]//button[text()="{name}"]').click()
        assert selected(driver, label) == name
    driver.switch_to.active_element.send_keys(Keys.HOME)
    assert selected(driver, label) == names[0]
    driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert selected(driver, label) == names[1]
    driver.switch_to.active_element.send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert selected(driver, label) == names[-1]
    driver.switch_to.active_element.send_keys(Keys.END, Keys.ARROW_RIGHT)
    assert selected(driver, label) == names[0]
    # The tab key leaves the list for what the tab shows.
    driver.switch_to.active_element.send_keys(Keys.TAB)
    assert driver.switch_to.active_element.get_attribute("role") == "tabpanel"


def column(driver, i):
    return driver.execute_script(
        "return [...document.querySelectorAll('#classes-table tbody tr')]"
        ".map(r => r.cells[arguments[0]].dataset.value ?? r.cells[arguments[0]].textContent.replace(',', ''))",
        i,
    )


@pytest.mark.parametrize("by", ["click", "keyboard"])
def test_the_table_sorts(open_browser, by):
    driver = open_browser()
    heads = driver.find_elements(By.CSS_SELECTOR, "#classes-table thead th")
    as_opened = [float(x) for x in column(driver, 5)]
    assert as_opened == sorted(as_opened, reverse=True)
    for i, head in enumerate(heads):
        button = head.find_element(By.TAG_NAME, "button")
        press = button.click if by == "click" else lambda button=button: button.send_keys(Keys.ENTER)
        for _ in range(2):
            press()
            values = column(driver, i)
            down = head.get_attribute("aria-sort") == "descending"
            if i == 0:
                assert values[-1 if down else 0] == "<b>&$x$"
                assert values.index("class 2") < values.index("class 10") or down
            else:
                assert [float(v) for v in values] == sorted(map(float, values), reverse=down)
        assert sum(h.get_attribute("aria-sort") != "none" for h in heads) == 1


def test_the_copy_button_copies(open_browser):
    driver = open_browser()
    driver.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
    driver.execute_script(
        "window.copied = ''; navigator.clipboard.writeText = async (text) => { window.copied = text; }"
    )
    button = driver.find_element(By.CSS_SELECTOR, "#panel-file .copy")
    button.click()
    assert button.text == "Copied"
    assert driver.execute_script("return window.copied").startswith("import refocal")


def test_on_paper_nothing_is_hidden(open_browser):
    driver = open_browser(width=680, media="print")
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 680
    for panel in driver.find_elements(By.CSS_SELECTOR, '[role="tabpanel"]:not(#panel-json)'):
        assert panel.is_displayed()
        assert panel.find_element(By.CSS_SELECTOR, "h3, h4").is_displayed()  # the label of its tab
    rows = driver.find_elements(By.CSS_SELECTOR, "#classes-table tbody tr")
    assert [row.is_displayed() for row in rows] == [True] * 15 + [False] * 15
    assert not driver.find_element(By.CSS_SELECTOR, ".copy").is_displayed()
    box = driver.find_element(By.CSS_SELECTOR, ".scroll.tall")
    assert driver.execute_script("return arguments[0].scrollHeight <= arguments[0].clientHeight + 2", box)


@pytest.mark.parametrize("scheme", ["dark", pytest.param("light", marks=pytest.mark.long)])
def test_axe_finds_no_barrier(open_browser, axe, scheme):
    driver = open_browser(1200, scheme)
    driver.find_element(By.CSS_SELECTOR, "#classes-table button.link").click()
    assert axe(driver) == []


def tip_of(driver):
    tip = driver.find_element(By.ID, "tip")
    return tip.text if tip.is_displayed() else ""


def test_a_point_says_its_numbers_by_pointing_and_by_keys(open_browser, evaluation):
    driver = open_browser()
    curve = evaluation.after.reliability
    bins = zip(curve.count, curve.confidence, curve.accuracy, curve.low, curve.high, strict=True)
    said = [
        f"{n:,} rows: confidence {100 * shares[0]:.2f} %, accuracy {100 * shares[1]:.2f} %; "
        f"by chance {100 * shares[2]:.2f} to {100 * shares[3]:.2f} %"
        for n, *shares in bins
    ]
    assert tip_of(driver) == ""
    chart = driver.find_element(By.CSS_SELECTOR, "#fig-reliability-after svg")
    ActionChains(driver).move_to_element(chart.find_element(By.CSS_SELECTOR, ".mark")).perform()
    assert tip_of(driver) == said[0]
    driver.execute_script("arguments[0].focus()", chart)
    for i in (1, 2):
        chart.send_keys(Keys.ARROW_RIGHT)
        assert tip_of(driver) == said[i]
        assert driver.find_element(By.ID, "status").get_attribute("textContent") == said[i]
    chart.send_keys(Keys.ESCAPE)
    assert tip_of(driver) == ""
    # Every chart has points that speak.
    for svg in driver.find_elements(By.CSS_SELECTOR, "svg.figure"):
        assert svg.get_attribute("tabindex") == "0"


def test_the_first_column_stays_in_sight(open_browser):
    driver = open_browser(400)
    for name in ("methods-table", "classes-table"):
        table = driver.find_element(By.ID, name)
        found = driver.execute_script(
            "const box = arguments[0].parentElement; box.scrollLeft = 200;"
            "const of = (cell) => cell.getBoundingClientRect().left - box.getBoundingClientRect().left;"
            "const row = arguments[0].tBodies[0].rows[0]; return [box.scrollLeft, of(row.cells[0]), of(row.cells[1])]",
            table,
        )
        assert found[0] > 50
        assert abs(found[1]) <= 1
        assert found[2] < 60  # the second one has moved under it


def test_a_class_in_detail(open_browser, evaluation):
    driver = open_browser()
    box = driver.find_element(By.CSS_SELECTOR, ".search input")
    box.send_keys("class 7")
    rows = [row for row in driver.find_elements(By.CSS_SELECTOR, "#classes-table tbody tr") if row.is_displayed()]
    assert [row.find_element(By.TAG_NAME, "th").text for row in rows] == ["class 7"]
    rows[0].find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    detail, found = driver.find_element(By.ID, "class-detail"), evaluation.after.classes[7].detail
    assert driver.switch_to.active_element.text == "class 7"
    assert ", ".join(map(str, found.examples)) in detail.text
    for label, count in found.predicted_as:
        assert f"{evaluation.name_of(label)} ({count})" in detail.text
    marks = detail.find_elements(By.CSS_SELECTOR, ".mark")
    assert len(marks) == len(found.count) + len(evaluation.before.classes[7].detail.count)
    tips = [mark.get_attribute("data-tip") for mark in marks]
    assert any(tip.startswith(f"After: {found.count[0]:,} rows") for tip in tips)
    # A name that holds markup stays text.
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys("<b>")
    driver.find_element(By.XPATH, '//button[text()="<b>&$x$"]').click()
    assert driver.find_element(By.CSS_SELECTOR, "#class-detail h3").text == "<b>&$x$"


def test_a_class_in_detail_where_some_have_no_row(browser, tmp_path, monkeypatch):
    monkeypatch.setattr("refocal.evaluate._details.MOST_CLASSES", 3)
    rng = np.random.default_rng(0)
    labels = rng.choice(6, size=300, p=[0.01, 0.02, 0.3, 0.02, 0.3, 0.35])
    found = evaluate(Predictions.from_logits(rng.normal(size=(300, 6)), labels), {}, n_resamples=2)
    write_report(found, tmp_path / "page.html")
    driver = browser(tmp_path / "page.html")
    for row in found.after.classes:
        driver.find_element(By.CSS_SELECTOR, f'#classes-table tr[data-label="{row.label}"] button').click()
        detail = driver.find_element(By.ID, "class-detail").text
        assert detail.startswith(f"{row.label}\n")
        assert all(f"{label} ({count})" in detail for label, count in row.detail.predicted_as)
        assert ", ".join(map(str, row.detail.examples)) in detail


def test_the_slider_shows_what_the_table_says(open_browser, evaluation):
    browser = open_browser()
    table = evaluation.after.decisions
    for i in (50, 90, 101):
        move = "const s = document.getElementById('decide-at'); s.value = arguments[0]; "
        move += "s.dispatchEvent(new Event('input'))"
        browser.execute_script(move, i)
        cells = browser.execute_script(
            "return [...document.querySelector('#decide-table tr[data-name=after]').cells].map((c) => c.textContent);"
        )
        wrong, t = table.decided[i] - table.right[i], table.threshold[i]
        assert float(cells[1]) == pytest.approx(100 * table.decided[i], abs=0.006)
        assert float(cells[3]) == pytest.approx(1000 * (wrong + (1 - t) * (1 - table.decided[i])), abs=0.06)
        assert float(cells[5]) == pytest.approx(100 * table.promised[i], abs=0.006)
        assert browser.execute_script("return document.getElementById('decide-t').textContent") == f"{t:g}"


def test_downloads(open_browser, evaluation, tmp_path):
    driver = open_browser()
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    for link in driver.find_elements(By.CSS_SELECTOR, "#downloads a"):
        link.click()
    figure = driver.find_element(By.ID, "fig-reliability-after")
    ActionChains(driver).move_to_element(figure).perform()
    for pressed in figure.find_elements(By.CSS_SELECTOR, ".figure-tools button"):
        driver.execute_script("arguments[0].click()", pressed)
    names = ("calibrator.json", "metrics.csv", "reliability-after.svg", "reliability-after.png")
    wait_until(lambda: all((tmp_path / name).is_file() for name in names))
    logits = np.random.default_rng(0).normal(size=(5, 30))
    fitted, point = load(tmp_path / "calibrator.json"), evaluation.after.parameters
    expected = np.exp(focal_temperature(logits, point["gamma"], point["temperature"]))
    np.testing.assert_allclose(fitted.predict_proba(logits), expected, rtol=1e-12)
    table = list(csv.DictReader((tmp_path / "metrics.csv").read_text(encoding="utf-8").splitlines()))
    ece = next(row for row in table if (row["method"], row["measure"]) == ("fts", "ece"))
    assert float(ece["value"]) == evaluation["fts"].measures["ece"].value
    drawn = (tmp_path / "reliability-after.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(drawn).tag.endswith("svg")  # noqa: S314, made by the page
    assert "var(" not in drawn
    assert (tmp_path / "reliability-after.png").read_bytes().startswith(b"\x89PNG")


def test_without_scripts_everything_can_be_read(open_browser):
    driver = open_browser()
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        driver = open_browser()
        for panel in driver.find_elements(By.CSS_SELECTOR, '[role="tabpanel"]'):
            assert panel.is_displayed()
        assert not driver.find_element(By.CSS_SELECTOR, '[role="tablist"]').is_displayed()
        title = driver.find_element(By.CSS_SELECTOR, "#fig-reliability-after .mark title")
        assert "accuracy" in title.get_attribute("textContent")
        assert driver.find_elements(By.CSS_SELECTOR, "th button, .copy, .search") == []
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_large_calibrator_is_unpacked_by_the_page(browser, tmp_path):
    rows = Predictions.from_logits(*draw_logits(3000, 20, scale=3.0))
    found = compare(rows, rows, ["isotonic"], chosen="isotonic", n_resamples=2)
    write_report(found, tmp_path / "report.html")
    driver = browser(tmp_path / "report.html")
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    link = driver.find_element(By.CSS_SELECTOR, "#downloads a")
    assert link.get_attribute("download") == "calibrator.json.gz"
    link.click()
    wait_until((tmp_path / "calibrator.json").is_file)
    fitted = IsotonicCalibration().fit(rows.values, rows.labels)
    again = load(tmp_path / "calibrator.json")
    np.testing.assert_array_equal(again.predict_proba(rows.values), fitted.predict_proba(rows.values))
