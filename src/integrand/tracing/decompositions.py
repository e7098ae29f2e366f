"""Operations that are taken apart while a model is followed, so that rules need to know fewer of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

_BY_TORCH = (
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _native_batch_norm_legit_functional "
    "_batch_norm_no_update cudnn_batch_norm miopen_batch_norm addcmul addcdiv glu addr"
).split()
"""Those that torch itself takes apart into operations that have gradients."""


@cache
def table() -> dict[Any, Callable[..., Any]]:
    """From an operation to what it is made of."""
    packets = [getattr(aten, name) for name in _BY_TORCH if hasattr(aten, name)]
    out: dict[Any, Callable[..., Any]] = dict(torch._decomp.get_decompositions(packets))
    out[aten.native_layer_norm.default] = _layer_norm
    out[aten.native_group_norm.default] = _group_norm
    out[aten.var.correction] = lambda x, dim=None, **options: _var_mean(x, dim, **options)[0]
    out[aten.var_mean.correction] = _var_mean
    out[aten.std.correction] = lambda x, dim=None, **options: _var_mean(x, dim, **options)[0].sqrt()
    out[aten.std_mean.correction] = lambda x, dim=None, **options: _std_mean(x, dim, **options)
    out[aten.linalg_vector_norm.default] = _vector_norm
    out[aten.addmm.default] = out[aten.baddbmm.default] = out[aten.addmv.default] = _product_and_sum
    out[aten.copy.default] = copied
    out[aten.lerp.Scalar] = out[aten.lerp.Tensor] = lambda x, end, weight: x + weight * (end - x)
    out[aten._thnn_fused_lstm_cell.default] = _lstm_cell  # on a GPU
    out[aten._thnn_fused_gru_cell.default] = _gru_cell
    out[aten.rrelu_with_noise.default] = _rrelu
    # Beyond 50, and not torch's 20, softplus is linear to the last digit.
    out[aten.log_sigmoid_forward.default] = lambda x: (-torch.nn.functional.softplus(-x, 1, 50), torch.zeros(0, dtype=x.dtype))
    out |= _constants()
    if hasattr(aten, "_fused_rms_norm"):
        out[aten._fused_rms_norm.default] = _rms_norm
    return out


def _constants() -> dict[Any, Callable[..., Any]]:
    """What takes only shape and type of a tensor, not its numbers."""

    def filled(value: float) -> Callable[..., Tensor]:
        return lambda x, **options: torch.full(x.shape, value, **_typed(x, options))

    def sized(value: float) -> Callable[..., Tensor]:
        return lambda x, size, **options: torch.full(size, value, **_typed(x, options))

    return {
        aten.zeros_like.default: filled(0),
        aten.zero.default: filled(0),
        aten.empty_like.default: filled(0),
        aten.ones_like.default: filled(1),
        aten.full_like.default: lambda x, value, **options: torch.full(x.shape, value, **_typed(x, options)),
        aten.fill.Scalar: lambda x, value: torch.full(x.shape, value, **_typed(x, {})),
        aten.fill.Tensor: copied,
        aten.new_zeros.default: sized(0),
        aten.new_empty.default: sized(0),
        aten.new_ones.default: sized(1),
        aten.new_full.default: lambda x, size, value, **options: torch.full(size, value, **_typed(x, options)),
    }


def _typed(x: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    return {"dtype": options.get("dtype") or x.dtype, "device": options.get("device") or x.device}


def copied(x: Tensor, source: Tensor, *_: Any) -> Tensor:
    """What ``x`` holds once ``source`` is written to it."""
    return source.to(x.dtype).expand(x.shape)


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dims = list(range(x.ndim - len(shape), x.ndim))
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    scale = (centred.square().mean(dims, keepdim=True) + eps).rsqrt()
    return _scaled(centred * scale, weight, bias), mean, scale


def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, channels: int, rest: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows = x.reshape(n, groups, channels // groups * rest)
    out, mean, scale = _layer_norm(rows, rows.shape[-1:], None, None, eps)
    per_channel = [None if p is None else p.reshape(1, channels, *[1] * (x.ndim - 2)) for p in (weight, bias)]
    return _scaled(out.reshape(x.shape), *per_channel), mean.reshape(n, groups), scale.reshape(n, groups)


def _rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    dims = list(range(x.ndim - len(shape), x.ndim))
    small = torch.finfo(x.dtype).eps if eps is None else eps
    scale = (x.square().mean(dims, keepdim=True) + small).rsqrt()
    return _scaled(x * scale, weight, None), scale


def _var_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    dims = list(dim) if dim else list(range(x.ndim))
    count = 1
    for d in dims:
        count *= x.shape[d]
    mean = x.mean(dims, keepdim=True)
    total = (x - mean).square().sum(dims, keepdim=keepdim)
    return total / (count - (1 if correction is None else correction)), mean if keepdim else mean.squeeze(dims)


def _std_mean(x: Tensor, dim: Sequence[int] | None = None, **options: Any) -> tuple[Tensor, Tensor]:
    variance, mean = _var_mean(x, dim, **options)
    return variance.sqrt(), mean


def _product_and_sum(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """Rules know the plain form, without factors."""
    return NotImplemented if beta == 1 and alpha == 1 else beta * bias + alpha * (a @ b)


def _lstm_cell(
    own: Tensor, hidden: Tensor, cell: Tensor, bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    gates = _scaled(own, None, bias) + _scaled(hidden, None, hidden_bias)
    enter, forget, new, leave = gates.chunk(4, 1)
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * cell.tanh(), cell, gates


def _gru_cell(
    own: Tensor, hidden: Tensor, state: Tensor, bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    parts = zip(_scaled(own, None, bias).chunk(3, 1), _scaled(hidden, None, hidden_bias).chunk(3, 1), strict=True)
    (reset, reset_too), (keep, keep_too), (new, held) = parts
    new = (new + (reset + reset_too).sigmoid() * held).tanh()
    return (state - new) * (keep + keep_too).sigmoid() + new, own


def _rrelu(x: Tensor, noise: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, *_: Any) -> Any:
    return NotImplemented if training else torch.nn.functional.leaky_relu(x, (lower + upper) / 2)


def _vector_norm(
    x: Tensor, order: float = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    if order not in (1, 2) or dtype is not None:
        return NotImplemented
    dims = list(dim) if dim is not None else list(range(x.ndim))
    if order == 1:
        return x.abs().sum(dims, keepdim=keepdim)
    return x.square().sum(dims, keepdim=keepdim).sqrt()
