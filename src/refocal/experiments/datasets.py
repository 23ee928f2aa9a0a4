"""Image data sets as arrays in memory, and the seeded split of the training images."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal.errors import DataError, RefocalError

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]

ATLAS_SIDE = 100


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


def load_dataset(name: str, root: Path) -> Dataset:
    """The data set `name` from the folder `root / name`, or "synthetic", which needs no folder.

    A folder holds WebP atlases of 100 × 100 images, train_0.webp …, test.webp, and labels.npz with `train` and `test`.
    """
    if name == "synthetic":
        return synthetic()
    folder = root / name
    if not (folder / "labels.npz").is_file():
        raise DatasetNotFoundError(
            f"No data set {name!r}: looked for {folder / 'labels.npz'}. It must hold train_0.webp …, test.webp and "
            "labels.npz; give the folder above it with --data."
        )
    labels = np.load(folder / "labels.npz", allow_pickle=False)
    parts = sorted(folder.glob("train_*.webp"), key=lambda path: int(path.stem.split("_")[1]))
    train = np.concatenate([read_atlas(path) for path in parts])
    test = read_atlas(folder / "test.webp")
    train_labels, test_labels = (labels[part].astype(np.int64) for part in ("train", "test"))
    for part, images, found in (("train", train, train_labels), ("test", test, test_labels)):
        if len(images) != len(found):
            expected, got = f"of {len(found)} images, as labels.npz says", f"{len(images)}"
            raise DataError(part, "load_dataset", expected=expected, got=got)
    return Dataset(train, train_labels, test, test_labels, int(train_labels.max()) + 1)


def read_atlas(path: Path) -> Images:
    """The images of an atlas: number k lies in row k // 100, column k % 100."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    with Image.open(path) as atlas:
        pixels = np.asarray(atlas.convert("RGB"))
    side = pixels.shape[0] // ATLAS_SIDE
    grid = pixels.reshape(ATLAS_SIDE, side, ATLAS_SIDE, side, 3).swapaxes(1, 2)
    return np.ascontiguousarray(grid.reshape(-1, side, side, 3))


def synthetic(n_train: int = 640, n_test: int = 320, n_classes: int = 4, seed: int = 0) -> Dataset:
    """Noisy 32 × 32 images of a few patterns: enough to see a network learn, in seconds."""
    rng = np.random.default_rng(seed)
    patterns = rng.integers(0, 256, size=(n_classes, 8, 8, 3)).repeat(4, axis=1).repeat(4, axis=2)
    labels = rng.integers(0, n_classes, size=n_train + n_test)
    noisy = 0.35 * patterns[labels] + 0.65 * rng.integers(0, 256, size=(n_train + n_test, 32, 32, 3))
    images = noisy.astype(np.uint8)
    return Dataset(images[:n_train], labels[:n_train], images[n_train:], labels[n_train:], n_classes)


def split_rows(n_rows: int, n_validation: int, seed: int) -> Split:
    """A seeded random split; the same for every run of a sweep."""
    if not n_validation < n_rows:
        raise DataError("validation_rows", "split_rows", expected=f"fewer than {n_rows}", got=str(n_validation))
    order = np.random.default_rng(seed).permutation(n_rows)
    return Split(np.sort(order[n_validation:]), np.sort(order[:n_validation]))
