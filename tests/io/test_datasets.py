"""Rows in blocks give what rows in memory give, however they are cut and ordered."""

from __future__ import annotations

import json

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from block_rows import Pairs, make_rows
from refocal import (
    FocalCalibration,
    FocalTemperatureScaling,
    IsotonicCalibration,
    MatrixScaling,
    PredictionSets,
    StructuredVectorScaling,
    TemperatureScaling,
    VectorScaling,
    load,
)
from refocal.calibrators.fitted import focal_point
from refocal.engine import dataset
from refocal.errors import DataError, FitWarning, InputWarning, LabelError, ParameterError, ShapeError, UnsupportedError
from refocal.evaluate import Evaluation, evaluate
from refocal.io import Predictions, blocks, load_sample, open_rows, rows_of
from refocal.io.parts import Mapped
from refocal.metrics import accuracy, brier_score, expected_calibration_error, log_loss

pytestmark = [pytest.mark.core, pytest.mark.numerics]

LOGITS, LABELS = make_rows(6000, 5)


@pytest.fixture
def small_sample(monkeypatch):
    """A sample that is far smaller than the rows, so that searches must look at all of them."""
    monkeypatch.setattr(dataset, "SAMPLE_ROWS", 700)


@pytest.mark.slow
@pytest.mark.parametrize(
    "calibrator",
    [
        TemperatureScaling(),
        FocalTemperatureScaling(objective="nll"),
        FocalCalibration(objective="nll"),
        FocalCalibration(gamma=0.5),
    ],
    ids=repr,
)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_fit_is_that_of_memory(calibrator, weighted):
    weight = np.random.default_rng(1).uniform(0.0, 3.0, len(LABELS)) if weighted else None
    arrays = (LOGITS, LABELS) if weight is None else (LOGITS, LABELS, weight)
    expected = focal_point(calibrator.fit(LOGITS, LABELS, weight).chain_)
    report = calibrator.fit_report_
    found = calibrator.fit(blocks(Pairs(*arrays, cuts=(1, 1000, 1000, 5900))))
    np.testing.assert_allclose(focal_point(found.chain_), expected, rtol=1e-9, atol=1e-9)
    assert found.fit_report_["n_samples"] == 6000
    for when in ("before", "after"):
        for measure, value in report[when].items():
            tolerance = 1e-4 if measure == "ece" else 1e-8
            assert found.fit_report_[when][measure] == pytest.approx(value, abs=tolerance), (when, measure)


@pytest.mark.slow
@pytest.mark.parametrize("make", [VectorScaling, StructuredVectorScaling, MatrixScaling])
@pytest.mark.parametrize("weighted", [False, True])
def test_affine_maps_in_blocks(make, weighted):
    logits = LOGITS.astype(np.float64) + np.array([0.5, 0.0, 0.0, 0.0, -0.5])
    weight = np.random.default_rng(1).uniform(0.5, 3.0, len(LABELS)) if weighted else None
    arrays = (logits, LABELS) if weight is None else (logits, LABELS, weight)
    expected = make(strength=1.0).fit(logits, LABELS, weight)
    found = make().fit(blocks(Pairs(*arrays, cuts=(1000, 1000, 5900))))
    assert found.fit_report_["after"]["log_loss"] == pytest.approx(expected.fit_report_["after"]["log_loss"], abs=1e-7)
    np.testing.assert_allclose(found.predict_proba(logits), expected.predict_proba(logits), atol=1e-6)
    with pytest.raises(UnsupportedError, match="with focal=True needs all rows in memory"):
        make(focal=True).fit(blocks(Pairs(*arrays)))


@pytest.mark.slow
@pytest.mark.usefixtures("small_sample")
@pytest.mark.parametrize("make", [TemperatureScaling, FocalTemperatureScaling])
@pytest.mark.parametrize("objective", ["ece", "auto", "brier_score"])
def test_a_search_of_a_grid_finds_what_memory_finds(make, objective):
    logits, labels = make_rows(12_000, 4)
    grid = {"temperatures": np.geomspace(0.8, 4.0, 8)} | ({} if make is TemperatureScaling else {"gammas": (0.0, 1.0)})
    calibrator = make(objective=objective, search="grid", **grid)
    expected = focal_point(calibrator.fit(logits, labels).chain_)
    value = calibrator.solution_.value
    found = calibrator.fit(blocks(Pairs(logits, labels, cuts=(2500,))))
    assert focal_point(found.chain_) == expected
    # Histograms leave a doubt of less than 1e-4 of ECE, which the default rule weighs five times.
    assert found.solution_.value == pytest.approx(value, abs=5e-4 if objective == "auto" else 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sample", "objective"),
    [
        ("cifar10-cross-entropy", "ece"),
        pytest.param("cifar10-cross-entropy", "auto", marks=pytest.mark.long),
        ("cifar100-focal7", "auto"),
    ],
)
def test_of_a_real_network_the_error_is_that_of_memory(sample, objective, monkeypatch):
    both = load_sample(sample)
    logits, labels = (np.concatenate([getattr(each, name) for each in both]) for name in ("values", "labels"))
    calibrator = FocalTemperatureScaling(objective=objective)
    expected = expected_calibration_error(labels, calibrator.fit(logits, labels).predict_proba(logits))
    monkeypatch.setattr(dataset, "SAMPLE_ROWS", 1500)
    calibrator.fit(blocks(Pairs(logits, labels, cuts=(7000,))))
    found = expected_calibration_error(labels, calibrator.predict_proba(logits))
    assert abs(found - expected) < 1e-4
    assert calibrator.fit_report_["after"]["ece"] == pytest.approx(found, abs=1e-4)
    if objective == "ece":
        assert calibrator.solution_.value == pytest.approx(found, abs=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("small_sample")
def test_the_line_search_and_the_automatic_grid_walk_too():
    logits, labels = make_rows(24_000, 4, dtype=np.float64)
    line = FocalTemperatureScaling(objective="ece", search="line", temperatures=np.geomspace(1.0, 3.0, 9))
    auto = TemperatureScaling(objective="ece", temperatures=None)
    for calibrator in (line, auto):
        calibrator.fit(blocks(Pairs(logits, labels, cuts=(9_000,))))
        ece = expected_calibration_error(labels, calibrator.predict_proba(logits))
        assert calibrator.solution_.value == pytest.approx(ece, abs=1e-4)
        assert calibrator.fit_report_["after"]["ece"] == pytest.approx(ece, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["nll", "ece"])
def test_order_and_partition_do_not_matter(objective, monkeypatch):
    monkeypatch.setattr(dataset, "SAMPLE_ROWS", 700)
    calibrator = FocalTemperatureScaling(
        objective=objective, **({} if objective == "nll" else {"temperatures": (1.5, 1.8, 2.1), "gammas": (0.0, 0.5)})
    )
    first = focal_point(calibrator.fit(blocks(Pairs(LOGITS, LABELS))).chain_)
    values = calibrator.fit_report_["after"]
    for seed, cuts in enumerate([(10, 20, 30, 5000), tuple(range(500, 6000, 500))]):
        order = np.random.default_rng(seed).permutation(len(LABELS))
        calibrator.fit(blocks(Pairs(LOGITS[order], LABELS[order], cuts=cuts)))
        np.testing.assert_allclose(focal_point(calibrator.chain_), first, rtol=1e-9)
        assert calibrator.fit_report_["after"] == pytest.approx(values, rel=1e-9)


@pytest.mark.slow
def test_a_mapped_file_is_read_in_windows(tmp_path, monkeypatch):
    logits, labels = make_rows(9000, 7, dtype=np.float16)
    np.save(tmp_path / "logits.npy", logits)
    np.save(tmp_path / "labels.npy", labels.astype(np.uint8))
    mapped = np.load(tmp_path / "logits.npy", mmap_mode="r")[1000:]
    window = Mapped.of(mapped)
    assert isinstance(window, Mapped)
    np.testing.assert_array_equal(window[5:7777], logits[1005:8777])
    assert window[8000:].shape == (0, 7)
    assert not isinstance(Mapped.of(mapped[::2]), Mapped)

    monkeypatch.setenv("REFOCAL_LARGE_FILE", "1")
    monkeypatch.setenv("REFOCAL_BLOCK_ENTRIES", str(7 * 1000))
    expected = TemperatureScaling().fit(logits[1000:], labels[1000:]).temperature_
    found = TemperatureScaling().fit(mapped, np.load(tmp_path / "labels.npy", mmap_mode="r")[1000:])
    assert found.temperature_ == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_blocks_of_tensors(dtype):
    x, y = torch.from_numpy(LOGITS).to(getattr(torch, dtype)), torch.from_numpy(LABELS)
    weight = torch.rand(len(y), generator=torch.Generator().manual_seed(0))
    expected = TemperatureScaling().fit(x.float().numpy(), LABELS, weight.numpy()).temperature_
    found = TemperatureScaling().fit(blocks(Pairs(x.requires_grad_(), y, weight, cuts=(70,)))).temperature_
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_probabilities_in_blocks():
    p = np.exp(LOGITS - LOGITS.max(axis=1, keepdims=True)).astype(np.float64)
    p /= p.sum(axis=1, keepdims=True)
    expected = TemperatureScaling(input="probabilities").fit(p, LABELS)
    found = TemperatureScaling(input="probabilities").fit(blocks(Pairs(p, LABELS, cuts=(70,)), input="probabilities"))
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)
    for whole, what in ((1, "probabilities"), (100, "percentages")):
        with pytest.warns(InputWarning, match=f"sum to {whole}, as {what} do"):
            TemperatureScaling().fit(blocks(Pairs(whole * p, LABELS)))
    with pytest.raises(DataError, match="rows of probabilities, as this calibrator takes"):
        TemperatureScaling(input="probabilities").fit(blocks(Pairs(p, LABELS)))


def test_labels_that_have_nothing_to_do_with_the_values_are_said_to():
    shuffled = np.random.default_rng(0).permutation(LABELS)
    with pytest.warns(FitWarning, match="the scores predict the labels no better than guessing"):
        TemperatureScaling().fit(blocks(Pairs(LOGITS, shuffled, cuts=(70,))))


@pytest.mark.slow
def test_evaluate_agrees_with_the_metrics_and_survives_json(tmp_path):
    fitted = {"ts": TemperatureScaling().fit(LOGITS, LABELS), "isotonic": IsotonicCalibration().fit(LOGITS, LABELS)}
    found = evaluate(blocks(Pairs(LOGITS, LABELS, cuts=(1000, 4000))), fitted)
    assert found.n_test == 6000
    for name, calibrator in fitted.items():
        log_p = calibrator.predict_log_proba(LOGITS.astype(np.float64))
        expected = {
            "log_loss": log_loss(LABELS, log_p),
            "brier_score": brier_score(LABELS, np.exp(log_p)),
            "accuracy": accuracy(LABELS, np.exp(log_p)),
        }
        for key, value in expected.items():
            assert found[name].measures[key].value == pytest.approx(value, rel=1e-5), (name, key)
        ece = expected_calibration_error(LABELS, np.minimum(np.exp(log_p), 1.0))
        assert found[name].measures["ece"].value == pytest.approx(ece, abs=1e-4)
        assert sum(found[name].histogram.right) == pytest.approx(6000 * expected["accuracy"])
        losses = -log_p[np.arange(6000), LABELS]
        assert found[name].measures["log_loss"].standard_error == pytest.approx(losses.std() / np.sqrt(6000), rel=1e-3)
    gap = found["ts"].against_none["log_loss"]
    bootstrap = evaluate_in_memory(fitted["ts"])["ts"].against_none["log_loss"]
    assert gap.difference == pytest.approx(bootstrap.difference, rel=1e-5)
    assert gap.high - gap.low == pytest.approx(bootstrap.high - bootstrap.low, rel=0.2)
    found.save(tmp_path / "e.json")
    again = Evaluation.from_dict(json.loads((tmp_path / "e.json").read_text()))
    assert again.methods == found.methods


def evaluate_in_memory(calibrator):
    return evaluate(Predictions.from_logits(LOGITS, LABELS), {"ts": calibrator}, n_resamples=300)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 7, pytest.param(25, marks=pytest.mark.long)])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_value_of_an_evaluation_is_that_of_memory_within_its_bound(n_classes, weighted):
    logits, labels = make_rows(9000, n_classes, seed=3)
    labels[labels == max(2, n_classes - 1)] = 0  # a class that never occurs is measured too
    weight = np.random.default_rng(1).uniform(0.0, 3.0, 9000) if weighted else None
    fitted = {"ts": TemperatureScaling().fit(logits, labels, weight)}
    arrays = (logits, labels) if weight is None else (logits, labels, weight)
    found = evaluate(blocks(Pairs(*arrays, cuts=(1, 1000, 1000, 5900))), fitted, chosen="ts")
    expected = evaluate(Predictions.from_logits(logits, labels, weight=weight), fitted, chosen="ts", n_resamples=1)
    for name in ("none", "ts"):
        values = found[name].values
        in_memory_alone = {"e_max"}
        exact = {key: value for key, value in expected[name].values.items() if key not in in_memory_alone}
        of_two = {"roc_auc_bound", "average_precision_bound"}
        of_more = {"aurc_bound", "e_aurc_bound", "augrc_bound"}
        areas = of_two if n_classes == 2 else of_more
        assert set(values) == {*exact, "ece_bound", *areas, *(f"{key}_bound" for key in set(exact) - {"smooth_ece"})}
        assert values["smooth_ece"] == pytest.approx(exact["smooth_ece"], abs=1e-7)
        for key in set(exact) - {"smooth_ece"}:
            # Memory computes these rows in single precision.
            assert abs(values[key] - exact[key]) <= values[f"{key}_bound"] + 1e-6, key
        assert values["classwise_ece_bound"] < 1e-3
        for mine, other in zip(found[name].classes, expected[name].classes, strict=True):
            assert (mine.label, mine.n, mine.predicted) == (other.label, other.n, other.predicted)
            for key in ("precision", "confidence"):
                assert getattr(mine, key) == pytest.approx(getattr(other, key), rel=1e-5)
            assert mine.ece == pytest.approx(other.ece, abs=1e-3)


@pytest.mark.slow
def test_an_evaluation_does_not_depend_on_order_and_partition():
    logits, labels = LOGITS[:3000], LABELS[:3000]
    order = np.random.default_rng(0).permutation(3000)
    first = evaluate(blocks(Pairs(logits, labels)), {}).before
    again = evaluate(blocks(Pairs(logits[order], labels[order], cuts=(1, 700, 2999))), {}).before
    assert again.values == pytest.approx(first.values, rel=1e-9, abs=1e-12)
    for key, interval in first.measures.items():
        assert again.measures[key].value == pytest.approx(interval.value, rel=1e-9)
    assert [row.ece for row in again.classes] == pytest.approx([row.ece for row in first.classes], rel=1e-9)


def test_options_of_an_evaluation_are_honoured_or_refused_for_blocks():
    for options in ({"n_resamples": 20}, {"seed": 1}):
        (name,) = options
        with pytest.raises(ParameterError, match=f"The '{name}' of evaluate must be left out for rows in blocks"):
            evaluate(blocks(Pairs(LOGITS[:300], LABELS[:300])), {}, **options)
    seen = []
    fitted = {
        "ts": TemperatureScaling().fit(LOGITS, LABELS),
        "wide": TemperatureScaling().fit(3.0 * np.eye(7), np.arange(7)),
    }
    found = evaluate(
        blocks(Pairs(LOGITS[:300], LABELS[:300])),
        fitted,
        fit_seconds={"ts": 1.5},
        progress=lambda *told: seen.append(told),
    )
    assert found["ts"].fit_seconds == 1.5
    assert "of 7 columns" in found.failed["wide"]
    assert {words for _, _, words in seen} == {"measuring", "looking at classes", "done"}
    assert not {"resamples", "seed"} & set(found.run)


def test_whoever_watches_the_rows_sees_the_passes_of_an_evaluation():
    rows, seen = blocks(Pairs(LOGITS[:300], LABELS[:300])), []
    rows.watch = mine = lambda done, total: seen.append(done)
    evaluate(rows, {})
    assert seen[-1] == 300
    assert rows.watch is mine


@pytest.mark.slow
def test_intervals_of_calibration_errors_in_blocks_are_those_of_memory():
    found = evaluate(blocks(Pairs(LOGITS, LABELS, cuts=(1000,))), {}).before.measures
    exact = evaluate(Predictions.from_logits(LOGITS, LABELS), {}).before.measures
    for key in ("ece", "squared_ece"):
        for end in ("low", "high"):
            assert getattr(found[key], end) == pytest.approx(getattr(exact[key], end), rel=0.05), key


@pytest.mark.slow
def test_a_report_can_be_drawn_from_it(tmp_path):
    from refocal.report import write_report

    found = evaluate(blocks(Pairs(LOGITS, LABELS)), {"ts": TemperatureScaling().fit(LOGITS, LABELS)})
    write_report(found, tmp_path / "r.html")
    assert "temperature scaling" in (tmp_path / "r.html").read_text()


def test_what_was_fitted_in_blocks_can_be_saved(tmp_path):
    fitted = FocalTemperatureScaling(objective="nll").fit(blocks(Pairs(LOGITS, LABELS)))
    fitted.save(tmp_path / "c.json")
    np.testing.assert_array_equal(load(tmp_path / "c.json").predict_proba(LOGITS[:5]), fitted.predict_proba(LOGITS[:5]))


def spoiled(row, column, value):
    logits = LOGITS.copy()
    logits[row, column] = value
    return logits


@pytest.mark.parametrize(
    ("pairs", "kind", "words"),
    [
        (Pairs(spoiled(1234, 2, np.nan), LABELS, cuts=(1000,)), DataError, "NaN in row 234 of block 1"),
        (Pairs(spoiled(5, 2, np.inf), LABELS), DataError, r"\+inf in row 5 of block 0"),
        (Pairs(LOGITS, np.where(np.arange(6000) == 77, 5, LABELS)), LabelError, "from 0 to 4. Got 5 in row 77"),
        (Pairs(LOGITS, LABELS, np.where(np.arange(6000) == 3, -1.0, 1.0)), DataError, "-1.0 in row 3"),
        (
            Pairs(np.ma.masked_less(LOGITS, -3.0), LABELS),
            DataError,
            "'X' of blocks must be .* without masked",
        ),
        (
            Pairs(LOGITS, np.ma.masked_equal(LABELS, 2)),
            DataError,
            "'y' of blocks must be .* without masked",
        ),
        (
            Pairs(LOGITS, LABELS, np.zeros(6000)),
            DataError,
            "above 0 for at least one row that has a label. Got a sum of 0",
        ),
        (Pairs(LOGITS, np.zeros(6000, int)), LabelError, "at least two classes"),
        (
            [(LOGITS, LABELS), (LOGITS[:, :4], LABELS)],
            ShapeError,
            r"of 5 columns in every block.*\(6000, 4\) in block 1",
        ),
        ([(LOGITS, LABELS[:7])], ShapeError, "one for each row"),
        ([(LOGITS[:0], LABELS[:0])], ShapeError, "at least one row"),
        ([(LOGITS, LABELS), LOGITS], DataError, "ndarray as block 1"),
    ],
)
def test_bad_blocks_are_named_and_leave_nothing_fitted(pairs, kind, words):
    calibrator = TemperatureScaling()
    with pytest.raises(kind, match=words):
        calibrator.fit(blocks(pairs))
    assert not hasattr(calibrator, "temperature_")


def test_bad_rows_can_be_skipped_and_are_counted():
    logits = spoiled([5, 4000], [2, 1], np.nan)
    labels = np.where(np.arange(6000) == 77, -1, LABELS)
    good = ~np.isin(np.arange(6000), [5, 77, 4000])
    found = TemperatureScaling().fit(blocks(Pairs(logits, labels, cuts=(50,)), skip_bad_rows=True))
    expected = TemperatureScaling().fit(LOGITS[good], LABELS[good])
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)
    assert (found.fit_report_["n_samples"], found.fit_report_["n_skipped"]) == (5997, 3)


@pytest.mark.parametrize("given", [[1, 2, 3], ["cat", "dog", "emu"], ["8", "9", "10"], [0, 1, 2]])
def test_labels_name_columns_without_names_also_where_bad_rows_are_skipped(given):
    logits, numbers = make_rows(300, 3)
    labels = np.array(given)[numbers]
    expected = TemperatureScaling().fit(logits, labels)
    found = TemperatureScaling().fit(rows_of(da.from_array(logits), da.from_array(labels), skip_bad_rows=True))
    assert found.classes_.tolist() == expected.classes_.tolist()
    assert found.fit_report_["n_samples"] == 300
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)


@pytest.mark.parametrize(("first", "bad"), [(0, 7), (0, 255), (1, 7), (1, 255)])
def test_bad_labels_of_columns_without_names_are_skipped_or_refused(first, bad):
    """Labels 0 … C-1 count columns whatever else there is; those from 1 on would count others."""
    logits, numbers = make_rows(300, 3)
    labels = numbers + first
    labels[:5] = bad
    rows = rows_of(da.from_array(logits), da.from_array(labels), skip_bad_rows=True)
    if first == 0:
        assert TemperatureScaling().fit(rows).fit_report_["n_skipped"] == 5
        return
    with pytest.raises(LabelError, match="Got 4 distinct labels from 1 to"):
        TemperatureScaling().fit(rows)


class Fading:
    """Blocks of which the last is missing from some iteration on; the first looks at the number of columns only."""

    def __init__(self, whole):
        self.whole, self.n_iterations = whole, 0

    def __iter__(self):
        self.n_iterations += 1
        pairs = [(LOGITS[i : i + 1000], LABELS[i : i + 1000]) for i in range(0, 6000, 1000)]
        yield from pairs if self.n_iterations <= self.whole else pairs[:-1]


@pytest.mark.parametrize("whole", [2, 3])
def test_rows_that_are_fewer_in_a_later_pass_are_an_error(whole):
    with pytest.raises(DataError, match=r"the same in every pass: 6,000 rows. Got 5,000 rows in a later pass"):
        TemperatureScaling().fit(blocks(Fading(whole)))


@pytest.mark.parametrize("n_lost", [1, 4])
def test_answers_that_a_map_loses_are_an_error(n_lost, tmp_path, monkeypatch):
    monkeypatch.setenv("REFOCAL_BLOCK_ENTRIES", str(1000 * LOGITS.shape[1]))
    np.savez(tmp_path / "rows.npz", logits=LOGITS, labels=LABELS)
    lossy = open_rows(tmp_path / "rows.npz", map=lambda run, parts: [run(part) for part in parts[n_lost:]])
    expected = rf"'map' .* one answer for each of 6 parts. Got {6 - n_lost} answers"
    with pytest.raises(DataError, match=expected):
        TemperatureScaling().fit(lossy)


def test_a_file_that_is_cut_after_it_was_opened_is_an_error(tmp_path):
    pd.DataFrame(LOGITS).add_prefix("logit_").assign(label=LABELS).to_parquet(tmp_path / "a.parquet")
    rows = open_rows(tmp_path / "a.parquet")
    pd.DataFrame(LOGITS[:4000]).add_prefix("logit_").assign(label=LABELS[:4000]).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"6,000 rows, as its parts say. Got 4,000 rows in the first pass"):
        TemperatureScaling().fit(rows)


def test_what_cannot_be_done_is_said_at_once(small_sample):
    with pytest.raises(DataError, match="iterable more than once"):
        blocks(pair for pair in [(LOGITS, LABELS)])
    with pytest.raises(UnsupportedError, match="IsotonicCalibration needs all rows in memory"):
        IsotonicCalibration().fit(blocks(Pairs(LOGITS, LABELS)))
    with pytest.raises(UnsupportedError, match="smooth_ece"):
        TemperatureScaling(objective="smooth_ece").fit(blocks(Pairs(LOGITS, LABELS)))
    with pytest.raises(LabelError, match="one label for each row"):
        rows_of(LOGITS, None)


@pytest.mark.parametrize(
    ("values", "labels", "names", "error", "argument"),
    [
        (LOGITS[:3], LABELS[:3], ("a", "b", "c", "d", "d"), ShapeError, "class_names"),
        (LOGITS[:3].astype(str), LABELS[:3], None, DataError, "X"),
        (LOGITS[:3], LABELS[:3].astype(complex), None, LabelError, "y"),
        (LOGITS[:3], np.array(["a", "b", "c"]), None, LabelError, "y"),
        (LOGITS[:3], np.array(["a", "b", "z"]), tuple("abcde"), LabelError, "y"),
        (LOGITS[:3], LABELS[:2], None, ShapeError, "y"),
    ],
)
def test_blocks_that_cannot_be_read_are_named(values, labels, names, error, argument):
    with pytest.raises(error, match=f"'{argument}'"):
        TemperatureScaling().fit(blocks([(LOGITS[:50], LABELS[:50]), (values, labels)][::-1], class_names=names))


def test_blocks_of_one_column_are_two_classes():
    p, labels = np.linspace(0.1, 0.9, 40), np.arange(40) % 2
    found = TemperatureScaling(input="probabilities").fit(blocks([(p, labels)], input="probabilities"))
    both = TemperatureScaling(input="probabilities").fit(np.stack([1.0 - p, p], axis=1), labels)
    assert found.temperature_ == pytest.approx(both.temperature_, rel=1e-9)


def test_what_was_changed_in_memory_alone_is_not_read_from_the_file(tmp_path, monkeypatch):
    """Also where the fit itself goes through a large file in blocks."""
    logits, labels = make_rows(300, 3, dtype=np.float64)
    np.save(tmp_path / "logits.npy", 3.0 * logits)
    np.save(tmp_path / "labels.npy", np.zeros(300, dtype=np.int64))
    changed = np.load(tmp_path / "logits.npy", mmap_mode="c")
    changed /= 3.0
    given = np.load(tmp_path / "labels.npy", mmap_mode="c")
    given[:] = labels
    expected = TemperatureScaling().fit(logits, labels).temperature_
    assert TemperatureScaling().fit(rows_of(changed, given)).temperature_ == pytest.approx(expected, rel=1e-9)
    monkeypatch.setenv("REFOCAL_LARGE_FILE", "1")
    assert TemperatureScaling().fit(changed, given).temperature_ == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("labels", [["no", "yes"], ["0", "1"], [False, True], [0, 1]])
def test_a_first_block_without_rows_says_nothing_of_the_others(labels):
    logits, column = make_rows(300, 2)
    given = np.array(labels)[column]
    region = {"region": np.array(["north", "south"])[column]}
    names = [str(label) for label in labels] if labels == ["no", "yes"] else None
    expected = TemperatureScaling().fit(blocks([(logits, given, None, region)], class_names=names))
    empty = (logits[:0], [])
    found = TemperatureScaling().fit(blocks([empty, (logits, given, None, region), empty], class_names=names))
    assert found.classes_.tolist() == expected.classes_.tolist() == labels
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)


TIMES = pd.Series(pd.to_datetime(["2026-01-31T10:00", "2026-02-01T10:00"] * 20, utc=True), name="time")


@pytest.mark.parametrize(
    "groups",
    [
        ["north", None, "south", float("nan")] * 10,
        ["north", 1.0] * 20,
        np.ma.array([0, 1] * 20, mask=[True] + [False] * 39),
        pd.Series([2**53 + 1, None] * 20, dtype="Int64", name="customer"),
        pa.array([2**53, 2**53 + 1] * 20),
        pl.from_pandas(TIMES),
        pd.DataFrame({"region": ["a", "b"] * 20, "age": [30.0, 50.5] * 20}),
        torch.arange(40) % 3,
    ],
)
@pytest.mark.parametrize("library", [np.asarray, lambda x: da.from_array(x, chunks=15)])
def test_groups_beside_arrays_are_those_of_memory(groups, library, monkeypatch):
    monkeypatch.setenv("REFOCAL_BLOCK_ENTRIES", "75")  # 15 rows
    logits, labels = make_rows(40, 5)
    expected = evaluate(Predictions.from_logits(logits, labels).with_groups(groups), {}).after.groups
    found = evaluate(rows_of(library(logits), library(labels), groups=groups), {}).after.groups
    assert {(row.column, row.name, row.n) for row in found} == {(row.column, row.name, row.n) for row in expected}


@pytest.mark.parametrize("rows", [Predictions.from_logits([[0.1, 0.2]], [1], weight=[2.0]), [[0.1, 0.2]]])
def test_rows_of_takes_arrays(rows):
    """Predictions beside weights, and lists, were an AttributeError about their shape."""
    with pytest.raises(DataError, match="The 'X' of rows_of must be an array, or a collection of Dask"):
        rows_of(rows, [1], [0.5])


@pytest.mark.parametrize("method", ["predict_proba", "predict_log_proba", "predict", "predict_set"])
def test_predictions_of_rows_in_blocks_are_refused_with_a_word_on_what_makes_them(method):
    kind = PredictionSets() if method == "predict_set" else TemperatureScaling()
    fitted = kind.fit(LOGITS[:500], LABELS[:500])
    with pytest.raises(UnsupportedError, match=r"takes rows in memory; refocal\.io\.apply writes"):
        getattr(fitted, method)(blocks([(LOGITS[:100], LABELS[:100])]))
