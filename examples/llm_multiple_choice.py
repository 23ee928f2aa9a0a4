"""Answers A to D of a language model from its `top_logprobs`, calibrated; a preference for A goes with it.

The log stands for the responses of an API: the five most likely tokens of each answer, in the form of OpenAI's and
vLLM's servers.

    python examples/llm_multiple_choice.py
"""

import numpy as np

from refocal import AutoCalibration, metrics
from refocal.io import multiple_choice, option_log_p, split

# %% A simulated log: too sure, fond of A, and with tokens that are no option
rng = np.random.default_rng(0)
truth = 1.5 * rng.normal(size=(2000, 4))
labels = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)
said = 1.8 * truth + np.array([1.5, 0.0, 0.0, -0.5])
tokens = np.concatenate([said, rng.normal(-1.0, 1.0, size=(2000, 3))], axis=1)
log_p = tokens - np.log(np.exp(tokens).sum(axis=1, keepdims=True))
texts = [" A", " B", " C", " D", "The", "I", "\n"]
log = []
for row in log_p:
    top = [{"token": texts[j], "logprob": row[j]} for j in np.argsort(-row)[:5]]
    log.append({"choices": [{"logprobs": {"content": [{"top_logprobs": top}]}}]})

# %% Letters to options; those outside the five tokens get what is left for them at most
rows = multiple_choice(option_log_p(log, "ABCD"), labels)
validation, test = split(rows)

# %% Fit on one half, measure on the other
calibrator = AutoCalibration().fit(validation)
p_before = test.as_probabilities().values
p_after = calibrator.predict_proba(test)
before = metrics.log_loss(test.labels, np.log(p_before))
after = metrics.log_loss(test.labels, np.log(p_after))
print(f"log-loss on test data: {before:.4f} before, {after:.4f} after")
share = np.mean(test.labels == 0)
print(
    f"A is right in {share:.1%}; mean probability of A: "
    f"{p_before[:, 0].mean():.1%} before, {p_after[:, 0].mean():.1%} after"
)
