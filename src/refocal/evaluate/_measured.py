"""The results of one method as an Evaluation has them, beside those of other methods."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from refocal.calibrators import Calibrator
from refocal.calibrators.registry import NONE, title_of
from refocal.calibrators.serialize import to_dict
from refocal.evaluate._details import banded
from refocal.evaluate._results import Result
from refocal.evaluate.evaluation import MapFacts, Measured
from refocal.maps.chain import Chain
from refocal.maps.curves import LabelLines, OneVsRest
from refocal.maps.steps import Affine, Floor, Focal, Offset, Temperature
from refocal.metrics import PairedDifference
from refocal.metrics.two_classes import BiasSummary


def measured(
    name: str,
    calibrator: Calibrator | None,
    results: Mapping[str, Result],
    picked: str,
    *,
    level: float,
    level_of_one: float,
    seconds: float | None,
    are_tested: bool,
) -> Measured:
    """The results of one method, with its differences from the uncalibrated model and the chosen method.

    `seconds` is the time of its fit; `are_tested`: whether the rows say how large such differences are by chance.
    """
    result = results[name]
    described = None
    facts = None
    if calibrator is not None:
        described = to_dict(calibrator)
        parameters = calibrator.chain_.parameters()
        described["fitted"] = {key: value for key, value in parameters if isinstance(value, float)}
        if name != picked:  # curves and matrices only for the method shown in detail
            del described["chain"]
        facts = _map_facts(calibrator.chain_)
    details = result.details(level_of_one, level) if name in (NONE, picked) else None
    stated_bias = None
    if name in (NONE, picked) and "mean_bias" in result.summaries:
        bias = result.summaries["mean_bias"]
        assert isinstance(bias, BiasSummary)  # noqa: S101 - of memory and of blocks
        stated_bias = bias.exact_interval(level=level_of_one)
    return Measured(
        name=name,
        title=title_of(name, calibrator),
        calibrator=described,
        measures={key: summary.interval(level=level) for key, summary in result.summaries.items()},
        values=result.values,
        against_none=_differences(result, results[NONE], level, are_tested),
        against_chosen=_differences(result, results[picked], level, are_tested),
        reliability=banded(result.bins, result.units, level_of_one),
        histogram=result.histogram,
        classes=None if details is None else details.classes,
        fit_seconds=seconds,
        predict_seconds=result.seconds,
        map=facts,
        groups=[] if details is None else details.groups,
        decisions=None if details is None else details.decisions,
        stated_bias=stated_bias,
        curve=None if details is None else details.curve,
        group_errors=[] if details is None else details.group_errors,
        sets=None if details is None else details.sets,
        improvement_p_value=None if result.score is None else result.score.p_value,
    )


def _map_facts(chain: Chain) -> MapFacts:
    """What a fitted map consists of."""
    step_types = {type(step) for step in chain.walk()}
    if step_types & {Affine, LabelLines, Offset, OneVsRest}:
        kind = "each class"
    elif step_types <= {Chain, Floor, Focal, Temperature}:
        kind = "numbers"
    else:
        kind = "shared"
    return MapFacts(kind, n_parameters(chain), chain.keeps_order)


def n_parameters(chain: Chain) -> int:
    """How many numbers a chain has."""
    return sum(np.size(value) for _, value in chain.parameters())


def _differences(result: Result, other: Result, level: float, are_tested: bool) -> dict[str, PairedDifference]:
    """Every metric less that of another method, by its name; for some metrics no interval of a difference holds.

    Where differences are not tested, their intervals are without end.
    """
    differences = {}
    for key, summary in result.summaries.items():
        # A constant has no slope, and no probabilities that separate the classes have one.
        if key not in other.summaries:
            continue
        difference = summary.minus(other.summaries[key], level=level)
        if difference is not None and not are_tested:
            difference = replace(difference, low=-math.inf, high=math.inf, p_value=1.0)
        if difference is not None:
            differences[key] = difference
    return differences
