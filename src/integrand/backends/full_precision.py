"""Half-precision models computed as in float32, without a copy of their weights.

Weights that are bfloat16 or float16 are exact in these: digits are lost where activations and gradients are rounded to them. So
activations stay in float32, and each product with a weight is two products of half precision: x = hi + lo, where hi is x
rounded to the weight's precision and lo is the rest, rounded likewise; both are added up in float32. Norms, softmax and the
products of attention are in float32. It takes twice the products of half precision; on a GPU, float32 itself takes about
thirteen times as long.

Functions of torch are caught on their way (:class:`FullPrecision`), so that no module has to be known or replaced.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ..errors import IntegrandError
from ..memory import out_of_memory
from ..paths.base import Piece, segment
from .torch_function import TorchFunction, known_node, nodes_behind

HALVES = (torch.bfloat16, torch.float16)

NARROWING = {
    Tensor.half: torch.float16,
    Tensor.bfloat16: torch.bfloat16,
}
"""Casts to half precision, which a model may do on its way."""

RANGE = 2.0**8
"""What the largest number is scaled to before it is rounded to float16, whose range is small."""


_HERE = threading.local()


class FullPrecision(TorchFunctionMode):
    """A context in which whatever meets a float32 tensor is computed in float32, whatever the model's weights are in."""

    def __enter__(self) -> Any:
        _HERE.depth = getattr(_HERE, "depth", 0) + 1
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> Any:
        _HERE.depth -= 1
        return super().__exit__(*error)  # type: ignore[no-untyped-call]

    @staticmethod
    def active() -> bool:
        """Whether this thread is in such a context."""
        return getattr(_HERE, "depth", 0) > 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a function of torch, with what is in half precision made float32, or products of it taken in two parts."""
        given = dict(kwargs or {})
        if func in _CASTS and isinstance(args[0], Tensor) and args[0].dtype == torch.float32:
            args, given = _without_narrowing(func, args, given)
            if func in NARROWING:
                return args[0]
        tensors = [leaf for leaf in pytree.tree_leaves((args, given)) if isinstance(leaf, Tensor)]
        if func in _LEFT_ALONE or not any(leaf.dtype == torch.float32 for leaf in tensors):
            return func(*args, **given)
        with _without_autocast(tensors[0].device.type):
            if func is functional.scaled_dot_product_attention and given.get("enable_gqa"):
                args, given = _with_all_heads(args, given)
            if any(leaf.dtype in HALVES for leaf in tensors):
                product = _PRODUCTS.get(func)
                found = NotImplemented if product is None else product(*args, **given)
                if found is not NotImplemented:
                    return found
                args, given = pytree.tree_map_only(Tensor, _widened, (tuple(args), given))
            return func(*args, **given)


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in HALVES else tensor


def _without_autocast(device: str) -> AbstractContextManager[object]:
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def _with_all_heads(args: Sequence[Any], given: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Grouped-query attention with keys and values for every head: in float32, torch has no small kernel for the other."""
    names = ("query", "key", "value")
    query, key, value = (args[i] if i < len(args) else given[name] for i, name in enumerate(names))
    every = {"key": key, "value": value}
    for name, one in every.items():
        every[name] = one.repeat_interleave(query.shape[-3] // one.shape[-3], dim=-3)
    rest = {name: value for name, value in given.items() if name not in (*names, "enable_gqa")}
    return (query, every["key"], every["value"], *args[3:]), rest


_CASTS = {Tensor.half, Tensor.bfloat16, Tensor.to, Tensor.type, Tensor.type_as}

_LEFT_ALONE = {
    Tensor.copy_,
    Tensor.__setitem__,
    Tensor.dtype.__get__,  # type: ignore[attr-defined]
    Tensor.device.__get__,
    Tensor.shape.__get__,  # type: ignore[attr-defined]
    Tensor.requires_grad.__get__,  # type: ignore[attr-defined]
}
"""What does not compute."""


def _without_narrowing(func: Any, args: Sequence[Any], given: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments of a cast without half precision, if that is what it casts to."""

    def wide(value: Any) -> Any:
        if isinstance(value, torch.dtype) and value in HALVES:
            return torch.float32
        if isinstance(value, Tensor) and value.dtype in HALVES:  # x.to(other), x.type_as(other)
            return value.new_empty(0, dtype=torch.float32)
        return value

    return (args[0], *map(wide, args[1:])), {name: wide(value) for name, value in given.items()}


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """``functional.linear`` with a weight in half precision, (out, in)."""
    if weight.dtype not in HALVES or input.dtype != torch.float32:
        return NotImplemented
    out = SplitProduct.apply(input, weight, True)  # type: ignore[no-untyped-call]
    return out if bias is None else out + bias


def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor, **more: Any) -> Any:
    """``torch.addmm`` with a weight in half precision, (in, out), as GPT-2 has them."""
    if mat2.dtype not in HALVES or mat1.dtype != torch.float32 or more:
        return NotImplemented
    return SplitProduct.apply(mat1, mat2, False) + input  # type: ignore[no-untyped-call]


def _matmul(input: Tensor, other: Tensor, **more: Any) -> Any:
    """Products with a matrix in half precision on the right."""
    if other.dtype not in HALVES or input.dtype != torch.float32 or other.ndim != 2 or input.ndim < 2 or more:
        return NotImplemented
    return SplitProduct.apply(input, other, False)  # type: ignore[no-untyped-call]


_PRODUCTS: dict[Any, Callable[..., Any]] = {
    functional.linear: _linear,
    torch.addmm: _addmm,
    torch.mm: _matmul,
    torch.matmul: _matmul,
    Tensor.mm: _matmul,
    Tensor.matmul: _matmul,
    Tensor.__matmul__: _matmul,
}


class SplitProduct(torch.autograd.Function):
    """The product x @ w, or x @ w.T, for x in float32 and w in half precision, as precise as in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, transposed: bool) -> Tensor:
        """Two products, added up in float32.

        Args:
            ctx: for the backward pass.
            x: (..., in) in float32.
            weight: (out, in) if transposed, else (in, out).
            transposed: which of them.
        """
        ctx.save_for_backward(weight)
        ctx.transposed = transposed
        return split_product(x, weight.T if transposed else weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient with respect to x, likewise; weights have none."""
        (weight,) = ctx.saved_tensors
        return split_product(gradients[0], weight if ctx.transposed else weight.T), None, None


def split_product(x: Tensor, weight: Tensor) -> Tensor:
    """The product of x (..., n) in float32 and weight (n, m) in half precision, as precise as in float32.

    >>> x, weight = torch.randn(3, 64), torch.randn(64, 2).bfloat16()
    >>> bool(torch.allclose(split_product(x, weight), x @ weight.float(), rtol=1e-5, atol=1e-5))
    True
    """
    if not _adds_up_in_float32(weight.device, weight.dtype):
        return x @ weight.float()
    rows = x.reshape(-1, x.shape[-1])
    scale = None
    if weight.dtype == torch.float16:
        largest = rows.abs().amax().clamp_min(torch.finfo(torch.float32).tiny)
        scale = torch.exp2(torch.floor(torch.log2(RANGE / largest)))
        rows = rows * scale
    high = rows.to(weight.dtype)
    low = (rows - high.float()).to(weight.dtype)
    out = torch.mm(high, weight, out_dtype=torch.float32)
    out += torch.mm(low, weight, out_dtype=torch.float32)
    return (out if scale is None else out / scale).view(*x.shape[:-1], weight.shape[1])


@lru_cache(maxsize=16)
def _adds_up_in_float32(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether products of half precision can be had in float32, as they are added up; a CPU may round them."""
    if device.type != "cuda":
        return False
    try:
        small = torch.ones(16, 16, dtype=dtype, device=device)
        return torch.mm(small, small, out_dtype=torch.float32).dtype == torch.float32
    except (RuntimeError, TypeError):
        return False


def in_full_precision(function: TorchFunction) -> TorchFunction | None:
    """A function as if its model were in float32, with inputs in float32; None where the model does not allow that."""
    inputs = tuple(_widened(leaf) for leaf in function.inputs)
    device = inputs[0].device
    # Backward passes are cast as well, if the user's autocast is around them.
    plain = partial(_without_autocast, device.type)
    wide = replace(function, inputs=inputs, inside=Counter(), kinks=[], forward=FullPrecision, backward=plain)
    points = tuple(leaf[:1].clone().requires_grad_(True) for leaf in inputs)
    rows = torch.zeros(1, dtype=torch.long, device=device)
    try:
        scores = wide.scores(points, rows)
        # What others' operations compute in inside is not known, whatever they give: quantised layers round there.
        known = all(map(known_node, nodes_behind([scores])))
        wide.look_inside(scores)
        with wide.backward():  # what one graph holds is much already
            torch.autograd.grad(scores.sum(), points, allow_unused=True)
    except IntegrandError:
        return None
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:  # a kernel that knows half precision only
        if out_of_memory(error):
            raise
        return None
    if not known or scores.dtype != torch.float32 or any(dtype in HALVES for dtype in wide.inside):
        return None
    return wide


def widened_piece(piece: Piece) -> Piece | None:
    """A straight piece of a path whose points are in float32; None for others, which know what they are in."""
    if not piece.straight or not piece.made_of or piece.points is None:
        return None
    start, stop = (tuple(map(_widened, part)) for part in _halves(piece.made_of))
    return segment(start, stop, piece.weight)


def _halves(leaves: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    middle = len(leaves) // 2
    return leaves[:middle], leaves[middle:]
