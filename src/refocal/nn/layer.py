"""A calibrator as a layer: logits in, log-probabilities out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import array_api_compat.torch as xp
import torch
from torch import Tensor, nn

from refocal._validation import check_option
from refocal.errors import ParameterError
from refocal.maps.affine import Front
from refocal.maps.forward import focal_of_row
from refocal.maps.row import softmax_row


class CalibrationLayer(nn.Module):
    """Focal temperature scaling as a layer: log-probabilities of logits, in the dtype that the logits come in.

    Usually made by a fitted calibrator's `to_torch()`, and put behind a model: `nn.Sequential(model, layer)`. It works
    under `torch.compile`, `torch.export` and `torch.jit.trace`. γ and T are buffers: they travel in the state_dict and
    with `.to(device, dtype)`, but never become coarser than float32, in which half precision is computed.

    Parameters
    ----------
    gamma, temperature : float
        γ > -1 and T > 0.
    class_axis : int
        Where the classes lie: -1, or 1 for images (N, C, H, W).
    input : "logits" or "probabilities"
        What comes in. Of probabilities the logarithm is taken first.
    front : Front, optional
        An affine map of the logits that comes first, as the calibrators of the affine family have.
    dtype : torch.dtype, optional
        Of γ, T and the affine map: torch's default, float32 unless set otherwise, unless given.

    Examples
    --------
    >>> import torch
    >>> layer = CalibrationLayer(gamma=1.0, temperature=1.5)
    >>> layer(torch.tensor([[2.0, 1.0, 0.0]])).exp()
    tensor([[0.6486, 0.2368, 0.1146]])
    """

    gamma: Tensor
    temperature: Tensor
    inner_temperature: Tensor
    weights: Tensor
    intercept: Tensor

    def __init__(
        self,
        gamma: float = 0.0,
        temperature: float = 1.0,
        *,
        front: Front | None = None,
        class_axis: int = -1,
        input: str = "logits",  # noqa: A002
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        for argument, value, above in (("gamma", gamma, -1.0), ("temperature", temperature, 0.0)):
            if not above < value < float("inf"):
                raise ParameterError(argument, name, expected=f"finite and greater than {above:g}", got=repr(value))
        check_option(input, ("logits", "probabilities"), "input", name)
        self.class_axis = class_axis
        self.input = input
        kind = torch.promote_types(dtype or torch.get_default_dtype(), torch.float32)
        self.register_buffer("gamma", torch.tensor(float(gamma), dtype=kind))
        self.register_buffer("temperature", torch.tensor(float(temperature), dtype=kind))
        self.front = None if front is None else (front.kind, front.order_preserving)
        if front is not None:
            self.register_buffer("inner_temperature", torch.tensor(float(front.temperature), dtype=kind))
            self.register_buffer("weights", torch.tensor(front.weights, dtype=kind))
            self.register_buffer("intercept", torch.tensor(front.intercept, dtype=kind))

    def forward(self, logits: Tensor) -> Tensor:
        """Log-probabilities, of the shape of the logits."""
        x = logits.movedim(self.class_axis, -1)
        if x.dtype.itemsize < 4:
            x = x.to(torch.float32)
        if self.input == "probabilities":
            x = x.clamp(min=torch.finfo(x.dtype).eps).log()
        if self.front is not None:
            kind, order_preserving = self.front
            inner, weights, intercept = (
                part.to(x.dtype) for part in (self.inner_temperature, self.weights, self.intercept)
            )
            x = Front(kind, inner, weights, intercept, order_preserving).scores(xp, x)
        row = softmax_row(xp, x, self.temperature.to(x.dtype))
        log_p: Tensor = focal_of_row(xp, row, self.gamma.to(x.dtype))
        return log_p.movedim(-1, self.class_axis).to(logits.dtype)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"class_axis={self.class_axis}, input={self.input!r}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # model.half() reaches here too; γ and T rounded to three digits would be another calibrator.
        exact: dict[str, Any] = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, value in self._buffers.items():
            if value is not None and value.dtype.itemsize < 4:
                self._buffers[name] = exact[name].to(value.device)
        return self
