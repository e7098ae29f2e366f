"""Probabilities of piecewise linear outputs: the head is integrated along each region's line of outputs, without the model.

On a region the outputs z are linear in t and their Jacobian is constant, so the integral of the score's gradient is the
Jacobian's transpose times the mean of dF/dz over the region: one vector-Jacobian product, with a seed known beforehand.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..functions._scores import Scorer
from ._refusal import NotExactError

NODES = 10
"""Gauss-Legendre nodes on a stretch over which the outputs move by at most 2 against each other."""

# A sum of exponentials whose exponents move by at most 2 h against each other on a stretch of half-width h has no zero within
# pi half-widths of it: phases that spread by less than pi cannot cancel. So softmax is analytic in an ellipse of sum of axes
# pi + sqrt(pi^2 + 1) = 6.4, and the error falls like 6.4^-2n: 1e-16 at n = 10.

MOST = 1_000_000
"""Stretches beyond this are refused: probabilities of outputs that move by millions are steps."""

BLOCK = 1 << 22
"""Numbers to work on at a time."""


def scores_of(scorer: Scorer, outputs: Tensor, example: int) -> Tensor:
    """The scores (N,) of an example for outputs (N, ...)."""
    rows = torch.full((len(outputs),), example, device=outputs.device)
    return scorer([outputs] if scorer.batched else list(outputs), rows)


def seeds(scorer: Scorer, outputs: Tensor, example: int) -> Tensor:
    """The mean of dF/dz over each region, (R, ...), for outputs (R + 1, ...) at the break points."""
    start, change = outputs[:-1], outputs[1:] - outputs[:-1]
    flat = change.flatten(1)
    reach = torch.maximum(flat.amax(1), flat.new_zeros(())) - torch.minimum(flat.amin(1), flat.new_zeros(()))
    counts = (reach / 2).ceil().clamp(min=1).long().cpu().numpy()
    if counts.sum() > MOST:
        raise NotExactError(f"the outputs move by {float(reach.max()):.3g} within one linear region")
    region = np.repeat(np.arange(len(counts)), counts)
    first = np.arange(len(region)) - np.repeat(np.cumsum(counts) - counts, counts)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    places = (first[:, None] + (nodes + 1) / 2) / counts[region][:, None]  # (stretches, nodes)
    shares = np.broadcast_to(weights / 2, places.shape) / counts[region][:, None]
    out = torch.zeros_like(start)
    size = max(1, BLOCK // (NODES * max(1, flat.shape[1])))
    for begin in range(0, len(region), size):
        part = slice(begin, begin + size)
        index = torch.as_tensor(np.repeat(region[part], NODES), device=out.device)
        place, share = (torch.as_tensor(a[part].ravel(), device=out.device) for a in (places, shares))
        shape = (-1, *[1] * (start.ndim - 1))
        at = (start[index] + place.reshape(shape) * change[index]).requires_grad_(True)
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(scores_of(scorer, at, example).sum(), at)
        out.index_add_(0, index, slope * share.reshape(shape))
    return out
