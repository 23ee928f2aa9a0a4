"""Which method is recommended, by what was measured."""

from __future__ import annotations

from collections.abc import Mapping

from refocal.calibrators import Calibrator
from refocal.calibrators.description import is_guessing
from refocal.calibrators.registry import NONE
from refocal.evaluate._measured import n_parameters
from refocal.evaluate._results import Result, Results
from refocal.evaluate.statements import FEWEST_ROWS_TO_RECOMMEND, LOG_LOSS_SHARE, holm, statement_levels
from refocal.metrics.influence import two_sided_p_value
from refocal.metrics.intervals import whole_rows


def recommended_method(
    results: Results, calibrators: Mapping[str, Calibrator | None], n_classes: int, level: float
) -> str | None:
    """The recommended method; None where there are too few rows for one, or where no method beats guessing.

    What is stated on methods, means and diagrams holds together at the level.
    """
    if rows_of_weights(results) < FEWEST_ROWS_TO_RECOMMEND or _are_guessing(results, n_classes):
        return None
    levels = statement_levels(level, len(results.of) - 1, results.n_groups, n_classes)
    return best_method(results.of, calibrators, n_classes, levels.methods)


def _are_guessing(results: Results, n_classes: int) -> bool:
    """Whether no method predicts better than guessing."""
    log_losses = [result.summaries["log_loss"].value for result in results.of.values()]
    return all(is_guessing(log_loss, n_classes) for log_loss in log_losses)


def best_method(
    results: Mapping[str, Result], calibrators: Mapping[str, Calibrator | None], n_classes: int, level: float
) -> str:
    """The method of lowest ECE among those with a log-loss close to the best; for two classes of lowest log-loss.

    Only methods that improve on the model as it is count: by the score test, of all methods together at the level, and
    by a log-loss that is lower by more than the standard error of the difference. Without any, the model is left as it
    is. Among methods that are statistically indistinguishable from the best, the one of lowest log-loss is preferred;
    if the log-losses are indistinguishable too, `AutoCalibration`, or else the method with the fewest parameters.
    """
    names = _that_improve(results, level)
    if n_classes > 2:
        names = _close_to_best_log_loss(results, names)
    if not names:
        return NONE
    if n_classes == 2:
        best = _least(results, names, "log_loss")
    else:
        least_error = _least(results, names, "ece")
        names = _tied(results, names, least_error, "squared_ece", level)
        best = _least(results, names, "log_loss")
    tied = _tied(results, names, best, "log_loss", level)
    return min(tied, key=lambda name: _size(calibrators[name]))


def _that_improve(results: Mapping[str, Result], level: float) -> list[str]:
    """The methods that improve on the model as it is, by the score test and by the log-loss."""
    p_values = holm({name: result.score.p_value for name, result in results.items() if result.score is not None})
    one_error = two_sided_p_value(1.0)  # of a difference that is as large as its standard error
    names = []
    for name, result in results.items():
        if p_values.get(name, 1.0) > 1.0 - level:
            continue
        saved = result.summaries["log_loss"].minus(results[NONE].summaries["log_loss"], level=level)
        if saved is not None and saved.difference < 0.0 and saved.p_value < one_error:
            names.append(name)
    return names


def _close_to_best_log_loss(results: Mapping[str, Result], names: list[str]) -> list[str]:
    """Those of some methods whose log-loss is within a share of the lowest one of all methods."""
    lowest = results[_least(results, list(results), "log_loss")].summaries["log_loss"].value
    limit = (1.0 + LOG_LOSS_SHARE) * lowest
    return [name for name in names if results[name].summaries["log_loss"].value <= limit]


def _least(results: Mapping[str, Result], names: list[str], measure: str) -> str:
    """The method of the lowest value of a measure; of equal ones the first."""
    return min(names, key=lambda name: results[name].summaries[measure].value)


def _tied(results: Mapping[str, Result], names: list[str], best: str, measure: str, level: float) -> list[str]:
    """The best method, and those whose measure does not differ from its own significantly."""
    of_best = results[best].summaries[measure]
    ties = [best]
    for name in names:
        difference = None if name == best else results[name].summaries[measure].minus(of_best, level=level)
        if difference is not None and difference.p_value > 1.0 - level:
            ties.append(name)
    return ties


def _size(calibrator: Calibrator | None) -> int:
    """The number of parameters; that of a mean of methods says nothing about how flexible it is."""
    return 0 if calibrator is None or calibrator.averages else n_parameters(calibrator.chain_)


def rows_of_weights(results: Results) -> int:
    """How many rows of equal weights the rows are worth: as many as they are, or fewer where weights differ."""
    bins = results.of[NONE].bins
    return min(whole_rows(float(bins.weight.sum() ** 2 / bins.squared_weight.sum())), results.n_rows)
