"""Calibrate logits and labels saved by any program, with the command `refocal`.

python examples/start_file.py
"""

import subprocess
import sys

import numpy as np

import refocal

# Stands for your program, which saves the logits of held-out rows with their labels.
validation, test = refocal.io.load_sample("cifar10-cross-entropy")
np.savez("val.npz", logits=validation.values, labels=validation.labels)
np.savez("test.npz", logits=test.values, labels=test.labels)

# What you type, after the word refocal.
for command in (
    "compare val.npz test.npz --methods auto,ts,fts --report report.html",
    "fit val.npz -o calibrator.json",
    "apply calibrator.json test.npz -o probs.npz",
):
    subprocess.run([sys.executable, "-m", "refocal", *command.split()], check=True)

probabilities = np.load("probs.npz")["probabilities"]
before = refocal.metrics.log_loss(test.labels, refocal.maps.log_softmax(test.values))
after = refocal.metrics.log_loss(test.labels, np.log(probabilities))
print(f"log-loss on test data: {before:.3f} before, {after:.3f} after")
