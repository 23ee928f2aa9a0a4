"""Methods for multi-label data, each fitted on all labels together, with and without a line per label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refocal._methods import NAMED, OF_LABELS
from refocal._validation import check_option
from refocal.calibrators import MultiLabelCalibration
from refocal.calibrators.registry import MethodsLike
from refocal.errors import ParameterError
from refocal.evaluate.evaluation import Evaluation
from refocal.io import MultiLabelPredictions, Predictions
from refocal.io.multilabel import APPLIES, UNKNOWN

PER_LABEL = "-per-label"
"""The ending of the names of methods with a line for each label."""


def of_labels(evaluation: Evaluation) -> bool:
    """Whether an evaluation is about labels that do not exclude one another, each of which applies or not."""
    return evaluation.class_names == list(APPLIES)


def are_of_labels(rows: Predictions) -> bool:
    """Whether rows are the labels of rows that have several, each of which applies or not."""
    return rows.class_names == APPLIES


def label_methods(names: MethodsLike) -> list[str]:
    """The methods of a comparison: those named, or the usual ones; a plain name stands for both forms.

    >>> label_methods("ts"), label_methods(["auto-per-label"])
    (['ts', 'ts-per-label'], ['auto-per-label'])
    """
    given: Any = OF_LABELS if names is None else [names] if isinstance(names, str) else names
    wanted: list[str] = list(given) if isinstance(given, Sequence) else [given]
    for name in wanted:
        if not isinstance(name, str):
            expected = "names of methods, for rows of several labels"
            raise ParameterError("methods", "compare", expected=expected, got=type(name).__name__)
        check_option(name.removesuffix(PER_LABEL), tuple(NAMED), "methods", "compare")
    both = ([name] if name.endswith(PER_LABEL) else [name, name + PER_LABEL] for name in wanted)
    return list(dict.fromkeys(name for pair in both for name in pair))


def fit_method(validation: MultiLabelPredictions, name: str) -> MultiLabelCalibration:
    """The calibrator of a method, fitted.

    >>> rows = MultiLabelPredictions.from_log_odds([[1.0, 2.0], [-1.0, 0.5], [2.0, -3.0]], [[1, 1], [1, 0], [0, 0]])
    >>> fit_method(rows, "ts-per-label").per_label
    True
    """
    method = name.removesuffix(PER_LABEL)
    per_label = name.endswith(PER_LABEL)
    return MultiLabelCalibration(method=method, per_label=per_label, input=validation.input).fit(
        validation.values,
        validation.labels,
        validation.weight,
        ignore_index=UNKNOWN,
        class_names=validation.class_names,
    )
