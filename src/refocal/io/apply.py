"""Calibrated probabilities of a data set, as one file or as a folder of Parquet files: written whole or not at all."""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Indices
from refocal._files import replace_atomically
from refocal._outputs import guard_folder, guard_output
from refocal.calibrators import Calibrator, MultiLabelCalibration
from refocal.calibrators.answers import Answers, group_columns
from refocal.calibrators.class_order import called_classes, named_classes, order_of_columns
from refocal.calibrators.serialize import to_dict
from refocal.errors import DataError, FormatError, ParameterError, RefocalError, ShapeError, need
from refocal.io.chunk_predictor import ChunkPredictor
from refocal.io.datasets import Map, connect, result_of
from refocal.io.files import SEPARATORS, TABLES, Options, stem_of
from refocal.io.fingerprints import fingerprint, state_of_place
from refocal.io.parts import Part, Table, objects, plain
from refocal.io.query import Query
from refocal.io.readers import is_tables, names_in, open_parts
from refocal.io.writers import ARRAYS, CLASS_NAMES, FILES, LABEL, MADE_FROM, N_SKIPPED, N_UNSEEN, Form, columns_of
from refocal.rows import RawRows, RowReader
from refocal.rows.keys import label_key, number_keys

ApplyProgress = Callable[[int, int, int], None]
"""Called with (parts done, all parts, rows done)."""


# Under which the number of rows of a file stands beside what it records.
N_ROWS = b"rows"


class Job(NamedTuple):
    """A part, the file that it is written to, and a text that changes with whatever changes that file."""

    part: Part
    target: Path
    made_from: str


class Written(NamedTuple):
    """The result of writing a part."""

    file: str
    n_rows: int
    n_skipped: int
    was_there: bool
    """Whether the file was there already, made from the same source."""
    problem: str | None = None
    """Why nothing was written for it, where bad parts are skipped."""
    unused_columns: tuple[str, ...] = ()
    """The columns of groups in which no row had a group that the fit has seen."""
    n_unseen: int = 0
    """The rows with a group, in any column, that the fit has not seen."""


@dataclass(frozen=True)
class Application:
    """A calibrator that is about to be applied to the parts of a data set."""

    predict: ChunkPredictor
    parts: Sequence[Part]
    target: Path
    is_folder: bool
    named: tuple[str | None, str | None]
    """The columns of the scores and the labels, or the file of the labels, as they were asked for."""
    problems: tuple[str, ...]
    """Why some files cannot be read; they are left out."""

    def described(self) -> str:
        """What is read and how it is understood, in one line."""
        reader = self.predict.reader
        known = named_classes(self.predict.calibrator)
        names = reader.class_names or known or range(reader.n_classes)
        # Labels and other columns are written as they are.
        source = replace(reader.source, labels="", unused=())
        return source.sentence(tuple(names), positive=None)

    def write(
        self,
        *,
        overwrite: bool = False,
        scheduler: str | None = None,
        client: Any = None,
        map_jobs: Map | None = None,
        progress: ApplyProgress | None = None,
    ) -> list[Written]:
        """Write all parts, and say what became of each; the arguments are those of `apply`."""
        written = self._write(overwrite, scheduler, client, map_jobs, progress)
        if self.is_folder:
            self._warn_of_groups(*written)
        return [*written, *(Written("", 0, 0, False, problem) for problem in self.problems)]

    def _write(
        self,
        overwrite: bool,
        scheduler: str | None,
        client: Any,
        map_jobs: Map | None,
        progress: ApplyProgress | None,
    ) -> list[Written]:
        if not self.is_folder:
            if scheduler is not None or client is not None or map_jobs is not None:
                expected = "a folder where others do the work"
                raise ParameterError("output", "apply", expected=expected, got=repr(str(self.target)))
            # The warning comes before the file is in its place: a caller who turns warnings into errors gets no file.
            return [_write_file(self.predict, self.parts, self.target, progress=progress, check=self._warn_of_groups)]
        if scheduler is not None and client is None:
            client = connect(scheduler)
        if client is not None:
            map_jobs = partial(_on_cluster, client)
        names = _names(self.parts)
        guard_folder(self.target, names, _is_foreign, overwrite=overwrite, function="apply")
        jobs = _jobs(self.predict, self.parts, self.named, [self.target / name for name in names])
        return _write_folder(self.predict, self.parts, jobs, map_jobs or map, progress)

    def _warn_of_groups(self, *written: Written) -> None:
        """Warn of the columns in which no row that was written has a group that the fit has seen."""
        of_parts = [set(part.unused_columns) for part in written if part.n_rows]
        if of_parts:
            self.predict.warn_of_columns(sorted(set.intersection(*of_parts)))


def apply(
    calibrator: Calibrator,
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    values: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    skip_bad_rows: bool = False,
    skip_bad_parts: bool = False,
    renormalise: bool = False,
    overwrite: bool = False,
    storage_options: Options = None,
    scheduler: str | None = None,
    client: Any = None,
    map: Map | None = None,  # noqa: A002
    progress: ApplyProgress | None = None,
) -> list[Written]:
    """Write the probabilities of a data set, block by block.

    `output` is a file (.csv, .tsv, .jsonl or .parquet; .npz and .npy are held in memory), or a folder, which gets one
    Parquet file per part. In a folder, files that already exist and were made by the same calibrator from the same
    source, with the same arguments, are kept: an interrupted run continues where it stopped. An output may not be,
    contain or lie inside what is read. Other tables in the folder, as of sources that are gone, are an error, since
    they would be read with the rest; `overwrite` removes them.

    `renormalise` divides rows of probabilities by their sums, where they were rounded.

    A table has a column for each class, called as the class is: cat for logit_cat. Where the rows have no names of
    classes, or are called p_0, p_1, …, these are the names of the calibrator's classes. If it has none either, .csv has
    class_0, class_1, …, and .parquet and .jsonl have one column of lists, `probabilities`, in the order of the columns
    of the rows. A .npz file has the names as `class_names`. Sets of classes and least and largest probabilities, where
    a calibrator has them, follow these; in .csv a set is one cell, with semicolons between the classes, where a name
    that has one itself is quoted. Columns of a table that are neither classes nor labels stand before them and the
    labels after, as they are; .npz has the labels alone. Bad rows are errors; with `skip_bad_rows` their probabilities
    are NaN, so that rows keep their places; lines of text with missing or surplus cells are left out. Both are counted.
    With `skip_bad_parts` files that cannot be read are left out, and their `problem` says why.

    `progress` is called with (parts done, all parts, rows done). The other arguments are those of `open_rows`.

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
    reading = ApplyReading(
        values,
        labels,
        renormalise=renormalise,
        skip_bad_rows=skip_bad_rows,
        skip_bad_parts=skip_bad_parts,
        storage_options=storage_options,
    )
    application = open_application(calibrator, path, output, reading)
    return application.write(overwrite=overwrite, scheduler=scheduler, client=client, map_jobs=map, progress=progress)


@dataclass(frozen=True)
class ApplyReading:
    """How the rows that a calibrator is applied to are read; the fields are arguments of `apply`."""

    values: str | None = None
    labels: str | os.PathLike[str] | None = None
    _: KW_ONLY
    renormalise: bool = False
    skip_bad_rows: bool = False
    skip_bad_parts: bool = False
    storage_options: Options = None


def columns_of_fit(calibrator: Calibrator, path: str | os.PathLike[str], storage_options: Options = None) -> str | None:
    """The columns that the fit was told to use, as an argument `values`, if a table has all of them; else None.

    Without it, other columns that could hold scores, such as those of another model, would be ambiguous.
    """
    columns = calibrator.fit_report_.get("columns", [])
    if not columns or any("," in name for name in columns) or not is_tables(os.fspath(path)):
        return None
    try:
        names = names_in(path, storage_options)
    except (RefocalError, OSError):  # what is wrong with a file is said where it is read
        return None
    if not {*columns} <= {*names}:
        return None
    # As patterns: a name may have a star of its own.
    return ",".join(glob.escape(name) for name in names if name in columns)


def open_application(
    calibrator: Calibrator, path: str | os.PathLike[str], output: str | os.PathLike[str], reading: ApplyReading
) -> Application:
    """Find out how the rows are read and where they are written, before anything is; the arguments are `apply`'s."""
    is_folder = _is_folder(output)
    of_labels = os.fspath(reading.labels) if reading.labels else None
    guard_output(output, [path], files=[of_labels], is_folder=is_folder, function="apply")
    several_labels = isinstance(calibrator, MultiLabelCalibration)
    if several_labels and reading.renormalise:
        expected = "left out: probabilities of several labels have any sum"
        raise ParameterError("renormalise", "apply", expected=expected, got="True")
    values = reading.values
    if values is None and not several_labels:
        values = columns_of_fit(calibrator, path, reading.storage_options)
    query = Query(
        input=calibrator.input,
        values=values,
        labels=of_labels,
        groups=group_columns(calibrator),
        options=reading.storage_options,
        lenient=reading.skip_bad_rows,
        function="apply",
        keeping=True,
        classes=named_classes(calibrator),
        n_classes=calibrator.n_features_in_,
        bad=[] if reading.skip_bad_parts else None,
        passes_several=several_labels,
    )
    parts, reader = open_parts(path, query, several_labels=several_labels)
    if reader.n_classes != calibrator.n_features_in_:
        expected = f"of {calibrator.n_features_in_} columns, as the calibrator was fitted on"
        raise ShapeError("X", "apply", expected=expected, got=f"{reader.n_classes} columns")
    order = _order_of_classes(calibrator, reader, path)
    if several_labels:  # rows of probabilities have any sum
        reader = replace(reader, input="logits")
    reader = replace(reader, renormalise=reading.renormalise)
    target = Path(output)
    predict = ChunkPredictor(calibrator, reader, order, precision_kept=target.suffix.lower() in ARRAYS)
    return Application(
        predict,
        parts,
        target,
        is_folder,
        named=(reading.values, of_labels),
        problems=tuple(query.bad or ()),
    )


def _is_folder(output: str | os.PathLike[str]) -> bool:
    """Whether an output is a folder of Parquet files instead of one file; refused if it can be neither."""
    target = Path(output)
    ending = target.suffix.lower()
    if "://" in os.fspath(output):
        raise ParameterError("output", "apply", expected="on a mounted disk", got=repr(output))
    if ending == ".gz":
        raise ParameterError("output", "apply", expected="a table that is not compressed", got=repr(os.fspath(output)))
    if ending in (*ARRAYS, *TABLES):
        return target.is_dir()
    if target.exists() and not target.is_dir():  # a file, a pipe or a device
        expected = f"a folder, or a file that ends in {' or '.join((*ARRAYS, *TABLES))}"
        raise ParameterError("output", "apply", expected=expected, got=repr(os.fspath(output)))
    return True


def _order_of_classes(calibrator: Calibrator, reader: RowReader, path: str | os.PathLike[str]) -> Indices | None:
    """The positions of a calibrator's classes among the columns of the rows; None if they are in the same order.

    One number per row is about the second of the calibrator's classes, whatever these are called.
    """
    order = order_of_columns(calibrator, reader.class_names, "apply")
    if not reader.has_one_number:
        return order
    reader.check_one_column(named_classes(calibrator))
    if order is not None and reader.class_names is not None:
        own = f"the numbers are about {reader.class_names[1]!r}, the second of its class_names"
        raise FormatError(f"{path}: {own}; the calibrator takes those about {called_classes(calibrator)[1]!r}.")
    return None


def _jobs(
    predict: ChunkPredictor, parts: Sequence[Part], named: tuple[str | None, str | None], targets: Sequence[Path]
) -> list[Job]:
    """Each part with its file and a text of all that the file is made from; `named` are the columns asked for."""
    columns = [repr(part.columns) for part in parts[:1] if isinstance(part, Table)]
    options = [predict.reader.skip_bad_rows, predict.reader.renormalise, *named, *columns]
    described = json.dumps([to_dict(predict.calibrator), *options], sort_keys=True)
    digest = hashlib.sha256(described.encode()).hexdigest()
    state = cache(state_of_place)  # one file may have several parts
    return [
        Job(part, target, f"{digest} {fingerprint(part, state)}") for part, target in zip(parts, targets, strict=True)
    ]


def _write_folder(
    predict: ChunkPredictor, parts: Sequence[Part], jobs: Sequence[Job], map_jobs: Map, progress: ApplyProgress | None
) -> list[Written]:
    """Write one Parquet file per part; those that exist already and were made from the same stay."""
    with_rows = next((part for part in parts if isinstance(part, Table) and _has_rows(part)), None)
    written: list[Written] = []
    for done in map_jobs(partial(write_part, predict, with_rows), jobs):
        written.append(done)
        if progress is not None:
            progress(len(written), len(jobs), sum(each.n_rows for each in written))
    if len(written) != len(jobs):
        expected = f"like Python's map: one answer for each of {len(jobs):,} parts"
        raise DataError("map", "apply", expected=expected, got=f"{len(written):,} answers")
    return sorted(written)


def _has_rows(table: Table) -> bool:
    return any(len(chunk.values) for chunk in table.blocks()) if table.n_rows is None else table.n_rows > 0


def write_part(predict: ChunkPredictor, with_rows: Table | None, job: Job) -> Written:
    """Write one part as a Parquet file, which records what it was made from; `with_rows` is a part that has rows."""
    notes = _notes_of(job.target) or {}
    if notes.get(MADE_FROM) == job.made_from.encode():
        n_unseen = int(notes.get(N_UNSEEN, 0))
        return Written(str(job.target), int(notes[N_ROWS]), int(notes.get(N_SKIPPED, 0)), True, n_unseen=n_unseen)
    return _write_file(predict, [job.part], job.target, job.made_from, with_rows=with_rows)


def _notes_of(file: Path) -> dict[bytes, Any] | None:
    """What a Parquet file records about itself; None if it cannot be read: one that is cut is written again."""
    parquet = need("pyarrow.parquet", "parquet", "Parquet files")
    try:
        metadata = parquet.read_metadata(file)
    except (OSError, ValueError):  # no such file, or of pyarrow
        return None
    return {**(metadata.metadata or {}), N_ROWS: metadata.num_rows}


def _is_foreign(file: Path) -> bool:
    """Whether a file is a whole Parquet file that no run of `apply` wrote."""
    notes = _notes_of(file)
    return notes is not None and MADE_FROM not in notes


@dataclass(frozen=True)
class _Layout:
    """The columns of a file of predictions."""

    predict: ChunkPredictor
    names: list[str]
    """What the columns of probabilities are called."""
    form: Form
    are_typed: bool
    """Whether labels of a table that are all whole numbers are written as integers."""

    @classmethod
    def of(cls, predict: ChunkPredictor, target: Path) -> _Layout:
        """The columns of a file of this ending."""
        names = _known_names(predict)
        form = _form_of(target.suffix.lower(), names is not None)
        are_typed = form is not Form.TEXT and not _are_mixed(predict.calibrator)
        counted = [f"class_{i}" for i in range(predict.reader.n_classes)]
        return cls(predict, counted if names is None else names, form, are_typed)

    def of_chunk(self, chunk: RawRows, part: Part) -> tuple[dict[str, Any], int]:
        """The columns for the rows of a chunk, and how many of these are bad."""
        predicted, n_bad = self.predict(chunk)
        before, after = _further_columns(chunk, part, self.names, self.form)
        if isinstance(part, Table) and self.are_typed:
            after = {name: _whole_numbers(column) for name, column in after.items()}
        return columns_of(predicted, self.names, self.form, before, after), n_bad

    def without_rows(self, with_rows: Table | None) -> dict[str, Any]:
        """The columns of a file without rows: those that a part with rows has, if there is one."""
        if with_rows is None:
            nothing = Answers(np.empty((0, len(self.names)), dtype=np.float32), {})
            return columns_of(nothing, self.names, self.form, {}, {})
        example = next(chunk for chunk in with_rows.blocks() if len(chunk.values))
        columns, _ = self.of_chunk(example, with_rows)
        return {name: column[:0] for name, column in columns.items()}


def _write_file(
    predict: ChunkPredictor,
    parts: Sequence[Part],
    target: Path,
    made_from: str = "",
    *,
    progress: ApplyProgress | None = None,
    with_rows: Table | None = None,
    check: Callable[[Written], None] | None = None,
) -> Written:
    """Write parts, in their order, into one file. Without rows it gets the columns of another part, `with_rows`.

    `check` is called before the file is in its place, which it is not if `check` raises.
    """
    ending = target.suffix.lower()
    layout = _Layout.of(predict, target)
    notes = {MADE_FROM: made_from}
    is_named = predict.reader.class_names is not None or named_classes(predict.calibrator) is not None
    if ending == ".npz" and is_named:
        notes[CLASS_NAMES] = json.dumps(layout.names)
    with replace_atomically(target) as temporary, FILES[ending](temporary, ending, notes) as add:
        written = _write_rows(layout, parts, target, add, progress)
        if written.n_rows == 0:
            add(layout.without_rows(with_rows))
        notes[N_SKIPPED] = str(written.n_skipped)
        notes[N_UNSEEN] = str(written.n_unseen)
        if check is not None:
            check(written)
    return written


def _write_rows(
    layout: _Layout,
    parts: Sequence[Part],
    target: Path,
    add: Callable[[dict[str, Any]], None],
    progress: ApplyProgress | None,
) -> Written:
    """Add the columns of all chunks that have rows to a file, and count the rows."""
    n_rows = 0
    n_skipped = 0
    n_unseen = 0
    unused: set[str] | None = None
    for i, part in enumerate(parts):
        for chunk in part.blocks():
            n_skipped += chunk.n_lost
            if len(chunk.values):
                columns, n_bad = layout.of_chunk(chunk, part)
                add(columns)
                n_rows += len(chunk.values)
                n_skipped += n_bad
                n_unseen_of_chunk, unused_of_chunk = layout.predict.unseen(chunk)
                n_unseen += n_unseen_of_chunk
                unused = unused_of_chunk if unused is None else unused & unused_of_chunk
            if progress is not None:
                progress(i, len(parts), n_rows)
    return Written(str(target), n_rows, n_skipped, False, unused_columns=tuple(sorted(unused or ())), n_unseen=n_unseen)


def _known_names(predict: ChunkPredictor) -> list[str] | None:
    """What the columns of probabilities are called: as in the rows, or else as the calibrator calls its classes."""
    if predict.reader.class_names is not None:
        return list(predict.reader.class_names)
    known = named_classes(predict.calibrator)
    if known is None or predict.order is None:
        return known
    # Columns without names are in the order of their numbers, which may not be that of the calibrator's classes.
    return [known[i] for i in np.argsort(predict.order)]


def _form_of(ending: str, have_names: bool) -> Form:
    """How probabilities are written: lists, which hold no names, are for classes without any, and not for text."""
    if ending in ARRAYS:
        return Form.ARRAYS
    if ending in SEPARATORS:
        return Form.TEXT
    return Form.COLUMNS if have_names else Form.LISTS


def _further_columns(
    chunk: RawRows, part: Part, names: Sequence[str], form: Form
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The columns written before the probabilities, and the labels, which are written after them."""
    if not isinstance(part, Table):
        by_class = form in (Form.COLUMNS, Form.TEXT)
        if chunk.labels is not None and chunk.labels.ndim == 2 and by_class:
            return {}, {f"{LABEL}_{name}": chunk.labels[:, i] for i, name in enumerate(names)}
        return {}, {} if chunk.labels is None else {LABEL: chunk.labels}
    before = dict(chunk.kept)
    after = {name: before.pop(name) for name in part.columns.labels}
    return before, after


def _are_mixed(calibrator: Calibrator) -> bool:
    """Whether some classes are words and others numbers: labels are then written as words in every block."""
    if isinstance(calibrator, MultiLabelCalibration):  # whose labels are ones and zeros
        return False
    return len({type(key) for key in number_keys(called_classes(calibrator))}) > 1


def _whole_numbers(labels: Any) -> Any:
    """Labels as integers if all are whole numbers, however they are stored; some may be missing."""
    cells = plain(labels)
    if cells.dtype.kind == "O" and any(isinstance(cell, (list, dict, np.ndarray)) for cell in cells):
        return labels  # several in a cell
    keys = {cell: label_key(cell) for cell in set(cells.tolist())}
    if {*keys.values()} <= {None} or not all(key is None or isinstance(key, int) for key in keys.values()):
        return labels
    texts = {cell: key for cell, key in keys.items() if isinstance(cell, str) and key is not None}
    if any(cell.partition(".")[0] != str(key) for cell, key in texts.items()):
        return labels  # codes such as 007
    # A NaN is not found among the cells, since it does not equal itself; it is missing too.
    numbers = [keys.get(cell) for cell in cells.tolist()]
    return objects(numbers) if None in numbers else np.array(numbers)


def _names(parts: Sequence[Part]) -> list[str]:
    """Files are named after those they come from, where these have different names; else they are numbered."""
    stems = [stem_of(part.where) for part in parts]
    if all(isinstance(part, Table) for part in parts) and len(set(stems)) == len(stems):
        return [f"{stem}.parquet" for stem in stems]
    return [f"part-{i:06d}.parquet" for i in range(len(parts))]


def _on_cluster(client: Any, run: Callable[[Any], Written], jobs: Sequence[Any]) -> Iterator[Written]:
    distributed = need("distributed", "dask", "A scheduler")
    futures = [client.submit(run, job, pure=False) for job in jobs]
    for future in distributed.as_completed(futures, loop=client.loop):
        yield result_of(future)
