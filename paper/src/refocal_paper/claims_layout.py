"""The paper's other claims in writing, as tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from refocal_paper import claims
from refocal_paper.table import Cell


def claims_markdown(cells: list[Cell]) -> str:
    """The paper's other claims, as tables."""
    parts = (_changes, _temperatures, _mechanisms, _lines, _compositions, _equivalents, _shifts)
    return "\n".join(text for part in parts if (text := part(cells)))


def table(heads: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> str:
    """A table in Markdown."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


def _changes(cells: list[Cell]) -> str:
    rows = [(c.setting, c.what, f"{100.0 * c.mean:+.1f} %", f"{c.smaller} of {c.cells}") for c in claims.changes(cells)]
    return "### What choosing by ECE and a second parameter do\n\n" + table(
        ("setting", "relative change", "mean over the cells", "smaller in"), rows
    )


def _temperatures(cells: list[Cell]) -> str:
    text = "### The optimal temperature by γ of training\n\n"
    found = claims.trainings(cells)
    heads = ("setting", "γ of training", "T by log-loss", "T by ECE", "accuracy, %", "ECE after TS, %")
    text += table(
        heads,
        [
            (t.setting, f"{t.gamma:g}", f"{t.temperature_nll:.2f}", f"{t.temperature_ece:.2f}",
             f"{100.0 * t.accuracy:.1f}", f"{100.0 * t.ece:.2f}")
            for t in found
        ],
    )  # fmt: skip
    for setting, some in groupby(found, lambda training: training.setting):
        group = list(some)
        if len(group) > 1:
            steps = [claims.falls([getattr(t, f"temperature_{c}") for t in group]) for c in ("nll", "ece")]
            words = " and ".join(
                f"by {c} in {a} of {b} steps" for c, (a, b) in zip(("log-loss", "ECE"), steps, strict=True)
            )
            text += f"\n{setting}: T falls {words}.\n"
    return text


def _mechanisms(cells: list[Cell]) -> str:
    found = claims.mechanisms(cells)
    heads = ("setting", "training", "seeds", "accuracy, %", "minus confidence, points", "ECE, %", "log-loss",
             "T by log-loss", "T, held-out images", "ECE behind the focal map, %")  # fmt: skip
    rows = [
        (m.setting, m.loss, m.seeds, f"{100.0 * m.accuracy:.2f}", f"{100.0 * m.underconfidence:+.2f}",
         f"{100.0 * m.ece:.2f}", f"{m.log_loss:.4f}", f"{m.temperature:.2f}", f"{m.temperature_held_out:.2f}",
         "–" if m.ece_mapped is None else f"{100.0 * m.ece_mapped:.2f}")
        for m in found
    ]  # fmt: skip
    text = "### Calibration on the training images\n\nAs they are, neither cropped nor flipped.\n\n"
    return text + table(heads, rows) if found else ""


def _lines(cells: list[Cell]) -> str:
    found = claims.lines(cells)
    text = "### The best T for each γ of the map: how near to a line\n\n"
    if not found:
        return text + "No cell kept its pairs.\n"
    heads = ("cell", "chosen by", "T =", "R², γ ≤ 1", "R² with γ = 5")
    names = {"nll": "log-loss", "ece": "ECE"}
    rows = [
        (line.cell, names[line.criterion], f"{line.intercept:.2f} {line.slope:+.2f} γ", f"{line.r_squared:.3f}",
         f"{line.r_squared_with_5:.3f}")
        for line in found
    ]  # fmt: skip
    text += table(heads, rows)
    for criterion, name in names.items():
        values = sorted(line.r_squared for line in found if line.criterion == criterion)
        text += (
            f"\nBy {name}: R² from {values[0]:.3f} to {values[-1]:.3f}, {values[len(values) // 2]:.3f} in the middle.\n"
        )
    return text


def _compositions(cells: list[Cell]) -> str:
    text = "### The map's temperature times the gap of cross-entropy\n\n"
    heads = ("setting", "γ of training", "T of cross-entropy", "map: 3 classes", "product", "map: on the network",
             "product", "T found")  # fmt: skip
    rows = []
    for c in claims.compositions(cells):
        measured = ("–", "–") if c.map_measured is None else (f"{c.map_measured:.2f}", f"{c.gap * c.map_measured:.2f}")
        theory = (f"{c.map_theory:.2f}", f"{c.gap * c.map_theory:.2f}")
        rows.append((c.setting, f"{c.gamma:g}", f"{c.gap:.2f}", *theory, *measured, f"{c.found:.2f}"))
    return text + (table(heads, rows) if rows else "Needs cells of cross-entropy and of focal loss in one setting.\n")


def _equivalents(cells: list[Cell]) -> str:
    heads = ("cell", "γ", "T", "map's T (3 classes) × T", "T of TS")
    rows = [
        (e.cell, f"{e.gamma:g}", f"{e.temperature:.2f}", f"{e.product:.2f}", f"{e.ts:.2f}")
        for e in claims.equivalents(cells)
    ]
    return "### FTS chosen by log-loss, as one temperature\n\n" + table(heads, rows)


def _shifts(cells: list[Cell]) -> str:
    found = claims.shifts(cells)
    if not found:
        return ""
    heads = ("cell", "images", "accuracy, %", *(f"ECE, %, {title}" for title in claims.WAYS.values()))
    rows = [
        (s.cell, s.images, f"{100.0 * s.accuracy:.1f}", *(f"{100.0 * value:.2f}" for value in s.ece.values()))
        for s in found
    ]
    text = (
        "### Corrupted test images\n\nCalibrated on the validation images as they are; corrupted ones as means over "
        f"the five strengths.\n\n{table(heads, rows)}"
    )
    if detections := claims.detections(cells):
        heads = ("cell", "other images", *(f"AUROC, {title}" for title in claims.WAYS.values()))
        rows = [(d.cell, d.dataset, *(f"{value:.4f}" for value in d.auroc.values())) for d in detections]
        text += (
            "\n### Images of other classes\n\nHow well the largest probability tells the test images from others."
            f"\n\n{table(heads, rows)}"
        )
    return text
