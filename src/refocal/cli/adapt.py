"""`refocal adapt`: a calibrator for new class shares, from rows without labels or from known shares."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

import refocal
from refocal._outputs import CALIBRATOR, guard_output
from refocal._validation import number_of_text
from refocal.cli import options
from refocal.cli.options import HTML_FILE, JSON_FILE, WeightedOptions, about
from refocal.cli.printing import print_table, result, say
from refocal.cli.run import ExitCode, UsageError
from refocal.errors import InputWarning, ParameterError


def adapt(
    calibrator: Annotated[Path, Argument(metavar="CALIBRATOR", help="Written by refocal fit.")],
    rows: Annotated[
        Path | None,
        Argument(
            metavar="ROWS",
            help="New rows, as apply reads them; labels are not looked at. --labels and --weights are of --fit-rows, "
            "and of these rows where they have such a column.",
        ),
    ] = None,
    *,
    output: Annotated[Path, Option("-o", "--output", help="Where to write it.", **JSON_FILE)] = Path("adapted.json"),
    fit_rows: Annotated[
        Path | None,
        Option(
            "--fit-rows",
            help="The labelled rows of the fit: it is tested whether new shares explain the new rows.",
        ),
    ] = None,
    shares: Annotated[
        str | None,
        Option("--shares", metavar="S,S,…", help="The new class shares, where they are known: 0.99,0.01 or cat=0.3,…"),
    ] = None,
    shares_of_fit: Annotated[
        str | None, Option("--shares-of-fit", metavar="S,S,…", help="Those of the fit; default: the calibrator knows.")
    ] = None,
    force: Annotated[bool, Option("--force", help="Adapt even where new shares do not explain the rows.")] = False,
    report: Annotated[Path | None, Option("--report", help="Write a page here.", **HTML_FILE)] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Also replace a JSON file that is no calibrator.")] = False,
    scores: WeightedOptions,
) -> None:
    """Adapt a calibrator to new class shares, without labels. Exit code 3 if something else than shares has changed.

    refocal adapt calibrator.json new.parquet -o adapted.json --fit-rows val.npz
    refocal adapt calibrator.json --shares 0.99,0.01 -o adapted.json
    """
    read = [file for file in (rows, fit_rows) if file is not None]
    function = "refocal adapt"
    guard_output(output, read, files=[calibrator], kind=CALIBRATOR, overwrite=overwrite, function=function)
    if report is not None:
        guard_output(report, read, files=[calibrator, output], argument="report", function=function)
    if rows is None and shares is None:
        raise UsageError("Give rows without labels, or the new shares with --shares.")
    of_rows = [] if read else options.given_options(scores)
    if of_rows:
        raise UsageError(
            f"{', '.join(of_rows)}: for rows, of which none are given; --shares are in the calibrator's order."
        )
    fitted = options.load_calibrator(calibrator)
    reading = scores.applied_to(fitted)
    new = None if rows is None else _read(rows, _of_new(rows, reading, fit_rows), fitted, labelled=False)
    known = None if fit_rows is None else _read(fit_rows, reading, fitted, labelled=True)
    given: dict[str, Any] = {"fit_rows": known, "force": force}
    given |= {"shares": _shares(shares, "--shares"), "shares_of_fit": _shares(shares_of_fit, "--shares-of-fit")}
    with warnings.catch_warnings(), about(rows or calibrator):
        warnings.simplefilter("ignore", InputWarning)
        adapted, found = _adapted(fitted, new, given)
    if not found.refused:
        adapted.save(output)
    if report is not None:
        refocal.report.page.write_adaptation_page(found, report, title=calibrator.stem)
    result({**found.to_dict(), "output": None if found.refused else str(output)})
    table = refocal.report.details.shares_table(found)
    shown = 20  # classes
    print_table([*table[0]], table[:shown])
    if found.performance is not None:
        say(refocal.report.details.performance_sentence(found.performance))
    if found.evidence is not None and found.evidence.weight == 0.0 and not found.refused:
        say(refocal.report.details.no_evidence_sentence(found.evidence))
    if found.label_shift is not None and not found.refused:
        explain = "do not explain" if found.label_shift.rejects else "explain"
        say(f"New shares {explain} the rows (p = {found.label_shift.p_value:.2g}).")
    elif rows is not None and shares is not None:
        say("Whether the given shares explain the rows was not tested.")
    elif rows is not None and fit_rows is None:
        say("Whether new shares explain the rows was not tested: name the rows of the fit with --fit-rows.")
    if known is not None and shares_of_fit is None:
        problem = refocal.shift.rows.without_weights_of_fit(fitted, known)
        say(*([f"Warning: {fit_rows}: {problem} Name the column of the weights with --weights."] if problem else []))
    if found.refused:
        say(f"Not adapted: {found.refused}".replace("say force=True", "add --force"))
        raise Exit(ExitCode.NEGATIVE)
    say(f"Wrote {output}{f' and {report}' if report else ''}.")


def _adapted(
    fitted: refocal.calibrators.Calibrator, new: refocal.io.Predictions | None, given: dict[str, Any]
) -> tuple[refocal.calibrators.Calibrator, refocal.shift.shares.Adaptation]:
    """The adapted calibrator and what was found; where shares of the fit are missing, the options that give them."""
    try:
        return fitted.adapt(new, **given)
    except ParameterError as error:
        if given["shares_of_fit"] is None and error.argument == "shares_of_fit":
            raise UsageError(
                "Give --shares-of-fit or --fit-rows: this calibrator does not know the class shares of its fit."
            ) from error
        raise


def _of_new(rows: Path, reading: dict[str, Any], fit_rows: Path | None) -> dict[str, Any]:
    """How new rows are read: labels and weights that the rows of the fit have are theirs too only if they have them."""
    if fit_rows is None:
        return reading
    missing = {"labels", "weight"} & reading.keys()
    missing = {name for name in missing if reading[name] not in refocal.io.readers.names_in(rows)}
    return {name: value for name, value in reading.items() if name not in missing}


def _read(
    file: Path, reading: dict[str, Any], fitted: refocal.calibrators.Calibrator, *, labelled: bool
) -> refocal.io.Predictions:
    """The rows of a file."""
    raw, reader = options.read_unchecked(file, reading, fitted)
    with about(file):
        if labelled and raw.labels is None:
            raise UsageError(f"{file}: no labels; name their column with --labels.")
        return options.checked(raw if labelled else raw._replace(labels=None), reader, fitted)


def _shares(text: str | None, option: str) -> Any:
    """Numbers with commas between them, perhaps by the names of classes."""
    if text is None:
        return None
    try:
        if "=" in text:
            pairs = [part.split("=", 1) for part in text.split(",")]
            named = {name.strip(): number_of_text(value) for name, value in pairs}
            if len(named) < len(pairs):
                raise ValueError
            return named
        return [number_of_text(part) for part in text.split(",")]
    except ValueError:
        expected = (
            f"{option} must be numbers with commas between them, one for each class, or cat=0.3,dog=0.7, each once"
        )
        raise UsageError(f"{expected}. Got {text!r} instead.") from None
