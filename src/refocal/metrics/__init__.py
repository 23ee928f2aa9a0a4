"""Metrics of calibration: scores, binned and smooth errors, a streaming histogram, bootstrap intervals.

Every function takes `y_true` first, then probabilities (`log_loss`: log-probabilities) as NumPy arrays, torch
tensors or anything else of the array API, binary or with the classes on the last axis, with any leading axes, or as
images (N, C, H, W). `ignore_index` is the label, or several, of rows and pixels that have none and are left out.
A new metric is a function and its `Metric` record, in one of the modules below (docs/architecture.md).
"""

# ruff: noqa: F403
from refocal.metrics import (
    binned,
    bootstrap,
    histogram,
    intervals,
    inversion,
    labels,
    records,
    reliability,
    scores,
    sets,
    smooth,
    squared,
    two_classes,
)
from refocal.metrics.binned import *
from refocal.metrics.bootstrap import *
from refocal.metrics.histogram import *
from refocal.metrics.intervals import *
from refocal.metrics.inversion import *
from refocal.metrics.labels import *
from refocal.metrics.records import *
from refocal.metrics.reliability import *
from refocal.metrics.scores import *
from refocal.metrics.sets import *
from refocal.metrics.smooth import *
from refocal.metrics.squared import *
from refocal.metrics.two_classes import *

_FIRST = (binned, bootstrap, histogram, intervals, inversion, labels, records)
_MODULES = (*_FIRST, reliability, scores, sets, smooth, squared, two_classes)
__all__ = [name for module in _MODULES for name in module.__all__]
