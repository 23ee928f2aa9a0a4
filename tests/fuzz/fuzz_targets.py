"""What is fuzzed: every reader of a file, and `refocal.load`. Each takes bytes; a typed error is an ordinary answer."""

from __future__ import annotations

import io
import json
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

import refocal
from refocal.errors import FormatError, InputError
from refocal.evaluate import Run, compare, compare_many, load_evaluation, load_many
from refocal.io import read
from refocal.metrics import CalibrationHistogram

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - files that are never written to a disk
ROWS = 12
LARGEST = 1 << 16


@cache
def folder() -> Path:
    kept = tempfile.TemporaryDirectory(prefix="refocal-fuzz-", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)
    folder.kept = kept  # type: ignore[attr-defined] - removed with the process
    return Path(kept.name)


def sample() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(ROWS, 3))
    return logits, np.arange(ROWS) % 3


def quietly(function: Callable[[], object]) -> bool:
    """Whether it returned; a typed error is False, everything else goes through."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function()
    except (FormatError, InputError):
        return False
    return True


def run_load(data: bytes) -> bool:
    """A calibrator that loads must also predict: probabilities, or a typed error for settings that make no sense."""
    path = folder() / "c.json"
    path.write_bytes(data)

    def use() -> None:
        calibrator = refocal.load(path)
        if calibrator.n_features_in_ <= 100:
            X = np.full((2, calibrator.n_features_in_), 1.0 / calibrator.n_features_in_)
            p = calibrator.predict_proba(X)
            assert np.isfinite(p).all()
            repr(calibrator)

    return quietly(use)


def run_evaluation(data: bytes) -> bool:
    path = folder() / "e.json"
    path.write_bytes(data)
    return quietly(lambda: load_evaluation(path))


def run_many(data: bytes) -> bool:
    """A comparison that loads must also have its tables."""
    path = folder() / "m.json"
    path.write_bytes(data)

    def use() -> None:
        found = load_many(path)
        for metric in found.metrics:
            found.to_markdown(metric.name)
        found.to_latex()

    return quietly(use)


def run_histogram(data: bytes) -> bool:
    text = data.decode("utf-8", errors="replace")
    return quietly(lambda: CalibrationHistogram.from_json(text).compute())


def reader(ending: str) -> Callable[[bytes], bool]:
    def run(data: bytes) -> bool:
        path = folder() / f"rows{ending}"
        path.write_bytes(data)
        labels = folder() / "labels.npy"
        if ending == ".npy":
            np.save(labels, np.arange(ROWS) % 3)
        return quietly(lambda: read(path, labels=labels if ending == ".npy" else None))

    return run


TARGETS: dict[str, Callable[[bytes], bool]] = {
    "load": run_load,
    "evaluation": run_evaluation,
    "many": run_many,
    "histogram": run_histogram,
    **{
        ending[1:]: reader(ending)
        for ending in (".npz", ".npy", ".csv", ".tsv", ".jsonl", ".parquet", ".safetensors", ".pt")
    },
}
JSON = ("load", "evaluation", "many", "histogram")


@cache
def seeds(target: str) -> list[bytes]:
    """Files as refocal and its users write them, from which mutation starts."""
    logits, labels = sample()
    if target == "load":
        return [_calibrator(name) for name in ("ts", "fts", "ets", "beta", "spline", "isotonic", "histogram", "bbq")]
    if target == "evaluation":
        predictions = refocal.io.Predictions.from_logits(np.tile(logits, (5, 1)), np.tile(labels, 5))
        made = compare(predictions, predictions, ["ts"], n_resamples=20)
        return [json.dumps(made.to_dict()).encode()]
    if target == "many":
        predictions = refocal.io.Predictions.from_logits(np.tile(logits, (5, 1)), np.tile(labels, 5))
        runs = [Run(predictions, predictions, network=name) for name in "abc"]
        return [json.dumps(compare_many(runs, ["ts", "vs"], metrics=["log_loss", "ece"]).to_dict()).encode()]
    if target == "histogram":
        first = CalibrationHistogram(bits=3).update([0, 1, 1, 0], [0.2, 0.8, 0.8001, 0.4])
        return [first.to_json().encode(), first.refined(n_bins=2).update([0, 1], [0.2, 0.8]).to_json().encode()]
    return _files(target, logits, labels)


def _calibrator(name: str) -> bytes:
    from refocal.calibrators.registry import make
    from refocal.calibrators.serialize import to_dict

    logits, labels = sample()
    return json.dumps(to_dict(make(name).fit(logits, labels))).encode()


def _files(target: str, logits: np.ndarray, labels: np.ndarray) -> list[bytes]:
    out = io.BytesIO()
    if target == "npz":
        np.savez(out, logits=logits, labels=labels)
        packed = io.BytesIO()
        np.savez_compressed(packed, logits=logits, labels=labels, class_names=["a", "b", "c"])
        return [out.getvalue(), packed.getvalue()]
    if target == "npy":
        np.save(out, logits)
    elif target in ("csv", "tsv"):
        between = "," if target == "csv" else "\t"
        lines = [
            ["logit_cat", "logit_dog", "logit_eel", "label"],
            *([*map(repr, row.tolist()), k] for row, k in zip(logits, labels, strict=True)),
        ]
        return ["\n".join(between.join(map(str, line)) for line in lines).encode()]
    elif target == "jsonl":
        rows = ({"logits": row.tolist(), "label": int(k)} for row, k in zip(logits, labels, strict=True))
        return ["\n".join(map(json.dumps, rows)).encode()]
    elif target == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        nested = pa.table({"logits": logits.tolist(), "label": labels})
        flat = pa.table({**{f"logit_{i}": logits[:, i] for i in range(3)}, "label": labels})
        files = []
        for table in (nested, flat):
            out = io.BytesIO()
            pq.write_table(table, out)
            files.append(out.getvalue())
        return files
    elif target == "safetensors":
        from safetensors.numpy import save

        return [save({"logits": logits, "labels": labels})]
    else:
        import torch

        torch.save({"logits": torch.from_numpy(logits), "labels": torch.from_numpy(labels)}, out)
    return [out.getvalue()]


def reopen_zip(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """An archive whose members were changed and whose sums are right again, so that what lies inside is reached."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for entry in old.infolist():
            new.writestr(entry.filename, change(old.read(entry)), compress_type=entry.compress_type)
    return out.getvalue()
