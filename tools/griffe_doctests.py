"""Examples in docstrings as code on the site: doctests that stand outside a section are put between fences."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"(?:^[ ]*>>> .*\n?(?:^[ ]*\S.*\n?)*)+", re.M)


class FenceDoctests(griffe.Extension):
    """Wraps every run of `>>>` lines, with what they print, in a block of its own."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object, as griffe has read it."""
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = DOCTEST.sub(_fenced, obj.docstring.value)


def _fenced(match: re.Match[str]) -> str:
    return f"```pycon\n{match[0].rstrip()}\n```\n"
