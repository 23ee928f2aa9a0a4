"""CIFAR-10 and CIFAR-100 from their official Python archives.

The archives hold pickles. What a pickle asks for by name is looked up in a list of three stand-ins of our own, which
can become an array of bytes and nothing else; any other name is refused before it is imported.
"""

from __future__ import annotations

import io
import pickle
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from refocal.errors import FormatError
from refocal_paper.datasets.base import Dataset, Images, Labels, checked

Read = Callable[[str], bytes]


class Layout(NamedTuple):
    """Where a CIFAR archive keeps what."""

    archive: str
    folder: str
    train: tuple[str, ...]
    test: str
    labels: bytes


LAYOUTS = {
    "cifar10": Layout(
        "cifar-10-python.tar.gz",
        "cifar-10-batches-py",
        tuple(f"data_batch_{i}" for i in range(1, 6)),
        "test_batch",
        b"labels",
    ),
    "cifar100": Layout("cifar-100-python.tar.gz", "cifar-100-python", ("train",), "test", b"fine_labels"),
}


def read_cifar(name: str, path: Path) -> Dataset:
    """`name` ("cifar10" or "cifar100") from its archive, or from the folder that the archive was unpacked to."""
    layout = LAYOUTS[name]
    if path.is_dir():
        return _read(layout, path, lambda member: (path / member).read_bytes())
    try:
        with tarfile.open(path, "r:gz") as archive:
            return _read(layout, path, lambda member: _member(archive, f"{layout.folder}/{member}"))
    except (tarfile.TarError, EOFError, zlib.error, KeyError, OSError) as error:
        raise FormatError(f"{path}: damaged or cut short ({error}); remove it and download it again.") from error


def _read(layout: Layout, path: Path, read: Read) -> Dataset:
    parts = [_batch(read(member), layout.labels, f"{path}: {member}") for member in (*layout.train, layout.test)]
    train = np.concatenate([images for images, _ in parts[:-1]])
    return checked(train, np.concatenate([labels for _, labels in parts[:-1]]), *parts[-1])


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise KeyError(f"{name!r} is no file")
    return file.read()


def _batch(content: bytes, key: bytes, where: str) -> tuple[Images, Labels]:
    """Images and labels of one pickle."""
    try:
        found = _SafeUnpickler(io.BytesIO(content), encoding="bytes").load()
        pixels, labels = found[b"data"], np.array(found[key], dtype=np.int64)
        planes = np.frombuffer(pixels.content, np.uint8).reshape(-1, 3, 32, 32)
    # A pickle that is not what it should be can fail in any way at all.
    except Exception as error:
        raise FormatError(f"{where} is not a batch of CIFAR images: {error}.") from error
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels


class _Dtype:
    """Stands for numpy.dtype: remembers its code."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        pass


class _Bytes:
    """Stands for numpy.ndarray: keeps the content of an array of bytes."""

    content = b""

    def __setstate__(self, state: Any) -> None:
        _, _, dtype, _, content = state
        if dtype.code not in ("u1", b"u1") or not isinstance(content, bytes):
            raise ValueError("an array that does not hold bytes")
        self.content = content


def _reconstruct(*_: Any) -> _Bytes:
    return _Bytes()


def _encode(text: str, encoding: str) -> bytes:
    """Stands for _codecs.encode, by which Python 3 writes bytes in old protocols."""
    return str(text).encode("latin1")


class _SafeUnpickler(pickle.Unpickler):
    """Plain containers, numbers, text, and the stand-ins."""

    allowed = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy", "ndarray"): _Bytes,
        ("numpy", "dtype"): _Dtype,
        ("_codecs", "encode"): _encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        """A stand-in; never an import."""
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no data set needs; it was not run")
        return self.allowed[module, name]
