"""Trained networks to compare methods on: rows of each, and which data set, network and seed they are of."""

from __future__ import annotations

import csv
import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from refocal._groups import columns_of_table, names_of_column
from refocal.errors import FormatError, InputError, InputWarning, ParameterError
from refocal.io import Predictions, read, split
from refocal.io.arrays import ARRAYS
from refocal.io.files import TABLES, ending_of

__all__ = ["Run", "read_runs"]

# What the two parts of a run are called in the names of files.
VALIDATION_NAMES = ("val", "valid", "validation", "cal", "calib", "calibration")
TEST_NAMES = ("test",)
# What a table of runs and the fields of a pattern may say.
FIELDS = ("dataset", "network", "seed")
LIST_OF_RUNS = "runs.csv"


@dataclass(frozen=True, eq=False)
class Run:
    """One network, trained once: validation rows to fit on, test rows to measure on, and what they are of.

    Runs that differ in `seed` alone are repetitions of one training, of which means and standard deviations are taken.

    >>> from refocal.io import load_sample
    >>> validation, test = load_sample("cifar10-focal3")
    >>> Run(validation, test, dataset="CIFAR-10", network="ResNet-50, focal loss", seed=1).key
    ('CIFAR-10', 'ResNet-50, focal loss')
    """

    validation: Predictions
    test: Predictions
    dataset: str = "data"
    network: str = "network"
    seed: int | str = 0

    def __post_init__(self) -> None:
        for argument, rows in (("validation", self.validation), ("test", self.test)):
            if not isinstance(rows, Predictions):
                expected = "Predictions, as Predictions.from_logits or refocal.io.read makes them"
                raise ParameterError(argument, "Run", expected=expected, got=type(rows).__name__)
        if self.validation.n_classes != self.test.n_classes:
            expected = f"of {self.validation.n_classes} classes, as the validation rows"
            raise ParameterError("test", "Run", expected=expected, got=f"{self.test.n_classes} classes")

    @property
    def key(self) -> tuple[str, str]:
        """The data set and the network."""
        return str(self.dataset), str(self.network)


class RunFiles(NamedTuple):
    """Where the rows of a run are. Without `test` one file has both parts, or is split in half."""

    validation: str
    test: str | None
    dataset: str
    network: str
    seed: str


def read_runs(
    source: Any,
    *,
    validation: Mapping[str, Any] | None = None,
    test: Mapping[str, Any] | None = None,
    seed: int = 0,
    **reading: Any,
) -> Iterator[Run]:
    r"""The runs of a table, a pattern or a folder, each read when its turn comes.

    Parameters
    ----------
    source : path, list or table
        - A table of runs: a .csv or .tsv file, a data frame or a list of mappings, with a column `validation` of files,
          and `test`, `dataset`, `network`, `seed` where they are known. Files are looked for beside the table.
        - A pattern such as "logits/{dataset}/{network}-{seed}/{part}.npz": a field stands for part of a name, `{seed}`
          for digits, `{part}` for val, valid, validation, cal, calib, calibration or test, and * for anything.
        - A folder: its runs.csv if there is one, otherwise each of its files, and of its folders with a file of
          validation and one of test rows, is a run. A folder with other files of rows is refused; names that begin
          with . or _ are left out.
    validation, test : dict, optional
        Arguments of `refocal.io.read` for the two parts alone, where one file holds both:
        `validation={"values": "val", "labels": "yv"}`. A file without parts is split in half.
    seed : int
        Of that split.
    reading
        Arguments of `refocal.io.read` for both.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("net-1", "net-2"):
    ...         np.savez(f"{folder}/{name}.npz", logits=rng.normal(size=(40, 3)), labels=rng.integers(3, size=40))
    ...     runs = list(read_runs(f"{folder}/{{network}}-{{seed}}.npz"))
    >>> [(run.network, run.seed, len(run.test)) for run in runs]
    [('net', '1', 20), ('net', '2', 20)]
    """
    for files in found_runs(source):
        known = {**reading, **(validation or {})}
        with _naming(files.validation):
            first = read(files.validation, **known)
        has_parts = files.test is not None or test is not None
        if has_parts:
            classes = {} if first.class_names is None else {"classes": first.class_names}
            place = files.validation if files.test is None else files.test
            of_test = {**reading, **classes, **(test or {})}
            _check_own_labels(files, known.get("labels"), of_test.get("labels"))
            with _naming(place):
                second = read(place, **of_test).in_order_of(first.class_names)
        else:
            with _naming(files.validation):
                first, second = split(first, seed=seed)
        yield Run(first, second, files.dataset, files.network, files.seed)


@contextmanager
def _naming(file: str) -> Iterator[None]:
    """Say of one among many files that it is the one whose contents cannot be used."""
    try:
        yield
    except ParameterError:
        raise
    except InputError as error:
        got = error.got if file in error.got else f"{error.got} in {file}"
        raise type(error)(error.argument, error.function, error.expected, got, error.remedy) from error
    except InputWarning as warning:  # where warnings are errors
        raise InputWarning(f"{file}: {warning.text}", warning.remedy, warning.function) from warning


def _check_own_labels(files: RunFiles, labels: str | None, labels_of_test: str | None) -> None:
    """Refuse one file of labels for both parts of a run, which are other rows."""
    is_file = labels is not None and str(labels).endswith(".npy")
    if is_file and labels == labels_of_test and files.test not in (None, files.validation):
        expected = "the name of an array or a column of each file, or given in validation= and test="
        got = f"{labels!r} for {files.validation} and {files.test}"
        raise ParameterError("labels", "read_runs", expected=expected, got=got)


def _check_whole_runs(runs: list[RunFiles]) -> None:
    """Refuse files to be split in half whose names say that some are validation rows and others test rows."""
    whole = {re.split(r"[-_. ]", Path(run.validation).stem.lower())[-1]: run for run in runs if run.test is None}
    if {*whole} & {*VALIDATION_NAMES} and {*whole} & {*TEST_NAMES}:
        file = next(run.validation for part, run in whole.items() if part in TEST_NAMES)
        raise FormatError(
            f"{file}: its name says that it holds the test rows of a run. Pair the parts by a pattern such as "
            "'{network}_{part}.npz', or by a table of runs."
        )


def found_runs(source: Any) -> list[RunFiles]:
    """The files of the runs, of which nothing is read yet."""
    if isinstance(source, (str, os.PathLike)):
        place = os.fspath(source)
        is_file_of_runs = ending_of(place) in (".csv", ".tsv") and Path(place).is_file()
        if Path(place).is_dir():
            runs = _of_folder(Path(place))
        elif is_file_of_runs:
            runs = _of_table(_records(Path(place)), Path(place).parent, place)
        else:
            runs = _of_pattern(place)
        if not is_file_of_runs and not (Path(place) / LIST_OF_RUNS).is_file():
            _check_whole_runs(runs)
        if not runs and Path(place).is_dir():
            raise FormatError(
                f"{place}: no runs; a folder must hold files of rows, or folders of one run each, such as val.npz and "
                f"test.npz. Of deeper ones give a pattern: '{Path(place) / '{dataset}' / '{network}' / '{part}.npz'}'."
            )
        if not runs:
            raise FormatError(f"{place}: no runs; give a table of runs, a folder, or a pattern that files match.")
    elif not isinstance(source, Mapping) and (columns := columns_of_table(source)) is not None:
        runs = _of_table(_records_of_columns(columns), Path(), "the table of runs")
    elif isinstance(source, Iterable):
        entries = list(source)
        if all(isinstance(entry, Mapping) for entry in entries):
            runs = _of_table(entries, Path(), "the table of runs")
        else:
            runs = [run for entry in entries for run in found_runs(entry)]
            if all(isinstance(entry, (str, os.PathLike)) for entry in entries):
                _check_whole_runs(runs)
    else:
        expected = "a path, a pattern, a folder, a table, or a list of Run"
        raise ParameterError("runs", "read_runs", expected=expected, got=type(source).__name__)
    if not runs:
        raise ParameterError("runs", "read_runs", expected="at least one run", got="none")
    return runs


def _records(file: Path) -> list[dict[str, str]]:
    """The lines of a table of text."""
    delimiter = "\t" if file.suffix.lower() == ".tsv" else ","
    with file.open(newline="", encoding="utf-8-sig") as lines:
        return [dict(record) for record in csv.DictReader(lines, delimiter=delimiter)]


def _records_of_columns(columns: Mapping[str, Any]) -> list[dict[str, str]]:
    """The rows of a data frame as text: "" where nothing is given, and whole numbers without a point."""
    texts = [
        names_of_column(column, name, len(column), "runs", "read_runs", missing="").tolist()
        for name, column in columns.items()
    ]
    return [dict(zip(columns, record, strict=True)) for record in zip(*texts, strict=True)]


def _of_table(records: Iterable[Mapping[str, Any]], folder: Path, where: str) -> list[RunFiles]:
    """The runs of a table, whose files lie beside it unless their paths are absolute."""
    runs = []
    known = ("validation", "test", *FIELDS)
    for number, record in enumerate(records, 1):
        if not _is_given(record.get("validation")):
            columns = ", ".join(map(str, record)) or "none"
            raise FormatError(f"{where}: row {number} must have a file in the column 'validation'; columns: {columns}.")
        unknown = [str(name) for name in record if name not in known]
        if unknown:
            raise FormatError(f"{where}: the columns must be among {', '.join(known)}. Got {unknown[0]!r} too.")
        test = record.get("test")
        validation = str(folder / str(record["validation"]))
        said = {name: str(record[name]) for name in FIELDS if _is_given(record.get(name))}
        runs.append(
            RunFiles(
                validation,
                str(folder / str(test)) if _is_given(test) else None,
                said.get("dataset", "data"),
                said.get("network", Path(validation).stem),
                said.get("seed", "0"),
            )
        )
    return runs


def _is_given(cell: Any) -> bool:
    """Whether a cell of a table holds something: not None, NaN or nothing."""
    return cell is not None and str(cell).lower() not in ("", "nan")


def _of_pattern(pattern: str) -> list[RunFiles]:
    """The runs whose files match a pattern."""
    known = {*FIELDS, "part"}
    fields = re.findall(r"\{(.*?)\}", pattern)
    unknown = [name for name in fields if name not in known]
    if unknown or len(set(fields)) < len(fields):
        expected = "a pattern with {dataset}, {network}, {seed} and {part}, once each"
        raise ParameterError("runs", "read_runs", expected=expected, got=repr(pattern))
    expression = re.compile(_expression(pattern))
    parts: dict[tuple[str, str, str], dict[str, str]] = {}
    for file in sorted(glob.glob(re.sub(r"\{.*?\}", "*", pattern), recursive=True)):
        match = expression.fullmatch(file)
        if match is None:
            continue
        said = match.groupdict()
        # What a * stands for tells networks apart that no field names.
        unnamed = [match[i] for i in range(1, expression.groups + 1) if i not in expression.groupindex.values()]
        name = "network" if "part" in said else Path(file).stem
        network = said.get("network") or "-".join(filter(None, unnamed)) or name
        key = (said.get("dataset", "data"), network, said.get("seed", "0"))
        part = "test" if said.get("part") in TEST_NAMES else "validation"
        if part in parts.setdefault(key, {}):
            expected = "a pattern that tells runs apart by data set, network and seed"
            raise ParameterError("runs", "read_runs", expected=expected, got=f"{parts[key][part]} and {file}")
        parts[key][part] = file
    has_parts = "part" in fields
    for key, files in parts.items():
        if has_parts and len(files) < 2:
            missing = "test" if "validation" in files else "validation"
            raise FormatError(f"{next(iter(files.values()))}: there is no file of {missing} rows of {', '.join(key)}.")
    return [RunFiles(files["validation"], files.get("test"), *key) for key, files in parts.items()]


def _expression(pattern: str) -> str:
    """A pattern as a regular expression, in which each * is a group of its own."""
    expressions = {
        "seed": r"(?P<seed>\d+)",
        "part": rf"(?P<part>{'|'.join((*VALIDATION_NAMES, *TEST_NAMES))})",
        "dataset": r"(?P<dataset>[^/]+?)",
        "network": r"(?P<network>[^/]+?)",
    }
    pieces = re.split(r"(\{.*?\}|\*\*/|\*|\?)", pattern)
    wild = {"**/": r"((?:.*/)?)", "*": r"([^/]*)", "?": r"([^/])"}
    return "".join(
        expressions[piece[1:-1]] if piece.startswith("{") else wild.get(piece) or re.escape(piece) for piece in pieces
    )


def _of_folder(folder: Path) -> list[RunFiles]:
    """The runs of a folder: its table of them, or what lies in it."""
    table = folder / LIST_OF_RUNS
    if table.is_file():
        return _of_table(_records(table), folder, str(table))
    runs = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "_")):
            continue
        if entry.is_dir():
            files = [file for file in sorted(entry.iterdir()) if _holds_rows(file)]
            validation = [file for file in files if file.stem.lower() in VALIDATION_NAMES]
            test = [file for file in files if file.stem.lower() in TEST_NAMES]
            if len(validation) == len(test) == 1:
                runs.append(RunFiles(str(validation[0]), str(test[0]), "data", entry.name, "0"))
            elif len(files) == 1:
                runs.append(RunFiles(str(files[0]), None, "data", entry.name, "0"))
            elif files:
                held = ", ".join(file.name for file in files)
                expected = (
                    "one file of rows, or one of validation and one of test rows called so, as val.npz and test.npz"
                )
                raise FormatError(f"{entry}: must hold {expected}. It holds {held}.")
        elif _holds_rows(entry):
            runs.append(RunFiles(str(entry), None, "data", entry.stem, "0"))
    return runs


def _holds_rows(file: Path) -> bool:
    """Whether a file has the ending of one that rows are read from."""
    return file.is_file() and ending_of(str(file)) in (*ARRAYS, *TABLES)
