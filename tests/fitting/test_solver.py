"""The two minimisers, against scipy's and against what is known of a few functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from refocal.fitting.solver import LBFGS, FirstOrder, Newton, SecondOrder, Tolerance, _cubic_minimum, minimise

pytestmark = pytest.mark.numerics

ROWS = np.random.default_rng(0).normal(size=(30, 4))


def softened(point):
    """A convex function that is not quadratic, with its gradient and Hessian."""
    odds = ROWS @ point
    p = 1.0 / (1.0 + np.exp(-odds))
    value = np.logaddexp(0.0, odds).mean() + 0.05 * point @ point
    gradient = ROWS.T @ p / 30 + 0.1 * point
    hessian = (ROWS.T * (p * (1.0 - p))) @ ROWS / 30 + 0.1 * np.eye(4)
    return value, gradient, hessian


def of_numbers(function):
    """The same function as `Newton` takes it: of a tuple, with lists."""

    def objective(point):
        value, gradient, hessian = function(np.array(point))
        return float(value), gradient.tolist(), hessian.tolist()

    return objective


def first_order(point):
    return softened(point)[:2]


def lbfgs(objective, start, precondition, tolerance):
    return minimise(LBFGS(objective, precondition, tolerance), FirstOrder(start, *objective(start)))


TIGHT = Tolerance(1e-14, 1e-15, 100)


def newton(objective, start, lower, upper, tolerance=TIGHT, longest_step=math.inf):
    solver = Newton(objective, tolerance, lower, upper, longest_step)
    return minimise(solver, solver.evaluate(start))


def test_lbfgs_finds_the_minimum_of_scipy_with_a_poor_estimate_of_the_curvature():
    expected = minimize(first_order, np.ones(4), jac=True, method="BFGS", options={"gtol": 1e-10})
    for curvature in (0.01, 0.3, 10.0):
        end = lbfgs(first_order, 5.0 * np.ones(4), lambda g, c=curvature: g / c, Tolerance(1e-14, 1e-16, 200))
        assert end.has_converged
        assert end.at.value == pytest.approx(expected.fun, abs=1e-12)
        np.testing.assert_allclose(end.at.point, expected.x, atol=1e-5)


def test_lbfgs_ends_after_its_steps_and_where_nothing_is_gained():
    end = lbfgs(first_order, np.ones(4), lambda g: g, Tolerance(1e-14, 0.0, 2))
    assert not end.has_converged
    assert end.at.value < first_order(np.ones(4))[0]
    stuck = lbfgs(lambda x: (1.0, np.ones(2)), np.zeros(2), lambda g: g, Tolerance(1e-9, 0.0, 50))
    assert stuck.has_converged
    assert stuck.passes == 1 + len(LBFGS.SHARES)
    np.testing.assert_array_equal(stuck.at.point, [0.0, 0.0])


@pytest.mark.parametrize("seed", range(8))
def test_newton_finds_the_minimum_of_scipy_within_bounds(seed):
    rng = np.random.default_rng(seed)
    lower = np.where(rng.random(4) < 0.6, rng.uniform(-1.0, 0.5, size=4), -np.inf)
    upper = np.where(rng.random(4) < 0.6, rng.uniform(0.6, 1.0, size=4), np.inf)
    shift = rng.normal(size=4)

    def shifted(point):
        value, gradient, hessian = softened(point)
        return value + shift @ point, gradient + shift, hessian

    bounds = list(zip(lower, upper, strict=True))
    options = {"ftol": 1e-16, "gtol": 1e-11}
    start = np.clip(np.zeros(4), lower, upper)
    expected = minimize(lambda x: shifted(x)[:2], start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    end = newton(of_numbers(shifted), np.zeros(4).tolist(), lower.tolist(), upper.tolist())
    assert end.has_converged
    np.testing.assert_allclose(end.at.point, expected.x, atol=1e-7)
    assert end.at.value <= expected.fun + 1e-12
    is_on_bound = (expected.x == lower) | (expected.x == upper)
    assert end.at_bound == is_on_bound.any()


def saddle(x):
    """(x₁² - 1)² + x₂²: a saddle at the origin, minima at (±1, 0)."""
    a, b = x
    return (a * a - 1.0) ** 2 + b * b, (4.0 * a * (a * a - 1.0), 2.0 * b), ((12.0 * a * a - 4.0, 0.0), (0.0, 2.0))


def test_newton_leaves_a_saddle_downhill():
    end = newton(saddle, (0.1, 1.0), (-9.0, -9.0), (9.0, 9.0), longest_step=1.0)
    np.testing.assert_allclose(end.at.point, [1.0, 0.0], atol=1e-7)
    assert not end.at_bound


def test_newton_keeps_what_is_fixed_and_says_where_it_is_held():
    fixed = newton(saddle, (0.1, 0.5), (-9.0, 0.5), (9.0, 0.5), longest_step=1.0)
    assert fixed.at.point[1] == 0.5
    assert fixed.at.point[0] == pytest.approx(1.0, abs=1e-7)
    assert not fixed.at_bound
    held = newton(saddle, (0.1, 0.5), (-9.0, 0.3), (9.0, 9.0), longest_step=1.0)
    assert held.at.point[1] == 0.3
    assert held.at_bound
    assert newton(saddle, (0.1, 0.5), (0.1, 0.5), (0.1, 0.5)).at.point == (0.1, 0.5)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_step_of_newton_is_that_of_the_absolute_eigenvalues(size):
    rng = np.random.default_rng(size)
    matrix = rng.normal(size=(size, size))
    hessian = matrix + matrix.T
    gradient = rng.normal(size=size)
    far = [9e9] * size
    solver = Newton(lambda x: (0.0, gradient.tolist(), hessian.tolist()), TIGHT, [-x for x in far], far)
    state = solver.init(solver.evaluate([0.0] * size))
    eigenvalues, vectors = np.linalg.eigh(hessian)
    np.testing.assert_allclose(state.step, -(vectors / np.abs(eigenvalues)) @ vectors.T @ gradient, rtol=1e-10)
    assert state.decrement == pytest.approx(-gradient @ np.array(state.step))


def test_the_last_step_takes_no_pass_and_its_value_is_that_of_the_quadratic_model():
    evaluated = []

    def parabola(x):
        evaluated.append(x)
        return 1.0 + 3.0 * x[0] ** 2, (6.0 * x[0],), ((6.0,),)

    end = newton(parabola, (0.01,), (-9.0,), (9.0,), Tolerance(gain=0.0, rounding=0.0, max_steps=9, step=0.05))
    assert (end.at.point, end.has_converged, len(evaluated)) == ((0.0,), True, 1)
    assert end.at.value == pytest.approx(1.0, abs=1e-15)


def test_a_small_step_across_a_bound_is_not_the_last():
    """What is held at the bound changes the step of the other."""
    hessian = ((2.0, 1.9), (1.9, 2.0))

    def tilted(x):
        a, b = x
        value = a * a + 1.9 * a * b + b * b - 0.1 * a
        return value, (2.0 * a + 1.9 * b - 0.1, 1.9 * a + 2.0 * b), hessian

    end = newton(tilted, (0.5, -0.4), (-9.0, -0.45), (9.0, 9.0), Tolerance(gain=1.0, rounding=0.0, max_steps=9))
    np.testing.assert_allclose(end.at.point, [0.4775, -0.45], atol=1e-12)


def test_newton_ends_after_its_steps():
    end = newton(saddle, (5.0, 1.0), (-9.0, -9.0), (9.0, 9.0), Tolerance(1e-14, 0.0, 2))
    assert not end.has_converged
    assert end.n_steps == 2


def test_newton_shortens_a_step_to_where_the_function_overflows():
    def steep(x):
        if x[0] > 2.0:
            return math.inf, (math.inf,), ((math.inf,),)
        return -math.log(2.0 - x[0]) - 5.0 * x[0], (1.0 / (2.0 - x[0]) - 5.0,), ((1.0 / (2.0 - x[0]) ** 2,),)

    assert newton(steep, (0.0,), (-9.0,), (99.0,)).at.point[0] == pytest.approx(1.8, abs=1e-7)


def test_where_a_cubic_is_lowest():
    """X³ - x² - x, whose minimum is at 1, on the way from 0 to 2; and kept within 0.02 … 0.9 of the way."""

    def at(x):
        return SecondOrder((x,), x**3 - x**2 - x, (3.0 * x * x - 2.0 * x - 1.0,), ((0.0,),))

    assert _cubic_minimum(at(0.0), at(2.0)) == pytest.approx(0.5)
    assert _cubic_minimum(at(0.0), at(1.05)) == 0.9
    assert _cubic_minimum(at(0.999), at(9.0)) == 0.02
