"""Models and weights that are named by text: on a command line, or in an application."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .errors import FileError, MissingExtraError, OptionError, TrustError
from .tensor_files import only_tensors, read_tensors
from .words import shown


def is_path(name: str | PathLike[str]) -> bool:
    """Whether a model is named by a path: a path object, or a text with a separator of folders in it, such as ``./net.pt2``.

    A text without one is a name, whatever files there are in the current folder.
    """
    return not isinstance(name, str) or any(mark in name for mark in (os.sep, os.altsep) if mark)


def check_trusted(trust: bool, runs: str) -> None:
    """Refuse to run somebody's code unless the caller said so; nobody is asked.

    Args:
        trust: what the caller said.
        runs: what would run and where it is from, as the start of a sentence: ``--model a:b would import a``.

    Raises:
        TrustError: it is not trusted.
    """
    if not trust:
        raise TrustError(
            f"{runs}. That is code, which can do whatever you can do here; add --trust (in Python: trust=True) if you trust "
            "where it is from."
        )


def load_model(name: str, *, trust: bool = False, what: str = "--model") -> Callable[..., Any]:
    """The model that ``package.module:attribute`` names, as :func:`load_object` finds it; an OptionError if it is none."""
    found = load_object(name, trust=trust, what=what)
    if not callable(found):
        raise OptionError(f"{name} is a {type(found).__name__}; expected a model, or a function that makes one.")
    return found  # type: ignore[no-any-return]


def load_object(name: str, *, trust: bool = False, what: str = "--model") -> Any:
    """What ``package.module:attribute`` names: a module, a function of tensors, or what a function makes.

    A class, or a function that can be called without arguments, is called. The current folder can be imported from. The
    model comes back in eval mode.

    Args:
        name: what to import.
        trust: whether the module may be imported and run; without it, it is not.
        what: what the name was given as, for errors.
    """
    place, _, attribute = name.partition(":")
    if not place or not attribute:
        raise OptionError(f"got {what} {shown(name)!r}; expected package.module:function, such as my_module:make_model.")
    folder = str(Path.cwd())
    given = shown(f"{what} {name}")
    check_trusted(
        trust, f"{given} would import the module {shown(place)} from {shown(folder)}, or where it is installed, and run it"
    )
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
    return found.eval() if isinstance(found, torch.nn.Module) else found


def _takes_nothing(function: Any) -> bool:
    if not callable(function):
        return False
    parameters = inspect.signature(function).parameters.values()
    empty, many = inspect.Parameter.empty, (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(p.default is not empty or p.kind in many for p in parameters)


def shipped(name: str, purpose: str, *, extra: str = "models") -> Path:
    """Where a file of the distribution ``integrand-models`` is installed: weights, a vocabulary, class names or a model card.

    Args:
        name: of the file, such as ``retina.safetensors``.
        purpose: what it is needed for, in words that can begin a sentence: ``grading a retina``.
        extra: the extra of this package that brings all that the purpose needs, the models among it.

    Raises:
        MissingExtraError: ``integrand-models`` is not installed.
        FileError: it is installed but does not have the file.
    """
    try:
        from integrand_models import path
    except ImportError:
        raise MissingExtraError("integrand-models", extra, purpose) from None
    try:
        return path(name)
    except FileNotFoundError:
        raise FileError(
            f"{purpose} needs {name}, which the installed integrand-models does not have; expected a version that belongs to "
            "this integrand. Install it with: pip install --upgrade 'integrand[models]'"
        ) from None


def read_state(path: str | PathLike[str], *, what: str = "weights") -> dict[str, Tensor]:
    """A state dict from a file, on the CPU: .pth, .pt, .bin, .safetensors, .npz or .caffemodel. Nothing in it is executed.

    A checkpoint that holds the state dict under ``state_dict`` or ``model`` is opened, and a prefix ``module.``, which
    training in parallel leaves, is taken off.
    """
    file, name = Path(path), shown(str(path))
    endings = (".npz", ".safetensors", ".pth", ".pt", ".bin", ".caffemodel")
    if file.suffix.lower() not in endings:
        raise FileError(f"{what}: got {name!r}; expected a file that ends in {', '.join(endings)}.")
    if not file.exists():
        raise FileError(f"{what}: there is no file {name!r}. Check the path.")
    found = read_tensors(file, what=what)
    for key in ("state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not only_tensors(found):
        raise FileError(f"{what}: {name!r} holds a {type(found).__name__} that is no state dict; expected names and tensors.")
    return {str(name).removeprefix("module."): value for name, value in found.items()}
