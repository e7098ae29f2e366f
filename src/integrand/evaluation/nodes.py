"""Points of paths, and what must not come of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..arrays import Floats, Ints
from ..errors import NonFiniteError
from ..trees import Leaves


@dataclass(frozen=True)
class Nodes:
    """Points to evaluate: times ``t`` on ``pieces`` of the path of examples ``rows``, (K,) each."""

    t: Floats
    rows: Ints
    pieces: Ints

    def __len__(self) -> int:
        return len(self.t)

    def __getitem__(self, index: Ints) -> Nodes:
        return Nodes(self.t[index], self.rows[index], self.pieces[index])


def check_finite(names: Sequence[str], nodes: Nodes, scores: Floats, slopes: Floats, gradients: Leaves) -> None:
    """Refuse scores and gradients that are not numbers, with the place.

    Args:
        names: of the explained tensors.
        nodes: where.
        scores: F, (N,).
        slopes: dF/dt, (N,).
        gradients: (N, ...) each, to say which feature it is; none where they are not at hand.
    """
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        where = f"example {nodes.rows[bad[0]]}, t = {nodes.t[bad[0]]:.6g} of the path"
        raise NonFiniteError(
            f"the score is {scores[bad[0]]} at {where}; expected a finite number everywhere on the path. Choose a "
            "baseline within the model's domain, or look for overflow, log of 0 or division by 0 in the model."
        )
    bad = np.flatnonzero(~np.isfinite(slopes))
    if not len(bad):
        return
    row = bad[0]
    for name, leaf in zip(names, gradients, strict=False):
        places = (~torch.isfinite(leaf[row])).nonzero()
        if len(places):
            place = tuple(places[0].tolist())
            raise NonFiniteError(
                f"the gradient is {leaf[row][place].item()} at feature {place} of x{name}, example {nodes.rows[row]}, t = "
                f"{nodes.t[row]:.6g} of the path; expected finite gradients. Square roots, norms and logs at exactly 0 do "
                "this: start from a baseline slightly off 0, or add an epsilon inside the model."
            )
    raise NonFiniteError(f"gradient times velocity overflows for example {nodes.rows[row]}; scale the input or the score.")
