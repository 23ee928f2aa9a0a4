from __future__ import annotations

import os

os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import array_api_strict
import hypothesis
import jax.numpy as jnp
import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # the GPU's passes, step by step on the CPU
torch.set_num_threads(1)
hypothesis.settings.register_profile("steady", deadline=None, max_examples=60, derandomize=True)
hypothesis.settings.load_profile("steady")

MAKE = {
    "numpy": np.asarray,
    "torch": lambda a: torch.from_numpy(np.array(a)),
    "jax": jnp.asarray,
    "array_api_strict": array_api_strict.asarray,
}


@pytest.fixture(params=sorted(MAKE))
def library(request):
    """A function that makes an array of each library out of a NumPy array."""
    return MAKE[request.param]
