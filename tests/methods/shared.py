"""What the tests of methods share."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from integrand.methods import (
    LRP,
    AlphaBeta,
    Deconvnet,
    DeepLift,
    Gamma,
    Gradient,
    GradientTimesInput,
    GuidedBackprop,
    IntegratedGradients,
    PathMethod,
)

D = torch.float64
REVEAL = DeepLift("reveal-cancel")
OPERATED = {
    "rescale": DeepLift(),
    "reveal-cancel": REVEAL,
    "lrp": LRP(),
    "lrp keep": LRP(bias="keep"),
    "lrp gamma": LRP(Gamma()),
    "lrp alpha-beta": LRP(AlphaBeta()),
    "guided": GuidedBackprop(),
    "deconvnet": Deconvnet(),
}
METHODS = OPERATED | {
    "gradient": Gradient(),
    "gradient x input": GradientTimesInput(),
    "ig": IntegratedGradients(tol=1e-6),
    "path": PathMethod(tol=1e-6),
}
each = pytest.mark.parametrize("name", METHODS)
each_operated = pytest.mark.parametrize("name", OPERATED)


def drawn(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


def settled(net, seed=0):
    """A network in float64 and eval mode with weights and statistics drawn, negative scales of norms among them."""
    generator = torch.Generator().manual_seed(seed)
    for key, value in net.to(D).state_dict().items():
        if value.dtype.is_floating_point:
            values = torch.randn(value.shape, generator=generator, dtype=D)
            # Divided by the root of the fan-in, so that signals stay of one size; variances must be positive.
            value.copy_(values.abs() + 0.5 if key.endswith("var") else 1.5 * values / max(1, value[0].numel()) ** 0.5)
    return net.eval()


class Twice(nn.Module):
    def __init__(self, rectify):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.three = nn.Linear(4, 6), nn.Linear(6, 5), nn.Linear(5, 3)
        self.rectify = rectify
        self.to(D)

    def forward(self, x):
        return self.three(self.rectify(self.two(self.rectify(self.one(x)))))
