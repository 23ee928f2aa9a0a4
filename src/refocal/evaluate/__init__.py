"""Evaluation of predictions and calibrators: every measure with its interval, for reports and JSON."""

# ruff: noqa: F403
from inspect import ismodule as _ismodule

from refocal.evaluate.compute import *
from refocal.evaluate.difference import *
from refocal.evaluate.evaluation import *
from refocal.evaluate.many import *
from refocal.evaluate.many_runs import *
from refocal.evaluate.requirements import *
from refocal.evaluate.runs import *
from refocal.evaluate.summary import *

__all__ = [name for name, value in globals().items() if not (name.startswith("_") or _ismodule(value))]
