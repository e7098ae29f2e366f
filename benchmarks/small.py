"""Small models are all overhead: a 3-layer MLP, a batch of 256, 50 Gauss-Legendre steps."""

from __future__ import annotations

import warnings

import torch
from torch import nn

import integrand as ig

from .timing import alternate


def run() -> dict[str, float]:
    from captum.attr import IntegratedGradients

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).eval()
    x = torch.randn(256, 32)
    baseline = torch.zeros_like(x)
    captum = IntegratedGradients(model)

    def ours() -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ig.errors.ConvergenceWarning)  # 50 steps are not 1%, and we say so
            return ig.integrated_gradients(model, x, baseline, target=1, steps=50).values

    def theirs() -> torch.Tensor:
        return captum.attribute(x, baseline, target=1, n_steps=50)

    difference = (ours() - theirs()).abs().max().item() / theirs().abs().max().item()
    adaptive = ig.integrated_gradients(model, x, baseline, target=1)
    seconds = alternate(
        {"integrand": ours, "captum": theirs, "to_1_percent": lambda: ig.integrated_gradients(model, x, baseline, target=1)}, 15
    )
    found = {
        "integrand_ms": 1e3 * seconds["integrand"],
        "captum_ms": 1e3 * seconds["captum"],
        "ratio": seconds["captum"] / seconds["integrand"],
        "largest_difference": difference,
        "adaptive_ms": 1e3 * seconds["to_1_percent"],
        "adaptive_gradients_per_example": adaptive.certificate.gradients / 256,
    }
    print("MLP 32-64-64-10, batch 256, 50 Gauss-Legendre steps")
    print(f"  integrand {found['integrand_ms']:8.1f} ms   captum {found['captum_ms']:8.1f} ms   ratio {found['ratio']:.1f}x")
    print(f"  largest difference {difference:.1e} of the largest value")
    print(f"  to 1%: {found['adaptive_ms']:.1f} ms, {found['adaptive_gradients_per_example']:.0f} gradients per example")
    return found
