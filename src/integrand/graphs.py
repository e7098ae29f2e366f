"""Graphs of PyTorch Geometric: :mod:`integrand.apps.graphs` under a shorter name."""

from .apps.graphs import GraphAttribution, GraphSums, explain, karate_club, karate_network, read_graph

__all__ = ["GraphAttribution", "GraphSums", "explain", "karate_club", "karate_network", "read_graph"]
