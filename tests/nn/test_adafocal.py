"""AdaFocal against a slow, literal loop from its description, and its state."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from refocal.errors import LabelError, ParameterError, ShapeError
from refocal.io import Predictions
from refocal.nn import AdaFocalLoss, collect_logits


class Literal:
    """The description, word by word: sorted samples, bins one by one, samples one by one."""

    def __init__(self, n_bins=15, rate=1.0):
        self.rate = rate
        self.gammas = [1.0] * n_bins
        self.starts = [k / n_bins for k in range(n_bins)]

    def update(self, confidences, correct):
        n, n_bins = len(confidences), len(self.gammas)
        bins = [[] for _ in range(n_bins)]
        for c, right in zip(confidences, correct, strict=True):
            below = sum(other < c for other in confidences)
            bins[below * n_bins // n].append((c, right))
        start = math.inf
        for k in reversed(range(n_bins)):
            start = min([start, *(c for c, _ in bins[k])])
            self.starts[k] = start
        for k, members in enumerate(bins):
            if members:
                gap = sum(c for c, _ in members) / len(members) - sum(r for _, r in members) / len(members)
                self.gammas[k] = self.moved(self.gammas[k], gap)

    def moved(self, gamma, gap):
        if gamma > 0:
            gamma = gamma * math.exp(self.rate * gap)
            if gamma < 0.2:
                gamma = -0.2
        else:
            gamma = gamma * math.exp(-self.rate * gap)
            if abs(gamma) < 0.2:
                gamma = 0.2
        return max(-2.0, min(20.0, gamma))

    def loss(self, q):
        chosen = self.gammas[0]
        for start, gamma in zip(self.starts[1:], self.gammas[1:], strict=True):
            if q >= start:
                chosen = gamma
        return -((1 - q) ** chosen) * math.log(q) if chosen >= 0 else -((1 + q) ** -chosen) * math.log(q)


@pytest.mark.parametrize("rate", [1.0, 8.0])
def test_gammas_equal_the_literal_loop_after_20_epochs(rate):
    rng = np.random.default_rng(0)
    ours, literal = AdaFocalLoss(rate=rate), Literal(rate=rate)
    seen = set()
    for epoch in range(20):
        confidences = rng.beta(2.0, 1.0, size=300).astype(np.float32)
        if epoch % 3 == 0:
            confidences = np.round(confidences, 1)  # ties, so that bins are left empty
        trend = 0.8 if epoch % 10 < 5 else -0.5  # first underconfident, then over
        correct = rng.random(300) < np.clip(confidences + trend * rng.random(300), 0, 1)
        ours.update_bins(confidences, correct)
        literal.update(confidences.astype(float).tolist(), correct.tolist())
        np.testing.assert_allclose(ours.gammas, literal.gammas, rtol=1e-5)
        np.testing.assert_array_equal(ours.edges, np.float32(literal.starts[1:]))
        seen |= {np.sign(g) for g in literal.gammas} | {g for g in literal.gammas if g in (-2.0, 20.0)}
    assert {-1.0, 1.0} <= seen
    if rate > 1.0:
        assert {-2.0, 20.0} <= seen  # both clips were met
    q = torch.tensor(rng.random(200))
    got = AdaFocalLoss(reduction="none")
    got.load_state_dict(ours.state_dict())
    got = got(torch.stack([q.log(), (1 - q).log()], dim=1), torch.zeros(200, dtype=torch.int64))
    np.testing.assert_allclose(got, [literal.loss(v) for v in q.tolist()], rtol=1e-5, atol=1e-9)


@pytest.mark.slow
def test_update_takes_logits_in_the_shapes_of_the_loss():
    torch.manual_seed(0)
    logits, labels = torch.randn(4, 3, 6, 5), torch.randint(3, (4, 6, 5))
    labels[0, 0] = -100
    one, two = AdaFocalLoss(), AdaFocalLoss()
    one.update(logits, labels)
    rows, y = logits.permute(0, 2, 3, 1).reshape(-1, 3), labels.reshape(-1)
    confidence, top = rows[y >= 0].softmax(-1).max(-1)
    two.update_bins(confidence, top == y[y >= 0])
    torch.testing.assert_close(one.gammas, two.gammas)
    torch.testing.assert_close(one.edges, two.edges)
    assert not torch.equal(one.gammas, torch.ones(15))


def test_training_resumes_from_the_state_dict(tmp_path):
    torch.manual_seed(0)
    loss = AdaFocalLoss()
    loss.update(3.0 * torch.randn(100, 4), torch.randint(4, (100,)))
    torch.save(loss.state_dict(), tmp_path / "loss.pt")
    again = AdaFocalLoss()
    again.load_state_dict(torch.load(tmp_path / "loss.pt"))
    logits, labels = torch.randn(20, 4), torch.randint(4, (20,))
    assert set(loss.state_dict()) == {"gammas", "edges"}
    assert torch.equal(again(logits, labels), loss(logits, labels))
    assert not torch.equal(AdaFocalLoss()(logits, labels), loss(logits, labels))


def test_bad_confidences_are_named():
    loss = AdaFocalLoss()
    with pytest.raises(ShapeError, match=r"'confidence' of AdaFocalLoss.update_bins"):
        loss.update_bins(torch.rand(3), torch.ones(2))
    with pytest.raises(ShapeError):
        loss.update_bins(torch.rand(0), torch.ones(0))
    with pytest.raises(ParameterError, match="between 0 and 1"):
        loss.update_bins(torch.tensor([0.5, 1.5]), torch.ones(2))
    with pytest.raises(ParameterError, match="between 0 and 1"):
        loss.update_bins(torch.tensor([0.5, torch.nan]), torch.ones(2))


def test_a_gamma_of_0_moves_to_the_side_that_its_bin_needs():
    """No factor moves a 0."""
    loss = AdaFocalLoss(n_bins=2, initial=0.0, switch=0.3)
    loss.update_bins(torch.tensor([0.6, 0.7, 0.8, 0.9]), torch.tensor([True, True, False, False]))
    torch.testing.assert_close(loss.gammas, torch.tensor([-0.3, 0.3]))
    loss.update_bins(torch.tensor([0.6, 0.7, 0.8, 0.9]), torch.tensor([True, True, False, False]))
    assert loss.gammas[0] < -0.3
    assert loss.gammas[1] > 0.3


def test_a_collected_validation_set_is_taken_as_it_is():
    torch.manual_seed(0)
    logits, labels = 4.0 * torch.randn(300, 4), torch.randint(4, (300,))
    by_rows, by_tensors = AdaFocalLoss(n_bins=4), AdaFocalLoss(n_bins=4)
    rows = collect_logits(torch.nn.Identity(), [(logits, labels)], progress=False)
    by_rows.update(rows)
    by_tensors.update(logits, labels)
    torch.testing.assert_close(by_rows.gammas, by_tensors.gammas, rtol=1e-6, atol=0)
    torch.testing.assert_close(by_rows.edges, by_tensors.edges, rtol=1e-6, atol=0)
    assert not torch.equal(by_rows.gammas, AdaFocalLoss(n_bins=4).gammas)
    assert torch.equal(rows.labels_on_device, labels)
    with pytest.raises(ParameterError, match=r"'labels' of AdaFocalLoss.update must be left out beside Predictions"):
        by_rows.update(rows, labels)
    with pytest.raises(LabelError, match="'labels' of AdaFocalLoss must be a tensor"):
        by_rows.update(logits)


def test_a_row_of_a_weight_moves_the_gammas_as_so_many_rows():
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(500, 3))
    labels = np.argmax(logits / 2.0 + rng.gumbel(size=logits.shape), axis=1)
    times = np.where(logits.argmax(axis=1) == labels, 5, 1)
    weighted, repeated, plain = (AdaFocalLoss(n_bins=3) for _ in range(3))
    weighted.update(Predictions.from_logits(logits, labels, weight=0.1 * times))
    repeated.update(Predictions.from_logits(np.repeat(logits, times, axis=0), np.repeat(labels, times)))
    plain.update(Predictions.from_logits(logits, labels))
    torch.testing.assert_close(weighted.gammas, repeated.gammas)
    torch.testing.assert_close(weighted.edges, repeated.edges)
    assert (weighted.gammas < plain.gammas).all()  # right rows count more
