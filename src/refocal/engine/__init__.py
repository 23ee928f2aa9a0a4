"""Data and passes: a Dataset is rows in blocks, and an engine computes a pass over a block."""

from refocal.engine.block import Block, RowPredictions
from refocal.engine.blocked import BlockedDataset
from refocal.engine.dataset import Dataset
from refocal.engine.passes import Partial, Pass, finish, merge, partial

__all__ = ["Block", "BlockedDataset", "Dataset", "Partial", "Pass", "RowPredictions", "finish", "merge", "partial"]
