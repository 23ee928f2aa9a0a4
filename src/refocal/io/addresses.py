"""Files by path, pattern or address: an object store is one of the file systems that fsspec knows."""

from __future__ import annotations

from collections.abc import Mapping
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from refocal.errors import FormatError, MissingExtraError
from refocal.io.extras import need

SEPARATORS = {".csv": ",", ".tsv": "\t"}
JSON_LINES = (".jsonl", ".ndjson")
TEXT = (*SEPARATORS, *JSON_LINES)
TABLES = (".parquet", *TEXT)

Options = Mapping[str, Any] | None
"""What a file system is told beside the address, such as the endpoint and keys of an object store."""


def files_of(place: str, options: Options = None) -> list[str]:
    """The tables of a folder, a pattern or an address, in the order of their names.

    Of a folder with tables of several formats, those of the first of TABLES are taken.
    """
    if "://" in place:
        filesystem, path = filesystem_of(place, options)
        if is_pattern(path) or path.lower().endswith(TABLES):
            found = _globbed(filesystem, path, place)
        else:
            found = _tables_among(_globbed(filesystem, path.rstrip("/") + "/**", place))
        found = [filesystem.unstrip_protocol(file) for file in found]
    elif Path(place).is_dir():
        found = _tables_among([str(file) for file in Path(place).rglob("*")])
    elif is_pattern(place):
        found = glob(place, recursive=True)
    else:
        found = [place]
    files = sorted(file for file in found if _is_visible(file))
    if not files:
        raise FileNotFoundError(f"{place}: no tables there.")
    return files


def _tables_among(files: list[str]) -> list[str]:
    """The files of the first format that there is."""
    for ending in TABLES:
        found = [file for file in files if file.lower().endswith(ending) and _is_visible(file)]
        if found:
            return found
    return []


def _is_visible(file: str) -> bool:
    return not file.rpartition("/")[2].startswith((".", "_"))


def is_pattern(place: str) -> bool:
    """Whether a place stands for several files, as in a shell; a file or folder of just that name is one."""
    return has_magic(place) and not Path(place).exists()


def filesystem_of(address: str, options: Options = None) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    url_to_fs = need("fsspec", "dask", "Addresses of files").core.url_to_fs
    protocol = address.partition("://")[0]
    try:
        filesystem, path = url_to_fs(address, **(options or {}))
    except ImportError as error:
        if protocol in ("s3", "s3a"):
            raise MissingExtraError(f"{protocol}://", "s3", "s3fs") from error
        raise FormatError(f"{address}: {str(error).splitlines()[0]}") from error
    except ValueError as error:
        raise FormatError(f"{address}: {str(error).splitlines()[0]}") from error
    return filesystem, path


def state_of(address: str, options: Options = None) -> str:
    """What changes when the file at an address does: size, time or checksum, as the store has them."""
    filesystem, path = filesystem_of(address, options)
    return str(filesystem.ukey(path))


def _globbed(filesystem: Any, path: str, place: str) -> list[str]:
    try:
        found: list[str] = filesystem.glob(path)
    except FileNotFoundError:
        raise
    except OSError as error:  # no such bucket, no permission
        raise OSError(f"{place}: {' '.join(str(error).split())[:300] or type(error).__name__}") from error
    return found
