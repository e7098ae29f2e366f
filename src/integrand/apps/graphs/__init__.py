"""Graphs of PyTorch Geometric: which nodes, edges and features a network's answer about a graph, or about a node, comes from.

    result = graphs.explain(model, data, target=1)              # a Data; a Batch or a list gives one result for each graph
    result = graphs.explain(model, data, node=8, edge_weights=True)     # the output of one node; the weights of edges too
    print(result.sentence, result.sums.nodes, result.sums.node_errors)
    result.save("graph.html"); result.to_pyg()

Needs ``pip install 'integrand[graphs]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import loaded_on_use

if TYPE_CHECKING:
    from .graph_files import read_graph
    from .karate import karate_club, karate_network
    from .model import explain
    from .result import GraphAttribution, GraphSums
else:
    __getattr__, __dir__ = loaded_on_use(
        __name__,
        {
            "GraphAttribution": "result",
            "GraphSums": "result",
            "explain": "model",
            "karate_club": "karate",
            "karate_network": "karate",
            "read_graph": "graph_files",
        },
    )

__all__ = ["GraphAttribution", "GraphSums", "explain", "karate_club", "karate_network", "read_graph"]
