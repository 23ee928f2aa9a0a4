"""One model and three regions, one of them badly calibrated: measure and correct each group.

python examples/groups.py
"""

import numpy as np

from refocal import GroupCalibration, LogisticCalibration, metrics

# %% Scores that are right in the north and in the west, and too low in the south
rng = np.random.default_rng(0)
n = 12_000
region = rng.choice(["north", "south", "west"], n, p=[0.6, 0.3, 0.1])
scores = rng.normal(-1.0, 1.5, n)
late = (rng.random(n) < 1 / (1 + np.exp(-scores - 0.9 * (region == "south")))).astype(
    int
)
fit, test = slice(0, n // 2), slice(n // 2, n)

# %% One calibrator for all, and one for each group
common = LogisticCalibration(input="log-odds").fit(scores[fit], late[fit])
grouped = GroupCalibration(input="log-odds").fit(
    scores[fit], late[fit], groups=region[fit]
)
p_before = common.predict_proba(scores[test])
p_after = grouped.predict_proba(scores[test], groups=region[test])

# %% The mean probability of each group beside its rate
for name in np.unique(region):
    rows = region[test] == name
    mean_before, mean_after = p_before[rows, 1].mean(), p_after[rows, 1].mean()
    print(
        f"{name}: {late[test][rows].mean():.1%} late, "
        f"{mean_before:.1%} by one calibrator, {mean_after:.1%} by group"
    )
before, after = (metrics.log_loss(late[test], np.log(p)) for p in (p_before, p_after))
print(f"log-loss on test data: {before:.4f} before, {after:.4f} after")
