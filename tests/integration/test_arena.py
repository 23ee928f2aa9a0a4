"""benchmarks/arena.py on a tiny file in CalArena's form."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import arena

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


def test_a_run_and_its_report(tmp_path, monkeypatch):
    class Opened(dict):
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    class FakeH5py:
        File = staticmethod(lambda path: Opened(store()))

    monkeypatch.setitem(sys.modules, "h5py", FakeH5py)
    write_experiments(tmp_path)
    arena.run(tmp_path, "tiny-binary", ["refocal-auto", arena.BASE], tmp_path / "out.csv", 1)
    peer = "dataset,model,TS_logloss,TS_time\na,m,9.0,1\nb,m,9.0,1\n"
    (tmp_path / "TS.csv").write_text(peer)
    text = arena.report(tmp_path, "tiny-binary", [tmp_path / "out.csv", tmp_path / "TS.csv"], "refocal-auto", "logloss")
    assert "2 experiments, 2 data sets" in text
    assert "| TS | 0.000 |" in text
    assert "| fewer than 200 rows | 1 |" in text


def test_a_real_hdf5_file(tmp_path):
    h5py = pytest.importorskip("h5py")
    write_experiments(tmp_path)
    with h5py.File(tmp_path / "tiny-binary.h5", "w") as file:
        for path, arrays in store().items():
            for name, values in arrays.items():
                file[f"{path}/{name}"] = values
    arena.run(tmp_path, "tiny-binary", ["refocal-auto"], tmp_path / "out.csv", 2)
    assert (tmp_path / "out.csv").read_text().startswith("dataset,model,refocal-auto:logloss")


def test_only_missing_files_are_downloaded(tmp_path):
    (tmp_path / "x.h5").touch()
    asked = []
    arena.download(tmp_path, ["x"], lambda address, path: asked.append((address, path.name)))
    assert [name for _, name in asked] == ["x-experiments.csv"]
    assert asked[0][0].startswith("https://huggingface.co/datasets/probkit/CalArena/")


def test_the_entry_for_calarena_takes_probabilities_of_one_class_or_all():
    import calarena_entry

    first, _ = arena.experiments(store(), ROWS)
    expected = arena.predict("refocal-auto", first)
    for columns in (slice(1, 2), slice(0, 2)):
        calibrator = calarena_entry.CUSTOM_CALIBRATORS["refocal-auto"]()
        calibrator.fit(first.p[:, columns], first.labels)
        np.testing.assert_allclose(calibrator.predict_proba(first.p_test[:, columns]), expected, atol=1e-9)
