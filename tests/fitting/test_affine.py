"""Scalings against torch's derivatives and scipy's minimisers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from helpers import draw_biased_logits
from refocal.engine import Block
from refocal.fitting import affine
from refocal.fitting.affine import MATRIX, Features, Recipe, fit_affine
from refocal.io import load_sample
from refocal.maps import log_softmax

pytestmark = pytest.mark.numerics


def penalised(z, y, weight, recipe):
    """F and its gradient at x = (W - I, b) for features z, written down once more."""
    n, n_classes = z.shape
    ridge = recipe.ridge(float(weight.sum()), n_classes)
    share = weight / weight.sum()

    def value_and_gradient(x):
        w = np.eye(n_classes) + x[:-n_classes].reshape(n_classes, n_classes)
        log_p = log_softmax(z @ w.T + x[-n_classes:])
        error = np.exp(log_p)
        error[np.arange(n), y] -= 1.0
        error *= share[:, None]
        gradient = np.concatenate([(error.T @ z).ravel(), error.sum(axis=0)])
        value = -share @ log_p[np.arange(n), y] + ridge @ x**2
        return value, gradient + 2.0 * ridge * x

    return value_and_gradient


def test_the_hessian_of_a_matrix_is_that_of_torch():
    logits, labels = draw_biased_logits(60, 4)
    weight = np.random.default_rng(1).uniform(0.0, 2.0, 60)
    x = 0.3 * np.random.default_rng(2).normal(size=20)
    z = torch.tensor(log_softmax(logits / 1.3))
    share = torch.tensor(weight / weight.sum())

    def log_loss(parameters):
        scores = z @ (torch.eye(4) + parameters[:16].reshape(4, 4)).T + parameters[16:]
        return share @ torch.nn.functional.cross_entropy(scores, torch.tensor(labels), reduction="none")

    expected = torch.autograd.functional.hessian(log_loss, torch.tensor(x)).numpy()
    features = Features("tempered", 1.3, float(weight.sum()))
    found = affine._matrix_hessian(features, Block(logits, labels, weight), x, 60)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    halves = [Block(logits[part], labels[part], weight[part]) for part in (slice(20), slice(20, None))]
    apart = sum(affine._matrix_hessian(features, half, x, 60) for half in halves)
    np.testing.assert_allclose(apart, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["cifar10-focal3", "cifar10-cross-entropy"])
def test_a_matrix_with_a_weak_ridge_has_the_least_loss_that_scipy_finds(name):
    validation, _ = load_sample(name)
    rows = Block(np.asarray(validation.logits, dtype=np.float64)[:1500], validation.labels[:1500])
    solution = fit_affine(rows, MATRIX, 1.5)
    z = Features("tempered", 1.5).of(rows)
    objective = penalised(z, rows.labels, np.ones(1500), MATRIX)
    least = minimize(objective, np.zeros(110), jac=True, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 1e-15})
    found = np.append((solution.weights - np.eye(10)).ravel(), solution.intercept)
    assert solution.converged
    assert solution.passes < 40
    assert objective(found)[0] < least.fun + 1e-6


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e6])
def test_features_of_any_size_and_absent_classes_converge(scale):
    logits, labels = draw_biased_logits(500, 5)
    logits[:, 1] = logits[:, 0]  # two columns that no row tells apart
    labels[labels == 4] = 0
    rows = Block(scale * logits, labels)
    solution = fit_affine(rows, Recipe("tempered", "matrix", 1e-4, 1e-4), 1.0)
    assert solution.converged
    assert np.isfinite(solution.weights).all()
    objective = penalised(Features("tempered", 1.0).of(rows), labels, np.ones(500), solution.recipe)
    found = np.append((solution.weights - np.eye(5)).ravel(), solution.intercept)
    assert objective(found)[0] <= objective(np.zeros(30))[0]


def test_rows_in_blocks_and_by_the_diagonal_end_at_the_same_matrix(monkeypatch):
    logits, labels = draw_biased_logits(900, 6)
    rows = Block(logits, labels)
    solution = fit_affine(rows, MATRIX, 1.0, accuracy=affine.EXACT)

    def diagonal(z, block, parameters, n_rows):
        return np.diag(affine._matrix_curvature(z, block, n_rows))

    monkeypatch.setattr(affine, "_matrix_hessian", diagonal)
    by_diagonal = fit_affine(rows, MATRIX, 1.0, accuracy=affine.EXACT)
    assert by_diagonal.passes > 2 * solution.passes
    np.testing.assert_allclose(solution.weights, by_diagonal.weights, atol=1e-6)
    np.testing.assert_allclose(solution.intercept, by_diagonal.intercept, atol=1e-6)
