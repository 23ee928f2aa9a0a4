"""Predictions of a classifier, checked once: from arrays, files and the bundled samples."""

from refocal.data.language import (
    answer_confidence,
    generated_log_p,
    multiple_choice,
    read_lm_eval,
    read_token_log_p,
)
from refocal.data.multilabel import MultiLabelPredictions, read_multilabel
from refocal.data.predictions import Predictions
from refocal.data.readers import read, read_values
from refocal.data.samples import SAMPLES, Sample, load_sample
from refocal.data.split import split
from refocal.data.top_k import TopK

__all__ = [
    "SAMPLES",
    "MultiLabelPredictions",
    "Predictions",
    "Sample",
    "TopK",
    "answer_confidence",
    "generated_log_p",
    "load_sample",
    "multiple_choice",
    "read",
    "read_lm_eval",
    "read_multilabel",
    "read_token_log_p",
    "read_values",
    "split",
]
