"""What is worth remembering of a model from one call to the next, and forgotten with it: nothing that changes a result's bits.

CUDA graphs are kept here, and, where the user asks for tuning by the clock, the chunk size that turned out fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor

_KNOWN: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()


def notes_of(model: object) -> dict[Any, Any]:
    """Notes about a model, by keys of the writer's choosing; a new dict each time for what cannot be referred to weakly.

    >>> import torch
    >>> net = torch.nn.Linear(1, 1)
    >>> notes_of(net)["rows"] = 8
    >>> notes_of(net), notes_of(torch.nn.Linear(1, 1))
    ({'rows': 8}, {})
    """
    try:
        return _KNOWN.setdefault(model, {})
    except TypeError:  # neither hashed nor referred to weakly
        return {}


def notes_at(model: object, inputs: Sequence[Tensor], *, layered: bool) -> dict[Any, Any]:
    """Notes about a model at inputs of this shape, dtype and device."""
    shapes = tuple((tuple(leaf.shape[1:]), leaf.dtype, leaf.device) for leaf in inputs)
    found: dict[Any, Any] = notes_of(model).setdefault((shapes, layered), {})
    return found


def release_graphs() -> None:
    """Let go of all CUDA graphs of all models, which hold memory that something else needs now."""
    for notes in list(_KNOWN.values()):
        notes.get("graphs", {}).clear()
