"""Calibrators as JSON: a few numbers that any program can read, and that loading never executes."""

from __future__ import annotations

import inspect
import json
import math
import os
from collections.abc import Sequence
from dataclasses import Field, fields
from functools import partial
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

import refocal
from refocal._arrays import to_numpy
from refocal._files import write_atomically
from refocal._json import field, number, read_json, without_format
from refocal._plugins import load_plugins
from refocal._validation import INPUTS, check_option, check_path
from refocal.calibrators._base import Calibrator
from refocal.calibrators.fitted import Fitted, focal_point
from refocal.calibrators.registry import is_ours, kinds
from refocal.errors import FormatError, ParameterError
from refocal.fitting import Solution
from refocal.maps.chain import Chain, Step
from refocal.metrics.record import Metric
from refocal.rows.gate import in_order_of_classes

FORMAT = "refocal-calibrator"
VERSION = 2
MAX_BYTES = 64 << 20
# The types of a setting whose default is None, which stands for a number or several.
NUMBER = (int, float)
NUMBERS: tuple[type, ...] = (NoneType, list, *NUMBER)
# Infinity, which JSON does not hold: of the settings only a tolerance may be infinite.
NO_LIMIT = "inf"


def save(calibrator: Calibrator, path: str | os.PathLike[str]) -> None:
    """Write a fitted calibrator to a JSON file, whole or not at all."""
    check_path(path, "path", f"{type(calibrator).__name__}.save")
    try:
        data = to_dict(calibrator)
        text = json.dumps(data, allow_nan=False)
        if not is_ours(type(calibrator)):
            _check_readable(calibrator, data, text)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
    readable = 20_000  # characters: in a shorter file each number has a line
    if len(text) < readable:
        text = json.dumps(data, indent=2, allow_nan=False)
    if len(text) > MAX_BYTES:
        raise FormatError(f"{path}: the calibrator has {len(text):,} bytes as JSON, more than would be read again.")
    write_atomically(path, text + "\n")


def _check_readable(calibrator: Calibrator, data: dict[str, Any], text: str) -> None:
    """Refuse a calibrator of a class of the caller's own that would not be read back as it is."""
    kind = type(calibrator)
    name = kind.__name__
    known = kinds().get(name)
    if known is not None and is_ours(known):
        raise FormatError(f"the class {name} would be read as refocal's own of that name; give it another.")
    try:
        again = from_dict(json.loads(text), classes=[kind])
    except FormatError as error:
        raise FormatError(f"this {name} could not be read back: {error}") from error
    lost = sorted(set(fitted_attributes(calibrator)) - set(fitted_attributes(again)) - {"path_"})
    if lost:
        remedy = "keep it in the chain, or have more_to_plain return it and more_from_plain restore it"
        raise FormatError(f"the attribute {lost[0]!r} of {name} would not be read back; {remedy}.")
    if to_dict(again) != data:
        changed = next(key for key, value in data.items() if to_dict(again).get(key) != value)
        raise FormatError(f"this {name} would be read back with another {changed!r}.")


def fitted_attributes(calibrator: Calibrator) -> list[str]:
    """The names of what a fit has set."""
    return [name for name in vars(calibrator) if name.endswith("_") and not name.startswith("_")]


def load(path: str | os.PathLike[str], *, classes: Sequence[type[Calibrator]] = ()) -> Calibrator:
    """Read a calibrator from a JSON file. Nothing is executed, and what does not fit is refused with its reason.

    `classes` are calibrators of your own that the file may be about, besides those of `refocal.register`.

    >>> import tempfile, numpy as np
    >>> from refocal import TemperatureScaling, load
    >>> fitted = TemperatureScaling().fit(np.array([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), [0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fitted.save(f"{folder}/c.json")
    ...     load(f"{folder}/c.json").temperature_ == fitted.temperature_
    True
    """
    check_path(path, "path", "load")
    for kind in classes:
        if not (inspect.isclass(kind) and issubclass(kind, Calibrator)):
            expected = "classes with the base refocal.calibrators.Calibrator"
            raise ParameterError("classes", "load", expected=expected, got=repr(kind))
    return read_json(path, partial(from_dict, classes=classes), what="a calibrator", max_bytes=MAX_BYTES)


def to_dict(calibrator: Calibrator) -> dict[str, Any]:
    """A fitted calibrator as plain values."""
    check_is_fitted(calibrator)
    settings = calibrator.get_params(deep=False)
    if "class_weight" in settings:
        classes = calibrator.classes_.tolist()
        settings["class_weight"] = in_order_of_classes(settings["class_weight"], classes, "class_weight", "save")
    data = {
        "format": FORMAT,
        "version": VERSION,
        "refocal": refocal.__version__,
        "method": type(calibrator).__name__,
        "parameters": {name: to_plain(value) for name, value in settings.items()},
        **_classes_to_plain(calibrator.classes_),
        "chain": to_plain(calibrator.chain_.steps),
    }
    if hasattr(calibrator, "feature_names_in_"):
        data["feature_names"] = calibrator.feature_names_in_.tolist()
    if hasattr(calibrator, "solution_"):
        solution = calibrator.solution_
        data["search"] = {name: getattr(solution, name) for name in ("value", "status", "message", "passes")}
    return {**data, **calibrator.more_to_plain(), "fit": calibrator.fit_report_}


def from_dict(data: Any, *, classes: Sequence[type[Calibrator]] = ()) -> Calibrator:
    """The calibrator that `to_dict` described, of a method of the registry or of one of the `classes`."""
    without_format(data, "a calibrator", FORMAT, VERSION)
    name = field(data, "method", str)
    parameters = field(data, "parameters", dict)
    method = _class_named(name, classes)
    calibrator = method(**_parameters(method, parameters))
    labels = _read_classes(data, calibrator)
    report = _report(field(data, "fit", dict))
    chain = _chain(data, calibrator.n_chain_classes(len(labels)))
    solution = None
    if "search" in data:
        search = field(data, "search", dict)
        how = {name: field(search, name, kind) for name, kind in {"status": str, "message": str, "passes": int}.items()}
        solution = Solution(*focal_point(chain), value=number(search, "value"), **how)
    if "feature_names" in data:
        names = field(data, "feature_names", list)
        if len(names) != len(labels) or not all(isinstance(name, str) for name in names):
            raise FormatError(f"'feature_names' must be {len(labels)} names, one for each class.")
        calibrator.feature_names_in_ = np.array(names, dtype=object)
    calibrator._set_fitted(Fitted(chain, solution), labels, report)
    calibrator.more_from_plain(data)
    return calibrator


def _class_named(name: str, classes: Sequence[type[Calibrator]]) -> type[Calibrator]:
    """The class of a calibrator of a file."""
    own = {kind.__name__: kind for kind in classes}
    if name in own:
        return own[name]
    if name not in kinds():
        load_plugins()
    if name not in kinds():
        remedy = f"if it is yours, refocal.register({name}) before, or load(path, classes=[{name}])"
        raise FormatError(f"unknown method {name!r}; known are {', '.join(kinds())}; {remedy}.")
    return kinds()[name]


def _chain(data: dict[str, Any], n_classes: int) -> Chain:
    """The chain of a file, refused where no fit can have found it."""
    try:
        chain = Chain(tuple(map(step_from_dict, field(data, "chain", list))))
        chain.check(n_classes)
    except FormatError:
        raise
    except KeyError as error:
        raise FormatError(f"the field {error} is missing.") from error
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise FormatError(f"the fitted numbers are damaged: {error}") from error
    return chain


def to_plain(value: Any) -> Any:
    """A setting, a step or what a step holds as plain values; a step has its name first."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and math.isinf(value):
        return NO_LIMIT
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Step):
        return {"step": type(value).__name__} | {
            each.name: to_plain(getattr(value, each.name)) for each in fields(value)
        }
    if isinstance(value, tuple) and all(isinstance(each, Step) for each in value):
        return [to_plain(step) for step in value]
    if isinstance(value, Metric):
        return value.name
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    numbers = np.asarray(to_numpy(value))
    # A float32 is written with just enough digits to identify it.
    return (numbers.astype(str) if numbers.dtype == np.float32 else numbers).astype(np.float64).tolist()


def _parameters(method: type[Calibrator], parameters: dict[str, Any]) -> dict[str, Any]:
    """The settings of a file: such as their own checks allow, else of the type of a method's own settings."""
    usual = method().get_params(deep=False)
    for name, value in parameters.items():
        if name not in usual:
            raise FormatError(f"unknown parameter {name!r} of {method.__name__}.")
        declared = getattr(method, "__dataclass_fields__", {}).get(name)
        check = None if declared is None else declared.metadata.get("check")
        types = NUMBERS if usual[name] is None else (type(usual[name]),)
        numbers = value if isinstance(value, list) else ()
        is_alike = type(value) in types and all(type(each) in NUMBER for each in numbers)
        try:
            if check is not None:
                check(value, name, method.__name__)
            elif name == "input" or not is_alike:
                words = {"input": INPUTS, "class_weight": ("fit",), "nll_tolerance": (NO_LIMIT,)}
                check_option(value, words.get(name, ()), name, method.__name__)
        except ParameterError as error:
            raise FormatError(f"the parameter {name!r} of {method.__name__} cannot be {value!r:.80}.") from error
    return {name: math.inf if value == NO_LIMIT else value for name, value in parameters.items()}


def _report(report: dict[str, Any]) -> dict[str, Any]:
    """The part of a fit's report that is shown: sizes, and measures before and after."""
    for name in ("n_samples", "n_classes"):
        field(report, name, int)
    for name in ("before", "after"):
        for measure in field(report, name, dict):
            number(report[name], measure)
    if "columns" in report and not all(isinstance(name, str) for name in field(report, "columns", list)):
        raise FormatError("'columns' must be names.")
    return report


def _classes_to_plain(classes: NDArray[Any]) -> dict[str, Any]:
    """The labels, and their dtype where it does not follow.

    Dates and numbers that JSON may not hold are text. Durations are numbers of their unit, which NumPy does not read of
    its own text for them.
    """
    kind = classes.dtype.kind
    dtype = str(classes.dtype)
    if kind not in "iufbUMm":
        raise FormatError(f"labels of the type {type(classes[0]).__name__} cannot be written.")
    # Labels of these dtypes are written as they are and read without being told the dtype.
    native = ("int64", "float64", "bool")
    if kind == "U" or dtype in native:
        return {"classes": classes.tolist()}
    plain = classes.astype(str if kind == "M" or dtype == "uint64" else np.int64 if kind == "m" else classes.dtype)
    return {"classes": plain.tolist(), "class_dtype": dtype}


def _read_classes(data: dict[str, Any], calibrator: Calibrator) -> NDArray[Any]:
    """The labels of a file: those that would be written as they stand there.

    One alone is enough where it is a label that applies or does not.
    """
    values = field(data, "classes", list)
    kinds_of = {type(value) for value in values}
    are_few = calibrator.n_chain_classes(len(values)) < 2
    if are_few or len(set(map(repr, values))) < len(values) or kinds_of not in ({int}, {float}, {str}, {bool}):
        raise FormatError("'classes' must be two or more distinct numbers or names.")
    if "class_dtype" not in data:
        return np.array(values)
    dtype = field(data, "class_dtype", str)
    try:
        classes = np.array(values).astype(dtype)
        if _classes_to_plain(classes) == {"classes": values, "class_dtype": dtype}:
            return classes
    except (TypeError, ValueError, OverflowError, FormatError):
        pass
    raise FormatError(f"'class_dtype' must be that of the labels. Got {dtype!r} instead.")


def step_from_dict(data: Any) -> Step:
    """The step that `to_plain` described."""
    known = _known_steps()
    if not isinstance(data, dict) or data.get("step") not in known:
        raise FormatError(f"a step must be one of {', '.join(sorted(known))}. Got {data!r:.80} instead.")
    kind = known[data["step"]]
    wanted = {each.name: each for each in fields(kind)}
    unknown = sorted(set(data) - {"step", *wanted})
    if unknown:
        raise FormatError(f"unknown field {unknown[0]!r} of the step {kind.__name__}.")
    return kind(**{name: _read_value(data, name, each) for name, each in wanted.items()})


def _known_steps() -> dict[str, type[Step]]:
    """All kinds of steps by their names, those of this package before others; of two others the later."""
    kinds_of_steps = list(Step.__subclasses__())
    for kind in kinds_of_steps:  # which grows by the classes that are made of one
        kinds_of_steps += kind.__subclasses__()
    others = {kind.__name__: kind for kind in kinds_of_steps if not is_ours(kind)}
    return others | {kind.__name__: kind for kind in kinds_of_steps if is_ours(kind)}


def _read_value(data: dict[str, Any], name: str, each: Field[Any]) -> Any:
    if "above" in each.metadata:
        value = field(data, name, object)
        return float(value) if type(value) in NUMBER else value  # which `check` refuses
    if "dtype" in each.metadata:
        entries = field(data, name, list)
        try:
            values = np.asarray(entries)
        except ValueError:  # rows of different lengths
            values = np.empty(0, dtype=object)
        if values.dtype.kind not in "if":
            raise FormatError(f"the field {name!r} must hold numbers alone, in rows of equal length.")
        with np.errstate(over="ignore"):
            return values.astype(each.metadata["dtype"])
    if each.type == "str":
        return field(data, name, str)
    if each.type == "Step":
        return step_from_dict(field(data, name, dict))
    return tuple(step_from_dict(step) for step in field(data, name, list))
