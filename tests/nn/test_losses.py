"""The losses against references, cross-entropy's conventions, half precision, compilation."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

import reference
from array_libraries import BACKENDS
from refocal.errors import LabelError, ParameterError, ShapeError
from refocal.nn import (
    MMCE,
    AdaFocalLoss,
    BrierLoss,
    FocalLoss,
    ProperFocalLoss,
    SampleDependentFocalLoss,
)

GAMMAS = [-0.5, 0.05, 0.5, 1.0, 5.0]


def adafocal(**options):
    loss = AdaFocalLoss(**options)
    loss.gammas.copy_(torch.linspace(-2.0, 3.0, 15))
    return loss


# Every loss for each label; MMCE, which has none, stands apart.
PER_LABEL = {
    "focal": lambda **o: FocalLoss(2.0, **o),
    "negative_focal": lambda **o: FocalLoss(-0.5, **o),
    "proper_focal": lambda **o: ProperFocalLoss(2.0, **o),
    "sample_dependent": SampleDependentFocalLoss,
    "adafocal": adafocal,
    "brier": BrierLoss,
}
ALL = {**PER_LABEL, "mmce": MMCE}


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    return torch.tensor(rng.normal(scale=2.0, size=(40, 6))), torch.tensor(rng.integers(0, 6, size=40))


def softmax(logits):
    weight = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weight / weight.sum(axis=1, keepdims=True)


def by_hand(name, logits, labels):
    """The loss of each row in plain NumPy, from its definition."""
    q = softmax(logits)
    at = q[np.arange(len(labels)), labels]
    if name == "focal":
        return -((1 - at) ** 2.0) * np.log(at)
    if name == "negative_focal":
        return -((1 - at) ** -0.5) * np.log(at)
    if name == "sample_dependent":
        return -np.where(at < 0.2, (1 - at) ** 5, (1 - at) ** 3) * np.log(at)
    if name == "adafocal":
        gammas = np.linspace(-2.0, 3.0, 15)[np.minimum((at * 15).astype(int), 14)]
        return -np.where(gammas >= 0, (1 - at) ** np.abs(gammas), (1 + at) ** np.abs(gammas)) * np.log(at)
    if name == "brier":
        return ((q - np.eye(q.shape[1])[labels]) ** 2).sum(axis=1)
    target = 0.9 * np.eye(q.shape[1])[labels] + 0.1 / q.shape[1]
    return -(target * np.log(q)).sum(axis=1)


@pytest.mark.parametrize("name", sorted(set(PER_LABEL) - {"proper_focal"}))
def test_values_equal_their_definitions(name, sample):
    logits, labels = sample
    want = by_hand(name, logits.numpy(), labels.numpy())
    loss = PER_LABEL[name](reduction="none")
    np.testing.assert_allclose(loss(logits, labels), want, rtol=1e-10 if name != "adafocal" else 1e-6)
    got = loss(logits.float(), labels)
    assert got.dtype == torch.float32
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)


def focal_gradient(logits, label, gamma):
    """dL/ds = L'(q_y) q_y ([j = y] - q_j), in arbitrary precision, 1 - q from the other classes."""
    with mp.workdps(50):
        gamma = mp.mpf(gamma)
        weights = [mp.exp(mp.mpf(float(s)) - mp.mpf(float(max(logits)))) for s in logits]
        total = mp.fsum(weights)
        q = [w / total for w in weights]
        others = [mp.fsum(w for i, w in enumerate(weights) if i != j) for j in range(len(weights))]
        not_q = others[label] / total
        log_q = -mp.log1p(others[label] / weights[label])
        slope = gamma * not_q ** (gamma - 1) * log_q - not_q**gamma / q[label]
        return [float(slope * q[label] * (others[j] / total if j == label else -q[j])) for j in range(len(q))]


@pytest.mark.parametrize("gamma", [-0.9, *GAMMAS])
def test_focal_values_and_gradients_equal_arbitrary_precision_in_float32(gamma):
    rng = np.random.default_rng(3)
    rows = np.concatenate([scale * rng.normal(size=(4, 5)) for scale in (0.0, 0.1, 1.0, 5.0, 20.0)])
    logits = torch.tensor(rows, dtype=torch.float32, requires_grad=True)
    labels = torch.tensor(rng.integers(0, 5, size=len(rows)))
    values = FocalLoss(gamma, reduction="none")(logits, labels)
    values.sum().backward()
    known = logits.detach().numpy()
    want = [float(reference.focal_loss(row, y, gamma)) for row, y in zip(known, labels.tolist(), strict=True)]
    np.testing.assert_allclose(values.detach(), want, rtol=2e-6, atol=1e-6)
    slopes = [focal_gradient(row, y, gamma) for row, y in zip(known, labels.tolist(), strict=True)]
    np.testing.assert_allclose(logits.grad, slopes, rtol=5e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_proper_part_is_focal_loss_behind_the_map(gamma):
    rng = np.random.default_rng(4)
    logits, labels = rng.normal(scale=2.0, size=(12, 4)), rng.integers(0, 4, size=12)
    log_p = [[float(v) for v in reference.focal_temperature(row, gamma)] for row in logits]
    want = [float(reference.focal_loss(row, y, gamma)) for row, y in zip(logits, labels, strict=True)]
    loss = ProperFocalLoss(gamma, reduction="none")
    np.testing.assert_allclose(loss(torch.tensor(log_p), torch.tensor(labels)), want, rtol=1e-5, atol=1e-6)
    exact = loss(torch.tensor(log_p, dtype=torch.float64), torch.tensor(labels))
    np.testing.assert_allclose(exact, want, rtol=1e-10)


def test_mmce_equals_a_double_loop(sample):
    logits, labels = sample
    q = softmax(logits.numpy())
    r, c = q.max(axis=1), (q.argmax(axis=1) == labels.numpy()).astype(float)
    total = sum(
        (r[i] - c[i]) * (r[j] - c[j]) * np.exp(-abs(r[i] - r[j]) / 0.4) for i in range(len(r)) for j in range(len(r))
    )
    cross_entropy = -np.log(q[np.arange(len(r)), labels]).mean()
    want = cross_entropy + 3.0 * np.sqrt(total) / len(r)
    assert MMCE(3.0)(logits, labels).item() == pytest.approx(want, rel=1e-12)
    # Ignored rows count for nothing, and a batch without error asks for no change.
    padded = torch.cat([logits, logits[:5]]), torch.cat([labels, torch.full((5,), -100)])
    assert MMCE(3.0)(*padded).item() == pytest.approx(want, rel=1e-12)
    certain = torch.tensor([[1e4, 0.0], [0.0, 1e4]], requires_grad=True)
    MMCE()(certain, torch.tensor([0, 1])).backward()
    assert (certain.grad == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_gradients_match_finite_differences(name, sample):
    rows = torch.cat([sample[0][:7], torch.zeros(1, 6, dtype=torch.float64)])
    labels = torch.cat([sample[1][:7], torch.tensor([2])])
    # MMCE takes the larger of equal classes: at a tie, and in the kernel at equal confidences, it has a kink.
    rows = rows[:7] if name == "mmce" else rows
    loss = ALL[name](weight=torch.rand(6, dtype=torch.float64) + 0.5)
    assert gradcheck(lambda x: loss(x, labels[: len(x)]), (rows.requires_grad_(),), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("make", [FocalLoss, ProperFocalLoss])
def test_gradients_are_finite_at_gaps_of_200(make, gamma, kind):
    rows = [[200.0, 0.0, 0.0], [0.0, 200.0, 0.0], [0.0, 0.0, 0.0], [100.0, -100.0, 0.0], [200.0, 200.0, 0.0]]
    for label in range(3):
        logits = torch.tensor(rows, dtype=kind, requires_grad=True)
        value = make(gamma)(logits, torch.full((5,), label))
        value.backward()
        assert value.dtype == torch.float32
        assert torch.isfinite(value)
        assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ALL)
def test_autocast_changes_only_the_logits(name, kind, sample):
    torch.manual_seed(0)
    model = nn.Linear(6, 6)
    model.weight.data *= 40.0
    with torch.autocast("cpu", dtype=kind):
        logits = model(sample[0].float())
        assert logits.dtype == kind
        value = ALL[name]()(logits, sample[1])
    value.backward()
    assert value.dtype == torch.float32
    assert value.item() == ALL[name]()(logits.detach().float(), sample[1]).item()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(5,), (7, 5), (7, 5, 3), (2, 5, 3, 4)])
def test_shapes_weights_and_ignored_labels_are_those_of_cross_entropy(shape, weighted, reduction):
    torch.manual_seed(len(shape))
    logits = torch.randn(shape, dtype=torch.float64)
    labels = torch.randint(5, (shape[0], *shape[2:]) if len(shape) > 1 else ())
    options = {"reduction": reduction, "weight": torch.rand(5, dtype=torch.float64) if weighted else None}
    if len(shape) > 1:
        labels[0] = 3
        options["ignore_index"] = 3
    want = nn.CrossEntropyLoss(**options)(logits, labels)
    torch.testing.assert_close(FocalLoss(0.0, **options)(logits, labels), want, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", PER_LABEL)
def test_pixels_are_rows(name):
    torch.manual_seed(1)
    logits, labels = torch.randn(2, 4, 3, 5), torch.randint(4, (2, 3, 5))
    got = PER_LABEL[name](reduction="none")(logits, labels)
    want = PER_LABEL[name](reduction="none")(logits.permute(0, 2, 3, 1).reshape(-1, 4), labels.reshape(-1))
    torch.testing.assert_close(got.reshape(-1), want, rtol=0, atol=0)


@pytest.mark.parametrize("name", ALL)
def test_ignored_rows_may_hold_anything(name, sample):
    logits, labels = sample[0].clone(), sample[1].clone()
    logits[3], labels[3] = torch.nan, -100
    logits.requires_grad_()
    value = ALL[name]()(logits, labels)
    value.backward()
    kept = torch.arange(40) != 3
    assert value.item() == pytest.approx(ALL[name]()(sample[0][kept], labels[kept]).item(), rel=1e-12)
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[3] == 0).all()


def test_gamma_may_differ_from_label_to_label(sample):
    logits, labels = sample
    gamma = torch.linspace(-0.5, 5.0, 40, dtype=torch.float64)
    for make in (FocalLoss, ProperFocalLoss):
        want = torch.stack([make(g.item())(x[None], y[None]) for g, x, y in zip(gamma, logits, labels, strict=True)])
        torch.testing.assert_close(make(gamma, reduction="none")(logits, labels), want, rtol=1e-12, atol=0)
        torch.testing.assert_close(make(reduction="none")(logits, labels, gamma), want, rtol=1e-12, atol=0)
    with pytest.raises(ShapeError, match="'gamma' of FocalLoss"):
        FocalLoss()(logits, labels, gamma[:3])
    with pytest.raises(ParameterError, match=r"'gamma' of FocalLoss must be finite and greater than -1. Got -1.5"):
        FocalLoss()(logits, labels, gamma - 1.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, about torch.jit
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("focal", "adafocal") else pytest.mark.long)
        for name in sorted(set(ALL) - {"negative_focal"})
    ],
)
def test_no_graph_break_and_no_graph_for_each_batch_size(name):
    torch._dynamo.reset()
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("eager")
    loss = ALL[name]()
    compiled = torch.compile(loss, backend=counter, fullgraph=True, dynamic=True)
    for n in (4, 7, 9):
        logits, labels = torch.randn(n, 5, 3), torch.randint(5, (n, 3))
        one, two = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        value, eager = compiled(one, labels), loss(two, labels)
        value.backward(), eager.backward()
        torch.testing.assert_close(value, eager, rtol=1e-6, atol=0)
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-5, atol=1e-7)
    assert counter.frame_count < 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_losses_give_the_eager_result(backend):
    torch._dynamo.reset()
    loss = FocalLoss(0.5)
    one = (30.0 * torch.randn(16, 5)).requires_grad_()
    two = one.detach().clone().requires_grad_()
    labels = torch.randint(5, (16,))
    value, eager = torch.compile(loss, fullgraph=True, backend=backend)(one, labels), loss(two, labels)
    value.backward(), eager.backward()
    torch.testing.assert_close(value, eager, rtol=1e-6, atol=0)
    torch.testing.assert_close(one.grad, two.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ALL)
def test_labels_out_of_range_are_named(name, sample):
    for bad in (6, -1):
        labels = sample[1].clone()
        labels[0] = bad
        with pytest.raises(LabelError, match=r"The 'labels' of .* must be between 0 and 5, or ignore_index \(-100\)"):
            ALL[name]()(sample[0], labels)


@pytest.mark.parametrize("name", ALL)
def test_a_mark_of_rows_without_a_label_is_a_number(name):
    """A text was an error of torch about `where`, with the first batch."""
    for bad in ("unlabelled", [-100], True):
        with pytest.raises(ParameterError, match=r"The 'ignore_index' of \w+ must be a finite number"):
            ALL[name](ignore_index=bad)


def test_labels_are_not_read_where_that_would_wait_for_a_device():
    """The meta device stands for any that is not the CPU: reading a value there is an error."""
    logits, labels = torch.randn(4, 5, device="meta"), torch.zeros(4, dtype=torch.int64, device="meta")
    for name in set(ALL) - {"proper_focal"}:  # which looks whether its search is done, and says so
        assert ALL[name]().to("meta")(logits, labels).shape == ()
    with pytest.raises(RuntimeError):
        FocalLoss(validate=True)(logits, labels)


def test_other_bad_input_is_named(sample):
    logits, labels = sample
    with pytest.raises(ShapeError, match=r"The 'labels' of BrierLoss must be of shape \(40,\)"):
        BrierLoss()(logits, labels[:3])
    with pytest.raises(LabelError, match=r"must be integers, or probabilities .*\(40, 6\). Got dtype"):
        FocalLoss()(logits, labels.float())
    with pytest.raises(ShapeError, match="floating-point"):
        FocalLoss()(labels, labels)
    with pytest.raises(ShapeError, match=r"The 'weight' of FocalLoss must be of shape \(6,\)"):
        FocalLoss(weight=torch.ones(5))(logits, labels)
    for wrong in (
        lambda: FocalLoss(-1.0),
        lambda: FocalLoss(float("nan")),
        lambda: FocalLoss("2"),
        lambda: FocalLoss(torch.tensor([2.0, -3.0])),
        lambda: FocalLoss(reduction="max"),
        lambda: FocalLoss(weight=-torch.ones(3)),
        lambda: FocalLoss(weight=[1.0, 2.0, 3.0]),
        lambda: SampleDependentFocalLoss(gamma_below=-2.0),
        lambda: MMCE(reduction="none"),
        lambda: MMCE(width=0.0),
        lambda: MMCE(-1.0),
        lambda: AdaFocalLoss(n_bins=0),
        lambda: AdaFocalLoss(initial=30.0),
        lambda: AdaFocalLoss(initial="1"),
        lambda: AdaFocalLoss(switch=3.0),  # the lowest γ is -2
        lambda: AdaFocalLoss(rate=-1.0),
    ):
        with pytest.raises(ParameterError):
            wrong()
