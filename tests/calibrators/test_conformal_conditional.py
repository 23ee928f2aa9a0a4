"""Class-conditional prediction sets, and the coverage of classes and groups."""

from __future__ import annotations

import json

import numpy as np
import pytest

from refocal import PredictionSets, load
from refocal.errors import FitWarning, FormatError, ShapeError
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
    data["fit"]["thresholds"] = [0.5]
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
