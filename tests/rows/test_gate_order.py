"""Columns in another order, or of numbers and labels: what one entry refuses or puts in order, all of them do."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from helpers import draw_logits
from refocal import GroupCalibration, MultiLabelCalibration, TemperatureScaling, VectorScaling, metrics
from refocal.decide import best_actions, evaluate_decisions
from refocal.engine import Pass
from refocal.errors import DataError, LabelError, ParameterError, ShapeError
from refocal.evaluate import evaluate
from refocal.io import (
    MultiLabelPredictions,
    Predictions,
    TopK,
    apply,
    blocks,
    multiple_choice,
    open_rows,
    read,
    read_multilabel,
    rows_of,
)

NAMES = np.array(["cat", "dog", "emu"])


@pytest.fixture
def rows():
    """Logits whose columns are far from interchangeable, and the column of each label."""
    logits, labels = draw_logits(900, 3)
    return 2.0 * logits + np.array([0.0, 1.0, -1.0]), labels


@pytest.fixture
def several():
    """Log-odds of two labels, of which the first applies far more often, and whether they apply."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(800, 2)) + np.array([1.5, -1.5])
    return scores, (rng.random(scores.shape) < 1 / (1 + np.exp(-scores))).astype(int)


@pytest.mark.parametrize("name", ["p_{}", "prob_{}", "P_{}", "p{}", "probability_{}"])
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_numbered_columns_of_probabilities_are_probabilities(tmp_path, rows, name, order):
    logits, labels = rows
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    frame = pd.DataFrame({name.format(i): p[:, i] for i in order}).assign(label=labels)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    expected = -np.mean(np.log(p[np.arange(len(p)), labels]))
    found = read(tmp_path / "rows.csv")
    assert found.input == open_rows(tmp_path / "rows.csv").input == "probabilities"
    assert metrics.log_loss(found) == pytest.approx(expected, rel=1e-9)
    rounded = frame.assign(**{name.format(1): frame[name.format(1)] + 0.01})
    rounded.to_csv(tmp_path / "rounded.csv", index=False)
    with pytest.raises(DataError, match=r"sum to 1|a sum of"):
        read(tmp_path / "rounded.csv")


def test_actions_are_those_of_the_classes_that_columns_are_called_by(rows):
    logits, labels = rows
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    costs = np.array([[0.0, 3.0, 9.0], [1.0, 0.0, 9.0], [20.0, 30.0, 0.0]])
    expected = np.argmin(p @ costs, axis=1)
    for names in (["0", "1", "2"], ["p_0", "p_1", "p_2"], [0, 1, 2]):
        frame = pd.DataFrame(p, columns=names)[[names[2], names[0], names[1]]]
        np.testing.assert_array_equal(best_actions(frame, costs).action, expected)
        cost = evaluate_decisions(labels, frame, costs).cost.value
        assert cost == pytest.approx(costs[labels, expected].mean(), rel=1e-12)
    predictions = Predictions.from_probabilities(p, labels)
    np.testing.assert_array_equal(best_actions(predictions, costs).action, expected)


@pytest.mark.parametrize("names", [("new_york", "new_jersey"), ("cat", "car"), ("a", "b")])
def test_labels_belong_to_scores_by_what_tells_their_names_apart(tmp_path, several, names):
    scores, labels = several
    of_scores = pd.DataFrame(scores, columns=[f"score_{name}" for name in names])
    of_labels = pd.DataFrame(labels, columns=[f"label_{name}" for name in names])
    swapped = of_labels[of_labels.columns[::-1]]
    p = 1 / (1 + np.exp(-of_scores))
    entries = [
        lambda y: metrics.brier_score(y, p),
        lambda y: MultiLabelPredictions.from_log_odds(of_scores, y),
        lambda y: MultiLabelCalibration().fit(of_scores, y),
        lambda y: TemperatureScaling(input="log-odds").fit(of_scores, y),
    ]
    for entry in entries:
        entry(of_labels)
        with pytest.raises(ShapeError, match="in the order of those of the scores"):
            entry(swapped)
    pd.concat([of_scores, swapped], axis=1).to_csv(tmp_path / "rows.csv", index=False)
    found = read_multilabel(tmp_path / "rows.csv")
    np.testing.assert_array_equal(found.labels, labels)
    assert found.class_names == tuple(names)


def test_a_label_that_is_unknown_in_all_rows_has_the_common_calibrator(several):
    scores, labels = several
    x = np.column_stack([scores[:, 0], scores])
    y = np.column_stack([np.full(len(labels), 9), labels])
    fitted = MultiLabelCalibration(method="ts", per_label=True).fit(x, y, ignore_index=9)
    without = MultiLabelCalibration(method="ts", per_label=True).fit(scores, labels)
    assert (fitted.slope_[0], fitted.intercept_[0]) == (1.0, 0.0)
    np.testing.assert_allclose(fitted.slope_[1:], without.slope_)
    np.testing.assert_allclose(fitted.predict_proba(x)[:, 1:], without.predict_proba(scores), rtol=1e-9)
    rows = MultiLabelPredictions.from_log_odds(x, y, ignore_index=9)
    p = fitted.predict_proba(x)[:, 1:]
    expected = -np.mean(np.log(np.where(labels == 1, p, 1 - p)))
    losses = evaluate(rows, {"own": fitted}).methods[-1].measures["log_loss"]
    assert losses.value == pytest.approx(expected, rel=1e-6)


def test_columns_of_several_labels_are_those_of_the_fit(several):
    scores, labels = several
    frame = pd.DataFrame(scores)
    for fitted, moved in (
        (MultiLabelCalibration().fit(frame, labels), frame[[1, 0]]),
        (MultiLabelCalibration().fit(scores, labels, class_names=["a", "b"]), pd.DataFrame(scores, columns=["b", "a"])),
    ):
        for given in (moved, dd.from_pandas(moved, npartitions=2)):
            with pytest.raises(ShapeError, match="in the order of the classes"):
                fitted.predict_proba(given)


def test_rows_of_weight_0_of_several_labels_have_no_say(several):
    scores, labels = several
    weight = np.ones(len(scores))
    weight[::3] = 0.0
    rows = MultiLabelPredictions.from_log_odds(scores, labels, weight=weight)
    some = MultiLabelPredictions.from_log_odds(scores[weight > 0], labels[weight > 0])
    np.testing.assert_array_equal(rows.pooled().values, some.pooled().values)
    expected = evaluate(some, {}).methods[0].measures["log_loss"].value
    assert evaluate(rows, {}).methods[0].measures["log_loss"].value == pytest.approx(expected, rel=1e-9)


def test_a_dask_frame_in_another_order_is_refused_as_one_of_pandas(rows):
    logits, labels = rows
    frame = pd.DataFrame(logits, columns=NAMES)
    groups = np.where(np.arange(len(labels)) % 2, "u", "v")
    moved = dd.from_pandas(frame[["emu", "cat", "dog"]], npartitions=3)
    in_groups = GroupCalibration(method="ts").fit(frame, NAMES[labels], groups=groups)
    with pytest.raises(ValueError, match="same order"):
        in_groups.predict_proba(moved, groups=groups)
    same = dd.from_pandas(frame, npartitions=3)
    expected = in_groups.predict_proba(frame, groups=groups)
    np.testing.assert_allclose(in_groups.predict_proba(same, groups=groups).compute(), expected, rtol=1e-12)
    on_array = VectorScaling().fit(logits, NAMES[labels])
    with pytest.raises(ShapeError, match="in the order of the classes, cat, dog, emu"):
        on_array.predict(moved)


def test_a_dask_series_of_another_index_is_refused(rows):
    logits, labels = rows
    frame = pd.DataFrame(logits, columns=NAMES)
    series = pd.Series(NAMES[labels])
    shuffled = frame.set_axis(np.random.default_rng(0).permutation(len(frame)), axis=0)
    given = dd.from_pandas(shuffled, npartitions=3, sort=False)
    with pytest.raises(DataError, match="'y' of fit must be a Series with the index of X"):
        TemperatureScaling().fit(given, dd.from_pandas(series, npartitions=3, sort=False))
    same = series.set_axis(shuffled.index)
    fitted = TemperatureScaling().fit(given, dd.from_pandas(same, npartitions=3, sort=False))
    assert fitted.temperature_ == pytest.approx(TemperatureScaling().fit(frame, series).temperature_, rel=1e-9)
    with pytest.raises(ParameterError, match="'sample_weight' of fit must be the name of a column"):
        TemperatureScaling().fit(given, dd.from_pandas(same, npartitions=3, sort=False), np.ones(len(labels)))
    by_number = TemperatureScaling().fit(given, labels)
    assert by_number.temperature_ == pytest.approx(fitted.temperature_, rel=1e-9)


def test_blocks_without_weights_beside_those_with_weights_count_as_ones(rows):
    logits, labels = rows
    weight = np.full(400, 0.001)
    first = slice(0, len(labels) - 400)
    last = slice(len(labels) - 400, None)
    given = blocks([(logits[first], labels[first], None), (logits[last], labels[last], weight)])
    whole = np.concatenate([np.ones(len(labels) - 400), weight])
    expected = TemperatureScaling().fit(logits, labels, whole)
    found = TemperatureScaling().fit(given)
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-7)
    assert found.fit_report_["before"]["log_loss"] == pytest.approx(
        expected.fit_report_["before"]["log_loss"], rel=1e-9
    )


def test_blocks_in_several_orders_refuse_column_numbers(rows):
    logits, labels = rows
    frame = pd.DataFrame(logits, columns=NAMES)
    moved = frame[["emu", "cat", "dog"]]
    half = len(labels) // 2
    by_name = NAMES[labels]
    fitted = TemperatureScaling().fit(blocks([(frame[:half], by_name[:half]), (moved[half:], by_name[half:])]))
    expected = TemperatureScaling().fit(logits, labels).temperature_
    assert fitted.temperature_ == pytest.approx(expected, rel=1e-7)
    numbers = np.array([1, 2, 0])[labels]
    with pytest.raises(LabelError, match="columns in several orders"):
        TemperatureScaling().fit(blocks([(frame[:half], labels[:half]), (moved[half:], numbers[half:])]))
    for first, second in ((logits, moved), (frame, logits)):
        with pytest.raises(ShapeError, match="all have names of columns, or none"):
            TemperatureScaling().fit(blocks([(first[:half], labels[:half]), (second[half:], labels[half:])]))
    counted = pd.DataFrame(logits)
    mixed = TemperatureScaling().fit(blocks([(counted[:half], labels[:half]), (logits[half:], labels[half:])]))
    assert mixed.temperature_ == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("names", [[1, 0], ["1", "0"], ["p1", "p0"], [True, False], ["False", "True"], ["no", "yes"]])
def test_blocks_and_dask_frames_are_about_the_class_that_rows_in_memory_are_about(names):
    logits, numbers = draw_logits(600, 2)
    logits = logits + np.array([0.0, 1.0])
    frame = pd.DataFrame(logits, columns=[str(name) for name in names] if names[0] == "p1" else names)
    labels = np.array([1, 0] if names[0] == "p1" else names)[numbers]
    held = Predictions.from_logits(frame, labels)
    expected = metrics.mean_bias(held)
    assert abs(expected) > 0.01
    as_text = frame.rename(columns=str)  # Dask has columns of one kind
    lazy = dd.from_pandas(as_text.assign(label=labels), npartitions=2)
    in_blocks = {
        "blocks": blocks([(frame[:250], labels[:250]), (frame[250:], labels[250:])]),
        "dask": rows_of(lazy, "label"),
    }
    for name, dataset in in_blocks.items():
        fitted = TemperatureScaling(temperatures=[1.0]).fit(dataset)
        assert [str(label) for label in fitted.classes_] == [str(label) for label in held.classes], name
        measured = evaluate(dataset, {"as it is": fitted})
        assert measured.before.measures["mean_bias"].value == pytest.approx(expected, abs=1e-6), name
    # A fit keeps the order of a data frame.
    by_fit = TemperatureScaling().fit(lazy[list(as_text.columns)], lazy["label"])
    np.testing.assert_array_equal(by_fit.classes_, TemperatureScaling().fit(as_text, labels).classes_)


@pytest.mark.parametrize("positive", ["0", "1"])
def test_blocks_of_columns_0_and_1_in_both_orders_have_a_positive_label(positive):
    logits, numbers = draw_logits(600, 2)
    frame = pd.DataFrame(logits + np.array([0.0, 1.0]), columns=["0", "1"])
    labels = numbers.astype(str)
    in_both = [(frame[:250], labels[:250]), (frame[250:][["1", "0"]], labels[250:])]
    dataset = blocks(in_both, positive_label=positive)
    measured = evaluate(dataset, {"as it is": TemperatureScaling(temperatures=[1.0]).fit(dataset)})
    expected = metrics.mean_bias(Predictions.from_logits(frame, labels, positive_label=positive))
    assert measured.before.measures["mean_bias"].value == pytest.approx(expected, abs=1e-6)


def test_groups_are_those_of_predictions_or_those_given_with_them(rows):
    logits, labels = rows
    region = np.where(np.arange(len(labels)) % 3, "north", "south")
    plain = Predictions.from_logits(logits, labels)
    grouped = plain.with_groups({"region": region})
    expected = GroupCalibration(method="ts").fit(logits, labels, groups={"region": region})
    for fitted in (
        GroupCalibration(method="ts").fit(grouped),
        GroupCalibration(method="ts").fit(plain, groups={"region": region}),
    ):
        assert fitted.lines_["region"].slope == pytest.approx(expected.lines_["region"].slope)
    with pytest.raises(ParameterError, match=r"'groups' .* left out where X are Predictions"):
        GroupCalibration(method="ts").fit(grouped, groups={"other": region})
    by_rows = expected.predict_proba(logits, groups={"region": region})
    np.testing.assert_allclose(expected.predict_proba(grouped), by_rows, rtol=1e-12)


def test_one_number_per_row_is_about_the_second_class_of_a_calibrator(tmp_path):
    rng = np.random.default_rng(0)
    p = rng.random(400)
    happens = rng.random(400) < p**2
    pd.DataFrame({"p_True": p, "p_False": 1 - p, "label": happens}).to_csv(tmp_path / "two.csv", index=False)
    pd.DataFrame({"p": 1 - p}).to_csv(tmp_path / "one.csv", index=False)
    fitted = TemperatureScaling(input="probabilities").fit(read(tmp_path / "two.csv"))
    apply(fitted, tmp_path / "one.csv", tmp_path / "out.csv")
    written = pd.read_csv(tmp_path / "out.csv")["p"]
    np.testing.assert_allclose(written, fitted.predict_proba(1 - p)[:, 1], rtol=1e-9)


@pytest.mark.parametrize("labels", [["a", "b"], [0.5, 1.0]])
def test_labels_of_language_models_are_whole_numbers(labels):
    with pytest.raises((DataError, LabelError), match="labels"):
        TopK(np.log([[0.5, 0.2], [0.7, 0.2]]), [[3, 0], [1, 2]], labels, n_classes=4)
    with pytest.raises((DataError, LabelError), match="labels"):
        multiple_choice([[-1.2, -0.3], [-2.0, -0.1]], labels)


def test_a_label_that_is_no_name_is_refused_where_a_column_has_an_empty_name():
    p = np.array([[0.7, 0.3], [0.2, 0.8]])
    with pytest.raises((LabelError, ShapeError)):
        Predictions.from_probabilities(p, ["cat", "dog"], class_names=["cat", ""])


@pytest.mark.parametrize("labels", [[0, 1, 255], [-1, 0, 1], ["a", "b"], [3, 5]])
def test_labels_of_blocks_are_refused_as_those_in_memory_are(rows, labels):
    logits, _ = rows
    given = np.resize(np.array(labels), len(logits))
    with pytest.raises(LabelError) as in_memory:
        TemperatureScaling().fit(logits, given)
    with pytest.raises(LabelError) as by_dask:
        TemperatureScaling().fit(da.from_array(logits, chunks=(300, 3)), da.from_array(given, chunks=300))
    assert str(by_dask.value).partition("must be")[2] == str(in_memory.value).partition("must be")[2]


@pytest.mark.parametrize("columns", [["True", "False"], [True, False], ["1", "0"], ["p_True", "p_False"]])
@pytest.mark.parametrize("form", [int, bool, str])
@pytest.mark.filterwarnings("ignore:X has feature names")
def test_columns_that_are_called_by_truths_are_in_the_order_of_classes_that_are_numbers(columns, form):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(60, 2))
    numbers = rng.integers(2, size=60)
    for labels in (numbers.astype(form), numbers.astype(bool).astype(form)):
        fitted = TemperatureScaling().fit(logits, labels)
        with pytest.raises(ShapeError, match="of columns in the order of the classes"):
            fitted.predict_proba(pd.DataFrame(logits, columns=columns))
        p = fitted.predict_proba(pd.DataFrame(logits, columns=columns[::-1]))
        np.testing.assert_array_equal(p, fitted.predict_proba(logits))


@pytest.mark.parametrize("beginning", ["", "logit_", "p_", "prob."])
@pytest.mark.parametrize(
    "names", [["class_1", "class_2", "class_3"], ["class_0", "class_1", "class_2"], ["p_x", "p_y", "p_z"]]
)
@pytest.mark.parametrize("carrier", ["frame", "file", "array"])
def test_labels_may_have_a_part_of_the_beginning_that_columns_share(tmp_path, beginning, names, carrier):
    """Of p_class_1 and p_class_2 the classes are 1 and 2, and labels may be class_1 and class_2."""
    logits, truth = draw_logits(60, 3)
    labels = np.array(names)[truth]
    columns = [f"{beginning}{name}" for name in names]
    table = pd.DataFrame(logits, columns=columns)
    if carrier == "frame":
        rows = Predictions.from_logits(table, labels)
    elif carrier == "file":
        table.assign(label=labels).to_csv(tmp_path / "rows.csv", index=False)
        rows = read(tmp_path / "rows.csv", input="logits", values=",".join(columns))
    else:
        np.savez(tmp_path / "rows.npz", logits=logits, labels=labels, class_names=np.array(columns))
        rows = read(tmp_path / "rows.npz")
    np.testing.assert_array_equal(rows.labels, truth)


@pytest.mark.parametrize("beginning", ["class_", "logit_", "p"])
def test_labels_that_are_whole_names_of_columns_that_count_are_these_columns(beginning, tmp_path):
    """In the order of the columns: that of text has class_10 before class_2."""
    logits, labels = draw_logits(600, 12)
    names = np.array([f"{beginning}{i}" for i in range(12)])
    table = pd.DataFrame(logits, columns=names)
    expected = TemperatureScaling().fit(logits, labels).temperature_
    named = names[labels]
    with_labels = table.assign(label=named)
    with_labels.to_csv(tmp_path / "rows.csv", index=False)
    rows = {
        "frame": (table, named),
        "Predictions": (Predictions.from_logits(table, named),),
        "Dask": (dd.from_pandas(with_labels, 2), "label"),
        "blocks": (blocks([(table[:50], named[:50]), (table[50:], named[50:])]),),
    }
    for carrier, given in rows.items():
        fitted = TemperatureScaling().fit(*given)
        assert fitted.temperature_ == pytest.approx(expected, rel=1e-9), carrier
        assert fitted.classes_.tolist() == names.tolist(), carrier
    for given in (read, open_rows):
        fitted = TemperatureScaling().fit(given(tmp_path / "rows.csv", input="logits", values=f"{beginning}*"))
        assert fitted.temperature_ == pytest.approx(expected, rel=1e-9)
        assert fitted.classes_.tolist() == list(range(12))
    p = table.mul(0.0).add(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))
    assert metrics.accuracy(named, p) == np.mean(logits.argmax(axis=1) == labels)
    with pytest.raises(LabelError, match="must be integers"):
        Predictions.from_logits(table, np.where(labels == 0, "other", named))


@pytest.mark.parametrize("positive", [0, 1])
def test_the_positive_label_may_be_the_whole_name_of_a_column_that_counts(positive, tmp_path):
    logits, labels = draw_logits(60, 2)
    names = np.array(["class_0", "class_1"])
    table = pd.DataFrame(logits, columns=names)
    table.assign(label=names[labels]).to_csv(tmp_path / "rows.csv", index=False)
    options = {"positive_label": names[positive]}
    of_label = np.take_along_axis(logits, labels[:, None], axis=1).ravel()
    collect = Pass(lambda block: block.logits[np.arange(block.n_rows), block.labels], lambda one, two: np.r_[one, two])
    rows = Predictions.from_logits(table, names[labels], **options)
    np.testing.assert_array_equal(rows.values[np.arange(60), rows.labels], of_label)
    assert rows.classes[1] == names[positive]
    in_memory = read(tmp_path / "rows.csv", input="logits", **options)
    np.testing.assert_allclose(in_memory.values[np.arange(60), in_memory.labels], of_label)
    opened = open_rows(tmp_path / "rows.csv", input="logits", **options)
    for given in (blocks([(table, names[labels])], **options), opened):
        np.testing.assert_allclose(given.reduce(collect), of_label)
        assert given.classes[1] == names[positive]
