from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from refocal.evaluate import compare
from refocal.io import Predictions, split
from refocal.report import write_report


@pytest.fixture(scope="session")
def evaluation():
    """Too sure a network with thirty classes, the names of which need care in HTML."""
    rng = np.random.default_rng(0)
    logits = 1.5 * rng.normal(size=(3000, 30))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    names = ["<b>&$x$", *(f"class {i}" for i in range(1, 30))]
    validation, test = split(Predictions.from_logits(2.5 * logits, labels, class_names=names))
    return compare(validation, test, ["ts", "fts", "fts-nll"], chosen="fts", title="a <test> & more", n_resamples=40)


@pytest.fixture(scope="session")
def page(evaluation, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(evaluation, path)
    return path


@pytest.fixture(scope="session")
def open_browser(page, browser):
    """A function (width, scheme, media) → a headless Chromium that shows the report."""
    return partial(browser, page)
