"""What every loss shares: shapes and reductions like `nn.CrossEntropyLoss`, and the check of the labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import array_api_compat.torch as xp
import torch
from torch import Tensor, nn

from refocal._arrays import is_traced
from refocal._validation import check_option
from refocal.errors import LabelError, ParameterError, ShapeError
from refocal.maps.row import Row, softmax_row

REDUCTIONS = ("none", "mean", "sum")


class Batch(NamedTuple):
    """Logits with the classes on the last axis, in float32 or float64, and labels that can all be looked up."""

    logits: Tensor  # (..., C)
    labels: Tensor  # (...), 0 in place of ignore_index
    kept: Tensor  # (...), False where the label was ignore_index

    def row(self) -> Row:
        """The row of softmax(logits), on which the losses rest."""
        return softmax_row(xp, self.logits, 1.0)


def logits_of(outputs: Any, labels: Any, function: str) -> Tensor:
    """The logits of what a model gives: a tensor, or an object that has one called logits, as Hugging Face's have."""
    if not isinstance(labels, Tensor):
        # Hugging Face's Trainer passes None to the loss of a model whose forward() has no argument of that name.
        expected = "a tensor; Hugging Face's Trainer has them if forward() of the model has an argument 'labels'"
        raise LabelError("labels", function, expected=expected, got=f"a {type(labels).__name__}")
    found = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", outputs)
    if not isinstance(found, Tensor):
        expected = "a tensor, or the output of a model that has one called logits"
        raise ShapeError("logits", function, expected=expected, got=f"a {type(outputs).__name__}")
    return found


def are_checked(values: Tensor, validate: bool | None) -> bool:
    """Whether values are to be read and checked; `validate` is that of `Loss`."""
    wanted = values.device.type == "cpu" if validate is None else validate
    return wanted and not is_traced(values) and values.numel() > 0


class Loss(nn.Module):
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

    The computation and the result are in float32 at least, also for half precision and under autocast.
    """

    weight: Tensor | None

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        validate: bool | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_option(reduction, REDUCTIONS, "reduction", name)
        if weight is not None and (weight.ndim != 1 or not bool((weight >= 0).all())):
            raise ParameterError("weight", name, expected="one factor of at least 0 for each class", got=repr(weight))
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.validate = validate

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"ignore_index={self.ignore_index}, reduction={self.reduction!r}"

    def _batch(self, logits: Tensor, labels: Tensor) -> Batch:
        name = type(self).__name__
        if not logits.is_floating_point() or logits.ndim == 0:
            raise ShapeError(
                "logits",
                name,
                expected="a floating-point tensor of shape (N, C, ...) or (C,)",
                got=f"{logits.dtype} of shape {tuple(logits.shape)}",
            )
        rows = logits if logits.ndim == 1 else logits.movedim(1, -1)
        if logits.dtype.itemsize < 4:
            rows = rows.to(torch.float32)
        if labels.shape != rows.shape[:-1]:
            raise ShapeError(
                "labels",
                name,
                expected=f"of shape {tuple(rows.shape[:-1])}, since the logits have shape {tuple(logits.shape)}",
                got=f"shape {tuple(labels.shape)}",
            )
        if labels.is_floating_point() or labels.dtype in (torch.bool, torch.complex64, torch.complex128):
            raise LabelError("labels", name, expected="integers", got=f"dtype {labels.dtype}")
        if self.weight is not None and self.weight.shape[0] != rows.shape[-1]:
            raise ShapeError(
                "weight", name, expected=f"of shape ({rows.shape[-1]},)", got=f"shape {tuple(self.weight.shape)}"
            )
        labels = labels.to(torch.int64)
        kept = labels != self.ignore_index
        known = torch.where(kept, labels, 0)
        if are_checked(known, self.validate):
            self._check_range(known, rows.shape[-1])
        return Batch(torch.where(kept[..., None], rows, 0.0), known, kept)

    def _check_range(self, labels: Tensor, n_classes: int) -> None:
        lowest, highest = int(labels.min()), int(labels.max())
        if lowest < 0 or highest >= n_classes:
            raise LabelError(
                "labels",
                type(self).__name__,
                expected=f"between 0 and {n_classes - 1}, or ignore_index ({self.ignore_index})",
                got=f"labels from {lowest} to {highest}",
            )

    def _reduce(self, values: Tensor, batch: Batch, n_items: Tensor | float | None = None) -> Tensor:
        factor = batch.kept.to(values.dtype)
        if self.weight is not None:
            factor = factor * self.weight.to(values.dtype)[batch.labels]
        # Where the factor is 0 the value is dropped, not multiplied: an infinite one would leave NaN.
        weighted = torch.where(factor > 0, values * factor, 0.0)
        if self.reduction == "none":
            return weighted
        if self.reduction == "sum":
            return weighted.sum()
        return weighted.sum() / (factor.sum() if n_items is None else n_items)
