"""A comparison of many networks as tables of text: for terminals and pages, in Markdown, and in LaTeX for papers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

import numpy as np

from refocal._digits import p_value_text
from refocal.evaluate.many import ManyComparison, MethodOverRuns
from refocal.evaluate.provenance import FLATTERED
from refocal.evaluate.ranks import SeedSpread
from refocal.metrics import Interval, PairedDifference
from refocal.metrics.record import Metric


def methods_table(comparison: ManyComparison, metric: str | None = None) -> list[dict[str, str]]:
    """Every method by one metric, as cells with their headings."""
    compared = comparison.metric(metric)
    record = compared.record
    interval = f"{comparison.level * 100:g} % interval"
    rows = comparison.table(compared.name)
    has_differences = any(row.difference is not None for row in rows)
    table = []
    for row in rows:
        cells = {"method": row.name, record.heading: spread_text(record, row.mean)}
        if compared.raised_by_noise and row.excess is not None:
            cells["above chance"] = record.text(row.excess)
        cells["mean rank"] = f"{row.rank:.2f}"
        cells["win rate"] = f"{row.win_rate.value:.3f}"
        cells[interval] = f"{row.win_rate.low:.3f} – {row.win_rate.high:.3f}"
        if has_differences:
            cells[f"less {comparison.against}"] = difference_text(record, row.difference)
            cells[f"{interval} of it"] = ends_text(record, row.difference)
            p_value = "–" if row.p_value is None else _p_text(row.p_value, comparison)
            cells["p (Wilcoxon, Holm)"] = p_value.removeprefix("= ")
        table.append(cells)
    return table


def networks_table(comparison: ManyComparison, metric: str | None = None) -> list[dict[str, str]]:
    """Every network by one metric, as cells with their headings: a column for each method."""
    record = comparison.metric(metric).record
    has_seeds = any(row.n_seeds > 1 for row in comparison.by_network(metric))
    table = []
    for row in comparison.by_network(metric):
        cells = {"data set": row.dataset, "network": row.network}
        if has_seeds:
            cells["seeds"] = str(row.n_seeds)
        cells |= {method: spread_text(record, spread) for method, spread in row.methods.items()}
        table.append(cells)
    return table


def sizes(comparison: ManyComparison) -> list[str]:
    """How many methods, networks and runs are compared, in words."""

    def counted(number: int, what: str) -> str:
        return f"{number:,} {what}{'' if number == 1 else 's'}"

    networks = f"{counted(len(comparison.networks), 'network')} on {counted(comparison.n_datasets, 'data set')}"
    return [counted(len(comparison.methods), "method"), networks, counted(len(comparison.runs), "run")]


def remarks(comparison: ManyComparison) -> list[str]:
    """What is wrong with the rows of runs, in sentences that name these."""
    fitted = [run.title for run in comparison.runs if run.is_fitted_on_test]
    shared = [f"{run.title} (those of {run.test_rows_of})" for run in comparison.runs if run.test_rows_of]
    said = []
    if fitted:
        said.append(f"The validation and the test rows are the same: {'; '.join(fitted)}. {FLATTERED}")
    if shared:
        said.append(
            f"The test rows are those of another data set or network: {'; '.join(shared)}. They count as independent, "
            "and are not: intervals are too narrow and tests too sure."
        )
    return said


def distance_sentence(comparison: ManyComparison, metric: str | None = None) -> str:
    """What differences of a metric that is best at one value are of; empty where they are of the metric itself."""
    compared = comparison.metric(metric).record
    if compared.best is None or len(comparison.methods) < 2 or len(comparison.networks) < 2:
        return ""
    return f"Differences of {compared.label} are of its distance from {compared.best:g}."


def sentence(comparison: ManyComparison, metric: str | None = None) -> str:
    """The result by one metric: which method has the best mean rank, and whether that is more than chance."""
    compared = comparison.metric(metric)
    rows = comparison.table(compared.name)
    best = rows[0]
    n_networks = len(comparison.networks)
    on = f"{n_networks} networks" if n_networks > 1 else "one network"
    tied = [row.name for row in rows if row.rank == best.rank]
    has = f"{best.name} has" if len(tied) == 1 else f"{', '.join(tied[:-1])} and {tied[-1]} share"
    said = f"By {compared.record.label}, {has} the best mean rank on {on}"
    if len(rows) < 2 or n_networks < 2:
        return f"{said}."
    others = [row for row in rows if is_significant(row, comparison.level)]
    if len(tied) > 1:
        return f"{said}; {len(others)} of {len(rows) - 1} methods differ significantly from {comparison.against}."
    if best.name != comparison.against and best.p_value is not None:
        p_value = f"p {_p_text(best.p_value, comparison)}"
        blocks = comparison.in_blocks(compared.name)
        is_lower = float((blocks[best.name] - blocks[comparison.against]).mean()) < 0.0
        if not is_significant(best, comparison.level):
            return f"{said}, but is not significantly better than {comparison.against} ({p_value})."
        verdict = "significantly better than" if is_lower else "and differs from"
        return f"{said}, {verdict} {comparison.against} ({p_value})."
    return f"{said}; {len(others)} of {len(rows) - 1} other methods differ significantly from it."


def rank_sentence(comparison: ManyComparison, metric: str | None = None) -> str:
    """Friedman's test and Nemenyi's critical difference in words; empty where there are too few methods."""
    tests = comparison.tests(metric)
    if tests.p_value is None or tests.critical_difference is None:
        return ""
    return (
        f"Friedman's test of equal ranks: p {_p_text(tests.p_value, comparison)} on {tests.n_blocks} blocks; mean "
        f"ranks of two methods differ significantly from {tests.critical_difference:.2f} on (Nemenyi)."
    )


def is_significant(row: MethodOverRuns, level: float) -> bool:
    """Whether a method differs from the one that it is compared with."""
    return row.p_value is not None and row.p_value <= 1.0 - level


def spread_text(record: Metric, spread: SeedSpread) -> str:
    """A mean ± the standard deviation over seeds."""
    mean = record.text(spread.mean)
    return mean if spread.sd is None else f"{mean} ± {record.text(spread.sd).lstrip('+')}"


def difference_text(record: Metric, difference: PairedDifference | None) -> str:
    """A difference with its sign."""
    return "–" if difference is None else _signed(record, difference.difference)


def ends_text(record: Metric, interval: PairedDifference | Interval | None) -> str:
    """The ends of an interval of a difference."""
    if interval is None:
        return "–"
    return f"{_signed(record, interval.low)} – {_signed(record, interval.high)}"


def _p_text(p_value: float, comparison: ManyComparison) -> str:
    return p_value_text(p_value, 1.0 - comparison.level)


def _signed(record: Metric, value: float) -> str:
    digits = 2 if record.unit == "%" else 4
    return f"{record.scale * value:+.{digits}f}".replace("-", "−")


def markdown_of_methods(comparison: ManyComparison, metric: str | None = None) -> str:
    """The table of methods in Markdown."""
    return markdown_table(methods_table(comparison, metric))


def markdown_table(table: Sequence[dict[str, str]]) -> str:
    """Cells with headings as a table of Markdown."""
    heads = list(table[0])
    lines = [heads, ["---"] * len(heads), *([row[head] for head in heads] for row in table)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def latex_of_methods(comparison: ManyComparison, metrics: Sequence[str] | None = None) -> str:
    """The methods in rows, the metrics in columns, with the mean rank and the win rate by the first metric."""
    chosen = [comparison.metric(name) for name in metrics] if metrics else comparison.metrics
    tables = {metric.name: {row.name: row for row in comparison.table(metric.name)} for metric in chosen}
    costs = {
        metric.name: {method: float(np.mean(values)) for method, values in comparison.costs(metric.name).items()}
        for metric in chosen
    }
    first = tables[chosen[0].name]
    heads = ["Method", *(latex_text(metric.record.heading) for metric in chosen), "Mean rank", "Win rate"]
    rows = []
    for name in first:
        cells = [latex_text(name)]
        for metric in chosen:
            row = tables[metric.name][name]
            is_best = _is_least(costs[metric.name][name], costs[metric.name].values())
            text = spread_text(metric.record, row.mean)
            cells.append(latex_cell(text, is_best, is_significant(row, comparison.level)))
        cells += [f"{first[name].rank:.2f}", f"{first[name].win_rate.value:.3f}"]
        rows.append(cells)
    return booktabs("l" + "r" * (len(heads) - 1), heads, [rows])


def _is_least(cost: float, costs: Collection[float]) -> bool:
    """Whether a cost is the least of several that are not all the same."""
    return cost == min(costs) < max(costs)


def latex_of_networks(comparison: ManyComparison, metrics: Sequence[str] | None = None) -> str:
    """The networks in rows, grouped by data set, the methods in columns, by one metric."""
    metric = comparison.metric(metrics[0] if metrics else None)
    heads = ["Data set", "Network", *(latex_text(method) for method in comparison.methods)]
    costs = comparison.costs(metric.name)
    place = {network: k for k, network in enumerate(comparison.networks)}
    groups = []
    for dataset, networks in groupby(comparison.by_network(metric.name), lambda row: row.dataset):
        lines = []
        for i, row in enumerate(networks):
            cells = [latex_text(dataset) if i == 0 else "", latex_text(row.network)]
            of_network = {method: float(costs[method][place[dataset, row.network]]) for method in row.methods}
            for method, spread in row.methods.items():
                is_best = _is_least(of_network[method], of_network.values())
                cells.append(latex_cell(spread_text(metric.record, spread), is_best))
            lines.append(cells)
        groups.append(lines)
    return booktabs("ll" + "r" * len(comparison.methods), heads, groups)


def booktabs(
    columns: str, heads: Sequence[str], groups: Sequence[Sequence[Sequence[str]]], *, over: Sequence[str] = ()
) -> str:
    r"""A tabular of LaTeX in the style of the package booktabs, with a rule between groups of rows.

    Lines `over` the headings join several of them.

    >>> print(booktabs("lr", ["Method", "ECE"], [[["ts", "1.2"]]]))
    \begin{tabular}{lr}
    \toprule
    Method & ECE \\
    \midrule
    ts & 1.2 \\
    \bottomrule
    \end{tabular}
    <BLANKLINE>
    """
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *over, " & ".join(heads) + r" \\"]
    for rows in groups:
        lines.append(r"\midrule")
        lines += [" & ".join(cells) + r" \\" for cells in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def latex_cell(text: str, is_bold: bool = False, is_marked: bool = False) -> str:
    """A number as a cell: the best is bold."""
    shown = latex_text(text)
    bold = rf"\textbf{{{shown}}}" if is_bold else shown
    return bold + (r"$^\dagger$" if is_marked else "")


def latex_text(text: str) -> str:
    r"""Text whose special characters LaTeX prints.

    >>> latex_text("ts_1: 95 % ± 2")
    'ts\\_1: 95 \\% $\\pm$ 2'
    """
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {character: f"\\{character}" for character in "&%$#_{}"}
    special |= {"±": r"$\pm$", "–": "--", "−": "$-$", "γ": r"$\gamma$", "†": r"$\dagger$"}
    return "".join(special.get(character, character) for character in text)
