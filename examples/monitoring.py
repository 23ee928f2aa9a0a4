"""Monitor a model in production: labels arrive late, the data change, an alarm is raised, and the model is refitted.

python examples/monitoring.py
"""

import numpy as np

from refocal import LogisticCalibration, metrics
from refocal.monitor import CalibrationMonitor

# %% Stands for your service: 400 predictions a day, too low from the 19th on
rng = np.random.default_rng(0)
days = [f"2026-05-{day:02}" for day in range(1, 31)]
log_odds = rng.normal(-1.0, 1.0, size=(30, 400))
shift = np.where(np.arange(30) < 18, 0.0, 0.6)[:, None]
labels = (rng.random((30, 400)) < 1 / (1 + np.exp(-log_odds - shift))).astype(int)
p = 1 / (1 + np.exp(-log_odds))

# %% Each day's predictions at once, their labels two days later
monitor = CalibrationMonitor()
ids = [[f"{day}/{i}" for i in range(400)] for day in days]
for today, day in enumerate(days):
    monitor.update(p[today], ids=ids[today], period=day)
    if today >= 2:
        monitor.add_labels(ids[today - 2], labels[today - 2])
        if monitor.alarm:
            break
print(
    f"on {day} the monitor says: {monitor.advice().action}. {monitor.advice().reason}"
)

# %% Fit again on the days since the change, and check on later days
known = slice(18, today - 1)
calibrator = LogisticCalibration(input="log-odds").fit(
    log_odds[known].ravel(), labels[known].ravel()
)
monitor.restart()
later = slice(today + 1, 30)
p_before, y_test = p[later].ravel(), labels[later].ravel()
p_after = calibrator.predict_proba(log_odds[later].ravel())[:, 1]
before, after = (
    metrics.log_loss(y_test, np.log(np.stack([1 - q, q], axis=1)))
    for q in (p_before, p_after)
)
print(f"log-loss on the days after: {before:.4f} before, {after:.4f} after")
