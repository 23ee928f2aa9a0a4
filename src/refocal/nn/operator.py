"""A chain of steps as one operator of torch, for compiled models.

A compiled model calls it and compiles nothing of it: the first call takes no longer than without the layer, and the
kernels of the engines compute it, on the CPU and on a GPU, as they do outside of compiled code.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import array_api_compat.torch as xp
import numpy as np
import torch
from torch import Tensor

from refocal._arrays import on_gpu
from refocal.calibrators.serialize import step_from_dict, to_plain
from refocal.engine.apply import apply, apply_on_gpu
from refocal.errors import FormatError
from refocal.maps.chain import Chain, in_row_blocks
from refocal.maps.row import normalised, spoiled


class HostChain:
    """A chain with the values of tensors, which are fetched again only where they have changed.

    >>> from refocal.maps import Temperature
    >>> HostChain(Chain((Temperature(1.0),))).of([torch.tensor(2.0)]).steps
    (Temperature(temperature=np.float64(2.0)),)
    """

    def __init__(self, chain: Chain) -> None:
        self._structure = chain
        self._fetched: _Fetched | None = None

    def of(self, tensors: list[Tensor]) -> Chain:
        """The chain with these values in place of its numbers and arrays, in the order of `Chain.parameters`."""
        fetched = self._fetched
        if fetched is None or not fetched.is_of(tensors):
            fetched = _Fetched.of(self._structure, tensors)
            # One assignment of all that belongs together: another thread never sees half of it.
            self._fetched = fetched
        return fetched.chain


@dataclass(frozen=True)
class _Fetched:
    """The values that tensors had when a chain was made of them."""

    tensors: list[Tensor]
    versions: list[int]
    values: list[Tensor]
    """Copies of the tensors on the CPU."""
    chain: Chain

    @classmethod
    def of(cls, structure: Chain, tensors: list[Tensor]) -> Self:
        """The chain with the values that the tensors have now."""
        versions = [_version_of(tensor) for tensor in tensors]
        values = [tensor.detach().to("cpu", copy=True) for tensor in tensors]
        numbers = iter([np.asarray(value.double())[()] for value in values])
        return cls(list(tensors), versions, values, structure.with_parameters(lambda _: next(numbers)))

    def is_of(self, tensors: list[Tensor]) -> bool:
        """Whether these are the same tensors with the same values."""
        if len(self.tensors) != len(tensors):
            return False
        return all(map(self._is_same, range(len(tensors)), tensors))

    def _is_same(self, i: int, tensor: Tensor) -> bool:
        """Whether a tensor has the value that was fetched.

        On the CPU values are compared: a version does not count what is written through `.data`, a view of NumPy, by a
        fused optimiser or in inference mode. On a GPU that would wait for all that runs there, so that the version
        decides, except of tensors that have none or that an optimiser may change.
        """
        if tensor is not self.tensors[i]:
            return False
        if tensor.device.type == "cpu":
            value = self.values[i]
            return tensor.dtype == value.dtype and torch.equal(tensor.detach(), value)
        return self.versions[i] != _UNKNOWN and _version_of(tensor) == self.versions[i]


_UNKNOWN = -1
"""The version of a tensor whose changes are not all counted."""


def _version_of(tensor: Tensor) -> int:
    """How often a tensor was changed, as far as torch counts it."""
    return _UNKNOWN if tensor.is_inference() or tensor.requires_grad else tensor._version


def structure_of(chain: Chain) -> str:
    """The steps of a chain as text, without their values: JSON in which every number is 1.

    >>> from refocal.maps import Temperature
    >>> structure_of(Chain((Temperature(1.5),)))
    '[{"step": "Temperature", "temperature": 1.0}]'
    """
    plain = chain.with_parameters(lambda value: np.ones(1) if np.ndim(value) else 1.0)
    return json.dumps(to_plain(plain.steps))


@lru_cache(maxsize=64)
def chain_of(structure: str) -> Chain:
    """The chain that `structure_of` described, whose values are to be replaced."""
    try:
        return Chain(tuple(map(step_from_dict, json.loads(structure))))
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(f"the steps of the layer cannot be read: {error}") from error


@lru_cache(maxsize=16)
def _host_chain(structure: str, *_: Tensor) -> HostChain:
    """What is kept for the tensors of a layer: those of the last layers used."""
    return HostChain(chain_of(structure))


def log_probabilities(chain: Chain, x: Tensor, parameters: list[Tensor]) -> Tensor:
    """Log-probabilities of scores (..., C) in float32 or float64 by torch's own functions, with these parameters."""
    values = iter([parameter.to(x.dtype) for parameter in parameters])
    filled = chain.with_parameters(lambda _: next(values))
    if torch.is_autocast_enabled(x.device.type):  # which would multiply matrices in half precision
        with torch.autocast(x.device.type, enabled=False):
            scores = filled.apply(xp, x)
    else:
        scores = filled.apply(xp, x)
    log_p: Tensor = normalised(xp, spoiled(xp, x, scores))
    return log_p


def _calibrate(x: Tensor, parameters: list[Tensor], structure: str) -> Tensor:
    """Log-probabilities (..., C) of scores, of their dtype; `CalibrationLayer` has the rest."""
    x = x.contiguous()  # the compiler was told that the result is, whatever layout it has chosen for the scores
    log_p = by_kernel(_host_chain(structure, *parameters), x, parameters)
    if log_p is not None:
        return log_p

    def by_torch(rows: Tensor) -> Tensor:
        exact = rows.float() if rows.dtype.itemsize < 4 else rows
        return log_probabilities(chain_of(structure), exact, parameters).to(rows.dtype)

    by_blocks: Tensor = in_row_blocks(by_torch, x)
    return by_blocks


def by_kernel(host: HostChain, x: Tensor, parameters: list[Tensor]) -> Tensor | None:
    """Log-probabilities by a compiled kernel; None where none takes the scores, or where it would lose digits."""
    if x.numel() == 0:
        return None
    rows = x.reshape(-1, x.shape[-1])
    if on_gpu(x) and not torch.cuda.is_current_stream_capturing():  # no value can be fetched while a graph is recorded
        applied = apply_on_gpu(host.of(parameters), rows, log=True, reports=False)
        return None if applied is None else applied.probabilities.reshape(x.shape)
    if x.device.type == "cpu" and x.dtype.itemsize < 8:
        exact = rows.float() if x.dtype.itemsize < 4 else rows
        applied = apply(host.of(parameters), exact.detach().numpy(), log=True)
        if applied is not None:
            log_p = torch.from_numpy(applied.probabilities)
            if applied.is_suspect:  # a bad row changes no other
                log_p = spoiled(xp, exact, log_p)
            return log_p.reshape(x.shape).to(x.dtype)
    return None


# Registered directly: `torch.library.custom_op` would call it through wrappers that cost a small batch half as much
# again.
_LIBRARY: Any = torch.library.Library("refocal", "FRAGMENT")  # type: ignore[no-untyped-call]
_SCHEMA = "calibrate(Tensor x, Tensor[] parameters, str structure) -> Tensor"
_LIBRARY.define(_SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))
_LIBRARY.impl("calibrate", _calibrate, "CompositeExplicitAutograd")


def _shaped(x: Tensor, parameters: list[Tensor], structure: str) -> Tensor:
    """What the compiler needs to know of the result: its shape, dtype and device."""
    return x.new_empty(x.shape)


torch.library.register_fake("refocal::calibrate", _shaped, lib=_LIBRARY)

calibrate: Any = torch.ops.refocal.calibrate.default
"""`_calibrate` as an operator of torch, which a compiled model calls as it is."""
