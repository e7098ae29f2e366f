"""How each competitor explains a case, with a number of steps or to a tolerance."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import integrand as ig

from .cases import Case

Run = Callable[[], Tensor]


@dataclass(frozen=True)
class Peer:
    """A method with a fixed number of steps.

    Attributes:
        name: of the package.
        run: explains a case with so many steps, so many rows at a time.
        chunks: rows at a time that are worth trying.
        most: the most steps that are tried.
    """

    name: str
    run: Callable[[Case, int, int | None], Tensor]
    chunks: tuple[int | None, ...] = (None,)
    most: int = 5000


def integrand(case: Case, tol: float, **options: Any) -> ig.Attribution:
    """To a tolerance, as a user would."""
    return ig.integrated_gradients(case.score, case.x, case.baseline, tol=tol, progress=False, **options)


def captum(case: Case, steps: int, chunk: int | None) -> Tensor:
    """Captum's default rule, Gauss-Legendre."""
    from captum.attr import IntegratedGradients

    rows = None if chunk is None else max(chunk, len(case.x))
    values: Tensor = IntegratedGradients(case.score).attribute(case.x, case.baseline, n_steps=steps, internal_batch_size=rows)
    return values


def saliency(case: Case, steps: int, chunk: int | None) -> Tensor:
    """PAIR's package: numpy in and out, one input at a time."""
    from saliency.core import INPUT_OUTPUT_GRADIENTS, IntegratedGradients

    device, dtype = case.x.device, case.x.dtype

    def call(values: Any, call_model_args: Any = None, expected_keys: Any = None) -> dict[str, Any]:
        points = torch.as_tensor(np.asarray(values), device=device, dtype=dtype).requires_grad_(True)
        (gradients,) = torch.autograd.grad(case.score(points).sum(), points)
        return {INPUT_OUTPUT_GRADIENTS: gradients.cpu().numpy()}

    masks = []
    for one in case.x:
        options = {"x_steps": steps, "x_baseline": case.baseline[0].cpu().numpy(), "batch_size": chunk or 64}
        masks.append(IntegratedGradients().GetMask(one.cpu().numpy(), call, **options))
    return torch.as_tensor(np.stack(masks))


def zennit(case: Case, steps: int, chunk: int | None) -> Tensor:
    """Zennit: one step at a time."""
    from zennit.attribution import IntegratedGradients

    class Column(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return case.score(x)[:, None]  # type: ignore[no-any-return]

    start = case.baseline
    with IntegratedGradients(Column(), n_iter=steps, baseline_fn=lambda x: start.expand_as(x)) as attributor:
        values: Tensor = attributor(case.x, torch.ones(len(case.x), 1, device=case.x.device, dtype=case.x.dtype))[1]
    return values


def shap(case: Case, steps: int, chunk: int | None) -> Tensor:
    """Shap's GradientExplainer with the baseline as background: points on the line at random."""
    from shap import GradientExplainer

    class Column(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score = case.score

        def forward(self, x: Tensor) -> Tensor:
            return self.score(x)[:, None]  # type: ignore[no-any-return]

    explainer = GradientExplainer(Column(), case.baseline.contiguous(), batch_size=chunk or 50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = explainer.shap_values(case.x, nsamples=steps, rseed=0)
    return torch.as_tensor(np.asarray(values)).reshape(case.x.shape)


PEERS = (
    Peer("captum", captum, (None, 8, 16, 64, 256)),
    Peer("saliency", saliency, (16, 64), 1000),
    Peer("zennit", zennit, (None,), 1000),
    Peer("shap", shap, (16, 64), 1000),
)


def gauss_legendre(case: Case, nodes: int, chunk: int) -> np.ndarray[Any, Any]:
    """The reference, by hand: Gauss-Legendre on 64 equal panels, in the case's own precision, (N, features) in float64."""
    panels = 64 if nodes >= 512 else 1
    t, weights = np.polynomial.legendre.leggauss(max(nodes // panels, 1))
    starts = np.arange(panels)[:, None] / panels
    t, weights = ((t + 1) / 2 / panels + starts).ravel(), np.tile(weights / 2 / panels, panels)
    out = []
    for row in case.x:
        total = torch.zeros_like(row, dtype=torch.float64)
        for at in range(0, len(t), chunk):
            times = torch.as_tensor(t[at : at + chunk], device=row.device, dtype=row.dtype)
            shape = (-1, *[1] * row.ndim)
            points = (case.baseline + times.reshape(shape) * (row - case.baseline)).requires_grad_(True)
            (gradients,) = torch.autograd.grad(case.score(points).sum(), points)
            factor = torch.as_tensor(weights[at : at + chunk], device=row.device).reshape(shape)
            total += (gradients.double() * factor).sum(0)
        out.append((total * (row - case.baseline[0]).double()).flatten().cpu().numpy())
    return np.stack(out)
