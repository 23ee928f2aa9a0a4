"""Two classes: (N,) probabilities or log-odds stand for their two columns; evaluations are about the positive class."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn import metrics as sk

import refocal.metrics as rm
from refocal import TemperatureScaling, load
from refocal.calibrators.registry import NAMED, make
from refocal.cli.run import run
from refocal.errors import DataError, FitWarning, InputWarning, LabelError, ParameterError, ShapeError
from refocal.evaluate import compare, comparison_table, evaluate, recommendation, verdict
from refocal.evaluate.summary import remarks
from refocal.export import append_to_onnx, to_onnx, to_torch_export
from refocal.io import Predictions, blocks, read
from refocal.report import render
from refocal.report.charts import reliability
from refocal.report.details import terms_of


@pytest.fixture(scope="module")
def rows():
    """Log-odds, what a model with a wrong prior makes of them as probabilities, and labels."""
    rng = np.random.default_rng(0)
    log_odds = 1.5 * rng.normal(size=900) - 1.0
    labels = (rng.random(900) < 1.0 / (1.0 + np.exp(-log_odds))).astype(int)
    return log_odds, 1.0 / (1.0 + np.exp(-log_odds - 2.0)), labels


@pytest.mark.parametrize("name", ["auto", "ts", "logistic", "isotonic", "beta", "svs"])
def test_one_number_a_row_is_its_two_columns(rows, name):
    log_odds, p, labels = rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pairs = [
            ("probabilities", p, "probabilities", np.stack([1.0 - p, p], axis=1)),
            ("log-odds", log_odds, "logits", np.stack([np.zeros_like(log_odds), log_odds], axis=1)),
            ("logits", log_odds, "logits", np.stack([np.zeros_like(log_odds), log_odds], axis=1)),
        ]
        for kind, one, other_kind, two in pairs:
            mine, other = make(name, input=kind).fit(one, labels), make(name, input=other_kind).fit(two, labels)
            assert np.array_equal(mine.predict_proba(one), other.predict_proba(two))
            assert np.array_equal(mine.predict(one), other.predict(two))


def test_one_number_a_row_keeps_its_library_and_takes_names(rows):
    log_odds, _, labels = rows
    fitted = TemperatureScaling(input="log-odds").fit(torch.tensor(log_odds), np.array(["no", "yes"])[labels])
    found = fitted.predict_proba(torch.tensor(log_odds))
    assert isinstance(found, torch.Tensor)
    assert found.shape == (900, 2)
    expected = 1.0 / (1.0 + np.exp(-log_odds / fitted.temperature_))  # of "yes", the second class
    assert np.allclose(found[:, 1], expected, rtol=1e-12)
    assert fitted.predict(log_odds[:5]).tolist() == np.where(log_odds[:5] > 0, "yes", "no").tolist()


@pytest.mark.slow
def test_a_calibrator_of_log_odds_is_saved_and_exported(rows, tmp_path):
    import onnxruntime

    log_odds, _, labels = rows
    fitted = make("logistic", input="log-odds").fit(log_odds, labels)
    expected = fitted.predict_proba(log_odds)
    fitted.save(tmp_path / "c.json")
    assert np.array_equal(load(tmp_path / "c.json").predict_proba(log_odds), expected)
    single = torch.tensor(log_odds, dtype=torch.float32)
    assert np.allclose(fitted.to_torch()(single).exp(), expected, atol=1e-6)
    assert np.allclose(to_torch_export(fitted).module()(single).exp(), expected, atol=1e-6)
    to_onnx(fitted, tmp_path / "c.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "c.onnx")
    assert np.allclose(session.run(None, {"logits": single.numpy()})[0], expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["log-odds", "logits", "probabilities"])
@pytest.mark.parametrize("shape", [("batch",), ("batch", 1), ("batch", 1, 3)])
def test_a_model_of_one_number_a_row_is_calibrated_in_onnx(rows, tmp_path, kind, shape):
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    log_odds, p, labels = rows
    values = p if kind == "probabilities" else log_odds
    fitted = make("logistic", input=kind).fit(values, labels)
    x, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "z"))
    nodes = [helper.make_node("Sigmoid" if kind == "probabilities" else "Identity", ["x"], ["z"])]
    graph = helper.make_graph(nodes, "classifier", [x], [z])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    axis = 1 if len(shape) == 3 else -1
    model = append_to_onnx(tmp_path / "m.onnx", fitted, tmp_path / "both.onnx", class_axis=axis)
    onnx.checker.check_model(model, full_check=True)
    given = log_odds[:30].astype(np.float32).reshape([-1 if size == "batch" else size for size in shape])
    found = onnxruntime.InferenceSession(tmp_path / "both.onnx").run(None, {"x": given})[0]
    flat = given.reshape(-1).astype(np.float64)
    expected = fitted.predict_proba(1 / (1 + np.exp(-flat)) if kind == "probabilities" else flat)
    assert found.shape == (10, 2, 3) if len(shape) == 3 else (30, 2)
    assert np.moveaxis(found, axis, -1).reshape(-1, 2) == pytest.approx(expected, abs=1e-6)
    declared = [dim.dim_value or dim.dim_param for dim in model.graph.output[0].type.tensor_type.shape.dim]
    assert declared == (["batch", 2, 3] if len(shape) == 3 else ["batch", 2])


def test_only_a_method_that_searched_them_shows_gamma_and_t_of_two_classes(rows):
    _, p, labels = rows
    predictions = Predictions.from_probabilities(p, labels)
    found = compare(predictions, predictions, ["logistic", "fts"], n_resamples=20)
    assert (found.chosen, found.surface) == ("logistic", None)
    assert "γ" not in render(found)
    assert compare(predictions, predictions, ["fts"], chosen="fts", n_resamples=20).surface.method == "fts"


def test_an_onnx_output_that_is_not_of_two_classes_is_refused(rows, tmp_path):
    import onnx
    from onnx import TensorProto, helper

    fitted = make("logistic", input="logits").fit(rows[0], rows[2])
    x, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in ("x", "z"))
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "classifier", [x], [z])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    with pytest.raises(ShapeError, match="fitted on 3 classes"):
        append_to_onnx(tmp_path / "m.onnx", fitted, tmp_path / "both.onnx")


@pytest.mark.parametrize(
    ("kind", "values", "error", "words"),
    [
        ("probabilities", [0.2, 1.3], DataError, "at most 1. Got a value of 1.3"),
        ("probabilities", [0.2, -0.3], DataError, "Got a value of -0.3"),
        ("probabilities", [0.2, np.nan], DataError, "Got NaN"),
        ("log-odds", [0.2, np.nan], DataError, "finite log-odds.*Got NaN"),
        ("logits", [-np.inf, 0.0], DataError, "finite log-odds.*Got a value of -inf"),
        ("log-odds", [[0.2, 0.1], [0.3, 0.4]], ShapeError, r"'y' .* must be of shape \(2, 2\)"),
    ],
)
def test_what_cannot_be_one_number_a_row(kind, values, error, words):
    with pytest.raises(error, match=words):
        TemperatureScaling(input=kind).fit(np.array(values), [0, 1])


def test_probabilities_where_log_odds_were_expected_are_warned_of(rows):
    _, p, labels = rows
    with pytest.warns(InputWarning, match=r"lie between 0 and 1.*input='probabilities'"):
        TemperatureScaling().fit(p, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)  # a few log-odds may well be such
        make("logistic").fit(np.array([0.5, 0.7, 0.2, 0.1]), [1, 1, 0, 0]).predict_proba([0.3])


def test_a_model_of_three_classes_takes_no_single_number():
    fitted = TemperatureScaling().fit(2.0 * np.eye(3), [0, 1, 2])
    with pytest.raises(ShapeError, match=r"one column per class. .*Got shape \(3,\)"):
        fitted.predict_proba([0.1, 0.2, 0.3])


def test_blocks_of_one_number_a_row(rows):
    log_odds, p, labels = rows
    for kind, values in (("logits", log_odds), ("probabilities", p), ("log-odds", log_odds)):
        parts = blocks([(values[:400], labels[:400]), (values[400:], labels[400:])], input=kind)
        whole = make("svs", input=kind).fit(values, labels).predict_proba(values)
        assert np.allclose(make("svs", input=kind).fit(parts).predict_proba(values), whole, atol=1e-6)


def test_predictions_of_one_number_a_row(rows):
    log_odds, p, labels = rows
    made = Predictions.from_probabilities(p, labels)
    assert (made.n_classes, made.positive) == (2, 1)
    assert np.array_equal(made.values, np.stack([1.0 - p, p], axis=1))
    assert np.array_equal(Predictions.from_log_odds(log_odds, labels).values[:, 1], log_odds)
    assert np.array_equal(Predictions.from_logits(log_odds, labels).values[:, 1], log_odds)
    assert Predictions.from_logits(2.0 * np.eye(3), [0, 1, 2]).positive is None
    with pytest.raises(ShapeError, match="one-dimensional"):
        Predictions.from_log_odds(np.zeros((3, 2)), [0, 1, 0])


@pytest.mark.parametrize(
    ("labels", "positive", "expected"),
    [
        (["late", "on time", "late"], "late", [1, 0, 1]),
        ([1.0, -1.0, 1.0], -1, [0, 1, 0]),
        ([True, False, True], 0, [0, 1, 0]),
        ([0.0, 1.0, 0.0], "1", [0, 1, 0]),
    ],
)
def test_the_positive_label_is_class_1(labels, positive, expected):
    made = Predictions.from_probabilities([0.2, 0.3, 0.4], labels, positive_label=positive)
    assert made.labels.tolist() == expected


def test_the_positive_label_of_two_named_columns_moves_them():
    values, labels = [[0.9, 0.1], [0.3, 0.7]], ["ill", "well"]
    made = Predictions.from_probabilities(values, labels, class_names=["ill", "well"], positive_label="ill")
    assert made.class_names == ("well", "ill")
    assert made.values.tolist() == [[0.1, 0.9], [0.7, 0.3]]
    assert made.labels.tolist() == [1, 0]


def test_positive_labels_that_do_not_fit():
    with pytest.raises(LabelError, match=r"at most two kinds, one of them the positive 'c'. Got 'a', 'b'"):
        Predictions.from_probabilities([0.2, 0.3], ["a", "b"], positive_label="c")
    with pytest.raises(LabelError, match="positive_label="):
        Predictions.from_probabilities([0.2, 0.3], ["a", "b"])
    with pytest.raises(LabelError, match=r"must be between 0 and 1. Got labels -1 and 1 instead.* positive_label="):
        Predictions.from_probabilities([0.2, 0.3], [-1, 1])
    with pytest.raises(ParameterError, match="it is for two classes, and there are 3"):
        Predictions.from_logits(2.0 * np.eye(3), [0, 1, 2], positive_label=1)


def test_rounded_probabilities_are_refused_with_a_hint_or_renormalised():
    values = [[0.33, 0.33, 0.33], [0.5, 0.26, 0.25]]
    with pytest.raises(DataError, match="renormalise=True"):
        Predictions.from_probabilities(values, [0, 1])
    made = Predictions.from_probabilities(values, [0, 1], renormalise=True)
    assert np.allclose(made.values, np.array(values) / [[0.99], [1.01]])


@pytest.mark.parametrize("ending", ["csv", "npz", "parquet"])
def test_files_of_one_column(rows, tmp_path, ending):
    _, p, labels = rows
    file = tmp_path / f"rows.{ending}"
    names = np.where(labels == 1, "late", "on time")
    if ending == "csv":
        file.write_text("p,label\n" + "".join(f"{a!r},{b}\n" for a, b in zip(p.tolist(), names, strict=True)))
    elif ending == "npz":
        np.savez(file, p=p, labels=names)
    else:
        pandas = pytest.importorskip("pandas")
        pandas.DataFrame({"p": p, "label": names}).to_parquet(file)
    made = read(file, input="probabilities", positive_label="late")
    assert np.array_equal(made.values[:, 1], p)
    assert np.array_equal(made.labels, labels)
    assert made.class_names == ("on time", "late")


def test_the_command_line_goes_from_one_column_to_one_column(rows, tmp_path, capsys):
    _, p, labels = rows
    file, calibrator, output = tmp_path / "rows.csv", tmp_path / "c.json", tmp_path / "out.csv"
    names = np.where(labels == 1, "late", "on time").tolist()
    lines = [f"{i},{a!r},{b}" for i, (a, b) in enumerate(zip(p.tolist(), names, strict=True))]
    file.write_text("\n".join(["id,score,outcome", *lines]) + "\n")
    how = ["--probability-column", "score", "--labels", "outcome"]
    assert run(["fit", str(file), *how, "-o", str(calibrator)]) == 1
    assert "--positive-label" in capsys.readouterr().err
    assert run(["fit", str(file), *how, "--positive-label", "late", "-o", str(calibrator)]) == 0
    assert run(["apply", str(calibrator), str(file), *how, "-o", str(output)]) == 0
    found = np.loadtxt(output, delimiter=",", skiprows=1, usecols=1)
    assert output.read_text().startswith("id,p,outcome\n")
    assert np.array_equal(found, load(calibrator).predict_proba(p)[:, 1])
    assert abs(found.mean() - labels.mean()) < 0.01 < abs(p.mean() - labels.mean())


def test_the_command_line_renormalises(tmp_path, capsys):
    values = np.round(np.random.default_rng(0).dirichlet([1.0, 1.0, 1.0], 60), 2)
    np.savez(tmp_path / "rows.npz", probabilities=values, labels=values.argmax(axis=1))
    command = ["fit", str(tmp_path / "rows.npz"), "-m", "ts", "-o", str(tmp_path / "c.json")]
    assert run([*command, "--probabilities"]) == 1
    assert "add --renormalise" in capsys.readouterr().err
    assert run([*command, "--renormalise"]) == 0  # the name of the array says that it holds probabilities
    np.savez(tmp_path / "logits.npz", logits=values, labels=values.argmax(axis=1))
    assert run(["fit", str(tmp_path / "logits.npz"), "--renormalise", "-o", str(tmp_path / "c.json")]) == 2
    assert run([*command, "--probabilities", "--renormalise"]) == 0


def test_evaluations_take_calibrators_of_log_odds(rows):
    log_odds, _, labels = rows
    test = Predictions.from_log_odds(log_odds, labels)
    of_two = compare(test, test, ["logistic"], n_resamples=20)["logistic"]
    fitted = make("logistic", input="log-odds").fit(log_odds, labels)
    assert evaluate(test, {"logistic": fitted}, n_resamples=20)["logistic"].measures == of_two.measures


@pytest.fixture(scope="module")
def balanced():
    """A model of a rare class with the prior of a balanced one, as probabilities: validation and test rows."""
    rng = np.random.default_rng(3)
    log_odds = rng.normal(-4.0, 1.2, 6000)
    labels = (rng.random(6000) < 1.0 / (1.0 + np.exp(-log_odds))).astype(int)
    rows = Predictions.from_probabilities(1.0 / (1.0 + np.exp(-log_odds - 4.0)), labels, class_names=["fine", "late"])
    return rows.take(np.arange(3000)), rows.take(np.arange(3000, 6000))


@pytest.fixture(scope="module")
def compared(balanced):
    return compare(*balanced, ["ts", "logistic"], n_resamples=50)


def test_an_evaluation_is_about_the_positive_class(balanced, compared):
    test = balanced[1]
    p, y = test.values[:, 1], test.labels
    assert (compared.positive, compared.rate) == ("late", pytest.approx(y.mean()))
    measures = compared.before.measures
    assert measures["ece"].value == pytest.approx(rm.expected_calibration_error(y, p), abs=1e-12)
    assert measures["mean_bias"].value == pytest.approx(p.mean() - y.mean(), abs=1e-12)
    assert measures["brier_score"].value == pytest.approx(sk.brier_score_loss(y, p), abs=1e-12)
    assert measures["roc_auc"].value == pytest.approx(sk.roc_auc_score(y, p), abs=1e-12)
    for name in ("mean_bias", "log_loss_skill", "brier_skill", "roc_auc", "average_precision"):
        assert measures[name].low < measures[name].value < measures[name].high
    curve = compared.before.reliability
    assert np.average(curve.confidence, weights=curve.count) == pytest.approx(p.mean(), abs=1e-9)
    assert np.average(curve.accuracy, weights=curve.count) == pytest.approx(y.mean(), abs=1e-9)


def test_log_loss_ranks_and_the_wrong_mean_is_said_first(compared):
    assert [row.name for row in comparison_table(compared)] == ["logistic", "ts", "none"]
    assert compared.chosen == "logistic"
    said = verdict(compared)
    assert said.startswith("The mean probability of late is 4")
    assert "points too high. Logistic calibration makes" in said
    assert "the lowest log-loss" in recommendation(compared)
    assert not {"γ", "T"} & set(comparison_table(compared)[0].headings)
    assert abs(compared.after.measures["mean_bias"].value) < 0.01
    assert abs(compared["ts"].measures["mean_bias"].value) > 0.3  # which has no intercept


def test_a_mean_that_fits_is_said_to(rows):
    log_odds, _, labels = rows
    found = evaluate(Predictions.from_log_odds(log_odds, labels), {}, n_resamples=500)
    assert verdict(found).startswith("The mean probability of class 1, ")
    assert "agrees with its rate" in verdict(found)


def test_no_event_among_few_rows_is_no_evidence_of_a_wrong_mean():
    """A calibrated model has none of 200 events of probability 0.01 with probability 0.99^200 = 0.13."""
    found = evaluate(Predictions.from_probabilities(np.full(200, 0.01), np.zeros(200, dtype=int)), {})
    assert "agrees with its rate" in verdict(found)
    rate, bias = binomtest(0, 200).proportion_ci(0.95, method="wilson"), found.before.measures["mean_bias"]
    assert (bias.low, bias.high) == pytest.approx((0.01 - rate.high, 0.01 - rate.low), abs=1e-9)


def test_rows_in_blocks_say_the_same(balanced, compared):
    test = balanced[1]
    parts = blocks([(test.values[:1000], test.labels[:1000]), (test.values[1000:], test.labels[1000:])],
                   input="probabilities", class_names=["fine", "late"])  # fmt: skip
    found = evaluate(parts, {})
    for name in ("mean_bias", "brier_score", "log_loss", "ece", "smooth_ece"):
        there = compared.before.measures.get(name) or compared.before.values[name]
        here = found.before.measures.get(name) or found.before.values[name]
        assert getattr(here, "value", here) == pytest.approx(getattr(there, "value", there), abs=1e-4)
    assert found.rate == pytest.approx(compared.rate)
    assert verdict(found).startswith("The mean probability of late is 4")


def test_test_rows_of_one_class_have_no_area_under_a_curve(balanced):
    test = balanced[1].take(np.flatnonzero(balanced[1].labels == 0))
    found = evaluate(test, {}, n_resamples=20)
    assert "roc_auc" not in found.before.measures
    assert "AUC" not in comparison_table(found)[0].headings
    assert found.before.measures["mean_bias"].value > 0.3
    assert "0.00 % of the rows" in verdict(found)


def test_the_report_of_a_fit_is_about_class_1(balanced):
    rows = balanced[0]
    for data in (rows.values, rows.values[:, 1]):
        report = make("logistic", input="probabilities").fit(data, rows.labels).fit_report_
        before = report["before"]
        assert before["ece"] == pytest.approx(rm.expected_calibration_error(rows.labels, rows.values), abs=1e-9)
        assert before["brier_score"] == pytest.approx(rm.brier_score(rows.labels, rows.values), abs=1e-9)


def test_the_page_is_about_the_positive_class(compared):
    page = render(compared)
    heading = page[page.index('<h1 id="verdict">') : page.index("</h1>")]
    assert "The mean probability of late is 4" in heading
    assert "mean probability of late; it occurs in" in page
    assert "Does the probability of late match the share of late?" in page
    assert 'id="classes"' not in page


def test_measuring_on_the_rows_of_the_fit_is_warned_of(rows):
    log_odds, _, labels = rows
    first, other = Predictions.from_log_odds(log_odds, labels), Predictions.from_log_odds(log_odds + 1e-9, labels)
    with pytest.warns(FitWarning, match="the validation and the test rows are the same"):
        found = compare(first, first, ["ts"], n_resamples=20)
    assert "flatters all of them" in remarks(found)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not any("the same" in line for line in remarks(compare(first, other, ["ts"], n_resamples=20)))


def test_few_rows_are_warned_of(rows):
    log_odds, _, labels = rows
    with pytest.warns(FitWarning, match="5 rows are few: the result may be due to chance"):
        fitted = TemperatureScaling().fit(log_odds[:5], [0, 1, 0, 1, 1])
    assert np.isfinite(fitted.predict_proba(log_odds)).all()
    few = evaluate(Predictions.from_log_odds(log_odds[:8], labels[:8]), {}, n_resamples=20)
    assert "8 rows are few: the result may be due to chance." in remarks(few)


@pytest.mark.parametrize("name", NAMED)
def test_five_rows_have_probabilities(name):
    p = np.array([0.9, 0.2, 0.7, 0.4, 0.1])
    found = make(name, input="probabilities").fit(p, [1.0, 0.0, 0.0, 1.0, 0.0]).predict_proba([*p, 0.0, 1.0])
    assert np.all((found >= 0.0) & (found <= 1.0))
    assert np.allclose(found.sum(axis=1), 1.0)


def test_a_table_without_rows_has_one_line_of_complaint(tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("p,label\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(["fit", str(tmp_path / "rows.csv"), "--probabilities", "-o", str(tmp_path / "c.json")]) == 1
    assert "at least one row" in capsys.readouterr().err


def test_empty_blocks_are_passed_over(rows):
    log_odds, _, labels = rows
    parts = blocks([(log_odds[:0], labels[:0]), (log_odds, labels), (log_odds[:0], labels[:0])])
    whole = TemperatureScaling().fit(log_odds, labels).temperature_
    assert TemperatureScaling().fit(parts).temperature_ == pytest.approx(whole, rel=1e-9)


def test_the_diagram_of_a_rare_class_ends_with_its_probabilities(compared):
    terms = terms_of(compared)
    whole = reliability(compared.before.reliability, "before", compared.before.histogram, terms).svg()
    close = reliability(compared.after.reliability, "after", compared.after.histogram, terms).svg()
    assert ">0.8</text>" in whole
    assert ">0.8</text>" not in close
    assert ">0.1</text>" in close
