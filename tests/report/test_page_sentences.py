"""Sentences of the page, for every kind of winner, change of the accuracy and number of classes: none may be false."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from itertools import product

import numpy as np
import pytest

from refocal import FocalTemperatureScaling, GroupCalibration, PredictionSets, TemperatureScaling, VectorScaling
from refocal.evaluate import MapFacts, compare, evaluate
from refocal.io import Predictions
from refocal.report import render
from refocal.shift import update

KINDS = ("none", "numbers", "shared", "each class", "unknown")
CHANGES = {"same": (0.9, 0.9), "rises": (0.9, 0.92), "falls": (0.9, 0.88)}


def text_of(page):
    """What a reader sees of a page."""
    shown = re.sub(r"<(script|style|svg|pre).*?</\1>|<[^>]+>", " ", page, flags=re.S)
    return " ".join(unescape(shown).split())


@pytest.fixture(scope="module")
def plain():
    """Evaluations of a method each, of two classes and of four."""
    return {n_classes: compared(n_classes, ["vs"], "vs") for n_classes in (2, 4)}


def compared(n_classes, methods, chosen):
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(400, n_classes))
    labels = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)
    rows = Predictions.from_logits(3.0 * truth + np.arange(n_classes), labels)
    return compare(rows, rows, methods, chosen=chosen, n_resamples=5)


@pytest.mark.parametrize(("kind", "change", "n_classes"), list(product(KINDS, CHANGES, (2, 4))))
def test_no_sentence_contradicts_the_facts(plain, kind, change, n_classes):
    for keeps_order in (True, False):
        if keeps_order and change != "same":
            continue  # no such thing: where the order stays, so does the accuracy
        facts = MapFacts(kind, 2 if kind == "numbers" else 500, keeps_order)
        before, after = (
            replace(method, measures=method.measures | {"accuracy": replace(method.measures["accuracy"], value=value)})
            for method, value in zip(plain[n_classes].methods, CHANGES[change], strict=True)
        )
        after = replace(after, map=None if kind == "unknown" else facts)
        found = replace(plain[n_classes], methods=[before, after], chosen="none" if kind == "none" else "vs")
        said = text_of(render(found))
        is_kept = keeps_order and kind not in ("none", "unknown")
        assert ("every row keeps its predicted class" in said) == is_kept
        assert ("No calibrator is used." in said) == (kind == "none")
        if kind != "none":
            assert ("rises from 90.00 % to 92.00 %" in said) == (change == "rises")
            assert ("falls from 90.00 % to 88.00 %" in said) == (change == "falls")
            assert ("the accuracy stays" in said) == (change == "same")
        assert ("treats all classes alike" in said) == (kind in ("numbers", "shared") and n_classes > 2)
        assert ("500 numbers" in said) == (kind in ("shared", "each class"))
        assert ("2 numbers" in said) == (kind == "numbers")
        assert ("The calibrator is vector scaling." in said) == (kind == "unknown")


def test_a_page_without_a_calibrator_speaks_of_none():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, 4))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    page = render(evaluate(Predictions.from_logits(logits, labels), {}, n_resamples=20))
    shown = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.S)
    for words in ("unchanged", ">Before<", " before", "How do the methods compare?", "was picked on"):
        assert words not in shown
    assert "As they are" in shown
    assert "No calibrator was tried" in shown


@pytest.fixture(scope="module")
def winners():
    """Evaluations of one small file, with each kind of method shown in detail."""
    methods = {"none": ["ts", "fts"], "fts": ["fts"], "ets": ["ets", "fts"], "isotonic": ["isotonic", "fts"]}
    methods["vs"] = ["vs", "fts"]
    return {(name, n): compared(n, fitted, name) for name, fitted in methods.items() for n in (2, 4)}


@pytest.mark.slow
def test_facts_are_those_of_the_fitted_chain(winners):
    for n_classes in (2, 4):
        maps = {name: winners[name, n_classes].after.map for name in ("none", "fts", "ets", "isotonic", "vs")}
        assert maps.pop("none") is None
        kinds = {"fts": "numbers", "ets": "shared", "isotonic": "each class", "vs": "each class"}
        assert {name: found.kind for name, found in maps.items()} == kinds
        assert maps["fts"].n_numbers == 2
        assert maps["fts"].keeps_order
        assert not maps["vs"].keeps_order


def test_gamma_and_t_are_shown_only_of_methods_that_have_nothing_else(winners):
    found = winners["isotonic", 4]
    assert found["isotonic"].point == {}
    assert set(found["fts"].point) == {"gamma", "temperature"}
    assert found["isotonic"].map == MapFacts("each class", found["isotonic"].map.n_numbers, False)


def test_the_ring_is_the_choice_only_where_its_method_was_chosen(winners):
    assert "The ring is the choice" in render(winners["fts", 4])
    said = text_of(render(winners["isotonic", 4]))
    assert "The ring is the point that fts took" in said
    assert "shown in detail is isotonic calibration" in said


@pytest.mark.parametrize(
    ("name", "of_two", "of_more"),
    [
        ("none", "No calibrator is used.", "No calibrator is used."),
        ("fts", "The calibrator is 2 numbers.", "The calibrator is 2 numbers, the same for all classes."),
        ("ets", "numbers.", "numbers that treat all classes alike."),
        ("isotonic", "numbers.", "numbers, some of them for each class."),
        ("vs", "numbers.", "numbers, some of them for each class."),
    ],
)
def test_the_page_says_what_the_calibrator_is(winners, name, of_two, of_more):
    for n_classes, sentence in ((2, of_two), (4, of_more)):
        section = text_of(render(winners[name, n_classes]).partition('<section id="use"')[2])
        assert sentence in section


def in_detail(calibrator, n_classes=3):
    """The page of an evaluation that shows one calibrator, unescaped."""
    rows = rows_of(n_classes)
    return unescape(render(evaluate(rows, {"mine": calibrator(rows)}, chosen="mine", n_resamples=2)))


def rows_of(n_classes):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(300, n_classes))
    rows = Predictions.from_logits(2.0 * logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1))
    return rows.with_groups({"site": np.resize(["a", "b"], len(rows))})


WITH_OFFSETS = {
    "adapted": lambda rows: TemperatureScaling().fit(rows).adapt(shares=[0.6, 0.3, 0.1])[0],
    "updated": lambda rows: update(TemperatureScaling().fit(rows), rows),
    "class weights": lambda rows: FocalTemperatureScaling(class_weight=[1.0, 4.0, 2.0]).fit(rows),
    "fitted weights": lambda rows: TemperatureScaling(class_weight="fit").fit(rows),
}


@pytest.mark.parametrize("kind", WITH_OFFSETS)
def test_an_offset_of_each_class_does_not_treat_classes_alike(kind):
    said = text_of(in_detail(WITH_OFFSETS[kind]))
    assert "some of them for each class" in said
    assert "The calibrator has numbers for each class" in said
    assert "alike" not in said


@pytest.mark.parametrize("kind", ["adapted", "updated"])
def test_no_command_is_said_to_fit_what_an_adaptation_or_update_made(kind):
    said = in_detail(WITH_OFFSETS[kind])
    assert "refocal fit" not in said
    assert "refocal apply calibrator.json logits.npz" in said


@pytest.mark.parametrize(
    ("settings", "numbers"),
    [({}, "the model's own"), ({"base": "ts"}, "1 number"), ({"conditional": "group"}, "the model's own")],
)
def test_the_page_of_prediction_sets_says_how_to_predict_them(settings, numbers):
    said = in_detail(PredictionSets(**settings).fit)
    assert f"predict_set(logits{', groups=groups' if 'conditional' in settings else ''})" in said
    assert "The calibrator makes sets of classes" in text_of(said)
    assert numbers in text_of(said)
    assert "0 numbers" not in said


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_numbers_alone_say_which_logits_they_are_for(n_classes):
    """Of two classes a row may be one number, which `predict_proba` takes and a softmax does not."""
    page = in_detail(TemperatureScaling().fit, n_classes)
    snippets = re.findall(r"<pre[^>]*>(.*?)</pre>", page, flags=re.S)
    numbers = [re.sub(r"<[^>]+>", "", each) for each in snippets if "focal_temperature" in each]
    assert len(numbers) == 2
    for snippet in numbers:
        assert ("one number z" in snippet) == (n_classes == 2)


def test_the_numbers_alone_are_the_calibrator_on_columns_made_of_one_number():
    """What the page says to do with one number a row gives the probabilities of the calibrator."""
    rng = np.random.default_rng(0)
    z = 2.0 * rng.normal(size=400)
    labels = (rng.random(400) < 1.0 / (1.0 + np.exp(-z / 2.0))).astype(int)
    fitted = TemperatureScaling().fit(z, labels)
    found = evaluate(Predictions.from_logits(z, labels), {"ts": fitted}, chosen="ts", n_resamples=2)
    snippet = next(
        re.sub(r"<[^>]+>", "", each)
        for each in re.findall(r"<pre[^>]*>(.*?)</pre>", unescape(render(found)), flags=re.S)
        if "np.exp(focal_temperature" in each
    )
    columns = re.search(r"np\.stack\(.*\)", snippet)
    names = {"np": np, "z": z}
    names["logits"] = eval(columns.group(), names)  # noqa: S307 - what the page says
    exec(snippet, names)  # noqa: S102
    np.testing.assert_allclose(names["probabilities"], fitted.predict_proba(z), rtol=1e-9)


@pytest.mark.parametrize(
    ("calibrator", "asked"),
    [
        (VectorScaling(), "refocal fit val.npz --method vs -o calibrator.json"),
        (TemperatureScaling(objective="ece"), "refocal fit val.npz --method ts-ece -o calibrator.json"),
        (
            FocalTemperatureScaling(objective="nll", nll_tolerance=0.5),
            "refocal fit val.npz --method fts-nll --tolerance 0.5 -o calibrator.json",
        ),
        (
            FocalTemperatureScaling(objective="nll", class_weight=[1.0, 2.5, 1.0]),
            "refocal fit val.npz --method fts-nll --class-weight 1.0,2.5,1.0 -o calibrator.json",
        ),
        (PredictionSets(conformity_score="aps", coverage=0.8), "--method aps --coverage 0.8 -o calibrator.json"),
        (PredictionSets(conditional="group"), "--method lac --groups 'the group' -o calibrator.json"),
        (GroupCalibration(), "--method group --groups 'the group' -o calibrator.json"),
        (GroupCalibration(method="ts"), None),
        (PredictionSets(conditional="class"), None),
        (TemperatureScaling(search="grid"), None),
        (TemperatureScaling(objective=lambda y, p: float(p[:, 0].mean())), None),
    ],
)
def test_the_command_fits_the_method_whatever_the_calibrator_is_called(calibrator, asked):
    """As a calibrator of a file, which is called by the name of the file."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(120, 3))
    rows = Predictions.from_logits(2.0 * logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1))
    rows = rows.with_groups({"the group": rng.choice(["a", "b"], 120)})
    found = evaluate(rows, {"ts": calibrator.fit(rows)}, chosen="ts", n_resamples=2)
    said = unescape(render(found))
    assert ("refocal fit val.npz" in said) == (asked is not None)
    assert "\nrefocal apply calibrator.json logits.npz -o calibrated.npz" in said.replace("<code>", "\n")
    assert asked is None or asked in said
