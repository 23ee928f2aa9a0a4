"""Tables between two marks of a page, `<!--NAME-->` and `<!--/NAME-->`, which a benchmark writes anew."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from refocal._files import write_atomically

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
RESULTS = ROOT / "benchmarks" / "results"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown, a line for each row."""
    first, *others = (f"| {' | '.join(cells)} |" for cells in (head, *rows))
    return [first, "|---" * len(head) + "|", *others]


def write(path: Path, name: str, lines: Sequence[str]) -> None:
    """Put lines in the place of what lies between the marks of `name`."""
    marks = f"<!--{name}-->", f"<!--/{name}-->"
    between = re.compile(f"{marks[0]}.*?{marks[1]}", re.DOTALL)
    text = path.read_text()
    if not between.search(text):
        raise SystemExit(f"{path} has no place for {name!r}: it must have the marks {marks[0]} and {marks[1]}.")
    block = "\n\n".join((marks[0], "\n".join(lines).strip(), marks[1]))
    write_atomically(path, between.sub(lambda _: block, text))


def machine() -> str:
    """The processor, and how busy other programs keep it."""
    known = Path("/proc/cpuinfo")
    found = re.search("model name\t: (.*)", known.read_text()) if known.exists() else None
    name, python = found[1] if found else platform.machine(), platform.python_version()
    return f"{name}, {os.cpu_count()} cores at a load of {os.getloadavg()[0]:.0f}, Python {python}"
