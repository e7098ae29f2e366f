"""How each competitor explains a case, with a number of steps or to a tolerance."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

import integrand as ig

from .cases import Case

DEFAULT, FLOAT32 = "torch's default", "float32"


@dataclass(frozen=True)
class Peer:
    """A method with a fixed number of steps.

    Attributes:
        name: of the package.
        run: explains a case with so many steps, so many rows at a time (None: all at once).
        chunks: rows at a time that are worth trying, by kind of device.
    """

    name: str
    run: Callable[[Case, int, int | None], Tensor]
    chunks: dict[str, tuple[int, ...]]

    def available(self) -> bool:
        """Whether its package is installed."""
        return importlib.util.find_spec(self.name) is not None


def integrand(case: Case, tol: float, **options: Any) -> ig.Attribution:
    """To a tolerance, as a user would: all else is left at its default."""
    model, target = case.score.model, case.score.target
    return ig.integrated_gradients(model, case.x, case.baseline, target=target, tol=tol, progress=False, **options)


def captum(case: Case, steps: int, chunk: int | None) -> Tensor:
    """Captum's default rule, Gauss-Legendre."""
    with _stand_ins():
        from captum.attr import IntegratedGradients

    method, target = IntegratedGradients(case.score.model), case.score.target
    values: Tensor = method.attribute(case.x, case.baseline, target=target, n_steps=steps, internal_batch_size=chunk)
    return values


def saliency(case: Case, steps: int, chunk: int | None) -> Tensor:
    """PAIR's package: numpy in and out."""
    with _stand_ins():
        from saliency.core import INPUT_OUTPUT_GRADIENTS, IntegratedGradients

    device, dtype = case.x.device, case.x.dtype

    def call(values: Any, call_model_args: Any = None, expected_keys: Any = None) -> dict[str, Any]:
        points = torch.as_tensor(np.asarray(values), device=device, dtype=dtype).requires_grad_(True)
        (gradients,) = torch.autograd.grad(case.score(points).sum(), points)
        return {INPUT_OUTPUT_GRADIENTS: gradients.cpu().numpy()}

    x, start = (one[0].cpu().numpy() for one in (case.x, case.baseline))
    mask = IntegratedGradients().GetMask(x, call, x_steps=steps, x_baseline=start, batch_size=chunk or steps)
    return torch.as_tensor(mask)[None]


PEERS = (
    Peer("captum", captum, {"cuda": (64, 128, 256), "cpu": (4, 8, 16, 32)}),
    Peer("saliency", saliency, {"cuda": (64, 128, 256), "cpu": (4, 8, 16, 32)}),
)
NAMED = {peer.name: peer for peer in PEERS}

_DRAWING = ("matplotlib", "mpl_toolkits", "skimage", "scipy")
_PARTS = (
    *(f"matplotlib.{part}" for part in ("axes", "cm", "collections", "colors", "figure", "image", "pyplot")),
    *("mpl_toolkits.axes_grid1", "skimage.morphology", "skimage.segmentation", "scipy.ndimage"),
)


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Something to import in place of packages for drawing and segmenting that peers import, use elsewhere, and are missing."""
    missing = {name for name in _DRAWING if name not in sys.modules and importlib.util.find_spec(name) is None}
    names = [*missing, *(part for part in _PARTS if part.split(".")[0] in missing)]
    sys.modules.update({name: mock.MagicMock() for name in names})
    try:
        yield
    finally:
        for name in names:  # or others would take it for the real one
            del sys.modules[name]


@contextmanager
def conditions(case: Case, precision: str = FLOAT32) -> Iterator[None]:
    """PyTorch's settings for a peer; cuDNN refuses the backward of a recurrent network in eval mode, so it is off there."""
    cudnn = torch.backends.cudnn
    enabled = cudnn.enabled and not case.has(nn.RNNBase)
    with cudnn.flags(enabled=enabled, benchmark=False, allow_tf32=precision == DEFAULT):
        yield
