"""Gradients and Hessian-vector products at points of the path, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .._trees import Leaves, flat, unflat
from ..errors import GradientError, NonFiniteError
from ..execute import Evaluator
from ..execute._evaluate import has_float64
from ..execute._nodes import Floats, Ints, Nodes, check_finite
from ._choose import Rows

_NOT_TWICE = ("is not implemented", "once_differentiable", "double backward", "not currently supported", "not differentiable")
"""How autograd says that something has a gradient, but no gradient of its gradient."""


@dataclass(frozen=True)
class Curved:
    """What came of some nodes.

    Attributes:
        index: which nodes, (N,).
        scores: F, (N,).
        terms: gradient times velocity, (N, features).
        products: for each row, Hessian times the row's velocity, times velocity, (N, rows, columns).
        totals: the same for all features as one row, (N, features).
    """

    index: Ints
    scores: Floats
    terms: Tensor
    products: Tensor
    totals: Tensor


class Curvature:
    """Runs the function at nodes of the path, for its gradient and for its rows of the Hessian.

    Args:
        evaluator: where the points come from, and the chunks.
        rows: which rows.
    """

    def __init__(self, evaluator: Evaluator, rows: Rows) -> None:
        self.evaluator = evaluator
        self.rows = rows
        self.shapes = [leaf.shape[1:] for leaf in evaluator.function.inputs]
        self.products = np.zeros(evaluator.function.examples, np.int64)
        self.wide = torch.float64 if has_float64(evaluator.device) else torch.float32
        # Rows that hold every feature once add up to the total, which is then free.
        self.summed = rows.labels is None and rows.cover
        self._looked = False

    def at(self, nodes: Nodes) -> Iterator[Curved]:
        """Everything at nodes, in chunks of the evaluator's choosing."""
        for done in self.evaluator.in_chunks(nodes, self._evaluate):
            rows = nodes.rows[done.index]
            np.add.at(self.evaluator.gradients, rows, 1)
            np.add.at(self.products, rows, len(self.rows) + (not self.summed))
            yield done

    def _evaluate(self, index: Ints, here: Nodes) -> Curved:
        evaluator = self.evaluator
        points, velocities = evaluator.points(here)
        velocity = flat(velocities)
        with evaluator.chunks.measuring(len(here)), _words():
            rows = torch.as_tensor(here.rows, device=evaluator.device)
            scores, gradients = evaluator.function.value_and_grad(points, rows, create_graph=True)
            if not self._looked:
                _check_graph(gradients)
                self._looked = True
            found = []
            for mask in self.rows.masks:
                product = self._product(points, gradients, velocity * mask) * velocity
                found.append(product if self.summed else self.rows.reduced(product))
            products = torch.stack(found, 1)
            totals = products.sum(1) if self.summed else self._product(points, gradients, velocity) * velocity
        terms = flat([gradient.detach() for gradient in gradients]).to(self.wide) * velocity
        values = scores.detach().double().cpu().numpy()
        check_finite(evaluator.function.tree.names, here, values, terms.sum(1).double().cpu().numpy(), gradients)
        self._check_finite(here, products)
        return Curved(index, values, terms, products, totals)

    def _product(self, points: Leaves, gradients: Leaves, vector: Tensor) -> Tensor:
        """Hessian times vector, (N, features)."""
        parts = unflat(vector, self.shapes)
        pairs = [(g, v) for g, v in zip(gradients, parts, strict=True) if g.requires_grad]
        if not pairs:  # a gradient that does not depend on x
            return torch.zeros_like(vector, dtype=self.wide)
        # Rows are independent, so the gradient of the sum over them is the gradient of each.
        found = torch.autograd.grad(
            [g for g, _ in pairs],
            points,
            [v.to(g.dtype) for g, v in pairs],
            retain_graph=True,
            allow_unused=True,
        )
        filled = [torch.zeros_like(p) if f is None else f for f, p in zip(found, points, strict=True)]
        return flat(filled).detach().to(self.wide)

    def _check_finite(self, nodes: Nodes, products: Tensor) -> None:
        bad = (~torch.isfinite(products)).any(2).nonzero()
        if len(bad):
            node, row = bad[0].tolist()
            raise NonFiniteError(
                f"a second derivative of row {self.rows.names[row]} is not finite for example {nodes.rows[node]} at t = "
                f"{nodes.t[node]:.6g} of the path; expected finite numbers. Square roots, norms and powers below 2 at 0 do "
                "this: start from a baseline slightly off 0, or add an epsilon inside the model."
            )


def _check_graph(gradients: Leaves) -> None:
    """Find operations that were marked as not twice differentiable: on the way to x, autograd passes them by in silence."""
    waiting = [gradient.grad_fn for gradient in gradients]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.name().endswith(("::Error", "NotImplemented")):
            raise RuntimeError("it was marked with @once_differentiable")
        waiting += [following for following, _ in node.next_functions]


@contextmanager
def _words() -> Iterator[None]:
    """Autograd's ways of saying "not twice", in ours."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, GradientError) or not any(words in str(error) for words in _NOT_TWICE):
            raise
        raise GradientError(
            f"the model has a gradient, but its gradient has none ({error}). Expected a model that can be differentiated "
            "twice: replace the custom or fused operation by plain torch functions, or explain the part of the model after "
            "it with layer=."
        ) from error
