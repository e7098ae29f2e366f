"""How a model is called, as options that every method takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from ..functions._layer import Layers


class Settings(TypedDict, total=False):
    """How the model is called, as in :func:`integrand.integrated_gradients`: all optional.

    Attributes:
        layer: explain the value of a submodule instead of x.
        layer_side: what the layer gives (``output``) or gets (``input``).
        args: further positional arguments of the model.
        kwargs: further keyword arguments of the model.
        batched: whether the first dimension of x counts examples.
        draws: how many baselines to draw from a function.
        memory: bytes that a run may hold, where it can tell.
        chunk: rows to run at a time.
    """

    layer: Layers | None
    layer_side: Literal["output", "input"]
    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None
    batched: bool | None
    draws: int
    memory: int | None
    chunk: int | None
