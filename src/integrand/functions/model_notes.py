"""What is worth remembering of a model from one call to the next, and forgotten with it."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from ..backends.torch_function import TorchFunction

_KNOWN: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()


def known(model: object) -> dict[Any, Any]:
    """Notes about a model, by keys of the writer's choosing; of what cannot be remembered, new ones each time.

    >>> import torch
    >>> net = torch.nn.Linear(1, 1)
    >>> known(net)["rows"] = 8
    >>> known(net), known(torch.nn.Linear(1, 1))
    ({'rows': 8}, {})
    """
    try:
        return _KNOWN.setdefault(model, {})
    except TypeError:  # neither hashed nor referred to weakly
        return {}


def release() -> None:
    """Let go of all recordings, which hold memory: some of it is needed."""
    for notes in list(_KNOWN.values()):
        notes.get("recordings", {}).clear()


def known_of(function: TorchFunction) -> dict[Any, Any]:
    """Notes about a function's model at inputs of this shape and kind."""
    shapes = tuple((tuple(leaf.shape[1:]), leaf.dtype, leaf.device) for leaf in function.inputs)
    found: dict[Any, Any] = known(function.call.model).setdefault((shapes, function.layered), {})
    return found
