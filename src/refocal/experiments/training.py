"""The training loop: data and augmentation on the device, one captured step, checkpoints that continue bit by bit.

On a GPU the network runs in bfloat16 and channels-last order, compiled, and a whole step (forward, loss, backward,
clipping, update) is one CUDA graph; on the CPU the same step runs as it is written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refocal._files import replace_atomically
from refocal.errors import FormatError
from refocal.experiments.datasets import Dataset, Images, split_rows
from refocal.experiments.networks import make_network
from refocal.experiments.recipe import Recipe
from refocal.nn import AdaFocalLoss, FocalLoss, SampleDependentFocalLoss

PADDING = 4
WARM_UP_STEPS = 3

OnEpoch = Callable[[dict[str, Any]], None]


class Batches:
    """The training images on the device, cropped and flipped at random; the state of the random numbers can be kept."""

    def __init__(self, images: Images, labels: NDArray[np.int64], recipe: Recipe, device: torch.device) -> None:
        pad = ((0, 0), (PADDING, PADDING), (PADDING, PADDING), (0, 0))
        self.mean, self.std = _channel_statistics(images, device)
        self.images = torch.from_numpy(np.pad(images, pad)).to(device)
        self.labels = torch.from_numpy(labels).to(device)
        self.side = images.shape[1]
        self.size = min(recipe.batch_size, len(labels))
        self.generator = torch.Generator(device).manual_seed(recipe.seed)

    def __len__(self) -> int:
        """Batches in an epoch; rows that do not fill the last one wait for the next epoch's shuffle."""
        return len(self.labels) // self.size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        device = self.labels.device
        order = torch.randperm(len(self.labels), generator=self.generator, device=device)
        for rows in order[: len(self) * self.size].split(self.size):
            yield self._augmented(rows), self.labels[rows]

    def _augmented(self, rows: Tensor) -> Tensor:
        device, n = rows.device, len(rows)
        place = torch.randint(2 * PADDING + 1, (2, n, 1), generator=self.generator, device=device)
        flip = torch.randint(2, (n, 1), generator=self.generator, device=device)
        steps = torch.arange(self.side, device=device)
        down = place[0] + steps
        across = place[1] + torch.where(flip == 1, self.side - 1 - steps, steps)
        pixels = self.images[rows[:, None, None], down[:, :, None], across[:, None, :]]
        return normalised(pixels, self.mean, self.std)


class Trainer:
    """One run of a recipe in a folder; made again over the same folder, it goes on from the last checkpoint."""

    def __init__(self, recipe: Recipe, data: Dataset, folder: Path, device: torch.device | None = None) -> None:
        self.recipe = recipe
        self.data = data
        self.folder = folder
        self.device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.split = split_rows(len(data.train), recipe.validation_rows, recipe.split_seed)
        self.batches = Batches(data.train[self.split.train], data.train_labels[self.split.train], recipe, self.device)
        network = make_network(recipe.network, data.n_classes, recipe.seed).to(self.device)
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.loss = make_loss(recipe).to(self.device)
        self.rate = torch.tensor(recipe.learning_rate, device=self.device)
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), self.rate, recipe.momentum, weight_decay=recipe.weight_decay, fused=True
        )
        self.forward: Callable[[Tensor], Tensor] = torch.compile(self.network) if self.on_gpu else self.network
        self.epoch = 0
        self.totals = torch.zeros(2, device=self.device, dtype=torch.float64)
        self._step: Callable[[Tensor, Tensor], None] | None = None
        self._resume()

    @property
    def on_gpu(self) -> bool:
        """Whether the fast path of the GPU is taken."""
        return self.device.type == "cuda"

    def run(self, *, checkpoint_every: int = 10, on_epoch: OnEpoch | None = None) -> None:
        """Train to the last epoch. A run that is killed loses at most `checkpoint_every` epochs."""
        while self.epoch < self.recipe.epochs:
            log = self._train_epoch()
            if self.epoch % checkpoint_every == 0 or self.epoch == self.recipe.epochs:
                self._save()
            with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(log) + "\n")
            if on_epoch is not None:
                on_epoch(log)

    @torch.no_grad()
    def logits(self, images: Images, batch_size: int = 500) -> NDArray[np.float32]:
        """Logits of images as they are, neither cropped nor flipped."""
        self.network.eval()
        parts = []
        for start in range(0, len(images), batch_size):
            pixels = torch.from_numpy(images[start : start + batch_size]).to(self.device)
            x = normalised(pixels, self.batches.mean, self.batches.std)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.on_gpu):
                parts.append(self.network(x).float().cpu().numpy())
        self.network.train()
        return np.concatenate(parts)

    def _train_epoch(self) -> dict[str, Any]:
        start = time.perf_counter()
        self.rate.fill_(self.recipe.rate(self.epoch))
        self.network.train()
        if self._step is None:
            self._step = self._captured_step() if self.on_gpu else self._plain_step
        self.totals.zero_()
        for x, y in self.batches:
            self._step(x, y)
        loss, correct = (self.totals / (len(self.batches) * self.batches.size)).tolist()
        self.epoch += 1
        if isinstance(self.loss, AdaFocalLoss):
            held_out = self.split.validation
            logits = torch.from_numpy(self.logits(self.data.train[held_out]))
            self.loss.update(logits.to(self.device), torch.from_numpy(self.data.train_labels[held_out]).to(self.device))
        return {
            "epoch": self.epoch,
            "loss": loss,
            "accuracy": correct,
            "learning_rate": self.recipe.rate(self.epoch - 1),
            "seconds": round(time.perf_counter() - start, 3),
        }

    def _plain_step(self, x: Tensor, y: Tensor) -> None:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.on_gpu):
            logits = self.forward(x)
        losses = self.loss(logits.float(), y)
        self.optimizer.zero_grad(set_to_none=True)
        losses.sum().backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip_norm)
        self.optimizer.step()
        with torch.no_grad():
            self.totals += torch.stack([losses.sum(), (logits.argmax(dim=1) == y).sum()])

    def _captured_step(self) -> Callable[[Tensor, Tensor], None]:
        """The same step as a CUDA graph. The warm-up that capturing needs leaves no trace."""
        shape = (self.batches.size, 3, self.batches.side, self.batches.side)
        x = torch.zeros(shape, device=self.device).contiguous(memory_format=torch.channels_last)
        y = torch.zeros(self.batches.size, dtype=torch.int64, device=self.device)
        before = [value.clone() for value in self._tensors()]
        fresh = not self.optimizer.state
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                self._plain_step(x, y)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self._plain_step(x, y)
        tensors = self._tensors()
        if fresh:  # momentum came into being during the warm-up
            before += [torch.zeros_like(value) for value in tensors[len(before) :]]
        with torch.no_grad():
            for value, old in zip(tensors, before, strict=True):
                value.copy_(old)

        def step(new_x: Tensor, new_y: Tensor) -> None:
            x.copy_(new_x)
            y.copy_(new_y)
            graph.replay()

        return step

    def _tensors(self) -> list[Tensor]:
        """All that a step changes: weights, running statistics, and momentum once it exists."""
        momentum = [state["momentum_buffer"] for state in self.optimizer.state.values() if "momentum_buffer" in state]
        return [*self.network.state_dict().values(), *momentum]

    def _save(self) -> None:
        state = {
            "recipe": self.recipe.to_json(),
            "epoch": self.epoch,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loss": self.loss.state_dict(),
            "generator": self.batches.generator.get_state(),
        }
        with replace_atomically(self.folder / "checkpoint.pt") as part:
            torch.save(state, part)

    def _resume(self) -> None:
        path = self.folder / "checkpoint.pt"
        self.folder.mkdir(parents=True, exist_ok=True)
        if not path.is_file():
            return
        state = torch.load(path, map_location=self.device, weights_only=True)
        if state["recipe"] != self.recipe.to_json():
            raise FormatError(f"{path}: the checkpoint belongs to another recipe.")
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loss.load_state_dict(state["loss"])
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        self.batches.generator.set_state(state["generator"].cpu())
        self.epoch = state["epoch"]
        _truncate_log(self.folder / "log.jsonl", self.epoch)


def make_loss(recipe: Recipe) -> torch.nn.Module:
    """The recipe's loss of each row of a batch."""
    if recipe.loss == "cross-entropy":
        return torch.nn.CrossEntropyLoss(reduction="none")
    if recipe.loss == "flsd-53":
        return SampleDependentFocalLoss(reduction="none", validate=False)
    if recipe.loss == "adafocal":
        return AdaFocalLoss(reduction="none", validate=False)
    return FocalLoss(recipe.gamma, reduction="none", validate=False)


def normalised(pixels: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Bytes (N, height, width, 3) as standardised floats (N, 3, height, width) in channels-last memory."""
    return ((pixels.float() - mean) / std).permute(0, 3, 1, 2)


def _channel_statistics(images: Images, device: torch.device) -> tuple[Tensor, Tensor]:
    sums = [images[..., channel].astype(np.float64) for channel in range(3)]
    mean, std = [float(c.mean()) for c in sums], [float(c.std()) for c in sums]
    return torch.tensor(mean, device=device), torch.tensor(std, device=device)


def _truncate_log(path: Path, epochs: int) -> None:
    """Forget what was logged after the checkpoint: those epochs are trained again."""
    if path.is_file():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        if len(lines) > epochs:
            with replace_atomically(path) as part:
                Path(part).write_text("".join(lines[:epochs]), encoding="utf-8")
