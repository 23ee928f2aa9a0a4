"""Applying a calibrator to more rows than should be held twice."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import row_blocks
from refocal._files import replace_atomically
from refocal.calibrators import Calibrator
from refocal.calibrators._labels import named_classes
from refocal.data.predictions import column_order

SEPARATORS = {".csv": ",", ".tsv": "\t"}
ENDINGS = (".npz", ".npy", *SEPARATORS)


def apply_blocks(
    calibrator: Calibrator,
    values: Any,
    update: Callable[[float, int, str], None],
    class_names: Sequence[str] | None = None,
    entries: int = 1 << 22,
) -> NDArray[Any]:
    """`calibrator.predict_proba(values)`, bit for bit, in blocks of rows; of one number a row, its second column.

    Where the columns have names and so have the calibrator's classes, each column is taken for what it is called.
    """
    if values.ndim not in (1, 2) or len(values) == 0:
        return np.asarray(calibrator.predict_proba(values))  # says what is wrong
    wanted = named_classes(calibrator)
    order = None if class_names is None or wanted is None else column_order(class_names, wanted, "apply")
    parts = []
    for rows in row_blocks(values.shape[0], values.shape[-1] if values.ndim == 2 else 1, entries=entries):
        update(rows.start, values.shape[0], f"applying to {values.shape[0]:,} rows")
        block = values[rows] if order is None else values[rows][:, order]
        found = np.asarray(calibrator.predict_proba(block))
        found = found if order is None else found[:, np.argsort(order)]
        parts.append(found if values.ndim == 2 else found[:, 1])
    return np.concatenate(parts)


def write_probabilities(
    output: Path, probabilities: NDArray[Any], labels: Any, class_names: Sequence[str] | None
) -> None:
    """The probabilities, with the labels if there are any; whole or not at all. One number a row is called `p`."""
    if output.suffix.lower() in SEPARATORS:
        _write_table(output, probabilities, labels, class_names)
        return
    with replace_atomically(output) as part, part.open("wb") as file:
        if output.suffix.lower() == ".npy":
            np.save(file, probabilities)
        else:
            arrays: dict[str, Any] = {"p" if probabilities.ndim == 1 else "probabilities": probabilities}
            np.savez(file, **arrays if labels is None else {**arrays, "labels": np.asarray(labels)})


def _write_table(output: Path, probabilities: NDArray[Any], labels: Any, class_names: Sequence[str] | None) -> None:
    """A column a class, with the digits that give the same numbers again; a column `label` if there are labels."""
    if probabilities.ndim == 1:
        probabilities, class_names = probabilities[:, None], ["p"]
    names = list(class_names or (f"class_{i}" for i in range(probabilities.shape[1])))
    with replace_atomically(output) as part, part.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter=SEPARATORS[output.suffix.lower()], lineterminator="\n")
        table.writerow(names if labels is None else [*names, "label"])
        for i, row in enumerate(probabilities):
            cells = [str(value) for value in row]
            table.writerow(cells if labels is None else [*cells, labels[i]])
