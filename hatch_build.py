"""Compiles src/refocal/engine/kernel.c while the package is built or installed.

It needs a C compiler (`CC`, or cc; `CFLAGS` are added) and nothing else. Where there is none, or REFOCAL_NO_KERNEL is
set, the package is built without: the same results by NumPy, several times slower.

    python hatch_build.py    compiles in place, after the source was changed

An editable install keeps a library that is newer than its sources, so that a second environment need not compile again.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path

FOLDER = Path(__file__).parent / "src" / "refocal" / "engine"
SOURCES, LIBRARY = (FOLDER / "kernel.c", FOLDER / "kernel_single.c"), FOLDER / "libkernel.so"
# Without -ffast-math: NaN and infinities keep their meaning. What is given up is errno and exception flags. -fwrapv:
# sums of the bits of numbers, as in exp and log, may wrap.
FLAGS = ["-O3", "-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden", "-ffp-contract=fast",
         "-fno-math-errno", "-fno-trapping-math", "-fwrapv"]  # fmt: skip


def compile_kernel() -> str | None:
    """Write the library; None, or why there is none. An older one is replaced at once, or removed."""
    problem = _compile()
    if problem is not None:
        LIBRARY.unlink(missing_ok=True)
    return problem


def is_current() -> bool:
    """Whether the library can be loaded here, and is newer than the sources and the flags that it is made by."""
    try:
        ctypes.CDLL(str(LIBRARY))
    except OSError:
        return False
    made = LIBRARY.stat().st_mtime
    return all(file.stat().st_mtime < made for file in (*FOLDER.glob("*.[ch]"), Path(__file__)))


def _lock(file) -> None:
    """Wait until no other build holds `file`, and hold it until it is closed; not on Windows."""
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)


def _compile() -> str | None:
    if os.environ.get("REFOCAL_NO_KERNEL"):
        return "REFOCAL_NO_KERNEL is set"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        made = Path(folder) / LIBRARY.name
        try:
            flags = [*FLAGS, *shlex.split(os.environ.get("CFLAGS", ""))]
            command = [*compiler, *flags, *map(str, SOURCES), "-o", str(made), "-lm"]
            subprocess.run(command, check=True, capture_output=True)  # noqa: S603
        except FileNotFoundError:
            return f"there is no C compiler {compiler[0]!r}"
        except subprocess.CalledProcessError as error:
            return f"{compiler[0]} failed: {error.stderr.decode(errors='replace').strip()[:500]}"
        os.replace(made, LIBRARY)
    return None


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    pass
else:

    class KernelHook(BuildHookInterface):
        """Adds the compiled library to the wheel, which then belongs to this platform alone."""

        def initialize(self, version, build_data):
            """What hatchling calls before it collects files."""
            if self.target_name != "wheel":
                return
            with open(SOURCES[0], "rb") as source:
                _lock(source)  # of two installs at the same time the second keeps what the first has made
                keep = version == "editable" and not os.environ.get("REFOCAL_NO_KERNEL") and is_current()
                problem = None if keep else compile_kernel()
            if problem is not None:
                self.app.display_warning(f"refocal is built without its compiled kernel: {problem}.")
                return
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["artifacts"].append("src/refocal/engine/libkernel.so")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"


if __name__ == "__main__":
    reason = compile_kernel()
    sys.exit(None if reason is None else f"not compiled: {reason}")
