"""The map of a fitted calibrator as a small chart, for notebooks."""

from __future__ import annotations

import numpy as np

from refocal._svg import FIRST, Axes, Line, Plot
from refocal.maps import log_softmax
from refocal.maps.chain import Chain

# The number of classes drawn, and of log-odds at which; more curves would be unreadable.
MOST_CLASSES, LOG_ODDS = 10, np.linspace(-7.0, 7.0, 57)


def map_chart(chain: Chain, n_classes: int) -> str:
    """The calibrated probability of a class while the others are equally probable: one curve per class.

    >>> from refocal.maps.steps import Temperature
    >>> map_chart(Chain((Temperature(2.0),)), 3).count("<path")
    3
    """
    plot = Plot(
        (0, 1), (0, 1), [Axes("probability before", "after"), Line([0, 1], [0, 1], dash="4 3")], size=(320, 280)
    )
    shown = min(n_classes, MOST_CLASSES)
    curves = {}
    for label in range(shown):
        logits = np.zeros((len(LOG_ODDS), n_classes))
        logits[:, label] = LOG_ODDS + np.log(n_classes - 1)
        before = np.exp(np.asarray(log_softmax(logits))[:, label])
        after = np.exp(np.asarray(chain.log_probabilities(logits))[:, label])
        curves[tuple(after.round(4).tolist())] = before  # classes with the same curve share one
    for after, before in curves.items():
        plot.marks.append(Line(before.tolist(), after, FIRST, 1.6 if len(curves) == 1 else 0.9))
    of = "all classes" if len(curves) == 1 else f"{shown} of {n_classes} classes" if shown < n_classes else "each class"
    plot.description = f"The probability of a class after calibration against that before it, of {of}."
    return plot.svg()
