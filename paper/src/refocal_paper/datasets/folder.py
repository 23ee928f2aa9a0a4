"""Images in folders: one folder per class as torchvision reads them, and TinyImageNet-200 in its own layout."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from refocal.errors import DataError, FormatError
from refocal_paper.datasets.atlas import read_image
from refocal_paper.datasets.base import Dataset, Images, Labels, checked

ENDINGS = {".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}


def read_folder(folder: Path) -> Dataset:
    """A folder with train/CLASS/IMAGE and test/CLASS/IMAGE (or val for test); classes in the order of their names."""
    test = folder / "test" if (folder / "test").is_dir() else folder / "val"
    names = _class_names(folder / "train")
    strange = sorted(set(_class_names(test)) - set(names))
    if strange:
        raise FormatError(f"{test / strange[0]}: no such class in {folder / 'train'}.")
    return checked(*_read_classes(folder / "train", names, ""), *_read_classes(test, names, ""))


def read_tiny_imagenet(folder: Path) -> Dataset:
    """TinyImageNet-200 as unpacked: train/n…/images, and its validation images as the test set, as in the paper."""
    names = _class_names(folder / "train")
    numbers = {name: i for i, name in enumerate(names)}
    annotations = folder / "val" / "val_annotations.txt"
    if not annotations.is_file():
        raise FormatError(f"{annotations}: not there, so the labels of the test images are unknown.")
    lines = [line.split("\t")[:2] for line in annotations.read_text(encoding="utf-8").splitlines() if line.strip()]
    wrong = next((i for i, line in enumerate(lines, 1) if len(line) < 2 or line[1] not in numbers), None)
    if wrong is not None:
        raise FormatError(f"{annotations}: line {wrong} names no class of {folder / 'train'}.")
    test = _read_images([folder / "val" / "images" / name for name, _ in lines])
    test_labels = np.array([numbers[name] for _, name in lines], dtype=np.int64)
    return checked(*_read_classes(folder / "train", names, "images"), test, test_labels)


def _class_names(folder: Path) -> list[str]:
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if not names:
        raise FormatError(f"{folder}: holds no folders, one for each class.")
    return names


def _read_classes(folder: Path, names: list[str], inner: str) -> tuple[Images, Labels]:
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        place = folder / name / inner
        found = sorted(p for p in place.iterdir() if p.suffix.lower() in ENDINGS) if place.is_dir() else []
        files += found
        labels += [label] * len(found)
    return _read_images(files), np.array(labels, dtype=np.int64)


def _read_images(files: list[Path]) -> Images:
    """All pictures in one array; decoding runs outside of Python's lock, so threads help."""
    if not files:
        return np.empty((0, 1, 1, 3), np.uint8)
    first = read_image(files[0])
    images = np.empty((len(files), *first.shape), np.uint8)

    def place(i: int) -> None:
        image = read_image(files[i])
        if image.shape != first.shape:
            expected = f"all of one size, {first.shape[1]} × {first.shape[0]} as {files[0].name}; resize them first"
            raise DataError("images", "load_dataset", expected=expected, got=f"{files[i]} of {image.shape[1::-1]}")
        images[i] = image

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(place, range(len(files))):
            pass
    return images
