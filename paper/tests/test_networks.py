"""The paper's networks: sizes as published, shapes for both sizes of images, weights by seed."""

from __future__ import annotations

import pytest
import torch

from refocal.errors import ParameterError
from refocal_paper.networks import NETWORKS, make_network


@pytest.mark.parametrize(
    ("name", "n_classes", "published"),
    [
        # The 32 × 32 layout of ResNet-18 and -50 that is in wide use: 11,173,962 and 23,520,842 weights for CIFAR-10,
        # 23,705,252 for CIFAR-100 (the last layer alone differs, 90 × 2049 more).
        ("resnet18", 10, 11_173_962),
        ("resnet50", 10, 23_520_842),
        ("resnet50", 100, 23_520_842 + 90 * 2049),
        ("resnet50", 200, 23_520_842 + 190 * 2049),
        # He et al. (2016), Table 6: 1.7 M; with the projections of widely used code 1.73 M.
        ("resnet110", 10, 1.73e6),
        # Zagoruyko & Komodakis (2016), Table 4: 36.5 M.
        ("wideresnet-28-10", 10, 36.5e6),
        # The 32 × 32 layout in wide use: 6,956,298.
        ("densenet121", 10, 6_956_298),
    ],
)
def test_the_number_of_weights(name, n_classes, published):
    with torch.device("meta"):  # shapes alone
        count = sum(p.numel() for p in make_network(name, n_classes, seed=0).parameters())
    assert count == pytest.approx(published, rel=0 if isinstance(published, int) else 2e-3)


@pytest.mark.parametrize(("name", "stages"), [("resnet18", 4), ("resnet50", 4), ("resnet110", 3)])
def test_the_depth(name, stages):
    network = make_network(name, 10, seed=0)
    layers = [
        m
        for k, m in network.named_modules()
        if isinstance(m, (torch.nn.Conv2d, torch.nn.Linear)) and "shortcut" not in k
    ]
    assert len(layers) == int(name.removeprefix("resnet"))
    assert len(network.stages) == stages


def test_the_size_of_the_features():
    """Each stage but the first halves the images, and none does before the stages."""
    shapes = []
    network = make_network("resnet50", 200, seed=0).eval()
    for stage in network.stages:
        stage.register_forward_hook(lambda _module, _inputs, output: shapes.append(tuple(output.shape[1:])))
    with torch.no_grad():
        network(torch.zeros(1, 3, 64, 64))
    assert shapes == [(256, 64, 64), (512, 32, 32), (1024, 16, 16), (2048, 8, 8)]


@pytest.mark.parametrize("side", [32, 64])
def test_networks_take_images_of_either_size(side):
    for name in NETWORKS:
        if name == "wideresnet-28-10" and side == 64:
            continue  # too slow for a test
        assert make_network(name, 7, seed=0).eval()(torch.zeros(1, 3, side, side)).shape == (1, 7)
    a, b, c = (make_network("tiny", 4, seed).head.weight for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    with pytest.raises(ParameterError, match="'network' of make_network must be one of 'resnet18'"):
        make_network("alexnet", 4, 0)
