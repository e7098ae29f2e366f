"""A question settled once: the model's function, the baselines, the groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypedDict

from .._trees import Tensors, flatten, matched
from ..attribution import group_sums
from ..baselines import Baseline, settle_baselines
from ..functions import Score, Target, build, undisturbed
from ..functions._layer import Layers
from ..methods import Problem


class Settings(TypedDict, total=False):
    """How the model is called, as in :func:`integrand.integrated_gradients`: all optional.

    Attributes:
        layer: explain the value of a submodule instead of x.
        layer_side: what the layer gives (``output``) or gets (``input``).
        args: further positional arguments of the model.
        kwargs: further keyword arguments of the model.
        batched: whether the first dimension of x counts examples.
        draws: how many baselines to draw from a function.
        memory: bytes that a run may hold, where it can tell.
        chunk: rows to run at a time.
    """

    layer: Layers | None
    layer_side: Literal["output", "input"]
    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None
    batched: bool | None
    draws: int
    memory: int | None
    chunk: int | None


@contextmanager
def settled(
    model: Callable[..., Any],
    x: Tensors,
    baseline: Baseline,
    *,
    target: Target,
    score: Score,
    groups: Tensors | None,
    layer: Layers | None = None,
    layer_side: Literal["output", "input"] = "output",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    batched: bool | None = None,
    draws: int = 20,
    memory: int | None = None,
    chunk: int | None = None,
) -> Iterator[Problem]:
    """The problem that a method would be asked; while it is open the model is not disturbed."""
    tree, leaves = flatten(x, what="x")
    own = tuple(leaf.clone() if leaf.is_inference() else leaf.detach() for leaf in leaves)
    with undisturbed(model):
        function = build(
            model,
            tree,
            own,
            target=target,
            score=score,
            args=tuple(args),
            kwargs=dict(kwargs or {}),
            layer=layer,
            layer_side=layer_side,
            batched=batched,
        )
        starts = settle_baselines(baseline, function, draws)
        labels = None if groups is None else matched(groups, function.tree, what="groups")
        if labels is not None:
            group_sums(function.inputs, labels, batched=True)  # refuses labels that do not fit
        yield Problem(function, tuple(starts), labels, memory, chunk)
