"""`refocal fit`, `apply` and `show`: calibrators are fitted, used and looked at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument

from refocal.cli import large, options
from refocal.cli.options import ONLY_JSON, BlockOptions, ColumnOptions, RowOptions, Source
from refocal.cli.printing import left_out, print_calibrator, progress, result, say
from refocal.cli.run import UsageError

if TYPE_CHECKING:
    from refocal.calibrators import Calibrator

CalibratorFile = Annotated[Path, Argument(help="A calibrator written by refocal fit.")]


@dataclass(frozen=True)
class MethodOptions:
    """Which calibrator is fitted, and with which settings.

    --method, -m  Default: auto, or fts if one of its options is given. One of METHODS; for prediction sets lac, aps,
        raps; with --groups, group, which is then the default.
    --objective  auto, nll, ece or the name of a metric.
    --tolerance  Share of the log-loss that may be given up for a lower ECE.
    --class-weight W,W,…  Class weights of the training loss, which are removed, or fit; for fts.
    --coverage SHARE  For lac, aps, raps: share of sets that must contain the true class.
    """

    method: Annotated[str | None, {"autocompletion": options.complete_method}] = None
    objective: str | None = None
    tolerance: Annotated[float | None, {"min": 0.0}] = None
    class_weight: str | None = None
    coverage: float | None = None

    def settings(self) -> dict[str, Any]:
        """The settings that were given, by the names of a calibrator's parameters."""
        weight: Any = self.class_weight
        if weight not in (None, "fit"):
            try:
                weight = [float(each) for each in weight.split(",")]
            except ValueError:
                expected = "--class-weight must be numbers with commas between them, one for each class, or fit."
                raise UsageError(f"{expected} Got {weight!r} instead.") from None
        made = {"objective": self.objective, "nll_tolerance": self.tolerance, "class_weight": weight}
        return {name: value for name, value in (made | {"coverage": self.coverage}).items() if value is not None}


def fit(
    validation: Source,
    *,
    how: MethodOptions,
    output: Path = Path("calibrator.json"),
    rows: RowOptions,
    blocks: BlockOptions,
) -> None:
    """Fit a calibrator on held-out rows and write it as JSON.

    -o, --output  Where to write it.

    refocal fit val.npz -o calibrator.json
    refocal fit val.csv --method fts --objective ece --tolerance 0.01
    refocal fit logits.npy --labels labels.npy --method ts
    refocal fit val.npz --method aps --coverage 0.95 -o sets.json
    refocal fit 's3://bucket/val/*.parquet' --scheduler tcp://host:8786 --method fts-nll
    """
    from refocal.calibrators.registry import OTHER_NAMES, make
    from refocal.calibrators.serialize import to_dict
    from refocal.evaluate.multilabel import fit_method

    options.check_output(output, ONLY_JSON)
    reading, settings = rows.arguments(), how.settings()
    if rows.multi_label and settings:
        raise UsageError("--objective, --tolerance, --class-weight, --coverage cannot be combined with --multi-label.")
    default = "group" if rows.groups else "lac" if "coverage" in settings else "fts" if settings else "auto"
    method = default if how.method is None else OTHER_NAMES.get(how.method, how.method)
    with progress("reading") as update, options.about(validation):
        if rows.multi_label:
            calibrator: Calibrator = fit_method(options.read_file(Path(validation), **reading), method)
        else:
            calibrator = make(method, **settings, input=reading["input"])
            if calibrator.needs_groups != bool(rows.groups):
                raise UsageError(f"--groups requires the method group, which requires --groups. Got {method!r}.")
            _fit_rows(calibrator, validation, method, blocks, reading, update)
    calibrator.save(output)
    result(to_dict(calibrator))
    print_calibrator(calibrator)
    report = calibrator.fit_report_
    lines = left_out(report.get("n_skipped", 0), report.get("n_bad_parts", 0))
    in_blocks = large.is_large(validation, blocks) and not rows.multi_label
    where = "probs.npz" if not in_blocks else "probs.csv" if large.is_text(validation) else "probs"
    # The calibrator knows whether it takes probabilities.
    kept = {name: value for name, value in reading.items() if name in ("values", "renormalise")}
    more = options.as_given("logits", **kept)
    say(*lines, f"Wrote {output}. Next: refocal apply {output} {calibrator.input.upper()}{more} -o {where}")


def _fit_rows(
    calibrator: Calibrator,
    place: str,
    method: str,
    blocks: BlockOptions,
    reading: dict[str, Any],
    update: large.Update,
) -> None:
    """Fit on the rows of a file or a data set, in blocks where it is large; classes keep their names."""
    import numpy as np

    from refocal.calibrators.registry import every_method

    suits = every_method()[method].in_blocks
    if large.is_large(place, blocks, reading, suits=suits):
        with large.open_rows(place, f"fitting {method}", update, blocks, reading) as opened:
            calibrator.fit(opened)
            names = opened.reading.class_names
    else:
        rows = options.read_file(Path(place), **reading)

        def tell(share: float) -> None:
            update(share, 1, f"fitting {method} on {len(rows):,} rows")

        tell(0.0)
        more: dict[str, Any] = {"groups": rows.groups} if calibrator.needs_groups else {}
        calibrator.fit_with_progress(rows.values, rows.labels, rows.weight, tell, **more)
        names = rows.class_names
    if names is not None:
        calibrator.classes_ = np.array(names)


def apply(
    calibrator: CalibratorFile,
    logits: str,
    *,
    output: Path = Path("probs.npz"),
    columns: ColumnOptions,
    groups: list[str] | None = None,
    blocks: BlockOptions,
) -> None:
    """Turn logits into calibrated probabilities.

    LOGITS  Logits, with or without labels: a file or a data set.
    -o, --output  .npz, .npy, .csv, .tsv, .jsonl, .parquet, or a folder of Parquet files.
    --groups NAME  Column with groups, as in the fit; by default found by its name.

    refocal apply calibrator.json logits.npz -o probs.npz
    refocal apply calibrator.json 'logits/*.parquet' -o probs
    """
    from refocal.calibrators._answers import group_columns

    large.check_written(logits, output)
    fitted = options.load_calibrator(calibrator)
    if groups is not None and set(groups) != set(group_columns(fitted)):
        known = " and ".join(group_columns(fitted)) or "no groups"
        raise UsageError(f"--groups must be those of the calibrator: {known}. Got {', '.join(groups)} instead.")
    # Of several labels a table has a column of scores for each.
    is_table = fitted.row_axes == 2 and Path(logits).suffix.lower() not in (".npz", ".npy", ".safetensors", ".pt")
    values = columns.values or columns.probability_column or ("score_*" if is_table else None)
    reading = {"values": values, "labels": columns.labels, "renormalise": columns.renormalise}
    with progress("reading") as update, options.about(logits):
        large.apply(fitted, logits, output, update, blocks, reading)


def show(calibrator: CalibratorFile) -> None:
    """Show a calibrator and how it was fitted.

    refocal show calibrator.json
    """
    from refocal.calibrators.serialize import to_dict

    fitted = options.load_calibrator(calibrator)
    result(to_dict(fitted))
    print_calibrator(fitted)
