"""GoogLeNet (Inception v1), the network of the paper's figures, with the weights of BVLC or of torchvision.

The two differ: BVLC's is the published network, with local response normalisation and 5x5 convolutions; torchvision's has
batch-norm after each convolution, 3x3 convolutions in place of 5x5, and a smaller last pooling. The heads that are for
training only are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import FileError
from ...loading import read_state
from ...tensor_files import shapes_without_memory

BLOCKS: dict[str, tuple[int, int, int, int, int, int]] = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
"""The output channels of each block: 1x1; 3x3 reduced, 3x3; 5x5 reduced, 5x5; pooled."""


@dataclass(frozen=True)
class Variant:
    """The differences between BVLC's and torchvision's GoogLeNet.

    Attributes:
        five: the side of the "5x5" convolutions.
        pool4: the side of the pooling between blocks 4 and 5.
        normed: whether the first layers have local response normalisation.
    """

    five: int
    pool4: int
    normed: bool


BVLC = Variant(five=5, pool4=3, normed=True)
TORCHVISION = Variant(five=3, pool4=2, normed=False)


class Conv(nn.Conv2d):
    """A convolution followed by a ReLU; it keeps the size of the picture unless it has a stride."""

    def __init__(self, inside: int, outside: int, side: int, stride: int = 1) -> None:
        super().__init__(inside, outside, side, stride=stride, padding=side // 2)

    def forward(self, x: Tensor) -> Tensor:
        """Apply convolution and ReLU, (N, inside, H, W) to (N, outside, H / stride, W / stride)."""
        return F.relu(super().forward(x))


class Inception(nn.Module):
    """Four branches side by side: 1x1, 3x3, 5x5 and pooled."""

    def __init__(self, inside: int, widths: tuple[int, int, int, int, int, int], five: int) -> None:
        super().__init__()
        one, three_reduced, three, five_reduced, five_width, pooled = widths
        self.one = Conv(inside, one, 1)
        self.three_reduce = Conv(inside, three_reduced, 1)
        self.three = Conv(three_reduced, three, 3)
        self.five_reduce = Conv(inside, five_reduced, 1)
        self.five = Conv(five_reduced, five_width, five)
        self.pool = Conv(inside, pooled, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Concatenate the four branches, (N, inside, H, W) to (N, sum of the branches, H, W)."""
        three, five = self.three(self.three_reduce(x)), self.five(self.five_reduce(x))
        pooled = self.pool(F.max_pool2d(x, 3, stride=1, padding=1))
        return torch.cat([self.one(x), three, five, pooled], 1)


class GoogLeNet(nn.Module):
    """Inception v1: (N, 3, 224, 224) to (N, classes) logits.

    Batch-norm is folded into the convolution before it when weights are loaded, which leaves the function as it is.

    Args:
        variant: :data:`BVLC` or :data:`TORCHVISION`.
        classes: how many there are.
        shift: added to each channel of the input, after ``factor``. torchvision's weights expect pixels from -1 to 1, and
            their network gets there from ImageNet's convention by itself.
        factor: that each channel is multiplied with.
    """

    shift: Tensor
    factor: Tensor

    def __init__(
        self,
        variant: Variant = BVLC,
        *,
        classes: int = 1000,
        shift: tuple[float, ...] | None = None,
        factor: tuple[float, ...] | None = None,
    ) -> None:
        super().__init__()
        self.variant = variant
        self.transforms = shift is not None or factor is not None
        self.register_buffer("shift", torch.tensor(shift or (0.0,) * 3)[:, None, None], persistent=False)
        self.register_buffer("factor", torch.tensor(factor or (1.0,) * 3)[:, None, None], persistent=False)
        self.conv1 = Conv(3, 64, 7, stride=2)
        self.conv2_reduce = Conv(64, 64, 1)
        self.conv2 = Conv(64, 192, 3)
        width = 192
        for name, widths in BLOCKS.items():
            self.add_module(f"inception_{name}", Inception(width, widths, variant.five))
            width = widths[0] + widths[2] + widths[4] + widths[5]
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to logits (N, classes)."""
        if self.transforms:
            x = x * self.factor + self.shift
        x = self._normed(_halved(self.conv1(x)))
        x = _halved(self._normed(self.conv2(self.conv2_reduce(x))))
        for name in BLOCKS:
            x = self.get_submodule(f"inception_{name}")(x)
            if name == "3b":
                x = _halved(x)
            elif name == "4e":
                x = _halved(x, self.variant.pool4)
        pooled: Tensor = self.classifier(x.mean((2, 3)))
        return pooled

    def _normed(self, x: Tensor) -> Tensor:
        return F.local_response_norm(x, 5, alpha=1e-4, beta=0.75, k=1.0) if self.variant.normed else x


def load_bvlc(path: str | PathLike[str], *, arrays: Mapping[str, Tensor] | None = None) -> GoogLeNet:
    """GoogLeNet with BVLC's weights; its input is BGR from 0 to 255 minus (104, 117, 123).

    Args:
        path: ``bvlc_googlenet.caffemodel`` as BVLC published it, or an ``.npz`` (or ``.safetensors``) file with
            ``<caffe layer>/weight`` and ``<caffe layer>/bias`` for each of its layers.
        arrays: what the file holds, if it was read already.
    """
    found = read_state(path, what="GoogLeNet's weights") if arrays is None else arrays
    return _filled(BVLC, {ours: (f"{theirs}/weight", f"{theirs}/bias") for ours, theirs in _bvlc_names().items()}, found, path)


def load_torchvision(state: str | PathLike[str] | Mapping[str, Tensor], *, transform_input: bool = True) -> GoogLeNet:
    """GoogLeNet with the state dict of a ``torchvision.models.googlenet``, batch-norm folded in.

    Args:
        state: the state dict, or a ``.pth`` or ``.safetensors`` file with it.
        transform_input: what torchvision's network was made with. Its pretrained one has True, and takes ImageNet's convention
            (0 to 1, minus mean, by standard deviation); one that was trained from scratch has False.
    """
    path = "the state dict" if isinstance(state, Mapping) else state
    arrays = {name: value.detach().cpu() for name, value in state.items()} if isinstance(state, Mapping) else None
    if arrays is None:
        arrays = read_state(path, what="GoogLeNet's weights")
    names = {}
    for ours, theirs in _torchvision_names().items():
        if ours == "classifier":
            names[ours] = ("fc.weight", "fc.bias")
            continue
        weight, bias = _fold(arrays, theirs, path)
        arrays[f"{theirs}.folded.weight"], arrays[f"{theirs}.folded.bias"] = weight, bias
        names[ours] = (f"{theirs}.folded.weight", f"{theirs}.folded.bias")
    transform = {}
    if transform_input:
        mean, deviation = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
        transform = {"shift": tuple((m - 0.5) / 0.5 for m in mean), "factor": tuple(s / 0.5 for s in deviation)}
    return _filled(TORCHVISION, names, arrays, path, **transform)


def _halved(x: Tensor, side: int = 3) -> Tensor:
    # caffe rounds sizes up: 112 becomes 56 with a window that hangs over the edge
    return F.max_pool2d(x, side, stride=2, ceil_mode=True)


def _bvlc_names() -> dict[str, str]:
    """The name of BVLC's caffe layer for each module of :class:`GoogLeNet`."""
    names = {"conv1": "conv1/7x7_s2", "conv2_reduce": "conv2/3x3_reduce", "conv2": "conv2/3x3"}
    parts = {"one": "1x1", "three_reduce": "3x3_reduce", "three": "3x3", "five_reduce": "5x5_reduce", "five": "5x5"}
    for block in BLOCKS:
        for ours, theirs in (parts | {"pool": "pool_proj"}).items():
            names[f"inception_{block}.{ours}"] = f"inception_{block}/{theirs}"
    return names | {"classifier": "loss3/classifier"}


def _torchvision_names() -> dict[str, str]:
    """The name of torchvision's module for each module of :class:`GoogLeNet`."""
    names = {"conv1": "conv1", "conv2_reduce": "conv2", "conv2": "conv3"}
    parts = {"one": "branch1", "three_reduce": "branch2.0", "three": "branch2.1", "five_reduce": "branch3.0"}
    for block in BLOCKS:
        for ours, theirs in (parts | {"five": "branch3.1", "pool": "branch4.1"}).items():
            names[f"inception_{block}.{ours}"] = f"inception{block}.{theirs}"
    return names | {"classifier": "fc"}


def _fold(arrays: Mapping[str, Tensor], name: str, path: object) -> tuple[Tensor, Tensor]:
    """Weight and bias of one convolution that does what a convolution and its batch-norm do."""
    keys = [f"{name}.conv.weight", *(f"{name}.bn.{part}" for part in ("weight", "bias", "running_mean", "running_var"))]
    _check_there(keys, arrays, path, "torchvision's googlenet")
    weight, gain, bias, mean, variance = (arrays[key].double() for key in keys)
    if weight.ndim != 4 or {tuple(value.shape) for value in (gain, bias, mean, variance)} != {weight.shape[:1]}:
        raise FileError(
            f"{path}: {name} has a convolution and a batch-norm of different sizes; expected torchvision's googlenet."
        )
    scale = gain / (variance + 0.001).sqrt()
    return (weight * scale[:, None, None, None]).float(), (bias - mean * scale).float()


def _filled(
    variant: Variant,
    names: Mapping[str, tuple[str, str]],
    arrays: Mapping[str, Tensor],
    path: object,
    **transform: tuple[float, ...],
) -> GoogLeNet:
    """Build a network with the weights and biases found under ``names``."""
    whose = "BVLC's GoogLeNet" if variant.normed else "torchvision's googlenet"
    _check_there([key for pair in names.values() for key in pair], arrays, path, whose)
    classes = arrays[names["classifier"][1]].numel()
    wanted = shapes_without_memory(lambda: GoogLeNet(variant, classes=classes, **transform))
    state = {}
    for ours, pair in names.items():
        for part, key in zip(("weight", "bias"), pair, strict=True):
            value, shape = arrays[key].float(), tuple(wanted[f"{ours}.{part}"])
            if (1,) * (value.ndim - len(shape)) + shape == tuple(value.shape):  # caffe once gave all blobs four dimensions
                value = value.reshape(shape)
            if tuple(value.shape) != shape:
                key = key.replace(".folded.weight", ".conv.weight")
                raise FileError(
                    f"{path}: {key} has shape {tuple(value.shape)}; {whose} has {shape}. Is it another network's file?"
                )
            if not bool(torch.isfinite(value).all()):
                raise FileError(f"{path}: {key} holds NaN or infinity; expected the weights of {whose}. Get the file again.")
            state[f"{ours}.{part}"] = value
    network = GoogLeNet(variant, classes=classes, **transform)
    network.load_state_dict(state)
    return network.eval()


def _check_there(keys: list[str], arrays: Mapping[str, Tensor], path: object, whose: str) -> None:
    missing = [key for key in keys if key not in arrays]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise FileError(
            f"{path} has no {missing[0]!r}{more} among its {len(arrays)} arrays; expected the weights of {whose}. The file is "
            "another network's, or incomplete."
        )
