"""FastestDet, a detector of the 80 object classes of COCO with 240,000 weights, as the network that its weights fit.

The architecture is the published one (github.com/dog-qiuqiu/FastestDet, BSD-3): a ShuffleNetV2 backbone, whose three scales are
brought to one grid and mixed by depthwise convolutions, and one head without anchors: every cell of a 22 x 22 grid proposes one
box. Names of modules are those of the state dict. All of what the cells propose is given, nothing is suppressed, so that every
number is a differentiable function of the photo.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...targets import Candidates

OBJECTNESS, CLASS = 0.6, 0.4
"""The exponents with which FastestDet's objectness and class probability are multiplied into a score."""

WIDTHS = (24, 48, 96, 192)
"""Channels after the first convolution and after the three stages."""

REPEATS = (4, 8, 4)
"""Blocks of the three stages."""


def _convolution(
    inputs: int, outputs: int, size: int, stride: int = 1, *, alone: bool = False, relu: bool = True
) -> list[nn.Module]:
    """A convolution with batch norm, and a ReLU unless it is left out; ``alone``: each channel by itself."""
    groups = inputs if alone else 1
    parts: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return [*parts, nn.ReLU()] if relu else parts


class ShuffleBlock(nn.Module):
    """A block of ShuffleNetV2: half of the channels pass, the other half is convolved; with stride 2 both are.

    Args:
        inputs: channels that come in.
        outputs: channels that go out.
        stride: 1 or 2.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        middle = outputs // 2
        taken = inputs if stride == 2 else inputs // 2
        self.branch_main = nn.Sequential(
            *_convolution(taken, middle, 1),
            *_convolution(middle, middle, 3, stride, alone=True, relu=False),
            *_convolution(middle, outputs - taken, 1),
        )
        if stride == 2:
            self.branch_proj = nn.Sequential(
                *_convolution(inputs, inputs, 3, 2, alone=True, relu=False), *_convolution(inputs, inputs, 1)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        if self.stride == 2:
            return torch.cat([self.branch_proj(x), self.branch_main(x)], 1)
        # Even channels pass, odd ones are convolved: a shuffle of two groups, and a split into halves.
        return torch.cat([x[:, 0::2], self.branch_main(x[:, 1::2])], 1)


class ShuffleBackbone(nn.Module):
    """The three stages of ShuffleNetV2: (N, 3, H, W) to features at an eighth, a sixteenth and a thirty-second of the size."""

    def __init__(self) -> None:
        super().__init__()
        self.first_conv = nn.Sequential(*_convolution(3, WIDTHS[0], 3, 2))
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.stage2, self.stage3, self.stage4 = (self._stage(k) for k in range(len(REPEATS)))

    @staticmethod
    def _stage(k: int) -> nn.Sequential:
        inputs, outputs = WIDTHS[k], WIDTHS[k + 1]
        blocks = [ShuffleBlock(inputs, outputs, 2), *(ShuffleBlock(outputs, outputs, 1) for _ in range(REPEATS[k] - 1))]
        return nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The features of the three stages."""
        eighth = self.stage2(self.maxpool(self.first_conv(x)))
        sixteenth = self.stage3(eighth)
        return eighth, sixteenth, self.stage4(sixteenth)


class _Named(nn.Module):
    """Layers under one name, which the state dict has as a module of its own."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: Tensor) -> Tensor:
        """Run all of them, one after the other."""
        for part in self.children():
            x = part(x)
        return x


class DepthwisePyramid(nn.Module):
    """Features seen through windows of 5, 9 and 13 cells side by side, added to what came in."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.Conv1x1 = _Named(conv1x1=nn.Sequential(*_convolution(inputs, width, 1)))
        self.S1, self.S2, self.S3 = (
            nn.Sequential(*(layer for _ in range(k) for layer in _convolution(width, width, 5, alone=True))) for k in (1, 2, 3)
        )
        self.output = nn.Sequential(*_convolution(3 * width, width, 1, relu=False))

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, width, H, W)."""
        x = self.Conv1x1(x)
        return torch.relu(x + self.output(torch.cat([self.S1(x), self.S2(x), self.S3(x)], 1)))


class CellHead(nn.Module):
    """What every cell says: objectness, a box, and the classes."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.conv1x1 = _Named(conv1x1=nn.Sequential(*_convolution(width, width, 1)))
        self.obj_layers, self.reg_layers, self.cls_layers = (
            _Named(
                conv5x5=nn.Sequential(*_convolution(width, width, 5, alone=True), *_convolution(width, outputs, 1, relu=False))
            )
            for outputs in (1, 4, classes)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The raw outputs of all cells, (N, 1, H, W), (N, 4, H, W) and (N, classes, H, W)."""
        x = self.conv1x1(x)
        return self.obj_layers(x), self.reg_layers(x), self.cls_layers(x)


class FastestDet(nn.Module):
    """The detector: photos, (N, 3, H, W) in BGR from 0 to 1, to what its cells propose.

    Args:
        classes: how many classes of objects it knows.
    """

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.backbone = ShuffleBackbone()
        self.SPP = DepthwisePyramid(sum(WIDTHS[1:]), WIDTHS[2])
        self.detect_head = CellHead(WIDTHS[2], classes)

    def forward(self, x: Tensor) -> Candidates:
        """All boxes that cells propose, with their scores; boxes are in pixels of the input."""
        fine, middle, coarse = self.backbone(x)
        fine = nn.functional.avg_pool2d(fine, 3, 2, 1)
        coarse = nn.functional.interpolate(coarse, scale_factor=2.0, mode="nearest")
        objects, boxes, classes = self.detect_head(self.SPP(torch.cat([fine, middle, coarse], 1)))
        return self._candidates(objects, boxes, classes, size=(x.shape[-2], x.shape[-1]))

    def _candidates(self, objects: Tensor, boxes: Tensor, classes: Tensor, *, size: tuple[int, int]) -> Candidates:
        height, width = size
        rows, columns = boxes.shape[-2:]
        down, across = torch.meshgrid(
            torch.arange(rows, device=boxes.device), torch.arange(columns, device=boxes.device), indexing="ij"
        )
        x = (across + boxes[:, 0].tanh()) * (width / columns)
        y = (down + boxes[:, 1].tanh()) * (height / rows)
        half_wide, half_tall = boxes[:, 2].sigmoid() * width / 2, boxes[:, 3].sigmoid() * height / 2
        corners = torch.stack([x - half_wide, y - half_tall, x + half_wide, y + half_tall], -1).flatten(1, 2)
        # Powers of probabilities by way of their logarithms, which stay finite where a probability underflows.
        sure = nn.functional.logsigmoid(objects.flatten(2))
        named = classes.flatten(2).log_softmax(1)
        scores = (OBJECTNESS * sure + CLASS * named).exp().transpose(1, 2)
        return Candidates(corners, scores, objectness=sure[:, 0].exp(), logits=classes.flatten(2).transpose(1, 2))
