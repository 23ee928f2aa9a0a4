"""Prediction sets and Venn-Abers intervals, with MAPIE and venn-abers themselves beside them.

LAC gives MAPIE's sets. APS gives its threshold, from the same random numbers; its sets add chance in another way.
RAPS picks its penalty by itself there.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin

from helpers import draw_logits
from refocal import PredictionSets, VennAbersCalibration
from refocal.calibrators import conformal


class Given(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose features are its probabilities."""

    classes_ = np.arange(6)

    def fit(self, X, y):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def predict_proba(self, X):
        return X

    def predict(self, X):
        return np.argmax(X, axis=1)


@pytest.fixture(scope="module")
def rows():
    logits, labels = draw_logits(1200, 6)
    return softmax(logits, axis=1), labels


def peer(score, coverage, p, labels):
    mapie = pytest.importorskip("mapie.classification")
    made = mapie.SplitConformalClassifier(
        Given(), confidence_level=coverage, conformity_score=score, prefit=True, random_state=0
    )
    return made.conformalize(p[:400], labels[:400])


@pytest.mark.parametrize("coverage", [0.6, 0.9, 0.99])
@pytest.mark.filterwarnings("ignore")
def test_the_sets_of_lac_are_mapies(rows, coverage):
    p, labels = rows
    theirs = peer("lac", coverage, p, labels).predict_set(p[400:])[1][..., 0]
    ours = PredictionSets(coverage=coverage, allow_empty=True, input="probabilities").fit(p[:400], labels[:400])
    np.testing.assert_array_equal(ours.predict_set(p[400:]), theirs)


class SameNumbers:
    """A generator that draws what MAPIE draws; it counts the edge from the other end."""

    def __init__(self, seed):
        self.state = np.random.RandomState(seed)

    def random(self, shape):
        return 1.0 - self.state.uniform(size=shape[0])[:, None]


@pytest.mark.parametrize("coverage", [0.6, 0.9, 0.99])
@pytest.mark.filterwarnings("ignore")
def test_the_threshold_of_aps_is_mapies(rows, coverage, monkeypatch):
    p, labels = rows
    theirs = peer("aps", coverage, p, labels)
    theirs.predict_set(p[400:])
    monkeypatch.setattr(conformal.np.random, "default_rng", SameNumbers)
    ours = PredictionSets(coverage=coverage, conformity_score="aps", input="probabilities").fit(p[:400], labels[:400])
    np.testing.assert_allclose(ours.threshold_, theirs._mapie_classifier.quantiles_[0], rtol=1e-9)


@pytest.mark.parametrize("decimals", [2, 4])
@pytest.mark.filterwarnings("ignore")
def test_intervals_are_those_of_venn_abers(decimals):
    venn_abers = pytest.importorskip("venn_abers")
    rng = np.random.default_rng(0)
    p = rng.beta(1, 2, 1500)
    y = (rng.random(1500) < p).astype(int)
    said = np.clip((p**2).round(decimals), 10.0**-decimals, 1.0 - 10.0**-decimals)
    both = np.stack([1.0 - said, said], axis=1)
    peer = venn_abers.VennAbers()
    peer.fit(both[:700], y[:700])
    merged, bounds = peer.predict_proba(both[700:])
    ours = VennAbersCalibration(input="probabilities").fit(both[:700], y[:700])
    lower, upper = ours.predict_interval(both[700:])
    np.testing.assert_allclose(np.stack([lower[:, 1], upper[:, 1]], axis=1), bounds, atol=1e-9)
    np.testing.assert_allclose(ours.predict_proba(both[700:])[:, 1], merged[:, 1], atol=1e-9)
