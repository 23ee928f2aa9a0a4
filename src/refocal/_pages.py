"""Templates of HTML pages that need no other file."""

from __future__ import annotations

from importlib.resources import files

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def environment(templates: str) -> Environment:
    """The templates of a folder and those that all share, in which `asset` stands for a script or a style sheet."""
    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=ChoiceLoader([PackageLoader("refocal", templates), PackageLoader("refocal", ".")]),
        extensions=["jinja2.ext.do"],
    )
    made.globals["asset"] = lambda name: Markup((files("refocal") / name).read_text("utf-8").rstrip("\n"))  # noqa: S704
    return made
