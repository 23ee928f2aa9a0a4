"""The coverage of paired intervals by simulation, and the test over trainings."""

from __future__ import annotations

from pathlib import Path

from refocal_paper.coverage import SCENARIOS, coverage_markdown, simulate
from refocal_paper.table import signed_rank


def test_it_covers_and_the_bootstrap_of_the_ece_does_not():
    found = [simulate(s, 1500, n_trials=300, n_bootstrapped=30, n_resamples=30) for s in SCENARIOS[1:3]]
    for case in found:
        assert 0.92 <= case.squared <= 0.98
        assert case.percentile < 0.9
        assert case.basic < 0.9
    table = coverage_markdown(found)
    assert f"| {100 * found[0].squared:.1f} % |" in table
    assert table.count("\n") == 4


def test_the_page_shows_the_simulation():
    paper = Path(__file__).parents[1]
    table = (paper / "results" / "coverage.md").read_text(encoding="utf-8")
    assert table in (paper / "results" / "details.md").read_text(encoding="utf-8")
    assert table.count("\n") == 2 + 2 * len(SCENARIOS)


def test_the_signed_ranks_are_over_trainings():
    """Of six trainings all with a lower error, Wilcoxon's exact two-sided p is 2/2⁶; seeds are averaged first."""

    def cell(loss, seed, ece):
        recipe = {"dataset": "cifar100", "network": "resnet50", "loss": loss, "seed": seed}
        return {"recipe": recipe, "fts": {"ece": {"ece": ece}}, "ts": {"ece": {"ece": 0.1}}}

    cells = [cell(f"focal-{g}", 1, 0.09 - 0.001 * g) for g in (1, 2, 3, 5, 7)]
    cells += [cell("adafocal", seed, ece) for seed, ece in ((1, 0.2), (2, -0.03))]
    assert signed_rank(cells, "ece", "ece") == (6, 2 / 2**6)
