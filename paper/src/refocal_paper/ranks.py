"""Several processes that train one network together, as torchrun starts them; without torchrun there is one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class Ranks(NamedTuple):
    """One process among all of them. The first one writes; the others only compute."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes and speaks."""
        return self.rank == 0


def current_ranks() -> Ranks:
    """Which process this is."""
    return Ranks(dist.get_rank(), dist.get_world_size()) if _joined() else Ranks()


@contextmanager
def joined_ranks() -> Iterator[Ranks]:
    """Meet the other processes for the time of the block: over NCCL on GPUs, over Gloo on CPUs."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Ranks()
        return
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield current_ranks()
    finally:
        dist.destroy_process_group()


def add_up(values: Tensor) -> None:
    """Replace the values by their sums over all processes."""
    if _joined():
        dist.all_reduce(values)


def follow_first(values: Tensor) -> None:
    """Replace the values by those of the first process."""
    if _joined():
        dist.broadcast(values, 0)


def share(content: bytes) -> bytes:
    """The first process's bytes, for all: what it read from its disk, what it decided."""
    if not _joined():
        return content
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    length = torch.tensor([len(content)], device=device)
    follow_first(length)
    buffer = torch.zeros(int(length), dtype=torch.uint8, device=device)
    if current_ranks().is_first and content:
        buffer.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    follow_first(buffer)
    return buffer.cpu().numpy().tobytes()


def _joined() -> bool:
    return dist.is_available() and dist.is_initialized()
