"""Networks for small images: residual ones (He et al. 2016), wide ones and dense ones, as the paper's code has them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from refocal.errors import ParameterError


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class BasicBlock(nn.Module):
    """Two 3 × 3 convolutions."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _conv(inputs, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            _conv(width, width, 3), nn.BatchNorm2d(width),
        )  # fmt: skip
        self.shortcut = _shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Features in, features out."""
        return torch.relu(self.body(x) + self.shortcut(x))


class Bottleneck(nn.Module):
    """1 × 1, 3 × 3 and 1 × 1 convolutions, the last four times as wide."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            _conv(inputs, width, 1), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            _conv(width, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            _conv(width, outputs, 1), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.shortcut = _shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Features in, features out."""
        return torch.relu(self.body(x) + self.shortcut(x))


class WideBlock(nn.Module):
    """Normalisation before each of two 3 × 3 convolutions (Zagoruyko & Komodakis 2016)."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True))
        self.body = nn.Sequential(
            _conv(inputs, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(inplace=True), _conv(width, width, 3)
        )
        self.same = inputs == width and stride == 1
        self.shortcut = nn.Identity() if self.same else nn.Conv2d(inputs, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Features in, features out."""
        y = self.before(x)
        return self.body(y) + (x if self.same else self.shortcut(y))


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """A 3 × 3 stem, stages of blocks each half as large as the one before, average pooling, a linear layer."""

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck | WideBlock],
        depths: tuple[int, ...],
        widths: tuple[int, ...],
        n_classes: int,
        stem: int,
        last_norm: bool,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _conv(3, stem, 3), *(() if last_norm else (nn.BatchNorm2d(stem), nn.ReLU(inplace=True)))
        )
        sizes = (stem, *(width * block.expansion for width in widths))
        stages = [
            nn.Sequential(
                block(inputs, width, 1 if i == 0 else 2), *(block(outputs, width, 1) for _ in range(depth - 1))
            )
            for i, (width, depth, (inputs, outputs)) in enumerate(zip(widths, depths, pairwise(sizes), strict=True))
        ]
        self.stages = nn.Sequential(*stages)
        self.norm = nn.Sequential(nn.BatchNorm2d(sizes[-1]), nn.ReLU(inplace=True)) if last_norm else nn.Identity()
        self.head = nn.Linear(sizes[-1], n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, 3, height, width) in, logits (N, classes) out."""
        return self.head(self.norm(self.stages(self.stem(x))).mean(dim=(2, 3)))


class DenseLayer(nn.Module):
    """1 × 1 and 3 × 3 convolutions, normalised before, whose output is put beside their input."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), _conv(inputs, 4 * growth, 1),
            nn.BatchNorm2d(4 * growth), nn.ReLU(inplace=True), _conv(4 * growth, growth, 3),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Features in, more features out."""
        return torch.cat([x, self.body(x)], dim=1)


class DenseNet(nn.Module):
    """Blocks of dense layers (Huang et al. 2017); between two of them, half the features and half the size."""

    def __init__(self, depths: tuple[int, ...], growth: int, n_classes: int) -> None:
        super().__init__()
        width = 2 * growth
        layers: list[nn.Module] = [_conv(3, width, 3)]
        for i, depth in enumerate(depths):
            if i > 0:
                layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True), _conv(width, width // 2, 1), nn.AvgPool2d(2)]
                width //= 2
            layers += [DenseLayer(width + k * growth, growth) for k in range(depth)]
            width += depth * growth
        self.features = nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.head = nn.Linear(width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, 3, height, width) in, logits (N, classes) out."""
        logits: Tensor = self.head(self.features(x).mean(dim=(2, 3)))
        return logits


FOUR = (64, 128, 256, 512)
NETWORKS: dict[str, Callable[[int], ResNet | DenseNet]] = {
    "resnet18": lambda n: ResNet(BasicBlock, (2, 2, 2, 2), FOUR, n, 64, False),
    "resnet50": lambda n: ResNet(Bottleneck, (3, 4, 6, 3), FOUR, n, 64, False),
    "resnet110": lambda n: ResNet(BasicBlock, (18, 18, 18), (16, 32, 64), n, 16, False),
    "wideresnet-28-10": lambda n: ResNet(WideBlock, (4, 4, 4), (160, 320, 640), n, 16, True),
    "densenet121": lambda n: DenseNet((6, 12, 24, 16), 32, n),
    "tiny": lambda n: ResNet(BasicBlock, (1, 1), (8, 16), n, 8, False),
}


def make_network(name: str, n_classes: int, seed: int) -> ResNet | DenseNet:
    """A network with freshly drawn weights; the same seed gives the same weights."""
    if name not in NETWORKS:
        words = ", ".join(repr(known) for known in NETWORKS)
        raise ParameterError("network", "make_network", expected=f"one of {words}", got=repr(name))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return NETWORKS[name](n_classes)
