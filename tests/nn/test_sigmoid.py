"""The losses of sigmoids against torchvision's and timm's formulas, arbitrary precision, and their own maps."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy.special import expit
from torch import nn
from torch.autograd import gradcheck
from torch.nn.functional import binary_cross_entropy_with_logits

from array_libraries import MAKE
from helpers import to_numpy
from refocal import losses
from refocal.errors import LabelError, ParameterError, ShapeError
from refocal.maps import asymmetric_focal, sigmoid_focal, sigmoid_unsmooth
from refocal.nn import AsymmetricFocalLoss, SigmoidFocalLoss

pytestmark = pytest.mark.numerics

EXTREME = [0.0, 1e-9, 1.0, 20.0, 90.0, 200.0, 1e4]
EXTREME = [-s for s in EXTREME[:0:-1]] + EXTREME


def torchvision_loss(logits, labels, alpha, gamma, reduction):
    """The formula of torchvision.ops.sigmoid_focal_loss."""
    p = torch.sigmoid(logits)
    p_t = p * labels + (1 - p) * (1 - labels)
    loss = binary_cross_entropy_with_logits(logits, labels, reduction="none") * (1 - p_t) ** gamma
    if alpha >= 0:
        loss = (alpha * labels + (1 - alpha) * (1 - labels)) * loss
    return {"none": loss, "mean": loss.mean(), "sum": loss.sum()}[reduction]


def timm_loss(logits, labels, gamma_neg=4.0, gamma_pos=1.0, clip=0.05, eps=1e-8):
    """The formula of timm.loss.AsymmetricLossMultiLabel, for each label."""
    q = torch.sigmoid(logits)
    not_q = (1 - q + clip).clamp(max=1)
    loss = labels * torch.log(q.clamp(min=eps)) + (1 - labels) * torch.log(not_q.clamp(min=eps))
    p_t = q * labels + not_q * (1 - labels)
    return -loss * (1 - p_t) ** (gamma_pos * labels + gamma_neg * (1 - labels))


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    logits = torch.tensor(3.0 * rng.normal(size=(50, 4)), requires_grad=True)
    return logits, torch.tensor(rng.integers(0, 2, size=(50, 4)))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(("gamma", "alpha"), [(2.0, 0.25), (0.0, 0.75), (0.5, -1), (1.5, 0.1)])
def test_values_and_gradients_are_torchvisions(batch, gamma, alpha, reduction):
    logits, labels = batch
    found = SigmoidFocalLoss(gamma, None if alpha < 0 else alpha, reduction=reduction)(logits, labels)
    expected = torchvision_loss(logits, labels.double(), alpha, gamma, reduction)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    (by_us,), (by_them,) = (torch.autograd.grad(each.sum(), logits) for each in (found, expected))
    torch.testing.assert_close(by_us, by_them, rtol=1e-10, atol=1e-13)


def test_values_are_timms(batch):
    logits, labels = batch
    found = AsymmetricFocalLoss(reduction="none")(logits, labels)
    torch.testing.assert_close(found, timm_loss(logits, labels.double()), rtol=1e-10, atol=1e-12)
    found = AsymmetricFocalLoss(gamma_positive=0.0, gamma_negative=2.0, margin=0.0, reduction="none")(logits, labels)
    torch.testing.assert_close(found, timm_loss(logits, labels.double(), 2.0, 0.0, 0.0), rtol=1e-10, atol=1e-12)


def test_gradients_are_finite_where_torchvisions_are_not():
    s, y = torch.tensor([20.0], requires_grad=True), torch.tensor([1.0])
    torchvision_loss(s, y, 0.25, 0.5, "sum").backward()
    assert torch.isnan(s.grad).all()
    for gamma in (-0.9, -0.5, 0.05, 0.5, 2.0, 50.0):
        for loss in (
            SigmoidFocalLoss(gamma),
            AsymmetricFocalLoss(gamma_positive=abs(gamma), gamma_negative=abs(gamma)),
        ):
            for label in (0.0, 1.0):
                s = torch.tensor(EXTREME, requires_grad=True)
                loss(s, torch.full_like(s, label)).backward()
                assert torch.isfinite(s.grad).all()


@pytest.mark.parametrize("gamma", [-0.9, 0.05, 2.0, 50.0])
def test_values_agree_with_arbitrary_precision(gamma):
    with mp.workdps(60):
        g = mp.mpf(gamma)
        want = [mp.exp(-g * mp.log1p(mp.exp(s))) * mp.log1p(mp.exp(-mp.mpf(s))) for s in EXTREME]
    found = losses.sigmoid_focal(np.array(EXTREME), np.ones(len(EXTREME)), gamma)
    np.testing.assert_allclose(found, np.array([float(w) for w in want]), rtol=1e-11, atol=1e-300)
    flipped = losses.sigmoid_focal(-np.array(EXTREME), np.zeros(len(EXTREME)), gamma, 0.25)
    np.testing.assert_allclose(flipped, 0.75 * found, rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize("library", ["torch", pytest.param("jax", marks=pytest.mark.slow), "array_api_strict"])
def test_every_library_gives_the_same(library):
    s = np.random.default_rng(1).normal(size=(3, 4))
    y = (s > 0.3).astype(float)
    make = MAKE[library]
    asymmetric = {"gamma_positive": 1.0, "gamma_negative": 4.0, "margin": 0.05}
    for function, settings in (
        (losses.sigmoid_focal, {"gamma": 2.0, "alpha": 0.25}),
        (losses.asymmetric_focal, asymmetric),
    ):
        found = function(make(s), make(y), **settings, label_smoothing=0.1, reduction="mean")
        np.testing.assert_allclose(to_numpy(found), function(s, y, **settings, label_smoothing=0.1).mean(), rtol=1e-12)


def minimiser(loss, p):
    """Where the expected loss is smallest: labels between 0 and 1 weigh its two halves."""
    s = torch.zeros(len(p), dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS([s], max_iter=500, tolerance_grad=1e-14, tolerance_change=1e-16,
                               line_search_fn="strong_wolfe")  # fmt: skip

    def closure():
        solver.zero_grad()
        value = loss(s, torch.tensor(p))
        value.backward()
        return value

    solver.step(closure)
    return s.detach().numpy()


def test_the_maps_take_the_losses_out_again():
    p = np.linspace(0.05, 0.9, 12)
    for gamma, alpha, smoothing in ((2.0, 0.25, 0.0), (0.5, 0.9, 0.1)):
        s = minimiser(SigmoidFocalLoss(gamma, alpha, label_smoothing=smoothing, reduction="sum"), p)
        found = sigmoid_unsmooth(sigmoid_focal(s, gamma, alpha), smoothing)
        np.testing.assert_allclose(expit(found), p, atol=1e-6)
    s = minimiser(AsymmetricFocalLoss(reduction="sum"), p)
    np.testing.assert_allclose(
        expit(asymmetric_focal(s, gamma_positive=1.0, gamma_negative=4.0, margin=0.05)), p, atol=1e-6
    )


def test_settings_for_each_label_smoothing_and_ignored_labels(batch):
    logits, labels = batch
    gamma, alpha = torch.tensor([0.5, 1.0, 2.0, 3.0]), torch.tensor([0.1, 0.25, 0.5, 0.9])
    together = SigmoidFocalLoss(gamma, alpha, reduction="none")(logits, labels)
    for k in range(4):
        alone = SigmoidFocalLoss(float(gamma[k]), float(alpha[k]), reduction="none")(logits[:, k], labels[:, k])
        torch.testing.assert_close(together[:, k], alone, rtol=1e-6, atol=1e-9)
    assert SigmoidFocalLoss(gamma, alpha).to("meta").gamma.device.type == "meta"
    loss = SigmoidFocalLoss(2.0, 0.25, reduction="none")
    smooth = SigmoidFocalLoss(2.0, 0.25, label_smoothing=0.2, reduction="none")(logits, labels)
    torch.testing.assert_close(smooth, 0.9 * loss(logits, labels) + 0.1 * loss(logits, 1 - labels))

    marked = labels.clone()
    marked[::2, 1] = -1
    kept = marked >= 0
    unread = torch.where(kept, logits.detach(), torch.nan).requires_grad_()
    value = SigmoidFocalLoss(ignore_index=-1)(unread, marked)
    torch.testing.assert_close(value, SigmoidFocalLoss()(logits[kept], labels[kept]))
    value.backward()
    assert torch.isfinite(unread.grad).all()


@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_an_infinite_loss_that_the_label_rules_out_leaves_nothing(margin):
    """Log-odds of -inf, as of masked labels, where the label is 0: the same as of log-odds that are very small."""
    settings = {"gamma_positive": 1.0, "gamma_negative": 4.0, "margin": margin}
    s, y = np.array([-np.inf, 1.0, -np.inf]), np.array([0.0, 0.0, 1.0])
    for found, known in (
        (losses.sigmoid_focal(s, y, 2.0, 0.25), losses.sigmoid_focal(s[1:2], y[1:2], 2.0, 0.25)),
        (losses.asymmetric_focal(s, y, **settings), losses.asymmetric_focal(s[1:2], y[1:2], **settings)),
    ):
        np.testing.assert_array_equal(found, [0.0, known[0], np.inf])
    for loss in (SigmoidFocalLoss(), SigmoidFocalLoss(-0.5, None), AsymmetricFocalLoss(margin=margin)):
        logits = torch.tensor([-torch.inf, 1.0, torch.inf], requires_grad=True)
        loss(logits, torch.tensor([0, 0, 1])).backward()
        (alone,) = torch.autograd.grad(loss(logits[1:2], torch.tensor([0])), logits)
        torch.testing.assert_close(logits.grad, torch.tensor([0.0, float(alone[1]) / 3.0, 0.0]))


@pytest.mark.slow
def test_half_precision_compilation_and_finite_differences(batch):
    logits, labels = batch
    half = SigmoidFocalLoss()(logits.detach().bfloat16(), labels)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, SigmoidFocalLoss()(logits.detach().bfloat16().float(), labels))
    for loss in (SigmoidFocalLoss(1.5, 0.3), AsymmetricFocalLoss()):
        assert gradcheck(lambda s, loss=loss: loss(s, labels[:5]), (logits[:5].detach().requires_grad_(),))
        torch._dynamo.reset()
        compiled = torch.compile(loss, fullgraph=True, backend="eager", dynamic=True)
        torch.testing.assert_close(compiled(logits, labels), loss(logits, labels))


def test_bad_input_is_named(batch):
    logits, labels = batch
    with pytest.raises(
        LabelError, match=r"'labels' of SigmoidFocalLoss must be between 0 and 1\. Got labels from 0 to 2"
    ):
        SigmoidFocalLoss()(logits, 2 * labels)
    with pytest.raises(ShapeError, match=r"'labels' of SigmoidFocalLoss must be of the shape of the logits, \(50, 4\)"):
        SigmoidFocalLoss()(logits, labels[:, 0])
    with pytest.raises(ParameterError, match=r"'alpha' of SigmoidFocalLoss must be .* less than 1. Got 25"):
        SigmoidFocalLoss(alpha=25)
    with pytest.raises(
        ParameterError, match=r"'gamma' of SigmoidFocalLoss must be finite and greater than -1. Got -1.0"
    ):
        SigmoidFocalLoss(torch.tensor([2.0, -1.0]))
    with pytest.raises(ParameterError, match="'gamma_negative' of AsymmetricFocalLoss must be"):
        AsymmetricFocalLoss(gamma_negative=-0.5)
    with pytest.raises(ShapeError, match="'logits' of SigmoidFocalLoss must be a floating-point tensor, or the output"):
        SigmoidFocalLoss()({"scores": logits}, labels)
    with pytest.raises(ParameterError, match="'reduction' of AsymmetricFocalLoss"):
        AsymmetricFocalLoss(reduction="batchmean")


def test_a_network_trained_with_it_is_calibrated_by_its_map():
    """Logistic regression on one feature, 3 % positives, γ = 2 and α = 0.25: the map needs no rows."""
    torch.manual_seed(0)
    x = torch.randn(20_000, 1)
    eta = 1.5 * x[:, 0] - 4.0
    y = torch.bernoulli(torch.sigmoid(eta))
    basis = torch.cat([x, x**2, x**3], dim=1)  # the minimiser is no straight line
    model = nn.Linear(3, 1)
    solver = torch.optim.LBFGS(model.parameters(), max_iter=200, line_search_fn="strong_wolfe")
    loss = SigmoidFocalLoss(2.0, 0.25)

    def closure():
        solver.zero_grad()
        value = loss(model(basis)[:, 0], y)
        value.backward()
        return value

    solver.step(closure)
    raw = model(basis)[:, 0].detach()
    known = sigmoid_focal(raw, 2.0, 0.25)
    best = binary_cross_entropy_with_logits(eta, y)
    assert binary_cross_entropy_with_logits(raw, y) > 1.4 * best
    assert binary_cross_entropy_with_logits(known, y) < 1.02 * best
