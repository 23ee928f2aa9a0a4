"""L-BFGS against scipy's minimisers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from refocal.fitting.lbfgs import SHARES, Tolerance, minimise

pytestmark = pytest.mark.numerics


def softened(point):
    """A convex function that is not quadratic, and its gradient."""
    rows = np.random.default_rng(0).normal(size=(30, 4))
    odds = rows @ point
    slope = rows.T @ (1.0 / (1.0 + np.exp(-odds))) / 30 + 0.1 * point
    return np.logaddexp(0.0, odds).mean() + 0.05 * point @ point, slope


def test_lbfgs_finds_the_minimum_of_scipy_with_a_poor_estimate_of_the_curvature():
    expected = minimize(softened, np.ones(4), jac=True, method="BFGS", options={"gtol": 1e-10})
    for curvature in (0.01, 0.3, 10.0):
        found = minimise(softened, 5.0 * np.ones(4), lambda slope, c=curvature: slope / c, Tolerance(1e-14, 1e-16, 200))
        assert found.converged
        assert found.value == pytest.approx(expected.fun, abs=1e-12)
        np.testing.assert_allclose(found.point, expected.x, atol=1e-5)


def test_lbfgs_ends_after_its_steps_and_where_nothing_is_gained():
    found = minimise(softened, np.ones(4), lambda slope: slope, Tolerance(1e-14, 0.0, 2))
    assert not found.converged
    assert found.value < softened(np.ones(4))[0]
    stuck = minimise(lambda x: (1.0, np.ones(2)), np.zeros(2), lambda slope: slope, Tolerance(1e-9, 0.0, 50))
    assert stuck.converged
    assert stuck.passes == 1 + len(SHARES)  # every share of the one step is tried, and then it ends
    np.testing.assert_array_equal(stuck.point, [0.0, 0.0])
