"""A calibrator as a layer: logits in, log-probabilities out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from refocal._arrays import SMALLEST, is_recorded, two_columns
from refocal._validation import INPUTS, check_option
from refocal.errors import DataError, FormatError, ParameterError, ShapeError
from refocal.maps.chain import Chain, Step, in_row_blocks
from refocal.nn.operator import HostChain, by_kernel, calibrate, chain_of, log_probabilities, structure_of


class CalibrationLayer(nn.Module):
    """A chain of steps as a layer: log-probabilities of logits, in the dtype that the logits come in.

    Usually made by a fitted calibrator's `to_torch()`, and put after a model: `nn.Sequential(model, layer)`. It works
    under `torch.compile`, `torch.export` and `torch.jit.trace`; compiled without gradients it is one operator. The
    parameters of the steps are buffers: they follow `.to(device, dtype)`, but always keep at least float32, in which
    half precision is computed, under autocast too. The state_dict has them, the kinds of the steps, the input and the
    number of classes: any other layer, such as `CalibrationLayer()`, loads it and becomes this one, but for its axis.

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

    _axis_of = "classes that exclude each other"
    """What the entries on the axis are."""

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
        self.class_axis = class_axis
        self.input = input
        self.n_classes = n_classes
        self._names: list[str] = []
        kind = torch.promote_types(dtype or torch.get_default_dtype(), torch.float32)
        self._set_chain(Chain(steps), lambda _, value: torch.tensor(value, dtype=kind))

    def _set_chain(self, chain: Chain, buffer_of: Callable[[str, Any], Tensor]) -> None:
        """Take the steps of a chain, in place of others, and make a buffer of each of its parameters."""
        chain.check()
        for name in self._names:
            delattr(self, name)
        self.chain = chain
        self._structure = structure_of(chain)
        self._on_host = HostChain(chain)
        self._names = []
        for field, value in chain.parameters():
            name = field
            again = 1
            while hasattr(self, name):  # a buffer of another step, or what a layer has itself
                again += 1
                name = f"{field}_{again}"
            self._names.append(name)
            self.register_buffer(name, buffer_of(name, value))

    def forward(self, logits: Tensor) -> Tensor:
        """Log-probabilities, of the shape of the logits; of one number per row with one axis more."""
        has_one_number = self.input == "log-odds" or (self.n_classes == 2 and logits.ndim == 1)
        if has_one_number:
            x = two_columns(logits, self.input)
        else:
            self._check_axis(logits)
            x = logits.movedim(self.class_axis, -1)
        if self._is_one_operator(logits):
            in_one: Tensor = calibrate(self._scores(x).contiguous(), self._values(), self._structure)
            return in_one.to(logits.dtype).movedim(-1, self.class_axis)
        log_p = None
        if self._are_numbers_alone(logits):
            log_p = by_kernel(self._on_host, x, self._values())
        if log_p is None:
            log_p = in_row_blocks(lambda rows: self.log_probabilities(rows).to(logits.dtype), x)
        return log_p.movedim(-1, self.class_axis)

    def _are_numbers_alone(self, logits: Tensor) -> bool:
        """Whether a kernel may compute on the numbers of the logits: nothing is recorded, differentiated or batched."""
        if self.input != "logits" or type(logits) not in (Tensor, nn.Parameter) or is_recorded(logits):
            return False
        if not logits.is_floating_point() or logits.dtype.itemsize < 2:
            return False
        is_transformed = torch._C._functorch.is_functorch_wrapped_tensor(logits)  # by vmap, grad or jvp of torch.func
        has_tangent = torch.autograd.forward_ad._current_level >= 0
        return not is_transformed and not has_tangent and not self._learns()

    def _learns(self) -> bool:
        """Whether the layer's own numbers are differentiated, which a user may ask for."""
        return torch.is_grad_enabled() and any(value.requires_grad for value in self._values())

    def _is_one_operator(self, logits: Tensor) -> bool:
        """Whether the model is being compiled, and neither exported, which needs the steps, nor differentiated."""
        compiler: Any = torch.compiler
        if not compiler.is_dynamo_compiling() or not hasattr(compiler, "_is_exporting_flag"):
            return False
        # is_exporting() would say yes to every compilation before torch 2.13.
        is_exported = compiler._is_exporting_flag
        is_differentiated = (logits.requires_grad and torch.is_grad_enabled()) or self._learns()
        return logits.is_floating_point() and not is_exported and not is_differentiated

    def _check_axis(self, logits: Tensor) -> None:
        """The axis of classes, or of labels, must have as many entries as those of the fit."""
        if self.n_classes is None:
            return
        is_axis = -logits.ndim <= self.class_axis < logits.ndim
        if not is_axis or logits.shape[self.class_axis] != self.n_classes:
            expected = f"of {self.n_classes} entries on axis {self.class_axis}, as the calibrator was fitted with"
            if logits.ndim > 2 and logits.shape[1] == self.n_classes:
                expected += "; for images (N, C, H, W), classes on axis 1, call to_torch(class_axis=1)"
            raise ShapeError("logits", type(self).__name__, expected=expected, got=f"shape {tuple(logits.shape)}")

    def _values(self) -> list[Tensor]:
        """The buffers, in the order of the chain's parameters."""
        return [self.get_buffer(name) for name in self._names]

    def _scores(self, x: Tensor) -> Tensor:
        """What the chain takes: logits as they are, logarithms of probabilities, in the precision that came in."""
        if self.input != "probabilities":
            return x
        p = x.to(torch.float32) if x.dtype.itemsize < 4 else x
        return p.clamp(min=SMALLEST).log()

    def log_probabilities(self, x: Tensor) -> Tensor:
        """Log-probabilities in the precision to compute in, the classes on the last axis."""
        if not x.is_floating_point():
            got = f"dtype {x.dtype}"
            raise DataError("logits", type(self).__name__, expected="floating-point numbers", got=got)
        if x.dtype.itemsize < 4:
            x = x.to(torch.float32)
        return log_probabilities(self.chain, self._scores(x), self._values())

    def get_extra_state(self) -> Tensor:
        """What the state_dict has beside the buffers, as the bytes of its JSON: a tensor, as every format takes."""
        about = {"axis_of": self._axis_of, "input": self.input, "n_classes": self.n_classes}
        text = json.dumps(about | {"steps": json.loads(self._structure)})
        return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Nothing: the steps were read before the buffers."""

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, strict: bool, missing: list[str], *more: Any
    ) -> None:
        key = f"{prefix}_extra_state"
        text = state_dict.get(key)
        if isinstance(text, Tensor) and text.dtype == torch.uint8:
            structure = self._take_extra_state(bytes(text.cpu().numpy()).decode(errors="replace"))
            names = [f"{prefix}{name}" for name in self._names]
            has_same_shapes = all(name in state_dict for name in names) and all(
                state_dict[name].shape == buffer.shape for name, buffer in zip(names, self._values(), strict=True)
            )
            if structure != self._structure or not has_same_shapes:
                self._take_steps(structure, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, *more)
        if key in missing:  # written before the steps were part of it
            missing.remove(key)
        if not any(buffer.is_meta for buffer in self._values()):
            self.chain = self._on_host.of(self._values())

    def _take_extra_state(self, text: str) -> str:
        """Take the input and the number of classes of another layer; the structure of its steps."""
        try:
            state = json.loads(text)
        except ValueError as error:
            raise FormatError(f"the steps of the layer cannot be read: {error}") from error
        if not isinstance(state, dict):  # written before it had more than the steps
            return text
        if not {"axis_of", "input", "n_classes", "steps"} <= state.keys() or state["input"] not in INPUTS:
            raise FormatError("the steps of the layer cannot be read: a part is missing")
        if state["axis_of"] != self._axis_of:
            raise FormatError(f"the state is of a layer for {state['axis_of']}, and this one is for {self._axis_of}")
        self.input = state["input"]
        self.n_classes = state["n_classes"]
        return json.dumps(state["steps"])

    def _take_steps(self, structure: str, state_dict: dict[str, Any], prefix: str) -> None:
        """The steps of another layer, with buffers of its shapes, where this one's buffers are."""
        before = self._values()
        device = before[0].device if before else None

        def buffer_of(name: str, value: Any) -> Tensor:
            like = state_dict.get(f"{prefix}{name}", torch.tensor(value))
            kind = torch.promote_types(like.dtype, torch.float32)
            buffer: Tensor = like.detach().to(device or like.device, kind, copy=True)
            return buffer

        self._set_chain(chain_of(structure), buffer_of)

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

    _axis_of = "labels that exclude nothing"

    def forward(self, logits: Tensor) -> Tensor:
        """Log-probabilities of the labels."""
        self._check_axis(logits)
        x = logits.movedim(self.class_axis, -1)
        log_p = self.log_probabilities(two_columns(x, self.input))[..., 1]
        return log_p.movedim(-1, self.class_axis).to(logits.dtype)
