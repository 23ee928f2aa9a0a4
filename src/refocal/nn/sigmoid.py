"""Training losses as modules, on logits of sigmoids. The formulas are those of `refocal.losses`."""

from __future__ import annotations

from typing import Any, ClassVar

import array_api_compat.torch as xp
import torch
from torch import Tensor

from refocal import losses
from refocal._arrays import Array
from refocal.errors import ShapeError
from refocal.nn.losses import BaseLoss, LossBatch


class SigmoidLoss(BaseLoss):
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

    shown: ClassVar[tuple[str, ...]] = ("label_smoothing", "reduction")

    def __init__(
        self,
        *,
        label_smoothing: float = 0.0,
        ignore_index: float | None = None,
        reduction: str = "mean",
        validate: bool | None = None,
    ) -> None:
        super().__init__(ignore_index=ignore_index, reduction=reduction, validate=validate)
        self._set("label_smoothing", label_smoothing, least=0.0, below=1.0)

    def _batch(self, outputs: Any, labels: Tensor) -> LossBatch:
        s = self._logits(outputs, labels)
        if labels.shape != s.shape:
            expected = f"of the shape of the logits, {tuple(s.shape)}"
            raise ShapeError("labels", type(self).__name__, expected=expected, got=f"shape {tuple(labels.shape)}")
        kept = torch.ones_like(s, dtype=torch.bool) if self.ignore_index is None else labels != self.ignore_index
        y = torch.where(kept, labels.to(s.dtype), 0.0)
        self._check_range(y, 1)
        return LossBatch(torch.where(kept, s, 0.0), losses.smoothed(y, self.label_smoothing), kept)


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

    shown = ("gamma", "alpha", *SigmoidLoss.shown)
    gamma: float | Tensor
    alpha: float | Tensor | None

    def __init__(
        self,
        gamma: float | Tensor = 2.0,
        alpha: float | Tensor | None = 0.25,
        *,
        label_smoothing: float = 0.0,
        ignore_index: float | None = None,
        reduction: str = "mean",
        validate: bool | None = None,
    ) -> None:
        super().__init__(
            label_smoothing=label_smoothing, ignore_index=ignore_index, reduction=reduction, validate=validate
        )
        self._set("gamma", gamma, above=-1.0)
        if alpha is None:
            self.alpha = None
        else:
            self._set("alpha", alpha, above=0.0, below=1.0)

    def _of(self, batch: LossBatch) -> Array:
        return losses.sigmoid_focal_of(xp, batch.logits, batch.labels, self.gamma, self.alpha)


class AsymmetricFocalLoss(SigmoidLoss):
    """Asymmetric loss (Ridnik et al. 2021): one γ where a label is 1, another where it is 0; timm's for many labels.

    -(1-q)^γ₊ log q where a label is 1, -u^γ₋ log(1-u) where it is 0, with u = max(q - margin, 0). γ₊, γ₋ ≥ 0 and the
    margin are numbers, or tensors with one value for each label on the last axis. Other settings are those of
    `SigmoidLoss`; `maps.asymmetric_focal` inverts the loss.

    >>> import torch
    >>> AsymmetricFocalLoss(reduction="none")(torch.tensor([0.0, 0.0, -4.0]), torch.tensor([1, 0, 0]))
    tensor([0.3466, 0.0245, 0.0000])
    """

    shown = ("gamma_positive", "gamma_negative", "margin", *SigmoidLoss.shown)
    gamma_positive: float | Tensor
    gamma_negative: float | Tensor
    margin: float | Tensor

    def __init__(
        self,
        *,
        gamma_positive: float | Tensor = 1.0,
        gamma_negative: float | Tensor = 4.0,
        margin: float | Tensor = 0.05,
        label_smoothing: float = 0.0,
        ignore_index: float | None = None,
        reduction: str = "mean",
        validate: bool | None = None,
    ) -> None:
        super().__init__(
            label_smoothing=label_smoothing, ignore_index=ignore_index, reduction=reduction, validate=validate
        )
        self._set("gamma_positive", gamma_positive, least=0.0)
        self._set("gamma_negative", gamma_negative, least=0.0)
        self._set("margin", margin, least=0.0, below=1.0)

    def _of(self, batch: LossBatch) -> Array:
        s = batch.logits
        margin = torch.as_tensor(self.margin, dtype=s.dtype, device=s.device)
        return losses.asymmetric_focal_of(xp, s, batch.labels, self.gamma_positive, self.gamma_negative, margin)
