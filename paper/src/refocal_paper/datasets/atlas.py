"""Atlases: lossless pictures of 100 × 100 images each, which keep a data set small and quick to read."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from refocal.errors import FormatError
from refocal_paper.datasets.base import Dataset, Images, checked

ATLAS_SIDE = 100


def read_atlases(folder: Path) -> Dataset:
    """A folder of train_0.webp …, test.webp and labels.npz, which holds the labels `train` and `test` in that order."""
    try:
        with np.load(folder / "labels.npz", allow_pickle=False) as file:
            train_labels, test_labels = (file[part].astype(np.int64) for part in ("train", "test"))
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise FormatError(f"{folder / 'labels.npz'}: must hold the arrays 'train' and 'test': {error}.") from error
    parts = sorted(folder.glob("train_*.webp"), key=lambda path: int(path.stem.split("_")[1]))
    if not parts or not (folder / "test.webp").is_file():
        raise FormatError(f"{folder}: holds labels.npz, but not train_0.webp … and test.webp.")
    train = np.concatenate([read_atlas(path) for path in parts])
    return checked(train, train_labels, read_atlas(folder / "test.webp"), test_labels)


def read_atlas(path: Path) -> Images:
    """The images of an atlas: number k lies in row k // 100, column k % 100."""
    pixels = read_image(path)
    side = pixels.shape[0] // ATLAS_SIDE
    if side == 0 or pixels.shape[:2] != (ATLAS_SIDE * side, ATLAS_SIDE * side):
        raise FormatError(
            f"{path}: an atlas is a square of 100 × 100 images, not {pixels.shape[1]} × {pixels.shape[0]}."
        )
    grid = pixels.reshape(ATLAS_SIDE, side, ATLAS_SIDE, side, 3).swapaxes(1, 2)
    return np.ascontiguousarray(grid.reshape(-1, side, side, 3))


def read_image(path: Path) -> Images:
    """One picture as bytes (height, width, 3)."""
    from PIL import Image  # the CIFAR archives are read without it

    Image.MAX_IMAGE_PIXELS = None  # an atlas is large
    try:
        with Image.open(path) as picture:
            return np.asarray(picture.convert("RGB"))
    except (OSError, ValueError, SyntaxError) as error:
        raise FormatError(f"{path}: not a picture that can be read: {error}.") from error
