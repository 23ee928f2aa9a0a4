"""The gate: what comes in is understood once, the same way, by every method, metric, command and format.

`Predictions` are scores of a stated kind with labels as column numbers, weights, groups and classes. `labels` is the
one place where a label becomes a column number, `class_names` says what columns are called, `scores` is the one reading
of scores, `gate` reads rows in memory and `reader` rows in blocks, by the same rules. Behind the gate nothing is
checked again.
"""

from refocal.rows.labels import LabelMap, LabelRule
from refocal.rows.predictions import Origin, Predictions
from refocal.rows.reader import RawRows, RowReader
from refocal.rows.splitting import split

__all__ = ["LabelMap", "LabelRule", "Origin", "Predictions", "RawRows", "RowReader", "split"]
