"""What one-hot encoding leaves free, and a function whose integrated gradients are attributions and hypothetical ones at once.

One-hot columns add up to 1. A network is only ever shown such columns, so that its slope along "all letters of a position
together" is arbitrary: adding c (sum of the column - 1) changes no prediction and every gradient (Majdandzic et al. 2023). What
is well defined are directions that keep the sum, from letter to letter. They are got by the projection C, which takes its mean
off every column: C(g) is the corrected gradient.

:class:`SimplexModel` runs a network at C(a) + C(u) + w, where
- ``a`` goes from the baseline x' to the sequence x; of it, C keeps what goes from letter to letter;
- ``w`` is the mean of each column, the same for all its letters. It moves only where a baseline leaves the simplex (all zeros,
  say), and is a constant otherwise;
- ``u`` goes from 0 to r for all letters alike, and since C takes means off, that moves nothing: C(u) stays 0.

So the network sees the straight line from x' to x, whatever u does. The attributions of this function, true integrals all of
them, are: for ``a``, C(G) (x - x'), where G is the mean gradient along the line: the corrected attributions, which add up over
letters to those of positions; for ``w``, what leaving the simplex changed; for ``u``, r C(G). The last add up to 0 at every
position, so that the sum of all is the change of the score, and completeness can be used as always. Nor does the arbitrary
slope enter the magnitudes that the tolerance refers to. What letter c would get in place of the one that is there, sum over
letters of G (e_c - x'), the *hypothetical contribution*, is the attribution of the position plus C(G)_c - C(G)_present.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...words import short_repr

Layout = Literal["letters-positions", "positions-letters"]
"""What a network takes: (N, letters, L) or (N, L, letters)."""

FLAT = 1e-6
"""A path whose columns' sums move by less than this, in all, keeps them: what is left is rounding."""


class SimplexModel(nn.Module):
    """A network on C(a) + C(u) + w, each (N, letters, L); see the module's text.

    Args:
        model: the network.
        layout: what it takes.
        paths: the way it is run along: whether there is a u, and what w is where it does not move.
    """

    level: Tensor

    def __init__(self, model: Callable[..., Any], layout: Layout, paths: SimplexPaths) -> None:
        super().__init__()
        self.model, self.layout, self.probed = model, layout, paths.probed
        self.register_buffer("level", paths.level, persistent=False)
        self.train(isinstance(model, nn.Module) and model.training)

    def forward(self, a: Tensor, *more: Tensor) -> Any:
        """What the network gives."""
        columns = centred(a)
        if self.probed:
            columns = columns + centred(more[0])
        columns = columns + (more[-1] if len(more) > self.probed else self.level)
        return self.model(columns if self.layout == "letters-positions" else columns.transpose(1, 2))


def centred(columns: Tensor) -> Tensor:
    """Columns (N, letters, L) without their means over the letters."""
    return columns - columns.mean(1, keepdim=True)


@dataclass(frozen=True)
class SimplexPaths:
    """The straight lines from baselines to a sequence, taken apart as :class:`SimplexModel` has them.

    Attributes:
        starts: of a, u and w, each (N, letters, L); u and w only where they are there.
        ends: likewise.
        reach: r, how far u goes.
        probed: whether there is a u.
        leaves: whether there is a w that moves, since a baseline leaves the simplex.
        level: otherwise, the means of the columns, (1, 1, L).
    """

    starts: tuple[Tensor, ...]
    ends: tuple[Tensor, ...]
    reach: float
    probed: bool
    leaves: bool
    level: Tensor

    __repr__ = short_repr

    @staticmethod
    def of(columns: Tensor, baselines: Tensor, *, probed: bool) -> SimplexPaths:
        """The paths from baselines (N, letters, L) to the columns of a sequence (letters, L).

        Args:
            columns: of the sequence.
            baselines: of each baseline.
            probed: whether hypothetical contributions are wanted.
        """
        ends = columns.expand_as(baselines).contiguous()
        level = columns.mean(0, keepdim=True)[None]
        before = baselines.mean(1, keepdim=True)
        leaves = bool((level - before).abs().sum() > FLAT * (ends - baselines).abs().sum())
        starts, stops = [baselines], [ends]
        # There are as many hypothetical contributions at a position as letters: so all of them count about like what is there.
        reach = 1 / len(columns)
        if probed:
            starts.append(torch.zeros_like(baselines))
            stops.append(torch.full_like(baselines, reach))
        if leaves:
            starts.append(before.expand_as(baselines).contiguous())
            stops.append(level.expand_as(baselines).contiguous())
        return SimplexPaths(tuple(starts), tuple(stops), reach, probed, leaves, level)
