"""What the classes of a monitor are called, and whose rows wait in which file."""

from __future__ import annotations

import sys
from datetime import date, datetime

import numpy as np
import pandas as pd
import pytest

from refocal.errors import DataError, FormatError, InputError, LabelError, ParameterError, ShapeError
from refocal.io import Predictions
from refocal.monitor import CalibrationMonitor

NAMES = np.array(["cat", "dog", "emu"])


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.normal(size=(600, 3))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return p, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)


def test_states_in_one_folder_keep_their_own_waiting_rows(tmp_path):
    east, west, south = CalibrationMonitor(), CalibrationMonitor(), CalibrationMonitor()
    east.update([0.1, 0.2], ids=["a", "b"])
    west.update([0.9, 0.8], ids=["a", "b"])
    for name, monitor in (("east", east), ("west", west), ("south", south)):
        monitor.save(tmp_path / f"state.{name}")
    for name, mean in (("east", 0.15), ("west", 0.85)):
        monitor = CalibrationMonitor.load(tmp_path / f"state.{name}")
        monitor.add_labels(["a", "b"], [0, 0])
        assert monitor.summary().mean_p == pytest.approx(mean)


def test_later_labels_may_be_whole_names_of_columns(rows, tmp_path):
    """As those that come with the batch."""
    p, labels = rows
    frame = pd.DataFrame(p, columns=[f"p_{name}" for name in NAMES])
    whole = np.array(frame.columns)[labels]
    at_once, later, merged = CalibrationMonitor(), CalibrationMonitor(), CalibrationMonitor()
    at_once.update(frame, whole, period="May")
    later.update(frame, ids=range(600), period="May")
    later.save(tmp_path / "m.json")
    later = merged.merge(CalibrationMonitor.load(tmp_path / "m.json"))
    assert later.add_labels(range(300), whole[:300]) == 300
    assert later.add_labels(range(300, 600), NAMES[labels[300:]]) == 300
    assert later.summary().log_loss == pytest.approx(at_once.summary().log_loss, rel=1e-12)
    with pytest.raises(LabelError, match="among the class names"):
        at_once.update(frame, ["q_cat"] * 600, period="May")
    state = later.to_dict()
    for wrong in (["p_cat"], ["p_cat", "p_cat", "p_dog"]):
        with pytest.raises(FormatError, match="'whole_names' must be as many different ones as 'class_names'"):
            CalibrationMonitor.from_dict(state | {"whole_names": wrong})


def test_waiting_rows_of_another_state_are_refused(tmp_path):
    one, other = CalibrationMonitor(), CalibrationMonitor()
    one.update([0.1, 0.2], ids=["a", "b"])
    other.update([0.9], ids=["a"])
    one.save(tmp_path / "one.json")
    other.save(tmp_path / "other.json")
    (tmp_path / "other.json.waiting.npz").replace(tmp_path / "one.json.waiting.npz")
    with pytest.raises(FormatError, match=r"one.json.waiting.npz holds the waiting predictions of another monitor"):
        CalibrationMonitor.load(tmp_path / "one.json")
    waiting = {"ids": np.array(["a"]), "periods": np.array([1]), "probabilities": np.array([0.3])}
    np.savez(tmp_path / "one.json.waiting.npz", monitor=np.array(one.id), **waiting)
    with pytest.raises(FormatError, match=r"must hold 2 waiting predictions. Got 1 instead"):
        CalibrationMonitor.load(tmp_path / "one.json")


def test_waiting_rows_of_0_1_0_are_read(tmp_path):
    monitor = CalibrationMonitor()
    monitor.update([0.1, 0.2], ids=["a", "b"])
    monitor.save(tmp_path / "m.json")
    (tmp_path / "m.json.waiting.npz").unlink()
    ids = np.array(["a", "b"])
    np.savez(tmp_path / "m.waiting.npz", ids=ids, periods=np.array([1, 1]), probabilities=np.array([0.1, 0.2]))
    assert CalibrationMonitor.load(tmp_path / "m.json").add_labels(["a", "b"], [0, 1]) == 2


def test_a_merged_monitor_reads_labels_as_its_parts_did(rows):
    p, labels = rows
    frame = pd.DataFrame(p, columns=["1", "2", "other"])
    first = labels == 0
    by_number = CalibrationMonitor()
    by_number.update(frame[first], labels[first], period=1)
    merged = CalibrationMonitor().merge(by_number)
    for monitor in (by_number, merged):
        with pytest.raises(LabelError, match="read as column numbers, as those before"):
            monitor.update(frame[~first], labels[~first], period=2)
    by_name = CalibrationMonitor()
    by_name.update(frame, np.array(["1", "2", "other"])[labels], period=2)
    with pytest.raises(DataError, match="labels were read in the same way"):
        merged.merge(by_name)


def test_names_are_not_learned_after_rows_without_names(rows):
    p, labels = rows
    order = [2, 0, 1]
    monitor = CalibrationMonitor()
    monitor.update(p, ids=range(600))
    with pytest.raises(ShapeError, match=r"of columns without names, as those before.*monitor.class_names"):
        monitor.update(pd.DataFrame(p[:, order], columns=NAMES[order]), NAMES[labels])
    monitor.class_names = tuple(NAMES)
    monitor.update(pd.DataFrame(p, columns=NAMES), NAMES[labels], period=2)
    assert monitor.add_labels(range(600), NAMES[labels]) == 600
    expected = np.mean(p.argmax(axis=1) == labels)
    assert [each.rate.value for each in monitor.history()] == pytest.approx([expected, expected])


def test_two_columns_named_after_one_number_per_row_are_refused(rows):
    p, labels = rows
    words = np.where(labels == 0, "yes", "no")
    frame = pd.DataFrame({"yes": p[:, 0], "no": 1.0 - p[:, 0]})
    monitor = CalibrationMonitor()
    monitor.update(p[:, 0], labels == 0)
    with pytest.raises(ShapeError, match="of columns without names"):
        monitor.update(frame, words)
    stated = CalibrationMonitor(class_names=["no", "yes"])
    stated.update(p[:, 0], labels == 0)
    with pytest.raises(ShapeError, match="of the columns no, yes, as those before"):
        stated.update(frame, words)
    stated.update(frame[["no", "yes"]], words)
    first, second = stated.history()
    assert first.mean_p == pytest.approx(second.mean_p)
    assert first.rate == second.rate
    with pytest.raises(ParameterError, match=r"'class_names' .* must be two different names or more"):
        CalibrationMonitor(class_names=["no", "no"])


def test_weights_are_refused():
    rows = Predictions.from_probabilities([0.2, 0.8], [0, 1], weight=[3.0, 0.1])
    with pytest.raises(ParameterError, match=r"'weight' of CalibrationMonitor.update must be left out"):
        CalibrationMonitor().update(rows)


def test_whole_numbers_are_the_same_ids_and_dates_of_numpy_are_periods():
    monitor = CalibrationMonitor()
    monitor.update([0.2, 0.8], ids=np.array([1.0, 2.0]), period=np.datetime64("2026-01-01T00:00:00.000000000"))
    assert monitor.add_labels([1, 2], [0, 1]) == 2
    assert monitor.summary().first == "2026-01-01"


@pytest.mark.parametrize(
    ("same", "name"),
    [
        (["2026-05-01", "2026-05-01 00:00:00", date(2026, 5, 1), datetime(2026, 5, 1)], "2026-05-01"),
        ([pd.Timestamp("2026-05-01"), np.datetime64("2026-05-01T00"), np.datetime64("2026-05-01", "ns")], "2026-05-01"),
        (["2026-05-01 10:30:00", datetime(2026, 5, 1, 10, 30)], "2026-05-01T10:30:00"),
        ([pd.Timestamp("2026-05-01 10:30"), np.datetime64("2026-05-01T10:30")], "2026-05-01T10:30:00"),
        ([np.datetime64("2026-05-01T10:30", "ns")], "2026-05-01T10:30:00"),
        ([np.datetime64("2026-05"), "2026-05"], "2026-05"),
    ],
)
def test_a_period_is_the_same_whatever_type_it_has(same, name):
    monitor = CalibrationMonitor()
    for period in same:
        monitor.update([0.2, 0.8], [0, 1], period=period)
        monitor.update([0.2, 0.8], [0, 1], clusters=[period, period])
    assert [(each.first, each.n) for each in monitor.history()] == [(name, 4 * len(same))]


def test_a_missing_date_is_no_period():
    with pytest.raises(ParameterError, match=r"a text, a date or a whole number\. Got NaT"):
        CalibrationMonitor().update([0.2, 0.8], [0, 1], period=pd.NaT)


@pytest.mark.parametrize("missing", [None, np.nan, "", pd.NaT, pd.NA])
def test_a_missing_id_is_no_id(missing):
    monitor = CalibrationMonitor()
    with pytest.raises(DataError, match=r"'ids' of .* must be known of every row. Got none in row 1 instead"):
        monitor.update([0.2, 0.8], ids=["a", missing])
    assert monitor.n_waiting == 0


def test_contradicting_labels_of_one_id_are_refused():
    monitor = CalibrationMonitor()
    monitor.update([0.2, 0.8], ids=["a", "b"], period="2026-01-01")
    with pytest.raises(LabelError, match=r"must be one for each id.*different ones of 'a'"):
        monitor.add_labels(["a", "b", "a"], [0, 1, 1])
    assert monitor.n_waiting == 2
    assert monitor.add_labels(["a", "b", "a"], [0, 1, 0]) == 2
    assert (monitor.n_waiting, monitor.summary().n) == (0, 2)


@pytest.mark.parametrize(
    "periods",
    [
        ["q2025.25", "q2025.5"],
        ["run 3 at 0.5 h", "run 3 at 0.25 h"],
        ["day 1,5", "day 1,25"],
        ["311225", "010126"],
        ["scores_123125", "scores_010226"],
        [311225, 300126],
    ],
)
def test_numbers_whose_order_is_not_plain_are_refused_behind_words_and_as_dates(periods):
    with pytest.raises(ParameterError, match=r"decimals with as many digits each, .* or dates with the year first"):
        CalibrationMonitor().update([0.2, 0.8], [0, 1], clusters=periods)
    one, other = CalibrationMonitor(), CalibrationMonitor()
    one.update([0.2, 0.8], [0, 1], period=periods[0])
    other.update([0.2, 0.8], [0, 1], period=periods[1])
    with pytest.raises(DataError, match="periods in one order with these"):
        one.merge(other)


@pytest.mark.parametrize(
    "periods",
    [
        ["q2025.25", "q2025.50", "q2026.00"],
        ["v1.9", "v1.10"],
        ["release 2.9", "release 2.10"],
        ["1.2.9", "1.2.10"],
        ["260131", "260201"],
        ["batch_100099", "batch_200001"],
        ["202512", "202601"],
        ["08:00:00.25", "08:00:00.5"],
        ["2026-01-01T08:00:00.25", "2026-01-01T08:00:00.5"],
        ["2026-01-01T08:00:00.25+01:00", "2026-01-01T08:00:00.5+01:00"],
        ["0 days 23:00:00.25", "0 days 23:00:00.5", "1 days 00:00:00"],
    ],
)
def test_numbers_in_periods_are_sorted_where_their_order_is_plain(periods):
    monitor = CalibrationMonitor()
    monitor.update([0.2] * len(periods), [0] * len(periods), clusters=periods[::-1])
    assert [each.first for each in monitor.history()] == periods


@pytest.mark.parametrize("periods", [["2025.25", "2025.5"], ["1.9", "1.10"]])
def test_decimals_whose_order_is_not_plain_are_no_periods(periods):
    with pytest.raises(ParameterError, match="dates, whole numbers, or decimals with as many digits each"):
        CalibrationMonitor().update([0.2, 0.8], [0, 1], clusters=periods)
    monitor = CalibrationMonitor()
    monitor.update([0.2, 0.8], [0, 1], clusters=["2025.25", "2025.75"])
    assert [each.first for each in monitor.history()] == ["2025.25", "2025.75"]
    monitor.update([0.2, 0.8], [0, 1], clusters=["2026", "2026.25"])
    for given in ({"clusters": ["2026.5", "2026.5"]}, {"period": "2026.5"}):
        with pytest.raises(ParameterError, match=r"Got '2026\.5' and '2026\.25' instead"):
            monitor.update([0.2, 0.8], [0, 1], **given)
    one_by_one = CalibrationMonitor()
    one_by_one.update([0.2, 0.8], [0, 1], period=periods[0])
    with pytest.raises(ParameterError, match="dates, whole numbers, or decimals with as many digits each"):
        one_by_one.update([0.2, 0.8], [0, 1], period=periods[1])
    other = CalibrationMonitor()
    other.update([0.2, 0.8], [0, 1], period=periods[1])
    with pytest.raises(DataError, match="periods in one order with these: decimals with as many digits each"):
        one_by_one.merge(other)


def test_words_of_columns_without_names_need_those_of_the_monitor():
    with pytest.raises(LabelError, match=r"text such as 'no' .* Name the classes: CalibrationMonitor\(class_names="):
        CalibrationMonitor().update([0.2, 0.3], ["no", "no"])
    monitor = CalibrationMonitor(class_names=["no", "yes"])
    assert monitor.update([0.2, 0.3], ["no", "no"]) == 2
    assert monitor.summary().rate.value == 0.0


def test_later_labels_do_not_count_columns_that_a_positive_label_moved():
    p = [[0.8, 0.2], [0.3, 0.7]]
    rows = Predictions.from_probabilities(p, ["late", "ok"], class_names=["late", "ok"], positive_label="late")
    monitor = CalibrationMonitor()
    monitor.update(rows, ids=["a", "b"])
    merged = CalibrationMonitor().merge(CalibrationMonitor.from_dict(monitor.to_dict()))
    assert merged.columns_moved
    with pytest.raises(LabelError, match=r"names of classes \(ok, late\).* 0 is 'ok' in this order and 'late' in that"):
        monitor.add_labels(["a", "b"], [0, 1])
    assert monitor.add_labels(["a", "b"], ["late", "ok"]) == 2
    assert monitor.summary().rate.value == 0.5


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there that tests do not have")
def test_a_state_that_is_a_link_is_saved_where_it_leads_with_what_waits(tmp_path):
    (tmp_path / "shared").mkdir()
    CalibrationMonitor().save(tmp_path / "shared" / "m.json")
    (tmp_path / "m.json").symlink_to("shared/m.json")
    watched = CalibrationMonitor.load(tmp_path / "m.json")
    watched.update([0.2, 0.7], ids=["a", "b"], period=1)
    watched.save(tmp_path / "m.json")
    assert sorted(path.name for path in (tmp_path / "shared").iterdir()) == ["m.json", "m.json.waiting.npz"]
    for place in ("m.json", "shared/m.json"):
        again = CalibrationMonitor.load(tmp_path / place)
        assert again.add_labels(["a", "b"], [0, 1]) == 2
    again.save(tmp_path / "m.json")
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["m.json"]


@pytest.mark.parametrize("wrong", [{"period": "31.12.2025"}, {"clusters": ["Lundi", "Jeudi"]}, {"groups": ["north"]}])
@pytest.mark.parametrize("carrier", [pd.DataFrame, lambda frame: Predictions.from_probabilities(frame, ["cat", "dog"])])
def test_a_batch_that_is_refused_says_nothing_of_the_classes(wrong, carrier):
    monitor = CalibrationMonitor()
    frame = pd.DataFrame({"p_cat": [0.9, 0.2], "p_dog": [0.1, 0.8]})
    labels = ["cat", "dog"] if carrier is pd.DataFrame else None
    before = monitor.to_dict()
    with pytest.raises(InputError):
        monitor.update(carrier(frame), labels, **wrong)
    assert monitor.to_dict() == before
    assert monitor.update([[0.1, 0.2, 0.7]], [2]) == 1


@pytest.mark.parametrize("first", [1, 3])
def test_batches_after_one_whose_labels_count_from_one_are_read_so(rows, tmp_path, first):
    """Also where the last class is missing, so that the labels would be columns counted from 0 as well."""
    p, truth = rows
    is_low = truth < 2
    later = p[is_low], truth[is_low] + first
    accuracy = np.mean(p[is_low].argmax(axis=1) == truth[is_low])
    monitor = CalibrationMonitor()
    monitor.update(Predictions.from_probabilities(p, truth + first, first_label=first), period=1)
    monitor.save(tmp_path / "m.json")
    monitor = CalibrationMonitor.load(tmp_path / "m.json")
    monitor.update(*later, period=2)
    monitor.update(later[0], ids=range(len(later[1])), period=3)
    monitor.add_labels(range(len(later[1])), later[1])
    assert monitor.class_names == tuple(str(first + i) for i in range(3))
    assert [each.rate.value for each in monitor.history()[1:]] == [pytest.approx(accuracy)] * 2


def test_a_monitor_of_rows_without_names_goes_on_without_them(rows):
    """Where labels of earlier batches counted from 0, a batch that says how its labels count changes no names."""
    p, truth = rows
    monitor = CalibrationMonitor()
    monitor.update(p, truth, period=1)
    monitor.update(Predictions.from_probabilities(p, truth + 1, first_label=1), period=2)
    first, second = (each.rate.value for each in monitor.history())
    assert monitor.class_names is None
    assert first == second == pytest.approx(np.mean(p.argmax(axis=1) == truth))
