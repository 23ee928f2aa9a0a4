"""Rows that belong together: clusters from every door, variances by plain loops, blocks as memory, and coverage."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from refocal import TemperatureScaling
from refocal._clusters import cluster_keys
from refocal.errors import DataError, FitWarning, ParameterError, ShapeError
from refocal.evaluate import _cluster_sums, compare, evaluate
from refocal.evaluate._cluster_sums import ClusterSums
from refocal.evaluate._details import groups_of, measure_groups
from refocal.evaluate.summary import remarks
from refocal.io import Predictions, blocks, open_rows, read, split
from refocal.report import render
from refocal.rows.predictions import probability_rows


def draw(n_rows=1200, n_clusters=60, n_classes=2, seed=0, effect=1.0):
    """Logits, labels that clusters move together, clusters, groups and weights."""
    rng = np.random.default_rng(seed)
    cluster = rng.integers(n_clusters, size=n_rows)
    logits = rng.normal(size=(n_rows, n_classes))
    moved = logits.copy()
    moved[:, 1] += effect * rng.normal(size=n_clusters)[cluster]
    labels = np.argmax(moved + rng.gumbel(size=logits.shape), axis=1)
    return logits, labels, cluster, rng.choice(["north", "south"], n_rows), rng.uniform(0.5, 2.0, n_rows)


def clustered_variance(terms, weight, cluster):
    """The jackknife of clusters by a plain loop: the mean without each of them."""
    names = np.unique(cluster)
    left_out = [np.average(terms[cluster != name], weights=weight[cluster != name]) for name in names]
    mean = np.average(terms, weights=weight)
    n = len(names)
    return (n - 1) / n * sum((each - mean) ** 2 for each in left_out)


def log_losses(logits, labels):
    z = logits - logits.max(axis=1, keepdims=True)
    return np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(labels)), labels]


def test_differences_rest_on_clusters():
    logits, labels, cluster, _, weight = draw()
    fitted = TemperatureScaling().fit(logits, labels)
    rows = Predictions.from_logits(logits, labels, weight=weight)
    found = evaluate(rows, {"ts": fitted}, clusters={"customer": cluster}, n_resamples=10)
    difference = found["ts"].against_none["log_loss"]
    terms = log_losses(logits / fitted.temperature_, labels) - log_losses(logits, labels)
    error = np.sqrt(clustered_variance(terms, weight, cluster))
    from scipy.stats import t

    value = np.average(terms, weights=weight)
    # The jackknife's deviation of each cluster, and Student's statistic with their skewness or without (Hall 1992).
    weights = np.bincount(cluster, weight)
    influence = np.bincount(cluster, weight * (terms - value)) / (weight.sum() - weights)
    g = np.sum(influence**3) / np.sum(influence**2) ** 1.5
    statistic = (value - np.array([difference.low, difference.high, 0.0])) / error
    transformed = statistic + g / 3 * statistic**2 + g**2 / 27 * statistic**3 + g / 6
    assert abs(g) > 0.1
    nearer = [min(statistic[0], transformed[0]), max(statistic[1], transformed[1])]
    assert nearer == pytest.approx(t.ppf([0.975, 0.025], 59), rel=1e-6)
    nearest = min(abs(statistic[2]), abs(transformed[2]))
    assert difference.p_value == pytest.approx(2 * t.sf(nearest, 59), rel=1e-6)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_blocks_have_the_intervals_of_memory(n_classes):
    logits, labels, cluster, region, weight = draw(n_classes=n_classes)
    fitted = TemperatureScaling().fit(logits, labels)
    rows = Predictions.from_logits(logits, labels, weight=weight).with_groups({"region": region})
    in_memory = evaluate(rows, {"ts": fitted}, clusters={"customer": cluster}, n_resamples=500)
    cut = np.array_split(np.random.default_rng(1).permutation(len(labels)), 3)
    parts = [(logits[i], labels[i], weight[i], {"region": region[i], "customer": cluster[i].astype(str)}) for i in cut]
    in_blocks = evaluate(blocks(parts, clusters="customer"), {"ts": fitted})
    for method in ("none", "ts"):
        for name, exact in in_memory[method].measures.items():
            if name in ("accuracy", "ici"):  # of memory the first is Wilson's, and the second needs rows in memory
                continue
            found = in_blocks[method].measures[name]
            width = exact.high - exact.low
            assert found.low == pytest.approx(exact.low, abs=0.02 * width)
            assert found.high == pytest.approx(exact.high, abs=0.02 * width)
    exact = {row.name: row.difference for row in in_memory.before.groups}
    found = {row.name: row.difference for row in in_blocks.before.groups}
    assert exact.keys() == found.keys() == {"north", "south"}
    for name in exact:
        assert (found[name].low, found[name].high) == pytest.approx((exact[name].low, exact[name].high), abs=1e-4)
    assert in_blocks["ts"].improvement_p_value == pytest.approx(in_memory["ts"].improvement_p_value, rel=1e-6)
    assert in_memory.run["unit of intervals"] == in_blocks.run["unit of intervals"] == "customer"
    assert in_memory.run["clusters"] == in_blocks.run["clusters"] == "60"


@pytest.mark.parametrize("is_weighted", [False, True])
def test_squared_errors_of_clusters_of_unequal_sizes_are_those_of_memory_in_blocks(is_weighted):
    logits, labels, _, _, weight = draw(n_classes=3)
    cluster = np.repeat(np.arange(48), [1, 49] * 24)
    logits = 2.5 * logits  # overconfident
    fitted = TemperatureScaling().fit(logits, labels)
    rows = Predictions.from_logits(logits, labels, weight=weight if is_weighted else None)
    in_memory = evaluate(rows, {"ts": fitted}, clusters=cluster, n_resamples=10)
    cut = np.array_split(np.random.default_rng(1).permutation(len(labels)), 3)
    of_rows = weight if is_weighted else np.ones(len(labels))
    parts = [(logits[i], labels[i], of_rows[i], {"cluster": cluster[i].astype(str)}) for i in cut]
    in_blocks = evaluate(blocks(parts, clusters="cluster"), {"ts": fitted})
    exact, found = (each["none"].measures["squared_ece"].standard_error for each in (in_memory, in_blocks))
    assert found == pytest.approx(exact, rel=1e-3)
    exact, found = (each["ts"].against_none["squared_ece"] for each in (in_memory, in_blocks))
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), rel=1e-3)
    assert found.p_value == pytest.approx(exact.p_value, rel=0.05)


def test_every_row_a_cluster_of_its_own_changes_little():
    logits, labels, *_ = draw(4000)
    rows = Predictions.from_logits(logits, labels)
    plain = evaluate(rows, {}, n_resamples=500).before.measures
    apart = evaluate(rows, {}, clusters=np.arange(4000), n_resamples=500).before.measures
    for name, of_rows in plain.items():
        assert apart[name].high - apart[name].low == pytest.approx(of_rows.high - of_rows.low, rel=0.15), name


def test_clusters_that_move_together_widen_intervals():
    logits, labels, cluster, region, _ = draw(effect=2.0)
    rows = Predictions.from_logits(logits, labels).with_groups({"region": region})
    plain = evaluate(rows, {}, n_resamples=50).before
    together = evaluate(rows, {}, clusters=cluster, n_resamples=50).before
    for name, least in (("mean_bias", 2.0), ("log_loss", 1.1), ("ece", 1.5)):
        narrow, wide = (each.measures[name].high - each.measures[name].low for each in (plain, together))
        assert wide > least * narrow, name
    groups = [{row.name: row.difference.high - row.difference.low for row in each.groups} for each in (plain, together)]
    assert all(groups[1][name] > 1.3 * groups[0][name] for name in groups[0])
    bands = [np.subtract(each.reliability.high, each.reliability.low).mean() for each in (plain, together)]
    assert bands[1] > 1.1 * bands[0]


@pytest.mark.numerics
def test_group_intervals_cover_with_clusters_and_not_without():
    """Twenty clusters a group: of rows alone, four intervals of ten miss the truth."""
    n_runs = 200
    covered = np.zeros(2)
    for seed in range(n_runs):
        logits, labels, cluster, _, _ = draw(600, 40, seed=seed, effect=1.0)
        # On average over clusters the rate of class 1 is the mean of the moved probabilities.
        effects = np.random.default_rng(1).normal(size=4000)
        log_odds = logits[:, 1] - logits[:, 0]
        truth = np.mean(1.0 / (1.0 + np.exp(-log_odds)))
        rate = np.mean(1.0 / (1.0 + np.exp(-(log_odds[:, None] + effects[None, :200]))))
        rows = probability_rows(labels, 1.0 / (1.0 + np.exp(-log_odds)), clusters=cluster)
        for i, known in enumerate((rows, probability_rows(labels, rows.values))):
            (row,) = measure_groups(groups_of(known, {"all": np.repeat("rows", 600)}), 0.95, 0)
            covered[i] += row.difference.low <= truth - rate <= row.difference.high
    assert covered[0] >= 0.91 * n_runs
    assert covered[1] <= 0.85 * n_runs


def test_a_group_of_one_cluster_says_nothing():
    rows = probability_rows(np.array([0, 1, 1, 0]), np.array([0.2, 0.4, 0.6, 0.8]), clusters=np.zeros(4, dtype=int))
    (row,) = measure_groups(groups_of(rows, {"all": np.repeat("rows", 4)}), 0.95, 0)
    assert (row.difference.low, row.difference.high) == (-0.5, 0.5)


def test_sums_of_many_clusters_are_put_together_and_keep_their_totals(monkeypatch):
    monkeypatch.setattr(_cluster_sums, "MOST_CLUSTERS", 100)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 5000))
    keys = cluster_keys([f"customer {i}" for i in rng.integers(3000, size=5000)], 5000, "f").numbers
    halves = [ClusterSums.of(keys[i], values[:, i]) for i in (slice(0, 2500), slice(2500, 5000))]
    small = ClusterSums.of(keys[:20], values[:, :20])
    both = halves[0].merge(halves[1])
    assert both.bits == 16
    assert len(both.keys) < 3000
    np.testing.assert_allclose(both.sums.sum(axis=1), values.sum(axis=1))
    assert small.bits == 62
    # Those of few clusters are put together with the same ones.
    assert set(small.merge(both).keys) == set(both.keys)
    # Rows of one cluster stay together: a cluster's key decides alone.
    assert {int(key) >> 46 for key in keys} == set(both.keys.tolist())


def test_clusters_of_any_type_are_the_same():
    rows = Predictions.from_probabilities([0.2, 0.9, 0.4], [0, 1, 0])
    numbers = [
        rows.with_clusters(given).clusters.tolist()
        for given in ([1, 2, 1], [1.0, 2.0, 1.0], ["1", "2", "1"], pd.Series([1, 2, 1]), {"day": [1, 2, 1]})
    ]
    assert numbers == [[0, 1, 0]] * 5
    assert rows.with_clusters(pd.DataFrame({"day": [3, 3, 4]})).cluster_name == "day"
    assert rows.with_clusters([5, 6, 5]).take(np.array([2, 1])).clusters.tolist() == [0, 1]


def test_clusters_that_cannot_be():
    rows = Predictions.from_probabilities([0.2, 0.9], [0, 1])
    with pytest.raises(DataError, match=r"'clusters' of Predictions.with_clusters must be known of every row.*row 1"):
        rows.with_clusters(["a", None])
    with pytest.raises(ShapeError, match="one cluster for each row"):
        rows.with_clusters(["a"])
    with pytest.raises(ParameterError, match="one column"):
        rows.with_clusters({"a": [1, 2], "b": [1, 2]})
    with pytest.raises(ParameterError, match=r"open_rows\(…, clusters=…\)"):
        evaluate(blocks([([[0.1, 0.2]], [0])]), {}, clusters=[1])
    with pytest.raises(DataError, match="a column 'customer'"):
        evaluate(blocks([([[0.1, 0.2], [0.3, 0.1]], [0, 1], None, {"day": [1, 2]})], clusters="customer"), {})


def test_a_single_cluster_is_refused_in_blocks_as_in_memory():
    logits, labels, *_ = draw(200)
    one = np.full(200, "a")
    message = "'clusters' of evaluate must be of at least two different ones"
    with pytest.raises(DataError, match=message):
        evaluate(Predictions.from_logits(logits, labels, clusters=one), {})
    parts = [(logits[i], labels[i], None, {"day": one[i]}) for i in (slice(0, 90), slice(90, 200))]
    with pytest.raises(DataError, match=message):
        evaluate(blocks(parts, clusters="day"), {})


def test_a_split_keeps_clusters_whole():
    logits, labels, cluster, *_ = draw(500, 25)
    first, second = split(Predictions.from_logits(logits, labels).with_clusters(cluster), 0.4, seed=3)
    assert not {*first.clusters.tolist()} & {*second.clusters.tolist()}
    assert len(np.unique(first.clusters)) == 10
    assert len(first) + len(second) == 500
    with pytest.raises(ParameterError, match="2 clusters give two parts"):
        split(Predictions.from_logits(logits, labels).with_clusters(cluster % 2), 0.1)


@pytest.fixture
def table(tmp_path):
    logits, labels, cluster, region, _ = draw(300, 30)
    p = 1.0 / (1.0 + np.exp(logits[:, 0] - logits[:, 1]))
    frame = pd.DataFrame({"p": p, "label": labels, "customer_id": cluster + 100, "region": region})
    for i in range(2):
        (tmp_path / "parts").mkdir(exist_ok=True)
        frame[i::2].to_parquet(tmp_path / "parts" / f"{i}.parquet")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    np.savez(tmp_path / "rows.npz", probabilities=p, labels=labels, customer_id=cluster + 100)
    return tmp_path, cluster


def test_files_have_clusters(table):
    folder, cluster = table
    for name in ("rows.csv", "rows.npz"):
        rows = read(folder / name, clusters="customer_id")
        assert rows.clusters.tolist() == np.unique(cluster, return_inverse=True)[1].tolist()
        assert rows.cluster_name == "customer_id"
        assert rows.groups == {}
    rows = read(folder / "rows.csv", clusters="customer_id", groups=["customer_id", "region"])
    assert set(rows.groups) == {"customer_id", "region"}
    whole = evaluate(read(folder / "rows.csv", clusters="customer_id"), {}, n_resamples=10).before.measures["log_loss"]
    for place in (folder / "parts", folder / "rows.npz"):
        found = evaluate(open_rows(place, clusters="customer_id"), {}).before.measures["log_loss"]
        assert (found.low, found.high) == pytest.approx((whole.low, whole.high), rel=1e-9)


def test_ids_that_repeat_are_noticed_unless_clusters_are_named(table):
    folder, _ = table
    rows = read(folder / "rows.csv")
    assert rows.source.repeated_id == "customer_id"
    with pytest.warns(FitWarning, match="'customer_id' has the same value in several rows"):
        found = evaluate(rows, {}, n_resamples=10)
    assert any("name it as clusters" in line for line in remarks(found))
    with pytest.warns(FitWarning, match="'customer_id'"):
        evaluate(open_rows(folder / "parts"), {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        named = evaluate(read(folder / "rows.csv", clusters="customer_id"), {}, n_resamples=10)
        evaluate(rows.with_clusters(rows.labels), {}, n_resamples=10)
    assert any("30 clusters of rows (customer_id)" in line for line in remarks(named))
    lines = ['{"p": 0.2, "label": 0, "user_id": [1]}', '{"p": 0.4, "label": 1, "user_id": "a"}']
    (folder / "mixed.jsonl").write_text("\n".join(2 * [*lines, '{"p": 0.6, "label": 1, "user_id": null}']))
    assert read(folder / "mixed.jsonl").source.repeated_id == ""
    pd.read_csv(folder / "rows.csv").rename(columns={"customer_id": "age"}).to_csv(folder / "age.csv", index=False)
    assert read(folder / "age.csv").source.repeated_id == ""


def test_the_report_says_which_unit_intervals_rest_on(table):
    folder, _ = table
    rows = read(folder / "rows.csv", clusters="customer_id")
    page = render(evaluate(rows, {}, n_resamples=10))
    assert "Intervals reflect the sampling of clusters of test rows (customer_id)" in page
    assert "rest on 30 clusters of rows (customer_id), not on single rows" in page
    few = evaluate(rows, {}, clusters={"day": np.arange(300) % 7}, n_resamples=10)
    assert any("7 are few" in line for line in remarks(few))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        page = render(evaluate(read(folder / "rows.csv"), {}, n_resamples=10))
    assert "sampling of single test rows" in page


def test_comparisons_take_the_clusters_of_the_test_rows():
    logits, labels, cluster, *_ = draw(600)
    validation, test = (Predictions.from_logits(logits[half], labels[half]) for half in np.s_[:300, 300:])
    found = compare(validation, test, ["ts"], n_resamples=10, clusters={"customer": cluster[300:]})
    assert found.run["unit of intervals"] == "customer"
    again = compare(validation, test.with_clusters({"customer": cluster[300:]}), ["ts"], n_resamples=10)
    assert again["ts"].against_none == found["ts"].against_none


def test_a_single_cluster_is_refused():
    rows = Predictions.from_logits(2.0 * np.eye(3)[[0, 1, 2, 0]], [0, 1, 2, 1])
    for given in ({"clusters": ["monday"] * 4}, {}):
        test = rows if given else rows.with_clusters(["monday"] * 4)
        with pytest.raises(DataError, match="'clusters' of evaluate must be of at least two different ones"):
            evaluate(test, {}, **given)


def test_a_single_cluster_in_blocks_is_refused():
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(50, 2)), rng.integers(2, size=50), None, {"day": ["Monday"] * 50}) for _ in range(2)]
    with pytest.raises(DataError, match="'clusters' of evaluate must be of at least two different ones"):
        evaluate(blocks(parts, clusters="day"), {})
