"""The logits and labels of a data set, by one walk of a model through a loader."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any

import torch
from torch import Tensor, nn

from refocal.data import Predictions
from refocal.errors import DataError, ParameterError, ShapeError


@torch.no_grad()
def collect_logits(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    device: torch.device | str | None = None,
    progress: bool = True,
    class_axis: int | None = None,
    ignore_index: int = -100,
    label_key: str = "labels",
    keep_on: torch.device | str = "cpu",
) -> Predictions:
    """Run `model` over `loader` in evaluation mode, without gradients; the model's own mode is put back after it.

    The model may return logits, a mapping or an object with `logits`, or a sequence that begins with them. Each pixel
    or token becomes a row; half precision becomes float32.

    Parameters
    ----------
    loader : iterable of batches
        A batch is (inputs, labels), or a mapping, whose entry `label_key` holds the labels and whose other entries are
        passed by name, as Hugging Face models take them.
    device : optional
        Where the model runs; by default where its parameters are.
    progress : bool
        Count the batches on the standard error stream, if that is a terminal.
    class_axis : int, optional
        Where the classes lie in the logits. By default read from the shapes: labels (N, H, W) for logits (N, C, H, W),
        or labels (N, L) for logits (N, L, C). Where both would fit, it must be said.
    ignore_index : int
        Rows with this label, such as padding and unlabelled pixels, are left out.
    keep_on : device
        Where the logits are gathered.

    Examples
    --------
    >>> model = torch.nn.Linear(4, 3)
    >>> found = collect_logits(model, [(torch.zeros(2, 4), torch.tensor([0, 2]))], progress=False)
    >>> found, found.labels
    (Predictions(2 rows, 3 classes, logits, torch.float32), array([0, 2]))
    """
    if device is None:
        first = next(model.parameters(), None)
        device = torch.device("cpu") if first is None else first.device
    modes = [(part, part.training) for part in model.modules()]
    parts = []
    model.to(device).eval()
    try:
        for number, batch in enumerate(loader, start=1):
            output, labels = _run(model, batch, device, label_key)
            rows, y = _rows(output, labels.to(device), class_axis)
            kept = y != ignore_index
            parts.append((rows[kept].to(keep_on), y[kept].cpu()))
            _show(number, loader, progress)
    finally:
        for part, training in modes:
            part.training = training
    if not parts:
        raise DataError("loader", "collect_logits", expected="batches", got="none")
    _show(None, loader, progress)
    return Predictions.from_logits(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _run(model: nn.Module, batch: Any, device: torch.device | str, label_key: str) -> tuple[Tensor, Tensor]:
    if isinstance(batch, Mapping):
        if label_key not in batch:
            keys = ", ".join(map(repr, batch))
            raise ParameterError("label_key", "collect_logits", expected=f"one of {keys}", got=repr(label_key))
        inputs = {key: _move(value, device) for key, value in batch.items() if key != label_key}
        return _logits_of(model(**inputs)), torch.as_tensor(batch[label_key])
    if not isinstance(batch, Sequence) or len(batch) != 2:
        raise DataError(
            "loader", "collect_logits", expected="batches (inputs, labels) or mappings", got=type(batch).__name__
        )
    return _logits_of(model(_move(batch[0], device))), torch.as_tensor(batch[1])


def _move(value: Any, device: torch.device | str) -> Any:
    return value.to(device, non_blocking=True) if hasattr(value, "to") else value


def _logits_of(output: Any) -> Tensor:
    if isinstance(output, Mapping) and "logits" in output:
        output = output["logits"]
    elif hasattr(output, "logits"):
        output = output.logits
    elif isinstance(output, (tuple, list)) and output:
        output = output[0]
    if not isinstance(output, Tensor) or not output.is_floating_point():
        raise DataError(
            "model",
            "collect_logits",
            expected="a module that returns logits, or a mapping or object with 'logits'",
            got=type(output).__name__,
        )
    return output


def _rows(logits: Tensor, labels: Tensor, class_axis: int | None) -> tuple[Tensor, Tensor]:
    axis = _class_axis(tuple(logits.shape), tuple(labels.shape), class_axis)
    rows = logits.movedim(axis, -1)
    if rows.dtype.itemsize < 4:
        rows = rows.to(torch.float32)
    return rows.reshape(-1, rows.shape[-1]), labels.reshape(-1).to(torch.int64)


def _class_axis(logits: tuple[int, ...], labels: tuple[int, ...], class_axis: int | None) -> int:
    candidates = {1, len(logits) - 1} if class_axis is None else {class_axis % len(logits)}
    fitting = [axis for axis in candidates if logits[:axis] + logits[axis + 1 :] == labels]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ParameterError(
            "class_axis",
            "collect_logits",
            expected=f"given, since labels of shape {labels} fit logits of shape {logits} with the classes on axis 1 "
            f"and on axis {len(logits) - 1}",
            got="None",
        )
    raise ShapeError(
        "labels", "collect_logits", expected=f"one for each row of logits of shape {logits}", got=f"shape {labels}"
    )


def _show(number: int | None, loader: Iterable[Any], progress: bool) -> None:
    if not (progress and sys.stderr.isatty()):
        return
    total = f" of {len(loader)}" if isinstance(loader, Sized) else ""
    sys.stderr.write("\n" if number is None else f"\rcollecting logits: batch {number}{total}")
    sys.stderr.flush()
