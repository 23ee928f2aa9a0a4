"""Every reader survives what the fuzzer found, some fresh mutations, and files made to do harm."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from fuzz_mutate import mutate
from fuzz_targets import JSON, TARGETS, seeds

import refocal
from helpers import PATIENCE
from refocal.errors import DataError, FormatError
from refocal.evaluate import load_evaluation
from refocal.io import read, read_values
from refocal.metrics import CalibrationHistogram

pytestmark = pytest.mark.numerics

CORPUS = Path(__file__).parent / "corpus"
FOUND = sorted(path for path in CORPUS.rglob("*") if path.is_file())
HARM = Path(__file__).parent / "harm"


@pytest.mark.parametrize("path", FOUND, ids=[f"{path.parent.name}-{path.name}" for path in FOUND])
def test_what_was_found_once(path):
    """Each of these once ended in something else than a typed error, which a target lets through."""
    assert TARGETS[path.parent.name](path.read_bytes()) in (False, True)


@pytest.mark.parametrize("target", TARGETS)
def test_seeds_can_be_read(target):
    """Else nothing but the first check of a reader would be fuzzed."""
    assert all(TARGETS[target](data) for data in seeds(target))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_fresh_mutations(target):
    rng = random.Random(target)  # noqa: S311
    found = [TARGETS[target](mutate(target, rng.choice(seeds(target)), rng)) for _ in range(100)]
    assert not all(found)


def in_bounds(code: str, *arguments: object) -> str:
    """Run code that opens a harmful file in a process that gets 1 GB more; the type and text of its error."""
    program = (
        "import resource, sys, warnings\nwarnings.simplefilter('ignore')\n"
        "from pathlib import Path\nimport refocal\nfrom refocal.io import read\n"
        "taken = int(next(l for l in open('/proc/self/status') if l.startswith('VmSize')).split()[1]) << 10\n"
        "resource.setrlimit(resource.RLIMIT_AS, (taken + (1 << 30),) * 2)\n"
        f"try:\n    {code}\nexcept Exception as error:\n    print(type(error).__name__, error)\n"
        "else:\n    print('no error')\n"
    )
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout  # noqa: S603


def bomb(path, declared, *, compress=zipfile.ZIP_DEFLATED, body=b"\0" * (1 << 20), times=260):
    """An archive whose member `logits` says that it has the shape `declared`."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": declared})
    with zipfile.ZipFile(path, "w", compress) as archive, archive.open("logits.npy", "w", force_zip64=True) as member:
        member.write(header.getvalue())
        for _ in range(times):
            member.write(body)


@pytest.mark.slow
def test_a_zip_bomb_is_not_unpacked(tmp_path):
    bomb(tmp_path / "a.npz", (260 << 17, 1))
    assert (tmp_path / "a.npz").stat().st_size < 1 << 20
    with pytest.raises(FormatError, match=r"'logits' cannot be read: it would unpack .* bytes to 272,629,"):
        read_values(tmp_path / "a.npz")


def test_a_huge_declared_shape_is_not_believed(tmp_path):
    bomb(tmp_path / "a.npz", (10**12, 10), body=bytes(80), times=1)
    with pytest.raises(FormatError, match=r"'logits' cannot be read: its header says \(1000000000000, 10\)"):
        read_values(tmp_path / "a.npz")
    np.save(tmp_path / "a.npy", np.zeros((1000, 10)))
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(data.replace(b"(1000, 10)", b"(9999, 10)"))
    with pytest.raises(FormatError, match=r"cannot be read as \.npy"):
        read(tmp_path / "a.npy")


@pytest.mark.slow
def test_a_torch_bomb_is_not_unpacked(tmp_path):
    torch.save({"logits": torch.zeros(3, 2)}, tmp_path / "a.pt")
    with (
        zipfile.ZipFile(tmp_path / "a.pt", "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a/data/9", "w", force_zip64=True) as member,
    ):
        for _ in range(260):
            member.write(bytes(1 << 20))
    with pytest.raises(FormatError, match="would unpack"):
        read(tmp_path / "a.pt")


@pytest.mark.slow
def test_a_parquet_bomb_is_not_unpacked(tmp_path):
    column = pa.array(np.zeros(20_000_000))
    pq.write_table(
        pa.table({"logit_a": column, "logit_b": column, "label": column}), tmp_path / "a.parquet", compression="zstd"
    )
    assert (tmp_path / "a.parquet").stat().st_size < 1 << 20
    with pytest.raises(FormatError, match="would unpack"):
        read(tmp_path / "a.parquet")


@pytest.mark.slow
def test_one_long_label_does_not_cost_as_much_for_each_row(tmp_path):
    (tmp_path / "a.csv").write_text("logit_a,logit_b,label\n" + "1,2,x\n" * 20_000 + f"1,2,{'x' * 100_000}\n")
    said = in_bounds("read(Path(sys.argv[1]))", tmp_path / "a.csv")
    assert said.startswith("FormatError")
    assert "holds a text of 100,000 characters" in said


class Harmful:
    """What a pickle could do if it were opened."""

    def __reduce__(self):
        return os.mkdir, (str(HARM),)


@pytest.mark.parametrize("name", ["a.npz", "a.npy", "a.pt", "b.pt", "a.json"])
def test_nothing_in_a_file_is_executed(tmp_path, name):
    path = tmp_path / name
    if name == "a.npz":
        np.savez(path, logits=np.array([[Harmful(), 1]], dtype=object), labels=[0], allow_pickle=True)
    elif name == "a.npy":
        np.save(path, np.array([[Harmful(), 1]], dtype=object), allow_pickle=True)
    elif name == "a.pt":
        torch.save({"logits": Harmful(), "labels": torch.zeros(3)}, path)
    else:
        path.write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(FormatError):
        (refocal.load if name == "a.json" else read)(path)
    assert not HARM.exists()


def test_names_in_archives_are_not_paths(tmp_path):
    rows = {"../../logits": 2.0 * np.eye(3), "/etc/passwd": np.arange(3), "labels": np.arange(3)}
    np.savez(tmp_path / "a.npz", **rows)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FormatError, match=r"no array 'logits'. It has '\.\./\.\./logits'"):
        read(tmp_path / "a.npz")
    found = read(tmp_path / "a.npz", values="../../logits", labels="labels")
    np.testing.assert_array_equal(found.values, 2.0 * np.eye(3))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999", "9" * 5000, "1" + "0" * 30])
@pytest.mark.parametrize("target", JSON)
def test_numbers_that_are_none(target, text):
    data = json.loads(seeds(target)[0])
    data["version"] = "HERE"
    assert TARGETS[target](json.dumps(data).replace('"HERE"', text).encode()) is False
    data["version"], data["title" if target == "evaluation" else "extra"] = 1, "HERE"
    assert TARGETS[target](json.dumps(data).replace('"HERE"', text).encode()) is False


@pytest.mark.parametrize("opened", ["[", '{"a":'])
def test_deep_nesting(tmp_path, opened):
    text = opened * 200_000
    (tmp_path / "a.json").write_text(text)
    for function in (refocal.load, load_evaluation):
        with pytest.raises(FormatError, match=r"a\.json: not a JSON file that can be read"):
            function(tmp_path / "a.json")
    with pytest.raises(DataError, match="must be the JSON of"):
        CalibrationHistogram.from_json(text)


def test_a_device_without_an_end():
    with pytest.raises(FormatError, match="a calibrator is a small JSON file"):
        refocal.load("/dev/zero")
    with pytest.raises(FileNotFoundError):
        read("/dev/zero.npz")
    with pytest.raises(IsADirectoryError):
        refocal.load("/dev")


@pytest.mark.parametrize(
    "change",
    [
        {"bits": 40},
        {"bits": True},
        {"zooms": [{"cell": list(range(2000)), "origin": [0] * 2000, "shift": [0] * 2000}]},
        {"zooms": [{"cell": [-1], "origin": [0], "shift": [0]}]},
        {"zooms": [{"cell": [1], "origin": [0], "shift": [70]}]},
        {"cell": [-5, 3, 9]},
        {"cell": [9, 3, 1]},
        {"cell": [1, 2, 10**8]},
        {"count": [1, 1, -1]},
        {"low": [0.5, 0.5, 2.0]},
        {"sums": [[1.0]]},
    ],
)
def test_histograms_that_cannot_be(change):
    state = json.loads(seeds("histogram")[0])
    assert len(state["cell"]) == 3
    assert CalibrationHistogram.from_json(json.dumps(state)).count == 4
    with pytest.raises(DataError, match=r"CalibrationHistogram\.from_json must be"):
        CalibrationHistogram.from_json(json.dumps({**state, **change}))
