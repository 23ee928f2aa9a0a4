"""The numbers that the pages quote in their text, by name: computed here, marked there, and held together by a test.

A page marks a number by comments that its reader does not see: `<!--name-->-20.8 %<!---->`.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from refocal import theory
from refocal._files import write_atomically
from refocal.errors import FormatError
from refocal_paper import claims
from refocal_paper.layout import SCALES
from refocal_paper.printed import PRINTED, REPORTED
from refocal_paper.recipe import ALL_LOSSES, LOSSES
from refocal_paper.refinement import LOSSES_OF_ROWS, seed_deviations, seed_differences, stops
from refocal_paper.table import Cell, Row, build_differences, build_rows, ece_difference, named_cells, recipe_of

MARKED = re.compile(r"<!--(?P<name>[\w./-]+)-->(?P<text>.*?)<!---->", re.S)

Numbers = dict[str, str]
_BY_LOG_LOSS = ("log_loss", ("fts", "nll"), ("ts", "nll"))


def quoted_numbers(cells: list[Cell], refinement: dict[str, Any] | None = None) -> Numbers:
    """Every number that a page may quote, as it is written there; `refinement` is what `read_refinement` returns."""
    parts = (_rows, _changes, _intervals, _slopes, _compositions, _mechanisms, _single_cells, _shifts)
    found = {name: text for part in parts for name, text in part(cells).items()}
    for scope, some in _scopes(cells).items():
        counts = {name: text for part in (_differences, _lines, _together) for name, text in part(some).items()}
        found |= {f"{scope}/{name}": text for name, text in counts.items()}
    if refinement is not None:
        found |= _refinements(refinement) | _seeds(cells) | _stops(refinement)
    return {**found, **_printed(), **_theory()}


def _scopes(cells: list[Cell]) -> dict[str, list[Cell]]:
    """All cells, and those of each data set, network and number of epochs, but for ablations and other losses."""
    found: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        recipe = recipe_of(cell)
        if recipe == replace(recipe, reduction="sum", precision="bfloat16") and recipe.loss in LOSSES:
            network = "/".join(_network(recipe.dataset, recipe.network))
            for scope in ("all", network, f"{network}/{recipe.epochs}"):
                found[scope].append(cell)
    return found


def marked(page: str) -> list[tuple[str, str]]:
    """The marked numbers of a page: name and text.

    >>> marked("It gains <!--short/gain-->3.1 %<!---->.")
    [('short/gain', '3.1 %')]
    """
    return [(match["name"], match["text"]) for match in MARKED.finditer(page)]


def update_marked(path: Path, numbers: Numbers) -> int:
    """Write the numbers into a page; returns how many were others before."""
    content = path.read_text(encoding="utf-8")
    unknown = sorted({name for name, _ in marked(content)} - set(numbers))
    if unknown:
        raise FormatError(f"{path}: marks {unknown[0]!r}, which is no number that is computed.")
    changed = sum(numbers[name] != text for name, text in marked(content))
    write_atomically(path, MARKED.sub(lambda match: f"<!--{match['name']}-->{numbers[match['name']]}<!---->", content))
    return changed


def _rows(cells: list[Cell]) -> Numbers:
    found: Numbers = {}
    for row in build_rows(cells):
        name = f"{_setting(row)}/{row.loss}/{row.method.lower()}"
        by_loss, by_ece = row.scores["log_loss"]["nll"], row.scores["ece"]["ece"]
        found |= {
            f"{name}/accuracy": f"{100 * row.accuracy.mean:.1f} %",
            f"{name}/raw-ece": f"{100 * row.raw_ece.mean:.2f} %",
            f"{name}/log-loss": f"{by_loss.mean:.3f}",
            f"{name}/log-loss-t": f"{by_loss.temperature:.2f}",
            f"{name}/ece": f"{100 * by_ece.mean:.2f} %",
            f"{name}/ece-t": f"{by_ece.temperature:.2f}",
        }
    return found


def _printed() -> Numbers:
    found: Numbers = {}
    for (dataset, loss, method), row in PRINTED.items():
        name = f"paper/{dataset}/{loss}/{method.lower()}"
        found |= {
            f"{name}/accuracy": f"{row.accuracy:.1f} ± {row.accuracy_sd:.1f} %",
            f"{name}/log-loss": f"{row.log_loss:.2f}",
            f"{name}/log-loss-t": f"{row.log_loss_temperature:.2f}",
            f"{name}/ece": f"{row.ece:.2f} %",
            f"{name}/ece-t": f"{row.ece_temperature:.2f}",
        }
    for (dataset, loss), reported in REPORTED.items():
        found[f"reported/{dataset}/{loss}/t"] = f"{reported.temperature:g}"
    return found


def _changes(cells: list[Cell]) -> Numbers:
    found: Numbers = {}
    for change in claims.changes(cells):
        name = f"{_short(change.setting)}/{_slug(change.what)}"
        found |= {
            name: f"{100 * change.mean:+.1f} %",
            f"{name}/size": f"{abs(100 * change.mean):.1f} %",
            f"{name}/cells": f"{change.smaller} of {change.cells}",
        }
    return found


def _intervals(cells: list[Cell]) -> Numbers:
    found: Numbers = {}
    for d in build_differences(cells):
        scale, digits = SCALES[d.measure]
        found[f"{_short(d.cell)}/{_slug(d.measure)}-interval"] = (
            f"{scale * d.low:+.{digits}f} to {scale * d.high:+.{digits}f}"
        )
    return found


def _differences(cells: list[Cell]) -> Numbers:
    found: Numbers = {}
    differences = build_differences(cells)
    for measure in SCALES:
        some = [d for d in differences if d.measure == measure]
        name = _slug(measure)
        found[f"{name}/lower"] = f"{sum(d.difference < 0.0 for d in some)} of {len(some)}"
        for verdict in ("lower", "higher"):
            found[f"{name}/surely-{verdict}"] = str(sum(d.verdict == verdict for d in some))
    return found | {"ece/lower": f"{sum(ece_difference(cell) < 0.0 for cell in cells)} of {len(cells)}"}


def _lines(cells: list[Cell]) -> Numbers:
    found: Numbers = {}
    lines = claims.lines(cells)
    for criterion, name in (("nll", "log-loss"), ("ece", "ece")):
        if ordered := sorted(line.r_squared for line in lines if line.criterion == criterion):
            ends = {"least": ordered[0], "second-least": ordered[min(1, len(ordered) - 1)], "largest": ordered[-1]}
            found |= {f"r2/{name}/{which}": f"{value:.2f}" for which, value in ends.items()}
    return found


def _slopes(cells: list[Cell]) -> Numbers:
    slopes: dict[str, list[float]] = defaultdict(list)
    for line in claims.lines([cell for cell in cells if recipe_of(cell).loss in LOSSES]):
        if line.criterion == "ece":
            slopes[_short(line.cell).rsplit("/", 2)[0]].append(line.slope)
    return {f"{setting}/slopes": _range(values) for setting, values in slopes.items()}


def _compositions(cells: list[Cell]) -> Numbers:
    found: Numbers = {}
    off: dict[str, list[float]] = defaultdict(list)
    for c in claims.compositions(cells):
        setting = _short(c.setting)
        name = f"{setting}/gamma-{c.gamma:g}"
        found |= {f"{setting}/gap": f"{c.gap:.2f}", f"{name}/found": f"{c.found:.2f}"}
        if c.map_measured is not None:
            found |= {f"{name}/map": f"{c.map_measured:.2f}", f"{name}/product": f"{c.gap * c.map_measured:.2f}"}
            off[setting].append(abs(c.gap * c.map_measured - c.found))
        off[f"{setting}/3-classes"].append(c.found - c.gap * c.map_theory)
    return found | {f"{setting}/product-off": _range(values) for setting, values in off.items()}


def _mechanisms(cells: list[Cell]) -> Numbers:
    found: Numbers = {}
    for m in claims.mechanisms(cells):
        name = f"{_short(m.setting)}/{m.loss}/train"
        found |= {
            f"{name}/accuracy": f"{100 * m.accuracy:.1f} %",
            f"{name}/underconfidence": f"{100 * m.underconfidence:.1f}",
            f"{name}/ece": f"{100 * m.ece:.2f} %",
            f"{name}/log-loss": f"{m.log_loss:.4f}",
            f"{name}/t": f"{m.temperature:.2f}",
            f"{name}/step": f"{m.temperature_held_out / m.temperature:.1f}",
        }
        if m.ece_mapped is not None:
            found[f"{name}/ece-mapped"] = f"{100 * m.ece_mapped:.2f} %"
    return found


def _shifts(cells: list[Cell]) -> Numbers:
    """On corrupted images: by cell and over all of them, and the detection of other images."""
    found: Numbers = {}
    shifted = [cell["shift"] for cell in cells if "shift" in cell]
    for name, cell in named_cells(cells):
        for kind, parts in cell.get("shift", {"corrupted": {}})["corrupted"].items():
            for strength, part in enumerate(parts, 1):
                for way in claims.WAYS:
                    found[f"{_short(name)}/{kind}-{strength}/{way}/ece"] = f"{100 * part[way]['ece']:.1f} %"
    for d in claims.detections(cells):
        found |= {f"{_short(d.cell)}/auroc/{way}": f"{value:.3f}" for way, value in d.auroc.items()}
    if shifted:
        found["shift/networks"] = str(len(shifted))
    for strength in range(5 if shifted else 0):
        parts = [parts[strength] for shift in shifted for parts in shift["corrupted"].values()]
        for way in claims.WAYS:
            ece = [part[way]["ece"] for part in parts]
            lower = sum(value < part["raw"]["ece"] for value, part in zip(ece, parts, strict=True))
            found[f"shift/strength-{strength + 1}/{way}/ece"] = f"{100 * np.mean(ece):.1f} %"
            found[f"shift/strength-{strength + 1}/{way}/lower"] = f"{lower} of {len(parts)}"
    return found


def _single_cells(cells: list[Cell]) -> Numbers:
    changes = {_short(name): _change(cell, *_BY_LOG_LOSS) for name, cell in named_cells(cells)}
    found = {f"{name}/log-loss-change": f"{100 * value:+.2f} %" for name, value in changes.items()}
    alone = claims.maps_alone(cells)
    return found | {
        f"{_short(m.cell)}/map-alone/ece": f"{100 * m.ece:.2f} % to {100 * m.ece_mapped:.2f} %" for m in alone
    }


def _together(cells: list[Cell]) -> Numbers:
    def mean(*what: Any) -> str:
        return f"{100 * np.mean([_change(cell, *what) for cell in cells]):+.1f} %"

    gain = [-_change(cell, *_BY_LOG_LOSS) for cell in cells]
    distance = [abs(np.log(cell["ts"]["nll"]["temperature"])) for cell in cells]
    alone = claims.maps_alone(cells)
    return {
        "map-alone/worse": f"{sum(m.ece_mapped > m.ece for m in alone)} of {len(alone)}",
        "cells": str(len(cells)),
        "default/ece": mean("ece", ("default", "auto"), ("ts", "ece")),
        "default/log-loss": mean("log_loss", ("default", "auto"), ("ts", "nll")),
        "fts-ece/ece": mean("ece", ("fts", "ece"), ("ts", "ece")),
        "gain-and-distance": f"{spearmanr(gain, distance).statistic:.2f}" if len(cells) > 2 else "–",
    }


def _change(cell: Cell, measure: str, first: tuple[str, str], second: tuple[str, str]) -> float:
    return float(cell[first[0]][first[1]][measure] / cell[second[0]][second[1]][measure] - 1.0)


def _theory() -> Numbers:
    found = {f"theory/tau-{gamma:g}": f"{theory.confidence_threshold(gamma):.4f}" for gamma in (0.5, 1, 2, 3, 5, 100)}
    tight, outer = theory.tight_temperature_bounds(4.0, 20.0), theory.temperature_bounds(4.0)
    at_zero, highest = (
        9 * (2 * math.log(2) - 1) / (1 + 9 * math.log(2)),
        10 - 1 / theory.tight_temperature_bounds(9.0).upper,
    )
    minimisers = {f"theory/minimiser-{g}": f"{theory.focal_minimizer([0.8, 0.2], g)[0]:.4f}" for g in (1, 2, 3, 5)}
    return (
        found
        | minimisers
        | {
            "theory/tight-4": f"{tight.lower:.4f} … {tight.upper:.4f}",
            "theory/outer-4": f"{outer.lower:.4f} … {outer.upper:.4f}",
            "theory/offset-9/zero": f"{at_zero:.4f}",
            "theory/offset-9/highest": f"{highest:.4f}",
        }
    )


def _refinements(refinement: dict[str, Any]) -> Numbers:
    """Refinement of each cell, and how it compares with that of cross-entropy in the same setting."""
    found: Numbers = {}
    for name, row in named_cells(refinement["cells"]):
        found[f"{_short(name)}/improbable"] = f"{100 * row['improbable']:.1f} %"
        for measure in LOSSES_OF_ROWS:
            split = row[measure]
            prefix = f"{_short(name)}/{_slug(measure)}"
            found |= {
                f"{prefix}/calibration": f"{split['calibration'][0]:.3f}",
                f"{prefix}/refinement": f"{split['refinement'][0]:.3f}",
            }
            against = row["against_cross_entropy"]
            if against is not None:
                difference, low, high = against[measure]
                found |= {
                    f"{prefix}/against-cross-entropy": f"{difference:+.3f}",
                    f"{prefix}/against-cross-entropy/interval": f"{low:+.3f} to {high:+.3f}",
                }
    return found


def _seeds(cells: list[Cell]) -> Numbers:
    """The log-loss after FTS from seed to seed, against cross-entropy and by its standard deviation."""
    found = {f"{_short(setting)}/seed-sd": f"{sd:.3f}" for setting, sd in seed_deviations(cells).items()}
    for d in seed_differences(cells):
        higher = sum(value > 0.0 for value in d.differences)
        name = f"{_short(d.setting)}/{d.loss}/seeds"
        found |= {
            f"{name}/higher": f"{higher} of {len(d.differences)}",
            f"{name}/differences": ", ".join(f"{value:+.3f}" for value in d.differences),
        }
    return found


def _stops(refinement: dict[str, Any]) -> Numbers:
    found: Numbers = {}
    for cell, chosen in stops(refinement).items():
        dataset, loss, _, *recipe = cell.split(", ")
        run = "/".join([dataset, loss, *map(_slug, recipe)])
        for stop in chosen:
            name = f"{run}/stop/{_slug(stop.rule)}"
            found |= {f"{name}/epoch": str(stop.epoch), f"{name}/log-loss": f"{stop.log_loss:.3f}"}
    return found


def _setting(row: Row) -> str:
    return _short(f"{row.dataset}, {row.network}, {row.recipe}")


def _short(name: str) -> str:
    """A setting's or a cell's name as a path.

    >>> _short("cifar100, resnet50, focal-7, paper, 350 epochs, seed 1")
    'cifar100/350/focal-7/seed-1'
    >>> _short("cifar100, resnet50, short, 60 epochs")
    'cifar100/60'
    """
    dataset, network, *rest = name.split(", ")
    epochs = next(part.removesuffix(" epochs") for part in rest if part.endswith("epochs"))
    changed = [part.replace(" ", "-") for part in rest if part in ("mean loss", "float32", "other losses")]
    loss = [part for part in rest if part in ALL_LOSSES]
    seed = [part.replace(" ", "-") for part in rest if part.startswith("seed")]
    return "/".join([*_network(dataset, network), epochs, *changed, *loss, *seed])


def _network(dataset: str, network: str) -> list[str]:
    return [dataset] if network == "resnet50" else [dataset, network]


def _range(values: list[float]) -> str:
    least, largest = f"{min(values):.2f}", f"{max(values):.2f}"
    return least if least == largest else f"{least} to {largest}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
