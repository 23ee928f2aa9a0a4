"""Calibrated probabilities as a data set of Parquet files: each written whole or not at all, and never twice."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._files import replace_atomically
from refocal.calibrators import Calibrator
from refocal.calibrators._labels import check_class_order
from refocal.calibrators.serialize import to_dict
from refocal.engine.c_engine import widened
from refocal.engine.reading import Chunk, Reading
from refocal.errors import ParameterError, ShapeError
from refocal.scale import cluster
from refocal.scale.addresses import Options, state_of
from refocal.scale.extras import need
from refocal.scale.opening import open_parts
from refocal.scale.parquet import ParquetPart
from refocal.scale.parts import Part

# Under this name a file tells what it was made from.
MADE_FROM = b"refocal"


class Written(NamedTuple):
    """What became of a part."""

    file: str
    n_rows: int
    n_skipped: int
    was_there: bool


def apply(
    calibrator: Calibrator,
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    values: str | None = None,
    labels: str | None = None,
    skip_bad_rows: bool = False,
    storage_options: Options = None,
    scheduler: str | None = None,
    client: Any = None,
    progress: Callable[[int, int, int], None] | None = None,
) -> list[Written]:
    """Write the probabilities of a data set into the folder `output`, one Parquet file a part.

    Each file has a column `probabilities` of lists, and the labels where there are any. A part of which the file is
    there already, made by the same calibrator from the same source, is left as it is: a run that was stopped goes on
    where it was. Bad rows are errors; with `skip_bad_rows` theirs are NaN, so that rows keep their places.

    `progress` is told (parts done, all parts, rows done). The other arguments are those of `open_rows`.

    >>> import tempfile
    >>> from refocal import TemperatureScaling
    >>> logits = np.array([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> fitted = TemperatureScaling().fit(logits, [0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/logits.npy", logits)
    ...     written = apply(fitted, f"{folder}/logits.npy", f"{folder}/probabilities")
    >>> sum(part.n_rows for part in written)
    3
    """
    reading_of: dict[str, Any] = {"input": calibrator.input, "values": values, "labels": labels, "need_labels": False}
    opened = open_parts(path, **reading_of, storage_options=storage_options)
    if opened.n_classes != calibrator.n_features_in_:
        expected = f"of {calibrator.n_features_in_} columns, as the calibrator was fitted on"
        raise ShapeError("path", "scale.apply", expected=expected, got=f"{opened.n_classes} columns")
    check_class_order(calibrator, opened.class_names, "path", "scale.apply")
    folder = Path(output)
    if "://" in os.fspath(output):
        raise ParameterError("output", "scale.apply", expected="a folder of a mounted disk", got=repr(output))
    folder.mkdir(parents=True, exist_ok=True)
    reading = Reading(opened.n_classes, calibrator.input, 0, skip_bad_rows, "scale.apply")
    described = hashlib.sha256(json.dumps(to_dict(calibrator), sort_keys=True).encode()).hexdigest()
    jobs = [
        partial(
            write_part, calibrator, part, folder / name, f"{described} {_fingerprint(part)} {skip_bad_rows}", reading
        )
        for part, name in zip(opened.parts, _names(opened.parts), strict=True)
    ]
    if scheduler is not None and client is None:
        client = cluster.connect(scheduler)
    written: list[Written] = []
    for done in map(_run, jobs) if client is None else _on_cluster(client, jobs):
        written.append(done)
        if progress is not None:
            progress(len(written), len(jobs), sum(each.n_rows for each in written))
    return sorted(written)


def write_part(calibrator: Calibrator, part: Part, target: Path, made_from: str, reading: Reading) -> Written:
    """Write one part, block by block."""
    parquet = need("pyarrow.parquet", "parquet", "Parquet files")
    arrow = need("pyarrow", "parquet", "Parquet files")
    if target.is_file():
        metadata = parquet.read_metadata(target)
        if (metadata.metadata or {}).get(MADE_FROM) == made_from.encode():
            return Written(str(target), int(metadata.num_rows), 0, True)
    n_rows = n_skipped = 0
    writer = None
    with replace_atomically(target) as temporary:
        try:
            for block in _unchecked(part):
                p, bad = _probabilities(calibrator, block, reading)
                flat = arrow.FixedSizeListArray.from_arrays(arrow.array(p.reshape(-1)), p.shape[1])
                columns = {"probabilities": flat} | (
                    {} if block.labels is None else {"label": arrow.array(block.labels)}
                )
                table = arrow.table(columns).replace_schema_metadata({MADE_FROM: made_from})
                writer = writer or parquet.ParquetWriter(temporary, table.schema)
                writer.write_table(table)
                n_rows, n_skipped = n_rows + len(p), n_skipped + bad
        finally:
            if writer is not None:
                writer.close()
        if writer is None:  # a part without rows has a file as well, or it would be looked at again
            kind = arrow.list_(arrow.float32(), reading.n_classes)
            empty = arrow.schema([("probabilities", kind)], metadata={MADE_FROM: made_from}).empty_table()
            parquet.write_table(empty, temporary)
    return Written(str(target), n_rows, n_skipped, False)


def _probabilities(calibrator: Calibrator, block: Chunk, reading: Reading) -> tuple[NDArray[Any], int]:
    """Probabilities in float32 or float64, NaN for bad rows, and how many those are."""
    values = widened(block.values)
    if values.ndim != 2 or values.shape[1] != reading.n_classes:
        expected = f"of {reading.n_classes} columns in every block, as in the first"
        raise ShapeError("X", reading.function, expected=expected, got=f"shape {values.shape} in {block.where}")
    bad = reading.bad_values(values)
    if not bad.any():
        return np.asarray(calibrator.predict_proba(values)), 0
    if not reading.skip_bad_rows:
        raise reading.error_of(block._replace(labels=np.zeros(len(values), np.int64)), int(np.argmax(bad)))
    found = np.full(values.shape, np.nan, dtype=values.dtype)
    if not bad.all():
        found[~bad] = calibrator.predict_proba(values[~bad])
    return found, int(bad.sum())


def _unchecked(part: Part) -> Iterator[Chunk]:
    """The blocks of a part, whose labels may be None."""
    return (block for block in part.blocks() if len(block.values))


def _names(parts: Sequence[Part]) -> list[str]:
    """Files are named after those they come from, where these have different names; else they are numbered."""
    stems = [Path(part.where).stem for part in parts]
    if all(isinstance(part, ParquetPart) for part in parts) and len(set(stems)) == len(stems):
        return [f"{stem}.parquet" for stem in stems]
    return [f"part-{i:06d}.parquet" for i in range(len(parts))]


def _fingerprint(part: Part) -> str:
    """What changes when the source of a part does."""
    file = Path(getattr(getattr(part, "values", None), "file", part.where))
    place = f"{part.where}:{getattr(part, 'first', 0)}:{part.n_rows}"
    if isinstance(part, ParquetPart) and "://" in part.file:
        return f"{place}:{state_of(part.file, part.options)}"
    if not file.is_file():
        return place
    state = file.stat()
    return f"{place}:{state.st_size}:{state.st_mtime_ns}"


def _run(job: Callable[[], Written]) -> Written:
    return job()


def _on_cluster(client: Any, jobs: Sequence[Callable[[], Written]]) -> Iterator[Written]:
    distributed = need("distributed", "dask", "A scheduler")
    futures = [client.submit(_run, job, pure=False) for job in jobs]
    for future in distributed.as_completed(futures, loop=client.loop):
        yield cluster.result_of(future)
