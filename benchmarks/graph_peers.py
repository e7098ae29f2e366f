"""Integrated gradients of the karate club's network beside PyTorch Geometric's CaptumExplainer: error, gradients and seconds.

    python -m benchmarks.graph_peers

All 34 members, node features and messages of edges, from zero; the logit of the class that the network says. The reference is a
Gauss-Legendre sum of 500 points. Errors are relative, sum|a - a*| / sum|a*|, over all features and edges of a member.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from torch_geometric.explain import CaptumExplainer, Explainer, ModelConfig

import integrand as ig
from integrand.apps.graphs.graph_files import StoredGraph
from integrand.apps.graphs.karate import KarateNetwork
from integrand.errors import quiet

REFERENCE = 500
TOLERANCES = (0.01, 0.001)
STEPS = (20, 50, 200)


def reference(net: KarateNetwork, club: StoredGraph, member: int, target: int) -> np.ndarray:
    """Attributions of features and edges as one row."""
    with quiet():
        found = ig.graphs.explain(
            net, club.data, node=member, target=target, edge_weights="messages", steps=REFERENCE, rule="gauss-legendre"
        )
    return np.concatenate([found.node_values.ravel(), found.weight_values])


def peer(net: KarateNetwork, club: StoredGraph, steps: int) -> Explainer:
    """PyTorch Geometric's explainer over Captum's integrated gradients."""
    config = ModelConfig(mode="multiclass_classification", task_level="node", return_type="raw")
    algorithm = CaptumExplainer("IntegratedGradients", n_steps=steps)
    kinds = {"node_mask_type": "attributes", "edge_mask_type": "object", "explanation_type": "model"}
    return Explainer(net, algorithm, model_config=config, **kinds)


def main() -> None:
    club, net = ig.graphs.karate_club(), ig.graphs.karate_network().double()
    club.data.x, club.data.edge_weight = club.data.x.double(), club.data.edge_weight.double()
    said = net(club.data.x, club.data.edge_index, club.data.edge_weight).argmax(1).tolist()
    true = [reference(net, club, member, target) for member, target in enumerate(said)]
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for tol in TOLERANCES:
        for member, target in enumerate(said):
            start = time.perf_counter()
            one = ig.graphs.explain(net, club.data, node=member, target=target, edge_weights="messages", tol=tol)
            values = np.concatenate([one.node_values.ravel(), one.weight_values])
            add(rows, f"integrand, tol={tol:g}", values, true[member], one.certificate.gradients, start)
    for steps in STEPS:
        explainer = peer(net, club, steps)
        for member in range(len(said)):
            start = time.perf_counter()
            other = explainer(club.data.x, club.data.edge_index, index=member, edge_weight=club.data.edge_weight)
            values = torch.cat([other.node_mask.flatten(), other.edge_mask]).detach().numpy()
            add(rows, f"CaptumExplainer, n_steps={steps}", values, true[member], steps, start)
    print("| | error, median | error, worst | gradients, mean | seconds, median |\n|---|---|---|---|---|")
    for name, found in rows.items():
        errors, gradients, seconds = np.array(found).T
        print(f"| {name} | {np.median(errors):.1e} | {errors.max():.1e} | {gradients.mean():.0f} | {np.median(seconds):.3f} |")


def add(
    rows: dict[str, list[tuple[float, float, float]]],
    name: str,
    values: np.ndarray,
    true: np.ndarray,
    gradients: int,
    start: float,
) -> None:
    """Note one explanation."""
    took = time.perf_counter() - start
    rows.setdefault(name, []).append((float(np.abs(values - true).sum() / np.abs(true).sum()), gradients, took))


if __name__ == "__main__":
    main()
