"""Objectives of one's own."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import draw_logits
from refocal import TemperatureScaling
from refocal.errors import ParameterError


def test_a_function_of_ones_own_needs_sample_weight_where_rows_have_weights():
    logits, labels = draw_logits(200, 3)

    def plain(labels, p):
        return float(np.mean(1.0 - p[np.arange(len(labels)), labels]))

    def weighted(labels, p, sample_weight=None):
        return float(np.average(1.0 - p[np.arange(len(labels)), labels], weights=sample_weight))

    with pytest.raises(ParameterError, match="'objective' of fit must be a function of labels, probabilities"):
        TemperatureScaling(objective=plain).fit(logits, labels, sample_weight=np.full(200, 2.0))
    expected = TemperatureScaling(objective=plain).fit(logits, labels).temperature_
    assert (
        TemperatureScaling(objective=weighted).fit(logits, labels, sample_weight=np.ones(200)).temperature_ == expected
    )
