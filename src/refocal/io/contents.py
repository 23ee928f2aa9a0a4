"""What a file holds, arrays or columns by name, with the errors and the file systems that reading takes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from refocal.errors import FormatError, MissingExtraError, RefocalError, need

Options = Mapping[str, Any] | None
"""What a file system is told beside the address, such as the endpoint and keys of an object store."""
# Numbers that a model gave do not shrink to a hundredth; below a size that any machine holds nobody minds.
MAX_EXPANSION, ALWAYS_ALLOWED = 100, 1 << 28


class Contents:
    """The names of the arrays or columns of a file."""

    is_table = False
    is_anonymous = False
    """Whether the file holds one array without a name."""
    nested: Collection[str] = ()
    """The columns that hold a list of numbers in each cell."""

    def __init__(self, where: str, names: Sequence[str]) -> None:
        self.where, self.names = where, list(names)


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
