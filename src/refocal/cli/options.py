"""The options that several commands share, and how they become predictions."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from typer import Argument, Option

from refocal.cli.run import FileProblem, UsageError, explained
from refocal.errors import InputError, InputWarning, ParameterError

if TYPE_CHECKING:
    from refocal.calibrators import Calibrator
    from refocal.io import Predictions

ONLY_HTML, ONLY_JSON = (".html", ".htm"), (".json",)
# Written out, because reading them from the registry would load it for every command.
METHOD_NAMES = (
    "auto, auto-order, ts, ts-ece, focal, fts, fts-nll, fts-ece, vs, ms, dirichlet, svs, sms, ets, logistic, beta, "
    "spline, isotonic, histogram, bbq, venn-abers, venn-abers-cross"
)


Json = Annotated[bool, Option("--json", help="Print JSON.")]
Groups = Annotated[list[str] | None, Option(metavar="NAME", help="Column with groups to measure separately.")]
Source = Annotated[
    str,
    Argument(help="Logits and labels: .npz .npy .csv .tsv .jsonl .parquet .safetensors .pt; or larger than "
             "memory: a folder or pattern of Parquet files, an address such as s3://…, Zarr, a large .npy."),
]  # fmt: skip


@dataclass(frozen=True)
class ColumnOptions:
    """Which columns or arrays of a file are read."""

    probability_column: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="Two classes: column or array with the probability of the positive class; implies --probabilities.",
        ),
    ] = None
    values: Annotated[
        str | None,
        Option(metavar="NAME", help="Array with the logits, or columns: 'logit_*' or cat,dog,…"),
    ] = None
    labels: Annotated[str | None, Option(metavar="NAME", help="Array or column with the labels, or a .npy file.")] = (
        None
    )
    renormalise: Annotated[
        bool, Option("--renormalise", help="Divide rows of rounded probabilities by their sums.")
    ] = False


@dataclass(frozen=True)
class ScoreOptions(ColumnOptions):
    """How the scores and labels of a file are read."""

    probabilities: Annotated[bool, Option("--probabilities", help="The scores are probabilities, not logits.")] = False
    positive_label: Annotated[
        str | None,
        Option(metavar="LABEL", help="Two classes: the label of the positive class."),
    ] = None
    first_label: Annotated[int, Option(help="The first label: 1 if labels start at 1.")] = 0
    ignore_index: Annotated[
        int | None,
        Option(metavar="LABEL", help="Rows with this label are left out, such as 255."),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of `refocal.read`; options that were not given are left out."""
        given = {name: value for name, value in vars(self).items() if value or (name == "ignore_index" and value == 0)}
        column = given.pop("probability_column", None)
        if column is not None and "values" in given:
            raise UsageError("--values and --probability-column name the same thing; give one of them.")
        is_probabilities = given.pop("probabilities", False) or column is not None
        if "renormalise" in given and not is_probabilities:
            raise UsageError("--renormalise is for probabilities; add --probabilities.")
        named = {} if column is None else {"values": column}
        return {"input": "probabilities" if is_probabilities else "logits", **given, **named}


@dataclass(frozen=True)
class WeightedOptions(ScoreOptions):
    """The same, with weights and rows that have no label."""

    weight: Annotated[str | None, Option("--weights", metavar="NAME", help="Array or column with the weights.")] = None


@dataclass(frozen=True)
class RowOptions(WeightedOptions):
    """The same, with all that a fit or a comparison can do with rows."""

    groups: Groups = None
    multi_label: Annotated[
        bool,
        Option(
            "--multi-label",
            help="Several labels per row: columns score_cat and label_cat, …, or arrays log_odds and labels with one "
            "column per label. Names of methods may end in -per-label.",
        ),
    ] = False


@dataclass(frozen=True)
class BlockOptions:
    """Rows that are read in blocks: by whom, and what is done with those that cannot be used."""

    scheduler: Annotated[
        str | None,
        Option(metavar="ADDRESS", help="Use the Dask cluster at this address, such as tcp://host:8786."),
    ] = None
    skip_bad_rows: Annotated[
        bool, Option("--skip-bad-rows", help="Leave out rows that cannot be used, and count them.")
    ] = False
    skip_bad_parts: Annotated[
        bool,
        Option("--skip-bad-parts", help="Leave out files of a data set that cannot be read, and count them."),
    ] = False


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer: a parameter whose type is one of the dataclasses above becomes an option for each field."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[Parameter] = []
    for name, each in signature(command).parameters.items():
        if name in groups:
            kinds = get_type_hints(groups[name], include_extras=True)
            options = [
                each.replace(name=f.name, default=f.default, annotation=kinds[f.name]) for f in fields(groups[name])
            ]
        else:
            options = [each.replace(annotation=hints[name])]
        parameters += [option.replace(kind=Parameter.KEYWORD_ONLY) for option in options]

    @wraps(command)
    def run(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        command(**given)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def complete_method(incomplete: str) -> list[str]:
    """Names of methods, for the shell."""
    from refocal.calibrators.registry import GROUPED, NAMED, SETS

    return [name for name in NAMED | SETS | GROUPED if name.startswith(incomplete)]


def read_file(file: Path, **reading: Any) -> Any:
    """Predictions of a file, as the options say: `Predictions`, or `MultiLabelPredictions` with --multi-label."""
    from refocal.io import read, read_multilabel

    several = reading.pop("multi_label", False)
    if several:
        known = {"input", "values", "labels", "weight", "ignore_index"}
        other = next((name for name in reading if name not in known), None)
        if other is not None:
            raise UsageError(f"--{other.replace('_', '-')} cannot be combined with --multi-label.")
        reading["input"] = "probabilities" if reading["input"] == "probabilities" else "log-odds"
    try:
        return read_multilabel(file, **reading) if several else read(file, **reading)
    except (InputError, InputWarning) as error:
        raise FileProblem(f"{file}: {explained(error)}") from error


def read_with_or_without_labels(file: Path, reading: dict[str, Any]) -> tuple[Predictions, bool]:
    """Predictions of a file, and whether it has labels; without them all are 0."""
    import numpy as np

    from refocal.io.readers import MAKE, read_values

    named = {name: value for name, value in reading.items() if name in ("input", "values", "labels", "groups")}
    found = read_values(file, **named)
    if found.labels is not None:
        return read_file(file, **reading), True
    make: Any = MAKE[reading["input"]]
    more = {"renormalise": True} if "renormalise" in reading else {}
    with about(file):
        labels = np.zeros(len(found.values), dtype=np.int64)
        made: Predictions = make(found.values, labels, class_names=found.class_names, **more)
        return made.with_groups(found.groups), False


def with_groups_of(reading: dict[str, Any], *calibrators: Calibrator | None) -> dict[str, Any]:
    """The same way of reading, with the columns of groups that calibrators were fitted with."""
    from refocal.calibrators._answers import group_columns

    needed = [column for each in calibrators if each is not None for column in group_columns(each)]
    return reading | {"groups": list(dict.fromkeys([*reading.get("groups", ()), *needed]))} if needed else reading


def probabilities_of(rows: Predictions, calibrator: Calibrator | None = None) -> Any:
    """Probabilities of a calibrator, or as the predictions have them, in rows that sum to 1."""
    import numpy as np

    from refocal.evaluate._in_memory import log_proba

    p = np.exp(log_proba(rows, calibrator).astype(np.float64))
    return p / p.sum(axis=1, keepdims=True)


def as_given(input: str, **reading: Any) -> str:  # noqa: A002
    """How the file was read, as options to paste behind another command.

    >>> as_given("probabilities", labels="the truth", renormalise=True)
    " --probabilities --labels 'the truth' --renormalise"
    """
    said = [f"--{input}"] if input == "probabilities" else []
    for name, value in reading.items():
        option = "--weights" if name == "weight" else f"--{name.replace('_', '-')}"
        values = value if isinstance(value, list) else [value]
        said += [option if each is True else f"{option} {shlex.quote(str(each))}" for each in values]
    return "".join(f" {each}" for each in said)


@contextmanager
def about(file: Path | str) -> Iterator[None]:
    """Name the file in errors about what is in it; those about settings stay as they are."""
    try:
        yield
    except InputError as error:
        if isinstance(error, ParameterError):
            raise
        raise FileProblem(f"{file}: {explained(error)}") from error


def check_output(file: Path | None, endings: tuple[str, ...]) -> None:
    """Complain about where to write, if anything is written, before anything is computed."""
    if file is None:
        return
    if file.suffix.lower() not in endings:
        raise UsageError(f"{file}: the output must end in {' or '.join(endings)}; are arguments swapped?")
    if file.is_dir():
        raise UsageError(f"{file}: is a directory; name a file with -o.")
    folder = file.parent
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such directory; make it first or name another with -o.")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise FileProblem(f"{folder}: cannot be written to; name a file in another directory with -o.") from error


def load_calibrator(file: Path) -> Calibrator:
    """A calibrator that `refocal fit` wrote."""
    from refocal.calibrators import load

    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file.")
    if file.suffix.lower() != ".json":
        raise UsageError(f"{file}: a calibrator is a .json file made by refocal fit; are the arguments swapped?")
    return load(file)
