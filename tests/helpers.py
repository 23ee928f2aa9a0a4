"""What several tests need."""

from __future__ import annotations

import numpy as np
import torch


def to_numpy(array):
    return np.asarray(array.detach() if isinstance(array, torch.Tensor) else array)
