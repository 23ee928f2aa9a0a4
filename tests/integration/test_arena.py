"""benchmarks/arena.py on a tiny file in CalArena's form."""

from __future__ import annotations

import csv
import functools
import http.server
import importlib.util
import sys
import threading
from pathlib import Path

import numpy as np
import pytest


def script(name):
    """A script of benchmarks/, whose folder is no place to import other modules from."""
    path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    specification = importlib.util.spec_from_file_location(f"benchmark_{name}", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


arena = script("arena")

ROWS = [{"dataset": "a", "model": "m", "cal_size": "60", "rarest": "20"}, {"dataset": "b", "model": "m"}]


def store():
    rng = np.random.default_rng(0)
    groups = {}
    for row in ROWS:
        p = rng.uniform(0.05, 0.95, size=120).astype(np.float32)
        labels = (rng.random(120) < p).astype(np.uint8)
        groups[f"{row['dataset']}/{row['model']}"] = {
            "probas_cal": p[:60],
            "labels_cal": labels[:60],
            "probas_test": p[60:],
            "labels_test": labels[60:],
        }
    return groups


def write_experiments(folder):
    with (folder / "tiny-binary-experiments.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["dataset", "model", "cal_size", "rarest"])
        writer.writeheader()
        writer.writerows(ROWS)


def test_experiments_are_read_and_calibrated():
    first, _ = arena.experiments(store(), ROWS)
    assert (first.dataset, first.p.shape, first.labels.dtype) == ("a", (60, 2), np.int64)
    np.testing.assert_allclose(first.p.sum(axis=1), 1.0)
    scores = arena.scores_of(arena.predict("refocal-auto", first), first.labels_test)
    assert 0.3 < scores["logloss"] < 0.75
    raw = arena.scores_of(arena.predict(arena.BASE, first), first.labels_test)
    assert raw["brier"] == pytest.approx(2.0 * np.mean((first.p_test[:, 1] - first.labels_test) ** 2))


def test_win_rates_count_strictly_lower_scores():
    keys = [("a", "m"), ("a", "k"), ("b", "m")]
    columns = {"one": [1.0, 1.0, 3.0], "two": [2.0, 1.0, 2.0], "three": [3.0, np.nan, 1.0]}
    table = arena.Table(keys, {name: np.array(values) for name, values in columns.items()})
    rates = {name: values.tolist() for name, values in arena.win_rates(table).items()}
    assert rates == {"one": [1.0, 0.0, 0.0], "two": [0.5, 0.0, 0.5], "three": [0.0, 0.0, 1.0]}
    low, high = arena.interval(arena.win_rates(table)["one"], table.datasets)
    assert (low, high) == (0.0, 0.5)


@pytest.fixture
def in_place_of_h5py(monkeypatch):
    """A module whose files are all `store`, for where h5py is not installed."""

    class Opened(dict):
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    class FakeH5py:
        File = staticmethod(lambda path: Opened(store()))

    monkeypatch.setitem(sys.modules, "h5py", FakeH5py)


@pytest.mark.usefixtures("in_place_of_h5py")
def test_a_run_and_its_report(tmp_path):
    write_experiments(tmp_path)
    arena.run(tmp_path, "tiny-binary", ["refocal-auto", arena.BASE], tmp_path / "out.csv", 1)
    peer = "dataset,model,TS_logloss,TS_time\na,m,9.0,1\nb,m,9.0,1\n"
    (tmp_path / "TS.csv").write_text(peer)
    text = arena.report(tmp_path, "tiny-binary", [tmp_path / "out.csv", tmp_path / "TS.csv"], "refocal-auto", "logloss")
    assert "2 experiments, 2 data sets" in text
    assert "| TS | 0.000 |" in text
    assert "| fewer than 200 rows | 1 |" in text


def write_hdf5(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for group, arrays in store().items():
            for name, values in arrays.items():
                file[f"{group}/{name}"] = values


def test_a_real_hdf5_file(tmp_path):
    write_experiments(tmp_path)
    write_hdf5(tmp_path / "tiny-binary.h5")
    arena.run(tmp_path, "tiny-binary", ["refocal-auto"], tmp_path / "out.csv", 2)
    assert (tmp_path / "out.csv").read_text().startswith("dataset,model,refocal-auto:logloss")


@pytest.fixture
def server(tmp_path):
    """The address of a server on this machine, and the folder whose files it has."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            return None

    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}", folder
        serving.shutdown()
        thread.join()


@pytest.mark.usefixtures("in_place_of_h5py")
@pytest.mark.parametrize("scheme", ["http", "file"])
def test_files_are_downloaded_and_run(tmp_path, server, scheme):
    address, served = server
    write_experiments(served)
    (served / "tiny-binary.h5").write_bytes(bytes(range(256)) * 100)
    source = address if scheme == "http" else served.as_uri()
    folder = tmp_path / "new" / "folder"
    arena.download(folder, ["tiny-binary"], source)
    for name in ("tiny-binary.h5", "tiny-binary-experiments.csv"):
        assert (folder / name).read_bytes() == (served / name).read_bytes()
    arena.run(folder, "tiny-binary", ["refocal-auto"], tmp_path / "out.csv", 1)
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 3


def test_only_missing_files_are_downloaded(tmp_path, server):
    address, served = server
    write_experiments(served)  # and no tiny-binary.h5, which is there already
    (tmp_path / "tiny-binary.h5").write_text("kept")
    arena.download(tmp_path, ["tiny-binary"], address)
    assert (tmp_path / "tiny-binary.h5").read_text() == "kept"
    assert (tmp_path / "tiny-binary-experiments.csv").exists()
    with pytest.raises(SystemExit, match=r"other\.h5 could not be downloaded: HTTP Error 404"):
        arena.download(tmp_path, ["other"], address)
    assert not list(tmp_path.glob("other*"))
    assert arena.SOURCE.startswith("https://huggingface.co/datasets/probkit/CalArena/")


def test_a_missing_h5py_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    write_experiments(tmp_path)
    with pytest.raises(ImportError, match=r"h5py, which is not installed: pip install h5py, or .*\[bench\]"):
        arena.run(tmp_path, "tiny-binary", ["refocal-auto"], tmp_path / "out.csv", 1)


def test_the_entry_for_calarena_takes_probabilities_of_one_class_or_all():
    calarena_entry = script("calarena_entry")
    first, _ = arena.experiments(store(), ROWS)
    expected = arena.predict("refocal-auto", first)
    for columns in (slice(1, 2), slice(0, 2)):
        calibrator = calarena_entry.CUSTOM_CALIBRATORS["refocal-auto"]()
        calibrator.fit(first.p[:, columns], first.labels)
        np.testing.assert_allclose(calibrator.predict_proba(first.p_test[:, columns]), expected, atol=1e-9)
