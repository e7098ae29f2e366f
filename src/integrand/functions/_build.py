"""Building the explained function: look at the input, run the model once, settle batch and target."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from .._trees import Leaves, Tree
from ..errors import GradientError, InPlaceWarning, InputError, NonFiniteError
from ._call import Call, Runs
from ._layer import Layers, capture, find_modules
from ._scores import Scorer, Target, main_tensor, make_scorer

LayerSide = Literal["output", "input"]


@dataclass(frozen=True)
class Function:
    """A score per row of the explained tensors, and its gradient.

    Attributes:
        run: from explained rows to the model's raw outputs.
        scorer: from raw outputs to scores.
        inputs: the explained tensors at the input, (examples, ...) each.
        tree: their structure.
        batched: whether the user's tensors have a batch dimension.
        at_input: the scores at the input.
        scale: the size of the model's outputs, for telling rounding from difference.
        call: the model's own call.
        layered: whether a layer is explained.
    """

    run: Runs
    scorer: Scorer
    inputs: Leaves
    tree: Tree
    batched: bool
    at_input: Tensor
    scale: float
    call: Call
    layered: bool = False

    @property
    def examples(self) -> int:
        """How many examples are explained."""
        return self.inputs[0].shape[0]

    def scores(self, leaves: Leaves, rows: Tensor) -> Tensor:
        """Scores of shape (N,) at points ``leaves`` of shape (N, ...), row i of example ``rows[i]``."""
        return self.scorer(self.run(leaves, rows), rows)

    def value_and_grad(self, leaves: Leaves, rows: Tensor, *, create_graph: bool = False) -> tuple[Tensor, Leaves]:
        """Scores and their gradients at points."""
        points = tuple(leaf.requires_grad_(True) if leaf.is_leaf else leaf for leaf in leaves)
        scores = self.scores(points, rows)
        if not scores.requires_grad:
            raise GradientError(_no_gradient(scores))
        gradients = torch.autograd.grad(scores.sum(), points, create_graph=create_graph, allow_unused=True)
        filled = tuple(torch.zeros_like(p) if g is None else g for g, p in zip(gradients, points, strict=True))
        return (scores if create_graph else scores.detach()), filled


def _no_gradient(scores: Tensor) -> str:
    cause = "it was computed in inference mode" if scores.is_inference() else "something cuts the graph"
    return (
        f"the score has no gradient with respect to what is explained: {cause}. Expected a score that autograd can follow to x; "
        "look for .detach(), .data, torch.no_grad(), torch.inference_mode(), numpy, argmax, round or an integer cast in the "
        "model, or a target that does not use x."
    )


def build(
    model: Callable[..., Any],
    tree: Tree,
    leaves: Leaves,
    *,
    target: Target,
    score: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    layer: Layers | None,
    layer_side: LayerSide,
    batched: bool | None,
) -> Function:
    """Run the model once at the input and settle everything that stays fixed along the path."""
    check_tensors(tree, leaves, what="x", integers=layer is not None)
    outputs, batched, writes = _probe(model, tree, leaves, target, args, kwargs, batched)
    examples = leaves[0].shape[0] if batched else 1
    rows_of = leaves if batched else tuple(leaf[None] for leaf in leaves)
    call = Call(model, tree, examples, batched, args, kwargs, copies=writes)
    if writes:
        warnings.warn(
            "the model writes into its input in place; a copy is explained and x is left as it was. Expected a model that "
            "leaves its input alone: replace x.add_(...) and the like by x = x + ...",
            InPlaceWarning,
            stacklevel=5,
        )
    if layer is None:
        scorer = make_scorer(target, score, outputs, examples, batched=batched)
        at_input, scale = _score_at(scorer, outputs, examples)
        return Function(call, scorer, rows_of, tree, batched, at_input, scale, call)
    inner, values, outputs = capture(call, rows_of, find_modules(model, layer), layer_side)
    scorer = make_scorer(target, score, outputs, examples, batched=batched)
    kind = Tree("tensor") if len(values) == 1 else Tree("tuple", (), len(values))
    at_input, scale = _score_at(scorer, outputs, examples)
    return Function(inner, scorer, values, kind, batched, at_input, scale, call, layered=True)


def _score_at(scorer: Scorer, outputs: list[Any], examples: int) -> tuple[Tensor, float]:
    """The scores at the input, and how large the numbers are that they are made of."""
    scores = scorer(outputs, torch.arange(examples)).detach()
    bad = (~scores.isfinite()).nonzero().flatten().tolist()
    if bad:
        raise NonFiniteError(
            f"the score is {scores[bad[0]].item()} at the input (example {bad[0]}); expected a finite number. "
            "Look for overflow, log of 0 or division by 0 in the model; a log-probability may need score='probability'."
        )
    scale = float(scores.abs().max())
    if scorer.score == "logit" and scorer.function is None:
        scale = max(scale, float(main_tensor(outputs[0]).abs().max()))
    return scores, scale


def _probe(
    model: Callable[..., Any],
    tree: Tree,
    leaves: Leaves,
    target: Target,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    batched: bool | None,
) -> tuple[list[Any], bool, bool]:
    """The raw outputs at the input, whether there is a batch dimension, and whether the model writes into x."""
    copies = tuple(leaf.detach().clone() for leaf in leaves)
    before = [leaf._version for leaf in copies]
    with torch.no_grad():
        raw = Call(model, tree, 1, True, args, kwargs)._run(copies, args, kwargs)
    writes = [leaf._version for leaf in copies] != before
    if batched is None:
        batched = _has_batch(raw, leaves, target)
    if batched and any(leaf.ndim == 0 or leaf.shape[0] != leaves[0].shape[0] for leaf in leaves):
        shapes = [tuple(leaf.shape) for leaf in leaves]
        raise InputError(
            f"the tensors of x have shapes {shapes}; expected the same number of examples in the first dimension of each. "
            "Pass what has no batch dimension through args= or kwargs=."
        )
    return [raw], batched, writes


def _has_batch(raw: Any, leaves: Leaves, target: Target) -> bool:
    value = raw if isinstance(target, Tensor) or not callable(target) else target(raw)
    tensor = main_tensor(value)
    if tensor.ndim == 0 or any(leaf.ndim == 0 for leaf in leaves):
        return False
    # A vector in and a vector of another length out is one example with several outputs.
    return not (leaves[0].ndim == 1 and tensor.ndim == 1 and tensor.shape[0] != leaves[0].shape[0])


def check_tensors(tree: Tree, leaves: Leaves, *, what: str, integers: bool = False) -> None:
    """Floating point, finite, not empty; ids are fine where a layer is explained."""
    for name, leaf in zip(tree.names, leaves, strict=True):
        if leaf.numel() == 0:
            raise InputError(f"{what}{name} is empty (shape {tuple(leaf.shape)}); expected at least one example and one feature.")
        if not leaf.dtype.is_floating_point:
            if integers and not leaf.dtype.is_complex:
                continue
            raise InputError(
                f"{what}{name} has dtype {leaf.dtype}; expected floating point, since a path runs between whole numbers. "
                f"Convert pixels with {what}.float(); for token ids name the embedding with layer=; pass masks and lengths "
                "through kwargs=."
            )
        bad = (~torch.isfinite(leaf)).nonzero()
        if len(bad):
            place = tuple(bad[0].tolist())
            raise InputError(
                f"{what}{name} holds {leaf[place].item()} at index {place} ({len(bad)} such values); expected finite numbers. "
                "Replace missing values before explaining."
            )
