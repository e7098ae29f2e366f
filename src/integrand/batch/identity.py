"""What results depend on, and what inputs are, as digests: two runs may share a table if these are the same.

:func:`settings_of` describes what explains inputs, whatever it is: a model's weights, the options that were bound to it, the
code of a function. :func:`digest_of_input` describes an input, so that one that changed under the same key is explained again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import re
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import FileError
from ..files import digest_of
from ..functions.model_state import modules_of
from ..version import version_of

DEPTH = 6
"""How far objects are looked into: a partial of a method of an object that holds options and a model is this deep."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def settings_of(explain: object) -> dict[str, Any]:
    """Everything that is known of what explains inputs, as JSON values: options, weights, code, and the software's versions.

    An object may say itself what counts, with an attribute ``settings`` that is a mapping.

    Args:
        explain: a function, a method, a partial of one, or an object that can be called.
    """
    made = {"integrand": version_of(), "torch": torch.__version__.partition("+")[0]}
    own = getattr(explain, "settings", None)
    if isinstance(own, Mapping):
        return made | {name: described(value) for name, value in own.items()}
    weights = [weights_digest(module) for module in modules_of(explain)] if callable(explain) else []
    return made | {"explain": described(explain), "weights": weights}


def described(value: object, depth: int = 0) -> Any:
    """A value as JSON: itself if it is a plain one, a digest where it is data, a description where it is an object."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if depth > DEPTH:
        return type(value).__name__
    if isinstance(value, nn.Module):
        return {"network": type(value).__name__, "weights": weights_digest(value)}
    if isinstance(value, (Tensor, np.ndarray, bytes)):
        return digest_of_input(value)
    if isinstance(value, functools.partial):
        bound = {"arguments": list(value.args)} if value.args else {}
        return {"function": described(value.func, depth + 1)} | described(bound | dict(value.keywords), depth + 1)
    if inspect.ismethod(value):
        return {"method": value.__func__.__qualname__, "of": described(value.__self__, depth + 1)}
    if inspect.isfunction(value):
        return _function(value, depth)
    if isinstance(value, Mapping):
        return {str(name): described(part, depth + 1) for name, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        return [described(part, depth + 1) for part in parts]
    if isinstance(value, (type, types.BuiltinFunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    return _object(value, depth)


def _function(function: types.FunctionType, depth: int) -> dict[str, Any]:
    """A function by its name, its code and what it has closed over."""
    held = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            held[name] = described(cell.cell_contents, depth + 1)
        except ValueError:  # a cell that is not filled yet
            continue
    return {"function": function.__qualname__, "code": _code(function.__code__)} | ({"closure": held} if held else {})


def _code(code: types.CodeType) -> str:
    found = hashlib.sha256(code.co_code)
    for constant in code.co_consts:
        told = _code(constant) if isinstance(constant, types.CodeType) else _ADDRESS.sub("", repr(constant))
        found.update(told.encode("utf-8", "replace"))
    found.update(" ".join(code.co_names).encode("utf-8", "replace"))
    return found.hexdigest()[:16]


def _object(value: object, depth: int) -> Any:
    """An object by its class and those of its fields that are plain, or networks."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {one.name: getattr(value, one.name, None) for one in dataclasses.fields(value)}
    else:
        fields = dict(getattr(value, "__dict__", {}))
    kept = {name: described(part, depth + 1) for name, part in fields.items() if not name.startswith("_")}
    return {"class": f"{type(value).__module__}.{type(value).__qualname__}"} | kept


def weights_digest(*models: object) -> str:
    """A digest of the weights and buffers of those of some objects that are networks; others, such as names, do not count."""
    found = hashlib.sha256()
    for model in models:
        for key, value in model.state_dict().items() if isinstance(model, nn.Module) else ():
            found.update(f"{key}\n{getattr(value, 'dtype', '')}\n{tuple(getattr(value, 'shape', ()))}\n".encode())
            try:
                found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
            except (AttributeError, RuntimeError, TypeError):  # not a tensor, or one of a kind that is no row of numbers
                found.update(repr(value).encode("utf-8", "replace"))
    return found.hexdigest()


def digest_of_input(item: object) -> str:
    """A digest of an input, 16 characters; empty if nothing can be told of it without running its own code.

    A path counts by what is in its file, which may have changed.

    >>> digest_of_input("a text") == digest_of_input("a text"), digest_of_input("a text") == digest_of_input("another")
    (True, False)
    """
    found = hashlib.blake2b(digest_size=8)
    return found.hexdigest() if _feed(found, item) else ""


def _feed(found: Any, item: object, depth: int = 0) -> bool:
    """Add an input to a digest; whether it could be."""
    found.update(f"{type(item).__name__}:".encode())
    if item is None or isinstance(item, (bool, int, float, complex)):
        found.update(repr(item).encode())
    elif isinstance(item, str):
        found.update(item.encode("utf-8", "surrogatepass"))
    elif isinstance(item, bytes):
        found.update(item)
    elif isinstance(item, Path):
        try:
            found.update(digest_of(item).encode())
        except FileError:
            return False
    elif isinstance(item, Tensor):
        kept = item.detach().cpu().contiguous()
        found.update(f"{kept.dtype}{tuple(kept.shape)}".encode())
        found.update(kept.reshape(-1).view(torch.uint8).numpy())
    elif isinstance(item, (np.ndarray, np.generic)):
        array = np.ascontiguousarray(item)
        if array.dtype.hasobject:
            return False
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(array.tobytes())
    elif isinstance(item, Mapping) and depth < DEPTH:
        return all(_feed(found, str(name)) and _feed(found, part, depth + 1) for name, part in item.items())
    elif isinstance(item, Sequence) and depth < DEPTH:
        found.update(f"{len(item)}:".encode())
        return all(_feed(found, part, depth + 1) for part in item)
    elif hasattr(item, "tobytes") and hasattr(item, "size") and hasattr(item, "mode"):  # a picture of Pillow's
        found.update(f"{item.mode}{item.size}".encode())
        found.update(item.tobytes())
    else:
        return False
    return True
