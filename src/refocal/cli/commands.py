"""The commands of `refocal`."""

from __future__ import annotations

from inspect import cleandoc
from typing import Annotated

import typer

from refocal.cli.calibrators import apply, fit, show
from refocal.cli.decide import decide
from refocal.cli.evaluations import compare, demo, diff, evaluate, report
from refocal.cli.explore import explore
from refocal.cli.monitor import monitor
from refocal.cli.options import with_options
from refocal.cli.run import UsageError
from refocal.cli.theory import theory

COMMANDS = (demo, fit, apply, evaluate, compare, report, show, diff, decide, monitor, theory, explore)

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


for _command in COMMANDS:
    # The last paragraph of a command's docstring.
    _examples = (cleandoc(_command.__doc__ or "").split("\n\n"))[-1].splitlines()
    _epilog = f"Example: {_examples[0]}" if len(_examples) == 1 else "\n\n".join(["Examples:", *_examples])
    app.command(epilog=_epilog)(with_options(_command))
