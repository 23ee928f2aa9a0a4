"""Notes in Markdown as HTML that loads nothing and runs nothing."""

from __future__ import annotations

import re

from markupsafe import Markup


def notes_html(text: str) -> Markup:
    r"""Markdown as HTML: markup in it stays text, and images, which a page would have to load, are left out.

    >>> notes_html("**Trained** on <b>May</b> data.")
    Markup('<p><strong>Trained</strong> on &lt;b&gt;May&lt;/b&gt; data.</p>\n')
    """
    from markdown_it import MarkdownIt

    html = MarkdownIt("js-default", {"linkify": False}).disable("image").render(text)
    # The page has the only heading of the first level.
    below = re.sub(r"<(/?)h([1-5])>", lambda tag: f"<{tag[1]}h{int(tag[2]) + 1}>", html)
    return Markup(below)  # noqa: S704, markdown-it has escaped what stays text
