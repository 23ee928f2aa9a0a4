"""The test of whole batches: exact under symmetry, by all patterns of signs; late labels, classes and groups."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from refocal.errors import ParameterError
from refocal.io import Predictions
from refocal.monitor import CalibrationMonitor, evidence
from refocal.monitor.advice import Trust
from refocal.monitor.evidence import BatchTest, Stream


def test_the_mean_over_all_signs_never_exceeds_1(monkeypatch):
    """With few starts kept too, so that capital is moved between them."""
    monkeypatch.setattr(evidence, "MOST_STARTS", 3)
    size = np.random.default_rng(0).exponential(2.0, 10)
    totals = np.zeros(10)
    largest = []
    for signs in itertools.product((-1.0, 1.0), repeat=10):
        stream = Stream()
        path = []
        for i in range(10):
            stream.add(signs[i] * size[i] * 3.0, 9.0)
            path.append(math.exp(stream.log_e))
        totals += path
        largest.append(max(path))
    means = totals / 2**10
    assert np.all(means <= 1.0 + 1e-12)
    assert np.all(np.diff(means) <= 1e-12)
    assert np.mean(np.array(largest) >= 4.0) <= 1 / 4


def test_new_streams_take_their_capital_from_the_others():
    """The mean over all signs stays at most 1 where groups appear later."""
    totals = np.zeros(6)
    for signs in itertools.product((-1.0, 1.0), repeat=6):
        test = BatchTest()
        for i in range(6):
            sums = {"mean/all rows": (signs[i] * 4.0, 4.0 * evidence.LEAST_INFORMATION)}
            if i >= 2:
                sums["group/g = a"] = sums["mean/all rows"]
            if i >= 4:
                sums["group/g = b"] = sums["mean/all rows"]
            test.add(sums)
            totals[i] += math.exp(test.log_e)
    assert np.all(totals / 2**6 <= 1.0 + 1e-12)


def test_streams_that_begin_together_share_the_capital_of_their_family():
    test = BatchTest()
    test.add(dict.fromkeys(("mean/a", "shape/b", "shape/c", "class/d", "class/e", "class/f"), (0.0, 1.0)))
    shares = {name: math.exp(share) for name, share in test.log_share.items()}
    expected = {"mean/a": 3, "shape/b": 6, "shape/c": 6, "class/d": 9, "class/e": 9, "class/f": 9}
    assert shares == pytest.approx({name: 1 / parts for name, parts in expected.items()})


def test_batches_of_little_information_are_pooled():
    stream = Stream()
    for _ in range(4):
        stream.add(1.0, 1.0)
    assert (stream.n_entered, stream.log_e) == (0, 0.0)
    stream.add(1.0, 1.0)
    assert stream.n_entered == 1
    assert stream.s == [pytest.approx(5.0 / math.sqrt(5.0))]


def test_what_moved_is_named_by_the_closed_test():
    """By trying all sets of streams."""
    test = BatchTest()
    rng = np.random.default_rng(0)
    for i in range(40):
        shift = {"class/a": 9.0, "class/b": 5.0, "mean/m": 3.0}
        sums = {}
        for name in ("mean/m", "shape/s", "class/a", "class/b", "class/c"):
            sums[name] = (shift.get(name, 0.0) + 3.0 * rng.normal(), 9.0)
        test.add(sums)
        names = list(test.streams)
        weight = {name: math.exp(test.log_share[name]) for name in names}
        e_value = {name: math.exp(test.streams[name].log_e) for name in names}
        expected = set()
        for name in names:
            means = []
            for size in range(1, 6):
                for some in itertools.combinations(names, size):
                    if name in some:
                        total = sum(weight[each] * e_value[each] for each in some)
                        means.append(total / sum(weight[each] for each in some))
            if min(means) >= 20.0:
                expected.add(name)
        assert set(test.moved(0.05)) == expected, i
    assert {"class/a", "class/b"} <= expected


def late(order, seed, sd=0.0, n_days=30, n=40, **settings):
    rng = np.random.default_rng(seed)
    monitor = CalibrationMonitor(**settings)
    p = rng.beta(2, 3, (n_days, n))
    log_odds = np.log(p / (1 - p)) + sd * rng.normal(size=(n_days, 1))
    y = (rng.random((n_days, n)) < 1 / (1 + np.exp(-log_odds))).astype(int)
    ids = np.arange(n_days * n).reshape(n_days, n)
    for day in range(n_days):
        monitor.update(p[day], ids=ids[day], period=day)
    rows = order(rng, n_days * n)
    for some in np.array_split(rows, 60):
        monitor.add_labels(ids.ravel()[some], y.ravel()[some])
    return monitor


def test_a_period_enters_once_when_enough_of_its_labels_are_known():
    in_order = late(lambda rng, n: np.arange(n), 0)
    assert [period for period, _ in in_order.evidence()] == [str(day) for day in range(30)]
    assert in_order._history.n_entered == 1200  # the period that entered last grows
    shuffled = late(lambda rng, n: rng.permutation(n), 0)
    assert sorted(int(period) for period, _ in shuffled.evidence()) == list(range(30))
    assert 600 <= shuffled._history.n_entered < 800
    assert shuffled.summary().n == 1200
    assert in_order.summary().rate.value == shuffled.summary().rate.value


def test_independent_rows_enter_as_their_labels_arrive():
    shuffled = late(lambda rng, n: rng.permutation(n), 0, independent=True)
    assert shuffled._history.n_entered == 1200
    assert len(shuffled.evidence()) == 60


def test_more_rows_of_the_last_period_are_looked_at_with_it():
    rng = np.random.default_rng(1)
    at_once, in_parts = CalibrationMonitor(), CalibrationMonitor()
    for day in range(10):
        p = rng.beta(2, 3, 60)
        y = rng.random(60) < p
        at_once.update(p, y, period=day)
        for some in np.array_split(np.arange(60), 3):
            in_parts.update(p[some], y[some], period=day)
    assert len(in_parts.evidence()) == 10
    name = "mean/all rows"
    assert in_parts.streams()[name] == pytest.approx(at_once.streams()[name], rel=1e-9)
    before = in_parts.e_value
    in_parts.update([0.5] * 50, [1] * 50, period=3)  # another has entered since
    assert in_parts.e_value == before
    assert in_parts.summary().n == 650


def test_clusters_are_the_periods_of_rows():
    rng = np.random.default_rng(2)
    p = rng.beta(2, 3, 500)
    y = (rng.random(500) < p).astype(int)
    day = np.repeat(np.arange(5), 100)
    one, other = CalibrationMonitor(), CalibrationMonitor()
    order = rng.permutation(500)
    one.update(p[order], y[order], clusters=day[order])
    for i in range(5):
        other.update(p[day == i], y[day == i], period=i)
    assert [each.first for each in one.history()] == ["0", "1", "2", "3", "4"]
    assert one.streams()["mean/all rows"] == pytest.approx(other.streams()["mean/all rows"], rel=1e-9)


def test_periods_of_rows_may_be_a_table_of_one_column():
    """A table of one row was one of the period that its column is called by."""
    day = np.array(["2026-05-01", "2026-05-01", "2026-05-02"])
    for clusters in pd.DataFrame({"day": day}), {"day": day}, pd.Series(day, name="day"):
        whole, last = CalibrationMonitor(), CalibrationMonitor()
        whole.update([0.2, 0.3, 0.4], [0, 1, 0], clusters=clusters)
        assert [part.first for part in whole.history()] == ["2026-05-01", "2026-05-02"]
        of_last = {"day": day[2:]} if isinstance(clusters, dict) else clusters[2:]
        last.update([0.4], [0], clusters=of_last)
        assert [part.first for part in last.history()] == ["2026-05-02"]
    with pytest.raises(ParameterError, match=r"'clusters' of .*update must be one column\. Got 2 columns"):
        whole.update([0.2] * 3, [0] * 3, clusters={"day": day, "hour": day})


def test_clusters_of_predictions_are_periods_unless_one_is_given():
    rng = np.random.default_rng(2)
    p = rng.beta(2, 3, 600)
    y = (rng.random(600) < p).astype(int)
    rows = Predictions.from_probabilities(p, y)
    for day in (rng.permutation(np.repeat(np.arange(12), 50)), np.repeat(["2026-05-01", "2026-05-02"], 300)):
        by_argument = CalibrationMonitor()
        by_argument.update(rows, clusters=day)
        by_rows = CalibrationMonitor()
        by_rows.update(rows.with_clusters({"day": day}))
        assert [part.first for part in by_rows.history()] == [part.first for part in by_argument.history()]
        assert by_rows.streams() == by_argument.streams()
        together = CalibrationMonitor()
        together.update(rows.with_clusters({"day": day}), period=3)
        assert [part.first for part in together.history()] == ["3"]


def test_the_class_or_group_that_moved_is_named(tmp_path):
    rng = np.random.default_rng(3)
    classes, groups = CalibrationMonitor(), CalibrationMonitor()
    for day in range(40):
        p = rng.dirichlet([2.0, 2.0, 2.0, 2.0], 300)
        q = p.copy()
        q[:, 2] = 0.7 * p[:, 2]  # class c occurs less often than is said, and d more often
        q[:, 3] += 0.3 * p[:, 2]
        y = np.array([rng.choice(4, p=row) for row in q])
        rows = {"p": p, "class_names": ["a", "b", "c", "d"]}
        classes.update(rows["p"], y, period=day)
        r = rng.beta(2, 3, 300)
        region = np.array(["north", "south", "west"])[rng.integers(3, size=300)]
        happened = rng.random(300) < r + np.where(region == "west", 0.15, 0.0)
        ids = [f"{day}/{i}" for i in range(300)]
        groups.update(r, ids=ids, period=day, groups={"region": region})
        if day == 20:
            groups.save(tmp_path / "m.json")
            groups = CalibrationMonitor.load(tmp_path / "m.json")
        groups.add_labels(ids, happened)
    assert classes.alarm is not None
    assert {"class 2: probabilities too high", "class 3: probabilities too low"} >= {*classes.alarms[0].moved}
    assert "region = west: probabilities too low" in groups.alarms[0].moved
    assert not any("north" in words or "south" in words for words in groups.alarms[0].moved)


def test_labels_of_predictions_before_a_recalibration_do_not_count(tmp_path):
    monitor = CalibrationMonitor()
    monitor.update([0.2, 0.7], ids=["a", "b"], period=1)
    monitor.restart()
    monitor.update([0.4], ids=["c"], period=2)
    monitor.save(tmp_path / "m.json")
    monitor = CalibrationMonitor.load(tmp_path / "m.json")
    with pytest.warns(UserWarning, match="1 labels are of predictions made before the recalibration"):
        assert monitor.add_labels(["a", "c"], [1, 1]) == 2
    assert (monitor.summary().n, monitor.summary().mean_p, monitor.n_waiting) == (1, pytest.approx(0.4), 1)


def test_intervals_of_several_periods_are_by_their_scatter():
    rng = np.random.default_rng(4)
    covered = {True: 0, False: 0}
    for _ in range(60):
        for independent in covered:
            monitor = CalibrationMonitor(independent=independent)
            for _ in range(20):
                rate = np.clip(0.3 + 0.1 * rng.normal(), 0, 1)
                monitor.update(np.full(100, 0.3), rng.random(100) < rate)
            bias = monitor.summary().bias
            covered[independent] += bias.low <= 0.0 <= bias.high
    assert covered[False] >= 53
    assert covered[True] <= 45


def test_predictions_say_what_to_expect_and_labels_whether_that_could_be_trusted():
    from sklearn.metrics import accuracy_score, log_loss

    rng = np.random.default_rng(5)
    monitor = CalibrationMonitor()
    for day in range(30):
        p = rng.beta(0.5, 0.5, 400)
        y = (rng.random(400) < p).astype(int)
        monitor.update(p, ids=[f"{day}/{i}" for i in range(400)], period=day)
        expected = monitor.expected()[day]
        assert expected.expected_accuracy == pytest.approx(np.maximum(p, 1 - p).mean())
        entropy = -(p * np.log(p) + (1 - p) * np.log(1 - p)).mean()
        assert expected.expected_log_loss == pytest.approx(entropy, rel=1e-6)
        assert expected.accuracy is None
        monitor.add_labels([f"{day}/{i}" for i in range(400)], y)
        realised = monitor.expected()[day]
        assert realised.accuracy == accuracy_score(y, p > 0.5)
        assert realised.log_loss == pytest.approx(log_loss(y, p), rel=1e-9)
        assert realised.expected_accuracy_of_labelled == pytest.approx(realised.expected_accuracy)
    assert "could be trusted" in monitor.trust().sentence


def test_few_labels_do_not_say_that_estimates_without_labels_could_be_trusted():
    """An interval of ± 10.73 points, with 0 in it, was called one that could be trusted."""
    rest = "over 3 periods the accuracy was -7.68 ± 10.73 points from what was expected, the log-loss +0.0100 ± 0.0200."
    unknown = "No evidence that estimates without labels were off, but they may have been by up to"
    found = Trust(3, -0.0768, 0.1073, 0.01, 0.02).sentence
    assert found == f"{unknown} 18.41 points of accuracy or 0.0300 of log-loss: {rest}"
    for accuracy, log_loss, said in (
        ((0.009, 0.010), (0.01, 0.02), "Estimates without labels could be trusted"),
        ((0.011, 0.012), (0.01, 0.02), f"{unknown} 2.30 points of accuracy or 0.0300 of log-loss"),
        ((0.001, 0.010), (-0.02, 0.05), f"{unknown} 1.10 points of accuracy or 0.0700 of log-loss"),
        ((-0.03, 0.02), (0.01, 0.02), "Estimates without labels could not be trusted"),
        # Of many periods a tenth of a point is significant, but no reason not to trust them.
        ((0.001, 0.0005), (0.0001, 0.001), "Estimates without labels could be trusted"),
        ((0.015, 0.010), (0.0001, 0.001), "Estimates without labels could not be trusted"),
        ((0.001, 0.1), (-0.03, 0.02), "Estimates without labels could not be trusted"),
    ):
        assert Trust(9, *accuracy, *log_loss).sentence.startswith(f"{said}: over 9 periods")


def test_the_mean_of_two_tests_is_that_of_their_e_values_where_streams_have_other_shares():
    """A late group has a share of what others have won by then; it must not multiply what it won in the other test."""
    late = BatchTest()
    for _ in range(25):
        late.add({"mean/all rows": (6.0, 16.0)})
    early = BatchTest()
    for _ in range(10):
        late.add({"mean/all rows": (0.0, 16.0), "group/north": (0.0, 16.0)})
    for _ in range(35):
        early.add({"mean/all rows": (0.0, 16.0), "group/north": (6.0, 16.0)})
    mean = float(np.logaddexp(late.log_e, early.log_e)) - math.log(2.0)
    for both in (late.averaged(early), early.averaged(late)):
        # What is not bet yet falls to that of the longer test, which is next to nothing here.
        assert mean - 0.01 < both.log_e <= mean


@pytest.mark.parametrize("sure", [1.0, 0.999])
def test_probabilities_next_to_0_and_1_that_are_wrong_raise_an_alarm(sure):
    """They have so little variance that their batches never entered the test, and the advice was to keep them."""
    rng = np.random.default_rng(3)
    monitor = CalibrationMonitor()
    for day in range(31):
        p = np.where(rng.random(300) < 0.11, sure, 1.0 - sure)
        y = rng.random(300) < np.where(p > 0.5, 0.8, 0.18)
        monitor.update(p, y.astype(int), period=day)
    assert monitor.alarm is not None
    assert monitor.advice().action == "recalibrate"


def test_a_batch_of_little_information_enters_at_20_events_more_than_expected():
    few = Stream()
    few.add(residual=19.0, information=1.0)
    many = Stream()
    many.add(residual=20.0, information=1.0)
    assert few.n_entered == 0
    assert many.n_entered == 1
    assert many.s[0] == pytest.approx(20.0 / math.sqrt(5.0))
