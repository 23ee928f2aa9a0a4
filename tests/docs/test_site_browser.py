"""The site: built strictly, whole, and looked at in a browser, from the disk and without the network."""

from __future__ import annotations

import json
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from helpers import set_screen, wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = ["index.html", "start.html", "concepts/measuring.html", "guide/choosing.html", "reference/metrics.html"]
PAGES += ["gallery.html", "examples/groups.html", "methods.html", "metric-cards.html", "coming-from.html"]
PAGES += ["calibrators.html", "reference/calibrators.html"]
SHOWN = "return [document.body.dataset.mdColorScheme, document.readyState]"
WIDEST = "return [document.documentElement.scrollWidth, window.innerWidth]"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of a fresh, strict build, in this process, which has loaded most of what it needs."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


class Links(HTMLParser):
    """The addresses that a page loads, and those that it only links to."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag == "a" and found.get("href"):
            self.linked.append(found["href"])
        elif tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload", "preconnect", "modulepreload"):
            self.loaded.append(found["href"])
        elif tag in ("script", "img", "iframe") and found.get("src"):
            self.loaded.append(found["src"])


def links_of(page):
    links = Links()
    links.feed(page.read_text(encoding="utf-8"))
    return links


def test_every_page_of_the_docs_is_in_the_site_and_in_its_navigation(site):
    front = links_of(site / "index.html").linked
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    pages += [page.relative_to(ROOT) for page in (ROOT / "paper" / "docs").glob("*.md")]
    for page in pages:
        name = page.with_suffix(".html").as_posix()
        assert (site / name).exists()
        assert name in front, f"{name} cannot be reached from the front page"


def test_what_pages_load_and_link_to_is_there_and_nothing_is_loaded_from_elsewhere(site):
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # shown at any depth, so its addresses are those of a server
            continue
        links = links_of(page)
        for address in links.loaded:
            assert not urlsplit(address).scheme or address.startswith("data:"), f"{page.name} loads {address}"
        for address in {*links.loaded, *links.linked}:
            parts = urlsplit(address)
            if parts.scheme or not parts.path:
                continue
            assert (page.parent / unquote(parts.path)).resolve().exists(), f"{page.name} → {address}"


def remote_requests(driver):
    messages = (json.loads(entry["message"])["message"] for entry in driver.get_log("performance"))
    sent = (m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent")
    return [url for url in sent if not url.startswith(("file:", "data:", "about:", "blob:"))]


@pytest.mark.parametrize("name", [*PAGES, "live/report.html", "live/explorer.html"])
def test_a_page_fits_every_screen_and_asks_nobody(browser, site, name):
    driver = browser(site / name)
    for width, scheme, shown in ((1280, "light", "default"), (400, "dark", "slate")):
        set_screen(driver, width, scheme)
        wait_until(lambda shown=shown: driver.execute_script(SHOWN) == [shown, "complete"])
        wide, window = driver.execute_script(WIDEST)
        assert wide <= window == width
    assert remote_requests(driver) == []
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []


LINES_OF_WORDS = """
const name = [...document.querySelectorAll("td code")].find((code) => code.textContent === arguments[0]);
const range = document.createRange();
return [...name.childNodes].filter((part) => part.nodeType === Node.TEXT_NODE).map((word) => {
  range.selectNodeContents(word);
  return [word.data, range.getClientRects().length];
});
"""


def test_names_in_tables_break_between_their_words_alone(browser, site):
    driver = browser(site / "methods.html", width=400)
    lines = driver.execute_script(LINES_OF_WORDS, "StructuredVectorScaling")
    assert lines == [["Structured", 1], ["Vector", 1], ["Scaling", 1]]


def test_the_search_works_from_the_disk(browser, site):
    driver = browser(site / "concepts" / "calibration.html")
    field = driver.find_element("css selector", "input.md-search__input")
    driver.execute_script("arguments[0].focus()", field)
    field.send_keys("inverse_focal")
    titles = "return [...document.querySelectorAll('.md-search-result__item :is(h1, h2)')].map((e) => e.textContent)"
    wait_until(lambda: "Maps" in driver.execute_script(titles))
    assert remote_requests(driver) == []


def test_the_search_finds_explanations_first(browser, site):
    driver = browser(site / "index.html")
    field = driver.find_element("css selector", "input.md-search__input")
    driver.execute_script("arguments[0].focus()", field)
    first = "return document.querySelector('.md-search-result__item :is(h1, h2)')?.textContent"
    expected = {"LLM": "Language models (LLMs)", "ONNX": "Start here", "threshold": "Decisions"}
    expected |= {"Platt": "Method cards", "lm_eval": "Language models (LLMs)", "docker": "In production"}
    expected |= {"conformal": "Prediction sets and intervals", "pandas": "How rows are read", "fairness": "Decisions"}
    # Words beside punctuation are words too, as that of the file (CITATION.cff).
    expected |= {"citation": "Probabilities you can trust", "Platt scaling": "Method cards"}
    for query, title in expected.items():
        field.clear()
        field.send_keys(query)
        wait_until(lambda title=title: driver.execute_script(first) == title)
        assert driver.execute_script(first) == title
    assert remote_requests(driver) == []


@pytest.mark.parametrize(("page", "needle"), [("report", "calibration error"), ("explorer", "γ")])
def test_the_live_pages_are_alive(browser, site, page, needle):
    link = browser(site / "live" / f"{page}.html").find_element("css selector", "a.md-button")
    driver = browser(Path(unquote(urlsplit(link.get_attribute("href")).path)))
    assert re.search(needle, driver.find_element("css selector", "body").text)


def test_formulas_are_drawn(browser, site):
    driver = browser(site / "concepts" / "losses.html")
    drawn = "return [...document.querySelectorAll('.arithmatex')].map((e) => e.querySelectorAll('.katex').length)"
    wait_until(lambda: driver.execute_script("return document.readyState") == "complete")
    assert set(driver.execute_script(drawn)) == {1}
    assert driver.execute_script("return document.querySelectorAll('.katex-error').length") == 0
