"""Logits and labels written to a .safetensors file batch by batch, and mapped from it."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from refocal._files import replace_atomically
from refocal.errors import ParameterError

# The header's length is not known before the last row: so many bytes are kept for it, filled with spaces.
HEADER = 512
NAMES = {torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64"}


@contextmanager
def tensor_file(path: str | Path, function: str) -> Iterator[TensorFile]:
    """A file to write rows of logits into, batch by batch, and the labels at the end; whole or not at all."""
    target = Path(path)
    if target.suffix != ".safetensors":
        expected = "the name of a file that ends in .safetensors"
        raise ParameterError("path", function, expected=expected, got=repr(str(path)))
    with replace_atomically(target) as part, part.open("wb") as file:
        file.write(bytes(HEADER))
        yield TensorFile(target, file)


class TensorFile:
    """Rows of logits and labels in a file."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file = path, file
        self.first, self.n_rows = torch.empty(0, 0), 0

    def append(self, logits: Tensor) -> None:
        """Write some rows."""
        if len(logits) == 0:
            return
        self.first = self.first if self.n_rows else logits[:1].cpu()
        self.file.write(logits.cpu().contiguous().view(torch.uint8).numpy().tobytes())
        self.n_rows += len(logits)

    def finish(self, labels: Tensor) -> None:
        """Write the labels and the header."""
        size, shape = self.n_rows * self.first.nbytes, [self.n_rows, self.first.shape[1]]
        end = size + labels.nbytes
        header = {
            "logits": {"dtype": NAMES[self.first.dtype], "shape": shape, "data_offsets": [0, size]},
            "labels": {"dtype": "I64", "shape": list(labels.shape), "data_offsets": [size, end]},
        }
        self.file.write(labels.contiguous().numpy().tobytes())
        self.file.seek(0)
        self.file.write(struct.pack("<Q", HEADER - 8) + json.dumps(header).encode().ljust(HEADER - 8))

    def logits(self) -> Tensor:
        """The logits, mapped: what is changed in memory stays out of the file."""
        size = self.n_rows * self.first.nbytes
        mapped = np.memmap(self.path, dtype=np.uint8, mode="c", offset=HEADER, shape=(size,))
        return torch.from_numpy(mapped).view(self.first.dtype).reshape(self.n_rows, -1)
