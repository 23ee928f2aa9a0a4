"""What several tests need."""

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


def to_numpy(array):
    return np.asarray(array.detach() if isinstance(array, torch.Tensor) else array)


DARKEST = """
const luminance = (text) => {
  const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((x) => {
    x /= 255; return x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const paper = luminance(getComputedStyle(document.body).backgroundColor);
let worst = [99, ""];
for (const node of document.querySelectorAll("h1, h2, h3, p, td, th, dt, dd, figcaption, label, button, pre, strong")) {
  if (!node.textContent.trim() || !node.offsetParent) continue;
  const ink = luminance(getComputedStyle(node).color);
  const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  if (ratio < worst[0]) worst = [ratio, node.outerHTML.slice(0, 80)];
}
return worst;
"""


def worst_contrast(driver):
    """The lowest contrast of a text with its page, and the text."""
    return driver.execute_script(DARKEST)
