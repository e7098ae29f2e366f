"""Models and weights that are named by text: on a command line, or in an application."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .errors import FileError, MissingExtraError, OptionError


def load_model(name: str, *, what: str = "--model") -> Callable[..., Any]:
    """The model that ``package.module:attribute`` names: a module, a function of tensors, or what makes one.

    A class, or a function that can be called without arguments, is called. The current folder can be imported from. The
    model comes back in eval mode.
    """
    place, _, attribute = name.partition(":")
    if not place or not attribute:
        raise OptionError(f"got {what} {name!r}; expected package.module:function, such as my_module:make_model.")
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


def from_npz(path: Path) -> dict[str, Tensor]:
    """The arrays of an ``.npz`` file, by name."""
    with np.load(path, allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def from_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a ``.safetensors`` file, by name."""
    try:
        from safetensors.torch import load_file
    except ImportError:
        raise MissingExtraError("safetensors", "files", "reading .safetensors") from None
    return dict(load_file(path))


def shipped(name: str, purpose: str) -> Path:
    """Where a file of the distribution ``integrand-models`` is installed: weights, a vocabulary, class names or a model card.

    Args:
        name: of the file, such as ``retina.safetensors``.
        purpose: what it is needed for, in words that can begin a sentence: ``grading a retina``.

    Raises:
        MissingExtraError: ``integrand-models`` is not installed.
        FileError: it is installed but does not have the file.
    """
    try:
        from integrand_models import path
    except ImportError:
        raise MissingExtraError("integrand-models", "models", purpose) from None
    try:
        return path(name)
    except FileNotFoundError:
        raise FileError(
            f"{purpose} needs {name}, which the installed integrand-models does not have; expected a version that belongs to "
            "this integrand. Install it with: pip install --upgrade 'integrand[models]'"
        ) from None


def _from_torch(path: Path) -> Any:
    return torch.load(path, weights_only=True, map_location="cpu")


def read_state(path: str | PathLike[str], *, what: str = "weights") -> dict[str, Tensor]:
    """A state dict from a file, on the CPU: .pth, .pt, .bin, .safetensors or .npz. Nothing in the file is executed.

    A checkpoint that holds the state dict under ``state_dict`` or ``model`` is opened, and a prefix ``module.``, which
    training in parallel leaves, is taken off.
    """
    file = Path(path)
    readers: dict[str, Callable[[Path], Any]] = {".npz": from_npz, ".safetensors": from_safetensors}
    readers |= dict.fromkeys((".pth", ".pt", ".bin"), _from_torch)
    if file.suffix.lower() not in readers:
        raise FileError(f"{what}: got {str(path)!r}; expected a file that ends in {', '.join(readers)}.")
    if not file.is_file():
        raise FileError(f"{what}: there is no file {str(path)!r}. Check the path.")
    try:
        found = readers[file.suffix.lower()](file)
    except (MissingExtraError, MemoryError):
        raise
    except Exception as error:
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise FileError(
            f"{what}: {str(path)!r} cannot be read ({said}); expected a state dict. Get the file again, or write it with "
            "torch.save(model.state_dict(), path)."
        ) from error
    for key in ("state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise FileError(
            f"{what}: {str(path)!r} holds a {type(found).__name__} that is no state dict; expected names and tensors."
        )
    return {str(name).removeprefix("module."): value for name, value in found.items()}
