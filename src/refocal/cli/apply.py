"""Applying a calibrator to more rows than should be held twice."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import row_blocks
from refocal._files import replace_atomically
from refocal._groups import Groups
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
    *,
    method: str = "predict_proba",
    groups: Groups | None = None,
) -> NDArray[Any]:
    """`calibrator.predict_proba(values)`, bit for bit, in blocks of rows; of one number a row, its second column.

    Another method that says something of every class, such as `predict_set`, keeps all columns.

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
        more = {"groups": {name: column[rows] for name, column in groups.items()}} if groups else {}
        found = np.asarray(getattr(calibrator, method)(block, **more))
        found = found if order is None else found[..., np.argsort(order)]
        parts.append(found[:, 1] if values.ndim == 1 and method == "predict_proba" else found)
    return np.concatenate(parts, axis=-2 if parts[0].ndim > 1 else 0)


def says_more(calibrator: Calibrator) -> bool:
    """Whether a calibrator says more of a row than probabilities, or asks for its group: rows are then in memory."""
    more = ("predict_set", "predict_interval")
    return calibrator.needs_groups or any(hasattr(calibrator, each) for each in more)


def further_columns(calibrator: Calibrator, values: Any, class_names: Sequence[str] | None) -> dict[str, NDArray[Any]]:
    """What some calibrators say beside probabilities: sets of classes, or a least and a largest probability."""

    def ask(method: str) -> NDArray[Any]:
        return apply_blocks(calibrator, values, lambda *_: None, class_names, method=method)

    if hasattr(calibrator, "predict_set"):
        return {"sets": ask("predict_set")}
    if hasattr(calibrator, "predict_interval"):
        lower, upper = ask("predict_interval")
        return {"lower": lower, "upper": upper}
    return {}


def write_probabilities(
    output: Path,
    probabilities: NDArray[Any],
    labels: Any,
    class_names: Sequence[str] | None,
    further: Mapping[str, NDArray[Any]] | None = None,
) -> None:
    """The probabilities, with the labels if there are any; whole or not at all. One number a row is called `p`.

    A .npy file has the probabilities alone; other files have what `further_columns` gives as well.
    """
    if output.suffix.lower() in SEPARATORS:
        _write_table(output, probabilities, labels, class_names, further or {})
        return
    with replace_atomically(output) as part, part.open("wb") as file:
        if output.suffix.lower() == ".npy":
            np.save(file, probabilities)
        else:
            arrays: dict[str, Any] = {"p" if probabilities.ndim == 1 else "probabilities": probabilities}
            arrays |= further or {}
            np.savez(file, **arrays if labels is None else {**arrays, "labels": np.asarray(labels)})


def _write_table(
    output: Path,
    probabilities: NDArray[Any],
    labels: Any,
    class_names: Sequence[str] | None,
    further: Mapping[str, NDArray[Any]],
) -> None:
    """A column a class, with the digits that give the same numbers again; a column `label` if there are labels.

    The classes of a set stand in one column `set`, with semicolons between them.
    """
    names = list(class_names or (f"class_{i}" for i in range(probabilities.shape[1] if probabilities.ndim == 2 else 2)))
    columns = dict(zip(names, probabilities.T, strict=True)) if probabilities.ndim == 2 else {"p": probabilities}
    for bound in ("lower", "upper"):
        if bound in further and probabilities.ndim == 2:
            columns |= {f"{name}_{bound}": each for name, each in zip(names, further[bound].T, strict=True)}
        elif bound in further:
            columns[f"p_{bound}"] = further[bound][:, 1]
    if "sets" in further:
        columns["set"] = np.array([";".join(np.array(names)[row]) for row in further["sets"]])
    if labels is not None:
        columns["label"] = labels
    with replace_atomically(output) as part, part.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter=SEPARATORS[output.suffix.lower()], lineterminator="\n")
        table.writerow(columns)
        table.writerows([str(value) for value in row] for row in zip(*columns.values(), strict=True))
