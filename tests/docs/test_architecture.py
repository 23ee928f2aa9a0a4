"""What docs/architecture.md says: the picture is the code's, and its worked examples work."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
from jinja2 import ChoiceLoader, DictLoader
from sklearn.base import clone

import refocal
from refocal import metrics
from refocal.calibrators import registry
from refocal.cli import evaluations
from refocal.cli.calibrators import fit
from refocal.cli.options import complete_method, with_options
from refocal.evaluate import compare, comparison_table, evaluate
from refocal.io import Predictions
from refocal.metrics import METRICS
from refocal.report import plot_comparison
from refocal.report.page import render

mpl.use("agg")
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def from_page(name, wanted=None):
    """The function or class of that name, as the page defines it; or another thing of the same block."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (block,) = [block for block in blocks if re.search(rf"^(?:class|def) {name}\b", block, re.M)]
    space: dict[str, object] = {"__name__": __name__}
    exec(compile(block, "<architecture>", "exec"), space)  # noqa: S102
    return space[wanted or name]


def test_no_test_module_imports_another():
    """What several need is in tests/helpers.py or a conftest."""
    for path in [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "paper" / "tests").rglob("test_*.py")]:
        assert not re.search(r"^(?:from|import) test_", path.read_text(encoding="utf-8"), re.M), path.name


def names_of_modules(folder):
    """The modules and subpackages in a folder of the package, without the underscore of private ones."""
    return {path.stem.lstrip("_") for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}


def test_tests_mirror_the_source():
    """tests/<subpackage>/test_<module>.py, or with an aspect behind: test_<module>_<aspect>.py.

    What concerns a subpackage as a whole begins with its name. Other folders hold what concerns the whole package.
    """
    package = ROOT / "src" / "refocal"
    across = {"docs", "fuzz", "golden", "integration", "matrix", "peers", "stress"}
    for path in (ROOT / "tests").rglob("test_*.py"):
        folder = path.parent.relative_to(ROOT / "tests")
        if str(folder) in across:
            continue
        names = names_of_modules(package / folder) | {folder.name}
        tested = path.stem.removeprefix("test_")
        assert any(tested == name or tested.startswith(f"{name}_") for name in names - {""}), path.relative_to(ROOT)


def test_no_two_classes_or_aliases_have_the_same_name():
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src" / "refocal").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(path.name)
            for target in getattr(node, "targets", [getattr(node, "target", None)]):
                if isinstance(target, ast.Name) and re.match(r"_?[A-Z]\w*[a-z]", target.id):  # no constant
                    places.setdefault(target.id, []).append(path.name)
    assert len(places) > 150
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.fixture
def uniform_mixing(monkeypatch):
    """The calibrator of the page, after its step 2."""
    kind = from_page("UniformMixing")
    del registry.NAMED["uniform-mixing"]
    row = re.search(r"`\"uniform\": (Method\(.*?\))`", PAGE)[1]
    monkeypatch.setitem(registry.NAMED, "uniform", eval(row, {"Method": registry.Method}))  # noqa: S307
    monkeypatch.setattr(refocal.calibrators, "UniformMixing", kind, raising=False)
    return kind


def make_rows(n, seed):
    """Rows of a network whose labels are replaced by random ones in three cases out of ten."""
    rng = np.random.default_rng(seed)
    logits = 3.0 * rng.normal(size=(n, 4))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return Predictions.from_logits(logits, np.where(rng.random(n) < 0.3, rng.integers(4, size=n), labels))


def test_the_new_calibrator_is_compared_saved_and_loaded(uniform_mixing, tmp_path):
    validation, test = make_rows(4000, 0), make_rows(4000, 1)
    found = compare(validation, test, ["ts", "uniform"], n_resamples=20)
    assert found["uniform"].title == "uniform mixing"
    assert found["uniform"].measures["log_loss"].value < found["ts"].measures["log_loss"].value
    fitted = uniform_mixing().fit(validation.values, validation.labels)
    assert fitted.chain_.steps[0].weights[1] == pytest.approx(0.3, abs=0.03)
    fitted.save(tmp_path / "c.json")
    again = refocal.load(tmp_path / "c.json")
    np.testing.assert_array_equal(again.predict_proba(test.values), fitted.predict_proba(test.values))
    assert clone(fitted).get_params() == {"input": "logits"}


def test_the_new_calibrator_needs_no_place_in_this_package(tmp_path):
    """As it stands on the page: registered by its class, and by none of the steps below."""
    kind = from_page("UniformMixing")
    validation, test = make_rows(500, 0), make_rows(500, 1)
    found = compare(validation, test, ["ts", "uniform-mixing"], n_resamples=20)
    assert found["uniform-mixing"].title == "uniform mixing"
    fitted = kind().fit(validation)
    fitted.save(tmp_path / "c.json")
    again = refocal.load(tmp_path / "c.json")
    np.testing.assert_array_equal(again.predict_proba(test.values), fitted.predict_proba(test.values))


def test_the_worked_examples_import_nothing_underscored():
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        for line in re.findall(r"^(?:from|import) .*$", block, re.M):
            assert not re.search(r"[. ]_\w", line), line


def test_the_help_names_every_calibrator_and_the_new_one(uniform_mixing):
    for command, name in ((fit, "method"), (evaluations.compare, "methods")):
        (option,) = with_options(command).__annotations__[name].__metadata__
        assert ", ".join(method for method in registry.NAMED if method != "uniform") in option.help
    assert list(registry.NAMED)[-1] == complete_method("uni")[0] == "uniform"


def test_the_new_calibrator_answers_in_kind(uniform_mixing):
    rows = make_rows(500, 2)
    logits = torch.tensor(rows.values, dtype=torch.float32)
    p = uniform_mixing().fit(logits, rows.labels).predict_proba(logits)
    assert isinstance(p, torch.Tensor)
    assert p.dtype == torch.float32
    torch.testing.assert_close(p.sum(1), torch.ones(500))
    torch.testing.assert_close(uniform_mixing().fit(logits, rows.labels).to_torch()(logits).exp(), p)


@pytest.fixture
def overconfidence(monkeypatch):
    """The metric of the page, with its record."""
    record = from_page("overconfidence", "METRICS")[0]
    monkeypatch.setitem(METRICS, record.name, record)
    return record.function


@pytest.mark.slow
def test_the_new_metric_is_what_it_says_and_is_no_objective_by_its_name(overconfidence):
    rows = make_rows(2000, 3)
    p = np.exp(refocal.maps.log_softmax(rows.values))
    plain = np.mean([row.max() - (row.argmax() == y) for row, y in zip(p, rows.labels, strict=True)])
    assert overconfidence(rows.labels, p) == pytest.approx(plain, abs=1e-12)
    assert metrics.bootstrap_interval(overconfidence, rows.labels, p, n_resamples=20).low > 0.1
    with pytest.raises(refocal.errors.ParameterError, match="objective"):  # the lowest value is not the best
        refocal.TemperatureScaling(objective="overconfidence").fit(rows.values, rows.labels)
    fitted = refocal.TemperatureScaling(objective=lambda y, p: abs(overconfidence(y, p))).fit(rows.values, rows.labels)
    assert abs(overconfidence(rows.labels, fitted.predict_proba(rows.values))) < 0.02


@pytest.mark.slow
def test_the_new_metric_is_reported_in_memory_and_in_blocks(overconfidence):
    rows = make_rows(2000, 3)
    calibrators = {"ts": refocal.TemperatureScaling().fit(rows.values, rows.labels)}
    in_memory = evaluate(rows, calibrators, n_resamples=200)
    in_blocks = evaluate(refocal.io.blocks([(rows.values[i::2], rows.labels[i::2]) for i in range(2)]), calibrators)
    expected = overconfidence(rows.labels, np.exp(refocal.maps.log_softmax(rows.values)))
    for found in (in_memory, in_blocks):
        shown = found.before.measures["overconfidence"]
        assert shown.value == pytest.approx(expected, abs=1e-6)
        assert shown.low < expected < shown.high
        assert found["ts"].against_none["overconfidence"].high < 0
        for row in comparison_table(found):
            cells = dict(zip(row.headings, row.cells, strict=True))
            value = 100 * found[row.name].measures["overconfidence"].value
            assert cells["overconfidence %"] == f"{value:+.2f}".replace("-", "−")
            assert f"<td>{cells['overconfidence %']}</td>" in render(found)
        assert plot_comparison(found, "overconfidence").get_xlabel() == "overconfidence (%)"
    assert in_blocks.before.measures["overconfidence"].standard_error == pytest.approx(
        in_memory.before.measures["overconfidence"].standard_error, rel=0.2
    )


@pytest.mark.slow
def test_the_diagram_of_the_subpackages_is_that_of_the_code():
    tool = runpy.run_path(str(ROOT / "tools" / "subpackage_diagram.py"))
    assert tool["PICTURE"].read_text(encoding="utf-8") == tool["drawing"](), "run python tools/subpackage_diagram.py"
    upward = {pair for pair in tool["imports"]() if rank(tool["layers"](), pair[0]) > rank(tool["layers"](), pair[1])}
    contract = tool["contract"]()
    allowed = (pair.split(" -> ") for pair in contract["ignore_imports"])
    assert upward == {(who.split(".")[1], whom.split(".")[1]) for who, whom in allowed}


def rank(layers, subpackage):
    """The place of a subpackage's layer, counted from the top."""
    return next(i for i, layer in enumerate(layers) if subpackage in layer)


@pytest.mark.slow
def test_methods_can_do_what_the_registry_says():
    """Fitted calibrators can do what the registry, and with it the table of docs/methods.md, says."""
    rows = make_rows(300, 4)
    blocks = refocal.io.blocks([(rows.values[:200], rows.labels[:200]), (rows.values[200:], rows.labels[200:])])
    for name, method in registry.NAMED.items():
        keeps_order = registry.make(name).fit(rows.values, rows.labels).chain_.keeps_order
        assert keeps_order == method.keeps_order or name.startswith(("auto", "venn-abers"))  # two classes apart
        if method.in_blocks:
            assert registry.make(name).fit(blocks).fit_report_["n_samples"] == 300
        else:
            with pytest.raises(refocal.errors.UnsupportedError, match=r"in memory. Those that do not: AutoCalibration"):
                registry.make(name).fit(blocks)


def test_every_method_and_every_metric_has_its_card():
    cards = runpy.run_path(str(ROOT / "tools" / "cards.py"))
    assert set(cards["TEXTS"]["methods"]) == set(registry.kinds())
    assert set(cards["TEXTS"]["metrics"]) == set(METRICS)
    for page, made in (("METHODS_PAGE", "methods_page"), ("METRICS_PAGE", "metrics_page")):
        assert cards[page].read_text(encoding="utf-8") == cards[made](), "run tools/cards.py"


def test_the_new_section_is_on_the_page(monkeypatch):
    from refocal.report import page

    source = page.templates().loader.get_source(page.templates(), "evaluation.html")[0]
    (section,) = re.findall(r"```html\n(.*?)```", PAGE, re.S)
    made = {"evaluation.html": f"{source.rpartition('{% endset %}')[0]}{section}{{% endset %}}"}
    loader = ChoiceLoader([DictLoader(made), page.templates().loader])
    changed = page.templates().overlay(loader=loader)
    monkeypatch.setattr(page, "templates", lambda: changed)
    found = compare(make_rows(300, 0), make_rows(300, 1), ["ts", "fts"], n_resamples=2)
    text = page.render(found)
    assert '<section id="every"' in text
    assert '<a href="#every">Every method</a></nav>' in text
    assert "3 methods on the same rows." in text
    assert text.count('id="fig-every-') == 3
