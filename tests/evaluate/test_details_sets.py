"""The coverage of prediction sets by class and by group, in an evaluation and on its page."""

import numpy as np
import pytest

from refocal import PredictionSets
from refocal.errors import InputWarning
from refocal.evaluate import evaluate, load_evaluation
from refocal.evaluate.summary import set_table, set_verdict
from refocal.io import Predictions
from refocal.metrics import set_coverage
from refocal.report import render


def draw(n, seed):
    """Three classes; the model is much worse on the island."""
    rng = np.random.default_rng(seed)
    region = np.where(rng.random(n) < 0.2, "island", "land")
    labels = rng.integers(3, size=n)
    logits = rng.normal(size=(n, 3))
    logits[np.arange(n), labels] += np.where(region == "island", 0.3, 2.5)
    rows = Predictions.from_logits(logits, np.array(["cat", "dog", "emu"])[labels], class_names=["cat", "dog", "emu"])
    return rows.with_groups({"region": region})


@pytest.mark.parametrize("conditional", ["none", "group"])
def test_the_coverage_is_that_of_the_metric(conditional):
    rows, test = draw(1500, 0), draw(3000, 1)
    fitted = PredictionSets(conditional=conditional).fit(rows)
    found = evaluate(test, {"sets": fitted}, chosen="sets", n_resamples=5)
    expected = set_coverage(test.labels, fitted.predict_set(test), groups=test.groups)
    assert found.after.sets == expected
    assert found.before.sets is None
    said = set_verdict(found)
    if conditional == "none":
        assert "Significantly below that: region = island. The guarantee is for all rows together" in said
        assert set_table(found)[0]["rows of"] == "region = island"
    else:
        assert "90 % of the rows of each group were asked for" in said
        assert "Significantly below" not in said


def test_the_coverage_that_was_asked_for_is_that_of_the_fit():
    fitted = PredictionSets(coverage=0.8).fit(draw(800, 0)).set_params(coverage=0.5)
    said = set_verdict(evaluate(draw(600, 1), {"sets": fitted}, chosen="sets", n_resamples=5))
    assert "80 % of the rows together were asked for" in said
    assert "Significantly below that: region = island" in said


def test_sets_by_group_take_those_of_the_rows_whichever_groups_are_measured():
    fitted = PredictionSets(conditional="group").fit(draw(1500, 0))
    test = draw(1000, 1)
    size = np.where(np.random.default_rng(2).random(1000) < 0.5, "island", "land")
    found = evaluate(test, {"sets": fitted}, chosen="sets", n_resamples=5, groups={"size": size}).after.sets
    assert found == set_coverage(test.labels, fitted.predict_set(test), groups={"size": size})


@pytest.mark.parametrize("groups", [{}, {"size": ["s"] * 300, "age": ["a"] * 300}])
def test_sets_by_group_of_rows_without_these_groups_are_not_measured(groups):
    fitted = PredictionSets(conditional="group").fit(draw(1500, 0))
    test = draw(300, 1)
    plain = Predictions.from_logits(test.values, test.labels, class_names=test.class_names).with_groups(groups)
    with pytest.warns(InputWarning, match="with groups of 'region', which the rows lack; it is measured without them"):
        found = evaluate(plain, {"sets": fitted}, chosen="sets", n_resamples=5)
    assert found.after.sets is None
    assert set_verdict(found) == ""
    assert np.isfinite(found.after.measures["log_loss"].value)


@pytest.mark.parametrize("names", [["0", "1"], ["7", "8"]])
def test_groups_called_class_stand_beside_the_classes(names, tmp_path):
    test = draw(600, 1)
    options = {"chosen": "sets", "n_resamples": 5}
    fitted = PredictionSets().fit(draw(800, 0))
    alone = evaluate(test.with_groups({}), {"sets": fitted}, **options).after.sets.parts
    found = evaluate(test.with_groups({"class": np.resize(names, 600)}), {"sets": fitted}, **options)
    found.save(tmp_path / "e.json")
    found = load_evaluation(tmp_path / "e.json")
    parts = [(part.column, part.name, part.n, part.coverage.value) for part in found.after.sets.parts]
    assert parts[:3] == [(part.column, part.name, part.n, part.coverage.value) for part in alone]
    assert [part.label for part in found.after.sets.parts] == [0, 1, 2, None, None]
    shown = {row["rows of"] for row in set_table(found)}
    assert shown == {"class cat", "class dog", "class emu", *(f"class = {name}" for name in names)}


def test_columns_in_another_order_have_the_same_coverage():
    fitted = PredictionSets(conditional="class").fit(draw(1500, 0))
    test = draw(1000, 1)
    found = evaluate(test, {"sets": fitted}, chosen="sets", n_resamples=5)
    moved = evaluate(test.reordered(np.array([2, 0, 1])), {"sets": fitted}, chosen="sets", n_resamples=5)
    assert moved.after.sets.coverage == found.after.sets.coverage
    assert {tuple(row.values()) for row in set_table(moved)} == {tuple(row.values()) for row in set_table(found)}


def test_a_page_has_them(tmp_path):
    found = evaluate(draw(800, 1), {"sets": PredictionSets().fit(draw(800, 0))}, chosen="sets", n_resamples=5)
    found.save(tmp_path / "e.json")
    page = render(load_evaluation(tmp_path / "e.json"))
    assert 'id="sets-table"' in page
    assert "class emu" in page
    assert "That is a mean over fits" in page
    assert set_table(found)[0]["covered %"] in page
    # The sets do not share the level of the rest of the page.
    assert "for all classes and groups of this section together" in page
    assert "together with the statements on methods, means and other diagrams" in page
    assert "the sentences on methods, means and diagrams hold together" in page
    assert "together with the diagrams and the statements on methods" in page
    assert "other statements of this page" not in page
