"""Training losses as modules, on logits of classes. The formulas are those of `refocal.losses`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import array_api_compat.torch as xp
import torch
from torch import Tensor, nn

from refocal import losses
from refocal._arrays import Array, is_traced, take_label
from refocal._validation import check_broadcast, check_number, check_option
from refocal.errors import LabelError, ParameterError, ShapeError
from refocal.maps.row import normalised, softplus
from refocal.maps.softmax import Unknowns, invert, solve


class LossBatch(NamedTuple):
    """Logits in float32 or float64, of classes on the last axis, and labels that can all be looked up."""

    logits: Tensor  # (..., C), or of the labels' shape for sigmoids
    labels: Tensor  # (...), 0 in place of ignore_index; of soft targets the likeliest class
    kept: Tensor  # (...), False where the label was ignore_index
    targets: Tensor | None = None  # (..., C), probabilities of the classes where targets are soft or smoothed
    is_soft: bool = False  # whether targets came as probabilities

    def log_odds(self) -> Tensor:
        """Log-odds on which the losses rest: of the label against the other classes; of every class for targets."""
        return self.log_odds_of(self.logits)

    def log_odds_of(self, logits: Tensor) -> Tensor:
        """The same of other logits: (...), or (..., C) for targets, 0 where a class has no share in the target."""
        if self.targets is None:
            of_label: Tensor = losses.label_log_odds(xp, logits, self.labels)
            return of_label
        # An impossible class that the target rules out too costs nothing; its infinite loss would leave NaN.
        return torch.where(self.targets > 0.0, losses.class_log_odds(xp, logits), 0.0)

    def for_each(self, setting: Tensor) -> Tensor:
        """A setting of the labels' shape in a shape that goes with the log-odds."""
        return setting if self.targets is None else setting[..., None]

    def predicted(self) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities (..., C), the probability of the predicted class, and whether that is the label."""
        log_q = normalised(xp, self.logits)
        top = log_q.detach().argmax(dim=-1)
        return log_q, take_label(log_q, top).exp(), top == self.labels


class BaseLoss(nn.Module, ABC):
    """Settings, checks and reductions of the losses of classes and of sigmoids; `shown` are what `print` shows."""

    shown: ClassVar[tuple[str, ...]] = ("reduction",)
    ignore_index: float | None
    weight: Tensor | None

    def __init__(
        self, *, ignore_index: float | None = None, reduction: str = "mean", validate: bool | None = None
    ) -> None:
        super().__init__()
        self.register_buffer("weight", None)
        check_option(reduction, ("none", "mean", "sum"), "reduction", type(self).__name__)
        if ignore_index is not None:
            check_number(ignore_index, "ignore_index", type(self).__name__)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.validate = validate

    def forward(self, logits: Any, labels: Tensor, num_items_in_batch: Tensor | float | None = None) -> Tensor:
        """The loss of a batch; the arguments are also those of Hugging Face's `compute_loss_func`."""
        batch = self._batch(logits, labels)
        return self._reduce(self._of(batch), batch, num_items_in_batch)

    @abstractmethod
    def _batch(self, outputs: Any, labels: Tensor) -> LossBatch:
        """The outputs of a model and its labels, checked."""

    @abstractmethod
    def _of(self, batch: LossBatch) -> Array:
        """The loss of each label."""

    def extra_repr(self) -> str:
        """What `print` shows."""
        values = [getattr(self, name) for name in self.shown]
        texts = [f"tensor of shape {tuple(each.shape)}" if isinstance(each, Tensor) else repr(each) for each in values]
        return ", ".join(f"{name}={text}" for name, text in zip(self.shown, texts, strict=True))

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
        logits = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", outputs)
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            expected = "a floating-point tensor, or the output of a model that has one called logits"
            got = f"dtype {logits.dtype}" if isinstance(logits, Tensor) else f"a {type(outputs).__name__}"
            raise ShapeError("logits", name, expected=expected, got=got)
        return logits.float() if logits.dtype.itemsize < 4 else logits

    def _checks(self, values: Tensor) -> bool:
        """Whether values are to be read and checked."""
        wanted = values.device.type == "cpu" if self.validate is None else self.validate
        return wanted and not is_traced(values) and values.numel() > 0

    def _check_range(self, labels: Tensor, most: int) -> None:
        if not self._checks(labels):
            return
        lowest = labels.min().item()
        highest = labels.max().item()
        if not (lowest >= 0 and highest <= most):
            also = "" if self.ignore_index is None else f", or ignore_index ({self.ignore_index:g})"
            expected = f"between 0 and {most}{also}"
            got = f"labels from {lowest:.12g} to {highest:.12g}"
            raise LabelError("labels", type(self).__name__, expected=expected, got=got)

    def _reduce(self, values: Tensor, batch: LossBatch, n_items: Tensor | float | None) -> Tensor:
        """Values of the labels' shape, or (..., C) of every class for targets, reduced."""
        factor = batch.kept if self.weight is None else batch.kept * self.weight.to(values.dtype)[batch.labels]
        if batch.targets is None:
            shares = factor
        else:
            shares = batch.targets * batch.kept[..., None]
            shares = shares if self.weight is None else shares * self.weight.to(values.dtype)
        # Where the share is 0 the value is dropped, not multiplied: an infinite one would leave NaN.
        values = torch.where(shares > 0, values * shares, 0.0)
        if batch.targets is not None:
            values = values.sum(-1)
        if self.reduction == "none":
            return values
        if self.reduction == "sum":
            return values.sum()
        if n_items is None:
            n_items = batch.kept.sum() if batch.is_soft else factor.sum()
        return values.sum() / n_items


class Loss(BaseLoss):
    """A loss on logits (N, C, d1, ...) or (C,), classes on axis 1, and labels: integers (N, d1, ...), or soft targets.

    Soft targets t are probabilities of the classes in the shape of the logits, as mixup makes them; they cost
    Σ_k t_k w_k L(q, k), with L(q, k) the loss where the label is k.

    Parameters
    ----------
    weight : Tensor of shape (C,), optional
        One factor w for each class; "mean" divides by the sum of the labels' factors, or by the number of soft targets,
        as `nn.CrossEntropyLoss` does.
    label_smoothing : float
        ε: labels and soft targets become (1-ε) t + ε/C. `maps.unsmooth` undoes it.
    ignore_index : int
        A label that is ignored. Logits there may hold anything, even NaN. Soft targets all count.
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

    shown: ClassVar[tuple[str, ...]] = ("label_smoothing", "ignore_index", "reduction")
    ignore_index: int
    label_smoothing: float

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
        reduction: str = "mean",
        validate: bool | None = None,
    ) -> None:
        super().__init__(ignore_index=ignore_index, reduction=reduction, validate=validate)
        name = type(self).__name__
        is_fit = isinstance(weight, Tensor) and weight.ndim == 1 and bool((weight >= 0).all())
        if weight is not None and not is_fit:
            expected = "a tensor with one factor of at least 0 for each class"
            raise ParameterError("weight", name, expected=expected, got=repr(weight))
        self.weight = weight
        self.label_smoothing = check_number(label_smoothing, "label_smoothing", name, least=0.0, below=1.0)

    def _batch(self, outputs: Any, labels: Tensor) -> LossBatch:
        name = type(self).__name__
        logits = self._logits(outputs, labels)
        is_soft = labels.is_floating_point() and labels.shape == logits.shape and logits.ndim > 0
        if not isinstance(outputs, Tensor):
            logits = logits.reshape(-1, logits.shape[-1])
            labels = labels.reshape(logits.shape if is_soft else (-1,))
        if logits.ndim == 0:
            raise ShapeError("logits", name, expected="of shape (N, C, ...) or (C,)", got="a single number")
        rows = logits if logits.ndim == 1 else logits.movedim(1, -1)
        n_classes = rows.shape[-1]
        if self.weight is not None and self.weight.shape[0] != n_classes:
            got = f"shape {tuple(self.weight.shape)}"
            raise ShapeError("weight", name, expected=f"of shape ({n_classes},)", got=got)
        if is_soft:
            soft = labels if labels.ndim == 1 else labels.movedim(1, -1)
            return self._soft_batch(rows, soft.to(rows.dtype))
        shape = tuple(rows.shape[:-1])
        if labels.is_floating_point() or labels.dtype in (torch.bool, torch.complex64, torch.complex128):
            expected = f"integers, or probabilities of the shape of the logits, {tuple(logits.shape)}"
            got = f"dtype {labels.dtype} and shape {tuple(labels.shape)}"
            raise LabelError("labels", name, expected=expected, got=got)
        if labels.shape != shape:
            expected = f"of shape {shape}, since the logits have shape {tuple(logits.shape)}"
            raise ShapeError("labels", name, expected=expected, got=f"shape {tuple(labels.shape)}")
        labels = labels.to(torch.int64)
        kept = labels != self.ignore_index
        known = torch.where(kept, labels, 0)
        self._check_range(known, n_classes - 1)
        targets = None
        if self.label_smoothing > 0.0:
            one_hot = nn.functional.one_hot(known, n_classes).to(rows.dtype)
            targets = self._smoothed(one_hot)
        return LossBatch(torch.where(kept[..., None], rows, 0.0), known, kept, targets)

    def _soft_batch(self, rows: Tensor, soft: Tensor) -> LossBatch:
        """Logits and soft targets, both (..., C)."""
        tolerance = 1e-2  # of a sum: mixtures of labels in half precision are off by less
        if self._checks(soft):
            error = (soft.detach().sum(-1) - 1.0).abs().max().item()
            lowest = soft.detach().min().item()
            if not (lowest >= 0.0 and error <= tolerance):
                expected = "probabilities that sum to 1 over the classes, where they have the shape of the logits"
                got = f"a least value of {lowest:.6g} and sums off by {error:.6g}"
                raise LabelError("labels", type(self).__name__, expected=expected, got=got)
        kept = torch.ones(rows.shape[:-1], dtype=torch.bool, device=rows.device)
        return LossBatch(rows, soft.detach().argmax(-1), kept, self._smoothed(soft), is_soft=True)

    def _smoothed(self, targets: Tensor) -> Tensor:
        """(1-ε) t + ε/C."""
        return (1.0 - self.label_smoothing) * targets + self.label_smoothing / targets.shape[-1]


class FocalLoss(Loss):
    """Focal loss, -(1-q_y)^γ log q_y, for any γ > -1; γ = 0 is cross-entropy.

    γ is a number; one for each class is `class_gamma`, a tensor (C,); one for each sample is the third argument of the
    call, or `gamma` itself, a tensor of the shape of the labels. Other settings, soft targets and label smoothing are
    those of `Loss`. Gradients are finite at any logit gap and any γ > -1. `maps.focal` undoes the loss for one γ, and
    `maps.unsmooth` of the result the smoothing. It serves as `compute_loss_func` of Hugging Face's `Trainer`.

    >>> import torch
    >>> logits = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()
    >>> FocalLoss(2.0, reduction="none")(logits, torch.tensor([0, 1]))
    tensor([0.1733, 1.8651])
    >>> mixed = torch.tensor([[0.7, 0.3], [0.0, 1.0]])  # soft targets, as mixup makes them
    >>> FocalLoss(2.0, reduction="none")(logits, mixed)
    tensor([0.1733, 1.8651])
    >>> FocalLoss(class_gamma=torch.tensor([0.0, 2.0]), reduction="none")(logits, torch.tensor([0, 1]))
    tensor([0.6931, 1.8651])
    """

    shown = ("gamma", *Loss.shown)
    gamma: Tensor | float
    class_gamma: Tensor | None

    def __init__(
        self,
        gamma: float | Tensor = 2.0,
        *,
        class_gamma: Tensor | None = None,
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
        self._set("gamma", gamma, exact=True, above=-1.0)
        if class_gamma is None:
            self.register_buffer("class_gamma", None)
            return
        if not isinstance(class_gamma, Tensor) or class_gamma.ndim != 1:
            expected = "a tensor with one γ above -1 for each class"
            raise ParameterError("class_gamma", type(self).__name__, expected=expected, got=repr(class_gamma))
        self._set("class_gamma", class_gamma, exact=True, above=-1.0)

    def forward(  # type: ignore[override]
        self, logits: Any, labels: Tensor, gamma: Tensor | None = None, num_items_in_batch: Tensor | float | None = None
    ) -> Tensor:
        """The loss of a batch; `gamma` has one value for each sample, in the shape of integer labels."""
        batch = self._batch(logits, labels)
        return self._reduce(self._of(batch, self._gamma_of(batch, gamma)), batch, num_items_in_batch)

    def extra_repr(self) -> str:
        """What `print` shows."""
        if self.class_gamma is None:
            return super().extra_repr()
        others = super().extra_repr().partition(", ")[2]
        return f"class_gamma=tensor of shape {tuple(self.class_gamma.shape)}, {others}"

    def _gamma_of(self, batch: LossBatch, gamma: Tensor | None) -> Tensor | float:
        """The γ of the batch: a number, or in a shape that goes with the log-odds."""
        name = type(self).__name__
        if self.class_gamma is not None:
            n_classes = batch.logits.shape[-1]
            if gamma is not None:
                expected = "left out where 'class_gamma' is given"
                raise ParameterError("gamma", name, expected=expected, got="a tensor")
            if self.class_gamma.shape[0] != n_classes:
                got = f"shape {tuple(self.class_gamma.shape)}"
                raise ShapeError("class_gamma", name, expected=f"of shape ({n_classes},)", got=got)
            of_class = self.class_gamma.to(batch.logits.dtype)
            return of_class[batch.labels] if batch.targets is None else of_class
        chosen = self.gamma if gamma is None else gamma
        if not isinstance(chosen, Tensor):
            return chosen
        shape = batch.labels.shape
        if chosen.ndim > 0 and chosen.shape != shape:
            expected = f"a number or a tensor of the labels' shape {tuple(shape)} (one γ for each class: class_gamma)"
            raise ShapeError("gamma", name, expected=expected, got=f"shape {tuple(chosen.shape)}")
        if self._checks(chosen):
            check_broadcast(chosen, "gamma", name, like=chosen, above=-1.0)
        return batch.for_each(chosen.to(batch.logits.dtype).expand(shape))

    def _of(self, batch: LossBatch, gamma: Tensor | float) -> Array:  # type: ignore[override]
        return losses.focal_of(xp, batch.log_odds(), gamma)


class ProperFocalLoss(FocalLoss):
    """The proper part of focal loss, L*(p, y) = L(p̂⁻¹(p), y): smallest in expectation at the true probabilities.

    Arguments are those of `FocalLoss`, without a γ for each class. The focal calibration map is inverted by a few
    Newton steps, each followed by a check whether all rows have converged, so this loss synchronises with the device in
    every forward pass.

    >>> import torch
    >>> ProperFocalLoss(2.0)(torch.tensor([[0.8, 0.2]]).log(), torch.tensor([0]))
    tensor(0.0652)
    """

    def __init__(
        self,
        gamma: float | Tensor = 2.0,
        *,
        weight: Tensor | None = None,
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
        reduction: str = "mean",
        validate: bool | None = None,
    ) -> None:
        super().__init__(
            gamma,
            weight=weight,
            label_smoothing=label_smoothing,
            ignore_index=ignore_index,
            reduction=reduction,
            validate=validate,
        )

    def _of(self, batch: LossBatch, gamma: Tensor | float) -> Array:  # type: ignore[override]
        # Filled on the device: a tensor made from a number would be a copy, which waits.
        if not isinstance(gamma, Tensor):
            gamma = batch.for_each(batch.logits.new_full(batch.labels.shape, gamma))
        of_row = gamma[..., None] if batch.targets is None else gamma
        log_q = invert(xp, batch.logits, of_row, solve_outside)
        return losses.focal_of(xp, batch.log_odds_of(log_q), gamma)


class SampleDependentFocalLoss(Loss):
    """Focal loss whose γ depends on the label's probability; by default FLSD-53: γ = 5 where q_y < 0.2, else γ = 3.

    The choice of γ is a constant for the gradient, as in Mukhoti et al. (2020). Other settings are those of `Loss`.

    >>> import torch
    >>> logits = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()
    >>> SampleDependentFocalLoss(reduction="none")(logits, torch.tensor([0, 1]))
    tensor([0.0866, 1.3597])
    """

    def __init__(
        self,
        *,
        threshold: float = 0.2,
        gamma_below: float = 5.0,
        gamma_above: float = 3.0,
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
        self._set("threshold", threshold, above=0.0)
        self._set("gamma_below", gamma_below, above=-1.0)
        self._set("gamma_above", gamma_above, above=-1.0)

    def _of(self, batch: LossBatch) -> Array:
        gammas = (self.gamma_below, self.gamma_above)
        return losses.sample_dependent_focal_of(xp, batch.log_odds(), self.threshold, *gammas)


class BrierLoss(Loss):
    """Brier score, Σ_j (q_j - [j = y])², between 0 and 2. Settings are those of `Loss`.

    Soft targets t cost Σ_k t_k Σ_j (q_j - [j = k])², which is Σ_j (q_j - t_j)² and a term without q.

    >>> import torch
    >>> BrierLoss(reduction="none")(torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log(), torch.tensor([0, 1]))
    tensor([0.5000, 1.6200])
    """

    def __init__(
        self,
        *,
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

    def _of(self, batch: LossBatch) -> Array:
        if batch.targets is None:
            return losses.brier_of(xp, batch.logits, batch.labels)
        # (1 - q_k)² and the squares of the others.
        s = losses.class_log_odds(xp, batch.logits)
        square = torch.exp(-2.0 * softplus(xp, -s))
        return torch.exp(-2.0 * softplus(xp, s)) + square.sum(-1, keepdim=True) - square


class MMCE(Loss):
    """Cross-entropy plus the maximum mean calibration error of the batch (Kumar et al. 2018).

    mean CE + strength · √(Σ_ij (r_i - c_i)(r_j - c_j) exp(-|r_i - r_j| / width)) / n, where r is the probability of
    the predicted class and c whether it is the label, or what a soft target gives it. It compares all pairs of a batch:
    memory grows with the square of the number of labels, so per-pixel shapes are best sampled first. The rows are
    coupled, so there is no reduction="none"; `weight` and `label_smoothing` go to the cross-entropy.

    >>> import torch
    >>> MMCE(reduction="mean")(torch.tensor([[0.8, 0.2], [0.8, 0.2]]).log(), torch.tensor([0, 0]))
    tensor(0.4231)
    """

    strength: float
    width: float

    def __init__(
        self,
        strength: float = 1.0,
        *,
        width: float = 0.4,
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
        check_option(self.reduction, ("mean",), "reduction", type(self).__name__)
        self._set("strength", strength, least=0.0)
        self._set("width", width, above=0.0)

    def forward(self, logits: Any, labels: Tensor, num_items_in_batch: Tensor | float | None = None) -> Tensor:
        """The loss of a batch; the arguments are also those of Hugging Face's `compute_loss_func`."""
        batch = self._batch(logits, labels)
        cross_entropy = self._reduce(self._of(batch), batch, num_items_in_batch)
        # Batches that share one count of items have the share of the error that they have of the items.
        share = 1.0 if num_items_in_batch is None else batch.kept.sum() / num_items_in_batch
        return cross_entropy + share * self.strength * self._calibration_error(batch)

    def _of(self, batch: LossBatch) -> Array:
        log_q = normalised(xp, batch.logits)
        return -take_label(log_q, batch.labels) if batch.targets is None else -log_q

    def _calibration_error(self, batch: LossBatch) -> Tensor:
        """The maximum mean calibration error of the batch."""
        log_q, confidence, correct = batch.predicted()
        confidence = confidence.reshape(-1)
        kept = batch.kept.reshape(-1).to(confidence.dtype)
        outcome = correct.to(confidence.dtype)
        if batch.is_soft and batch.targets is not None:
            of_top = take_label(batch.targets, log_q.detach().argmax(dim=-1))
            outcome = (of_top - self.label_smoothing / log_q.shape[-1]) / (1.0 - self.label_smoothing)
        excess = (confidence - outcome.reshape(-1)) * kept
        kernel = torch.exp(-(confidence[:, None] - confidence).abs() / self.width)
        # Products and a sum, not a matrix product: that would be done in half precision under autocast.
        square = (excess[:, None] * kernel * excess).sum()
        positive = square > 0.0
        # A square root has no slope at 0: a batch without error, or without labels, asks for no change.
        root = torch.where(positive, torch.where(positive, square, 1.0).sqrt(), 0.0)
        error: Tensor = root / kept.sum().clamp(min=1.0)
        return error


@torch.library.custom_op("refocal::invert_focal", mutates_args=())
def _invert(target: Tensor, possible: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    log_q, log_rest = solve(xp, target, possible, gamma)
    return log_q.clone(), log_rest.clone()  # an operator may not return what came in


@_invert.register_fake
def _(target: Tensor, possible: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(target), torch.empty_like(target[..., :1])


def solve_outside(_: Any, target: Tensor, possible: Tensor, gamma: Tensor) -> Unknowns:
    """`solve`, kept out of compiled graphs, where twenty unrolled steps take minutes to compile and never end early."""
    return Unknowns(*_invert(target, possible, gamma))
