"""ESPNet, a network of 360,000 weights that says of every pixel of a street scene what it is a part of.

The architecture is the published one (Mehta et al. 2018, github.com/sacmehta/ESPNet, MIT): blocks that project to few channels,
look through dilated convolutions of growing reach side by side, and add these up step by step; the input is fed in again at
every scale, and a light decoder brings three scales together. Names of modules are those of the state dict.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

REACHES = (1, 2, 4, 8, 16)
"""The dilations of a block's parallel convolutions."""

EPS = 1e-3
"""What the network's batch norms were trained with."""


class BareConvolution(nn.Module):
    """A convolution without bias that keeps the size, or halves it with stride 2."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1, reach: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, size // 2 * reach, dilation=reach, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        out: Tensor = self.conv(x)
        return out


class NormActivation(nn.Module):
    """Batch norm and a PReLU with a slope for every channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(channels, eps=EPS)
        self.act = nn.PReLU(channels)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        out: Tensor = self.act(self.bn(x))
        return out


class NormedConvolution(NormActivation):
    """A convolution, batch norm and PReLU."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1) -> None:
        super().__init__(outputs)
        self.conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        return super().forward(self.conv(x))


class SpatialPyramid(nn.Module):
    """Dilated convolutions of a few channels side by side, added up from the nearest to the farthest."""

    def __init__(self, inputs: int, outputs: int, first: BareConvolution) -> None:
        super().__init__()
        few = outputs // len(REACHES)
        self.c1 = first
        for k, reach in enumerate(REACHES):
            width = outputs - (len(REACHES) - 1) * few if k == 0 else few
            self.add_module(f"d{reach}", BareConvolution(few, width, 3, reach=reach))

    def pyramid(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H, W), or half that size."""
        x = self.c1(x)
        near, *far = (self.get_submodule(f"d{reach}")(x) for reach in REACHES)
        parts = [near]
        for k, part in enumerate(far):
            parts.append(part if k == 0 else parts[-1] + part)
        return torch.cat(parts, 1)


class PyramidBlock(SpatialPyramid):
    """A spatial pyramid of the same size, added to its input where the channels are the same."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, BareConvolution(inputs, outputs // len(REACHES), 1))
        self.bn = NormActivation(outputs)
        self.adds = inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H, W)."""
        found = self.pyramid(x)
        out: Tensor = self.bn(x + found if self.adds else found)
        return out


class PyramidDownsampler(SpatialPyramid):
    """A spatial pyramid that halves the size."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, BareConvolution(inputs, outputs // len(REACHES), 3, 2))
        self.bn = nn.BatchNorm2d(outputs, eps=EPS)
        self.act = nn.PReLU(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / 2, W / 2)."""
        out: Tensor = self.act(self.bn(self.pyramid(x)))
        return out


class SceneEncoder(nn.Module):
    """Features at a half, a quarter and an eighth of the size, the photo itself fed in again at each."""

    def __init__(self, classes: int, second: int, third: int) -> None:
        super().__init__()
        self.level1 = NormedConvolution(3, 16, 3, 2)
        self.b1 = NormActivation(19)
        self.level2_0 = PyramidDownsampler(19, 64)
        self.level2 = nn.Sequential(*(PyramidBlock(64, 64) for _ in range(second)))
        self.b2 = NormActivation(131)
        self.level3_0 = PyramidDownsampler(131, 128)
        self.level3 = nn.Sequential(*(PyramidBlock(128, 128) for _ in range(third)))
        self.b3 = NormActivation(256)
        self.classifier = BareConvolution(256, classes, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features at a half (16 channels), at a quarter (131), and the classes at an eighth."""
        halved = nn.functional.avg_pool2d(x, 3, 2, 1)
        quartered = nn.functional.avg_pool2d(halved, 3, 2, 1)
        half = self.level1(x)
        start = self.level2_0(self.b1(torch.cat([half, halved], 1)))
        quarter = self.b2(torch.cat([self.level2(start), start, quartered], 1))
        start = self.level3_0(quarter)
        eighth = self.b3(torch.cat([start, self.level3(start)], 1))
        return half, quarter, self.classifier(eighth)


class ESPNet(nn.Module):
    """The segmenter: photos, (N, 3, H, W) with sides that are multiples of 8, to a logit for every class and pixel.

    Args:
        classes: how many classes of things it knows.
        second: blocks at a quarter of the size.
        third: blocks at an eighth of the size.
    """

    def __init__(self, classes: int = 20, second: int = 2, third: int = 8) -> None:
        super().__init__()
        self.encoder = SceneEncoder(classes, second, third)
        self.level3_C = BareConvolution(131, classes, 1)
        self.br = nn.BatchNorm2d(classes, eps=EPS)
        self.conv = NormedConvolution(classes + 16, classes, 3)
        self.up_l3 = nn.Sequential(nn.ConvTranspose2d(classes, classes, 2, 2, bias=False))
        self.combine_l2_l3 = nn.Sequential(NormActivation(2 * classes), PyramidBlock(2 * classes, classes))
        self.up_l2 = nn.Sequential(nn.ConvTranspose2d(classes, classes, 2, 2, bias=False), NormActivation(classes))
        self.classifier = nn.ConvTranspose2d(classes, classes, 2, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The logits of all pixels, (N, classes, H, W)."""
        half, quarter, eighth = self.encoder(x)
        coarse = self.up_l3(self.br(eighth))
        middle = self.up_l2(self.combine_l2_l3(torch.cat([self.level3_C(quarter), coarse], 1)))
        out: Tensor = self.classifier(self.conv(torch.cat([middle, half], 1)))
        return out
