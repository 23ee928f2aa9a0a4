"""Image data sets as arrays in memory: where they lie, how they are read, how to get them."""

from refocal.experiments.datasets.atlas import read_atlas, read_atlases
from refocal.experiments.datasets.base import (
    Dataset,
    DatasetNotFoundError,
    Images,
    Labels,
    Split,
    split_rows,
    synthetic,
)
from refocal.experiments.datasets.cifar import read_cifar
from refocal.experiments.datasets.folder import read_folder, read_tiny_imagenet
from refocal.experiments.datasets.load import load_dataset
from refocal.experiments.datasets.sources import SOURCES, DownloadError, Source, download, fetch

__all__ = [
    "SOURCES",
    "Dataset",
    "DatasetNotFoundError",
    "DownloadError",
    "Images",
    "Labels",
    "Source",
    "Split",
    "download",
    "fetch",
    "load_dataset",
    "read_atlas",
    "read_atlases",
    "read_cifar",
    "read_folder",
    "read_tiny_imagenet",
    "split_rows",
    "synthetic",
]
