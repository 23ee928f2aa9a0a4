"""Batches of training images, augmented on the device that they are trained on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refocal.errors import ParameterError
from refocal_paper.datasets import Images
from refocal_paper.ranks import current_ranks
from refocal_paper.recipe import Recipe

PADDING = 4


class Batches:
    """The training images on the device, cropped and flipped at random; the state of the random numbers can be kept.

    Where several processes train together, each draws the numbers of the whole batch and takes its own rows of it, so
    that the batches do not depend on how many there are.
    """

    def __init__(self, images: Images, labels: NDArray[np.int64], recipe: Recipe, device: torch.device) -> None:
        pad = ((0, 0), (PADDING, PADDING), (PADDING, PADDING), (0, 0))
        self.mean, self.std = _channel_statistics(images, device)
        self.images = torch.from_numpy(np.pad(images, pad)).to(device)
        self.labels = torch.from_numpy(labels).to(device)
        self.side = images.shape[1]
        self.size = min(recipe.batch_size, len(labels))
        self.ranks = current_ranks()
        if self.ranks.size > self.size:
            got = f"{self.ranks.size} processes for {self.size} rows"
            raise ParameterError("batch_size", "Trainer", expected="at least the number of processes", got=got)
        self.generator = torch.Generator(device).manual_seed(recipe.seed)

    def __len__(self) -> int:
        """Batches in an epoch; rows that do not fill the last one wait for the next epoch's shuffle."""
        return len(self.labels) // self.size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        device = self.labels.device
        order = torch.randperm(len(self.labels), generator=self.generator, device=device)
        for rows in order[: len(self) * self.size].split(self.size):
            place = torch.randint(2 * PADDING + 1, (2, self.size, 1), generator=self.generator, device=device)
            flip = torch.randint(2, (self.size, 1), generator=self.generator, device=device)
            mine = slice(self.ranks.rank, None, self.ranks.size)
            yield self._augmented(rows[mine], place[:, mine], flip[mine]), self.labels[rows[mine]]

    def _augmented(self, rows: Tensor, place: Tensor, flip: Tensor) -> Tensor:
        device = rows.device
        steps = torch.arange(self.side, device=device)
        down = place[0] + steps
        across = place[1] + torch.where(flip == 1, self.side - 1 - steps, steps)
        pixels = self.images[rows[:, None, None], down[:, :, None], across[:, None, :]]
        return normalised(pixels, self.mean, self.std)


def normalised(pixels: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Bytes (N, height, width, 3) as standardised floats (N, 3, height, width) in channels-last memory."""
    return ((pixels.float() - mean) / std).permute(0, 3, 1, 2)


def _channel_statistics(images: Images, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, from the counts of its 256 values: a large set is never copied."""
    counts = np.zeros((3, 256))
    for start in range(0, len(images), 1000):
        block = images[start : start + 1000]
        counts += [np.bincount(block[..., channel].ravel(), minlength=256) for channel in range(3)]
    share, values = counts / counts.sum(axis=1, keepdims=True), np.arange(256.0)
    mean = share @ values
    std = np.sqrt((share * (values - mean[:, None]) ** 2).sum(axis=1))
    std[std == 0.0] = 1.0
    return tuple(torch.tensor(a, dtype=torch.float32, device=device) for a in (mean, std))  # type: ignore[return-value]
