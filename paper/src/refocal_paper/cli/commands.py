"""The commands of `refocal-paper`."""

from __future__ import annotations

import json as encoder
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refocal.cli import options
from refocal.cli.printing import out, print_json, progress
from refocal.cli.run import FileProblem, Stopped
from refocal_paper.cli.figures import reproduce

if TYPE_CHECKING:
    from refocal_paper.recipe import Recipe

app = typer.Typer(
    name="refocal-paper",
    help="The paper's experiments: train its networks, build its table, check its claims, draw its figures.",
    epilog="Examples:\n\nrefocal-paper sweep --dataset cifar100 --recipe short\n\n"
    "refocal-paper table paper/results --claims",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Data = Annotated[Path, typer.Option(envvar="REFOCAL_DATA", help="The folder that holds the data sets.")]
Runs = Annotated[Path, typer.Option("--out", help="The folder that the runs' folders go to.")]
RecipeName = Annotated[
    str, typer.Option(help="paper, short (60 epochs; TinyImageNet: 20), or a .toml file of settings.")
]
DatasetName = Annotated[
    str | None,
    typer.Option(help="cifar100 (the default), cifar10, tinyimagenet, synthetic, or the name of a folder of images."),
]
Network = Annotated[
    str | None,
    typer.Option(help="resnet18, resnet50 (the default), resnet110, wideresnet-28-10, densenet121."),
]
Reduction = Annotated[str | None, typer.Option(help="sum (the default) or mean: of the losses of a batch.")]
Precision = Annotated[str | None, typer.Option(help="bfloat16 (the default) or float32, on a GPU.")]
Shift = Annotated[bool, typer.Option("--shift", help="Measure corrupted test images as well.")]
OtherImages = Annotated[
    str | None, typer.Option("--ood", help="The name of a data set of other classes: how well they are told apart.")
]
Epochs = Annotated[int | None, typer.Option(min=1, help="Another number of epochs; the drops move along.")]
Validation = Annotated[int | None, typer.Option(min=1, help="Images held out of the training set.")]
Every = Annotated[int, typer.Option("--checkpoint-every", min=1, help="Epochs between two checkpoints.")]
LogitsEvery = Annotated[
    int | None, typer.Option("--logits-every", min=1, help="Epochs after which the logits so far are kept as well.")
]
CheckpointTo = Annotated[
    Path | None,
    typer.Option("--checkpoint-to", help="A folder for checkpoints in parts, to be carried to another machine."),
]
ResumeFrom = Annotated[
    Path | None, typer.Option("--resume-from", help="A folder of such checkpoints, carried from another machine.")
]


def _losses(incomplete: str) -> list[str]:
    from refocal_paper.recipe import ALL_LOSSES

    return [name for name in ALL_LOSSES if name.startswith(incomplete)]


@app.command(
    epilog="Examples:\n\nrefocal-paper download cifar100\n\nrefocal-paper download tinyimagenet --data /big/disk"
)
def download(
    dataset: Annotated[str, typer.Argument(help="cifar10, cifar100 or tinyimagenet.")],
    data: Data = Path("data"),
    json: options.Json = False,
) -> None:
    """Download an official data set, resume an interrupted download, and verify the checksum."""
    from refocal_paper.datasets import download as get

    with progress("connecting", quiet=json) as update:
        place = get(dataset, data, on_bytes=update)
    if json:
        print_json({"dataset": dataset, "path": str(place)})
    else:
        out().print(f"{place} is there and whole. Next: refocal-paper train --dataset {dataset} --data {data}")


@app.command(
    epilog="Examples:\n\nrefocal-paper train --dataset cifar100 --loss focal-3 --recipe short\n\n"
    "refocal-paper train --recipe mine.toml --seed 2\n\n"
    "torchrun --nproc-per-node 4 -m refocal_paper.cli train --dataset tinyimagenet"
)
def train(
    recipe: RecipeName = "paper",
    dataset: DatasetName = None,
    network: Network = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="cross-entropy (the default), focal-1, …, focal-7, flsd-53, adafocal, brier, label-smoothing, mmce, "
            "dual-focal.",
            autocompletion=_losses,
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of weights and batches.")] = None,
    epochs: Epochs = None,
    validation_rows: Validation = None,
    reduction: Reduction = None,
    precision: Precision = None,
    shift: Shift = False,
    ood: OtherImages = None,
    data: Data = Path("data"),
    runs: Runs = Path("runs"),
    checkpoint_every: Every = 10,
    json: options.Json = False,
) -> None:
    """Train one network and keep its logits; started again, it goes on from the last checkpoint."""
    from refocal_paper.recipe import make_recipe

    changes = {"network": network, "loss": loss, "seed": seed, "validation_rows": validation_rows}
    chosen = make_recipe(recipe, dataset, epochs=epochs, reduction=reduction, precision=precision, **changes)
    kept = {"checkpoint_every": checkpoint_every}
    swept = _run([chosen], data, runs, float("inf"), kept, json, (shift, ood))
    if swept is None:
        return
    folder = runs / chosen.key
    if json:
        print_json({"cell": chosen.key, "folder": str(folder), "trained": bool(swept["trained"])})
    else:
        logits = folder / "logits.npz"
        out().print(f"The logits are in {logits}. Next: refocal-paper table {runs}", markup=False)


@app.command(
    epilog="Examples:\n\nrefocal-paper sweep --dataset cifar100 --recipe short --seed 1 --seed 2 --time-budget 25m\n\n"
    "refocal-paper sweep --part 3/8   on the third of eight machines\n\nrefocal-paper sweep --smoke"
)
def sweep(
    recipe: RecipeName = "paper",
    dataset: DatasetName = None,
    network: Network = None,
    losses: Annotated[
        list[str] | None,
        typer.Option("--loss", help="A loss. All eight by default.", autocompletion=_losses),
    ] = None,
    seeds: Annotated[list[int] | None, typer.Option("--seed", min=0, help="A seed; 1 by default.")] = None,
    epochs: Epochs = None,
    validation_rows: Validation = None,
    reduction: Reduction = None,
    precision: Precision = None,
    shift: Shift = False,
    ood: OtherImages = None,
    data: Data = Path("data"),
    runs: Runs = Path("runs"),
    time_budget: Annotated[str, typer.Option(help="Such as 25m: begin no cell that would not fit.")] = "inf",
    part: Annotated[str, typer.Option(help="Such as 3/8: the share of one of several machines.")] = "1/1",
    checkpoint_every: Every = 10,
    logits_every: LogitsEvery = None,
    checkpoint_to: CheckpointTo = None,
    resume_from: ResumeFrom = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="Rehearse: two epochs on the CPU, one cell killed.")] = False,
    json: options.Json = False,
) -> None:
    """Train a grid of losses and seeds; finished cells are skipped, so it may be filled in over days."""
    if smoke:
        _smoke(json)
        return
    from refocal_paper.recipe import LOSSES, grid, make_recipe
    from refocal_paper.sweep import parse_duration, part_of

    changes = {"reduction": reduction, "precision": precision, "validation_rows": validation_rows}
    base = make_recipe(recipe, dataset, network=network, epochs=epochs, **changes)
    cells = part_of(grid(base, losses or LOSSES, seeds or [1]), part)
    kept = {
        "checkpoint_every": checkpoint_every,
        "logits_every": logits_every,
        "checkpoint_to": checkpoint_to,
        "resume_from": resume_from,
    }
    swept = _run(cells, data, runs, parse_duration(time_budget), kept, json, (shift, ood))
    if swept is None:
        return
    if json:
        print_json(swept)
    else:
        counts = ", ".join(f"{len(keys)} {name}" for name, keys in swept.items())
        out().print(f"Cells: {counts}. Next: refocal-paper table {runs}")


@app.command(
    epilog="Examples:\n\nrefocal-paper table runs\n\nrefocal-paper table runs --claims -o paper\n\n"
    "refocal-paper table paper/results --page paper/docs/reproduction.md"
)
def table(
    runs: Annotated[Path, typer.Argument(help="The folder that holds the cells' folders.")],
    claims: Annotated[bool, typer.Option("--claims", help="Check the paper's other claims as well.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX instead of Markdown.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A folder for table.md, table.tex and table.json.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="A page whose marked part is replaced by the table in short.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Write the paper's table from the finished cells, next to the published numbers."""
    from refocal._files import write_atomically
    from refocal_paper import claims_layout, layout
    from refocal_paper.measure import find_cells

    cells, unfinished = _measured(runs, json), find_cells(runs)[1]
    whole = f"{layout.markdown(cells)}\n{claims_layout.claims_markdown(cells)}"
    if page is not None:
        layout.update_page(page, layout.page_markdown(cells))
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        write_atomically(output / "table.md", whole)
        write_atomically(output / "table.tex", layout.latex(cells))
        write_atomically(output / "table.json", encoder.dumps(layout.as_json(cells), indent=1) + "\n")
    if json:
        print_json({**layout.as_json(cells), "unfinished": [folder.name for folder in unfinished]})
        return
    text = layout.latex(cells) if latex else whole if claims else layout.markdown(cells)
    out().print(text, markup=False, end="")
    if unfinished:
        names = ", ".join(folder.name for folder in unfinished)
        typer.echo(f"refocal-paper: left out, as not finished: {names}", err=True)


@app.command(
    epilog="Examples:\n\nrefocal-paper claims paper/results\n\n"
    "refocal-paper claims paper/results --page paper/docs/reproduction.md --page paper/docs/theory.md"
)
def claims(
    runs: Annotated[Path, typer.Argument(help="The folder that holds the cells' folders.")],
    pages: Annotated[
        list[Path] | None, typer.Option("--page", help="A page whose marked numbers are replaced.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Every number that the paper's pages quote in their text, by the name that marks it there."""
    from refocal_paper.quoted import quoted_numbers, update_marked
    from refocal_paper.refinement import FILE, read_refinement

    numbers = quoted_numbers(_measured(runs, json), read_refinement(runs) if (runs / FILE).is_file() else None)
    for page in pages or []:
        changed = update_marked(page, numbers)
        typer.echo(f"refocal-paper: {page}: {changed} numbers changed", err=True)
    if json:
        print_json(numbers)
    elif not pages:
        for name, text in numbers.items():
            out().print(f"{name}: {text}", markup=False)


@app.command(
    epilog="Examples:\n\nrefocal-paper refinement runs\n\n"
    "refocal-paper refinement paper/results --epochs checkpoints/epochs -o paper/results"
)
def refinement(
    runs: Annotated[Path, typer.Argument(help="The folder that holds the cells' folders.")],
    epochs: Annotated[
        Path | None,
        typer.Option(
            help="A folder of cells' folders with the logits that --logits-every kept on the way; what was measured of "
            "other cells stays."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A folder for refinement.md and refinement.json.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Split the test loss of each cell into calibration and refinement, by training loss and by epoch; some minutes."""
    from refocal._files import write_atomically
    from refocal_paper.refinement import FILE, measure_refinement
    from refocal_paper.refinement_layout import refinement_markdown

    cells = _measured(runs, json)
    with progress("splitting", quiet=json) as update:
        measured = measure_refinement(runs, epochs, update)
    text = refinement_markdown(measured, cells)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        write_atomically(output / FILE, encoder.dumps(measured, indent=1) + "\n")
        write_atomically(output / "refinement.md", text)
    if json:
        print_json(measured)
    else:
        out().print(text, markup=False, end="")


@app.command(epilog="Example: refocal-paper coverage -o paper/results/coverage.md")
def coverage(
    trials: Annotated[int, typer.Option(min=1, help="Test sets drawn for each population.")] = 1000,
    bootstrapped: Annotated[int, typer.Option(min=1, help="Those of them that are bootstrapped.")] = 100,
    resamples: Annotated[int, typer.Option(min=1, help="Resamples of the bootstrap.")] = 60,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A file for the table, as Markdown.")] = None,
    json: options.Json = False,
) -> None:
    """How often 95 % intervals of a difference in calibration hold the truth, by simulation; some minutes."""
    from refocal._files import write_atomically
    from refocal_paper.coverage import SCENARIOS, coverage_markdown, simulate

    cases = [(scenario, rows) for rows in (2000, 10000) for scenario in SCENARIOS]
    found = []
    with progress("simulating", quiet=json) as update:
        for i, (scenario, rows) in enumerate(cases):
            update(i, len(cases), f"{scenario.title}, {rows} rows")
            counts = {"n_trials": trials, "n_bootstrapped": min(bootstrapped, trials), "n_resamples": resamples}
            found.append(simulate(scenario, rows, **counts))
    if output is not None:
        write_atomically(output, coverage_markdown(found))
    if json:
        print_json([case._asdict() for case in found])
    else:
        out().print(coverage_markdown(found), markup=False, end="")


app.command(
    epilog="Examples:\n\nrefocal-paper reproduce all -o figures\n\n"
    "refocal-paper reproduce bounds confidence\n\nrefocal-paper reproduce tolerance --runs paper/results"
)(reproduce)


def _measured(runs: Path, quiet: bool) -> list[dict[str, Any]]:
    """The measures of all finished cells of a folder."""
    from refocal_paper.measure import find_cells, measure_cell

    if not runs.is_dir():
        raise FileNotFoundError(f"{runs}: no such folder.")
    finished, _ = find_cells(runs)
    if not finished:
        raise FileProblem(f"{runs}: holds no finished cell; train some with refocal-paper sweep --out {runs}.")
    cells = []
    with progress("reading", quiet=quiet) as update:
        for i, folder in enumerate(finished):
            update(i, len(finished), f"measuring {folder.name}")
            cells.append(measure_cell(folder))
    return cells


def _run(
    cells: list[Recipe],
    data: Path,
    runs: Path,
    seconds: float,
    kept: dict[str, Any],
    quiet: bool,
    beyond: tuple[bool, str | None],
) -> dict[str, list[str]] | None:
    """Train cells with a bar; what was done, or None in processes that only help the first one."""
    from refocal_paper.cli.bar import Bar
    from refocal_paper.datasets import load_dataset
    from refocal_paper.ranks import joined_ranks
    from refocal_paper.sweep import load_beyond, run_sweep, told_to_stop

    if not cells:
        return {"trained": [], "skipped": [], "left": []}
    try:
        with joined_ranks() as ranks, told_to_stop() as leave:
            images = load_dataset(cells[0].dataset, data)
            more = {**kept, "leave": leave, "beyond": load_beyond(*beyond, data)}
            with Bar(len(cells), quiet=quiet or not ranks.is_first) as bar:
                swept = run_sweep(cells, images, runs, seconds=seconds, watch=bar, **more)
            return swept._asdict() if ranks.is_first else None
    except KeyboardInterrupt as error:
        raise Stopped(f"stopped; the same command goes on from the last checkpoint in {runs}.") from error


def _smoke(json: bool) -> None:
    from refocal_paper.smoke import smoke

    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="refocal-smoke-") as folder:
        checks = smoke(
            Path(folder), lambda check: None if json else out().print("ok  " if check.passed else "FAILED", check.what)
        )
    seconds, passed = time.monotonic() - start, all(check.passed for check in checks)
    if json:
        print_json({"passed": passed, "seconds": round(seconds, 1), "checks": [check._asdict() for check in checks]})
    else:
        out().print(f"{sum(check.passed for check in checks)} of {len(checks)} checks passed in {seconds:.0f} s.")
    if not passed:
        raise typer.Exit(1)
