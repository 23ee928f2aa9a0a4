"""An evaluation as sentences and as tables of text: the terminal, the report and Jupyter show the same strings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from refocal._digits import p_value_text
from refocal.calibrators.description import FEW_ROWS, GUESSED, few_rows_remark, is_guessing
from refocal.calibrators.registry import NONE
from refocal.evaluate.evaluation import ClassRow, Evaluation, GroupErrors, GroupRow, Measured
from refocal.evaluate.provenance import AT_RANDOM_REMARKS, REPEATED_ID_REMARK, SAME_ROWS_REMARK, RunNote
from refocal.evaluate.standards import still_off
from refocal.evaluate.statements import FEWEST_ROWS_TO_RECOMMEND, LOG_LOSS_SHARE, SQUARED_ECE, MethodTests, side_of
from refocal.metrics import METRICS, CoverageOfPart, Interval, PairedDifference
from refocal.metrics.record import Metric
from refocal.metrics.records import shown_as
from refocal.rows.splitting import AT_RANDOM

__all__ = ["comparison_table", "recommendation", "verdict"]

BIAS = METRICS["mean_bias"]
SMALLEST_SHOWN = 5e-5
"""Half of the last digit that is shown: a smaller difference cannot be seen."""


class MethodRow(NamedTuple):
    """One method as text, with the headings of its cells, which are those of all methods."""

    name: str
    headings: tuple[str, ...]
    cells: tuple[str, ...]
    chosen: bool


def columns(evaluation: Evaluation) -> list[Metric]:
    """The metrics of the comparison; it is ranked by the first, and those that a caller asked for are the last."""
    two = evaluation.positive is not None
    places = [(m.column[two], m) for m in METRICS.values() if m.name in evaluation.before.measures]
    usual = [m for place, m in sorted(places, key=lambda each: each[0] or 0) if place is not None]
    measured = [shown_as(name) for name in evaluation.before.measures]
    return usual + [metric for metric in measured if metric.shown != "with interval" and metric not in usual]


def comparison_table(evaluation: Evaluation) -> list[MethodRow]:
    """One row per method, the lowest ECE first; for two classes the lowest log-loss.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["fts-nll"], n_resamples=20)
    >>> [row.name for row in comparison_table(found)]
    ['fts-nll', 'none']
    """
    rows = []
    numbers = []
    if evaluation.positive is None:  # for two classes further measures take the place of γ and T
        known = {key for method in evaluation.methods for key in method.point}
        numbers = [(key, heading) for key, heading in (("gamma", "γ"), ("temperature", "T")) if key in known]
    for method in ranked(evaluation):
        cells = [("method", method.name)]
        point = method.point
        for key, heading in numbers:
            cells.append((heading, f"{point[key]:.3f}".replace("-", "−") if key in point else "–"))
        for metric in columns(evaluation):
            interval = method.measures[metric.name]
            cells.append((metric.heading, metric.text(interval.value)))
            if metric.column_with_interval:
                cells.append((f"{evaluation.level * 100:g} % interval", metric.interval_text(interval)))
        cells.append(("fit s", "–" if method.fit_seconds is None else f"{method.fit_seconds:.2f}"))
        headings, texts = zip(*cells, strict=True)
        rows.append(MethodRow(method.name, headings, texts, method.name == evaluation.chosen))
    return rows


def ranked(evaluation: Evaluation) -> list[Measured]:
    """The methods in the order of all tables and charts: the lowest ECE first, for two classes the lowest log-loss."""
    first = columns(evaluation)[0].name
    return sorted(evaluation.methods, key=lambda method: method.measures[first].value)


def classes_by_gap(evaluation: Evaluation) -> list[tuple[ClassRow, ClassRow]]:
    """Every class before and after calibration, that of the largest gap after it first; without a gap last."""

    def size_of_gap(pair: tuple[ClassRow, ClassRow]) -> float:
        _, after = pair
        return -1.0 if after.gap is None else round(abs(after.gap), 6)

    pairs = zip(evaluation.before.classes or (), evaluation.after.classes or (), strict=True)
    return sorted(pairs, key=size_of_gap, reverse=True)


def verdict(evaluation: Evaluation) -> str:
    """The effect of calibration on this model in one or two sentences, and what is still significantly off.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["fts-nll"], n_resamples=20)
    >>> verdict(found)[:77]
    'Focal temperature scaling by log-loss does not change the calibration error ('
    """
    said = _verdict_of_many(evaluation) if evaluation.positive is None else _verdict_of_two(evaluation)
    remaining = "" if evaluation.after.name == NONE else still_off(evaluation)
    return f"{said} {remaining}".rstrip()


def _verdict_of_many(evaluation: Evaluation) -> str:
    """What the method that is shown does to the calibration error, the log-loss and the accuracy."""
    after = evaluation.after
    if after.name == NONE:
        error = after.measures["ece"]
        as_it_is = f"{percent(error.value)} % ({interval_percent(error)})"
        if len(evaluation.methods) == 1 or not evaluation.recommended or RunNote.ABSENT_CLASSES in evaluation.run:
            return f"The calibration error (ECE) of the predictions as they are is {as_it_is}."
        if error.low == 0.0:
            return f"Nothing shows a need of calibration: the calibration error (ECE) of the predictions is {as_it_is}."
        return f"No method improves on the predictions as they are: their calibration error (ECE) is {as_it_is}."
    old = evaluation.before.measures["ece"].value
    new = after.measures["ece"].value
    tests = evaluation.tests_of([after])
    side = side_of_ece(tests, after.name, new - old)
    ece_change = change(side, "calibration error (ECE)", METRICS["ece"], old, new)
    loss = after.against_none["log_loss"]
    accuracy = after.against_none["accuracy"]
    side = side_of_loss(tests, after.name)
    loss_change = change(side, "log-loss", METRICS["log_loss"], loss.second, loss.first)
    moves = accuracy_moves(accuracy.second, accuracy.first)
    return f"{capital(after.title)} {ece_change} and {loss_change}; accuracy {moves}."


def accuracy_moves(old: float, new: float) -> str:
    """What becomes of the accuracy, in the digits that are shown: it stays where these are the same.

    >>> accuracy_moves(0.93, 0.941), accuracy_moves(0.93, 0.93001)
    ('rises from 93.00 % to 94.10 %', 'stays at 93.00 %')
    """
    if percent(old) == percent(new):
        return f"stays at {percent(new)} %"
    return f"{'rises' if new > old else 'falls'} from {percent(old)} % to {percent(new)} %"


def _verdict_of_two(evaluation: Evaluation) -> str:
    """Whether the mean probability is right, and what the method that is shown does about it and to the log-loss."""
    after = evaluation.after
    bias = evaluation.before.stated_bias or evaluation.before.measures["mean_bias"]
    name = positive_name(evaluation)
    mean = mean_probability(evaluation, evaluation.before)
    rate = evaluation.rate
    differs = f"{percent(mean)} %, does not differ significantly from its rate, {percent(rate)} %"
    first = f"The mean probability of {name}, {differs}"
    digits = 2
    if not bias.low <= 0.0 <= bias.high:
        digits = max(BIAS.digits_apart(mean, rate), BIAS.digits_apart(bias.value, 0.0))
        off = f"{percent(abs(bias.value), digits)} points too {'high' if bias.value > 0 else 'low'}"
        occurs = f"{percent(mean, digits)} %, but it occurs in {percent(rate, digits)} % of the rows: {off}"
        first = f"The mean probability of {name} is {occurs}"
    if after.name == NONE:
        tried = (
            ""
            if len(evaluation.methods) == 1 or not evaluation.recommended
            else ", and no method that was tried has a significantly lower one"
        )
        return f"{first}. The log-loss is {after.measures['log_loss'].value:.4f}{tried}."
    loss = after.against_none["log_loss"]
    side = side_of_loss(evaluation.tests_of([after]), after.name)
    says = change(side, "log-loss", METRICS["log_loss"], loss.second, loss.first)
    made = percent(mean_probability(evaluation, after), digits)
    return f"{first}. {capital(after.title)} makes it {made} % and {says}."


def positive_name(evaluation: Evaluation) -> str:
    """The name of the positive class in a sentence."""
    return f"class {evaluation.positive}" if evaluation.class_names is None else str(evaluation.positive)


def mean_probability(evaluation: Evaluation, method: Measured) -> float:
    """The mean probability of the positive class by a method."""
    return evaluation.rate + method.measures["mean_bias"].value


def recommendation(evaluation: Evaluation) -> str:
    """The recommended method, and how certain that is.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["fts-nll"], n_resamples=20)
    >>> recommendation(found)[:43]
    'Recommendation: fts-nll (focal temperature '
    """
    best = evaluation.after
    if len(evaluation.methods) == 1:
        return "No calibrator was tried; refocal compare fits the usual ones and says which to use."
    if best.name == NONE:
        if evaluation.recommended:
            return f"Recommendation: leave the predictions as they are: {_why_nothing(evaluation)}."
        return _why_no_recommendation(evaluation)
    shown = f"Shown in detail: {best.name} ({best.title})."
    if _only_class(evaluation):
        return f"{shown} {capital(_only_class(evaluation))}."
    first = _recommended_method(evaluation) if evaluation.recommended else shown
    return f"{first} {_against_second(evaluation)}".rstrip()


def _why_no_recommendation(evaluation: Evaluation) -> str:
    """Why no method is recommended where the predictions as they are are shown."""
    n_worth = int(evaluation.run.get(RunNote.WORTH, evaluation.n_test))
    if n_worth < FEWEST_ROWS_TO_RECOMMEND:
        worth = f", and by their weights these are worth {n_worth}" if n_worth < evaluation.n_test else ""
        return f"No recommendation: it takes {FEWEST_ROWS_TO_RECOMMEND} test rows to tell methods apart{worth}."
    if _only_class(evaluation):
        return f"No recommendation: {_only_class(evaluation)}."
    if _are_like_guessing(evaluation):
        return "No recommendation: the log-loss of no method is below that of guessing."
    return "Shown in detail: the predictions as they are."


def _only_class(evaluation: Evaluation) -> str:
    """Why methods are not tested, where one of two classes does not occur; empty where both do."""
    if evaluation.positive is None or 0.0 < evaluation.rate < 1.0:
        return ""
    name = evaluation.name_of(int(evaluation.rate))
    return f"the test {_rows_or_labels(evaluation)} are all of class {name}: methods cannot be told apart"


def _recommended_method(evaluation: Evaluation) -> str:
    """Which method is recommended, and whether another is lower by the measure that methods are ranked by."""
    best = evaluation.after
    metric = columns(evaluation)[0]
    criterion = metric.label
    # The predictions as they are count among them: they are a row of the table.
    rivals = [method for method in evaluation.methods if method is not best]
    if evaluation.positive is None:
        criterion = f"{metric.label} among the methods within {100 * LOG_LOSS_SHARE:g} % of the best log-loss"
        limit = (1.0 + LOG_LOSS_SHARE) * min(method.measures["log_loss"].value for method in evaluation.methods)
        rivals = [method for method in rivals if method.measures["log_loss"].value <= limit]
    lower = [rival for rival in rivals if rival.measures[metric.name].value < best.measures[metric.name].value]
    if not lower:
        reason = f", the lowest {criterion}."
    elif any(_is_significantly_lower(evaluation, rival) for rival in lower):
        reason = "."
    else:
        reason = f": no {criterion} is significantly lower."
    by_loss = "" if evaluation.positive is None else " Methods for two classes are ranked by log-loss."
    return f"Recommendation: {best.name} ({best.title}){reason}{by_loss}"


def _against_second(evaluation: Evaluation) -> str:
    """How the method that is shown differs from the best of the others that were tried; empty without others."""
    best = evaluation.after
    metric = columns(evaluation)[0]
    others = [method for method in evaluation.methods if method.name not in (NONE, best.name)]
    if not others:
        return ""
    second = min(others, key=lambda method: method.measures[metric.name].value)
    gap = second.measures[metric.name].value - best.measures[metric.name].value
    tested = _test_of_rank(evaluation, second)
    # The second is the best of all others: a test of each of them at once.
    p_value = min(1.0, len(others) * tested.p_value)
    side = side_of(tested)
    is_significant = p_value <= 1.0 - evaluation.level_of_methods and side != 0
    agrees = side * gap > 0.0  # an ECE is tested by squared errors, which may say the opposite
    if is_significant and not agrees and evaluation.positive is None:
        comparison = "higher" if side > 0 else "lower"
        words = (
            f"The squared calibration error of {second.name} is significantly {comparison}, but not its {metric.label}"
        )
    elif not (is_significant and agrees):
        rows = "known labels" if RunNote.ROWS_OF_LABELS in evaluation.run else "rows"
        indistinguishable = f"it is statistically indistinguishable from {second.name}"
        words = f"By {metric.label} {indistinguishable} on these {evaluation.n_test:,} {rows}"
    elif gap > 0.0:
        words = f"It is significantly better than {second.name} by {metric.label}"
    else:
        words = f"By {metric.label} alone {second.name} is significantly better"
    if evaluation.positive is None:
        digits = BIAS.digits_apart(gap, 0.0) if is_significant else BIAS.digits
        gap_text = f"{BIAS.text(gap, digits)} points"
    elif abs(gap) >= SMALLEST_SHOWN:
        gap_text = f"{gap:+.4f}".replace("-", "−")
    else:
        gap_text = "below 0.0001"
    return f"{words} ({second.name} less {best.name}: {gap_text}, {_p_text(evaluation, p_value)})."


def _test_of_rank(evaluation: Evaluation, method: Measured) -> PairedDifference:
    """The test of a method against the one that is shown, by the measure that methods are ranked by."""
    tested = method.against_chosen
    return tested["log_loss"] if evaluation.positive is not None else test_of_ece(tested)


def _is_significantly_lower(evaluation: Evaluation, method: Measured) -> bool:
    """Whether a method is significantly below the one that is shown, by the measure that methods are ranked by."""
    tested = _test_of_rank(evaluation, method)
    return tested.p_value <= 1.0 - evaluation.level_of_methods and side_of(tested) < 0


def _p_text(evaluation: Evaluation, p_value: float) -> str:
    """The p-value of all methods together as one of all statements."""
    return f"p {p_value_text(_of_all_statements(evaluation, p_value), 1.0 - evaluation.level)}"


def _of_all_statements(evaluation: Evaluation, p_value: float) -> float:
    """The p-value of all methods together as one of methods, means and diagrams, to compare with 1 - level.

    Methods have the level l_m = level^(1/k) of the report's (`refocal.evaluate.statements`), so that

        p <= 1 - l_m   if and only if   1 - (1 - p)^k <= 1 - level,   k = log(level) / log(l_m).
    """
    k = math.log(evaluation.level) / math.log(evaluation.level_of_methods)
    return float(1.0 - (1.0 - p_value) ** k)


def _why_nothing(evaluation: Evaluation) -> str:
    """Why nothing is recommended: no method improves the log-loss, or one that does is far from the best."""
    n_methods = len(evaluation.methods) - 1
    methods = f"{n_methods} methods" if n_methods > 1 else "the method"
    together = f"at {100 * evaluation.level:g} % for all statements on {methods}, means and diagrams"
    return f"no method improves on them significantly by log-loss ({together})"


def remarks(evaluation: Evaluation) -> list[str]:
    """Problems of the evaluation and of methods that failed, one per line."""
    about_intervals = (
        "ECE is measured too high on few rows, and its intervals allow for that: the measured value may lie at their "
        "upper end or above it."
    )
    said = [f"{name} failed and was left out: {reason}" for name, reason in evaluation.failed.items()]
    if _are_guessing(evaluation) and not evaluation.recommended:
        said.insert(0, f"No method helps: {GUESSED}.")
    if RunNote.SAME_ROWS in evaluation.run:
        said.insert(0, capital(SAME_ROWS_REMARK))
    if RunNote.ZEROS in evaluation.run:
        said.append(evaluation.run[RunNote.ZEROS])
    if RunNote.UNIT in evaluation.run:
        said.append(_unit_remark(evaluation))
    if RunNote.REPEATED_ID in evaluation.run:
        said.append(REPEATED_ID_REMARK.format(evaluation.run[RunNote.REPEATED_ID]))
    if evaluation.run.get(RunNote.DIVIDED) == f"divided {AT_RANDOM}":
        notes = [note for note in AT_RANDOM_REMARKS if note in evaluation.run]
        said += [AT_RANDOM_REMARKS[note].format(evaluation.run[note]) for note in notes]
    if RunNote.SHARED_CLUSTERS in evaluation.run:
        said.append(evaluation.run[RunNote.SHARED_CLUSTERS])
    fewest = min(evaluation.n_test, evaluation.n_validation or evaluation.n_test)
    if fewest < FEW_ROWS:
        said.append(f"{few_rows_remark(fewest)}.")
    if RunNote.ABSENT_CLASSES in evaluation.run:
        n_absent = int(evaluation.run[RunNote.ABSENT_CLASSES])
        said.append(
            f"{n_absent:,} of {evaluation.n_classes:,} classes {'does' if n_absent == 1 else 'do'} not occur among the "
            "rows that the methods were fitted on: nothing is known about their probabilities."
        )
    if any(method.measures["ece"].value >= method.measures["ece"].high for method in evaluation.methods):
        said.append(about_intervals)
    return said


def _unit_remark(evaluation: Evaluation) -> str:
    """Which unit intervals and tests rest on, and whether there are few of them."""
    few_clusters = 20  # the variance of fewer is known to a third at best
    n_clusters = int(evaluation.run[RunNote.N_CLUSTERS])
    said = f"Intervals and tests rest on {unit_of(evaluation)}, not on single {_rows_or_labels(evaluation)}"
    if n_clusters >= few_clusters:
        return f"{said}."
    return f"{said}; {n_clusters} are few: intervals of fewer than {few_clusters} clusters hold roughly."


def unit_of(evaluation: Evaluation) -> str:
    """What the intervals of an evaluation take as independent: "300 rows" or "50 clusters of rows (customer)"."""
    what = _rows_or_labels(evaluation)
    if RunNote.UNIT not in evaluation.run:
        return f"{evaluation.n_test:,} {what}"
    return f"{int(evaluation.run[RunNote.N_CLUSTERS]):,} clusters of {what} ({evaluation.run[RunNote.UNIT]})"


def _rows_or_labels(evaluation: Evaluation) -> str:
    return "labels" if RunNote.ROWS_OF_LABELS in evaluation.run else "rows"


def _are_like_guessing(evaluation: Evaluation) -> bool:
    """Whether the log-loss of no method is below that of guessing, be it for the scale of the scores alone."""
    return all(is_guessing(method.measures["log_loss"].value, evaluation.n_classes) for method in evaluation.methods)


def _are_guessing(evaluation: Evaluation) -> bool:
    """Whether no method is better than guessing, and the order of the scores is not either.

    Of two classes that is their AUC, otherwise the accuracy beside that of the same predictions in random order. Where
    all rows are of one class there is no order to predict.
    """
    if not _are_like_guessing(evaluation):
        return False
    measures = evaluation.before.measures
    if "roc_auc" in measures:
        return measures["roc_auc"].low <= 0.5
    rows = evaluation.before.classes or []
    n_rows = sum(row.n for row in rows)
    if any(row.n == n_rows for row in rows):
        return False
    n_predicted = sum(row.predicted for row in rows)
    by_chance = sum(row.n * row.predicted for row in rows) / max(1, n_rows * n_predicted)
    return measures["accuracy"].low <= by_chance


def test_of_ece(tested: Mapping[str, PairedDifference]) -> PairedDifference:
    """The test of two ECEs, which is that of the squared errors (`metrics.squared_ece_difference`).

    That of the ECEs would not hold; evaluations of version 0.1.0 have only a bootstrap of these.
    """
    return tested.get("squared_ece") or tested["ece"]


def side_of_ece(tests: MethodTests, method: str, difference: float) -> int:
    """Whether the ECE of a method is significantly lower (-1) or higher (1) than without it, by this difference."""
    side = tests.side(method, SQUARED_ECE)
    return side if side * difference >= SMALLEST_SHOWN else 0


def side_of_loss(tests: MethodTests, method: str) -> int:
    """Whether the log-loss of a method is significantly lower (-1) or higher (1) than without it."""
    tested = tests.differences[method]["log_loss"]
    return tests.side(method, "log_loss") if abs(tested.difference) >= SMALLEST_SHOWN else 0


def ece_against_none(evaluation: Evaluation, method: Measured) -> str:
    """By how many points a method changes the ECE, with the p-value of all methods together where it is tested."""
    difference = method.measures["ece"].value - evaluation.before.measures["ece"].value
    text = f"{100 * difference:+.2f} points".replace("-", "−")
    tests = evaluation.tests_of(evaluation.methods)
    p_value = tests.p_values.get((method.name, SQUARED_ECE))
    if p_value is None:
        return text
    side = tests.side(method.name, SQUARED_ECE)
    if side * difference < 0.0:
        text = f"{text}, but squared errors are significantly {'higher' if side > 0 else 'lower'}"
    return f"{text}, {_p_text(evaluation, p_value)} among all methods"


def group_table(evaluation: Evaluation) -> list[dict[str, str]]:
    """Each group with the method that is shown in detail as texts by their headings, the worst first."""
    mean, rate = ("mean p %", "rate %") if evaluation.positive is not None else ("confidence %", "accuracy %")
    before = {(row.column, row.name): row.difference.value for row in evaluation.before.groups}
    table = []
    for row in evaluation.after.groups:
        cells = {"group": group_name(row), "rows": f"{row.n:,}", mean: percent(row.mean), rate: percent(row.rate)}
        cells["difference"] = BIAS.text(row.difference.value)
        cells[f"{evaluation.level * 100:g} % for all groups"] = BIAS.interval_text(row.difference)
        if evaluation.after is not evaluation.before:
            cells["difference before"] = BIAS.text(before[row.column, row.name])
        table.append(cells | {"ECE %": percent(row.ece), "by chance %": percent(row.ece_by_chance)})
    return table


def group_errors_table(evaluation: Evaluation) -> list[dict[str, str]]:
    """Selection and errors of each group with the method that is shown in detail, as texts by their headings."""

    def text(share: Interval | None) -> str:
        return "–" if share is None else f"{percent(share.value)} ({interval_percent(share)})"

    table = []
    for row in evaluation.after.group_errors:
        cells = {"group": group_name(row), "rows": f"{row.n:,}", "selected %": text(row.selected)}
        cells["FPR %"] = text(row.false_positive_rate)
        cells["FNR %"] = text(row.false_negative_rate)
        table.append(cells | {"PPV %": text(row.ppv)})
    return table


def set_verdict(evaluation: Evaluation) -> str:
    """How often prediction sets hold the truth, how large they are, and what was asked for; empty without any."""
    sets = evaluation.after.sets
    if sets is None or evaluation.after.calibrator is None:
        return ""
    settings = evaluation.after.calibrator["parameters"]
    # The setting may have been changed since the fit, which left the thresholds as they are.
    coverage = evaluation.after.calibrator["fit"].get("coverage", settings["coverage"])
    asked = {"class": " of each class", "group": " of each group"}.get(settings["conditional"], " together")
    said = (
        f"The sets hold the truth in {percent(sets.coverage.value)} % of the rows ({interval_percent(sets.coverage)}), "
        f"and {100 * coverage:g} % of the rows{asked} were asked for; they have {sets.mean_size:.2f} "
        "classes on average."
    )
    below = [part for part in sets.parts if part.coverage.high < coverage]
    if below:
        names = ", ".join(_part_name(evaluation, part) for part in below[:5])
        said += f" Significantly below that: {names}{' and others' if len(below) > 5 else ''}."
        if settings["conditional"] == "none":
            said += " The guarantee is for all rows together, not for each class or group."
    return said


def set_table(evaluation: Evaluation) -> list[dict[str, str]]:
    """The coverage of each class and group as texts by their headings, the lowest first; at most 30 of them."""
    most_parts = 30
    parts = [] if evaluation.after.sets is None else evaluation.after.sets.parts
    table = []
    for part in sorted(parts, key=lambda part: part.coverage.value)[:most_parts]:
        cells = {"rows of": _part_name(evaluation, part), "number": f"{part.n:,}"}
        cells["covered %"] = percent(part.coverage.value)
        cells[f"{evaluation.level * 100:g} % for all parts"] = interval_percent(part.coverage)
        table.append(cells | {"classes in a set": f"{part.mean_size:.2f}"})
    return table


def _part_name(evaluation: Evaluation, part: CoverageOfPart) -> str:
    """A class by its name, a group by its column and its value."""
    if part.label is not None:
        return f"class {evaluation.name_of(part.label)}"
    return f"{part.column} = {part.name}"


def n_events(evaluation: Evaluation) -> str:
    """How many of the test rows are of the positive class, of two: what the precision of every number rests on."""
    name = positive_name(evaluation)
    events = [row.n for row in evaluation.before.classes or () if row.label == 1]
    if not events:
        return f"{name} in {percent(evaluation.rate)} %"
    return f"{events[0]:,} of them {name}"


def group_name(row: GroupRow | GroupErrors) -> str:
    """A group by its column and its value."""
    return f"{row.column} = {row.name}"


def group_verdict(evaluation: Evaluation) -> str:
    """The number of groups with a significant difference, and the worst of them."""
    rows = evaluation.after.groups
    off, off_before = (sum(map(is_off, method.groups)) for method in (evaluation.after, evaluation.before))
    what = "mean probability" if evaluation.positive is not None else "mean confidence"
    which = "rate" if evaluation.positive is not None else "accuracy"
    said = f"In {off or 'none'} of {len(rows)} groups the {what} differs significantly from the {which}"
    if evaluation.after is not evaluation.before:
        said += f" with {evaluation.after.title}, and in {off_before or 'none'} before"
    if not off:
        return f"{said}."
    worst = rows[0]
    digits = BIAS.digits_apart(worst.mean, worst.rate)
    against = f"{percent(worst.mean, digits)} % against {percent(worst.rate, digits)} %"
    return f"{said}. The worst is {group_name(worst)}: {against}, {points_text(worst.difference)}."


def points_text(difference: Interval) -> str:
    """A difference that is not 0 in points, with its interval, in as many digits as say so."""
    digits = BIAS.digits_apart(min(difference.low, difference.high, key=abs), 0.0)
    return f"{BIAS.text(difference.value, digits)} points ({BIAS.interval_text(difference, digits)})"


def is_off(row: GroupRow) -> bool:
    """Whether 0 lies outside of the interval of a group's difference."""
    return not row.difference.low <= 0.0 <= row.difference.high


def percent(value: float, digits: int = 2) -> str:
    """A share as a percentage, with two digits unless more are needed."""
    return f"{100 * value:.{digits}f}"


def interval_percent(interval: Interval) -> str:
    """An interval of shares as percentages."""
    return METRICS["ece"].interval_text(interval)


def change(side: int, what: str, metric: Metric, before: float, after: float) -> str:
    """What a method does to a measure that falls (-1), rises (1) or does not change significantly (0).

    >>> change(0, "log-loss", METRICS["log_loss"], 0.01234, 0.01228)
    'does not change the log-loss significantly (0.0123, then 0.0123)'
    >>> change(-1, "log-loss", METRICS["log_loss"], 0.01234, 0.01228)
    'lowers the log-loss from 0.01234 to 0.01228'
    """
    if side == 0:
        old, new = metric.with_unit(before), metric.with_unit(after)
        return f"does not change the {what} significantly ({old}, then {new})"
    digits = metric.digits_apart(before, after)
    old, new = metric.with_unit(before, digits), metric.with_unit(after, digits)
    return f"{'lowers' if side < 0 else 'raises'} the {what} from {old} to {new}"


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]
