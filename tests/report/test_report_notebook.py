"""What Jupyter shows of calibrators, predictions and evaluations: small tables in which all text is escaped."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import matplotlib.pyplot as plt
import numpy as np
import pytest
import sklearn
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import refocal
from helpers import draw_logits
from refocal import FocalTemperatureScaling, IsotonicCalibration, MultiLabelCalibration, TemperatureScaling
from refocal.errors import FormatError
from refocal.evaluate import compare
from refocal.io import Predictions
from refocal.metrics import METRICS
from refocal.report.fitted import map_chart

BAD = "<script>alert(1)</script>"


class Page(HTMLParser):
    """The tags and the text of a piece of HTML; every tag that needs it must be closed."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.open, self.cells = [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in ("input", "br", "meta", "link", "img", "path", "circle"):
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


def bundle(calibrator):
    return calibrator._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize("options", [{}, {"per_label": True}, {"input": "log-odds"}])
def test_the_map_of_several_labels_is_not_drawn(n_labels, options):
    rng = np.random.default_rng(0)
    p = rng.random((300, n_labels))
    settings = {"method": "ts", "input": "probabilities"} | options
    scores = np.log(p / (1.0 - p)) if settings["input"] == "log-odds" else p
    fitted = MultiLabelCalibration(**settings).fit(scores, rng.random(p.shape) < p)
    html = bundle(fitted)
    assert "Brier score" in html
    assert "The probability of a class after calibration" not in html


@pytest.mark.parametrize("kind", [TemperatureScaling, FocalTemperatureScaling, IsotonicCalibration])
def test_a_fitted_calibrator_shows_what_was_found(kind):
    calibrator = kind()
    plain = calibrator._repr_html_()
    assert "Brier score" not in plain
    calibrator.fit(*draw_logits(300))
    html, bundled = (view[view.rindex("<p>") :] for view in (calibrator._repr_html_(), bundle(calibrator)))
    assert html == bundled
    page = Page(html)
    assert f"temperature = {calibrator.temperature_:.4f}" in html
    report = calibrator.fit_report_
    for name in ("log_loss", "ece", "brier_score", "accuracy"):
        at = page.cells.index(METRICS[name].heading)
        assert page.cells[at + 1 : at + 3] == [METRICS[name].text(report[part][name]) for part in ("before", "after")]
    assert "on its 300 rows, 5 classes" in page.cells


def test_the_contract_of_scikit_learn_is_kept():
    fitted = TemperatureScaling().fit(*draw_logits(100))
    assert "sk-top-container" in fitted._repr_html_()
    assert fitted._repr_mimebundle_()["text/plain"] == repr(fitted)
    with sklearn.config_context(display="text"):
        assert not hasattr(fitted, "_repr_html_")
        assert list(fitted._repr_mimebundle_()) == ["text/plain"]
    pipeline = make_pipeline(FunctionTransformer(), fitted)
    assert "TemperatureScaling" in pipeline._repr_html_()


def test_predictions_show_their_classes():
    labels = np.array([0, 1, 2, 2, 2, 1])
    rows = Predictions.from_logits(np.eye(3)[labels] * 3, labels, class_names=["ant", BAD, "cat & dog"])
    html = rows._repr_html_()
    page = Page(html)
    assert "script" not in page.tags
    assert page.cells[:6] == ["rows", "6", "classes", f"cat & dog (3), {BAD} (2), ant (1)", "rows of a class", "1 to 3"]
    assert page.cells[6:] == ["values", "logits, float64", "weights", "none"]
    wide = Predictions.from_logits(
        np.random.default_rng(0).normal(size=(20, 10)), np.arange(20) % 10, weight=np.ones(20)
    )
    assert "and 4 more" in wide._repr_html_()
    assert "1 to 1" in wide._repr_html_()


def test_views_have_charts_of_their_numbers():
    logits, labels = draw_logits(400, 3)
    rows = Predictions.from_logits(logits, labels)
    found = compare(rows, rows, ["ts", "isotonic"], chosen="isotonic", n_resamples=2)
    views = found._repr_html_()
    assert ' id="' not in views  # ids would be there twice where a notebook shows it twice
    assert views.count("<svg") == 2
    assert f"confidence {100 * found.after.reliability.confidence[0]:.2f} %" in views
    assert "overflow-x:auto" in views
    figure = found.plot()
    assert [len(ax.lines) > 0 for ax in figure.axes] == [True] * 3
    assert len(replace(found, chosen="none").plot().axes) == 2
    two = Predictions.from_logits(*draw_logits(400, 2))
    axis = compare(two, two, ["ts"], n_resamples=2).plot().axes[0]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("probability of class 1", "share of class 1")
    plt.close("all")
    # A curve alone where all classes share it; one for each class otherwise. Axes and diagonal are paths as well.
    alike, each = (kind().fit(logits, labels)._repr_html_() for kind in (TemperatureScaling, IsotonicCalibration))
    assert each.count("<path") - alike.count("<path") == 2
    fitted = TemperatureScaling().fit(logits, labels)
    middle = map_chart(fitted.chain_, 3)
    p = fitted.predict_proba(np.array([[7.0 + np.log(2.0), 0.0, 0.0]]))[0, 0]
    assert middle.rstrip().endswith("</svg>")
    last = re.findall(r'd="M([^"]*)"', middle)[-1].split("L")[-1].split()
    assert float(last[1]) == pytest.approx(236 - 224 * p, abs=0.1)


def test_an_evaluation_escapes_what_users_named():
    logits, labels = draw_logits(400, 3)
    rows = Predictions.from_logits(logits, labels, class_names=["a", "b", BAD])
    found = compare(rows, rows, ["ts"], title=BAD, n_resamples=2)
    assert "script" not in Page(found._repr_html_()).tags


def test_a_file_cannot_bring_markup_into_a_notebook(tmp_path):
    path = tmp_path / "c.json"
    TemperatureScaling().fit(*draw_logits(100)).save(path)
    data = json.loads(path.read_text())
    for part in ("before", "after"):
        data["fit"][part][BAD] = 1.0
    path.write_text(json.dumps(data))
    assert BAD not in refocal.load(path)._repr_html_()
    for keys, value in ((("before", "ece"), BAD), (("n_samples",), BAD), (("after",), [])):
        broken = json.loads(json.dumps(data))
        inner = broken["fit"]
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        path.write_text(json.dumps(broken))
        with pytest.raises(FormatError, match=keys[-1]):
            refocal.load(path)
