"""What a page is made of: a section takes an Evaluation and returns its heading, sentences and charts, or None."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from refocal._svg import Plot, tips_script
from refocal.report import charts


class Figure(NamedTuple):
    """A chart under a heading, without one as wide as the page; its id is `fig-` and the key."""

    key: str
    heading: str
    plot: Plot
    caption: str = ""


class Section(NamedTuple):
    """One section of a page: `key` is its id, `facts` are plain sentences above `html`, a table and charts."""

    key: str
    title: str
    facts: Sequence[str]
    html: str = ""
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    figures: Sequence[Figure] = ()


def asset(name: str) -> Markup:
    """A style sheet or script of this package."""
    text = (files("refocal.report") / "assets" / name).read_text(encoding="utf-8")
    return Markup(text.rstrip("\n"))  # noqa: S704, our own


ENVIRONMENT = Environment(
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    loader=PackageLoader("refocal.report", "templates"),
)
ENVIRONMENT.globals |= {"asset": asset, "charts": charts, "tips_script": tips_script}
# No line ends between a number and its percent sign.
ENVIRONMENT.filters["unbroken"] = lambda text: text.replace(" %", "\u00a0%")


def fill(template: str, **values: Any) -> Markup:
    """A file of `templates` with values; text is escaped, Markup is not."""
    return Markup(ENVIRONMENT.get_template(template).render(**values))  # noqa: S704, escaped by the template
