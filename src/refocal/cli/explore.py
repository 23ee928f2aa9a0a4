"""`refocal explore`: the page to explore the maps with."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path

from refocal.cli import options
from refocal.cli.printing import IS_JSON, result, say


def explore(output: Path = Path("explore.html"), open: bool | None = None) -> None:  # noqa: A002
    """Write a page with sliders for γ, T and a curve: real logits or your own, calibrated live; the maps and losses.

    -o, --output  Where to write it.
    --open/--no-open  Open it in a browser; default: only in a terminal.

    refocal explore -o explore.html --no-open
    """
    from refocal.explore import write_page

    options.check_output(output, options.ONLY_HTML)
    write_page(output)
    result({"output": str(output)})
    say(f"Wrote {output}.")
    if (sys.stdout.isatty() and not IS_JSON.get()) if open is None else open:
        webbrowser.open(output.resolve().as_uri())
