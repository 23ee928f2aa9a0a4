"""Readers and writers of predictions, in memory and in blocks.

`Predictions` are rows in memory, checked once: from arrays, files (`read`) and bundled samples. `open_rows`, `blocks`
and `rows_of` make rows that do not fit into memory, or on one machine; the `fit` of a calibrator and
`refocal.evaluate.evaluate` take them in place of arrays. `apply` writes calibrated probabilities, block by block.
"""

from refocal.io.answers import option_log_p, stated_confidence
from refocal.io.apply import apply
from refocal.io.datasets import blocks, connect, rows_of
from refocal.io.language import (
    TopK,
    answer_confidence,
    generated_log_p,
    multiple_choice,
    read_lm_eval,
    read_token_log_p,
)
from refocal.io.multilabel import MultiLabelPredictions, read_multilabel
from refocal.io.readers import open_rows, read, read_values
from refocal.io.samples import SAMPLES, Sample, load_sample
from refocal.rows import Predictions, split

__all__ = [
    "SAMPLES",
    "MultiLabelPredictions",
    "Predictions",
    "Sample",
    "TopK",
    "answer_confidence",
    "apply",
    "blocks",
    "connect",
    "generated_log_p",
    "load_sample",
    "multiple_choice",
    "open_rows",
    "option_log_p",
    "read",
    "read_lm_eval",
    "read_multilabel",
    "read_token_log_p",
    "read_values",
    "rows_of",
    "split",
    "stated_confidence",
]
