"""One page to move γ and T on and see what they do: the map, the loss and its proper part, the closest temperature.

The page computes everything itself; `maps.js` is the Python of `refocal.maps` and `refocal.theory` once more, and the
tests hold the two together.
"""

from __future__ import annotations

import os
from importlib.resources import files
from typing import Any

from refocal._files import write_atomically
from refocal.theory.closest import LOGIT_RANGE, MARGIN, POINTS, WIDTH

__all__ = ["render_page", "write_page"]

START = {"gamma": 2.0, "temperature": 0.5, "q": 0.35}


def write_page(path: str | os.PathLike[str]) -> None:
    """Write the page, whole or not at all.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_page(f"{folder}/explore.html")
    """
    write_atomically(path, render_page())


def render_page() -> str:
    """The page as text: no network, no other file.

    >>> page = render_page()
    >>> page.startswith("<!doctype html>"), "http://" in page.replace("http://www.w3.org", "")
    (True, False)
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    folder = files(__package__)
    parts = {
        name: Markup((folder / file).read_text(encoding="utf-8").rstrip("\n"))  # noqa: S704, our own files
        for name, file in {"style": "style.css", "maps": "maps.js", "plots": "plots.js", "page": "page.js"}.items()
    }
    template = environment.from_string((folder / "page.html").read_text(encoding="utf-8"))
    return template.render(settings=_settings(), **parts) + "\n"


def _settings() -> dict[str, Any]:
    """What the page shares with Python: the logits that are compared, and how the closest temperature is searched."""
    return {
        "start": START,
        "range": {n: {"depth": depth, "step": step} for n, (depth, step) in LOGIT_RANGE.items() if n in (2, 3)},
        "search": {"points": POINTS, "margin": MARGIN, "width": WIDTH},
    }
