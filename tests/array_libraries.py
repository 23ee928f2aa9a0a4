"""Arrays of every library that refocal takes, and the compilers of torch."""

from __future__ import annotations

import shutil
import sys

import numpy as np
import pytest


def make_torch(array):
    import torch

    return torch.from_numpy(np.array(array))


def make_jax(array):
    import jax.numpy as jnp

    return jnp.asarray(array)


def make_strict(array):
    import array_api_strict

    return array_api_strict.asarray(array)


MAKE = {"numpy": np.asarray, "torch": make_torch, "jax": make_jax, "array_api_strict": make_strict}

# torch's own compiler needs g++, and cannot link where the path of its library has a space in it.
NO_INDUCTOR = shutil.which("g++") is None or " " in sys.prefix
BACKENDS = [
    "aot_eager",
    pytest.param(
        "inductor",
        marks=[pytest.mark.long, pytest.mark.skipif(NO_INDUCTOR, reason="no g++, or a space in the path")],
    ),
]
