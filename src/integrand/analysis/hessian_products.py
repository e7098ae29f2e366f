"""While we run: kernels that can be differentiated twice, and on request smooth functions in the place of kinked ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ..arrays import Floats, Ints
from ..backends.torch_function import refuse_once_differentiable
from ..errors import GradientError, NonFiniteError
from ..evaluation.checks import check_finite
from ..evaluation.evaluator import Evaluator, has_float64
from ..functions.layer import uncompiled
from ..functions.model_state import PROCESS
from ..paths.base import Nodes
from ..trees import Leaves, flat, unflat
from .interaction_rows import InteractionRows


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Attention by plain matrix products and models as written: fused and compiled kernels have no second derivative."""
    with PROCESS.claimed(switches={"attention": "plain", "fast path": "off"}), uncompiled():
        yield


class Softened(TorchFunctionMode):
    """Replaces relu by softplus, and leaky_relu, relu6 and hardtanh by what is made of it.

    Args:
        beta: the sharpness: softplus(x) = ln(1 + exp(beta x)) / beta.

    Attributes:
        replaced: how many calls were.
    """

    def __init__(self, beta: float) -> None:
        super().__init__()
        self.beta = beta
        self.replaced = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch for each of its functions."""
        kwargs = kwargs or {}
        soft = _SOFT.get(func)
        if soft is None:
            return func(*args, **kwargs)
        self.replaced += 1
        return soft(self, func, *args, **kwargs)

    def relu(self, func: Any, input: Tensor, inplace: bool = False) -> Tensor:
        """Softplus."""
        return _put(input, self._soft, inplace or func in _WRITES)

    def leaky_relu(self, func: Any, input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
        """A line and softplus."""
        return _put(input, lambda x: negative_slope * x + (1 - negative_slope) * self._soft(x), inplace or func in _WRITES)

    def hardtanh(self, func: Any, input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
        """The difference of two of them."""
        both = lambda x: min_val + self._soft(x - min_val) - self._soft(x - max_val)  # noqa: E731
        return _put(input, both, inplace or func in _WRITES)

    def relu6(self, func: Any, input: Tensor, inplace: bool = False) -> Tensor:
        """Hardtanh from 0 to 6."""
        return self.hardtanh(func, input, 0.0, 6.0, inplace)

    def _soft(self, x: Tensor) -> Tensor:
        return functional.softplus(x, self.beta, 40.0)


def _put(x: Tensor, soft: Callable[[Tensor], Tensor], inplace: bool) -> Tensor:
    # In place means that others look at x afterwards; what softplus needs for its gradient must not be written to.
    return x.copy_(soft(x.clone())) if inplace else soft(x)


_WRITES = {torch.relu_, torch.Tensor.relu_, functional.leaky_relu_, functional.hardtanh_}
_SOFT: dict[Any, Any] = {
    functional.relu: Softened.relu,
    torch.relu: Softened.relu,
    torch.Tensor.relu: Softened.relu,
    torch.relu_: Softened.relu,
    torch.Tensor.relu_: Softened.relu,
    functional.leaky_relu: Softened.leaky_relu,
    functional.leaky_relu_: Softened.leaky_relu,
    functional.hardtanh: Softened.hardtanh,
    functional.hardtanh_: Softened.hardtanh,
    functional.relu6: Softened.relu6,
}

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

    def __init__(self, evaluator: Evaluator, rows: InteractionRows) -> None:
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
                refuse_once_differentiable(gradients)
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
