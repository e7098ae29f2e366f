"""A small table with numbers and categories, and models on it."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

CITIES = ("Bergen", "Oslo", "Tromsø")


def people(count=40, seed=0):
    """Age, income, city and a smoker's yes or no, with an index that is not the position."""
    import pandas as pd

    draw = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": draw.integers(18, 90, count).astype(float),
            "income": draw.normal(50_000, 12_000, count),
            "city": draw.choice(CITIES, count),
            "smoker": draw.choice(["no", "yes"], count),
        },
        index=[f"p{i}" for i in range(count)],
    )


KINDS = {"age": (50.0, 20.0), "income": (50_000.0, 12_000.0), "city": list(CITIES), "smoker": ["no", "yes"]}
"""The columns as models below take them: two scaled numbers, three and two one-hot ones."""


def encoded(frame):
    """The same by hand, (rows, 7) in float64."""
    parts = [(frame["age"] - 50) / 20, (frame["income"] - 50_000) / 12_000]
    parts += [(frame["city"] == city).astype(float) for city in CITIES]
    parts += [(frame["smoker"] == said).astype(float) for said in ("no", "yes")]
    return torch.tensor(np.stack([part.to_numpy() for part in parts], axis=1))


OWNERS = torch.tensor([0, 1, 2, 2, 2, 3, 3])
"""The column of each of the seven numbers."""


class Mixed(nn.Module):
    """Two numbers and two embeddings, all mixed by a hidden layer."""

    def __init__(self, order="numbers, codes", shared=False):
        super().__init__()
        self.city, self.smoker = nn.Embedding(3, 4), nn.Embedding(2, 4)
        self.both = nn.Embedding(5, 4) if shared else None
        self.head = nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 1))
        self.order = order

    def forward(self, *x):
        if self.order == "together":
            numbers, codes = x[0][:, :2], x[0][:, 2:].long()
        else:
            numbers, codes = x if self.order == "numbers, codes" else x[::-1]
        if self.both is not None:
            looked = self.both(codes + torch.tensor([0, 3])).flatten(1)
        else:
            looked = torch.cat([self.city(codes[:, 0]), self.smoker(codes[:, 1])], 1)
        return self.head(torch.cat([numbers, looked], 1))


def by_gauss(function, x, start, nodes=64):
    """Integrated gradients of tensors (rows, ...) by a plain Gauss-Legendre sum: one tensor for each."""
    t, weights = np.polynomial.legendre.leggauss(nodes)
    totals = [torch.zeros_like(one) for one in x]
    for time, weight in zip((t + 1) / 2, weights / 2, strict=True):
        points = [(a + time * (b - a)).requires_grad_() for a, b in zip(start, x, strict=True)]
        slopes = torch.autograd.grad(function(*points).sum(), points)
        for total, slope, a, b in zip(totals, slopes, start, x, strict=True):
            total += weight * slope * (b - a)
    return [total.detach() for total in totals]
