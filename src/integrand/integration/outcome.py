"""What an integration hands to the engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..arrays import Floats
from ..certificate import ExampleCertificate
from ..evaluation.nodes import Nodes


@dataclass(frozen=True)
class Outcome:
    """Values and certificates of all examples.

    Attributes:
        values: (examples, features), in float64 where the device has it.
        examples: their certificates.
        nodes: the nodes whose weighted terms add up to the values.
        weights: (nodes,) their weights.
    """

    values: Tensor
    examples: list[ExampleCertificate]
    nodes: Nodes
    weights: Floats


def relative(error: float, size: float) -> float:
    """An absolute L1 error over the L1 norm; zero over zero is exact, anything else over zero is infinite."""
    if error == 0:
        return 0.0
    return float(error / size) if size > 0 else float(np.inf)
