"""The search of the inverse focal map as one operator, opaque to compilers."""

from __future__ import annotations

from typing import Any

import array_api_compat.torch as xp
import torch
from torch import Tensor

from refocal.maps.inverse import State, solve


@torch.library.custom_op("refocal::invert_focal", mutates_args=())
def _invert(target: Tensor, possible: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    log_q, log_rest = solve(xp, target, possible, gamma)
    return log_q.clone(), log_rest.clone()  # an operator may not return what came in


@_invert.register_fake
def _(target: Tensor, possible: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(target), torch.empty_like(target[..., :1])


def solve_outside(_: Any, target: Tensor, possible: Tensor, gamma: Tensor) -> State:
    """`solve`, kept out of compiled graphs, where twenty unrolled steps take minutes to compile and never end early."""
    return State(*_invert(target, possible, gamma))
