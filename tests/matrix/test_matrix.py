"""Every entry × every carrier × every variation of rows: the same numbers, or the same error, everywhere.

A cell is called entry-carrier-variation. `pytest "tests/matrix/test_matrix.py::test_cell[fit_ts-csv-words3.text]"` runs
one alone; those of the sample run in `make test`, all in `make test-all`.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import matrix_oracle as oracle
import numpy as np
import pytest
from matrix_carriers import CARRIERS, TOLERANCES
from matrix_cases import N_ROWS, all_cases, rows_of
from matrix_entries import IN_BLOCKS, SETS, Reference, Refused
from matrix_registry import ENTRIES

from refocal.errors import DataError, FormatError, LabelError

SAMPLE = 300
# JAX compiles every operation for every shape, half a second a cell: the sample has this many of its cells.
SAMPLE_OF_JAX = 5
# The order of columns is scikit-learn's to refuse, with a ValueError.
ERRORS = {"LabelError": LabelError, "DataError": DataError, "FormatError": FormatError, "ValueError": ValueError}
LOOSE = TOLERANCES["numpy_float32"]
# The scalings of the default end within 1e-8 of the least mean log-loss, in single precision elsewhere than in double.
# A row of n whose log-odds are off by δ costs ½ p(1-p) δ² / n, and its probability is off by p(1-p) δ: where all that
# is left to gain lies in one row by √(2 n p(1-p) 1e-8), which is largest at p = ½.
LOOSE_END = math.sqrt(N_ROWS / 2.0 * 1e-8)


@dataclass(frozen=True)
class Cell:
    """One entry, one carrier, one variation."""

    entry: Any
    carrier: Any
    case: Any

    @property
    def id(self):
        return f"{self.entry.name}-{self.carrier.name}-{self.case.id}"

    @property
    def tolerance(self):
        tolerance = max(self.carrier.tolerance, LOOSE) if self.entry.is_loose else self.carrier.tolerance
        is_single = self.carrier.name == "numpy_float32"
        return max(tolerance, LOOSE_END) if is_single and self.entry.ends_within_tolerance else tolerance


def is_meant(entry, carrier, case):
    """Whether an entry takes rows of a case in a carrier, as its documentation says."""
    if entry.is_permuted and not carrier.is_frame:
        return False  # arrays have no names
    if case.mark is not None and carrier.name in IN_BLOCKS:
        return False  # labels to leave out are said where rows are opened
    if case.mark is not None and carrier.name == "folder" and case.naming == "words3":
        return False  # a class is missing in its first file, which must tell which columns are classes
    if case.positive is not None and entry.is_command and carrier.name in SETS:
        return False  # --positive-label is for files that are read whole
    return carrier.holds(case, names_given=entry.gives_names)


@cache
def all_cells():
    """Every cell that has a meaning."""
    cells = []
    for entry in ENTRIES:
        carriers = [c for c in CARRIERS if c.is_file == entry.is_file and c.name not in entry.without]
        for case in all_cases():
            taken = entry.case_for(case)
            if taken is None:
                continue
            cells += [Cell(entry, carrier, taken) for carrier in carriers if is_meant(entry, carrier, taken)]
    return list({cell.id: cell for cell in cells}.values())


def sample():
    """Some cells: one of every entry and one of every carrier, and others by chance."""
    cells = all_cells()
    shuffled = [cells[i] for i in np.random.default_rng(0).permutation(len(cells))]
    of_jax = [cell for cell in shuffled if cell.carrier.name == "jax"]
    of_others = [cell for cell in shuffled if cell.carrier.name != "jax"]
    by_entry = {cell.entry.name: cell for cell in of_others}
    by_carrier = {cell.carrier.name: cell for cell in of_others}
    needed = (*by_entry.values(), *by_carrier.values(), *of_jax[:SAMPLE_OF_JAX])
    chosen = {cell.id: cell for cell in (*needed, *of_others)}
    return list(chosen.values())[:SAMPLE]


def pytest_generate_tests(metafunc):
    """The sample runs always, and the other cells where long tests are not left out."""
    if "cell" in metafunc.fixturenames:
        some = sample()
        in_sample = {cell.id for cell in some}
        is_short = "not long" in (metafunc.config.getoption("markexpr") or "")
        rest = [] if is_short else [cell for cell in all_cells() if cell.id not in in_sample]
        cells = [pytest.param(cell, id=cell.id) for cell in some]
        metafunc.parametrize("cell", [*cells, *(pytest.param(c, id=c.id, marks=pytest.mark.long) for c in rest)])


def expectation(cell):
    """The name of the error, or the numbers that the entry must have."""
    case = cell.case
    entry = cell.entry
    rows = rows_of(case)
    column = np.zeros(len(rows.labels), dtype=int)
    positive = 1
    if cell.carrier.is_table and not entry.has_calibrator and case.columns is not None and not case.is_one_number:
        more = {"has_others": bool(case.extra), "are_probabilities": case.input == "probabilities", "mark": case.mark}
        if not oracle.is_plain(case.columns, rows.labels, **more):
            return oracle.UNCLEAR
    if entry.takes_labels and entry.reads_labels:
        is_one = case.is_one_number
        if entry.has_calibrator and is_one and oracle.contradicts_calibrator(case.positive):
            return oracle.REFUSED
        said = {"positive": case.positive, "first": case.first, "mark": case.mark}
        kind = {"is_fit": entry.names_classes, "is_one_number": is_one}
        column = oracle.expected(case.columns, rows.labels, case.n_classes, **said, **kind)
        if column == oracle.REFUSED:
            return column
        if case.n_classes == 2:
            positive = oracle.positive_column(case.columns, rows.known_labels, case.positive, is_one_number=is_one)
    is_bad = case.scores in ("nan", "inf", "only_minus_inf")
    if not entry.name.startswith(("layer", "onnx")) and (
        is_bad or (entry.is_fit and case.scores == "minus_inf_at_label")
    ):
        return "DataError"
    if entry.is_permuted:
        return "ValueError"
    weight = np.ones(len(rows.labels)) if rows.weight is None else rows.weight
    is_kept = rows.is_kept
    dtype = np.float32 if cell.carrier.name == "numpy_float32" else np.float64
    columns = np.array(column)[is_kept].astype(int)
    reference = Reference(case, columns, is_kept, weight[is_kept], positive, dtype, not cell.carrier.is_file)
    return entry.want(reference)


def test_cell(cell, tmp_path):
    wanted = expectation(cell)
    carried = cell.carrier.make(rows_of(cell.case), tmp_path)
    if isinstance(wanted, str):
        with pytest.raises((ERRORS[wanted], Refused)):
            cell.entry.run(carried, tmp_path)
        return
    got = cell.entry.run(carried, tmp_path)
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        if name in ("classes", "predicted"):
            assert value is None or kept(got[name], value, cell.case) == value, name
        else:
            found = kept(got[name], value, cell.case)
            np.testing.assert_allclose(found, value, rtol=cell.tolerance, atol=cell.tolerance, err_msg=name)


def kept(found, value, case):
    """What was found for the rows that count, where there is something for each row."""
    rows = np.flatnonzero(rows_of(case).is_kept)
    if np.ndim(value) == 0 or len(found) == len(value):
        return found
    return [found[row] for row in rows] if isinstance(found, list) else np.asarray(found)[rows]


@pytest.mark.parametrize(
    ("columns", "labels", "options", "wanted"),
    [
        (("dog", "cat"), ["cat", "dog"], {}, [1, 0]),
        (("dog", "cat"), [0, 1], {}, [0, 1]),
        (("dog", "cat"), [b"cat", b"dog"], {}, [1, 0]),
        (("dog", "cat"), ["cat", "0"], {}, "LabelError"),
        (("dog", "cat"), ["cat", ""], {}, "LabelError"),
        (("dog", "cat"), [True, False], {}, [1, 0]),
        (("p_dog", "p_cat"), ["cat", "p_dog"], {}, [1, 0]),
        (("1", "0"), [1.0, "0"], {}, [0, 1]),
        (("1", "0"), [True, "02"], {}, "LabelError"),
        (("1", "0"), [True, False], {}, [0, 1]),
        (("True", "False"), ["true", False], {}, [0, 1]),
        (("2", "3"), ["2.0", 3], {"first": 1}, [0, 1]),
        (("a", "b"), [1, 2], {"first": 1}, [0, 1]),
        (("a", "b"), ["a", 255], {"mark": 255}, [0, None]),
        (None, [1, 0], {}, [1, 0]),
        (None, [-1, 1], {}, "LabelError"),
        (None, [-1, 1], {"positive": -1}, [1, 0]),
        (None, [0, 1], {"positive": 0}, [0, 1]),
        (None, [0, 1], {"positive": 0, "is_one_number": True}, [1, 0]),
        (None, ["10", 9], {"is_fit": True}, [1, 0]),
        (None, ["b", "a"], {"is_fit": True}, [1, 0]),
        (None, [None, 1], {"is_fit": True}, "LabelError"),
    ],
)
def test_the_model_of_the_rule(columns, labels, options, wanted):
    assert oracle.expected(columns, labels, 2, **options) == wanted


def test_how_many_cells_there_are(capsys):
    with capsys.disabled():
        sys.stdout.write(f"\nmatrix: {len(sample())} of {len(all_cells()):,} cells in the sample\n")
    ids = [cell.id for cell in all_cells()]
    assert len(ids) == len(set(ids))
    assert {cell.entry.name for cell in sample()} == {entry.name for entry in ENTRIES}
    assert {cell.carrier.name for cell in sample()} == {cell.carrier.name for cell in all_cells()}
    assert {cell.carrier.name for cell in sample()} == {carrier.name for carrier in CARRIERS}
