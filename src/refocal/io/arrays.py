"""Files of named arrays: .npz, .npy, .safetensors, .pt and Zarr. Arrays are mapped where that is possible."""

from __future__ import annotations

import math
import pickle
import sys
import zipfile
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from refocal._arrays import is_bfloat16
from refocal.errors import FormatError, need
from refocal.io.files import TABLES, Options, check_expansion, is_zarr, refusing
from refocal.io.query import Contents


class Arrays(Contents):
    """The named arrays of a file; `get` reads one of them."""

    def __init__(self, where: str, names: Iterable[str], get: Callable[[str], Any], is_anonymous: bool = False) -> None:
        self.where = where
        self.names = list(names)
        self._get = get
        self.is_anonymous = is_anonymous

    def get(self, name: str) -> Any:
        """One array; a FormatError names the file and the array if it cannot be read."""
        with refusing(self.where, f"the array {name!r} cannot be read"):
            values = self._get(name)
            if isinstance(values, np.ndarray) and values.dtype.kind == "U" and values.nbytes:
                codes = np.ascontiguousarray(values).view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
                if codes.max() > sys.maxunicode:  # Python cannot handle such text
                    raise ValueError("it holds characters that do not exist")
            return values


def open_npz(file: str) -> Arrays:
    """An archive of NumPy: arrays that lie in it uncompressed are mapped, others read whole."""
    with Path(file).open("rb") as raw:
        if raw.read(6) == np.lib.format.MAGIC_PREFIX:
            raise FormatError(f"{file}: a single array; name the file .npy.")
    with zipfile.ZipFile(file) as archive:
        members = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
    return Arrays(file, members, lambda name: _member(file, members[name]))


def _member(file: str, entry: zipfile.ZipInfo) -> Any:
    """An array of an archive, which is checked against its header before any of it is read."""
    mapped_from = 1 << 20  # bytes: smaller arrays are read whole, which also checks their sum
    with Path(file).open("rb") as raw, zipfile.ZipFile(raw) as archive, archive.open(entry) as member:
        start = raw.tell()
        is_first_version = np.lib.format.read_magic(member) == (1, 0)
        read_header = np.lib.format.read_array_header_1_0 if is_first_version else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read_header(member)
        size = math.prod(shape) * dtype.itemsize
        if not dtype.hasobject and member.tell() + size != entry.file_size:
            raise ValueError(f"its header says {shape}, which is not what it holds")
        if entry.compress_type == zipfile.ZIP_STORED and entry.file_size >= mapped_from and not dtype.hasobject:
            if entry.compress_size != entry.file_size or start + entry.file_size > Path(file).stat().st_size:
                raise ValueError("its size is not what the archive says")
            return np.memmap(file, dtype, "r", start + member.tell(), shape, "F" if fortran else "C")
        check_expansion(entry.file_size, entry.compress_size)
        member.seek(0)
        return np.lib.format.read_array(member, allow_pickle=False)


def open_npy(file: str) -> Arrays:
    """One array, which is mapped."""
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise FormatError(f"{file}: an archive of arrays; name the file .npz.")
    return Arrays(file, [Path(file).stem], lambda _: array, is_anonymous=True)


def open_safetensors(file: str) -> Arrays:
    """Tensors, which are mapped; bfloat16 stays as it is, as a tensor of torch."""
    library = need("safetensors", "safetensors", "Reading .safetensors")
    handle = library.safe_open(file, framework="np")

    def get(name: str) -> Any:
        if handle.get_slice(name).get_dtype() != "BF16":
            return handle.get_tensor(name)
        if find_spec("torch") is None:
            problem = "is bfloat16, which NumPy lacks; install torch or save it as float32."
            raise FormatError(f"{file}: {name!r} {problem}")
        with library.safe_open(file, framework="pt") as tensors:
            return tensors.get_tensor(name)

    return Arrays(file, handle.keys(), get)


def open_torch(file: str) -> Arrays:
    """A tensor, or a dictionary of tensors, of torch.save."""
    torch = need("torch", "torch", "Reading .pt")
    if zipped := zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            check_expansion(sum(e.file_size for e in archive.infolist()), Path(file).stat().st_size)
    try:
        loaded = torch.load(file, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError as error:
        message = "it holds more than tensors, and loading it could run code; save a dictionary of tensors"
        raise FormatError(f"{file}: cannot be read safely: {message}.") from error
    except (EOFError, RuntimeError) as error:
        raise FormatError(f"{file}: cannot be read as .pt: it is empty or damaged.") from error
    is_one = isinstance(loaded, torch.Tensor)
    if not is_one and not isinstance(loaded, dict):
        raise FormatError(f"{file}: must hold a dictionary of tensors. Got {type(loaded).__name__} instead.")
    named = {Path(file).stem: loaded} if is_one else {str(key): value for key, value in loaded.items()}

    def get(name: str) -> Any:
        value = named[name]
        if not isinstance(value, torch.Tensor):
            return np.asarray(value)
        return value.detach() if is_bfloat16(value) else value.detach().numpy()  # NumPy has no bfloat16

    return Arrays(file, named, get, is_anonymous=is_one)


def open_zarr(place: str, options: Options = None) -> Arrays:
    """The arrays of a Zarr group, of which only what is asked for is read."""
    zarr = need("zarr", "zarr", "Zarr arrays")
    more = {"storage_options": dict(options or {})} if "://" in place else {}
    try:
        group = zarr.open_group(place, mode="r", **more)
    except Exception as error:  # its exceptions differ from version to version
        raise FormatError(f"{place}: cannot be read as a Zarr group with arrays 'logits' and 'labels'.") from error
    return Arrays(place, sorted(group.array_keys()), group.__getitem__)


ARRAYS: dict[str, Callable[[str], Arrays]] = {
    ".npz": open_npz,
    ".npy": open_npy,
    ".safetensors": open_safetensors,
    ".pt": open_torch,
    ".pth": open_torch,
}


def open_arrays(place: str, options: Options = None) -> Arrays:
    """The arrays of a file or of a Zarr group, of which nothing is read yet."""
    if is_zarr(place):
        return open_zarr(place, options)
    file = Path(place)
    ending = Path(place).suffix.lower()
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file.")
    if ending == ".json":
        raise FormatError(f"{file}: a .json file holds a calibrator or an evaluation, not logits: arguments swapped?")
    if ending not in ARRAYS:
        known = ", ".join([*ARRAYS, *TABLES])
        raise FormatError(f"{file}: files that end in {file.suffix!r} are not known; known are {known}.")
    with refusing(place, f"cannot be read as {ending}"):
        return ARRAYS[ending](place)
