"""Image data sets as arrays in memory: where they lie, how they are read, how to get them."""

from refocal_paper.datasets.atlas import read_atlas, read_atlases
from refocal_paper.datasets.base import (
    Dataset,
    DatasetNotFoundError,
    Images,
    Labels,
    Split,
    split_rows,
    synthetic,
)
from refocal_paper.datasets.cifar import read_cifar
from refocal_paper.datasets.folder import read_folder, read_tiny_imagenet
from refocal_paper.datasets.load import load_dataset
from refocal_paper.datasets.sources import SOURCES, DownloadError, Source, download, fetch

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
