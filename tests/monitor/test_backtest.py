"""Policies on simulated years: each batch predicted by what was known before it."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from refocal import LogisticCalibration
from refocal._json import to_json
from refocal.errors import DataError, ParameterError, ShapeError
from refocal.io import Predictions
from refocal.monitor import AtAlarm, Forgetting, Keep, Window, backtest, policies
from refocal.monitor.policies import Batch
from refocal.report.page import write_backtest_page


def days(seed, shift, n_days=60, n=200, sd=0.0):
    rng = np.random.default_rng(seed)
    made = []
    for day in range(n_days):
        log_odds = rng.normal(-1.0, 1.0, n)
        happened = rng.random(n) < 1 / (1 + np.exp(-log_odds - shift(day) - sd * rng.normal()))
        made.append((day, Predictions.from_log_odds(log_odds, happened.astype(int))))
    return made


def test_a_change_is_followed_and_the_best_policy_recommended(tmp_path):
    rows = days(0, lambda day: 0.0 if day < 20 else 0.9)
    found = backtest(rows)
    assert found.recommended != "keep"
    assert found.results[0].name == found.recommended
    assert found.results[0].difference.high < 0.0
    keep = found.result("keep")
    log_p = rows[0][1].as_log_probabilities().values
    assert keep.path[0] == pytest.approx(-np.mean(log_p[np.arange(200), rows[0][1].labels]))
    assert all(result.path[0] == keep.path[0] for result in found.results)  # nothing was known before the first day
    write_backtest_page(found, tmp_path / "b.html")
    page = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert f"Recommended: {found.recommended}" in page
    assert "log-loss saved" in page


def test_one_batch_says_nothing_of_the_scatter_of_batches(tmp_path):
    found = backtest(days(0, lambda day: 0.5, n_days=1))
    for result in found.results:
        difference = result.difference
        assert (difference.value, difference.low, difference.high) == (0.0, -np.inf, np.inf)
    assert json.loads(to_json(found.to_dict()))["results"][0]["difference"]["low"] is None
    write_backtest_page(found, tmp_path / "b.html")
    page = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert "no interval" in page
    assert "inf" not in re.sub(r"<(script|style).*?</\1>|\binfo\w*", "", page, flags=re.DOTALL).split("<main")[-1]


@pytest.mark.long
def test_without_a_change_the_calibrator_is_kept_or_hardly_touched():
    for seed in range(3):
        found = backtest(days(seed, lambda day: 0.0, sd=0.2))
        chosen = found.result(found.recommended)
        assert chosen.log_loss <= found.result("keep").log_loss * 1.003
    assert backtest(days(0, lambda day: 0.9, n_days=5)).recommended == "keep"


def test_nothing_is_known_before_its_time():
    """Labels of later days change nothing before; a delay moves what is known."""
    rows = days(1, lambda day: 0.0)
    changed = [
        (day, batch if day < 30 else Predictions.from_logits(batch.values, 1 - batch.labels)) for day, batch in rows
    ]
    for delay in (0, 5):
        one, other = (backtest(each, [Window(10), Forgetting(), AtAlarm()], delay=delay) for each in (rows, changed))
        for name in ("refit, last 10", "online, half-life 20", "refit at an alarm"):
            first, second = (
                np.array(each.result(name).path) - np.array(each.result("keep").path) for each in (one, other)
            )
            np.testing.assert_allclose(first[: 30 + delay][:30], second[:30], atol=1e-12)
            if name == "refit, last 10":
                log_losses = np.array(one.result(name).path)
                assert np.array_equal(log_losses[: 1 + delay], np.array(one.result("keep").path)[: 1 + delay])


def test_the_recommended_calibrator_is_the_one_in_use_with_a_correction():
    rows = days(2, lambda day: 0.9)
    log_odds = np.concatenate([batch.values[:, 1] for _, batch in rows])
    rng = np.random.default_rng(3)
    calibrator = LogisticCalibration(input="log-odds").fit(
        log_odds, rng.random(len(log_odds)) < 1 / (1 + np.exp(-log_odds))
    )
    found = backtest(rows, calibrator=calibrator)
    made = found.calibrator(calibrator)
    shift = np.log(made.predict_proba(log_odds)[:, 1] / made.predict_proba(log_odds)[:, 0]) - log_odds
    assert np.mean(shift) == pytest.approx(0.9, abs=0.25)
    assert found.calibrator(calibrator, "keep") is calibrator
    # Adapting from the shares of the first fit, which it no longer stands for, raised the log-loss from 0.54 to 1.26.
    with pytest.raises(ParameterError, match="this calibrator does not know the class shares of its fit"):
        made.adapt(log_odds)
    known = Predictions.from_log_odds(log_odds, np.concatenate([batch.labels for _, batch in rows]))
    assert made.adapt(log_odds, fit_rows=known)[1].evidence.weight == 0.0


def test_a_refit_at_an_alarm_happens_once_for_one_change():
    policy = AtAlarm()
    backtest(days(4, lambda day: 0.0 if day < 15 else 1.0), [policy])
    assert len(policy.alarms) == 1
    assert int(policy.alarms[0]) > 15


def test_a_refit_that_waits_for_rows_after_an_alarm_is_on_all_batches_since_the_change(monkeypatch):
    refits = []

    def fitted_on(batches, start, prior):
        refits.append([batch.period for batch in batches])
        return start

    monkeypatch.setattr(policies, "fitted_on", fitted_on)
    policy = AtAlarm(alpha=0.5)
    policy.begin(2)
    monitor = policy._monitor
    day = 0
    while not refits:
        day += 1
        n = 20 if monitor.alarm is None else 100
        policy.observe(Batch(str(day), np.log(np.full((n, 2), 0.5)), np.ones(n, dtype=int)))
    assert monitor.alarms[0].since == "1"
    assert int(monitor.alarms[0].period) < day  # of less than 200 rows
    assert refits == [[str(i) for i in range(1, day + 1)]]


def test_wrong_arguments_are_named():
    with pytest.raises(DataError, match="pairs of a period and Predictions"):
        backtest([(1, [0.2])])
    with pytest.raises(DataError, match=r"pairs of a period and Predictions\. Got a Predictions alone"):
        backtest([Predictions.from_probabilities([0.2, 0.6], [0, 1])])
    with pytest.raises(DataError, match="at least one batch"):
        backtest([])
    with pytest.raises(ParameterError, match="of different names"):
        backtest([], [Keep(), Keep()])


def three_classes(day, names, classes=("cat", "dog", "emu"), n=90):
    """Rows whose columns are in the order of `names`."""
    rng = np.random.default_rng(day)
    logits = 2 * rng.normal(size=(n, 3))
    labels = np.argmax(logits + np.array([1, 0, -1]) + rng.gumbel(size=logits.shape), axis=1)
    order = [classes.index(name) for name in names]
    return Predictions.from_logits(logits[:, order], np.array(classes)[labels], class_names=list(names))


def test_columns_of_batches_are_matched_by_name():
    cat, dog, emu = "cat", "dog", "emu"
    same = backtest((day, three_classes(day, (cat, dog, emu))) for day in range(12))
    moved = backtest((day, three_classes(day, (emu, cat, dog) if day % 2 else (cat, dog, emu))) for day in range(12))
    for result in same.results:
        np.testing.assert_allclose(moved.result(result.name).path, result.path, rtol=1e-9)
    others = three_classes(1, (cat, dog, "fox"), (cat, dog, "fox"))
    with pytest.raises(ShapeError, match="'fox' in one of them only"):
        backtest([(0, three_classes(0, (cat, dog, emu))), (1, others)])
    unnamed = Predictions.from_logits(others.values, others.labels)
    with pytest.raises(ShapeError, match=r"of columns without names, as the first\. Got cat, dog, fox in 1 instead"):
        backtest([(0, unnamed), (1, others)])
    of_two = Predictions.from_probabilities([0.2, 0.9], [0, 1])
    with pytest.raises(ShapeError, match=r"of 3 classes, as the first\. Got 2 classes in 1 instead"):
        backtest([(0, unnamed), (1, of_two)])


@pytest.mark.parametrize("positive", [0, 1])
def test_columns_called_by_numbers_are_those_without_names(positive):
    log_odds = np.array([0.5, -1.0, 2.0])
    labels = np.array([0, 0, 1])
    named = Predictions.from_log_odds(log_odds, labels).reordered(
        np.array([1, 0]) if positive == 0 else np.array([0, 1])
    )
    named = replace(named, class_names=("1", "0") if positive == 0 else ("0", "1"))
    unnamed = Predictions.from_log_odds(log_odds, labels)
    for first, second in ((named, unnamed), (unnamed, named)):
        path = backtest([(0, first), (1, second)]).result("keep").path
        assert path[0] == pytest.approx(path[1])


def test_neighbours_of_one_period_are_one_batch():
    rows = days(4, lambda day: 0.5, n_days=12)
    halves = [(day, batch.take(part)) for day, batch in rows for part in (slice(0, 80), slice(80, None))]
    whole, joined = backtest(rows), backtest(halves)
    assert joined.n_rows == whole.n_rows
    assert joined.periods == whole.periods
    for result in whole.results:
        np.testing.assert_allclose(joined.result(result.name).path, result.path, rtol=1e-12)


def test_keeping_the_calibrator_has_one_name():
    with pytest.raises(TypeError, match="name"):
        Keep(name="none")
    assert Keep().name == "keep"
