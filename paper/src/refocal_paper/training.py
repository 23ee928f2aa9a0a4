"""The training loop: data and augmentation on the device, one captured step, checkpoints that continue bit by bit.

On a GPU the network runs in the recipe's precision and in channels-last order, compiled, and a whole step (forward,
loss, backward, clipping, update) is one CUDA graph; on the CPU the same step runs as it is written. Several processes
(ranks.py) share each batch and step together: on GPUs with batch statistics over all of them, on CPUs with those of
each one's rows.
"""

from __future__ import annotations

import io
import json
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from refocal._files import replace_atomically, write_atomically
from refocal.errors import FormatError, RefocalError
from refocal.nn import MMCE, AdaFocalLoss, BrierLoss, FocalLoss, SampleDependentFocalLoss
from refocal_paper.batches import Batches, normalised
from refocal_paper.datasets import Dataset, Images, split_rows
from refocal_paper.networks import make_network
from refocal_paper.parts import read_manifest, read_parts, write_parts
from refocal_paper.ranks import add_up, current_ranks, follow_first, share
from refocal_paper.recipe import Recipe

WARM_UP_STEPS = 3
DUAL_GAMMA = 5.0
# Seconds between two checkpoints that are to be carried away: what a machine that is taken away may cost.
CARRY_SECONDS = 240.0

OnEpoch = Callable[[dict[str, Any]], None]
OnBatch = Callable[[int, int], None]  # epochs finished, batches of the next one


class CheckpointError(RefocalError, OSError):
    """A run could not be kept on the disk, which is full or cannot be written to."""


class AskedToStopError(RefocalError):
    """A run was left in the middle, as it was asked to."""


class Trainer:
    """One run of a recipe in a folder; made again over the same folder, it goes on from the last checkpoint.

    `resume_from` is a folder of parts that another machine kept (parts.py); it is gone on from where it is further than
    the run's own checkpoint.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: Dataset,
        folder: Path,
        device: torch.device | str | None = None,
        *,
        resume_from: Path | None = None,
    ) -> None:
        self.recipe = recipe
        self.data = data
        self.folder = folder
        self.ranks = current_ranks()
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.split = split_rows(len(data.train), recipe.validation_rows, recipe.split_seed)
        self.batches = Batches(data.train[self.split.train], data.train_labels[self.split.train], recipe, self.device)
        network: torch.nn.Module = make_network(recipe.network, data.n_classes, recipe.seed).to(self.device)
        if self.ranks.size > 1 and self.on_gpu:
            network = torch.nn.SyncBatchNorm.convert_sync_batchnorm(network)
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.loss = make_loss(recipe).to(self.device)
        self.rate = torch.tensor(recipe.learning_rate, device=self.device)
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), self.rate, recipe.momentum, weight_decay=recipe.weight_decay, fused=True
        )
        forward = self.network if self.ranks.size == 1 else DistributedDataParallel(self.network)
        self.forward: Callable[[Tensor], Tensor] = forward
        if self.on_gpu:
            # Both searches together take 4 % off a step of TinyImageNet; each compiles for some ten seconds longer.
            torch.backends.cudnn.benchmark = True
            self.forward = torch.compile(forward, options={"coordinate_descent_tuning": True})
            self.loss.compile()
        self.epoch = 0
        # The sum of a batch's losses times this is what is minimised. Where several processes share the batch, the mean
        # of their gradients is taken.
        self.scale = self.ranks.size / (self.batches.size if recipe.reduction == "mean" else 1)
        self.totals = torch.zeros(2, device=self.device, dtype=torch.float64)
        self._step: Callable[[Tensor, Tensor], None] | None = None
        self._resume(resume_from)
        if self.ranks.is_first:
            _truncate_log(self.folder / "log.jsonl", self.epoch)

    @property
    def on_gpu(self) -> bool:
        """Whether the fast path of the GPU is taken."""
        return self.device.type == "cuda"

    def _autocast(self) -> torch.autocast:
        enabled = self.on_gpu and self.recipe.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=enabled)

    def run(
        self,
        *,
        checkpoint_every: int = 10,
        logits_every: int | None = None,
        checkpoint_to: Path | None = None,
        carry_seconds: float = CARRY_SECONDS,
        leave: Callable[[], bool] | None = None,
        on_epoch: OnEpoch | None = None,
        on_batch: OnBatch | None = None,
    ) -> None:
        """Train to the last epoch. A run that is killed loses at most `checkpoint_every` epochs.

        Every `logits_every` epochs the logits of held-out and test images are kept, and every `carry_seconds` seconds
        a checkpoint in parts goes to `checkpoint_to`. After an epoch at whose end `leave` says so, both checkpoints are
        written and the run is left with an AskedToStopError.
        """
        carried = time.monotonic()
        while self.epoch < self.recipe.epochs:
            log = self._train_epoch(on_batch)
            last = self.epoch == self.recipe.epochs
            leaving = leave is not None and not last and bool(share(b"leave" if leave() else b""))
            if self.ranks.is_first:
                with self.disk():
                    # The log and the logits first: what lies beyond the checkpoint is made again when the run goes on.
                    with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
                        file.write(json.dumps(log) + "\n")
                    if logits_every is not None and not last and self.epoch % logits_every == 0:
                        write_arrays(self.folder / f"logits-{self.epoch:04d}.npz", self.held_out_logits())
                    if self.epoch % checkpoint_every == 0 or last or leaving:
                        self._save()
                    due = leaving or time.monotonic() - carried >= carry_seconds
                    if checkpoint_to is not None and due and not last:
                        self._carry(checkpoint_to)
                        carried = time.monotonic()
            if on_epoch is not None:
                on_epoch(log)
            if leaving:
                place = "" if checkpoint_to is None else f", elsewhere with --resume-from {checkpoint_to.parent}"
                words = f"stopped after epoch {self.epoch}, as asked; the same command goes on from there{place}"
                raise AskedToStopError(f"{self.folder}: {words}.")

    def held_out_logits(self) -> dict[str, NDArray[Any]]:
        """Float16 logits `val` and `test` of the held-out and of the test images, with labels `yv` and `yt`."""
        held_out = self.split.validation
        return {
            "val": self.logits(self.data.train[held_out]).astype(np.float16),
            "yv": self.data.train_labels[held_out].astype(np.int16),
            "test": self.logits(self.data.test).astype(np.float16),
            "yt": self.data.test_labels.astype(np.int16),
        }

    @torch.no_grad()
    def logits(self, images: Images, batch_size: int = 500) -> NDArray[np.float32]:
        """Logits of images as they are, neither cropped nor flipped."""
        self.network.eval()
        parts = []
        for start in range(0, len(images), batch_size):
            pixels = torch.from_numpy(images[start : start + batch_size]).to(self.device)
            x = normalised(pixels, self.batches.mean, self.batches.std)
            with self._autocast():
                parts.append(self.network(x).float().cpu().numpy())
        self.network.train()
        return np.concatenate(parts)

    def _train_epoch(self, on_batch: OnBatch | None = None) -> dict[str, Any]:
        start = time.perf_counter()
        self.rate.fill_(self.recipe.rate(self.epoch))
        self.network.train()
        if self._step is None:
            captured = self.on_gpu and self.ranks.size == 1
            self._step = self._captured_step() if captured else self._plain_step
        self.totals.zero_()
        for i, (x, y) in enumerate(self.batches, 1):
            self._step(x, y)
            if on_batch is not None:
                on_batch(self.epoch, i)
        add_up(self.totals)
        loss, correct = (self.totals / (len(self.batches) * self.batches.size)).tolist()
        self.epoch += 1
        if isinstance(self.loss, AdaFocalLoss):
            held_out = self.split.validation
            logits = torch.from_numpy(self.logits(self.data.train[held_out]))
            self.loss.update(logits.to(self.device), torch.from_numpy(self.data.train_labels[held_out]).to(self.device))
            for buffer in self.loss.buffers():
                follow_first(buffer)
        return {
            "epoch": self.epoch,
            "loss": loss,
            "accuracy": correct,
            "learning_rate": self.recipe.rate(self.epoch - 1),
            "seconds": round(time.perf_counter() - start, 3),
        }

    def _plain_step(self, x: Tensor, y: Tensor) -> None:
        with self._autocast():
            logits = self.forward(x)
        losses = self.loss(logits.float(), y)
        self.optimizer.zero_grad(set_to_none=True)
        (losses.sum() * self.scale).backward()
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

    def _state(self, **more: str) -> bytes:
        """All that the run needs in order to go on."""
        state = {
            "recipe": self.recipe.to_json(),
            "epoch": self.epoch,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loss": self.loss.state_dict(),
            "generator": self.batches.generator.get_state(),
            **more,
        }
        # By way of memory, so that a full disk is an error of the disk's and not one of torch's writer.
        buffer = io.BytesIO()
        torch.save(state, buffer)
        return buffer.getvalue()

    def _save(self) -> None:
        write_atomically(self.folder / "checkpoint.pt", self._state())

    def _carry(self, folder: Path) -> None:
        """Keep a checkpoint for another machine, where the log is not: it comes along."""
        log = (self.folder / "log.jsonl").read_text(encoding="utf-8")
        write_parts(folder, self._state(log=log), self.epoch)

    @contextmanager
    def disk(self) -> Iterator[None]:
        """Say in one line what a full disk means for the run."""
        try:
            yield
        except OSError as error:
            words = f"{error.strerror or error}; the run stopped after epoch {self.epoch}"
            whole = (self.folder / "checkpoint.pt").is_file()
            then = (
                "goes on from the last checkpoint, which is whole" if whole else "begins anew: there was no checkpoint"
            )
            raise CheckpointError(f"{self.folder}: {words}. Make room; the same command {then}.") from error

    def _resume(self, resume_from: Path | None) -> None:
        content, source = b"", self.folder / "checkpoint.pt"
        if self.ranks.is_first:
            self.folder.mkdir(parents=True, exist_ok=True)
            content = source.read_bytes() if source.is_file() else b""
            if resume_from is not None:
                own = self._decoded(content, source)["epoch"] if content else -1
                if read_manifest(resume_from)["epoch"] > own:
                    content, source = read_parts(resume_from), resume_from
        content = share(content)
        if not content:
            return
        state = self._decoded(content, source)
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loss.load_state_dict(state["loss"])
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        self.batches.generator.set_state(state["generator"].cpu())
        self.epoch = state["epoch"]
        if self.ranks.is_first and "log" in state:
            write_atomically(self.folder / "log.jsonl", state["log"])

    def _decoded(self, content: bytes, source: Path) -> dict[str, Any]:
        """What a checkpoint holds, if it is one of this recipe."""
        try:
            state = torch.load(io.BytesIO(content), map_location=self.device, weights_only=True)
        except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise FormatError(f"{source}: not a checkpoint that can be read; remove it to begin anew.") from error
        if state["recipe"] != self.recipe.to_json():
            raise FormatError(f"{source}: the checkpoint belongs to another recipe.")
        return state


def write_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write arrays by their names into one compressed file, whole or not at all."""
    with replace_atomically(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def make_loss(recipe: Recipe) -> torch.nn.Module:
    """The recipe's loss of each row of a batch."""
    if recipe.loss == "cross-entropy":
        return torch.nn.CrossEntropyLoss(reduction="none")
    if recipe.loss == "label-smoothing":
        return torch.nn.CrossEntropyLoss(reduction="none", label_smoothing=0.05)
    if recipe.loss == "brier":
        return BrierLoss(reduction="none", validate=False)
    if recipe.loss == "mmce":
        return _SharedByRows(MMCE(2.0, validate=False))
    if recipe.loss == "dual-focal":
        return _DualFocalLoss(DUAL_GAMMA)
    if recipe.loss == "flsd-53":
        return SampleDependentFocalLoss(reduction="none", validate=False)
    if recipe.loss == "adafocal":
        return AdaFocalLoss(reduction="none", validate=False)
    return FocalLoss(recipe.gamma, reduction="none", validate=False)


class _SharedByRows(torch.nn.Module):
    """A loss of a whole batch, of which each row gets the same share."""

    def __init__(self, loss: torch.nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean loss, once for each row."""
        mean: Tensor = self.loss(logits, labels)
        return mean.expand(len(labels))


class _DualFocalLoss(torch.nn.Module):
    """Dual focal loss of each row (Tao, Dong & Xu 2023, arXiv 2305.13665).

        ℓ = -(1 - p_y + p_j)^γ log p_y,   p_j = max {p_k : p_k < p_y},

    p_j being the most probable class below the true one, 0 where the true one is the least probable. Unlike focal loss
    it also pushes that class down.
    """

    def __init__(self, gamma: float) -> None:
        super().__init__()
        self.gamma = gamma

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """One loss for each row."""
        log_p = logits.log_softmax(dim=1)
        log_p_true = log_p.gather(1, labels[:, None])
        is_below = log_p < log_p_true
        p_below = torch.where(is_below, log_p.exp(), 0.0).amax(dim=1)
        log_p_true = log_p_true.squeeze(1)
        gap = p_below - torch.expm1(log_p_true)  # 1 - p_y + p_j, exact where p_y is near 1
        return -(gap**self.gamma) * log_p_true


def _truncate_log(path: Path, epochs: int) -> None:
    """Forget what was logged after the checkpoint: those epochs are trained again."""
    if path.is_file():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        if len(lines) > epochs:
            write_atomically(path, "".join(lines[:epochs]))
