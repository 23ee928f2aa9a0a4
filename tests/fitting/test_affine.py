"""Scalings against torch's derivatives and scipy's minimisers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.base import clone

from helpers import draw_biased_logits
from refocal import MatrixScaling, VectorScaling
from refocal.engine import Block
from refocal.fitting import affine
from refocal.fitting.affine import MATRIX, Features, Recipe, fit_affine
from refocal.io import blocks, load_sample
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


def masked_rows(seed, n, mask):
    """Rows of a model that is off by a vector, a tenth of their classes ruled out; labels and true probabilities."""
    rng = np.random.default_rng(seed)
    true = 2.0 * rng.normal(size=(n, 10))
    logits = true * np.linspace(1.3, 2.0, 10) + np.linspace(-1.0, 1.0, 10)
    is_masked = rng.random((n, 10)) < 0.1
    is_masked[np.arange(n), true.argmax(axis=1)] = False
    p = softmax(np.where(is_masked, -np.inf, true), axis=1)
    labels = np.minimum((rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1), 9)
    return np.where(is_masked, mask, logits), labels, p


@pytest.mark.parametrize("mask", [-1e9, -np.inf])
@pytest.mark.parametrize("kind", ["logits", "tempered"])
def test_the_gradient_of_a_matrix_of_masked_rows_is_that_of_differences(kind, mask):
    logits, labels, _ = masked_rows(0, 40, mask)
    logits[0, labels[0]] = -1e9  # a label that was ruled out counts with what is left to it
    z = Features(kind, 1.3, 40.0)
    x = 0.1 * np.random.default_rng(1).normal(size=110)
    step = 1e-5

    def log_loss(point):
        return affine._matrix_sums(z, Block(logits, labels), point, exact=True)[0]

    expected = [(log_loss(x + step * e) - log_loss(x - step * e)) / (2.0 * step) for e in np.eye(110)]
    found = affine._matrix_sums(z, Block(logits, labels), x, exact=True)[1:]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("mask", [-1e9, -np.inf])
def test_masked_classes_say_nothing_about_the_others(mask):
    """The excess was 0.015 and 0.027 where masks counted in the features; without masks it is 0.006 and 0.011."""
    logits, labels, _ = masked_rows(0, 3000, mask)
    new, _, p = masked_rows(1, 10_000, mask)
    for calibrator, most in ((VectorScaling(strength=1.0), 0.009), (MatrixScaling(strength=1.0), 0.016)):
        fitted = calibrator.fit(logits, labels)
        log_ratio = np.log(np.where(p > 0.0, p, 1.0)) - np.log(np.where(p > 0.0, fitted.predict_proba(new), 1.0))
        assert (p * log_ratio).sum(axis=1).mean() < most
        single = fitted.predict_proba(new[:500].astype(np.float32))
        np.testing.assert_allclose(single, fitted.chain_.probabilities(new[:500]), atol=2e-6)


def test_masked_rows_in_blocks_have_the_fit_of_memory():
    logits, labels, _ = masked_rows(0, 600, -np.inf)
    parts = blocks([(logits[:250], labels[:250]), (logits[250:], labels[250:])])
    for calibrator in (VectorScaling(strength=1.0), MatrixScaling(strength=1.0)):
        together, apart = (
            calibrator.fit(logits, labels).predict_proba(logits),
            clone(calibrator).fit(parts).predict_proba(logits),
        )
        np.testing.assert_allclose(apart, together, atol=1e-6)
