"""Every fitted calibrator is a chain of steps: what predicts in NumPy, torch, JAX and ONNX, and what JSON keeps."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
import torch
from scipy.special import log_expit, log_softmax

import refocal
from refocal import AutoCalibration, HistogramBinning, IsotonicCalibration
from refocal._arrays import namespace
from refocal.calibrators.registry import NAMED, make
from refocal.calibrators.serialize import step_from_dict, to_plain
from refocal.errors import ParameterError
from refocal.export import to_onnx, to_torch_export
from refocal.maps import Chain, Focal, Temperature
from refocal.maps.chain import Step
from refocal.maps.curves import Beta, Confidence, LabelLines, OneVsRest, Pieces, VennAbers
from refocal.maps.steps import Affine, Floor, KeepTop, Mixture, Offset, Uniform, Unsmooth

pytestmark = pytest.mark.numerics

XP = namespace(np.zeros(1))

VARIANTS = {
    **{name: make(name) for name in NAMED},
    "isotonic-constant": IsotonicCalibration(within="constant"),
    "histogram-constant": HistogramBinning(1, within="constant"),
}


def rows(n_classes, n=300, seed=0):
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, n_classes))
    return logits, np.argmax(logits / 1.5 + np.eye(n_classes)[0] / 2 + rng.gumbel(size=logits.shape), axis=1)


@pytest.fixture(scope="module", params=[(name, n) for name in VARIANTS for n in (2, 5)], ids=str)
def fitted(request):
    name, n_classes = request.param
    return VARIANTS[name].fit(*rows(n_classes))


def new_rows(n_classes):
    """Ordinary rows, extreme ones, ties and impossible classes, in numbers that float32 holds."""
    x = rows(n_classes, 60, 1)[0]
    x = np.concatenate([x, 30.0 * x, np.round(x), np.zeros((1, n_classes))]).astype(np.float32)
    x[::7, 1] = -np.inf
    return x


@pytest.mark.slow
def test_every_library_predicts_the_same(fitted, tmp_path):
    x = new_rows(fitted.n_features_in_)
    expected = fitted.predict_log_proba(x.astype(np.float64))
    layer = fitted.to_torch(dtype=torch.float64)
    np.testing.assert_allclose(layer(torch.tensor(x).double()).numpy(), expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(fitted.predict_log_proba(torch.tensor(x).double()).numpy(), expected, rtol=1e-11)
    p = np.exp(expected)
    np.testing.assert_allclose(fitted.predict_proba(x), p, atol=2e-5)
    to_onnx(fitted, tmp_path / "c.onnx")
    (by_onnx,) = onnxruntime.InferenceSession(str(tmp_path / "c.onnx")).run(None, {"logits": x})
    np.testing.assert_allclose(by_onnx, p, atol=2e-5)
    np.testing.assert_array_equal(by_onnx == 0.0, p.astype(np.float32) == 0.0)


@pytest.mark.long  # every step is compiled by JAX below, in seconds
def test_jax_predicts_the_same(fitted):
    x = new_rows(fitted.n_features_in_)
    p = fitted.predict_proba(x.astype(np.float64))
    np.testing.assert_allclose(jnp.exp(fitted.predict_log_proba(jnp.asarray(x))), p, atol=2e-5)


@pytest.mark.slow
def test_json_keeps_every_bit(fitted, tmp_path):
    x = new_rows(fitted.n_features_in_).astype(np.float64)
    fitted.save(tmp_path / "c.json")
    loaded = refocal.load(tmp_path / "c.json")
    np.testing.assert_array_equal(loaded.predict_log_proba(x), fitted.predict_log_proba(x))
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "c.json").read_bytes()


STEPS = [
    Floor(-30.0),
    Temperature(1.7),
    Focal(1.3),
    Offset(np.array([0.5, -1.0, 0.0])),
    Unsmooth(0.2),
    Affine("logits", 1.2, np.array([1.0, 0.5, 2.0], dtype=np.float32), np.array([0.0, 1.0, -1.0], dtype=np.float32)),
    Affine("tempered", 0.7, np.eye(3, dtype=np.float32) + np.float32([[0.5], [0], [0]]), np.zeros(3, dtype=np.float32)),
    KeepTop((Affine("log-probabilities", 1.0, np.ones(3, np.float32), np.array([0, 4, 0], np.float32)), Focal(-0.5))),
    Uniform(),
    Mixture((Chain(), Temperature(3.0), Uniform()), np.array([0.5, 0.0, 0.5])),
    OneVsRest(Beta(np.array([[0.5, 1.5, 0.1], [1.0, 1.0, 0.0], [0.0, 2.0, -1.0]]))),
    Confidence(Pieces.of(([-1.0, 1.0], ([-1.0, -1.0, 1.0], [0.5, 1.0, 2.0])))),
    Confidence(VennAbers(*(Pieces.of(([0.5, 1.5], (np.log(p),))) for p in ([0.4, 0.7, 0.9], [0.8, 0.5, 0.3])))),
    OneVsRest(
        Pieces.of(([0.0], ([1, 2], [1, 1])), ([-1.0, 1.0], ([0, 1, 4], [1, 2, 0.5])), ([0.5], ([-1, 3], [0, 1])))
    ),
]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_steps_are_compiled_whole():
    """All in one program, which is compiled in half the time of one for each."""
    torch._dynamo.reset()
    layers = [refocal.nn.CalibrationLayer(step, dtype=torch.float64) for step in STEPS]
    compiled = torch.compile(lambda x: [layer(x) for layer in layers], fullgraph=True, backend="eager")
    jitted = jax.jit(lambda y: [step.with_parameters(jnp.asarray).apply(namespace(y), y) for step in STEPS])
    x = torch.tensor(new_rows(3)).double()
    by_torch, by_jax = compiled(x), jitted(jnp.asarray(x.float().numpy()))
    for step, layer, one, other in zip(STEPS, layers, by_torch, by_jax, strict=True):
        expected, name = layer(x).numpy(), repr(step)
        np.testing.assert_allclose(one.numpy(), expected, rtol=1e-12, atol=1e-12, err_msg=name)
        found = np.exp(log_softmax(np.asarray(other), axis=1))
        np.testing.assert_allclose(found, np.exp(expected), atol=1e-5, err_msg=name)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step).__name__)
def test_steps_say_whether_they_keep_the_order(step):
    x = rows(3, 500, 2)[0]
    kept = np.argmax(Chain((step,)).log_probabilities(x), axis=1) == np.argmax(x, axis=1)
    assert kept.all() == step.keeps_order or isinstance(step, Uniform)
    step.check(3)
    again = step_from_dict(json.loads(json.dumps(to_plain(step))))
    np.testing.assert_array_equal(
        Chain((again,)).log_probabilities(x.astype(np.float32)), Chain((step,)).log_probabilities(x.astype(np.float32))
    )


@pytest.mark.parametrize(("weights", "intercept"), [(3, 2), (2, 3)])
def test_an_affine_step_has_parameters_for_every_class(weights, intercept):
    with pytest.raises(ParameterError, match="fit each other and 3 classes"):
        Affine("tempered", 1.0, np.ones(weights), np.zeros(intercept)).check(3)


def test_the_list_of_steps_is_whole():
    """But the lines of labels, whose rows are (K, 2): tests/calibrators/test_multilabel.py has them in every form.

    A step outside of `refocal.maps` is one that no fitted calibrator has, such as that of a model before its fit.
    """
    own = {kind for kind in Step.__subclasses__() if kind.__module__.startswith("refocal.maps.")}
    assert {kind for step in STEPS for kind in map(type, step.walk())} == own - {LabelLines}


@pytest.mark.parametrize("n_knots", [1, 2, 3, 4, 5, 8, 13])
def test_pieces_are_found_by_binary_search(n_knots):
    rng = np.random.default_rng(n_knots)
    knots = np.sort(rng.normal(size=(4, n_knots)), axis=1)
    coefficients = rng.normal(size=(3, 4, n_knots + 1))
    scores = np.concatenate([rng.normal(size=(50, 4)), knots.T, knots.T - 1e-9])
    found = Pieces(knots, coefficients).apply(XP, scores)
    for (i, r), s in np.ndenumerate(scores):
        piece = sum(knot <= s for knot in knots[r])
        d = s - knots[r][max(piece - 1, 0)]
        expected = sum(coefficients[power, r, piece] * d**power for power in range(3))
        assert found[i, r] == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_one_vs_rest_of_two_classes_has_the_curves_log_odds():
    x = rows(2)[0]
    beta = OneVsRest(Beta(np.array([[0.5, 2.0, 0.3]])))
    s = x[:, 1] - x[:, 0]
    z = 0.5 * log_expit(s) - 2.0 * log_expit(-s) + 0.3
    np.testing.assert_allclose(Chain((beta,)).log_probabilities(x)[:, 1], log_expit(z), rtol=1e-12)


def test_an_impossible_class_shares_no_probability_with_the_top():
    """Its affine score is large, but its probability is 0: only the second class is drawn level with the first."""
    step = KeepTop((Affine("tempered", 1.0, np.ones(3), np.array([0.0, 1.0, 50.0])),))
    p = np.exp(Chain((step,)).log_probabilities(np.array([[1.0, 0.9, -np.inf]])))
    np.testing.assert_allclose(p, [[0.5, 0.5, 0.0]], atol=1e-12)


@pytest.mark.slow
def test_programs_of_curves_take_any_number_of_rows():
    calibrator = AutoCalibration(order_preserving=True, n_folds=2).fit(*rows(4))
    curved = IsotonicCalibration().fit(*rows(4))
    for each in (calibrator, curved):
        program = to_torch_export(each).module()
        for n in (1, 40):
            x = rows(4, n, 3)[0].astype(np.float32)
            np.testing.assert_allclose(program(torch.tensor(x)).exp().numpy(), each.predict_proba(x), atol=2e-6)


def forest_like(n=400, n_classes=3, seed=0):
    """Probabilities as a forest of 50 trees gives them: multiples of 1/50, zeros and ones among them."""
    rng = np.random.default_rng(seed)
    logits = 3.0 * rng.normal(size=(n, n_classes))
    p = rng.multinomial(50, np.exp(log_softmax(logits, axis=1))) / 50
    return p, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_zeros_count_the_same_in_every_precision(name, tmp_path):
    p, labels = forest_like()
    assert (p == 0.0).mean() > 0.1
    fitted = make(name, input="probabilities").fit(p, labels)
    assert fitted.chain_.steps[0] == Floor(np.log(0.5 * p[p > 0].min()))
    expected = fitted.predict_proba(p)
    single = p.astype(np.float32)
    np.testing.assert_allclose(fitted.predict_proba(single), expected, atol=3e-5)
    np.testing.assert_allclose(fitted.predict_proba(torch.tensor(single)).numpy(), expected, atol=3e-5)
    np.testing.assert_allclose(fitted.to_torch()(torch.tensor(single)).exp().numpy(), expected, atol=3e-5)
    to_onnx(fitted, tmp_path / "c.onnx")
    (by_onnx,) = onnxruntime.InferenceSession(str(tmp_path / "c.onnx")).run(None, {"logits": single})
    np.testing.assert_allclose(by_onnx, expected, atol=3e-5)
    in_single = make(name, input="probabilities").fit(single, labels)
    np.testing.assert_allclose(in_single.predict_proba(p), expected, atol=2e-3)


def test_new_probabilities_below_those_of_the_fit_count_as_its_zeros_do():
    """So that the order of zeros and of others stays; log-odds have no such bound."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.3, 0.7, 200)
    labels = (rng.random(200) < p).astype(int)
    new = np.array([0.0, 1e-9, 0.01, 0.1, 0.4, 0.99, 1.0])
    fitted = make("ts", input="probabilities").fit(p, labels)
    least = min(p.min(), 1.0 - p.max()) / 2.0
    odds = np.log(np.maximum(new, least)) - np.log(np.maximum(1.0 - new, least))
    found = fitted.predict_proba(new)[:, 1]
    np.testing.assert_allclose(found, 1.0 / (1.0 + np.exp(-odds / fitted.temperature_)), rtol=1e-9)
    assert np.all(np.diff(found) >= 0.0)
    free = make("ts", input="log-odds").fit(np.log(p / (1.0 - p)), labels).predict_proba(np.log([1e-9]))
    assert free[0, 1] < 1e-8


@pytest.mark.slow
def test_zeros_in_blocks_are_those_of_memory():
    p, labels = forest_like()
    pairs = [(p[i : i + 130], labels[i : i + 130]) for i in range(0, 400, 130)]
    for name, method in NAMED.items():
        if method.in_blocks:
            together = make(name, input="probabilities").fit(p, labels)
            if "strength" in together.get_params():
                together.set_params(strength=1.0).fit(p, labels)
            apart = make(name, input="probabilities").fit(refocal.io.blocks(pairs, input="probabilities"))
            assert apart.chain_.steps[0].log_p == pytest.approx(together.chain_.steps[0].log_p, rel=1e-12)
            np.testing.assert_allclose(apart.predict_proba(p), together.predict_proba(p), atol=1e-6, err_msg=name)
            report = apart.fit_report_["after"]["log_loss"]
            assert report == pytest.approx(together.fit_report_["after"]["log_loss"], rel=1e-6)


def test_probabilities_of_half_precision_are_taken():
    p, labels = forest_like()
    for half in (torch.float16, torch.bfloat16):
        rows = torch.tensor(p).to(half)
        for name in ("ts", "svs", "beta", "ets"):
            fitted = make(name, input="probabilities").fit(rows, torch.tensor(labels))
            found = fitted.predict_proba(rows)
            expected = make(name, input="probabilities").fit(
                rows.double().numpy() / rows.double().sum(1, keepdim=True).numpy(), labels
            )
            np.testing.assert_allclose(found.double().numpy(), expected.predict_proba(p), atol=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_logits_of_half_precision_are_taken(name):
    logits, labels = rows(3)
    for half in (torch.float16, torch.bfloat16):
        x = torch.tensor(logits).to(half)
        found = make(name).fit(x, torch.tensor(labels)).predict_proba(x)
        assert found.dtype == half
        expected = make(name).fit(x.double(), torch.tensor(labels)).predict_proba(x.double())
        np.testing.assert_allclose(found.double().numpy(), expected.numpy(), atol=0.01)
