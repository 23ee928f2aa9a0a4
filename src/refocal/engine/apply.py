"""Probabilities from logits by the C engine or the Triton engine, in one pass.

The last steps of a chain that a kernel supports run in that pass, and the steps before them as array functions
(`program.py`). Where an engine cannot answer, its functions return None, and the caller uses the array functions.
"""

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
from refocal._validation import SUM_TOLERANCE
from refocal.engine import c_engine
from refocal.engine.program import Findings, Opcode, Program, program_for, program_of
from refocal.maps.chain import BLOCK, Chain


class Applied(NamedTuple):
    """Probabilities, and whether the logits need a closer look."""

    probabilities: Array
    is_suspect: bool
    """NaN, +inf or a row of -inf was among the logits, or all rows sum to 1 as those of probabilities do, or the first
    to 100."""


def apply(chain: Chain, logits: Array, out: NDArray[Any] | None = None, *, log: bool = False) -> Applied | None:
    """The chain's probabilities of logits (N, C), or their logarithms, in their precision.

    None, which means that the array functions must compute it: if the kernel is not compiled or has no memory, if the
    chain is of another number of classes, or if logarithms are asked for that the kernel would give with fewer digits,
    after an offset at the end or of a very small probability. On a GPU as in `apply_on_gpu`. Steps without an
    instruction are no reason for None. The rows need not be checked first: the pass itself reports bad values.

    >>> from refocal.maps.steps import Temperature
    >>> applied = apply(Chain((Temperature(2.0),)), np.array([[4.0, 2.0], [1.0, np.nan]]))
    >>> applied is None or applied.is_suspect
    True
    """
    if on_gpu(logits):
        return apply_on_gpu(chain, logits, log=log)
    program = program_for(chain, logits)
    if not program.takes(logits.shape[1]) or not c_engine.is_compiled():
        return None
    if log and Opcode.REWEIGHT in program.steps[:, 0]:
        return None
    p = np.empty(logits.shape, dtype=logits.dtype) if out is None else out
    findings = _apply_to_rows(program, logits, p, log=log)
    if findings & Findings.LOST.value:
        return None
    # Where no row is bad and one is not a probability, the logits are what they should be.
    return Applied(p, is_suspect=findings != Findings.NOT_PROBABILITIES.value or _begins_like_percentages(logits))


def _begins_like_percentages(logits: NDArray[Any]) -> bool:
    """Whether the first of some finite rows sums to 100: then a closer look tells whether all do."""
    whole = 100.0
    return abs(float(logits[0].sum(dtype=np.float64)) - whole) <= SUM_TOLERANCE * whole


def apply_on_gpu(chain: Chain, logits: Array, *, log: bool = False, reports: bool = True) -> Applied | None:
    """The same for logits in the memory of a GPU.

    None without triton, for another number of classes than the chain's, where the classes of a row are not next to one
    another in memory, and for an affine step of more classes than the kernel holds at once.

    Without `reports` nothing is suspect, and the host does not wait for the GPU.
    """
    if find_spec("triton") is None:
        return None
    from refocal.engine import triton_apply, triton_engine

    program = program_of(chain)
    if not program.takes(logits.shape[1]):
        return None
    scores = program.before.scores(logits) if program.before.steps else logits
    if not triton_engine.usable(scores):
        return None
    applied = triton_apply.apply(program, scores, log=log)
    if applied is None:
        return None
    p, findings = applied
    is_suspect = reports and triton_apply.is_suspect(findings)
    return Applied(p.to(logits.dtype), is_suspect)


def probabilities_of(chain: Chain, logits: Array, *, log: bool = False) -> Array:
    """Probabilities of checked logits (..., C), or their logarithms, by an engine that can.

    Logarithms in double precision are computed by the array functions, which keep more digits where a mixture's
    probability is next to 1; and so are chains with steps that an engine does not support, such as curves with jumps,
    whose ties are kept to the bit.
    """
    if _can_be_compiled(chain, logits, log=log):
        applied = apply(chain, logits.reshape(-1, logits.shape[-1]), log=log)
        if applied is not None:
            return applied.probabilities.reshape(logits.shape)
    if log:
        return chain.log_probabilities(logits)
    is_half_tensor = is_torch(logits) and logits.device.type == "cpu" and logits.dtype.itemsize == 2
    if is_half_tensor and not logits.requires_grad:
        p = _apply_to_half_tensor(chain, logits)
        if p is not None:
            return p
    return chain.probabilities(logits)


def _can_be_compiled(chain: Chain, logits: Array, *, log: bool) -> bool:
    """Whether `probabilities_of` these logits may be computed by an engine."""
    if is_plain_tensor(logits):
        return True
    if not isinstance(logits, np.ndarray) or logits.dtype.kind != "f":
        return False
    if not log:
        return True
    return logits.itemsize < 8 and not program_for(chain, logits).before.steps


def _apply_to_half_tensor(chain: Chain, logits: Array) -> Array | None:
    """Probabilities of a tensor in half precision on the CPU, by blocks of rows; None where `apply` has no answer."""
    rows = logits.reshape(-1, logits.shape[-1])
    p = namespace(logits).empty_like(logits)
    for part in row_blocks(int(rows.shape[0]), int(rows.shape[1]), BLOCK):
        applied = apply(chain, to_numpy(rows[part].float()))
        if applied is None:
            return None
        p.view(rows.shape)[part] = in_library_of(p, applied.probabilities)
    return p


def _apply_to_rows(program: Program, logits: NDArray[Any], p: NDArray[Any], *, log: bool) -> int:
    """Run a program on all rows, by blocks in several threads if they are many: the bits of `Findings`."""
    n_rows, n_classes = logits.shape
    n_threads = c_engine.n_threads() if logits.size >= c_engine.THREADS_FROM else 1
    takes_rows_as_they_are = (
        not program.before.steps
        and c_engine.is_readable(logits)
        and c_engine.is_readable(p)
        and p.dtype == logits.dtype
    )
    if n_threads == 1 and takes_rows_as_they_are:
        return c_engine.apply(program, logits, p, log)
    apply_to_block = functools.partial(_apply_to_block, program, logits, p, log)
    with ThreadPoolExecutor(n_threads) as threads:
        findings = threads.map(apply_to_block, row_blocks(n_rows, n_classes, BLOCK))
        return functools.reduce(operator.or_, findings)


def _apply_to_block(program: Program, logits: NDArray[Any], p: NDArray[Any], log: bool, rows: slice) -> int:
    """Run a program on some rows, converted to a dtype and layout that the kernel reads: the bits of `Findings`."""
    x = logits[rows]
    target = p[rows]
    if program.before.steps or not c_engine.is_readable(x):
        x = np.ascontiguousarray(program.before.scores(x))
    if not program.before.steps and c_engine.is_readable(target) and target.dtype == x.dtype:
        return c_engine.apply(program, x, target, log)
    converted = np.empty(x.shape, dtype=x.dtype)
    findings = c_engine.apply(program, x, converted, log)
    to_half = target.dtype == np.float16 and converted.dtype == np.float32 and not log
    target[...] = in_half(converted) if to_half else converted
    return findings
