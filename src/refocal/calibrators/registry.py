"""Calibrators by the short names of their methods, whose table is `refocal._methods`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from refocal._methods import ALL, GROUPED, LABELLED, METHODS, NAMED, NONE, OF_TWO_CLASSES, OTHER_NAMES, SETS, Method
from refocal._plugins import load_plugins
from refocal._validation import check_option
from refocal.calibrators._base import Calibrator
from refocal.errors import ParameterError
from refocal.metrics.record import Metric
from refocal.metrics.records import register_metric

__all__ = ["ALL", "GROUPED", "METHODS", "NAMED", "NONE", "OTHER_NAMES", "SETS", "Method"]
__all__ += ["MethodsLike", "chosen_calibrators", "chosen_methods", "kinds", "make", "name_of", "named", "register"]
__all__ += ["title_of"]

MethodsLike: TypeAlias = "Sequence[str | Calibrator] | Mapping[str, str | Calibrator] | str | Calibrator | None"
"""What a comparison is asked for: names of methods and calibrators, in a list or by names of one's own."""

RegisteredT = TypeVar("RegisteredT", bound="type[Calibrator] | Metric")


def register(thing: RegisteredT, *, name: str | None = None, title: str | None = None) -> RegisteredT:
    """Make a calibrator or a metric of your own known by its name; it is returned, so that this is a decorator too.

    A class of calibrators is then compared, made, loaded and called on by its name, like those of this package: by
    default the words of the class's name with hyphens, `UniformMixing` → "uniform-mixing". A `refocal.metrics.Metric`
    has a name of its own; evaluations and reports show it as it says. This holds for the running program; a package
    that is installed names the module that registers as an entry point of the group `refocal.plugins`, for every
    program and for the command line.

    >>> import refocal
    >>> from refocal.maps import Temperature
    >>> @refocal.register
    ... class HalfScale(refocal.Calibrator):
    ...     def fit_chain(self, logits, labels, weight):
    ...         return Temperature(2.0)
    >>> from refocal.calibrators.registry import NAMED, make
    >>> make("half-scale")
    HalfScale()
    >>> del NAMED["half-scale"]
    """
    if isinstance(thing, Metric):
        for argument, value in (("name", name), ("title", title)):
            if value is not None:
                raise ParameterError(argument, "register", expected="left out: a Metric has its own", got=repr(value))
        register_metric(thing)
        return thing
    if not (inspect.isclass(thing) and issubclass(thing, Calibrator)):
        expected = "a class with the base refocal.calibrators.Calibrator, or a refocal.metrics.Metric"
        raise ParameterError("thing", "register", expected=expected, got=repr(thing))
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", thing.__name__).lower()
    chosen = words.replace(" ", "-") if name is None else name
    _check_class(thing)
    _check_name(chosen, thing)
    NAMED[chosen] = Method(words if title is None else title, thing.__name__, usual=False, own=thing)
    return thing


def _check_class(kind: type[Calibrator]) -> None:
    """A class that can be made by its name, and whose name in a file is its own."""
    if is_ours(kind) or kind.__name__ in _own_kinds():
        expected = "a class of your own with a name that no class of refocal has"
        raise ParameterError("thing", "register", expected=expected, got=f"{kind.__module__}.{kind.__qualname__}")
    try:
        kind()
    except TypeError as error:
        expected = "a class that is made without arguments"
        raise ParameterError("thing", "register", expected=expected, got=f"{kind.__name__}: {error}") from error


def _check_name(name: Any, kind: type[Calibrator]) -> None:
    """A name that can be written on a command line, and that is not taken by another class."""
    if not (isinstance(name, str) and re.fullmatch(r"[\w.+-]+", name)) or name.endswith("-per-label"):
        expected = "of letters, digits, '-', '_', '+' and '.', without '-per-label' at the end"
        raise ParameterError("name", "register", expected=expected, got=repr(name))
    row = METHODS.get(name)
    # A class that is defined once more, as in a notebook, takes the place of the former.
    is_again = row is not None and row.own is not None and _path_of(row.own) == _path_of(kind)
    if (row is not None and not is_again) or name in (NONE, ALL, *OTHER_NAMES):
        taken = "" if row is None else f", the name of {row.title}"
        raise ParameterError("name", "register", expected="one that is not taken", got=f"{name!r}{taken}")


def is_ours(kind: type) -> bool:
    """Whether a class is of this package, and not of an example in one of its docstrings."""
    is_here = kind.__module__.partition(".")[0] == "refocal"
    return is_here and getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind


def _own_kinds() -> set[str]:
    """The names of the classes of this package."""
    return {row.class_name for row in (*METHODS.values(), *LABELLED.values()) if row.own is None}


def _path_of(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


def chosen_calibrators(methods: MethodsLike, n_classes: int | None = None) -> dict[str, Calibrator]:
    """New calibrators for a comparison by their names, from names of methods and from calibrators.

    A calibrator goes by the name of its method, if it has one, or of its class; of two that would be called the same
    the second goes by its settings too, also where it is given by its name. A mapping says the names.

    >>> from refocal import TemperatureScaling
    >>> list(chosen_calibrators(["ts", TemperatureScaling(objective="ece"), TemperatureScaling(search="grid")]))
    ['ts', 'ts-ece', "TemperatureScaling(search='grid')"]
    >>> chosen_calibrators({"mine": TemperatureScaling(search="line")})
    {'mine': TemperatureScaling(search='line')}
    """
    if methods is None or isinstance(methods, str):
        return {name: make(name) for name in chosen_methods(methods, n_classes)}
    calibrators: dict[str, Calibrator] = {}
    if isinstance(methods, Mapping):
        for name, given in methods.items():
            if not isinstance(name, str) or name == NONE:
                expected = "names of your own, but 'none', which is the uncalibrated model"
                raise ParameterError("methods", "compare", expected=expected, got=repr(name))
            if isinstance(given, str):
                (known,) = chosen_methods([given])
                calibrators[name] = make(known)
            else:
                calibrators[name] = _unfitted(given)
        return calibrators
    for given in [methods] if isinstance(methods, Calibrator) else methods:
        if isinstance(given, str):
            for name in chosen_methods([given]):
                made = make(name)
                known = calibrators.get(name, made)
                calibrators[name if repr(known) == repr(made) else repr(made)] = made
            continue
        calibrator = _unfitted(given)
        name = name_of(calibrator) or type(calibrator).__name__
        calibrators[repr(calibrator) if name in calibrators else name] = calibrator
    return calibrators


def _unfitted(given: Any) -> Calibrator:
    """A calibrator with the settings of one that was given."""
    from sklearn.base import clone

    if isinstance(given, Calibrator):
        calibrator: Calibrator = clone(given)
        return calibrator
    expected = "names of methods and calibrators, such as ['ts', Mine()]"
    got = f"{given.__name__}, a class: give {given.__name__}()" if inspect.isclass(given) else type(given).__name__
    raise ParameterError("methods", "compare", expected=expected, got=got)


def with_input(calibrator: Calibrator, kind: str, function: str) -> Calibrator:
    """The calibrator set to take rows of this kind of scores; log-odds are logits of two classes."""
    if (calibrator.input == "probabilities") == (kind == "probabilities"):
        return calibrator
    if "input" not in calibrator.get_params(deep=False):
        expected = f"calibrators that take {kind}, as the rows are"
        raise ParameterError("methods", function, expected=expected, got=f"{calibrator!r} without the setting 'input'")
    made: Calibrator = calibrator.set_params(input=kind)
    return made


def chosen_methods(names: Sequence[str] | str | None, n_classes: int | None = None) -> list[str]:
    """The methods of a comparison: those named, every one for "all", for None the usual ones for so many classes.

    >>> chosen_methods(None)[:2], len(chosen_methods("all")) == len(NAMED)
    (['auto', 'ts'], True)
    >>> chosen_methods(None, n_classes=2)
    ['auto', 'logistic', 'beta', 'isotonic', 'venn-abers']
    >>> chosen_methods(["platt", "isotonic"])
    ['logistic', 'isotonic']
    """
    if names is None and n_classes == 2:
        return list(OF_TWO_CLASSES)
    if names is None:
        return [name for name, method in NAMED.items() if method.usual]
    wanted = [OTHER_NAMES.get(name, name) for name in ([names] if isinstance(names, str) else names)]
    if ALL in wanted:
        return list(NAMED)
    if not {*wanted} <= METHODS.keys():
        load_plugins()
    for name in wanted:
        check_option(name, (*NAMED, *GROUPED, ALL), "methods", "compare")
    return list(dict.fromkeys(wanted))


def make(name: str, **options: Any) -> Calibrator:
    """A new calibrator by its name; options that are None keep their defaults.

    >>> make("fts", objective="ece", nll_tolerance=0.01)
    FocalTemperatureScaling(nll_tolerance=0.01, objective='ece')
    >>> make("sigmoid")
    LogisticCalibration()
    """
    if isinstance(name, str):
        name = OTHER_NAMES.get(name, name)
        if name not in METHODS:
            load_plugins()
    check_option(name, tuple(METHODS), "method", "make")
    calibrator = METHODS[name].kind(**METHODS[name].settings)
    given = {key: value for key, value in options.items() if value is not None}
    unknown = sorted(set(given) - set(calibrator.get_params(deep=False)))
    if unknown:
        expected = f"left out: the method {name!r} has no such option"
        raise ParameterError(unknown[0], "make", expected=expected, got=repr(given[unknown[0]]))
    made: Calibrator = calibrator.set_params(**given)
    return made


def named(name: str, argument: str, function: str) -> Calibrator:
    """A new calibrator of probabilities, by a name that was given as an argument of a function."""
    if isinstance(name, str) and name not in METHODS:
        load_plugins()
    check_option(name, (*NAMED, *OTHER_NAMES), argument, function)
    return make(name)


def kinds(*, in_blocks: bool = False) -> dict[str, type[Calibrator]]:
    """The classes of all methods by their names, or of those that fit on rows in blocks.

    >>> kinds()["BetaCalibration"].__name__, "BetaCalibration" in kinds(in_blocks=True)
    ('BetaCalibration', False)
    """
    rows = (*METHODS.values(), *LABELLED.values())
    return {row.class_name: row.kind for row in rows if row.in_blocks or not in_blocks}


def title_of(name: str, calibrator: Calibrator | None = None) -> str:
    """The title of a method; with a calibrator, that of the method with its class and settings, whatever the name."""
    if name == NONE:
        return "no calibration"
    if calibrator is None:
        return METHODS[name].title if name in METHODS else name
    method = name_of(calibrator)
    if method is not None:
        return METHODS[method].title
    return str(getattr(calibrator, "title", type(calibrator).__name__))


def name_of(calibrator: Calibrator) -> str | None:
    """The short name of the method with the class and the settings of a calibrator, if there is one.

    >>> name_of(make("fts-ece")), name_of(make("sigmoid"))
    ('fts-ece', 'logistic')
    """
    given = calibrator.get_params(deep=False)
    alike = [
        name
        for name, method in METHODS.items()
        if type(calibrator) is method.kind and method.settings.items() <= given.items()
    ]
    return max(alike, key=lambda name: len(METHODS[name].settings), default=None)
