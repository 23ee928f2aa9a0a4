"""Where files are: what a path or an address stands for, and the errors about those that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from refocal.errors import FormatError, MissingExtraError, RefocalError, need

Options = Mapping[str, Any] | None
"""Options of a file system besides the address, such as the endpoint and keys of an object store."""
SEPARATORS = {".csv": ",", ".tsv": "\t"}
JSON_LINES = (".jsonl", ".ndjson")
TEXT = (*SEPARATORS, *JSON_LINES)
TABLES = (".parquet", *TEXT)
# Files of at least this many bytes are not read whole; text takes several times its size in memory.
LARGE_FILE, LARGE_TEXT = 1 << 30, 1 << 26
# Predictions do not compress to a hundredth of their size; results that fit into any memory are always allowed.
MAX_EXPANSION, ALWAYS_ALLOWED = 100, 1 << 28


@contextmanager
def refusing(file: str, problem: str) -> Iterator[None]:
    """Turn what a library raises over a damaged file into one typed line; the system's errors about a path stay."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{file}: no such file.") from error
    except (RefocalError, PermissionError):
        raise
    except Exception as error:  # each library has its own: SystemError, MemoryError, ArrowInvalid
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise FormatError(f"{file}: {problem}: {reason}") from error


def check_expansion(expanded: int, stored: int) -> None:
    """Refuse what would unpack to far more than it holds, as a zip bomb does."""
    if expanded > max(ALWAYS_ALLOWED, MAX_EXPANSION * stored):
        raise ValueError(f"it would unpack {stored:,} bytes to {expanded:,}, which no numbers of a model do")


def filesystem_of(address: str, options: Options = None) -> tuple[Any, str]:
    """The file system of an address that fsspec knows, and the path in it."""
    url_to_fs = need("fsspec", "dask", "Addresses of files").core.url_to_fs
    try:
        filesystem, path = url_to_fs(address, **(options or {}))
    except (ImportError, ValueError) as error:
        protocol = address.partition("://")[0]
        if isinstance(error, ImportError) and protocol in ("s3", "s3a"):
            raise MissingExtraError(f"{protocol}://", "s3", "s3fs") from error
        raise FormatError(f"{address}: {str(error).splitlines()[0]}") from error
    return filesystem, path


def files_of(place: str, options: Options = None) -> list[str]:
    """The tables of a folder, a pattern or an address, in the order of their names.

    Of a folder with tables of several formats, those of the first of TABLES are taken.
    """
    if "://" in place:
        filesystem, path = filesystem_of(place, options)
        is_folder = not (is_pattern(path) or path.lower().endswith(TABLES))
        try:
            found = filesystem.glob(path.rstrip("/") + "/**" if is_folder else path)
        except FileNotFoundError:
            raise
        except OSError as error:  # no such bucket, no permission
            raise OSError(f"{place}: {' '.join(str(error).split())[:300] or type(error).__name__}") from error
        found = [filesystem.unstrip_protocol(file) for file in found]
    elif is_folder := Path(place).is_dir():
        found = [str(file) for file in Path(place).rglob("*")]
    else:
        found = glob(place, recursive=True) if is_pattern(place) else [place]
    files = sorted(file for file in found if not file.rpartition("/")[2].startswith((".", "_")))
    if is_folder:
        of_format = ([file for file in files if file.lower().endswith(ending)] for ending in TABLES)
        files = next(filter(None, of_format), [])
    if not files:
        raise FileNotFoundError(f"{place}: no tables there.")
    return files


def is_pattern(place: str) -> bool:
    """Whether a place stands for several files, as in a shell; a file or folder of just that name is one."""
    return has_magic(place) and not Path(place).exists()


def is_several(place: str) -> bool:
    """Whether a place stands for a set of tables: a folder, a pattern, an address."""
    return not is_zarr(place) and ("://" in place or is_pattern(place) or Path(place).is_dir())


def is_zarr(place: str) -> bool:
    """Whether a path is that of a Zarr store."""
    marks = (".zgroup", ".zarray", "zarr.json")
    return place.rstrip("/").endswith(".zarr") or any((Path(place) / mark).exists() for mark in marks)


def is_large(place: str) -> bool:
    """Whether a path is processed in blocks rather than read whole."""
    if is_zarr(place) or is_several(place):
        return True
    file, ending = Path(place), Path(place).suffix.lower()
    in_blocks = ending in (".npy", ".npz", *TABLES)
    return in_blocks and file.is_file() and file.stat().st_size >= (LARGE_TEXT if ending in TEXT else LARGE_FILE)
