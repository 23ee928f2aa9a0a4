"""Arrays of every library that refocal takes."""

from __future__ import annotations

import array_api_strict
import jax.numpy as jnp
import numpy as np
import torch

MAKE = {
    "numpy": np.asarray,
    "torch": lambda a: torch.from_numpy(np.array(a)),
    "jax": jnp.asarray,
    "array_api_strict": array_api_strict.asarray,
}
