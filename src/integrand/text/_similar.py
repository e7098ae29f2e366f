"""Sentence encoders: which words of a sentence make it similar to another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..errors import ModelError, OptionError
from ..functions._scores import main_tensor

Pooling = Literal["mean", "first", "last", "max"] | Callable[[Any, Tensor], Tensor]
POOLINGS = ("mean", "first", "last", "max")


@dataclass(frozen=True)
class Pooled:
    """One vector per sentence from a model's output.

    Attributes:
        pooling: the mean over the tokens, the first or last of them, their maximum, or a function of the output and the
            mask (N, T).
    """

    pooling: Pooling

    def __post_init__(self) -> None:
        if not callable(self.pooling) and self.pooling not in POOLINGS:
            names = ", ".join(map(repr, POOLINGS))
            raise OptionError(f"got pooling={self.pooling!r}; expected one of {names}, or a function of output and mask.")

    def __call__(self, output: Any, mask: Tensor) -> Tensor:
        """(N, D), of the output of a model for tokens with a mask (N, T)."""
        if callable(self.pooling):
            return self.pooling(output, mask)
        states = _states(output, mask)
        real = mask.to(states.device).bool()[..., None]
        wide = states.to(torch.promote_types(states.dtype, torch.float32))
        if self.pooling == "mean":
            return torch.where(real, wide, 0).sum(1) / real.sum(1)
        if self.pooling == "max":
            return torch.where(real, wide, -torch.inf).amax(1)
        places = torch.arange(real.shape[1], device=wide.device)[None, :, None]
        at = torch.where(real, places, real.shape[1]).amin(1) if self.pooling == "first" else (real * places).amax(1)
        return wide[torch.arange(len(wide), device=wide.device), at[:, 0]]


def _states(output: Any, mask: Tensor) -> Tensor:
    states = output["last_hidden_state"] if "last_hidden_state" in output else main_tensor(output)
    if states.ndim != 3 or states.shape[:2] != mask.shape:
        raise ModelError(
            f"the model gives shape {tuple(states.shape)} for {tuple(mask.shape)} tokens; expected a vector for every token "
            "(last_hidden_state). Load it with AutoModel, or pass pooling= a function of output and mask."
        )
    return states


@dataclass(frozen=True)
class Cosine:
    """How similar each row is to a vector of its own."""

    pooled: Pooled

    def __call__(self, output: Any, rows: dict[str, Tensor]) -> Tensor:
        """(N,) cosines."""
        vectors = self.pooled(output, rows["mask"])
        return nn.functional.cosine_similarity(vectors, rows["other"].to(vectors), dim=1)
