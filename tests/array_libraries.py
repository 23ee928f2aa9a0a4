"""Arrays of every library that refocal takes, and the compilers of torch."""

from __future__ import annotations

import shutil
import sys

import array_api_strict
import jax.numpy as jnp
import numpy as np
import pytest
import torch

MAKE = {
    "numpy": np.asarray,
    "torch": lambda a: torch.from_numpy(np.array(a)),
    "jax": jnp.asarray,
    "array_api_strict": array_api_strict.asarray,
}

# torch's own compiler needs g++, and cannot link where the path of its library has a space in it.
NO_INDUCTOR = shutil.which("g++") is None or " " in sys.prefix
BACKENDS = [
    "aot_eager",
    pytest.param(
        "inductor",
        marks=[pytest.mark.long, pytest.mark.skipif(NO_INDUCTOR, reason="no g++, or a space in the path")],
    ),
]
