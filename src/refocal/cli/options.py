"""The options that several commands share, how commands declare theirs, and the rows that they say how to read."""

from __future__ import annotations

import shlex
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from typer import Option

import refocal
from refocal._methods import METHODS, NAMED, SETS
from refocal.cli.printing import IS_JSON
from refocal.cli.run import FileProblem, UsageError, explained
from refocal.errors import InputError, InputWarning, ParameterError

# What several commands say of their arguments.
ROWS = (
    "Logits and labels: .npz .npy .csv .tsv .jsonl .parquet .safetensors .pt; or larger than memory: a folder or "
    "pattern of Parquet files, an address such as s3://…, Zarr, a large .npy."
)

METHOD_NAMES = ", ".join(NAMED)
SET_NAMES = ", ".join(SETS)

# Options about how rows are understood; the others say which are read.
OF_ROWS = ("first_label", "positive_label", "ignore_index", "renormalise")

Update = Callable[[float, int, str], None]


def check_output(file: Path, endings: tuple[str, ...]) -> None:
    """Complain about where to write before anything is computed."""
    if file.suffix.lower() not in endings:
        raise UsageError(f"{file}: the output must end in {' or '.join(endings)}; are arguments swapped?")
    if file.is_dir():
        raise UsageError(f"{file}: is a directory; name a file with -o.")
    folder = file.resolve().parent if file.is_symlink() else file.parent
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such directory; make it first or name another with -o.")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise FileProblem(f"{folder}: cannot be written to; name a file in another directory with -o.") from error


def output_file(*endings: str) -> dict[str, Any]:
    """What the option of a file to write is declared with: `Option("-o", help="…", **output_file(".csv"))`.

    It is a callback, which checks the file before the command begins.
    """

    def check(file: Any) -> Any:
        if file is not None:
            check_output(Path(file), endings)
        return file

    return {"callback": check}


HTML_FILE = output_file(".html", ".htm")
JSON_FILE = output_file(".json")
Json = Annotated[bool, Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class ColumnOptions:
    """Which columns or arrays of a file are read."""

    probability_column: Annotated[
        str | None,
        Option(
            "--probability-column",
            metavar="NAME",
            help="Two classes: column or array with the probability of the positive class; implies --probabilities.",
        ),
    ] = None
    values: Annotated[
        str | None, Option("--values", metavar="NAME", help="Array with the logits, or columns: 'logit_*' or cat,dog,…")
    ] = None
    labels: Annotated[
        str | None, Option("--labels", metavar="NAME", help="Array or column with the labels, or a .npy file.")
    ] = None
    renormalise: Annotated[
        bool, Option("--renormalise", help="Divide rows of rounded probabilities by their sums.")
    ] = False

    def named_values(self) -> str | None:
        """The array or the columns of scores that were named, in one way or the other."""
        if self.values is not None and self.probability_column is not None:
            raise UsageError("--values and --probability-column name the same thing; give one of them.")
        return self.probability_column if self.values is None else self.values


@dataclass(frozen=True)
class ScoreOptions(ColumnOptions):
    """How the scores and labels of a file are read."""

    probabilities: Annotated[
        bool,
        Option(
            "--probabilities",
            help="The scores are probabilities, not logits; columns called p, prob, p_cat, … say so themselves.",
        ),
    ] = False
    positive_label: Annotated[
        str | None, Option("--positive-label", metavar="LABEL", help="Two classes: the label of the positive class.")
    ] = None
    first_label: Annotated[
        int | None,
        Option("--first-label", help="The label of the first column where labels count columns: 1 if they start at 1."),
    ] = None
    ignore_index: Annotated[
        int | None, Option("--ignore-index", metavar="NUMBER", help="Rows with this label are left out, such as 255.")
    ] = None

    def applied_to(self, calibrator: refocal.calibrators.Calibrator | None) -> dict[str, Any]:
        """The arguments of `refocal.read` for rows of the kind that a calibrator takes, unless the options say."""
        from refocal.calibrators import MultiLabelCalibration

        if isinstance(calibrator, MultiLabelCalibration):
            instead = "rows of several are measured by refocal evaluate --multi-label"
            raise UsageError(f"The calibrator is one of several labels; this takes rows of one label, {instead}.")
        reading = self.arguments(calibrator)
        if calibrator is None or reading["input"] == "probabilities":
            return reading
        return reading | {"input": calibrator.input}  # a contradiction with the names of columns is refused

    def arguments(self, *calibrators: refocal.calibrators.Calibrator | None) -> dict[str, Any]:
        """The arguments of `refocal.read`, with the columns of groups that calibrators were fitted with.

        Options that were not given are left out.
        """
        from refocal.calibrators.answers import group_columns

        given = {each.name: vars(self)[each.name] for each in fields(self) if vars(self)[each.name] != each.default}
        given = {"weight" if name == "weights" else name: value for name, value in given.items()}
        named = self.named_values()
        is_probabilities = given.pop("probabilities", False) or given.pop("probability_column", None) is not None
        columns = [name for each in calibrators if each is not None for name in group_columns(each)]
        if columns:
            given["groups"] = list(dict.fromkeys([*given.get("groups", ()), *columns]))
        values = {} if named is None else {"values": named}
        return {"input": "probabilities" if is_probabilities else None, **given, **values}


@dataclass(frozen=True)
class WeightedOptions(ScoreOptions):
    """The same, with weights."""

    weights: Annotated[str | None, Option("--weights", metavar="NAME", help="Array or column with the weights.")] = None


GROUPS = Annotated[
    list[str] | None, Option("--groups", metavar="NAME", help="Column with groups to measure separately.")
]


@dataclass(frozen=True)
class RowOptions(WeightedOptions):
    """The same, with all that a fit or a comparison can do with rows."""

    groups: GROUPS = None
    multi_label: Annotated[
        bool,
        Option(
            "--multi-label",
            help=(
                "Several labels per row: columns score_cat and label_cat, …, or arrays log_odds and "
                "labels with one column per label. Names of methods may end in -per-label."
            ),
        ),
    ] = False


CLUSTERS = Annotated[
    str | None,
    Option(
        "--clusters",
        metavar="NAME",
        help="Column with what rows belong to, such as customers or days: intervals rest on these, not on rows.",
    ),
]


@dataclass(frozen=True)
class MeasuredOptions(RowOptions):
    """The same, with the clusters that intervals rest on."""

    clusters: CLUSTERS = None


@dataclass(frozen=True)
class DecidedOptions(WeightedOptions):
    """Rows to decide on, with groups to measure separately and the clusters that intervals rest on."""

    groups: GROUPS = None
    clusters: CLUSTERS = None


@dataclass(frozen=True)
class BlockOptions:
    """Rows that are read in blocks: by whom, and what is done with those that cannot be used."""

    scheduler: Annotated[
        str | None,
        Option("--scheduler", metavar="ADDRESS", help="Use the Dask cluster at this address, such as tcp://host:8786."),
    ] = None
    skip_bad_rows: Annotated[
        bool, Option("--skip-bad-rows", help="Leave out rows that cannot be used, and count them.")
    ] = False
    skip_bad_parts: Annotated[
        bool, Option("--skip-bad-parts", help="Leave out files of a data set that cannot be read, and count them.")
    ] = False


def given_options(*groups: Any) -> list[str]:
    """The options of some dataclasses that were given, as they may be written.

    >>> given_options(RowOptions(labels="truth", multi_label=True), BlockOptions())
    ['--labels', '--multi-label']
    """
    given = [each.name for group in groups for each in fields(group) if getattr(group, each.name) != each.default]
    return [f"--{name.replace('_', '-')}" for name in given]


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer: a parameter that is a dataclass of options becomes an option for each of its fields.

    --json is added to every command.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters = []
    for name, parameter in signature(command).parameters.items():
        if name not in groups:
            parameters.append(_keyword(name, hints[name], parameter.default))
            continue
        types = get_type_hints(groups[name], include_extras=True)
        parameters += [_keyword(field.name, types[field.name], field.default) for field in fields(groups[name])]
    parameters.append(_keyword("json", Json, False))

    @wraps(command)
    def run(*, json: bool, **given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        before = IS_JSON.set(json)
        try:
            command(**given)
        finally:
            IS_JSON.reset(before)

    run.__doc__ = cleandoc(command.__doc__ or "").split("\n\n", 1)[0]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _keyword(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def complete_method(incomplete: str) -> list[str]:
    """Names of methods, for the shell."""
    return [name for name in METHODS if name.startswith(incomplete)]


MethodNames = Annotated[
    list[str] | None,
    Option(
        "--method",
        "--methods",
        "-m",
        help=f"Several with commas, by default the usual ones, 'all' for every one: {METHOD_NAMES}.",
        autocompletion=complete_method,
    ),
]
"""Methods to compare."""


def split_names(texts: Iterable[str]) -> list[str]:
    """The names in the values of an option that is repeated, or has several with commas.

    >>> split_names(["ts,fts", "auto"])
    ['ts', 'fts', 'auto']
    """
    return [name for text in texts for name in text.split(",")]


def as_given(input: str | None = None, **reading: Any) -> str:  # noqa: A002
    """How the file was read, as options to paste after another command.

    >>> as_given("probabilities", labels="the truth", renormalise=True)
    " --probabilities --labels 'the truth' --renormalise"
    """
    said = [f"--{input}"] if input == "probabilities" else []
    for name, value in reading.items():
        option = "--weights" if name == "weight" else f"--{name.replace('_', '-')}"
        values = value if isinstance(value, list) else [value]
        said += [option if each is True else f"{option} {shlex.quote(str(each))}" for each in values]
    return "".join(f" {each}" for each in said)


def load_calibrator(file: Path) -> refocal.calibrators.Calibrator:
    """A calibrator that `refocal fit` wrote."""
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file.")
    if file.suffix.lower() != ".json":
        raise UsageError(f"{file}: a calibrator is a .json file made by refocal fit; are the arguments swapped?")
    return refocal.calibrators.load(file)


@contextmanager
def about(file: Path | str) -> Iterator[None]:
    """Name the file in errors about what is in it; those about settings stay as they are."""
    try:
        yield
    except ParameterError:
        raise
    except (InputError, InputWarning) as error:
        raise FileProblem(f"{file}: {explained(error)}") from error


def read_file(
    file: Path | str, *, multi_label: bool = False, **reading: Any
) -> refocal.io.Predictions | refocal.io.MultiLabelPredictions:
    """Predictions of a file, as the options say: of several labels with --multi-label."""
    with about(file):
        if not multi_label:
            return refocal.io.read(file, **reading)
        for name in reading.keys() - {"input", "values", "labels", "weight", "ignore_index", "classes"}:
            raise UsageError(f"--{name.replace('_', '-')} cannot be combined with --multi-label.")
        return refocal.io.read_multilabel(file, **reading | {"input": reading["input"] or "log-odds"})


Raw = tuple["refocal.rows.RawRows", "refocal.rows.RowReader"]
"""The contents of a file, and how they are understood."""


def check_own_labels(reading: Mapping[str, Any], places: Iterable[Path]) -> None:
    """Refuse one file of labels for several files of rows, which have labels of their own."""
    several = list(dict.fromkeys(str(place) for place in places))
    labels = str(reading.get("labels", ""))
    if labels.endswith(".npy") and len(several) > 1:
        own = "give each its labels in an array or a column, whose name --labels may be"
        raise UsageError(f"--labels: {labels} holds the labels of one file, not of {' and '.join(several)}; {own}.")


def read_unchecked(
    file: Path,
    reading: Mapping[str, Any],
    calibrator: refocal.calibrators.Calibrator | None = None,
    *,
    keeping: bool = False,
    only_labels: bool = False,
) -> Raw:
    """The contents of a file, with or without labels and rows; with `keeping` also the other columns of a table.

    The classes of a calibrator tell which columns are theirs, and rows that have no names for their classes are of
    these.
    """
    from refocal.calibrators.class_order import called_classes, named_classes
    from refocal.io.apply import columns_of_fit
    from refocal.rows.marks import check_marks

    where = {name: value for name, value in reading.items() if name not in OF_ROWS}
    clusters = where.pop("clusters", None)
    known: dict[str, Any] = {}
    if calibrator is not None:
        where.setdefault("values", columns_of_fit(calibrator, file))
        known = {"classes": named_classes(calibrator), "n_classes": calibrator.n_features_in_}
    marks = check_marks(reading.get("ignore_index"), "read")
    query = refocal.io.query.Query(**where, **known, keeping=keeping, only_labels=only_labels, marks=marks)
    raw, reader = refocal.io.readers.read_source(file, query.with_clusters(clusters))
    options = {name: reading[name] for name in OF_ROWS if name in reading}
    options["ignore_index"] = marks
    reader = replace(reader, **options)
    return raw, reader if calibrator is None else reader.of_classes(called_classes(calibrator))


def checked(
    raw: refocal.rows.RawRows,
    reader: refocal.rows.RowReader,
    calibrator: refocal.calibrators.Calibrator | None = None,
) -> refocal.io.Predictions:
    """Predictions of what a file holds; without labels all are 0.

    Named classes are in the order of the calibrator's, unless --positive-label says which one is the second.
    """
    from refocal.calibrators.class_order import in_order_of
    from refocal.rows.gate import read_raw

    rows = read_raw(raw, reader)
    return rows if reader.positive_label is not None else in_order_of(rows, calibrator)


def probabilities_of(rows: refocal.io.Predictions, calibrator: refocal.calibrators.Calibrator | None = None) -> Any:
    """Probabilities of a calibrator, or as the predictions have them, in rows that sum to 1.

    Columns are matched with the calibrator's classes by their names, and are in the order of the predictions.
    """
    import numpy as np

    from refocal.calibrators.class_order import InOrder, order_for
    from refocal.evaluate.predicted import log_proba, warn_of_unseen

    order = None if calibrator is None else order_for(calibrator, rows, "probabilities_of")
    predictor = calibrator if calibrator is None or order is None else InOrder(calibrator, order)
    warn_of_unseen(calibrator, rows.groups, "predict_proba")
    p = np.exp(log_proba(rows, predictor).astype(np.float64))
    return p / p.sum(axis=1, keepdims=True)


def is_text_file(place: Path | str) -> bool:
    """Whether a path is that of one file of text, which can be read whole as well."""
    return Path(place).is_file() and refocal.io.files.ending_of(place) in refocal.io.files.TEXT


def are_in_blocks(place: str, blocks: BlockOptions, reading: Mapping[str, Any], in_memory: str) -> bool:
    """Whether rows are read in blocks: where that is asked for, in a data set and in a large file.

    Rows of several labels are read whole, and so is large text where the option `in_memory`, which is empty if there is
    none, needs all rows in memory.
    """
    has_several_labels = "multi_label" in reading
    asked = "--scheduler" if blocks.scheduler is not None else "--skip-bad-rows" if blocks.skip_bad_rows else ""
    needs_all_rows = "--multi-label" if has_several_labels else in_memory
    if asked and needs_all_rows:
        why = f"{place} is read in blocks because of {asked}"
        raise UsageError(f"{needs_all_rows} is for a file that is read whole; {why}.")
    if asked:
        return True
    if has_several_labels or (needs_all_rows and is_text_file(place)):
        return False
    return refocal.io.files.is_large(place)


@contextmanager
def read_or_open(
    place: str, words: str, update: Update, blocks: BlockOptions, reading: dict[str, Any], in_memory: str
) -> Iterator[tuple[Any, bool]]:
    """The rows of a place, and whether they are in blocks, which tell the bar how far a pass is."""
    with about(place):
        if not are_in_blocks(place, blocks, reading, in_memory):
            yield read_file(place, **reading), False
            return
        with cluster(blocks) as client:
            rows = refocal.io.open_rows(place, client=client, **reading, **vars(blocks))
            rows.watch = Watch(update, words)
            yield rows, True


def cluster(blocks: BlockOptions) -> AbstractContextManager[Any]:
    """The cluster that does the work; None for this process."""
    return nullcontext() if blocks.scheduler is None else closing(refocal.io.connect(blocks.scheduler))


class Watch:
    """A bar for each pass, with rows a second and the time that is left of it."""

    def __init__(self, update: Update, words: str) -> None:
        self.update = update
        self.words = words
        self.passes = 0
        self.done = 0
        self.start = 0.0

    def __call__(self, done: int, total: int | None) -> None:
        """Show a pass that is done with `done` of `total` rows."""
        now = time.monotonic()
        if self.passes == 0 or done < self.done:
            self.passes = self.passes + 1
            self.start = now
            self.first = done
        self.done = done
        rate = (done - self.first) / (now - self.start) if now > self.start else 0.0
        speed = f", {rate / 1e6:.2f} million rows/s" if rate > 0 else ""
        left = f", {(total - done) / rate:.0f} s left of it" if rate > 0 and total is not None else ""
        self.update(done, total or 0, f"{self.words}: pass {self.passes}{speed}{left}")
