"""A language model judges answers from 1 to 10: its grades as probabilities, and the rate of good answers.

The judge is kind. People labelled 300 of 5,000 answers; they make its grades probabilities, and correct the rate that
it would report.

    python examples/llm_judge.py
"""

import numpy as np

from refocal import LogisticCalibration, metrics
from refocal.io import stated_confidence

# %% A simulated log of grades, as text, and the labels of some answers
rng = np.random.default_rng(0)
good = rng.random(5000) < 0.6
grades = np.clip(np.rint(rng.normal(np.where(good, 8.5, 6.5), 1.5)), 1, 10).astype(int)
log = [f"Helpful, but long. Grade: {grade}/10" for grade in grades]
score = stated_confidence(log)
few, fewer = slice(0, 300), slice(0, 150)

# %% Grades to probabilities: half of the labels to fit, half to test
calibrator = LogisticCalibration(input="probabilities").fit(score[fewer], good[fewer])
test = slice(150, 300)
p = calibrator.predict_proba(score[test])[:, 1]
before = metrics.brier_score(good[test], score[test])
after = metrics.brier_score(good[test], p)
print(f"Brier score of 150 answers: {before:.4f} before, {after:.4f} after")

# %% The rate of good answers among all, with all labels
rate = metrics.judged_rate(score[300:], score[few], good[few])
print(f"the judge says {rate.of_judge:.1%}; {good.mean():.1%} are good")
for name, interval in (("labels", rate.of_labels), ("both", rate.interval)):
    print(f"{name}: {interval.value:.1%} ({interval.low:.1%} to {interval.high:.1%})")
print(f"as many as {rate.label_factor * 300:.0f} labels would say alone")
