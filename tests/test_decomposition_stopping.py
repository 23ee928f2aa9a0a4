"""Stopping by the refined log-loss: what it equals, when it stops, and boosters that take it as a metric."""

from __future__ import annotations

import math

import lightgbm
import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification
from torch import nn

from refocal.decomposition import RefinedStopping, log_loss_decomposition, refined_log_loss
from refocal.errors import LabelError, ParameterError
from refocal.io import Predictions
from refocal.nn import collect_logits

RNG = np.random.default_rng(0)
TRUTH = RNG.normal(size=(1500, 3))
LABELS = np.argmax(TRUTH + RNG.gumbel(size=TRUTH.shape), axis=1)
NOISE = RNG.normal(size=TRUTH.shape)


def epochs():
    """Logits that know more until the sixth epoch, and are surer from epoch to epoch: too sure from the third on."""
    for i, noise in enumerate([2.0, 1.0, 0.8, 0.6, 0.5, 0.4, 0.5, 0.8, 1.0, 1.2]):
        yield (0.3 + 0.5 * i) * (TRUTH + noise * NOISE)


def test_it_is_the_refinement_of_the_decomposition():
    logits = 3.0 * TRUTH
    want = log_loss_decomposition(LABELS, logits, by="temperature").refinement
    assert refined_log_loss(LABELS, logits, input="logits", by="temperature") == want
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert refined_log_loss(LABELS, p, by="temperature") == pytest.approx(want, rel=1e-9)
    rows = Predictions.from_probabilities(p, LABELS)
    assert refined_log_loss(rows, by="temperature") == pytest.approx(want, rel=1e-9)
    weight = np.repeat([1.0, 2.0], 750)
    weighted = log_loss_decomposition(LABELS, logits, by="temperature", sample_weight=weight).refinement
    got = refined_log_loss(LABELS, logits, input="logits", by="temperature", sample_weight=weight)
    assert got == pytest.approx(weighted)
    with pytest.raises(LabelError, match="'y_true' of refined_log_loss"):
        refined_log_loss(LABELS + 5, p)


def test_it_stops_later_than_the_log_loss_and_at_the_better_epoch():
    stopping = RefinedStopping(patience=3, by="temperature")
    assert stopping.best == math.inf
    assert not stopping.should_stop
    best_until = []
    for logits in epochs():
        best_until.append(stopping.update(LABELS, logits))
        if stopping.should_stop:
            break
    assert best_until == [True] * 6 + [False] * 3
    assert stopping.best_epoch == 5
    assert stopping.best == stopping.history[5].refinement
    totals = [parts.total for parts in stopping.history]
    assert int(np.argmin(totals)) < 5  # where plain early stopping would have stopped


def test_small_gains_can_be_ignored():
    stopping = RefinedStopping(patience=2, min_delta=10.0, by="temperature")
    for logits in epochs():
        stopping.update(LABELS, logits)
        if stopping.should_stop:
            break
    assert stopping.best_epoch == 0
    assert len(stopping.history) == 3
    for wrong in ({"patience": 0}, {"min_delta": -1.0}):
        with pytest.raises(ParameterError, match="of RefinedStopping"):
            RefinedStopping(**wrong)


def test_a_loop_passes_collected_rows():
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    validation = [(torch.tensor(TRUTH, dtype=torch.float32), torch.tensor(LABELS))]
    stopping = RefinedStopping(by="temperature")
    assert stopping.update(collect_logits(model, validation, progress=False))
    assert 0.0 < stopping.best < 2.0


@pytest.mark.filterwarnings("ignore:The argument .eval_set")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_lightgbm_takes_it_as_its_metric(n_classes):
    x, y = make_classification(900, 10, n_informative=6, n_classes=n_classes, flip_y=0.2, random_state=0)

    def refined(y_true, p):
        return "refined", refined_log_loss(y_true, p, by="temperature"), False

    settings = {"n_estimators": 40, "learning_rate": 0.3, "num_leaves": 7, "verbose": -1, "n_jobs": 1}
    # Without metric="None" it would stop by its own log-loss too, whichever stops first.
    model = lightgbm.LGBMClassifier(metric="None", **settings)
    model.fit(
        x[:500],
        y[:500],
        eval_set=[(x[500:], y[500:])],
        eval_metric=refined,
        callbacks=[lightgbm.early_stopping(5, verbose=False)],
    )
    assert list(model.evals_result_["valid_0"]) == ["refined"]
    values = model.evals_result_["valid_0"]["refined"]
    assert model.best_iteration_ == 1 + np.argmin(values)
    p = model.predict_proba(x[500:], num_iteration=3)
    expected = refined_log_loss(y[500:], p, by="temperature")
    assert values[2] == pytest.approx(expected, rel=1e-6)
    assert values[-1] < values[0]
