"""Calibrate the next-token probabilities of a language model with 32,000 words, without holding its logits in memory.

The logits go into a file, block by block, in half precision; the fit maps the file and walks through it in blocks of
rows, so that memory depends on neither the number of tokens nor the size of the vocabulary times it. (100,000 tokens:
benchmarks/tokens.py.)

    python examples/language_model_tokens.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from refocal import TemperatureScaling
from refocal.nn import CalibrationLayer

# %% Stands for a language model
VOCABULARY, BLOCK, BLOCKS = 32_000, 32, 8


def blocks_of_tokens() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Logits (tokens, vocabulary) in bfloat16, twice too large, and the next words."""
    for _ in range(BLOCKS):
        honest = 3.0 * torch.randn(BLOCK, VOCABULARY)
        yield (
            (2.0 * honest).to(torch.bfloat16),
            torch.multinomial(honest.softmax(-1), 1)[:, 0],
        )


# %% Write the logits block by block, map the file, and fit
torch.manual_seed(0)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "logits.npy"
    file = np.lib.format.open_memmap(
        path, "w+", np.float16, (BLOCK * BLOCKS, VOCABULARY)
    )
    labels = np.empty(BLOCK * BLOCKS, dtype=np.int64)
    for i, (logits, words) in enumerate(blocks_of_tokens()):
        rows = slice(i * BLOCK, (i + 1) * BLOCK)
        file[rows], labels[rows] = logits.to(torch.float16).numpy(), words.numpy()
    file.flush()
    calibrator = TemperatureScaling().fit(np.load(path, mmap_mode="r"), labels)
print(f"temperature = {calibrator.temperature_:.2f}")
report = calibrator.fit_report_
print(
    f"log-loss: {report['before']['log_loss']:.4f} before, "
    f"{report['after']['log_loss']:.4f} after"
)

# %% Append the calibrator to the model as a layer
layer: CalibrationLayer = calibrator.to_torch()
logits, words = next(blocks_of_tokens())
log_p = layer(logits.float())
print(
    "mean log-probability of the next word: "
    f"{log_p.gather(1, words[:, None]).mean().item():.3f}"
)
