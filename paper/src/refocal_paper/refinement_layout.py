"""The refinement of trained networks in writing, as tables in Markdown."""

from __future__ import annotations

from typing import Any

from refocal_paper.claims_layout import table
from refocal_paper.recipe import ALL_LOSSES
from refocal_paper.refinement import LOSSES_OF_ROWS, seed_deviations, seed_differences, stops
from refocal_paper.table import Cell, recipe_of


def refinement_markdown(refinement: dict[str, Any], cells: list[Cell]) -> str:
    """The splits of cells and epochs, trainings from seed to seed, and early stopping."""
    text = (
        "# Refinement\n\nTest loss = calibration + refinement, the refinement being the loss after AutoCalibration, "
        "cross-fitted in five folds of the test images; 95 % intervals over the test images, those of differences "
        "paired. The images whose true class has less than 5 % after recalibration are counted as well. By "
        "`refocal-paper refinement paper/results`.\n\n"
    )
    text += _cells(refinement) + _seeds(cells)
    return text + _epochs(refinement) + _stops(refinement) if refinement["epochs"] else text


def _cells(refinement: dict[str, Any]) -> str:
    heads = ("data set", "training", "epochs", "seed", "accuracy, %", "true class below 5 %, %", "log-loss",
             "calibration", "refinement", "minus cross-entropy's", "Brier score", "calibration", "refinement",
             "minus cross-entropy's")  # fmt: skip
    rows = []
    for row in sorted(refinement["cells"], key=_order):
        recipe = recipe_of(row)
        training = recipe.loss + _changed(row)
        shares = (f"{100 * row['accuracy']:.1f}", f"{100 * row['improbable']:.1f}")
        texts: list[Any] = [recipe.dataset, training, recipe.epochs, recipe.seed, *shares]
        for name in LOSSES_OF_ROWS:
            against = row["against_cross_entropy"]
            difference = "–" if against is None else _signed(against[name])
            texts += [*_split(row[name]), difference]
        rows.append(tuple(texts))
    return "## Every cell that kept its logits\n\n" + table(heads, rows)


def _seeds(cells: list[Cell]) -> str:
    text = (
        "\n## From seed to seed\n\nLog-loss after FTS chosen by log-loss, minus that of cross-entropy of the same "
        "seed. Cells without logits have this as well.\n\n"
    )
    rows = [(d.setting, d.loss, " ".join(f"{value:+.3f}" for value in d.differences)) for d in seed_differences(cells)]
    text += table(("setting", "training", "by seed"), rows)
    for setting, deviation in seed_deviations(cells).items():
        text += f"\n{setting}: standard deviation of a training from seed to seed, pooled: {deviation:.4f}.\n"
    return text


def _epochs(refinement: dict[str, Any]) -> str:
    heads = ("data set", "training", "epoch", "accuracy, %", "log-loss", "calibration", "refinement",
             "held-out log-loss", "held-out refinement", "log-loss, calibrated on held-out images")  # fmt: skip
    rows = []
    for row in refinement["epochs"]:
        cell = (row["recipe"]["dataset"], row["recipe"]["loss"], row["epoch"], f"{100 * row['accuracy']:.1f}")
        held_out = (f"{row['held_out']['total']:.4f}", f"{row['held_out']['refinement']:.4f}")
        rows.append((*cell, *_split(row["log_loss"]), *held_out, f"{row['calibrated']['log_loss']:.4f}"))
    return "\n## Against the epochs\n\n" + table(heads, rows)


def _stops(refinement: dict[str, Any]) -> str:
    heads = ("cell", "rule", "epoch", "accuracy, %", "log-loss", "Brier score")
    rows = [
        (name, stop.rule, stop.epoch, f"{100 * stop.accuracy:.1f}", f"{stop.log_loss:.4f}", f"{stop.brier_score:.4f}")
        for name, chosen in stops(refinement).items()
        for stop in chosen
    ]
    text = (
        "\n## Early stopping\n\nThe epoch is chosen on the held-out images among those kept; the network of that epoch "
        "is calibrated on them and scored on the test images.\n\n"
    )
    return text + table(heads, rows)


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    recipe = recipe_of(row)
    return recipe.dataset, recipe.network, -recipe.epochs, _changed(row), ALL_LOSSES.index(recipe.loss), recipe.seed


def _changed(row: dict[str, Any]) -> str:
    recipe = recipe_of(row)
    network = "" if recipe.network == "resnet50" else f", {recipe.network}"
    reduction = ", mean loss" if recipe.reduction == "mean" else ""
    precision = ", float32" if recipe.precision == "float32" else ""
    return network + reduction + precision


def _split(split: dict[str, Any]) -> tuple[str, str, str]:
    refinement, low, high = split["refinement"]
    return (
        f"{split['total'][0]:.4f}",
        f"{split['calibration'][0]:.4f}",
        f"{refinement:.4f} [{low:.4f}, {high:.4f}]",
    )


def _signed(interval: Any) -> str:
    return f"{interval[0]:+.4f} [{interval[1]:+.4f}, {interval[2]:+.4f}]"
