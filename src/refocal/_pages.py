"""Templates of HTML pages that need no other file."""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def environment(templates: str) -> Environment:
    """The templates of a folder of this package, in which `asset` stands for a script or a style sheet of it."""
    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=PackageLoader("refocal", templates),
        extensions=["jinja2.ext.do"],
    )
    made.globals["asset"] = lambda name: Markup((files("refocal") / name).read_text("utf-8").rstrip("\n"))  # noqa: S704
    return made
