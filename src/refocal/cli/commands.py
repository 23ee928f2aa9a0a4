"""The commands of `refocal`, with examples of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from refocal.cli.calibrators import apply, fit, show
from refocal.cli.decide import decide
from refocal.cli.evaluations import compare, demo, diff, evaluate, report
from refocal.cli.explore import explore
from refocal.cli.monitor import monitor
from refocal.cli.options import with_option_groups
from refocal.cli.run import UsageError
from refocal.cli.theory import theory

COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {
    demo: ("refocal demo --sample cifar10-focal3 -o report.html",),
    fit: (
        "refocal fit val.npz -o calibrator.json",
        "refocal fit val.csv --method fts --objective ece --tolerance 0.01",
        "refocal fit logits.npy --labels labels.npy --method ts",
        "refocal fit val.npz --method aps --coverage 0.95 -o sets.json",
        "refocal fit 's3://bucket/val/*.parquet' --scheduler tcp://host:8786 --method fts-nll",
    ),
    apply: (
        "refocal apply calibrator.json logits.npz -o probs.npz",
        "refocal apply calibrator.json 'logits/*.parquet' -o probs",
    ),
    evaluate: ("refocal evaluate test.npz calibrator.json --report report.html",),
    compare: (
        "refocal compare val.npz test.npz --report report.html",
        "refocal compare all.csv -m ts -m fts -o evaluation.json",
    ),
    report: (
        "refocal report evaluation.json -o report.html",
        "refocal report val.npz test.npz",
        "refocal report may.json june.json --title 'Our model' --notes notes.md --require 'ece<2%'",
    ),
    show: ("refocal show calibrator.json",),
    diff: ("refocal diff may.json june.json --fail-if-worse",),
    decide: (
        "refocal decide test.csv --probability-column p --false-positive 1 --false-negative 9",
        "refocal decide new.npz --calibrator calibrator.json --costs '0,2,8;3,0,8;60,60,0' -o decisions.csv",
    ),
    monitor: (
        "refocal monitor monday.csv --probability-column p -o monitor.html",
        "refocal monitor tuesday.csv --probability-column p --ids id",
        "refocal monitor --outcomes labels.csv --ids id",
    ),
    theory: ("refocal theory --gamma 2 --classes 3",),
    explore: ("refocal explore -o explore.html --no-open",),
}

app = typer.Typer(
    name="refocal",
    help="Turn the logits of any classifier into probabilities that can be trusted.",
    epilog="Examples:\n\nrefocal demo\n\nrefocal compare val.npz test.npz --report report.html\n\n"
    "refocal fit val.npz -o calibrator.json",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Turn the logits of any classifier into probabilities that can be trusted."""
    if version:
        raise UsageError("--version takes no other arguments.")


for _command, _examples in COMMANDS.items():
    _epilog = f"Example: {_examples[0]}" if len(_examples) == 1 else "\n\n".join(["Examples:", *_examples])
    app.command(epilog=_epilog)(with_option_groups(_command))
