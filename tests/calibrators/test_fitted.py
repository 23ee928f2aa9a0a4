"""The report of a fit: the shares that its probabilities stand for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from refocal import AutoCalibration, LogisticCalibration, MultiLabelCalibration, TemperatureScaling, load, metrics
from refocal.calibrators.fitted import mean_probabilities
from refocal.engine import Block
from refocal.io import blocks
from refocal.maps.chain import Chain


def rows(n):
    rng = np.random.default_rng(0)
    logits = rng.normal(0.0, 2.0, size=(n, 4))
    return logits, np.argmax(logits + np.array([0.5, 0.0, 0.0, -0.5]) + rng.gumbel(size=logits.shape), axis=1)


def test_the_means_of_probabilities_are_in_the_report_and_in_files(tmp_path):
    logits, labels = rows(500)
    weight = np.random.default_rng(1).integers(1, 4, 500).astype(float)
    for calibrator, weights in (
        (TemperatureScaling(), None),
        (AutoCalibration(), None),
        (TemperatureScaling(), weight),
    ):
        calibrator.fit(logits, labels, weights)
        noted = calibrator.fit_report_["mean_probabilities"]
        expected = np.average(calibrator.predict_proba(logits), axis=0, weights=weights)
        np.testing.assert_allclose(noted["values"], expected, rtol=1e-5)
        n_rows = 500 if weights is None else weights.sum() ** 2 / (weights @ weights)
        assert noted["n_rows"] == pytest.approx(n_rows, rel=1e-5)
        calibrator.save(tmp_path / "c.json")
        assert load(tmp_path / "c.json").fit_report_["mean_probabilities"] == noted


@pytest.mark.parametrize("slope", [0.9, 0.2, -0.4])
def test_of_two_classes_the_slope_of_labels_is_noted(slope):
    """Against an unpenalised logistic regression of the labels on the calibrator's log-odds."""
    rng = np.random.default_rng(2)
    log_odds = rng.normal(0.0, 1.5 / abs(slope), 3000)
    labels = (rng.random(3000) < 1.0 / (1.0 + np.exp(-slope * log_odds))).astype(int)
    logits = np.stack([np.zeros(3000), log_odds], axis=1)
    noted = mean_probabilities(Chain(), Block(logits, labels))
    reference = LogisticRegression(C=np.inf).fit(log_odds[:, None], labels)
    assert noted["slope"] == pytest.approx(reference.coef_[0, 0], abs=0.01)
    # A fit of slope and intercept leaves none but what its weak prior does.
    fitted = LogisticCalibration().fit(logits, labels)
    assert fitted.fit_report_["mean_probabilities"]["slope"] == pytest.approx(1.0, abs=5e-3)


def test_labels_that_probabilities_separate_have_a_slope_too():
    """Likelihood has no maximum then; the prior of one row has."""
    logits = np.stack([np.zeros(20), np.linspace(-5.0, 5.0, 20)], axis=1)
    labels = (logits[:, 1] > 0.0).astype(int)

    def minus_log_posterior(x):
        eta = logits[:, 1] * x[1] + x[0]
        return np.sum(np.logaddexp(0.0, eta) - labels * eta) + 0.5 * (x[0] ** 2 + (x[1] - 1.0) ** 2)

    best = minimize(minus_log_posterior, [0.0, 1.0], tol=1e-10).x
    assert best[1] > 1.2
    assert mean_probabilities(Chain(), Block(logits, labels))["slope"] == pytest.approx(best[1], abs=1e-4)


def test_of_many_rows_every_so_many_are_taken():
    logits, labels = rows(25_000)
    means = mean_probabilities(Chain(), Block(logits, labels))
    p = np.exp(logits[::3] - np.logaddexp.reduce(logits[::3], axis=1, keepdims=True))
    assert means["n_rows"] == len(p)
    np.testing.assert_allclose(means["values"], p.mean(axis=0), rtol=1e-5)


def test_labels_that_do_not_exclude_each_other_have_no_such_means():
    logits, _ = rows(300)
    labels = (logits > 0.5).astype(int)
    calibrator = MultiLabelCalibration().fit(logits, labels)
    assert "mean_probabilities" not in calibrator.fit_report_


@pytest.mark.parametrize("in_blocks", [False, True])
def test_weighted_rows_that_are_all_right_are_no_more_than_all(in_blocks):
    """The sum of the weights of the rows that are right may round to more than that of all."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        logits = rng.normal(size=(300, 3))
        labels = np.argmax(logits, axis=1)
        weight = 3.0 * rng.random(300)
        rows = (blocks([(logits, labels, weight)]),) if in_blocks else (logits, labels, weight)
        report = TemperatureScaling().fit(*rows).fit_report_
        assert report["before"]["accuracy"] == pytest.approx(1.0, abs=1e-12)
        assert report["before"]["accuracy"] <= 1.0


@pytest.mark.parametrize("n_votes", [1, 10])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_fit_report_has_the_measures_of_the_model_beside_zeros(n_votes, n_classes):
    """Zeros counted as half the smallest other probability there too: of votes of one tree, 0/1 was 1/3 and 2/3."""
    rng = np.random.default_rng(0)
    labels = rng.integers(n_classes, size=400)
    means = np.where(labels[:, None] == np.arange(n_classes), 0.9, 0.1 / (n_classes - 1))
    p = np.array([rng.multinomial(n_votes, row) for row in means]) / n_votes
    epsilon = np.finfo(np.float64).eps
    of_label = np.clip(p[np.arange(400), labels], epsilon, 1.0)
    expected = {
        "log_loss": -np.log(of_label).mean(),
        "ece": metrics.expected_calibration_error(labels, p),
        "brier_score": metrics.brier_score(labels, p),
        "accuracy": (p.argmax(axis=1) == labels).mean(),
    }
    together = TemperatureScaling(input="probabilities").fit(p, labels)
    parts = blocks([(p[:150], labels[:150]), (p[150:], labels[150:])], input="probabilities")
    apart = TemperatureScaling(input="probabilities").fit(parts)
    for fitted in (together, apart):
        assert fitted.fit_report_["before"] == pytest.approx(expected, rel=1e-9)
