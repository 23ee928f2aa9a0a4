"""What a terminal of any width shows: no number and no name is cut."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from helpers import draw_logits
from refocal.cli import printing
from refocal.evaluate import compare, comparison_table
from refocal.io import Predictions


@pytest.fixture(scope="module")
def found():
    rows = Predictions.from_logits(*draw_logits(300, 3, scale=4.0))
    return compare(rows, rows, ["ts", "fts-nll", "isotonic", "focal"], n_resamples=5)


@pytest.mark.parametrize(("width", "left_out"), [(200, 0), (80, 1), (60, 3), (40, 5)])
def test_columns_are_left_out_in_their_order_and_nothing_is_cut(found, width, left_out, monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr(printing, "out", lambda: Console(file=file, width=width, highlight=False))
    printing.print_evaluation(found)
    text = file.getvalue()
    assert "…" not in text
    heads, missing = comparison_table(found)[0].headings, printing.DROPPED[:left_out]
    shown = [i for i, head in enumerate(heads) if head not in missing]
    lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    for row in comparison_table(found):
        assert lines[row.name].split() == " ".join(row.cells[i] for i in shown).split()
    assert ("Too narrow for: " + ", ".join(missing)[:20] in text) == (left_out > 0)
    assert set(printing.DROPPED) <= set(heads)


def test_columns_of_the_same_heading_keep_their_own_cells(capsys):
    printing.print_table(("method", "bias", "interval", "ECE", "interval"), [("ts", "1", "0 – 2", "3", "2 – 4")])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["method", "bias", "interval", "ECE", "interval"],
        ["ts", "1", "0", "–", "2", "3", "2", "–", "4"],
    ]


@pytest.mark.parametrize(("typed", "meant"), [("fts-nl", "fts-nll"), ("isotnic", "isotonic"), ("zzz", None)])
def test_a_misspelt_method_gets_a_suggestion(refocal, typed, meant):
    code, _, err = refocal("compare", "val.npz", "test.npz", "-m", typed)
    assert code == 2
    assert (f"did you mean {meant!r}" in err) if meant else ("did you mean" not in err)


def test_fit_and_compare_print_the_same_units(refocal):
    _, fitted, _ = refocal("fit", "val.npz", "-m", "ts")
    _, compared, _ = refocal("compare", "val.npz", "test.npz", "-m", "ts", "--resamples", 2)
    for heading in ("ECE %", "log-loss", "Brier score", "accuracy %"):
        assert heading in fitted
        assert heading in compared


def test_names_that_hold_the_code_of_an_emoji_are_printed_as_they_are(capsys):
    printing.say("The worst is variant = chr1:100:A. Wrote e:b:1.json.")
    printing.print_table(("group", "rows"), [("variant = chr1:100:A", "7")])
    printed = capsys.readouterr().out
    assert "variant = chr1:100:A. Wrote e:b:1.json." in printed
    assert printed.splitlines()[-1].split() == ["variant", "=", "chr1:100:A", "7"]
