"""Models and tensors that are named on a command line."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._trees import Tensors, flatten
from ..errors import FileError, MissingExtraError, OptionError


def load_model(name: str) -> Callable[..., Any]:
    """The model that ``package.module:attribute`` names: a module, a function of tensors, or what makes one.

    A class, or a function that can be called without arguments, is called. The current folder can be imported from. The
    model comes back in eval mode.
    """
    place, _, attribute = name.partition(":")
    if not place or not attribute:
        raise OptionError(f"got --model {name!r}; expected package.module:function, such as my_module:make_model.")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not place.startswith(error.name):
            raise  # something that the user's module needs
        raise OptionError(
            f"there is no module {place!r} to import; expected one that is installed or in {folder}. Check the spelling."
        ) from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise OptionError(f"{place} has no {attribute!r}; expected the name of a model, or of a function that makes one.")
        found = getattr(found, part)
    if inspect.isclass(found) or (not isinstance(found, torch.nn.Module) and _takes_nothing(found)):
        found = found()
    if not callable(found):
        raise OptionError(f"{name} is a {type(found).__name__}; expected a model, or a function that makes one.")
    return found.eval() if isinstance(found, torch.nn.Module) else found


def _takes_nothing(function: Any) -> bool:
    if not callable(function):
        return False
    parameters = inspect.signature(function).parameters.values()
    empty, many = inspect.Parameter.empty, (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(p.default is not empty or p.kind in many for p in parameters)


def load_tensors(text: str, *, what: str = "--input") -> Tensors:
    """Tensors from a file: .pt, .npy, .npz and .safetensors (several arrays become a dict by their names)."""
    path = Path(text)
    readers: dict[str, Callable[[Path], Any]] = {
        ".npy": lambda p: torch.from_numpy(np.load(p, allow_pickle=False)),
        ".npz": _from_npz,
        ".pt": lambda p: torch.load(p, weights_only=True, map_location="cpu"),
        ".pth": lambda p: torch.load(p, weights_only=True, map_location="cpu"),
        ".safetensors": _from_safetensors,
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


def _from_npz(path: Path) -> dict[str, Tensor]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def _from_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        from safetensors.torch import load_file
    except ImportError:
        raise MissingExtraError("safetensors", "files", "reading .safetensors") from None
    return dict(load_file(path))


def random_input(shape: str, *, seed: int = 0) -> Tensor:
    """One example of normal numbers, from ``3,224,224``; the same for the same seed."""
    try:
        sizes = tuple(int(part) for part in shape.split(","))
        if min(sizes) < 1:
            raise ValueError
    except ValueError:
        raise OptionError(f"got --shape {shape!r}; expected the shape of one example, such as 3,224,224.") from None
    return torch.randn(1, *sizes, generator=torch.Generator().manual_seed(seed))
