"""Applying a calibrator to more rows than should be held twice."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from refocal._arrays import row_blocks
from refocal._files import replace_atomically
from refocal._groups import Groups
from refocal.calibrators import Calibrator
from refocal.calibrators._answers import Answers, answers
from refocal.calibrators._labels import named_classes
from refocal.io.predictions import column_order
from refocal.io.writers import text_columns

SEPARATORS = {".csv": ",", ".tsv": "\t"}
ENDINGS = (".npz", ".npy", *SEPARATORS)


def apply_blocks(
    calibrator: Calibrator,
    values: Any,
    update: Callable[[float, int, str], None],
    class_names: Sequence[str] | None = None,
    entries: int = 1 << 22,
    *,
    groups: Groups | None = None,
) -> Answers:
    """All that a calibrator says of the rows, bit for bit as of all rows together, in blocks of rows.

    Where the columns have names and so have the calibrator's classes, each column is taken for what it is called.
    """
    if values.ndim not in (1, 2) or len(values) == 0:
        return answers(calibrator, values)  # says what is wrong
    wanted = named_classes(calibrator)
    order = None if class_names is None or wanted is None else column_order(class_names, wanted, "apply")
    parts = []
    for rows in row_blocks(values.shape[0], values.shape[-1] if values.ndim == 2 else 1, entries=entries):
        update(rows.start, values.shape[0], f"applying to {values.shape[0]:,} rows")
        of_rows = {name: column[rows] for name, column in (groups or {}).items()}
        parts.append(answers(calibrator, values[rows], order, of_rows))
    further = {name: np.concatenate([part.further[name] for part in parts]) for name in parts[0].further}
    return Answers(np.concatenate([part.probabilities for part in parts]), further)


def write_answers(
    output: Path,
    found: Answers,
    labels: Any,
    class_names: Sequence[str] | None,
    others: Mapping[str, Sequence[str]] = {},
) -> None:
    """The answers of a calibrator, with the labels if there are any; whole or not at all. One number a row is `p`.

    A .npy file has the probabilities alone, a table the `others`, columns of the file that was read, before them.
    """
    p = found.probabilities
    if output.suffix.lower() in SEPARATORS:
        names = list(class_names or (f"class_{i}" for i in range(p.shape[1] if p.ndim == 2 else 2)))
        last = {} if labels is None or "label" in others else {"label": labels}
        write_table(output, {**others, **text_columns(found, names), **last})
        return
    with replace_atomically(output) as part, part.open("wb") as file:
        if output.suffix.lower() == ".npy":
            np.save(file, p)
        else:
            arrays: dict[str, Any] = {"p" if p.ndim == 1 else "probabilities": p, **found.further}
            np.savez(file, **arrays if labels is None else {**arrays, "labels": np.asarray(labels)})


def write_table(output: Path, columns: Mapping[str, Any]) -> None:
    """Columns as text, with the digits that give the same numbers again; whole or not at all."""
    with replace_atomically(output) as part, part.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter=SEPARATORS[output.suffix.lower()], lineterminator="\n")
        table.writerow(columns)
        table.writerows([str(value) for value in row] for row in zip(*columns.values(), strict=True))


def other_columns(file: Path, taken: Sequence[str], n_rows: int) -> dict[str, list[str]]:
    """The columns of a text file but those taken, cell by cell as they are; none of a file of another kind."""
    if file.suffix.lower() not in SEPARATORS or not taken:
        return {}
    with file.open(encoding="utf-8-sig", newline="") as opened:
        names, *rows = [row for row in csv.reader(opened, delimiter=SEPARATORS[file.suffix.lower()]) if row]
    if len(rows) != n_rows:
        return {}
    return {name: [row[i] for row in rows] for i, name in enumerate(names) if name not in taken}
