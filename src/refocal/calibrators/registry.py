"""Calibrators by the short names of their methods, whose table is `refocal._methods`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refocal._methods import ALL, GROUPED, LABELLED, METHODS, NAMED, NONE, OF_TWO_CLASSES, OTHER_NAMES, SETS, Method
from refocal._validation import check_option
from refocal.calibrators._base import Calibrator
from refocal.errors import ParameterError

__all__ = ["ALL", "GROUPED", "METHODS", "NAMED", "NONE", "OTHER_NAMES", "SETS", "Method"]
__all__ += ["chosen_methods", "kinds", "make", "name_of", "named", "title_of"]


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
    name = OTHER_NAMES.get(name, name)
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
