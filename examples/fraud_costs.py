"""Decide which payments to check: costs set the threshold, and calibrated probabilities predict them correctly.

python examples/fraud_costs.py
"""

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from refocal import CalibratedClassifier, decide, metrics

# %% Payments with 3 % fraud, and a forest trained on balanced classes
rng = np.random.default_rng(0)
X = rng.normal(size=(16_000, 6))
log_odds = 1.5 * X[:, 0] + X[:, 1] * X[:, 2] - 4.5
y = (rng.random(16_000) < 1 / (1 + np.exp(-log_odds))).astype(int)
forest = RandomForestClassifier(
    50, min_samples_leaf=5, class_weight="balanced", random_state=0
)
X_train, X_test, y_train, y_test = X[:8_000], X[8_000:], y[:8_000], y[8_000:]
p_before = forest.fit(X_train, y_train).predict_proba(X_test)

# %% The same forest, calibrated by cross-validation
p_after = CalibratedClassifier(forest, cv=5).fit(X_train, y_train).predict_proba(X_test)

# %% A needless check costs 1, a missed fraud 20, and a person decides for 0.6
costs = decide.cost_matrix(false_positive=1.0, false_negative=20.0)
print(f"check a payment from a probability of {decide.optimal_threshold(costs):.1%} on")
reports = {}
for when, p in (("before", p_before), ("after", p_after)):
    reports[when] = found = decide.evaluate_decisions(y_test, p, costs, abstain=0.6)
    print(
        f"{when}: {found.expected_cost:.3f} a payment expected, "
        f"{found.cost.value:.3f} paid ({found.cost.low:.3f} to {found.cost.high:.3f}); "
        f"{found.automated.value:.0%} decided without a person"
    )
before, after = (
    metrics.log_loss(y_test, np.log(np.maximum(p, 1e-6))) for p in (p_before, p_after)
)
print(f"log-loss on test data: {before:.4f} before, {after:.4f} after")
