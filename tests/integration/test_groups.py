"""Calibration group by group: intervals that hold, the worst on top, in Python, files and pages."""

from __future__ import annotations

import json
import math
import warnings
from functools import partial

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from refocal import GroupCalibration, LogisticCalibration, PredictionSets, TemperatureScaling, load, metrics
from refocal._clusters import as_clusters
from refocal._groups import as_groups
from refocal.calibrators.registry import make
from refocal.calibrators.serialize import from_dict, to_dict
from refocal.cli.run import run
from refocal.errors import DataError, FormatError, InputWarning, ParameterError, ShapeError, UnsupportedError
from refocal.evaluate import Evaluation, compare, evaluate, load_evaluation
from refocal.evaluate.summary import group_table, group_verdict
from refocal.export import to_onnx
from refocal.io import Predictions, blocks, read
from refocal.maps.steps import Temperature
from refocal.metrics import expected_calibration_error, mean_bias, mean_bias_interval
from refocal.metrics.bias_interval import exact_interval_of_shift
from refocal.metrics.bins import row_cells
from refocal.monitor import CalibrationMonitor
from refocal.report import render


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def draw(n=3000, seed=0):
    """Probabilities, labels, and regions of which one is shifted."""
    rng = np.random.default_rng(seed)
    region = rng.choice(["north", "south", "<b>east"], n, p=[0.5, 0.3, 0.2])
    log_odds = rng.normal(-1.0, 1.2, n)
    labels = (rng.random(n) < sigmoid(log_odds - np.where(region == "south", 1.2, 0.0))).astype(int)
    return sigmoid(log_odds), labels, region


def wilson(k, n, z=1.959963984540054):
    centre, reach = k + z * z / 2, z * math.sqrt(k * (n - k) / n + z * z / 4)
    return (centre - reach) / (n + z * z), (centre + reach) / (n + z * z)


@pytest.mark.parametrize(("k", "n"), [(0, 20), (3, 20), (20, 20), (7, 500), (490, 500)])
def test_equal_probabilities_have_wilsons_interval(k, n):
    labels = np.arange(n) < k
    found = mean_bias_interval(labels.astype(int), np.full(n, 0.3))
    low, high = wilson(k, n)
    assert (found.low, found.high) == (pytest.approx(0.3 - high, abs=1e-9), pytest.approx(0.3 - low, abs=1e-9))
    assert found.value == pytest.approx(mean_bias(labels.astype(int), np.full(n, 0.3)))


def test_the_interval_covers_the_difference_of_a_rare_class():
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        log_odds = rng.normal(-4.0, 1.5, 150)
        truth = sigmoid(log_odds - 0.7)
        found = mean_bias_interval((rng.random(150) < truth).astype(int), sigmoid(log_odds))
        inside += found.low <= sigmoid(log_odds).mean() - truth.mean() <= found.high
    assert inside >= 182  # 95 % less two standard errors and a half


def test_weights_count_as_rows_do():
    p, labels, _ = draw(200)
    twice, weight = np.tile(np.arange(200), 2), np.full(200, 3.0)
    one, same = mean_bias_interval(labels, p), mean_bias_interval(labels, p, sample_weight=weight)
    assert (same.low, same.high) == (pytest.approx(one.low), pytest.approx(one.high))
    two = mean_bias_interval(labels[twice], p[twice])
    assert two.high - two.low < 0.8 * (one.high - one.low)


def test_extreme_probabilities_have_an_interval():
    found = mean_bias_interval([0, 1, 1], [0.0, 1.0, 0.0])
    assert -1.0 <= found.low < found.value < found.high <= 1.0


@pytest.fixture(scope="module")
def found():
    p, labels, region = draw()
    rows = Predictions.from_probabilities(p, labels, class_names=["fine", "late"])
    halves = np.arange(0, 3000, 2), np.arange(1, 3000, 2)
    groups = {"region": region, "age": np.where(np.arange(3000) % 4 < 2, 30.0, 50.0)}
    validation, test = (rows.with_groups(groups).take(half) for half in halves)
    return compare(validation, test, ["logistic"], n_resamples=20), test


def test_every_group_is_measured_on_its_own_rows(found):
    evaluation, test = found
    rows = {(row.column, row.name): row for row in evaluation.before.groups}
    assert set(rows) == {("region", "north"), ("region", "south"), ("region", "<b>east"), ("age", "30"), ("age", "50")}
    south = test.groups["region"] == "south"
    p, y = test.values[south, 1], test.labels[south]
    row = rows["region", "south"]
    assert (row.n, row.mean, row.rate) == (south.sum(), pytest.approx(p.mean()), pytest.approx(y.mean()))
    # One half for methods, the other for the mean and the diagram of five groups and of all rows, before and after.
    each = 0.95 ** (1 / 2 / 24)
    order = np.argsort(p)
    interval = exact_interval_of_shift(row_cells(p[order], y[order], None), each)
    assert (row.difference.low, row.difference.high) == (pytest.approx(interval.low), pytest.approx(interval.high))
    assert row.ece == pytest.approx(expected_calibration_error(y, p, n_bins=min(15, len(p) // 50)))
    assert 0.0 < row.ece_by_chance < row.ece
    calm = rows["region", "north"]
    assert calm.difference.low < 0.0 < calm.difference.high


def test_the_ece_by_chance_is_that_of_labels_drawn_from_the_probabilities(found):
    evaluation, test = found
    row = next(row for row in evaluation.before.groups if row.name == "north")
    p = test.values[test.groups["region"] == "north", 1]
    rng = np.random.default_rng(1)
    drawn = [expected_calibration_error((rng.random(len(p)) < p).astype(int), p) for _ in range(100)]
    assert row.ece_by_chance == pytest.approx(np.mean(drawn), rel=0.1)


def test_the_worst_group_is_on_top_in_tables_pages_and_json(found):
    evaluation, _ = found
    first = evaluation.after.groups[0]
    assert (first.column, first.name) == ("region", "south")
    assert first.difference.low > 0.0
    table = group_table(evaluation)
    assert table[0]["group"] == "region = south"
    assert len(table) == 5
    assert {tuple(row) for row in table} == {tuple(table[0])}
    assert "The worst is region = south" in group_verdict(evaluation)
    page = render(evaluation)
    assert page.index("region = south") < page.index("region = north")
    assert "region = &lt;b&gt;east" in page
    assert Evaluation.from_dict(json.loads(json.dumps(evaluation.to_dict()))) == evaluation


def test_groups_of_many_classes_are_about_the_confidence():
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(600, 3))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    rows = Predictions.from_logits(logits, labels)
    found = evaluate(rows, {}, groups=["a", "b"] * 300, n_resamples=20)
    row = next(row for row in found.before.groups if row.name == "a")
    correct = (logits.argmax(axis=1) == labels)[::2]
    assert (row.column, row.rate) == ("group", pytest.approx(correct.mean()))
    assert "confidence %" in group_table(found)[0]


def test_groups_that_cannot_be():
    rows = Predictions.from_probabilities([0.2, 0.8, 0.4], [0, 1, 0])
    with pytest.raises(ShapeError, match=r"one group for each row. Got shape \(2,\) in 'region'"):
        evaluate(rows, {}, groups={"region": ["a", "b"]})
    with pytest.raises(ParameterError, match=r"at most 2,000 groups in a column. Got 2,001 in 'group'"):
        as_groups(np.arange(2001), 2001, "f")
    with pytest.raises(ParameterError, match="rows in blocks"):
        evaluate(blocks([(rows.values, rows.labels)], input="probabilities"), {}, groups=["a", "b", "a"])
    named = as_groups([1.0, np.nan, 2.5], 3, "f")["group"]
    assert named.tolist() == ["1", "missing", "2.5"]
    assert as_groups(np.array(["a", None, ""], dtype=object), 3, "f")["group"].tolist() == ["a", "missing", "missing"]


@pytest.mark.parametrize("kind", [list, np.array, pd.Series])
def test_text_is_the_name_of_its_group_as_it_is(kind):
    texts = ["1.0", "1", "nan", "inf", "NaT", "<NA>"]
    assert as_groups(kind([*texts, ""]), 7, "f").popitem()[1].tolist() == [*texts, "missing"]


@pytest.mark.parametrize(
    "column",
    [
        [1, 1.0, "1", None, float("nan")],
        np.array([1, np.float32(1.0), b"1", None, np.nan], dtype=object),
        pd.Series([1.0, 1.0, "1", pd.NA, pd.NaT], dtype=object),
        pd.Series([1, 1, 1, None, None], dtype="Int64"),
        pd.Series([1.0, 1.0, 1.0, np.nan, np.nan]),
        pd.Series(["1", "1", "1", None, None], dtype="category"),
    ],
)
def test_whole_numbers_are_one_group_however_they_are_stored_and_what_is_missing_is_another(column):
    assert as_groups(column, 5, "f").popitem()[1].tolist() == ["1", "1", "1", "missing", "missing"]


@pytest.mark.parametrize("unit", ["h", "m", "s", "ns"])
def test_times_are_the_same_groups_in_every_unit(unit):
    times = np.array(["2024-05-01T08", "2024-05-02T00"], dtype=f"datetime64[{unit}]")
    expected = ["2024-05-01T08:00:00", "2024-05-02"]
    assert as_groups(times, 2, "f")["group"].tolist() == expected
    assert as_groups([*times], 2, "f")["group"].tolist() == expected


@pytest.mark.parametrize("unit", ["D", "ns"])
def test_dates_are_groups_by_their_text(unit):
    dates = np.array(["2024-05-01", "NaT"], dtype=f"datetime64[{unit}]")
    day, missing = as_groups(dates, 2, "f")["group"].tolist()
    assert day.startswith("2024-05-01")
    assert missing == "missing"


@pytest.mark.parametrize("n_classes", [1, 2, 3])
@pytest.mark.parametrize("carrier", ["array", "frame"])
def test_predictions_of_dask_are_lazy_and_those_of_memory(n_classes, carrier):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, n_classes))[:, 0 if n_classes == 1 else slice(None)]
    region = rng.choice(["north", "south"], 600)
    names = np.array(["ant", "bee", "cat"][: max(n_classes, 2)])
    fitted = GroupCalibration(method="ts", input="log-odds" if n_classes == 1 else "logits")
    fitted.fit(X, names[rng.integers(len(names), size=600)], groups={"region": region})
    chunked = da.from_array(X, chunks=(250,) if n_classes == 1 else (250, 1))
    if carrier == "frame" and n_classes > 1:
        chunked = dd.from_pandas(pd.DataFrame(X), npartitions=3)
    for method in ("predict_proba", "predict_log_proba", "predict"):
        want = getattr(fitted, method)(X, groups={"region": region})
        lazy = getattr(fitted, method)(chunked, groups={"region": region})
        assert isinstance(lazy, da.Array)
        assert lazy.shape == want.shape
        assert lazy.dtype == want.dtype
        assert np.array_equal(lazy.compute(), want)
    by_dask = fitted.predict_proba(chunked, groups=da.from_array(region, chunks=100))
    assert np.array_equal(by_dask.compute(), fitted.predict_proba(X, groups=region))
    with pytest.raises(ShapeError, match=r"one group for each row. Got shape \(2,\)"):
        fitted.predict_proba(chunked, groups=["north", "south"])
    with pytest.warns(InputWarning, match="no groups of 'region' were given"):
        fitted.predict_proba(chunked)


def test_the_command_line_reads_groups(tmp_path, capsys):
    p, labels, region = draw(1200)
    file, json_file = tmp_path / "rows.csv", tmp_path / "e.json"
    lines = [f"{a!r},{b},{r},{i % 3}" for i, (a, b, r) in enumerate(zip(p.tolist(), labels, region, strict=True))]
    file.write_text("\n".join(["p,label,region,day", *lines]) + "\n")
    command = ["compare", str(file), "--probabilities", "-m", "logistic", "--resamples", "20", "-o", str(json_file)]
    assert run([*command, "--values", "p", "--groups", "region", "--groups", "day"]) == 0
    out = capsys.readouterr().out
    assert "region = south" in out
    assert "day = 2" in out
    assert "--groups" not in out.splitlines()[-1]  # the method that is recommended takes none
    assert run([*command, "--values", "p", "--groups", "area"]) == 1
    assert "no column 'area'" in capsys.readouterr().err
    in_blocks = ["evaluate", str(tmp_path / "*.csv"), "--probabilities", "--values", "p"]
    assert run([*in_blocks, "--groups", "region"]) == 0
    assert "region = south" in capsys.readouterr().out
    assert run(["fit", str(tmp_path / "*.csv"), "--probabilities", "--values", "p", "--groups", "region"]) == 1
    assert "GroupCalibration needs all rows in memory" in capsys.readouterr().err


def test_rows_without_a_label_take_their_groups_along(tmp_path):
    np.savez(tmp_path / "rows.npz", logits=np.eye(3)[[0, 1, 2, 0]] * 3, labels=[0, 255, 2, 0], site=list("abcd"))
    assert read(tmp_path / "rows.npz", ignore_index=255, groups=["site"]).groups["site"].tolist() == ["a", "c", "d"]


@pytest.fixture(scope="module")
def fitted():
    p, labels, region = draw(6000)
    return GroupCalibration(method="logistic", input="probabilities").fit(p, labels, groups={"region": region})


def test_a_group_that_differs_has_a_line_of_its_own(fitted):
    p, labels, region = draw(6000, seed=1)
    common = fitted.predict_proba(p, groups={})[:, 1]
    own = fitted.predict_proba(p, groups={"region": region})[:, 1]
    south = region == "south"
    assert abs(own[south].mean() - labels[south].mean()) < 0.02 < common[south].mean() - labels[south].mean()
    lines = fitted.lines_["region"]
    assert lines.names.tolist() == ["<b>east", "north", "south"]
    expected = sigmoid(lines.slope[2] * np.log(common / (1 - common))[south] + lines.intercept[2])
    assert np.allclose(own[south], expected, rtol=1e-9)
    assert np.allclose(fitted.predict_log_proba(p, groups=region), np.log(fitted.predict_proba(p, groups=region)))


def test_unknown_groups_get_the_common_calibrator(fitted):
    p, labels, _ = draw(6000)
    common = LogisticCalibration(input="probabilities").fit(p, labels).predict_proba(p[:4])
    with pytest.warns(InputWarning, match=r"GroupCalibration.predict_log_proba: no groups of 'region' were given"):
        assert np.allclose(fitted.predict_proba(p[:4]), common, rtol=1e-12)
    assert np.allclose(fitted.predict_proba(p[:4], groups={}), common, rtol=1e-12)
    for groups in (["west"] * 4, {"age": ["30"] * 4}):
        with pytest.warns(InputWarning, match="no groups of 'region' were given that the fit has seen"):
            assert np.allclose(fitted.predict_proba(p[:4], groups=groups), common, rtol=1e-12)
    mixed = fitted.predict_proba(p[:2], groups=["south", "west"])
    assert np.allclose(mixed[1], common[1], rtol=1e-12)
    assert mixed[0, 1] < common[0, 1]


def test_rows_without_a_group_are_one_of_their_own():
    rng = np.random.default_rng(0)
    log_odds = rng.normal(size=4000)
    group = rng.choice(np.array(["a", None], dtype=object), size=4000)
    absent = group == None  # noqa: E711
    labels = (rng.random(4000) < sigmoid(log_odds + 1.0 * absent)).astype(int)
    fitted = GroupCalibration(method="logistic", input="log-odds").fit(log_odds, labels, groups=group)
    assert fitted.lines_["group"].names.tolist() == ["a", "missing"]
    p = fitted.predict_proba(log_odds, groups=group)[:, 1]
    assert abs(p[absent].mean() - labels[absent].mean()) < 0.01
    assert np.array_equal(p[absent], fitted.predict_proba(log_odds[absent], groups=[float("nan")] * absent.sum())[:, 1])


def test_groups_that_do_not_differ_are_left_alone():
    rng = np.random.default_rng(0)
    log_odds, group = rng.normal(-1.0, 1.2, 3000), rng.integers(20, size=3000)
    labels = (rng.random(3000) < sigmoid(log_odds)).astype(int)
    fitted = make("group", method="logistic", input="log-odds").fit(log_odds, labels, groups=group)
    common = LogisticCalibration(input="log-odds").fit(log_odds, labels).predict_proba(log_odds)[:, 1]
    rates = np.array([labels[group == g].mean() - common[group == g].mean() for g in range(20)])
    moved = fitted.predict_proba(log_odds, groups=group)[:, 1] - common
    found = np.array([moved[group == g].mean() for g in range(20)])
    assert np.abs(found).mean() < 0.5 * np.abs(rates).mean()  # most of what the groups show is chance


def test_several_columns_follow_one_another(fitted):
    p, labels, region = draw(6000)
    age = np.where(np.arange(6000) % 2, "old", "young")
    both = GroupCalibration(method="logistic", input="probabilities")
    both.fit(p, labels, groups={"region": region, "age": age})
    assert list(both.lines_) == ["region", "age"]
    for others in ({}, {"Age": age[:9]}, {"age": ["unborn"] * 9}):  # left out, misspelt, unseen
        with pytest.warns(InputWarning, match="no groups of 'age' were given that the fit has seen"):
            only = both.predict_proba(p[:9], groups={"region": region[:9], **others})
        assert np.allclose(only, fitted.predict_proba(p[:9], groups=region[:9]), rtol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = both.predict_proba(p[:9], groups={"region": region[:9], "age": age[:9]})
        more = both.predict_proba(p[:9], groups={"region": region[:9], "age": age[:9], "height": age[:9]})
    assert np.array_equal(whole, more)
    for wrong in (region[:9], {"Region": region[:9], "Age": age[:9]}):
        with pytest.warns(InputWarning, match="no groups of 'region' or 'age' were given"):
            assert np.allclose(both.predict_proba(p[:9], groups=wrong), both.predict_proba(p[:9], groups={}))


def test_group_calibration_is_saved_and_loaded(fitted, tmp_path):
    p, _, region = draw(50)
    fitted.save(tmp_path / "c.json")
    again = load(tmp_path / "c.json")
    assert np.array_equal(again.predict_proba(p, groups=region), fitted.predict_proba(p, groups=region))
    assert again.predict(p, groups=region).tolist() == fitted.predict(p, groups=region).tolist()
    for change in ({"slope": [1.0, 1.0]}, {"slope": [1.0, -1.0, 1.0]}, {"names": ["b", "a", "c"]}, {"intercept": "x"}):
        data = json.loads(json.dumps(to_dict(fitted)))
        data["groups"]["region"] |= change
        with pytest.raises(FormatError):
            from_dict(data)


def test_what_group_calibration_refuses(fitted, tmp_path):
    p, labels, region = draw(60)
    with pytest.raises(ParameterError, match=r"'groups' of GroupCalibration.fit must be given"):
        GroupCalibration(input="probabilities").fit(p, labels)
    with pytest.raises(ShapeError, match=r"'groups' of GroupCalibration.fit must be of shape \(60,\)"):
        GroupCalibration(input="probabilities").fit(p, labels, groups=region[:50])
    with pytest.raises(ParameterError, match=r"'class_axis' of GroupCalibration.fit must be left out"):
        GroupCalibration().fit(np.zeros((1, 3, 60)), labels, groups=region, class_axis=1)
    with pytest.raises(UnsupportedError, match="does not know the groups"):
        to_onnx(fitted, tmp_path / "c.onnx")
    with pytest.raises(UnsupportedError, match="does not know the groups"):
        fitted.to_torch()


def test_rows_on_several_axes_have_their_groups_one_after_the_other():
    rng = np.random.default_rng(3)
    logits, labels, group = 2.0 * rng.normal(size=(60, 5, 3)), rng.integers(3, size=(60, 5)), rng.integers(2, size=300)
    fitted = GroupCalibration(method="ts").fit(logits, labels, groups=group)
    flat = fitted.predict_proba(logits.reshape(-1, 3), groups=group)
    np.testing.assert_array_equal(fitted.predict_proba(logits, groups=group), flat.reshape(logits.shape))
    for predict in (fitted.predict_proba, fitted.predict_log_proba, fitted.predict):
        with pytest.raises(
            ParameterError, match=r"'class_axis' of GroupCalibration.predict_log_proba must be left out"
        ):
            predict(logits, groups=group, class_axis=1)


def tokens(n_rows=900, n_classes=20, seed=0):
    """Logits of a model that is overconfident by another temperature in each domain."""
    rng = np.random.default_rng(seed)
    domain = rng.choice(["code", "prose", "law"], n_rows, p=[0.5, 0.4, 0.1])
    logits = 2.0 * rng.normal(size=(n_rows, n_classes))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return logits * np.where(domain == "code", 1.0, 2.0)[:, None], labels, domain


def test_groups_may_have_the_shape_of_the_labels_of_tokens():
    """Labels and weights had to be of the shape (N, L), and groups (N · L,)."""
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(30, 7, 3)), rng.integers(0, 3, (30, 7))
    labels[rng.random(labels.shape) < 0.2] = -100
    group = rng.integers(0, 2, (30, 7))
    known = labels != -100
    expected = GroupCalibration(method="ts").fit(logits[known], labels[known], groups=group[known])
    for given in (group, {"group": group}, group.tolist(), torch.tensor(group), group.ravel()):
        found = GroupCalibration(method="ts").fit(logits, labels, groups=given, ignore_index=-100)
        assert_allclose(found.lines_["group"].slope, expected.lines_["group"].slope, rtol=1e-12)
        p = expected.predict_proba(logits.reshape(-1, 3), groups=group.ravel()).reshape(logits.shape)
        assert_allclose(found.predict_proba(logits, groups=given), p, rtol=1e-12)
    sets = PredictionSets(conditional="group").fit(logits, labels, groups=group, ignore_index=-100)
    flat = sets.predict_set(logits.reshape(-1, 3), groups=group.ravel())
    assert np.array_equal(sets.predict_set(logits, groups=group).reshape(-1, 3), flat)
    p = np.full((30, 7, 3), 1.0 / 3.0)
    covered = metrics.set_coverage(labels, p > 0.0, groups=group, ignore_index=-100)
    assert covered == metrics.set_coverage(labels, p > 0.0, groups=group.ravel(), ignore_index=-100)
    for other in (group.T, group[:, 0]):
        with pytest.raises(ShapeError, match=r"'groups' of GroupCalibration.fit must be of shape \(210,\)"):
            GroupCalibration().fit(logits, labels, groups=other, ignore_index=-100)


def test_each_domain_of_tokens_has_a_temperature():
    logits, labels, domain = tokens()
    fitted = GroupCalibration(method="ts").fit(logits, labels, groups=domain)
    lines, common = fitted.lines_["group"], fitted.chain_.find(Temperature, "temperature")
    found = dict(zip(lines.names.tolist(), common / lines.slope, strict=True))
    assert found["code"] == pytest.approx(1.0, rel=0.1)
    assert found["prose"] == pytest.approx(2.0, rel=0.1)
    assert abs(found["law"] / common - 1.0) < abs(found["prose"] / common - 1.0)  # few rows: drawn to the common one
    deviation = fitted.fit_report_["deviations"]["group"]
    for name, slope in zip(lines.names, lines.slope, strict=True):
        rows = domain == name

        def cost(u, rows=rows):
            p = softmax(np.exp(u) * logits[rows] / common, axis=1)
            return -np.log(p[np.arange(len(p)), labels[rows]]).sum() + 0.5 * (u / deviation) ** 2

        assert np.log(slope) == pytest.approx(minimize_scalar(cost, bounds=(-2, 2), method="bounded").x, abs=1e-3)
    slope = lines.of(domain)[0]
    expected = softmax(slope[:, None] * logits / common, axis=1)
    np.testing.assert_allclose(fitted.predict_proba(logits, groups=domain), expected, rtol=1e-9)
    report = fitted.fit_report_["after"]
    assert report["log_loss"] == pytest.approx(-np.log(expected[np.arange(900), labels]).mean(), rel=1e-9)
    assert report["ece"] == pytest.approx(expected_calibration_error(labels, expected), abs=1e-9)
    assert report["log_loss"] < TemperatureScaling().fit(logits, labels).fit_report_["after"]["log_loss"]


def test_domains_of_tokens_in_every_form():
    logits, labels, domain = tokens(300)
    expected = GroupCalibration(method="ts").fit(logits.astype(np.float16), labels, groups=domain)
    tensor = torch.from_numpy(logits.astype(np.float16))
    found = GroupCalibration(method="ts").fit(tensor, torch.from_numpy(labels), groups=domain)
    np.testing.assert_allclose(found.lines_["group"].slope, expected.lines_["group"].slope, rtol=1e-6)
    assert found.predict_proba(tensor, groups=domain).dtype == torch.float16
    some = np.arange(300) % 7 > 0  # prompts and padding have no label, impossible options no logit
    marked = np.where(some, labels, -100)
    masked = GroupCalibration(method="ts").fit(logits, marked, groups=domain, ignore_index=-100)
    alone = GroupCalibration(method="ts").fit(logits[some], labels[some], groups=domain[some])
    np.testing.assert_array_equal(masked.lines_["group"].slope, alone.lines_["group"].slope)
    ragged = np.where(np.arange(20) == (labels[:, None] + 1) % 20, -np.inf, logits)
    p = GroupCalibration(method="ts").fit(ragged, labels, groups=domain).predict_proba(ragged, groups=domain)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert (p[np.isinf(ragged)] == 0.0).all()
    again = from_dict(to_dict(alone))
    np.testing.assert_array_equal(
        again.predict_proba(logits, groups=domain), alone.predict_proba(logits, groups=domain)
    )


def test_rows_of_two_classes_of_which_one_is_impossible():
    """They say nothing of the lines, and the impossible class keeps its probability of 0."""
    p, labels, region = draw(600)
    logits = np.log(np.stack([1.0 - p, p], axis=1))
    sure = np.arange(600) % 10 == 0
    logits[sure, 1 - labels[sure]] = -np.inf
    found, alone = (
        GroupCalibration(method="logistic").fit(logits[rows], labels[rows], groups=region[rows])
        for rows in (np.full(600, True), ~sure)
    )
    for name in ("slope", "intercept"):
        np.testing.assert_allclose(
            getattr(found.lines_["group"], name), getattr(alone.lines_["group"], name), rtol=0.05, atol=0.02
        )
    assert np.array_equal(found.predict_proba(logits[sure], groups=region[sure]), np.eye(2)[labels[sure]])


def test_masks_do_not_decide_on_the_lines_of_groups():
    """Five rows of 4,000 in which class 1 is masked by -1e9 leave the lines where those without them are."""
    rng = np.random.default_rng(0)
    log_odds = 2.0 * rng.normal(size=4_000)
    site = np.repeat(["a", "b"], 2_000)
    happens = rng.random(4_000) < 1.0 / (1.0 + np.exp(-np.where(site == "a", 2.0, 0.5) * log_odds))
    usual = slice(5, None)
    alone = GroupCalibration(method="ts", input="log-odds").fit(log_odds[usual], happens[usual], groups=site[usual])
    log_odds[:5] = -1e9
    happens[:5] = False
    masked = GroupCalibration(method="ts", input="log-odds").fit(log_odds, happens, groups=site)
    p, expected = (fitted.predict_proba(log_odds[usual], groups=site[usual])[:, 1] for fitted in (masked, alone))
    np.testing.assert_allclose(p, expected, rtol=0.0, atol=0.01)


def test_comparisons_with_groups_have_the_correction(found):
    _, test = found
    evaluation = compare(test, test, ["logistic", "group"], n_resamples=20)
    assert evaluation.chosen == "group"
    assert evaluation["group"].title == "a correction for each group"
    assert abs(evaluation.after.groups[0].difference.value) < abs(evaluation.before.groups[0].difference.value)
    plain = Predictions.from_probabilities(test.values[:, 1], test.labels)
    without = compare(plain, plain, ["logistic", "group"], n_resamples=20)
    assert "'groups' of GroupCalibration.fit must be given" in without.failed["group"]


def test_the_command_line_fits_and_applies_group_calibration(tmp_path, capsys):
    p, labels, region = draw(1200)
    file, calibrator, output = tmp_path / "rows.csv", tmp_path / "c.json", tmp_path / "out.npz"
    lines = [f"{a!r},{b},{r}" for a, b, r in zip(p.tolist(), labels, region, strict=True)]
    file.write_text("\n".join(["p,label,region", *lines]) + "\n")
    how = ["--probability-column", "p"]
    assert run(["fit", str(file), *how, "--groups", "region", "-o", str(calibrator)]) == 0
    assert run(["apply", str(calibrator), str(file), *how, "-o", str(output)]) == 0
    expected = load(calibrator).predict_proba(p, groups=region)[:, 1]
    assert np.array_equal(np.load(output)["p"], expected)
    assert run(["apply", str(calibrator), str(file), *how, "--groups", "region", "-o", str(output)]) == 0
    assert np.array_equal(np.load(output)["p"], expected)
    assert run(["apply", str(calibrator), str(file), *how, "--groups", "label", "-o", str(output)]) == 2
    assert "--groups must be those of the calibrator: region. Got label instead." in capsys.readouterr().err
    assert run(["fit", str(file), *how, "--groups", "region", "-m", "ts", "-o", str(calibrator)]) == 2
    assert "--groups can only be used with --method group" in capsys.readouterr().err
    assert run(["fit", str(file), *how, "-m", "group", "-o", str(calibrator)]) == 2


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_lines_of_groups_are_applied_to_tables(fitted, tmp_path, ending):
    p, _, region = draw(40, seed=3)
    frame = pd.DataFrame({"p": p, "region": region})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    fitted.save(tmp_path / "groups.json")
    expected = fitted.predict_proba(p, groups={"region": region})[:, 1]
    for source in ("rows.csv", "rows.parquet"):
        target = tmp_path / f"out.{ending}"
        assert run(["apply", *(str(tmp_path / name) for name in ("groups.json", source)), "-o", str(target)]) == 0
        readers = {"csv": pd.read_csv, "parquet": pd.read_parquet, "jsonl": partial(pd.read_json, lines=True)}
        found = readers[ending](target)
        np.testing.assert_allclose(found["p"], expected, rtol=1e-12)
        assert found["region"].tolist() == region.tolist()


def test_a_calibrator_of_groups_that_the_rows_lack_is_warned_of(fitted):
    p, labels, region = draw(300, seed=4)
    for rows in (Predictions.from_probabilities(p, labels), blocks([(p, labels)], input="probabilities")):
        with pytest.warns(InputWarning, match="'mine' was fitted with groups of 'region', which the rows lack"):
            evaluate(rows, {"mine": fitted})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(Predictions.from_probabilities(p, labels), {"mine": fitted}, groups=region)  # one column needs no name


def test_evaluate_reads_the_groups_that_a_calibrator_was_fitted_with(fitted, tmp_path, capsys):
    p, labels, region = draw(300, seed=5)
    pd.DataFrame({"p": p, "label": labels, "region": region}).to_csv(tmp_path / "rows.csv", index=False)
    fitted.save(tmp_path / "mine.json")
    command = ["evaluate", str(tmp_path / "rows.csv"), str(tmp_path / "mine.json"), "--probability-column", "p"]
    assert run([*command, "-o", str(tmp_path / "e.json")]) == 0
    assert "region = south" in capsys.readouterr().out
    whole = Predictions.from_probabilities(p, labels)
    expected = evaluate(whole, {"mine": fitted}, groups={"region": region}, n_resamples=20)["mine"]
    found = load_evaluation(tmp_path / "e.json")["mine"].measures["log_loss"].value
    assert found == pytest.approx(expected.measures["log_loss"].value, rel=1e-9)


def test_decisions_and_monitors_read_the_groups_that_a_calibrator_was_fitted_with(fitted, tmp_path, capsys):
    p, labels, region = draw(300, seed=6)
    pd.DataFrame({"p": p, "label": labels, "region": region}).to_csv(tmp_path / "rows.csv", index=False)
    fitted.save(tmp_path / "mine.json")
    own = fitted.predict_proba(p, groups={"region": region})[:, 1]
    given = [str(tmp_path / "rows.csv"), "--calibrator", str(tmp_path / "mine.json"), "--probabilities", "--json"]
    assert run(["decide", *given, "--false-positive", "1", "--false-negative", "4"]) == 0
    found = json.loads(capsys.readouterr().out)["reports"]["calibrated"]["expected_cost"]
    assert found == pytest.approx(np.minimum(1.0 - own, 4.0 * own).mean(), rel=1e-6)
    assert run(["monitor", *given, "--state", str(tmp_path / "state.json")]) == 0
    watched = CalibrationMonitor.load(tmp_path / "state.json")
    assert watched.history()[0].mean_p == pytest.approx(own.mean(), rel=1e-6)


@pytest.mark.parametrize("method", ["auto", "ts"])
def test_rows_of_one_possible_class_say_nothing_about_groups(method):
    logits = np.full((40, 2), -np.inf)
    labels = np.arange(40) % 2
    logits[np.arange(40), labels] = 0.0
    groups = np.where(np.arange(40) < 20, "a", "b")
    fitted = GroupCalibration(method=method).fit(logits, labels, groups=groups)
    np.testing.assert_array_equal(fitted.lines_["group"].slope, [1.0, 1.0])
    np.testing.assert_array_equal(fitted.lines_["group"].intercept, [0.0, 0.0])
    np.testing.assert_array_equal(fitted.predict_proba(logits, groups=groups), np.eye(2)[labels])


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([1, 2, 3], ["1", "missing", "3"]),
        (np.array([1 / 3, 2.0, 3.0], np.float32), ["0.33333334", "missing", "3"]),
        (["a", "b", "c"], ["a", "missing", "c"]),
        ([True, False, False], ["True", "missing", "False"]),
        (np.array(["2026-01-01", "2026-01-02", "2026-01-03"], "M8[D]"), ["2026-01-01", "missing", "2026-01-03"]),
    ],
    ids=["integers", "float32", "text", "truths", "days"],
)
def test_masked_entries_are_missing_groups(values, names):
    masked = np.ma.array(values, mask=[False, True, False])
    assert as_groups(masked, 3, "f")["group"].tolist() == names
    assert as_groups({"site": masked}, 3, "f")["site"].tolist() == names
    with pytest.raises(DataError, match=r"'clusters' of f must be known of every row\. Got none in row 1"):
        as_clusters(masked, 3, "f")


@pytest.mark.parametrize("numbers", [torch.tensor([0.0, 1.0], dtype=torch.bfloat16), torch.ones(2, requires_grad=True)])
def test_tensors_of_any_kind_have_groups(numbers):
    assert as_groups(numbers, 2, "f")["group"].tolist() == [str(int(number)) for number in numbers]
