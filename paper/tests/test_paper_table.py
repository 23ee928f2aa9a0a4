"""Measures of cells, the table, the claims: against plain loops, on logits made for the purpose."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refocal import metrics
from refocal.errors import FormatError
from refocal.maps import focal, focal_temperature, inverse_focal, log_softmax
from refocal.theory import closest_temperature
from refocal_paper import claims, claims_layout, layout
from refocal_paper.measure import LATER, find_cells, map_temperature, measure_cell
from refocal_paper.printed import PRINTED
from refocal_paper.protocol import build_protocol_rows
from refocal_paper.quoted import marked, quoted_numbers
from refocal_paper.recipe import LOSSES, Recipe, paper, short
from refocal_paper.refinement import read_refinement
from refocal_paper.table import build_differences, build_rows, ece_difference, recipe_name

CE = short("cifar100")
RECIPES = [CE, replace(CE, seed=2), replace(CE, loss="focal-3"), paper("cifar100", loss="focal-3"),
           replace(CE, loss="adafocal")]  # fmt: skip


def write_cell(runs, recipe, scale):
    """A finished cell of a network whose logits are `scale` times too sharp."""
    folder = runs / recipe.key
    folder.mkdir(parents=True)
    rng = np.random.default_rng([recipe.seed, recipe.epochs, len(recipe.loss)])
    logits = 2.0 * rng.normal(size=(900, 5))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1).astype(np.int16)
    sharp = (scale * logits).astype(np.float16)
    np.savez(folder / "logits.npz", val=sharp[:400], yv=labels[:400], test=sharp[400:], yt=labels[400:])
    (folder / "recipe.json").write_text(recipe.to_json())
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    for recipe, scale in zip(RECIPES, (2.0, 2.2, 1.1, 0.9, 1.3), strict=True):
        write_cell(runs, recipe, scale)
    return runs


@pytest.fixture(scope="module")
def cells(runs):
    return [measure_cell(folder) for folder in find_cells(runs)[0]]


def log_loss_at(logits, labels, temperature):
    scaled = logits.astype(np.float64) / temperature
    top = scaled.max(axis=1, keepdims=True)
    log_p = scaled - top - np.log(np.exp(scaled - top).sum(axis=1, keepdims=True))
    return -log_p[np.arange(len(labels)), labels].mean()


def point(cell, row):
    """γ and T chosen by ECE."""
    return cell[row]["ece"]["gamma"], cell[row]["ece"]["temperature"]


def test_a_cells_numbers_are_those_of_a_plain_search(runs):
    folder = runs / CE.key
    cell, data = measure_cell(folder), np.load(folder / "logits.npz")
    grid = np.arange(1, 501) / 100.0
    best = min(grid, key=lambda t: log_loss_at(data["val"], data["yv"], t))
    assert cell["ts"]["nll"]["temperature"] == pytest.approx(best)
    assert cell["ts"]["nll"]["log_loss"] == pytest.approx(log_loss_at(data["test"], data["yt"], best), rel=1e-5)
    assert cell["raw"]["log_loss"] == pytest.approx(log_loss_at(data["test"], data["yt"], 1.0), rel=1e-5)
    assert cell["accuracy"] == pytest.approx((data["test"].argmax(axis=1) == data["yt"]).mean())
    apart = cell["differences"]["fts - ts, log_loss"]
    assert apart["difference"] == pytest.approx(cell["fts"]["nll"]["log_loss"] - cell["ts"]["nll"]["log_loss"])
    assert apart["low"] <= apart["difference"] <= apart["high"]
    assert ece_difference(cell) == cell["fts"]["ece"]["ece"] - cell["ts"]["ece"]["ece"]
    p = [np.exp(focal_temperature(data["test"].astype(np.float32), *point(cell, row))) for row in ("fts", "ts")]
    expected = metrics.squared_ece_difference(data["yt"], *p)
    assert cell["squared_ece_difference"]["difference"] == pytest.approx(expected.difference, abs=1e-6)
    assert cell["squared_ece_difference"]["high"] == pytest.approx(expected.high, abs=1e-6)
    pairs = dict(map(tuple, cell["pairs"]["nll"]))
    assert sorted(pairs) == [-0.5, -0.25, 0.0, 0.05, 0.25, 0.37, 0.5, 0.75, 1.0, 5.0]
    assert pairs[0.0] == cell["ts"]["nll"]["temperature"]
    assert pairs[cell["fts"]["nll"]["gamma"]] == cell["fts"]["nll"]["temperature"]


def equal_mass_error(confidence, correct):
    """Equal-mass ECE of 15 bins along the last axis, where no confidences tie."""
    order = np.argsort(confidence, axis=-1)
    apart = np.take_along_axis(confidence - correct, order, axis=-1)
    n = apart.shape[-1]
    starts = [next(k for k in range(n) if k * 15 // n == i) for i in range(15)]
    return np.abs(np.add.reduceat(apart, starts, axis=-1)).sum(axis=-1) / n


def error_of_the_papers_code(confidence, correct):
    """The same with the bin edges that much published code has."""
    n = len(confidence)
    edges = np.interp(np.linspace(0, n, 16), np.arange(n), np.sort(confidence))
    return np.abs(np.histogram(confidence, edges, weights=confidence - correct)[0]).sum() / n


def test_the_papers_protocol_is_that_of_a_plain_search(runs, cells):
    """One γ for both seeds, that of least mean ECE on the validation images; with it, T for each criterion."""
    grid = np.arange(1, 501) / 100.0
    found = []  # for each seed: γ → the least ECE, T by log-loss, T by ECE
    for recipe in RECIPES[:2]:
        data = np.load(runs / recipe.key / "logits.npz")
        val, y = data["val"].astype(np.float64), data["yv"].astype(int)
        by_gamma = {}
        for gamma in (-0.5, -0.25, 0.05, 0.25, 0.37, 0.5, 0.75, 1.0, 5.0):
            log_p = focal(log_softmax(val / grid[:, None, None]), gamma)
            loss = -log_p[:, np.arange(len(y)), y].mean(axis=1)
            ece = equal_mass_error(np.exp(log_p).max(axis=2), (log_p.argmax(axis=2) == y) * 1.0)
            by_gamma[gamma] = (min(ece), grid[np.argmin(loss)], grid[np.argmin(ece)])
        found.append(by_gamma)
    chosen = min(found[0], key=lambda gamma: found[0][gamma][0] + found[1][gamma][0])
    row = next(row for row in build_protocol_rows(cells) if row.gamma is not None and row.seeds == [1, 2])
    assert row.gamma == chosen
    assert row.log_loss_temperature == pytest.approx(np.mean([one[chosen][1] for one in found]))
    assert row.ece_temperature == pytest.approx(np.mean([one[chosen][2] for one in found]))
    scores = []
    for recipe, one in zip(RECIPES[:2], found, strict=True):
        data = np.load(runs / recipe.key / "logits.npz")
        test, y = data["test"].astype(np.float64), data["yt"].astype(int)
        chosen_by_loss, chosen_by_ece = (focal_temperature(test, chosen, one[chosen][i]) for i in (1, 2))
        parts = np.exp(chosen_by_ece).max(axis=1), (chosen_by_ece.argmax(axis=1) == y) * 1.0
        loss = -chosen_by_loss[np.arange(len(y)), y].mean()
        scores.append((loss, equal_mass_error(*parts), error_of_the_papers_code(*parts)))
    for spread, values in zip((row.log_loss, row.ece, row.ece_interpolated), np.transpose(scores), strict=True):
        assert spread.mean == pytest.approx(values.mean(), rel=1e-5)
        assert spread.sd == pytest.approx(values.std(ddof=1), rel=1e-3)
    assert row.paper == PRINTED["cifar100", "cross-entropy", "FTS"]


def test_rows_are_means_over_the_seeds(runs, cells):
    rows = build_rows(cells)
    assert [(row.loss, row.recipe, row.method, row.seeds) for row in rows[::2]] == [
        ("cross-entropy", "short, 60 epochs", "TS", [1, 2]),
        ("focal-3", "paper, 350 epochs", "TS", [1]),
        ("focal-3", "short, 60 epochs", "TS", [1]),
        ("adafocal", "short, 60 epochs", "TS", [1]),
    ]
    assert [row.method for row in rows] == ["TS", "FTS"] * 4
    pair = [json.loads((runs / recipe.key / "metrics.json").read_text()) for recipe in RECIPES[:2]]
    for row, method in zip(rows[:2], ("ts", "fts"), strict=True):
        for measure in ("log_loss", "ece"):
            for criterion in ("nll", "ece"):
                a, b = (cell[method][criterion][measure] for cell in pair)
                score = row.scores[measure][criterion]
                assert score.mean == pytest.approx((a + b) / 2)
                assert score.sd == pytest.approx(abs(a - b) / 2**0.5)
        assert row.paper == PRINTED["cifar100", "cross-entropy", row.method]
    assert rows[2].accuracy.sd is None
    assert rows[2].scores["ece"]["ece"].sd is None


def test_the_papers_own_numbers():
    assert len(PRINTED) == 36
    row = PRINTED["cifar10", "adafocal", "FTS"]
    assert (row.gamma, row.accuracy, row.log_loss_temperature, row.ece, row.ece_sd) == (5.0, 94.9, 3.70, 0.95, 0.10)
    row = PRINTED["tinyimagenet", "flsd-53", "TS"]
    assert (row.gamma, row.accuracy, row.log_loss, row.ece_temperature) == (None, 52.1, 2.02, 0.98)
    # "could noticeably improve ECE among all baseline models"
    assert all(row.ece < PRINTED[key[0], key[1], "TS"].ece for key, row in PRINTED.items() if key[2] == "FTS")


def test_recipes_are_told_apart():
    assert recipe_name(paper("tinyimagenet", loss="focal-7", seed=3)) == "paper, 100 epochs"
    assert recipe_name(short("cifar10", network="resnet18")) == "short, 60 epochs"
    own = Recipe("cifar100", weight_decay=1e-4)
    assert recipe_name(own).startswith("own ")
    assert recipe_name(own) == recipe_name(replace(own, seed=4, loss="adafocal"))
    assert recipe_name(own) != recipe_name(replace(own, momentum=0.8))


def test_the_table_in_writing(cells):
    text = layout.markdown(cells)
    tables = [block for block in text.split("\n\n") if block.startswith("|")]
    for block, columns, rows in zip(tables, (11, 9, 7, 12, 6, 6, 8, 8), (8, 2, 8, 8, 2, 5, 3, 3), strict=True):
        lines = [line.split("|")[1:-1] for line in block.strip().split("\n")]
        assert {len(line) for line in lines} == {columns}
        assert len(lines) == rows + 2
    first = build_rows(cells)[0]
    score = first.scores["ece"]["ece"]
    assert f"{100 * score.mean:.2f} ± {100 * score.sd:.2f} ({score.temperature:.2f})" in tables[0]
    assert "| 77.6 ± 0.6 | 0.88 ± 0.02 (1.31) | 3.01 ± 0.43 (1.45) |" in tables[0]
    for difference in build_differences(cells):
        assert difference.cell in tables[5]
    assert "| 76.7 | 17.52 | 3.42 (2.1) |" in tables[1]
    tex = layout.latex(cells)
    rows = [line for line in tex.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {line.count("&") for line in rows} == {10}
    assert tex.count("FTS") == 4
    assert not set("±–_%") & set(tex)
    data = json.loads(json.dumps(layout.as_json(cells), allow_nan=False))
    assert data["rows"][0]["scores"]["ece"]["ece"]["temperature"] == score.temperature
    assert data["rows"][0]["paper"]["ece"] == 3.01
    assert [d["verdict"] for d in data["differences"]] == [d.verdict for d in build_differences(cells)]


def test_the_claims_are_what_the_cells_say(cells):
    for epochs, name, n in ((350, "paper", 1), (60, "short", 4)):
        setting = f"cifar100, resnet50, {name}, {epochs} epochs"
        some = [cell for cell in cells if cell["recipe"]["epochs"] == epochs]
        ratios = [cell["ts"]["ece"]["ece"] / cell["ts"]["nll"]["ece"] for cell in some]
        change = next(change for change in claims.changes(cells) if change.setting == setting)
        assert change.what == "test ECE, TS chosen by ECE against by log-loss"
        assert change.mean == pytest.approx(np.mean(ratios) - 1.0)
        assert (change.smaller, change.cells) == (sum(r < 1.0 for r in ratios), n)
    found = claims.trainings(cells)
    assert [(t.setting[-16:], t.gamma) for t in found] == [
        ("paper, 350 epochs"[-16:], 3.0), ("short, 60 epochs", 0.0), ("short, 60 epochs", 3.0)
    ]  # fmt: skip
    assert claims.falls([t.temperature_nll for t in found[1:]]) == (1, 1)
    assert claims.falls([3.0, 2.0, 2.5, 1.0]) == (2, 3)
    for line, pairs in zip(
        (line for line in claims.lines(cells) if line.criterion == "nll"),
        (cell["pairs"]["nll"] for cell in sorted_as_in_the_table(cells)),
        strict=True,
    ):
        gamma, temperature = np.array(pairs).T
        assert line.r_squared_with_5 == pytest.approx(np.corrcoef(gamma, temperature)[0, 1] ** 2)
        near = gamma <= 1.0
        assert line.r_squared == pytest.approx(np.corrcoef(gamma[near], temperature[near])[0, 1] ** 2)
        assert line.slope > 0.0
    # One setting has both cross-entropy and focal loss; its products are of the temperatures there.
    (composition,) = claims.compositions(cells)
    assert composition.gap == pytest.approx(
        np.mean([c["ts"]["nll"]["temperature"] for c in by_loss(cells, "cross-entropy")])
    )
    assert composition.map_theory == closest_temperature(3.0, 3).temperature
    assert composition.map_measured is not None
    text = claims_layout.claims_markdown(cells)
    assert f"{composition.gap * composition.map_theory:.2f}" in text
    assert "T falls by log-loss in 1 of 1 steps" in text


def test_the_map_alone_is_the_plain_map(runs, cells):
    found = claims.maps_alone(cells)
    assert [m.gamma for m in found] == [3.0, 3.0]  # of cross-entropy and AdaFocal there is none
    data = np.load(runs / RECIPES[3].key / "logits.npz")
    logits, y = data["test"].astype(np.float64), data["yt"].astype(int)
    q = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    weight = 1.0 / ((1 - q) ** 3 / q - 3 * (1 - q) ** 2 * np.log(q))
    p = weight / weight.sum(axis=1, keepdims=True)
    assert "350 epochs" in found[0].cell
    assert found[0].log_loss_mapped == pytest.approx(-np.log(p[np.arange(len(y)), y]).mean(), rel=1e-4)
    assert found[0].ece_mapped == pytest.approx(
        equal_mass_error(p.max(axis=1), (p.argmax(axis=1) == y) * 1.0), abs=1e-5
    )


def by_loss(cells, loss):
    return [cell for cell in cells if cell["recipe"]["loss"] == loss]


def sorted_as_in_the_table(cells):
    losses = ["cross-entropy", "focal-3", "adafocal"]
    return sorted(cells, key=lambda c: (losses.index(c["recipe"]["loss"]), -c["recipe"]["epochs"], c["recipe"]["seed"]))


def test_the_temperature_of_the_map_on_a_network():
    """The nearest temperature in KL divergence, by brute force, with the map in its plain form."""
    logits, gamma = np.random.default_rng(0).normal(size=(300, 4)) * 2.0, 3.0
    q = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    weight = 1.0 / ((1 - q) ** gamma / q - gamma * (1 - q) ** (gamma - 1) * np.log(q))
    p = weight / weight.sum(axis=1, keepdims=True)

    def divergence(t):
        scaled = np.exp(logits / t)
        return -(p * np.log(scaled / scaled.sum(axis=1, keepdims=True))).sum()

    best = min(np.arange(0.2, 1.0, 0.0005), key=divergence)
    assert map_temperature(logits, gamma) == pytest.approx(best, abs=0.0006)


def test_calibration_on_the_training_images(tmp_path, runs):
    """A network that predicts the minimiser of focal loss is underconfident there; its own map mends that."""
    rng = np.random.default_rng(5)
    true = log_softmax(2.0 * rng.normal(size=(5000, 5)))
    labels = np.argmax(true + rng.gumbel(size=true.shape), axis=1)
    losses = {"cross-entropy": true, "focal-3": inverse_focal(true, 3.0), "adafocal": 0.7 * true}
    folders = {}
    for loss, train in losses.items():
        folders[loss] = write_cell(tmp_path, replace(CE, loss=loss), 1.5)
        kept = dict(np.load(folders[loss] / "logits.npz"))
        np.savez(folders[loss] / "logits.npz", **kept, train=train.astype(np.float16), ytr=labels.astype(np.int16))
    cells = [measure_cell(folder) for folder in folders.values()]
    for cell, logits in zip(cells, losses.values(), strict=True):
        found, p = cell["train"], np.exp(log_softmax(logits))
        assert found["log_loss"] == pytest.approx(log_loss_at(logits, labels, 1.0), rel=1e-3)
        assert found["accuracy"] == pytest.approx((logits.argmax(axis=1) == labels).mean(), abs=1e-3)
        assert found["confidence"] == pytest.approx(p.max(axis=1).mean(), abs=1e-3)
        best = min(np.arange(1, 501) / 100.0, key=lambda t, z=logits: log_loss_at(z, labels, t))
        assert found["temperature"] == pytest.approx(best, abs=0.011)
    # A cell from before has no such images and no line.
    before = measure_cell(runs / replace(CE, seed=2).key)
    assert "train" not in before
    plain, focal, ada = claims.mechanisms([*cells, before])
    assert [(m.loss, m.seeds) for m in (plain, focal, ada)] == [(loss, 1) for loss in losses]
    assert plain.ece < 0.03
    assert abs(plain.underconfidence) < 0.02
    assert plain.temperature == pytest.approx(1.0, abs=0.05)
    assert focal.underconfidence > 0.1
    assert focal.temperature < 0.6
    assert focal.ece_mapped == pytest.approx(plain.ece, abs=2e-3)
    assert (plain.ece_mapped, ada.ece_mapped) == (None, None)
    assert ada.temperature == pytest.approx(0.7, abs=0.05)
    text = claims_layout.claims_markdown(cells)
    assert text.count("### Calibration on the training images") == 1
    assert f"| focal-3 | 1 | {100 * focal.accuracy:.2f} | {100 * focal.underconfidence:+.2f} |" in text
    assert json.loads(json.dumps(layout.as_json(cells)))["claims"]["mechanisms"][1]["ece"] == focal.ece
    assert "training images" not in claims_layout.claims_markdown([before])


def test_cells_without_logits_and_cells_from_before(tmp_path):
    folder = write_cell(tmp_path, CE, 2.0)
    first = measure_cell(folder)
    first["accuracy"] = 0.25  # what was measured is not measured again
    old = {name: value for name, value in first.items() if name not in LATER}
    (folder / "metrics.json").write_text(json.dumps(old))
    assert measure_cell(folder) == first  # the logits are there: what is missing is measured
    (folder / "metrics.json").write_text(json.dumps(old))
    (folder / "logits.npz").unlink()
    (folder / "recipe.json").unlink()
    assert measure_cell(folder) == old  # they are not: what is there is used
    assert find_cells(tmp_path) == ([folder], [])
    assert claims.lines([old]) == []
    assert "No cell kept its pairs" in claims_layout.claims_markdown([old])
    assert layout.markdown([old]).count("| FTS |") == 2


def test_what_is_no_cell(tmp_path):
    folder = write_cell(tmp_path, CE, 2.0)
    (folder / "metrics.json").write_text("{}")
    with pytest.raises(FormatError, match="holds no 'recipe'; remove it to have the cell measured again"):
        measure_cell(folder)
    for text in ("{", "[]"):
        (folder / "metrics.json").write_text(text)
        with pytest.raises(FormatError, match=r"metrics\.json: (not a JSON file|must hold a JSON object)"):
            measure_cell(folder)
    (folder / "metrics.json").unlink()
    (folder / "logits.npz").write_bytes(b"nonsense")
    with pytest.raises(FormatError, match="must hold the arrays 'val', 'test', 'yv' and 'yt'"):
        measure_cell(folder)
    (folder / "logits.npz").unlink()
    assert find_cells(tmp_path) == ([], [folder])
    with pytest.raises(FormatError, match="not been trained to its end"):
        measure_cell(folder)


def test_a_part_of_a_page_is_replaced(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{layout.BEGIN}\nold\n{layout.END}\n\nafter\n")
    for _ in range(2):
        layout.update_page(page, "new\n")
        assert page.read_text() == f"before\n\n{layout.BEGIN}\n\nnew\n\n{layout.END}\n\nafter\n"
    for text in ("no marks", f"{layout.END}\n{layout.BEGIN}", layout.BEGIN):
        page.write_text(text)
        with pytest.raises(FormatError, match="must hold the line"):
            layout.update_page(page, "new")
        assert page.read_text() == text


PAPER = Path(__file__).parents[1]
PAGES = ("paper/docs/reproduction.md", "paper/results/details.md", "benchmarks/results/how_defaults_were_picked.md",
         "paper/docs/theory.md")  # fmt: skip


@pytest.fixture(scope="module")
def results():
    """The cells of the repository."""
    return [measure_cell(folder) for folder in find_cells(PAPER / "results")[0]]


def test_the_page_shows_what_the_cells_say(results):
    page = (PAPER / "docs" / "reproduction.md").read_text(encoding="utf-8")
    shown = page.split(layout.BEGIN)[1].split(layout.END)[0].strip()
    whole = f"{layout.markdown(results)}\n{claims_layout.claims_markdown(results)}"
    command = "refocal-paper table paper/results -o paper/results --page paper/docs/reproduction.md"
    assert shown == layout.page_markdown(results).strip(), f"run: {command}"
    assert len(page.split()) < 2500  # a page that a reader finishes; the rest is in paper/results
    assert (PAPER / "results" / "table.md").read_text(encoding="utf-8") == whole


@pytest.mark.parametrize("page", PAGES)
def test_the_numbers_in_the_text_are_those_of_the_cells(results, page):
    numbers = quoted_numbers(results, read_refinement(PAPER / "results"))
    found = marked((PAPER.parent / page).read_text(encoding="utf-8"))
    assert len(found) >= 3
    for name, text in found:
        assert text == numbers[name], f"{name}; run: refocal-paper claims paper/results --page {page}"


def test_quoted_numbers_are_those_of_the_files(results):
    """A few of each kind, straight from metrics.json."""
    numbers = quoted_numbers(results)
    # But for the ablations and losses that the paper does not have.
    plain = [c for c in results if not {"reduction", "precision"} & c["recipe"].keys()]
    usual = [c for c in plain if c["recipe"]["loss"] in LOSSES]
    of_table = [c for c in usual if c["recipe"]["network"] == "resnet50"]
    short_cells = [c for c in of_table if (c["recipe"]["dataset"], c["recipe"]["epochs"]) == ("cifar100", 60)]
    change = np.mean([cell["fts"]["ece"]["ece"] / cell["ts"]["ece"]["ece"] for cell in short_cells]) - 1
    assert numbers["cifar100/60/test-ece-fts-against-ts-both-chosen-by-ece"] == f"{100 * change:+.1f} %"
    long = [c for c in of_table if (c["recipe"]["loss"], c["recipe"]["epochs"]) == ("cross-entropy", 350)]
    assert sorted(c["recipe"]["dataset"] for c in long) == ["cifar10", "cifar100"]
    for cell in long:
        quoted = numbers[f"{cell['recipe']['dataset']}/350/cross-entropy/ts/ece"]
        assert quoted == f"{100 * cell['ts']['ece']['ece']:.2f} %"
    assert numbers["paper/cifar100/cross-entropy/ts/ece"] == "3.01 %"
    gain = [1 - c["fts"]["nll"]["log_loss"] / c["ts"]["nll"]["log_loss"] for c in usual]
    distance = [abs(np.log(c["ts"]["nll"]["temperature"])) for c in usual]
    ranks = [np.array([np.mean([(w < v) + 0.5 * (w == v) for w in x]) for v in x]) for x in (gain, distance)]
    assert numbers["all/gain-and-distance"] == f"{np.corrcoef(*ranks)[0, 1]:.2f}"
    assert numbers["theory/tau-1"] == f"{1 / np.e:.4f}"
    alone = [c for c in results if c.get("mapped")]
    worse = sum(c["mapped"]["ece"] > c["raw"]["ece"] for c in alone)
    assert numbers["all/map-alone/worse"] == f"{worse} of {len(alone)}"
    ten = [c for c in usual if c["recipe"]["dataset"] == "cifar10"]
    lower = sum(c["fts"]["ece"]["ece"] < c["ts"]["ece"]["ece"] for c in ten)
    assert numbers["cifar10/ece/lower"] == f"{lower} of {len(ten)}"
    kept = [c["train"] for c in ten if (c["recipe"]["loss"], c["recipe"]["epochs"]) == ("focal-3", 60)]
    under = np.mean([part["accuracy"] - part["confidence"] for part in kept])
    assert numbers["cifar10/60/focal-3/train/underconfidence"] == f"{100 * under:.1f}"
    (mean,) = (c for c in results if "reduction" in c["recipe"] and c["recipe"]["dataset"] == "cifar10")
    assert numbers["cifar10/60/mean-loss/cross-entropy/ts/log-loss-t"] == f"{mean['ts']['nll']['temperature']:.2f}"
    assert numbers["cifar10/60/cross-entropy/ts/log-loss-t"] != f"{mean['ts']['nll']['temperature']:.2f}"


def test_numbers_beyond_the_test_set_are_those_of_the_files(results):
    numbers = quoted_numbers(results)
    kept = [json.loads(path.read_text()) for path in sorted((PAPER / "results").glob("*/shift.json"))]
    strongest = [parts[4] for shift in kept for parts in shift["corrupted"].values()]
    assert numbers["shift/networks"] == str(len(kept))
    assert numbers["shift/strength-5/ts/ece"] == f"{100 * np.mean([part['ts']['ece'] for part in strongest]):.1f} %"
    lower = sum(part["auto"]["ece"] < part["raw"]["ece"] for part in strongest)
    assert numbers["shift/strength-5/auto/lower"] == f"{lower} of {len(strongest)}"
    text = claims_layout.claims_markdown(results)
    cell = next(c for c in results if "shift" in c and c["recipe"]["loss"] == "flsd-53")
    blurred = cell["shift"]["corrupted"]["blur"]
    means = [100 * np.mean([part[way]["ece"] for part in blurred]) for way in claims.WAYS]
    accuracy = 100 * np.mean([part["accuracy"] for part in blurred])
    assert f"| blur | {accuracy:.1f} | " + " | ".join(f"{value:.2f}" for value in means) + " |" in text
    unknown = cell["shift"]["unknown"]
    values = " | ".join(f"{unknown['auroc'][way]:.4f}" for way in claims.WAYS)
    assert f"| {unknown['dataset']} | {values} |" in text


def test_the_page_has_a_line_for_each_training_of_the_paper(cells):
    """The paper's recipe comes before the short one, and the numbers are those of each criterion's own choice."""
    lines = layout.page_markdown(cells).splitlines()
    assert [line.split(" | ")[:2] for line in lines if line.startswith("| cifar100")] == [
        ["| cifar100, cross-entropy", "60 (2)"],
        ["| cifar100, focal-3", "350 (1)"],
        ["| cifar100, adafocal", "60 (1)"],
    ]
    (cell,) = (c for c in cells if c["recipe"]["epochs"] == 350)
    (line,) = (line for line in lines if "focal-3" in line)
    ts, fts = (100.0 * cell[row]["ece"]["ece"] for row in ("ts", "fts"))
    assert f"| {ts:.2f} → {fts:.2f} ({cell['fts']['ece']['gamma']:.2g}) | 1.28 → 1.23 (0.05) |" in line
    losses = [cell[row]["nll"]["log_loss"] for row in ("ts", "fts")]
    assert f"| {losses[0]:.3f}, {losses[1]:.3f} | 0.81, 0.82 |" in line
    temperature = cell["ts"]["nll"]["temperature"]
    assert f"| {100 * cell['accuracy']:.1f} | 77.3 | {temperature:.2f} | 0.87 |" in line
    ablations = [{**c, "accuracy": 0.0, "recipe": {**c["recipe"], "reduction": "mean"}} for c in cells]
    assert layout.page_markdown([*cells, *ablations]).splitlines() == lines
    assert not [line for line in layout.page_markdown(ablations).splitlines() if line.startswith("| cifar100")]
