"""Logits and labels written to a .safetensors file batch by batch, and mapped from it."""

from __future__ import annotations

import json
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import torch
from torch import Tensor

from refocal._files import replace_atomically
from refocal.errors import ParameterError

# The header's length is not known before the last row: so many bytes are kept for it, filled with spaces.
HEADER = 512
NAMES = {torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64"}


class TensorFile:
    """A file that takes rows of logits one batch after the other, and the labels at the end; whole or not at all."""

    def __init__(self, path: str | Path, function: str) -> None:
        self.path = Path(path)
        if self.path.suffix != ".safetensors":
            expected = "the name of a file that ends in .safetensors"
            raise ParameterError("path", function, expected=expected, got=repr(str(path)))
        self.first = torch.empty(0, 0)
        self.n_rows = 0

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        part = self._stack.enter_context(replace_atomically(self.path))
        self._file: BinaryIO = self._stack.enter_context(part.open("wb"))
        self._file.write(bytes(HEADER))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def append(self, logits: Tensor) -> None:
        """Write some rows."""
        if len(logits) == 0:
            return
        self.first = self.first if self.n_rows else logits[:1].cpu()
        self._file.write(logits.cpu().contiguous().view(torch.uint8).numpy().tobytes())
        self.n_rows += len(logits)

    def finish(self, labels: Tensor) -> None:
        """Write the labels and the header."""
        size, shape = self.n_rows * self.first.nbytes, [self.n_rows, self.first.shape[1]]
        end = size + labels.nbytes
        header = {
            "logits": {"dtype": NAMES[self.first.dtype], "shape": shape, "data_offsets": [0, size]},
            "labels": {"dtype": "I64", "shape": list(labels.shape), "data_offsets": [size, end]},
        }
        self._file.write(labels.contiguous().numpy().tobytes())
        self._file.seek(0)
        self._file.write(struct.pack("<Q", HEADER - 8) + json.dumps(header).encode().ljust(HEADER - 8))

    def logits(self) -> Tensor:
        """The logits, mapped: what is changed in memory stays out of the file."""
        size = self.n_rows * self.first.nbytes
        mapped = np.memmap(self.path, dtype=np.uint8, mode="c", offset=HEADER, shape=(size,))
        return torch.from_numpy(mapped).view(self.first.dtype).reshape(self.n_rows, -1)
