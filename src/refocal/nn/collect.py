"""The logits and labels of a data set, by one walk of a model through a loader."""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, nullcontext
from itertools import combinations
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from refocal._arrays import class_axes
from refocal._files import replace_atomically
from refocal._validation import check_integer, check_option, check_seed, whole_numbers
from refocal.errors import DataError, LabelError, ParameterError, ShapeError
from refocal.io import MultiLabelPredictions, Predictions
from refocal.io.multilabel import UNKNOWN
from refocal.rows.label_errors import outside_columns
from refocal.rows.labels import IgnoreIndex, LabelRule
from refocal.rows.marks import check_marks

UPSAMPLING = {4: "bilinear", 5: "trilinear"}
"""How images and volumes of a lower resolution than their labels are brought to it, by the number of axes."""

HEADER = 512
"""Bytes of a file's header, whose length is not known before the last row; it is filled with spaces."""


@torch.no_grad()
def collect_logits(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    device: torch.device | str | None = None,
    progress: bool = True,
    class_axis: int | None = None,
    ignore_index: IgnoreIndex = None,
    input: str = "logits",  # noqa: A002
    label_key: str | int = "labels",
    output_key: str | int | None = None,
    max_rows: int | None = None,
    seed: int = 0,
    keep_on: torch.device | str = "cpu",
    shift: bool = False,
    keep_precision: bool = False,
    path: str | Path | None = None,
) -> Predictions | MultiLabelPredictions:
    """Run `model` over `loader` in evaluation mode, without gradients; the model's own mode is put back after it.

    Each pixel or token becomes a row; half precision becomes float32, in twice the memory, unless `keep_precision` is
    set. A single logit per row is the log-odds of class 1 of two. Images of the proportions of their labels but of a
    lower resolution, as with SegFormer, are brought to it by bilinear interpolation, one image at a time.

    Parameters
    ----------
    loader : iterable of batches
        (inputs, labels, …), or mappings of labels, under `label_key`, and of what Hugging Face models take by name.
    label_key : str or int
        The labels of a batch: a key of mappings, or a place in tuples, where it is by default 1. A tuple of token ids,
        their attention mask and labels is refused without a place; mappings hand the mask to the model.
    device, keep_on : device
        Where the model runs, by default where its parameters are; and where the logits are gathered.
    progress : bool
        Count the batches on the standard error stream, if that is a terminal.
    class_axis : int, optional
        Where the classes lie in the logits: 1 or the last. By default read from the shapes; where two axes
        have the right size, it must be given.
    ignore_index : int or several, optional
        Labels of rows that are left out, such as padding; by default -100, and 255 if there are at most 255 classes.
    input : "logits" or "log-odds"
        Log-odds are those of labels that do not exclude one another, before sigmoids: labels have the shape of the
        logits, (N, K) or (N, K, H, W), and `MultiLabelPredictions` are returned. An ignored entry is unknown.
    output_key : str or int, optional
        The logits among the model's outputs: a key, attribute or place; by default `logits`, `out` or the first.
    max_rows, seed : int
        The size of a uniform sample to keep, whatever the size of the batches, which bounds the memory, and its seed.
    shift : bool
        Labels move by one: logits (N, L, C) of a causal language model are about the next token.
    path : path, optional
        A .safetensors file of `logits` and `labels`, written batch by batch and mapped: memory does not grow.

    Examples
    --------
    >>> model = torch.nn.Linear(4, 3)
    >>> collect_logits(model, [(torch.zeros(2, 4), torch.tensor([0, 2]))], progress=False)
    Predictions(2 rows, 3 classes, logits, torch.float32)
    """
    check_option(input, ("logits", "log-odds"), "input", "collect_logits")
    if not isinstance(model, nn.Module):
        raise DataError("model", "collect_logits", expected="a torch.nn.Module", got=f"a {type(model).__name__}")
    if device is None:
        device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    with nullcontext() if path is None else _opened(path) as file, _in_evaluation_mode(model.to(device)):
        rows = _Rows(max_rows, seed, keep_on, file)
        for batch in _counted(loader, progress):
            batch_logits, batch_labels = _run(
                model,
                batch,
                device=device,
                label_key=label_key,
                output_key=output_key,
                shift=shift,
                keep_precision=keep_precision,
            )
            for logits, labels, axis in _same_resolution(batch_logits, batch_labels, class_axis):
                rows.add(*_classes_last(logits, labels, axis, input), ignore_index)
        logits, y = rows.finish()
    if path is not None:
        logits = _mapped(path, logits, len(y))
    if y.ndim == 2:
        return MultiLabelPredictions.from_log_odds(logits, y, ignore_index=UNKNOWN)
    if logits.shape[1] == 1:
        return Predictions.from_log_odds(logits[:, 0], y)
    return Predictions.from_logits(logits, y)


def _counted(loader: Iterable[Any], progress: bool) -> Iterator[Any]:
    """The batches of a loader, counted on the standard error stream; an error if there are none."""
    number = 0
    is_shown = progress and sys.stderr.isatty()
    total = f" of {len(loader)}" if isinstance(loader, Sized) else ""
    for number, batch in enumerate(loader, start=1):
        yield batch
        if is_shown:
            sys.stderr.write(f"\rcollecting logits: batch {number}{total}")
            sys.stderr.flush()
    if number == 0:
        raise DataError("loader", "collect_logits", expected="batches", got="none")
    if is_shown:
        sys.stderr.write("\n")


@contextmanager
def _in_evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Every module in evaluation mode, and back in its own."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


class _Part(NamedTuple):
    """Rows that were kept, and the random number of each."""

    logits: Tensor
    labels: Tensor
    random: Tensor


class _Rows:
    """The rows of all batches, or a uniform sample of them: those of the smallest random numbers.

    Where there is a file, logits are written into it batch by batch, a sample once it is whole, and then the labels.
    """

    def __init__(self, most: int | None, seed: int, device: torch.device | str, file: BinaryIO | None) -> None:
        self.most = math.inf if most is None else check_integer(most, "max_rows", "collect_logits")
        self.random = np.random.default_rng(check_seed(seed, "collect_logits"))
        self.device = device
        self.file = file
        self.parts: list[_Part] = []
        self.bound = 1.0  # every row kept so far has a smaller number

    def add(self, logits: Tensor, labels: Tensor, ignore_index: IgnoreIndex) -> None:
        """Take in a batch: logits (..., C) and labels (...), or (..., C) where each has a label of its own."""
        marks = (-100, 255)  # of pixels and tokens without a label; the second is a class where there are more than 255

        if self.parts and self.parts[0].logits.shape[-1] != logits.shape[-1]:
            n_before = self.parts[0].logits.shape[-1]
            expected = f"a module that returns as many classes for every batch, {n_before} as before"
            raise ShapeError("model", "collect_logits", expected=expected, got=f"{logits.shape[-1]} classes")
        if self.file is not None and self.parts and self.parts[0].logits.dtype != logits.dtype:
            expected = f"a module whose logits have one dtype in every batch, {self.parts[0].logits.dtype} as before"
            raise DataError("model", "collect_logits", expected=expected, got=str(logits.dtype))
        of_labels = labels.ndim == logits.ndim
        n_classes = 2 if of_labels else max(2, logits.shape[-1])
        unlabelled = tuple(label for label in marks if not 0 <= label < n_classes)
        ignored = unlabelled if ignore_index is None else check_marks(ignore_index, "collect_logits")
        unknown = torch.isin(labels, torch.tensor(ignored, device=labels.device))
        if of_labels:
            stated = labels[~unknown]
            if (stated == UNKNOWN).any():  # it would be taken for the mark that takes the place of all others below
                rule = LabelRule(2, argument="labels", function="collect_logits")
                raise outside_columns(rule, int(stated.min()), int(stated.max()))
            labels = labels.masked_fill(unknown, UNKNOWN)
            unknown = unknown.all(-1)
        known = (~unknown).nonzero()
        random = torch.from_numpy(self.random.random(len(known)))
        is_kept = random < self.bound
        index = known[is_kept.to(known.device)].unbind(-1)
        kept = logits[index].to(self.device)
        if self.file is not None and self.most == math.inf:
            self.file.write(_bytes(kept))
            kept = kept[:0]
        self.parts.append(_Part(kept, labels[index].cpu(), random[is_kept]))
        if sum(len(part.random) for part in self.parts) > 2 * self.most:
            self._join()

    def finish(self) -> tuple[Tensor, Tensor]:
        """Logits that are not in the file yet, and labels, in the order in which they came."""
        self._join()
        logits = self.parts[0].logits
        labels = self.parts[0].labels
        if len(labels) == 0:
            expected = "of at least one row that 'ignore_index' does not leave out"
            raise LabelError("labels", "collect_logits", expected=expected, got="none")
        if self.file is not None:
            self.file.write(_bytes(logits))
            self.file.write(_bytes(labels))
            self.file.seek(0)
            self.file.write(_header(logits, labels))
        return logits, labels

    def _join(self) -> None:
        """One part of all, without the rows that can no longer be in the sample."""
        whole = _Part(
            torch.cat([part.logits for part in self.parts]),
            torch.cat([part.labels for part in self.parts]),
            torch.cat([part.random for part in self.parts]),
        )
        if len(whole.random) > self.most:
            self.bound = float(whole.random.kthvalue(int(self.most)).values)
            is_kept = whole.random <= self.bound
            kept_logits = whole.logits[is_kept.to(whole.logits.device)]
            whole = _Part(kept_logits, whole.labels[is_kept], whole.random[is_kept])
        self.parts = [whole]


def _header(logits: Tensor, labels: Tensor) -> bytes:
    """The header of a .safetensors file of logits, a row for each label, and labels: its length, then JSON."""
    dtypes = {torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64"}
    shape = [len(labels), logits.shape[1]]
    size = math.prod(shape) * logits.dtype.itemsize
    header = {
        "logits": {"dtype": dtypes[logits.dtype], "shape": shape, "data_offsets": [0, size]},
        "labels": {"dtype": "I64", "shape": list(labels.shape), "data_offsets": [size, size + labels.nbytes]},
    }
    length = HEADER - 8  # without the eight bytes of the length itself
    return struct.pack("<Q", length) + json.dumps(header).encode().ljust(length)


def _run(
    model: nn.Module,
    batch: Any,
    *,
    device: torch.device | str,
    label_key: str | int,
    output_key: str | int | None,
    shift: bool,
    keep_precision: bool,
) -> tuple[Tensor, Tensor]:
    """Logits and labels of a batch, as integers and without an axis of their own for a single channel."""

    def moved(value: Any) -> Any:
        return value.to(device, non_blocking=True) if hasattr(value, "to") else value

    if isinstance(batch, Mapping):
        if label_key not in batch:
            keys = ", ".join(map(repr, batch))
            raise ParameterError("label_key", "collect_logits", expected=f"one of {keys}", got=repr(label_key))
        output = model(**{key: moved(value) for key, value in batch.items() if key != label_key})
        labels = batch[label_key]
    elif isinstance(batch, Sequence) and len(batch) > 1:
        labels = _labels_of_tuple(batch, label_key)
        output = model(moved(batch[0]))
    else:
        expected = "batches (inputs, labels) or mappings"
        raise DataError("loader", "collect_logits", expected=expected, got=type(batch).__name__)
    logits = output if output_key is None and isinstance(output, Tensor) else _entry(output, output_key)
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        expected = "a module that returns logits, or has them under 'logits', 'out' or 'output_key'"
        raise DataError("model", "collect_logits", expected=expected, got=_described(logits))
    if not keep_precision and logits.dtype.itemsize < 4:
        logits = logits.to(torch.float32)
    labels = torch.as_tensor(labels)
    if shift and (logits.ndim != 3 or labels.shape != logits.shape[:2]):
        expected = "left out unless logits are (N, L, C) and labels (N, L)"
        got = f"logits of shape {tuple(logits.shape)} and labels of shape {tuple(labels.shape)}"
        raise ParameterError("shift", "collect_logits", expected=expected, got=got)
    if shift:
        logits = logits[:, :-1]
        labels = labels[:, 1:]
    if labels.ndim == logits.ndim > 1 and labels.shape[1] == 1:  # masks (N, 1, H, W)
        labels = labels.squeeze(1)
    return logits, whole_numbers(labels.to(device), "labels", "collect_logits").to(torch.int64)


def _labels_of_tuple(batch: Sequence[Any], label_key: str | int) -> Any:
    """The labels of a batch (inputs, labels, …), unless what is in their place looks like the mask of token ids."""
    if isinstance(label_key, int):
        if not 1 <= label_key < len(batch):
            expected = f"a place behind the inputs, from 1 to {len(batch) - 1}"
            raise ParameterError("label_key", "collect_logits", expected=expected, got=repr(label_key))
        return batch[label_key]
    if len(batch) > 2 and _is_mask(batch[1], batch[0]):
        expected = "the place of the labels in a batch, such as 2, where its second entry may be an attention mask"
        got = f"batches of {len(batch)} entries, the second of zeros and ones, one for each token id"
        raise ParameterError("label_key", "collect_logits", expected=expected, got=got)
    return batch[1]


def _is_mask(values: Any, inputs: Any) -> bool:
    """Whether values may be the attention mask of token ids (N, L): zeros and ones of the same shape."""
    are_tensors = isinstance(values, Tensor) and isinstance(inputs, Tensor)
    if not are_tensors or inputs.ndim != 2 or inputs.is_floating_point() or values.shape != inputs.shape:
        return False
    return bool(((values == 0) | (values == 1)).all())


def _entry(output: Any, key: str | int | None) -> Any:
    """The value of a key, by default of one of the known ones; the output itself where there is none."""
    known_keys = (
        "logits",
        "out",
        0,
    )  # Hugging Face's, torchvision's for segmentation, of models that return a sequence

    for name in known_keys if key is None else (key,):
        if isinstance(output, Mapping) and name in output:
            return output[name]
        if isinstance(name, str) and hasattr(output, name):
            return getattr(output, name)
        if isinstance(name, int) and isinstance(output, Sequence) and -len(output) <= name < len(output):
            return output[name]
    if key is not None:
        expected = f"that of an output of the model, which returns {_described(output)}"
        raise ParameterError("output_key", "collect_logits", expected=expected, got=repr(key))
    return output


def _described(output: Any) -> str:
    return f"a mapping of {', '.join(map(repr, output))}" if isinstance(output, Mapping) else type(output).__name__


def _same_resolution(
    logits: Tensor, labels: Tensor, class_axis: int | None
) -> Iterator[tuple[Tensor, Tensor, int | None]]:
    """The batch as it is, or each of its images at the resolution of its labels; and the axis of the classes."""
    last = logits.ndim - 1
    if class_axis is not None:
        class_axis = check_integer(class_axis, "class_axis", "collect_logits", least=-last - 1, most=last) % logits.ndim
    axis = _class_axis_of_coarse(tuple(logits.shape), tuple(labels.shape), class_axis)
    if axis is None:
        yield logits, labels, class_axis
        return
    logits = logits.movedim(axis, 1)
    if labels.ndim == logits.ndim:
        labels = labels.movedim(axis, 1)
    size = labels.shape[labels.ndim - logits.ndim + 2 :]
    for image, mask in zip(logits, labels, strict=True):
        mode = UPSAMPLING[logits.ndim]
        yield nn.functional.interpolate(image[None], size=size, mode=mode, align_corners=False), mask[None], 1


def _class_axis_of_coarse(shape: tuple[int, ...], of_labels: tuple[int, ...], class_axis: int | None) -> int | None:
    """The axis of the classes of images whose labels have a higher resolution; None for all other rows.

    The size of an image and that of its labels have the same proportions, up to the rounding of a pixel, unless
    `class_axis` says which axis holds no pixels. So (N, H, W, C) is not taken for images of H classes.
    """
    last = len(shape) - 1
    if len(shape) not in UPSAMPLING or len(of_labels) not in (last, last + 1) or shape[0] != of_labels[0]:
        return None
    if shape == of_labels or class_axes(shape, of_labels):
        return None
    sizes = {}
    for axis in (1, last):
        size = shape[1:axis] + shape[axis + 1 :]
        wanted = of_labels[1:axis] + of_labels[axis + 1 :] if len(of_labels) == len(shape) else of_labels[1:]
        has_channels = len(of_labels) == last or of_labels[axis] == shape[axis]
        if has_channels and all(few <= many for few, many in zip(size, wanted, strict=True)):
            sizes[axis] = (size, wanted)
    if class_axis is not None:
        return class_axis if class_axis in sizes else None
    for is_rounded in (False, True):
        alike = [axis for axis, (size, wanted) in sizes.items() if _are_proportional(size, wanted, is_rounded)]
        if len(alike) > 1:
            raise _either_axis(shape, of_labels)
        if alike:
            return alike[0]
    return None


def _are_proportional(size: tuple[int, ...], wanted: tuple[int, ...], is_rounded: bool) -> bool:
    """Whether one factor leads from a size to the other; rounding may have moved the smaller one by a pixel."""
    slack = max(wanted) if is_rounded else 0
    pairs = combinations(zip(size, wanted, strict=True), 2)
    return all(abs(few * other_many - other_few * many) <= slack for (few, many), (other_few, other_many) in pairs)


def _either_axis(shape: tuple[int, ...], of_labels: tuple[int, ...]) -> ParameterError:
    """The error about classes that may lie on two axes."""
    both = f"with the classes on axis 1 and on axis {len(shape) - 1}"
    expected = f"given, since labels of shape {of_labels} fit logits of shape {shape} {both}"
    return ParameterError("class_axis", "collect_logits", expected=expected, got="None")


def _classes_last(logits: Tensor, labels: Tensor, class_axis: int | None, kind: str) -> tuple[Tensor, Tensor]:
    """Logits (..., C) and labels (...), or (..., C) for log-odds of several labels."""
    shape = tuple(logits.shape)
    of_labels = tuple(labels.shape)
    if shape == of_labels and logits.ndim == 1:
        return logits[:, None], labels
    if shape == of_labels and kind == "log-odds":
        axis = 1 if class_axis is None else class_axis
        return logits.movedim(axis, -1), labels.movedim(axis, -1)
    fitting = class_axes(shape, of_labels)
    if class_axis is not None:
        fitting = [axis for axis in fitting if axis == class_axis]
    if len(fitting) == 1:
        return logits.movedim(fitting[0], -1), labels
    if fitting:
        raise _either_axis(shape, of_labels)
    hint = " (of labels that do not exclude one another say input='log-odds', of one-hot labels take the argmax)"
    expected = f"one for each row of logits of shape {shape}{hint if shape == of_labels else ''}"
    raise ShapeError("labels", "collect_logits", expected=expected, got=f"shape {of_labels}")


@contextmanager
def _opened(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write logits into, after the place of its header; whole or not at all."""
    target = Path(path)
    if target.suffix != ".safetensors":
        expected = "the name of a file that ends in .safetensors"
        raise ParameterError("path", "collect_logits", expected=expected, got=repr(str(path)))
    with replace_atomically(target) as part, part.open("wb") as file:
        file.write(bytes(HEADER))
        yield file


def _bytes(values: Tensor) -> bytes:
    return values.cpu().contiguous().view(torch.uint8).numpy().tobytes()


def _mapped(path: str | Path, like: Tensor, n_rows: int) -> Tensor:
    """The logits of a file, of the dtype and the columns of others: what is changed in memory stays out of the file."""
    size = n_rows * like.shape[1] * like.dtype.itemsize
    mapped = np.memmap(path, dtype=np.uint8, mode="c", offset=HEADER, shape=(size,))
    return torch.from_numpy(mapped).view(like.dtype).reshape(n_rows, -1)
