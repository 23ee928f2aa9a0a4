"""The commands of `refocal`, and the two that are about no rows: `theory` and `explore`."""

from __future__ import annotations

import sys
import webbrowser
from inspect import cleandoc
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

import refocal
from refocal.cli.adapt import adapt
from refocal.cli.calibrators import apply, fit, show
from refocal.cli.decide import decide
from refocal.cli.evaluations import compare, demo, diff, evaluate, report
from refocal.cli.many import compare_many
from refocal.cli.monitor import monitor
from refocal.cli.options import HTML_FILE, with_options
from refocal.cli.printing import IS_JSON, print_table, progress, result, say
from refocal.cli.run import UsageError


def theory(
    gamma: Annotated[float, Option("--gamma", help="γ of the focal loss, greater than -1.")] = 2.0,
    classes: Annotated[
        int, Option("--classes", help="Number of classes for the closest temperature.", min=2, max=4)
    ] = 2,
) -> None:
    """What focal loss with a γ does: bounds, the closest temperature, the threshold of confidence.

    refocal theory --gamma 2 --classes 3
    """
    with progress("searching the closest temperature"):
        known = refocal.theory
        bounds = known.temperature_bounds(gamma)
        tight = known.tight_temperature_bounds(gamma, 20.0)
        closest = known.closest_temperature(gamma, classes)
        threshold = known.confidence_threshold(gamma) if gamma > 0 else None
    ranges = {"temperature_bounds": list(bounds), "tight_temperature_bounds": list(tight)}
    nearest = {"closest_temperature": {"classes": classes, **closest._asdict()}, "confidence_threshold": threshold}
    result({"gamma": gamma, **ranges, **nearest})
    rows = [
        ("two classes: focal calibration lies between temperatures", f"{bounds.lower:.4f} and {bounds.upper:.4f}"),
        ("  and for log-odds up to 20 between", f"{tight.lower:.4f} and {tight.upper:.4f}"),
        (f"{classes} classes: the closest temperature", f"{closest.temperature:.4f}"),
        ("  and the largest difference of a probability that remains", f"{closest.error:.4f}"),
    ]
    last = [] if threshold is None else [("top probabilities above τ never decrease: τ", f"{threshold:.4f}")]
    print_table((f"γ = {gamma:g}", ""), rows + last)


def explore(
    output: Annotated[Path, Option("-o", "--output", help="Where to write it.", **HTML_FILE)] = Path("explore.html"),
    open: Annotated[  # noqa: A002
        bool | None, Option("--open/--no-open", help="Open it in a browser; default: only in a terminal.")
    ] = None,
) -> None:
    """Write a page with sliders for γ, T and a curve: real logits or your own, calibrated live; the maps and losses.

    refocal explore -o explore.html --no-open
    """
    refocal.explore.write_page(output)
    result({"output": str(output)})
    say(f"Wrote {output}.")
    if (sys.stdout.isatty() and not IS_JSON.get()) if open is None else open:
        webbrowser.open(output.resolve().as_uri())


COMMANDS = (
    demo,
    fit,
    apply,
    evaluate,
    compare,
    compare_many,
    report,
    show,
    diff,
    decide,
    monitor,
    adapt,
    theory,
    explore,
)

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
