"""Data sets in files: what is read, what is complained about, and what is written."""

from __future__ import annotations

import json
import os
import shutil
from importlib import import_module
from itertools import pairwise

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from block_rows import make_rows
from refocal import FocalTemperatureScaling, TemperatureScaling, load
from refocal.cli import printing
from refocal.cli.run import run
from refocal.engine import Pass
from refocal.errors import DataError, FormatError, LabelError, ParameterError, ShapeError
from refocal.evaluate import evaluate
from refocal.io import apply, blocks, datasets, open_rows, read, rows_of

pytestmark = pytest.mark.core

apply_module = import_module("refocal.io.apply")

LOGITS, LABELS = make_rows(3000, 4, dtype=np.float64)
CUTS = (0, 700, 700, 1900, 3000)


CLASSES = ["cat", "dog", "cow", "hen"]


def frame_of(first, last, names=CLASSES):
    frame = pd.DataFrame(LOGITS[first:last], columns=[f"logit_{name}" for name in names])
    return frame.assign(label=LABELS[first:last])


@pytest.fixture
def folder(tmp_path):
    """Four Parquet files, one of them without rows, beside files that mean nothing."""
    place = tmp_path / "rows"
    place.mkdir()
    for i, (first, last) in enumerate(pairwise(CUTS)):
        frame_of(first, last).to_parquet(place / f"part{i}.parquet")
    (place / "_SUCCESS").write_text("")
    return place


@pytest.fixture(scope="module")
def fitted():
    return TemperatureScaling().fit(LOGITS, LABELS)


def create(group):
    """The function of a group that makes an array, as Zarr 3 and Zarr 2 call it."""
    return getattr(group, "create_array" if hasattr(type(group), "create_array") else "create_dataset")


@pytest.mark.slow
def test_a_folder_a_pattern_and_an_address_are_the_same_rows(folder, fitted):
    for place in (folder, f"{folder}/*.parquet", f"file://{folder}", f"file://{folder}/part*.parquet"):
        found = TemperatureScaling().fit(open_rows(place))
        assert found.temperature_ == pytest.approx(fitted.temperature_, rel=1e-9)
        assert found.fit_report_["n_samples"] == 3000


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["part?.parquet", "part[0-3].parquet", "**/part*.parquet"])
def test_every_pattern_of_a_shell_finds_files(folder, pattern, monkeypatch, capsys):
    for place in (f"{folder}/{pattern}", f"file://{folder}/{pattern}"):
        rows = open_rows(place)
        rows.start()
        assert rows.n_rows == 3000
    monkeypatch.chdir(folder)
    assert run(["fit", pattern, "--method", "ts", "-o", "c.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fit"]["n_samples"] == 3000
    folder.rename(folder.with_name("rows[1]"))  # a name that looks like a pattern
    rows = open_rows(folder.with_name("rows[1]"))
    rows.start()
    assert rows.n_rows == 3000


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_lists_in_half_precision_and_small_batches(tmp_path, dtype, monkeypatch):
    monkeypatch.setenv("REFOCAL_BLOCK_ENTRIES", "400")
    values = pa.array(LOGITS.astype(dtype).reshape(-1))
    lists = pa.FixedSizeListArray.from_arrays(values, 4)
    pq.write_table(pa.table({"logits": lists, "labels": LABELS}), tmp_path / "a.parquet")
    found = TemperatureScaling().fit(open_rows(tmp_path / "a.parquet"))
    expected = TemperatureScaling().fit(LOGITS.astype(dtype), LABELS)
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)


@pytest.mark.slow
def test_zarr_groups_and_arrays(tmp_path, fitted):
    group = zarr.open_group(tmp_path / "rows.zarr", mode="w")
    for name, values, chunks in (("logits", LOGITS, (256, 4)), ("labels", LABELS, (1000,))):
        array = create(group)(name, shape=values.shape, chunks=chunks, dtype=values.dtype)
        array[:] = values
    found = TemperatureScaling().fit(open_rows(tmp_path / "rows.zarr"))
    assert found.temperature_ == pytest.approx(fitted.temperature_, rel=1e-9)
    found = TemperatureScaling().fit(group["logits"], group["labels"])
    assert found.temperature_ == pytest.approx(fitted.temperature_, rel=1e-9)
    with pytest.raises(FormatError, match=r"no 'probabilities' but 'logits'"):
        open_rows(tmp_path / "rows.zarr", input="probabilities")


def spoil(folder, name, **columns):
    frame = pd.read_parquet(folder / name)
    frame.assign(**columns).to_parquet(folder / name)


@pytest.mark.slow
def test_bad_rows_are_named_by_file_and_row(folder):
    broken = pd.read_parquet(folder / "part2.parquet")
    broken.loc[17, "logit_dog"] = np.nan
    broken.to_parquet(folder / "part2.parquet")
    with pytest.raises(DataError, match=r"NaN in row 17 of .*part2\.parquet"):
        TemperatureScaling().fit(open_rows(folder))
    found = TemperatureScaling().fit(open_rows(folder, skip_bad_rows=True))
    assert found.fit_report_["n_skipped"] == 1
    good = np.arange(3000) != 717
    expected = TemperatureScaling().fit(LOGITS[good], LABELS[good])
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)


def test_a_missing_label_is_a_bad_row(folder):
    spoil(folder, "part0.parquet", label=pd.array([None, *LABELS[1:700]], dtype="Int64"))
    with pytest.raises(ValueError, match=r"row 0 of .*part0\.parquet"):
        TemperatureScaling().fit(open_rows(folder))


NAMES = np.array(["cat", "dog", "cow", "hen"], dtype=object)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "category"])
def test_labels_may_be_names_of_classes(folder, fitted, kind, capsys):
    for i, (first, last) in enumerate(pairwise(CUTS)):
        frame = frame_of(first, last).assign(label=NAMES[LABELS[first:last]])
        (frame if kind == "text" else frame.astype({"label": "category"})).to_parquet(folder / f"part{i}.parquet")
    found = TemperatureScaling().fit(open_rows(folder))
    assert found.temperature_ == pytest.approx(fitted.temperature_, rel=1e-9)
    assert evaluate(open_rows(folder), {"ts": found}).class_names == list(NAMES)
    other = open_rows(folder, class_names=["cat", "dog", "cow", "pig"])
    words = r"among the class names \(cat, dog, cow, pig\)\. Got 'hen' in row \d+ of .*part0\.parquet"
    with pytest.raises(LabelError, match=words):
        TemperatureScaling().fit(other)
    with pytest.raises(ShapeError, match="4 different names, one for each column"):
        open_rows(folder, class_names=["cat", "dog"])
    spoil(folder, "part2.parquet", label=[None, *NAMES[LABELS[701:1900]]])
    assert run(["fit", str(folder), "-m", "ts", "-o", str(folder.parent / "c.json")]) == 1
    assert "a missing one in row 0 of" in capsys.readouterr().err.replace("\n", " ")
    assert TemperatureScaling().fit(open_rows(folder, skip_bad_rows=True)).fit_report_["n_skipped"] == 1
    written = apply(fitted, folder, folder.parent / "probs")
    assert pq.read_table(written[0].file)["label"].to_pylist() == NAMES[LABELS[:700]].tolist()


@pytest.mark.parametrize("kind", ["numbers", "names"])
def test_columns_in_the_order_of_names_are_those_in_memory(folder, kind):
    names, wanted = np.array(["cat", "dog", "cow", "hen"]), ["hen", "cat", "cow", "dog"]
    for file in folder.glob("*.parquet"):
        frame = pd.read_parquet(file)
        labels = np.where(np.arange(len(frame)) % 7 == 0, 255, frame.label) if kind == "numbers" else names[frame.label]
        frame.assign(label=labels).to_parquet(file)
    ignored = 255 if kind == "numbers" else None
    expected = read(folder, ignore_index=ignored).in_order_of(wanted)
    rows = open_rows(folder, ignore_index=ignored).in_order_of(wanted)
    together = Pass(
        map=lambda block: (block.logits, block.labels),
        merge=lambda one, other: tuple(np.concatenate(pair) for pair in zip(one, other, strict=True)),
    )
    values, labels = rows.reduce(together)
    assert rows.reader.class_names == tuple(wanted)
    np.testing.assert_array_equal(values, expected.values)
    np.testing.assert_array_equal(labels, expected.labels)
    back = rows.in_order_of(["dog", "hen", "cat", "cow"]).in_order_of(names).reduce(together)
    np.testing.assert_array_equal(back[0], read(folder, ignore_index=ignored).values)
    with pytest.raises(ShapeError, match="'dog' in one of them only"):
        rows.in_order_of(["hen", "cat", "cow", "bee"])


@pytest.mark.slow
def test_names_of_classes_in_blocks_zarr_and_dask(tmp_path, fitted):
    order = np.argsort(NAMES.astype(str))  # in memory text stands for the columns in sorted order
    logits, names = LOGITS[:, order], NAMES[LABELS].astype(str)
    expected = TemperatureScaling().fit(logits, names)
    group = zarr.open_group(tmp_path / "rows.zarr", mode="w")
    create(group)("logits", shape=logits.shape, chunks=(256, 4), dtype=logits.dtype)[:] = logits
    lazy, lazy_names = da.from_array(logits, chunks=(1000, 4)), da.from_array(names, chunks=700)
    frame = dd.from_pandas(pd.DataFrame(logits).assign(what=names), npartitions=3)
    for X, y in ((group["logits"], names), (lazy, lazy_names), (frame, "what")):
        found = TemperatureScaling().fit(X, y)
        assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)
        np.testing.assert_array_equal(found.predict(logits[:50]), expected.predict(logits[:50]))
    rows = blocks([(LOGITS[:1000], NAMES[LABELS[:1000]]), (LOGITS[1000:], NAMES[LABELS[1000:]])], class_names=NAMES)
    assert TemperatureScaling().fit(rows).temperature_ == pytest.approx(fitted.temperature_, rel=1e-9)
    mixed = blocks([(LOGITS[:1000], NAMES[LABELS[:1000]]), (LOGITS[1000:], LABELS[1000:])], class_names=NAMES)
    with pytest.raises(LabelError, match="names in 1 of them and numbers in 1"):
        TemperatureScaling().fit(mixed)
    with pytest.raises(LabelError, match=r"integers\. Got text such as 'cat' in row 0 of block 0.* class_names="):
        TemperatureScaling().fit(blocks([(LOGITS, NAMES[LABELS])]))
    with pytest.raises(LabelError, match=r"of 4 distinct classes.*Got 2 distinct labels from 'cow' to 'hen'"):
        TemperatureScaling().fit(lazy, np.where(names == "cow", "cow", "hen"))


def test_files_that_do_not_belong_together(folder):
    spoil(folder, "part3.parquet", logit_pig=0.0)
    with pytest.raises(FormatError, match=r"part3\.parquet: has a class 'logit_pig' more than the first file"):
        TemperatureScaling().fit(open_rows(folder))
    pd.read_parquet(folder / "part3.parquet").drop(columns=["logit_pig", "logit_hen"]).to_parquet(
        folder / "part3.parquet"
    )
    with pytest.raises(FormatError, match=r"part3\.parquet: no column 'logit_hen', which the first file has"):
        TemperatureScaling().fit(open_rows(folder))
    pd.read_parquet(folder / "part0.parquet").drop(columns="label").to_parquet(folder / "part0.parquet")
    with pytest.raises(FormatError, match=r"part0\.parquet: no labels"):
        open_rows(folder)


def test_places_without_rows(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="no tables there"):
        open_rows(f"{tmp_path}/nothing/*.parquet")
    with pytest.raises(FormatError, match="none of the 1 files has any rows"):
        open_rows(folder / "part1.parquet")
    (folder / "part0.parquet").write_bytes(b"not Parquet at all")
    with pytest.raises(FormatError, match=r"part0\.parquet: cannot be read as .parquet"):
        open_rows(folder)


def test_an_interrupt_says_what_is_there(folder, tmp_path, fitted, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fitted.save("c.json")
    write, calls = apply_module.write_part, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return write(*arguments)

    monkeypatch.setattr(apply_module, "write_part", interrupted)
    assert run(["apply", "c.json", str(folder), "-o", "probs"]) == 130
    said = "refocal: stopped; 2 files are in probs, and the same command continues with the others.\n"
    assert capsys.readouterr().err == said
    assert sorted(file.name for file in (tmp_path / "probs").iterdir()) == ["part0.parquet", "part1.parquet"]


def test_an_error_says_what_is_there(folder, tmp_path, fitted, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fitted.save("c.json")
    spoil(folder, "part3.parquet", logit_dog=np.nan)
    assert run(["apply", "c.json", str(folder), "-o", "probs"]) == 1
    written = len(list((tmp_path / "probs").iterdir()))
    said = capsys.readouterr().err
    assert f"part3.parquet instead. {written} files are in probs, and the same command continues" in said
    assert run(["evaluate", str(folder), "c.json", "--skip-bad-rows"]) == 0
    assert "rows that cannot be used." in capsys.readouterr().out


def test_without_a_terminal_progress_is_a_line_now_and_then(monkeypatch, capsys):
    clock = iter(np.arange(0.0, 200.0, 10.0))
    monkeypatch.setattr(printing.time, "monotonic", lambda: float(next(clock)))
    with printing.progress("reading") as update:
        for done in range(1, 9):
            update(done, 8, "fitting ts: pass 1")
    said = capsys.readouterr().err.splitlines()
    assert said == ["fitting ts: pass 1, 38%, 30 s so far", "fitting ts: pass 1, 75%, 60 s so far"]
    with printing.progress("reading", quiet=True) as update:
        update(1, 2, "fitting ts: pass 1")
    assert capsys.readouterr().err == ""


def test_bad_files_can_be_left_out(folder, tmp_path, fitted, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    spoil(folder, "part3.parquet", logit_pig=0.0)
    whole = (folder / "part0.parquet").read_bytes()
    # The head of the first page; what is said of the columns stands at the end.
    (folder / "part0.parquet").write_bytes(whole[:4] + b"\xff" * 40 + whole[44:])
    (folder / "part4.parquet").write_bytes(b"not Parquet at all")
    with pytest.raises((FormatError, OSError)):
        TemperatureScaling().fit(open_rows(folder))
    rows = open_rows(folder, skip_bad_parts=True)
    found = TemperatureScaling().fit(rows)
    expected = TemperatureScaling().fit(LOGITS[700:1900], LABELS[700:1900])
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)
    assert found.fit_report_["n_bad_parts"] == len(rows.bad_parts) == 3
    assert any("part4.parquet: cannot be read as .parquet" in problem for problem in rows.bad_parts)
    assert any("part3.parquet: has a class 'logit_pig' more" in problem for problem in rows.bad_parts)
    assert evaluate(open_rows(folder, skip_bad_parts=True), {"ts": found}).run["files skipped"] == "3"
    written = apply(fitted, folder, tmp_path / "probs", skip_bad_parts=True)
    assert [each.n_rows for each in written if each.problem is None] == [0, 1200]
    assert sum(each.problem is not None for each in written) == 3
    assert run(["fit", str(folder), "-m", "ts", "-o", "c.json", "--skip-bad-parts"]) == 0
    said = capsys.readouterr().out
    assert "Left out: 3 files that cannot be read." in said
    assert "Next: refocal apply c.json LOGITS -o probs\n" in said
    assert run(["apply", "c.json", str(folder), "-o", "p", "--skip-bad-parts"]) == 0
    assert "Left out 3 files: " in capsys.readouterr().out
    for name in ("part2", "part1"):
        (folder / f"{name}.parquet").unlink()
    with pytest.raises(FormatError, match="none of the"):
        open_rows(folder / "part[04].parquet", skip_bad_parts=True)


def test_apply_writes_a_file_a_part_and_goes_on_where_it_was(folder, tmp_path, fitted):
    output = tmp_path / "probs"
    first = apply(fitted, folder, output)
    assert [each.n_rows for each in first] == [700, 0, 1200, 1100]
    assert not any(each.was_there for each in first)
    table = pq.read_table(output / "part2.parquet")
    found = table.select(CLASSES).to_pandas().to_numpy()
    np.testing.assert_array_equal(found, fitted.predict_proba(LOGITS[700:1900]))
    np.testing.assert_array_equal(table["label"], LABELS[700:1900])
    (output / "part2.parquet").unlink()
    shutil.copy(output / "part0.parquet", tmp_path / "kept")
    assert [each.was_there for each in apply(fitted, folder, output)] == [True, True, False, True]
    assert (output / "part0.parquet").read_bytes() == (tmp_path / "kept").read_bytes()
    # Another calibrator, or another source, is another result.
    other = FocalTemperatureScaling(objective="nll").fit(LOGITS, LABELS)
    assert not any(each.was_there for each in apply(other, folder, output))
    frame_of(0, 699).to_parquet(folder / "part0.parquet")
    assert [each.was_there for each in apply(other, folder, output)] == [False, True, True, True]


def probabilities_in(folder):
    tables = [pd.read_parquet(file) for file in sorted(folder.iterdir())]
    if "probabilities" in tables[0]:  # of rows without names of classes
        return np.concatenate([np.stack(table["probabilities"]) for table in tables])
    return pd.concat(tables)[["w", "x", "y", "z"]].to_numpy()


def test_apply_does_again_what_was_made_of_other_columns(tmp_path, fitted):
    (tmp_path / "rows").mkdir()
    for i, rows in enumerate((slice(0, 60), slice(60, 100))):
        scores = {"a": LOGITS[rows], "b": 2.0 * LOGITS[rows]}
        columns = {f"{key}_{name}": x[:, j] for key, x in scores.items() for j, name in enumerate(("w", "x", "y", "z"))}
        truths = {"one": LABELS[rows], "other": (LABELS[rows] + 1) % 4}
        pd.DataFrame(columns | truths).to_parquet(tmp_path / "rows" / f"{i}.parquet")
    for values, labels, factor, there in (
        ("a_*", "one", 1.0, False),
        ("b_*", "one", 2.0, False),
        ("b_*", "other", 2.0, False),
        ("b_*", "other", 2.0, True),
    ):
        written = apply(fitted, tmp_path / "rows", tmp_path / "probs", values=values, labels=labels)
        assert [each.was_there for each in written] == [there, there]
        expected = fitted.predict_proba(factor * LOGITS[:100])
        np.testing.assert_allclose(probabilities_in(tmp_path / "probs"), expected, rtol=1e-12)
        assert labels in pq.read_table(tmp_path / "probs" / "0.parquet").column_names


@pytest.mark.parametrize("kind", ["zarr", "labels.npy"])
def test_apply_does_again_what_arrays_or_labels_changed(tmp_path, fitted, kind):
    def write(factor, first):
        group = zarr.open_group(tmp_path / "rows.zarr", mode="w")
        for name, values in (("logits", factor * LOGITS), ("labels", LABELS)):
            create(group)(name, shape=values.shape, chunks=values.shape, dtype=values.dtype)[:] = values
        np.save(tmp_path / "logits.npy", LOGITS)
        np.save(tmp_path / "labels.npy", (LABELS + first) % 4)

    source = tmp_path / ("rows.zarr" if kind == "zarr" else "logits.npy")
    more = {} if kind == "zarr" else {"labels": tmp_path / "labels.npy"}
    for factor, first in ((1.0, 0), (2.0, 1)):
        write(factor, first)
        for there in (False, True):
            assert [each.was_there for each in apply(fitted, source, tmp_path / "probs", **more)] == [there]
    if kind == "zarr":
        np.testing.assert_allclose(probabilities_in(tmp_path / "probs"), fitted.predict_proba(2.0 * LOGITS), rtol=1e-12)
    else:
        table = pq.read_table(tmp_path / "probs" / "part-000000.parquet")
        np.testing.assert_array_equal(table["label"], (LABELS + 1) % 4)


def test_apply_leaves_no_half_written_file(folder, tmp_path, fitted, monkeypatch):
    monkeypatch.setenv("REFOCAL_BLOCK_ENTRIES", "400")
    frame = frame_of(1900, 3000)
    frame.loc[1050, "logit_cat"] = np.inf
    frame.to_parquet(folder / "part3.parquet")
    with pytest.raises(DataError, match=r"\+inf in row 1050 of .*part3\.parquet"):
        apply(fitted, folder, tmp_path / "probs")
    assert sorted(file.name for file in (tmp_path / "probs").iterdir()) == [f"part{i}.parquet" for i in range(3)]
    written = apply(fitted, folder, tmp_path / "probs", skip_bad_rows=True)
    assert sum(each.n_skipped for each in written) == 1
    found = pq.read_table(tmp_path / "probs" / "part3.parquet", columns=CLASSES).to_pandas().to_numpy()
    assert np.isnan(found[1050]).all()
    assert np.isfinite(np.delete(found, 1050, axis=0)).all()


@pytest.mark.slow
def test_the_command_line_takes_data_sets(folder, tmp_path, fitted, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["fit", f"{folder}/*.parquet", "--method", "ts", "-o", "c.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["chain"][-1]["temperature"] == pytest.approx(
        fitted.temperature_, rel=1e-9
    )
    assert run(["evaluate", str(folder), "c.json", "-o", "e.json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    loss = {method["name"]: method["measures"]["log_loss"]["value"] for method in found["methods"]}
    assert loss["c"] == pytest.approx(fitted.fit_report_["after"]["log_loss"], rel=1e-9)
    assert run(["apply", "c.json", str(folder), "-o", "probs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 3000
    assert run(["apply", "c.json", str(folder), "-o", "probs"]) == 0
    assert "in 4 files, 4 of them there before" in capsys.readouterr().out
    assert run(["apply", "c.json", str(folder), "-o", "probs.npz"]) == 2
    assert "name a folder" in capsys.readouterr().err


def test_the_command_line_maps_large_files_and_skips_bad_rows(tmp_path, fitted, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REFOCAL_LARGE_FILE", "1")
    monkeypatch.setattr(datasets, "CONNECT_SECONDS", 0.5)
    spoiled = LOGITS.copy()
    spoiled[5, 0] = np.nan
    np.save("logits.npy", spoiled)
    np.save("labels.npy", LABELS)
    command = ["fit", "logits.npy", "--labels", "labels.npy", "--method", "ts", "-o", "c.json"]
    assert run(command) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert run([*command, "--skip-bad-rows"]) == 0
    assert load("c.json").fit_report_["n_skipped"] == 1
    assert run(["fit", "logits.npy", "--method", "ts", "--scheduler", "tcp://127.0.0.1:1"]) == 1
    assert "the scheduler cannot be reached" in capsys.readouterr().err


def test_the_bar_tells_rows_a_second_and_the_time_left(monkeypatch):
    from refocal.cli import options

    clock = iter([0.0, 1.0, 2.0, 10.0, 12.0])
    monkeypatch.setattr(options.time, "monotonic", lambda: next(clock))
    told = []
    watch = options.Watch(lambda done, total, words: told.append((done, total, words)), "fitting ts")
    for done in (1_000_000, 3_000_000, 5_000_000, 1_000_000, 2_000_000):
        watch(done, 5_000_000)
    assert told[1] == (3_000_000, 5_000_000, "fitting ts: pass 1, 2.00 million rows/s, 1 s left of it")
    assert told[4][2] == "fitting ts: pass 2, 0.50 million rows/s, 6 s left of it"


def test_mapped_archives_are_not_copied(tmp_path):
    np.savez(tmp_path / "rows.npz", logits=np.repeat(LOGITS, 20, axis=0), labels=np.repeat(LABELS, 20))
    rows = open_rows(tmp_path / "rows.npz")
    assert type(rows.parts[0].values).__name__ == "Mapped"
    assert TemperatureScaling().fit(rows).fit_report_["n_samples"] == 60_000
    with pytest.raises(ValueError, match="of shape"):
        rows_of(LOGITS, LABELS[:-1])


def tables_in(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("path", "output", "relation"),
    [
        ("rows", "rows", "is"),
        ("rows", "rows/out", "lies inside"),
        ("rows", "rows/out.csv", "lies inside"),
        ("rows", ".", "contains"),
        ("rows", "link", "is"),
        ("rows", "link/out", "lies inside"),
        ("link", "rows/out", "lies inside"),
        ("rows/part0.parquet", "rows/part0.parquet", "is"),
        ("rows/part0.parquet", "rows", "contains"),
        ("rows/*.parquet", "rows", "has a file of"),
        ("rows/*.parquet", "rows/part0.parquet", "has a file of"),
        ("rows/*.parquet", "rows/probs.parquet", "matches"),
        ("**/*.parquet", "results", "matches"),
        ("r*/part?.parquet", "results", "matches"),
        ("file://{}/rows", "rows/out", "lies inside"),
        ("linking", "probs", "is linked from"),
    ],
)
def test_an_output_that_is_read_is_refused(folder, tmp_path, fitted, monkeypatch, path, output, relation):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "linking").mkdir()
    (tmp_path / "probs").mkdir()
    (tmp_path / "linking" / "a.parquet").symlink_to(tmp_path / "probs" / "a.parquet")
    before = {file: (folder / file).read_bytes() for file in tables_in(folder)}
    with pytest.raises(ParameterError, match=f"which {relation} ") as caught:
        apply(fitted, path.format(tmp_path), output)
    assert caught.value.argument == "output"
    assert {file: (folder / file).read_bytes() for file in tables_in(folder)} == before


@pytest.mark.parametrize(
    ("path", "output"),
    [("rows", "probs"), ("rows/part*.parquet", "rows/probs.csv"), ("rows/*.parquet", "rows/out"), ("rows", "rows2")],
)
def test_an_output_beside_what_is_read_is_written(folder, tmp_path, fitted, monkeypatch, path, output):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert sum(each.n_rows for each in apply(fitted, path, output)) == 3000


def test_an_output_may_not_be_the_file_of_the_labels(tmp_path, fitted):
    np.save(tmp_path / "logits.npy", LOGITS)
    np.save(tmp_path / "labels.npy", LABELS)
    with pytest.raises(ParameterError, match="another file than those that are read"):
        apply(fitted, tmp_path / "logits.npy", tmp_path / "labels.npy", labels=tmp_path / "labels.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "labels.npy"), LABELS)


def test_tables_of_sources_that_are_gone_are_refused_or_removed(folder, tmp_path, fitted):
    output = tmp_path / "probs"
    apply(fitted, folder, output)
    (folder / "part0.parquet").rename(folder / "first.parquet")
    with pytest.raises(ParameterError, match=r"with 'part0\.parquet' instead\. .* overwrite=True"):
        apply(fitted, folder, output)
    assert tables_in(output) == [f"part{i}.parquet" for i in range(4)]
    written = apply(fitted, folder, output, overwrite=True)
    assert tables_in(output) == ["first.parquet", "part1.parquet", "part2.parquet", "part3.parquet"]
    assert [each.was_there for each in written] == [False, True, True, True]
    assert sum(pq.read_metadata(output / file).num_rows for file in tables_in(output)) == 3000


def test_tables_of_others_are_refused_or_removed_and_other_files_stay(folder, tmp_path, fitted):
    output = tmp_path / "probs"
    (output / "more").mkdir(parents=True)
    for name in ("part0.parquet", "more/theirs.parquet", "_hidden.parquet"):
        frame_of(0, 10).to_parquet(output / name)
    (output / "README.md").write_text("about these files")
    with pytest.raises(ParameterError, match=r"with 'more/theirs\.parquet', 'part0\.parquet' instead"):
        apply(fitted, folder, output)
    assert pq.read_metadata(output / "part0.parquet").num_rows == 10
    apply(fitted, folder, output, overwrite=True)
    assert tables_in(output) == ["_hidden.parquet", *(f"part{i}.parquet" for i in range(4))]
    assert (output / "README.md").exists()


def test_an_output_that_was_cut_is_written_again(folder, tmp_path, fitted):
    output = tmp_path / "probs"
    apply(fitted, folder, output)
    whole = (output / "part2.parquet").read_bytes()
    for n_bytes in (len(whole) // 2, 3, 0):
        (output / "part2.parquet").write_bytes(whole[:n_bytes])
        assert [each.was_there for each in apply(fitted, folder, output)] == [True, True, False, True]
        assert pq.read_table(output / "part2.parquet").num_rows == 1200
    (output / f".part2.parquet.{'0' * 32}.part").write_bytes(whole[:100])
    apply(fitted, folder, output)
    assert sorted(file.name for file in output.iterdir()) == tables_in(output)


def test_bad_rows_are_counted_again_by_a_run_that_goes_on(folder, tmp_path, fitted):
    frame = frame_of(0, 700)
    frame.loc[[3, 5], "logit_cat"] = np.nan
    frame.to_parquet(folder / "part0.parquet")
    for there in (False, True):
        written = apply(fitted, folder, tmp_path / "probs", skip_bad_rows=True)
        assert [each.was_there for each in written] == [there] * 4
        assert [each.n_skipped for each in written] == [2, 0, 0, 0]


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_the_output_of_a_file_without_rows_has_the_columns_of_the_others(tmp_path, fitted, ending):
    (tmp_path / "rows").mkdir()
    for name, rows in (("a", slice(0, 0)), ("b", slice(0, 50))):
        frame = frame_of(rows.start, rows.stop).assign(id=[f"id {i}" for i in range(rows.stop)])
        file = tmp_path / "rows" / f"{name}.{ending}"
        if ending == "parquet":
            frame.to_parquet(file)
        elif ending == "csv":
            frame.to_csv(file, index=False)
        else:
            frame.to_json(file, orient="records", lines=True)
    written = apply(fitted, tmp_path / "rows", tmp_path / "probs")
    assert [each.n_rows for each in written] == [0, 50]
    first, second = (pq.read_schema(tmp_path / "probs" / f"{name}.parquet") for name in "ab")
    assert first == second
    assert {"id", "label", *CLASSES} <= set(first.names)


def hive(tmp_path, ending="parquet"):
    """Rows in folders of days and regions; one region is missing, and one has a blank."""
    place = tmp_path / "hive"
    for day, region, rows in (
        ("1", "west", slice(0, 500)),
        ("1", "north%20east", slice(500, 1200)),
        ("2", "west", slice(1200, 2500)),
        ("2", "__HIVE_DEFAULT_PARTITION__", slice(2500, 3000)),
    ):
        folder = place / f"day={day}" / f"region={region}"
        folder.mkdir(parents=True)
        frame = frame_of(rows.start, rows.stop)
        if ending == "parquet":
            frame.to_parquet(folder / "rows.parquet")
        else:
            frame.to_csv(folder / f"rows.{ending}", index=False)
    return place


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_folders_of_a_data_set_are_columns(tmp_path, fitted, ending):
    place = hive(tmp_path, ending)
    for path in (place, f"{place}/day=*/*/rows.{ending}", f"file://{place}"):
        found = TemperatureScaling().fit(open_rows(path))
        assert found.temperature_ == pytest.approx(fitted.temperature_, rel=1e-9)
    written = apply(fitted, place, tmp_path / "probs")
    assert sum(each.n_rows for each in written) == 3000
    table = pq.ParquetDataset(tmp_path / "probs").read().to_pandas()
    counts = table.fillna("").groupby(["day", "region"]).size()
    assert counts.to_dict() == {("1", "west"): 500, ("1", "north east"): 700, ("2", "west"): 1300, ("2", ""): 500}
    assert len({pq.read_schema(file) for file in (tmp_path / "probs").iterdir()}) == 1
    apply(fitted, place, tmp_path / "probs.csv")
    assert pd.read_csv(tmp_path / "probs.csv")["day"].value_counts().to_dict() == {1: 1200, 2: 1800}


def test_folders_of_a_data_set_may_be_groups_or_labels(tmp_path, fitted):
    found = evaluate(open_rows(hive(tmp_path), groups=["day"]), {"ts": fitted})
    assert {(row.name, row.n) for row in found.after.groups} == {("1", 1200), ("2", 1800)}
    rows = read(tmp_path / "hive", groups=["region"])
    assert sorted(set(rows.groups["region"])) == ["missing", "north east", "west"]
    for i, name in enumerate(NAMES):
        place = tmp_path / "named" / f"label={name}"
        place.mkdir(parents=True)
        frame = frame_of(0, 3000)
        frame[frame.label == i].drop(columns="label").to_parquet(place / "a.parquet")
    again = TemperatureScaling().fit(open_rows(tmp_path / "named"))
    assert again.temperature_ == pytest.approx(fitted.temperature_, rel=1e-9)


def test_a_column_of_a_file_is_not_replaced_by_a_folder(tmp_path, fitted):
    (tmp_path / "rows" / "day=1").mkdir(parents=True)
    frame_of(0, 50).assign(day="of the file").to_parquet(tmp_path / "rows" / "day=1" / "a.parquet")
    apply(fitted, tmp_path / "rows", tmp_path / "probs.csv", values="logit_*")
    assert set(pd.read_csv(tmp_path / "probs.csv")["day"]) == {"of the file"}


def test_a_column_that_a_later_file_lacks_is_named(tmp_path, fitted):
    (tmp_path / "rows").mkdir()
    for ending in ("parquet", "csv"):
        for name, frame in (("a", frame_of(0, 50).assign(source="new")), ("b", frame_of(50, 90))):
            file = tmp_path / "rows" / f"{name}.{ending}"
            frame.to_parquet(file) if ending == "parquet" else frame.to_csv(file, index=False)
        with pytest.raises(FormatError, match=rf"b\.{ending}: no column 'source', which the first file has"):
            apply(fitted, f"{tmp_path}/rows/*.{ending}", tmp_path / "probs.csv", values="logit_*")
    for name in "ab":
        lines = pd.read_csv(tmp_path / "rows" / f"{name}.csv").to_dict("records")
        (tmp_path / "rows" / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    apply(fitted, f"{tmp_path}/rows/*.jsonl", tmp_path / "probs.csv", values="logit_*")
    assert pd.read_csv(tmp_path / "probs.csv")["source"].fillna("").tolist() == ["new"] * 50 + [""] * 40


def test_a_source_that_keeps_its_size_and_time_is_written_again(tmp_path, fitted):
    source = tmp_path / "rows" / "a.csv"
    source.parent.mkdir()
    other = frame_of(0, 50).iloc[::-1]
    frame_of(0, 50).to_csv(source, index=False)
    apply(fitted, source.parent, tmp_path / "probs")
    before = source.stat()
    other.to_csv(source, index=False)
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source.stat().st_size == before.st_size
    assert [each.was_there for each in apply(fitted, source.parent, tmp_path / "probs")] == [False]
    assert [each.was_there for each in apply(fitted, source.parent, tmp_path / "probs")] == [True]
    columns = [f"logit_{name}" for name in CLASSES]
    found = pd.read_parquet(tmp_path / "probs" / "a.parquet")[list(CLASSES)].to_numpy()
    np.testing.assert_allclose(found, fitted.predict_proba(other[columns].to_numpy()), rtol=1e-5)


def test_a_column_that_the_first_file_lacks_is_not_lost(tmp_path, fitted):
    (tmp_path / "rows").mkdir()
    frame_of(0, 50).to_parquet(tmp_path / "rows" / "a.parquet")
    frame_of(50, 90).assign(source="new").to_parquet(tmp_path / "rows" / "b.parquet")
    says = r"b\.parquet: has a column 'source', which the first file lacks; add it there, or leave it out here"
    for target in ("probs.csv", "probs"):
        with pytest.raises(FormatError, match=says):
            apply(fitted, tmp_path / "rows", tmp_path / target, values="logit_*")
    assert len(read(tmp_path / "rows", values="logit_*")) == 90  # where it is not passed on


def test_parts_that_a_map_does_not_write_are_an_error(folder, tmp_path, fitted):
    with pytest.raises(DataError, match=r"'map' of apply must be .* one answer for each of 4 parts. Got 3 answers"):
        apply(fitted, folder, tmp_path / "probs", map=lambda run, jobs: [run(job) for job in jobs[1:]])
    assert sum(each.n_rows for each in apply(fitted, folder, tmp_path / "probs")) == 3000


@pytest.mark.parametrize(
    "other", [".ipynb_checkpoints/part0-checkpoint.parquet", "_temporary/0/part0.parquet", "_change_data/part0.parquet"]
)
def test_copies_that_other_programs_leave_in_a_folder_are_no_rows(tmp_path, other):
    frame = pd.DataFrame(LOGITS[:300], columns=list("abcd")).assign(label=LABELS[:300])
    for name in ("part0.parquet", "_day=3/part1.parquet", "more.parquet/part.0.parquet", other):
        (tmp_path / "rows" / name).parent.mkdir(parents=True, exist_ok=True)
        frame.to_parquet(tmp_path / "rows" / name)
    for place in (f"{tmp_path}/rows", f"{tmp_path}/rows/**/part*.parquet", f"file://{tmp_path}/rows"):
        assert len(read(place, values="a,b,c,d")) == 900
        assert open_rows(place, values="a,b,c,d").n_given == 900
    # What is asked for by its name is read, and what is not read is none of ours to remove.
    assert len(read(f"{tmp_path}/rows/{other}", values="a,b,c,d")) == 300
    assert len(read(f"{tmp_path}/rows/{other[:3]}*/**/*.parquet", values="a,b,c,d")) == 300
    calibrator = TemperatureScaling().fit(LOGITS[:300], LABELS[:300])
    (tmp_path / "out" / other).parent.mkdir(parents=True)
    frame.to_parquet(tmp_path / "out" / other)
    np.save(tmp_path / "rows.npy", LOGITS[:300])
    apply(calibrator, tmp_path / "rows.npy", tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / other).exists()
