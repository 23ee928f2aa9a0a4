"""A page to explore with: real logits whose calibration follows sliders, and the maps and losses behind it.

The page computes everything itself; `maps.js` and `logits.js` are the Python of `refocal.maps`, `refocal.theory` and
`refocal.metrics` once more, and the tests hold them together.
"""

from __future__ import annotations

import base64
import os
from typing import Any

import numpy as np

from refocal._files import write_atomically
from refocal._pages import environment
from refocal.io import load_sample
from refocal.theory import CLOSEST_SEARCH, LOGIT_RANGE

__all__ = ["render_page", "write_page"]

# The networks of the first page.
NETWORKS = {
    "cifar10-cross-entropy": "CIFAR-10, trained with cross-entropy",
    "cifar10-focal3": "CIFAR-10, trained with focal loss, γ = 3",
}
# The number of rows of each.
N_ROWS = 1500


def write_page(path: str | os.PathLike[str]) -> None:
    """Write the page, whole or not at all.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_page(f"{folder}/explore.html")
    """
    write_atomically(path, render_page())


def render_page() -> str:
    """The page as text: no network, no other file.

    >>> page = render_page()
    >>> page.startswith("<!doctype html>"), "http://" in page.replace("http://www.w3.org", "")
    (True, False)
    """
    start = {"gamma": 2.0, "temperature": 0.5, "q": 0.35}
    # What the page shares with Python: the logits that are compared, and how the closest temperature is searched.
    settings = {
        "start": start,
        "range": {n: {"depth": depth, "step": step} for n, (depth, step) in LOGIT_RANGE.items() if n in (2, 3)},
        "search": CLOSEST_SEARCH._asdict(),
        "networks": [_network(name, title) for name, title in NETWORKS.items()],
    }
    return environment("explore").get_template("page.html").render(settings=settings) + "\n"


def _network(name: str, title: str) -> dict[str, Any]:
    """Some validation rows of a sample, small enough for the page."""
    rows = load_sample(name)[0]
    logits = np.asarray(rows.values[:N_ROWS], dtype=np.float64)
    labels = np.asarray(rows.labels[:N_ROWS])
    # A constant of a row changes nothing; without it the numbers need fewer bits.
    gaps = np.maximum(logits - logits.max(axis=1, keepdims=True), -63.0)
    scale = 1 / 512  # the unit in which the logits are written
    return {
        "title": title,
        "n_classes": gaps.shape[1],
        "scale": scale,
        "logits": base64.b64encode((gaps / scale).round().astype("<i2").tobytes()).decode(),
        "labels": base64.b64encode(labels.astype(np.uint8).tobytes()).decode(),
    }
