from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

import array_api_strict as strict
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import refocal.decide as rd
import refocal.metrics as rm
from refocal.decomposition import log_loss_decomposition
from refocal.errors import DataError, InputError, LabelError, ParameterError, ShapeError
from refocal.io import Predictions
from refocal.metrics.inputs import SUM_TOLERANCE
from refocal.segments import find_segments

pytestmark = [pytest.mark.core, pytest.mark.numerics]

MEASURES = [
    rm.accuracy,
    rm.brier_decomposition,
    rm.brier_score,
    rm.classwise_ece,
    rm.corp_reliability,
    rm.debiased_ece,
    rm.ece_sweep,
    rm.expected_calibration_error,
    rm.ks_calibration_error,
    rm.reliability_band,
    rm.reliability_curve,
    rm.smooth_ece,
    rm.spiegelhalter_test,
]
P = np.array([[0.2, 0.8], [0.6, 0.4], [0.9, 0.1]])
Y = np.array([1, 0, 1])


@pytest.mark.parametrize("measure", MEASURES)
def test_extended_precision_is_computed_in_double(measure):
    expected, found = measure(Y, P), measure(Y, P.astype(np.longdouble))
    assert repr(found) == repr(expected)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(
    ("y", "p", "weight", "error"),
    [
        (Y, np.where(P == 0.9, np.nan, P), None, DataError),
        (Y, P + 0.01, None, DataError),
        (Y, P * [[1.5, 0.875]], None, DataError),
        (Y, np.array([[-0.2, 1.2], [0.5, 0.5], [0.5, 0.5]]), None, DataError),
        (Y, np.array([0.1, 0.2, 1.2]), None, DataError),
        (Y, np.array([0.1, 0.2, np.nan]), None, DataError),
        (Y, np.array([0.1, 0.2, np.inf]), None, DataError),
        (Y, P, [1, 1, -1], DataError),
        (Y, P, [0, 0, 0], DataError),
        (Y, P, [1, 1, np.nan], DataError),
        (Y, P, [1, 1], ShapeError),
        ([], np.empty((0, 2)), None, ShapeError),
        ([], np.empty(0), None, ShapeError),
        (Y[:2], P, None, ShapeError),
        (Y, P[:, :1], None, ShapeError),
        (Y, P[:2, 0], None, ShapeError),
        ([0, 1, 2], P, None, LabelError),
        ([0, 1, -1], P, None, LabelError),
        ([0, 1, 2], P[:, 1], None, LabelError),
        ([0.0, 0.5, 1.0], P, None, LabelError),
        ([0.0, 0.5, 1.0], P[:, 1], None, LabelError),
        (["a", "b", "a"], P, None, LabelError),
        (Y, P.astype(complex), None, DataError),
    ],
)
def test_bad_input_is_a_typed_error(measure, y, p, weight, error):
    with pytest.raises(error, match=rf"The '\w+' of {measure.__name__} must be .+ Got .+ instead\.") as caught:
        measure(y, p, sample_weight=weight)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "log_p",
    [np.log(P) + 0.01, np.where(P == 0.9, np.nan, np.log(P)), np.full((3, 2), -np.inf), 10 * P],
    ids=["does not sum to 1", "NaN", "never", "logits"],
)
def test_log_loss_wants_log_probabilities(log_p):
    with pytest.raises(DataError, match="'log_probabilities' of log_loss"):
        rm.log_loss(Y, log_p)


@pytest.mark.parametrize(("log_p", "got"), [([-1.0, 0.5], "a value of 0.5"), ([-1.0, np.nan], "NaN")])
def test_what_was_wrong_is_said(log_p, got):
    with pytest.raises(DataError, match=f"free of NaN and at most 0. Got {got} instead"):
        rm.log_loss([0, 1], log_p)
    with pytest.raises(DataError, match=r"Got a value of -0\.5 instead"):
        rm.brier_score([0, 1], [0.5, -0.5])


def test_the_tolerance_of_one_probability_is_what_is_said():
    assert rm.brier_score([1], [1.0 + SUM_TOLERANCE]) == 0.0
    with pytest.raises(DataError, match="at most 1"):
        rm.brier_score([1], [np.nextafter(1.0 + SUM_TOLERANCE, 2.0)])


@pytest.mark.parametrize(
    ("measure", "option"),
    [
        (rm.expected_calibration_error, {"n_bins": 0}),
        (rm.expected_calibration_error, {"n_bins": 2.5}),
        (rm.expected_calibration_error, {"n_bins": True}),
        (rm.expected_calibration_error, {"strategy": "kmeans"}),
        (rm.expected_calibration_error, {"norm": "l3"}),
        (rm.expected_calibration_error, {"kind": "event"}),
        (rm.classwise_ece, {"n_bins": -1}),
        (rm.debiased_ece, {"norm": "max"}),
        (rm.ece_sweep, {"norm": "linf"}),
        (rm.reliability_curve, {"n_bins": 0}),
        (rm.reliability_curve, {"strategy": "kmeans"}),
        (rm.reliability_curve, {"level": 1.0}),
        (rm.reliability_curve, {"level": 95}),
        (rm.reliability_band, {"kind": "both"}),
        (rm.reliability_band, {"n_bins": 0}),
        (rm.brier_decomposition, {"method": "bins"}),
        (rm.smooth_ece, {"bandwidth": 0.0}),
        (rm.smooth_ece, {"bandwidth": "auto"}),
    ],
)
def test_bad_options_are_typed_errors(measure, option):
    with pytest.raises(ParameterError, match=f"'{next(iter(option))}' of {measure.__name__}"):
        measure(Y, P, **option)


def test_probabilities_off_by_rounding_are_accepted():
    p = P.astype(np.float16)
    assert rm.brier_score(Y, p) == pytest.approx(rm.brier_score(Y, P), abs=1e-3)
    assert rm.expected_calibration_error([1], [[-1e-9, 1.0000001]]) == 0.0
    assert rm.expected_calibration_error([1], [1.0000001]) == 0.0


@pytest.mark.parametrize("measure", [*MEASURES, rm.log_loss])
@pytest.mark.parametrize(
    "kind", ["torch64", "torch32", "bfloat16", "grad", "list", "pixels", "int8 labels", "big endian", "jax", "strict"]
)
def test_arrays_of_every_kind(measure, kind):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 60).astype(np.float32)
    if kind == "bfloat16":
        # Sixteenths are exact in half precision, so that every kind must agree to rounding.
        p = rng.multinomial(16, np.full(4, 0.25), 60).astype(np.float32) / 16
        p[p.min(axis=1) == 0] = 0.25
    y, w = rng.integers(0, 4, 60), rng.integers(1, 4, 60)
    p64 = p.astype(np.float64)
    if measure is rm.log_loss:
        p64 = np.log(p64)
    p64 = p64.astype(np.float32).astype(np.float64) if kind in ("torch32", "grad") else p64
    if kind == "bfloat16":
        p64 = torch.asarray(p64).to(torch.bfloat16).to(torch.float64).numpy()
    given = {
        "torch64": lambda: (torch.asarray(y), torch.asarray(p64), torch.asarray(w)),
        "torch32": lambda: (torch.asarray(y), torch.asarray(p64, dtype=torch.float32), torch.asarray(w)),
        "bfloat16": lambda: (torch.asarray(y), torch.asarray(p64).to(torch.bfloat16), torch.asarray(w)),
        "grad": lambda: (y, torch.asarray(p64, dtype=torch.float32).requires_grad_(), w),
        "list": lambda: (y.tolist(), p64.tolist(), w.tolist()),
        "pixels": lambda: (y.reshape(3, 4, 5), p64.reshape(3, 4, 5, 4), w.reshape(3, 4, 5)),
        "int8 labels": lambda: (y.astype(np.int8), np.asfortranarray(p64), w.astype(np.float32)),
        "jax": lambda: (jnp.asarray(y), jnp.asarray(p64), jnp.asarray(w)),
        "strict": lambda: (strict.asarray(y), strict.asarray(p64), strict.asarray(w)),
        "big endian": lambda: (y.astype(">i4"), p64.astype(">f8"), w),
    }[kind]()
    got = measure(given[0], given[1], sample_weight=given[2])
    # Rows of rounded log-probabilities sum to 1 only as far as bfloat16 goes, so float64 would be refused.
    rounded = kind == "bfloat16" and measure is rm.log_loss
    expected = -np.average(p64[np.arange(60), y], weights=w) if rounded else measure(y, p64, sample_weight=w)
    expected, got = (asdict(x) if not isinstance(x, float) else {"value": x} for x in (expected, got))
    for name, value in expected.items():
        if isinstance(value, str):
            assert got[name] == value
        else:
            np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-12)


LOGITS_OF_KIND = {
    "torch64": torch.asarray,
    "torch32": lambda logits: torch.asarray(logits, dtype=torch.float32),
    "torch16": lambda logits: torch.asarray(logits, dtype=torch.float16),
    "bfloat16": lambda logits: torch.asarray(logits, dtype=torch.bfloat16),
    "grad": lambda logits: torch.asarray(logits, dtype=torch.float32).requires_grad_(),
    "numpy16": lambda logits: logits.astype(np.float16),
    "jax": lambda logits: jnp.asarray(logits, dtype=jnp.float32),
}


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("kind", LOGITS_OF_KIND)
def test_predictions_of_every_kind(kind, n_classes):
    """As `collect_logits` makes them. Those of bfloat16 were refused, or their probabilities rounded to eight bits."""
    rng = np.random.default_rng(0)
    # Eighths below 16 are exact in every kind, so that all have the same logits.
    logits = rng.integers(-40, 40, size=(200, n_classes)) / 8.0
    labels = np.argmax(logits / 2.0 + rng.gumbel(size=logits.shape), axis=1)
    rows = Predictions.from_logits(LOGITS_OF_KIND[kind](logits), labels)
    exact = Predictions.from_logits(logits, labels)
    for measure in (*MEASURES, rm.log_loss):
        got, expected = (measure(each) for each in (rows, exact))
        got, expected = ({"value": x} if isinstance(x, float) else asdict(x) for x in (got, expected))
        for name, value in expected.items():
            if isinstance(value, str):
                assert got[name] == value
            else:
                np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-5, err_msg=measure.__name__)
    costs = 1.0 - np.eye(n_classes)
    found, expected_cost = (rd.evaluate_decisions(each, None, costs).cost.value for each in (rows, exact))
    assert found == pytest.approx(expected_cost, abs=1e-12)
    first, second = (rm.paired_bootstrap("brier_score", None, each, each).first for each in (rows, exact))
    assert first == pytest.approx(second, abs=1e-6)


VECTORS = {
    "numpy": np.asarray,
    "torch": torch.asarray,
    "jax": jnp.asarray,
    "pandas": pd.Series,
    "polars": pl.Series,
    "list": np.ndarray.tolist,
}
TABLES = {**VECTORS, "pandas": pd.DataFrame, "polars": pl.DataFrame}


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("vector", VECTORS)
def test_labels_probabilities_and_weights_of_different_libraries(vector, table):
    """Sixteenths are exact in every library, so that all must agree to the last digits."""
    rng = np.random.default_rng(0)
    p, y = 1 + rng.multinomial(13, np.full(3, 1 / 3), 60), rng.integers(0, 3, 60)
    p, w = p / 16, rng.integers(1, 4, 60).astype(float)
    mixed = VECTORS[vector](y), TABLES[table](p)
    for measure in MEASURES:
        for weight in (None, *(VECTORS[name](w) for name in ("torch", vector))):
            expected = measure(y, p, sample_weight=None if weight is None else w)
            assert repr(measure(*mixed, sample_weight=weight)) == repr(expected)
    for values in (TABLES[table](p), VECTORS[vector](p[:, 0])):
        labels = VECTORS[vector](y if np.ndim(values) == 2 else (y == 0).astype(int))
        expected = (y, p) if np.ndim(values) == 2 else ((y == 0).astype(int), p[:, 0])
        found = rm.CalibrationHistogram().update(labels, values, sample_weight=VECTORS[vector](w)).compute()
        assert found == rm.CalibrationHistogram().update(*expected, sample_weight=w).compute()
    interval = rm.bootstrap_interval(rm.brier_score, *mixed, n_resamples=20, sample_weight=torch.asarray(w))
    assert interval == rm.bootstrap_interval(rm.brier_score, y, p, n_resamples=20, sample_weight=w)
    paired = rm.paired_bootstrap(rm.brier_score, *mixed, np.full_like(p, 1 / 3), n_resamples=20)
    assert paired == rm.paired_bootstrap(rm.brier_score, y, p, np.full_like(p, 1 / 3), n_resamples=20)
    assert rm.log_loss(mixed[0], TABLES[table](np.log(p))) == pytest.approx(rm.log_loss(y, np.log(p)), abs=1e-6)


def test_log_loss_given_probabilities_says_which_function_is_missing():
    for p in (P, P[:, 1], torch.asarray(P)):
        with pytest.raises(DataError, match=r"np\.log\(probabilities\)"):
            rm.log_loss(Y, p)
    with pytest.raises(DataError) as caught:
        rm.log_loss(Y, 10 * P)
    assert "np.log" not in str(caught.value)


def test_binary_arrays_with_leading_axes():
    rng = np.random.default_rng(0)
    p, y = rng.random((4, 5, 6)), rng.integers(0, 2, (4, 5, 6))
    assert rm.expected_calibration_error(y, p) == rm.expected_calibration_error(y.ravel(), p.ravel())
    assert rm.expected_calibration_error(y.astype(bool), torch.asarray(p)) == rm.expected_calibration_error(y, p)


def _image_metrics():
    """Every public function of labels and probabilities, by name, as one of y, p and options."""
    metrics = {name: record.function for name, record in rm.METRICS.items()}
    others = (rm.reliability_curve, rm.reliability_band, rm.mean_bias_interval)
    brier = {
        "bootstrap_interval": lambda y, p, **how: rm.bootstrap_interval(rm.brier_score, y, p, n_resamples=20, **how),
        "resample": lambda y, p, **how: rm.resample(rm.brier_score, y, p, n_resamples=20, **how).draws,
        "paired_bootstrap": lambda y, p, **how: rm.paired_bootstrap(rm.brier_score, y, p, p, n_resamples=20, **how),
        "squared_ece_difference": lambda y, p, **how: rm.squared_ece_difference(y, p, p, **how),
        "histogram": lambda y, p, **how: rm.CalibrationHistogram().update(y, p, **how).compute(),
        "set_coverage": lambda y, p, **how: rm.set_coverage(
            y, np.moveaxis(p > 0.3, 1, -1) if p.ndim > 2 else p > 0.3, **how
        ),
        "log_loss_decomposition": lambda y, p, **how: log_loss_decomposition(
            y, np.log(np.moveaxis(p, 1, -1) if p.ndim > 2 else p), **how
        ),
    }
    return {**metrics, **{function.__name__: function for function in others}, **brier}


IMAGE_METRICS = _image_metrics()


@pytest.mark.parametrize("name", IMAGE_METRICS)
def test_pixels_without_a_label_are_left_out(name):
    """Images (N, C, H, W) with 255 and -1 in their masks against the rows that are left, picked by hand."""
    measure, record = IMAGE_METRICS[name], rm.METRICS.get(name)
    n_classes = 2 if name == "mean_bias_interval" or (record is not None and record.two_classes) else 3
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(n_classes), (2, 6, 5))
    masks, weight = rng.integers(n_classes, size=(2, 6, 5)), rng.random((2, 6, 5))
    masks[:, 0], masks[:, :, 4] = 255, -1
    kept = (masks != 255) & (masks != -1)
    takes_logs = record is not None and record.takes_logs
    values = np.log(p) if takes_logs else p
    expected = measure(masks[kept], values[kept], sample_weight=weight[kept])
    images = np.moveaxis(values, -1, 1).copy()
    images[:, :, 0] = np.nan  # what stands there does not matter
    assert repr(measure(masks, images, sample_weight=weight, ignore_index=(255, -1))) == repr(expected)
    with pytest.raises(LabelError, match=r"255|-1 names no class.*ignore_index="):
        measure(masks, np.moveaxis(values, -1, 1), ignore_index=None)
    with pytest.raises(ParameterError, match="'ignore_index' of"):
        measure(masks, images, ignore_index="255")


def test_labels_without_any_row_left_are_refused():
    with pytest.raises(LabelError, match=r"at least one row that 'ignore_index' does not leave out. Got 3 labels"):
        rm.brier_score([255, 255, 255], P, ignore_index=255)


def test_binary_masks_without_a_label_are_left_out():
    rng = np.random.default_rng(0)
    p, masks = rng.random((2, 4, 5)), rng.integers(2, size=(2, 4, 5))
    masks[0] = 255
    assert rm.smooth_ece(masks, torch.asarray(p), ignore_index=255) == rm.smooth_ece(masks[1], p[1])


def test_classes_that_could_lie_on_two_axes_are_refused_as_those_of_predictions_are():
    p = np.random.default_rng(0).dirichlet(np.ones(3), (2, 3))
    labels = np.zeros((2, 3), int)
    text = "fit classes on axis 1 and on the last"
    with pytest.raises(ShapeError, match=text):
        rm.accuracy(labels, p)
    with pytest.raises(ShapeError, match=text):
        Predictions.from_probabilities(p, labels)
    assert rm.accuracy(labels.ravel(), p.reshape(-1, 3)) == np.mean(p.argmax(-1) == 0)


@pytest.mark.parametrize("measure", [*MEASURES, rm.log_loss])
def test_inputs_are_left_alone(measure):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 50)
    p = np.log(p) if measure is rm.log_loss else p
    y, w = rng.integers(0, 3, 50), rng.random(50)
    copies = y.copy(), p.copy(), w.copy()
    for array in (y, p, w):
        array.flags.writeable = False
    measure(y, p, sample_weight=w)
    for array, copy in zip((y, p, w), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_one_probability_is_left_alone():
    rng = np.random.default_rng(0)
    p, y = rng.random(50), rng.integers(0, 2, 50)
    copies = p.copy(), y.copy()
    p.flags.writeable = y.flags.writeable = False
    for measure in MEASURES:
        measure(y, p)
    np.testing.assert_array_equal(p, copies[0])
    np.testing.assert_array_equal(y, copies[1])


@pytest.mark.parametrize("measure", MEASURES)
def test_results_are_json(measure):
    result = measure(Y, P)
    text = json.dumps(result if isinstance(result, float) else asdict(result))
    assert isinstance(text, str)


@pytest.mark.slow
def test_import_stays_light():
    code = (
        "import sys, refocal.metrics; print([m for m in ('torch','sklearn','scipy','matplotlib') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert out.stdout.strip() == "[]"


def test_errors_are_input_errors():
    with pytest.raises(InputError):
        rm.accuracy(Y, P[:2])


def test_what_is_no_table_of_sets_is_refused():
    for sets, error in (([1, 0], ShapeError), (np.ones((2, 1)), ShapeError), ([[0.2, 1.0], [1.0, 0.0]], DataError)):
        with pytest.raises(error, match="The 'sets' of set_coverage must be"):
            rm.set_coverage([0, 1], sets)
    with pytest.raises(LabelError, match="The 'y_true' of set_coverage must be labels"):
        rm.set_coverage(Predictions.from_logits(3.0 * np.eye(2), [0, 1]), np.ones((2, 2)))


SETS = [[True, False], [True, True], [False, True], [True, True]]


@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("bootstrap_interval", lambda y, p, c: rm.bootstrap_interval("accuracy", y, p, clusters=c)),
        ("bootstrap_interval", lambda y, p, c: rm.bootstrap_interval("roc_auc", y, p, clusters=c)),
        ("paired_bootstrap", lambda y, p, c: rm.paired_bootstrap("brier_score", y, p, p**2, clusters=c)),
        ("squared_ece_difference", lambda y, p, c: rm.squared_ece_difference(y, p, p**2, clusters=c)),
        ("mean_bias_interval", lambda y, p, c: rm.mean_bias_interval(y, p, clusters=c)),
        ("flexible_curve", lambda y, p, c: rm.flexible_curve(y, p, clusters=c)),
        ("reliability_curve", lambda y, p, c: rm.reliability_curve(y, p, clusters=c)),
        ("reliability_band", lambda y, p, c: rm.reliability_band(y, p, clusters=c)),
        ("risk_at_coverage", lambda y, p, c: rm.risk_at_coverage(y, p, coverage=0.5, clusters=c)),
        ("coverage_at_risk", lambda y, p, c: rm.coverage_at_risk(y, p, risk=0.5, clusters=c)),
        ("set_coverage", lambda y, p, c: rm.set_coverage(y, SETS, clusters=c)),
        ("evaluate_decisions", lambda y, p, c: rd.evaluate_decisions(y, p, [[0, 1], [1, 0]], clusters=c)),
        ("automation_curve", lambda y, p, c: rd.automation_curve(y, p, clusters=c)),
        ("net_benefit_curve", lambda y, p, c: rd.net_benefit_curve(y, p, clusters=c)),
        ("predictive_values", lambda y, p, c: rd.predictive_values(y, p, threshold=0.5, clusters=c)),
        ("find_segments", lambda y, p, c: find_segments(y, p, {"age": [1, 2, 3, 4]}, clusters=c)),
    ],
)
def test_a_single_cluster_has_no_interval(function, call):
    y = np.array([0, 1, 1, 0])
    p = np.array([0.2, 0.4, 0.8, 0.6])
    with pytest.raises(DataError, match=f"'clusters' of {function} must be of at least two different ones"):
        call(y, p, ["a"] * 4)
    call(y, p, ["a", "a", "b", "b"])


def test_a_single_row_says_nothing_about_a_ratio():
    """Its interval is the whole range, as that of other metrics, not one that begins at NaN."""
    found = rm.bootstrap_interval("observed_expected", [1], [0.3])
    assert (found.low, found.high) == (0.0, np.inf)
