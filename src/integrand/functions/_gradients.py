"""What autograd gives, and what it says when it cannot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .._trees import Leaves
from ..errors import GradientError


def filled(gradients: Sequence[Tensor | None], points: Leaves) -> Leaves:
    """Zeros for what the score does not depend on."""
    return tuple(torch.zeros_like(p) if g is None else g for g, p in zip(gradients, points, strict=True))


@contextmanager
def explained() -> Iterator[None]:
    """Autograd's errors about values that were overwritten, in words that say what to do."""
    try:
        yield
    except RuntimeError as error:
        if any(words in str(error) for words in _IN_PLACE):
            raise GradientError(_overwritten(error)) from error
        raise


_IN_PLACE = ("modified by an inplace operation", "used in an in-place operation", "being modified inplace")
"""How autograd says that something was overwritten."""


def no_gradient(raw: Any) -> str:
    """The message for a score that does not depend on what is explained, by the model's raw output."""
    inference = any(isinstance(part, Tensor) and part.is_inference() for part in pytree.tree_leaves(raw))
    cause = "it was computed in inference mode" if inference else "something cuts the graph"
    return (
        f"the score has no gradient with respect to what is explained: {cause}. Expected a score that autograd can follow to "
        "x: look for .detach(), .data, torch.no_grad(), torch.inference_mode(), numpy, argmax, round or an integer cast in the "
        "model, or a target that does not use x."
    )


def _overwritten(error: RuntimeError) -> str:
    return (
        "the model writes in place to a value that its own gradient needs, so it cannot be differentiated. Expected y = y * 2 "
        f"instead of y *= 2, y.mul_(2) or inplace=True; torch.autograd.set_detect_anomaly(True) finds the line. ({error})"
    )
