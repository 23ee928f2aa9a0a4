"""Monitor a model in production: labels arrive late, the data change, an alarm is raised, and the model is updated.

python examples/monitoring.py
"""

import numpy as np

from refocal import LogisticCalibration, metrics
from refocal.monitor import CalibrationMonitor
from refocal.shift import update

# %% Stands for your service: 400 predictions a day, too low from the 19th on
rng = np.random.default_rng(0)
days = [str(np.datetime64("2026-05-01") + day) for day in range(60)]
log_odds = rng.normal(-1.0, 1.0, size=(60, 400))
shift = np.where(np.arange(60) < 18, 0.0, 0.6)[:, None]
luck = 0.2 * rng.normal(size=(60, 1))
labels = (rng.random((60, 400)) < 1 / (1 + np.exp(-log_odds - shift - luck))).astype(
    int
)
old = rng.normal(-1.0, 1.0, size=4000)
calibrator = LogisticCalibration(input="log-odds").fit(
    old, rng.random(4000) < 1 / (1 + np.exp(-old))
)
p = calibrator.predict_proba(log_odds.ravel())[:, 1].reshape(60, 400)

# %% Each day's predictions at once, their labels two days later
monitor = CalibrationMonitor()
ids = [[f"{day}/{i}" for i in range(400)] for day in days]
for today, day in enumerate(days):
    monitor.update(p[today], ids=ids[today], period=day)
    if today >= 2:
        monitor.add_labels(ids[today - 2], labels[today - 2])
        if monitor.alarm:
            break
alarm = monitor.alarms[0]
print(f"on {day}: alarm in {alarm.period}, since about {alarm.since}: {alarm.moved[0]}")
print(monitor.advice().reason)

# %% Update the calibrator by the days since the change, and check on later days
known = slice(days.index(alarm.since), today - 1)
updated = update(
    calibrator,
    log_odds[known].ravel(),
    labels[known].ravel(),
    clusters=np.repeat(np.arange(60)[known], 400),
)
monitor.restart()
later = slice(today + 1, 60)
x_test, y_test = log_odds[later].ravel(), labels[later].ravel()
before, after = (
    metrics.log_loss(y_test, each.predict_log_proba(x_test))
    for each in (calibrator, updated)
)
print(f"log-loss on the days after: {before:.4f} before, {after:.4f} after")
