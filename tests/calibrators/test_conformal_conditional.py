"""Class- and group-conditional prediction sets, and the coverage of classes and groups."""

from __future__ import annotations

import json

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from refocal import GroupCalibration, PredictionSets, load
from refocal.errors import FitWarning, FormatError, InputWarning, ParameterError, ShapeError
from refocal.io import Predictions, apply, read
from refocal.metrics import set_coverage


def draw(n, seed=0):
    """Four classes of unequal frequency, the rarest of which the model rarely predicts."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(4, n, p=[0.55, 0.25, 0.15, 0.05])
    logits = rng.normal(size=(n, 4))
    logits[np.arange(n), labels] += 1.5
    logits[:, 3] -= 1.5
    return logits, labels


@pytest.mark.parametrize("score", ["lac", "aps"])
def test_every_class_is_covered(score):
    coverages = []
    for seed in range(30):
        logits, labels = draw(1500, seed)
        fitted = PredictionSets(coverage=0.9, conditional="class", conformity_score=score, allow_empty=True)
        fitted.fit(logits[:700], labels[:700])
        found = set_coverage(labels[700:], fitted.predict_set(logits[700:], seed=seed))
        coverages.append([part.coverage.value for part in found.parts])
    assert np.mean(coverages, axis=0) == pytest.approx(np.full(4, 0.91), abs=0.03)
    marginal = PredictionSets(coverage=0.9, conformity_score=score).fit(logits[:700], labels[:700])
    assert set_coverage(labels[700:], marginal.predict_set(logits[700:], seed=0)).worst_coverage < 0.85


def test_thresholds_are_the_quantiles_of_each_class():
    logits, labels = draw(400)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    fitted = PredictionSets(coverage=0.8, conditional="class").fit(logits, labels)
    for label in range(4):
        scores = np.sort(1 - p[labels == label, label])
        k = int(np.ceil(0.8 * (len(scores) + 1)))
        assert fitted.thresholds_[label] == pytest.approx(scores[k - 1], abs=1e-9)
    assert fitted.threshold_ == fitted.thresholds_.max()


def test_a_class_of_few_rows_is_in_every_set_and_that_is_said(tmp_path):
    logits, labels = draw(300)
    kept = (labels != 3) | (np.cumsum(labels == 3) <= 5)
    with pytest.warns(FitWarning, match=r"1 of 4 classes are in every set: a coverage of 0.9 needs 9 rows of a class"):
        fitted = PredictionSets(coverage=0.9, conditional="class").fit(logits[kept], labels[kept])
    sets = fitted.predict_set(logits)
    assert sets[:, 3].all()
    assert not sets[:, 0].all()
    fitted.save(tmp_path / "sets.json")
    again = load(tmp_path / "sets.json")
    assert (again.predict_set(logits) == sets).all()
    assert again.thresholds_ == pytest.approx(fitted.thresholds_)
    data = json.loads((tmp_path / "sets.json").read_text())
    data["fit"]["least_of_classes"] = [0.5]
    (tmp_path / "short.json").write_text(json.dumps(data))
    with pytest.raises(FormatError, match="must have 4 numbers"):
        load(tmp_path / "short.json")


def test_the_coverage_of_classes_and_groups_is_that_of_a_loop():
    rng = np.random.default_rng(0)
    sets = rng.random((300, 3)) < 0.7
    labels = rng.integers(0, 3, 300)
    region = rng.choice(["north", "south"], 300)
    weight = rng.random(300) + 0.1
    found = set_coverage(labels, sets, groups={"region": region}, sample_weight=weight)
    assert [(part.column, part.name) for part in found.parts] == [
        ("class", "0"), ("class", "1"), ("class", "2"), ("region", "north"), ("region", "south"),
    ]  # fmt: skip
    for part in found.parts:
        rows = [i for i in range(300) if part.name == (str(labels[i]) if part.column == "class" else region[i])]
        covered = sum(weight[i] * sets[i, labels[i]] for i in rows) / sum(weight[i] for i in rows)
        assert part.n == len(rows)
        assert part.coverage.value == pytest.approx(covered)
        assert part.coverage.low < covered < part.coverage.high
        assert part.coverage.level == pytest.approx(0.95 ** (1 / 5))


def draw_groups(n, seed=0):
    """Three classes; the model is much worse in the smaller of two groups."""
    rng = np.random.default_rng(seed)
    region = np.where(rng.random(n) < 0.2, "island", "land")
    labels = rng.integers(3, size=n)
    logits = rng.normal(size=(n, 3))
    logits[np.arange(n), labels] += np.where(region == "island", 0.3, 2.5)
    return logits, labels, region


@pytest.mark.parametrize("score", ["lac", "aps"])
def test_every_group_is_covered(score):
    coverages = []
    for seed in range(30):
        logits, labels, region = draw_groups(1500, seed)
        fitted = PredictionSets(coverage=0.9, conditional="group", conformity_score=score, allow_empty=True)
        fitted.fit(logits[:700], labels[:700], groups=region[:700])
        sets = fitted.predict_set(logits[700:], groups=region[700:], seed=seed)
        parts = set_coverage(labels[700:], sets, groups=region[700:]).parts
        coverages.append([part.coverage.value for part in parts if part.column == "group"])
    # Theory: ⌈0.9 (n + 1)⌉ / (n + 1), about 0.904 with the 140 rows of the smaller group.
    assert np.mean(coverages, axis=0) == pytest.approx([0.904, 0.901], abs=0.015)
    marginal = PredictionSets(coverage=0.9, conformity_score=score).fit(logits[:700], labels[:700])
    parts = set_coverage(labels[700:], marginal.predict_set(logits[700:], seed=0), groups=region[700:]).parts
    assert parts[-2].name == "island"
    assert parts[-2].coverage.value < 0.85


def test_thresholds_of_groups_are_their_quantiles(tmp_path):
    logits, labels, region = draw_groups(400)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    fitted = PredictionSets(coverage=0.8, conditional="group").fit(logits, labels, groups={"region": region})
    for name in ("island", "land"):
        scores = np.sort(1 - p[np.arange(400), labels][region == name])
        k = int(np.ceil(0.8 * (len(scores) + 1)))
        assert fitted.group_thresholds_["region"][name] == pytest.approx(scores[k - 1], abs=1e-9)
    fitted.save(tmp_path / "sets.json")
    again = load(tmp_path / "sets.json")
    np.testing.assert_array_equal(again.predict_set(logits, groups=region), fitted.predict_set(logits, groups=region))
    rows = Predictions.from_logits(logits, labels).with_groups({"region": region})
    by_rows = PredictionSets(coverage=0.8, conditional="group").fit(rows)
    assert by_rows.group_thresholds_ == fitted.group_thresholds_
    np.testing.assert_array_equal(by_rows.predict_set(rows), fitted.predict_set(logits, groups=region))
    data = json.loads((tmp_path / "sets.json").read_text())
    data["fit"]["least_of_groups"]["region"]["land"] = "high"
    (tmp_path / "sets.json").write_text(json.dumps(data))
    with pytest.raises(FormatError):
        load(tmp_path / "sets.json")


def test_groups_of_few_rows_or_none_have_sets_of_all_classes():
    logits, labels, region = draw_groups(400)
    region[:8] = "atoll"
    few = r"1 of 3 groups have sets of all classes: a coverage of 0.9 needs 9 rows of a group at least"
    with pytest.warns(FitWarning, match=few):
        fitted = PredictionSets(conditional="group").fit(logits, labels, groups=region)
    sets = fitted.predict_set(logits[:3], groups=["atoll", "moon", "land"])
    assert sets[:2].all()
    assert not sets[2].all()
    with pytest.warns(InputWarning, match="no groups of 'group' were given that the fit has seen"):
        fitted.predict_set(logits[:2], groups=["moon", "mars"])


def test_groups_are_asked_for_where_they_count():
    logits, labels, region = draw_groups(400)
    with pytest.raises(ParameterError, match=r"'groups' of PredictionSets\.fit must be left out, unless"):
        PredictionSets().fit(logits, labels, groups=region)
    with pytest.raises(ParameterError, match=r"'groups' of PredictionSets\.fit must be one column"):
        PredictionSets(conditional="group").fit(logits, labels)
    with pytest.raises(ParameterError, match=r"one column.*Got a, b"):
        PredictionSets(conditional="group").fit(logits, labels, groups={"a": region, "b": region})
    fitted = PredictionSets(conditional="group").fit(logits, labels, groups={"region": region})
    with pytest.raises(ParameterError, match=r"the 'region' of each row, as in the fit\. Got None"):
        fitted.predict_set(logits)
    with pytest.raises(ParameterError, match="Got a, b"):
        fitted.predict_set(logits, groups={"a": region, "b": region})


def test_sets_of_groups_are_fitted_and_applied_to_files(tmp_path):
    logits, labels, region = draw_groups(600)
    names = ["cat", "dog", "emu"]
    table = pd.DataFrame({f"logit_{name}": logits[:, i] for i, name in enumerate(names)})
    table = table.assign(region=region, label=np.array(names)[labels])
    table.to_csv(tmp_path / "rows.csv", index=False)
    fitted = PredictionSets(conditional="group").fit(read(tmp_path / "rows.csv", groups=["region"]))
    apply(fitted, tmp_path / "rows.csv", tmp_path / "sets.csv")
    written = pd.read_csv(tmp_path / "sets.csv", keep_default_na=False)["set"]
    expected = fitted.predict_set(logits, groups=region)
    assert written.tolist() == [";".join(np.array(names)[row]) for row in expected]


def test_rows_without_a_say_have_groups_that_are_left_out_with_them():
    rng = np.random.default_rng(0)
    sets = rng.random((300, 3)) < 0.7
    labels = rng.integers(0, 3, 300)
    region = rng.choice(["north", "south"], 300)
    weight = np.where(rng.random(300) < 0.3, 0.0, 1.0)
    kept = (weight > 0.0) & (labels > 0)
    found = set_coverage(labels, sets, groups=region, sample_weight=weight, ignore_index=0)
    without = set_coverage(labels[kept], sets[kept], groups=region[kept], sample_weight=weight[kept])
    assert found == without
    with pytest.raises(ShapeError, match="300"):
        set_coverage(labels, sets, groups=region[kept], sample_weight=weight, ignore_index=0)


@pytest.mark.parametrize("library", ["half", "jax"])
def test_groups_are_kept_where_logits_are_converted(library):
    rng = np.random.default_rng(0)
    logits = np.round(8.0 * rng.normal(size=(300, 3))) / 4.0
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    region = np.array(["north", "south"])[np.arange(300) % 2]
    wanted = PredictionSets(conditional="group", randomised=False).fit(logits, labels, groups=region)
    carried = logits.astype(np.float16) if library == "half" else jnp.asarray(logits)
    fitted = PredictionSets(conditional="group", randomised=False).fit(carried, labels, groups=region)
    assert fitted.group_thresholds_.keys() == wanted.group_thresholds_.keys()
    for column, thresholds in wanted.group_thresholds_.items():
        assert fitted.group_thresholds_[column] == pytest.approx(thresholds, abs=1e-3)


def test_sets_of_half_precision_cover_the_rows_of_their_fit():
    """Many rows have the score of the threshold, and half precision would leave them out."""
    rng = np.random.default_rng(0)
    logits = rng.integers(-3, 4, size=(600, 3)).astype(np.float16)
    labels = np.argmax(logits / 2.0 + rng.gumbel(size=logits.shape), axis=1)
    fitted = PredictionSets(coverage=0.8, randomised=False).fit(logits, labels)
    sets = fitted.predict_set(logits)
    np.testing.assert_array_equal(sets, fitted.predict_set(logits.astype(np.float64)))
    assert set_coverage(labels, sets).coverage.value >= 0.8


def test_rows_of_unseen_groups_are_counted_however_the_groups_are_given():
    logits, labels = draw(300)
    regions = np.array(["north", "south", "west"])[np.arange(300) % 3]
    is_known = regions != "west"
    new = regions[:90]
    frame = pd.DataFrame({"region": new})
    for fitted in (PredictionSets(conditional="group"), GroupCalibration(method="ts")):
        fitted.fit(logits[is_known], labels[is_known], groups={"region": regions[is_known]})
        for groups in (new, new.tolist(), frame, frame["region"], {"region": new}):
            assert fitted.n_unseen(groups, 90) == 30
        assert fitted.n_unseen(None, 90) == 90
        with pytest.raises(ShapeError, match=rf"'groups' of {type(fitted).__name__}.n_unseen must be of shape \(80,\)"):
            fitted.n_unseen(new, 80)
