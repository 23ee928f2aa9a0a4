"""What a file holds: arrays or columns by name, read on demand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal.errors import FormatError, RefocalError

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
            return _checked_text(self._get(name))

    def matrix(self, columns: list[str]) -> NDArray[Any]:
        """Several columns side by side."""
        return np.column_stack([self.get(name) for name in columns])


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


def _checked_text(values: Any) -> Any:
    """An array of text whose every character exists: Python cannot even look at others."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "U" and values.nbytes:
        codes = np.ascontiguousarray(values).view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
        if codes.max() > sys.maxunicode:
            raise ValueError("it holds characters that do not exist")
    return values
