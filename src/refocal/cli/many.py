"""`refocal compare-many`: methods on many trained networks, with a table and a figure for a paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

import refocal
from refocal._outputs import MANY, guard_output
from refocal.cli.options import HTML_FILE, JSON_FILE, MethodNames, WeightedOptions, output_file, split_names
from refocal.cli.printing import print_table, progress, result, say
from refocal.cli.run import UsageError


@dataclass(frozen=True)
class ManyFiles:
    """What is written of a comparison of many networks."""

    output: Annotated[Path | None, Option("-o", "--output", help="Write the results here, as JSON.", **JSON_FILE)] = (
        None
    )
    report: Annotated[Path | None, Option("--report", help="Write the HTML report here as well.", **HTML_FILE)] = None
    latex: Annotated[
        Path | None,
        Option("--latex", help="Write the table of methods here, for LaTeX with booktabs.", **output_file(".tex")),
    ] = None
    figure: Annotated[
        Path | None,
        Option("--figure", help="Draw differences and ranks by the first metric here.", **output_file(".pdf", ".svg")),
    ] = None
    overwrite: Annotated[
        bool, Option("--overwrite", help="With -o, also replace a JSON file that holds something else.")
    ] = False

    def guard(self, sources: list[str]) -> None:
        """Refuse outputs that are inputs, or files of another kind."""
        function = "refocal compare-many"
        # A pattern of runs matches what its fields stand for.
        rows = [place for place in sources if "{" not in place]
        if self.output is not None:
            guard_output(self.output, rows, kind=MANY, overwrite=self.overwrite, function=function)
        for argument, file in (("report", self.report), ("latex", self.latex), ("figure", self.figure)):
            if file is not None:
                guard_output(file, rows, argument=argument, function=function)


def compare_many(
    runs: Annotated[
        list[str],
        Argument(
            metavar="RUNS",
            help="A table of runs (.csv with columns validation, test, dataset, network, seed), a folder, a pattern "
            "such as 'logits/{dataset}/{network}-{seed}/{part}.npz', or files.",
        ),
    ],
    *,
    methods: MethodNames = None,
    metrics: Annotated[
        list[str] | None,
        Option("--metric", "--metrics", help="Several with commas; the first ranks. By default log_loss and others."),
    ] = None,
    against: Annotated[str, Option("--against", help="The method that others are compared with.")] = "none",
    unit: Annotated[
        str | None,
        Option("--unit", help="What counts as independent: both, dataset, network or run; by default by their number."),
    ] = None,
    files: ManyFiles,
    title: Annotated[str, Option("--title", help="What the report calls the networks.")] = "networks",
    validation_values: Annotated[
        str | None,
        Option("--validation-values", metavar="NAME", help="Array of the validation rows, where a file has both."),
    ] = None,
    validation_labels: Annotated[
        str | None, Option("--validation-labels", metavar="NAME", help="Array of their labels.")
    ] = None,
    rows: WeightedOptions,
    seed: Annotated[int, Option("--seed", help="Seed of simulated outcomes and of splits.", min=0)] = 0,
) -> None:
    """Compare methods on many networks: data sets, networks and seeds in one table.

    refocal compare-many runs.csv -m ts,fts,auto --report report.html --latex table.tex --figure figure.pdf
    refocal compare-many 'logits/{dataset}/{network}-{seed}/{part}.npz' -o many.json
    """
    files.guard(runs)
    reading = rows.arguments()
    parts: dict[str, Any] = {}
    if (validation_values is None) != (validation_labels is None):
        raise UsageError("--validation-values and --validation-labels go together.")
    if validation_values is not None:
        parts["validation"] = {"values": validation_values, "labels": validation_labels}
        parts["test"] = {name: reading.pop(name) for name in ("values", "labels") if name in reading}
    source: Any = runs[0] if len(runs) == 1 else runs
    asked: dict[str, Any] = {"against": against, "unit": unit, "title": title, "seed": seed}
    if metrics is not None:
        asked["metrics"] = split_names(metrics)
    chosen = None if methods is None else split_names(methods)
    with progress("reading") as update:
        every = refocal.evaluate.read_runs(source, seed=seed, **parts, **reading)
        comparison = refocal.evaluate.compare_many(every, chosen, progress=update, **asked)
    result(comparison.to_dict())
    _print(comparison)
    _write(comparison, files)


def _print(comparison: refocal.evaluate.ManyComparison) -> None:
    """The table by the first metric, and what it rests on."""
    from refocal.evaluate import many_tables as tables

    table = tables.methods_table(comparison)
    dropped = tuple(name for name in table[0] if "interval" in name)
    print_table(tuple(table[0]), [tuple(row.values()) for row in table], dropped)
    for name, reason in comparison.failed.items():
        say(f"Left out: {name} failed on {reason}")
    say(*tables.remarks(comparison))
    sentences = [tables.sentence(comparison, metric.name) for metric in comparison.metrics]
    further = filter(None, (tables.distance_sentence(comparison), tables.rank_sentence(comparison)))
    say(*sentences, *further, comparison.scope)


def _write(comparison: refocal.evaluate.ManyComparison, files: ManyFiles) -> None:
    """Write what was asked for."""
    from refocal._files import write_atomically

    if files.output is not None:
        comparison.save(files.output)
    if files.report is not None:
        refocal.report.write_report(comparison, files.report)
    if files.latex is not None:
        write_atomically(files.latex, comparison.to_latex())
    if files.figure is not None:
        comparison.plot().savefig(files.figure)
    written = (files.output, files.report, files.latex, files.figure)
    say(*(f"Wrote {file}." for file in written if file is not None))
