"""Venn-Abers calibration: against isotonic regression done anew for every row, and against its guarantee."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.special import expit, logit, softmax
from sklearn.isotonic import IsotonicRegression

import refocal
from refocal import VennAbersCalibration
from refocal.errors import LabelError, ParameterError
from refocal.maps import Temperature


def two_columns(score):
    return np.stack([np.zeros_like(score), score], axis=1)


def draw(rng, n, decimals=None):
    """Scores of a model that is too sure, and what came of them."""
    p = rng.beta(1, 2, n)
    score = 2.0 * logit(p) + 0.5
    return (score if decimals is None else score.round(decimals)), (rng.random(n) < p).astype(int)


def anew(score, labels, new, weight=None):
    """p₀ and p₁ of one new score, by two isotonic regressions of scikit-learn."""
    weight = np.ones(len(score)) if weight is None else weight
    found = []
    for label in (0, 1):
        regression = IsotonicRegression()
        regression.fit(np.append(score, new), np.append(labels, label), np.append(weight, 1.0))
        found.append(float(regression.predict([new])[0]))
    return found


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("decimals", [None, 0])  # 0: many ties, among them those of new scores with old ones
@pytest.mark.parametrize("n", [3, 150])
def test_the_interval_is_that_of_two_regressions_with_the_row_added(n, decimals, weighted):
    rng = np.random.default_rng(n)
    score, labels = draw(rng, n, decimals)
    labels[:2] = 0, 1
    weight = rng.integers(1, 4, n).astype(float) if weighted else None
    new = np.concatenate([draw(rng, 60, decimals)[0], [-30.0, 30.0], score[:5]])
    fitted = VennAbersCalibration().fit(two_columns(score), labels, sample_weight=weight)
    lower, upper = fitted.predict_interval(two_columns(new))
    expected = np.array([anew(score, labels, s, weight) for s in new])
    assert_allclose(lower[:, 1], expected[:, 0], atol=1e-12)
    assert_allclose(upper[:, 1], expected[:, 1], atol=1e-12)
    assert_allclose(lower[:, 0], 1.0 - expected[:, 1], atol=1e-12)
    merged = expected[:, 1] / (1.0 - expected[:, 0] + expected[:, 1])
    assert_allclose(fitted.predict_proba(two_columns(new))[:, 1], merged, atol=1e-12)


@pytest.mark.parametrize("constant", [0.0, 2.0, -1e-9])
def test_rows_of_one_score_have_its_interval_where_it_is_0_too(constant):
    labels = np.repeat([0, 1], [20, 25])
    fitted = VennAbersCalibration().fit(two_columns(np.full(45, constant)), labels)
    lower, upper = fitted.predict_interval(two_columns(np.array([constant])))
    # The row added to 25 hits of 45: as a miss, and as a hit.
    assert (lower[0, 1], upper[0, 1]) == pytest.approx((25.0 / 46.0, 26.0 / 46.0), abs=1e-12)


def test_of_more_classes_the_top_one_is_calibrated_and_the_others_share_the_rest():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(200, 3))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    fitted = VennAbersCalibration().fit(logits, labels)
    new = rng.normal(size=(20, 3))
    temperature = fitted.chain_.find(Temperature, "temperature")
    p, p_new = (softmax(x / temperature, axis=1) for x in (logits, new))
    right = np.argmax(logits, axis=1) == labels
    expected = np.array([anew(logit(p.max(axis=1)), right, s) for s in logit(p_new.max(axis=1))])
    lower, upper = fitted.predict_interval(new)
    rows, top = np.arange(20), np.argmax(new, axis=1)
    assert_allclose(lower[rows, top], expected[:, 0], atol=1e-12)
    assert_allclose(upper[rows, top], expected[:, 1], atol=1e-12)
    rest = p_new.copy()
    rest[rows, top] = 0.0
    rest /= rest.sum(axis=1, keepdims=True)
    others = rest > 0.0
    assert_allclose(lower[others], (rest * (1.0 - expected[:, 1:]))[others], atol=1e-12)
    assert_allclose(upper[others], (rest * (1.0 - expected[:, :1]))[others], atol=1e-12)
    merged = expected[:, 1] / (1.0 - expected[:, 0] + expected[:, 1])
    found = fitted.predict_proba(new)
    kept = merged > (rest * (1.0 - merged)[:, None]).max(axis=1)  # elsewhere the second class would pass the top one
    assert kept.sum() >= 15
    assert_allclose(found[rows, top][kept], merged[kept], atol=1e-12)
    assert np.array_equal(np.argmax(found, axis=1), top)


def test_cross_venn_abers_is_the_geometric_mean_of_its_folds():
    rng = np.random.default_rng(1)
    score, labels = draw(rng, 90)
    fitted = VennAbersCalibration(n_folds=3).fit(two_columns(score), labels)
    order = np.argsort(score)
    fold = np.empty(90, dtype=int)
    for label in (0, 1):  # every third hit and every third miss in the order of the scores
        some = order[labels[order] == label]
        fold[some] = np.arange(1, len(some) + 1) % 3
    new = draw(rng, 40)[0]
    each = np.array([[anew(score[fold == k], labels[fold == k], s) for s in new] for k in range(3)])
    upper, not_lower = np.prod(each[..., 1], axis=0) ** (1 / 3), np.prod(1.0 - each[..., 0], axis=0) ** (1 / 3)
    found = fitted.predict_interval(two_columns(new))
    assert_allclose(found[0][:, 1], 1.0 - not_lower, atol=1e-12)
    assert_allclose(found[1][:, 1], upper, atol=1e-12)
    assert_allclose(fitted.predict_proba(two_columns(new))[:, 1], upper / (not_lower + upper), atol=1e-12)


@pytest.mark.slow
def test_one_of_the_two_probabilities_is_calibrated_whatever_the_scores():
    """The guarantee: the bound that the label picks, p₁ of a hit and p₀ of a miss, has mean P(hit), at every level."""
    rng = np.random.default_rng(2)
    picked, hits = [], []
    for _ in range(250):
        score, labels = draw(rng, 41)
        score[-20:] *= -1.0  # scores may be as bad as they like
        keep = rng.permutation(41)
        score, labels = score[keep], labels[keep]
        if labels[:40].min() == labels[:40].max():
            continue
        lower, upper = (
            VennAbersCalibration().fit(two_columns(score[:40]), labels[:40]).predict_interval(two_columns(score[40:]))
        )
        picked.append(upper[0, 1] if labels[40] else lower[0, 1])
        hits.append(labels[40])
    picked, hits = np.array(picked), np.array(hits)
    gap = hits - picked
    assert abs(gap.mean()) < 3.5 * gap.std() / len(gap) ** 0.5
    for low in (picked < 0.3), (picked >= 0.3):
        assert abs(gap[low].mean()) < 3.5 * gap[low].std() / low.sum() ** 0.5


@pytest.mark.parametrize("folds", [1, 4])
def test_it_is_saved_loaded_and_answers_in_kind(folds, tmp_path):
    rng = np.random.default_rng(3)
    score, labels = draw(rng, 500)
    fitted = VennAbersCalibration(n_folds=folds).fit(two_columns(score), labels)
    fitted.save(tmp_path / "c.json")
    loaded = refocal.load(tmp_path / "c.json")
    for one, other in zip(
        fitted.predict_interval(two_columns(score)), loaded.predict_interval(two_columns(score)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    lower, upper = loaded.predict_interval(torch.tensor(two_columns(score)))
    assert isinstance(lower, torch.Tensor)
    assert bool((lower <= upper).all())
    p = loaded.predict_proba(two_columns(score))[:, 1]
    assert np.abs(p - expit((score - 0.5) / 2.0)).mean() < 0.06


def test_probabilities_and_impossible_classes():
    rng = np.random.default_rng(4)
    p = rng.dirichlet([1.0, 1.0, 1.0], 100)
    labels = np.array([rng.choice(3, p=row) for row in p])
    lower, upper = VennAbersCalibration(input="probabilities").fit(p, labels).predict_interval(p)
    assert np.all((lower >= 0.0) & (lower <= upper) & (upper <= 1.0))
    logits = np.log(p)
    logits[:5, 0], labels[:5] = -np.inf, 1
    lower, upper = VennAbersCalibration().fit(logits, labels).predict_interval(logits)
    assert np.all(upper[:5, 0] == 0.0)


def test_a_few_rows_and_one_class_alone():
    fitted = VennAbersCalibration().fit([[0.0, 1.0], [0.0, -1.0], [0.0, 2.0], [0.0, 0.5], [0.0, 0.1]], [1, 0, 1, 1, 0])
    assert np.all(np.isfinite(fitted.predict_log_proba([[0.0, 0.3], [0.0, 99.0]])))
    with pytest.raises(LabelError, match="only one class"):
        VennAbersCalibration().fit([[0.0, 1.0], [2.0, 0.0]], [1, 1])
    with pytest.raises(ParameterError, match="'n_folds' of VennAbersCalibration must be an integer of at least 1"):
        VennAbersCalibration(n_folds=0).fit([[0.0, 1.0], [2.0, 0.0]], [1, 0])


def test_margins_of_a_tiny_scale_are_no_ties():
    score, labels = draw(np.random.default_rng(3), 200)
    intervals = [
        VennAbersCalibration().fit(two_columns(unit * score), labels).predict_interval(two_columns(unit * score))
        for unit in (1.0, 2.0**-20)
    ]
    assert_allclose(intervals[1], intervals[0], rtol=1e-12)


def test_scores_close_to_each_other_are_no_ties():
    rng = np.random.default_rng(0)
    score = 5.0 + 1e-3 * np.sort(rng.random(2000))
    labels = (rng.random(2000) < np.where(np.arange(2000) < 1000, 0.1, 0.9)).astype(int)
    p = VennAbersCalibration(input="log-odds").fit(score, labels).predict_proba(score)[:, 1]
    assert p[:990].mean() == pytest.approx(0.1, abs=0.03)
    assert p[1010:].mean() == pytest.approx(0.9, abs=0.03)
    for i in (3, 400, 1500):
        low, high = anew(score, labels, score[i])
        assert p[i] == pytest.approx(high / (1.0 - low + high), abs=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("n_folds", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_probability_lies_within_its_interval(n_classes, n_folds, dtype):
    """Also where the top class is kept as probable as the second, of which p₁ says less."""
    rng = np.random.default_rng(n_classes)
    logits = 2.0 * rng.normal(size=(2000, n_classes))
    labels = np.argmax(logits / 3.0 + rng.gumbel(size=logits.shape), axis=1)
    fitted = VennAbersCalibration(n_folds=n_folds).fit(logits, labels)
    rows = logits.astype(dtype)
    rows[:5, 1] = -np.inf
    rows[5:8, :-1] = -np.inf
    p = fitted.predict_proba(rows)
    lower, upper = fitted.predict_interval(rows)
    assert np.all(lower <= p)
    assert np.all(p <= upper)
    assert np.all(lower >= 0.0)
    assert np.all(upper <= 1.0)


def test_a_class_that_cannot_occur_has_an_interval_of_zero():
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(500, 2))
    fitted = VennAbersCalibration().fit(logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1))
    lower, upper = fitted.predict_interval([[0.0, -np.inf], [-np.inf, 0.0]])
    np.testing.assert_array_equal(lower, [[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_array_equal(upper, [[1.0, 0.0], [0.0, 1.0]])


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_folds", [1, 5])
def test_rows_of_one_possible_class_say_nothing(n_classes, n_folds):
    """The interval of any other row is then all there is."""
    logits = np.full((40, n_classes), -np.inf)
    labels = np.arange(40) % n_classes
    logits[np.arange(40), labels] = 1.0
    fitted = VennAbersCalibration(n_folds=n_folds).fit(logits, labels)
    np.testing.assert_array_equal(fitted.predict_proba(logits), np.eye(n_classes)[labels])
    new = np.array([[2.0, *[0.0] * (n_classes - 1)]])
    lower, upper = fitted.predict_interval(new)
    top = 1 if n_classes == 2 else 0
    np.testing.assert_allclose([lower[0, top], upper[0, top]], [0.0, 1.0], rtol=0.0, atol=1e-12)
    assert fitted.predict_proba(new)[0, 0] == pytest.approx(0.5, rel=1e-9)
