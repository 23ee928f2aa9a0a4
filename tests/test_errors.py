"""Bad input gets a typed error that names the argument, what was expected and what came."""

from __future__ import annotations

import pickle

import numpy as np
import polars as pl
import pytest

from helpers import to_numpy
from refocal import losses, maps
from refocal.errors import DataError, InputError, LabelError, ParameterError, RefocalError, ShapeError

pytestmark = pytest.mark.core

GOOD = np.zeros((2, 3))
MAPS = {
    "log_softmax": lambda x: maps.log_softmax(x),
    "focal": lambda x: maps.focal(x, 1.0),
    "focal_temperature": lambda x: maps.focal_temperature(x, 1.0, 1.0),
    "inverse_focal": lambda x: maps.inverse_focal(x, 1.0),
    "label_derivatives": lambda x: maps.label_derivatives(x, np.zeros(2, int), 1.0, 1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize(
    ("row", "got"),
    [
        ([np.nan, 0.0, 0.0], "NaN in row 1"),
        ([np.inf, 0.0, 0.0], r"\+inf in row 1"),
        ([-np.inf, -np.inf, -np.inf], "only -inf in row 1"),
        ([np.nan, np.inf, 0.0], "NaN in row 1"),
    ],
)
def test_logits_that_cannot_be_normalised(name, row, got, library):
    x = library(np.array([[0.0, 1.0, 2.0], row]))
    with pytest.raises(DataError, match=f"of {name} must be free of NaN and .*Got {got}"):
        MAPS[name](x)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize(
    ("values", "error", "got"),
    [
        (3.0, ShapeError, r"shape \(\)"),
        (np.zeros((2, 1)), ShapeError, r"shape \(2, 1\)"),
        ([[1.0, 2.0], [3.0]], ShapeError, "rows of different lengths"),
        (np.zeros((2, 3), complex), DataError, "dtype complex128"),
        (np.array([["a", "b"]]), DataError, "dtype <U1"),
        (np.zeros((2, 3), bool), DataError, "dtype bool"),
        (None, DataError, "dtype object, of the type NoneType instead"),
        (pl.LazyFrame({"a": [1.0], "b": [2.0]}), DataError, r"of the type LazyFrame; call \.collect\(\) instead"),
    ],
)
def test_things_that_are_not_logits(name, values, error, got):
    with pytest.raises(error, match=got):
        MAPS[name](values)


@pytest.mark.parametrize("gamma", [-1.0, -2.0, np.nan, np.inf, "2", None, True, [0.0, -1.0], np.array([1.0, -3.0])])
def test_gamma_outside_its_domain(gamma):
    for call in (
        lambda: maps.focal(GOOD, gamma),
        lambda: maps.inverse_focal(GOOD, gamma),
        lambda: maps.focal_temperature(GOOD, gamma, 1.0),
        lambda: losses.focal(GOOD, np.zeros(2, int), gamma),
        lambda: losses.proper_focal(GOOD, np.zeros(2, int), gamma),
    ):
        with pytest.raises(ParameterError, match=r"The 'gamma' of .* must be .*finite and greater than -1"):
            call()


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, np.inf, "hot", {}])
def test_temperature_outside_its_domain(temperature):
    with pytest.raises(ParameterError, match=r"The 'temperature' of log_softmax must be .*greater than 0. Got"):
        maps.log_softmax(GOOD, temperature)
    with pytest.raises(ParameterError, match="The 'temperature' of focal_temperature"):
        maps.focal_temperature(GOOD, 1.0, temperature)


def test_parameters_of_the_wrong_shape():
    with pytest.raises(ShapeError, match=r"a number or an array of shape \(2,\). Got shape \(3,\)"):
        maps.focal(GOOD, np.ones(3))


@pytest.mark.parametrize(
    ("labels", "error", "words"),
    [
        ([0, 3], LabelError, "between 0 and 2. Got labels from 0 to 3"),
        (
            [-1, 0],
            LabelError,
            "between 0 and 2; -1 names no class: leave such rows out.* Got labels from -1 to 0",
        ),
        ([0.0, 0.5], LabelError, "integers or other whole numbers. Got Unknown label type"),
        ([0.0, 1.0j], DataError, "real"),
        ([0, 1, 2], ShapeError, r"of shape \(2,\), one label for each row of logits. Got shape \(3,\)"),
        ([[0, 1]], ShapeError, r"Got shape \(1, 2\)"),
        (["cat", "dog"], DataError, "an array of numbers"),
    ],
)
def test_labels(labels, error, words):
    for call in (losses.cross_entropy, losses.brier, losses.sample_dependent_focal):
        with pytest.raises(error, match=f"The 'labels' of {call.__name__} must be .*{words}"):
            call(GOOD, labels)


@pytest.mark.slow
def test_labels_of_any_integer_type(library):
    logits = library(np.array([[1.0, 0.0], [0.0, 1.0]]))
    for dtype in (np.uint8, np.int16, np.int64):
        got = losses.cross_entropy(logits, library(np.array([0, 1], dtype)))
        np.testing.assert_allclose(to_numpy(got), np.log1p(np.exp(-1.0)), rtol=1e-12)
    np.testing.assert_allclose(to_numpy(losses.cross_entropy(logits, [0, 1])), np.log1p(np.exp(-1.0)), rtol=1e-12)


def test_errors_can_be_caught_broadly_and_travel_between_processes():
    with pytest.raises(ValueError, match="gamma") as caught:
        maps.focal(GOOD, -1.0)
    error = caught.value
    assert isinstance(error, InputError)
    assert isinstance(error, RefocalError)
    assert (error.argument, error.function, error.got) == ("gamma", "focal", "-1.0")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copy) is ParameterError
    assert str(copy) == str(error) == "The 'gamma' of focal must be finite and greater than -1. Got -1.0 instead."
