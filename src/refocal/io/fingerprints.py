"""Texts that change with the files that rows are read from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from refocal.io.files import filesystem_of
from refocal.io.parts import Part, Table


def fingerprint(part: Part, state: Callable[[str], str]) -> str:
    """A fingerprint that changes when the source of a part does, or the file of its labels.

    `state` says of a file or folder what `state_of_place` does; several parts may be of one.
    """
    place = f"{part.where}:{getattr(part, 'first', 0)}:{part.n_rows}"
    if isinstance(part, Table) and "://" in part.where:
        filesystem, path = filesystem_of(part.where, part.query.options)
        return f"{place}:{filesystem.ukey(path)}"
    mapped = [getattr(getattr(part, name, None), "file", None) for name in ("values", "labels")]
    return ":".join([place, *map(state, dict.fromkeys(filter(None, [part.where, *mapped])))])


def state_of_place(place: str) -> str:
    """Size, time and both ends of a file, or of all files of a folder, such as a Zarr group."""
    files = [file for file in (Path(place), *sorted(Path(place).rglob("*"))) if file.is_file()]
    states = ";".join(map(_state_of_file, files))
    return hashlib.sha256(states.encode()).hexdigest() if len(files) > 1 else states


def _state_of_file(file: Path) -> str:
    """A text that changes with the file.

    A copy may keep the time of what it replaces, and rows of numbers their length: the ends of the file then tell,
    unless it was changed in between alone. Those of Parquet files have the statistics of all columns.
    """
    n_bytes_of_end = 1 << 16
    stat = file.stat()
    with file.open("rb") as opened:
        ends = hashlib.sha256(opened.read(n_bytes_of_end))
        opened.seek(max(n_bytes_of_end, stat.st_size - n_bytes_of_end))
        ends.update(opened.read(n_bytes_of_end))
    return f"{stat.st_size}:{stat.st_mtime_ns}:{ends.hexdigest()}"
