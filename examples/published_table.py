"""Reproduce a row of a published table from the logits of the network: CIFAR-100, ResNet-50, focal loss with γ = 7.

The logits are in the repository, so this example needs a clone of it; the source archive leaves them out.

python examples/published_table.py
"""

from pathlib import Path

import numpy as np

from refocal import FocalTemperatureScaling, TemperatureScaling, metrics
from refocal.maps import log_softmax

# %% The network's logits are in the repository, 5,000 rows to fit on and 10,000 to test
CELL = (
    Path(__file__).parents[1]
    / "paper"
    / "results"
    / "cifar100-resnet50-focal-7-1-494dc848"
)
if not CELL.exists():
    raise SystemExit(
        f"This example needs a clone of the repository: there is no folder {CELL}."
    )
saved = np.load(CELL / "logits.npz")
logits, labels = saved["val"].astype(np.float64), saved["yv"].astype(int)
test_logits, test_labels = saved["test"].astype(np.float64), saved["yt"].astype(int)

# %% The table searches the paper's grid, once by log-loss and once by ECE
# Published are means of five trainings; this is a sixth, with the same recipe.
PUBLISHED = {"TS": (0.83, 1.83), "FTS": (0.83, 0.99)}
for name, kind in (("TS", TemperatureScaling), ("FTS", FocalTemperatureScaling)):
    by_loss, by_ece = (
        kind(objective=objective, search="grid").fit(logits, labels)
        for objective in ("nll", "ece")
    )
    loss = metrics.log_loss(test_labels, by_loss.predict_log_proba(test_logits))
    ece = metrics.expected_calibration_error(
        test_labels, by_ece.predict_proba(test_logits)
    )
    print(
        f"{name}: log-loss {loss:.3f}, ECE {ece:.2%}; "
        f"published {PUBLISHED[name][0]}, {PUBLISHED[name][1]} %"
    )

# %% What focal temperature scaling gains on this network
before, after = metrics.log_loss(test_labels, log_softmax(test_logits)), loss
print(f"log-loss on test data: {before:.4f} before, {after:.4f} after")
