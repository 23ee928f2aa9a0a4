"""Training losses as modules on logits. The formulas are those of `refocal.losses`."""

from __future__ import annotations

from typing import Any

import array_api_compat.torch as xp
import torch
from torch import Tensor

from refocal._arrays import Array, take_label
from refocal._validation import check_broadcast, check_option
from refocal.errors import ShapeError
from refocal.losses import brier_of_row, focal_of_row, gamma_by_label
from refocal.maps.inverse import invert
from refocal.maps.row import gaps, normalise, softmax_row
from refocal.nn._base import Batch, Loss
from refocal.nn._solve import solve_outside


class FocalLoss(Loss):
    """Focal loss, -(1-q_y)^γ log q_y, for any γ > -1; γ = 0 is cross-entropy.

    γ is a number, or a tensor with one value for each label: given here, or for each batch as the third argument.
    Other settings are those of `Loss`: `weight`, `ignore_index`, `reduction`, `validate`. Gradients are finite
    at any logit gap and any γ > -1. It serves as `compute_loss_func` of Hugging Face's `Trainer`.

    >>> import torch
    >>> logits = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()
    >>> FocalLoss(2.0, reduction="none")(logits, torch.tensor([0, 1]))
    tensor([0.1733, 1.8651])
    """

    shown = ("gamma", *Loss.shown)
    gamma: Tensor | float

    def __init__(self, gamma: float | Tensor = 2.0, **options: Any) -> None:
        super().__init__(**options)
        self._set("gamma", gamma, exact=True, above=-1.0)

    def forward(  # type: ignore[override]
        self, logits: Any, labels: Tensor, gamma: Tensor | None = None, num_items_in_batch: Tensor | float | None = None
    ) -> Tensor:
        """The loss of a batch; `gamma` has the shape of the labels."""
        batch = self._batch(logits, labels)
        chosen = self.gamma if gamma is None else gamma
        if isinstance(chosen, Tensor):
            shape, name = batch.labels.shape, type(self).__name__
            if chosen.ndim > 0 and chosen.shape != shape:
                expected = f"a number or a tensor of the labels' shape {tuple(shape)}"
                raise ShapeError("gamma", name, expected=expected, got=f"shape {tuple(chosen.shape)}")
            if self._checks(chosen):
                check_broadcast(chosen, "gamma", name, like=chosen, above=-1.0)
            chosen = chosen.to(batch.logits.dtype).expand(shape)
        return self._reduce(self._of(batch, chosen), batch, num_items_in_batch)

    def _of(self, batch: Batch, gamma: Tensor | float) -> Array:  # type: ignore[override]
        return focal_of_row(xp, batch.row(), batch.labels, gamma)


class ProperFocalLoss(FocalLoss):
    """The proper part of focal loss, L*(p, y) = L(p̂⁻¹(p), y): smallest in expectation at the true probabilities.

    Arguments are those of `FocalLoss`. The focal calibration map is inverted by a few Newton steps, each followed by
    a check whether all rows have converged, so this loss synchronises with the device in every forward pass.

    >>> import torch
    >>> ProperFocalLoss(2.0)(torch.tensor([[0.8, 0.2]]).log(), torch.tensor([0]))
    tensor(0.0652)
    """

    def _of(self, batch: Batch, gamma: Tensor | float) -> Array:  # type: ignore[override]
        # Filled on the device: a tensor made from a number would be a copy, which waits.
        g = gamma if isinstance(gamma, Tensor) else batch.logits.new_full(batch.labels.shape, gamma)
        row = softmax_row(xp, invert(xp, batch.logits, g[..., None], solve_outside), 1.0)
        return focal_of_row(xp, row, batch.labels, g)


class SampleDependentFocalLoss(Loss):
    """Focal loss whose γ depends on the label's probability; by default FLSD-53: γ = 5 where q_y < 0.2, else γ = 3.

    The choice of γ is a constant for the gradient, as in Mukhoti et al. (2020). Other settings are those of `Loss`.

    >>> import torch
    >>> logits = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()
    >>> SampleDependentFocalLoss(reduction="none")(logits, torch.tensor([0, 1]))
    tensor([0.0866, 1.3597])
    """

    def __init__(
        self, *, threshold: float = 0.2, gamma_below: float = 5.0, gamma_above: float = 3.0, **options: Any
    ) -> None:
        super().__init__(**options)
        self._set("threshold", threshold, above=0.0)
        self._set("gamma_below", gamma_below, above=-1.0)
        self._set("gamma_above", gamma_above, above=-1.0)

    def _of(self, batch: Batch) -> Array:
        row = batch.row()
        gamma = gamma_by_label(xp, row, batch.labels, self.threshold, self.gamma_below, self.gamma_above)
        return focal_of_row(xp, row, batch.labels, gamma)


class BrierLoss(Loss):
    """Brier score, Σ_j (q_j - [j = y])², between 0 and 2. Settings are those of `Loss`.

    >>> import torch
    >>> BrierLoss(reduction="none")(torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log(), torch.tensor([0, 1]))
    tensor([0.5000, 1.6200])
    """

    def _of(self, batch: Batch) -> Array:
        return brier_of_row(xp, batch.row(), batch.labels)


class MMCE(Loss):
    """Cross-entropy plus the maximum mean calibration error of the batch (Kumar et al. 2018).

    mean CE + strength · √(Σ_ij (r_i - c_i)(r_j - c_j) exp(-|r_i - r_j| / width)) / n, where r is the probability of
    the predicted class and c whether it is the label. It compares all pairs of a batch: memory grows with the square
    of the number of labels, so per-pixel shapes are best sampled first. The rows are coupled, so there is no
    reduction="none"; `weight` goes to the cross-entropy.

    >>> import torch
    >>> MMCE(reduction="mean")(torch.tensor([[0.8, 0.2], [0.8, 0.2]]).log(), torch.tensor([0, 0]))
    tensor(0.4231)
    """

    strength: float
    width: float

    def __init__(self, strength: float = 1.0, *, width: float = 0.4, **options: Any) -> None:
        super().__init__(**options)
        check_option(self.reduction, ("mean",), "reduction", type(self).__name__)
        self._set("strength", strength, least=0.0)
        self._set("width", width, above=0.0)

    def _of(self, batch: Batch) -> Array:
        log_q = normalise(xp, *gaps(xp, batch.logits, 1.0))
        top = log_q.detach().argmax(dim=-1)
        confidence = take_label(log_q, top).exp().reshape(-1)
        kept = batch.kept.reshape(-1).to(confidence.dtype)
        excess = (confidence - (top == batch.labels).reshape(-1).to(confidence.dtype)) * kept
        kernel = torch.exp(-(confidence[:, None] - confidence).abs() / self.width)
        # Products and a sum, not a matrix product: that would be done in half precision under autocast.
        square = (excess[:, None] * kernel * excess).sum()
        positive = square > 0.0
        # A square root has no slope at 0: a batch without error asks for no change.
        error = torch.where(positive, torch.where(positive, square, 1.0).sqrt(), 0.0) / kept.sum()
        return self.strength * error - take_label(log_q, batch.labels)  # the mean of a number is that number
