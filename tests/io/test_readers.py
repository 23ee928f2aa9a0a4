"""Every format gives the same predictions and so the same calibrator; what a file lacks is said in one line."""

from __future__ import annotations

import json
import pickle
import sys
import zipfile
from datetime import time, timedelta

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file
from sklearn.base import clone

from refocal import FocalTemperatureScaling, PredictionSets, TemperatureScaling, load
from refocal._groups import as_groups
from refocal._validation import SUM_TOLERANCE
from refocal.cli.run import run
from refocal.engine import Pass
from refocal.errors import DataError, FormatError, LabelError, MissingExtraError, ParameterError
from refocal.io import Predictions, apply, blocks, open_rows, read, read_lm_eval, read_token_log_p, read_values

pytestmark = pytest.mark.core

rng = np.random.default_rng(0)
LOGITS = 2.0 * rng.normal(size=(400, 4))
LABELS = np.argmax(LOGITS + rng.gumbel(size=LOGITS.shape), axis=1)
FRAME = pd.DataFrame(LOGITS, columns=[f"logit_{i}" for i in range(4)]).assign(label=LABELS)


def write(folder, ending):
    """The same rows in each format; the path, and what `read` needs besides."""
    path = folder / f"rows{ending}"
    if ending == ".npz":
        np.savez(path, logits=LOGITS, labels=LABELS)
    elif ending == ".npy":
        np.save(path, LOGITS)
        np.save(folder / "y.npy", LABELS)
        return path, {"labels": folder / "y.npy"}
    elif ending in (".csv", ".tsv"):
        FRAME.to_csv(path, index=False, sep="," if ending == ".csv" else "\t")
    elif ending == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in FRAME.to_dict("records")))
    elif ending == ".parquet":
        FRAME.to_parquet(path)
    elif ending == ".safetensors":
        save_file({"logits": LOGITS, "labels": LABELS}, path)
    else:
        torch.save({"logits": torch.from_numpy(LOGITS), "labels": torch.from_numpy(LABELS)}, path)
    return path, {}


@pytest.mark.parametrize(
    "ending", [".npz", ".npy", ".csv", ".tsv", ".jsonl", ".parquet", ".safetensors", ".pt", ".pth"]
)
def test_every_format_gives_the_same_calibrator(tmp_path, ending):
    path, options = write(tmp_path, ending)
    found = read(path, **options)
    np.testing.assert_array_equal(found.values, LOGITS)
    np.testing.assert_array_equal(found.labels, LABELS)
    assert found.class_names is None
    fitted = FocalTemperatureScaling().fit(found.values, found.labels)
    expected = FocalTemperatureScaling().fit(LOGITS, LABELS)
    assert (fitted.gamma_, fitted.temperature_) == (expected.gamma_, expected.temperature_)


def test_npy_is_memory_mapped(tmp_path):
    path, options = write(tmp_path, ".npy")
    array = read(path, **options).values
    while not isinstance(array, np.memmap):
        array = array.base
        assert array is not None


def large(path, compressed=False, order="C", dtype="<f8"):
    values = np.asarray(np.tile(LOGITS, (200, 1)), dtype=dtype, order=order)
    (np.savez_compressed if compressed else np.savez)(path, logits=values, labels=np.tile(LABELS, 200))
    return values


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_uncompressed_npz_is_memory_mapped(tmp_path, order, dtype):
    values = large(tmp_path / "a.npz", order=order, dtype=dtype)
    found = read_values(tmp_path / "a.npz").values
    assert isinstance(found, np.memmap)
    assert not found.flags.writeable
    assert found.flags.f_contiguous == (order == "F")
    np.testing.assert_array_equal(found, values)
    with np.load(tmp_path / "a.npz") as arrays:
        np.testing.assert_array_equal(found, arrays["logits"])
    large(tmp_path / "b.npz", compressed=True, order=order, dtype=dtype)
    compressed = read_values(tmp_path / "b.npz").values
    assert not isinstance(compressed, np.memmap)
    np.testing.assert_array_equal(compressed, values)
    np.testing.assert_array_equal(read(tmp_path / "a.npz").labels, read(tmp_path / "b.npz").labels)


def put(at, new):
    """Change bytes of a file; `at` is found from the start or, if negative, from the directory of the archive."""

    def change(data):
        place = data.index(b"PK\x01\x02") + (-at) if at < 0 else at
        return data[:place] + new + data[place + len(new) :]

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put(0, b"XX"), "'logits' cannot be read"),  # the header of the member
        (put(30, b"X"), "'logits' cannot be read"),  # its name
        (put(26, b"\xff\xff"), "'logits' cannot be read"),  # the length of its name
        (put(28, b"\xff\xff"), "'logits' cannot be read"),  # the length of what follows
        (put(-20, b"\xff\xff\xff\x7f"), "cannot be read"),  # its size in the directory
        (put(-24, b"\x00\x00\x10\x01"), "cannot be read"),
        (put(-42, b"\xff\xff\xff\x7f"), "cannot be read"),  # its place
        (put(-10, b"\x63\x00"), "'logits' cannot be read"),  # a compression that nobody knows
        (put(-8, b"\x01\x00"), "'logits' cannot be read"),  # encrypted
        (lambda data: data.replace(b"(80000, 4)", b"(90000, 4)"), "'logits' cannot be read"),
        (lambda data: data.replace(b"(80000, 4)", b"(-9999, 4)"), "'logits' cannot be read"),
        (lambda data: data.replace(b"'<f8'", b"'|O8'", 1), "'logits' cannot be read"),
        (lambda data: data.replace(b"'<f8'", b"'<zz'", 1), "'logits' cannot be read"),
        (lambda data: data[: len(data) // 2], "cannot be read"),
    ],
)
def test_hostile_headers_of_archives(tmp_path, change, words):
    large(tmp_path / "a.npz")
    (tmp_path / "a.npz").write_bytes(change((tmp_path / "a.npz").read_bytes()))
    with pytest.raises(FormatError, match=words) as caught:
        read(tmp_path / "a.npz")
    assert "a.npz: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_compressed_member(tmp_path):
    large(tmp_path / "a.npz", compressed=True)
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[1000:1100] = bytes(100)
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(FormatError, match="'logits' cannot be read"):
        read(tmp_path / "a.npz")
    np.save(tmp_path / "b.npy", LOGITS)
    (tmp_path / "b.npy").rename(tmp_path / "b.npz")
    with pytest.raises(FormatError, match=r"a single array; name the file \.npy"):
        read(tmp_path / "b.npz")


def test_names_can_be_given(tmp_path):
    weight = rng.uniform(size=400)
    np.savez(tmp_path / "a.npz", val=LOGITS, yv=LABELS + 1, w=weight, class_names=list("wxyz"))
    found = read(tmp_path / "a.npz", values="val", labels="yv", weight="w", first_label=1)
    np.testing.assert_array_equal(found.labels, LABELS)
    np.testing.assert_array_equal(found.weight, weight)
    assert found.class_names == ("w", "x", "y", "z")


@pytest.mark.parametrize("first", ["id", "", "Unnamed: 0"])
def test_columns_that_share_a_beginning_are_the_classes_beside_one_that_counts_rows(tmp_path, first):
    (tmp_path / "a.csv").write_text(f"{first},p_cat,p_dog,p_bird,label\n7,0.5,0.25,0.25,dog\n8,0.1,0.1,0.8,bird\n")
    found = read(tmp_path / "a.csv", input="probabilities")
    assert found.class_names == ("cat", "dog", "bird")
    np.testing.assert_array_equal(found.values, [[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])
    assert found.labels.tolist() == [1, 2]


def test_a_column_is_what_its_name_says(tmp_path):
    (tmp_path / "p.csv").write_text("id,p,label\n7,0.3,0\n8,1.4,1\n")
    (tmp_path / "s.csv").write_text("log_odds,label\n0.3,0\n0.4,1\n")
    for kind in ("logits", "log-odds"):
        with pytest.raises(FormatError, match=rf"no '{kind}' but 'p'\. If those are meant, say input='probabilities'"):
            read(tmp_path / "p.csv", input=kind)
    with pytest.raises(FormatError, match=r"no 'probabilities' but 'log_odds'\. If those are meant, say"):
        read(tmp_path / "s.csv", input="probabilities")
    assert read(tmp_path / "p.csv", values="p", input="logits").values[1, 1] == 1.4  # who names it knows better
    assert read(tmp_path / "s.csv").input == "logits"
    with pytest.raises(DataError, match="at most 1"):  # its name says that it holds probabilities
        read(tmp_path / "p.csv")


@pytest.mark.parametrize("beside", ["age", "age,region", "id,age", "weight"])
def test_a_column_of_two_classes_is_found_beside_any_other(tmp_path, beside):
    more = ",".join("7" for _ in beside.split(","))
    for name, kind in (("log_odds", "logits"), ("log_odds", "log-odds"), ("p", "probabilities")):
        (tmp_path / "a.csv").write_text(f"{beside},{name},label\n{more},0.3,0\n{more},0.8,1\n")
        rows = read(tmp_path / "a.csv", input=kind)
        assert rows.values[:, 1].tolist() == [0.3, 0.8]
        assert rows.class_names is None
    assert read(tmp_path / "a.csv").input == "probabilities"


def test_names_that_are_listed_say_the_order_of_the_classes(tmp_path):
    (tmp_path / "a.csv").write_text("cat,dog,emu,age,label\n3.0,1.0,2.0,7,0\n1.0,2.0,0.5,8,1\n")
    rows = read(tmp_path / "a.csv", values="dog,cat")
    assert rows.class_names == ("dog", "cat")
    assert rows.values.tolist() == [[1.0, 3.0], [2.0, 1.0]]
    assert rows.labels.tolist() == [0, 1]
    assert read(tmp_path / "a.csv", values="emu,?o*,cat,dog").class_names == ("emu", "dog", "cat")
    with pytest.raises(FormatError, match=r"no column that matches 'hrose'\. It has 'cat', 'dog', 'emu'"):
        read(tmp_path / "a.csv", values="cat,dog,hrose")


def test_labels_that_are_numbers_follow_columns_that_are_listed_in_another_order(tmp_path):
    (tmp_path / "a.csv").write_text("class_0,class_1,class_2,label\n3.0,1.0,2.0,0\n1.0,2.0,0.5,1\n")
    rows = read(tmp_path / "a.csv", values="class_2,class_0,class_1")
    assert rows.values[np.arange(2), rows.labels].tolist() == [3.0, 2.0]


def test_p_is_a_class_among_others_of_one_letter(tmp_path):
    (tmp_path / "a.csv").write_text("p,n,label\n0.3,0.7,p\n0.8,0.2,n\n")
    rows = read(tmp_path / "a.csv", input="probabilities")
    assert rows.class_names == ("p", "n")
    assert rows.values.tolist() == [[0.3, 0.7], [0.8, 0.2]]


def test_p_beside_another_letter_is_a_probability_where_labels_are_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("p,w,label\n0.3,2.5,0\n0.8,1.0,1\n")
    rows = read(tmp_path / "a.csv")
    assert rows.described().endswith("labels: label, column numbers; positive: 1; 1 of 3 columns not used: w")
    assert rows.event(1)[0].tolist() == [0.3, 0.8]


@pytest.mark.parametrize(
    "text",
    [
        "score,age,label\n0.3,41,0\n0.8,35,1\n",
        "pd,exposure,label\n0.3,100.5,0\n0.8,70.25,1\n",
        "score,amount,label\n0.3,10.5,False\n0.8,7.25,True\n",
        "score,amount,age,label\n0.3,10.5,41,0\n0.8,7.25,35,1\n0.1,7.25,30,2\n",
    ],
)
def test_a_score_beside_a_feature_is_not_taken_for_classes_that_labels_count(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(FormatError, match="do not look like classes"):
        read(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("cat,dog,emu,label\n3.5,1.5,2.5,0\n1.5,2.5,0.5,1\n1.5,2.5,0.5,2\n")
    assert read(tmp_path / "a.csv").class_names == ("cat", "dog", "emu")


def test_groups_may_be_the_name_of_one_column(tmp_path):
    """It is that column, not those that its letters name."""
    table = pd.DataFrame({"p": [0.1, 0.2], "label": [0, 1], "ab": ["x", "y"], "a": [1, 2], "b": [3, 4]})
    table.to_csv(tmp_path / "a.csv", index=False)
    for clusters in (None, "b"):
        rows = read(tmp_path / "a.csv", groups="ab", clusters=clusters)
        assert {name: values.tolist() for name, values in rows.groups.items()} == {"ab": ["x", "y"]}
    collect = Pass(lambda block: {name: [*names] for name, names in block.groups.items()}, lambda one, two: one)
    assert open_rows(tmp_path / "a.csv", groups="ab").reduce(collect) == {"ab": ["x", "y"]}


def test_times_of_a_time_zone_are_the_same_groups_in_every_format(tmp_path):
    days = pd.date_range("2026-03-28", periods=3, tz="Europe/Berlin")
    table = pd.DataFrame({"p": [0.1, 0.2, 0.3], "label": [0, 1, 0], "day": days})
    table.to_parquet(tmp_path / "a.parquet")
    table.to_csv(tmp_path / "a.csv", index=False)
    expected = ["2026-03-28T00:00:00+01:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"]
    for file in ("a.parquet", "a.csv"):
        assert read(tmp_path / file, groups=["day"]).groups["day"].tolist() == expected
    for frame in (table, pa.Table.from_pandas(table), polars.from_pandas(table)):
        assert (
            as_groups(frame[["day"]] if frame is table else frame.select(["day"]), 3, "f")["day"].tolist() == expected
        )


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (
            [timedelta(hours=36), timedelta(seconds=1.5), timedelta(hours=-1), None],
            ["1 days 12:00:00", "0 days 00:00:01.5", "-1 days +23:00:00", "missing"],
        ),
        ([time(8), time(8, 30, 0, 500_000), time(0), None], ["08:00:00", "08:30:00.5", "00:00:00", "missing"]),
    ],
)
def test_durations_and_times_of_day_are_the_same_groups_in_every_format(tmp_path, values, names):
    table = pd.DataFrame({"p": [0.1, 0.2, 0.6, 0.7], "label": [0, 1, 0, 1], "since": values})
    arrow = pa.Table.from_pandas(table)
    kinds = [values, table["since"], polars.Series(values), arrow["since"], table["since"].astype(object)]
    if isinstance(values[0], timedelta):
        of_units = table["since"].to_numpy()
        kinds += [of_units.astype(f"m8[{unit}]") for unit in ("ns", "us", "ms")]
        kinds.append([*of_units.astype("m8[ns]")])
    for column in kinds:
        assert as_groups({"since": column}, 4, "f")["since"].tolist() == names
    table.to_csv(tmp_path / "rows.csv", index=False)
    pq.write_table(arrow, tmp_path / "rows.parquet")
    for file in ("rows.csv", "rows.parquet"):
        rows = read(tmp_path / file, groups=["since"])
        assert rows.groups["since"].tolist() == names


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        (pa.array([2**53, 2**53 + 1]), pa.nulls(2, pa.int64()), ["9007199254740992", "9007199254740993"]),
        (pa.array([2**63, 2**63 + 1], pa.uint64()), pa.array([1, 2]), ["9223372036854775808", "9223372036854775809"]),
        (pa.array([True, False]), pa.array([1, 0]), ["True", "False"]),
        (pa.array([1 / 3, 0.5], pa.float32()), pa.array([0.25, 0.5]), ["0.33333334", "0.5"]),
        (pa.array(np.array(["2026-01-31T10:00", "2026-02-01"], "M8[ns]")), pa.nulls(2),
         ["2026-01-31T10:00:00", "2026-02-01"]),
        (pa.array(np.array([90, 3600], "m8[s]").astype("m8[ns]")), pa.nulls(2), ["0 days 00:01:30", "0 days 01:00:00"]),
    ],
)  # fmt: skip
def test_groups_are_the_same_whatever_type_other_files_of_a_data_set_have(tmp_path, first, second, names):
    for name, column in (("a", first), ("b", second)):
        table = pa.table({"logit_x": [0.5, 1.5], "logit_y": [1.0, 0.5], "label": [0, 1], "group": column})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    others = as_groups(second, 2, "f")["group"].tolist()
    assert as_groups(first, 2, "f")["group"].tolist() == names
    assert read(tmp_path, groups=["group"]).groups["group"].tolist() == [*names, *others]
    collect = Pass(lambda block: block.groups["group"].tolist(), lambda one, two: one + two)
    assert open_rows(tmp_path, groups=["group"]).reduce(collect) == [*names, *others]


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
@pytest.mark.parametrize("names", [["cat", "dog", "emu"], ["1", "2", "3"]])
def test_a_missing_label_is_that_of_a_bad_row_in_every_format(tmp_path, ending, names):
    """Also where all labels tell whether they are names or column numbers."""
    labels = np.array(names, dtype=object)[LABELS[LABELS < 3]]
    labels[5] = None
    table = pd.DataFrame(LOGITS[LABELS < 3, :3], columns=names).assign(label=labels)
    file = tmp_path / f"rows{ending}"
    if ending == ".parquet":
        table.to_parquet(file)
    elif ending == ".csv":
        table.to_csv(file, index=False)
    else:
        table.to_json(file, orient="records", lines=True)
    with pytest.raises(LabelError, match="Got a missing one in row 5 of"):
        TemperatureScaling().fit(open_rows(file))
    found = TemperatureScaling().fit(open_rows(file, skip_bad_rows=True))
    assert found.fit_report_["n_skipped"] == 1
    expected = TemperatureScaling().fit(np.delete(LOGITS[LABELS < 3, :3], 5, axis=0), np.delete(LABELS[LABELS < 3], 5))
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-6)


def test_months_of_numpy_are_groups_in_whole():
    months = np.array([1, 120], dtype="m8[M]")
    assert as_groups(months, 2, "f")["group"].tolist() == ["1 months", "120 months"]
    assert as_groups(np.array([10**17, 2], dtype="m8[as]"), 2, "f")["group"][0] == "100000000000000000 attoseconds"


def test_truths_and_times_of_arrow_are_the_same_groups_in_every_format(tmp_path):
    times = pd.date_range("2026-03-28 13:30", periods=4, tz="Europe/Berlin")
    table = pd.DataFrame({"p": [0.1, 0.2, 0.3, 0.6], "label": [0, 1, 0, 1], "time": times, "new": [True, False] * 2})
    arrow = pa.Table.from_pandas(table)
    table.to_parquet(tmp_path / "a.parquet")
    table.to_csv(tmp_path / "pandas.csv", index=False)
    pyarrow.csv.write_csv(arrow, tmp_path / "arrow.csv")
    place = tmp_path / "rows" / "new=true"
    place.mkdir(parents=True)
    table[table["new"]].drop(columns="new").to_parquet(place / "a.parquet")
    expected = read(tmp_path / "a.parquet", groups=["new", "time"]).groups
    assert expected["new"].tolist() == ["True", "False"] * 2
    for name in ("pandas.csv", "arrow.csv"):
        groups = read(tmp_path / name, groups=["new", "time"]).groups
        for column, names in expected.items():
            assert groups[column].tolist() == names.tolist()
    assert read(tmp_path / "rows", groups=["new"]).groups["new"].tolist() == ["True"] * 2


def test_the_name_of_a_column_is_that_column_also_where_it_could_be_a_pattern(tmp_path):
    p = np.array([0.2, 0.7, 0.4])
    table = pd.DataFrame({"p1": 1 - p, "p[1]": p, "P(a, b)": p, "label": [0, 1, 1]})
    table.to_csv(tmp_path / "a.csv", index=False)
    for name in ("p[1]", "P(a, b)"):
        found = read(tmp_path / "a.csv", values=name, input="probabilities")
        assert found.source.columns == (name,)
        np.testing.assert_allclose(found.values[:, 1], p)
    assert read(tmp_path / "a.csv", values="p1,p[[]1]", input="probabilities").source.columns == ("p1", "p[1]")
    assert read(tmp_path / "a.csv", values="p[1],p1", input="probabilities").source.columns == ("p[1]", "p1")


def test_two_columns_are_not_the_classes_of_a_calibrator_because_it_has_two(tmp_path):
    logits = np.array([[1.0, -0.5], [0.5, 2.0], [-1.0, 0.5], [0.25, -0.5]])
    np.savez(tmp_path / "fit.npz", logits=logits, labels=[0, 1, 1, 0])
    TemperatureScaling().fit(read(tmp_path / "fit.npz")).save(tmp_path / "c.json")
    (tmp_path / "new.csv").write_text("score,amount\n0.3,10.5\n0.8,7.25\n")
    arguments = ["apply", str(tmp_path / "c.json"), str(tmp_path / "new.csv"), "-o", str(tmp_path / "p.csv")]
    assert run(arguments) == 1
    assert not (tmp_path / "p.csv").exists()
    assert run([*arguments, "--values", "score,amount"]) == 0


def test_two_columns_of_labels_are_refused_unless_one_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("p,label,labels\n0.3,0,1\n0.8,1,0\n")
    np.savez(tmp_path / "a.npz", logits=2.0 * np.eye(2), label=[0, 1], labels=[1, 0])
    for file in ("a.csv", "a.npz"):
        with pytest.raises(FormatError, match="has 'label' and 'labels'; say which one holds the labels"):
            read(tmp_path / file)
        assert read(tmp_path / file, labels="label").labels.tolist() == [0, 1]
        assert read(tmp_path / file, labels="labels").labels.tolist() == [1, 0]


def test_a_column_of_ids_is_no_class(tmp_path):
    (tmp_path / "a.csv").write_text("row_id,cat,dog,label\n1,2.0,0.5,cat\n2,0.5,1.0,dog\n")
    rows = read(tmp_path / "a.csv")
    assert rows.class_names == ("cat", "dog")
    assert rows.described().endswith("labels: label, by name; positive: dog; 1 of 4 columns not used: row_id")
    (tmp_path / "b.csv").write_text("row_id,logit_en,logit_id,label\n1,2.0,0.5,en\n2,0.5,1.0,id\n")
    assert read(tmp_path / "b.csv").class_names == ("en", "id")
    (tmp_path / "b.csv").write_text("logit_en,logit_id,label\n2.0,0.5,en\n0.5,1.0,id\n")
    assert read(tmp_path / "b.csv").class_names == ("en", "id")  # languages


@pytest.mark.parametrize("first", [0, 1])
def test_numbered_columns_are_in_the_order_of_their_numbers(tmp_path, first):
    numbers = range(first, 12 + first)
    order = sorted(numbers, key=str)  # as tools write columns: 1, 10, 11, 2
    header = ",".join(f"class_{i}" for i in order)
    (tmp_path / "a.csv").write_text(f"{header},label\n{','.join(map(str, order))},{first + 2}\n")
    rows = read(tmp_path / "a.csv", first_label=first)
    np.testing.assert_array_equal(rows.values[0], numbers)
    assert rows.labels.tolist() == [2]


@pytest.mark.parametrize("numbers", [[3, 5, 8], [-1, 1]])
@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_labels_are_the_numbers_that_columns_are_called(tmp_path, ending, numbers):
    """As scikit-learn's predict_proba is written with classes_ as columns."""
    frame = pd.DataFrame(np.eye(len(numbers)), columns=[f"p_{i}" for i in numbers]).assign(label=numbers)
    file = tmp_path / f"a.{ending}"
    {"csv": frame.to_csv, "parquet": frame.to_parquet}.get(
        ending, lambda file, index: frame.to_json(file, orient="records", lines=True)
    )(file, index=False)
    rows = read(file, input="probabilities")
    assert rows.class_names == tuple(map(str, numbers))
    assert rows.labels.tolist() == list(range(len(numbers)))
    assert read(file, input="probabilities", first_label=3).labels.tolist() == rows.labels.tolist()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([2, 1, 1], [1, 0, 0]),  # the highest class is absent
        ([3, 1, 2], [2, 0, 1]),
        ([2, 1, 255], [1, 0]),  # where 255 marks a row without a label
    ],
)
def test_labels_from_1_to_c_are_the_names_of_columns_called_so(tmp_path, ending, labels, expected):
    frame = pd.DataFrame(3.0 * np.eye(3), columns=["1", "2", "3"]).assign(label=labels)
    parts = [frame[:2], frame[2:]]  # the last part alone tells what the labels are
    for i, part in enumerate(parts):
        file = tmp_path / f"{i}.{ending}"
        part.to_csv(file, index=False) if ending == "csv" else part.to_parquet(file, index=False)
    rows = read(tmp_path, ignore_index=255)
    assert rows.class_names == ("1", "2", "3")
    assert rows.labels.tolist() == expected
    in_blocks = open_rows(tmp_path, ignore_index=255)
    in_blocks.start()
    found = in_blocks.reduce(Pass(map=lambda block: block.labels.tolist(), merge=lambda a, b: a + b))
    assert found == expected


def test_labels_from_0_may_be_said_of_columns_called_1_to_c(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("1,2,3,label\n2.0,0.5,0.1,1\n0.5,2.0,0.1,2\n0.1,0.5,2.0,1\n")
    assert read(tmp_path / "a.csv").labels.tolist() == [0, 1, 0]
    assert read(tmp_path / "a.csv", first_label=0).labels.tolist() == [1, 2, 1]
    assert open_rows(tmp_path / "a.csv", first_label=0).reader.first_label == 0
    for more, accuracy in (([], 2 / 3), (["--first-label", "0"], 0.0)):
        assert run(["evaluate", str(tmp_path / "a.csv"), "--resamples", "5", "--json", *more]) == 0
        found = json.loads(capsys.readouterr().out)["methods"][0]["measures"]["accuracy"]["value"]
        assert found == pytest.approx(accuracy)


def test_labels_that_are_skipped_do_not_say_what_the_others_are(tmp_path):
    (tmp_path / "a.csv").write_text("1,2,3,label\n2.0,0.5,0.1,1\n0.5,2.0,0.1,9\n0.5,2.0,0.1,2\n0.5,2.0,0.1,?\n")
    rows = open_rows(tmp_path / "a.csv", skip_bad_rows=True)
    rows.start()
    assert rows.reduce(Pass(map=lambda block: block.labels.tolist(), merge=lambda a, b: a + b)) == [0, 1]
    assert rows.n_skipped == 2


def test_columns_name_the_classes(tmp_path):
    frame = pd.DataFrame(LOGITS, columns=["p_cat", "p_dog", "p_eel", "p_fox"])
    frame["truth"] = np.array(["cat", "dog", "eel", "fox"])[LABELS]
    frame["row"] = range(len(frame))
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        found = read(tmp_path / name, values="p_*", labels="truth", input="logits")
        np.testing.assert_array_equal(found.values, LOGITS)
        np.testing.assert_array_equal(found.labels, LABELS)
        assert found.class_names == ("cat", "dog", "eel", "fox")


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_labels_may_be_whole_names_of_columns(tmp_path, ending):
    names = ["new_cat", "new_dog", "new_eel", "new_fox"]
    frame = pd.DataFrame(LOGITS, columns=names)
    file = tmp_path / f"a.{ending}"
    for labels in (
        np.array(names)[LABELS],
        [names[y].removeprefix("new_") if i % 2 else names[y] for i, y in enumerate(LABELS)],
    ):
        given = frame.assign(label=labels)
        if ending == "jsonl":
            given.to_json(file, orient="records", lines=True, double_precision=15)
        else:
            given.to_csv(file, index=False) if ending == "csv" else given.to_parquet(file)
        found = read(file)
        assert found.class_names == ("cat", "dog", "eel", "fox")
        np.testing.assert_array_equal(found.labels, LABELS)
    rows = open_rows(file)
    rows.start()
    assert rows.reduce(Pass(map=lambda block: block.labels.tolist(), merge=lambda a, b: a + b)) == LABELS.tolist()


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_rows_without_a_label_are_left_out_where_labels_are_names(tmp_path, ending):
    names = np.array(["cat", "dog", "eel", "fox"])
    labels = np.where(np.arange(len(LABELS)) % 5 == 0, "-1", names[LABELS])
    file, kept = tmp_path / f"a.{ending}", np.arange(len(LABELS)) % 5 != 0
    frame = pd.DataFrame(LOGITS, columns=names).assign(label=labels, region=np.where(kept, "north", "nowhere"))

    def write(frame):
        if ending == "jsonl":
            frame.to_json(file, orient="records", lines=True, double_precision=15)
        else:
            frame.to_csv(file, index=False) if ending == "csv" else frame.to_parquet(file)

    write(frame)
    found = read(file, ignore_index=-1, values="cat,dog,eel,fox", groups=["region"])
    np.testing.assert_array_equal(found.labels, LABELS[kept])
    assert set(found.groups["region"].tolist()) == {"north"}
    for given in (labels.tolist(), labels.astype(object), pd.Series(labels, dtype="category")):
        some = Predictions.from_logits(LOGITS, given, ignore_index=-1, class_names=names)
        np.testing.assert_array_equal(some.labels, LABELS[kept])
    expected = TemperatureScaling().fit(LOGITS[kept], names[LABELS[kept]])
    fitted = TemperatureScaling().fit(LOGITS, labels, ignore_index=-1)
    assert (fitted.temperature_, fitted.classes_.tolist()) == (expected.temperature_, names.tolist())
    rows = open_rows(file, ignore_index=-1, values="cat,dog,eel,fox")
    rows.start()
    assert rows.n_rows == np.count_nonzero(kept)
    write(frame.assign(label=np.where(kept, labels, "cta")))  # a misspelt name is no mark
    with pytest.raises(LabelError, match="among the class names"):
        read(file, ignore_index=-1, values="cat,dog,eel,fox")
    with pytest.raises(LabelError, match="among the class names"):
        open_rows(file, ignore_index=-1, values="cat,dog,eel,fox").start()


def test_missing_labels_in_blocks_are_no_marks():
    rows = blocks([(LOGITS, np.where(np.arange(400) == 3, np.nan, LABELS))], ignore_index=-1)
    with pytest.raises(LabelError, match="Got a missing one in row 3"):
        rows.start()


def test_one_column_of_two_classes_is_a_table(tmp_path):
    for name, kind, values in (("p", "probabilities", None), ("log_odds", "logits", None), ("s", "logits", "s")):
        (tmp_path / "a.csv").write_text(f"{name}\n0.3\n0.8\n")
        found = read_values(tmp_path / "a.csv", input=kind, values=values)
        assert found.values.tolist() == [0.3, 0.8]
    for text in ("s\n0.3\n", "cat;dog;label\n0.3;0.7;0\n"):
        (tmp_path / "a.csv").write_text(text)
        with pytest.raises(FormatError, match="names of two or more columns, none twice and commas between"):
            read_values(tmp_path / "a.csv")


def test_parquet_with_a_list_in_each_cell(tmp_path):
    pq.write_table(pa.table({"logits": LOGITS.tolist(), "label": LABELS}), tmp_path / "a.parquet")
    np.testing.assert_array_equal(read(tmp_path / "a.parquet").values, LOGITS)


def test_probabilities_have_their_own_name(tmp_path):
    p = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    np.savez(tmp_path / "a.npz", probabilities=p, labels=LABELS)
    assert read(tmp_path / "a.npz", input="probabilities").input == "probabilities"
    assert read(tmp_path / "a.npz").input == "probabilities"
    with pytest.raises(FormatError, match=r"no 'logits' but 'probabilities'. If those are meant, say input="):
        read(tmp_path / "a.npz", input="logits")


def test_sums_of_bfloat16_are_read_alike_everywhere(tmp_path):
    """Rounding moves them from 1 by more than is allowed of other probabilities."""
    p = torch.softmax(torch.from_numpy(LOGITS.astype(np.float32)), 1).to(torch.bfloat16)
    assert (p.double().sum(1) - 1.0).abs().max() > SUM_TOLERANCE
    exact = p.float() / p.float().sum(1, keepdim=True)
    labels = torch.from_numpy(LABELS)
    file = tmp_path / "rows.safetensors"
    ts = TemperatureScaling(input="probabilities")
    expected = clone(ts).fit(exact, labels)
    sets = PredictionSets(input="probabilities").fit(exact, labels)
    fits = [
        lambda p: clone(ts).fit(p, labels),
        lambda p: clone(ts).fit(blocks([(p, labels)], input="probabilities")),
        lambda p: clone(ts).fit(open_rows(file)),
        lambda p: clone(ts).fit(read(file)),
    ]
    predictions = [
        expected.predict_proba,
        lambda p: expected.predict_proba(Predictions.from_probabilities(p, labels)),
        lambda p: apply(expected, file, tmp_path / "out.npy") and np.load(tmp_path / "out.npy"),
    ]
    save_torch_file({"probabilities": p, "labels": labels}, file)
    for fit in fits:
        assert fit(p).temperature_ == pytest.approx(expected.temperature_, rel=1e-6)
    for predict in predictions:
        np.testing.assert_allclose(predict(p), expected.predict_proba(exact), atol=1e-6)
    np.testing.assert_array_equal(expected.predict(p), expected.predict(exact))
    np.testing.assert_array_equal(sets.predict_set(p), sets.predict_set(exact))
    p[7] *= 1.02
    save_torch_file({"probabilities": p, "labels": labels}, file)
    for way in (*fits, *predictions, expected.predict, sets.predict_set):
        with pytest.raises(DataError, match=r"sum.* within 0\.001"):
            way(p)


def test_bfloat16(tmp_path):
    values = torch.from_numpy(LOGITS).to(torch.bfloat16)
    torch.save({"logits": values, "labels": LABELS.tolist()}, tmp_path / "a.pt")
    assert torch.equal(read(tmp_path / "a.pt").values, values)
    save_torch_file({"logits": values, "labels": torch.from_numpy(LABELS)}, tmp_path / "a.safetensors")
    assert torch.equal(read(tmp_path / "a.safetensors").values, values)  # in its own precision, mapped
    assert run(["fit", str(tmp_path / "a.pt"), "-m", "ts", "-o", str(tmp_path / "c.json")]) == 0
    assert run(["apply", str(tmp_path / "c.json"), str(tmp_path / "a.safetensors"), "-o", str(tmp_path / "p.npz")]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "p.npz")["probabilities"].sum(axis=1), 1.0, atol=0.02)


def test_values_without_labels(tmp_path):
    np.save(tmp_path / "x.npy", LOGITS)
    np.testing.assert_array_equal(read_values(tmp_path / "x.npy").values, LOGITS)
    with pytest.raises(FormatError, match="no labels"):
        read(tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "0.1,0.2\n0.3,0.4\n", "it holds numbers"),
        ("a.csv", "a,a,label\n1,2,0\n", "none twice"),
        ("a.csv", "logit_a,logit_b,label\n1,2,0\n3,x,1\n", "row 1 has 'x' in the column 'logit_b'"),
        ("a.csv", "a,b,label\n1,2,0\n3,1\n", "a.csv"),
        ("a.csv", "a,b,label\n1,2.5,0\n", "the columns 'a', 'b' do not look like classes"),
        ("a.csv", "a,b,price,label\n0.5,1.5,2.5,a\n0.5,1.5,2.5,b\n", "'price' does not look like a class"),
        ("a.csv", "id,label\n0,1\n", "'id' does not look like a class"),
        ("a.csv", "a,b\n1,2\n", "no labels. It has 'a', 'b'"),
        ("a.jsonl", '{"logits": [1, 2], "label": 0}\nnot JSON\n', "row 1 is not a JSON object"),
        ("a.jsonl", '{"logits": [1, 2], "label": 0}\n{"label": 1}\n', "Got 0 in row 1 instead"),
        ("a.jsonl", "", "has any rows"),
        ("a.npz", "not a zip", "cannot be read as .npz"),
        ("a.npy", "not an array", "cannot be read as .npy"),
        ("a.parquet", "not parquet", "cannot be read as .parquet"),
        ("a.safetensors", "nothing", "cannot be read as .safetensors"),
        ("a.pt", "nothing", "cannot be read safely"),
        ("a.pt", "", r"cannot be read as \.pt: it is empty or damaged"),
        ("a.json", "{}", "arguments swapped"),
        ("a.xlsx", "", "known are .npz"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(FormatError, match=message) as caught:
        read(tmp_path / name)
    assert "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError, match="no such file"):
        read(tmp_path / f"other{name}")


def test_missing_names_are_listed(tmp_path):
    path, _ = write(tmp_path, ".csv")
    with pytest.raises(FormatError, match=r"no column 'target'. It has 'logit_0'"):
        read(path, labels="target")
    with pytest.raises(FormatError, match="that matches 'p_\\*'"):
        read(path, values="p_*")


def test_fields_that_nobody_asks_for_may_be_of_several_kinds(tmp_path):
    rows = [{"id": name, "logits": [1.0, 2.0], "label": 1} for name in (1, "a", [2])]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert read(tmp_path / "a.jsonl").labels.tolist() == [1, 1, 1]
    with pytest.raises(FormatError, match=r"row 1 has 'a' in 'id', unlike the rows before"):
        read(tmp_path / "a.jsonl", groups=["id"])


def test_labels_that_start_at_one(tmp_path):
    FRAME.assign(label=LABELS + 1).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(LabelError, match="first_label=1"):
        read(tmp_path / "a.csv")


def test_nothing_in_a_file_is_executed(tmp_path):
    class Bomb:
        def __reduce__(self):
            return exec, ("raise SystemExit('executed')",)

    torch.save({"logits": Bomb()}, tmp_path / "a.pt")
    with (tmp_path / "b.pt").open("wb") as file:
        pickle.dump({"logits": Bomb()}, file)
    with zipfile.ZipFile(tmp_path / "c.npz", "w") as archive, archive.open("logits.npy", "w") as member:
        np.lib.format.write_array(member, np.array([Bomb()], dtype=object), allow_pickle=True)
    for name in ("a.pt", "b.pt", "c.npz"):
        with pytest.raises((FormatError, ValueError), match=r"cannot be read|allow_pickle"):
            read_values(tmp_path / name)


@pytest.mark.parametrize(
    ("ending", "module"), [(".parquet", "pyarrow"), (".safetensors", "safetensors"), (".pt", "torch")]
)
def test_a_missing_extra_is_named(tmp_path, monkeypatch, ending, module):
    path, _ = write(tmp_path, ending)
    monkeypatch.setitem(sys.modules, module, None)
    if module == "pyarrow":
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(
        MissingExtraError, match=rf"needs {module}, .* pip install 'refocal\[(parquet|safetensors|torch)\]'$"
    ):
        read(path)


@pytest.mark.parametrize("function", [read, open_rows])
@pytest.mark.parametrize("values", [["a", "b"], ("a", "b"), 3])
def test_values_are_a_text(function, values, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b,label\n1,2,a\n2,1,b\n")
    with pytest.raises(ParameterError, match=r"'values' of .* must be a text: .* several with commas"):
        function(path, values=values)
    assert function(path, values="a,b").class_names == ("a", "b")


@pytest.mark.parametrize("ending", [".npz", ".npy", ".parquet"])
def test_one_column_is_refused_in_blocks_too(tmp_path, ending):
    path = tmp_path / f"rows{ending}"
    labels = np.array([0, 1, 1])
    options = {}
    if ending == ".parquet":
        pd.DataFrame({"logits": [[0.5], [1.5], [2.5]], "label": labels}).to_parquet(path)
    elif ending == ".npz":
        np.savez(path, logits=np.ones((3, 1)), labels=labels)
    else:
        np.save(path, np.ones((3, 1)))
        np.save(tmp_path / "labels.npy", labels)
        options["labels"] = str(tmp_path / "labels.npy")
    with pytest.raises(FormatError, match="must have two or more columns, one per class, or one number per row"):
        open_rows(path, skip_bad_rows=True, **options)


@pytest.mark.parametrize("wrong", [None, 3, np.ones(3), b"rows.csv"], ids=repr)
def test_what_is_no_path_is_refused(wrong):
    fitted = TemperatureScaling().fit([[1.0, 0.0], [0.0, 2.0], [0.5, 0.0]], [0, 1, 1])
    for function in (load, read, open_rows, read_values, read_lm_eval, read_token_log_p, fitted.save):
        with pytest.raises(ParameterError, match=r"^The 'path' of [\w.]+ must be a path\. Got "):
            function(wrong)
