"""A data set by its name: where it is looked for, and what to do where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from refocal_paper.datasets.atlas import read_atlases
from refocal_paper.datasets.base import Dataset, DatasetNotFoundError, synthetic
from refocal_paper.datasets.cifar import LAYOUTS, read_cifar
from refocal_paper.datasets.folder import read_folder, read_tiny_imagenet
from refocal_paper.datasets.sources import SOURCES

Candidate = tuple[Path, Callable[[], Dataset]]


def load_dataset(name: str, root: Path) -> Dataset:
    """The data set `name` from below `root`, or "synthetic", which needs no files.

    The first of these that is there is read: atlases in ROOT/NAME; for "cifar10" and "cifar100" the official folder or
    archive in ROOT or ROOT/NAME; for "tinyimagenet" the folder tiny-imagenet-200 there; a folder of images,
    ROOT/NAME/train/CLASS/IMAGE and ROOT/NAME/test/CLASS/IMAGE.
    """
    if name == "synthetic":
        return synthetic()
    candidates = list(_candidates(name, root))
    for sign, read in candidates:
        if sign.exists():
            return read()
    looked = ", ".join(str(sign) for sign, _ in candidates)
    if name in SOURCES:
        advice = f"Get it with: refocal-paper download {name} --data {root}"
    else:
        advice = f"A data set of your own is a folder of {root / name / 'train'}/CLASS/IMAGE and …/test/CLASS/IMAGE."
    raise DatasetNotFoundError(f"No data set {name!r}: looked for {looked}. {advice}")


def _candidates(name: str, root: Path) -> Iterator[Candidate]:
    """What would show that the data set is there, and how it is read then."""
    own = root / name
    yield own / "labels.npz", lambda: read_atlases(own)
    for base in (root, own):
        if name in LAYOUTS:
            for place in (base / LAYOUTS[name].folder, base / LAYOUTS[name].archive):
                yield place, lambda place=place: read_cifar(name, place)  # type: ignore[misc]
        if name == "tinyimagenet":
            folder = base / "tiny-imagenet-200"
            yield folder / "train", lambda folder=folder: read_tiny_imagenet(folder)  # type: ignore[misc]
    if name == "tinyimagenet":
        yield own / "val" / "val_annotations.txt", lambda: read_tiny_imagenet(own)
    yield own / "train", lambda: read_folder(own)
