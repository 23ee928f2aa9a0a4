"""Every function that draws random numbers refuses a seed that is none with the same sentence."""

from __future__ import annotations

import re

import numpy as np
import pytest

from refocal import PredictionSets, TemperatureScaling
from refocal.decomposition import RefinedStopping, log_loss_decomposition, refined_log_loss
from refocal.errors import ParameterError
from refocal.evaluate import Run, compare, compare_many, evaluate
from refocal.forensics import training_loss
from refocal.io import Predictions, split
from refocal.metrics import bootstrap_interval, paired_bootstrap, resample
from refocal.segments import find_segments
from refocal.shift import estimate_performance

pytestmark = pytest.mark.core

_rng = np.random.default_rng(0)
LOGITS = _rng.normal(size=(60, 2))
LABELS = np.argmax(LOGITS + _rng.gumbel(size=LOGITS.shape), axis=1)
P = 1.0 / (1.0 + np.exp(LOGITS[:, 0] - LOGITS[:, 1]))
ROWS = Predictions.from_logits(LOGITS, LABELS)
FITTED = TemperatureScaling().fit(LOGITS, LABELS)


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True])
@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("compare", lambda seed: compare(ROWS, ROWS, ["ts"], seed=seed)),
        ("evaluate", lambda seed: evaluate(ROWS, {"ts": FITTED}, seed=seed)),
        ("compare_many", lambda seed: compare_many([Run(ROWS, ROWS)], ["ts"], seed=seed)),
        ("split", lambda seed: split(ROWS, seed=seed)),
        ("bootstrap_interval", lambda seed: bootstrap_interval("brier", LABELS, P, seed=seed)),
        ("paired_bootstrap", lambda seed: paired_bootstrap("brier", LABELS, P, P, seed=seed)),
        ("resample", lambda seed: resample("brier", LABELS, P, seed=seed)),
        ("find_segments", lambda seed: find_segments(LABELS, P, {"age": P}, seed=seed)),
        ("training_loss", lambda seed: training_loss(LABELS, LOGITS, seed=seed)),
        ("log_loss_decomposition", lambda seed: log_loss_decomposition(LABELS, LOGITS, seed=seed)),
        ("log_loss_decomposition", lambda seed: refined_log_loss(LABELS, P, seed=seed)),
        ("RefinedStopping", lambda seed: RefinedStopping(seed=seed)),
        ("TemperatureScaling.adapt", lambda seed: FITTED.adapt(LOGITS, seed=seed)),
        ("estimate_performance", lambda seed: estimate_performance(FITTED, LOGITS, seed=seed)),
        (
            "PredictionSets.predict_set",
            lambda seed: PredictionSets().fit(LOGITS, LABELS).predict_set(LOGITS, seed=seed),
        ),
        (
            "PredictionSets",
            lambda seed: PredictionSets(random_state=seed).fit(LOGITS, LABELS),
        ),
    ],
)
def test_a_seed_that_is_no_whole_number_from_0_is_refused(function, call, seed):
    name = "random_state" if function == "PredictionSets" else "seed"
    expected = f"The '{name}' of {function} must be an integer of at least 0. Got {seed!r} instead."
    with pytest.raises(ParameterError, match=f"^{re.escape(expected)}$"):
        call(seed)
