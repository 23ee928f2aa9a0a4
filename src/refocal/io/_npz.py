"""Arrays in a .npz archive: mapped where they lie in the file uncompressed, else read whole."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from refocal.errors import FormatError

# Smaller arrays are read whole, which also checks their sum.
MAPPED_FROM = 1 << 20
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# Numbers that a model gave do not shrink to a hundredth; below a size that any machine holds nobody minds.
MAX_EXPANSION, ALWAYS_ALLOWED = 100, 1 << 28


def check_expansion(expanded: int, stored: int) -> None:
    """Refuse what would unpack to far more than it holds, as a zip bomb does."""
    if expanded > max(ALWAYS_ALLOWED, MAX_EXPANSION * stored):
        raise ValueError(f"it would unpack {stored:,} bytes to {expanded:,}, which no numbers of a model do")


class Archive:
    """The members of an archive by the names of their arrays."""

    def __init__(self, file: Path) -> None:
        self._file = file
        with file.open("rb") as raw:
            if raw.read(6) == np.lib.format.MAGIC_PREFIX:
                raise FormatError(f"{file}: a single array; name the file .npy.")
        with zipfile.ZipFile(file) as archive:
            self._members = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        self.names = list(self._members)

    def get(self, name: str) -> Any:
        """One array; errors of zipfile and NumPy are passed on."""
        entry = self._members[name]
        mapped = self._mapped(entry)
        if mapped is not None:
            return mapped
        check_expansion(entry.file_size, entry.compress_size)
        with zipfile.ZipFile(self._file) as archive:
            with archive.open(entry) as member:
                shape, _, dtype = _read_header(member)
            if not dtype.hasobject and math.prod(shape) * dtype.itemsize > entry.file_size:
                raise ValueError(f"its header says {shape}, more than it holds")
            with archive.open(entry) as member:
                return np.lib.format.read_array(member, allow_pickle=False)

    def _mapped(self, entry: zipfile.ZipInfo) -> Any:
        """The array as a view of the file, or None where that cannot be."""
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or entry.file_size < MAPPED_FROM:
            return None
        with self._file.open("rb") as raw, zipfile.ZipFile(raw) as archive:
            with archive.open(entry):  # which reads and checks the header in front of the data
                start = raw.tell()
            raw.seek(start)
            shape, fortran, dtype = _read_header(raw)
            offset = raw.tell()
            in_file = raw.seek(0, 2)
        if dtype.hasobject:
            return None  # which reading it whole refuses, with the reason
        size = math.prod(shape) * dtype.itemsize
        if not (offset + size == start + entry.file_size == start + entry.compress_size <= in_file):
            raise ValueError("its size is not what its header says")
        return np.memmap(self._file, dtype, "r", offset, shape, "F" if fortran else "C")


def _read_header(raw: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(raw)
    if version not in HEADERS:
        raise ValueError(f"version {version} of the format, which arrays of numbers do not have")
    return HEADERS[version](raw)
