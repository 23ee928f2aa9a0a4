"""Recipes: the paper's, shortened ones, those from files, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from refocal.errors import FormatError, ParameterError
from refocal_paper.recipe import LOSSES, Recipe, grid, make_recipe, paper, read_recipe, short

TINY = short("synthetic", epochs=4, network="tiny")


def test_the_papers_recipes():
    cifar = paper("cifar100")
    rates = [cifar.rate(epoch) for epoch in (0, 149, 150, 249, 250, 349)]
    np.testing.assert_allclose(rates, [0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    assert (cifar.epochs, cifar.batch_size, cifar.clip_norm, cifar.validation_rows) == (350, 128, 2.0, 5000)
    tiny = paper("tinyimagenet")
    assert (tiny.epochs, tiny.drops, tiny.batch_size, tiny.validation_rows) == (100, (40, 60), 64, 10_000)
    assert (short("tinyimagenet").epochs, short("tinyimagenet").drops) == (20, (8, 12))
    brief = short("cifar100")
    assert (brief.epochs, brief.drops) == (60, (26, 43))


def test_the_name_of_a_run_tells_recipes_apart():
    names = {replace(TINY, loss=loss, seed=seed).key for loss in LOSSES for seed in (1, 2)}
    assert len(names) == 2 * len(LOSSES)
    assert replace(TINY, weight_decay=1e-4).key != TINY.key
    assert replace(TINY, reduction="mean").key != replace(TINY, precision="float32").key != TINY.key
    assert TINY.key == replace(TINY).key


def test_recipes_from_files(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('dataset = "cifar100"\nloss = "focal-3"\nepochs = 10\ndrops = [4, 7]\n')
    assert read_recipe(path) == Recipe("cifar100", loss="focal-3", epochs=10, drops=(4, 7))
    path.write_text('dataset = "cifar100"\nlearning_rat = 0.2\n')
    with pytest.raises(FormatError, match=r"unknown key 'learning_rat'; known are batch_size, "):
        read_recipe(path)
    path.write_text("epochs = 3\n")
    with pytest.raises(FormatError, match="'dataset' is missing"):
        read_recipe(path)
    path.write_text("dataset = ")
    with pytest.raises(FormatError, match="not a TOML file"):
        read_recipe(path)
    with pytest.raises(ParameterError, match="'loss' of Recipe must be one of 'cross-entropy'"):
        Recipe("cifar100", loss="hinge")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('epochs = "ten"', "'epochs' must be an integer of at least 1. Got 'ten'"),
        ("epochs = 0", "'epochs' must be an integer of at least 1. Got 0"),
        ("seed = true", "'seed' must be an integer of at least 0. Got True"),
        ("learning_rate = -0.1", "'learning_rate' must be a finite number above 0"),
        ("learning_rate = nan", "'learning_rate' must be a finite number above 0"),
        ("momentum = 1", r"'momentum' must be a number in \[0, 1\)"),
        ("drops = [7, 4]", "'drops' must be integers that grow"),
        ("drops = 4", "'drops' must be integers that grow"),
        ('loss = "hinge"', "'loss' must be one of 'cross-entropy'"),
        ('reduction = "median"', "'reduction' must be 'sum' or 'mean'. Got 'median'"),
        ('precision = "float16"', "'precision' must be 'bfloat16' or 'float32'. Got 'float16'"),
        ("[nested]\na = 1", "unknown key 'nested'"),
    ],
)
def test_values_that_cannot_be(tmp_path, line, message):
    path = tmp_path / "recipe.toml"
    path.write_text(f'dataset = "cifar100"\n{line}\n')
    with pytest.raises(FormatError, match=message) as caught:
        read_recipe(path)
    assert str(path) in str(caught.value)
    path.write_text('dataset = "../elsewhere"\n')
    with pytest.raises(FormatError, match="'dataset' must be the name"):
        read_recipe(path)


def test_recipes_by_name_or_file_with_changes(tmp_path):
    assert make_recipe("paper") == paper("cifar100")
    assert make_recipe("short", "cifar10", loss="focal-7", network=None) == short("cifar10", loss="focal-7")
    assert make_recipe("paper", "tinyimagenet", epochs=10) == short("tinyimagenet", epochs=10)
    path = tmp_path / "mine.toml"
    path.write_text('dataset = "cifar10"\nepochs = 100\ndrops = [50]\nlearning_rate = 1\n')
    mine = make_recipe(str(path), epochs=20, seed=3)
    assert mine == Recipe("cifar10", epochs=20, drops=(10,), learning_rate=1.0, seed=3)
    assert mine.key == replace(mine, learning_rate=1).key
    assert make_recipe(str(path), "cifar100").dataset == "cifar100"
    with pytest.raises(ParameterError, match=r"'recipe' of make_recipe must be 'paper', 'short' or a .toml file"):
        make_recipe("long")


def test_the_cells_of_a_grid():
    cells = grid(TINY, LOSSES, [1, 2])
    assert [(cell.loss, cell.seed) for cell in cells] == [(loss, seed) for seed in (1, 2) for loss in LOSSES]
    assert {cell.epochs for cell in cells} == {4}
