"""Templates of HTML pages that need no other file."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from refocal.errors import need

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def environment(templates: str) -> Environment:
    """The templates of a folder and those that all share, in which `asset` stands for a script or a style sheet."""
    jinja2 = need("jinja2", "cli", "An HTML page")
    made: Environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader("refocal", templates), jinja2.PackageLoader("refocal", ".")]),
        extensions=["jinja2.ext.do"],
    )
    made.globals["asset"] = _asset
    return made


def _asset(name: str) -> Markup:
    """The text of a file of the package, which a page takes as it is."""
    from markupsafe import Markup

    return Markup((files("refocal") / name).read_text("utf-8").rstrip("\n"))  # noqa: S704, the file is ours
