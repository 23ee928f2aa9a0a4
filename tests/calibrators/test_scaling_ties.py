"""Weighted rows of equal scores: what cannot matter to a fit does not."""

from __future__ import annotations

import numpy as np
import pytest

import refocal

METHODS = ["AutoCalibration", "MatrixScaling", "VectorScaling", "DirichletCalibration"]


def tied_rows(n_classes, seed):
    """Rounded logits, of which many rows are equal, with labels and weights."""
    rng = np.random.default_rng(seed)
    logits = np.round(4.0 * rng.normal(size=(200, n_classes))) + 0.0
    labels = np.argmax(logits / 2.0 + rng.gumbel(size=logits.shape), axis=1)
    return logits, labels, rng.integers(1, 4, 200).astype(float), rng


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_order_negative_zeros_and_constants_of_rows_do_not_matter(method, n_classes):
    for seed in range(2):
        logits, labels, weight, rng = tied_rows(n_classes, seed)
        new = 4.0 * rng.normal(size=(50, n_classes))

        def predicted(logits, order=slice(None), labels=labels, weight=weight, new=new):
            made = getattr(refocal, method)()
            return made.fit(logits[order], labels[order], sample_weight=weight[order]).predict_proba(new)

        expected = predicted(logits)
        np.testing.assert_allclose(predicted(logits, rng.permutation(200)), expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(predicted(np.where(logits == 0.0, -0.0, logits)), expected, rtol=0, atol=1e-12)
        constants = np.round(4.0 * rng.normal(size=(200, 1)))
        np.testing.assert_allclose(predicted(logits + constants), expected, rtol=0, atol=1e-12)
        last_digits = logits + 0.1 * constants  # which round
        np.testing.assert_allclose(predicted(last_digits), expected, rtol=0, atol=1e-6)
