"""Rows without names for their classes are of the classes of the calibrator, in every command and kind of file."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import logsumexp

from helpers import draw_logits
from refocal import TemperatureScaling, VectorScaling, load
from refocal.cli.run import run
from refocal.errors import DataError, LabelError, ParameterError, Remedy
from refocal.evaluate import evaluate
from refocal.io import Predictions, blocks, open_rows, read
from refocal.monitor import CalibrationMonitor, backtest
from refocal.shift import update

# The two labels, the negative one first.
BINARY = [("1", "0"), ("2", "1"), ("1", "2"), ("no", "yes"), ("True", "False")]
CARRIERS = ["csv", "jsonl", "parquet", "npz"]
THREE = np.array([1, 2, 3])


def crossed(first, second):
    """All pairs, of which each of the first with one of the second, in turn, is tested in short runs too."""
    return [
        pytest.param(one, other, marks=[] if j == i % len(second) else [pytest.mark.long])
        for i, one in enumerate(first)
        for j, other in enumerate(second)
    ]


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """A function (arguments) → what a command says in JSON."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        capsys.readouterr()
        code = run([*map(str, arguments), "--json"])
        shown = capsys.readouterr()
        assert code == 0, shown.err
        return json.loads(shown.out)

    return call


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """A function (arguments) → the message of a command that fails."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        capsys.readouterr()
        assert run([*map(str, arguments)]) in (1, 2)
        return capsys.readouterr().err

    return call


def typed(labels):
    """Labels as a table would have them: numbers where they are numbers."""
    numbers = pd.to_numeric(pd.Series(labels), errors="coerce")
    return list(labels) if numbers.isna().any() else numbers.astype(int).tolist()


def write(path, columns):
    """Columns of a table, or arrays of a .npz file; a matrix is a column of lists."""
    if path.suffix == ".npz":
        np.savez(path, **{name: np.asarray(column) for name, column in columns.items()})
        return path
    cells = {name: np.asarray(column).tolist() for name, column in columns.items()}
    if path.suffix == ".parquet":
        pq.write_table(pa.table(cells), path)
    elif path.suffix == ".jsonl":
        lines = [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        pd.DataFrame(cells).to_csv(path, index=False)
    return path


def of_two(negative, positive, n=300, seed=0):
    """Overconfident probabilities of the positive class, and labels."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.7, 0.9, n)
    is_positive = rng.random(n) < p
    log_odds = 2.0 * np.log(p / (1.0 - p))
    return 1.0 / (1.0 + np.exp(-log_odds)), np.where(is_positive, positive, negative)


def fitted_on_one_number(cli, folder, names):
    """A calibrator of one number per row, about the second of two classes, and rows to use it on."""
    p, labels = of_two(*names)
    write(folder / "val.csv", {"p": p, "label": typed(labels)})
    cli("fit", "val.csv", "-m", "logistic", "--positive-label", names[1], "-o", "c.json")
    p, labels = of_two(*names, seed=1)
    calibrated = np.asarray(load(folder / "c.json").predict_proba(p))[:, 1]
    return p, labels, calibrated


def log_loss(probabilities, is_positive):
    """Mean of -log p of what happened, row by row."""
    terms = [-np.log(p if happened else 1.0 - p) for p, happened in zip(probabilities, is_positive, strict=True)]
    return sum(terms) / len(terms)


@pytest.mark.parametrize(("names", "carrier"), crossed(BINARY, CARRIERS))
def test_one_number_is_about_the_positive_class_of_the_calibrator(cli, tmp_path, names, carrier, monkeypatch):
    p, labels, calibrated = fitted_on_one_number(cli, tmp_path, names)
    file = write(tmp_path / f"test.{carrier}", {"p": p, "label" if carrier != "npz" else "labels": typed(labels)})
    is_positive = labels == names[1]
    expected = [log_loss(p, is_positive), log_loss(calibrated, is_positive)]

    for in_blocks in (False, True):
        monkeypatch.setenv("REFOCAL_LARGE_FILE", "10" if in_blocks else "1000000000")
        evaluation = cli("evaluate", file, "c.json", *([] if in_blocks else ["--resamples", 2]))
        measured = [method["measures"]["log_loss"]["value"] for method in evaluation["methods"]]
        assert measured == pytest.approx(expected, rel=1e-5)
    monkeypatch.delenv("REFOCAL_LARGE_FILE")

    cli("monitor", file, "--calibrator", "c.json", "--state", "state.json")
    watched = CalibrationMonitor.load("state.json")
    assert watched.summary().log_loss == pytest.approx(expected[1], rel=1e-6)
    assert watched.class_names == names

    # 0.2 is where a missed positive that costs four times as much is as dear as a false alarm.
    decisions = [names[int(q >= 0.2)] for q in calibrated]
    errors = [4 if happened else 1 for happened in is_positive]
    cost = np.mean([(one != other) * error for one, other, error in zip(decisions, labels, errors, strict=True)])
    costs = ("--calibrator", "c.json", "--false-positive", 1, "--false-negative", 4, "-o", "d.csv")
    said = cli("decide", file, *costs)
    written = pd.read_csv("d.csv", dtype=str)
    assert written["decision"].tolist() == decisions
    assert written["labels" if carrier == "npz" else "label"].tolist() == labels.tolist()
    assert said["reports"]["calibrated"]["cost"]["value"] == pytest.approx(cost)

    unlabelled = write(tmp_path / f"new.{carrier}", {"p": p})
    cli("decide", unlabelled, *costs)
    assert pd.read_csv("d.csv", dtype=str)["decision"].tolist() == decisions


@pytest.mark.parametrize("names", [BINARY[0], pytest.param(BINARY[1], marks=pytest.mark.long)])
def test_adapt_reads_one_number_as_the_fit_did(cli, tmp_path, names):
    p, labels, _ = fitted_on_one_number(cli, tmp_path, names)
    kept = (labels == names[0]) | (np.arange(len(p)) % 10 == 0)  # the positive class has become rare
    write(tmp_path / "rare.csv", {"p": p[kept]})
    shares = []
    for options in ([], ["--positive-label", names[1]]):
        files = ["c.json", "rare.csv", "--fit-rows", "val.csv", "-o", "a.json"]
        assert run(["adapt", *files, "--force", *options]) == 0
        adapted = load(tmp_path / "a.json")
        assert [str(name) for name in adapted.classes_] == list(names)  # numbers of a file are numbers
        shares.append(adapted.predict_proba([0.5])[0, 1])
    assert shares[0] == shares[1]
    assert shares[0] < load(tmp_path / "c.json").predict_proba([0.5])[0, 1] - 0.2


@pytest.mark.parametrize(
    ("command", "names"),
    crossed(["evaluate", "decide", "monitor", "adapt"], [("0", "1"), ("no", "yes")]),
)
def test_a_positive_label_that_contradicts_the_calibrator_is_refused(cli, refused, tmp_path, command, names):
    fitted_on_one_number(cli, tmp_path, names)
    arguments = {
        "evaluate": ["val.csv", "c.json"],
        "decide": ["val.csv", "--calibrator", "c.json", "--false-positive", 1, "--false-negative", 1],
        "monitor": ["val.csv", "--calibrator", "c.json"],
        "adapt": ["c.json", "val.csv"],
    }
    message = refused(command, *arguments[command], "--positive-label", names[0])
    about = "or left out: one number per row is about the positive class of the calibrator"
    assert f"--positive-label must be {names[1]!r} {about}" in message
    assert f"Got {names[0]!r}, as if it were about the other class" in message


def of_three(n=400):
    """Logits of classes 1, 2 and 3, and labels, of which none is 3."""
    logits, labels = draw_logits(n, 3, 0, scale=2.0)
    kept = labels < 2
    return 1.5 * logits[kept], THREE[labels[kept]]


def three_in_a_file(folder, carrier):
    """A calibrator of classes 1, 2 and 3, rows without names, and how a command is told of them."""
    logits, labels = draw_logits(500, 3, 1, scale=2.0)
    fitted = TemperatureScaling().fit(pd.DataFrame(1.5 * logits, columns=["1", "2", "3"]), THREE[labels])
    fitted.save(folder / "c.json")
    z, y = of_three()
    p = np.asarray(fitted.predict_proba(pd.DataFrame(z, columns=["1", "2", "3"])))
    if carrier == "npy":
        np.save(folder / "z.npy", z)
        np.save(folder / "y.npy", y)
        return [folder / "z.npy", "--labels", folder / "y.npy"], p, y
    write(folder / f"t.{carrier}", {"logits": z, "labels": y})
    return [folder / f"t.{carrier}"], p, y


@pytest.mark.parametrize(
    ("carrier", "options"), crossed(["npz", "npy", "jsonl", "parquet"], [(), ("--first-label", 1)])
)
def test_labels_of_columns_without_names_are_matched_with_the_classes(cli, tmp_path, carrier, options, monkeypatch):
    rows, p, y = three_in_a_file(tmp_path, carrier)
    columns = [THREE.tolist().index(label) for label in y]
    expected = -np.mean([np.log(p[i, column]) for i, column in enumerate(columns)])
    for in_blocks in (False, True):
        monkeypatch.setenv("REFOCAL_LARGE_FILE", "10" if in_blocks else "1000000000")
        evaluation = cli("evaluate", rows[0], "c.json", *rows[1:], *options, *([] if in_blocks else ["--resamples", 2]))
        assert evaluation["methods"][1]["measures"]["log_loss"]["value"] == pytest.approx(expected, rel=1e-5)
        assert evaluation["class_names"] == ["1", "2", "3"]
    monkeypatch.delenv("REFOCAL_LARGE_FILE")

    cli("monitor", *rows, *options, "--calibrator", "c.json", "--state", "state.json")
    assert CalibrationMonitor.load("state.json").summary().log_loss == pytest.approx(expected, rel=1e-6)

    costs = ("--costs", "0,1,1;1,0,1;1,1,0", "--calibrator", "c.json", "-o", "d.csv")
    said = cli("decide", *rows, *options, *costs)
    written = pd.read_csv("d.csv")
    decided = THREE[p.argmax(axis=1)]
    assert written["decision"].tolist() == decided.tolist()
    assert written["label" if carrier == "npy" else "labels"].tolist() == y.tolist()
    assert said["reports"]["calibrated"]["cost"]["value"] == pytest.approx(np.mean(decided != y))


def test_labels_that_fit_the_classes_and_the_columns_are_refused(cli, refused, tmp_path):
    three_in_a_file(tmp_path, "npz")
    z, y = of_three()
    np.savez(tmp_path / "t.npz", logits=z, labels=y - 1)  # 0 and 1
    message = refused("evaluate", "t.npz", "c.json", "--resamples", 2)
    assert "among the class names (1, 2, 3), or column numbers from 0 to 2, not both" in message
    cli("evaluate", "t.npz", "c.json", "--resamples", 2, "--first-label", 0)


def test_compare_reads_test_rows_without_names_as_the_classes_of_validation(cli, tmp_path):
    logits, labels = draw_logits(500, 3, 1, scale=2.0)
    columns = {f"logit_{name}": 1.5 * logits[:, i] for i, name in enumerate(THREE)}
    write(tmp_path / "val.csv", {**columns, "label": THREE[labels]})
    z, y = of_three()
    np.savez(tmp_path / "test.npz", logits=z, labels=y)
    write(tmp_path / "test.csv", {**{f"logit_{name}": z[:, i] for i, name in enumerate(THREE)}, "label": y})
    losses = [
        cli("compare", "val.csv", file, "-m", "ts", "--resamples", 2)["methods"][0]["measures"]["log_loss"]["value"]
        for file in ("test.npz", "test.csv")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


def test_columns_that_are_numbered_keep_their_numbers_and_the_positive_class_is_the_calibrators(cli, tmp_path):
    p, labels = of_two("1", "0")
    matrix = np.column_stack([p, 1.0 - p])  # of 0 and 1, in this order
    np.savez(tmp_path / "val.npz", probabilities=matrix, labels=typed(labels))
    cli("fit", "val.npz", "-m", "logistic", "--positive-label", "0", "-o", "c.json")
    assert load("c.json").classes_.tolist() == [1, 0]
    calibrated = np.asarray(load("c.json").predict_proba(p))[:, 1]
    cli("decide", "val.npz", "--calibrator", "c.json", "--false-positive", 1, "--false-negative", 4, "-o", "d.csv")
    written = pd.read_csv("d.csv", dtype=str)
    assert written["decision"].tolist() == ["0" if q >= 0.2 else "1" for q in calibrated]
    assert written["labels"].tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--positive-label", "2"], ["not 2", "2"]),
        (["--positive-label", "0"], ["1", "0"]),
        (["--positive-label", "1"], ["0", "1"]),
        ([], ["0", "1"]),
    ],
)
def test_decisions_on_rows_without_labels_are_called_by_the_positive_label(cli, tmp_path, options, names):
    write(tmp_path / "new.csv", {"id": [5, 6], "p": [0.99, 0.01]})
    said = cli("decide", "new.csv", *options, "--false-positive", 1, "--false-negative", 1, "-o", "d.csv")
    written = pd.read_csv("d.csv", dtype=str)
    assert written["decision"].tolist() == names[::-1]
    assert f"p_{names[1]}" in written.columns
    assert f"classes: {', '.join(names)}" in said["read"]
    assert f"positive: {names[1]};" in said["read"]


@pytest.mark.parametrize("order", [("p_1", "p_0"), ("p_0", "p_1")])
def test_the_positive_label_of_numbered_columns_without_labels_keeps_their_numbers(cli, tmp_path, order):
    p = {"p_0": [0.9, 0.3], "p_1": [0.1, 0.7]}
    write(tmp_path / "new.csv", {name: p[name] for name in order})
    costs = ("--false-positive", 1, "--false-negative", 1, "-o", "d.csv")
    cli("decide", "new.csv", "--positive-label", "0", *costs)
    written = pd.read_csv("d.csv", dtype={"decision": str})
    assert written["decision"].tolist() == ["0", "1"]
    assert written["p_0"].tolist() == pytest.approx([0.9, 0.3])


def test_decisions_count_columns_from_the_first_label(cli, tmp_path):
    z, y = of_three()
    np.savez(tmp_path / "t.npz", logits=z, labels=y)
    cli("decide", "t.npz", "--first-label", 1, "--costs", "0,1,1;1,0,1;1,1,0", "-o", "d.csv")
    written = pd.read_csv("d.csv")
    assert written["labels"].tolist() == y.tolist()
    assert written["decision"].tolist() == THREE[z.argmax(axis=1)].tolist()


def test_a_monitor_reads_one_number_as_in_earlier_batches(cli, tmp_path):
    p, labels = of_two("1", "0")
    write(tmp_path / "one.csv", {"p": p, "label": typed(labels)})
    cli("monitor", "one.csv", "--state", "s.json", "--period", "1", "--positive-label", "0")
    first = CalibrationMonitor.load("s.json").summary().log_loss
    cli("monitor", "one.csv", "--state", "s.json", "--period", "2")
    assert CalibrationMonitor.load("s.json").summary().log_loss == pytest.approx(first, rel=1e-12)


def test_read_and_open_rows_take_the_classes_of_a_calibrator(tmp_path):
    z, y = of_three()
    np.savez(tmp_path / "t.npz", logits=z, labels=y)
    rows = read(tmp_path / "t.npz", classes=THREE)
    assert (rows.labels == y - 1).all()
    assert rows.class_names == ("1", "2", "3")
    assert open_rows(tmp_path / "t.npz", classes=THREE).class_names == ("1", "2", "3")
    p, labels = of_two("1", "0")
    np.savez(tmp_path / "p.npz", probabilities=p, labels=typed(labels))
    rows = read(tmp_path / "p.npz", input="probabilities", classes=["1", "0"])
    assert (rows.class_names, rows.values[:, 1].tolist()) == (("1", "0"), p.tolist())
    assert (rows.labels == (labels == "0")).all()
    with pytest.raises(ParameterError, match="'positive_label' of read must be '0' or left out"):
        read(tmp_path / "p.npz", input="probabilities", classes=["1", "0"], positive_label=1)


@pytest.mark.parametrize("has_arrow", [True, False])
def test_an_empty_line_of_one_column_is_a_missing_value(refused, tmp_path, has_arrow, monkeypatch, capsys):
    """It was left out, so that the rows that were written stood beside others."""
    TemperatureScaling(input="probabilities").fit([0.2, 0.7, 0.9, 0.4], [0, 1, 1, 1]).save(tmp_path / "c.json")
    if not has_arrow:
        monkeypatch.setattr("refocal.io.tables.find_spec", lambda name: None)
    for text in ("p\n0.2\n\n0.7\n", "p\n0.2\n\n", "p\r\n0.2\r\n\r\n0.7\r\n"):
        (tmp_path / "one.csv").write_bytes(text.encode())
        message = refused("apply", "c.json", "one.csv", "-o", "o.csv")
        assert "row 1 has '' in the column 'p', where a number was expected" in message
    (tmp_path / "one.csv").write_text("p\n0.2\n\n0.7\n")
    assert run(["apply", "c.json", "one.csv", "-o", "o.csv", "--skip-bad-rows"]) == 0
    assert pd.read_csv("o.csv", skip_blank_lines=False).iloc[:, -1].isna().tolist() == [False, True, False]
    (tmp_path / "two.csv").write_text("id,p\n1,0.2\n\n2,0.7\n")  # of several columns it is no row
    assert run(["apply", "c.json", "two.csv", "-o", "o.csv"]) == 0
    assert pd.read_csv("o.csv")["id"].tolist() == [1, 2]


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("carrier", ["csv", "jsonl", "parquet"])
def test_the_problem_of_labels_is_said_alike(refused, tmp_path, carrier, blocks, monkeypatch):
    monkeypatch.setenv("REFOCAL_LARGE_FILE", "1" if blocks else "1000000000")
    p = [0.2, 0.7, 0.9, 0.4]
    options = [] if blocks else ["--resamples", 2]
    file = write(tmp_path / f"words.{carrier}", {"p": p, "label": ["no", "yes", "yes", "no"]})
    assert "say which label is the positive one with --positive-label" in refused("evaluate", file, *options)
    file = write(tmp_path / f"missing.{carrier}", {"p": p, "label": [0, 1, np.nan, 1]})
    if carrier == "csv":
        file.write_text("p,label\n0.2,0\n0.7,1\n0.9,\n0.4,1\n")
    assert "'labels' must be labels of which none is missing. Got a missing one" in refused("evaluate", file, *options)


def test_a_label_that_is_neither_a_class_nor_a_column_is_named(refused, tmp_path):
    (tmp_path / "rows.csv").write_text("logit_dog,logit_cat,label\n1.5,0.2,0\n0.1,1.2,1\n0.2,0.4,2\n")
    message = refused("evaluate", "rows.csv")
    assert "among the class names (dog, cat), or column numbers from 0 to 1. Got 2 instead" in message


def test_the_sentence_about_the_threshold_names_the_class(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "new.csv", {"id": [5, 6], "p": [0.99, 0.01]})
    costs = ["--false-positive", "1", "--false-negative", "1"]
    for options, name in (
        ([], "Class 1"),
        (["--positive-label", "2"], "Class 2"),
        (["--positive-label", "ill"], "ill"),  # a name stays as it is written
    ):
        assert run(["decide", "new.csv", *options, *costs]) == 0
        assert f"{name} is decided above a probability of 0.5." in capsys.readouterr().out


def test_a_monitor_that_knew_no_names_learns_those_of_the_calibrator(cli, tmp_path):
    """States of earlier versions have none."""
    logits, labels = draw_logits(300, 3, 1, scale=2.0)
    names = ["cat", "dog", "emu"]
    fitted = TemperatureScaling().fit(pd.DataFrame(logits, columns=names), np.array(names)[labels])
    fitted.save(tmp_path / "c.json")
    np.savez(tmp_path / "b.npz", logits=logits, labels=labels)
    before = CalibrationMonitor()
    before.update(np.asarray(fitted.predict_proba(pd.DataFrame(logits, columns=names))), labels, period="1")
    before.save("s.json")
    cli("monitor", "b.npz", "--calibrator", "c.json", "--state", "s.json", "--period", "2")
    after = CalibrationMonitor.load("s.json")
    assert after.class_names == ("cat", "dog", "emu")
    assert after.summary().log_loss == pytest.approx(before.summary().log_loss, rel=1e-6)


def three_from_one(n=400):
    """Logits of the classes 1, 2, 3 and labels, of which none is 3 in the second half."""
    logits, labels = draw_logits(n, 3, seed=3)
    few = labels < 2
    return logits, labels + 1, few


@pytest.mark.parametrize("carrier", ["predictions", "blocks"])
def test_column_numbers_that_may_be_meant_as_the_classes_are_refused(carrier):
    logits, labels, few = three_from_one()
    calibrator = TemperatureScaling().fit(logits, labels)

    def rows(some, **options):
        if carrier == "predictions":
            return Predictions.from_logits(logits[some], labels[some], **options)
        return blocks([(logits[some], labels[some])], **options)

    with pytest.raises(LabelError, match=r"calibrator's classes, 1, 2, 3.*class_names=calibrator.classes_"):
        evaluate(rows(few), {"ts": calibrator})
    everything = np.ones(len(labels), dtype=bool)
    by_name = evaluate(rows(everything, class_names=["1", "2", "3"]), {"ts": calibrator})
    by_number = evaluate(rows(everything, first_label=1), {"ts": calibrator})
    log_p = logits / calibrator.temperature_ - logsumexp(logits / calibrator.temperature_, axis=1, keepdims=True)
    expected = -np.mean(log_p[np.arange(len(labels)), labels - 1])
    for evaluation in (by_name, by_number):
        assert evaluation["ts"].measures["log_loss"].value == pytest.approx(expected, rel=1e-6)


def test_a_backtest_and_an_update_refuse_such_labels_too():
    logits, labels, few = three_from_one()
    calibrator = TemperatureScaling().fit(logits, labels)
    unnamed = Predictions.from_logits(logits[few], labels[few])
    named = Predictions.from_logits(logits[few], labels[few], class_names=["1", "2", "3"])
    with pytest.raises(LabelError, match="calibrator's classes"):
        backtest([("monday", unnamed)], calibrator=calibrator)
    with pytest.raises(LabelError, match="calibrator's classes"):
        update(calibrator, unnamed)
    assert backtest([("monday", named)], calibrator=calibrator).n_rows == (int(few.sum()),)


def test_a_backtest_refuses_weights_as_a_monitor_does():
    rows = Predictions.from_probabilities([0.2, 0.9], [0, 1], weight=[1.0, 2.0])
    with pytest.raises(DataError, match=r"without weights, as those of a monitor. Got weights in monday"):
        backtest([("monday", rows)])


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("mark", [-100, -1, 255])
def test_marks_of_rows_without_a_label_have_their_remedy_also_as_text(as_text, mark):
    logits, labels = draw_logits(60, 3, seed=4)
    marked = np.where(np.arange(60) % 9 == 0, mark, labels)
    with pytest.raises(LabelError, match=f"{mark} names no class") as caught:
        TemperatureScaling().fit(logits, marked.astype(str) if as_text else marked)
    assert caught.value.remedy is Remedy.IGNORE_INDEX


def test_it_is_said_which_columns_labels_count_that_are_not_in_the_order_of_the_calibrator(cli, tmp_path):
    logits, labels = draw_logits(60, 3, seed=4)
    write(tmp_path / "val.csv", dict(zip(("cat", "dog", "emu"), logits.T, strict=True)) | {"label": labels})
    write(tmp_path / "test.csv", dict(zip(("emu", "cat", "dog"), logits.T, strict=True)) | {"label": labels})
    cli("fit", "val.csv", "-m", "ts", "-o", "c.json")
    costs = ("--calibrator", "c.json", "--costs", "0,1,1;1,0,1;1,1,0")
    assert cli("decide", "val.csv", *costs)["read"].split("; ")[1].rstrip(".") == "labels: label, column numbers"
    said = cli("decide", "test.csv", *costs)["read"]
    assert "classes: cat, dog, emu (columns of test.csv); labels: label, column numbers of emu, cat, dog" in said
    np.savez(tmp_path / "test.npz", logits=logits, labels=labels, class_names=["emu", "cat", "dog"])
    said = cli("decide", "test.npz", *costs)["read"]
    assert "of test.npz); labels: labels, column numbers of emu, cat, dog" in said  # which was left out of arrays


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("in_file", [[0, 1, 2], [2, 0, 1]])
def test_classes_called_by_the_whole_names_of_columns_are_found_in_files(cli, tmp_path, first, in_file):
    logits, labels = draw_logits(600, 3)
    logits = logits * [1.0, 0.5, 2.0] + [0.0, 1.0, -1.0]
    names = np.array([f"class_{first + i}" for i in range(3)])
    frame = pd.DataFrame(logits, columns=names)
    fitted = VectorScaling().fit(frame[names[[2, 0, 1]]], names[labels])
    fitted.save(tmp_path / "c.json")
    expected = fitted.predict_proba(frame[names[[2, 0, 1]]])[:, [1, 2, 0]]
    frame[names[in_file]].assign(label=names[labels]).to_csv(tmp_path / "rows.csv", index=False)
    cli("apply", "c.json", "rows.csv", "-o", "p.csv")
    # Columns that count from 0 have no names but those of the calibrator.
    found = pd.read_csv(tmp_path / "p.csv")[names if first == 0 else ["1", "2", "3"]]
    np.testing.assert_allclose(found.to_numpy(), expected, rtol=1e-6)
    measured = cli("evaluate", "rows.csv", "c.json", "--resamples", "5")
    log_loss = -np.mean(np.log(expected[np.arange(600), labels]))
    assert measured["methods"][1]["measures"]["log_loss"]["value"] == pytest.approx(log_loss, rel=1e-6)


def test_costs_are_in_the_order_of_classes_called_by_the_whole_names_of_columns(cli, tmp_path):
    logits, labels = draw_logits(600, 2)
    p = np.exp(logits[:, 1] - logsumexp(logits, axis=1))
    names = np.array(["class_1", "class_2"])
    pd.DataFrame({"class_1": 1 - p, "class_2": p, "label": names[labels]}).to_csv(tmp_path / "rows.csv", index=False)
    cli("fit", "rows.csv", "--probabilities", "-m", "logistic", "-o", "c.json")
    costs = []
    for name in names:
        asked = ["--costs", "0,1;5,0", "--positive-label", name, "-o", "d.csv"]
        cli("decide", "rows.csv", "--calibrator", "c.json", *asked)
        costs.append(pd.read_csv(tmp_path / "d.csv")["expected_cost"].mean())
    assert costs[0] == pytest.approx(costs[1], rel=1e-9)
