"""Updates with a prior: against a general optimiser, the stream against one fit, the design effect by simulation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from refocal import FocalCalibration, TemperatureScaling
from refocal.errors import LabelError, ParameterError, ShapeError
from refocal.io import Predictions
from refocal.metrics import calibration_slope
from refocal.shift import OnlineUpdate, update
from refocal.shift.correction import LEAST_SLOPE, Correction, Prior, design_effect, fit_correction


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    logits = rng.normal(0.0, 2.0, size=(500, 3))
    labels = np.argmax(0.7 * logits + [0.0, 0.8, -0.4] + rng.gumbel(size=logits.shape), axis=1)
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True), labels


def minus_log_posterior(x, log_p, labels, weight, start, prior):
    scores = x[3] * log_p + x[:3]
    terms = np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(labels)), labels]
    moved = np.sum((x[:3] - start.intercept) ** 2) / (2 * prior.intercept**2)
    return weight @ terms + moved + (x[3] - start.slope) ** 2 / (2 * prior.slope**2)


def test_a_correction_is_that_of_largest_posterior(rows):
    log_p, labels = rows
    weight = np.random.default_rng(1).random(500)
    start = Correction(0.9, np.array([0.1, -0.1, 0.0]))
    prior = Prior(0.4, 0.1)
    arguments = (log_p, labels, weight, start, prior)
    found = fit_correction(*arguments)
    best = minimize(minus_log_posterior, [0.0, 0.0, 0.0, 1.0], arguments, tol=1e-10).x
    assert found.slope == pytest.approx(best[3], abs=1e-4)
    np.testing.assert_allclose(found.intercept, best[:3] - best[:3].mean(), atol=1e-4)
    only = fit_correction(*arguments, intercept_only=True)
    assert only.slope == 0.9
    fixed = minimize(lambda a: minus_log_posterior(np.append(a, 0.9), *arguments), [0.0, 0.0, 0.0], tol=1e-10).x
    np.testing.assert_allclose(only.intercept, fixed - fixed.mean(), atol=1e-4)


def test_beside_a_slope_at_its_bound_the_intercepts_are_best(rows):
    """Scores that say the opposite of what is true: the slope would be below 0."""
    log_p, _ = rows
    rng = np.random.default_rng(2)
    labels = np.argmax(-0.5 * log_p + [0.0, 1.5, -0.5] + rng.gumbel(size=log_p.shape), axis=1)
    arguments = (log_p, labels, np.ones(500), Correction.none(3), Prior())
    found = fit_correction(*arguments)
    bounds = [(None, None)] * 3 + [(LEAST_SLOPE, None)]
    best = minimize(minus_log_posterior, [0.0, 0.0, 0.0, 1.0], arguments, "L-BFGS-B", bounds=bounds, tol=1e-12).x
    assert found.slope == best[3] == LEAST_SLOPE
    np.testing.assert_allclose(found.intercept, best[:3] - best[:3].mean(), atol=1e-3)


def test_few_rows_move_little_and_many_arrive(rows):
    log_p, labels = rows
    none = Correction.none(3)
    few = fit_correction(log_p[:5], labels[:5], np.ones(5), none, Prior())
    assert np.max(np.abs(few.intercept)) < 0.6
    many = fit_correction(np.tile(log_p, (40, 1)), np.tile(labels, 40), np.ones(20000), none, Prior())
    assert many.slope == pytest.approx(0.7, abs=0.1)


def test_an_updated_calibrator_applies_the_correction_behind_its_own_steps(rows):
    log_p, labels = rows
    calibrator = TemperatureScaling().fit(
        log_p, np.argmax(log_p + np.random.default_rng(2).gumbel(size=log_p.shape), 1)
    )
    updated = update(calibrator, Predictions.from_logits(log_p, labels))
    note = updated.fit_report_["updated"]
    expected = Correction(note["slope"], np.array(note["intercept"])).apply(calibrator.predict_log_proba(log_p))
    np.testing.assert_allclose(updated.predict_log_proba(log_p), expected, rtol=1e-6, atol=1e-9)
    again = update(calibrator, log_p, labels)
    np.testing.assert_array_equal(again.predict_proba(log_p), updated.predict_proba(log_p))
    with pytest.raises(ParameterError, match="'labels' of update must be given"):
        update(calibrator, log_p)
    with pytest.raises(ShapeError, match="'clusters' of update"):
        update(calibrator, log_p, labels, clusters=[1, 2])


def test_an_updated_calibrator_adapts_from_the_shares_of_its_new_rows(rows):
    """It began at those of the first fit, which its probabilities no longer stand for."""
    log_p, labels = rows
    first_labels = np.argmax(log_p + np.random.default_rng(1).gumbel(size=log_p.shape), axis=1)
    updated = update(TemperatureScaling().fit(log_p, first_labels), log_p, labels)
    means = updated.predict_proba(log_p).mean(axis=0)
    np.testing.assert_allclose(updated.adapt(shares=[0.2, 0.3, 0.5])[1].shares_of_fit, means, rtol=1e-5)


def test_an_updated_calibrator_knows_how_far_its_probabilities_are_still_too_extreme():
    """Of few rows the prior leaves some of it, and where only the intercept moves all of it stays."""
    rng = np.random.default_rng(5)
    log_odds = 4.0 * rng.normal(size=2000)
    labels = (rng.random(2000) < 1.0 / (1.0 + np.exp(-0.25 * log_odds))).astype(int)
    calibrator = FocalCalibration(gamma=0.0, input="log-odds").fit(log_odds[:1000], labels[:1000])
    slope_of_fit = calibrator.fit_report_["mean_probabilities"]["slope"]
    assert slope_of_fit < 0.4
    for intercept_only in (True, False):
        updated = update(calibrator, log_odds[1000:1200], labels[1000:1200], intercept_only=intercept_only)
        slope = updated.fit_report_["mean_probabilities"]["slope"]
        event = updated.predict_proba(log_odds[1000:1200])[:, 1]
        expected = slope_of_fit if intercept_only else calibration_slope(labels[1000:1200], event)
        assert slope == pytest.approx(expected, abs=0.02)


def test_rows_that_share_a_day_count_less():
    rng = np.random.default_rng(3)
    for sd in (0.0, 0.5):
        effects = []
        for _ in range(20):
            p = rng.beta(2, 3, (30, 100))
            q = 1 / (1 + np.exp(-np.log(p / (1 - p)) - sd * rng.normal(size=(30, 1))))
            y = (rng.random(p.shape) < q).astype(int).ravel()
            log_p = np.log(np.stack([1 - p.ravel(), p.ravel()], axis=1))
            effects.append(design_effect(log_p, y, np.repeat(np.arange(30), 100)))
        expected = 1.0 + sd**2 * 100 * 0.2  # the mean of p (1 - p) is .2
        assert np.mean(effects) == pytest.approx(expected, rel=0.25)


def test_a_stream_without_forgetting_arrives_where_one_fit_does(rows):
    log_p, labels = rows
    online = OnlineUpdate(3, half_life=1e9)
    for some in np.array_split(np.arange(500), 10):
        online.partial_fit(log_p[some], labels[some])
    whole = fit_correction(log_p, labels, np.ones(500), Correction.none(3), Prior())
    assert online.correction.slope == pytest.approx(whole.slope, abs=0.05)
    np.testing.assert_allclose(online.correction.intercept, whole.intercept, atol=0.08)


def test_a_stream_forgets():
    rng = np.random.default_rng(4)
    online = OnlineUpdate(2, half_life=5.0)
    shifts = []
    for batch in range(80):
        p = rng.beta(2, 3, 300)
        y = rng.random(300) < 1 / (1 + np.exp(-np.log(p / (1 - p)) - (0.8 if batch < 40 else -0.8)))
        online.partial_fit(np.log(np.stack([1 - p, p], axis=1)), y.astype(int))
        shifts.append(np.diff(online.correction.intercept)[0])
    assert shifts[39] == pytest.approx(0.8, abs=0.25)
    assert shifts[79] == pytest.approx(-0.8, abs=0.25)


def test_a_first_day_that_was_bad_by_chance_is_not_believed():
    """As if its rows were independent, it raised the log-loss of cancelled flights by 14 % over four months."""
    kept = []
    followed = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        online = OnlineUpdate(2, half_life=30.0)
        for _ in range(10):
            p = rng.beta(2, 3, 1000)
            q = 1 / (1 + np.exp(-np.log(p / (1 - p)) - 0.8 * rng.normal()))
            y = (rng.random(1000) < q).astype(int)
            log_p = np.log(np.stack([1 - p, p], axis=1))
            kept.append(-log_p[np.arange(1000), y].mean())
            followed.append(-online.correction.apply(log_p)[np.arange(1000), y].mean())
            online.partial_fit(log_p, y)
    assert np.mean(followed) < 1.02 * np.mean(kept)


def test_a_stream_reads_frames_by_the_names_of_their_columns(rows):
    log_p, labels = rows
    names = np.array(["cat", "dog", "emu"])
    frame = pd.DataFrame(log_p, columns=names)
    in_order, moved = OnlineUpdate(3), OnlineUpdate(3)
    for i, some in enumerate(np.array_split(np.arange(500), 5)):
        in_order.partial_fit(frame.iloc[some], names[labels[some]])
        moved.partial_fit(frame[np.roll(names, i)].iloc[some], names[labels[some]])
    assert moved.correction.slope == pytest.approx(in_order.correction.slope, rel=1e-12)
    np.testing.assert_allclose(moved.correction.intercept, in_order.correction.intercept, rtol=1e-9)
    with pytest.raises(LabelError, match="must be names of classes where batches have their columns in several orders"):
        moved.partial_fit(frame[names[::-1]], labels)
    with pytest.raises(ShapeError, match=r"must be the same in both: cat, dog, emu\. Got 'gnu' in one of them only"):
        moved.partial_fit(frame.rename(columns={"cat": "gnu"}), labels)
