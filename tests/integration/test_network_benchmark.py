"""benchmarks/auto.py: which files are networks, and the change of the ECE in each draw."""

from __future__ import annotations

import importlib
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def auto(monkeypatch):
    """The script, which imports others of its folder; they are forgotten afterwards, since their names are common."""
    names = ("auto", "real_logits", "real_logits_table", "peers")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    yield importlib.import_module("auto")
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def test_logits_in_the_course_of_a_training_are_no_network(auto, tmp_path):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20, 3)).astype(np.float16)
    labels = rng.integers(3, size=20)
    for name in ("cell", "other"):
        (tmp_path / name).mkdir()
    np.savez(tmp_path / "cell" / "logits.npz", val=logits, yv=labels, test=logits, yt=labels)
    np.savez(tmp_path / "cell" / "logits-0050.npz", val=logits, yv=labels)
    np.savez(tmp_path / "other" / "halves.npz", logits=logits, labels=labels)

    options = Namespace(sources=[tmp_path], rows=[5], draws=[2], pooled=False)
    names = [(row["data"], row["draw"]) for row, _ in auto.networks(options)]
    assert names == [("cell", 0), ("cell", 1), ("halves", 0), ("halves", 1)]


def test_ece_by_draw_is_the_mean_change_over_the_networks(auto):
    # Network a: 4 → 3 % and 4 → 1 %; network b: 2 → 2 % and 1 → 2 %.
    values = {("a", 0): (4.0, 3.0), ("a", 1): (4.0, 1.0), ("b", 0): (2.0, 2.0), ("b", 1): (1.0, 2.0)}
    rows = []
    for (network, draw), (before, after) in values.items():
        rows.append({"data": network, "draw": draw, "method": "ts-ece", "ece": before})
        rows.append({"data": network, "draw": draw, "method": "auto", "ece": after})
    assert auto.ece_by_draw(rows, "auto", "ts-ece") == pytest.approx([-12.5, 12.5])
