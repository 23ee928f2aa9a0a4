"""Probabilities from logits in one pass, for chains whose steps the C engine or the Triton engine supports."""

from __future__ import annotations

import functools
import operator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import (
    Array,
    in_half,
    in_library_of,
    is_plain_tensor,
    is_torch,
    namespace,
    on_gpu,
    row_blocks,
    to_numpy,
)
from refocal.engine import c_engine
from refocal.maps.chain import BLOCK, CODES, Chain, Program

# As in apply.h.
NOT_NUMBERS, NOT_PROBABILITIES, LOST = 1, 2, 4


class Applied(NamedTuple):
    """Probabilities, and whether the logits need a closer look."""

    probabilities: Array
    is_suspect: bool
    """NaN, +inf or a row of -inf was among the logits, or all rows sum to 1 as those of probabilities do."""


def apply(chain: Chain, logits: Array, out: NDArray[Any] | None = None, *, log: bool = False) -> Applied | None:
    """The chain's probabilities of logits (N, C), or their logarithms, in their precision.

    None if the engine does not support the chain, or lacks digits of a logarithm. The rows need not be checked
    first: the pass itself reports bad values.

    >>> from refocal.maps.steps import Temperature
    >>> found = apply(Chain((Temperature(2.0),)), np.array([[4.0, 2.0], [1.0, np.nan]]))
    >>> found is None or found.is_suspect
    True
    """
    if on_gpu(logits):
        return apply_there(chain, logits, log=log)
    program = chain.program_for(logits)
    if program.n_classes not in (None, logits.shape[1]) or not c_engine.is_compiled():
        return None
    if log and CODES.index("reweight") in program.steps[:, 0]:
        return None
    p = np.empty(logits.shape, dtype=logits.dtype) if out is None else out
    n_threads = c_engine.n_threads() if logits.size >= c_engine.THREADS_FROM else 1
    if n_threads == 1 and _is_known(logits, program) and _is_known(p, program) and p.dtype == logits.dtype:
        seen = c_engine.apply(program, logits, p, log)
    else:
        run = functools.partial(_run, program, logits, p, log)
        with ThreadPoolExecutor(n_threads) as threads:
            parts = threads.map(run, row_blocks(logits.shape[0], logits.shape[1], BLOCK))
            seen = functools.reduce(operator.or_, parts)
    return None if seen & LOST else Applied(p, seen != NOT_PROBABILITIES)


def apply_there(chain: Chain, logits: Array, *, log: bool = False, looks: bool = True) -> Applied | None:
    """The same on a GPU, or the logarithms; None where its engine cannot read the rows.

    Without `looks` nothing is suspect, and the host does not wait for the GPU.
    """
    if find_spec("triton") is None:
        return None
    from refocal.engine import triton_apply, triton_engine

    program = chain.program
    if program.n_classes not in (None, logits.shape[1]):
        return None
    x = program.before.scores(logits) if program.before.steps else logits
    found = triton_apply.apply(program, x, log=log) if triton_engine.usable(x) else None
    if found is None:
        return None
    p, seen = found
    return Applied(p.to(logits.dtype), looks and triton_apply.is_suspect(seen))


def probabilities_of(chain: Chain, logits: Array, *, log: bool = False) -> Array:
    """Probabilities of checked logits (..., C), or their logarithms, by an engine that can.

    Logarithms in double precision are computed by the array functions, which keep more digits where a mixture's
    probability is next to 1; and so are chains with steps that an engine does not support, such as curves with jumps,
    whose ties are kept to the bit.
    """
    is_array = isinstance(logits, np.ndarray) and logits.dtype.kind == "f"
    if is_array and log:
        is_array = logits.itemsize < 8 and not chain.program_for(logits).before.steps
    if is_array or is_plain_tensor(logits):
        found = apply(chain, logits.reshape(-1, logits.shape[-1]), log=log)
        if found is not None:
            return found.probabilities.reshape(logits.shape)
    if log:
        return chain.log_probabilities(logits)
    p = apply_to_tensor(chain, logits)
    return chain.probabilities(logits) if p is None else p


def apply_to_tensor(chain: Chain, logits: Array) -> Array | None:
    """The same for a tensor in half precision on the CPU, by blocks of rows; None for any other, and with gradients."""
    if not (is_torch(logits) and logits.device.type == "cpu" and logits.dtype.itemsize == 2) or logits.requires_grad:
        return None
    rows, p = logits.reshape(-1, logits.shape[-1]), namespace(logits).empty_like(logits)
    for some in row_blocks(int(rows.shape[0]), int(rows.shape[1]), BLOCK):
        found = apply(chain, to_numpy(rows[some].float()))
        if found is None:
            return None
        p.view(rows.shape)[some] = in_library_of(p, found.probabilities)
    return p


def _is_known(array: NDArray[Any], program: Program) -> bool:
    size = array.itemsize
    is_plain = array.dtype in c_engine.TAKEN and array.strides[1] == size and array.strides[0] % size == 0
    return is_plain and array.flags.aligned and not program.before.steps


def _run(program: Program, logits: NDArray[Any], p: NDArray[Any], log: bool, some: slice) -> int:
    """Some rows, converted to a dtype and layout that the kernel accepts."""
    x, part = logits[some], p[some]
    if not _is_known(x, program):
        x = np.ascontiguousarray(program.before.scores(x))
    if _is_known(part, program) and part.dtype == x.dtype:
        return c_engine.apply(program, x, part, log)
    made = np.empty(x.shape, dtype=x.dtype)
    seen = c_engine.apply(program, x, made, log)
    is_half = part.dtype == np.float16 and made.dtype == np.float32
    part[...] = in_half(made) if is_half and not log else made
    return seen
