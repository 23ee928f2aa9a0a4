"""The options that several commands share, and how they become predictions."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refocal.cli.run import FileProblem, UsageError, explained
from refocal.errors import InputError, InputWarning, ParameterError

if TYPE_CHECKING:
    from refocal.calibrators import Calibrator
    from refocal.data import Predictions

# Written out, because reading them from the registry would load it for every command.
METHOD_NAMES = (
    "auto, ts, ts-ece, focal, fts, fts-nll, fts-ece, vs, ms, dirichlet, svs, sms, fss, fss-order, ets, logistic, beta, "
    "spline, isotonic, histogram, bbq, venn-abers, venn-abers-cross"
)
Probabilities = Annotated[bool, typer.Option("--probabilities", help="The numbers are probabilities, not logits.")]
Values = Annotated[
    str | None,
    typer.Option("--values", metavar="NAME", help="Array with the logits; for columns 'logit_*' or cat,dog,…."),
]
Labels = Annotated[
    str | None, typer.Option("--labels", metavar="NAME", help="Array or column with the labels, or a .npy file.")
]
Weights = Annotated[str | None, typer.Option("--weights", metavar="NAME", help="Array or column with the weights.")]
ProbabilityColumn = Annotated[
    str | None,
    typer.Option(
        "--probability-column",
        metavar="NAME",
        help="Of two classes: column or array with the probability of the positive one; says --probabilities too.",
    ),
]
PositiveLabel = Annotated[
    str | None, typer.Option("--positive-label", metavar="LABEL", help="Of two classes: the label of the positive one.")
]
Renormalise = Annotated[bool, typer.Option("--renormalise", help="Divide rows of rounded probabilities by their sums.")]
IgnoreIndex = Annotated[
    int | None,
    typer.Option("--ignore-index", metavar="LABEL", help="Label of rows without one, which are left out: 255."),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--groups", metavar="NAME", help="Column or array with groups, each looked at; may be repeated."),
]
MultiLabel = Annotated[
    bool,
    typer.Option(
        "--multi-label",
        help="Labels do not exclude one another: columns score_cat and label_cat, …, or arrays log_odds and labels of "
        "one column a label. Names of methods may end in -per-label.",
    ),
]
FirstLabel = Annotated[int, typer.Option("--first-label", help="1 where the labels count from 1.")]
ClassWeight = Annotated[
    str | None,
    typer.Option(
        "--class-weight",
        metavar="W,W,…",
        help="Weights of the classes in the training loss, to take out, or fit; of fts.",
    ),
]
Coverage = Annotated[
    float | None,
    typer.Option("--coverage", metavar="SHARE", help="Of lac, aps and raps: how often a set must hold the truth."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Resamples = Annotated[int, typer.Option("--resamples", min=1, help="Resamples of the bootstrap.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the bootstrap and of splits.")]
# Of a command that takes rows in blocks too, which are not resampled.
MaybeResamples = Annotated[
    int | None, typer.Option("--resamples", min=1, help="Resamples of the bootstrap, by default 500; in memory only.")
]
MaybeSeed = Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the bootstrap; in memory only.")]


def complete_method(incomplete: str) -> list[str]:
    """Names of methods, for the shell."""
    from refocal.calibrators.registry import GROUPED, NAMED, SETS

    return [name for name in NAMED | SETS | GROUPED if name.startswith(incomplete)]


def how_to_read(probabilities: bool, probability_column: str | None, **options: Any) -> dict[str, Any]:
    """The options that say how a file is read, as the arguments of `read`; those left alone are left out."""
    if probability_column is not None:
        if options.get("values") is not None:
            raise UsageError("--values and --probability-column name the same thing; give one of them.")
        options["values"] = probability_column
    probabilities = probabilities or probability_column is not None
    if options.get("renormalise") and not probabilities:
        raise UsageError("--renormalise is for probabilities; add --probabilities.")
    kind = "probabilities" if probabilities else "logits"
    given = {name: value for name, value in options.items() if value or (name == "ignore_index" and value is not None)}
    return {"input": kind} | given


def numbers_or_fit(class_weight: str | None) -> list[float] | str | None:
    """Class weights as a calibrator takes them."""
    if class_weight is None or class_weight == "fit":
        return class_weight
    try:
        return [float(each) for each in class_weight.split(",")]
    except ValueError:
        expected = "--class-weight must be numbers with commas between them, one for each class, or fit."
        raise UsageError(f"{expected} Got {class_weight!r} instead.") from None


def read_file(file: Path, **reading: Any) -> Any:
    """Predictions of a file, as the options say: `Predictions`, or `MultiLabelPredictions` with --multi-label."""
    from refocal.data import read, read_multilabel

    several = reading.pop("multi_label", False)
    if several:
        known = {"input", "values", "labels", "weight", "ignore_index"}
        other = next((name for name in reading if name not in known), None)
        if other is not None:
            raise UsageError(f"--{other.replace('_', '-')} cannot be had with --multi-label.")
        reading["input"] = "probabilities" if reading["input"] == "probabilities" else "log-odds"
    try:
        return read_multilabel(file, **reading) if several else read(file, **reading)
    except (InputError, InputWarning) as error:
        raise FileProblem(f"{file}: {explained(error)}") from error


def score_columns(calibrator: Calibrator, file: str) -> str | None:
    """The columns of a table that a calibrator of several labels takes; None where the reader knows best."""
    is_table = Path(file).suffix.lower() not in (".npz", ".npy", ".safetensors", ".pt")
    return "score_*" if calibrator.row_axes == 2 and is_table else None


def read_with_or_without_labels(file: Path, reading: dict[str, Any]) -> tuple[Predictions, bool]:
    """Predictions of a file, and whether it has labels; without them all are 0."""
    import numpy as np

    from refocal.data.readers import MAKE, read_values

    named = {name: value for name, value in reading.items() if name in ("input", "values", "labels")}
    found = read_values(file, **named)
    if found.labels is not None:
        return read_file(file, **reading), True
    make: Any = MAKE[reading["input"]]
    more = {"renormalise": True} if "renormalise" in reading else {}
    with about(file):
        labels = np.zeros(len(found.values), dtype=np.int64)
        return make(found.values, labels, class_names=found.class_names, **more), False


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
    options = {"weight": "--weights"}
    said = [f"--{input}"] if input == "probabilities" else []
    for name, value in reading.items():
        option = options.get(name, "--" + name.replace("_", "-"))
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


def check_output(file: Path, endings: tuple[str, ...]) -> None:
    """Complain about where to write before anything is computed."""
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


def check_calibrator_file(file: Path) -> None:
    """The first argument of `apply` and `show` is a calibrator."""
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file.")
    if file.suffix.lower() != ".json":
        raise UsageError(f"{file}: a calibrator is a .json file made by refocal fit; are the arguments swapped?")
