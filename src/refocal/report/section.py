"""What a page is made of. A section takes an Evaluation and returns its heading, sentences and HTML, or None."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


class Section(NamedTuple):
    """One section of a page: `key` is its id, `facts` are plain sentences that stand above `html`."""

    key: str
    title: str
    facts: tuple[str, ...]
    html: Markup


class Figure(NamedTuple):
    """A chart under a heading; in the page its id is `fig-` and the key."""

    key: str
    heading: str
    svg: str
    caption: str = ""


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("refocal.report", "templates")
    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=loader)
    made.filters["unbroken"] = unbroken
    return made


def fill(template: str, **values: Any) -> Markup:
    """A file of `templates` with values; text is escaped, what `inline` made is not."""
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(**values))  # noqa: S704, escaped by the template


def inline(html: str) -> Markup:
    """Our own HTML or SVG, which is put into a page as it is."""
    from markupsafe import Markup

    return Markup(html)  # noqa: S704, made here and escaped there


def figures(*shown: Figure) -> Markup:
    """Charts side by side."""
    return fill("figures.html", figures=shown)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *shown: Figure) -> Markup:
    """A table of text, with charts below it."""
    return fill("several.html", heads=heads, rows=rows, figures=shown)


def wide_figure(key: str, svg: str) -> Markup:
    """One chart of the width of the page."""
    return inline(f'<figure id="fig-{key}" class="wide">{svg}</figure>')


def page(title: str, about: Sequence[str], verdict: str, sections: Sequence[Section], **more: Any) -> str:
    """A page as text; `more` are the `numbers`, `checks`, `notes` and the `script` of one that has them."""
    rest = {"numbers": (), "checks": (), "notes": "", "script": ""} | more
    parts = {"title": title, "about": about, "verdict": unbroken(verdict), "sections": sections}
    return fill("page.html", style=asset("style.css"), **parts, **rest) + "\n"


def unbroken(text: str) -> str:
    """No line ends between a number and its percent sign."""
    return text.replace(" %", "\u00a0%")


def asset(name: str) -> Markup:
    """A style sheet or script of this package."""
    return inline((files("refocal.report") / "assets" / name).read_text(encoding="utf-8").rstrip("\n"))
