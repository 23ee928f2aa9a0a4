"""A calibrator as a layer: logits in, log-probabilities out."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Self

import array_api_compat.torch as xp
import numpy as np
import torch
from torch import Tensor, nn

from refocal._arrays import SMALLEST, is_plain_tensor, two_columns
from refocal._validation import INPUTS, check_option
from refocal.engine.apply import apply_on_gpu
from refocal.errors import DataError, ParameterError, ShapeError
from refocal.maps.chain import Chain, Step, in_row_blocks
from refocal.maps.row import normalised, spoiled


class CalibrationLayer(nn.Module):
    """A chain of steps as a layer: log-probabilities of logits, in the dtype that the logits come in.

    Usually made by a fitted calibrator's `to_torch()`, and put after a model: `nn.Sequential(model, layer)`. It works
    under `torch.compile`, `torch.export` and `torch.jit.trace`. The parameters of the steps are buffers: they are part
    of the state_dict and follow `.to(device, dtype)`, but always keep at least float32, in which half precision is
    computed.

    Parameters
    ----------
    steps : Step
        What is applied, one after the other.
    class_axis : int
        Where the classes lie: -1, or 1 for images (N, C, H, W).
    input : "logits", "probabilities" or "log-odds"
        What comes in. Of probabilities the logarithm is taken first; log-odds of class 1 of two, as a single logit is,
        have no axis of classes, which the result has.
    dtype : torch.dtype, optional
        The dtype of the parameters; by default torch's default dtype, which is float32 unless it was changed.
    n_classes : int, optional
        The size of the axis of classes, without which it is not checked. With two classes an input of one axis holds
        one number per row, as in `predict_proba`: the probability of class 1, or its log-odds.

    Examples
    --------
    >>> import torch
    >>> from refocal.maps import Focal, Temperature
    >>> layer = CalibrationLayer(Temperature(1.5), Focal(1.0))
    >>> layer(torch.tensor([[2.0, 1.0, 0.0]])).exp()
    tensor([[0.6486, 0.2368, 0.1146]])
    """

    def __init__(
        self,
        *steps: Step,
        class_axis: int = -1,
        input: str = "logits",  # noqa: A002
        dtype: torch.dtype | None = None,
        n_classes: int | None = None,
    ) -> None:
        super().__init__()
        check_option(input, INPUTS, "input", type(self).__name__)
        for step in steps:
            if not isinstance(step, Step):
                expected = "steps, such as refocal.maps.Temperature(1.5)"
                raise ParameterError("steps", type(self).__name__, expected=expected, got=repr(step))
        self.chain = Chain(steps)
        self.chain.check()
        self.class_axis = class_axis
        self.input = input
        self.n_classes = n_classes
        kind = torch.promote_types(dtype or torch.get_default_dtype(), torch.float32)
        self._chain = self.chain
        """The chain with the values that the buffers had when they were fetched last."""
        self._fetched: list[Tensor] = []
        self._versions: list[int] = []
        self._names: list[str] = []
        for name, value in self.chain.parameters():
            again = sum(known.rstrip("_0123456789") == name for known in self._names)
            self._names.append(f"{name}_{again + 1}" if again else name)
            self.register_buffer(self._names[-1], torch.tensor(value, dtype=kind))

    def forward(self, logits: Tensor) -> Tensor:
        """Log-probabilities, of the shape of the logits; of one number per row with one axis more."""
        has_one_number = self.input == "log-odds" or (self.n_classes == 2 and logits.ndim == 1)
        if has_one_number:
            x = two_columns(logits, self.input)
        else:
            self._check_axis(logits)
            x = logits.movedim(self.class_axis, -1)
        applied = None
        can_be_compiled = is_plain_tensor(logits) and self.input == "logits" and logits.numel() > 0
        if can_be_compiled and not torch.cuda.is_current_stream_capturing():
            applied = apply_on_gpu(self._chain_now(), x.reshape(-1, x.shape[-1]), log=True, reports=False)
        if applied is None:
            log_p: Tensor = in_row_blocks(lambda rows: self.log_probabilities(rows).to(logits.dtype), x)
        else:
            log_p = applied.probabilities.reshape(x.shape)
        return log_p.movedim(-1, self.class_axis)

    def _check_axis(self, logits: Tensor) -> None:
        """The axis of classes, or of labels, must have as many entries as those of the fit."""
        if self.n_classes is None:
            return
        is_axis = -logits.ndim <= self.class_axis < logits.ndim
        if not is_axis or logits.shape[self.class_axis] != self.n_classes:
            expected = f"of {self.n_classes} entries on axis {self.class_axis}, as the calibrator was fitted with"
            raise ShapeError("logits", type(self).__name__, expected=expected, got=f"shape {tuple(logits.shape)}")

    def _chain_now(self) -> Chain:
        """The chain with the values of the buffers, which are fetched again only where they have changed."""
        buffers = [self.get_buffer(name) for name in self._names]
        versions = [0 if buffer.is_inference() else buffer._version for buffer in buffers]
        same = len(self._fetched) == len(buffers) and all(map(operator.is_, self._fetched, buffers))
        if not same or versions != self._versions:
            values = iter([np.asarray(buffer.double().cpu())[()] for buffer in buffers])
            self._fetched = buffers
            self._versions = versions
            self._chain = self.chain.with_parameters(lambda _: next(values))
        return self._chain

    def log_probabilities(self, x: Tensor) -> Tensor:
        """Log-probabilities in the precision to compute in, the classes on the last axis."""
        if not x.is_floating_point():
            got = f"dtype {x.dtype}"
            raise DataError("logits", type(self).__name__, expected="floating-point numbers", got=got)
        if x.dtype.itemsize < 4:
            x = x.to(torch.float32)
        if self.input == "probabilities":
            x = x.clamp(min=SMALLEST).log()
        values = iter([self.get_buffer(name).to(x.dtype) for name in self._names])
        scores = self.chain.with_parameters(lambda _: next(values)).apply(xp, x)
        log_p: Tensor = normalised(xp, spoiled(xp, x, scores))
        return log_p

    def extra_repr(self) -> str:
        """The text that `print` shows."""
        steps = " → ".join(type(step).__name__ for step in self.chain.steps)
        return f"{steps}, class_axis={self.class_axis}, input={self.input!r}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # model.half() reaches here too; γ and T rounded to three digits would be another calibrator.
        exact: dict[str, Any] = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, value in self._buffers.items():
            if value is not None and value.dtype.itemsize < 4:
                self._buffers[name] = exact[name].to(value.device)
        return self


class MultiLabelLayer(CalibrationLayer):
    """A chain of steps of two classes as a layer for K labels: log-probabilities of the labels, of the scores' shape.

    Usually made by `MultiLabelCalibration.to_torch()`. `class_axis` is where the labels lie, `input` whether "log-odds"
    or "probabilities" come in, as sigmoids take or give them.

    >>> import torch
    >>> from refocal.maps import Temperature
    >>> MultiLabelLayer(Temperature(2.0), input="log-odds")(torch.tensor([[0.0, 4.0]])).exp()
    tensor([[0.5000, 0.8808]])
    """

    def forward(self, logits: Tensor) -> Tensor:
        """Log-probabilities of the labels."""
        self._check_axis(logits)
        x = logits.movedim(self.class_axis, -1)
        log_p = self.log_probabilities(two_columns(x, self.input))[..., 1]
        return log_p.movedim(-1, self.class_axis).to(logits.dtype)
