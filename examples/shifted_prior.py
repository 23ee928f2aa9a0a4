"""A model trained on balanced classes, used where one row in fifty is positive: an intercept corrects the prior.

python examples/shifted_prior.py
"""

import numpy as np
from sklearn.linear_model import LogisticRegression

from refocal import AutoCalibration, TemperatureScaling, metrics

# %% A rare outcome, and a model trained with class_weight="balanced"
rng = np.random.default_rng(0)
X = rng.normal(size=(24_000, 5))
log_odds = X @ [1.2, -0.8, 0.5, 0.0, 0.0] - 5.0
y = (rng.random(24_000) < 1 / (1 + np.exp(-log_odds))).astype(int)
train, validation, test = (slice(i, i + 8_000) for i in (0, 8_000, 16_000))
model = LogisticRegression(class_weight="balanced").fit(X[train], y[train])

# %% Calibrate on rows with the rate of production
p_validation, p_before = (
    model.predict_proba(X[rows])[:, 1] for rows in (validation, test)
)
calibrator = AutoCalibration(input="probabilities").fit(p_validation, y[validation])
p_after = calibrator.predict_proba(p_before)[:, 1]

# %% A temperature alone has no intercept and cannot correct this
scaled = (
    TemperatureScaling(input="probabilities")
    .fit(p_validation, y[validation])
    .predict_proba(p_before)[:, 1]
)
print(f"rate of the positive class: {y[test].mean():.1%}")
print(
    f"mean probability: {p_before.mean():.1%} before, "
    f"{scaled.mean():.1%} by a temperature, {p_after.mean():.1%} after"
)
before, after = (
    metrics.brier_score(y[test], np.stack([1 - p, p], axis=1))
    for p in (p_before, p_after)
)
print(f"Brier score on test data: {before:.4f} before, {after:.4f} after")
