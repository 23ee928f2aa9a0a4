"""Calibrate a random forest of scikit-learn by cross-validation.

python examples/start_sklearn.py
"""

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

import refocal
from refocal import metrics

X, X_test, y, y_test = train_test_split(
    *load_digits(return_X_y=True), test_size=0.4, random_state=0
)

forest = RandomForestClassifier(random_state=0).fit(X, y)
model = refocal.CalibratedClassifier(RandomForestClassifier(random_state=0), cv=5).fit(
    X, y
)

p_before, p_after = forest.predict_proba(X_test), model.predict_proba(X_test)
before, after = (
    metrics.expected_calibration_error(y_test, p) for p in (p_before, p_after)
)
print(f"ECE on test data: {before:.3f} before, {after:.3f} after")
before, after = (metrics.brier_score(y_test, p) for p in (p_before, p_after))
print(f"Brier score on test data: {before:.3f} before, {after:.3f} after")
