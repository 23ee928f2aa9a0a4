"""Calibrators and metrics of a caller's own: registered, compared, saved and read back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest
import torch

import refocal
from refocal import TemperatureScaling, _plugins, load
from refocal.calibrators import Calibrator, registry, settings
from refocal.calibrators.serialize import to_dict
from refocal.errors import FormatError, InputWarning, ParameterError
from refocal.evaluate import compare, evaluate
from refocal.io import Predictions
from refocal.maps import Chain, Step, Temperature, array_field, number_field
from refocal.metrics import METRICS, Metric


@dataclass(frozen=True)
class Bend(Step, keeps_order=True):
    """tanh of the scores: a map that refocal does not have."""

    scale: float = number_field(above=0.0)

    def apply(self, xp, scores):
        return self.scale * xp.tanh(scores / self.scale)


@dataclass(frozen=True)
class Lean(Step):
    offsets: Any = array_field()  # noqa: RUF009

    def apply(self, xp, scores):
        return scores + self.offsets


@dataclass(kw_only=True, eq=False, repr=False)
class Bending(Calibrator):
    """The scale of least log-loss on a grid, then offsets towards the class shares of the fit."""

    n_points: int = settings.integer(30, least=2)
    input: str = "logits"

    def fit_chain(self, logits, labels, weight):
        def loss(scale):
            z = Bend(scale).apply(np, logits)
            log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
            return -np.average(log_p[np.arange(len(labels)), labels], weights=weight)

        best = min(np.geomspace(0.3, 30.0, self.n_points), key=loss)
        return Chain((Bend(float(best)), Lean(np.zeros(logits.shape[1]))))


class Plain(Calibrator):
    """Settings by __init__, as in scikit-learn's own estimators."""

    def __init__(self, temperature=2.0, input="logits"):  # noqa: A002
        self.temperature = temperature
        self.input = input

    def fit_chain(self, logits, labels, weight):
        return Chain((Temperature(self.temperature),))


def make_rows(n, seed, kind="logits"):
    rng = np.random.default_rng(seed)
    logits = 4.0 * rng.normal(size=(n, 3))
    labels = np.argmax(1.5 * np.tanh(logits / 1.5) + rng.gumbel(size=logits.shape), axis=1)
    if kind == "logits":
        return Predictions.from_logits(logits, labels)
    return Predictions.from_probabilities(np.exp(refocal.maps.log_softmax(logits)), labels)


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_objects_are_compared_beside_names(kind):
    validation, test = make_rows(600, 0, kind), make_rows(600, 1, kind)
    found = compare(validation, test, ["ts", Bending(), Plain()], n_resamples=20)
    assert [method.name for method in found.methods] == ["none", "ts", "Bending", "Plain"]
    if kind == "logits":  # of which the labels were made
        assert found["Bending"].measures["log_loss"].value < found["ts"].measures["log_loss"].value
    fitted = Bending(input=kind).fit(validation.values, validation.labels)
    p = fitted.predict_proba(test.values)
    plain = -np.mean(np.log(p[np.arange(600), test.labels]))
    assert found["Bending"].measures["log_loss"].value == pytest.approx(plain, rel=1e-9)


def test_objects_of_one_class_go_by_their_settings_or_by_given_names():
    validation, test = make_rows(200, 0), make_rows(200, 1)
    both = compare(validation, test, [Plain(temperature=1.5), Plain(temperature=3.0)], n_resamples=5)
    assert [method.name for method in both.methods] == ["none", "Plain", "Plain(temperature=3.0)"]
    named = compare(validation, test, {"half": Plain(), "scaled": "ts"}, n_resamples=5)
    assert [method.name for method in named.methods] == ["none", "half", "scaled"]
    assert named["half"].parameters == {"temperature": 2.0}
    alone = compare(validation, test, Plain(), n_resamples=5)
    assert [method.name for method in alone.methods] == ["none", "Plain"]


@pytest.mark.parametrize(
    ("methods", "searches"),
    [
        ([TemperatureScaling(search="grid"), "ts"], {"ts": "grid", "TemperatureScaling()": "auto"}),
        (["ts", TemperatureScaling(search="grid")], {"ts": "auto", "TemperatureScaling(search='grid')": "grid"}),
        (["ts", "fts", "ts"], {"ts": "auto", "fts": "auto"}),
    ],
)
def test_no_method_takes_the_place_of_another_of_its_name(methods, searches):
    assert {name: each.search for name, each in registry.chosen_calibrators(methods).items()} == searches
    found = registry.chosen_calibrators([*methods, "all"])
    assert {*searches, *registry.NAMED} == {*found}


def test_a_given_object_is_left_as_it_is():
    mine = Plain()
    compare(make_rows(100, 0), make_rows(100, 1), ["ts", mine], n_resamples=5)
    assert not hasattr(mine, "chain_")


def test_what_is_no_method_is_refused():
    rows = make_rows(50, 0)
    with pytest.raises(ParameterError, match=r"\['ts', Mine\(\)\]. Got Plain, a class: give Plain\(\) instead"):
        compare(rows, rows, ["ts", Plain])
    with pytest.raises(ParameterError, match=r"The 'methods' of compare .* Got float instead"):
        compare(rows, rows, ["ts", 0.5])
    with pytest.raises(ParameterError, match="'none', which is the uncalibrated model"):
        compare(rows, rows, {"none": Plain()})


def test_weights_and_array_libraries_come_as_numpy():
    seen = {}

    class Watching(Plain):
        def fit_chain(self, logits, labels, weight):
            seen.update(logits=logits, labels=labels, weight=weight)
            return super().fit_chain(logits, labels, weight)

    rows = make_rows(40, 0)
    weight = np.linspace(1.0, 3.0, 40)
    Watching().fit(torch.tensor(rows.values, dtype=torch.float32), rows.labels, weight)
    assert [seen[name].dtype for name in seen] == [np.float64, np.int64, np.float64]
    np.testing.assert_allclose(seen["logits"], rows.values, rtol=1e-6)
    np.testing.assert_allclose(seen["weight"], weight)


def test_what_fit_chain_returns_is_checked():
    class Wrong(Plain):
        def fit_chain(self, logits, labels, weight):
            return 2.0

    class Negative(Plain):
        def fit_chain(self, logits, labels, weight):
            return Chain((Temperature(-1.0),))

    rows = make_rows(20, 0)
    with pytest.raises(ParameterError, match=r"'return value' of Wrong.fit_chain must be a Chain .* Got float instead"):
        Wrong().fit(rows)
    with pytest.raises(ParameterError, match=r"cannot be applied: The 'temperature' of Temperature"):
        Negative().fit(rows)

    class Forgetful(Calibrator):
        def __init__(self, input="logits"):  # noqa: A002
            self.input = input

    with pytest.raises(NotImplementedError, match=r"Forgetful must have a method fit_chain\(logits, labels, weight\)"):
        Forgetful().fit(rows)


def test_a_class_without_settings_and_a_single_step_will_do(tmp_path):
    class Small(Calibrator):
        def fit_chain(self, logits, labels, weight):
            return Temperature(np.float32(2.0))

    class Several(Calibrator):
        def fit_chain(self, logits, labels, weight):
            return [Temperature(np.float64(2.0)), Lean(np.zeros(logits.shape[1]))]

    class Listed(Calibrator):
        def fit_chain(self, logits, labels, weight):
            return Chain([Temperature(2.0)])

    rows = make_rows(60, 0)
    expected = Plain(temperature=2.0).fit(rows).predict_proba(rows.values)
    for kind in (Small, Several, Listed):
        fitted = kind().fit(rows)
        np.testing.assert_allclose(fitted.predict_proba(rows.values), expected, rtol=1e-12)
        fitted.save(tmp_path / "c.json")
        again = load(tmp_path / "c.json", classes=[kind])
        np.testing.assert_array_equal(again.predict_proba(rows.values), fitted.predict_proba(rows.values))
    assert registry.NAMED[registry.name_of(refocal.register(Small)())].kind is Small
    of_p = make_rows(60, 0, "probabilities")
    with pytest.raises(ParameterError, match=r"calibrators that take probabilities.* without the setting 'input'"):
        compare(of_p, of_p, [Small()])


def test_own_classes_and_steps_are_saved_and_read_back(tmp_path):
    rows = make_rows(300, 0)
    fitted = Bending(n_points=20).fit(rows)
    fitted.save(tmp_path / "c.json")
    with pytest.raises(FormatError, match=r"refocal.register\(Bending\) before, or load\(path, classes=\[Bending\]\)"):
        load(tmp_path / "c.json")
    again = load(tmp_path / "c.json", classes=[Bending])
    assert again.n_points == 20
    np.testing.assert_array_equal(again.predict_proba(rows.values), fitted.predict_proba(rows.values))
    refocal.register(Bending)
    assert to_dict(load(tmp_path / "c.json")) == to_dict(fitted)
    torch.testing.assert_close(
        again.to_torch()(torch.tensor(rows.values)).exp(), torch.tensor(fitted.predict_proba(rows.values))
    )


def test_a_class_by_init_is_read_back_too(tmp_path):
    fitted = Plain(temperature=4.0).fit(make_rows(30, 0))
    fitted.save(tmp_path / "c.json")
    assert load(tmp_path / "c.json", classes=[Plain]).get_params() == {"temperature": 4.0, "input": "logits"}


def test_what_could_not_be_read_back_is_not_saved(tmp_path):
    class Remembering(Plain):
        def fit_chain(self, logits, labels, weight):
            self.seen_ = len(labels)
            return super().fit_chain(logits, labels, weight)

    class Configured(Plain):
        def __init__(self, mapping=None, temperature=2.0, input="logits"):  # noqa: A002
            super().__init__(temperature, input)
            self.mapping = mapping

    rows = make_rows(30, 0)
    with pytest.raises(FormatError, match=r"the attribute 'seen_' of Remembering .* more_from_plain restore it"):
        Remembering().fit(rows).save(tmp_path / "c.json")
    with pytest.raises(FormatError, match=r"Configured.* 'mapping'|'mapping' of Configured"):
        Configured(mapping=len).fit(rows).save(tmp_path / "c.json")
    imposter = type("BetaCalibration", (Plain,), {"__init__": Plain.__init__})
    with pytest.raises(FormatError, match="BetaCalibration would be read as refocal's own"):
        imposter().fit(rows).save(tmp_path / "c.json")
    assert list(tmp_path.iterdir()) == []


def test_a_step_called_as_one_of_ours_does_not_take_its_place(tmp_path):
    fitted = TemperatureScaling().fit(make_rows(100, 0))
    fitted.save(tmp_path / "c.json")

    @dataclass(frozen=True)
    class Temperature(Step):  # the name of one of refocal
        temperature: float = number_field()

        def apply(self, xp, scores):
            return 0.0 * scores

    again = load(tmp_path / "c.json")
    assert again.temperature_ == fitted.temperature_
    assert type(again.chain_.steps[-1]) is not Temperature


def test_classes_of_load_are_classes(tmp_path):
    with pytest.raises(ParameterError, match="'classes' of load must be classes with the base"):
        load(tmp_path / "c.json", classes=[Plain()])


def test_a_registered_class_is_called_by_its_name(tmp_path):
    assert refocal.register(Plain, name="plain2", title="plain scaling") is Plain
    found = compare(make_rows(100, 0), make_rows(100, 1), ["ts", "plain2"], n_resamples=5)
    assert found["plain2"].title == "plain scaling"
    assert registry.make("plain2", temperature=3.0).temperature == 3.0
    assert registry.name_of(Plain()) == "plain2"
    assert "Plain" in registry.kinds()
    assert "plain2" not in registry.chosen_methods(None)


def test_a_class_that_is_defined_again_takes_the_place_of_the_former():
    def define():
        class Again(Plain):
            pass

        return refocal.register(Again)

    first, second = define(), define()
    assert first is not second
    assert registry.NAMED["again"].kind is second


@pytest.mark.parametrize(
    ("thing", "options", "text"),
    [
        (Plain, {"name": "ts"}, "one that is not taken. Got 'ts', the name of temperature scaling"),
        (Plain, {"name": "platt"}, "one that is not taken. Got 'platt'"),
        (Plain, {"name": "none"}, "one that is not taken. Got 'none'"),
        (Plain, {"name": "two words"}, "of letters, digits"),
        (TemperatureScaling, {"name": "mine"}, "a class of your own"),
        (Plain(), {}, "a class with the base refocal.calibrators.Calibrator"),
        (METRICS["ece"], {}, "one that is not taken. Got the metric 'ece'"),
        (Metric.of_function(len, "two words"), {}, "whose name has letters"),
        (Metric.of_function(len), {"title": "length"}, "left out: a Metric has its own"),
    ],
)
def test_what_cannot_be_registered_is_refused(thing, options, text):
    with pytest.raises(ParameterError) as raised:
        refocal.register(thing, **options)
    assert text in str(raised.value)


def test_a_class_that_needs_arguments_cannot_be_registered():
    class Needy(Plain):
        def __init__(self, k, input="logits"):  # noqa: A002
            self.k = k
            self.input = input

    with pytest.raises(ParameterError, match="made without arguments"):
        refocal.register(Needy)


def test_plugins_of_installed_packages_are_found_by_their_names(monkeypatch, tmp_path):
    module = tmp_path / "my_plugin_of_tests.py"
    module.write_text(
        "import refocal\n"
        "from refocal.calibrators import Calibrator\n"
        "from refocal.maps import Chain, Temperature\n"
        "from refocal.metrics import Metric\n\n\n"
        "class FromAfar(Calibrator):\n"
        "    def __init__(self, input='logits'):\n        self.input = input\n\n"
        "    def fit_chain(self, logits, labels, weight):\n        return Chain((Temperature(7.0),))\n\n\n"
        "refocal.register(FromAfar)\n"
        "refocal.register(Metric.of_function(lambda y, p: 0.25, 'quarter'))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    points = [
        EntryPoint("good", "my_plugin_of_tests", _plugins.GROUP),
        EntryPoint("bad", "no_such_module", _plugins.GROUP),
    ]
    monkeypatch.setattr(_plugins, "entry_points", lambda group: points)
    _plugins.load_plugins.cache_clear()
    try:
        with pytest.warns(InputWarning, match=r"plug-in 'bad' \(no_such_module\) could not be imported"):
            made = registry.make("from-afar")
        assert made.fit(make_rows(30, 0)).predict_proba(np.array([[7.0, 0.0, 0.0]]))[0, 0] == pytest.approx(
            np.e / (np.e + 2.0)
        )
        assert refocal.metrics.scorer("quarter").metric.name == "quarter"
        assert _plugins.load_plugins() == ("good",)
    finally:
        _plugins.load_plugins.cache_clear()


def worst_gap(y, p):
    """A function of the caller's own, of labels and probabilities."""
    return float(np.mean(np.abs(p[np.arange(len(y)), y] - 1.0)))


def test_evaluate_and_compare_take_functions_records_and_names():
    validation, test = make_rows(300, 0), make_rows(300, 1)
    record = Metric.of_function(lambda y, p: float(np.mean(p.argmax(1) != y)), "errors", unit="%", label="errors")
    found = compare(validation, test, ["ts"], metrics=[worst_gap, record, "classwise_ece"], n_resamples=50)
    ts = TemperatureScaling().fit(validation)
    p = ts.predict_proba(test.values)
    assert found["ts"].measures["worst_gap"].value == pytest.approx(worst_gap(test.labels, p), rel=1e-9)
    shown = found["ts"].measures["errors"]
    assert shown.low < shown.value < shown.high
    assert shown.value == pytest.approx(1.0 - found["ts"].measures["accuracy"].value, abs=1e-12)
    assert "classwise_ece" in found["ts"].measures
    assert found["ts"].against_none["worst_gap"].difference == pytest.approx(
        found["ts"].measures["worst_gap"].value - found.before.measures["worst_gap"].value
    )
    again = refocal.evaluate.Evaluation.from_dict(json.loads(json.dumps(found.to_dict())))
    rows = refocal.evaluate.comparison_table(again)
    assert [heading for heading in rows[0].headings if heading in ("worst_gap", "errors")] == ["worst_gap", "errors"]
    assert "<td>" in refocal.report.render(again)
    assert "worst_gap" not in {change.measure for change in refocal.evaluate.differences(again, found)}
    (only,) = evaluate(test, {}, metrics=[worst_gap], n_resamples=5).methods
    assert "worst_gap" in only.measures


def test_metrics_that_do_not_fit_the_rows_are_refused():
    rows = make_rows(30, 0)
    with pytest.raises(ParameterError, match="roc_auc of rows of 3 classes"):
        evaluate(rows, {}, metrics=["roc_auc"])
    with pytest.raises(ParameterError, match="'metrics' of evaluate must be a list"):
        evaluate(rows, {}, metrics="ece")
    with pytest.raises(ParameterError, match="another 'ece'"):
        evaluate(rows, {}, metrics=[Metric.of_function(worst_gap, "ece")])
    with pytest.raises(ParameterError, match=r"another '<lambda>'"):
        evaluate(rows, {}, metrics=[lambda y, p: 0.0, lambda y, p: 1.0])
    blocks = refocal.io.blocks([(rows.values, rows.labels)])
    with pytest.raises(ParameterError, match="'metrics' of evaluate must be left out for rows in blocks"):
        evaluate(blocks, {}, metrics=[worst_gap])


def test_a_registered_metric_is_in_every_evaluation():
    refocal.register(Metric.of_function(worst_gap, shown="with interval", column=(9, None)))
    found = evaluate(make_rows(100, 0), {}, n_resamples=5)
    assert "worst_gap" in found.before.measures
    assert "worst_gap" in refocal.evaluate.comparison_table(found)[0].headings
    assert refocal.evaluate.check_requirements(found, ["worst_gap<0.9"])[0].passed


def test_objectives_are_functions_and_records():
    rows = make_rows(500, 0)
    by_function = TemperatureScaling(objective=worst_gap).fit(rows)
    record = Metric.of_function(lambda y, p: -worst_gap(y, p), "closeness", lower_is_better=False)
    by_record = TemperatureScaling(objective=record).fit(rows)
    assert by_record.temperature_ == pytest.approx(by_function.temperature_)
    by_name = TemperatureScaling(objective="brier_score").fit(rows)
    assert TemperatureScaling(objective=METRICS["brier_score"]).fit(rows).temperature_ == by_name.temperature_
    # A signed metric is best at 0: temperature scaling makes the mean confidence that of the accuracy.
    overconfidence = Metric.of_function(
        lambda y, p: float(np.mean(p.max(axis=1) - (p.argmax(axis=1) == y))), "overconfidence", signed=True
    )
    fitted = TemperatureScaling(objective=overconfidence).fit(rows)
    p = fitted.predict_proba(rows.values)
    assert abs(np.mean(p.max(axis=1) - (p.argmax(axis=1) == rows.labels))) < 0.01


@pytest.mark.parametrize("word", [np.array(["a", "b"]), ["ts", "ps"], ("ts",), None, torch.ones(2)], ids=repr)
def test_what_is_no_word_is_refused_where_one_is_expected(word):
    logits = np.random.default_rng(0).normal(size=(30, 3))
    labels = np.arange(30) % 3
    for argument, refused in (
        ("input", lambda: TemperatureScaling(input=word).fit(logits, labels)),
        ("strategy", lambda: refocal.HistogramBinning(strategy=word).fit(logits, labels)),
        ("search", lambda: refocal.FocalTemperatureScaling(search=word).fit(logits, labels)),
        ("method", lambda: refocal.MultiLabelCalibration(method=word).fit(logits, logits > 0)),
        ("method", lambda: refocal.GroupCalibration(method=word).fit(logits, labels)),
        ("method", lambda: registry.make(word)),
    ):
        with pytest.raises(ParameterError, match=rf"^The '{argument}' of \w+ must be one of '"):
            refused()


def test_an_array_is_no_flag():
    logits = np.random.default_rng(0).normal(size=(30, 3))
    with pytest.raises(ParameterError, match=r"must be True or False\. Got array"):
        refocal.AutoCalibration(order_preserving=np.array([True, False])).fit(logits, np.arange(30) % 3)
