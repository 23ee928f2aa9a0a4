"""What every loss shares: settings, the logits of a model's output, checks of the labels, reductions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import array_api_compat.torch as xp
import torch
from torch import Tensor, nn

from refocal._arrays import Array, is_traced
from refocal._validation import check_broadcast, check_number, check_option
from refocal.errors import LabelError, ParameterError, ShapeError
from refocal.maps.row import Row, softmax_row


class Batch(NamedTuple):
    """Logits in float32 or float64, of classes on the last axis, and labels that can all be looked up."""

    logits: Tensor  # (..., C), or of the labels' shape for sigmoids
    labels: Tensor  # (...), 0 in place of ignore_index
    kept: Tensor  # (...), False where the label was ignore_index

    def row(self) -> Row:
        """The row of softmax(logits), on which the losses rest."""
        return softmax_row(xp, self.logits, 1.0)


class BaseLoss(nn.Module, ABC):
    """Settings, checks and reductions of the losses of classes and of sigmoids; `shown` are what `print` shows."""

    shown: ClassVar[tuple[str, ...]] = ("reduction",)
    ignore_index: float | None
    weight: Tensor | None

    def __init__(
        self, ignore_index: float | None, reduction: str, validate: bool | None, weight: Tensor | None = None
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        check_option(reduction, ("none", "mean", "sum"), "reduction", type(self).__name__)
        self.ignore_index, self.reduction, self.validate = ignore_index, reduction, validate

    def forward(self, logits: Any, labels: Tensor, num_items_in_batch: Tensor | float | None = None) -> Tensor:
        """The loss of a batch; the arguments are also those of Hugging Face's `compute_loss_func`."""
        batch = self._batch(logits, labels)
        return self._reduce(self._of(batch), batch, num_items_in_batch)

    @abstractmethod
    def _batch(self, outputs: Any, labels: Tensor) -> Batch:
        """What a model gives and its labels, checked."""

    @abstractmethod
    def _of(self, batch: Batch) -> Array:
        """The loss of each label."""

    def extra_repr(self) -> str:
        """What `print` shows."""
        values = {name: getattr(self, name) for name in self.shown}
        texts = {
            k: f"tensor of shape {tuple(v.shape)}" if isinstance(v, Tensor) else repr(v) for k, v in values.items()
        }
        return ", ".join(f"{name}={text}" for name, text in texts.items())

    def _set(self, argument: str, value: Any, *, exact: bool = False, **bounds: Any) -> None:
        """Keep a setting: a number, or a tensor with a value for each label, which becomes a buffer."""
        name = type(self).__name__
        if isinstance(value, Tensor):
            like = value if exact and value.is_floating_point() else value.float()
            self.register_buffer(argument, check_broadcast(value, argument, name, like=like, **bounds), False)
        else:
            setattr(self, argument, check_number(value, argument, name, **bounds))

    def _logits(self, outputs: Any, labels: Any) -> Tensor:
        """The logits of what a model gives, a tensor or an object that has one called logits, in float32 at least."""
        name = type(self).__name__
        if not isinstance(labels, Tensor):
            # Hugging Face's Trainer passes None to the loss of a model whose forward() has no argument of that name.
            expected = "a tensor; Hugging Face's Trainer has them if forward() of the model has an argument 'labels'"
            raise LabelError("labels", name, expected=expected, got=f"a {type(labels).__name__}")
        found = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", outputs)
        if not isinstance(found, Tensor) or not found.is_floating_point():
            expected = "a floating-point tensor, or the output of a model that has one called logits"
            got = f"dtype {found.dtype}" if isinstance(found, Tensor) else f"a {type(outputs).__name__}"
            raise ShapeError("logits", name, expected=expected, got=got)
        return found.float() if found.dtype.itemsize < 4 else found

    def _checks(self, values: Tensor) -> bool:
        """Whether values are to be read and checked."""
        wanted = values.device.type == "cpu" if self.validate is None else self.validate
        return wanted and not is_traced(values) and values.numel() > 0

    def _check_range(self, labels: Tensor, most: int) -> None:
        if not self._checks(labels):
            return
        lowest, highest = labels.min().item(), labels.max().item()
        if not (lowest >= 0 and highest <= most):
            also = "" if self.ignore_index is None else f", or ignore_index ({self.ignore_index:g})"
            expected, got = f"between 0 and {most}{also}", f"labels from {lowest:.12g} to {highest:.12g}"
            raise LabelError("labels", type(self).__name__, expected=expected, got=got)

    def _reduce(self, values: Tensor, batch: Batch, n_items: Tensor | float | None) -> Tensor:
        factor = batch.kept if self.weight is None else batch.kept * self.weight.to(values.dtype)[batch.labels]
        # Where the factor is 0 the value is dropped, not multiplied: an infinite one would leave NaN.
        values = torch.where(factor > 0, values * factor, 0.0)
        if self.reduction == "none":
            return values
        if self.reduction == "sum":
            return values.sum()
        return values.sum() / (factor.sum() if n_items is None else n_items)


class Loss(BaseLoss):
    """A loss on logits (N, C, d1, ...) or (C,), classes on axis 1, and integer labels (N, d1, ...) or ().

    Parameters
    ----------
    weight : Tensor of shape (C,), optional
        One factor for each class; "mean" divides by the sum of the labels' factors, as `nn.CrossEntropyLoss` does.
    ignore_index : int
        A label that is ignored. Logits there may hold anything, even NaN.
    reduction : "mean", "sum" or "none"
    validate : bool, optional
        Whether labels are read and checked. None, the default, checks them on the CPU, where it costs next to
        nothing, and not on other devices, where it would make every step wait for the device: there a label out of
        range trips the device's own assertion, as it does in cross-entropy. True checks everywhere and gives the same
        readable error; turn it on to find out what is wrong. Nothing is read under `torch.compile`.

    The computation and the result are in float32 at least, also for half precision and under autocast. A loss serves as
    `compute_loss_func` of Hugging Face's `Trainer`: outputs that have `logits` are taken for them, with the classes on
    the last axis, and the mean is over `num_items_in_batch` if that is given.
    """

    shown: ClassVar[tuple[str, ...]] = ("ignore_index", "reduction")
    ignore_index: int

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        validate: bool | None = None,
    ) -> None:
        is_fit = isinstance(weight, Tensor) and weight.ndim == 1 and bool((weight >= 0).all())
        if weight is not None and not is_fit:
            expected = "a tensor with one factor of at least 0 for each class"
            raise ParameterError("weight", type(self).__name__, expected=expected, got=repr(weight))
        super().__init__(ignore_index, reduction, validate, weight)

    def _batch(self, outputs: Any, labels: Tensor) -> Batch:
        name, logits = type(self).__name__, self._logits(outputs, labels)
        if not isinstance(outputs, Tensor):
            logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
        if logits.ndim == 0:
            raise ShapeError("logits", name, expected="of shape (N, C, ...) or (C,)", got="a single number")
        rows = logits if logits.ndim == 1 else logits.movedim(1, -1)
        shape, n_classes = tuple(rows.shape[:-1]), rows.shape[-1]
        if labels.shape != shape:
            expected = f"of shape {shape}, since the logits have shape {tuple(logits.shape)}"
            raise ShapeError("labels", name, expected=expected, got=f"shape {tuple(labels.shape)}")
        if labels.is_floating_point() or labels.dtype in (torch.bool, torch.complex64, torch.complex128):
            raise LabelError("labels", name, expected="integers", got=f"dtype {labels.dtype}")
        if self.weight is not None and self.weight.shape[0] != n_classes:
            got = f"shape {tuple(self.weight.shape)}"
            raise ShapeError("weight", name, expected=f"of shape ({n_classes},)", got=got)
        labels = labels.to(torch.int64)
        kept = labels != self.ignore_index
        known = torch.where(kept, labels, 0)
        self._check_range(known, n_classes - 1)
        return Batch(torch.where(kept[..., None], rows, 0.0), known, kept)
