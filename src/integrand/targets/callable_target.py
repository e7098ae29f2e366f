"""What every target of :mod:`integrand.targets` has: it can be called, and it names classes and boxes in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import TargetError
from ..functions.target import Settled, first_tensor


class CallableTarget:
    """What a target does with an output that it is called with."""

    def settle(self, output: Any, examples: int) -> Settled:
        """Decide at the input what is explained; see :class:`integrand.functions.target.Settling`."""
        raise NotImplementedError

    def __call__(self, output: Any) -> Tensor:
        """The scores, (N,), that the target has at an output, settled on that output itself."""
        several = isinstance(output, (list, tuple)) and output and isinstance(output[0], Mapping)
        tensor = None if several else first_tensor(output)
        count = len(output) if tensor is None or not tensor.ndim else len(tensor)
        scores: Tensor = self.settle(output, count).read(output, torch.arange(count))
        return scores


def class_index(label: int | str, names: Sequence[str]) -> int:
    """The number of a class that is given by number or by name.

    >>> class_index("road", ["sky", "road"])
    1
    """
    if isinstance(label, str):
        if label in names:
            return list(names).index(label)
        known = f"one of {', '.join(map(repr, names[:20]))}" if names else "a number, or names=, the names of all classes"
        raise TargetError(f"got the class {label!r}; expected {known}.")
    if isinstance(label, bool) or not isinstance(label, (int, np.integer)) or label < 0:
        raise TargetError(f"got the class {label!r} of type {type(label).__name__}; expected its number, from 0 on.")
    return int(label)


def class_words(label: int, names: Sequence[str]) -> str:
    """A class in words: its name, or ``class 3`` where it has none."""
    return names[label] if 0 <= label < len(names) else f"class {label}"


def box_words(box: Sequence[float]) -> str:
    """A box in words: whole pixels, or shares of the picture.

    >>> box_words((119.7, 40.2, 310.4, 330.0)), box_words((0.1, 0.25, 0.5, 1.0))
    ('120,40-310,330', '0.10,0.25-0.50,1.00')
    """
    shares = max(map(abs, box)) <= 2
    left, top, right, bottom = (f"{side:.2f}" if shares else f"{round(side)}" for side in box)
    return f"{left},{top}-{right},{bottom}"
