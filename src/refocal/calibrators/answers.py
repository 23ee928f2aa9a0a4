"""The predictions of a fitted calibrator that are written: probabilities, sets of classes, bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Indices, to_numpy
from refocal.calibrators._base import Calibrator


class Answers(NamedTuple):
    """Probabilities, of shape (rows,) for one number per row or else (rows, classes), and further predictions.

    `further` has the sets of classes as booleans, or the least and the largest probabilities: "sets", "lower", "upper".

    >>> Answers(np.array([0.5]), {}).probabilities
    array([0.5])
    """

    probabilities: NDArray[Any]
    further: dict[str, NDArray[Any]]


def answers(
    calibrator: Calibrator, values: NDArray[Any], order: Indices | None = None, groups: Mapping[str, Any] | None = None
) -> Answers:
    """The predictions of a calibrator; `order` has the positions of its classes among the columns.

    One number per row is about the second of its classes, as everywhere.
    """
    order = None if values.ndim == 1 else order
    given = values if order is None else values[:, order]
    back: Any = slice(None) if order is None else np.argsort(order)
    more: dict[str, Any] = {"groups": groups} if groups else {}
    names = further_names(calibrator)
    fitted = cast(Any, calibrator)
    # The probabilities of a calibrator of sets do not depend on groups.
    p = to_numpy(calibrator.predict_proba(given) if "sets" in names else fitted.predict_proba(given, **more))
    predictions: dict[str, Any] = {}
    if "sets" in names:
        predictions = {"sets": fitted.predict_set(given, **more)}
    elif names:
        lower, upper = fitted.predict_interval(given)
        predictions = {"lower": lower, "upper": upper}
    further = {name: to_numpy(values)[..., back] for name, values in predictions.items()}
    return Answers(p[:, 1] if values.ndim == 1 else p[..., back], further)


def further_names(calibrator: Calibrator) -> list[str]:
    """The names of what a calibrator predicts besides probabilities."""
    if hasattr(calibrator, "predict_set"):
        return ["sets"]
    return ["lower", "upper"] if hasattr(calibrator, "predict_interval") else []


def what_is_written(further: Sequence[str]) -> str:
    """A description of the predictions, by the names of those besides probabilities."""
    return {"sets": "probabilities and sets", "lower": "probabilities and their bounds"}.get(
        next(iter(further), ""), "probabilities"
    )


def group_columns(calibrator: Calibrator) -> list[str]:
    """The columns of groups that a calibrator asks for."""
    if not calibrator.needs_groups:
        return []
    fitted = cast(Any, calibrator)
    return list(fitted.group_thresholds_ if hasattr(calibrator, "predict_set") else fitted.lines_)
