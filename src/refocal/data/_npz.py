"""Arrays in a .npz archive: mapped where they lie in the file uncompressed, else read whole."""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from refocal.errors import FormatError

# Smaller arrays are read whole, which also checks their sum.
MAPPED_FROM = 1 << 20
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# The header in front of a member, as the format of archives has it; the last two numbers are lengths of what follows.
MEMBER = struct.Struct("<4s5H3L2H")
# What zipfile and NumPy raise for members that are cut, wrong, encrypted, or compressed in an unknown way.
PROBLEMS = (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, OverflowError)


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
        """One array; a FormatError that names the file and the array if it cannot be had."""
        entry = self._members[name]
        try:
            mapped = self._mapped(entry)
            if mapped is not None:
                return mapped
            with zipfile.ZipFile(self._file) as archive, archive.open(entry) as member:
                return np.lib.format.read_array(member, allow_pickle=False)
        except PROBLEMS as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise FormatError(f"{self._file}: the array {name!r} cannot be read: {reason}") from error

    def _mapped(self, entry: zipfile.ZipInfo) -> Any:
        """The array as a view of the file, or None where that cannot be."""
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or entry.file_size < MAPPED_FROM:
            return None
        with self._file.open("rb") as raw:
            start = _start_of_data(raw, entry)
            raw.seek(start)
            read_header = HEADERS.get(np.lib.format.read_magic(raw))
            if read_header is None:
                return None
            shape, fortran, dtype = read_header(raw)
            offset = raw.tell()
            in_file = raw.seek(0, 2)
        if dtype.hasobject:
            return None  # which reading it whole refuses, with the reason
        size = math.prod(shape) * dtype.itemsize
        if not (offset + size == start + entry.file_size == start + entry.compress_size <= in_file):
            raise ValueError("its size is not what its header says")
        return np.memmap(self._file, dtype, "r", offset, shape, "F" if fortran else "C")


def _start_of_data(raw: Any, entry: zipfile.ZipInfo) -> int:
    """Where the bytes of a member begin: behind a header of its own, whose length only it knows."""
    raw.seek(entry.header_offset)
    signature, *_, name_length, extra_length = MEMBER.unpack(raw.read(MEMBER.size))
    name = raw.read(name_length)
    encoding = "utf-8" if entry.flag_bits & 0x800 else "cp437"
    if signature != b"PK\x03\x04" or name != entry.orig_filename.encode(encoding):
        raise ValueError("its header is not that of the archive's directory")
    return entry.header_offset + MEMBER.size + int(name_length) + int(extra_length)
