"""Rows that are no logits: every method refuses them, and layers and graphs give NaN in those rows alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from refocal import GroupCalibration, MultiLabelCalibration
from refocal.calibrators.registry import METHODS, make
from refocal.engine import c_engine
from refocal.engine.apply import apply
from refocal.errors import DataError
from refocal.export import to_onnx
from refocal.maps.chain import Chain
from refocal.maps.curves import Pieces
from refocal.maps.steps import Floor

METHODS_OF_ROWS = [name for name, method in METHODS.items() if not method.kind.needs_groups]
BAD = 2
"""The bad row of five."""


@pytest.fixture(scope="module")
def fitted():
    """Calibrators by name and number of classes, each fitted once."""
    known = {}

    def of(name, n_classes):
        if (name, n_classes) not in known:
            rng = np.random.default_rng(n_classes)
            logits = 2.0 * rng.normal(size=(600, n_classes))
            labels = np.argmax(logits / 1.5 + rng.gumbel(size=logits.shape), axis=1)
            known[name, n_classes] = make(name).fit(logits, labels)
        return known[name, n_classes]

    return of


def rows_with(bad, n_classes, dtype, at=-1):
    """Five rows, one of which is bad, and the same with a good one in its place."""
    good = np.random.default_rng(9).normal(size=(5, n_classes)).astype(dtype)
    rows = good.copy()
    if bad == "only -inf":
        rows[BAD] = -np.inf
    else:
        rows[BAD, at] = {"NaN": np.nan, "+inf": np.inf}[bad]
    return rows, good


@pytest.mark.parametrize("name", METHODS_OF_ROWS)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("bad", ["NaN", "+inf", "only -inf"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_method_refuses_rows_that_are_no_logits(name, n_classes, bad, dtype, fitted):
    calibrator = fitted(name, n_classes)
    methods = ("predict_proba", "predict_log_proba", "predict", "predict_set", "predict_interval")
    for at in (0, n_classes - 1):
        rows, _ = rows_with(bad, n_classes, dtype, at)
        for method in (each for each in methods if hasattr(calibrator, each)):
            got = bad.replace("+", r"\+")
            with pytest.raises(DataError, match=rf"'X' .*{got} in row {BAD}"):
                getattr(calibrator, method)(rows)


@pytest.mark.parametrize("name", METHODS_OF_ROWS)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("bad", ["NaN", "+inf", "only -inf"])
def test_layers_give_nan_in_bad_rows_alone(name, n_classes, bad, fitted):
    layer = fitted(name, n_classes).to_torch(dtype=torch.float64)
    for dtype in (np.float32, np.float64):
        for at in (0, n_classes - 1):
            rows, good = rows_with(bad, n_classes, dtype, at)
            found, expected = (layer(torch.from_numpy(x)).numpy() for x in (rows, good))
            assert np.isnan(found[BAD]).all()
            others = np.arange(5) != BAD
            np.testing.assert_array_equal(found[others], expected[others])


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS_OF_ROWS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_graphs_give_nan_in_bad_rows_alone(name, n_classes, fitted, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    to_onnx(fitted(name, n_classes), tmp_path / "a.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx")
    for bad in ("NaN", "+inf", "only -inf"):
        for at in (0, n_classes - 1):
            rows, good = rows_with(bad, n_classes, np.float32, at)
            found, expected = (session.run(None, {"logits": x})[0] for x in (rows, good))
            assert np.isnan(found[BAD]).all()
            others = np.arange(5) != BAD
            np.testing.assert_array_equal(found[others], expected[others])


@pytest.mark.parametrize("kind", ["log-odds", "probabilities"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_calibrators_of_labels_and_of_groups_refuse_bad_scores(kind, bad):
    rng = np.random.default_rng(0)
    p = rng.random((300, 3))
    labels = (rng.random((300, 3)) < p).astype(int)
    scores = p if kind == "probabilities" else np.log(p / (1.0 - p))
    calibrator = MultiLabelCalibration(input=kind).fit(scores, labels)
    rows = scores[:5].copy()
    rows[BAD, 1] = bad
    for method in ("predict_proba", "predict_log_proba", "predict"):
        with pytest.raises(DataError, match="'X'"):
            getattr(calibrator, method)(rows)
    log_p = calibrator.to_torch(dtype=torch.float64)(torch.from_numpy(rows)).numpy()
    is_bad = np.zeros((5, 3), dtype=bool)
    is_bad[BAD, 1] = True
    np.testing.assert_array_equal(np.isnan(log_p), is_bad)

    groups = rng.choice(["a", "b"], 300)
    logits = np.stack([np.zeros(300), scores[:, 0]], axis=1)
    if kind == "probabilities":
        logits[:, 0] = 1.0 - logits[:, 1]
    grouped = GroupCalibration(input="logits" if kind == "log-odds" else kind)
    grouped.fit(logits, labels[:, 0], groups=groups)
    rows = logits[:5].copy()
    rows[BAD, 1] = bad
    for method in ("predict_proba", "predict_log_proba", "predict"):
        with pytest.raises(DataError, match="'X'"):
            getattr(grouped, method)(rows, groups=groups[:5])


def test_steps_keep_nan():
    scores = np.array([[np.nan, 0.0]])
    assert np.isnan(Floor(-1.0).apply(np, scores)[0, 0])
    assert np.isnan(Pieces.of(([0.0], ([1.0, 2.0],))).apply(np, scores)[0, 0])


@pytest.mark.parametrize("name", METHODS_OF_ROWS)
def test_the_compiled_pass_gives_nan_in_bad_rows_alone(name, fitted):
    if not c_engine.is_compiled():
        pytest.skip("no compiled kernel")
    chain: Chain = fitted(name, 3).chain_
    for bad in ("NaN", "+inf", "only -inf"):
        for dtype in (np.float32, np.float64):
            rows, good = rows_with(bad, 3, dtype)
            found = apply(chain, rows)
            expected = apply(chain, good)
            if found is None:
                continue
            assert found.is_suspect
            assert np.isnan(found.probabilities[BAD]).all()
            others = np.arange(5) != BAD
            np.testing.assert_array_equal(found.probabilities[others], expected.probabilities[others])
