"""The page as a file: whole, alone, with the numbers of the evaluation; and the figures on axes of one's own."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from types import SimpleNamespace

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from refocal import metrics
from refocal.errors import ParameterError
from refocal.evaluate import compare, comparison_table, evaluate, load_evaluation, verdict
from refocal.io import Predictions, load_sample
from refocal.maps import focal_temperature
from refocal.metrics import METRICS, Interval
from refocal.report import charts, plot_comparison, plot_confidence, plot_reliability, plot_surface, render
from refocal.report.charts import near_range

pytestmark = pytest.mark.core

VOID = {"input", "meta", "link", "br", "path", "use", "rect", "stop", "line", "image"}


class Outline(HTMLParser):
    """Checks that tags nest, and collects ids and the text of the methods' table."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.cells, self.row = [], [], {}, None

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if "data-method" in attrs:
            self.row = self.cells.setdefault(attrs["data-method"], [])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        if "id" in dict(attrs):
            self.ids.append(dict(attrs)["id"])

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        assert self.open.pop() == tag
        if tag == "tr":
            self.row = None

    def handle_data(self, data):
        if self.row is not None and self.open[-1] in ("td", "th"):
            self.row.append(data)


@pytest.fixture(scope="module")
def outline(page):
    parser = Outline()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


def test_the_page_is_well_formed_and_small(page, outline):
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert page.stat().st_size < 600_000


def test_the_page_stands_alone(page):
    text = page.read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\"'\s)<]+", text))
    # Names of namespaces, which no browser loads.
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"<(script|img|link|iframe)[^>]+src=", text)
    assert "default-src 'none'" in text


def test_its_numbers_are_those_of_the_evaluation(evaluation, page, outline):
    for row in comparison_table(evaluation):
        assert outline.cells[row.name] == list(row.cells)
    text = page.read_text(encoding="utf-8").replace("\u00a0", " ")
    assert verdict(evaluation) in text
    assert text.count("data-method=") == len(evaluation.methods)


def test_names_are_escaped(page):
    text = page.read_text(encoding="utf-8")
    assert "a &lt;test&gt; &amp; more" in text
    assert "&lt;b&gt;&amp;$x$" in text
    assert "<b>" not in text


@pytest.mark.slow
def test_it_is_drawn_from_the_json_alone(evaluation, tmp_path):
    evaluation.save(tmp_path / "e.json")
    assert render(load_evaluation(tmp_path / "e.json")) == render(evaluation)


def test_code_in_the_page_gives_the_calibrator(evaluation):
    section = render(evaluation).partition('<section id="use"')[2]
    panels = re.findall(r'id="panel-(\w+)".*?<code>(.*?)</code>', section, flags=re.S)
    code = {key: unescape(shown) for key, shown in panels}
    logits = np.random.default_rng(0).normal(size=(5, 30))
    scope = {"logits": logits}
    exec(code["numbers"], scope)  # noqa: S102
    found = evaluation.after.parameters
    expected = np.exp(focal_temperature(logits, found["gamma"], found["temperature"]))
    np.testing.assert_array_equal(scope["probabilities"], expected)
    import torch

    scope = {"model": torch.from_numpy, "inputs": logits}
    exec(code["torch"], scope)  # noqa: S102
    np.testing.assert_allclose(scope["probabilities"].numpy(), expected, rtol=1e-12)
    compile(code["file"], "page", "exec")


@pytest.mark.slow
def test_a_network_alone_and_two_classes():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(300, 2))
    test = Predictions.from_logits(logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1))
    text = render(evaluate(test, {}, n_resamples=5))
    assert "No calibrator was tried" in text
    assert "In numbers" in text
    assert "need no calibration" not in text
    assert 'id="h-surface"' not in text
    assert "No calibrator is used." in text


@pytest.mark.slow
def test_without_a_tolerance_the_contour_is_said_not_to_bind(evaluation):
    free = replace(evaluation, surface=replace(evaluation.surface, tolerance=None))
    assert "did not have to stay inside" in render(free)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reliability", "confidence", "surface", "comparison"])
def test_figures_on_an_axes_of_ones_own(evaluation, name):
    figure, ax = plt.subplots()
    method = evaluation.after
    drawn = {
        "reliability": lambda: plot_reliability(method.reliability, ax=ax, title="t"),
        "confidence": lambda: plot_confidence(method.histogram, ax=ax, title="t"),
        "surface": lambda: plot_surface(evaluation.surface, ax=ax, title="t"),
        "comparison": lambda: plot_comparison(evaluation, "log_loss", ax=ax, title="t"),
    }[name]()
    assert drawn is ax
    assert ax.get_title() == "t"
    assert ax.get_xlabel()
    figure.canvas.draw()
    plt.close(figure)


def test_what_is_drawn_is_what_was_measured(evaluation):
    method = evaluation.after
    ax = plot_reliability(method.reliability)
    curve = ax.get_lines()[1]
    np.testing.assert_array_equal(curve.get_xdata(), method.reliability.confidence)
    np.testing.assert_array_equal(curve.get_ydata(), method.reliability.accuracy)
    bars = plot_confidence(method.histogram).patches
    assert sum(bar.get_height() for bar in bars) == pytest.approx(100.0)
    surface = plot_surface(evaluation.surface)
    point = next(line for line in surface.get_lines() if line.get_marker() == "o")
    assert float(point.get_xdata()[0]) == evaluation.surface.temperature
    with pytest.raises(ParameterError, match="'measure'"):
        plot_comparison(evaluation, "beauty")
    plt.close("all")


def test_reliability_of_every_kind_is_drawn():
    rng = np.random.default_rng(0)
    p = rng.random(500)
    y = (rng.random(500) < p).astype(int)
    histogram = metrics.CalibrationHistogram().update(y, p)
    for shown in (
        histogram.compute(),
        metrics.reliability_curve(y, p),
        metrics.reliability_band(y, p),
    ):
        _, curve, *_ = plot_reliability(shown).lines
        np.testing.assert_allclose(curve.get_ydata(), metrics.reliability_curve(y, p).accuracy)


@pytest.mark.slow
def test_a_page_about_a_hundred_classes_stays_small():
    found = compare(*load_sample("cifar100-focal7"), ["ts", "fts", "isotonic", "svs"], chosen="isotonic", n_resamples=5)
    assert len(render(found).encode()) < 600_000


def test_the_cells_of_a_surface_are_wide_enough_to_be_pointed_at(evaluation):
    found = evaluation.surface
    tips = re.findall(
        r"<title>γ (\S+), T (\S+): log-loss \+ ECE (\S+), log-loss (\S+)</title>", charts.surface(found).svg()
    )
    for gamma, temperature, value, log_loss in tips:
        g = found.gammas.index(float(gamma))
        near = np.isclose(found.temperatures, float(temperature), rtol=6e-3)
        assert np.isclose(np.array(found.value[g])[near], float(value), rtol=1e-3).any()
        assert np.isclose(np.array(found.log_loss[g])[near], float(log_loss), rtol=1e-3).any()
    columns = len(tips) / len(found.gammas)
    assert 20 < columns <= 64 < len(found.temperatures)


def test_a_method_far_off_leaves_room_for_the_others():
    near = [Interval(0.01 * i, 0.01 * i - 0.002, 0.01 * i + 0.002, 0.95, 0.001, 0.0, 10) for i in (1, 2, 3)]
    far = Interval(0.5, 0.4, 0.6, 0.95, 0.001, 0.0, 10)
    low, high = near_range([*near, far], METRICS["ece"])
    assert low < 0.008
    assert 0.032 < high < 0.05
    accuracies = [replace(each, value=1 - each.value, low=1 - each.high, high=1 - each.low) for each in (*near, far)]
    low, high = near_range(accuracies, METRICS["accuracy"])
    assert 0.95 < low < 0.968
    biases = [*near, replace(far, value=-far.value, low=-far.high, high=-far.low)]
    assert near_range(biases, METRICS["mean_bias"])[0] > -0.01
    assert near_range(near, METRICS["ece"])[1] >= near[-1].high
    methods = {f"m{i}": SimpleNamespace(measures={"ece": each}) for i, each in enumerate((*near, far))}
    drawn = charts.intervals(methods, "ece", "words").svg()
    assert ">50.00<" in drawn  # the arrow has its number beside it


def test_details_of_classes_are_by_label_where_some_have_no_row(monkeypatch):
    """Of very many classes only those with the most rows are shown; others may be what they are confused with."""
    monkeypatch.setattr("refocal.evaluate._details.MOST_CLASSES", 3)
    rng = np.random.default_rng(0)
    labels = rng.choice(6, size=300, p=[0.01, 0.02, 0.3, 0.02, 0.3, 0.35])
    logits = rng.normal(size=(300, 6))
    names = ["ant", "bee", "cat", "dog", "emu", "fox"]
    found = evaluate(Predictions.from_logits(logits, labels, class_names=names), {}, n_resamples=2)
    page = render(found)
    data = json.loads(re.search(r'id="class-data">(.*?)</script>', page)[1])
    shown = re.findall(r'<tr data-label="(\d+)"[^>]*><th scope="row">(\w+)</th>', page)
    assert sorted(shown) == [("2", "cat"), ("4", "emu"), ("5", "fox")]
    for row in found.after.classes:
        key, detail = str(row.label), row.detail
        assert data["curves"][key] == [[detail.count, detail.probability, detail.frequency]]
        assert data["others"][key] == [detail.predicted_as, detail.taken_for_it, detail.examples]
        for label, _ in detail.predicted_as + detail.taken_for_it:
            assert data["names"][str(label)] == names[label]
