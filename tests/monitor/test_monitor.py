"""The monitor: its sums against the metrics, its alarm against theory, merging against seeing everything at once."""

from __future__ import annotations

import json
import math
import re
from datetime import date, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax, logit, rel_entr
from sklearn.metrics import brier_score_loss, log_loss

from refocal._groups import without_time_of_day
from refocal.errors import DataError, FormatError, InputError, InputWarning, ParameterError, ShapeError
from refocal.io import Predictions
from refocal.metrics import expected_calibration_error
from refocal.monitor import CalibrationMonitor
from refocal.monitor.evidence import PRECISIONS, left_after
from refocal.monitor.history import History
from refocal.monitor.independent import ALTERNATIVES, log_ratios
from refocal.monitor.independent import left_after as left_after_rows
from refocal.monitor.together import entering_together
from refocal.report import render_monitor


def draw(rng, n=200, shift=0.0):
    p = rng.beta(2, 3, n)
    return p, (rng.random(n) < p + shift).astype(int)


def filled(n_periods, seed=0, shift_from=10**9, n=200, first=1, **settings):
    rng, monitor = np.random.default_rng(seed), CalibrationMonitor(**settings)
    for period in range(first, first + n_periods):
        monitor.update(*draw(rng, n, 0.05 if period >= shift_from else 0.0), period=period)
    return monitor


def test_windows_are_what_the_metrics_say():
    rng = np.random.default_rng(0)
    batches = [draw(rng) for _ in range(6)]
    monitor = CalibrationMonitor()
    for p, y in batches:
        assert monitor.update(p, y) == 200
    for last in (1, 3, 6):
        p, y = (np.concatenate(each) for each in zip(*batches[-last:], strict=True))
        found = monitor.summary(last)
        assert (found.first, found.last, found.n) == (str(7 - last), "6", 200 * last)
        assert_allclose(found.log_loss, log_loss(y, p), rtol=1e-12)
        assert_allclose(found.brier_score, brier_score_loss(y, p), rtol=1e-12)
        assert_allclose(found.ece, expected_calibration_error(y, p, n_bins=10, strategy="uniform"), rtol=1e-12)
        assert_allclose([found.mean_p, found.rate.value, found.bias.value], [p.mean(), y.mean(), p.mean() - y.mean()])
        assert found.bias.low < 0.0 < found.bias.high
    assert [each.n for each in monitor.history()] == [200] * 6


def test_more_classes_are_watched_by_their_top_one():
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(4), 500)
    y = np.array([rng.choice(4, p=row) for row in p])
    monitor = CalibrationMonitor()
    monitor.update(p, y)
    found = monitor.summary()
    assert_allclose(found.log_loss, log_loss(y, p), rtol=1e-9)
    assert_allclose(found.brier_score, np.mean(np.sum((p - np.eye(4)[y]) ** 2, axis=1)), rtol=1e-12)
    assert_allclose(found.mean_p, p.max(axis=1).mean())
    assert_allclose(found.rate.value, np.mean(p.argmax(axis=1) == y))
    with pytest.raises(ShapeError, match="of 4 classes, as those before"):
        monitor.update([0.2], [0])


def test_chance_level_of_the_ece_is_the_mean_of_calibrated_draws():
    rng = np.random.default_rng(2)
    p = rng.beta(2, 3, 2000)
    found = []
    for _ in range(200):
        monitor = CalibrationMonitor()
        monitor.update(p, rng.random(2000) < p)
        found.append(monitor.summary())
    assert np.mean([each.ece for each in found]) == pytest.approx(found[0].ece_by_chance, rel=0.08)


def test_ratios_are_those_of_likelihoods_and_1_on_average():
    p = np.array([0.1, 0.5, 0.93])
    changed = expit(ALTERNATIVES[:, :1] + ALTERNATIVES[:, 1:] * logit(p))
    for y in ([0, 0, 0], [1, 0, 1], [1, 1, 1]):
        y = np.array(y)
        expected = np.log(np.where(y == 1, changed / p, (1 - changed) / (1 - p))).sum(axis=1)
        assert_allclose(log_ratios(p, y == 1), expected, rtol=1e-10)
    for q in (1e-9, 0.2, 0.999):
        hit, miss = (np.exp(log_ratios(np.array([q]), np.array([y]))) for y in (True, False))
        assert_allclose(q * hit + (1 - q) * miss, 1.0, rtol=1e-6)


def test_monitors_that_do_not_fit_are_not_merged():
    numbers, texts, classes, waiting = (CalibrationMonitor() for _ in range(4))
    numbers.update([0.4], [1])
    texts.update([0.4], [1], period="May")
    classes.update([[0.2, 0.3, 0.5]], [1])
    waiting.update([0.4], ids=["a"])
    for other, words in ((texts, "of the same kind"), (classes, "a monitor of 2 classes")):
        with pytest.raises(DataError, match=words):
            numbers.merge(other)
    also_waiting = CalibrationMonitor()
    also_waiting.update([0.7], ids=["a"])
    with pytest.raises(DataError, match="the id 'a' in both"):
        waiting.merge(also_waiting)


def test_monitors_of_other_calibrators_or_without_their_groups_are_not_merged():
    """Rows of two calibrators were in one monitor, which then knew of none."""

    def watched(calibrator, columns):
        monitor = filled(1, 1)
        monitor.calibrated_by, monitor.group_columns = calibrator, columns
        return monitor

    for ours, theirs, message in (
        ("one", "two", "must be a monitor of the same calibrator, as this one. Got one of another calibrator"),
        ("one", "", "must be a monitor of the same calibrator, as this one. Got one of rows without a calibrator"),
        ("", "one", "must be a monitor of rows without a calibrator, as this one. Got one of another calibrator"),
    ):
        with pytest.raises(DataError, match=message):
            watched(ours, ()).merge(watched(theirs, ()))
    for columns, got in (((), "none"), (("shop",), "shop")):
        with pytest.raises(DataError, match=f"a monitor of the groups region, as this one. Got one of {got} instead"):
            watched("", ("region",)).merge(watched("", columns))
    for ours, theirs, known in (
        ((None, None), ("one", ("region",)), ("one", ("region",))),
        (("one", ("region",)), (None, None), ("one", ("region",))),
        (("", ()), (None, None), ("", ())),
        ((None, None), (None, None), (None, None)),
        (("", ()), ("", ("region",)), ("", ("region",))),  # as a batch: groups may be watched from now on
    ):
        merged = watched(*ours).merge(watched(*theirs))
        assert (merged.calibrated_by, merged.group_columns) == known


def test_the_rows_of_a_monitor_are_merged_once():
    east, west, both = filled(3, 1), filled(3, 2), CalibrationMonitor()
    both.merge(east).merge(west)
    evidence, n_rows = both.e_value, both.summary().n
    assert both.merged == {east.id: 600, west.id: 600}
    reloaded = CalibrationMonitor.from_dict(json.loads(json.dumps(both.to_dict())))
    assert (reloaded.id, reloaded.merged) == (both.id, both.merged)
    for monitor in (both, reloaded):
        with pytest.raises(DataError, match=r"merged when it had 600 labelled rows, and has 600 now.* Rows count once"):
            monitor.merge(east)
        assert (monitor.e_value, monitor.summary().n) == (evidence, n_rows)
    east.update([0.4], [1], period=4)
    with pytest.raises(DataError, match="merged when it had 600 labelled rows, and has 601 now"):
        both.merge(east)
    for one, other in ((both, both), (both, reloaded)):
        with pytest.raises(DataError, match="Got the same monitor"):
            one.merge(other)


def test_monitors_that_share_rows_of_a_third_are_not_merged():
    east, west, north = filled(3, 1), filled(3, 2), filled(3, 3)
    one, other = CalibrationMonitor().merge(east).merge(west), CalibrationMonitor().merge(east).merge(north)
    for first, second in ((one, other), (east, one)):
        with pytest.raises(DataError, match="has rows of the same monitor"):
            first.merge(second)
    assert one.merge(north).summary().n == 1800
    assert set(CalibrationMonitor().merge(one).merged) == {one.id, east.id, west.id, north.id}


def test_a_monitor_that_starts_over_is_another_one():
    day = filled(2)
    total = CalibrationMonitor().merge(day)
    before = day.id
    day.restart()
    assert (day.id == before, day.merged) == (False, {})
    day.update([0.3, 0.6], [0, 1], period=3)
    assert total.merge(day).summary().n == 402


def test_monitors_with_closed_periods_are_merged_cautiously():
    one, other = filled(100, 8, n=30), filled(90, 9, n=30)
    merged = filled(100, 8, n=30).merge(other)
    assert sum(each.n for each in merged.history()) == 190 * 30
    assert merged.e_value <= 4.0 * max(one.e_value, other.e_value, 1.0)
    late = merged.update(*draw(np.random.default_rng(0), 10), period=3)  # long closed: counted, not tested
    assert late == 10
    assert sum(each.n for each in merged.history()) == 190 * 30 + 10


def test_labels_that_come_later_are_joined_by_id(tmp_path):
    rng = np.random.default_rng(10)
    p, y = draw(rng, 60)
    at_once = CalibrationMonitor()
    at_once.update(p[:30], y[:30], period="a")
    at_once.update(p[30:], y[30:], period="b")
    later = CalibrationMonitor()
    assert later.update(p[:30], ids=range(30), period="a") == 0
    assert later.update(p[30:], ids=range(30, 60), period="b") == 0
    assert later.summary() is None
    order = rng.permutation(60)
    assert later.add_labels(order[:25], y[order[:25]]) == 25
    later.save(tmp_path / "m.json")
    later = CalibrationMonitor.load(tmp_path / "m.json")
    assert later.n_waiting == 35
    assert later.add_labels(order[25:], y[order[25:]]) == 35
    assert_allclose(later.e_value, at_once.e_value, rtol=1e-12)
    assert_allclose([each.log_loss for each in later.history()], [each.log_loss for each in at_once.history()])
    later.save(tmp_path / "m.json")
    assert not (tmp_path / "m.json.waiting.npz").exists()


def test_labels_may_come_more_periods_later_than_are_kept_one_by_one(tmp_path):
    """Hours whose labels come after four days: the evidence is that of labels at once."""
    rng = np.random.default_rng(0)
    hours = range(170)
    batches = [draw(rng, 100, shift=0.4) for _ in hours]
    at_once = CalibrationMonitor()
    later = CalibrationMonitor()
    for hour in hours:
        later.update(batches[hour][0], ids=[f"{hour}/{i}" for i in range(100)], period=hour)
        if hour >= 96:
            known = hour - 96
            at_once.update(*batches[known], period=known)
            later.add_labels([f"{known}/{i}" for i in range(100)], batches[known][1])
    later.save(tmp_path / "m.json")
    later = CalibrationMonitor.load(tmp_path / "m.json")
    assert later.alarm is not None
    assert later.streams()["mean/all rows"] == pytest.approx(at_once.streams()["mean/all rows"])
    assert later.advice().action == at_once.advice().action == "recalibrate"
    assert len(later.evidence()) == History.most_open
    assert sum(each.n for each in later.history()) == 74 * 100


def test_the_page_of_labels_that_are_not_enough_for_the_test_yet_says_so():
    monitor = CalibrationMonitor()
    monitor.update([0.2, 0.3] * 30, ids=range(60), period=1)
    monitor.add_labels([3], [1])
    assert monitor.evidence() == []
    page = render_monitor(monitor)
    assert "No period has entered the test yet." in page
    assert "1 labelled rows" in page


def test_waiting_rows_without_a_column_of_groups_are_in_no_group_before_and_after_a_file(tmp_path):
    monitor = CalibrationMonitor()
    monitor.update([0.2, 0.3] * 30, ids=range(60), period=1)
    monitor.update([0.2, 0.3] * 30, ids=range(60, 120), period=1, groups=["north", None] * 30)
    monitor.save(tmp_path / "m.json")
    loaded = CalibrationMonitor.load(tmp_path / "m.json")
    monitor.add_labels(range(60), [0, 1] * 30)
    monitor.add_labels(range(60, 120), [0, 1] * 30)
    assert [name for name in monitor.streams() if name.startswith("group/")] == [
        "group/group = missing",
        "group/group = north",
    ]
    loaded.add_labels(range(120), [0, 1] * 60)
    assert loaded.streams() == pytest.approx(monitor.streams())


def test_waiting_rows_of_several_classes_and_what_is_lost_with_their_file(tmp_path):
    monitor = CalibrationMonitor()
    monitor.update([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]], ids=["x", "y"], period=date(2026, 5, 1))
    monitor.save(tmp_path / "m.json")
    loaded = CalibrationMonitor.load(tmp_path / "m.json")
    assert loaded.add_labels(["y"], [0]) == 1
    assert loaded.summary().first == "2026-05-01"
    (tmp_path / "m.json.waiting.npz").unlink()
    with pytest.warns(InputWarning, match="2 predictions wait for labels, but m.json.waiting.npz is missing"):
        CalibrationMonitor.load(tmp_path / "m.json")


@pytest.mark.parametrize(
    ("ids", "later"),
    [
        (np.array([60, 90], "timedelta64[s]"), np.array(["60000", "90000"], "timedelta64[ms]")),
        (np.array([60, 90], "timedelta64[s]"), pd.to_timedelta([60, 90], unit="s")),
        ([timedelta(seconds=60), timedelta(seconds=90)], np.array([60, 90], "timedelta64[s]")),
        (np.array(["2026-01-31T08", "2026-02-01T00"], "datetime64[h]"), ["2026-01-31 08:00:00", "2026-02-01"]),
        ([b"a", b"b"], ["a", "b"]),
        ([1.0, 2.0], [1, 2]),
    ],
)
def test_ids_are_the_same_however_they_are_stored(ids, later):
    monitor = CalibrationMonitor()
    monitor.update([0.2, 0.7], ids=ids)
    assert monitor.add_labels(later, [0, 1]) == 2


def test_empty_batches_and_unknown_ids_are_ignored_with_a_note():
    monitor = CalibrationMonitor()
    with pytest.warns(InputWarning, match="an empty batch was ignored"):
        assert monitor.update([], []) == 0
    monitor.update([0.2], ids=["a"])
    with pytest.warns(InputWarning, match="1 of 2 ids are not those of waiting predictions"):
        assert monitor.add_labels(["a", "b"], [0, 1]) == 1


def test_a_prediction_counts_once_however_often_its_label_comes():
    monitor = CalibrationMonitor()
    monitor.update([0.2, 0.7], ids=["a", "b"], period=1)
    monitor.update([0.9], ids=["c"], period=2)
    assert monitor.add_labels(["a", "a", "b", "a"], [1, 1, 1, 1]) == 2
    with pytest.warns(InputWarning, match="2 of 2 ids are not those of waiting predictions"):
        assert monitor.add_labels(["a", "b"], [1, 1]) == 0
    found = monitor.summary()
    assert (found.n, found.rate.value, monitor.n_waiting) == (2, 1.0, 1)


def test_labels_that_are_refused_change_nothing():
    monitor = CalibrationMonitor()
    monitor.update([0.2], ids=["a"], period=1)
    monitor.update([0.9], ids=["b"], period=2)
    with pytest.raises(InputError, match=r"'labels' of CalibrationMonitor\.add_labels must be between 0 and 1"):
        monitor.add_labels(["a", "b"], [0, 3])
    assert monitor.summary() is None
    assert monitor.add_labels(["a", "b"], [0, 1]) == 2


def test_impossible_outcomes_leave_finite_numbers():
    monitor = CalibrationMonitor()
    monitor.update([0.0, 1.0, 1.0, 0.5], [1.0, 0.0, 1.0, 1.0])
    found = monitor.summary()
    assert math.isfinite(found.log_loss)
    assert math.isfinite(monitor.e_value)
    assert 0.0 <= found.rate.low <= found.rate.high <= 1.0
    json.dumps(monitor.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.update([0.2, 1.7], [0, 1]), InputError, "at most 1"),
        (lambda m: m.update([0.2], [3]), InputError, "'labels' of CalibrationMonitor.update must be between 0 and 1"),
        (lambda m: m.update([0.2], [np.nan]), InputError, "'labels' .* Got a missing one"),
        (lambda m: m.update([0.2]), ParameterError, "'ids' .* must be given where labels are not"),
        (lambda m: m.update([0.2, 0.3], ids=["a"]), ShapeError, "2 ids"),
        (lambda m: m.update([0.2, 0.3], ids=["a", "a"]), DataError, "different"),
        (lambda m: m.update([0.2, 0.3], [0, 1], ids=["a", "a"]), DataError, "different for all rows. Got 'a' twice"),
        (lambda m: m.update([0.2, 0.3], [0, 1], ids=["a"]), ShapeError, "2 ids"),
        (lambda m: m.update([0.2], [0], ids=["waits"]), DataError, "none of predictions that wait.* Got 'waits'"),
        (lambda m: m.update([0.2], ids=["waits"]), DataError, "none of predictions that wait.* Got 'waits'"),
        (lambda m: m.update([0.2], [0], period=1.5), ParameterError, "a text, a date or a whole number"),
        (lambda m: m.update([0.2], [0], period="May"), ParameterError, "whole numbers, as those before"),
        (lambda m: m.add_labels(["a"], [0, 1]), ShapeError, r"\(1,\)"),
        (lambda m: m.merge("monitor.json"), DataError, "'other' .* must be a CalibrationMonitor. Got a str"),
        (lambda m: m.summary(0), ParameterError, "at least 1"),
        (lambda m: CalibrationMonitor(alpha=2.0), ParameterError, "'alpha'"),
    ],
)
def test_wrong_input_is_named(call, error, message):
    monitor = CalibrationMonitor()
    monitor.update([0.4], [1])
    monitor.update([0.4], ids=["waits"])
    with pytest.raises(error, match=message):
        call(monitor)


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.update(format="x"),
        lambda d: d.update(version=9),
        lambda d: d.update(alpha=7),
        lambda d: d.update(n_classes="two"),
        lambda d: d.update(class_names=["cat"]),
        lambda d: d.update(class_names=["cat", "cat"]),
        lambda d: d.update(class_names=[0, 1]),
        lambda d: d.pop("n_waiting"),
        lambda d: d["history"]["wealth"].update(log_won=[1.0]),
        lambda d: d["history"].update(alarms="many"),
        lambda d: d["history"]["test"]["streams"]["shape/slope"].update(s=[1.0]),
        lambda d: d["history"]["test"]["streams"]["shape/slope"].update(n_entered=0),
        lambda d: d["history"]["periods"][0].update(n=5),
        lambda d: d["history"]["periods"][0].update(p=[9.0] * 10),
        lambda d: d["history"]["periods"][0].update(ratios=["a"] * 12),
        lambda d: d["history"]["periods"][0]["sums"].update({"mean/all rows": [1.0]}),
        lambda d: d["history"]["periods"][0].update(first=[1]),
        lambda d: d["history"]["periods"].append(d["history"]["periods"][0] | {"first": "May"}),
    ],
)
def test_damaged_files_are_refused(damage):
    data = json.loads(json.dumps(filled(3).to_dict()))
    damage(data)
    with pytest.raises(FormatError):
        CalibrationMonitor.from_dict(data)


def test_names_of_classes_are_kept_and_files_of_0_1_0_have_none():
    monitor, other = filled(3), filled(2, first=4)
    before = monitor.to_dict()
    assert before.pop("class_names") is None
    assert CalibrationMonitor.from_dict(before).summary() == monitor.summary()
    other.class_names = ("ontime", "late")
    assert CalibrationMonitor.from_dict(other.to_dict()).class_names == ("ontime", "late")
    assert monitor.merge(other).class_names == ("ontime", "late")
    other.class_names = ("late", "ontime")
    with pytest.raises(DataError, match="a monitor of the classes ontime, late"):
        monitor.merge(other)


def test_the_page_of_a_single_period_shows_its_mean_and_what_chance_would_show():
    monitor = CalibrationMonitor()
    monitor.update([0.2, 0.7, 0.4], [0, 1, 0], period="May")
    page = render_monitor(monitor)
    assert "May to May" in page
    for color in ("--first", "--second"):  # level lines, off the axis, from side to side
        assert re.search(rf'stroke="var\({color},[^"]*" stroke-width="1.8"[^>]* d="M\S+ (\S+)L\S+ \1"', page)
    ece = monitor.summary().ece
    assert f"May: ECE {ece:.4f}, 3 rows" in page
    assert "Log-loss of 1 periods." in page


def test_the_page_of_a_monitor_that_started_over_has_the_alarm_before():
    monitor = filled(40, 6, shift_from=5)
    assert f"the alarm was raised in {monitor.alarm}" in render_monitor(monitor)
    monitor.restart().update(*draw(np.random.default_rng(9)), period=50)
    page = render_monitor(monitor)
    assert "no alarm of this monitor is open" in page
    assert "there was no alarm" not in page


def test_numbers_in_the_names_of_periods_count_as_numbers():
    """Batches that come in any order are as those of whole numbers, also with periods that are closed and merged."""
    rng, n_periods = np.random.default_rng(5), 90
    batches = [draw(rng, 40, 0.2 if period > 70 else 0.0) for period in range(1, n_periods + 1)]
    expected, named, odd, even = (CalibrationMonitor() for _ in range(4))
    for period, batch in enumerate(batches, 1):
        expected.update(*batch, period=period)
        named.update(*batch, period=f"day{period}")
    for period in rng.permutation(np.arange(1, 51)).tolist():
        (even if period % 2 == 0 else odd).update(*batches[period - 1], period=f"day{period}")
    assert [each.last for each in odd.merge(even).history()] == [f"day{period}" for period in range(1, 51)]
    assert [each.n for each in named.history()] == [each.n for each in expected.history()]
    assert [each.last for each in named.history()] == [f"day{each.last}" for each in expected.history()]
    assert named.alarm == f"day{expected.alarm}"
    assert_allclose(named.e_value, expected.e_value, rtol=1e-12)
    before = named.history()
    named.update([0.5], [1], period="day2")  # long closed: it counts in the sums of its time
    assert named.history()[0].n == before[0].n + 1
    assert named.history()[-1] == before[-1]


def test_the_e_value_of_independent_rows_is_the_mean_over_alternatives_and_starts():
    rng = np.random.default_rng(3)
    batches = [draw(rng, 30) for _ in range(5)]
    monitor = CalibrationMonitor(independent=True)
    for p, y in batches:
        monitor.update(p, y)
    ratios = [np.exp(log_ratios(p, y == 1)) for p, y in batches]
    expected = left_after_rows(5)
    for start in range(5):
        bet = left_after_rows(start) - left_after_rows(start + 1)
        expected += bet * np.mean(np.prod(ratios[start:], axis=0))
    assert_allclose(monitor.e_value, expected, rtol=1e-12)
    assert sum(left_after_rows(n) - left_after_rows(n + 1) for n in range(1000)) + left_after_rows(1000) == (
        pytest.approx(1.0)
    )


def test_the_e_value_of_batches_is_the_mean_over_streams_precisions_and_starts():
    rng = np.random.default_rng(3)
    batches = [draw(rng, 100) for _ in range(8)]
    monitor = CalibrationMonitor()
    for p, y in batches:
        monitor.update(p, y)
    x = [np.sum(y - p) / np.sqrt(np.sum(p * (1 - p))) for p, y in batches]
    expected = left_after(8)
    for start in range(8):
        s, v = np.sum(x[start:]), np.sum(np.square(x[start:]))
        values = [np.sqrt(rho / (v + rho)) * np.exp(s**2 / (2 * (v + rho))) for rho in PRECISIONS]
        expected += (left_after(start) - left_after(start + 1)) * np.mean(values)
    streams = monitor.streams()
    assert_allclose(streams["mean/all rows"], expected, rtol=1e-12)
    weights = {"mean/all rows": 0.5, "shape/slope": 0.25, "shape/high scores": 0.25}
    assert_allclose(monitor.e_value, sum(weights[name] * streams[name] for name in weights), rtol=1e-12)


@pytest.mark.slow
def test_calibrated_models_rarely_raise_an_alarm_and_a_shift_soon_does():
    alarms = [filled(30, seed, n=50).alarm for seed in range(60)]
    assert sum(alarm is not None for alarm in alarms) <= 6  # 5 % of 60 are 3; 7 or more have a probability of 3 %
    delays = [int(filled(70, seed, shift_from=31).alarm or 999) - 30 for seed in range(10)]
    assert np.median(delays) <= 25
    changed = filled(70, 0, shift_from=31)
    (alarm,) = changed.alarms
    assert alarm.moved == ["all rows: probabilities too low"]
    assert 29 <= int(alarm.since) <= 33
    advice = changed.advice()
    assert advice.action == "recalibrate"
    assert advice.reason.startswith("Recalibrate now (shift the intercept): in the last 10 periods (61 to 70")


@pytest.mark.parametrize("n", [100, 200, 1000])
def test_the_start_of_a_change_is_named_by_its_period(n):
    """Of rare events several periods enter a stream at once; of 100 rows the start is no longer kept one by one."""
    for seed in range(2):
        rng, monitor, period = np.random.default_rng(seed), CalibrationMonitor(), 0
        while monitor.alarm is None:
            period += 1
            p = rng.uniform(0.005, 0.02, n)
            monitor.update(p, rng.random(n) < (p if period <= 30 else 4.0 * p), period=period)
        assert abs(int(monitor.alarms[0].since) - 31) <= (2 if n > 100 else 4)
        assert len(monitor.history()) <= period


def test_the_start_of_a_change_is_that_of_what_had_entered_when_monitors_are_merged():
    """What comes after the alarm, here no events at all, has no say in where the change before it began."""
    rng = np.random.default_rng(8)
    batches = [draw(rng, 400, 0.1 if period > 10 else 0.0) for period in range(1, 31)]
    batches += [(p, np.zeros(400, int)) for p, _ in batches[:10]]
    whole, odd, even = (CalibrationMonitor() for _ in range(3))
    for period, batch in enumerate(batches, 1):
        whole.update(*batch, period=period)
        (odd if period % 2 else even).update(*batch, period=period)
    (alarm,) = whole.alarms
    assert abs(int(alarm.since) - 11) <= 1
    assert int(alarm.period) <= 30
    assert [each.since for each in odd.merge(even).alarms if not each.monitor] == [alarm.since]


def test_rows_that_share_a_day_raise_no_alarm_unless_they_are_declared_independent():
    def watched(seed, **settings):
        rng, monitor = np.random.default_rng(seed), CalibrationMonitor(**settings)
        for _ in range(100):
            p = rng.beta(2, 3, 100)
            monitor.update(p, rng.random(100) < expit(logit(p) + 0.4 * rng.normal()))
        return monitor.alarm is not None

    assert sum(watched(seed) for seed in range(12)) <= 2
    assert sum(watched(seed, independent=True) for seed in range(4)) == 4


def test_an_alarm_is_never_changed_by_what_comes_later():
    monitor = filled(40, 6, shift_from=5)
    (alarm,) = monitor.alarms
    assert alarm.e_value >= 20.0
    rng = np.random.default_rng(7)
    for period in range(41, 200):
        monitor.update(*draw(rng, 200), period=period)
    assert monitor.alarms == [alarm]
    advice = monitor.advice()
    assert advice.action == "keep"
    assert "nothing is clearly off now" in advice.reason
    again = CalibrationMonitor.from_dict(json.loads(json.dumps(monitor.to_dict())))
    assert again.alarms == [alarm]
    monitor.restart()
    assert (monitor.alarm, monitor.e_value) == (None, 1.0)
    assert [(each.period, each.acknowledged) for each in monitor.alarms] == [(alarm.period, "199")]
    for period in range(200, 240):
        monitor.update(*draw(rng, 200, 0.1), period=period)
    assert [each.period for each in monitor.alarms[1:]] == [monitor.alarm]


def test_advice_depends_on_what_is_known_and_what_matters():
    assert CalibrationMonitor().advice() == ("wait", "No labels yet.")
    assert filled(20).advice().action == "keep"
    minor = CalibrationMonitor(smallest_shift=0.2)
    minor._history = filled(70, 0, shift_from=31)._history
    assert minor.alarm is not None
    assert minor.advice().action == "keep"
    assert "too little to matter" in minor.advice().reason
    few = filled(60, 0, shift_from=1, n=4)
    few._history.alarms.append(filled(70, 0, shift_from=31).alarms[0])
    few._history.periods = few._history.periods[-20:]
    assert few.advice().action in ("watch", "keep")


def test_parts_add_up_to_the_whole_in_any_order():
    rng = np.random.default_rng(4)
    batches = [(period, *draw(rng, 40)) for period in range(1, 31) for _ in range(2)]
    for independent in (False, True):
        whole = CalibrationMonitor(independent=independent)
        parts = [CalibrationMonitor(independent=independent) for _ in range(3)]
        for period in range(1, 31):
            p, y = (np.concatenate(each) for each in zip(*(b[1:] for b in batches if b[0] == period), strict=True))
            whole.update(p, y, period=period)
        for i, (period, p, y) in enumerate(batches):
            parts[i % 3].update(p, y, period=period)
        for order in ((0, 1, 2), (2, 0, 1)):
            merged = CalibrationMonitor()
            for i in order:
                merged.merge(CalibrationMonitor.from_dict(json.loads(json.dumps(parts[i].to_dict()))))
            # The slope is measured by the scores that a monitor had seen, which differ.
            name = "mean/all rows"
            found = (merged.e_value, whole.e_value) if independent else (merged.streams()[name], whole.streams()[name])
            assert_allclose(*found, rtol=1e-9)
            assert merged.summary().n == whole.summary().n
            assert_allclose(merged.summary(7).log_loss, whole.summary(7).log_loss, rtol=1e-12)


def test_many_periods_stay_small_and_lose_nothing_of_their_sums(tmp_path):
    monitor = filled(1000, 5, n=30)
    monitor.save(tmp_path / "monitor.json")
    assert (tmp_path / "monitor.json").stat().st_size < 100_000
    again = CalibrationMonitor.load(tmp_path / "monitor.json")
    assert again.e_value == monitor.e_value
    assert again.history() == monitor.history()
    assert sum(each.n for each in monitor.history()) == 30_000
    assert len(monitor.history()) == 80
    assert again.to_dict() == monitor.to_dict()


def test_files_without_an_id_have_one_of_their_content():
    monitor = filled(12, independent=True)
    data = monitor.to_dict() | {"id": ""}
    one, copy = CalibrationMonitor.from_dict(data), CalibrationMonitor.from_dict(data)
    other = CalibrationMonitor.from_dict(data | {"smallest_shift": 0.01})
    assert one.id == copy.id
    assert one.id != other.id
    with pytest.raises(DataError, match="Got the same monitor"):
        one.merge(copy)
    assert one.merge(other).summary().n == 2 * monitor.summary().n


def test_the_page_says_which_test_was_used_and_lists_alarms_and_what_is_expected():
    monitor = filled(40, 6, shift_from=5)
    monitor.update([0.2, 0.9], ids=["a", "b"], period=41)
    page = render_monitor(monitor)
    assert "by whole periods" in page
    assert "all rows: probabilities too low" in page
    assert f'<th scope="row">{monitor.alarm}</th>' in page
    assert "What the predictions say without labels" in page
    assert "Rows were declared independent" in render_monitor(filled(3, independent=True))


def test_a_period_in_two_calls_has_the_sums_of_one_but_for_the_scale_of_the_slope():
    rng = np.random.default_rng(0)
    whole = CalibrationMonitor()
    halves = CalibrationMonitor()
    for day in range(4):
        p = rng.random(300)
        y = (rng.random(300) < p).astype(int)
        whole.update(p, y, period=day)
        halves.update(p[:120], y[:120], period=day)
        halves.update(p[120:], y[120:], period=day)
    for one, other in zip(whole._history.periods, halves._history.periods, strict=True):
        assert one.sums["mean/all rows"] == pytest.approx(other.sums["mean/all rows"], rel=1e-12)
        assert one.sums["shape/slope"] == pytest.approx(other.sums["shape/slope"], abs=0.5)
    assert whole.e_value == pytest.approx(halves.e_value, rel=0.02)


@pytest.mark.parametrize("independent", [False, True])
def test_periods_that_come_in_one_call_enter_one_after_the_other(independent):
    rng = np.random.default_rng(3)
    days = np.repeat(np.arange(1, 13), 200)
    p = rng.beta(2, 5, len(days))
    y = rng.random(len(days)) < p + 0.1
    together = CalibrationMonitor(independent=independent)
    together.update(p, y, clusters=days)
    apart = CalibrationMonitor(independent=independent)
    for day in range(1, 13):
        apart.update(p[days == day], y[days == day], period=day)
    assert together.alarm == apart.alarm
    assert [alarm.n_rows for alarm in together.alarms] == [alarm.n_rows for alarm in apart.alarms]
    assert together.e_value == apart.e_value
    if independent:
        assert together.alarm is not None
        assert int(together.alarm) < 12


def test_rare_events_that_became_rarer_are_not_called_close_to_the_mean():
    """Of independent rows slopes turn about 1/2: of p = 0.02 alone, 1.25 says 0.0077, the nearest to 160 of 20,000."""
    y = np.arange(20_000) < 160
    monitor = CalibrationMonitor(independent=True)
    monitor.update(np.full(20_000, 0.02), y)
    assert monitor.alarms[0].moved == ["probabilities too close to 1/2"]


@pytest.mark.parametrize("independent", [False, True])
def test_probabilities_that_are_too_extreme_are_off_though_their_mean_is_right(independent):
    rng = np.random.default_rng(0)
    log_odds = rng.normal(size=6000) * 1.5
    y = rng.random(6000) < expit(log_odds / 2.0)
    monitor = CalibrationMonitor(independent=independent)
    monitor.update(expit(log_odds), y, clusters=np.repeat(np.arange(1, 31), 200))
    assert monitor.alarms[0].moved == ["probabilities too extreme"]
    assert monitor.present().z_slope < -monitor.present().threshold
    assert abs(monitor.present().z_mean) < monitor.present().threshold
    assert monitor.advice().action == "recalibrate"
    assert "refit" in monitor.advice().reason


def test_the_expected_fall_of_the_log_loss_is_that_of_a_shift_also_where_periods_scatter():
    rng = np.random.default_rng(0)
    days = np.repeat(np.arange(10), 400)
    log_odds = rng.normal(size=4000)
    y = rng.random(4000) < expit(log_odds + 0.5 + 0.3 * rng.normal(size=10)[days])

    def loss(shift):
        return log_loss(y, expit(log_odds + shift))

    best = minimize_scalar(loss, bounds=(-2.0, 2.0), method="bounded").x
    residual = np.bincount(days, y - expit(log_odds))
    price = 10.0 * residual.var(ddof=1) / (2.0 * np.sum(expit(log_odds) * expit(-log_odds))) / 4000.0
    monitor = CalibrationMonitor()
    monitor.update(expit(log_odds), y, clusters=days + 1)
    assert_allclose(monitor.present().gain, loss(0.0) - loss(best) - price, rtol=0.1)
    # The same rows twice are no more to be had from a row.
    twice = CalibrationMonitor()
    twice.update(np.tile(expit(log_odds), 2), np.tile(y, 2), clusters=np.tile(days + 1, 2))
    assert_allclose(twice.present().gain, monitor.present().gain, rtol=1e-9)


def test_a_group_or_a_class_that_is_off_now_is_a_reason_to_recalibrate():
    rng = np.random.default_rng(0)
    n = 12_000
    days = np.repeat(np.arange(1, 31), 400)
    log_odds = rng.normal(size=n) * 1.5
    region = rng.choice(["north", "south"], n)
    y = rng.random(n) < expit(log_odds + np.where(region == "north", 0.6, -0.6))
    monitor = CalibrationMonitor()
    monitor.update(expit(log_odds), y, clusters=days, groups={"region": region})
    off = monitor.present().elsewhere
    residual = y - expit(log_odds)
    for name in ("north", "south"):
        assert_allclose(off[f"group/region = {name}"], residual[(region == name) & (days > 20)].mean(), rtol=1e-9)
    advice = monitor.advice()
    assert advice.action == "recalibrate"
    assert "(refit, for each group)" in advice.reason
    assert "region = north: probabilities too low" in advice.reason
    assert "region = south: probabilities too high" in advice.reason
    # Once the last periods are calibrated, nothing is off now.
    for day in range(31, 42):
        p, y = draw(rng, 400)
        monitor.update(p, y, period=day, groups={"region": rng.choice(["north", "south"], 400)})
    assert monitor.present().elsewhere == {}
    assert "nothing is clearly off now" in monitor.advice().reason


def test_biases_are_means_over_their_rows_also_where_probabilities_lie_elsewhere_than_in_others():
    """Rows of high scores and of rare events have less variance than others; what they are off by is no more for it."""
    rng = np.random.default_rng(0)
    days = np.repeat(np.arange(10), 2_000)
    kind = rng.choice(["rare", "even", "sure"], len(days))
    p = np.select([kind == "rare", kind == "even"], [0.01, rng.uniform(0.35, 0.65, len(days))], 0.999)
    y = rng.random(len(days)) < p + np.select([kind == "rare", kind == "even"], [0.01, 0.0], -0.01)
    monitor = CalibrationMonitor()
    monitor.update(p, y, clusters=days, groups={"kind": kind})
    off = monitor.present().elsewhere
    for stream, name in (("group/kind = rare", "rare"), ("group/kind = sure", "sure"), ("shape/high scores", "sure")):
        assert_allclose(off[stream], (y - p)[kind == name].mean(), rtol=1e-9)
    # A state from before the rows of streams were counted: its biases are at least those over all rows.
    state = monitor.to_dict()
    for period in state["history"]["periods"]:
        period["sums"] = {name: sums[:2] for name, sums in period["sums"].items()}
    older = CalibrationMonitor.from_dict(state)
    assert_allclose(older.present().elsewhere["group/kind = rare"], np.sum((y - p)[kind == "rare"]) / len(p), rtol=1e-9)
    assert older.merge(CalibrationMonitor()).streams() == monitor.streams()


def test_groups_of_independent_rows_are_not_watched_and_that_is_said():
    monitor = CalibrationMonitor(independent=True)
    with pytest.warns(InputWarning, match="groups are not watched where rows are declared independent"):
        monitor.update([0.2, 0.7], [0, 1], groups=["a", "b"])


@pytest.mark.parametrize(
    "names",
    [
        ["-10", "-2", "0", "1"],
        ["January", "February", "April"],
        ["mon", "tue", "wed", "sun"],
        ["Q1", "Q2"],
        ["1.2.9", "1.2.10"],
        ["20251231", "2026-01-01", "2026/01/02", "20260103"],
        ["2026-01-01T00:30:00+02:00", "2025-12-31T23:00:00Z", "2026-01-01 00:00:00+00:00"],
        ["2026-01-31 09:00", "2026-01-31T10:00"],
        ["2025-W52", "2026-W1", "2026-W10"],
        ["2025Q4", "2026Q1"],
    ],
)
def test_periods_before_0_months_and_weekdays_are_in_the_order_of_time(names):
    monitor = CalibrationMonitor()
    monitor.update([0.4] * len(names), [0] * len(names), clusters=names[::-1])
    assert [period.first for period in monitor.history()] == [without_time_of_day(name) for name in names]


@pytest.mark.parametrize(
    "text",
    [
        *("31.12.25", "12/31/25", "1/2/26 06:00", "31-12-25", "Q1 2026", "w52/2025", "week 3, 2026"),
        *("Friday, 2026-01-02", "31/12", "1/2", "31.12.", "31-12", "31122025", "12312025", "scores_31122025"),
        *("Q12026", "Q1-26", "1Q26", "4Q2025", "1H2026", "H1 2026", "1. Quartal 2026", "scores Q1 2026"),
        *("2025-12-31 09:00 PM", "9pm"),
    ],
)
def test_short_years_and_years_behind_quarters_and_weekdays_are_refused(text):
    with pytest.raises(ParameterError, match="in whose order periods come"):
        CalibrationMonitor().update([0.4], [0], period=text)


@pytest.mark.parametrize("text", ["31.12.2025", "12/31/2025", "1-12-2025", "scores 12.2025", "Nov 2025", "2025-nov-03"])
def test_dates_that_are_not_in_the_order_of_time_are_refused(text):
    with pytest.raises(ParameterError, match=f"a date such as 2026-01-31 .*Got '{text}'"):
        CalibrationMonitor().update([0.2, 0.7], [0, 1], period=text)
    with pytest.raises(ParameterError, match="a date such as 2026-01-31"):
        CalibrationMonitor().update([0.2, 0.7], [0, 1], clusters=["2025-01-01", text])


def test_texts_in_the_order_of_time_are_periods():
    texts = ["2025-12-31", "2025-12-31T10:30", "2025/12/31", "20251231", "2025-W52", "May", "v1.2.3", "2025-12-31-2015"]
    texts += ["12-31", "202512", "251231", "h1", "week 3", "set 3", "run 20", "1767225600", "10012", "AM", "1st"]
    for text in texts:
        assert CalibrationMonitor().update([0.2, 0.7], [0, 1], period=text) == 2


UNKNOWN_ORDER = [
    ("Januar", "Februar"),
    ("Oktober", "Dezember"),
    ("14 juillet", "2 août"),
    ("janv. 2026", "févr. 2026"),
    ("scores_2026-01-01", "preds_2026-01-02"),
    ("spring", "autumn"),
]


@pytest.mark.parametrize(("first", "second"), UNKNOWN_ORDER)
def test_words_that_come_against_their_sorted_order_are_refused(first, second):
    monitor = CalibrationMonitor()
    monitor.update([0.2, 0.7], [0, 1], period=first)
    with pytest.raises(ParameterError, match=f"sorted behind '{first}' or differs from it .* Got '{second}'"):
        monitor.update([0.2, 0.7], [0, 1], period=second)
    assert monitor.update([0.2, 0.7], [0, 1], period=first) == 2
    assert [each.first for each in monitor.history()] == [first]


def updated_together(periods):
    monitor = CalibrationMonitor()
    with entering_together(monitor):
        for period in periods:
            monitor.update([0.2, 0.7], [0, 1], period=period)


@pytest.mark.parametrize("names", UNKNOWN_ORDER)
def test_words_that_come_together_are_refused_in_either_order(names):
    for periods in (names, names[::-1]):
        with pytest.raises(ParameterError, match="differ in their numbers alone where several come together"):
            CalibrationMonitor().update([0.2, 0.7], [0, 1], clusters=periods)
        with pytest.raises(ParameterError, match="where several come together"):
            updated_together(periods)


def test_words_that_come_in_their_sorted_order_are_periods_in_it():
    monitor = CalibrationMonitor()
    for period in ("autumn", "spring", "winter 2", "winter 10", "winter 3"):
        monitor.update([0.2, 0.7], [0, 1], period=period)
    assert [each.first for each in monitor.history()] == ["autumn", "spring", "winter 2", "winter 3", "winter 10"]


def test_monitors_of_periods_whose_common_order_is_not_known_are_not_merged():
    def watched(*periods):
        monitor = CalibrationMonitor()
        for period in periods:
            monitor.update([0.2, 0.7], [0, 1], period=period)
        return monitor

    with pytest.raises(DataError, match=r"differ in their numbers alone\. Got 'April' and 'Mai'"):
        watched("April", "Mai").merge(watched("April", "Juni"))
    assert watched("April", "Mai").merge(watched("April", "Mai")).summary().n == 8
    assert watched().merge(watched("April", "Mai")).summary().n == 4
    assert watched("day 2").merge(watched("day 1", "day 10")).summary().last == "day 10"


@pytest.mark.parametrize("independent", [False, True])
def test_the_expected_fall_of_the_log_loss_is_that_of_a_shift(independent):
    rng = np.random.default_rng(2)
    p, y = draw(rng, 4000, 0.1)
    monitor = CalibrationMonitor(independent=independent)
    monitor.update(p, y, clusters=np.repeat(np.arange(1, 11), 400))

    def loss(shift):
        return log_loss(y, expit(logit(p) + shift))

    fall = loss(0.0) - minimize_scalar(loss, bounds=(-2.0, 2.0), method="bounded").fun
    assert_allclose(monitor.present().gain, fall, rtol=0.1)


@pytest.mark.parametrize(("p", "rate"), [(0.001, 1.0), (0.01, 0.05), (0.3, 0.4), (0.999, 0.0)])
def test_the_expected_fall_of_a_large_shift_is_the_divergence_of_the_probabilities_from_the_rate(p, rate):
    monitor = CalibrationMonitor(independent=True)
    monitor.update(np.full(20_000, p), np.arange(20_000) < 20_000 * rate, period="May")
    expected = float(rel_entr([rate, 1.0 - rate], [p, 1.0 - p]).sum())
    assert_allclose(monitor.present().gain, expected, rtol=0.01)
    assert monitor.present().gain <= monitor.present().window.log_loss


def test_days_are_the_same_periods_however_they_are_stored():
    """Those of Arrow were refused."""
    days = np.array(["2026-01-01", "2026-01-02", "2026-01-01"], dtype="M8[D]")
    times = days.astype("M8[ns]")
    for stored in (days, times, pd.Series(times), list(pd.to_datetime(times)), pa.array(days), pa.array(times)):
        monitor = CalibrationMonitor()
        monitor.update([0.2, 0.7, 0.4], [0, 1, 0], clusters=stored)
        assert [each.first for each in monitor.history()] == ["2026-01-01", "2026-01-02"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_predictions_of_a_network_are_watched_as_their_arrays(dtype, n_classes):
    """As `collect_logits` makes them: more than two classes of tensors were an error of torch."""
    rng = np.random.default_rng(0)
    logits = rng.integers(-40, 40, size=(400, n_classes)) / 8.0  # exact in every precision
    labels = np.argmax(logits / 2.0 + rng.gumbel(size=logits.shape), axis=1)
    expected = CalibrationMonitor()
    expected.update(np.exp(log_softmax(logits, axis=1)), labels, period="1")
    rows = Predictions.from_logits(torch.asarray(logits).to(dtype), labels)
    labelled, late, of_tensor = CalibrationMonitor(), CalibrationMonitor(), CalibrationMonitor()
    labelled.update(rows, period="1")
    late.update(rows, ids=range(400), period="1")
    late.add_labels(range(400), labels)
    p = torch.softmax(torch.asarray(logits), dim=1).to(dtype)
    of_tensor.update(p, labels, period="1")
    for monitor, precision in ((labelled, 1e-6), (late, 1e-6), (of_tensor, torch.finfo(dtype).eps)):
        for name in ("log_loss", "brier_score", "mean_p"):
            assert getattr(monitor.summary(), name) == pytest.approx(getattr(expected.summary(), name), abs=precision)
        assert monitor.expected()[0].expected_accuracy == pytest.approx(
            expected.expected()[0].expected_accuracy, abs=precision
        )
        assert json.loads(json.dumps(monitor.to_dict()))["format"] == expected.to_dict()["format"]
