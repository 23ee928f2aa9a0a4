"""Soft targets, label smoothing and γ of classes: cross-entropy's conventions, plain loops, gradients, minimisers."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from refocal.errors import LabelError, ParameterError, ShapeError
from refocal.maps import focal, unsmooth
from refocal.nn import (
    MMCE,
    AdaFocalLoss,
    AsymmetricFocalLoss,
    BrierLoss,
    FocalLoss,
    ProperFocalLoss,
    SampleDependentFocalLoss,
    SigmoidFocalLoss,
)


def adafocal(**options):
    loss = AdaFocalLoss(**options)
    loss.gammas.copy_(torch.linspace(-2.0, 3.0, 15))
    return loss


PER_LABEL = {
    "focal": lambda **o: FocalLoss(2.0, **o),
    "negative_focal": lambda **o: FocalLoss(-0.5, **o),
    "class_gamma": lambda **o: FocalLoss(class_gamma=torch.linspace(-0.5, 3.0, 5, dtype=torch.float64), **o),
    "proper_focal": lambda **o: ProperFocalLoss(2.0, **o),
    "sample_dependent": SampleDependentFocalLoss,
    "adafocal": adafocal,
    "brier": BrierLoss,
}


@pytest.fixture
def batch():
    """Logits (12, 5), labels (12,) and soft targets (12, 5)."""
    rng = np.random.default_rng(0)
    logits = torch.tensor(2.0 * rng.normal(size=(12, 5)))
    return logits, torch.tensor(rng.integers(5, size=12)), torch.tensor(rng.dirichlet(np.ones(5), size=12))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(5,), (7, 5), (2, 5, 3, 4)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_targets_weights_and_smoothing_are_those_of_cross_entropy(shape, weighted, reduction, smoothing):
    torch.manual_seed(len(shape))
    logits = torch.randn(shape, dtype=torch.float64)
    weight = torch.rand(5, dtype=torch.float64) if weighted else None
    options = {"reduction": reduction, "weight": weight, "label_smoothing": smoothing}
    labels = torch.randint(5, (shape[0], *shape[2:]) if len(shape) > 1 else ())
    if len(shape) > 1:
        labels[0] = -100
    soft = torch.randn(shape, dtype=torch.float64).softmax(0 if len(shape) == 1 else 1)
    for targets in (labels, soft):
        want = nn.CrossEntropyLoss(**options)(logits, targets)
        torch.testing.assert_close(FocalLoss(0.0, **options)(logits, targets), want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", PER_LABEL)
def test_a_soft_target_costs_the_losses_of_the_labels_by_their_shares(name, batch):
    logits, labels, soft = batch
    weight = torch.linspace(0.5, 2.0, 5, dtype=torch.float64)
    loss = PER_LABEL[name](reduction="none")
    of_class = torch.stack([loss(logits, torch.full((12,), k)) for k in range(5)], dim=1)
    rtol = 1e-6 if name == "adafocal" else 1e-10  # whose γ are in float32
    torch.testing.assert_close(loss(logits, soft), (soft * of_class).sum(1), rtol=rtol, atol=1e-12)
    weighted = PER_LABEL[name](reduction="none", weight=weight)
    torch.testing.assert_close(weighted(logits, soft), (soft * weight * of_class).sum(1), rtol=rtol, atol=1e-12)
    smoothed = PER_LABEL[name](reduction="none", label_smoothing=0.2)
    targets = 0.8 * nn.functional.one_hot(labels, 5).double() + 0.04
    torch.testing.assert_close(smoothed(logits, labels), (targets * of_class).sum(1), rtol=rtol, atol=1e-12)
    one_hot = nn.functional.one_hot(labels, 5).double()
    torch.testing.assert_close(loss(logits, one_hot), loss(logits, labels), rtol=rtol, atol=1e-12)


@pytest.mark.parametrize("name", PER_LABEL)
def test_mixup_by_targets_is_mixup_by_losses(name, batch):
    logits, labels, _ = batch
    others = labels.roll(1)
    share = 0.3
    one_hot = nn.functional.one_hot(torch.stack([labels, others]), 5).double()
    loss = PER_LABEL[name]()
    mixed = loss(logits, share * one_hot[0] + (1.0 - share) * one_hot[1])
    want = share * loss(logits, labels) + (1.0 - share) * loss(logits, others)
    torch.testing.assert_close(mixed, want, rtol=1e-6 if name == "adafocal" else 1e-10, atol=0)


@pytest.mark.parametrize("name", sorted(PER_LABEL))
def test_gradients_of_targets_match_finite_differences(name, batch):
    logits, labels, soft = batch
    # AdaFocal and the sample-dependent loss jump where a probability crosses into another bin: steps stay small.
    plain = PER_LABEL[name](weight=torch.linspace(0.5, 2.0, 5, dtype=torch.float64))
    smoothed = PER_LABEL[name](label_smoothing=0.1)
    rows = logits[:3].clone().requires_grad_()
    assert gradcheck(lambda x: plain(x, soft[:3]), (rows,), atol=1e-6, rtol=1e-4)
    assert gradcheck(lambda x: smoothed(x, labels[:3]), (rows,), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("gamma", [-0.5, 0.05, 0.5, 1.0, 5.0])
@pytest.mark.parametrize("make", [FocalLoss, ProperFocalLoss])
def test_gradients_of_targets_are_finite_at_gaps_of_200_and_at_impossible_classes(make, gamma):
    rows = [[200.0, 0.0, 0.0], [0.0, 200.0, 0.0], [0.0, 0.0, 0.0], [100.0, -100.0, 0.0], [1.0, -torch.inf, 0.0]]
    soft = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.3, 0.3, 0.4], [0.0, 0.9, 0.1], [0.7, 0.0, 0.3]])
    for kind in (torch.float32, torch.bfloat16):
        logits = torch.tensor(rows, dtype=kind, requires_grad=True)
        value = make(gamma)(logits, soft.to(kind))
        value.backward()
        assert value.dtype == torch.float32
        assert torch.isfinite(value)
        assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize(("gamma", "smoothing"), [(2.0, 0.1), (0.5, 0.3), (0.0, 0.2)])
def test_the_maps_undo_focal_loss_with_smoothing(gamma, smoothing):
    """The minimiser of the expected loss, found by torch's own optimiser, is taken back to the truth."""
    truth = torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]], dtype=torch.float64)
    weight = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    logits = torch.zeros_like(truth, requires_grad=True)
    loss = FocalLoss(gamma, label_smoothing=smoothing, weight=weight, reduction="sum")
    optimizer = torch.optim.LBFGS([logits], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-16)

    def closure():
        optimizer.zero_grad()
        value = loss(logits, truth)
        value.backward()
        return value

    for _ in range(3):
        optimizer.step(closure)
    log_p = unsmooth(focal(logits.detach().numpy(), gamma, class_weight=weight.numpy()), smoothing)
    np.testing.assert_allclose(np.exp(log_p), truth, atol=1e-6)


def test_gamma_of_a_class_is_that_of_its_labels(batch):
    logits, labels, _ = batch
    gammas = torch.linspace(-0.5, 3.0, 5, dtype=torch.float64)
    by_class = FocalLoss(class_gamma=gammas, reduction="none")
    by_sample = FocalLoss(reduction="none")(logits, labels, gammas[labels])
    torch.testing.assert_close(by_class(logits, labels), by_sample, rtol=0, atol=0)
    assert "class_gamma=tensor of shape (5,), label_smoothing=0.0" in repr(by_class)
    # As many rows as classes: a tensor of that length is still one γ for each sample.
    square = FocalLoss(gammas, reduction="none")(logits[:5], labels[:5])
    torch.testing.assert_close(square, FocalLoss(reduction="none")(logits[:5], labels[:5], gammas), rtol=0, atol=0)
    assert not torch.allclose(square, by_class(logits[:5], labels[:5]))
    with pytest.raises(ShapeError, match=r"'gamma' of FocalLoss .*\(one γ for each class: class_gamma\)"):
        FocalLoss(gammas)(logits, labels)
    with pytest.raises(ShapeError, match=r"'class_gamma' of FocalLoss must be of shape \(5,\)"):
        FocalLoss(class_gamma=gammas[:3])(logits, labels)
    with pytest.raises(ParameterError, match="'gamma' of FocalLoss must be left out"):
        by_class(logits, labels, gammas[labels])
    for wrong in (2.0, gammas[None], -gammas - 1.0):
        with pytest.raises(ParameterError, match="'class_gamma' of FocalLoss"):
            FocalLoss(class_gamma=wrong)


def test_mmce_takes_soft_targets(batch):
    logits, labels, soft = batch
    one_hot = nn.functional.one_hot(labels, 5).double()
    torch.testing.assert_close(MMCE(3.0)(logits, one_hot), MMCE(3.0)(logits, labels), rtol=1e-12, atol=0)
    q = logits.softmax(1)
    confidence, top = q.max(1)
    excess = confidence - soft[torch.arange(12), top]
    kernel = torch.exp(-(confidence[:, None] - confidence).abs() / 0.4)
    error = (excess[:, None] * kernel * excess).sum().sqrt() / 12
    smoothed = nn.CrossEntropyLoss(label_smoothing=0.1)(logits, soft)
    torch.testing.assert_close(MMCE(3.0, label_smoothing=0.1)(logits, soft), smoothed + 3.0 * error)


def test_bad_targets_are_named(batch):
    logits, _, soft = batch
    for wrong in (2.0 * soft, soft - 0.5, logits):
        with pytest.raises(LabelError, match="'labels' of BrierLoss must be probabilities that sum to 1"):
            BrierLoss()(logits, wrong)
    with pytest.raises(LabelError, match=r"'labels' of FocalLoss .*of the shape of the logits, \(12, 5\)"):
        FocalLoss()(logits, soft[:, :4])
    with pytest.raises(LabelError, match=r"'labels' of AdaFocalLoss.update must be integers"):
        AdaFocalLoss().update(logits, soft)
    with pytest.raises(ParameterError, match="'label_smoothing' of MMCE"):
        MMCE(label_smoothing=1.0)


@pytest.mark.parametrize(
    "kind",
    [
        MMCE,
        AdaFocalLoss,
        AsymmetricFocalLoss,
        BrierLoss,
        FocalLoss,
        ProperFocalLoss,
        SampleDependentFocalLoss,
        SigmoidFocalLoss,
    ],
)
def test_signatures_say_every_setting_and_errors_name_the_class(kind):
    parameters = inspect.signature(kind).parameters.values()
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters)
    assert {"label_smoothing", "ignore_index", "reduction", "validate"} <= {parameter.name for parameter in parameters}
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\.__init__"):
        kind(smoothing=0.1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_targets_compile_into_one_graph(batch):
    torch._dynamo.reset()
    loss = FocalLoss(2.0, label_smoothing=0.1)
    compiled = torch.compile(loss, backend="eager", fullgraph=True, dynamic=True)
    for n in (5, 8, 12):
        for targets in (batch[1][:n], batch[2][:n]):
            torch.testing.assert_close(compiled(batch[0][:n], targets), loss(batch[0][:n], targets))
