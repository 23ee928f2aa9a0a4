"""The paired interval of squared calibration errors: its parts against plain loops, its coverage by simulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from refocal import metrics
from refocal_paper.paired import N_BINS, SCENARIOS, coverage_markdown, simulate, squared_error_difference
from refocal_paper.table import signed_rank


def rows(seed, n=900, classes=4):
    """Two sets of probabilities, of which the second is true."""
    rng = np.random.default_rng(seed)
    second = rng.dirichlet(np.ones(classes), size=n)
    first = second**1.3 / (second**1.3).sum(axis=1, keepdims=True)
    y = (rng.random((n, 1)) > second.cumsum(axis=1)).sum(axis=1)
    return y, first, second


def plain(y, first, second):
    """The same by loops over bins and rows, with the covariance matrix written out."""
    n, z, rows = len(y), [], []
    for p in (first, second):
        confidence, correct = p.max(axis=1), (p.argmax(axis=1) == y).astype(float)
        order = sorted(range(n), key=lambda i: confidence[i])
        for b in range(N_BINS):
            members = [i for k, i in enumerate(order) if k * N_BINS // n == b]
            w = len(members) / n
            gap = np.mean([confidence[i] - correct[i] for i in members])
            z.append(np.sqrt(w) * gap)
            row = np.zeros(n)
            for i in members:
                row[i] = (
                    (confidence[i] - correct[i] - gap) / np.sqrt(w) / n * np.sqrt(len(members) / (len(members) - 1))
                )
            rows.append(row)
    z, s, a = np.array(z), np.array(rows) @ np.array(rows).T, np.diag([1.0] * N_BINS + [-1.0] * N_BINS)
    noise = np.trace(a @ s @ a @ s)
    estimate = z @ a @ z - np.trace(a @ s)
    return estimate, max(4 * z @ a @ s @ a @ z - 2 * noise, 2 * noise)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_interval_is_that_of_the_quadratic_form(seed):
    y, first, second = rows(seed)
    found = squared_error_difference(y, first, second)
    estimate, variance = plain(y, first, second)
    assert found.difference == pytest.approx(estimate, rel=1e-9)
    assert found.high - found.difference == pytest.approx(1.959963984540054 * np.sqrt(variance), rel=1e-9)
    assert found.difference - found.low == pytest.approx(found.high - found.difference, rel=1e-9)
    other = squared_error_difference(y, second, first)
    assert (other.low, other.high) == pytest.approx((-found.high, -found.low))
    assert squared_error_difference(y, first, first) == pytest.approx(
        (0.0, 0.0, 0.0), abs=1e-10
    )  # the root of a rounding


def test_before_the_bias_is_taken_off_it_is_the_squared_error_of_the_bins():
    """With rows enough for no noise, the difference is that of the plain root-mean-square errors, squared."""
    y, first, second = rows(3, n=150_000)
    plain_difference = sum(
        sign * metrics.expected_calibration_error(y, p, norm="l2") ** 2 for sign, p in ((1, first), (-1, second))
    )
    assert squared_error_difference(y, first, second).difference == pytest.approx(plain_difference, abs=3e-5)


def test_it_covers_and_the_bootstrap_of_the_ece_does_not():
    found = [simulate(s, 1500, n_trials=300, n_bootstrapped=30, n_resamples=30) for s in SCENARIOS[1:3]]
    for case in found:
        assert 0.92 <= case.squared <= 0.98
        assert case.percentile < 0.9
        assert case.basic < 0.9
    table = coverage_markdown(found)
    assert f"| {100 * found[0].squared:.1f} % |" in table
    assert table.count("\n") == 4


def test_the_page_shows_the_simulation():
    paper = Path(__file__).parents[1]
    table = (paper / "results" / "coverage.md").read_text(encoding="utf-8")
    assert table in (paper / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert table.count("\n") == 2 + 2 * len(SCENARIOS)


def test_the_signed_ranks_are_over_trainings():
    """Of six trainings all with a lower error, Wilcoxon's exact two-sided p is 2/2⁶; seeds are averaged first."""

    def cell(loss, seed, ece):
        recipe = {"dataset": "cifar100", "network": "resnet50", "loss": loss, "seed": seed}
        return {"recipe": recipe, "fts": {"ece": {"ece": ece}}, "ts": {"ece": {"ece": 0.1}}}

    cells = [cell(f"focal-{g}", 1, 0.09 - 0.001 * g) for g in (1, 2, 3, 5, 7)]
    cells += [cell("adafocal", seed, ece) for seed, ece in ((1, 0.2), (2, -0.03))]
    assert signed_rank(cells, "ece", "ece") == (6, 2 / 2**6)
