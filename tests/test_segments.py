"""Segments found unasked: what is planted is found, with the numbers of a loop, and nothing where nothing is off."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from refocal import GroupCalibration
from refocal.errors import DataError, LabelError, ParameterError, ShapeError
from refocal.evaluate import Evaluation, compare, evaluate
from refocal.evaluate._details import group_bias, groups_of
from refocal.io import Predictions, split
from refocal.metrics import Interval, mean_bias
from refocal.metrics.bias_interval import exact_interval_of_shift
from refocal.metrics.bins import row_cells
from refocal.metrics.two_classes import BiasSummary
from refocal.report.page import render
from refocal.segments import Condition, FoundSegments, Segment, find_segments


def draw(n=12_000, factor=2.0, seed=0):
    """Young rows in the north occur more often, by a factor, than is predicted."""
    rng = np.random.default_rng(seed)
    features = {
        "age": rng.integers(18, 80, n),
        "region": rng.choice(["north", "south"], n),
        "noise": rng.normal(size=n),
    }
    p = rng.beta(1, 6, n)
    planted = (features["age"] < 35) & (features["region"] == "north")
    y = (rng.random(n) < np.where(planted, factor * p, p).clip(0, 1)).astype(int)
    return y, p, features, planted


def test_what_is_planted_is_found():
    y, p, features, planted = draw()
    found = find_segments(y, p, features)
    (segment,) = found.segments
    assert {condition.feature for condition in segment.conditions} == {"age", "region"}
    assert "region = north" in segment.name
    members = np.logical_and.reduce([c.holds(features[c.feature]) for c in segment.conditions])
    assert (members & planted).sum() > 0.8 * planted.sum()
    assert segment.difference.high < 0.0
    assert str(segment).startswith(f"{segment.name}: predicted ")
    assert found.sentence().startswith("1 segment is significantly off (")


def test_the_numbers_are_those_of_the_half_that_did_not_propose():
    y, p, features, _ = draw()
    found = find_segments(y, p, features, seed=3)
    first = np.random.default_rng(3).permutation(len(y))[: len(y) // 2]
    is_test = np.ones(len(y), dtype=bool)
    is_test[first] = False
    segment = found.segments[0]
    rows = [
        i
        for i in range(len(y))
        if is_test[i] and all(c.holds(np.asarray(features[c.feature])[[i]])[0] for c in segment.conditions)
    ]
    assert segment.n == len(rows)
    assert segment.difference.value == pytest.approx(mean_bias(y[rows], p[rows]))
    order = np.array(rows)[np.argsort(p[rows])]
    interval = exact_interval_of_shift(row_cells(p[order], y[order], None), 0.95 ** (1 / found.n_tested))
    assert (segment.difference.low, segment.difference.high) == pytest.approx((interval.low, interval.high))
    assert (segment.predicted, segment.occurred) == pytest.approx((p[rows].mean(), y[rows].mean()))
    assert (found.n_search, found.n_test) == (6000, 6000)


def test_nothing_is_claimed_where_nothing_is_off():
    claimed = sum(bool(find_segments(*draw(1500, 1.0, seed)[:3], seed=seed).segments) for seed in range(40))
    assert claimed <= 5  # of 5 % of 40: more in 1 of 70 runs


def test_weights_and_clusters_have_their_say():
    y, p, features, _ = draw(4000)
    twice = np.arange(4000) % 2 == 0
    weight = np.where(twice, 1.0, 0.0)
    kept = {name: column[twice] for name, column in features.items()}
    with_weight = find_segments(y, p, features, sample_weight=weight)
    without = find_segments(y[twice], p[twice], kept)
    assert [segment.name for segment in with_weight.segments] == [segment.name for segment in without.segments]
    # Rows that repeat within clusters are no more evidence than one of them.
    repeated = np.repeat(np.arange(1000), 4)
    many = {name: column[repeated] for name, column in features.items()}
    clustered = find_segments(y[repeated], p[repeated], many, clusters=repeated)
    single = find_segments(y[repeated], p[repeated], many)
    assert clustered.n_search == 2000
    assert len(clustered.segments) <= len(single.segments)


def test_the_interval_of_weighted_rows_is_that_of_an_evaluation():
    rng = np.random.default_rng(0)
    x, p = rng.random(800), rng.beta(1, 3, 800)
    y = (rng.random(800) < np.clip(p + 0.3 * (x < 0.4), 0.0, 1.0)).astype(int)
    weight = np.exp(rng.normal(size=800)) * np.where(y == 1, 1.0, 3.0)
    found = find_segments(y, p, {"x": x}, sample_weight=weight)
    is_test = np.ones(800, dtype=bool)
    is_test[np.random.default_rng(0).permutation(800)[:400]] = False
    members = is_test & found.segments[0].conditions[0].holds(x)
    rows = Predictions.from_probabilities(p[members], y[members], weight=weight[members])
    level = 0.95 ** (1 / found.n_tested)
    (group,) = groups_of(rows, {"all": np.full(members.sum(), "all")})
    for same in (BiasSummary.of(rows).exact_interval(level=level), group_bias(group, level)):
        assert found.segments[0].difference.low == pytest.approx(same.low, abs=1e-6)  # of cells of few rows each
        assert found.segments[0].difference.high == pytest.approx(same.high, abs=1e-6)


def test_equal_weights_do_not_change_the_intervals_of_segments():
    rng = np.random.default_rng(0)
    x, p = rng.random(1500), rng.beta(1, 3, 1500)
    y = (rng.random(1500) < np.clip(p + 0.25 * (x < 0.3), 0.0, 1.0)).astype(int)
    plain = find_segments(y, p, {"x": x})
    weighted = find_segments(y, p, {"x": x}, sample_weight=np.full(1500, 0.3))
    assert plain.segments
    for first, second in zip(plain.segments, weighted.segments, strict=True):
        ends = (first.difference.low, first.difference.high)
        assert (second.difference.low, second.difference.high) == pytest.approx(ends, abs=1e-9)


def test_the_mean_of_a_feature_in_a_range_is_weighted_as_the_rates_are():
    rng = np.random.default_rng(0)
    p = rng.random(2000)
    y = (rng.random(2000) < p).astype(int)
    feature = rng.normal(size=2000)
    weight = np.where(feature > 0.0, 5.0, 1.0)
    bias = find_segments(y, p, {"feature": feature}, sample_weight=weight).bias[0]
    cuts = np.quantile(feature, np.arange(1, 10) / 10)
    for number in range(10):
        members = np.searchsorted(cuts, feature, side="right") == number
        assert bias.mean[number] == pytest.approx(np.average(feature[members], weights=weight[members]))
        assert bias.predicted[number] == pytest.approx(np.average(p[members], weights=weight[members]))


def test_a_cluster_is_in_one_half():
    y, p, features, _ = draw(2000)
    found = find_segments(y, p, features, clusters=np.arange(2000) // 20)
    assert found.n_search == found.n_test == 1000


def test_features_of_every_kind():
    y, p, features, _ = draw(3000)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(features)
    frame["age"] = frame["age"].astype(float).where(rng.random(3000) > 0.1)
    frame["text"] = frame["age"].map(lambda age: "" if np.isnan(age) else str(age))
    frame["flag"] = rng.random(3000) > 0.5
    frame["day"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 5, 3000), "D")
    frame["constant"] = 1
    found = find_segments(y, p, frame)
    assert {bias.feature for bias in found.bias} == {"age", "noise", "text", "constant"}
    age = next(bias for bias in found.bias if bias.feature == "age")
    assert sum(age.n) == frame["age"].notna().sum()
    assert age.low[0] < age.predicted[0] - age.occurred[0] < age.high[0]


def test_conditions_hold_where_they_say():
    age = np.array([20.0, 25.0, 30.0, np.nan])
    assert Condition("age", high=25.0).holds(age).tolist() == [True, False, False, False]
    assert Condition("age", low=25.0).holds(age).tolist() == [False, True, True, False]
    assert str(Condition("age", low=25.0)) == "age ≥ 25"
    assert Condition("region", value="missing").holds(np.array(["north", ""])).tolist() == [False, True]


def test_new_rows_have_features_of_the_kind_of_those_that_were_searched():
    """Numbers stay numbers, and text that only looks like numbers in the new rows stays text."""
    difference = Interval(-0.1, -0.2, -0.05, 0.95, 0.1, 0.0, 0)
    conditions = [Condition("store", value="007")], [Condition("age", high=25.0)]
    found = FoundSegments([Segment(each, 5, 0.1, 0.2, difference) for each in conditions], 2, 5, 5, 0.95, [])
    groups = found.groups({"store": ["007", "012", "7"], "age": ["30", "20", ""]})
    assert groups.tolist() == ["store = 007", "age < 25", "rest"]
    message = "The 'features' of FoundSegments.groups must be numbers in 'age'. Got 'unknown' instead."
    with pytest.raises(DataError, match=message):
        found.groups({"store": ["A1", "007"], "age": ["20", "unknown"]})


def test_truths_are_ones_and_zeros_in_new_rows_too():
    """A segment of `vip = True` was empty where new rows have ones and zeros, as databases do."""
    vip = [True, False, True]
    of_truth, of_its_opposite = Condition("vip", value="True"), Condition("vip", value="False")
    forms = [
        np.array(vip),
        np.array([1, 0, 1]),
        np.array([1.0, 0.0, 1.0]),
        pd.Series([1, 0, 1], dtype="Int64"),
        np.array(["true", "false", "true"]),
        np.array(["1", "0", "1"]),
        np.array(["True", "False", "True"], dtype=object),
    ]
    for column in forms:
        assert of_truth.holds(column).tolist() == vip
        assert of_its_opposite.holds(column).tolist() == [not each for each in vip]
    assert of_truth.holds(pd.Series([1, None, 2], dtype="Int64")).tolist() == [True, False, False]
    assert Condition("code", value="1").holds(np.array(["1", "True", "01"])).tolist() == [True, False, False]


def test_group_calibration_takes_them():
    y, p, features, planted = draw()
    found = find_segments(y, p, features)
    groups = found.groups(features)
    assert set(groups) == {found.segments[0].name, "rest"}
    fitted = GroupCalibration(input="probabilities").fit(p, y, groups=groups)
    new_y, new_p, new_features, planted = draw(seed=1)
    after = fitted.predict_proba(new_p, groups=found.groups(new_features))[:, 1]
    assert abs(mean_bias(new_y[planted], after[planted])) < abs(mean_bias(new_y[planted], new_p[planted])) / 3


def test_conditions_say_which_rows_they_hold_for():
    """Two ranges of dates such as 20240110 look alike in six digits, and would be one group."""
    rng = np.random.default_rng(0)
    date = rng.integers(20240101, 20240131, 8000)
    p = rng.uniform(0.1, 0.4, 8000)
    y = rng.random(8000) < np.select([date < 20240110, date < 20240120], [2.0 * p, 0.3 * p], p)
    found = find_segments(y, p, {"date": date})
    names = [segment.name for segment in found.segments]
    groups = found.groups({"date": date})
    assert {*groups} - {"rest"} == {*names}
    assert len({*names}) == len(names) >= 2
    for name, segment in zip(names, found.segments, strict=True):
        (condition,) = segment.conditions
        ends = [float(word) for word in name.split() if word[0].isdigit()]
        assert ends == [end for end in (condition.low, condition.high) if end is not None]


def test_numbers_of_a_feature_are_cut_at_few_digits_between_two_of_them():
    rng = np.random.default_rng(0)
    age = rng.uniform(18.0, 80.0, 8000)
    p = rng.uniform(0.1, 0.4, 8000)
    y = rng.random(8000) < np.where(age < 30.0, 2.0 * p, p)
    (segment,) = find_segments(y, p, {"age": age}).segments
    (condition,) = segment.conditions
    assert 28.0 < condition.high < 32.0
    assert condition.high == round(condition.high, 3)


def test_infinite_numbers_of_a_feature_are_above_or_below_all_others():
    rng = np.random.default_rng(0)
    ratio = rng.normal(size=8000)
    ratio[rng.permutation(8000)[:1200]] = np.repeat([np.inf, -np.inf], 600)
    p = rng.uniform(0.1, 0.4, 8000)
    y = rng.random(8000) < np.where(ratio > 1.0, 2.0 * p, p)
    rows = Predictions.from_probabilities(p, y)
    found = evaluate(rows, {}, features={"ratio": ratio}, n_resamples=10)
    (segment,) = found.segments.segments
    assert segment.conditions[0].high is None
    assert 0.9 < segment.conditions[0].low < 1.2
    assert sum(found.segments.bias[0].n) == 6800
    assert Evaluation.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False))) == found


def test_an_evaluation_has_them_and_its_page_shows_them():
    y, p, features, _ = draw()
    rows = Predictions.from_probabilities(p, y)
    found = evaluate(rows, {}, features=features, n_resamples=10)
    alone = find_segments(y, p, features)
    assert [segment.conditions for segment in found.segments.segments] == [s.conditions for s in alone.segments]
    assert found.segments.segments[0].predicted == pytest.approx(alone.segments[0].predicted)
    assert Evaluation.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    page = render(found)
    assert "Where is it wrong?" in page
    assert "region = north" in page
    assert "Mean probability less rate over age" in page
    validation, test = split(rows)
    compared = compare(
        validation,
        test,
        ["logistic"],
        features={name: column[test.numbers] for name, column in features.items()},
        n_resamples=10,
    )
    assert compared.segments.n_search == len(test) // 2


def test_groups_beside_the_rows_are_those_of_the_method_whose_segments_are_sought():
    rng = np.random.default_rng(0)
    group = rng.choice(["a", "b"], 4000)
    p = rng.random(4000)
    y = (rng.random(4000) < np.where(group == "a", p**2, np.sqrt(p))).astype(np.int64)
    every = Predictions.from_probabilities(p, y).with_groups({"group": group})
    calibrator = GroupCalibration(input="probabilities").fit(every.take(np.arange(2000)))
    test = every.take(np.arange(2000, 4000))
    options = {"features": {"group": group[2000:]}, "chosen": "grouped", "n_resamples": 10}

    beside = evaluate(test.with_groups({}), {"grouped": calibrator}, groups={"group": group[2000:]}, **options)

    assert not beside.segments.segments
    assert beside.segments == evaluate(test, {"grouped": calibrator}, **options).segments


def test_what_is_wrong_is_said():
    y, p, features, _ = draw(100)
    with pytest.raises(ParameterError, match="a data frame or a mapping"):
        find_segments(y, p, [1, 2])
    with pytest.raises(ShapeError, match=r"shape \(99,\) in 'age'"):
        find_segments(y, p, {"age": features["age"][:99]})
    with pytest.raises(ParameterError, match="at least one column"):
        find_segments(y, p, {})
    with pytest.raises(ParameterError, match="two classes"):
        evaluate(Predictions.from_logits(np.eye(3) * 2, [0, 1, 2]), {}, features=features)
    found = find_segments(*draw()[:3])
    with pytest.raises(ParameterError, match="with the column"):
        found.groups({"age": [1]})


def test_a_handful_of_rows_have_no_segments():
    y, p, features, _ = draw(20)
    found = find_segments(y, p, features)
    assert found.segments == []
    assert found.sentence() == "No segment is significantly off (none stood out, 95 % for all together)."


def test_features_of_any_table_and_masked_ones():
    rng = np.random.default_rng(0)
    age, site = rng.integers(18, 80, 3000), rng.choice(["north", "south"], 3000)
    p = 0.8 * rng.beta(1, 6, 3000)
    y = rng.random(3000) < np.where((age < 40) & (site == "north"), (2.2 * p).clip(0, 1), p)
    found = find_segments(y, p, {"age": age, "site": site})
    assert found.segments
    assert find_segments(y, p, pa.table({"age": age, "site": site})).segments == found.segments
    known = rng.random(3000) < 0.7
    missing = find_segments(y, p, {"age": np.where(known, age, np.nan), "site": site})
    assert find_segments(y, p, {"age": np.ma.array(age, mask=~known), "site": site}).segments == missing.segments


def test_one_hot_labels_are_refused_as_such():
    p = np.random.default_rng(0).dirichlet(np.ones(3), 60)
    with pytest.raises(LabelError, match=r"'y_true' of find_segments must be .* the argmax of one-hot labels"):
        find_segments(np.eye(3)[np.arange(60) % 3], p, {"age": np.arange(60.0)})


@pytest.mark.parametrize("kind", ["missing", "infinite", "clusters"])
def test_features_without_a_range_that_says_something_have_no_diagram(kind):
    """A column without a number, or of one cluster for each value, ended the report in a raw error."""
    rng = np.random.default_rng(0)
    p = rng.random(600)
    day = np.arange(600) // 200
    rows = Predictions.from_probabilities(p, (rng.random(600) < p).astype(int))
    rows = rows.with_clusters(day) if kind == "clusters" else rows
    feature = {"missing": np.full(600, np.nan), "infinite": np.full(600, np.inf), "clusters": 1.0 * day}[kind]
    found = evaluate(rows, {}, features={"empty": feature, "score": p}, n_resamples=10)
    assert [bias.feature for bias in found.segments.bias] == ["score"]
    assert "Over each numeric feature" in render(found)


def test_a_segment_of_rare_events_says_two_numbers():
    """Both were 0.1 % in one digit."""
    difference = Interval(-0.0004, -0.0008, -0.0001, 0.95, 0.0002, 0.0, 0)
    assert str(Segment([Condition("age", high=30.0)], 38_629, 0.0008, 0.0012, difference)) == (
        "age < 30: predicted 0.08 %, occurred 0.12 %, 38,629 rows"
    )
