"""What an installation brings: packages, megabytes and seconds in an empty environment, and how long an import takes.

    python benchmarks/install_size.py . '.[cli]' '.[plot]' '.[all]'

Each argument is what pip is given. Packages are counted without pip and setuptools. Times are of the processor, so that
other work on the machine and the network count little: the seconds of pip, which builds refocal and compiles what it
installs, and the milliseconds of an import, the median of nine new processes.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

IMPORTS = ("import numpy", "import refocal", "from refocal import AutoCalibration")
CLOCK = "import time; start = time.process_time(); {}; print(time.process_time() - start)"


def main(requirements: list[str]) -> None:
    print(f"| `pip install` | packages | MB | s | {' | '.join(f'`{line}`, ms' for line in IMPORTS)} |")
    print("|---" * (4 + len(IMPORTS)) + "|")
    for requirement in requirements:
        print(f"| `{requirement}` | {' | '.join(measured(requirement))} |", flush=True)


def measured(requirement: str) -> list[str]:
    """The cells of one line of the table."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

        def run(*arguments: str, place: str | None = None) -> str:
            command = [str(python), *arguments]
            return subprocess.run(  # noqa: S603
                command, check=True, capture_output=True, text=True, env=environment, cwd=place
            ).stdout

        size_before = megabytes(folder)
        start = os.times()
        run("-m", "pip", "install", "--disable-pip-version-check", requirement)
        end = os.times()
        seconds = end.children_user + end.children_system - start.children_user - start.children_system
        size = megabytes(folder) - size_before
        listed = run("-m", "pip", "list", "--disable-pip-version-check", "--format=freeze").split()
        n_packages = sum(line.partition("==")[0] not in ("pip", "setuptools", "wheel") for line in listed)
        cells = [str(n_packages), f"{size:.0f}", f"{seconds:.0f}"]
        for line in IMPORTS:
            run("-c", line, place=folder)  # so that everything is compiled and in the cache of files
            times = [float(run("-c", CLOCK.format(line), place=folder)) for _ in range(9)]
            cells.append(f"{1000 * statistics.median(times):.0f}")
    return cells


def megabytes(folder: str) -> float:
    """The size of all files of a folder."""
    return sum(path.lstat().st_size for path in Path(folder).rglob("*")) / 1e6


if __name__ == "__main__":
    main(sys.argv[1:] or ["."])
