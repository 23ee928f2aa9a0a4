"""Logits of real networks that come with the package, for first steps, demonstrations and tests."""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

import numpy as np

from refocal._validation import check_option
from refocal.rows import Predictions

SAMPLES = {
    "cifar100-focal7": "ResNet-50 on CIFAR-100, trained with focal loss, γ = 7",
    "cifar10-focal3": "ResNet-18 on CIFAR-10, trained with focal loss, γ = 3",
    "cifar10-cross-entropy": "ResNet-18 on CIFAR-10, trained with cross-entropy",
}
"""The embedded samples: the name of each, and what it is."""


class Sample(NamedTuple):
    """A network's predictions on its validation and its test set.

    >>> sample = load_sample("cifar10-focal3")
    >>> len(sample.validation), len(sample.test)
    (5000, 10000)
    """

    validation: Predictions
    test: Predictions


def load_sample(name: str) -> Sample:
    """One of the embedded samples, as float32 logits; `SAMPLES` says what each is of.

    >>> SAMPLES["cifar10-focal3"]
    'ResNet-18 on CIFAR-10, trained with focal loss, γ = 3'
    >>> load_sample("cifar10-focal3").test
    Predictions(10,000 rows, 10 classes, logits, float32)
    """
    check_option(name, tuple(SAMPLES), "name", "load_sample")
    with (files(__package__) / f"{name}.npz").open("rb") as file, np.load(file) as arrays:
        parts = [(arrays[f"{part}_logits"].astype(np.float32), arrays[f"{part}_labels"]) for part in Sample._fields]
        return Sample(*(Predictions.from_logits(*part, class_names=arrays["class_names"]) for part in parts))
