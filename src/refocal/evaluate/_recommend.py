"""Which method a comparison recommends; differences within chance do not count."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from refocal.calibrators._base import Calibrator
from refocal.calibrators.registry import NONE
from refocal.evaluate._measure import Result
from refocal.evaluate.phrases import sign

# A method is recommended for its ECE among those that give up at most this share of the best log-loss.
LOG_LOSS_SHARE = 0.01


def recommended(
    results: Mapping[str, Result], calibrators: Mapping[str, Calibrator | None], n_classes: int, level: float
) -> str:
    """The method of lowest ECE among those with a log-loss close to the best; for two classes of lowest log-loss.

    Among methods that are statistically indistinguishable from it, the one of lowest log-loss is preferred; if the
    log-losses are indistinguishable too, `AutoCalibration`, or else the method with the fewest parameters.
    """

    def least(names: list[str], measure: str) -> str:
        return min(names, key=lambda name: results[name].summaries[measure].value)

    def tied(names: list[str], best: str, measure: str) -> list[str]:
        mine = results[best].summaries[measure]
        found = {name: results[name].summaries[measure].minus(mine, level=level) for name in names if name != best}
        return [best, *(name for name, each in found.items() if each is not None and sign(each, least=0.0) == 0)]

    names = list(results)
    limit = (1.0 + LOG_LOSS_SHARE) * results[least(names, "log_loss")].summaries["log_loss"].value
    if n_classes > 2:
        names = [name for name in names if results[name].summaries["log_loss"].value <= limit]
    best = least(names, "ece" if n_classes > 2 else "log_loss")
    if best == NONE:
        return NONE
    names = [name for name in names if name != NONE]
    if n_classes > 2:
        names = tied(names, best, "squared_ece")
        best = least(names, "log_loss")
    names = tied(names, best, "log_loss")
    # Parameters of what was chosen by the data do not count.
    fitted = {name: each for name in names if (each := calibrators[name]) is not None and not each.chooses}
    sizes = {name: sum(np.size(value) for _, value in each.chain_.parameters()) for name, each in fitted.items()}
    return min(names, key=lambda name: sizes.get(name, 0))
