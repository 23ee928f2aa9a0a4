"""Files that are either written whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replace_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """The name of a temporary file beside `path`, which takes its place once the block has ended without an error.

    A reader sees the old content or the new, never a part; after an error or an interrupt the old file is as it was,
    and the error names `path`.
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # the mode that any new file gets
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(target)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(part), part):
            raise
        raise OSError(error.errno, error.strerror, str(target)) from error
    finally:
        part.unlink(missing_ok=True)


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file, whole or not at all."""
    with replace_atomically(path) as part:
        part.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
