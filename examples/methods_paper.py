"""The skeleton of a methods paper: a calibrator and a metric of your own, over many networks, as a table and a figure.

The logits are in the repository, so this example needs a clone of it; the source archive leaves them out.

python examples/methods_paper.py
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

import refocal
from refocal.evaluate import Run, compare_many
from refocal.maps import Chain, Step, log_softmax, number_field


# %% The map: a temperature that grows with the entropy of the row
@dataclass(frozen=True)
class EntropyTemperature(Step, keeps_order=True):
    level: float = number_field()
    slope: float = number_field()

    def apply(self, xp, scores):
        z = scores - xp.max(scores, axis=-1, keepdims=True)
        log_p = z - xp.log(xp.sum(xp.exp(z), axis=-1, keepdims=True))
        entropy = -xp.sum(xp.exp(log_p) * log_p, axis=-1, keepdims=True)
        return z / xp.exp(self.level + self.slope * entropy)


# %% The method: its two numbers by log-loss. Validation, saving, torch come with it
@refocal.register
@dataclass(kw_only=True, eq=False, repr=False)
class EntropyScaling(refocal.Calibrator):
    input: str = "logits"

    def fit_chain(self, logits, labels, weight):
        rows = np.arange(len(labels))

        def loss(numbers):
            log_p = log_softmax(EntropyTemperature(*numbers).apply(np, logits))
            return -np.average(log_p[rows, labels], weights=weight)

        solution = minimize(loss, [0.0, 0.0], options={"gtol": 1e-4})
        return Chain((EntropyTemperature(*map(float, solution.x)),))


# %% The metric: how often the network is wrong and more than 90 % sure
def sure_errors(y, p):
    return float(np.mean((p.argmax(axis=1) != y) & (p.max(axis=1) > 0.9)))


# %% The networks: every kept cell of the short recipe, read when its turn comes
def runs(folder):
    for file in sorted(folder.glob("*/logits.npz")):
        recipe = json.loads((file.parent / "recipe.json").read_text())
        if recipe["epochs"] == 60:
            validation = refocal.io.read(file, values="val", labels="yv")
            test = refocal.io.read(file, values="test", labels="yt")
            network = f"{recipe['network']}, {recipe['loss']}"
            yield Run(validation, test, recipe["dataset"], network, recipe["seed"])


CELLS = Path(__file__).parents[1] / "paper" / "results"
if not CELLS.exists():
    raise SystemExit(
        f"This example needs a clone of the repository: no folder {CELLS}."
    )
metrics = ["log_loss", "ece", sure_errors]
methods = ["ts", "entropy-scaling"]
found = compare_many(runs(CELLS), methods, metrics=metrics, against="ts")

# %% The table and the figure of the paper
Path("table.tex").write_text(found.to_latex())
found.plot("log_loss").savefig("figure.pdf")
print(found.to_markdown("log_loss"), found.scope)
loss = {row.name: row.mean.mean for row in found.table("log_loss")}
print(f"log-loss: {loss['none']:.4f} before, {loss['entropy-scaling']:.4f} after")
