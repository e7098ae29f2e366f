"""ResNet-50 as Keras has it (v1): stride 2 in the first convolution of a stage, batch-norm with eps 1e-3, BGR input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

MEAN = (103.939, 116.779, 123.68)
"""Of ImageNet's pixels, BGR; subtracted from the input."""
STAGES = {2: ("abc", (64, 64, 256), 1), 3: ("abcd", (128, 128, 512), 2), 4: ("abcdef", (256, 256, 1024), 2)}
STAGES[5] = ("abc", (512, 512, 2048), 2)
"""The blocks' letters, their widths and the stride of the first one."""

Arrays = Mapping[str, np.ndarray[Any, Any]]


class Normed(nn.Module):
    """A convolution and its batch-norm."""

    def __init__(self, inside: int, outside: int, side: int, stride: int = 1, padding: int = 0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, side, stride=stride, padding=padding)
        self.norm = nn.BatchNorm2d(outside, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inside, H, W) to (N, outside, H / stride, W / stride)."""
        out: Tensor = self.norm(self.conv(x))
        return out


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut, which is a convolution in the first block of a stage."""

    def __init__(self, inside: int, widths: tuple[int, int, int], stride: int, *, first: bool) -> None:
        super().__init__()
        self.branch2a = Normed(inside, widths[0], 1, stride)
        self.branch2b = Normed(widths[0], widths[1], 3, padding=1)
        self.branch2c = Normed(widths[1], widths[2], 1)
        self.branch1 = Normed(inside, widths[2], 1, stride) if first else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(N, inside, H, W) to (N, widths[2], H / stride, W / stride)."""
        out = self.branch2c(F.relu(self.branch2b(F.relu(self.branch2a(x)))))
        return F.relu(out + self.branch1(x))


class KerasResNet50(nn.Module):
    """(N, 3, 224, 224), BGR from 0 to 255 minus :data:`MEAN`, to logits (N, 1000)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = Normed(3, 64, 7, stride=2, padding=3)
        blocks, inside = [], 64
        for stage, (letters, widths, stride) in STAGES.items():
            for letter in letters:
                first = letter == "a"
                blocks.append((f"{stage}{letter}", Bottleneck(inside, widths, stride if first else 1, first=first)))
                inside = widths[2]
        self.blocks = nn.ModuleDict(dict(blocks))
        self.fc1000 = nn.Linear(inside, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = F.max_pool2d(F.pad(F.relu(self.conv1(x)), (1, 1, 1, 1)), 3, stride=2)
        for block in self.blocks.values():
            x = block(x)
        logits: Tensor = self.fc1000(x.mean((2, 3)))
        return logits


def load(arrays: Arrays) -> KerasResNet50:
    """With Keras's weights; kernels as ``NAME:q`` (8 bit) times ``NAME:s``, of shape (h, w, in, out)."""
    model = KerasResNet50()
    with torch.no_grad():
        _fill(model.conv1, arrays, "conv1", "bn_conv1")
        for at, block in model.blocks.items():
            for branch, part in block.named_children():
                if isinstance(part, Normed):
                    _fill(part, arrays, f"res{at}_{branch}", f"bn{at}_{branch}")
        model.fc1000.weight.copy_(_kernel(arrays, "fc1000").T)
        model.fc1000.bias.copy_(torch.as_tensor(arrays["fc1000/bias"]))
    return model.eval()


def _kernel(arrays: Arrays, name: str) -> Tensor:
    return torch.as_tensor(arrays[f"{name}/kernel:q"]).float() * torch.as_tensor(arrays[f"{name}/kernel:s"])


def _fill(part: Normed, arrays: Arrays, conv: str, norm: str) -> None:
    part.conv.weight.copy_(_kernel(arrays, conv).permute(3, 2, 0, 1))
    assert part.conv.bias is not None
    for mine, theirs in (
        (part.conv.bias, f"{conv}/bias"),
        (part.norm.weight, f"{norm}/gamma"),
        (part.norm.bias, f"{norm}/beta"),
        (part.norm.running_mean, f"{norm}/moving_mean"),
        (part.norm.running_var, f"{norm}/moving_variance"),
    ):
        assert mine is not None
        mine.copy_(torch.as_tensor(arrays[theirs]))
