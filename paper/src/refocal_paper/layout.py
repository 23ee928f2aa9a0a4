"""The table in writing: Markdown, LaTeX, JSON, and a part of a page."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

from refocal._files import write_atomically
from refocal.errors import FormatError
from refocal.evaluate.many_tables import booktabs, latex_text, sentence
from refocal.evaluate.ranks import SeedSpread
from refocal_paper import claims
from refocal_paper.claims_layout import table
from refocal_paper.printed import PRINTED, REPORTED, Printed
from refocal_paper.protocol import ProtocolRow, build_protocol_rows
from refocal_paper.table import (
    Cell,
    Difference,
    Row,
    Score,
    build_differences,
    build_rows,
    ece_difference,
    group_cells,
    named_cells,
    over_trainings,
    signed_rank,
)

BEGIN, END = "<!-- refocal-paper table: begin -->", "<!-- refocal-paper table: end -->"
SCALES = {"log_loss": (1.0, 4), "squared_ece": (1e4, 2)}  # factor and digits of a difference
CHOSEN = {"log_loss": "nll", "ece": "ece"}  # the paper scores each measure where it was also the criterion


def markdown(cells: list[Cell]) -> str:
    """The table, both criteria, and FTS against TS in every cell."""
    rows = build_rows(cells)
    return (
        "### Beside the paper's\n\nLog-loss where the parameters were chosen by log-loss, ECE where they were chosen "
        f"by ECE, as in the paper; mean ± standard deviation over the seeds.\n\n{_main_table(rows)}\n"
        f"{_reported(rows)}### Both criteria\n\n{_criteria_table(rows)}\n{_protocol(cells)}{_maps_alone(cells)}"
        "### FTS against TS in every cell\n\nFTS minus TS on the same test images: log-loss where both were chosen by "
        "log-loss, ECE in percentage points and the unbiased squared ECE in points² where both were chosen by ECE; "
        "with paired 95 % intervals, which differences of ECEs do not have.\n\n"
        f"{_difference_table(cells)}{_over_trainings(cells)}"
    )


def _over_trainings(cells: list[Cell]) -> str:
    """No calibration, TS and FTS over all trainings, as `refocal compare-many` has them."""
    comparison = over_trainings(cells)
    if len(comparison.networks) < 2:
        return ""
    parts = [
        "\n### Over all trainings\n\nEach measure where it was also the criterion of choice; "
        f"{len(comparison.networks)} trainings, means over their seeds. {comparison.scope}\n"
    ]
    for metric in comparison.metrics:
        parts.append(f"\n{sentence(comparison, metric.name)}\n\n{comparison.to_markdown(metric.name)}")
    return "".join(parts)


def page_markdown(cells: list[Cell]) -> str:
    """The paper's table with a line for each training: ours in the paper's recipe, or else in the short one."""
    chosen: dict[tuple[str, str], dict[str, Row]] = {}
    for row in build_rows(cells):
        kind, _, *changed = row.recipe.split(", ")
        is_printed = row.paper is not None and kind in ("paper", "short") and not changed  # by what an ablation changes
        before = chosen.get((row.dataset, row.loss), {}).get(row.method)
        if is_printed and (before is None or kind == "paper"):
            chosen.setdefault((row.dataset, row.loss), {})[row.method] = row
    heads = ("training", "epochs (seeds)", "accuracy, %", "paper", "T of TS", "paper", "log-loss: TS, FTS", "paper",
             "ECE, %: TS → FTS (γ)", "paper")  # fmt: skip
    lines = [
        _page_line(methods["TS"], methods["FTS"], PRINTED[*key, "TS"], PRINTED[*key, "FTS"])
        for key, methods in chosen.items()
    ]
    text = (
        "T and log-loss where the parameters were chosen by log-loss, ECE and γ where they were chosen by ECE, as in "
        "the paper; means over the seeds, of which the paper has five.\n\n"
    )
    return text + table(heads, lines)


def _page_line(ts: Row, fts: Row, printed_ts: Printed, printed_fts: Printed) -> tuple[Any, ...]:
    epochs = ts.recipe.split(", ")[1].removesuffix(" epochs")
    log_loss = [row.scores["log_loss"]["nll"] for row in (ts, fts)]
    ece = [row.scores["ece"]["ece"] for row in (ts, fts)]
    return (
        f"{ts.dataset}, {ts.loss}",
        f"{epochs} ({len(ts.seeds)})",
        f"{100.0 * ts.accuracy.mean:.1f}",
        f"{printed_ts.accuracy:.1f}",
        f"{log_loss[0].temperature:.2f}",
        f"{printed_ts.log_loss_temperature:.2f}",
        f"{log_loss[0].mean:.3f}, {log_loss[1].mean:.3f}",
        f"{printed_ts.log_loss:.2f}, {printed_fts.log_loss:.2f}",
        f"{100.0 * ece[0].mean:.2f} → {100.0 * ece[1].mean:.2f} ({ece[1].gamma:.2g})",
        f"{printed_ts.ece:.2f} → {printed_fts.ece:.2f} ({printed_fts.gamma:g})",
    )


def latex(cells: list[Cell]) -> str:
    """The table beside the paper's as LaTeX with booktabs, for a tabular environment."""
    measured = ["Accuracy", "Log-loss", "ECE"]
    heads = ["Training", "Method", "Recipe", "Seeds", *measured, *measured, r"$\gamma$"]
    over = [r"\multicolumn{7}{l}{} & \multicolumn{4}{c}{paper} \\", r"\cmidrule(l){8-11}"]
    groups = []
    for dataset, rows in groupby(build_rows(cells), lambda row: row.dataset):
        lines = []
        for row in rows:
            training = f"{dataset}, {row.network}, {row.loss}"
            texts = (training, row.method, row.recipe, str(len(row.seeds)), *_ours(row), *_theirs(row.paper))
            lines.append([latex_text(text) for text in texts])
        groups.append(lines)
    return booktabs("lllrrrrrrrr", heads, groups, over=over)


def as_json(cells: list[Cell]) -> dict[str, Any]:
    """Everything as numbers."""
    return {
        "rows": [_plain(row) for row in build_rows(cells)],
        "protocol": [_plain(row) for row in build_protocol_rows(cells)],
        "differences": [{**_plain(d), "verdict": d.verdict} for d in build_differences(cells)],
        "claims": {name: [_plain(item) for item in items] for name, items in claims.all_claims(cells).items()},
    }


def update_page(page: Path, text: str) -> None:
    """Replace what stands between the two marks of a page."""
    try:
        content = page.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{page}: not a page of text.") from error
    if content.count(BEGIN) != 1 or content.count(END) != 1 or content.index(BEGIN) > content.index(END):
        raise FormatError(f"{page}: must hold the line {BEGIN} and after it {END}, once each.")
    before, after = content.split(BEGIN)[0], content.split(END)[1]
    write_atomically(page, f"{before}{BEGIN}\n\n{text.strip()}\n\n{END}{after}")


def _main_table(rows: list[Row]) -> str:
    heads = ("training", "method", "recipe", "seeds", "accuracy, %", "log-loss (γ, T)", "ECE, % (γ, T)",
             "paper: accuracy", "log-loss (T)", "ECE (T)", "γ")  # fmt: skip
    return table(heads, [(_training(r), r.method, r.recipe, len(r.seeds), *_ours(r), *_theirs(r.paper)) for r in rows])


def _criteria_table(rows: list[Row]) -> str:
    heads = ("training", "method", "recipe", "log-loss, chosen by log-loss", "by ECE", "ECE, %, chosen by log-loss",
             "by ECE")  # fmt: skip
    return table(
        heads,
        [
            (_training(r), r.method, r.recipe, *(_score(r, m, c) for m in ("log_loss", "ece") for c in ("nll", "ece")))
            for r in rows
        ],
    )


def _reported(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        theirs = REPORTED.get((row.dataset, row.loss)) if row.network == "resnet50" and row.method == "TS" else None
        if theirs is not None:
            ours = (_spread(row.accuracy, 100.0, 1), _spread(row.raw_ece, 100.0, 2), _score(row, "ece", "ece"))
            scaled = f"{theirs.ece_scaled:.2f} ({theirs.temperature:g})"
            numbers = (f"{theirs.accuracy:.1f}", f"{theirs.ece:.2f}", scaled)
            lines.append((_training(row), row.recipe, len(row.seeds), *ours, *numbers))
    if not lines:
        return ""
    heads = ("training", "recipe", "seeds", "accuracy, %", "ECE, %", "after TS (T by ECE)", "theirs: accuracy", "ECE",
             "after TS (T)")  # fmt: skip
    text = (
        "The paper follows the trainings of Mukhoti et al. (2020). Their numbers, for AdaFocal those of Ghosh et al. "
        "(2022), beside ours; ECE has bins of equal width there and of equal mass here."
    )
    return f"### Beside Mukhoti et al.'s\n\n{text}\n\n{table(heads, lines)}\n"


def _protocol(cells: list[Cell]) -> str:
    rows = build_protocol_rows(cells)
    if not rows:
        return ""
    heads = ("training", "γ", "recipe", "seeds", "log-loss (T)", "ECE, % (T)", "ECE of the paper's code, %",
             "paper: γ", "log-loss (T)", "off by", "ECE, % (T)", "off by")  # fmt: skip
    text = (
        "### By the paper's protocol\n\nOne γ for each row, that of least ECE on the validation images (mean over the "
        "seeds), and with it T by log-loss for the log-loss and T by ECE for the ECE; over the cells whose logits are "
        "kept. The paper's code computes ECE with interpolated bin edges. Off by: (ours - the paper's) / its standard "
        "deviation; for the ECE, as its code computes it.\n\n"
    )
    return text + table(heads, [_protocol_line(row) for row in rows]) + "\n"


def _maps_alone(cells: list[Cell]) -> str:
    found = claims.maps_alone(cells)
    if not found:
        return ""
    heads = ("cell", "γ", "ECE as it is, %", "behind the map, %", "log-loss as it is", "behind the map")
    rows = [
        (m.cell, f"{m.gamma:g}", f"{100.0 * m.ece:.2f}", f"{100.0 * m.ece_mapped:.2f}", f"{m.log_loss:.3f}",
         f"{m.log_loss_mapped:.3f}")
        for m in found
    ]  # fmt: skip
    text = "### The map without rows\n\nThe focal map with γ of training and T = 1, which needs no rows to fit on."
    return f"{text}\n\n{table(heads, rows)}\n"


def _protocol_line(row: ProtocolRow) -> tuple[Any, ...]:
    log_loss = f"{_spread(row.log_loss, 1.0, 3)} ({row.log_loss_temperature:.2f})"
    ece = f"{_spread(row.ece, 100.0, 2)} ({row.ece_temperature:.2f})"
    ours = (_training(row), "TS" if row.gamma is None else f"{row.gamma:g}", row.recipe, len(row.seeds), log_loss, ece,
            _spread(row.ece_interpolated, 100.0, 2))  # fmt: skip
    if (printed := row.paper) is None:
        return (*ours, *["–"] * 5)
    _, their_log_loss, their_ece, gamma = _theirs(printed)
    off = [
        f"{(value - mean) / sd:+.1f}" if sd else "–"
        for value, mean, sd in (
            (row.log_loss.mean, printed.log_loss, printed.log_loss_sd),
            (100.0 * row.ece_interpolated.mean, printed.ece, printed.ece_sd),
        )
    ]
    return (*ours, gamma or "TS", their_log_loss, off[0], their_ece, off[1])


def _difference_table(cells: list[Cell]) -> str:
    found = build_differences(cells)
    by_cell = {name: {d.measure: d for d in some} for name, some in groupby(found, lambda d: d.cell)}
    rows = []
    for name, cell in named_cells(cells):
        texts = []
        for measure, (scale, digits) in SCALES.items():
            d = by_cell[name].get(measure)
            texts += ["–", "–"] if d is None else [_interval(d, scale, digits), d.verdict]
        rows.append((name, *texts[:2], f"{100.0 * ece_difference(cell):+.2f}", *texts[2:]))
    heads = ("cell", "log-loss, FTS - TS", "says", "ECE, points", "squared ECE, points²", "says")
    counts = []
    for measure, title in (("log_loss", "Log-loss"), ("squared_ece", "Squared ECE")):
        own = [d for d in found if d.measure == measure]
        lower, below, above = (
            sum(test(d) for d in own)
            for test in (lambda d: d.difference < 0.0, lambda d: d.verdict == "lower", lambda d: d.verdict == "higher")
        )
        counts.append(f"{title}: lower in {lower} of {len(own)} cells, intervals below 0: {below}, above: {above}.")
    counts.append(f"ECE: lower in {sum(ece_difference(cell) < 0.0 for cell in cells)} of {len(cells)}.")
    return table(heads, rows) + f"\n{' '.join(counts)}\n{_signed_ranks(cells)}"


def _signed_ranks(cells: list[Cell]) -> str:
    if len(group_cells(cells)) < 6:  # with fewer, p cannot be below 0.05
        return ""
    (n, by_loss), (_, by_ece) = signed_rank(cells, "log_loss", "nll"), signed_rank(cells, "ece", "ece")
    return (
        f"\nWilcoxon's signed-rank test over the {n} trainings and recipes, each the mean of its seeds: "
        f"p = {by_loss:.2g} for the log-loss, {by_ece:.2g} for the ECE. They share their test images and differ in "
        "little else, so they are not independent, and the p-values are too small.\n"
    )


def _training(row: Row | ProtocolRow) -> str:
    return f"{row.dataset}, {row.network}, {row.loss}"


def _ours(row: Row) -> tuple[str, str, str]:
    accuracy = _spread(row.accuracy, 100.0, 1)
    return accuracy, _score(row, "log_loss", CHOSEN["log_loss"]), _score(row, "ece", CHOSEN["ece"])


def _theirs(p: Printed | None) -> tuple[str, ...]:
    if p is None:
        return ("–",) * 4
    return (
        f"{p.accuracy} ± {p.accuracy_sd}",
        f"{p.log_loss:.2f} ± {p.log_loss_sd:.2f} ({p.log_loss_temperature:.2f})",
        f"{p.ece:.2f} ± {p.ece_sd:.2f} ({p.ece_temperature:.2f})",
        "" if p.gamma is None else f"{p.gamma:g}",
    )


def _score(row: Row, measure: str, criterion: str) -> str:
    score: Score = row.scores[measure][criterion]
    gamma = f"{score.gamma:.2f}, " if row.method == "FTS" else ""
    scale, digits = (100.0, 2) if measure == "ece" else (1.0, 3)
    return f"{_spread(SeedSpread(score.mean, score.sd), scale, digits)} ({gamma}{score.temperature:.2f})"


def _spread(value: SeedSpread, scale: float, digits: int) -> str:
    mean = f"{scale * value.mean:.{digits}f}"
    return mean if value.sd is None else f"{mean} ± {scale * value.sd:.{digits}f}"


def _interval(d: Difference, scale: float, digits: int) -> str:
    value, low, high = (f"{scale * number:+.{digits}f}" for number in (d.difference, d.low, d.high))
    return f"{value} [{low}, {high}]"


def _plain(value: Any) -> Any:
    """Named tuples as dictionaries, all the way down."""
    if hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
