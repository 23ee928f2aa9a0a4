"""Metrics of calibration: scores, binned and smooth errors, a streaming histogram, intervals.

Every function takes `y_true` first, then probabilities (`log_loss`: log-probabilities) as NumPy arrays, torch
tensors or anything else of the array API, binary or with the classes on the last axis, with any leading axes, or as
images (N, C, H, W). `ignore_index` is the label, or several, of rows and pixels that have none and are left out.
A new metric is a function and its `Metric` record, in one of the modules below (docs/architecture.md).
"""

# ruff: noqa: F403
from inspect import ismodule as _ismodule

from refocal.metrics.bias_interval import *
from refocal.metrics.binned import *
from refocal.metrics.bootstrap import *
from refocal.metrics.calibration_curve import *
from refocal.metrics.histogram import *
from refocal.metrics.intervals import *
from refocal.metrics.judged import *
from refocal.metrics.labels import *
from refocal.metrics.recalibration import *
from refocal.metrics.records import *
from refocal.metrics.reliability import *
from refocal.metrics.scorers import *
from refocal.metrics.scores import *
from refocal.metrics.selective import *
from refocal.metrics.sets import *
from refocal.metrics.smooth import *
from refocal.metrics.squared import *
from refocal.metrics.two_classes import *

__all__ = [name for name, value in globals().items() if not (name.startswith("_") or _ismodule(value))]
