"""What is explained: a network, one input and its baseline, the same for everybody.

A case's score takes one tensor of floats, (N, ...), and gives one number per row, so that every peer can take it: images as
they are, texts as their embeddings, a molecule's features as one row of numbers. Networks come with as many cases as they
have inputs, see :mod:`benchmarks.speed.networks`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Scored(nn.Module):
    """One number per row.

    Args:
        model: gives (N, outputs), or (N,) if there is no target.
        target: which of the outputs.
    """

    def __init__(self, model: nn.Module, target: int | None = None) -> None:
        super().__init__()
        self.model, self.target = model, target

    def forward(self, x: Tensor) -> Tensor:
        """(N, ...) to (N,)."""
        out: Tensor = self.model(x)
        return out if self.target is None else out[:, self.target]


class Probabilities(nn.Module):
    """A classifier's softmax.

    Args:
        model: gives logits (N, classes), or something that has them.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """(N, ...) to (N, classes)."""
        out = self.model(x)
        logits: Tensor = out if isinstance(out, Tensor) else out.logits
        return logits.softmax(-1)


@dataclass(frozen=True)
class Case:
    """One network and what is explained.

    Attributes:
        name: of the network.
        weights: where they are from, in a word or two.
        score: from (N, ...) to (N,).
        x: (N, ...), what is explained; one row in the table.
        baseline: (1, ...).
        label: of the input, unique among the network's.
        kinked: whether the gradient jumps along the path, as with ReLU and max-pooling.
    """

    name: str
    weights: str
    score: Scored
    x: Tensor
    baseline: Tensor
    label: str = ""
    kinked: bool = False

    def to(self, device: str | torch.device, dtype: torch.dtype = torch.float32) -> Case:
        """The case on a device, in a precision; its network moves there."""
        self.score.to(device, dtype)
        return replace(self, x=self.x.to(device, dtype), baseline=self.baseline.to(device, dtype))

    def afresh(self) -> Case:
        """The same with a copy of the network, of which nobody remembers anything."""
        return replace(self, score=copy.deepcopy(self.score))

    def has(self, *kinds: type[nn.Module]) -> bool:
        """Whether the network has a module of these kinds; those of TorchScript count by their names."""
        names = {kind.__name__ for kind in kinds}
        return any(isinstance(one, kinds) or getattr(one, "original_name", "") in names for one in self.score.modules())


def batch_of(cases: list[Case], count: int) -> Case:
    """A batch of the first network's score: of all inputs of one shape, or of the first one with its values scaled.

    Args:
        cases: of one network.
        count: rows of the batch.
    """
    first = cases[0]
    shared = [one.x for one in cases if one.score.model is first.score.model and one.x.shape == first.x.shape]
    if len(shared) >= count:
        return replace(first, x=torch.cat(shared[:count]))
    scale = torch.linspace(1, 0.9, count).reshape(-1, *[1] * (first.x.ndim - 1))
    return replace(first, x=first.baseline + (first.x - first.baseline) * scale)


def spread(values: Tensor | np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """The largest relative L1 error over examples."""
    found = torch.as_tensor(values).detach().double().flatten(1).cpu().numpy()
    expected = expected.astype(np.float64)
    return float((np.abs(found - expected).sum(1) / np.abs(expected).sum(1)).max())
