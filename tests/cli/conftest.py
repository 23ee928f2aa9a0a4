from __future__ import annotations

import numpy as np
import pytest

from helpers import draw_logits
from refocal.cli.run import run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory to work in, with the files that a user might have."""
    monkeypatch.chdir(tmp_path)
    for name, n, seed in (("val", 800, 0), ("test", 1000, 1)):
        logits, labels = draw_logits(n, 4, seed, scale=3.75, temperature=2.5)
        np.savez(tmp_path / f"{name}.npz", logits=logits, labels=labels)
    return tmp_path


@pytest.fixture
def refocal(folder, capsys):
    """A function (arguments) → (exit code, standard output, standard error)."""

    def call(*arguments):
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call
