"""Files that are either written whole or not at all."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where a file that is open cannot be removed anyway
    fcntl = None  # type: ignore[assignment]


@contextmanager
def replace_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """The name of a temporary file beside `path`, which takes its place once the block has ended without an error.

    A reader sees the old content or the new, never a part; after an error or an interrupt the old file is as it was,
    and the error names `path`. What a run that was killed left beside the same `path` is removed. Of a symbolic link
    the file that it leads to is replaced, and the link stays.
    """
    target = Path(path).resolve()
    remove_left_over(target.parent, target.name)
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)  # the mode that any new file gets
        try:
            _lock(handle)
            yield part
        finally:
            os.close(handle)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(target)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(part), part):
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        part.unlink(missing_ok=True)


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file, whole or not at all."""
    with replace_atomically(path) as part:
        part.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def is_hidden(steps: Sequence[str]) -> bool:
    """Whether a file is not data, by its name or by that of a folder that it is in; `steps` are those of its path.

    Names that begin with a point or an underscore are those of copies and leftovers of other programs, as in
    .ipynb_checkpoints, _temporary and _delta_log. A folder such as _day=3 is a column, as in Spark.

    >>> is_hidden(["a.csv"]), is_hidden([".ipynb_checkpoints", "a.csv"]), is_hidden(["_day=3", "a.csv"])
    (False, True, False)
    """
    *folders, name = steps
    of_folders = [folder.startswith((".", "_")) and "=" not in folder for folder in folders]
    return name.startswith((".", "_")) or any(of_folders)


def remove_left_over(folder: Path, target: str | None = None) -> None:
    """Remove the temporary files of runs that were killed: those of one target, or of all files of a folder.

    A run holds a lock on its temporary file, which ends with the run however that ends.
    """
    temporary = re.compile(r"\.(?P<target>.+)\.[0-9a-f]{32}\.part", re.DOTALL)
    with suppress(OSError):  # a folder that does not exist is reported where the file is made
        for entry in os.scandir(folder):
            parts = temporary.fullmatch(entry.name)
            if parts is not None and target in (None, parts["target"]):
                _remove_unlocked(Path(entry.path))


def _lock(handle: int) -> bool:
    """Whether this process now holds the lock of a file; always where the system has none."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process holds it, or the file system has no locks
        return False
    return True


def _remove_unlocked(file: Path) -> None:
    with suppress(OSError):  # another run was faster, or the file is not ours to remove
        handle = os.open(file, os.O_RDWR)
        try:
            is_left_over = _lock(handle)
        finally:
            os.close(handle)
        if is_left_over:
            file.unlink(missing_ok=True)
