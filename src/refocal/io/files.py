"""What a path stands for: one file, which is opened by its ending, or several."""

from __future__ import annotations

import os
from collections.abc import Callable
from glob import glob, has_magic
from pathlib import Path

from refocal.errors import FormatError
from refocal.io import arrays
from refocal.io.contents import Options, filesystem_of, refusing
from refocal.io.tables import TABLES, TEXT, open_table

ARRAYS: dict[str, Callable[[str], arrays.Arrays]] = {
    ".npz": arrays.open_npz,
    ".npy": arrays.open_npy,
    ".safetensors": arrays.open_safetensors,
    ".pt": arrays.open_torch,
    ".pth": arrays.open_torch,
}
# Files of at least this many bytes are not read whole; text takes several times its size in memory.
LARGE_FILE, LARGE_TEXT = 1 << 30, 1 << 26


def open_arrays(path: str | os.PathLike[str], options: Options = None) -> arrays.Arrays:
    """The arrays of a file or of a Zarr group, of which nothing is read yet."""
    place = os.fspath(path)
    if is_zarr(place):
        return arrays.open_zarr(place, options)
    file, ending = Path(place), Path(place).suffix.lower()
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file.")
    if ending == ".json":
        raise FormatError(f"{file}: a .json file holds a calibrator or an evaluation, not logits: arguments swapped?")
    if ending not in ARRAYS:
        known = ", ".join([*ARRAYS, *TABLES])
        raise FormatError(f"{file}: files that end in {file.suffix!r} are not known; known are {known}.")
    with refusing(place, f"cannot be read as {ending}"):
        return ARRAYS[ending](place)


def names_in(path: str | os.PathLike[str]) -> list[str]:
    """The names of the arrays or columns of a file, or of the first file of a data set."""
    place = os.fspath(path)
    if is_several(place) or Path(place).suffix.lower() in TABLES:
        return open_table(files_of(place)[0]).names
    return open_arrays(place).names


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
    """Whether a path is to be gone through in blocks rather than read."""
    if is_zarr(place) or is_several(place):
        return True
    file, ending = Path(place), Path(place).suffix.lower()
    in_blocks = ending in (".npy", ".npz", *TABLES)
    return in_blocks and file.is_file() and file.stat().st_size >= (LARGE_TEXT if ending in TEXT else LARGE_FILE)
