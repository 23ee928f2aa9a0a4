"""The paper's figures: what is computed agrees with independent references, what is drawn is the same on every run."""

from __future__ import annotations

import csv
import json
import pickle
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from refocal.errors import FormatError, ParameterError
from refocal.io import Predictions, load_sample
from refocal.maps import focal, focal_temperature
from refocal_paper.figures import (
    CELL_FIGURES,
    NAMES,
    READINGS,
    _networks,
    draw,
    make_figures,
    reproduce,
    trained,
    write,
)
from refocal_paper.figures._base import to_csv
from refocal_paper.figures._networks import GAMMAS, TEMPERATURES
from refocal_paper.line import fit_line
from refocal_paper.recipe import ALL_LOSSES, Recipe

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    """A folder with one finished cell of a sweep, made of the embedded logits."""
    runs = tmp_path_factory.mktemp("runs")
    folder = runs / "cifar10-resnet18-focal-1-1-x"
    folder.mkdir()
    validation, test = load_sample("cifar10-focal3")
    np.savez(
        folder / "logits.npz",
        val=(1.3 * validation.values[:1000]).astype(np.float16),
        yv=validation.labels[:1000].astype(np.uint8),
        test=(1.3 * test.values[:1000]).astype(np.float16),
        yt=test.labels[:1000].astype(np.uint8),
    )
    (folder / "recipe.json").write_text(json.dumps({"dataset": "cifar10", "loss": "focal-1", "seed": 1, "epochs": 9}))
    (runs / "unfinished").mkdir()
    (runs / "unfinished" / "recipe.json").write_text("{}")
    return runs


def first_rows(predictions, n):
    return Predictions.from_logits(predictions.values[:n], predictions.labels[:n])


@pytest.fixture(scope="module")
def few_rows():
    """The embedded networks, on a few rows each: for what does not depend on how many there are."""
    networks = _networks.Networks()
    networks.all = [
        replace(network, validation=first_rows(network.validation, 1000), test=first_rows(network.test, 1000))
        for network in networks.all
    ]
    return networks


@pytest.fixture(scope="module")
def figures(few_rows):
    tolerance = trained.trained_figures(few_rows)[1]
    return {**make_figures(), tolerance.name: tolerance}


@pytest.fixture(scope="module")
def tables(figures):
    """What each figure shows; that of tolerances on every fifth temperature, where the same must hold."""
    computed = {name: figure.compute() for name, figure in figures.items() if name != "tolerance"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_networks, "TEMPERATURES", TEMPERATURES[::5])
        computed["tolerance"] = figures["tolerance"].compute()
    return computed


def rows(table):
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


# What is computed ----------------------------------------------------------------------------------------------------


def proper_by_search(p, gamma):
    """The proper part of focal loss at p, through the inverse of the paper's binary closed form, by bisection."""
    g = mp.mpf(gamma)

    def after(q):
        ratio = ((1 - q) / q) ** g * ((1 - q) - g * q * mp.log(q)) / (q - g * (1 - q) * mp.log(1 - q))
        return 1 / (1 + ratio)

    low, high = mp.mpf("1e-30"), 1 - mp.mpf("1e-30")
    with mp.workdps(50):
        for _ in range(120):
            middle = (low + high) / 2
            low, high = (middle, high) if after(middle) < p else (low, middle)
        return float(-((1 - low) ** g) * mp.log(low))


def test_loss_and_link_follow_the_papers_formulas(tables):
    for row in rows(tables["loss-and-link"]["loss"])[::57]:
        q = row["probability"]
        assert row["cross-entropy"] == pytest.approx(-np.log(q), rel=1e-12)
        for gamma in (0.5, 3):
            assert row[f"focal {gamma}"] == pytest.approx(-((1 - q) ** gamma) * np.log(q), rel=1e-12)
            assert row[f"proper {gamma}"] == pytest.approx(proper_by_search(q, gamma), rel=1e-9)
    for row in rows(tables["loss-and-link"]["link"])[::40]:
        q = row["probability"]
        for name, value in row.items():
            if name.startswith("gamma"):
                g = float(name.split()[1])
                ratio = ((1 - q) / q) ** g * ((1 - q) - g * q * np.log(q)) / (q - g * (1 - q) * np.log(1 - q))
                assert value == pytest.approx(1 / (1 + ratio), rel=1e-9)


@pytest.mark.long
def test_the_bounds_hold_and_the_tight_ones_are_what_trying_finds(tables):
    for row in rows(tables["bounds"]["bounds"])[1:]:
        assert row["paper low"] <= row["tight for all s low"] < row["tight low"] <= row["tried low"] * (1 + 1e-12)
        assert row["tried high"] <= row["tight high"] * (1 + 1e-9)
        assert row["tight high"] < row["paper high"]
        assert row["tight high"] == pytest.approx(row["tight for all s high"], rel=1e-12)
        assert row["tried low"] == pytest.approx(row["tight low"], rel=1e-6)
        assert row["tried high"] == pytest.approx(row["tight high"], rel=1e-6)


def test_the_risks_are_least_at_the_truth_and_those_of_their_definition(tables):
    table = tables["isolines"]["isolines"]
    q = np.stack([table[name] for name in ("q1", "q2", "q3")], axis=-1)
    p = np.array([0.55, 0.3, 0.15])
    np.testing.assert_allclose(table["cross-entropy"], -(p * np.log(q)).sum(axis=1), rtol=1e-10)
    np.testing.assert_allclose(table["Brier score"], ((q - p) ** 2).sum(axis=1) + (p * (1 - p)).sum(), rtol=1e-10)
    for name in table:
        if name[0] != "q":
            np.testing.assert_allclose(q[np.argmin(table[name])], p, atol=1e-12)


def test_arrows_and_differences_are_those_of_the_maps(tables):
    for row in rows(tables["arrows"]["arrows"])[::17]:
        q = np.array([row["q1"], row["q2"], row["q3"]])
        power = q ** (1 / row["temperature"])
        expected = np.exp(focal(np.log(q), row["gamma"])) if row["map"] == "focal" else power / power.sum()
        np.testing.assert_allclose([row["p1"], row["p2"], row["p3"]], expected, rtol=1e-12)
    for row in rows(tables["difference"]["difference"])[::997]:
        q = np.array([row["q1"], row["q2"], row["q3"]])
        for gamma, temperature in ((0.5, 0.8), (2.0, 0.46)):
            power = q ** (1 / temperature)
            with np.errstate(divide="ignore"):  # an edge of the triangle
                change = np.exp(focal(np.log(q), gamma)) - power / power.sum()
            assert row[f"top class, gamma {gamma:g}"] == pytest.approx(change[q.argmax()], abs=1e-12)
            assert row[f"largest, gamma {gamma:g}"] == pytest.approx(np.abs(change).max(), abs=1e-12)


def plain_ece(log_p, labels, n_bins=15):
    """Equal-mass ECE in a loop, for confidences without ties."""
    p = np.exp(log_p.astype(np.float64))
    confidence, correct = p.max(axis=1), p.argmax(axis=1) == labels
    bins = np.array_split(np.argsort(confidence, kind="stable"), n_bins)
    return sum(abs(confidence[b].mean() - correct[b].mean()) * len(b) for b in bins) / len(labels)


def test_no_other_temperature_has_a_lower_ece(tables):
    validation = load_sample("cifar10-focal3").validation
    found = [
        row for row in rows(tables["gamma-temperature-line"]["line"]) if row["network"] == "cifar10 focal-3, embedded"
    ]
    assert [row["gamma"] for row in found] == GAMMAS.tolist()
    for row in found[::4]:
        at = plain_ece(focal_temperature(validation.values, row["gamma"], row["temperature"]), validation.labels)
        assert row["ECE, %"] == pytest.approx(100 * at, abs=0.01)
        others = [
            plain_ece(focal_temperature(validation.values, row["gamma"], t), validation.labels)
            for t in TEMPERATURES[::25]
        ]
        assert at <= min(others) + 2e-4


def test_a_tolerance_bounds_the_log_loss_and_buys_calibration(tables):
    for network in dict.fromkeys(tables["tolerance"]["tolerance"]["network"]):
        found = [row for row in rows(tables["tolerance"]["tolerance"]) if row["network"] == network]
        best = found[0]["validation log-loss"]
        for row in found[:-1]:
            assert row["validation log-loss"] <= best * (1 + row["tolerance"]) * (1 + 1e-9)
        errors = [row["validation ECE, %"] for row in found]
        assert all(a >= b for a, b in pairwise(errors))
        assert errors[0] > errors[-1]


def test_the_links_are_those_of_their_definitions(tables):
    """Sparsemax and entmax maximise <p, z> plus an entropy, by a fine search; tempered probabilities sum to 1."""
    table = tables["links"]["links"]
    q = np.linspace(0.0, 1.0, 200_001)
    for i in (1000, 1103, 1190, 1260, 1333, 1399, 1500):
        s = table["score"][i]
        for name, alpha in (("sparsemax", 2.0), ("1.5-entmax", 1.5)):
            entropy = (q - q**alpha + (1 - q) - (1 - q) ** alpha) / (alpha * (alpha - 1))
            assert table[name][i] == pytest.approx(q[np.argmax(q * s + entropy)], abs=1e-5)
        shift = float(mp.findroot(lambda x, s=s: 1 / (1 - (s - x)) + 1 / (1 + x) - 1, max(s, 0.0) + 1.5))
        assert table["tempered, t₂ = 2"][i] == pytest.approx(1 / (1 - (s - shift)), rel=1e-9)
        p = np.exp(focal(np.array([s, 0.0]), 3.0))
        assert table["focal, γ = 3"][i] == pytest.approx(p[0], rel=1e-12)
    assert np.all(table["sparsemax"][table["score"] >= 1.0] == 1.0)


def test_no_other_temperature_is_closer_to_a_link(tables):
    table = tables["links"]
    s = table["links"]["score"]
    for name, temperature, error in zip(*table["closest"].values(), strict=True):
        p = table["links"][name]
        others = [np.abs(p - 1 / (1 + np.exp(-s / t))).max() for t in np.geomspace(0.1, 6.0, 2001)]
        assert error <= min(others) + 1e-9
        assert error == pytest.approx(np.abs(p - 1 / (1 + np.exp(-s / temperature))).max(), rel=1e-9)


def test_the_line_is_the_one_of_least_squares():
    x, y = np.array([0.0, 1.0, 3.0, 4.0]), np.array([1.0, 2.5, 2.0, 6.0])
    line = fit_line(x, y)
    design = np.stack([x, np.ones(4)], axis=1)
    slope, intercept = np.linalg.solve(design.T @ design, design.T @ y)
    assert (line.slope, line.intercept) == pytest.approx((slope, intercept))
    assert line.r_squared == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)


# What is drawn -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_axis_is_named_and_no_words_overlap(figures, tables, name):
    canvas = draw(figures[name], tables[name])
    renderer = FigureCanvasAgg(canvas).get_renderer()
    canvas.draw(renderer)
    for ax in canvas.axes:
        if not ax.axison or ax.get_label() == "<colorbar>":
            continue
        assert ax.get_xlabel()
        assert ax.get_ylabel() or ax.get_subplotspec().colspan.start > 0
        labels = [t for t in ax.get_xticklabels() if t.get_text() and ax.get_xlim()[0] <= t.get_position()[0]]
        boxes = [t.get_window_extent(renderer) for t in labels if t.get_position()[0] <= ax.get_xlim()[1]]
        assert all(a.x1 <= b.x0 for a, b in pairwise(boxes))
        # Legends and labels keep inside the picture.
        frame = canvas.bbox
        for artist in (ax.xaxis.label, ax.yaxis.label, ax.title, ax.get_legend()):
            if artist is not None and (not hasattr(artist, "get_text") or artist.get_text()):
                box = artist.get_window_extent(renderer)
                assert box.x0 >= frame.x0 - 1
                assert box.x1 <= frame.x1 + 1


ANOTHER_PROCESS = """
import pickle, sys
from pathlib import Path
from refocal_paper.figures import make_figures, write

tables, folder = pickle.loads(sys.stdin.buffer.read()), Path(sys.argv[1])
figures = make_figures()
assert repr(figures["arrows"].compute()) == repr(tables["arrows"])
for name in tables:
    write(figures[name], tables[name], folder)
assert "torch" not in sys.modules
"""


@pytest.mark.long
def test_two_processes_write_the_same_bytes_without_torch(tmp_path, figures, tables):
    """All that can differ from run to run differs between two processes."""
    drawn_alike = ("gamma-temperature-line", "tolerance", "multiclass-fit", "confidence")  # by the same functions
    shown = {name: tables[name] for name in NAMES if name not in drawn_alike}
    for folder in "ab":
        (tmp_path / folder).mkdir()
    command = [sys.executable, "-c", ANOTHER_PROCESS, str(tmp_path / "a")]
    subprocess.run(command, input=pickle.dumps(shown), check=True)  # noqa: S603
    for name, own in shown.items():
        write(figures[name], own, tmp_path / "b")
    first, second = ({path.name: path.read_bytes() for path in (tmp_path / x).iterdir()} for x in "ab")
    assert first == second
    assert {Path(name).suffix for name in first} == {".svg", ".pdf", ".csv"}
    for name in shown:
        assert len(first[f"{name}.svg"]) < 300_000
        assert b"<dc:date>" not in first[f"{name}.svg"]
        assert b"CreationDate" not in first[f"{name}.pdf"]


@pytest.mark.long
def test_figures_of_networks_are_the_same_twice_and_read_the_cells_of_a_sweep(tmp_path, cell, few_rows, monkeypatch):
    monkeypatch.setattr(_networks, "GAMMAS", np.array([0.0, 1.0]))
    monkeypatch.setattr(_networks, "TEMPERATURES", np.round(np.arange(0.7, 2.3, 0.05), 2))
    monkeypatch.setattr(trained, "GAMMAS", _networks.GAMMAS)
    monkeypatch.setattr(_networks, "embedded", lambda: [replace(network) for network in few_rows.all])
    for folder in ("a", "b"):
        done = reproduce(["gamma-temperature-line", "tolerance"], tmp_path / folder, cell)
    first, second = ({path.name: path.read_bytes() for path in (tmp_path / x).iterdir()} for x in "ab")
    assert first == second
    with (tmp_path / "a" / "gamma-temperature-line.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert {line["network"] for line in lines} == {
        "cifar100 focal-7, embedded",
        "cifar10 focal-3, embedded",
        "cifar10 cross-entropy, embedded",
        "cifar10 focal-1, seed 1, 9 epochs",
    }
    # The cell's logits are the sample's times 1.3: so are its temperatures.
    temperature = {
        loss: [float(line["temperature"]) for line in lines if (line["dataset"], line["loss"]) == ("cifar10", loss)]
        for loss in ("focal-3", "focal-1")
    }
    assert np.median(np.divide(temperature["focal-1"], temperature["focal-3"])) == pytest.approx(1.3, abs=0.06)
    assert any("focal-1, seed 1" in reading.what for reading in done[0].readings)


def test_every_training_has_a_look_and_every_cell_a_name_of_its_own(tmp_path, cell):
    assert list(trained.TRAININGS) == list(ALL_LOSSES)
    assert len({marker for _, _, marker in trained.TRAININGS.values()}) == len(ALL_LOSSES)
    logits = next(cell.glob("*/logits.npz"))
    names = []
    for changes in ({}, {"reduction": "mean"}, {"precision": "float32"}, {"network": "resnet110"}):
        folder = tmp_path / str(len(names))
        folder.mkdir()
        (folder / "logits.npz").symlink_to(logits)
        (folder / "recipe.json").write_text(Recipe("cifar10", **changes).to_json())
        names.append(_networks.read_cell(folder).name)
    plain = "cifar10 cross-entropy, seed 1, 350 epochs"
    assert names == [plain, f"{plain}, mean", f"{plain}, float32", f"{plain}, resnet110"]


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(ParameterError, match=r"'names' of reproduce must be one of 'loss-and-link'.* Got 'mona-lisa'"):
        reproduce(["mona-lisa"], tmp_path)
    with pytest.raises(FormatError, match="no finished cell"):
        reproduce(["bounds"], tmp_path, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_tables_become_csv():
    table = {"a": [1.0, float("nan")], "b": ["x,y", None], "c": np.array([1 / 3, 2.0])}
    assert to_csv(table) == 'a,b,c\n1,"x,y",0.33333333\n,,2\n'


# What the docs say ---------------------------------------------------------------------------------------------------


def test_the_page_shows_the_readings_that_are_kept():
    """Every reading of readings.json, which was written with the SVGs, stands in figures.md as it is."""
    text = (DOCS / "figures.md").read_text(encoding="utf-8").replace("\\|", "|")
    readings = json.loads((DOCS / "figures" / READINGS).read_text(encoding="utf-8"))
    assert list(readings) == [*NAMES, *CELL_FIGURES]
    for name in CELL_FIGURES:
        page = (DOCS / "reproduction.md").read_text(encoding="utf-8")
        assert f"(figures/{name}.svg)" in page
    for name in NAMES:
        some = readings[name]
        assert f"(figures/{name}.svg)" in text
        assert (DOCS / "figures" / f"{name}.svg").stat().st_size < 300_000
        for reading in some:
            assert f"| {reading['what']} | {reading['ours']} | {reading['paper']} |" in text


def test_the_readings_that_are_kept_are_those_of_the_figures(figures, tables):
    """All but those of the cells of a sweep, which take long: of the networks, the embedded ones."""
    kept = json.loads((DOCS / "figures" / READINGS).read_text(encoding="utf-8"))
    for name in NAMES:
        if name == "tolerance":
            continue  # means over all networks
        ours = [reading._asdict() for reading in figures[name].read(tables[name])]
        assert ours == [reading for reading in kept[name] if reading in ours]
        assert len(ours) == len(kept[name]) or name == "gamma-temperature-line"


@pytest.mark.parametrize("name", CELL_FIGURES)
def test_figures_of_cells_are_those_of_what_was_measured(name):
    figure = make_figures(DOCS.parent / "results")[name]
    computed = figure.compute()
    kept = json.loads((DOCS / "figures" / READINGS).read_text(encoding="utf-8"))[name]
    assert [reading._asdict() for reading in figure.read(computed)] == kept
    canvas = draw(figure, computed)
    for ax in canvas.axes:
        assert ax.get_xlabel()
        assert ax.get_ylabel() or ax.get_subplotspec().colspan.start > 0


def test_the_step_to_new_images_is_that_of_the_cells():
    table = make_figures(DOCS.parent / "results")["generalisation"].compute()["generalisation"]
    cells = [json.loads(path.read_text()) for path in sorted((DOCS.parent / "results").glob("*/metrics.json"))]
    full = [cell for cell in cells if (cell["recipe"]["epochs"], cell["recipe"]["dataset"]) == (350, "cifar100")]
    by_loss = {cell["recipe"]["loss"]: cell for cell in full}
    gap = by_loss["cross-entropy"]["ts"]["nll"]["temperature"]
    (row,) = (row for row in rows(table) if (row["dataset"], row["gamma"]) == ("cifar100", 3.0))
    focal = by_loss["focal-3"]
    assert row["T, held-out images"] == focal["ts"]["nll"]["temperature"]
    assert row["T, training images"] == focal["train"]["temperature"]
    assert row["T of the map × gap"] == pytest.approx(gap * focal["map_temperature"])
    # All training images of CIFAR-10 are right, so that no temperature is the best.
    ten = [row for row in rows(table) if row["dataset"] == "cifar10"]
    assert [row["gamma"] for row in ten] == [0.0, 1.0, 3.0, 7.0]
    assert all(row["T, training images"] is None for row in ten)


def test_readings_of_figures_drawn_before_are_kept(tmp_path):
    reproduce(["arrows"], tmp_path)
    first = json.loads((tmp_path / READINGS).read_text(encoding="utf-8"))
    reproduce(["loss-and-link"], tmp_path)
    both = json.loads((tmp_path / READINGS).read_text(encoding="utf-8"))
    assert list(both) == ["arrows", "loss-and-link"]
    assert both["arrows"] == first["arrows"]
