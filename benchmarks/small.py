"""Small models are all overhead: a 3-layer MLP, a batch of 256, 50 Gauss-Legendre steps."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

import integrand as ig

from .timing import alternate

SIZES = ((10, 16, 2), (20, 32, 5), (32, 64, 10))
"""Inputs, hidden units (twice) and outputs."""


def run() -> list[dict[str, Any]]:
    print("3-layer MLPs, batch 256, 50 Gauss-Legendre steps")
    return [_one(*size) for size in SIZES]


def _one(inputs: int, hidden: int, outputs: int) -> dict[str, Any]:
    from captum.attr import IntegratedGradients

    torch.manual_seed(0)
    layers = (nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
    model = nn.Sequential(*layers).eval()
    x = torch.randn(256, inputs)
    baseline = torch.zeros_like(x)
    captum = IntegratedGradients(model)

    def ours() -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ig.errors.ConvergenceWarning)  # 50 steps are not 1%, and we say so
            return ig.integrated_gradients(model, x, baseline, target=1, steps=50).values

    def theirs() -> torch.Tensor:
        return captum.attribute(x, baseline, target=1, n_steps=50)

    difference = (ours() - theirs()).abs().max().item() / theirs().abs().max().item()
    seconds = alternate({"integrand": ours, "captum": theirs}, 31, warm_up=3)
    name = f"{inputs}-{hidden}-{hidden}-{outputs}"
    ratio = seconds["captum"] / seconds["integrand"]
    times = f"integrand {1e3 * seconds['integrand']:6.1f} ms   captum {1e3 * seconds['captum']:6.1f} ms"
    print(f"  {name:12} {times}   ratio {ratio:4.1f}x   largest difference {difference:.0e}", flush=True)
    return {"mlp": name, "seconds": seconds, "ratio": ratio, "largest_difference": difference}
