"""A line fitted to scores, with the standard errors of its slopes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import OptionError


@dataclass(frozen=True)
class Fit:
    """A line: its slopes and their standard errors, (features,) each, its R2, and the points it was fitted to."""

    slopes: Tensor
    standard_error: Tensor
    r2: float
    count: int
    sampled: bool

    @property
    def error(self) -> Tensor:
        """The sum of the standard errors relative to that of the slopes; zero of zero is no error."""
        total = self.standard_error.sum()
        return torch.where(total == 0, 0.0, total / self.slopes.abs().sum())


def _r2(scores: Tensor, off: Tensor, weights: Tensor) -> float:
    """The share of the weighted variance that the line explains; all of it where there is none, up to rounding."""
    spread = float((weights * (scores - (weights * scores).sum()).square()).sum())
    rounding = (1e-6 * float(scores.abs().max())) ** 2
    return 1.0 if spread <= rounding else 1 - float((weights * off.square()).sum()) / spread


def fitted(points: Tensor, scores: Tensor, weights: Tensor, ridge: float, *, sampled: bool) -> Fit:
    """Weighted ridge regression of scores (N,) on points (N, features), solved directly; the constant is not penalised."""
    n = points.shape[1]
    weights = weights / weights.sum()
    counted = 1 / float((weights**2).sum())
    if sampled and counted < n + 2:
        raise OptionError(
            f"the kernel is so narrow that about {counted:.0f} of {len(points)} samples count; expected more than the "
            f"{n + 1} coefficients of the line. Use a larger width, or raise samples."
        )
    design = torch.cat([torch.ones_like(points[:, :1]), points], 1)
    penalty = torch.full((n + 1,), ridge).to(scores)
    penalty[0] = 0
    normal = (design * weights[:, None]).T @ design + penalty.diag()
    inverse, singular = torch.linalg.inv_ex(normal)
    if singular:
        raise OptionError("the kernel is too narrow to tell the features apart; use a larger width, or a ridge.")
    coefficients = torch.linalg.solve(normal, design.T @ (weights * scores))
    off = scores - design @ coefficients
    r2 = _r2(scores, off, weights)
    if not sampled:
        return Fit(coefficients[1:], torch.zeros_like(coefficients[1:]), r2, len(points), sampled)
    # HC3: a point with leverage pulls the line to itself, so that its residual is too small by 1 - leverage.
    leverage = weights * ((design @ inverse) * design).sum(1)
    pull = weights * off / (1 - leverage).clamp(min=1e-6)
    variance = ((design * pull[:, None]) @ inverse).square().sum(0)
    return Fit(coefficients[1:], variance[1:].sqrt(), r2, len(points), sampled)
