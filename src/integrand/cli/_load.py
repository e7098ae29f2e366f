"""Models and tensors that are named on a command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._models import from_npz, from_safetensors, load_model
from .._trees import Tensors, flatten
from ..errors import FileError, MissingExtraError, OptionError

__all__ = ["load_model", "load_tensors", "random_input"]


def load_tensors(text: str, *, what: str = "--input") -> Tensors:
    """Tensors from a file: .pt, .npy, .npz and .safetensors (several arrays become a dict by their names)."""
    path = Path(text)
    readers: dict[str, Callable[[Path], Any]] = {
        ".npy": lambda p: torch.from_numpy(np.load(p, allow_pickle=False)),
        ".npz": from_npz,
        ".pt": lambda p: torch.load(p, weights_only=True, map_location="cpu"),
        ".pth": lambda p: torch.load(p, weights_only=True, map_location="cpu"),
        ".safetensors": from_safetensors,
    }
    if path.suffix.lower() not in readers:
        raise OptionError(f"got {what} {text!r}; expected a file that ends in {', '.join(readers)}.")
    if not path.is_file():
        raise FileError(f"{what}: there is no file {text!r}; expected tensors to explain.")
    try:
        found = readers[path.suffix.lower()](path)
    except (MissingExtraError, MemoryError):
        raise
    except Exception as error:
        raise FileError(f"{what}: {text!r} cannot be read ({error}); expected a file with tensors.") from error
    return _alone(found)


def _alone(found: Any) -> Tensors:
    if isinstance(found, dict) and len(found) == 1:
        found = next(iter(found.values()))
    tree, leaves = flatten(found, what="what the file holds")
    return tree.build(leaves)


def random_input(shape: str, *, seed: int = 0) -> Tensor:
    """One example of normal numbers, from ``3,224,224``; the same for the same seed."""
    try:
        sizes = tuple(int(part) for part in shape.split(","))
        if min(sizes) < 1:
            raise ValueError
    except ValueError:
        raise OptionError(f"got --shape {shape!r}; expected the shape of one example, such as 3,224,224.") from None
    return torch.randn(1, *sizes, generator=torch.Generator().manual_seed(seed))
