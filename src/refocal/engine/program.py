"""How a chain becomes a program of the kernels: a list of instructions, each with its numbers.

apply.h (C) and triton_apply.py (GPU) run such programs. A chain is compiled from its end: the last steps that a kernel
supports become instructions, and the steps before them are computed by array functions.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, Indices, Vector
from refocal.maps.chain import Chain, Step
from refocal.maps.curves import Beta, Confidence, OneVsRest, Pieces
from refocal.maps.steps import KINDS, Affine, Floor, Focal, Mixture, Offset, Temperature, Uniform


class Opcode(IntEnum):
    """What an instruction does; the numbers are those of the first enum of apply.h."""

    FLOOR = 0
    TEMPERATURE = 1
    AFFINE = 2
    OFFSET = 3
    FOCAL = 4
    CONFIDENCE = 5
    TWO_CLASSES = 6
    REWEIGHT = 7
    ONE_VS_REST = 8
    UNIFORM = 9
    MEMBER = 10
    MATRIX = 11


class Findings(IntFlag):
    """What a kernel reports of the logits that it has read; the bits are those of the third enum of apply.h."""

    NOT_NUMBERS = 1
    """A row has NaN, +inf, or nothing but -inf."""
    NOT_PROBABILITIES = 2
    """A row has a negative number, or a sum other than 1, so that the logits are no probabilities."""
    LOST = 4
    """A logarithm was asked of a probability too small for its digits, or there was no memory to compute in."""


@dataclass(frozen=True)
class Instruction:
    """One step of a chain in the form that a kernel takes."""

    opcode: Opcode
    numbers: Vector
    n_classes: int | None = None
    """The number of classes that it requires; None: any."""
    is_steep: bool = False
    """Whether a curve is so steep that the last digits of a score in double precision change the result."""


@dataclass(frozen=True, eq=False)
class Program:
    """A chain in the form that a kernel takes; programs are told apart by their identity, as keys of a cache."""

    before: Chain
    """The first steps, which are computed by array functions."""
    steps: Indices
    """(K, 3): for each instruction its opcode, where its numbers start, and how many there are."""
    numbers: Vector
    """The numbers of all instructions, and a 0 behind them, so that there is at least one."""
    n_classes: int | None
    """The number of classes that it requires; None: any."""
    is_steep: bool = False
    """Whether one of its curves is steep."""

    def takes(self, n_classes: int) -> bool:
        """Whether rows of this number of classes can be computed."""
        return self.n_classes is None or self.n_classes == n_classes


def program_of(chain: Chain) -> Program:
    """The program for a GPU, whose kernel supports neither mixtures nor matrices.

    >>> from refocal.maps.steps import Temperature, Unsmooth
    >>> program = program_of(Chain((Unsmooth(0.1), Temperature(2.0), Focal(1.0))))
    >>> program.before
    Chain(steps=(Unsmooth(label_smoothing=0.1),))
    >>> [Opcode(step).name for step in program.steps[:, 0]]
    ['TEMPERATURE', 'FOCAL']
    """
    return _compiled(chain).simple


def program_for(chain: Chain, logits: Array) -> Program:
    """The program of the C engine for these logits, which also supports matrices and, at the end, a mixture.

    A mixture of steep curves is compiled for single precision alone, in which digits are lost either way.
    """
    compiled = _compiled(chain)
    mixture = compiled.mixture
    if mixture is None:
        return compiled.with_matrices
    is_double = logits.dtype.itemsize > 4
    return compiled.with_matrices if mixture.is_steep and is_double else mixture


@dataclass(frozen=True)
class _Compiled:
    """The programs of a chain."""

    simple: Program
    """Of the steps that the kernels of the CPU and of the GPU support."""
    with_matrices: Program
    """Of the steps that the C engine supports, but for a mixture."""
    mixture: Program | None
    """None where the chain does not end with a mixture, or a member of it is not supported."""


_CACHE: dict[int, _Compiled] = {}
"""The programs of all chains that are alive, by the identity of the chain: arrays within it have no hash."""


def _compiled(chain: Chain) -> _Compiled:
    """The programs of a chain, which is frozen, compiled once: predicting a single row takes less time than that."""
    # What the kernels of the CPU and of the GPU support.
    simple_steps = C_STEPS - {Opcode.MATRIX}
    key = id(chain)
    if key not in _CACHE:
        simple = _end_of(chain, simple_steps)
        _CACHE[key] = _Compiled(simple, _end_of(chain, C_STEPS), _mixture_program(chain))
        weakref.finalize(chain, _CACHE.pop, key, None).atexit = False
    return _CACHE[key]


SCORE_STEPS = frozenset({Opcode.FLOOR, Opcode.TEMPERATURE, Opcode.AFFINE, Opcode.MATRIX, Opcode.OFFSET})
"""Instructions from scores to scores."""

OUTPUT_STEPS = frozenset({Opcode.CONFIDENCE, Opcode.TWO_CLASSES, Opcode.REWEIGHT})
"""Instructions on probabilities: a program has at most one, at its end."""

C_STEPS = SCORE_STEPS | {Opcode.FOCAL} | OUTPUT_STEPS
"""What the C engine supports in a chain without mixtures."""


MATRIX_CLASSES = 128
"""The most classes of a matrix in a program: with more, the products of a BLAS are as fast."""


def _may_precede(opcode: Opcode) -> frozenset[Opcode]:
    """The instructions that a kernel supports before one: scores, then the focal map, then probabilities."""
    return SCORE_STEPS | {Opcode.FOCAL} if opcode in OUTPUT_STEPS else SCORE_STEPS


def _end_of(chain: Chain, supported: frozenset[Opcode]) -> Program:
    """The longest end of a chain whose steps a kernel supports."""
    instructions = _supported_end(chain.steps, supported)
    n_before = len(chain.steps) - len(instructions)
    return _assembled(Chain(chain.steps[:n_before]), instructions)


def _mixture_program(chain: Chain) -> Program | None:
    """The mixture at the end of a chain: the instructions of each member, followed by its weight.

    None where there is no mixture, or where a member has a step that the C engine does not support.
    """
    # What the C engine supports within a member of a mixture.
    member_steps = C_STEPS | {Opcode.ONE_VS_REST, Opcode.UNIFORM}
    if not chain.steps or not isinstance(mixture := chain.steps[-1], Mixture):
        return None
    instructions: list[Instruction] = []
    for member, weight in zip(mixture.members, mixture.weights, strict=True):
        steps = member.steps if isinstance(member, Chain) else (member,)
        of_member = _supported_end(steps, member_steps)
        if len(of_member) < len(steps):
            return None
        instructions += of_member
        instructions.append(Instruction(Opcode.MEMBER, _flat(float(weight))))
    return _assembled(Chain(chain.steps[:-1]), instructions)


def _supported_end(steps: tuple[Step, ...], supported: frozenset[Opcode]) -> list[Instruction]:
    """The instructions of the longest end of some steps that a kernel supports in this order."""
    instructions: list[Instruction] = []
    allowed = supported
    for number in reversed(range(len(steps))):
        instruction = _instruction(steps[number], is_last=number == len(steps) - 1)
        if instruction is None or instruction.opcode not in allowed:
            break
        instructions.insert(0, instruction)
        allowed = supported & _may_precede(instruction.opcode)
    return instructions


def _assembled(before: Chain, instructions: list[Instruction]) -> Program:
    """Instructions as the tables that a kernel reads."""
    steps = np.zeros((len(instructions), 3), dtype=np.int64)
    start = 0
    for row, instruction in zip(steps, instructions, strict=True):
        row[:] = (instruction.opcode, start, len(instruction.numbers))
        start += len(instruction.numbers)
    numbers = np.concatenate([*(instruction.numbers for instruction in instructions), np.zeros(1)])
    required = [instruction.n_classes for instruction in instructions if instruction.n_classes is not None]
    return Program(
        before=before,
        steps=steps,
        numbers=numbers,
        n_classes=required[0] if required else None,
        is_steep=any(instruction.is_steep for instruction in instructions),
    )


def _instruction(step: Step, *, is_last: bool) -> Instruction | None:
    """A step as an instruction; None where no kernel supports it. `is_last`: no step of its chain follows."""
    match step:
        case Floor():
            return Instruction(Opcode.FLOOR, _flat(step.log_p))
        case Temperature():
            return Instruction(Opcode.TEMPERATURE, _flat(step.temperature))
        case Focal():
            return Instruction(Opcode.FOCAL, _flat(step.gamma))
        case Uniform():
            return Instruction(Opcode.UNIFORM, np.zeros(0))
        case Offset() if is_last:  # the probabilities are multiplied instead, by at most 1
            return Instruction(Opcode.REWEIGHT, _flat(np.exp(step.offset - np.max(step.offset))))
        case Offset():
            return Instruction(Opcode.OFFSET, _flat(step.offset))
        case Affine() if np.ndim(step.weights) == 1:  # a diagonal matrix
            kind = KINDS.index(step.kind)
            return Instruction(Opcode.AFFINE, _flat(kind, step.inner_temperature, step.weights, step.intercept))
        case Affine() if len(step.weights) <= MATRIX_CLASSES:
            kind = KINDS.index(step.kind)
            return Instruction(Opcode.MATRIX, _flat(kind, step.inner_temperature, step.weights, step.intercept))
        case Confidence():
            table = _curve_table(step.curve)
            if table is None or len(table.curves) > 1:
                return None
            return Instruction(Opcode.CONFIDENCE, _flat(table.curves), is_steep=table.is_steep)
        case OneVsRest():
            table = _curve_table(step.curve)
            if table is None:
                return None
            if len(table.curves) == 1:
                return Instruction(Opcode.TWO_CLASSES, _flat(table.curves), 2, table.is_steep)
            return Instruction(Opcode.ONE_VS_REST, _flat(table.curves), len(table.curves), table.is_steep)
    return None


@dataclass(frozen=True)
class _CurveTable:
    """Curves of log-odds as numbers for `curve` of apply.h."""

    curves: NDArray[np.float64]
    """For each curve a row: the number of knots, the number of powers, the knots, the coefficients of each power."""
    is_steep: bool = False


def _curve_table(curve: Step) -> _CurveTable | None:
    """A curve, or one for each class, as numbers; None where no kernel supports it."""
    match curve:
        case Pieces():
            return _table_of_pieces(curve)
        case Beta() if len(curve.coefficients) > 1:  # no knots, and three numbers
            n_curves = len(curve.coefficients)
            return _CurveTable(np.hstack([np.tile([0, 3], (n_curves, 1)), curve.coefficients]))
    return None


def _table_of_pieces(pieces: Pieces) -> _CurveTable | None:
    """Piecewise polynomials as numbers; None where they jump: at a jump the last bit of a score would decide."""
    jump_tolerance = 1e-5  # of log-odds: coefficients in single precision, as in a layer's buffers, leave such steps
    steep_tolerance = 1e-12  # of log-odds: a change over one rounding of the score that is seen in double precision

    knots = pieces.knots
    n_curves, n_knots = knots.shape
    at_knots = pieces.apply(np, knots.T).T
    just_below = pieces.apply(np, np.nextafter(knots, -np.inf).T).T
    is_steep = not np.allclose(just_below, at_knots, rtol=steep_tolerance, atol=steep_tolerance)
    if n_curves == 1:
        limit_from_below = just_below
    else:
        # The limit itself, Σ_d coefficient_d · widthᵈ of the piece that ends at the knot: one that is steep but does
        # not jump is supported in single precision. Of equal knots all but the first end a piece of no width.
        width = np.diff(knots, axis=1, prepend=knots[:, :1])
        end_of_piece = sum(power[:, :-1] * width**degree for degree, power in enumerate(pieces.coefficients))
        is_repeated = np.diff(knots, axis=1, prepend=-np.inf) == 0.0
        limit_from_below = np.where(is_repeated, at_knots, end_of_piece)
    if not np.allclose(limit_from_below, at_knots, rtol=jump_tolerance, atol=jump_tolerance):
        return None
    sizes = np.tile([n_knots, len(pieces.coefficients)], (n_curves, 1))
    return _CurveTable(np.hstack([sizes, knots, *pieces.coefficients]), is_steep)


def _flat(*numbers: Any) -> Vector:
    """Numbers and arrays as one vector of float64."""
    return np.concatenate([np.ravel(np.asarray(part, dtype=np.float64)) for part in numbers])
