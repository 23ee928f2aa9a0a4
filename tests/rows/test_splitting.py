"""split: at random, by cluster and by time, and what two parts have in common."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refocal.errors import DataError, FitWarning, ParameterError, ShapeError
from refocal.evaluate import compare
from refocal.evaluate.provenance import RunNote
from refocal.evaluate.summary import remarks
from refocal.io import Predictions, read, split


@pytest.mark.slow
@given(
    labels=st.lists(st.integers(0, 4), min_size=2, max_size=200),
    fraction=st.sampled_from([0.1, 0.25, 0.5, 0.7]),
    seed=st.integers(0, 3),
)
def test_split_is_disjoint_complete_and_stratified(labels, fraction, seed):
    n = len(labels)
    if not 0 < int(n * fraction + 1e-9) < n:
        return
    values = np.arange(n * 5, dtype=np.float64).reshape(n, 5)
    first, second = split(Predictions.from_logits(values, labels, weight=np.ones(n)), fraction, seed=seed)
    rows = np.concatenate([first.values[:, 0], second.values[:, 0]])
    np.testing.assert_array_equal(np.sort(rows), values[:, 0])
    for label in range(5):
        share = np.count_nonzero(first.labels == label) - fraction * labels.count(label)
        assert abs(share) < 1.0
    again, _ = split(Predictions.from_logits(values, labels, weight=np.ones(n)), fraction, seed=seed)
    np.testing.assert_array_equal(again.values, first.values)


def test_split_draws_by_its_seed():
    rows = Predictions.from_logits(np.arange(400.0).reshape(200, 2), [0, 1] * 100)
    assert not np.array_equal(split(rows, seed=0)[0].values, split(rows, seed=1)[0].values)
    with pytest.raises(ParameterError, match="greater than 0 and less than 1"):
        split(rows, 1.0)
    with pytest.raises(ParameterError, match="two parts"):
        split(rows.take(np.arange(3)), 0.1)


def of_rows(n: int) -> Predictions:
    rng = np.random.default_rng(0)
    p = rng.uniform(size=n)
    return Predictions.from_probabilities(p, (rng.random(n) < p).astype(int))


@given(times=st.lists(st.integers(-5, 5), min_size=2, max_size=60), fraction=st.sampled_from([0.2, 0.5, 0.7]))
def test_earlier_rows_come_first_and_no_time_is_in_both_parts(times, fraction):
    if len(set(times)) < 2:
        return
    rows = Predictions.from_probabilities(np.full(len(times), 0.5), np.zeros(len(times), dtype=int))
    first, second = split(rows, fraction, time=times)
    earlier = [times[i] for i in first.numbers]
    later = [times[i] for i in second.numbers]
    assert max(earlier) < min(later)
    assert sorted([*first.numbers, *second.numbers]) == list(range(len(times)))
    # No other cut between two times has a share nearer to the fraction.
    shares = [np.mean(np.array(times) <= time) for time in sorted(set(times))[:-1]]
    assert abs(len(earlier) / len(times) - fraction) == pytest.approx(min(abs(share - fraction) for share in shares))


@pytest.mark.parametrize(
    "times",
    [
        np.array([3.0, 1.0, 2.5, 10.0]),
        ["2026-01-03", "2025-12-31", "2026-01-02T23:59:59", "2026-01-10"],
        ["2026-01-02T23:30:00-05:00", "2026-01-02 01:00", "2026-01-03T00:00:00+00:00", "2026-02"],
        np.array(["2026-01-03", "2025-12-31", "2026-01-02", "2026-01-10"], dtype="datetime64[D]"),
        pd.Series(pd.to_datetime(["2026-01-03", "2025-12-31", "2026-01-02", "2026-01-10"])),
        pd.DataFrame({"when": ["9", "1", "2", "10"]}),
    ],
    ids=["numbers", "texts", "time zones", "datetime64", "Series", "texts of numbers"],
)
def test_times_are_numbers_or_dates(times):
    first, second = split(of_rows(4), time=times)
    assert first.numbers.tolist() == [1, 2]
    assert second.numbers.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("times", "error", "match"),
    [
        (["31.1.2026", "1.2.2026", "2.2.2026"], DataError, "numbers, or dates such as 2026-01-31"),
        ([1.0, np.nan, 2.0], DataError, "known of every row. Got none in row 1"),
        ([1.0, np.inf, 2.0], DataError, "numbers or dates. Got 'inf'"),
        ([1, 1, 1], DataError, "at least two different ones"),
        ([1, 2], ShapeError, "one time for each row"),
        ({"a": [1, 2, 3], "b": [1, 2, 3]}, ParameterError, "one column. Got 2 columns"),
    ],
)
def test_times_that_cannot_be_used_are_refused(times, error, match):
    with pytest.raises(error, match=match):
        split(of_rows(3), time=times)


def test_clusters_in_both_parts_are_counted():
    rows = of_rows(400)
    patient = np.arange(400) % 50
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        split(rows.with_clusters({"patient": patient}))
        split(rows.with_clusters({"patient": np.arange(400) // 8}), time=np.arange(400))
    with pytest.warns(FitWarning, match=r"50 of 50 clusters \(patient\) of the second part have rows in the first"):
        first, second = split(rows.with_clusters({"patient": patient}), time=np.arange(400))
    with pytest.warns(FitWarning, match="compare: 50 of 50 clusters"):
        found = compare(first, second, ["logistic"], n_resamples=5)
    assert found.run[RunNote.DIVIDED] == "divided by time"
    assert found.run[RunNote.SHARED_CLUSTERS] in remarks(found)


def test_a_division_at_random_says_what_it_may_hide(tmp_path):
    rng = np.random.default_rng(0)
    p = rng.uniform(size=400).round(6)
    table = pd.DataFrame({"p": p, "label": (rng.random(400) < p).astype(int)})
    table["order_date"] = np.where(np.arange(400) < 200, "2026-01-31", "2026-02-01")
    table["customer"] = np.arange(400) % 90
    table.to_csv(tmp_path / "rows.csv", index=False)
    rows = read(tmp_path / "rows.csv")
    with pytest.warns(FitWarning, match="customer"):
        found = compare(*split(rows), ["logistic"], n_resamples=5)
    assert found.run[RunNote.COLUMN_OF_TIMES] == "order_date"
    said = " ".join(remarks(found))
    assert "divided at random, so that rows of one customer are among those of fit and test" in said
    assert "compare --time order_date" in said
    with pytest.warns(FitWarning, match="customer"):
        by_time = compare(*split(rows, time=table["order_date"]), ["logistic"], n_resamples=5)
    assert "at random" not in " ".join(remarks(by_time))
    with pytest.warns(FitWarning, match="customer"):  # two sets of rows that nobody divided
        two_files = compare(rows.take(slice(0, 200)), rows.take(slice(200, 400)), ["logistic"], n_resamples=5)
    assert "at random" not in " ".join(remarks(two_files))
