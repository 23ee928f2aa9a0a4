"""The exceptions that refocal raises.

Every error about what a caller passed in is an `InputError`, which is also a `ValueError`, and reads
"The 'gamma' of focal must be finite and greater than -1. Got -2.0 instead."
"""

from __future__ import annotations

import sys
import warnings
from enum import Enum
from importlib import import_module
from typing import Any

__all__ = [
    "ConvergenceError",
    "DataError",
    "FitWarning",
    "FormatError",
    "InputError",
    "InputWarning",
    "LabelError",
    "MissingExtraError",
    "ParameterError",
    "RefocalError",
    "Remedy",
    "ShapeError",
    "UnsupportedError",
]


class Remedy(Enum):
    """What to do about an error, as one says it in Python; the command line says it with its options.

    >>> from refocal.io import Predictions
    >>> try:
    ...     Predictions.from_logits([[0.0, 1.0], [2.0, 1.0]], [1, 2])
    ... except InputError as error:
    ...     print(error.remedy.value)
    If they count from 1, say first_label=1.
    """

    FIRST_LABEL = "If they count from 1, say first_label=1."
    PROBABILITIES = "If they are probabilities, say so: input='probabilities', or Predictions.from_probabilities."
    PERCENTAGES = "If they are percentages, divide them by 100 and say so: input='probabilities'."
    RENORMALISE = (
        "If they were rounded, divide each row by its sum, or say renormalise=True in Predictions.from_probabilities."
    )
    READ_PROBABILITIES = "If those are meant, say input='probabilities'."
    READ_LOGITS = "If those are meant, say input='logits'."
    IGNORE_INDEX = "Leave such rows out with ignore_index=."
    LABELS = "Name theirs with labels=, also a .npy file that holds them."
    CLASS_NAMES = "Give the names of all classes with class_names=."
    CLASSES_OF_CALIBRATOR = (
        "Read the rows with class_names=calibrator.classes_, or with classes= where they are those of a file."
    )
    NAMED_ROWS = (
        "Names of classes are understood where the columns have names: pass a data frame, or Predictions.from_"
        "probabilities(…, class_names=…) in place of both; metrics also take classes=…, the class of each column."
    )
    NAMES_OF_MONITOR = "Name the classes: CalibrationMonitor(class_names=(…)), of two the positive class second."
    READ_PREDICTIONS = (
        "If they are to be read otherwise, pass Predictions, which take class_names=, first_label=, positive_label= "
        "and ignore_index=."
    )
    CALLED_ALIKE = "Columns are matched by their names: rename those that stand for the same class."
    POSITIVE_LABEL = "Of two classes, say which label is the positive one: positive_label=. Or give class_names=."
    OVERWRITE = "To have it replaced or removed, say overwrite=True."
    MERGE_ONCE = "Rows count once: to have what is new, merge all monitors into a new one."
    NAMES_BEFORE = (
        "Say what the columns before were: monitor.class_names = (…), in their order, of two the positive class second."
    )
    NO_GROUPS = "For those of rows without any group say groups={}."
    ARRAYS = "Say which one holds what with values= and labels=."
    COLUMNS = (
        "Name the columns of the classes with values='logit_*' or values='cat,dog', or the one column of two classes "
        "with values='score', that of the labels with labels= and that of the weights with weight=."
    )


class RefocalError(Exception):
    """The root of every exception that refocal raises on purpose.

    >>> from refocal.maps import focal
    >>> try:
    ...     focal([0.0, 1.0], gamma=-2.0)
    ... except RefocalError as error:
    ...     print(type(error).__name__)
    ParameterError
    """


class ConvergenceError(RefocalError, ArithmeticError):
    """An iteration ended without an answer.

    >>> issubclass(ConvergenceError, ArithmeticError)
    True
    """


class InputError(RefocalError, ValueError):
    """An argument is not what the function needs; knows which, what was expected and what was received.

    >>> from refocal.maps import focal
    >>> try:
    ...     focal([0.0, 1.0], gamma=-2.0)
    ... except InputError as error:
    ...     print(error.argument, "|", error)
    gamma | The 'gamma' of focal must be finite and greater than -1. Got -2.0 instead.
    """

    def __init__(self, argument: str, function: str, expected: str, got: str, remedy: Remedy | None = None) -> None:
        self.argument = argument
        self.function = function
        self.expected = expected
        self.got = got
        self.remedy = remedy
        super().__init__(argument, function, expected, got, remedy)

    def __str__(self) -> str:
        said = f"The '{self.argument}' of {self.function} must be {self.expected}. Got {self.got} instead."
        return _with(said, self.remedy)


class ParameterError(InputError):
    """A setting lies outside its domain: gamma ≤ -1, a temperature ≤ 0, an unknown option.

    >>> from refocal.maps import log_softmax
    >>> log_softmax([0.0, 1.0], temperature=0.0)
    Traceback (most recent call last):
    refocal.errors.ParameterError: The 'temperature' of log_softmax must be finite and greater than 0. Got 0.0 instead.
    """


class ShapeError(InputError):
    """An array has the wrong number of axes, or sizes that do not match.

    >>> from refocal.losses import cross_entropy
    >>> cross_entropy([[0.0, 1.0]], [0, 1, 1])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    refocal.errors.ShapeError: The 'labels' of cross_entropy must be of shape (1,), ... Got shape (3,) instead.
    """


class DataError(InputError):
    """An array holds values that cannot be used: NaN, +inf, the wrong kind of number.

    >>> from refocal.maps import log_softmax
    >>> log_softmax([0.0, float("nan")])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    refocal.errors.DataError: The 'logits' of log_softmax must be free of NaN and +inf, ... Got NaN in row 0 instead.
    """


class LabelError(InputError):
    """Labels are not integers, or name a class that does not exist.

    >>> from refocal.losses import cross_entropy
    >>> cross_entropy([[0.0, 1.0]], [2])
    Traceback (most recent call last):
    refocal.errors.LabelError: The 'labels' of cross_entropy must be between 0 and 1. Got labels from 2 to 2 instead.
    """


class FormatError(RefocalError, ValueError):
    """A file is not what it should be: not a calibrator, cut short, of an unknown version, with impossible values.

    >>> from refocal.evaluate import Evaluation
    >>> Evaluation.from_dict({"format": "something else"})
    Traceback (most recent call last):
    refocal.errors.FormatError: not an evaluation: 'format' must be 'refocal-evaluation'.
    """

    def __init__(self, text: str, remedy: Remedy | None = None) -> None:
        self.text = text
        self.remedy = remedy
        super().__init__(text, remedy)

    def __str__(self) -> str:
        return _with(self.text, self.remedy)


class UnsupportedError(RefocalError, TypeError):
    """What was asked for does not exist for this kind of object; the message names what does.

    >>> from refocal import CalibratedClassifier
    >>> from refocal.export import to_onnx
    >>> to_onnx(CalibratedClassifier(), "calibrator.onnx")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    refocal.errors.UnsupportedError: CalibratedClassifier cannot be exported: ...
    """


class MissingExtraError(RefocalError, ImportError):
    """Something needs a library that is not installed; the message names the extra that brings it.

    The command adds to the refocal that is installed, whether that came from an index or from a clone.

    >>> print(MissingExtraError("refocal.nn", "torch", "torch"))
    refocal.nn needs torch, which is not installed. Install it with: pip install 'refocal[torch]'
    """

    def __init__(self, what: str, extra: str, missing: str) -> None:
        self.what = what
        self.extra = extra
        self.missing = missing
        super().__init__(what, extra, missing)

    def __str__(self) -> str:
        return (
            f"{self.what} needs {self.missing}, which is not installed. "
            f"Install it with: pip install 'refocal[{self.extra}]'"
        )


def need(module: str, extra: str, what: str) -> Any:
    """A module that `what` needs, or an error that says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(what, extra, module.partition(".")[0]) from error


class ClusterError(RefocalError, ConnectionError):
    """A scheduler cannot be reached, or its workers died before they answered."""


class InputWarning(UserWarning):
    """What came in can be used, but is probably not what was meant.

    >>> import warnings
    >>> from refocal import TemperatureScaling
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = TemperatureScaling().fit([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0, 1, 1])  # probabilities, not logits
    >>> caught[0].category is InputWarning
    True
    """

    def __init__(self, text: str, remedy: Remedy | None = None, function: str = "") -> None:
        self.text = text
        self.remedy = remedy
        self.function = function
        super().__init__(text, remedy, function)

    def __str__(self) -> str:
        said = f"{self.function}: {self.text}" if self.function else self.text
        return _with(said, self.remedy)


class FitWarning(UserWarning):
    """A fit that ended where it should not: mostly the labels are not those of the rows, or classes are out of order.

    >>> import warnings
    >>> from refocal import TemperatureScaling
    >>> logits = [[3.0, 1.0], [0.0, 2.0], [4.0, 1.0]]
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = TemperatureScaling().fit(logits, ["yes", "no", "yes"])
    >>> caught[0].category is FitWarning
    True
    """


def warn(message: str | Warning, category: type[Warning] | None = None) -> None:
    """Warn at the line of the caller's code that led here, however deep in this package."""
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "refocal":
        level = level + 1
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _with(text: str, remedy: Remedy | None) -> str:
    return text if remedy is None else f"{text} {remedy.value}"
