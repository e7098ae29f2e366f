"""What an integration saw on its way: the score, its slope and the attribution mass along the path."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from .arrays import Floats, Ints
from .words import short_repr


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Every point of the path where a gradient was evaluated; it costs nothing, for the integration needs them anyway.

    Where segments were integrated as wholes, mean gradients over them, at their middles, are among the points; where linear
    regions were found, so are both ends of each, just inside.

    Sorted by example, piece and time. A score that rises early and then stays, with hardly any mass at the end, is
    saturation: the gradient at the input alone would have missed it.

    >>> import torch, integrand as ig
    >>> profile = ig.integrated_gradients(lambda x: 1 - torch.relu(1 - x).sum(1), torch.tensor([[2.0]])).profile
    >>> bool((profile.mass[profile.t > 0.5] == 0).all()), round(profile.reached(0.5), 2)
    (True, 0.25)

    Attributes:
        example: which example, (K,).
        piece: which piece of its path (one of several baselines, one line of a polyline), (K,).
        t: where on the piece, from 0 to 1, (K,).
        score: F there, (K,).
        slope: dF/dt, (K,).
        mass: sum|gradient * velocity|, whose integral is what the attributions would be if nothing cancelled along the path,
            (K,).
    """

    example: Ints
    piece: Ints
    t: Floats
    score: Floats
    slope: Floats
    mass: Floats

    __repr__ = short_repr

    def __len__(self) -> int:
        return len(self.t)

    def of(self, example: int, *, piece: int | None = None) -> Profile:
        """The points of one example, on all pieces of its path or on one."""
        mine = self.example == example
        if piece is not None:
            mine &= self.piece == piece
        return Profile(*(getattr(self, part.name)[mine] for part in fields(self)))

    def reached(self, share: float) -> float:
        """The time up to which this share of the mass lies, on the first piece of the first example."""
        here = self.of(int(self.example[0]), piece=int(self.piece[0]))
        steps = np.diff(here.t) * (here.mass[1:] + here.mass[:-1]) / 2
        collected = np.r_[0.0, np.cumsum(steps)]
        if not collected[-1]:
            return float("nan")
        return float(np.interp(share * collected[-1], collected, here.t))
