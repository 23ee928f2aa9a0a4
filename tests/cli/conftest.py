from __future__ import annotations

import numpy as np
import pytest

from refocal.cli.run import run


def make(n, seed):
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(n, 4))
    return 2.5 * logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory to work in, with the files that a user might have."""
    monkeypatch.chdir(tmp_path)
    for name, n, seed in (("val", 800, 0), ("test", 1000, 1)):
        logits, labels = make(n, seed)
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
