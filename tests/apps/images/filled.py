"""Weights that anyone can make again from their names, and torchvision's answers with them."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import torch

STORE = Path(__file__).with_name("torchvision_googlenet.npz")

INPUTS = {"224": (2, 3, 224, 224), "odd": (1, 3, 197, 211)}
"""The second has sides that pooling has to round."""


def value(name, shape):
    """The tensor of that name: drawn from it, and of a size that keeps activations near one."""
    random = np.random.RandomState(zlib.crc32(name.encode()))
    last = name.rpartition(".")[2]
    if last == "num_batches_tracked":
        return torch.zeros((), dtype=torch.int64)
    if last == "running_var" or (last == "weight" and len(shape) == 1):
        return torch.tensor(random.uniform(0.5, 1.5, shape), dtype=torch.float32)
    if len(shape) == 1:
        return torch.tensor(0.1 * random.standard_normal(shape), dtype=torch.float32)
    return torch.tensor(random.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5, dtype=torch.float32)


def state(shapes):
    """A state dict from names and shapes."""
    return {name: value(name, tuple(shape)) for name, shape in shapes.items()}


def picture(name):
    """An input, (N, 3, H, W)."""
    return torch.tensor(np.random.RandomState(len(name)).standard_normal(INPUTS[name]), dtype=torch.float32)


def stored():
    """Names and shapes, and the logits by input and ``transform_input``."""
    with np.load(STORE) as arrays:
        logits = {name: torch.from_numpy(arrays[name]) for name in arrays.files if name != "shapes"}
        return json.loads(str(arrays["shapes"])), logits
