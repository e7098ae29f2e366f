"""How each competitor explains a case, with a number of steps or to a tolerance."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
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
    method, target = imported("captum.attr").IntegratedGradients(case.score.model), case.score.target
    values: Tensor = method.attribute(case.x, case.baseline, target=target, n_steps=steps, internal_batch_size=chunk)
    return values


def saliency(case: Case, steps: int, chunk: int | None) -> Tensor:
    """PAIR's package: numpy in and out."""
    core = imported("saliency.core")
    device, dtype = case.x.device, case.x.dtype

    def call(values: Any, call_model_args: Any = None, expected_keys: Any = None) -> dict[str, Any]:
        points = torch.as_tensor(np.asarray(values), device=device, dtype=dtype).requires_grad_(True)
        (gradients,) = torch.autograd.grad(case.score(points).sum(), points)
        return {core.INPUT_OUTPUT_GRADIENTS: gradients.cpu().numpy()}

    x, start = (one[0].cpu().numpy() for one in (case.x, case.baseline))
    mask = core.IntegratedGradients().GetMask(x, call, x_steps=steps, x_baseline=start, batch_size=chunk or steps)
    return torch.as_tensor(mask)[None]


CHUNKS = {"cuda": (64, 128, 256, 512), "cpu": (4, 8, 16, 32, 128)}
PEERS = (
    Peer("captum", captum, CHUNKS),
    Peer("saliency", saliency, CHUNKS),
)
NAMED = {peer.name: peer for peer in PEERS}

DRAWING = ("matplotlib", "mpl_toolkits", "skimage", "scipy")
"""Packages that peers import, and use for other things than integrated gradients."""


class _StandIns(MetaPathFinder, Loader):
    """Finds empty modules in place of packages that are missing."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """For the packages and all their parts."""
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in self.names else None

    def create_module(self, spec: ModuleSpec) -> Any:
        """One that has whatever it is asked for."""
        return mock.MagicMock(__name__=spec.name, __spec__=spec, __path__=[])

    def exec_module(self, module: object) -> None:
        """Nothing to run."""


@lru_cache
def imported(name: str) -> Any:
    """A peer's module; what it imports for drawing and segmenting may be missing."""
    finder = _StandIns({one for one in DRAWING if importlib.util.find_spec(one) is None})
    sys.meta_path.append(finder)
    try:
        return importlib.import_module(name)
    finally:
        sys.meta_path.remove(finder)
        for one in [one for one in sys.modules if one.split(".")[0] in finder.names]:
            del sys.modules[one]  # or others would take it for the real one


@contextmanager
def conditions(case: Case, precision: str = FLOAT32) -> Iterator[None]:
    """PyTorch's settings for a peer; cuDNN refuses the backward of a recurrent network in eval mode, so it is off there."""
    cudnn = torch.backends.cudnn
    enabled = cudnn.enabled and not case.has(nn.RNNBase)
    with cudnn.flags(enabled=enabled, benchmark=False, allow_tf32=precision == DEFAULT):
        yield
