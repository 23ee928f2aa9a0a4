"""Probabilities after a chain of steps on a GPU: one kernel, which reads the logits once and writes them once.

The same as apply.h, under the same names: read it there first. Rows that do not fit the registers are read some classes
at a time, more than once.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from refocal.engine.program import Findings, Opcode, Program
from refocal.engine.triton_affine import IS_LOG_PROBABILITIES, IS_LOGITS, LOWEST_FEATURE, MASKED_GAP
from refocal.engine.triton_maths import (
    LOG2E,
    OPTIONS,
    beside_its_tensors,
    chunk_of,
    exp2,
    inverse,
    log1p,
    log_not,
    other,
    raised,
    top_of,
)
from refocal.maps.curves import LARGEST_LOG_ODDS, ROUNDINGS

# Triton reads globals of a kernel only as constexpr.
CERTAIN_LOG_ODDS = tl.constexpr(LARGEST_LOG_ODDS)
MARGIN = tl.constexpr(ROUNDINGS)
EPSILON = tl.constexpr(2.0**-52)
EPSILON_SINGLE = tl.constexpr(2.0**-23)
IS_FLOOR = tl.constexpr(int(Opcode.FLOOR))
IS_TEMPERATURE = tl.constexpr(int(Opcode.TEMPERATURE))
IS_AFFINE = tl.constexpr(int(Opcode.AFFINE))
IS_OFFSET = tl.constexpr(int(Opcode.OFFSET))
IS_FOCAL = tl.constexpr(int(Opcode.FOCAL))
IS_CONFIDENCE = tl.constexpr(int(Opcode.CONFIDENCE))
IS_TWO_CLASSES = tl.constexpr(int(Opcode.TWO_CLASSES))
MAX_WHOLE = 1 << 14
"""Classes of the longest row that a program keeps in its registers."""

MAX_CHUNK = 1 << 12
"""Classes of a longer row that a program reads together."""


@triton.jit
def _affine(x, known, slope, own, j, n_classes):
    """A diagonal affine map of slope · x, by `features` of maps/steps.py."""
    kind = tl.load(own)
    inner = slope / tl.load(own + 1).to(x.dtype)
    scale = tl.where(kind == IS_LOG_PROBABILITIES, tl.load(own + 1), 1.0).to(x.dtype)
    gap = (x - tl.max(x, axis=1)[:, None]) * inner
    is_masked = ~known | (gap <= MASKED_GAP)
    gap = tl.where(is_masked, 2 * LOWEST_FEATURE, tl.where(gap < LOWEST_FEATURE, LOWEST_FEATURE, gap))
    mean = tl.sum(tl.where(is_masked, 0.0, gap), axis=1) / tl.sum(tl.where(is_masked, 0.0, 1.0), axis=1).to(x.dtype)
    log_sum = tl.log(tl.sum(tl.where(is_masked, 0.0, tl.exp(gap * scale)), axis=1)) / scale
    z = gap - tl.where(kind == IS_LOGITS, mean, log_sum)[:, None]
    weights = tl.load(own + 2 + j, mask=j < n_classes, other=0.0).to(x.dtype)
    intercept = tl.load(own + 2 + n_classes + j, mask=j < n_classes, other=0.0).to(x.dtype)
    return tl.where(x > float("-inf"), z * weights + intercept, float("-inf"))


@triton.jit
def _scores(x, j, starts, numbers, n_classes, KINDS_OF_STEPS: tl.constexpr, N_STEPS: tl.constexpr):
    """The steps up to the softmax: the scores, and what they are still to be multiplied by."""
    known = j < n_classes
    slope = tl.full([], 1.0, x.dtype)
    for k in tl.static_range(N_STEPS):
        own = numbers + tl.load(starts + k)
        if (KINDS_OF_STEPS >> 4 * k) & 15 == IS_FLOOR:
            x = tl.where(known, tl.maximum(x, tl.load(own).to(x.dtype) / slope), float("-inf"))
        if (KINDS_OF_STEPS >> 4 * k) & 15 == IS_TEMPERATURE:
            slope = slope / tl.load(own).to(x.dtype)
        if (KINDS_OF_STEPS >> 4 * k) & 15 == IS_AFFINE:
            x = _affine(x, known, slope, own, j, n_classes)
            slope = tl.full([], 1.0, x.dtype)
        if (KINDS_OF_STEPS >> 4 * k) & 15 == IS_OFFSET:
            x = x * slope + tl.load(own + j, mask=known, other=0.0).to(x.dtype)
            slope = tl.full([], 1.0, x.dtype)
    return x, slope


@triton.jit
def _log_sum(total, some):
    return log1p(tl.where(some, total - 1.0, 0.0))


@triton.jit
def _focal(below, some, total, slope, gamma):
    """apply.h, focal_odds, of a row: the second's distance to the top after the map, and what `_weigh` needs."""
    rest, log_norm, top_log_not_q, top_h = top_of(below, total, some, slope)
    scale = rest / (1.0 + rest) / tl.where(some, total, 1.0)
    gap = below * slope
    second_log, _, _, second_h, _ = other(scale, gap - log_norm, gamma)
    second = gap - gamma * (second_log - top_log_not_q) - (log1p(gamma * second_h) - log1p(gamma * top_h))
    second = tl.where((gap != 0.0) & (second < 0.0), second, 0.0)
    return second, (gamma, log_norm, scale, second_log, 1.0 + gamma * second_h)


@triton.jit
def _rank(source, j, KINDS_OF_STEPS: tl.constexpr, N_STEPS: tl.constexpr, WHOLE: tl.constexpr, CHUNK: tl.constexpr):
    """apply.h, look and rank: the last scores, what was seen of each row, and its top, second and slope."""
    logits, row, stride, n_rows, n_classes, starts, numbers = source
    x = chunk_of(logits, row, j, stride, n_rows, n_classes)
    at = tl.zeros_like(row).to(tl.int32)
    wrong = tl.zeros_like(row).to(tl.int32)
    sums = tl.zeros_like(row).to(x.dtype)
    lowest = tl.zeros_like(row).to(x.dtype)
    top = sums - float("inf")
    second = top
    slope = tl.full([], 1.0, x.dtype)
    for start in range(0, CHUNK if WHOLE else n_classes, CHUNK):
        if not WHOLE:
            x = chunk_of(logits, row, start + j, stride, n_rows, n_classes)
        known = start + j < n_classes
        wrong += tl.sum(tl.where(known & ~(x < float("inf")), 1, 0), axis=1)
        sums += tl.sum(tl.where(known, x, 0.0), axis=1)
        lowest = tl.minimum(lowest, tl.min(tl.where(known, x, 0.0), axis=1))
        x, slope = _scores(x, start + j, starts, numbers, n_classes, KINDS_OF_STEPS, N_STEPS)
        best, place = tl.max(x, axis=1, return_indices=True)
        runner = tl.max(tl.where(j == place[:, None], float("-inf"), x), axis=1)
        second = tl.maximum(second, tl.maximum(tl.minimum(top, best), runner))
        at = tl.where(best > top, start + place, at)
        top = tl.maximum(top, best)
    seen = tl.where((wrong > 0) | (top == float("-inf")), 1, 0)  # Findings.NOT_NUMBERS
    seen |= tl.where((lowest < 0.0) | ~((sums >= 0.99) & (sums <= 1.01)), 2, 0)  # Findings.NOT_PROBABILITIES
    below = second - top
    some = below > float("-inf")
    return x, seen, some, (at, top, tl.where(some, below, 0.0), slope)


@triton.jit
def _weigh(
    x, j, source, ranked, focal_terms,
    KINDS_OF_STEPS: tl.constexpr, N_STEPS: tl.constexpr, HAS_FOCAL: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Weights of some classes relative to the second's, 0 for the top, and the logarithms of one of two factors.

    The scores are those at hand, or computed again where rows are not kept.
    """
    logits, row, stride, n_rows, n_classes, starts, numbers = source
    at, top, below, slope = ranked
    if not WHOLE:
        x = chunk_of(logits, row, j, stride, n_rows, n_classes)
        x, slope = _scores(x, j, starts, numbers, n_classes, KINDS_OF_STEPS, N_STEPS)
    is_top = j == at[:, None]
    raw = raised(tl.where(is_top, float("-inf"), x) - top[:, None])
    lower = (raw - below[:, None]) * slope
    e = exp2(lower * LOG2E)
    factor = tl.full([], 1.0, x.dtype)
    if HAS_FOCAL:
        gamma, log_norm, scale, second_log, second_damp = focal_terms
        q = e * scale[:, None]
        rest = 1.0 - q
        factor = second_damp[:, None] * (rest * inverse(rest - gamma * (raw * slope - log_norm[:, None]) * q))
        lower -= gamma * (log_not(q) - second_log[:, None])
        e = tl.minimum(exp2(lower * LOG2E) * factor, 1.0)
    return e, lower, factor, is_top, x > float("-inf")


@triton.jit
def _total(
    x, j, source, ranked, focal_terms,
    KINDS_OF_STEPS: tl.constexpr, N_STEPS: tl.constexpr, HAS_FOCAL: tl.constexpr, WHOLE: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """The sum of a row's weights."""
    total = tl.zeros_like(ranked[1])
    for start in range(0, CHUNK if WHOLE else source[4], CHUNK):
        e, _, _, _, _ = _weigh(x, start + j, source, ranked, focal_terms, KINDS_OF_STEPS, N_STEPS, HAS_FOCAL, WHOLE)
        total += tl.sum(e, axis=1)
    return total


@triton.jit
def _curve(s, own):
    """apply.h, curve, in double."""
    n_knots = tl.load(own).to(tl.int32)
    n_powers = tl.load(own + 1).to(tl.int32)
    piece = tl.zeros_like(s).to(tl.int32)
    for k in range(n_knots):
        piece += (tl.load(own + 2 + k).to(s.dtype) <= s).to(tl.int32)
    distance = s.to(tl.float64) - tl.load(own + 2 + tl.where(piece > 0, piece - 1, 0))
    value = tl.zeros_like(distance)
    for k in range(n_powers):
        value = value * distance + tl.load(own + 2 + n_knots + (n_powers - 1 - k) * (n_knots + 1) + piece)
    return value.to(s.dtype)


@triton.jit
def _kept(p, is_top, top, KEEPS_TOP: tl.constexpr):
    """The top in its place, and nothing above it against the last rounding."""
    if KEEPS_TOP:
        p = tl.minimum(p, top[:, None])
    return tl.where(is_top, top[:, None], p)


@triton.jit
def _apply_kernel(
    logits, starts, numbers, out, seen, stride, out_stride, n_rows, n_classes,
    KINDS_OF_STEPS: tl.constexpr, N_STEPS: tl.constexpr, HAS_FOCAL: tl.constexpr, KEEPS_TOP: tl.constexpr,
    HAS_FACTORS: tl.constexpr, LOG: tl.constexpr, WHOLE: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row = row < n_rows
    j = tl.arange(0, CHUNK)[None, :]
    source = (logits, row, stride, n_rows, n_classes, starts, numbers)
    x, findings, some, ranked = _rank(source, j, KINDS_OF_STEPS, N_STEPS, WHOLE, CHUNK)
    tl.store(seen + row, findings, mask=is_row)
    at, top, below, slope = ranked
    dtype: tl.constexpr = x.dtype
    focal_terms = (slope, top, top, top, top)  # stand-ins, which are not read before the focal map
    total = _total(x, j, source, ranked, focal_terms, KINDS_OF_STEPS, N_STEPS, False, WHOLE, CHUNK)
    log_odds = tl.where(some, -(below * slope + _log_sum(total, some)), CERTAIN_LOG_ODDS)
    for k in tl.static_range(N_STEPS):
        own = numbers + tl.load(starts + k)
        if (KINDS_OF_STEPS >> 4 * k) & 15 == IS_FOCAL:
            gap, focal_terms = _focal(below, some, total, slope, tl.load(own).to(dtype))
            total = _total(x, j, source, ranked, focal_terms, KINDS_OF_STEPS, N_STEPS, True, WHOLE, CHUNK)
            log_odds = tl.where(total > 0.0, -(gap + _log_sum(total, total > 0.0)), CERTAIN_LOG_ODDS)
        if (KINDS_OF_STEPS >> 4 * k) & 15 == IS_CONFIDENCE:
            curved = _curve(tl.where(log_odds < CERTAIN_LOG_ODDS, log_odds, CERTAIN_LOG_ODDS), own)
            least = -_log_sum(total, total > 0.0)
            least += MARGIN * (EPSILON if dtype == tl.float64 else EPSILON_SINGLE) * (1.0 - least)
            log_odds = tl.where((total > 0.0) & (curved < least), least, curved)
        if (KINDS_OF_STEPS >> 4 * k) & 15 == IS_TWO_CLASSES:
            sign = tl.where(at == 1, 1.0, -1.0).to(dtype)
            curved = sign * _curve(sign * tl.where(log_odds < CERTAIN_LOG_ODDS, log_odds, CERTAIN_LOG_ODDS), own)
            log_odds = tl.where(total > 0.0, curved, log_odds)
    up = log_odds > 0.0
    small = tl.exp(tl.where(up, -log_odds, log_odds))  # exp of what is not positive
    share = 1.0 / (1.0 + small)
    p_top = tl.where(total > 0.0, tl.where(up, share, small * share), 1.0)
    safe = tl.where(total > 0.0, total, 1.0)
    per_weight = tl.where(total > 0.0, tl.where(up, small * share, share), 0.0) / safe
    norm = tl.zeros([ROWS], dtype)
    if HAS_FACTORS:
        factors = numbers + tl.load(starts + N_STEPS - 1)
        for start in range(0, CHUNK if WHOLE else n_classes, CHUNK):
            e, _, _, is_top, _ = _weigh(
                x, start + j, source, ranked, focal_terms, KINDS_OF_STEPS, N_STEPS, HAS_FOCAL, WHOLE
            )
            by = tl.load(factors + start + j, mask=start + j < n_classes, other=0.0).to(dtype)
            norm += tl.sum(_kept(e * per_weight[:, None], is_top, p_top, KEEPS_TOP) * by, axis=1)
    if LOG:
        p_top = tl.where(total > 0.0, tl.where(up, 0.0, log_odds) - log1p(small), 0.0)
        level = tl.where(up, -log_odds, 0.0) - log1p(small) - tl.log(safe)
    for start in range(0, CHUNK if WHOLE else n_classes, CHUNK):
        known = start + j < n_classes
        e, lower, factor, is_top, possible = _weigh(
            x, start + j, source, ranked, focal_terms, KINDS_OF_STEPS, N_STEPS, HAS_FOCAL, WHOLE
        )
        p = e * per_weight[:, None]
        if LOG:
            p = tl.where(possible, tl.minimum(lower + tl.log(factor), 0.0) + level[:, None], float("-inf"))
        p = _kept(p, is_top, p_top, KEEPS_TOP)
        if HAS_FACTORS:
            by = tl.load(factors + start + j, mask=known, other=0.0).to(dtype)
            p = p + tl.log(by) - tl.log(norm)[:, None] if LOG else p * by / norm[:, None]
        p = tl.where((findings & 1)[:, None] != 0, float("nan"), p)  # Findings.NOT_NUMBERS
        tl.store(out + row[:, None] * out_stride + start + j, p, mask=is_row[:, None] & known)


@lru_cache(maxsize=64)
def _tables(program: Program, device: torch.device, _stream: int) -> tuple[Tensor, Tensor]:
    """Where the numbers of each step start, and these numbers, in the memory of a GPU.

    Copying them makes the host wait, so that it is done once; for each stream, since memory that a stream has freed
    may be written again before another has read it.
    """
    starts = np.ascontiguousarray(program.steps[:, 1])
    return torch.from_numpy(starts).to(device), torch.from_numpy(program.numbers).to(device)


@beside_its_tensors
def apply(program: Program, x: Tensor, *, log: bool = False) -> tuple[Tensor, Tensor] | None:
    """Probabilities of rows of logits, or their logarithms, in their precision; and what was seen of each row.

    None for an affine map of rows that do not fit the registers.
    """
    opcodes = [int(opcode) for opcode in program.steps[:, 0]]
    whole = x.shape[1] <= MAX_WHOLE
    if Opcode.AFFINE in opcodes and not whole:
        return None
    tile = 1 << 10  # entries: of several rows, where rows are short
    chunk = triton.next_power_of_2(x.shape[1]) if whole else MAX_CHUNK
    rows = max(1, tile // chunk)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    seen = torch.empty(len(x), dtype=torch.int32, device=x.device)
    stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else 0  # interpreted on the CPU
    starts, numbers = _tables(program, x.device, stream)
    _apply_kernel[(triton.cdiv(len(x), rows),)](
        x, starts, numbers, out, seen, x.stride(0), out.stride(0), *x.shape,
        KINDS_OF_STEPS=sum(opcode << 4 * k for k, opcode in enumerate(opcodes)), N_STEPS=len(opcodes),
        HAS_FOCAL=Opcode.FOCAL in opcodes, KEEPS_TOP=Opcode.TWO_CLASSES not in opcodes,
        HAS_FACTORS=Opcode.REWEIGHT in opcodes, LOG=log, WHOLE=whole, ROWS=rows, CHUNK=chunk,
        num_warps=max(4, chunk >> 10), **OPTIONS,
    )  # fmt: skip
    return out, seen


def is_suspect(seen: Tensor) -> bool:
    """Whether the logits need a closer look, as `Applied` says."""
    some_are_no_numbers = ((seen & int(Findings.NOT_NUMBERS)) != 0).any()
    all_may_be_probabilities = ((seen & int(Findings.NOT_PROBABILITIES)) == 0).all()
    return bool(some_are_no_numbers | all_may_be_probabilities)
