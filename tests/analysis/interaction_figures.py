"""The figures of docs/interactions.md: ``python -m tests.analysis.interaction_figures`` (a minute on one core)."""

from __future__ import annotations

import warnings

import numpy as np
import torch

from integrand.interactions import integrated_hessians

from .interaction_references import distance, relu_network, sigmoid_of_relu_network
from .test_hessian_kinks import relu_net
from .test_hessians_honesty import ACTIVATIONS, network


def smooth_networks(tol: float) -> None:
    """Random smooth networks against references at 1e-7."""
    claims, gradients = [], []
    for seed in range(48):
        features = (3, 5, 8)[seed % 3]
        net = network(5000 + seed, ACTIVATIONS[seed % len(ACTIVATIONS)], features)
        x, b = torch.randn(2, 1, features, dtype=torch.float64)
        exact = integrated_hessians(net, 2 * x, b, tol=1e-7, max_evaluations=20_000).values
        found = integrated_hessians(net, 2 * x, b, tol=tol)
        claims.append((found.converged, distance(found.values, exact), found.error))
        gradients.append(found.certificate[0].gradients)
    report(f"smooth networks, tol {tol:g}", claims, gradients, tol)


def relu_networks(score: str, dtype: torch.dtype, tol: float) -> None:
    """Random ReLU networks against exact references, unit by unit."""
    exact_of = relu_network if score == "logit" else sigmoid_of_relu_network
    claims, gradients = [], []
    for seed in range(48):
        features = (3, 5, 8)[seed % 3]
        net, layers = relu_net(5000 + seed, [(16, 12), (24, 24), (10, 10, 10)][seed % 3], features)
        x, b = torch.randn(2, 1, features, dtype=torch.float64) * 2
        exact = exact_of(layers, x[0], b[0])[None]
        found = integrated_hessians(net.to(dtype), x.to(dtype), b.to(dtype), score=score, tol=tol)
        claims.append((found.converged, distance(found.values, exact), found.error))
        gradients.append(found.certificate[0].gradients)
    report(f"ReLU networks, {score}, {str(dtype)[6:]}, tol {tol:g}", claims, gradients, tol)


def report(name: str, claims: list[tuple[bool, float, float]], gradients: list[int], tol: float) -> None:
    converged = [(true, claimed) for good, true, claimed in claims if good]
    wrong = sum(true > tol for true, _ in converged)
    under = sum(true > claimed + 1e-6 for _, true, claimed in claims)
    print(
        f"{name}: {len(converged)} of {len(claims)} converged, {wrong} off by more than tol, {under} estimates too low; "
        f"gradients: median {np.median(gradients):.0f}, most {max(gradients)}; largest error {max(t for t, _ in converged):.1e}"
    )


def softplus() -> None:
    """How far the interactions of softplus networks are from those of the ReLU network."""
    for beta in (5, 20, 100, 1000):
        off, points = [], []
        for seed in range(24):
            net, layers = relu_net(6000 + seed)
            x = torch.randn(1, 5, dtype=torch.float64) * 2
            exact = relu_network(layers, x[0], torch.zeros(5, dtype=torch.float64))[None]
            found = integrated_hessians(net, x, smooth=beta)
            off.append(distance(found.values, exact))
            points.append(found.certificate[0].gradients)
        print(f"smooth={beta}: off by {np.median(off):.0%} (median), {max(off):.0%} (most); {np.median(points):.0f} gradients")


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for tol in (0.01, 1e-4):
            smooth_networks(tol)
        for score in ("logit", "probability"):
            for dtype in (torch.float64, torch.float32):
                relu_networks(score, dtype, 0.01)
        softplus()


if __name__ == "__main__":
    main()
