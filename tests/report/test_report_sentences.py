"""Sentences of the page, for every kind of winner, change of the accuracy and number of classes: none may be false."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from refocal.evaluate import MapFacts, compare, evaluate
from refocal.io import Predictions
from refocal.report import render
from refocal.report.sentences import Facts, about_classes, about_map, about_predictions, about_surface, facts_of

KINDS = ("none", "numbers", "shared", "each class", "unknown")
CHANGES = {"same": (0.9, 0.9), "rises": (0.9, 0.92), "falls": (0.9, 0.88)}


@pytest.mark.parametrize(("kind", "change", "is_binary"), list(product(KINDS, CHANGES, (True, False))))
def test_no_sentence_contradicts_the_facts(kind, change, is_binary):
    for keeps_order in (True, False):
        if keeps_order and change != "same":
            continue  # no such thing: where the order stays, so does the accuracy
        facts = Facts(kind, 2 if kind == "numbers" else 500, keeps_order, CHANGES[change], is_binary, "some method")
        said = " ".join((about_predictions(facts), about_map(facts), about_classes(facts)))
        assert ("every row keeps its predicted class" in said) == (keeps_order and kind != "none")
        if kind != "none":
            assert ("rises from 90.00 % to 92.00 %" in said) == (change == "rises")
            assert ("falls from 90.00 % to 88.00 %" in said) == (change == "falls")
            assert ("stays" in said) == (change == "same")
        assert ("treats all classes alike" in said) == (kind in ("numbers", "shared") and not is_binary)
        assert ("500 numbers" in said) == (kind in ("shared", "each class"))
        assert ("2 numbers" in said) == (kind == "numbers")


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
    rng = np.random.default_rng(0)
    found = {}
    for n_classes in (2, 4):
        truth = rng.normal(size=(400, n_classes))
        labels = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)
        rows = Predictions.from_logits(3.0 * truth + np.arange(n_classes), labels)
        for name in ("none", "fts", "ets", "isotonic", "vs"):
            methods = [name] if name in ("fts", "none") else [name, "fts"]
            methods = ["ts", "fts"] if name == "none" else methods
            found[name, n_classes] = compare(rows, rows, methods, chosen=name, n_resamples=5)
    return found


@pytest.mark.slow
def test_facts_are_those_of_the_fitted_chain(winners):
    for n_classes in (2, 4):
        kinds = {name: facts_of(winners[name, n_classes]).kind for name in ("none", "fts", "ets", "isotonic", "vs")}
        assert kinds == {
            "none": "none",
            "fts": "numbers",
            "ets": "shared",
            "isotonic": "each class",
            "vs": "each class",
        }
        assert facts_of(winners["fts", n_classes]).n_numbers == 2
        assert facts_of(winners["fts", n_classes]).keeps_order
        assert not facts_of(winners["vs", n_classes]).keeps_order
        assert facts_of(winners["vs", n_classes]).is_binary == (n_classes == 2)
    old = winners["vs", 4]
    old = replace(old, methods=[replace(method, map=None) for method in old.methods])
    assert facts_of(old).kind == "unknown"


def test_gamma_and_t_are_shown_only_of_methods_that_have_nothing_else(winners):
    found = winners["isotonic", 4]
    assert found["isotonic"].point == {}
    assert set(found["fts"].point) == {"gamma", "temperature"}
    assert found["isotonic"].map == MapFacts("each class", found["isotonic"].map.n_numbers, False)


def test_the_ring_is_the_choice_only_where_its_method_was_chosen(winners):
    assert "The ring is the choice" in about_surface(winners["fts", 4])
    said = about_surface(winners["isotonic", 4])
    assert "The ring is the point that fts took" in said
    assert "shown in detail is isotonic calibration" in said


@pytest.mark.parametrize("name", ["none", "fts", "ets", "isotonic", "vs"])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_page_has_these_sentences(winners, name, n_classes):
    text = render(winners[name, n_classes]).replace("\u00a0", " ")
    facts = facts_of(winners[name, n_classes])
    for sentence in (about_predictions(facts), about_map(facts), about_classes(facts)):
        assert sentence in text
