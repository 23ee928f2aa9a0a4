"""Training losses of sigmoid outputs: detection heads, multi-label models, binary masks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import array_api_compat.torch as xp
import torch
from torch import Tensor, nn

from refocal._validation import check_broadcast, check_number, check_option
from refocal.errors import LabelError, ShapeError
from refocal.losses import asymmetric_focal_of, sigmoid_focal_of, smoothed
from refocal.nn._base import REDUCTIONS, are_checked, logits_of


class SigmoidLoss(nn.Module, ABC):
    """A loss on logits of any shape and labels of that shape: 0, 1 or, where they are soft, between.

    Parameters
    ----------
    label_smoothing : float
        ε: labels are moved towards 1/2 by this share.
    ignore_index : number, optional
        A label that is ignored, such as -1 or 255. Logits there may hold anything, even NaN.
    reduction : "mean", "sum" or "none"
        "mean" is over all labels that count, or over `num_items_in_batch`.
    validate : bool, optional
        Whether labels are read and checked; None, the default, does so on the CPU alone, as for `Loss`.

    The computation and the result are in float32 at least, also for half precision.
    """

    def __init__(
        self,
        *,
        label_smoothing: float = 0.0,
        ignore_index: float | None = None,
        reduction: str = "mean",
        validate: bool | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_option(reduction, REDUCTIONS, "reduction", name)
        self.label_smoothing = check_number(label_smoothing, "label_smoothing", name, least=0.0, below=1.0)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.validate = validate

    def forward(self, logits: Any, labels: Tensor, num_items_in_batch: Tensor | float | None = None) -> Tensor:
        """The loss of a batch; the arguments are also those of Hugging Face's `compute_loss_func`."""
        name = type(self).__name__
        s = logits_of(logits, labels, name)
        if not s.is_floating_point() or labels.shape != s.shape:
            expected = f"of the shape of the logits, {tuple(s.shape)}, which must be floating-point numbers"
            raise ShapeError("labels", name, expected=expected, got=f"shape {tuple(labels.shape)}, logits {s.dtype}")
        s = s.float() if s.dtype.itemsize < 4 else s
        y = labels.to(s.dtype)
        kept = torch.ones_like(y, dtype=torch.bool) if self.ignore_index is None else labels != self.ignore_index
        s, y = torch.where(kept, s, 0.0), torch.where(kept, y, 0.0)
        self._check_range(y)
        values = torch.where(kept, self._of(s, smoothed(y, self.label_smoothing)), 0.0)
        if self.reduction == "none":
            return values
        if self.reduction == "sum":
            return values.sum()
        return values.sum() / (kept.sum() if num_items_in_batch is None else num_items_in_batch)

    @abstractmethod
    def _of(self, s: Tensor, labels: Tensor) -> Tensor:
        """The loss of each label, from logits `s` in float32 or float64."""

    def _check_range(self, labels: Tensor) -> None:
        if not are_checked(labels, self.validate):
            return
        lowest, highest = float(labels.min()), float(labels.max())
        if not (lowest >= 0.0 and highest <= 1.0):
            what = "" if self.ignore_index is None else f", or ignore_index ({self.ignore_index:g})"
            expected, got = f"between 0 and 1{what}", f"labels from {lowest:g} to {highest:g}"
            raise LabelError("labels", type(self).__name__, expected=expected, got=got)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"label_smoothing={self.label_smoothing}, reduction={self.reduction!r}"

    def _set(self, argument: str, value: Any, **bounds: Any) -> None:
        """Keep a setting: a number, or a tensor with one value for each label, which becomes a buffer."""
        name = type(self).__name__
        if isinstance(value, Tensor):
            self.register_buffer(argument, check_broadcast(value, argument, name, like=value.float(), **bounds), False)
        else:
            setattr(self, argument, check_number(value, argument, name, **bounds))


class SigmoidFocalLoss(SigmoidLoss):
    """Focal loss of sigmoids, α-balanced: RetinaNet's, and torchvision's `sigmoid_focal_loss`.

    -α (1-q)^γ log q where a label is 1, -(1-α) q^γ log(1-q) where it is 0. γ > -1 and α are numbers, or tensors with
    one value for each label on the last axis; `alpha=None` weighs neither side. Other settings are those of
    `SigmoidLoss`. Gradients are finite at any logit. `FocalCalibration.from_training(gamma, alpha=alpha)`
    inverts the loss.

    >>> import torch
    >>> SigmoidFocalLoss(reduction="none")(torch.tensor([0.0, 2.0, -2.0]), torch.tensor([1, 1, 0]))
    tensor([0.0433, 0.0005, 0.0014])
    """

    gamma: float | Tensor
    alpha: float | Tensor | None

    def __init__(self, gamma: float | Tensor = 2.0, alpha: float | Tensor | None = 0.25, **options: Any) -> None:
        super().__init__(**options)
        self._set("gamma", gamma, above=-1.0)
        if alpha is None:
            self.alpha = None
        else:
            self._set("alpha", alpha, above=0.0, below=1.0)

    def _of(self, s: Tensor, labels: Tensor) -> Tensor:
        values: Tensor = sigmoid_focal_of(xp, s, labels, self.gamma, self.alpha)
        return values

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"gamma={self.gamma}, alpha={self.alpha}, {super().extra_repr()}"


class AsymmetricFocalLoss(SigmoidLoss):
    """Asymmetric loss (Ridnik et al. 2021): one γ where a label is 1, another where it is 0; timm's for many labels.

    -(1-q)^γ₊ log q where a label is 1, -u^γ₋ log(1-u) where it is 0, with u = max(q - margin, 0). γ₊, γ₋ ≥ 0 and the
    margin are numbers, or tensors with one value for each label on the last axis. Other settings are those of
    `SigmoidLoss`; `maps.asymmetric_focal` inverts the loss.

    >>> import torch
    >>> AsymmetricFocalLoss(reduction="none")(torch.tensor([0.0, 0.0, -4.0]), torch.tensor([1, 0, 0]))
    tensor([0.3466, 0.0245, 0.0000])
    """

    gamma_positive: float | Tensor
    gamma_negative: float | Tensor
    margin: float | Tensor

    def __init__(
        self,
        gamma_positive: float | Tensor = 1.0,
        gamma_negative: float | Tensor = 4.0,
        margin: float | Tensor = 0.05,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._set("gamma_positive", gamma_positive, least=0.0)
        self._set("gamma_negative", gamma_negative, least=0.0)
        self._set("margin", margin, least=0.0, below=1.0)

    def _of(self, s: Tensor, labels: Tensor) -> Tensor:
        margin = torch.as_tensor(self.margin, dtype=s.dtype, device=s.device)
        values: Tensor = asymmetric_focal_of(xp, s, labels, self.gamma_positive, self.gamma_negative, margin)
        return values

    def extra_repr(self) -> str:
        """What `print` shows."""
        powers = f"gamma_positive={self.gamma_positive}, gamma_negative={self.gamma_negative}"
        return f"{powers}, margin={self.margin}, {super().extra_repr()}"
