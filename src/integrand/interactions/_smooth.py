"""While we run: kernels that can be differentiated twice, and on request smooth functions in the place of kinked ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from ..functions._layer import uncompiled


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Attention by plain matrix products and models as written: fused and compiled kernels have no second derivative."""
    fast = torch.backends.mha.get_fastpath_enabled()
    with sdpa_kernel(SDPBackend.MATH), uncompiled():
        try:
            torch.backends.mha.set_fastpath_enabled(False)
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


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
