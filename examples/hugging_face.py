"""Calibrate a sequence classifier in the style of Hugging Face: batches are mappings, outputs have `.logits`.

Replace `TinyClassifier` by `AutoModelForSequenceClassification.from_pretrained(...)` and `batches` by a data loader of
tokenised text; nothing else changes.

    python examples/hugging_face.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from refocal import FocalTemperatureScaling
from refocal.nn import collect_logits

# %% Stands for a pretrained model and its data loader
WORDS, LABELS = 50, 4


@dataclass
class Output:
    """What a Hugging Face model returns, as far as it matters here."""

    logits: Tensor


class TinyClassifier(nn.Module):
    """A bag of words, too sure of itself by a factor of 3."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Embedding(WORDS, LABELS)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Output:
        """The mean score of the words that are not padding."""
        mask = attention_mask[..., None].to(self.scores.weight.dtype)
        return Output(
            logits=3.0 * 2.0 * (self.scores(input_ids) * mask).sum(1) / mask.sum(1)
        )


def batches(model: TinyClassifier, n: int) -> Iterator[dict[str, Tensor]]:
    """Sentences of up to 12 words, for which the model is overconfident."""
    for _ in range(n):
        input_ids = torch.randint(WORDS, (64, 12))
        attention_mask = (torch.arange(12) < torch.randint(4, 13, (64, 1))).long()
        with torch.no_grad():
            honest = (model(input_ids, attention_mask).logits.float() / 3.0).softmax(-1)
        yield {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "labels": torch.multinomial(honest, 1)[:, 0],
        }


# %% Collect the logits of held-out batches, and fit
torch.manual_seed(0)
model = TinyClassifier().to(torch.bfloat16)
found = collect_logits(model, batches(model, 40))
calibrator = FocalTemperatureScaling(objective="nll").fit(found)
print(f"gamma = {calibrator.gamma_:.2f}, temperature = {calibrator.temperature_:.2f}")
report = calibrator.fit_report_
print(
    f"log-loss: {report['before']['log_loss']:.4f} before, "
    f"{report['after']['log_loss']:.4f} after"
)

# %% Append the calibrator to the model as a layer
layer = calibrator.to_torch()
batch = next(batches(model, 1))
batch.pop("labels")
print(
    "probabilities of one sentence:",
    layer(model(**batch).logits)[0].float().exp().tolist(),
)
