"""Files of named arrays: .npz, .npy, .safetensors, .pt and Zarr. Arrays are mapped where that is possible."""

from __future__ import annotations

import math
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from refocal.errors import FormatError, need
from refocal.io.addresses import Options
from refocal.io.contents import Contents, check_expansion

# Smaller arrays are read whole, which also checks their sum.
MAPPED_FROM = 1 << 20
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def open_npz(file: str) -> Contents:
    """An archive of NumPy: arrays that lie in it uncompressed are mapped, others read whole."""
    with Path(file).open("rb") as raw:
        if raw.read(6) == np.lib.format.MAGIC_PREFIX:
            raise FormatError(f"{file}: a single array; name the file .npy.")
    with zipfile.ZipFile(file) as archive:
        members = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}

    def get(name: str) -> Any:
        mapped = _mapped_member(file, members[name])
        return _read_member(file, members[name]) if mapped is None else mapped

    return Contents(file, list(members), get)


def _read_member(file: str, entry: zipfile.ZipInfo) -> Any:
    check_expansion(entry.file_size, entry.compress_size)
    with zipfile.ZipFile(file) as archive:
        with archive.open(entry) as member:
            shape, _, dtype = _read_header(member)
        if not dtype.hasobject and math.prod(shape) * dtype.itemsize > entry.file_size:
            raise ValueError(f"its header says {shape}, more than it holds")
        with archive.open(entry) as member:
            return np.lib.format.read_array(member, allow_pickle=False)


def _mapped_member(file: str, entry: zipfile.ZipInfo) -> Any:
    """The array as a view of the file, or None where that cannot be."""
    if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or entry.file_size < MAPPED_FROM:
        return None
    with Path(file).open("rb") as raw, zipfile.ZipFile(raw) as archive:
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
    return np.memmap(file, dtype, "r", offset, shape, "F" if fortran else "C")


def _read_header(raw: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(raw)
    if version not in HEADERS:
        raise ValueError(f"version {version} of the format, which arrays of numbers do not have")
    return HEADERS[version](raw)


def open_npy(file: str) -> Contents:
    """One array, which is mapped."""
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise FormatError(f"{file}: an archive of arrays; name the file .npz.")
    return Contents(file, [Path(file).stem], lambda _: array, is_anonymous=True)


def open_safetensors(file: str) -> Contents:
    """Tensors, which are mapped; bfloat16 stays as it is, as a tensor of torch."""
    library = need("safetensors", "safetensors", "Reading .safetensors")
    handle = library.safe_open(file, framework="np")

    def get(name: str) -> Any:
        if handle.get_slice(name).get_dtype() != "BF16":
            return handle.get_tensor(name)
        if find_spec("torch") is None:
            raise FormatError(
                f"{file}: {name!r} is bfloat16, which NumPy has not; install torch or save it as float32."
            )
        with library.safe_open(file, framework="pt") as tensors:
            return tensors.get_tensor(name)

    return Contents(file, list(handle.keys()), get)


def open_torch(file: str) -> Contents:
    """A tensor, or a dictionary of tensors, of torch.save."""
    torch = need("torch", "torch", "Reading .pt")
    zipped = zipfile.is_zipfile(file)
    if zipped:
        with zipfile.ZipFile(file) as archive:
            check_expansion(sum(e.file_size for e in archive.infolist()), Path(file).stat().st_size)
    try:
        loaded = torch.load(file, map_location="cpu", weights_only=True, mmap=zipped)
    except Exception as error:  # torch raises pickle.UnpicklingError, RuntimeError and others
        message = "it holds more than tensors, and loading it could run code; save a dictionary of tensors"
        raise FormatError(f"{file}: cannot be read safely: {message}.") from error
    is_one = isinstance(loaded, torch.Tensor)
    if not is_one and not isinstance(loaded, dict):
        raise FormatError(f"{file}: must hold a dictionary of tensors. Got {type(loaded).__name__} instead.")
    named = {Path(file).stem: loaded} if is_one else {str(key): value for key, value in loaded.items()}

    def get(name: str) -> Any:
        value = named[name]
        if not isinstance(value, torch.Tensor):
            return np.asarray(value)
        return value.detach() if value.dtype == torch.bfloat16 else value.detach().numpy()  # NumPy has no bfloat16

    return Contents(file, list(named), get, is_anonymous=is_one)


def open_zarr(place: str, options: Options = None) -> Contents:
    """The arrays of a Zarr group, of which only what is asked for is read."""
    zarr = need("zarr", "zarr", "Zarr arrays")
    more = {"storage_options": dict(options or {})} if "://" in place else {}
    try:
        group = zarr.open_group(place, mode="r", **more)
    except Exception as error:  # its exceptions differ from version to version
        raise FormatError(f"{place}: cannot be read as a Zarr group with arrays 'logits' and 'labels'.") from error
    return Contents(place, sorted(group.array_keys()), group.__getitem__)
