"""A small reader for each format: the names in a file and their arrays, read on demand."""

from __future__ import annotations

import csv
import json
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal.errors import FormatError, Remedy, install_command
from refocal.io._npz import Archive, check_expansion

LONGEST_NAME = 1000
"""Characters of the name of a class."""


@contextmanager
def refusing(file: Path, problem: str) -> Iterator[None]:
    """Whatever a library raises over a damaged file becomes one typed line; what the system says of a path stays."""
    try:
        yield
    except (FormatError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # each library has its own: SystemError, MemoryError, tokenize.TokenError, ArrowInvalid
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise FormatError(f"{file}: {problem}: {reason}") from error


class Contents:
    """The named arrays or columns of a file."""

    is_table = False
    anonymous = False

    def __init__(self, file: Path, names: list[str], get: Callable[[str], Any]) -> None:
        self.file = file
        self.names = names
        self._get = get

    def get(self, name: str) -> Any:
        """One array or column; a FormatError names the file and the array if it cannot be read."""
        with refusing(self.file, f"the {'column' if self.is_table else 'array'} {name!r} cannot be read"):
            return _checked_text(self._get(name))

    def is_nested(self, name: str) -> bool:
        """Whether a column holds a whole row of numbers in each cell."""
        return False

    def matrix(self, columns: list[str]) -> NDArray[Any]:
        """Several columns side by side."""
        with refusing(self.file, "the columns do not make a matrix"):
            return np.stack([self.get(name) for name in columns], axis=1)


def open_contents(file: Path) -> Contents:
    """What a file holds, by its ending."""
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file.")
    ending = file.suffix.lower()
    if ending == ".json":
        raise FormatError(f"{file}: a .json file holds a calibrator or an evaluation, not logits: arguments swapped?")
    if ending not in READERS:
        raise FormatError(f"{file}: files that end in {file.suffix!r} are not known; known are {', '.join(ENDINGS)}.")
    with refusing(file, f"cannot be read as {file.suffix}"):
        return READERS[ending](file)


def _npz(file: Path) -> Contents:
    archive = Archive(file)
    return Contents(file, archive.names, archive.get)


def _npy(file: Path) -> Contents:
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise FormatError(f"{file}: an archive of arrays; name the file .npz.")
    contents = Contents(file, [file.stem], lambda _: array)
    contents.anonymous = True
    return contents


def _safetensors(file: Path) -> Contents:
    library = _optional("safetensors", "safetensors", file)
    try:
        handle = library.safe_open(file, framework="np")  # memory-mapped: only what is asked for is read
        names = list(handle.keys())
    except library.SafetensorError as error:
        raise FormatError(f"{file}: cannot be read as .safetensors: {error}") from error

    def get(name: str) -> Any:
        if handle.get_slice(name).get_dtype() != "BF16":
            return handle.get_tensor(name)
        if find_spec("torch") is None:
            raise FormatError(
                f"{file}: {name!r} is bfloat16, which NumPy has not; install torch or save it as float32."
            )
        with library.safe_open(file, framework="pt") as tensors:  # mapped, and in its own precision
            return tensors.get_tensor(name)

    return Contents(file, names, get)


def _torch(file: Path) -> Contents:
    torch = _optional("torch", "torch", file)
    zipped = zipfile.is_zipfile(file)
    if zipped:
        with zipfile.ZipFile(file) as archive:
            check_expansion(sum(e.file_size for e in archive.infolist()), file.stat().st_size)
    try:
        loaded = torch.load(file, map_location="cpu", weights_only=True, mmap=zipped)
    except Exception as error:  # torch raises pickle.UnpicklingError, RuntimeError and others
        message = "it holds more than tensors, and loading it could run code; save a dictionary of tensors"
        raise FormatError(f"{file}: cannot be read safely: {message}.") from error
    if isinstance(loaded, torch.Tensor):
        contents = Contents(file, [file.stem], lambda _: _from_torch(torch, loaded))
        contents.anonymous = True
        return contents
    if not isinstance(loaded, dict):
        raise FormatError(f"{file}: must hold a dictionary of tensors. Got {type(loaded).__name__} instead.")
    named = {str(key): value for key, value in loaded.items()}
    return Contents(file, list(named), lambda name: _from_torch(torch, named[name]))


def _from_torch(torch: Any, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    value = value.detach()
    return value if value.dtype == torch.bfloat16 else value.numpy()  # NumPy has no bfloat16


class _Text(Contents):
    """Columns of a text file; the numbers are read by NumPy, in float64."""

    is_table = True

    def __init__(self, file: Path, delimiter: str) -> None:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            names = next(csv.reader(lines, delimiter=delimiter), [])
        check_header(names, file, delimiter)
        self._file, self._delimiter = file, delimiter
        super().__init__(file, names, self._column)

    def matrix(self, columns: list[str]) -> NDArray[Any]:
        try:
            return self._load([self.names.index(name) for name in columns], np.float64)
        except FormatError:
            with suppress(UnicodeDecodeError, csv.Error):  # then what NumPy said is said
                self._find_text(columns)
            raise

    def _find_text(self, columns: list[str]) -> None:
        """Say in which line and column there is something else than a number."""
        with self._file.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.reader(lines, delimiter=self._delimiter)
            next(rows)
            for row in rows:
                for name in columns:
                    at = self.names.index(name)
                    if len(row) <= at:
                        got = f"{len(row)} of {len(self.names)} cells"
                    elif not _reads_as_number(row[at]):
                        got = f"{row[at][:40]!r} in the column {name!r}"
                    else:
                        continue
                    raise FormatError(
                        f"{self._file}: line {rows.line_num} has {got}, where a number of a class was expected.",
                        Remedy.COLUMNS,
                    )

    def _column(self, name: str) -> NDArray[Any]:
        # As objects: an array of text takes as much for each row as for the longest.
        text = self._load([self.names.index(name)], object)[:, 0]
        try:
            return text.astype(np.float64)
        except ValueError:
            longest = max(map(len, text))
        if longest > LONGEST_NAME:
            raise FormatError(f"{self._file}: the column {name!r} holds a text of {longest:,} characters.")
        return text.astype(str)

    def _load(self, columns: list[int], dtype: Any) -> NDArray[Any]:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "loadtxt: input contained no data")  # who wants rows says so
                return np.loadtxt(
                    self._file,
                    dtype=dtype,
                    delimiter=self._delimiter,
                    skiprows=1,
                    usecols=columns,
                    ndmin=2,
                    quotechar='"',
                    comments=None,
                    encoding="utf-8-sig",
                )
        except (ValueError, IndexError) as error:
            raise FormatError(f"{self._file}: {str(error).splitlines()[0]}") from error


class _JsonLines(Contents):
    """JSON lines: the fields of the first object are the columns; a field may hold a list of numbers."""

    is_table = True

    def __init__(self, file: Path) -> None:
        with file.open(encoding="utf-8") as lines:
            self._rows = [self._row(i, line) for i, line in enumerate(filter(str.strip, lines))]
        super().__init__(file, list(self._rows[0]) if self._rows else [], self._column)

    def is_nested(self, name: str) -> bool:
        return isinstance(self._rows[0][name], list)

    def _row(self, i: int, line: str) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise ValueError(f"row {i} is not a JSON object")
        return row

    def _column(self, name: str) -> NDArray[Any]:
        missing = next((i for i, row in enumerate(self._rows) if row.get(name) is None), None)
        if missing is not None:
            raise ValueError(f"row {missing} has none")
        values = [row[name] for row in self._rows]
        is_text = isinstance(values[0], str)
        return np.array(values, dtype=str if is_text else None if isinstance(values[0], int) else np.float64)


def check_header(names: list[str], file: Path | str, delimiter: str) -> None:
    """The first line of a text file must hold the names of its columns."""
    if len(names) < 2 or len(set(names)) != len(names):
        raise FormatError(
            f"{file}: the first line must hold the names of two or more columns, "
            f"none twice and {'tabs' if delimiter != ',' else 'commas'} between them."
        )
    if all(_is_number(name) for name in names):
        raise FormatError(f"{file}: the first line must hold the names of the columns; it holds numbers.")


class _Parquet(Contents):
    """Columns of a Parquet file; a column may hold a list of numbers in each cell."""

    is_table = True

    def __init__(self, file: Path) -> None:
        parquet = _optional("pyarrow.parquet", "parquet", file)
        self._read: Any = parquet.read_table
        self._file = file
        self._types = _optional("pyarrow", "parquet", file).types
        metadata = parquet.read_metadata(file)  # its row groups are not looked at: for damaged ones pyarrow aborts
        check_expansion(8 * metadata.num_rows * metadata.num_columns, file.stat().st_size)
        self._schema = parquet.read_schema(file)
        super().__init__(file, list(self._schema.names), self._column)

    def is_nested(self, name: str) -> bool:
        kind = self._schema.field(name).type
        return any(
            test(kind) for test in (self._types.is_list, self._types.is_large_list, self._types.is_fixed_size_list)
        )

    def _column(self, name: str) -> NDArray[Any]:
        column = self._read(self._file, columns=[name], memory_map=True).column(0)
        if self.is_nested(name):
            flat: NDArray[Any] = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
            return flat.reshape(len(column), -1)
        values: NDArray[Any] = column.to_numpy()
        return values.astype(str) if values.dtype.kind == "O" else values


def _checked_text(values: Any) -> Any:
    """An array of text whose every character exists: Python cannot even look at others."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "U" and values.nbytes:
        codes = np.ascontiguousarray(values).view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
        if codes.max() > sys.maxunicode:
            raise ValueError("it holds characters that do not exist")
    return values


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_number(text: str) -> bool:
    # 0, 1, 2 are names of classes; 0.73 is a value.
    return _reads_as_number(text) and not text.strip().isdigit()


def _optional(module: str, extra: str, file: Path) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise FormatError(
            f"{file}: reading {file.suffix} needs {module.split('.')[0]}: {install_command(extra)}"
        ) from error


READERS: dict[str, Callable[[Path], Contents]] = {
    ".npz": _npz,
    ".npy": _npy,
    ".csv": lambda file: _Text(file, ","),
    ".tsv": lambda file: _Text(file, "\t"),
    ".jsonl": _JsonLines,
    ".ndjson": _JsonLines,
    ".parquet": _Parquet,
    ".safetensors": _safetensors,
    ".pt": _torch,
    ".pth": _torch,
}
ENDINGS = tuple(READERS)
