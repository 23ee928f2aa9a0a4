"""The variations: how columns are named, what labels are and how they are stored, and what else is in the rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import matrix_oracle as oracle
import numpy as np

N_ROWS = 48
# Logits of this temperature: a fit has something to find, and wrong columns a log-loss that is far off.
TEMPERATURE = 2.0

# Names of the columns, and the label of a row of each; None where there is no such row.
GOOD = {
    "unnamed2": (None, (0, 1)),
    "unnamed2_truth": (None, (False, True)),
    "unnamed3": (None, (0, 1, 2)),
    "words2": (("cat", "dog"), ("cat", "dog")),
    "words2_turned": (("yes", "no"), ("yes", "no")),
    "words2_truth": (("cat", "dog"), (False, True)),
    "words3": (("dog", "emu", "cat"), ("dog", "emu", "cat")),
    "words3_numbers": (("dog", "emu", "cat"), (0, 1, 2)),
    "prefixed3": (("logit_cat", "logit_dog", "logit_emu"), ("cat", "dog", "emu")),
    "prefixed3_whole": (("logit_cat", "logit_dog", "logit_emu"), ("logit_cat", "logit_dog", "logit_emu")),
    "counted3": (("0", "1", "2"), (0, 1, 2)),
    "turned2": (("1", "0"), (1, 0)),
    "turned2_truth": (("1", "0"), (True, False)),
    "scattered3": (("2", "0", "7"), (2, 0, 7)),
    "truth2": (("True", "False"), (True, False)),
    "truth2_lower": (("false", "true"), (False, True)),
    "from1": (("1", "2", "3"), (1, 2, 3)),
    "other3": (("1", "2", "other"), ("1", "2", "other")),
    "other3_numbers": (("1", "2", "other"), (1, 2, None)),
    "more3": (("1", "2", "3+"), ("1", "2", "3+")),
    "more3_numbers": (("1", "2", "3+"), (1, 2, None)),
}
# Some of these are names of columns in a fit, and refused by all else.
DOUBTFUL = {
    "unnamed2_signs": (None, (-1, 1)),
    "unnamed2_words": (None, ("no", "yes")),
    "unnamed3_from1": (None, (1, 2, 3)),
    "unnamed3_far": (None, (5, 9, 10)),
    "unnamed3_words": (None, ("ant", "bee", "cat")),
    "unnamed3_two": (None, ("ant", "bee", "bee")),
    "words3_stranger": (("dog", "emu", "cat"), ("dog", "emu", "cow")),
    "words3_mixed": (("dog", "emu", "cat"), ("dog", "emu", "2")),
    "words3_out": (("dog", "emu", "cat"), (0, 1, 3)),
    "words3_from1": (("dog", "emu", "cat"), (1, 2, 3)),
    "words3_missing": (("dog", "emu", "cat"), ("dog", "emu", "")),
    "from1_zero": (("1", "2", "3"), (0, 1, 2)),
}
NAMINGS = GOOD | DOUBTFUL
EXTRA = ("id", "ID", "uid", "idx", "timestamp", "prediction", "age")


@dataclass(frozen=True)
class Case:
    """One variation of rows."""

    naming: str
    stored: str
    positive: Any = None
    extra: str = ""
    """A further column of numbers, of tables."""
    is_weighted: bool = False
    """Whether rows have weights, some of them 0 in rows that are absurd."""
    scores: str = "plain"
    """What one row holds: nan, inf, minus_inf, minus_inf_at_label, only_minus_inf; or zeros among probabilities."""
    rows: str = "many"
    """Many, one, or none of the last class: absent."""
    first: int = 0
    """The label that numbers count from, as it is said."""
    mark: int | None = None
    """The label of some rows that are to be left out, as it is said."""
    input: str = "logits"
    """Logits, probabilities, or one number per row for two classes: log-odds, or the probability of class 1."""

    @property
    def columns(self):
        return NAMINGS[self.naming][0]

    @property
    def n_classes(self):
        return len(NAMINGS[self.naming][1])

    @property
    def is_one_number(self):
        return self.input in ("log-odds", "probability")

    @property
    def id(self):
        """The naming, how labels are stored, and what else is not as usual."""
        parts = [self.naming, self.stored]
        parts += [] if self.positive is None else [f"positive_{self.positive}"]
        parts += [f"beside_{self.extra}"] if self.extra else []
        parts += ["weighted"] if self.is_weighted else []
        parts += [f"first_{self.first}"] if self.first else []
        parts += [] if self.mark is None else [f"mark_{self.mark}"]
        parts += [value for value, usual in ((self.scores, "plain"), (self.rows, "many")) if value != usual]
        parts += [] if self.input == "logits" else [self.input]
        return ".".join(map(str, parts))


@dataclass(frozen=True, eq=False)
class Rows:
    """What a carrier is made of: values (N, C), or (N,) of log-odds, labels as Python's objects, and weights."""

    case: Case
    logits: np.ndarray
    values: np.ndarray
    labels: list
    weight: np.ndarray | None
    is_kept: np.ndarray
    """Which rows count: those of a weight above 0 and of a label that is not to be left out."""

    @property
    def known_labels(self):
        return [label for label, is_kept in zip(self.labels, self.is_kept, strict=True) if is_kept]


def stored_as(value, kind):
    """A label as it is stored; text of a whole number may have a point."""
    if kind in ("int", "float", "bool"):
        return {"int": int, "float": float, "bool": bool}[kind](value)
    if kind == "decimal":
        return f"{value}.0"
    if kind == "bytes":
        return str(value).encode()
    return str(value) if kind == "text" else value


def kinds_of(values):
    """The ways to store labels of these values."""
    values = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in values):
        return ("bool", "text", "category")
    if all(isinstance(value, int) for value in values):
        return ("int", "float", "text", "decimal", "category", "bytes")
    return ("text", "category", "bytes")


@cache
def rows_of(case):
    """The rows of a case. Logits are whole numbers, which every dtype holds, and differ within a row."""
    rng = np.random.default_rng(7)
    n_classes = case.n_classes
    bias = np.linspace(0.0, 2.0, n_classes)
    logits = np.round(3.0 * rng.normal(size=(20 * N_ROWS, n_classes)) + bias)
    logits = logits[[len(set(row)) == n_classes for row in logits.tolist()]][:N_ROWS]
    scores = logits / TEMPERATURE + rng.gumbel(size=logits.shape)
    if case.rows == "absent":
        logits[:, -1] = logits.min() - 1.0
        scores[:, -1] = -np.inf
    column = np.argmax(scores, axis=1)
    if case.rows == "one":
        logits = logits[:1]
        column = column[:1]
    logits = _aligned(case, logits, column)
    weight = None
    if case.is_weighted:
        weight = 1.0 + np.arange(len(logits)) % 3
        weight[::8] = 0.0
        logits[::8] = np.linspace(-90.0, 90.0, n_classes)
        column[::8] = 0
    _plant(logits, column, case.scores)
    labels = [stored_as(NAMINGS[case.naming][1][k], case.stored) for k in column.tolist()]
    is_kept = np.ones(len(labels), dtype=bool) if weight is None else weight > 0.0
    if case.mark is not None:
        for row in range(1, len(labels), 6):
            labels[row] = stored_as(case.mark, case.stored)
            is_kept[row] = False
    values = logits
    if case.input == "log-odds":
        values = logits[:, 1] - logits[:, 0]
    elif case.input in ("probabilities", "probability"):
        with np.errstate(invalid="ignore"):
            values = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
        values = values / values.sum(axis=1, keepdims=True)
        values = values if case.input == "probabilities" else values[:, 1]
    return Rows(case, logits, values, labels, weight, is_kept)


def _aligned(case, logits, column):
    """The columns in an order in which the reading of the rule is the good one, and every other is far off."""
    values = NAMINGS[case.naming][1]
    drawn = sorted(set(column.tolist()))
    labels = [stored_as(values[k], case.stored) for k in drawn]
    said = {"positive": case.positive, "first": case.first, "is_fit": True, "is_one_number": case.is_one_number}
    read = oracle.expected(case.columns, labels, case.n_classes, **said)
    if read == oracle.REFUSED or len(set(read)) < len(read):
        return logits
    others = [k for k in range(case.n_classes) if k not in drawn]
    free = [k for k in range(case.n_classes) if k not in read]
    moved = logits.copy()
    moved[:, read + free] = logits[:, drawn + others]
    return moved


def _plant(logits, column, scores):
    """Put what is not finite into one row, or into some as zeros among probabilities."""
    row = min(3, len(logits) - 1)
    other = (column[row] + 1) % logits.shape[1]
    if scores in ("nan", "inf", "minus_inf"):
        logits[row, other] = float(scores.replace("minus_", "-"))
    elif scores == "minus_inf_at_label":
        logits[row, column[row]] = -np.inf
    elif scores == "only_minus_inf":
        logits[row] = -np.inf
    elif scores == "zeros":
        for some in range(0, len(logits), 5):
            logits[some, (column[some] + 1) % logits.shape[1]] = -np.inf


def all_cases():
    """Every variation."""
    plain = [Case(naming, kind) for naming, (_, values) in NAMINGS.items() for kind in kinds_of(values)]
    two = [case for case in plain if case.n_classes == 2]
    cases = [case for case in plain if None not in NAMINGS[case.naming][1]]
    for case in two:
        cases += [replace(case, positive=label) for label in NAMINGS[case.naming][1]]
    cases += [replace(case, rows="absent") for case in plain if case.n_classes == 3]
    usual = [
        Case(name, kinds_of(NAMINGS[name][1])[0]) for name in ("unnamed2", "unnamed3", "words3", "turned2", "prefixed3")
    ]
    cases += [replace(Case("words3_numbers", "int"), extra=name) for name in EXTRA]
    for case in usual:
        cases.append(replace(case, is_weighted=True))
        cases.append(replace(case, rows="one"))
        cases += [replace(case, extra=name) for name in EXTRA if case.columns is not None]
        bad = ("nan", "inf", "minus_inf", "minus_inf_at_label", "only_minus_inf")
        cases += [replace(case, scores=scores) for scores in bad]
        if not case.naming.startswith("prefixed"):
            probabilities = replace(case, input="probabilities")
            cases += [probabilities, replace(probabilities, scores="zeros")]
            cases.append(replace(probabilities, scores="zeros", is_weighted=True))
    for case in plain:
        if case.naming in ("unnamed3", "words3", "counted3", "turned2", "from1") and case.stored != "category":
            cases.append(replace(case, mark=255))
        if case.naming in ("unnamed3_from1", "words3_from1"):
            cases.append(replace(case, first=1))
    for case in two:
        if case.columns is None:
            of_case = replace(case, input="log-odds")
            cases += [of_case, *(replace(of_case, positive=label) for label in NAMINGS[case.naming][1])]
    return cases
