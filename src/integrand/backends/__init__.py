"""How a model is run and differentiated: one module for each framework, found by the type of the tensors (engine.BACKENDS)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Backend(Protocol):
    """What a backend's module has to offer; see :mod:`integrand.backends.torch_function`.

    Attributes:
        build: from a model and its input to a :class:`~integrand.functions.function.Function`.
        undisturbed: a context in which the model runs, and after which it is as it was.
    """

    __name__: str
    build: Callable[..., Any]
    undisturbed: Callable[..., AbstractContextManager[None]]
