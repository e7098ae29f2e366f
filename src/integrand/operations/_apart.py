"""Operations that are taken apart while a model is followed, so that rules need to know fewer of them."""

# ruff: noqa: SIM905 (a table of names)
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

_BY_TORCH = (
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _native_batch_norm_legit_functional "
    "cudnn_batch_norm addcmul addcdiv lerp glu log_sigmoid_forward baddbmm addmv addr"
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
    out[aten.linalg_vector_norm.default] = _vector_norm
    if hasattr(aten, "_fused_rms_norm"):
        out[aten._fused_rms_norm.default] = _rms_norm
    return out


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


def _vector_norm(
    x: Tensor, order: float = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    if order != 2 or dtype is not None:
        return NotImplemented
    dims = list(dim) if dim is not None else list(range(x.ndim))
    return x.square().sum(dims, keepdim=keepdim).sqrt()
