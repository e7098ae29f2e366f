"""Train the karate club's network: which side each member is on, from the sides of two.

    python training/karate.py --out distributions/integrand-models/src/integrand_models

Writes ``karate.json`` (the club as networkx has it) and ``karate.safetensors``, and prints how many of the 32 other members it
places as Zachary reports. A second on one core. Needs networkx.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import networkx
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from integrand.apps.graphs.graph_files import StoredGraph, parsed_graph
from integrand.apps.graphs.karate import CLASSES, KarateNetwork

EPOCHS, RATE, DECAY, SEEDS = 200, 0.01, 5e-4, 10


def club() -> dict[str, object]:
    """The club as node-link data, with Zachary's numbers."""
    graph = networkx.karate_club_graph()
    named = {0: "Mr. Hi", graph.number_of_nodes() - 1: "Officer"}
    nodes = [{"id": i + 1, "name": named.get(i, str(i + 1)), "club": graph.nodes[i]["club"]} for i in graph]
    edges = [{"source": a + 1, "target": b + 1, "weight": weight} for a, b, weight in graph.edges(data="weight")]
    return {"directed": False, "multigraph": False, "graph": {"name": graph.name}, "nodes": nodes, "edges": edges}


def trained(stored: StoredGraph, seed: int) -> tuple[KarateNetwork, float]:
    """A network that knows the sides of Mr. Hi and the officer, and the share of the others that it places right."""
    torch.manual_seed(seed)
    net, data = KarateNetwork(), stored.data
    sides = torch.tensor([CLASSES.index(str(node["club"])) for node in stored.attributes])
    known = torch.tensor([0, len(sides) - 1])
    optimizer = torch.optim.Adam(net.parameters(), RATE, weight_decay=DECAY)
    for _ in range(EPOCHS):
        loss = F.cross_entropy(net(data.x, data.edge_index, data.edge_weight)[known], sides[known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = net.eval()(data.x, data.edge_index, data.edge_weight).argmax(1) == sides
    others = torch.ones(len(sides), dtype=torch.bool)
    others[known] = False
    return net, float(right[others].double().mean())


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    held = club()
    (options.out / "karate.json").write_text(json.dumps(held, indent=None, separators=(",", ":")) + "\n")
    stored = parsed_graph(held, "the karate club")
    runs = [trained(stored, seed) for seed in range(SEEDS)]
    print("share of 32 members, by seed:", ", ".join(f"{right:.3f}" for _, right in runs))
    save_file({key: value.contiguous() for key, value in runs[0][0].state_dict().items()}, options.out / "karate.safetensors")


if __name__ == "__main__":
    main()
