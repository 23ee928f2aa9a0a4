"""Refinement of cells and epochs: against the library's own decomposition, plain formulas and rows made for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refocal import metrics
from refocal.calibrators import AutoCalibration
from refocal.decomposition import log_loss_decomposition
from refocal.errors import FormatError
from refocal.maps import log_softmax
from refocal_paper import refinement
from refocal_paper.measure import find_cells, measure_cell
from refocal_paper.quoted import quoted_numbers
from refocal_paper.recipe import paper
from refocal_paper.refinement_layout import refinement_markdown

RESULTS = Path(__file__).parents[1] / "results"
CE = paper("cifar100")
FOCAL = replace(CE, loss="focal-3")


def sharpened(scale, noise, seed):
    """Logits `scale` times too sharp of rows with labels; noise makes them less informative."""
    rng = np.random.default_rng(7)  # the same rows for every network
    truth = 2.0 * rng.normal(size=(900, 5))
    labels = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1).astype(np.int16)
    logits = truth + noise * np.random.default_rng(seed).normal(size=truth.shape)
    return (scale * logits).astype(np.float16), labels


def write_logits(path, scale, noise, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    logits, labels = sharpened(scale, noise, seed)
    np.savez(path, val=logits[:400], yv=labels[:400], test=logits[400:], yt=labels[400:])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Cross-entropy too sharp and with more noise, focal loss too flat and with less; epochs of the first."""
    folder = tmp_path_factory.mktemp("refinement")
    for recipe, scale, noise in ((CE, 2.5, 1.0), (FOCAL, 0.5, 0.2)):
        write_logits(folder / "runs" / recipe.key / "logits.npz", scale, noise)
        (folder / "runs" / recipe.key / "recipe.json").write_text(recipe.to_json())
    # Epoch 100 is calibrated but noisy, epoch 200 informative but far too sharp, the last one neither.
    write_logits(folder / "epochs" / CE.key / "logits-0100.npz", 1.0, 0.6)
    write_logits(folder / "epochs" / CE.key / "logits-0200.npz", 6.0, 0.1)
    return folder


@pytest.fixture(scope="module")
def measured(runs):
    return refinement.measure_refinement(runs / "runs", runs / "epochs")


def test_the_split_is_that_of_the_library():
    logits, labels = sharpened(2.5, 0.5, 1)
    logits = logits.astype(np.float32)
    expected = log_loss_decomposition(labels, logits, by=AutoCalibration())
    total = refinement.row_losses(log_softmax(logits), labels)
    log_p = refinement.cross_fitted(logits, labels)
    refined = refinement.row_losses(log_p, labels)
    split = refinement.split_loss(total["log_loss"], refined["log_loss"])
    for part in ("total", "calibration", "refinement"):
        assert split[part].value == pytest.approx(getattr(expected, part), abs=2e-6)
    assert split["calibration"].low > 0.0
    brier = refinement.split_loss(total["brier_score"], refined["brier_score"])
    assert brier["refinement"].value == pytest.approx(metrics.brier_score(labels, np.exp(log_p)), abs=2e-6)
    assert brier["total"].value == pytest.approx(brier["calibration"].value + brier["refinement"].value, abs=2e-6)


def test_the_interval_is_the_mean_and_its_standard_errors():
    interval = refinement.mean_interval(np.array([1.0, 2.0, 3.0, 6.0]))
    error = np.sqrt(((np.array([1, 2, 3, 6]) - 3.0) ** 2).sum() / 3 / 4)
    assert interval == pytest.approx((3.0, 3.0 - 1.96 * error, 3.0 + 1.96 * error), abs=1e-4)


def test_cells_are_compared_with_cross_entropy_on_the_same_rows(measured, runs):
    plain, focal = sorted(measured["cells"], key=lambda row: row["recipe"]["loss"])
    assert plain["against_cross_entropy"] is None
    losses = []
    for recipe in (FOCAL, CE):
        data = np.load(runs / "runs" / recipe.key / "logits.npz")
        log_p = refinement.cross_fitted(data["test"].astype(np.float32), data["yt"].astype(int))
        losses.append(-log_p[np.arange(500), data["yt"]])
    apart = losses[0] - losses[1]
    difference, low, high = focal["against_cross_entropy"]["log_loss"]
    assert difference == pytest.approx(apart.mean(), abs=1e-5)
    assert high - low == pytest.approx(2 * 1.96 * apart.std(ddof=1) / np.sqrt(500), rel=1e-3)
    assert high < 0.0  # less noise
    assert plain["improbable"] == pytest.approx((losses[1] > np.log(20.0)).mean())
    assert plain["log_loss"]["calibration"][0] > 0.1  # too sharp
    assert focal["log_loss"]["total"][0] == pytest.approx(
        focal["log_loss"]["calibration"][0] + focal["log_loss"]["refinement"][0], abs=2e-6
    )


def test_early_stopping_takes_the_epochs_that_each_rule_prefers(measured, runs):
    assert [row["epoch"] for row in measured["epochs"]] == [100, 200, 350]
    ((name, chosen),) = refinement.stops(measured).items()
    assert name == "cifar100, cross-entropy, seed 1"
    assert [(stop.rule, stop.epoch) for stop in chosen] == [
        ("last epoch", 350),
        ("least log-loss", 100),
        ("least refined log-loss", 200),
    ]
    data = np.load(runs / "epochs" / CE.key / "logits-0200.npz")
    fitted = AutoCalibration().fit(data["val"].astype(np.float32), data["yv"])
    log_p = fitted.predict_log_proba(data["test"].astype(np.float32))
    assert chosen[2].log_loss == pytest.approx(metrics.log_loss(data["yt"], log_p), abs=1e-5)
    assert chosen[2].log_loss < chosen[1].log_loss < chosen[0].log_loss
    unfinished = {"epochs": measured["epochs"][:2]}
    assert refinement.stops(unfinished) == {}


def test_epochs_of_a_shorter_run_are_not_those_of_another_one(measured):
    """Two runs of a training, of other lengths, each stop within themselves."""
    shorter = replace(CE, epochs=60, drops=(26, 43))
    rows = [json.loads(json.dumps(row)) for row in measured["epochs"]]
    for row, epoch in zip(rows, (20, 40, 60), strict=True):
        row["recipe"] = json.loads(shorter.to_json())
        row["epoch"] = epoch
        row["held_out"]["total"] /= 10.0
    found = refinement.stops({"epochs": [*rows, *measured["epochs"]]})
    alone = refinement.stops(measured)["cifar100, cross-entropy, seed 1"]
    assert found["cifar100, cross-entropy, seed 1, resnet50, paper, 350 epochs"] == alone
    assert [stop.epoch for stop in found["cifar100, cross-entropy, seed 1, resnet50, short, 60 epochs"]] == [60, 20, 40]


def test_epochs_that_were_measured_before_stay(measured, runs, tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / CE.key).symlink_to(runs / "runs" / CE.key)
    assert refinement.measure_refinement(folder)["epochs"] == []
    (folder / refinement.FILE).write_text(json.dumps(measured))
    assert refinement.measure_refinement(folder)["epochs"] == json.loads(json.dumps(measured["epochs"]))
    # Those of other cells, too, where the epochs of one are measured; its own are measured again.
    other = [{**row, "recipe": {**row["recipe"], "seed": 2}} for row in measured["epochs"]]
    outdated = [{**row, "accuracy": 0.0} for row in measured["epochs"]]
    (folder / refinement.FILE).write_text(json.dumps({**measured, "epochs": [*other, *outdated]}))
    again = json.loads(json.dumps(refinement.measure_refinement(folder, runs / "epochs")["epochs"]))
    assert again == json.loads(json.dumps([*measured["epochs"], *other]))
    (folder / refinement.FILE).write_text('{"cells": []}')
    with pytest.raises(FormatError, match="must hold the lists 'cells' and 'epochs'"):
        refinement.measure_refinement(folder)
    (folder / refinement.FILE).unlink()
    with pytest.raises(FormatError, match=r"no refinement\.json; write it with: refocal-paper refinement"):
        refinement.read_refinement(folder)


def cell(loss, seed, log_loss, epochs=350):
    recipe = json.loads(paper("cifar100", loss=loss, seed=seed).to_json())
    return {"recipe": {**recipe, "epochs": epochs}, "fts": {"nll": {"log_loss": log_loss}}}


def test_seeds_are_compared_one_by_one():
    cells = [cell("cross-entropy", 1, 1.0), cell("cross-entropy", 2, 1.2), cell("focal-3", 1, 0.9),
             cell("focal-3", 2, 1.3), cell("focal-3", 3, 5.0), cell("focal-7", 4, 2.0)]  # fmt: skip
    (difference,) = refinement.seed_differences(cells)
    assert difference.loss == "focal-3"
    assert difference.differences == pytest.approx([-0.1, 0.1])
    (deviation,) = refinement.seed_deviations(cells).values()
    variances = [np.var([1.0, 1.2], ddof=1), np.var([0.9, 1.3, 5.0], ddof=1)]
    assert deviation == pytest.approx(np.sqrt(np.mean(variances)))


def test_tables_and_quoted_numbers(measured, runs):
    cells = [measure_cell(folder) for folder in find_cells(runs / "runs")[0]]
    text = refinement_markdown(measured, cells)
    focal = max(measured["cells"], key=lambda row: row["recipe"]["loss"])
    difference, low, high = focal["against_cross_entropy"]["log_loss"]
    assert f"| {difference:+.4f} [{low:+.4f}, {high:+.4f}] |" in text
    assert "| cifar100, cross-entropy, seed 1 | least refined log-loss | 200 |" in text
    numbers = quoted_numbers(cells, measured)
    name = "cifar100/350/focal-3/seed-1/log-loss"
    assert numbers[f"{name}/against-cross-entropy/interval"] == f"{low:+.3f} to {high:+.3f}"
    assert numbers[f"{name}/refinement"] == f"{focal['log_loss']['refinement'][0]:.3f}"
    assert numbers["cifar100/cross-entropy/stop/least-refined-log-loss/epoch"] == "200"
    assert "Early stopping" not in refinement_markdown({**measured, "epochs": []}, cells)


def test_the_command_writes_both_files(measured, runs, refocal_paper, tmp_path):
    source = tmp_path / "runs"
    source.mkdir()
    (source / CE.key).symlink_to(runs / "runs" / CE.key)
    code, out, _ = refocal_paper("refinement", str(source), "-o", str(tmp_path / "kept"), "--json")
    assert code == 0
    kept = refinement.read_refinement(tmp_path / "kept")
    assert json.loads(out) == kept
    (row,) = kept["cells"]
    (own,) = (row for row in measured["cells"] if row["recipe"]["loss"] == "cross-entropy")
    assert row["log_loss"] == {name: list(part) for name, part in own["log_loss"].items()}
    text = (tmp_path / "kept" / "refinement.md").read_text(encoding="utf-8")
    assert "| cifar100 | cross-entropy | 350 | 1 |" in text
    assert refocal_paper("refinement", str(source))[1] == text


@pytest.mark.long
def test_the_file_of_the_repository_is_that_of_its_logits(tmp_path):
    """Two cells, which share their test images, measured again."""
    kept = refinement.read_refinement(RESULTS)
    names = ("cifar10-resnet50-cross-entropy-1-9c9b359f", "cifar10-resnet50-focal-3-1-d19a2ae8")
    for name in names:
        (tmp_path / name).symlink_to(RESULTS / name)
    for again in refinement.measure_refinement(tmp_path)["cells"]:
        (row,) = (row for row in kept["cells"] if row["recipe"] == again["recipe"])
        for measure in refinement.LOSSES_OF_ROWS:
            for part in ("total", "calibration", "refinement"):
                assert again[measure][part] == pytest.approx(tuple(row[measure][part]), abs=1e-4)
            if row["against_cross_entropy"] is not None:
                expected = tuple(row["against_cross_entropy"][measure])
                assert again["against_cross_entropy"][measure] == pytest.approx(expected, abs=1e-4)
    with_logits = [folder for folder in find_cells(RESULTS)[0] if (folder / "logits.npz").is_file()]
    assert len(kept["cells"]) == len(with_logits)
    text = refinement_markdown(kept, [measure_cell(folder) for folder in find_cells(RESULTS)[0]])
    command = "refocal-paper refinement paper/results -o paper/results"
    assert (RESULTS / "refinement.md").read_text(encoding="utf-8") == text, f"run: {command}"
