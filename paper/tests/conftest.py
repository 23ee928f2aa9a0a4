from __future__ import annotations

import numpy as np
import pytest
import torch

from refocal_paper.cli import run

torch.set_num_threads(1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory to work in, with a file that is no page and no folder."""
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "val.npz", logits=np.eye(4), labels=np.arange(4))
    return tmp_path


@pytest.fixture
def refocal_paper(folder, capsys):
    """A function (arguments) → (exit code, standard output, standard error)."""

    def call(*arguments):
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call
