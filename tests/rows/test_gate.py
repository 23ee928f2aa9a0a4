"""Rows come in through one gate: cases in which one entry once read what another did not."""

from __future__ import annotations

import json
from dataclasses import replace

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import DataConversionWarning

from helpers import draw_logits
from refocal import AutoCalibration, GroupCalibration, TemperatureScaling, load, metrics
from refocal.cli.run import run
from refocal.decide import best_actions
from refocal.errors import DataError, LabelError, ParameterError, ShapeError
from refocal.evaluate import compare, evaluate
from refocal.io import MultiLabelPredictions, Predictions, apply, blocks, open_rows, read, rows_of
from refocal.monitor import CalibrationMonitor
from refocal.rows import RawRows, RowReader
from refocal.rows.gate import read_raw

NAMES = np.array(["dog", "emu", "cat"])


def log_loss(p, column):
    return -np.mean(np.log(p[np.arange(len(p)), column]))


@pytest.fixture
def rows():
    """Logits whose columns are far from interchangeable, and the column of each label."""
    logits, labels = draw_logits(600, 3)
    return 2.0 * logits + np.array([0.0, 1.0, -1.0]), labels


def test_predictions_are_taken_wherever_rows_and_labels_are(rows):
    logits, labels = rows
    weight = np.random.default_rng(0).random(len(labels))
    predictions = Predictions.from_logits(logits, NAMES[labels], class_names=NAMES, weight=weight)
    fitted = TemperatureScaling().fit(predictions)
    plain = TemperatureScaling().fit(logits, labels, weight)
    assert fitted.temperature_ == plain.temperature_
    assert fitted.classes_.tolist() == NAMES.tolist()
    order = [2, 0, 1]
    moved = Predictions.from_logits(logits[:, order], NAMES[labels], class_names=NAMES[order], weight=weight)
    np.testing.assert_allclose(fitted.predict_proba(moved), plain.predict_proba(logits), rtol=1e-12)
    p = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    for name in ("brier_score", "accuracy", "expected_calibration_error", "smooth_ece"):
        function = getattr(metrics, name)
        assert function(predictions) == pytest.approx(function(labels, p, sample_weight=weight), rel=1e-12)
    assert metrics.log_loss(predictions) == pytest.approx(metrics.log_loss(labels, np.log(p), sample_weight=weight))
    monitor = CalibrationMonitor()
    with pytest.raises(ParameterError, match=r"'weight' .* must be left out"):
        monitor.update(moved)
    assert monitor.update(replace(moved, weight=None)) == len(labels)
    assert monitor.class_names == tuple(NAMES[order])
    for call in (
        lambda: TemperatureScaling().fit(predictions, labels),
        lambda: metrics.brier_score(predictions, p),
        lambda: monitor.update(moved, labels),
    ):
        with pytest.raises(ParameterError, match="which have their"):
            call()
    with pytest.raises(DataError, match="rows of probabilities, as this calibrator takes"):
        TemperatureScaling(input="probabilities").fit(predictions)


def test_rows_of_weight_0_have_no_say():
    rng = np.random.default_rng(1)
    p = rng.random(400)
    labels = (rng.random(400) < p).astype(int)
    p[:40] = 0.0
    weight = np.ones(400)
    groups = np.array(["a", "b"])[np.arange(400) % 2]
    planted = {
        "p": np.append(p, [1e-9, 0.5]),  # the first would change what a zero counts as
        "y": np.append(labels, [1, 7]),  # and the second has no such class
        "w": np.append(weight, [0.0, 0.0]),
        "g": np.append(groups, ["a", "c"]),
    }
    plain = AutoCalibration(input="probabilities").fit(p, labels, weight)
    found = AutoCalibration(input="probabilities").fit(planted["p"], planted["y"], planted["w"])
    np.testing.assert_array_equal(found.predict_proba(p), plain.predict_proba(p))
    assert found.fit_report_ == plain.fit_report_
    a = Predictions.from_probabilities(p, labels, weight=weight).with_groups(groups)
    b = Predictions.from_probabilities(planted["p"], planted["y"], weight=planted["w"])
    assert len(b) == 400
    b = b.with_groups(groups)
    one, other = (evaluate(rows, {}, n_resamples=2).before for rows in (a, b))
    assert one.groups == other.groups
    assert [row.n for row in one.groups] == [200, 200]
    in_blocks = blocks([(planted["p"], planted["y"], planted["w"])], input="probabilities")
    in_blocks.start()
    assert (in_blocks.n_rows, in_blocks.n_skipped) == (400, 0)
    lines = GroupCalibration(input="probabilities").fit(planted["p"], planted["y"], planted["w"], groups=planted["g"])
    assert lines.lines_["group"].names.tolist() == ["a", "b"]


def test_a_dask_frame_is_read_by_the_names_of_its_columns(rows):
    logits, labels = rows
    frame = pd.DataFrame(logits, columns=NAMES).assign(label=NAMES[labels])
    expected = TemperatureScaling().fit(frame[NAMES], frame["label"])
    found = TemperatureScaling().fit(dd.from_pandas(frame, npartitions=3), "label")
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)
    assert found.classes_.tolist() == NAMES.tolist()
    lazy = dd.from_pandas(frame[NAMES], npartitions=2)
    np.testing.assert_allclose(found.predict_proba(lazy).compute(), expected.predict_proba(frame[NAMES]), rtol=1e-9)
    with pytest.raises(ValueError, match="feature names should match"):
        found.predict_proba(lazy[["cat", "dog", "emu"]])


def test_one_number_per_row_in_a_dask_array():
    import dask.array as da

    rng = np.random.default_rng(0)
    x = rng.normal(size=600)
    y = (rng.random(600) < 1 / (1 + np.exp(-x))).astype(int)
    lazy = da.from_array(3.0 * x, chunks=250)
    fitted = TemperatureScaling().fit(lazy, da.from_array(y, chunks=100))
    assert fitted.temperature_ == pytest.approx(TemperatureScaling().fit(3.0 * x, y).temperature_, rel=1e-9)
    p = fitted.predict_proba(lazy)
    assert p.shape == (600, 2)
    np.testing.assert_allclose(p.compute(), fitted.predict_proba(3.0 * x))
    assert fitted.predict(lazy).compute().tolist() == fitted.predict(3.0 * x).tolist()


def test_calibrators_know_their_classes_whatever_they_were_fitted_on(rows, tmp_path):
    logits, labels = rows
    (tmp_path / "rows").mkdir()
    frame = pd.DataFrame(logits, columns=NAMES).assign(label=NAMES[labels])
    frame.to_parquet(tmp_path / "rows" / "a.parquet")
    moved = frame[["cat", "label", "dog", "emu"]]
    moved.to_csv(tmp_path / "moved.csv", index=False)
    expected = TemperatureScaling().fit(logits, labels).predict_proba(logits)
    for source in (
        open_rows(tmp_path / "rows"),
        blocks([(logits[:200], NAMES[labels[:200]]), (logits[200:], NAMES[labels[200:]])], class_names=NAMES),
        read(tmp_path / "rows"),
    ):
        fitted = TemperatureScaling().fit(source)
        assert fitted.classes_.tolist() == NAMES.tolist()
        fitted.save(tmp_path / "c.json")
        apply(load(tmp_path / "c.json"), tmp_path / "moved.csv", tmp_path / "out.csv", overwrite=True)
        written = pd.read_csv(tmp_path / "out.csv")
        np.testing.assert_allclose(written[NAMES].to_numpy(), expected, rtol=1e-6)


def test_column_numbers_are_refused_where_files_order_their_columns_differently(rows, tmp_path):
    logits, labels = rows
    frame = pd.DataFrame(logits, columns=NAMES).assign(label=labels)
    frame[:300].to_parquet(tmp_path / "a.parquet")
    frame[300:][["cat", "dog", "emu", "label"]].to_parquet(tmp_path / "b.parquet")
    with pytest.raises(LabelError, match=r"column numbers in .*, which has another order"):
        read(tmp_path)
    with pytest.raises(LabelError, match=r"column numbers in .*b\.parquet, which has another order"):
        open_rows(tmp_path).start()
    np.save(tmp_path / "labels.npy", labels)
    for beside in (read, lambda place, labels: open_rows(place, labels=labels).start()):
        with pytest.raises(LabelError, match=r"column numbers in .*, which has another order"):
            beside(f"{tmp_path}/*.parquet", labels=tmp_path / "labels.npy")
    for name in "ab":
        part = pd.read_parquet(tmp_path / f"{name}.parquet")
        part.assign(label=NAMES[part["label"]]).to_parquet(tmp_path / f"{name}.parquet")
    assert read(tmp_path).labels.tolist() == labels.tolist()


@pytest.mark.parametrize("extra", ["ID", "uid", "idx", "timestamp", "prediction", "age", "labels"])
def test_numeric_columns_beside_the_classes_are_no_classes(rows, tmp_path, extra):
    logits, labels = rows
    frame = pd.DataFrame(logits, columns=NAMES).assign(label=NAMES[labels])
    frame.insert(0, extra, np.arange(len(frame)))
    frame.to_csv(tmp_path / "a.csv", index=False)
    found = read(tmp_path / "a.csv", labels="label")
    assert found.class_names == tuple(NAMES)
    assert f"1 of 5 columns not used: {extra}" in found.described()


def evaluated(capsys, *command):
    assert run([*map(str, command), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_positive_label_moves_columns_and_labels_together(tmp_path, capsys):
    rng = np.random.default_rng(2)
    p = rng.random(800)
    labels = (rng.random(800) < p**2).astype(int)
    pd.DataFrame({"0": 1 - p, "1": p, "label": labels}).to_csv(tmp_path / "two.csv", index=False)
    truth = -np.mean(np.where(labels == 1, np.log(p), np.log1p(-p)))
    two = ("--probabilities", "--positive-label", "0")
    found = evaluated(capsys, "evaluate", tmp_path / "two.csv", *two, "--resamples", "5")
    measures = found["methods"][0]["measures"]
    assert measures["log_loss"]["value"] == pytest.approx(truth, rel=1e-6)
    assert measures["mean_bias"]["value"] == pytest.approx(np.mean(1 - p) - np.mean(labels == 0), rel=1e-6)
    assert evaluated(
        capsys, "fit", tmp_path / "two.csv", "-m", "logistic", "--probabilities", "-o", tmp_path / "c.json"
    )
    after = evaluated(capsys, "evaluate", tmp_path / "two.csv", tmp_path / "c.json", *two, "--resamples", "5")
    by_name = {method["name"]: method["measures"] for method in after["methods"]}
    assert abs(by_name["c"]["mean_bias"]["value"]) < 1e-3
    assert by_name["none"] == measures
    table = np.array([[0.0, 3.0], [1.0, 0.0]])
    costs = ";".join(",".join(map(str, row)) for row in table)
    action = np.argmin(np.column_stack([1 - p, p]) @ table, axis=1)
    paid = table[labels, action].mean()
    for more in ((), ("--positive-label", "0")):
        options = ("--probabilities", "--costs", costs, *more)
        report = evaluated(capsys, "decide", tmp_path / "two.csv", *options)["reports"]["uncalibrated"]
        assert report["cost"]["value"] == pytest.approx(paid, rel=1e-9)


def test_outcomes_after_a_positive_label_are_those_of_the_predictions(tmp_path, capsys):
    rng = np.random.default_rng(3)
    p = rng.random(500)
    labels = (rng.random(500) < p).astype(int)
    pd.DataFrame({"id": np.arange(500), "0": 1 - p, "1": p}).to_csv(tmp_path / "said.csv", index=False)
    pd.DataFrame({"id": np.arange(500), "label": labels}).to_csv(tmp_path / "came.csv", index=False)
    state = ("--state", tmp_path / "m.json", "--ids", "id")
    said = ("monitor", tmp_path / "said.csv", "--probabilities", "--values", "0,1", "--positive-label", "0")
    assert run([*map(str, (*said, *state))]) == 0
    assert run([*map(str, ("monitor", "--outcomes", tmp_path / "came.csv", *state))]) == 0
    summary = CalibrationMonitor.load(tmp_path / "m.json").summary()
    assert summary.rate.value == pytest.approx(np.mean(labels == 0))
    assert summary.mean_p == pytest.approx(np.mean(1 - p))


def test_rows_in_blocks_are_refused_by_compare_in_words(rows):
    logits, labels = rows
    with pytest.raises(ParameterError, match="'validation' of compare must be Predictions, in memory"):
        compare(blocks([(logits, labels)]), Predictions.from_logits(logits, labels))


def test_data_frames_and_tables_of_every_library_have_names(rows):
    import polars as pl
    import pyarrow as pa

    logits, labels = rows
    expected = TemperatureScaling().fit(logits, labels).temperature_
    data = {name: logits[:, i] for i, name in enumerate(NAMES)}
    for table in (pd.DataFrame(data), pl.DataFrame(data), pa.table(data)):
        assert TemperatureScaling().fit(table, NAMES[labels]).temperature_ == pytest.approx(expected, rel=1e-9)
        assert Predictions.from_logits(table, NAMES[labels]).labels.tolist() == labels.tolist()


def test_a_calibrator_of_named_columns_refuses_others(rows):
    logits, labels = rows
    fitted = TemperatureScaling().fit(Predictions.from_logits(logits, labels, class_names=NAMES))
    with pytest.raises(ShapeError, match="'cow' in one of them only"):
        fitted.predict_proba(Predictions.from_logits(logits, labels, class_names=["dog", "emu", "cow"]))


@pytest.mark.parametrize("first", [0, 1])
def test_categories_of_numbers_are_numbers(first):
    """As read_csv(dtype="category") has them: '0', '1', '10', '11', '2', …"""
    logits, labels = draw_logits(600, 12)
    text = pd.Series((labels + first).astype(str)).astype("category")
    assert TemperatureScaling().fit(logits, text).temperature_ == TemperatureScaling().fit(logits, labels).temperature_
    if first == 0:
        assert Predictions.from_logits(logits, text).labels.tolist() == labels.tolist()


def test_categories_in_an_order_of_their_own_are_refused_for_columns_without_names(rows):
    """scikit-learn's columns are in sorted order, those of a model of the codes in that of the categories."""
    logits, labels = rows
    names = np.array(["low", "middle", "high"])
    ordered = pd.Categorical(names[labels], categories=names)
    with pytest.raises(LabelError, match="categories low, middle, high, in sorted order high, low, middle"):
        TemperatureScaling().fit(logits, ordered)
    with pytest.raises(LabelError, match="class_names="):
        Predictions.from_logits(logits, ordered)
    series = pd.Series(ordered)
    for kind in (ordered, series, pl.Series(names[labels], dtype=pl.Enum(names)), dd.from_pandas(series, 2)):
        with pytest.raises(LabelError, match="categories low, middle, high, in sorted order high, low, middle"):
            rows_of(logits if not hasattr(kind, "dask") else da.from_array(logits), kind)
    given = rows_of(logits, series, class_names=names)
    assert TemperatureScaling().fit(given).classes_.tolist() == names.tolist()
    missing = pd.Series(pd.Categorical(np.r_[names[labels][:-1], [None]], categories=sorted(names)))
    found = TemperatureScaling().fit(rows_of(logits, missing, skip_bad_rows=True))
    assert found.fit_report_["n_skipped"] == 1
    named = TemperatureScaling().fit(pd.DataFrame(logits, columns=names), ordered)
    assert named.temperature_ == TemperatureScaling().fit(logits, labels).temperature_


@pytest.mark.parametrize("columns", [["p_1", "p_0"], ["1", "0"], [1, 0], ["True", "False"]])
def test_columns_called_by_their_numbers_are_matched_by_these(columns):
    rng = np.random.default_rng(4)
    p = rng.beta(1, 4, 800)
    y = (rng.random(800) < p**2).astype(int)
    plain = np.column_stack([1 - p, p])
    turned = pd.DataFrame(plain[:, ::-1], columns=columns)
    labels = y == 1 if columns[0] == "True" else y
    forward = Predictions.from_probabilities(plain, y)
    backward = Predictions.from_probabilities(turned, labels)
    losses = []
    for validation, test in ((forward, forward), (forward, backward), (backward, forward), (backward, backward)):
        fitted = compare(validation, test, ["logistic"], n_resamples=2)["logistic"]
        losses.append(fitted.measures["log_loss"].value)
    np.testing.assert_allclose(losses, losses[0], rtol=1e-9)
    assert metrics.brier_score(labels, turned) == pytest.approx(metrics.brier_score(y, plain))
    if columns[0] != "True":
        assert metrics.mean_bias(labels, turned) == pytest.approx(metrics.mean_bias(y, plain))


def test_data_frames_in_another_order_are_refused_by_predictions_whatever_names_are(rows):
    logits, labels = rows
    frame = pd.DataFrame(logits)
    turned = frame[[2, 1, 0]]
    fitted = TemperatureScaling().fit(turned, labels)
    assert fitted.classes_.tolist() == [2, 1, 0]
    with pytest.raises(ShapeError, match="in the order of the classes, 2, 1, 0"):
        fitted.predict_proba(frame)
    by_text = TemperatureScaling().fit(logits, np.array(["a", "b", "c"])[labels])
    with pytest.raises(ShapeError, match="in the order of the classes, a, b, c"):
        by_text.predict_proba(pd.DataFrame(logits, columns=["c", "b", "a"]))


@pytest.mark.parametrize(
    ("classes", "columns"),
    [
        (["img_cat", "img_dog", "img_emu"], ["img_cat", "img_dog", "img_emu"]),
        (["img_cat", "img_dog", "img_emu"], ["cat", "dog", "emu"]),
        (["cat", "dog", "emu"], ["logit_img_cat", "logit_img_dog", "logit_img_emu"]),
    ],
)
@pytest.mark.filterwarnings("ignore:X has feature names")
def test_beginnings_that_classes_share_hide_no_other_order(rows, classes, columns):
    logits, labels = rows
    fitted = TemperatureScaling().fit(logits, np.array(classes)[labels])
    in_order = pd.DataFrame(logits, columns=columns)
    np.testing.assert_array_equal(fitted.predict(in_order), fitted.predict(logits))
    with pytest.raises(ShapeError, match=f"in the order of the classes, {classes[0]}"):
        fitted.predict(in_order[columns[::-1]])


def test_monitors_do_not_pool_columns_of_several_orders():
    rng = np.random.default_rng(5)
    p = rng.beta(1, 5, 600)
    y = (rng.random(600) < p).astype(int)
    plain = pd.DataFrame({"p_0": 1 - p, "p_1": p})
    turned = plain[["p_1", "p_0"]]
    for first, second in ((plain, turned), (turned, plain), (turned, plain.to_numpy())):
        monitor = CalibrationMonitor()
        monitor.update(first, y)
        monitor.update(second, y)
        assert monitor.summary().rate.value == pytest.approx(y.mean())
        assert monitor.summary().mean_p == pytest.approx(p.mean())
    words = np.array(["no", "yes"])[y]
    named = pd.DataFrame({"no": 1 - p, "yes": p})
    one, other = CalibrationMonitor(), CalibrationMonitor()
    one.update(named, words)
    other.update(named[["yes", "no"]], words)
    with pytest.raises(ShapeError, match="of the columns no, yes, as those before"):
        one.update(named[["yes", "no"]], words)
    with pytest.raises(DataError, match="a monitor of the classes no, yes"):
        one.merge(other)
    refused = CalibrationMonitor()
    with pytest.raises(LabelError):
        refused.update(turned, y + 7)
    refused.update(plain.to_numpy(), y)
    assert refused.summary().rate.value == pytest.approx(y.mean())


def test_a_monitor_reads_all_labels_in_one_way():
    monitor = CalibrationMonitor()
    p = pd.DataFrame(np.full((4, 3), 1 / 3), columns=["1", "2", "3"])
    monitor.update(p, [1, 1, 1, 1])
    with pytest.raises(LabelError, match="read by the names of columns, as those before"):
        monitor.update(p, [0, 0, 0, 0])


def test_blocks_of_data_frames_have_names(rows):
    logits, labels = rows
    frame = pd.DataFrame(logits, columns=NAMES)
    parts = [(frame[:300], NAMES[labels[:300]]), (frame[["cat", "dog", "emu"]][300:], NAMES[labels[300:]])]
    fitted = TemperatureScaling().fit(blocks(parts))
    assert fitted.temperature_ == pytest.approx(TemperatureScaling().fit(logits, labels).temperature_, rel=1e-9)
    assert fitted.classes_.tolist() == NAMES.tolist()


def test_labels_to_ignore_are_ignored_in_zarr_and_dask(rows):
    import dask.array as da
    import zarr

    logits, labels = rows
    expected = TemperatureScaling().fit(logits, labels, ignore_index=0).temperature_
    for X, y in ((zarr.array(logits), labels), (da.from_array(logits, chunks=(200, 3)), da.from_array(labels))):
        found = TemperatureScaling().fit(X, y, ignore_index=0)
        assert found.temperature_ == pytest.approx(expected, rel=1e-9)
        assert found.fit_report_["n_samples"] == np.count_nonzero(labels)


@pytest.mark.parametrize("names", [("False", "True"), ("0.0", "1.0"), ("00", "01")])
def test_predictions_are_like_the_labels_of_the_fit(names):
    logits, labels = draw_logits(300, 2)
    text = np.array(names)[labels]
    fitted = TemperatureScaling().fit(logits, text)
    assert fitted.classes_.tolist() == list(names)
    assert fitted.score(logits, text) == pytest.approx(np.mean(np.argmax(logits, axis=1) == labels))


@pytest.mark.parametrize("names", [["1", "1.0", "2"], ["07", "7", "x"], {"a", "b", "c"}, {0: "a", 1: "b", 2: "c"}])
def test_names_that_labels_cannot_tell_apart_are_refused(rows, names):
    logits, labels = rows
    with pytest.raises((ShapeError, ParameterError), match="class_names"):
        Predictions.from_logits(logits, labels, class_names=names)


def test_names_given_beside_those_of_a_data_frame_are_in_its_order(rows):
    logits, labels = rows
    with pytest.raises(ShapeError, match=r"'class_names' .* left out, or in the order of the columns, dog, emu, cat"):
        Predictions.from_logits(pd.DataFrame(logits, columns=NAMES), labels, class_names=["cat", "dog", "emu"])


def test_columns_of_several_labels_are_in_the_order_of_their_scores():
    from refocal import MultiLabelCalibration
    from refocal.io import MultiLabelPredictions

    rng = np.random.default_rng(6)
    x = pd.DataFrame(rng.normal(size=(300, 3)), columns=["score_a", "score_b", "score_c"])
    y = pd.DataFrame((rng.random((300, 3)) < 0.5).astype(int), columns=["label_a", "label_b", "label_c"])
    turned = y[["label_c", "label_b", "label_a"]]
    assert MultiLabelPredictions.from_log_odds(x, y).class_names == ("a", "b", "c")
    p = 1 / (1 + np.exp(-x))
    for call in (
        lambda: MultiLabelPredictions.from_log_odds(x, turned),
        lambda: MultiLabelCalibration(method="ts").fit(x, turned),
        lambda: metrics.by_label(metrics.brier_score, turned, p),
        lambda: metrics.brier_score(turned, p),
    ):
        with pytest.raises(ShapeError, match="in the order of those of the scores"):
            call()
    two = pd.DataFrame(p.to_numpy()[:, :2], columns=["1", "0"])  # names of labels, which exclude nothing
    applies = y.to_numpy()[:, :2]
    assert metrics.brier_score(applies, two) == pytest.approx(np.mean((two.to_numpy() - applies) ** 2))


def test_groups_of_another_name_are_not_those_of_the_fit():
    rng = np.random.default_rng(7)
    x = rng.normal(size=400)
    y = (rng.random(400) < 1 / (1 + np.exp(-x))).astype(int)
    region = np.array(["north", "south"])[np.arange(400) % 2]
    fitted = GroupCalibration(input="log-odds").fit(x, y, groups={"region": region})
    with pytest.warns(UserWarning, match="no groups of 'region' were given"):
        fitted.predict_proba(x, groups={"age": region})


def test_what_is_no_row_or_calibrator_is_refused_in_words(rows):
    logits, labels = rows
    test = Predictions.from_logits(logits, labels)
    fitted = TemperatureScaling().fit(test)
    for call in (
        lambda: evaluate(pd.DataFrame(logits), {}),
        lambda: evaluate(test, fitted),
        lambda: evaluate(test, {"none": fitted}),
        lambda: evaluate(test, {"a": TemperatureScaling()}),
        lambda: compare(pd.DataFrame(logits), test),
        lambda: Predictions.from_logits(logits, labels, first_label="1"),
    ):
        with pytest.raises(ParameterError):
            call()


@pytest.mark.parametrize("kind", ["log-odds", "probabilities", "logits"])
def test_a_column_of_labels_is_taken_for_scores_of_one_and_of_two_axes(kind):
    rng = np.random.default_rng(0)
    log_odds = rng.normal(size=200)
    labels = (rng.random(200) < 1.0 / (1.0 + np.exp(-2.0 * log_odds))).astype(int)
    p = 1.0 / (1.0 + np.exp(-log_odds))
    two_columns = np.stack([np.zeros(200), log_odds], axis=1)
    scores = {"log-odds": log_odds, "probabilities": p, "logits": two_columns}[kind]
    plain = TemperatureScaling(input=kind).fit(scores, labels).temperature_
    for column in (labels[:, None], labels[:, None].tolist(), pd.DataFrame({"label": labels})):
        with pytest.warns(DataConversionWarning, match="column-vector y"):
            fitted = TemperatureScaling(input=kind).fit(scores, column)
        assert fitted.temperature_ == plain
    if kind == "log-odds":  # which have the shape of their labels
        assert TemperatureScaling(input=kind).fit(log_odds[:, None], labels[:, None]).temperature_ == plain


def test_where_a_column_of_labels_is_refused_the_labels_are_named(rows):
    logits, labels = rows
    column = (labels % 2)[:, None]
    p = 1.0 / (1.0 + np.exp(-logits[:, 0]))
    of_three = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for name, call in {
        "labels": lambda: Predictions.from_log_odds(logits[:, 0], column),
        "'labels' of Predictions.from_probabilities": lambda: Predictions.from_probabilities(p, column),
        "'y_true' of brier_score": lambda: metrics.brier_score(column, p),
        "'y_true' of accuracy": lambda: metrics.accuracy(column, of_three),
    }.items():
        with pytest.raises(ShapeError, match=rf"{name}.* must be of shape \(600,\), one label .* shape \(600, 1\)"):
            call()


def test_log_odds_of_predictions_have_one_axis_and_those_of_a_fit_any():
    rng = np.random.default_rng(0)
    log_odds = rng.normal(size=(200, 2))
    labels = (rng.random((200, 2)) < 1.0 / (1.0 + np.exp(-log_odds))).astype(int)
    with pytest.raises(ShapeError, match=r"'log_odds' .* one number per row.* Got shape \(200, 2\)"):
        Predictions.from_log_odds(log_odds, labels)
    fitted, flat = (
        TemperatureScaling(input="log-odds").fit(x, y)
        for x, y in ((log_odds, labels), (log_odds.ravel(), labels.ravel()))
    )
    assert fitted.temperature_ == flat.temperature_


@pytest.mark.parametrize(
    ("label", "positive"), [(0, 1), (1, 0), (False, True), ("0", "1"), (0.0, True), ("good", "bad")]
)
def test_rows_of_the_other_class_alone_need_no_second_label(label, positive):
    p = np.array([0.1, 0.3, 0.2])
    rows = Predictions.from_probabilities(p, [label] * 3, positive_label=positive)
    assert rows.labels.tolist() == [0, 0, 0]
    assert metrics.log_loss(rows) == pytest.approx(-np.log(1 - p).mean(), rel=1e-12)
    in_blocks = blocks([(p[:1], [label]), (p[1:], [label] * 2)], input="probabilities", positive_label=positive)
    assert evaluate(in_blocks, {}).before.measures["log_loss"].value == pytest.approx(-np.log(1 - p).mean(), rel=1e-12)


@pytest.mark.parametrize(("label", "positive"), [("bad", "Bad"), ("bad", "bad "), (2, "bad"), (-1, 5), ("True", "bad")])
def test_a_label_that_may_be_the_positive_one_is_not_taken_for_the_other(label, positive):
    with pytest.raises(LabelError, match="one of them the positive"):
        Predictions.from_probabilities([0.1, 0.3], [label] * 2, positive_label=positive)


@pytest.mark.parametrize(
    ("labels", "positive", "classes"),
    [
        (np.array([0, 1, 1, 0]), 0, [1, 0]),
        (np.array([False, True, True, False]), True, [False, True]),
        (np.array([False, True, True, False]), False, [True, False]),
        (np.array([1, 2, 2, 1]), 1, [2, 1]),
        (np.array([-1, 1, 1, -1]), 1, [-1, 1]),
        (np.array(["1", "2", "2", "1"]), "1", ["2", "1"]),
    ],
)
@pytest.mark.parametrize("in_blocks", [False, True])
def test_classes_of_a_positive_label_are_of_the_type_of_the_labels(labels, positive, classes, in_blocks):
    log_odds = np.array([-2.0, 1.0, 0.5, 0.75])
    if in_blocks:
        rows = blocks([(log_odds[:2], labels[:2]), (log_odds[2:], labels[2:])], positive_label=positive)
    else:
        rows = Predictions.from_log_odds(log_odds, labels, positive_label=positive)
    assert rows.classes.tolist() == classes
    calibrator = TemperatureScaling().fit(rows)
    predicted = calibrator.predict(log_odds)
    assert predicted.dtype.kind == labels.dtype.kind
    # The numbers are about the positive class, which is the second.
    assert predicted.tolist() == [classes[0], classes[1], classes[1], classes[1]]


@pytest.mark.parametrize("names", [(10, 20), (1, 2), ("True", "False")])
def test_classes_of_blocks_are_of_the_type_of_the_labels_as_those_in_memory(names):
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [1.0, 0.5]])
    labels = np.array([{"True": True, "False": False}.get(name, name) for name in names])[[0, 1, 1]]
    frame = pd.DataFrame(logits, columns=list(names))
    in_memory = TemperatureScaling().fit(Predictions.from_logits(frame, labels))
    in_blocks = TemperatureScaling().fit(blocks([(frame[:2], labels[:2]), (frame[2:], labels[2:])]))
    # False and True are in this order in rows; fit(X, y) alone keeps that of a data frame.
    assert in_blocks.classes_.tolist() == in_memory.classes_.tolist() == sorted(labels[:2].tolist())
    assert in_blocks.classes_.dtype.kind == labels.dtype.kind


def test_one_number_per_row_is_not_about_two_classes(tmp_path):
    p, labels = np.array([0.9, 0.2, 0.6]), np.array(["no", "yes", "no"])
    path = tmp_path / "rows.csv"
    pd.DataFrame({"p": p, "label": labels}).to_csv(path, index=False)
    options = {"class_names": ["no", "yes"], "positive_label": "no"}
    text = "'positive_label' of .* must be 'yes' or left out: one number per row is about the second of class_names"
    with pytest.raises(ParameterError, match=text):
        Predictions.from_probabilities(p, labels, **options)
    with pytest.raises(ParameterError, match=text):
        TemperatureScaling(input="probabilities").fit(blocks([(p, labels)], input="probabilities", **options))
    with pytest.raises(ParameterError, match=text):
        read(path, **options)
    with pytest.raises(ParameterError, match=text):
        open_rows(path, **options).start()
    # Two columns move, and one number is about what either of the two says.
    both = np.stack([p, 1.0 - p], axis=1)
    assert Predictions.from_probabilities(both, labels, **options).class_names == ("yes", "no")
    of_label = Predictions.from_probabilities(p, labels, positive_label="no")
    of_names = Predictions.from_probabilities(p, labels, class_names=["yes", "no"])
    assert metrics.brier_score(of_label) == metrics.brier_score(of_names) == np.mean((p - (labels == "no")) ** 2)


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (["cat", "dog"], ["dog", "cat"]),
        (["cat", "dog"], ["p_dog", "p_cat"]),
        (["cat", "dog"], ["img_dog", "img_cat"]),
        (["logit_cat", "logit_dog"], ["logit_dog", "logit_cat"]),
        (["logit_img_cat", "logit_img_dog"], ["dog", "cat"]),
        (["True", "False"], [0, 1]),
        (["0", "1"], ["1", "0"]),
        (["p_0", "p_1"], ["p_1", "p_0"]),
    ],
)
def test_class_names_are_not_those_of_the_columns_in_another_order(tmp_path, columns, names):
    logits, labels = draw_logits(40, 2, 3)
    frame = pd.DataFrame(logits, columns=columns)
    table = frame.assign(label=labels)
    table.to_csv(tmp_path / "rows.csv", index=False)
    np.savez(tmp_path / "rows.npz", logits=logits, labels=labels, class_names=columns)
    several = (labels[:, None] == np.arange(2)).astype(int)
    p = pd.DataFrame(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), columns=columns)
    opened = {"input": "logits", "values": ",".join(columns), "class_names": names}
    for entry in (
        lambda: Predictions.from_logits(frame, labels, class_names=names),
        lambda: read(tmp_path / "rows.csv", **opened),
        lambda: open_rows(tmp_path / "rows.csv", **opened),
        lambda: read(tmp_path / "rows.npz", class_names=names),
        lambda: blocks([(frame, labels)], class_names=names),
        lambda: rows_of(dd.from_pandas(table, npartitions=1), "label", class_names=names),
        lambda: MultiLabelPredictions.from_log_odds(frame, several, class_names=names),
    ):
        with pytest.raises(ShapeError, match=r"'class_names' of \S+ must be left out, or in the order of the columns"):
            entry()
    if columns == ["0", "1"]:
        for measure in (metrics.brier_score, metrics.set_coverage):
            with pytest.raises(ShapeError, match=r"'classes' of \S+ must be left out, or in the order of the columns"):
                measure(labels, p.round() if measure is metrics.set_coverage else p, classes=names)


def test_names_of_blocks_are_not_those_of_a_data_frame_in_another_order():
    frame = pd.DataFrame({"no": [0.9, 0.2], "yes": [0.1, 0.8]})
    with pytest.raises(ShapeError, match="'class_names' of blocks must be left out, or in the order of the columns"):
        blocks([(frame, ["no", "yes"])], input="probabilities", class_names=["yes", "no"])
    partitions = dd.from_pandas(frame.assign(label=["no", "yes"]), npartitions=1)
    with pytest.raises(ShapeError, match="'class_names' of rows_of must be left out, or in the order of the columns"):
        rows_of(partitions, "label", input="probabilities", class_names=["yes", "no"])


def test_one_number_of_rows_without_labels_is_not_about_two_classes_either():
    reader = RowReader(2, "probabilities", ("no", "yes"), positive_label="no", function="read", has_one_number=True)
    with pytest.raises(ParameterError, match="one number per row is about the second of class_names"):
        read_raw(RawRows(np.array([0.9, 0.2]), None), reader)


@pytest.mark.parametrize("names", [("1_prob", "0_prob"), ("P(True)", "P(False)"), ("c2", "c0", "c1"), ("1", "0")])
def test_rows_without_labels_are_read_whatever_numbers_are_in_the_names_of_columns(names):
    values = np.eye(len(names))
    rows = read_raw(RawRows(values, None), RowReader(len(names), "probabilities", names))
    assert rows.labels.tolist() == [0] * len(names)
    order = [names.index(name) for name in rows.class_names or sorted(names)]
    np.testing.assert_array_equal(rows.values, values[:, order])


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("name", ["late", "p_late"])
def test_a_series_called_by_one_class_is_not_read_as_the_other(library, name):
    rng = np.random.default_rng(0)
    p = rng.beta(2, 4, 200)
    labels = np.where(rng.random(200) < p, "late", "on time")
    series = pd.Series(p, name=name) if library == "pandas" else pl.Series(name, p)
    rows = Predictions.from_probabilities(series, labels, positive_label="late")
    calibrator = TemperatureScaling(input="probabilities").fit(rows)
    wanted = p.mean() - (labels == "late").mean()
    late_second = ["on time", "late"]
    late_first = ["late", "on time"]

    assert metrics.mean_bias(rows) == pytest.approx(wanted)
    assert metrics.mean_bias(labels, series, classes=late_second) == pytest.approx(wanted)
    np.testing.assert_allclose(calibrator.predict_proba(series), calibrator.predict_proba(p))

    other = TemperatureScaling(input="probabilities").fit(
        Predictions.from_probabilities(1 - p, labels, class_names=late_first)
    )
    for refused in (
        lambda: Predictions.from_probabilities(series, labels, class_names=late_first),
        lambda: Predictions.from_probabilities(series, labels, positive_label="on time"),
        lambda: metrics.mean_bias(labels, series, classes=late_first),
        lambda: TemperatureScaling(input="probabilities").fit(series, labels),  # sorted: "on time" is the second
        lambda: other.predict_proba(series),
        lambda: CalibrationMonitor(class_names=late_first).update(series, labels),
        lambda: blocks([(series, labels)], input="probabilities", class_names=late_first),
    ):
        with pytest.raises(DataError, match=f"Got a Series called '{name}', by the other class"):
            refused()


@pytest.mark.parametrize("name", ["prob_0", "P(False)", False, np.False_])
@pytest.mark.parametrize("labels", [np.arange(60) % 2, np.arange(60) % 2 == 1], ids=["numbers", "truths"])
def test_a_series_called_by_class_0_is_not_read_as_class_1_where_classes_have_no_names(name, labels):
    p = np.random.default_rng(0).beta(2, 4, 60)
    series = pd.Series(p, name=name)
    calibrator = TemperatureScaling(input="probabilities").fit(p, labels)
    for refused in (
        lambda: TemperatureScaling(input="probabilities").fit(series, labels),
        lambda: metrics.mean_bias(labels, series),
        lambda: Predictions.from_probabilities(series, labels),
        lambda: blocks([(series, labels)], input="probabilities"),
        lambda: blocks([(series, labels)], input="probabilities", positive_label=1),
        lambda: calibrator.predict_proba(series),
        lambda: calibrator.score(series, labels),
        lambda: CalibrationMonitor().update(series, labels),
        lambda: best_actions(series, [[0.0, 1.0], [4.0, 0.0]]),
    ):
        with pytest.raises(DataError, match=r"must be about '(1|True)', the positive class, or without a name"):
            refused()
    about_0 = Predictions.from_probabilities(series, labels, positive_label=0)
    assert metrics.mean_bias(about_0) == pytest.approx(p.mean() - 0.5)
    in_blocks = blocks([(series, labels)], input="probabilities", positive_label=0)
    wanted = TemperatureScaling(input="probabilities").fit(about_0).temperature_
    assert TemperatureScaling(input="probabilities").fit(in_blocks).temperature_ == pytest.approx(wanted)


def test_a_series_called_by_a_number_says_nothing_about_classes_0_and_1():
    p = pd.DataFrame([0.2, 0.9, 0.4])[0]
    assert metrics.mean_bias([0, 1, 0], p) == pytest.approx(p.mean() - 1 / 3)
    assert metrics.mean_bias([0, 1, 0], p.rename("0"), classes=["0", "1"]) == pytest.approx(p.mean() - 1 / 3)
