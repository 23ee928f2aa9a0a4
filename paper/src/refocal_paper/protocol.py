"""The paper's own protocol: one γ for each row of its table, chosen by ECE, and with it a T for each criterion.

The paper's text has γ and T chosen together for each measure, but its table prints one γ for both columns of a row, and
in five rows a higher log-loss than temperature scaling's: so γ was probably chosen by ECE. ECE is computed in two ways:
`ece` as everywhere in refocal, `ece_interpolated` as in the paper's code, with interpolated bin edges.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal import metrics
from refocal.engine import Block
from refocal.evaluate.ranks import SeedSpread
from refocal.fitting import PAPER_GAMMAS, PAPER_TEMPERATURES
from refocal.fitting.grid import scan_grid
from refocal.fitting.objective import as_objective
from refocal.maps import focal_temperature
from refocal_paper.printed import PRINTED, Printed
from refocal_paper.table import Cell, group_cells


class ProtocolRow(NamedTuple):
    """A line of the table by the paper's protocol; means over the seeds. γ is None for temperature scaling."""

    dataset: str
    network: str
    loss: str
    recipe: str
    seeds: list[int]
    gamma: float | None
    log_loss: SeedSpread
    log_loss_temperature: float
    ece: SeedSpread
    ece_interpolated: SeedSpread
    ece_temperature: float
    paper: Printed | None


def measure_by_gamma(
    val: NDArray[Any], y_val: NDArray[Any], test: NDArray[Any], y_test: NDArray[Any]
) -> list[dict[str, Any]]:
    """For each γ of the paper's grid and γ = 0: the best T by log-loss and by ECE, and what they give on the test set.

    `validation_ece` is what γ is chosen by.
    """
    gammas = np.sort([*PAPER_GAMMAS, 0.0])
    block = Block(val, y_val.astype(np.int64))
    surfaces = {
        criterion: scan_grid(
            block,
            as_objective(criterion, block.n_rows, "measure_by_gamma"),
            gammas,
            np.array(PAPER_TEMPERATURES),
            each_gamma=True,
        )
        for criterion in ("nll", "ece")
    }
    best = {criterion: np.argmin(surface.value, axis=1) for criterion, surface in surfaces.items()}
    rows = []
    for i, gamma in enumerate(gammas):
        at = {name: float(surface.temperature[i, best[name][i]]) for name, surface in surfaces.items()}
        log_p = {name: focal_temperature(test, gamma, temperature) for name, temperature in at.items()}
        rows.append(
            {
                "gamma": float(gamma),
                "validation_ece": float(surfaces["ece"].value[i, best["ece"][i]]),
                "nll": {"temperature": at["nll"], "log_loss": metrics.log_loss(y_test, log_p["nll"])},
                "ece": {"temperature": at["ece"], **_both_errors(y_test, np.exp(log_p["ece"]))},
            }
        )
    return rows


def build_protocol_rows(cells: list[Cell]) -> list[ProtocolRow]:
    """Two lines for each training and recipe, over the cells whose logits were there to be measured."""
    found = []
    for (dataset, network, loss, recipe), group in group_cells(cells).items():
        some = [cell for cell in group if "by_gamma" in cell]
        if not some:
            continue
        by_gamma = {
            gamma: [next(row for row in cell["by_gamma"] if row["gamma"] == gamma) for cell in some]
            for gamma in (0.0, *PAPER_GAMMAS)
        }
        chosen = min(PAPER_GAMMAS, key=lambda gamma: np.mean([row["validation_ece"] for row in by_gamma[gamma]]))
        seeds = [int(cell["recipe"]["seed"]) for cell in some]
        for method, gamma in (("TS", 0.0), ("FTS", chosen)):
            rows = by_gamma[gamma]
            printed = PRINTED.get((dataset, loss, method)) if network == "resnet50" else None
            found.append(
                ProtocolRow(
                    dataset,
                    network,
                    loss,
                    recipe,
                    seeds,
                    None if method == "TS" else gamma,
                    SeedSpread.of([row["nll"]["log_loss"] for row in rows]),
                    float(np.mean([row["nll"]["temperature"] for row in rows])),
                    SeedSpread.of([row["ece"]["ece"] for row in rows]),
                    SeedSpread.of([row["ece"]["ece_interpolated"] for row in rows]),
                    float(np.mean([row["ece"]["temperature"] for row in rows])),
                    printed,
                )
            )
    return found


def _both_errors(y: NDArray[Any], p: NDArray[Any]) -> dict[str, float]:
    return {
        "ece": metrics.expected_calibration_error(y, p),
        "ece_interpolated": metrics.expected_calibration_error(y, p, strategy="interpolated"),
    }
