"""Where files are: what a path or an address stands for, and the errors about those that cannot be read."""

from __future__ import annotations

import codecs
import gzip
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from glob import glob, has_magic
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from refocal._files import is_hidden
from refocal._limits import large_file, limit
from refocal.errors import FormatError, MissingExtraError, RefocalError, need

Options = Mapping[str, Any] | None
"""Options of a file system besides the address, such as the endpoint and keys of an object store."""
SEPARATORS = {".csv": ",", ".tsv": "\t"}
JSON_LINES = (".jsonl", ".ndjson")
TEXT = (*SEPARATORS, *JSON_LINES)
TABLES = (".parquet", *TEXT)


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
        if isinstance(error, UnicodeDecodeError) and ending_of(file) in SEPARATORS:
            raise not_utf8(file) from error
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise FormatError(f"{file}: {problem}: {reason}") from error


def not_utf8(file: str) -> FormatError:
    """The error about text in another encoding, such as the UTF-16 of "Unicode text" of Excel."""
    return FormatError(
        f"{file}: cannot be read as {ending_of(file)}: it is no text in UTF-8. Save it so (CSV UTF-8 in Excel)."
    )


def check_expansion(expanded: int, stored: int) -> None:
    """Refuse what would unpack to far more than it holds, as a zip bomb does."""
    most_expansion = 100  # predictions do not compress to a hundredth of their size
    always_allowed = limit("REFOCAL_UNPACKED", 1 << 28)  # bytes, which fit into any memory
    if expanded > max(always_allowed, most_expansion * stored):
        raise ValueError(f"it would unpack {stored:,} bytes to {expanded:,}, which no numbers of a model do")


class Unpacked(io.RawIOBase):
    """What a gzip file holds, in a stream that ends with an error where it holds far more than it should."""

    def __init__(self, packed: Any) -> None:
        self._packed = packed
        self._n_stored = packed.seek(0, io.SEEK_END)
        packed.seek(0)
        self._content = gzip.GzipFile(fileobj=packed)
        self._n_read = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, and return how many bytes are in it."""
        n_bytes = self._content.readinto(buffer)
        self._n_read += n_bytes
        check_expansion(self._n_read, self._n_stored)
        return n_bytes

    def close(self) -> None:
        """Close the file too."""
        self._content.close()
        self._packed.close()
        super().close()


class WithLastLine(io.RawIOBase):
    """What a text file holds, with a further line behind it."""

    def __init__(self, content: Any, line: bytes) -> None:
        self._content = content
        self._line = line
        self._last = b"\n"

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, and return how many bytes are in it."""
        some = self._content.read(len(buffer))
        if some:
            self._last = some[-1:]
        else:
            is_ended = not self._line or self._last in b"\r\n"
            some = (self._line if is_ended else b"\n" + self._line)[: len(buffer)]
            self._line = self._line[len(some) if is_ended else len(some) - 1 :]
            self._last = b"\n"
        buffer[: len(some)] = some
        return len(some)


class WithWholeLineEnds(io.BufferedReader):
    """Text of UTF-8 for pyarrow's reader of CSV, in pieces none of which ends between the two bytes of a line end.

    pyarrow leaves out a line feed at the start of a piece if the one before ended with a carriage return, also within
    quotes.
    """

    def __init__(self, content: io.RawIOBase) -> None:
        super().__init__(content)
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def read(self, size: int | None = -1) -> bytes:
        """Some bytes, one more where they would end within a line end; what is no UTF-8 is an error."""
        some = super().read(size)
        while some.endswith(b"\r") and (further := super().read(1)):
            some += further
        self._decoder.decode(some, final=not some)
        return some


def ending_of(place: str | Path) -> str:
    """The ending that says what a file holds, in lower case: of compressed text the one before .gz.

    >>> ending_of("rows.CSV"), ending_of("rows.csv.gz"), ending_of("rows.npz.gz")
    ('.csv', '.csv', '.gz')
    """
    path = Path(place)
    ending = path.suffix.lower()
    inner = Path(path.stem).suffix.lower()
    return inner if ending == ".gz" and inner in TEXT else ending


def stem_of(place: str | Path) -> str:
    """The name of a file without its ending.

    >>> stem_of("days/monday.csv"), stem_of("days/monday.csv.gz")
    ('monday', 'monday')
    """
    stem = Path(place).stem
    return Path(stem).stem if Path(place).suffix.lower() == ".gz" else stem


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

    Below a folder, and where a pattern does not say so, names that begin with . or _ are left out: they are of jobs
    that have not ended, of editors and of notebooks. A folder with tables of several formats is refused, and rows that
    would be read twice.
    """
    if "://" in place:
        filesystem, path = filesystem_of(place, options)
        is_folder = not (is_pattern(path) or ending_of(path) in TABLES)
        try:
            matches = filesystem.glob(path.rstrip("/") + "/**" if is_folder else path, detail=True)
        except FileNotFoundError:
            raise
        except OSError as error:  # no such bucket, no permission
            raise OSError(f"{place}: {' '.join(str(error).split())[:300] or type(error).__name__}") from error
        are_files = {filesystem.unstrip_protocol(file): about["type"] != "directory" for file, about in matches.items()}
    elif is_folder := Path(place).is_dir():
        are_files = dict.fromkeys(_files_below(place), True)
    else:
        matches = glob(place, recursive=True) if is_pattern(place) else [place]
        are_files = {file: not Path(file).is_dir() for file in matches}
    goes_down = is_folder or "**" in place  # the files of a folder are there beside it
    files = sorted(file for file, is_file in are_files.items() if is_file or not goes_down)
    if is_folder or is_pattern(place):
        files = [file for file in files if not _is_passed_over(file, place)]
    if is_folder:
        of_format = {ending: [file for file in files if ending_of(file) == ending] for ending in TABLES}
        present = [ending for ending, some in of_format.items() if some]
        if len(present) > 1:
            problem = f"holds {' and '.join(present)} files; say which with a pattern"
            raise FormatError(f"{place}: {problem} such as '{place.rstrip('/')}/*{present[0]}'.")
        files = of_format[present[0]] if present else []
    _check_once(files)
    if not files:
        raise FileNotFoundError(f"{place}: no tables there.")
    return files


def _files_below(folder: str) -> Iterator[str]:
    """All files in a folder and in those below it, also where these are links, but for links to a folder above."""
    for here, folders, names in os.walk(folder, followlinks=True):
        above = Path(here).resolve()
        folders[:] = [name for name in folders if not above.is_relative_to(Path(here, name).resolve())]
        yield from (str(Path(here, name)) for name in names)


def _is_passed_over(file: str, place: str) -> bool:
    """Whether a file of a data set is no data by its name or its folders, unless a pattern asks for such names.

    >>> _is_passed_over("rows/.ipynb_checkpoints/a.csv", "rows"), _is_passed_over("_rows/a.csv", "_rows/*.csv")
    (True, False)
    """
    names = _steps(file)[_n_spelt_out(place) :]
    asked = [step for step in _steps(place) if is_pattern(place) and step.startswith((".", "_"))]
    names = ["" if any(fnmatchcase(name, step) for step in asked) else name for name in names]
    return bool(names) and is_hidden(names)


def _check_once(files: list[str]) -> None:
    """Refuse tables that are there twice: packed as well, or under another name by a link."""
    twice = "the rows would count twice. Remove one of them."
    both = next((file for file in files if f"{file}.gz" in files), None)
    if both is not None:
        raise FormatError(f"{both}: also there as .gz; {twice}")
    known: dict[str, str] = {}
    for file in files:
        before = known.setdefault(file if "://" in file else os.path.realpath(file), file)
        if before != file:
            raise FormatError(f"{file}: also there as {before}; {twice}")


def _steps(place: str) -> list[str]:
    """The names that a path or an address consists of."""
    return place.rstrip("/").split("/") if "://" in place else list(Path(place).parts)


def _n_spelt_out(place: str) -> int:
    """How many steps of a place come before the first that is not spelt out; all of a folder."""
    steps = _steps(place)
    return next((i for i, step in enumerate(steps) if has_magic(step)), 0) if is_pattern(place) else len(steps)


def partitions_of(file: str, place: str) -> dict[str, str | None]:
    """The columns that folders of a data set stand for, with their value for one of its files.

    Folders above the data set, or above the first folder of a pattern that is not spelt out, are names like any other.

    >>> partitions_of("rows/day=3/region=north%20east/a.parquet", "rows")
    {'day': '3', 'region': 'north east'}
    >>> partitions_of("rows/day=3/region=west/a.parquet", "rows/day=3/*/*.parquet")
    {'region': 'west'}
    """
    folders = _steps(file)[_n_spelt_out(place) : -1]
    pairs = [folder.partition("=") for folder in folders]
    values = {unquote(key): unquote(value) for key, equals, value in pairs if key and equals}
    missing_value = "__HIVE_DEFAULT_PARTITION__"  # as Hive and Spark write a missing one
    return {key: None if value == missing_value else value for key, value in values.items()}


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
    file = Path(place)
    ending = ending_of(place)
    if ending not in (".npy", ".npz", *TABLES) or not file.is_file():
        return False
    n_bytes = file.stat().st_size
    if file.suffix.lower() == ".gz":
        n_bytes *= 64  # digits are packed to a third or a half, and then they are text
    elif ending in TEXT:
        n_bytes *= 16  # text takes several times its size in memory, and longer to read
    return n_bytes >= large_file()
