"""The user's score as a module, and modules around it that keep what it computes or add to it."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._trees import Leaves, flat, unflat
from ..functions import Function
from ._network import network

PAPER = ("relu(relu(x1) - 1 - relu(x2))", "relu(relu(x1 - 1) - relu(x2))")
"""The paper's two networks that compute the same (figure 7)."""

ANCHOR = (3.0, 1.0)
"""Where it looks at them; the baseline is at zero."""


class Scored(nn.Module):
    """One example's score as a function of its tensors alone, (N, ...) each, to (N,)."""

    def __init__(self, function: Function, row: int) -> None:
        super().__init__()
        self.function = function
        self.row = row
        if isinstance(function.call.model, nn.Module):
            self.model = function.call.model  # so that its mode and its parameters are looked after
        self.training = False  # of this module alone: the user's stays as it is

    def forward(self, *leaves: Tensor) -> Tensor:
        """The scores."""
        rows = torch.full((len(leaves[0]),), self.row, device=leaves[0].device)
        return self.function.scores(leaves, rows)


class _Around(nn.Module):
    """A module around a score."""

    def __init__(self, score: nn.Module) -> None:
        super().__init__()
        self.score = score
        self.training = False

    def inner(self, leaves: Leaves) -> Tensor:
        """The score itself."""
        return cast(Tensor, self.score(*leaves))


class BothSigns(_Around):
    """The score of relu(z) - relu(-z), which is z, also in rounding.

    Features that are zero at the input, where relu has no gradient, are left as they are.
    """

    def __init__(self, score: nn.Module, like: Leaves) -> None:
        super().__init__(score)
        self.split = [(leaf != 0).to(leaf.dtype) for leaf in like]

    def forward(self, *leaves: Tensor) -> Tensor:
        """The scores."""
        pairs = zip(leaves, self.split, strict=True)
        return self.inner(tuple(on * (F.relu(leaf) - F.relu(-leaf)) + (1 - on) * leaf for leaf, on in pairs))


class PaperPair(_Around):
    """The score plus a multiple of f - g of the paper's two networks, applied to two features: plus zero.

    Attributes:
        features: their places among all features.
        starts: their values at the baseline, where the networks see (0, 0).
        spans: from there to the input, where they see (3, 1).
        size: the multiple.
    """

    def __init__(self, score: nn.Module, x: Leaves, start: Leaves, features: tuple[int, int], size: float) -> None:
        super().__init__(score)
        self.features, self.size = list(features), size
        here, there = flat(start)[0, self.features].double(), flat(x)[0, self.features].double()
        self.register_buffer("starts", here)
        self.register_buffer("factors", torch.tensor(ANCHOR, dtype=torch.float64, device=here.device) / (there - here))
        self.first, self.second = (network(text).to(here.device) for text in PAPER)
        self.first.training = self.second.training = False

    def forward(self, *leaves: Tensor) -> Tensor:
        """The scores."""
        out = self.inner(leaves)
        rows = torch.stack([flat(leaves)[:, i] for i in self.features], 1).double()
        seen = (rows - cast(Tensor, self.starts)) * cast(Tensor, self.factors)
        nothing = cast(Tensor, self.first(seen) - self.second(seen))
        return out + self.size * nothing.to(out.dtype)


class Sum(_Around):
    """A weighted sum of two scores."""

    def __init__(self, score: nn.Module, other: nn.Module, weights: tuple[float, float]) -> None:
        super().__init__(score)
        self.other, self.weights = other, weights

    def forward(self, *leaves: Tensor) -> Tensor:
        """The scores."""
        first, second = self.inner(leaves), cast(Tensor, self.other(*leaves))
        return self.weights[0] * first + self.weights[1] * second.to(first.dtype)


class Random(nn.Module):
    """A linear function of the features, of about a given size at the input."""

    def __init__(self, x: Leaves, start: Leaves, size: float, generator: torch.Generator) -> None:
        super().__init__()
        span = flat(x)[0] - flat(start)[0]
        weight = torch.randn(len(span), generator=generator, dtype=torch.float64).to(span)
        weight = weight * (size / (float((weight * span).abs().sum()) or 1.0))
        self.register_buffer("weight", weight[None])
        self.training = False

    def forward(self, *leaves: Tensor) -> Tensor:
        """Its values."""
        return F.linear(flat(leaves), cast(Tensor, self.weight)).squeeze(1)


class Mirrored(_Around):
    """F(x) + F(x with features swapped)."""

    def __init__(self, score: nn.Module, order: Tensor) -> None:
        super().__init__(score)
        self.register_buffer("order", order)

    def forward(self, *leaves: Tensor) -> Tensor:
        """The scores."""
        rows = flat(leaves).index_select(1, cast(Tensor, self.order))
        swapped = unflat(rows, [leaf.shape[1:] for leaf in leaves])
        parts = tuple(part.to(leaf.dtype) for part, leaf in zip(swapped, leaves, strict=True))
        return self.inner(leaves) + self.inner(parts)


def as_input(leaves: Leaves) -> Any:
    """What a method takes: one tensor as it is, several as a tuple."""
    return leaves[0] if len(leaves) == 1 else leaves
