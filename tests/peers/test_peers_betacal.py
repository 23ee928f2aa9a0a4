"""What betacal's tests assert, asserted of BetaCalibration with betacal itself beside it.

betacal fits a, b and c without regularisation; ours shrinks towards its base, so it is asked for next to no smoothing.
betacal's variants with fewer parameters ("am", "ab", "a") are not offered here: shrinkage takes their place.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from refocal import BetaCalibration

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import betacal


def scores(accuracy=0.8, prior=0.4, n_rows=40, seed=42):
    """Scores that are right for a share `accuracy` of the rows."""
    rng = np.random.RandomState(seed)
    y = rng.binomial(1, prior, n_rows)
    right = rng.binomial(1, accuracy, n_rows).astype(bool)
    return (rng.rand(n_rows) + np.where(right, y, 1 - y)) / 2, y


CASES = [(0.8, 0.4, 40, 42), (0.8, 0.4, 400, 0), (0.9, 0.5, 1000, 1), (0.7, 0.3, 2000, 2), (0.95, 0.1, 2000, 3)]


@pytest.mark.parametrize("case", CASES)
def test_three_parameters_are_betacals(case):
    s, y = scores(*case)
    both = np.column_stack([1 - s, s])
    ours = BetaCalibration(smoothing=1e-9, base="softmax", input="probabilities").fit(both, y).predict_proba(both)
    theirs = betacal.BetaCalibration(parameters="abm").fit(s.reshape(-1, 1), y).predict(s)
    assert log_loss(y, ours) <= log_loss(y, theirs) + 1e-5
    # betacal leaves out a part with a negative slope and stops its regression early; here it is driven to the end
    features = np.column_stack([np.log(s), -np.log1p(-s)])
    features = features[:, regression(features, y).coef_[0] > 0]
    np.testing.assert_allclose(ours, regression(features, y).predict_proba(features), atol=2e-5)


def regression(features, y):
    return LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(features, y)
