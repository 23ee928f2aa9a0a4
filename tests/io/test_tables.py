"""CSV, TSV and JSON lines in blocks: fitted, evaluated and applied as Parquet is, with what only text gets wrong."""

from __future__ import annotations

import gzip
import json
import pickle
import sys
import time

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from block_rows import make_rows
from refocal import TemperatureScaling, load
from refocal.cli.run import run
from refocal.errors import DataError, FormatError, ParameterError
from refocal.evaluate import evaluate
from refocal.io import apply, open_rows, read, readers
from refocal.io.parts import plain
from refocal.io.query import Query
from refocal.io.tables import open_table

LOGITS, LABELS = make_rows(2000, 4, dtype=np.float64)
pytestmark = [pytest.mark.core, pytest.mark.slow]

NAMES = np.array(["cat", "dog", "cow", "hen"])
IDS = [f'row "{i}",\n' if i % 500 == 3 else f"row{i}" for i in range(2000)]  # some with all that CSV has to quote
SEPARATORS = {".csv": ",", ".tsv": "\t"}


@pytest.fixture(scope="module")
def fitted():
    return TemperatureScaling().fit(LOGITS, LABELS)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setenv("REFOCAL_BLOCK_ENTRIES", str(1 << 18))


def write(path, logits=LOGITS, labels=LABELS, ids=IDS):
    """A table with ids; JSON lines have a list in each row."""
    if path.suffix in SEPARATORS:
        frame = pd.DataFrame(logits, columns=[f"logit_{name}" for name in NAMES])
        frame.insert(0, "id", ids)
        frame.assign(label=labels, source="new").to_csv(path, index=False, sep=SEPARATORS[path.suffix])
    else:
        rows = zip(ids, logits.tolist(), labels.tolist(), strict=True)
        path.write_text("".join(json.dumps({"id": i, "logits": z, "label": y}) + "\n" for i, z, y in rows))
    return path


def reading(path):
    return {"values": "logit_*"} if path.suffix in SEPARATORS else {}


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".ndjson"])
def test_text_is_fitted_and_evaluated_in_blocks(tmp_path, fitted, ending):
    path = write(tmp_path / f"rows{ending}")
    rows = open_rows(path, **reading(path))
    found = TemperatureScaling().fit(rows)
    assert len(list(rows.parts[0].blocks())) > 5
    assert found.temperature_ == pytest.approx(fitted.temperature_, rel=1e-9)
    measured = evaluate(open_rows(path, **reading(path)), {"ts": found})
    assert measured["ts"].measures["log_loss"].value == pytest.approx(fitted.fit_report_["after"]["log_loss"], rel=1e-9)


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_text_is_read_in_blocks_without_pyarrow_too(tmp_path, fitted, ending, monkeypatch):
    path = write(tmp_path / f"rows{ending}")
    given = read(path, **reading(path))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    found = open_rows(path, **reading(path))
    assert TemperatureScaling().fit(found).temperature_ == pytest.approx(fitted.temperature_, rel=1e-9)
    assert len(list(found.parts[0].blocks())) > 5
    whole = read(path, **reading(path))
    np.testing.assert_array_equal(whole.values, given.values)
    np.testing.assert_array_equal(whole.labels, given.labels)
    apply(fitted, path, tmp_path / f"probs{ending}", **reading(path))
    monkeypatch.undo()
    frame, found = read_table(tmp_path / f"probs{ending}")
    np.testing.assert_array_equal(found, fitted.predict_proba(LOGITS))
    assert frame["id"].tolist() == IDS


def test_a_folder_is_read_into_memory(tmp_path):
    for i, rows in enumerate((slice(0, 900), slice(900, 2000))):
        write(tmp_path / f"part{i}.jsonl", LOGITS[rows], LABELS[rows], IDS[rows])
    found = read(tmp_path)
    np.testing.assert_array_equal(found.values, LOGITS)
    np.testing.assert_array_equal(found.labels, LABELS)


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_labels_may_be_names_and_numbers_may_be_spelt_as_python_reads_them(tmp_path, fitted, ending):
    path = write(tmp_path / f"rows{ending}", labels=NAMES[LABELS])
    text = path.read_text()
    first = repr(float(LOGITS[0, 0]))
    path.write_text("\ufeff" + text.replace(first, f" {first} ", 1))
    found = TemperatureScaling().fit(open_rows(path, **reading(path)))
    assert found.temperature_ == pytest.approx(fitted.temperature_, rel=1e-9)


def read_table(path):
    if path.suffix in SEPARATORS:
        frame = pd.read_csv(path, sep=SEPARATORS[path.suffix], dtype=str)
        names = [name for name in frame if name in NAMES or name.startswith("class_")]
        return frame, frame[names].map(float).to_numpy()
    if path.suffix == ".parquet":
        frame = pd.read_parquet(path)
    else:
        frame = pd.DataFrame(map(json.loads, path.read_text().splitlines()))
    if "probabilities" in frame:  # of rows without names of classes
        return frame, np.array(frame["probabilities"].tolist())
    return frame, frame[NAMES].to_numpy()


@pytest.mark.parametrize("source", [".csv", ".jsonl"])
@pytest.mark.parametrize("target", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_apply_keeps_ids_and_writes_the_format_asked_for(tmp_path, fitted, source, target):
    path = write(tmp_path / f"rows{source}")
    (written,) = apply(fitted, path, tmp_path / f"probs{target}", **reading(path))
    assert (written.n_rows, written.n_skipped) == (2000, 0)
    frame, found = read_table(tmp_path / f"probs{target}")
    np.testing.assert_array_equal(found, fitted.predict_proba(LOGITS))
    assert frame["id"].tolist() == IDS
    np.testing.assert_array_equal(frame["label"].astype(int), LABELS)
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_apply_into_a_folder_keeps_ids_too_and_one_file_takes_several(tmp_path, fitted):
    (tmp_path / "rows").mkdir()
    for i in range(2):
        half = slice(1000 * i, 1000 * i + 1000)
        write(tmp_path / "rows" / f"part{i}.csv", LOGITS[half], LABELS[half], IDS[half])
    written = apply(fitted, tmp_path / "rows", tmp_path / "probs", values="logit_*")
    assert [each.n_rows for each in written] == [1000, 1000]
    assert pq.read_table(written[1].file)["id"].to_pylist() == IDS[1000:]
    apply(fitted, tmp_path / "rows", tmp_path / "one.csv", values="logit_*")
    frame, found = read_table(tmp_path / "one.csv")
    assert list(frame) == ["id", "source", *NAMES, "label"]
    np.testing.assert_array_equal(found, fitted.predict_proba(LOGITS))
    with pytest.raises(ParameterError, match="a folder where others do the work"):
        apply(fitted, tmp_path / "rows", tmp_path / "one.csv", values="logit_*", scheduler="tcp://nowhere:1")
    path = tmp_path / "rows" / "part0.csv"
    path.write_text(path.read_text().replace("logit_hen", "logit_source"))
    with pytest.raises(FormatError, match=r"have a column 'source', as one that is to be written"):
        apply(fitted, path, tmp_path / "two.csv", values="logit_*")


def test_what_looks_like_a_date_is_written_as_it_was(tmp_path, fitted):
    ids = ["2026-05-01", "2026-05-02", "2026-05-03"]
    path = write(tmp_path / "rows.jsonl", LOGITS[:3], LABELS[:3], ids)
    for ending in (".jsonl", ".csv", ".parquet"):
        apply(fitted, path, tmp_path / f"probs{ending}")
        assert read_table(tmp_path / f"probs{ending}")[0]["id"].tolist() == ids


@pytest.mark.parametrize("has_pyarrow", [True, False])
def test_lists_and_objects_are_json_in_a_cell_of_text(tmp_path, fitted, has_pyarrow, monkeypatch):
    further = [{"a": [1, 2]}, None, {"a": []}]
    rows = zip(LOGITS[:3].tolist(), LABELS[:3].tolist(), further, strict=True)
    text = "".join(json.dumps({"logits": z, "label": y, "meta": meta}) + "\n" for z, y, meta in rows)
    (tmp_path / "rows.jsonl").write_text(text)
    if not has_pyarrow:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    apply(fitted, tmp_path / "rows.jsonl", tmp_path / "probs.csv")
    monkeypatch.undo()
    frame, found = read_table(tmp_path / "probs.csv")
    assert [None if pd.isna(cell) else json.loads(cell) for cell in frame["meta"]] == further
    np.testing.assert_array_equal(found, fitted.predict_proba(LOGITS[:3]))


@pytest.mark.parametrize(
    ("ending", "has_pyarrow"),
    [(".csv", True), (".csv", False), (".jsonl", True), (".jsonl", False), (".parquet", True)],
)
@pytest.mark.parametrize(
    ("cells", "as_text"),
    [
        ([["ä", 0], None, [1]], [["ä", 0], None, [1]]),
        ([7, "r8", None], ["7", "r8", None]),
        ([{"a": 1}, "b", 3], [{"a": 1}, "b", 3]),
    ],
)
def test_other_columns_may_hold_values_of_several_kinds(
    tmp_path, fitted, cells, as_text, ending, has_pyarrow, monkeypatch
):
    rows = zip(LOGITS[:3].tolist(), LABELS[:3].tolist(), cells, strict=True)
    text = "".join(json.dumps({"logits": z, "label": y, "id": cell}) + "\n" for z, y, cell in rows)
    (tmp_path / "rows.jsonl").write_text(text)
    if not has_pyarrow:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    apply(fitted, tmp_path / "rows.jsonl", tmp_path / f"probs{ending}")
    monkeypatch.undo()
    frame, found = read_table(tmp_path / f"probs{ending}")
    np.testing.assert_array_equal(found, fitted.predict_proba(LOGITS[:3]))
    if ending == ".jsonl":
        lines = (tmp_path / "probs.jsonl").read_text().splitlines()
        assert [json.loads(line)["id"] for line in lines] == cells
        return
    is_json = any(isinstance(cell, (list, dict)) for cell in cells)
    written = [None if cell is None or cell != cell else json.loads(cell) if is_json else cell for cell in frame["id"]]
    assert written == as_text


def test_what_parquet_cannot_hold_is_said(tmp_path, fitted, monkeypatch):
    monkeypatch.setenv("REFOCAL_BLOCK_ENTRIES", str(8 * 200))  # 200 bytes of text
    ids = [*range(100), *(f"r{i}" for i in range(100))]
    rows = zip(LOGITS[:200].tolist(), LABELS[:200].tolist(), ids, strict=True)
    text = "".join(json.dumps({"logits": z, "label": y, "id": cell}) + "\n" for z, y, cell in rows)
    (tmp_path / "rows.jsonl").write_text(text)
    with pytest.raises(FormatError, match=r"other kinds of values than in the rows before: .* write \.csv or \.jsonl"):
        apply(fitted, tmp_path / "rows.jsonl", tmp_path / "probs.parquet")
    assert not (tmp_path / "probs.parquet").exists()
    apply(fitted, tmp_path / "rows.jsonl", tmp_path / "probs.csv")
    assert read_table(tmp_path / "probs.csv")[0]["id"].astype(str).tolist() == [str(each) for each in ids]


def test_files_of_many_columns_share_their_names(tmp_path):
    names = [f"logit_of_class_{i}" for i in range(300)]
    for i in range(20):
        lines = [",".join([*names, "label"]), ",".join(["0.5"] * 300 + ["1"])]
        (tmp_path / f"part{i}.csv").write_text("\n".join(lines))
    parts = open_rows(tmp_path).parts
    assert len(pickle.dumps(parts)) < 1.5 * len(pickle.dumps(parts[:1]))


def spoil(path, row, old, new):
    lines = path.read_text().replace("\n,", ",").splitlines(keepends=True)
    lines[row] = lines[row].replace(old, new, 1)
    path.write_text("".join(lines))


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("oops", r"row 1700 has 'oops' in the column 'logit_cat', where a number was expected"),
        ("", r"row 1700 has '' in the column 'logit_cat'"),
        ("nan", r"NaN in row 1700 of .*rows\.csv"),
        ("1,2", r"row 1700 has 8 of 7 cells"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_row_or_counted(tmp_path, fitted, new, message):
    path = write(tmp_path / "rows.csv", ids=[f"row{i}" for i in range(2000)])
    spoil(path, 1701, repr(float(LOGITS[1700, 0])), new)
    with pytest.raises((FormatError, DataError), match=message):
        TemperatureScaling().fit(open_rows(path, values="logit_*"))
    with pytest.raises((FormatError, DataError), match=message):
        apply(fitted, path, tmp_path / "probs.csv", values="logit_*")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["rows.csv"]
    found = TemperatureScaling().fit(open_rows(path, values="logit_*", skip_bad_rows=True))
    expected = TemperatureScaling().fit(np.delete(LOGITS, 1700, 0), np.delete(LABELS, 1700))
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)
    assert found.fit_report_["n_skipped"] == 1
    (written,) = apply(fitted, path, tmp_path / "probs.csv", values="logit_*", skip_bad_rows=True)
    assert written.n_skipped == 1
    frame, found = read_table(tmp_path / "probs.csv")
    np.testing.assert_array_equal(found[frame["id"] == "row1701"], fitted.predict_proba(LOGITS[1701:1702]))
    assert len(frame) == (1999 if new == "1,2" else 2000)


def test_lines_that_are_left_out_are_counted_whenever_the_reader_comes_upon_them(tmp_path, monkeypatch):
    """A thread reads ahead: lines that it leaves out while a block is in use, or behind the last block, count too."""
    monkeypatch.setenv("REFOCAL_BLOCK_ENTRIES", "1024")
    good = "0.5,1.5,cat\n1.5,0.25,dog\n" * 100
    bad = "1.5,cat\n" * 100
    path = tmp_path / "rows.csv"
    path.write_text("logit_cat,logit_dog,label\n" + good + bad + good + bad)
    (part,) = open_rows(path, skip_bad_rows=True).parts
    lost = []
    for raw in part.blocks():
        time.sleep(0.05)  # in which the thread comes upon further lines
        lost.append(raw.n_lost)
    assert sum(lost) == 200


@pytest.mark.parametrize("has_pyarrow", [True, False])
@pytest.mark.parametrize("skip_bad_rows", [True, False])
@pytest.mark.parametrize("quoted", ["id", "label"])
@pytest.mark.parametrize("row", [3, 1000, 1999])
def test_a_quote_that_is_not_closed_is_refused(tmp_path, monkeypatch, has_pyarrow, skip_bad_rows, quoted, row):
    """All lines behind it would be one cell: they would be lost without a word, or count as one bad row."""
    if not has_pyarrow:
        monkeypatch.setattr("refocal.io.tables.find_spec", lambda name: None)
    first, last = ('"', "") if quoted == "label" else ("", '"')
    end = "" if quoted == "id" else "\n"
    for ending, separator in SEPARATORS.items():
        path = tmp_path / f"rows{ending}"
        rows = [["0.5", "1.5", "dog", f"row{i}"] for i in range(2000)]
        rows[row][2:] = [first + "dog", last + f"row{row}"]
        lines = [separator.join(cells) for cells in [["logit_cat", "logit_dog", "label", "id"], *rows]]
        path.write_text("\n".join(lines) + end)
        with pytest.raises(FormatError, match=rf"rows{ending}: row {row} has a quote that is not closed"):
            list(open_rows(path, skip_bad_rows=skip_bad_rows).parts[0].blocks())


@pytest.mark.parametrize("has_pyarrow", [True, False])
def test_the_row_of_a_quote_that_is_open_for_long_is_named(tmp_path, monkeypatch, has_pyarrow):
    """For longer than the blocks of pyarrow and the cells of Python's module."""
    if not has_pyarrow:
        monkeypatch.setattr("refocal.io.tables.find_spec", lambda name: None)
    rows = ["0.5,1.5,dog\n"] * 20_000
    rows[100] = '"' + rows[100]
    (tmp_path / "rows.csv").write_text("logit_cat,logit_dog,label\n" + "".join(rows))
    with pytest.raises(FormatError, match=r"row 100 cannot be read: .*limit.*\. Is a quote not closed\?"):
        list(open_rows(tmp_path / "rows.csv", skip_bad_rows=True).parts[0].blocks())


@pytest.mark.parametrize("has_pyarrow", [True, False])
@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
def test_rows_are_those_of_the_file_however_it_ends(tmp_path, monkeypatch, has_pyarrow, end):
    if not has_pyarrow:
        monkeypatch.setattr("refocal.io.tables.find_spec", lambda name: None)
    path = tmp_path / "rows.csv"
    for text in ('p,label\n0.25,0\n0.5,"1"', 'p,label,id\n0.25,0,5" pipe\n0.5,1,7"', "p\n0.25\n0.5"):
        path.write_text(text + end)
        blocks = list(open_table(str(path), Query(values="p", lenient=True)).batches(["p"], 1000, lost := []))
        cells = [cell for _, batch in blocks for cell in plain(batch["p"])]
        # Of one column an empty line is a missing value.
        assert cells == ["0.25", "0.5", *([""] if end == "\n\n" and "," not in text else [])]
        assert lost == []
    path.write_text("p,label" + end)
    assert list(open_table(str(path)).batches(["p"], 1000)) == []


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_within_quotes_are_kept_wherever_a_block_ends(tmp_path, fitted, monkeypatch, end):
    """A block may end between the two bytes of a Windows line end: hundreds of blocks, in each row two such ends."""
    monkeypatch.setenv("REFOCAL_BLOCK_ENTRIES", str(1 << 12))  # 512 bytes of text
    texts = [f"{'x' * (i % 13)}\r\n\r\n{'y' * (i % 7)}" for i in range(2000)]
    frame = pd.DataFrame(LOGITS, columns=[f"logit_{name}" for name in NAMES]).assign(text=texts)
    frame.to_csv(tmp_path / "rows.csv", index=False, lineterminator=end, encoding="utf-8-sig")
    (written,) = apply(fitted, tmp_path / "rows.csv", tmp_path / "probs.parquet", values="logit_*")
    assert written.n_rows == 2000
    frame, found = read_table(tmp_path / "probs.parquet")
    assert frame["text"].tolist() == texts
    np.testing.assert_array_equal(found, fitted.predict_proba(LOGITS))


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl"])
@pytest.mark.parametrize("at", [0, 1])
def test_parts_of_a_folder_without_a_single_byte_have_no_rows(tmp_path, fitted, ending, at):
    """As Hadoop and Spark write them for partitions without rows."""
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / f"part{at}{ending}").write_text("")
    write(folder / f"part{1 - at}{ending}")
    found = TemperatureScaling().fit(open_rows(folder, **reading(folder / f"part0{ending}")))
    assert found.temperature_ == pytest.approx(fitted.temperature_, rel=1e-9)
    assert found.fit_report_["n_samples"] == 2000
    written = apply(fitted, folder, tmp_path / "probs", **reading(folder / f"part0{ending}"))
    assert [each.n_rows for each in written] == [0 if i == at else 2000 for i in range(2)]
    tables = [pq.read_table(each.file) for each in written]
    assert tables[0].schema.names == tables[1].schema.names
    (folder / f"part{1 - at}{ending}").write_text("")
    with pytest.raises(FormatError, match="none of the 2 files has any rows"):
        open_rows(folder)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not JSON at all", r"row 1700 is not a JSON object"),
        ('{"logits": [1.0, 2.0], "label": 0}', r"must hold 4 numbers in every row.*Got 2 in row 1700 instead"),
        ('{"logits": [1.0, 2.0, NaN, 0.0], "label": 0}', r"NaN in row 1700 of .*rows\.jsonl"),
        ('{"logits": "none", "label": 0}', r"row 1700 has 'none' in 'logits', unlike the rows before"),
        ('{"label": 0}', r"Got 0 in row 1700 instead"),
    ],
)
def test_what_is_wrong_with_json_lines(tmp_path, fitted, line, message):
    path = write(tmp_path / "rows.jsonl", ids=IDS)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:1700], line, *lines[1701:]]))
    with pytest.raises((FormatError, DataError), match=message):
        TemperatureScaling().fit(open_rows(path))
    found = TemperatureScaling().fit(open_rows(path, skip_bad_rows=True))
    expected = TemperatureScaling().fit(np.delete(LOGITS, 1700, 0), np.delete(LABELS, 1700))
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)
    assert found.fit_report_["n_skipped"] == 1
    apply(fitted, path, tmp_path / "probs.jsonl", skip_bad_rows=True)
    written = [json.loads(each)["probabilities"] for each in (tmp_path / "probs.jsonl").read_text().splitlines()]
    assert [i for i, p in enumerate(written) if p is None] == [1700]


@pytest.mark.parametrize("value", [0.5, "old", True, [1]])
def test_a_column_that_was_null_in_the_first_block_is_named(tmp_path, fitted, monkeypatch, value):
    monkeypatch.setenv("REFOCAL_BLOCK_ENTRIES", str(8 * 200))  # 200 bytes of text
    rows = zip(LOGITS[:200].tolist(), LABELS[:200].tolist(), strict=True)
    lines = [{"logits": z, "label": y, "age": None if i < 100 else value} for i, (z, y) in enumerate(rows)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(FormatError, match=r"the column 'age' holds other kinds .* write \.csv or \.jsonl"):
        apply(fitted, tmp_path / "rows.jsonl", tmp_path / "probs.parquet")


@pytest.mark.parametrize("has_pyarrow", [True, False])
@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("0_251", "row 1 has '0_251' in the column 'cat', where a number was expected"),
        ("0,251", "row 1 has '0,251' in the column 'cat'; write decimals with a point"),
    ],
)
def test_what_python_or_a_country_takes_for_a_number_is_refused(tmp_path, monkeypatch, has_pyarrow, cell, message):
    if not has_pyarrow:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        monkeypatch.setattr("refocal.io.tables.find_spec", lambda name: None)
    for ending, separator in ((".csv", ","), (".tsv", "\t")):
        rows = (("cat", "dog", "label"), ("0.3", "0.2", "cat"), (f'"{cell}"', "0.1", "dog"))
        (tmp_path / f"rows{ending}").write_text("".join(separator.join(row) + "\n" for row in rows))
        with pytest.raises(FormatError, match=message):
            read(tmp_path / f"rows{ending}", values="cat,dog")
    line = json.dumps({"cat": "0.3", "dog": "0.2", "label": "cat"}) + "\n"
    (tmp_path / "rows.jsonl").write_text(line + line.replace("0.3", cell))
    with pytest.raises(FormatError, match=message):
        read(tmp_path / "rows.jsonl", values="cat,dog")


def test_files_of_text_that_are_none(tmp_path):
    (tmp_path / "a.csv").write_text("cat;dog;label\n0.3;0.2;cat\n")
    with pytest.raises(FormatError, match=r"commas between them\. It has semicolons; write the table with commas"):
        open_rows(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("\n")
    with pytest.raises(FormatError, match="must hold the names of two or more columns"):
        open_rows(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(FormatError, match="has any rows"):
        open_rows(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("a,b,label\n")
    with pytest.raises(FormatError, match="has any rows"):
        open_rows(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_bytes(b"a,b,label\n1,2,\xff\n")
    with pytest.raises(FormatError, match=r"a\.csv: cannot be read as .csv"):
        open_rows(tmp_path / "a.csv")
    with pytest.raises(FileNotFoundError, match=r"b\.csv: no such file"):
        open_rows(tmp_path / "b.csv")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".csv.gz"])
def test_text_in_another_encoding_is_said(tmp_path, encoding, ending):
    """The message was that of a codec, that labels were missing, or that a row was no JSON object."""
    text = "cat,dog,label\n0.3,0.2,cat\n" if "csv" in ending else "cat\tdog\tlabel\n0.3\t0.2\tcat\n"
    content = (json.dumps({"cat": 0.3, "dog": 0.2, "label": "cat"}) if ending == ".jsonl" else text).encode(encoding)
    (tmp_path / f"a{ending}").write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
    with pytest.raises(FormatError, match=r"a\.\S+: cannot be read as \S+: it is no text in UTF-8\. Save it so"):
        open_rows(tmp_path / f"a{ending}")


@pytest.mark.parametrize("first", ["sep=,", '"sep=,"', "SEP=;", "sep=\t"])
def test_the_first_line_of_excel_is_said(tmp_path, first):
    """Its parts were taken for the names of the columns."""
    (tmp_path / "a.csv").write_text(f"{first}\ncat,dog,label\n0.3,0.2,cat\n")
    with pytest.raises(
        FormatError, match=r"a\.csv: begins with the line 'sep=' of Excel, not with names; leave it out"
    ):
        open_rows(tmp_path / "a.csv")


def test_the_commands_read_large_text_in_blocks_and_small_text_whole(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "rows.csv")
    fit = ["fit", "rows.csv", "--values", "logit_*", "-o", "c.json"]
    assert run([*fit, "-m", "ts"]) == 0
    whole = load("c.json").temperature_
    monkeypatch.setenv("REFOCAL_LARGE_FILE", "1")
    opened, open_parts = [], readers.open_parts
    monkeypatch.setattr(readers, "open_parts", lambda *given: opened.append(given) or open_parts(*given))
    assert run([*fit, "-m", "ts"]) == 0
    assert opened
    assert load("c.json").temperature_ == pytest.approx(whole, rel=1e-9)
    opened.clear()
    assert run([*fit, "-m", "isotonic", "-o", "i.json"]) == 0  # which needs all rows in memory
    assert run(["evaluate", "rows.csv", "c.json", "--values", "logit_*", "--resamples", "5"]) == 0
    assert not opened
    assert run(["evaluate", "rows.csv", "c.json", "--values", "logit_*"]) == 0
    assert opened
    capsys.readouterr()
    for large in (1, 1 << 30):
        monkeypatch.setenv("REFOCAL_LARGE_FILE", str(large))
        assert run(["apply", "c.json", "rows.csv", "--values", "logit_*", "-o", "p.csv"]) == 0
        read = "Read classes: cat, dog, cow, hen (columns of rows.csv).\n"
        wrote = "Wrote p.csv: probabilities of 2,000 rows and 4 classes.\n"
        assert capsys.readouterr().out == read + wrote
    assert run(["apply", "c.json", "rows.csv", "--values", "logit_*", "-o", "p.npz"]) == 0
    _, found = read_table(tmp_path / "p.csv")
    np.testing.assert_array_equal(np.load("p.npz")["probabilities"], found)


def compressed(path):
    """The same file, compressed, in place of the other."""
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return packed


@pytest.mark.parametrize(
    "ending", [".csv", ".jsonl", *(pytest.param(ending, marks=pytest.mark.long) for ending in (".tsv", ".ndjson"))]
)
def test_compressed_text_is_read_as_other_text_is(tmp_path, fitted, ending, monkeypatch, capsys):
    for name in ("plain", "packed"):
        (tmp_path / name).mkdir()
    options = reading(tmp_path / f"rows{ending}")
    for i, part in enumerate((slice(0, 900), slice(900, 2000))):
        for name in ("plain", "packed"):
            path = write(tmp_path / name / f"{i}{ending}", LOGITS[part], LABELS[part], IDS[part])
        file = compressed(path)
    one = read(file, **options)
    np.testing.assert_array_equal(one.values, LOGITS[900:])
    np.testing.assert_array_equal(one.labels, LABELS[900:])
    for place in (tmp_path / "packed", f"{tmp_path}/packed/*.gz", f"file://{tmp_path}/packed"):
        found = TemperatureScaling().fit(open_rows(place, **options))
        assert found.temperature_ == pytest.approx(fitted.temperature_, rel=1e-9)
    for name in ("plain", "packed"):
        apply(fitted, tmp_path / name, tmp_path / f"{name}-probs", **options)
    for part in ("0.parquet", "1.parquet"):
        plain, packed = (pq.read_table(tmp_path / f"{name}-probs" / part) for name in ("plain", "packed"))
        assert plain.equals(packed)
    monkeypatch.chdir(tmp_path)
    fitted.save("c.json")
    more = ["--values", "logit_*"] if options else []
    assert run(["evaluate", str(file), "c.json", "--resamples", "5", *more]) == 0
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    np.testing.assert_array_equal(read(file, **options).values, LOGITS[900:])


def test_compressed_text_that_is_damaged_or_there_twice_is_said(tmp_path, fitted, monkeypatch):
    whole = compressed(write(tmp_path / "rows.csv"))
    whole.write_bytes(whole.read_bytes()[:-2000])
    with pytest.raises(FormatError, match=r"rows\.csv\.gz: cannot be read as \.csv"):
        read(whole, values="logit_*")
    whole.write_bytes(b"no gzip at all")
    with pytest.raises(FormatError, match=r"rows\.csv\.gz: cannot be read as \.csv"):
        read(whole, values="logit_*")
    monkeypatch.setenv("REFOCAL_UNPACKED", str(1 << 20))
    whole.write_bytes(gzip.compress(b"logit_a,logit_b,label\n" + b"0,0,0\n" * 2_000_000))
    with pytest.raises(FormatError, match="it would unpack"):
        read(whole)
    write(tmp_path / "rows.csv")
    with pytest.raises(FormatError, match=r"rows\.csv: also there as \.gz; the rows would count twice"):
        open_rows(tmp_path, values="logit_*")
    with pytest.raises(ParameterError, match="a table that is not compressed"):
        apply(fitted, tmp_path / "rows.csv", tmp_path / "probs.csv.gz")


@pytest.mark.parametrize("with_arrow", [True, False])
@pytest.mark.parametrize("field", ["label", "group"])
@pytest.mark.parametrize("known_from", [0, 10])
def test_values_of_another_kind_are_refused_whatever_the_size_of_blocks(
    tmp_path, monkeypatch, with_arrow, field, known_from
):
    if not with_arrow:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    rows = [
        {"logit_0": z[0], "logit_1": z[1], "label": int(z[1] > z[0]), "group": i % 2} for i, z in enumerate(LOGITS[:40])
    ]
    for row in rows[:known_from]:
        row["group"] = None
    for row in rows[20:]:
        row[field] = str(row[field])
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    message = f"row 20 has '[01]' in '{field}', unlike the rows before"
    with pytest.raises(FormatError, match=message):
        read(path, groups=["group"])
    monkeypatch.setenv("REFOCAL_BLOCK_ENTRIES", "400")  # a block for each line
    blocks = open_rows(path, groups=["group"])
    for _ in range(2):  # a second pass starts anew
        with pytest.raises(FormatError, match=message):
            evaluate(blocks, {})


@pytest.mark.parametrize("repeated", ['"p": 0.5, "p": 0.2, "label": 0', '"p": 0.2, "label": 1, "label": 0'])
def test_a_field_that_is_twice_in_a_line_is_refused(tmp_path, repeated):
    lines = [f"{{{repeated}}}", '{"p": 0.7, "label": 1, "meta": {"a": 1, "b": {"a": 2}}}']
    for order in (lines, lines[::-1]):
        (tmp_path / "a.jsonl").write_text("\n".join(order))
        name = "p" if repeated.startswith('"p": 0.5') else "label"
        message = f"row {order.index(lines[0])} has the field '{name}' twice"
        with pytest.raises(FormatError, match=message):
            read(tmp_path / "a.jsonl")
        with pytest.raises(FormatError, match=message):
            evaluate(open_rows(tmp_path / "a*.jsonl"))
    good = "\n".join([lines[1]] * 4000)
    (tmp_path / "a.jsonl").write_text(f"{good}\n{lines[0]}\n")
    with pytest.raises(FormatError, match=f"row 4000 has the field '{name}' twice"):
        read(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_text(lines[1])
    assert read(tmp_path / "a.jsonl").labels.tolist() == [1]


@pytest.mark.parametrize("repeated", ['{"a": 1, "a": 2}', '{"b": {"a": 1, "a": 2}}', '[{"a": 1}, {"a": 1, "a": 2}]'])
def test_a_field_that_is_twice_in_an_object_within_a_line_is_refused(tmp_path, repeated):
    good = '{"p": 0.2, "label": 0, "meta": {"a": 1}}'
    bad = f'{{"p": 0.7, "label": 1, "meta": {repeated}}}'
    (tmp_path / "a.jsonl").write_text(f"{good}\n{bad}\n")
    with pytest.raises(FormatError, match="row 1 has the field 'a' twice"):
        read(tmp_path / "a.jsonl")
    with pytest.raises(FormatError, match="row 1 has the field 'a' twice"):
        evaluate(open_rows(tmp_path / "a*.jsonl"))


def test_whole_numbers_beside_a_score_are_no_class(tmp_path):
    """The number of a patient was taken for the logit of class 0."""
    file = tmp_path / "risk.csv"
    lines = [f"{i},{(i * 7 % 10) / 10 + 0.05:.2f},{i % 2}" for i in range(20)]
    file.write_text("\n".join(["patient,score,label", *lines]))
    for kind in (None, "probabilities"):
        with pytest.raises(FormatError, match=r"the columns 'patient', 'score' do not look .*values='score'"):
            read(file, input=kind)
    rows = read(file, input="probabilities", values="score")
    assert rows.n_classes == 2
    # Scores that are all whole numbers are scores still.
    file.write_text("\n".join(["no,maybe,yes,label", *(f"{i % 4},{i % 5},{i % 2},{i % 3}" for i in range(20))]))
    assert read(file).class_names == ("no", "maybe", "yes")


def json_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def late_rows(n_without, name, value):
    """Rows of two classes, of which those after the first `n_without` have one field more."""
    rows = []
    for i in range(2000):
        row = {"logit_cat": float(LOGITS[i, 0]), "logit_dog": float(LOGITS[i, 1]), "label": int(LABELS[i] % 2)}
        rows.append(row if i < n_without else {**row, name: value})
    return rows


@pytest.mark.parametrize("has_arrow", [True, False])
def test_a_field_that_only_later_rows_have_is_passed_on(tmp_path, monkeypatch, has_arrow):
    if not has_arrow:
        monkeypatch.setattr("refocal.io.tables.find_spec", lambda name: None)
    path = json_lines(tmp_path / "a.jsonl", late_rows(1900, "note", "seen"))
    assert path.stat().st_size > 1 << 17  # more than is looked at to infer the columns
    fitted = TemperatureScaling().fit(LOGITS[:, :2], LABELS % 2)
    apply(fitted, path, tmp_path / "p.csv")
    notes = pd.read_csv(tmp_path / "p.csv", keep_default_na=False)["note"]
    assert notes.tolist() == [""] * 1900 + ["seen"] * 100
    monkeypatch.setenv("REFOCAL_LARGE_FILE", "100000")  # in blocks, where later rows are not known beforehand
    with pytest.raises(FormatError, match="has a field 'note' that the first rows lack"):
        apply(fitted, path, tmp_path / "q.csv")
    assert TemperatureScaling().fit(open_rows(path)).n_features_in_ == 2  # it is neither a class nor passed on


def test_a_class_that_only_later_rows_have_is_not_left_out(tmp_path, monkeypatch):
    path = json_lines(tmp_path / "a.jsonl", late_rows(1900, "logit_emu", 1.5))
    with pytest.raises(DataError, match="Got NaN in row 0"):
        read(path)
    monkeypatch.setenv("REFOCAL_LARGE_FILE", "100000")
    with pytest.raises(FormatError, match="has a field 'logit_emu' that the first rows lack"):
        TemperatureScaling().fit(open_rows(path))
    others = [{name.removeprefix("logit_"): value for name, value in row.items()} for row in late_rows(9, "emu", 1.5)]
    json_lines(tmp_path / "b.jsonl", [{**row, "cat": row["cat"] + 0.25} for row in others])
    with pytest.raises(DataError, match="Got NaN in row 0"):
        read(tmp_path / "b.jsonl", labels="label", values="cat,dog,emu")


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_lists_that_are_passed_on_keep_their_whole_numbers(tmp_path, ending):
    tokens = [2**60 + 1, 7]
    rows = [{**row, "tokens": tokens} for row in late_rows(2000, "", 0)[:50]]
    path = json_lines(tmp_path / "a.jsonl", rows)
    fitted = TemperatureScaling().fit(LOGITS[:, :2], LABELS % 2)
    apply(fitted, path, tmp_path / f"p{ending}")
    if ending == ".parquet":
        found = pq.read_table(tmp_path / "p.parquet")["tokens"].to_pylist()[0]
    elif ending == ".csv":
        found = json.loads(pd.read_csv(tmp_path / "p.csv")["tokens"][0])
    else:
        found = json.loads((tmp_path / "p.jsonl").read_text().splitlines()[0])["tokens"]
    assert found == tokens
    assert [*map(type, found)] == [int, int]
