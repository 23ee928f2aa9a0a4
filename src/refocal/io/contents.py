"""What a file holds: arrays or columns by name, read on demand, with the libraries and file systems that takes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from refocal.errors import FormatError, MissingExtraError, RefocalError, need

Options = Mapping[str, Any] | None
"""What a file system is told beside the address, such as the endpoint and keys of an object store."""
# Numbers that a model gave do not shrink to a hundredth; below a size that any machine holds nobody minds.
MAX_EXPANSION, ALWAYS_ALLOWED = 100, 1 << 28


class Contents:
    """The named arrays or columns of a file; `get` reads one of them."""

    is_table = False
    nested: Collection[str] = ()
    """The columns that hold a list of numbers in each cell."""

    def __init__(
        self, file: str, names: Sequence[str], get: Callable[[str], Any], *, is_anonymous: bool = False
    ) -> None:
        self.file, self.names, self._get = file, list(names), get
        self.is_anonymous = is_anonymous
        """Whether the file holds one array without a name."""

    def get(self, name: str) -> Any:
        """One array or column; a FormatError names the file and the array if it cannot be read."""
        with refusing(self.file, f"the {'column' if self.is_table else 'array'} {name!r} cannot be read"):
            values = self._get(name)
            if isinstance(values, np.ndarray) and values.dtype.kind == "U" and values.nbytes:
                codes = np.ascontiguousarray(values).view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
                if codes.max() > sys.maxunicode:  # Python cannot even look at such text
                    raise ValueError("it holds characters that do not exist")
            return values


@contextmanager
def refusing(file: str, problem: str) -> Iterator[None]:
    """Whatever a library raises over a damaged file becomes one typed line; what the system says of a path stays."""
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
