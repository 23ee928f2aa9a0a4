"""`refocal explore`: the page to explore the maps with."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path

from refocal.cli import options
from refocal.cli.printing import say_or_json


def explore(output: Path = Path("explore.html"), show: bool | None = None, json: options.Json = False) -> None:
    """Write a page with sliders for γ, T and a curve: real logits or your own, calibrated live; the maps and losses.

    -o, --output  Where to write it.
    --open/--no-open  Open it in a browser; default: only in a terminal.

    refocal explore -o explore.html --no-open
    """
    from refocal.explore import write_page

    options.check_output(output, options.ONLY_HTML)
    write_page(output)
    say_or_json(json, {"output": str(output)}, f"Wrote {output}.")
    if (sys.stdout.isatty() and not json) if show is None else show:
        webbrowser.open(output.resolve().as_uri())
