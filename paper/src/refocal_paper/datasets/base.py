"""What a data set is, the seeded split of its training images, and a synthetic one for tests."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal.errors import DataError, RefocalError

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]


class DatasetNotFoundError(RefocalError, FileNotFoundError):
    """The data set is not where it was looked for."""


class Dataset(NamedTuple):
    """Images (N, height, width, 3) as bytes, with their labels."""

    train: Images
    train_labels: Labels
    test: Images
    test_labels: Labels
    n_classes: int


class Split(NamedTuple):
    """Row numbers of the training images to learn from and to hold out."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]


def checked(train: Images, train_labels: Labels, test: Images, test_labels: Labels) -> Dataset:
    """A data set whose parts fit together."""
    for part, images, labels in (("train", train, train_labels), ("test", test, test_labels)):
        if len(images) != len(labels) or len(images) == 0:
            expected = f"of {len(labels)} images, as many as there are labels, and not empty"
            raise DataError(part, "load_dataset", expected=expected, got=f"{len(images)}")
    if train.shape[1:] != test.shape[1:] or train.shape[1] != train.shape[2]:
        got = f"{train.shape[1:3]} and {test.shape[1:3]}"
        raise DataError("images", "load_dataset", expected="square and of one size in train and test", got=got)
    n_classes = int(train_labels.max()) + 1
    if test_labels.max() >= n_classes:
        got = f"class {int(test_labels.max())}"
        raise DataError("test labels", "load_dataset", expected=f"among the {n_classes} classes of train", got=got)
    return Dataset(train, train_labels, test, test_labels, n_classes)


def split_rows(n_rows: int, n_validation: int, seed: int) -> Split:
    """A seeded random split; the same for every run of a sweep."""
    if not n_validation < n_rows:
        raise DataError("validation_rows", "split_rows", expected=f"fewer than {n_rows}", got=str(n_validation))
    order = np.random.default_rng(seed).permutation(n_rows)
    return Split(np.sort(order[n_validation:]), np.sort(order[:n_validation]))


def synthetic(n_train: int = 640, n_test: int = 320, n_classes: int = 4, seed: int = 0) -> Dataset:
    """Noisy 16 × 16 images of a few patterns: enough to see a network learn, in seconds."""
    rng = np.random.default_rng(seed)
    patterns = rng.integers(0, 256, size=(n_classes, 4, 4, 3)).repeat(4, axis=1).repeat(4, axis=2)
    labels = rng.integers(0, n_classes, size=n_train + n_test)
    noisy = 0.35 * patterns[labels] + 0.65 * rng.integers(0, 256, size=(n_train + n_test, 16, 16, 3))
    images = noisy.astype(np.uint8)
    return Dataset(images[:n_train], labels[:n_train], images[n_train:], labels[n_train:], n_classes)
