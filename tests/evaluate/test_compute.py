"""Evaluations against plain loops and the metrics themselves; JSON in and out; what is said in words."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import skew, ttest_rel
from scipy.stats import t as student

from refocal import FocalTemperatureScaling, TemperatureScaling, metrics
from refocal.calibrators.registry import NAMED, make
from refocal.engine import Block
from refocal.errors import FitWarning, FormatError, InputError, ParameterError, ShapeError
from refocal.evaluate import (
    Evaluation,
    compare,
    comparison_table,
    evaluate,
    load_evaluation,
    recommendation,
    verdict,
)
from refocal.evaluate._block_passes import Predictor, count_block
from refocal.evaluate._details import banded
from refocal.evaluate.summary import remarks
from refocal.io import Predictions, blocks, load_sample, split
from refocal.maps.chain import Chain
from refocal.metrics import PairedDifference
from refocal.metrics.bins import Bins

pytestmark = pytest.mark.core


def rows(n=3000, seed=0, sharp=2.5, weight=None):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 4)) * 1.5
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return Predictions.from_logits(sharp * logits, labels, weight=weight, class_names=["ant", "bee", "cat", "dog"])


@pytest.fixture(scope="module")
def found():
    validation, test = split(rows(4000))
    return compare(validation, test, ["ts", "fts", "fts-nll"], n_resamples=60), validation, test


@pytest.mark.slow
def test_measures_are_those_of_the_metrics(found):
    evaluation, validation, test = found
    calibrator = TemperatureScaling().fit(validation.values, validation.labels)
    p = calibrator.predict_proba(test.values)
    of = evaluation["ts"]
    assert of.measures["ece"].value == pytest.approx(metrics.expected_calibration_error(test.labels, p), abs=1e-12)
    assert of.measures["brier_score"].value == pytest.approx(metrics.brier_score(test.labels, p), abs=1e-12)
    loss = metrics.log_loss(test.labels, calibrator.predict_log_proba(test.values))
    assert of.measures["log_loss"].value == pytest.approx(loss, abs=1e-12)
    assert of.values["smooth_ece"] == pytest.approx(metrics.smooth_ece(test.labels, p), abs=1e-12)
    assert of.parameters == {"temperature": calibrator.temperature_}
    one_hot = np.eye(4)[test.labels]
    scores = [((q - one_hot) ** 2).sum(axis=1) for q in (p, np.exp(evaluate_none(test)))]
    paired = ttest_rel(*scores)
    terms = scores[0] - scores[1]
    difference = of.against_none["brier_score"]
    assert difference.difference == pytest.approx(np.mean(terms), abs=1e-12)
    # Student's statistic, with its skewness or without it (Hall 1992), reaches the quantiles of t at the ends.
    g = skew(terms) / np.sqrt(len(terms))
    error = np.std(terms, ddof=1) / np.sqrt(len(terms))
    statistic = (np.mean(terms) - np.array([difference.low, difference.high, 0.0])) / error
    assert statistic[2] == pytest.approx(paired.statistic, rel=1e-9)
    transformed = statistic + g / 3 * statistic**2 + g**2 / 27 * statistic**3 + g / 6
    nearer = [min(statistic[0], transformed[0]), max(statistic[1], transformed[1])]
    assert nearer == pytest.approx(student.ppf([0.975, 0.025], len(terms) - 1), rel=1e-6)
    nearest = min(abs(statistic[2]), abs(transformed[2]))
    assert difference.p_value == pytest.approx(2 * student.sf(nearest, len(terms) - 1), rel=1e-6)


def evaluate_none(test):
    logits = test.values - test.values.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def test_intervals_hold_their_values(found):
    for method in found[0].methods:
        for interval in method.measures.values():
            assert 0.0 <= interval.low <= interval.high <= 10.0
        assert method.measures["log_loss"].low <= method.measures["log_loss"].value <= method.measures["log_loss"].high
        # Only the test of the ECE draws outcomes; `squared_ece` has its own number of draws.
        assert [i.n_resamples for i in method.measures.values()] == [60, 0, 0, 0, 500, 0, 0, 0]


@pytest.mark.slow
def test_histogram_and_classes_by_plain_loops(found):
    evaluation, _, test = found
    p = np.exp(evaluate_none(test))
    method = evaluation.before
    right, wrong = np.zeros(20), np.zeros(20)
    for row, label in zip(p, test.labels, strict=True):
        bin_ = min(int(row.max() * 20), 19)
        (right if row.argmax() == label else wrong)[bin_] += 1
    assert method.histogram.right == right.tolist()
    assert method.histogram.wrong == wrong.tolist()
    for entry in method.classes:
        said = [i for i in range(len(p)) if p[i].argmax() == entry.label]
        assert entry.predicted == len(said)
        assert entry.n == np.count_nonzero(test.labels == entry.label)
        assert entry.precision == pytest.approx(np.mean([test.labels[i] == entry.label for i in said]))
        assert entry.confidence == pytest.approx(np.mean([p[i].max() for i in said]))
    mean = np.mean([entry.ece for entry in method.classes])
    assert mean == pytest.approx(method.values["classwise_ece"], abs=1e-12)
    assert evaluation["ts"].classes is None or evaluation.chosen == "ts"


def test_reliability_is_the_curve_with_a_consistency_band(found):
    evaluation, _, test = found
    curve = metrics.reliability_curve(test.labels, np.exp(evaluate_none(test)))
    before = evaluation.before.reliability
    assert before.accuracy == pytest.approx(curve.accuracy)
    assert sum(before.count) == len(test)
    # These predictions are far too sure: some bins lie outside; after calibration hardly any do.
    outside = [sum(not low <= a <= high for a, low, high in zip(r.accuracy, r.low, r.high, strict=True))
               for r in (before, evaluation.after.reliability)]  # fmt: skip
    assert outside[0] >= 5 > 3 >= outside[1]


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_band_has_the_quantiles_of_binomial_counts(level):
    from scipy.stats import binom

    rows, confidence = np.array([1, 7, 50, 6667, 10**9, 3]), np.array([0.3, 0.99, 0.97, 0.62, 1e-6, 0.0])
    for weight in (1.0, 0.5):  # rows of the same weight count as much as rows without weights
        sums = weight * rows
        bins = Bins(rows, sums, sums * confidence, sums * 0.5, weight * sums, weight * sums * 0.5)
        band = banded(bins, None, level)
        of_bin = level ** (1 / 6)  # all six bins together
        tails = (0.5 - of_bin / 2, 0.5 + of_bin / 2)
        expected = [binom.ppf(tail, rows, confidence) / rows for tail in tails]
        np.testing.assert_allclose([band.low, band.high], expected, rtol=1e-12)
    assert band.accuracy == [0.5] * 6


def test_surface_is_what_the_search_saw(found):
    evaluation, validation, _ = found
    calibrator = FocalTemperatureScaling().fit(validation.values, validation.labels)
    surface = evaluation.surface
    assert (surface.gamma, surface.temperature) == (calibrator.gamma_, calibrator.temperature_)
    np.testing.assert_allclose(surface.log_loss, calibrator.path_.log_loss, rtol=1e-5)
    np.testing.assert_allclose(surface.value, calibrator.path_.value, rtol=1e-5)
    assert surface.tolerance == 0.02
    assert np.shape(surface.value) == (len(surface.gammas), len(surface.temperatures))


def test_json_and_back(found, tmp_path):
    evaluation = found[0]
    evaluation.save(tmp_path / "e.json")
    assert load_evaluation(tmp_path / "e.json") == evaluation
    assert Evaluation.from_dict(json.loads(json.dumps(evaluation.to_dict()))) == evaluation


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="x"), "not an evaluation"),
        (lambda d: d.update(version=9), "version 9"),
        (lambda d: d.pop("chosen"), "'chosen' is missing"),
        (lambda d: d.update(chosen="nobody"), "chosen 'nobody'"),
        (lambda d: d.update(extra=1), "'extra'"),
        (lambda d: d.update(n_test="many"), "evaluation.n_test must be of type int"),
        (lambda d: d["methods"][0]["measures"]["ece"].update(low="x"), r"methods\[0\].measures.ece.low must be"),
        (lambda d: d.update(methods=[]), "must hold 'none'"),
    ],
)
def test_a_wrong_file_is_refused_with_its_reason(found, tmp_path, change, message):
    data = found[0].to_dict()
    data = json.loads(json.dumps(data))
    change(data)
    (tmp_path / "e.json").write_text(json.dumps(data))
    with pytest.raises(FormatError, match=message):
        load_evaluation(tmp_path / "e.json")
    (tmp_path / "e.json").write_text("{")
    with pytest.raises(FormatError, match="not a JSON file"):
        load_evaluation(tmp_path / "e.json")


def test_weights_count_rows():
    """Weights of 0, 1 and 2 do what leaving rows out and doubling them does."""
    weight = np.tile([0.0, 1.0, 2.0], 400)
    weighted = rows(1200, weight=weight)
    plain = rows(1200).take(np.repeat(np.arange(1200), weight.astype(int)))
    a, b = (evaluate(part, {}, n_resamples=2).before for part in (weighted, plain))
    for key in ("log_loss", "brier_score", "accuracy", "ece"):
        assert a.measures[key].value == pytest.approx(b.measures[key].value, abs=1e-12)
    assert a.histogram.right == b.histogram.right
    assert [c.precision for c in a.classes] == pytest.approx([c.precision for c in b.classes])


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_over_blocks_hold_the_means_and_their_covariances(weighted):
    test = rows(600)
    weight = np.random.default_rng(0).uniform(0.0, 3.0, 600) if weighted else None
    fitted = TemperatureScaling().fit(test.values, test.labels)
    parts = [
        count_block(
            Block(test.values[at], test.labels[at], None if weight is None else weight[at]),
            Predictor({"none": None, "fitted": fitted}),
            [metrics.CalibrationHistogram()] * 2,
        )
        for at in np.s_[:150, 150:]
    ]
    found = parts[0].merge(parts[1]).finish()
    covariance = found.covariances()
    w = np.ones(600) if weight is None else weight
    for metric in ("log_loss", "brier_score", "accuracy"):
        terms = []
        for chain in (Chain(), fitted.chain_):
            log_p = chain.log_probabilities(test.values)
            of_label, p = log_p[np.arange(600), test.labels], np.exp(log_p)
            terms.append({
                "log_loss": -of_label,
                "brier_score": ((p - np.eye(4)[test.labels]) ** 2).sum(axis=1),
                "accuracy": p.argmax(axis=1) == test.labels,
            }[metric])  # fmt: skip
        mean = np.average(terms, axis=1, weights=w)
        np.testing.assert_allclose([each.means[metric] for each in found.methods], mean, rtol=1e-10)
        about = (np.array(terms) - mean[:, None]) * w
        n_rows = w.sum() ** 2 / np.sum(w**2)
        expected = about @ about.T / w.sum() ** 2 * n_rows / (n_rows - 1)
        np.testing.assert_allclose(covariance[metric], expected, rtol=1e-8, atol=1e-15)


def test_half_precision_is_measured_in_single():
    validation, test = (Predictions.from_logits(p.values.astype(np.float16), p.labels) for p in split(rows(2000)))
    wide = [Predictions.from_logits(p.values.astype(np.float32), p.labels) for p in (validation, test)]
    a, b = compare(validation, test, ["ts"], n_resamples=2), compare(*wide, ["ts"], n_resamples=2)
    assert a["ts"].measures == b["ts"].measures


def test_probabilities_are_evaluated_as_such():
    predictions = rows(1000, sharp=1.0)
    p = np.exp(evaluate_none(predictions))
    as_p = Predictions.from_probabilities(p, predictions.labels)
    found = compare(as_p, as_p, ["ts"], n_resamples=2)
    plain = compare(predictions, predictions, ["ts"], n_resamples=2)
    assert found["ts"].calibrator["parameters"]["input"] == "probabilities"
    assert found["ts"].measures["log_loss"].value == pytest.approx(plain["ts"].measures["log_loss"].value, abs=1e-9)
    # A calibrator for the one kind is measured on the other through the map between them.
    for test, other in ((predictions, as_p), (as_p, predictions)):
        calibrator = make("ts", input=other.input).fit(other.values, other.labels)
        crossed = evaluate(test, {"ts": calibrator}, n_resamples=2)["ts"].measures["log_loss"].value
        assert crossed == pytest.approx(plain["ts"].measures["log_loss"].value, abs=1e-9)


@pytest.mark.slow
def test_every_registered_method_is_compared():
    validation, test = split(rows(300))
    seen = []
    found = compare(
        validation, test, "all", n_resamples=2, progress=lambda done, total, words: seen.append((done, total))
    )
    assert [method.name for method in found.methods] == ["none", *NAMED]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1] == seen[0][1]


@pytest.mark.slow
def test_the_usual_methods_are_compared_unless_told_otherwise():
    validation, test = split(rows(300))
    found = compare(validation, test, n_resamples=2)
    assert [method.name for method in found.methods][1:] == [name for name, method in NAMED.items() if method.usual]
    assert 0 < sum(not method.usual for method in NAMED.values()) < len(NAMED)


def test_the_share_of_a_fit_is_told():
    validation, test = split(rows(600))
    seen = []
    compare(validation, test, ["fts", "isotonic"], n_resamples=2, progress=lambda *told: seen.append(told))
    assert seen[0][:2] == (0.0, 6)
    fts, isotonic = ([done for done, _, words in seen if words == f"fitting {name}"] for name in ("fts", "isotonic"))
    assert len(fts) > 10
    assert fts == sorted(fts)
    assert (fts[0], fts[-1]) == (0.0, 1.0)
    assert isotonic == [1.0, 1.25, 1.5, 1.75, 2.0]


def fail(*_, **__):
    raise ZeroDivisionError("no such\nluck")


def test_one_method_that_fails_does_not_stop_the_others(monkeypatch):
    validation, test = split(rows(300))
    monkeypatch.setattr(NAMED["isotonic"].kind, "_fit_curve", fail)
    found = compare(validation, test, ["isotonic", "ts"], n_resamples=2)
    assert [method.name for method in found.methods] == ["none", "ts"]
    assert found.failed == {"isotonic": "ZeroDivisionError: no such luck"}
    assert "isotonic failed and was left out: ZeroDivisionError: no such luck" in found._repr_html_()
    assert Evaluation.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    for methods, chosen in ((["isotonic"], None), (["ts", "isotonic"], "isotonic")):
        with pytest.raises(ZeroDivisionError):
            compare(validation, test, methods, chosen=chosen, n_resamples=2)


def test_one_calibrator_that_does_not_fit_does_not_stop_the_others():
    validation, test = split(rows(300))
    good = make("ts").fit(validation.values, validation.labels)
    wide = TemperatureScaling().fit(3.0 * np.eye(5), np.arange(5))
    for order in ({"wide": wide, "good": good}, {"good": good, "wide": wide}):
        found = evaluate(test, order, n_resamples=2)
        assert [method.name for method in found.methods] == ["none", "good"]
        assert "of 5 columns, as the calibrator 'wide'" in found.failed["wide"]
    with pytest.raises(ShapeError):
        evaluate(test, {"wide": wide}, n_resamples=2)


def test_evaluations_of_an_older_version_are_read(found):
    data = json.loads(json.dumps(found[0].to_dict()))
    del data["failed"]
    assert Evaluation.from_dict(data) == found[0]


def test_curves_are_kept_of_the_chosen_method_alone():
    validation, test = split(rows(300))
    found = compare(validation, test, ["isotonic", "beta"], chosen="beta", n_resamples=2)
    assert [step["step"] for step in found["beta"].calibrator["chain"]] == ["Mixture"]
    assert "chain" not in found["isotonic"].calibrator
    assert set(found["isotonic"].parameters) == set(found["beta"].parameters) == {"temperature"}


def test_recommended_is_the_least_ece_within_a_percent_of_the_best_log_loss(found):
    evaluation = found[0]
    best = min(m.measures["log_loss"].value for m in evaluation.methods)
    near = [m for m in evaluation.methods if m.measures["log_loss"].value <= 1.01 * best]
    assert evaluation.chosen == min(near, key=lambda m: m.measures["ece"].value).name
    assert evaluation.recommended


def test_rows_of_unequal_weights_are_as_many_as_they_are_worth():
    """2,000 rows of which 60 have all the weight were enough to recommend a method, and 60 rows were not."""
    weight = np.full(2000, 1e-9)
    weight[:60] = 1.0
    test = rows(2000, seed=1, weight=weight)
    calibrators = {"ts": TemperatureScaling().fit(rows(2000))}
    for measured in (test, blocks([(test.values, test.labels, weight)])):
        found = evaluate(measured, calibrators)
        assert (found.n_test, found.chosen, found.recommended) == (2000, "none", False)
        said = recommendation(found)
        assert said == (
            "No recommendation: it takes 100 test rows to tell methods apart, and by their weights these are worth 60."
        )
    equal = evaluate(rows(2000, seed=1, weight=np.full(2000, 0.3)), calibrators, n_resamples=10)
    assert (equal.chosen, equal.recommended) == ("ts", True)
    assert "test rows by their weights" not in equal.run


def test_words_say_what_the_numbers_say(found):
    evaluation = found[0]
    text = verdict(evaluation)
    assert "lowers the calibration error (ECE) from" in text
    for value in (evaluation.before, evaluation.after):
        assert f"{100 * value.measures['ece'].value:.2f} %" in text
    assert evaluation.chosen in recommendation(evaluation)
    eces = [float(row.cells[3]) for row in comparison_table(evaluation)]
    assert eces == sorted(eces)
    assert text in evaluation._repr_html_().replace("&#x27;", "'")
    assert text in repr(evaluation)


def test_words_claim_nothing_beyond_chance(found):
    evaluation = found[0]
    unsure = PairedDifference(-0.01, -0.03, 0.01, 0.95, 0.4, 0.02, 0.03, 60)
    sure = replace(unsure, p_value=0.001)
    after = replace(evaluation.after, against_none={**evaluation.after.against_none, "squared_ece": unsure})
    others = [m for m in evaluation.methods if m.name != after.name]
    assert "does not change the calibration error (ECE) significantly" in verdict(
        replace(evaluation, methods=[*others, after])
    )
    # Of predictions that are left as they are it is said what is known, and no more.
    as_asked = replace(evaluation, chosen="none", recommended=False)
    assert verdict(as_asked).startswith("The calibration error (ECE) of the predictions as they are is")
    assert "No method improves on" in verdict(replace(as_asked, recommended=True))
    error = replace(evaluation.before.measures["ece"], low=0.0)
    before = replace(evaluation.before, measures={**evaluation.before.measures, "ece": error})
    calibrated = replace(as_asked, recommended=True, methods=[before, *others, after])
    assert "Nothing shows a need of calibration" in verdict(calibrated)
    assert recommendation(as_asked) == "Shown in detail: the predictions as they are."
    assert "no method improves on them significantly" in recommendation(replace(as_asked, recommended=True))
    rise = replace(sure, difference=0.01, low=0.005, high=0.02, first=0.04)
    worse = replace(after.measures["ece"], value=0.3)
    after = replace(
        after,
        measures={**after.measures, "ece": worse},
        against_none={**after.against_none, "squared_ece": rise},
    )
    text = verdict(replace(evaluation, methods=[*others, after]))
    assert "raises the calibration error (ECE) from 21.07 % to 30.00 %" in text


def test_evaluations_of_version_0_1_have_their_verdict(found):
    """They have a bootstrap of the ECEs in place of the squared errors."""
    data = json.loads(json.dumps(found[0].to_dict()))
    for method in data["methods"]:
        del method["measures"]["squared_ece"]
        for key in ("against_none", "against_chosen"):
            method[key]["ece"] = method[key].pop("squared_ece")
    old = Evaluation.from_dict(data)
    assert verdict(old) == verdict(found[0])
    assert recommendation(old) == recommendation(found[0])


def test_calibration_errors_are_compared_by_their_squares(found):
    evaluation, _, test = found
    p = np.exp(evaluate_none(test))
    ts = TemperatureScaling().fit(found[1].values, found[1].labels).predict_proba(test.values)
    expected = metrics.squared_ece_difference(test.labels, ts, p)
    of = evaluation["ts"].against_none["squared_ece"]
    assert (of.low, of.high, of.p_value) == pytest.approx((expected.low, expected.high, expected.p_value), abs=1e-12)
    assert "ece" not in evaluation["ts"].against_none


def test_rows_are_checked_once_whatever_the_number_of_methods(monkeypatch):
    """All rows when they are read; neither fits nor metrics check them again."""
    monkeypatch.setattr("refocal.metrics.inputs.read", fail)
    with pytest.raises(ZeroDivisionError):
        metrics.brier_score([0, 1], [0.5, 0.5])
    validation, test = split(rows(300))
    for module in ("_validation", "rows.scores"):
        monkeypatch.setattr(f"refocal.{module}.check_rows", fail)
    assert compare(validation, test, ["ts", "fts-nll", "isotonic"], n_resamples=2).failed == {}


def test_what_does_not_fit_is_refused():
    validation, test = split(rows(200))
    with pytest.raises(ParameterError, match="'methods' of compare must be one of"):
        compare(validation, test, ["magic"])
    with pytest.raises(ParameterError, match="'chosen'"):
        compare(validation, test, ["ts"], chosen="fts")
    wide = TemperatureScaling().fit(3.0 * np.eye(5), np.arange(5))
    with pytest.raises(ShapeError, match="of 5 columns, as the calibrator 'w'"):
        evaluate(test, {"w": wide})
    # A file of an evaluation whose methods are called by numbers could not be read back, and had no report.
    fitted = TemperatureScaling().fit(validation)
    for name in (1, 0.9, None, "none"):
        with pytest.raises(ParameterError, match=f"called by names of your own.* Got a calibrator {name!r} instead"):
            evaluate(test, {name: fitted})
    with pytest.raises(ParameterError, match="has no such option"):
        make("ts", gamma=1.0)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"level": 95}, "'level' of compare must be"),
        ({"n_resamples": 0}, "'n_resamples' of compare must be"),
        ({"seed": -1}, "'seed' of compare must be an integer of at least 0. Got -1"),
        ({"groups": ["north", "south"]}, "'groups' of compare must be of shape"),
        ({"clusters": ["monday", "tuesday"]}, "must be of shape"),
        ({"clusters": ["monday"] * 100}, "'clusters' of compare must be of at least two"),
        ({"features": {"age": np.arange(100)}}, "'features' of compare must be left out"),
        ({"metrics": ["roc_auc"]}, "'metrics' of compare must be defined for the number of classes"),
        (
            {"metrics": ["ece_sweep"]},
            "'metrics' of compare must be metrics with an interval that holds.* Got ece_sweep",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_before_the_fits(monkeypatch, asked, message):
    validation, test = split(rows(200))
    monkeypatch.setattr(TemperatureScaling, "fit", lambda *_, **__: pytest.fail("fitted in vain"))
    with pytest.raises(InputError, match=message):
        compare(validation, test, ["ts"], **asked)
    narrow = Predictions.from_logits(2.0 * np.eye(3), [0, 1, 2])
    with pytest.raises(ShapeError, match=r"'test' of compare must be of 4 columns, as the validation rows\. Got 3"):
        compare(validation, narrow, ["ts"])


def test_features_of_other_rows_are_refused_before_anything_is_measured(monkeypatch):
    two_classes = Predictions.from_probabilities([0.2, 0.7, 0.4], [0, 1, 1])
    module = "refocal.evaluate.compute.measure_in_memory"
    monkeypatch.setattr(module, lambda *_, **__: pytest.fail("measured in vain"))
    with pytest.raises(InputError, match="features"):
        evaluate(two_classes, {}, features={"age": [1.0, 2.0]})


def test_the_sample_tells_the_story_of_the_demo():
    validation, test = load_sample("cifar10-focal3")
    found = compare(validation, test, ["ts", "fts-nll"], n_resamples=20)
    assert found.chosen == "fts-nll"
    assert found.after.against_none["log_loss"].high < 0
    assert found.name_of(3) == "cat"


def test_zeros_in_blocks_are_measured_as_in_memory():
    """Also where the smallest other probability of the test is not that of the fit; and a later fit has its own."""
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.normal(size=(900, 3))
    q = np.exp(log_softmax(logits, axis=1))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    coarse, fine = (rng.multinomial(n, q) / n for n in (20, 400))
    fitted = TemperatureScaling(input="probabilities").fit(coarse, labels)
    together = evaluate(Predictions.from_probabilities(fine, labels), {"ts": fitted})
    rows = blocks([(fine[:500], labels[:500]), (fine[500:], labels[500:])], input="probabilities")
    apart = evaluate(rows, {"ts": fitted})
    for name in ("none", "ts"):
        for metric in ("log_loss", "brier_score", "ece"):
            want = together[name].measures[metric]
            assert apart[name].measures[metric].value == pytest.approx(want.value, rel=1e-4), (name, metric)
    again = TemperatureScaling(input="probabilities")
    assert again.fit(rows).temperature_ == pytest.approx(again.fit(fine, labels).temperature_, rel=1e-6)


def rows_that_look_like_guesses(kind, n=1000):
    """Logits and labels of which the log-loss is that of guessing or worse, for a reason that the kind says."""
    rng = np.random.default_rng(3)
    if kind == "rare":  # as a decision tree: p is 0 or 1, and accuracy is not above that of the larger class
        labels = (rng.random(n) < 0.1).astype(int)
        said = np.where(labels == 1, rng.random(n) < 0.7, rng.random(n) < 0.08)
        return 40.0 * np.stack([~said, said], axis=1), labels
    z = rng.normal(size=(n, 3))
    labels = np.argmax(1.5 * z + rng.gumbel(size=z.shape), axis=1)
    if kind == "random":
        return 2.0 * rng.normal(size=(n, 3)), labels
    if kind == "in another order":
        return 3.0 * z[:, [1, 2, 0]], labels
    if kind == "of other rows":  # of unequal shares, which the model knows
        z = z + np.array([2.0, 0.0, 0.0])
        return 3.0 * z, rng.permutation(np.argmax(1.5 * z + rng.gumbel(size=z.shape), axis=1))
    return 30.0 * z, labels


@pytest.mark.parametrize("kind", ["random", "in another order", "of other rows", "too sure", "rare"])
@pytest.mark.parametrize("method", [None, "focal"])
def test_scores_that_are_only_too_extreme_are_not_called_guesses(kind, method):
    """Labels were to be checked where a model was too sure of itself."""
    rows = Predictions.from_logits(*rows_that_look_like_guesses(kind))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        methods = {} if method is None else {method: make(method).fit(rows)}
    found = evaluate(rows, methods, n_resamples=5)
    assert min(each.measures["log_loss"].value for each in found.methods) > np.log(rows.n_classes)
    is_said = any(text.startswith("No method helps: ") for text in remarks(found))
    assert is_said == (kind in ("random", "in another order", "of other rows"))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_nothing_is_said_of_guesses_where_all_labels_are_of_one_class(n_classes):
    logits = 3.0 * np.random.default_rng(0).normal(size=(500, n_classes))
    found = evaluate(Predictions.from_logits(logits, np.ones(500, dtype=int)), {}, n_resamples=5)
    assert found.before.measures["log_loss"].value > np.log(n_classes)
    assert not any("No method helps" in text for text in remarks(found))


@pytest.mark.parametrize("method", ["ts", "focal", "lac"])
@pytest.mark.parametrize("kind", ["random", "in another order", "too sure", "rare"])
def test_a_fit_says_of_scores_that_are_only_too_extreme_no_more_than_that(kind, method):
    rows = Predictions.from_logits(*rows_that_look_like_guesses(kind))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make(method).fit(rows)
    is_said = any("no better than guessing" in str(each.message) for each in caught)
    assert is_said == (kind in ("random", "in another order"))


def test_the_histogram_of_weights_below_1_is_the_same_in_blocks():
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.normal(size=(400, 3))
    labels = np.argmax(logits / 2.0 + rng.gumbel(size=logits.shape), axis=1)
    weight = rng.random(400)
    parts = [(logits[some], labels[some], weight[some]) for some in (slice(0, 150), slice(150, 400))]
    methods = {"ts": TemperatureScaling().fit(logits, labels)}
    in_memory = evaluate(Predictions.from_logits(logits, labels, weight=weight), methods, n_resamples=10).methods[0]
    in_blocks = evaluate(blocks(parts), methods).methods[0]
    assert sum(in_blocks.histogram.right) + sum(in_blocks.histogram.wrong) == pytest.approx(weight.sum())
    np.testing.assert_allclose(in_blocks.histogram.right, in_memory.histogram.right, rtol=1e-9)
    np.testing.assert_allclose(in_blocks.histogram.wrong, in_memory.histogram.wrong, rtol=1e-9)


def test_an_evaluation_of_one_row_has_intervals_without_end(tmp_path):
    found = evaluate(Predictions.from_logits(np.array([[1.0, 0.0, 0.5]]), [0]), {})
    assert found.before.measures["log_loss"].high == np.inf
    found.save(tmp_path / "one.json")
    written = json.loads((tmp_path / "one.json").read_text())
    assert written["methods"][0]["measures"]["log_loss"]["high"] is None
    assert load_evaluation(tmp_path / "one.json").before.measures == found.before.measures


def forest_of_two_classes(n=200, seed=0):
    """Probabilities of 50 votes and labels; the probability of the last label is 0."""
    rng = np.random.default_rng(seed)
    p = rng.integers(1, 50, n) / 50
    y = (rng.random(n) < p).astype(np.int64)
    p[-1], y[-1] = 0.0, 1
    return p, y


@pytest.mark.parametrize("in_blocks", [False, True])
def test_a_probability_of_0_at_a_label_is_said_with_what_it_adds_to_the_log_loss(in_blocks):
    p, y = forest_of_two_classes()
    rows = Predictions.from_probabilities(p, y)
    if in_blocks:
        rows = blocks([(p[:90], y[:90]), (p[90:], y[90:])], input="probabilities")
    found = evaluate(rows, {})
    added = -np.log(np.finfo(np.float64).eps) / 200
    of_others = -np.log(np.where(y == 1, p, 1.0 - p)[:-1]).sum() / 200
    assert found.before.measures["log_loss"].value == pytest.approx(of_others + added)
    (said,) = [remark for remark in remarks(found) if "probability of 0" in remark]
    assert said.startswith("1 row has a probability of 0, or below 2.2e-16, at the label")
    assert f"counted as 2.2e-16, such rows add {added:.4f} to the log-loss" in said
    assert said in found.to_dict()["run"].values()


@pytest.mark.parametrize("in_blocks", [False, True])
def test_no_zero_is_said_of_rows_without_one_of_weight_0_and_of_logits(in_blocks):
    p, y = forest_of_two_classes()
    weight = np.ones(len(y))
    weight[-1] = 0.0
    logits = np.where(y[:, None] == [0, 1], -40.0, 0.0)
    pairs = [
        ((p, y, weight), Predictions.from_probabilities(p, y, weight=weight), "probabilities"),
        ((logits, y), Predictions.from_logits(logits, y), "logits"),
    ]
    for arrays, rows, kind in pairs:
        found = evaluate(blocks([arrays], input=kind) if in_blocks else rows, {})
        assert not any("probability of 0" in remark for remark in remarks(found))


@pytest.mark.parametrize("in_blocks", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_equal_probabilities_of_different_rows_stay_equal(dtype, in_blocks):
    """The votes of ten trees have ten confidences: rows of one share a bin and a rank, whatever their other classes."""
    rng = np.random.default_rng(0)
    n_rows, n_trees, n_bins = 600, 10, 15
    shares = rng.dirichlet([0.5] * 3, n_rows)
    votes = np.array([rng.multinomial(n_trees, share) for share in shares])
    labels = np.array([rng.choice(3, p=share) for share in shares])
    p = (votes / n_trees).astype(dtype)
    if in_blocks:
        test = blocks([(p[::2], labels[::2]), (p[1::2], labels[1::2])], input="probabilities")
        found = evaluate(test, {}).before
    else:
        found = evaluate(Predictions.from_probabilities(p, labels), {}, n_resamples=2).before

    top = votes.max(axis=1).tolist()
    right = (votes.argmax(axis=1) == labels).tolist()
    gaps = [0.0] * n_bins
    risk = 0.0
    for mine in top:
        n_below = sum(other < mine for other in top)
        of_same = [hit for other, hit in zip(top, right, strict=True) if other == mine]
        gaps[n_bins * n_below // n_rows] += mine / n_trees - sum(of_same) / len(of_same)
        as_sure = [hit for other, hit in zip(top, right, strict=True) if other >= mine]
        risk += 1.0 - sum(as_sure) / len(as_sure)
    assert found.measures["ece"].value == pytest.approx(sum(map(abs, gaps)) / n_rows, abs=1e-6)
    assert found.measures["aurc"].value == pytest.approx(risk / n_rows, abs=1e-4)
    decided = [sum(mine >= n_trees * threshold - 1e-6 for mine in top) / n_rows for threshold in (0.5, 0.6, 0.7)]
    at = [found.decisions.threshold.index(threshold) for threshold in (0.5, 0.6, 0.7)]
    assert [found.decisions.decided[i] for i in at] == pytest.approx(decided, abs=1e-9)
