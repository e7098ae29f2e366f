"""How each competitor explains a case, with a number of steps or to a tolerance."""

from __future__ import annotations

import importlib.util
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import integrand as ig

from .cases import Case, spread

DEFAULT, FLOAT32 = "torch's default", "float32"
Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Peer:
    """A method with a fixed number of steps.

    Attributes:
        name: of the package.
        run: explains a case with so many steps, so many rows at a time.
        chunks: rows at a time that are worth trying, by kind of device; None is all at once.
        most: the most steps that are tried.
        together: whether rows are of all inputs and steps, so that there are no fewer than inputs.
    """

    name: str
    run: Callable[[Case, int, int | None], Tensor]
    chunks: dict[str, tuple[int | None, ...]]
    most: int = 5000
    together: bool = False

    def rows(self, chunk: int | None) -> str:
        """How many at a time, in words."""
        if chunk is None:
            return "all at once" if self.together else "one step at a time"
        return f"{chunk} rows at a time"

    def available(self) -> bool:
        """Whether its package is installed."""
        return importlib.util.find_spec(self.name) is not None

    def error(self, case: Case, steps: int, expected: Floats, precision: str) -> float:
        """The largest relative L1 error over the examples that something is known of."""
        with conditions(case, precision):
            return spread(self.run(case.rows(len(expected)), steps, 64 if case.x.is_cuda else 8), expected)


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
    method = _zennit()

    class Column(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return case.score(x)[:, None]  # type: ignore[no-any-return]

    start = case.baseline
    with method(Column(), n_iter=steps, baseline_fn=lambda x: start.expand_as(x)) as attributor:
        values: Tensor = attributor(case.x, torch.ones(len(case.x), 1, device=case.x.device, dtype=case.x.dtype))[1]
    return values


@lru_cache
def _zennit() -> Any:
    """Zennit's class. It imports torchvision for two classes that are not used here; where that is missing, empty ones do."""
    made: dict[str, types.ModuleType] = {}
    if importlib.util.find_spec("torchvision") is None:
        made = {name: types.ModuleType(name) for name in ("torchvision", "torchvision.models", "torchvision.models.resnet")}
        for name in ("Bottleneck", "BasicBlock"):
            setattr(made["torchvision.models.resnet"], name, type(name, (nn.Module,), {}))
    sys.modules.update(made)
    try:
        from zennit.attribution import IntegratedGradients
    finally:
        for name in made:  # or others would take it for the real one
            del sys.modules[name]
    return IntegratedGradients


def shap(case: Case, steps: int, chunk: int | None) -> Tensor:
    """Shap's GradientExplainer with the baseline as background: points on the line at random."""
    from shap import GradientExplainer

    class Column(nn.Module):
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
    Peer("captum", captum, {"cuda": (None, 64, 256, 1024), "cpu": (4, 8, 16, 64)}, together=True),
    Peer("saliency", saliency, {"cuda": (64, 256), "cpu": (8, 16)}),
    Peer("zennit", zennit, {"cuda": (None,), "cpu": (None,)}),
    Peer("shap", shap, {"cuda": (64, 256), "cpu": (8, 16)}),
)
NAMED = {peer.name: peer for peer in PEERS}


def precisions(case: Case) -> tuple[str, ...]:
    """What a peer may compute in, the cheapest first: on a GPU PyTorch lets the convolutions of cuDNN use TF32."""
    tf32 = case.x.is_cuda and case.has(nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return (DEFAULT, FLOAT32) if tf32 else (DEFAULT,)


@contextmanager
def conditions(case: Case, precision: str = FLOAT32) -> Iterator[None]:
    """PyTorch's settings for a peer; cuDNN refuses the backward of a recurrent network in eval mode, so it is off there."""
    cudnn = torch.backends.cudnn
    enabled = cudnn.enabled and not case.has(nn.RNNBase)
    with cudnn.flags(enabled=enabled, benchmark=False, allow_tf32=precision == DEFAULT):
        yield


def remark(case: Case) -> str:
    """What a peer's user had to do first; empty for nothing."""
    return "cuDNN off, or it fails" if case.x.is_cuda and case.has(nn.RNNBase) else ""
