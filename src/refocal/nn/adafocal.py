"""AdaFocal (Ghosh, Schaaf and Gormley 2022): focal loss whose γ follows the calibration of a validation set."""

from __future__ import annotations

from typing import cast

import array_api_compat.torch as xp
import numpy as np
import torch
from torch import Tensor

from refocal._arrays import Array, Flags, Vector, to_numpy
from refocal._validation import check_integer, check_number
from refocal.errors import LabelError, ParameterError, ShapeError
from refocal.losses import focal_of
from refocal.maps.row import softplus
from refocal.metrics.bins import rank
from refocal.nn.losses import Loss, LossBatch
from refocal.rows import Predictions


class AdaFocalLoss(Loss):
    """Focal loss with one γ for each bin of confidence, moved after each epoch by the calibration of that bin.

    A label of probability q in bin b costs -(1-q)^γ_b log q if γ_b > 0, and -(1+q)^|γ_b| log q, inverse focal loss,
    if γ_b < 0. After an epoch, `update` cuts the validation confidences into bins of equal mass and, with
    gap = mean confidence - accuracy of the bin, sets

        γ_b ← γ_b exp(λ gap) if γ_b > 0, else γ_b exp(-λ gap)

    so that an overconfident bin is pushed towards focal loss and an underconfident one away from it. A γ whose size
    falls below `switch` changes sides, to -switch or +switch; then it is clipped to [lowest, highest]. A γ of 0, which
    only `initial` can be and which no factor moves, becomes +switch in an overconfident bin and -switch in an
    underconfident one. Equal confidences share a bin; a bin left empty by that keeps its γ.

    γ and the edges of the bins are in the state_dict, so that training resumes where it stopped. The other settings
    are those of `Loss`.

    >>> import torch
    >>> loss = AdaFocalLoss(n_bins=2)
    >>> loss.update_bins(torch.tensor([0.6, 0.7, 0.8, 0.9]), torch.tensor([True, True, False, False]))
    >>> loss.gammas
    tensor([0.7047, 2.3396])
    """

    shown = ("n_bins", "rate", *Loss.shown)
    gammas: Tensor  # (n_bins,)
    edges: Tensor  # (n_bins - 1,): where each bin but the first begins

    def __init__(
        self,
        *,
        n_bins: int = 15,
        rate: float = 1.0,
        initial: float = 1.0,
        switch: float = 0.2,
        lowest: float = -2.0,
        highest: float = 20.0,
        weight: Tensor | None = None,
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
        reduction: str = "mean",
        validate: bool | None = None,
    ) -> None:
        super().__init__(
            weight=weight,
            label_smoothing=label_smoothing,
            ignore_index=ignore_index,
            reduction=reduction,
            validate=validate,
        )
        name = type(self).__name__
        self.n_bins = check_integer(n_bins, "n_bins", name)
        self.rate = check_number(rate, "rate", name, least=0.0)
        self.switch = check_number(switch, "switch", name, above=0.0)
        self.lowest = check_number(lowest, "lowest", name, most=-self.switch)
        self.highest = check_number(highest, "highest", name, least=self.switch)
        start = check_number(initial, "initial", name, least=self.lowest, most=self.highest)
        self.register_buffer("gammas", torch.full((n_bins,), start, dtype=torch.float32))
        self.register_buffer("edges", torch.arange(1, n_bins, dtype=torch.float32) / n_bins)

    @torch.no_grad()
    def update(self, logits: Tensor | Predictions, labels: Tensor | None = None) -> None:
        """Move the γ by a validation set: `update(collect_logits(model, validation))`, or its logits and labels.

        These have the shapes that the loss takes. Rows of Predictions count by their weights.
        """
        if isinstance(logits, Predictions):
            if labels is not None:
                name = f"{type(self).__name__}.update"
                raise ParameterError("labels", name, expected="left out beside Predictions", got="labels")
            rows = logits.as_probabilities()
            self._move(*rows.top[:2], rows.weight)
            return
        batch = self._batch(logits, cast(Tensor, labels))  # which refuses None
        if batch.is_soft:
            name = f"{type(self).__name__}.update"
            raise LabelError("labels", name, expected="integers, one for each row", got="soft targets")
        _, confidence, correct = batch.predicted()
        self.update_bins(confidence[batch.kept], correct[batch.kept])

    def update_bins(self, confidence: Tensor, correct: Tensor) -> None:
        """Move the γ by the confidences of a validation set, and whether each prediction was correct."""
        name = f"{type(self).__name__}.update_bins"
        confidence = torch.as_tensor(confidence)
        correct = torch.as_tensor(correct)
        if confidence.ndim != 1 or confidence.shape != correct.shape or confidence.numel() == 0:
            expected = "a vector with at least one entry, and as long as 'correct'"
            got = f"shapes {tuple(confidence.shape)} and {tuple(correct.shape)}"
            raise ShapeError("confidence", name, expected=expected, got=got)
        values = to_numpy(confidence.to(torch.float64))
        if not (values.min() >= 0.0 and values.max() <= 1.0):
            raise ParameterError("confidence", name, expected="between 0 and 1", got=f"{values.min()}, {values.max()}")
        self._move(values, to_numpy(correct).astype(bool))

    def _move(self, confidence: Vector, correct: Flags, weight: Vector | None = None) -> None:
        """The same of checked confidences, in bins of equal weight."""
        ranked = rank(confidence.astype(np.float64), correct, weight)
        bounds = ranked.edges(self.n_bins)
        # Sums over the rows before each.
        weights = np.append(0.0, np.cumsum(ranked.cells.weight))
        gaps = np.append(0.0, np.cumsum(ranked.cells.gap))
        size = np.diff(weights[bounds])
        gap = np.diff(gaps[bounds]) / np.where(size > 0.0, size, 1.0)
        before = to_numpy(self.gammas).astype(np.float64)
        after = before * np.exp(self.rate * gap * np.sign(before))
        after = np.where(np.abs(after) < self.switch, -np.sign(after) * self.switch, after)
        after = np.where(before == 0.0, np.sign(gap) * self.switch, after)
        after = np.where(size > 0.0, np.clip(after, self.lowest, self.highest), before)
        # A bin that begins after the last row does not exist.
        starts = np.append(ranked.confidence, np.inf)[bounds[1:-1]]
        self.gammas.copy_(torch.as_tensor(after))
        self.edges.copy_(torch.as_tensor(starts))

    def _of(self, batch: LossBatch) -> Array:
        s = batch.log_odds()
        log_q = -softplus(xp, -s)
        q = log_q.exp()
        at = torch.bucketize(q.detach(), self.edges.to(q.dtype), right=True)
        gamma = self.gammas.to(q.dtype)[at]
        focal = focal_of(xp, s, gamma.clamp(min=0.0))
        inverse = -torch.exp(-gamma.clamp(max=0.0) * torch.log1p(q)) * log_q
        return torch.where(gamma >= 0.0, focal, inverse)
