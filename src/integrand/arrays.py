"""Names for the array types that the package shares, and their way to a device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def on_device(
    values: NDArray[np.generic] | Sequence[float] | Sequence[int],
    device: torch.device,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Numbers of the host as a tensor on a device, without waiting for what the device was asked for before.

    ``torch.as_tensor(values, device=...)`` waits until a GPU has done all that it was asked for, so that nothing can be asked
    for ahead. The numbers are taken from the host before this returns, which only CUDA says of memory that is not pinned.
    """
    return torch.as_tensor(values, dtype=dtype).to(device, non_blocking=device.type == "cuda")
