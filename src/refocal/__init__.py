"""refocal turns the logits of any classifier into probabilities that can be trusted."""

from __future__ import annotations

from importlib.metadata import version

__version__ = version("refocal")
