"""Graphs of PyTorch Geometric as inputs that can be explained: checked, and padded so that each graph is one example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ...errors import InputError, MissingExtraError, OptionError
from ...words import short_repr

NODES, EDGES, WEIGHTS = "x", "edge_attr", "edge_weight"
"""What can be explained of a graph: the names are those of PyTorch Geometric."""

Given = float | int | Tensor | np.ndarray[Any, Any] | Literal["mean"] | None
"""A baseline for one input: a number, one row for all nodes or edges, a tensor as the graph has it, or the mean of all rows."""


def geometric(part: str) -> Any:
    """A module of PyTorch Geometric, such as ``data``.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return import_module(f"torch_geometric.{part}")
    except ImportError:
        raise MissingExtraError("torch_geometric", "graphs", "explaining graphs") from None


@dataclass(frozen=True, eq=False, repr=False)
class GraphSet:
    """Graphs, one example each, with their explained tensors padded to the largest.

    Attributes:
        graphs: the graphs as they were given, each a ``Data``.
        names: which of their tensors are explained, in the order of the leaves.
        leaves: those tensors, (graphs, most nodes or edges, ...), zero where there is nothing.
        baseline: where the path starts, in the same shapes.
        single: whether one graph was given, and not several.
    """

    graphs: tuple[Any, ...]
    names: tuple[str, ...]
    leaves: tuple[Tensor, ...]
    baseline: tuple[Tensor, ...]
    single: bool

    __repr__ = short_repr

    def count(self, name: str) -> list[int]:
        """How many rows each graph has of an input: its nodes, or its edges."""
        return [nodes_of(graph) if name == NODES else edges_of(graph) for graph in self.graphs]


def nodes_of(graph: Any) -> int:
    """How many nodes a graph has."""
    return int(graph.x.shape[0])


def edges_of(graph: Any) -> int:
    """How many edges a graph has; both directions of an undirected one count."""
    return int(graph.edge_index.shape[1])


def listed(data: Any) -> tuple[tuple[Any, ...], bool]:
    """The graphs that were given, checked, and whether it was a single one: a ``Data``, a ``Batch`` or a list of ``Data``."""
    kinds = geometric("data")
    mixed = [one for one in (data if isinstance(data, Sequence) else [data]) if isinstance(one, kinds.HeteroData)]
    if mixed:
        raise InputError(
            f"got a {type(mixed[0]).__name__} with nodes of {len(mixed[0].node_types)} types; expected a graph with one type "
            "of nodes, a Data or a Batch of torch_geometric.data. data.to_homogeneous() makes one, if the model takes it."
        )
    if isinstance(data, kinds.Batch):
        graphs, single = tuple(data.to_data_list()), False
    elif isinstance(data, kinds.Data):
        if data.get("batch") is not None and data.batch.numel() and int(data.batch.max()) > 0:
            raise InputError(
                f"got a Data with a batch vector of {int(data.batch.max()) + 1} graphs; expected a Batch, which knows where "
                "graphs begin and end. Make it with torch_geometric.data.Batch.from_data_list."
            )
        graphs, single = (data,), True
    elif isinstance(data, Sequence) and data and all(isinstance(one, kinds.Data) for one in data):
        graphs, single = tuple(data), False
    else:
        raise InputError(
            f"got a {type(data).__name__} as graph; expected a Data, a Batch or a list of Data of torch_geometric.data."
        )
    if not graphs:
        raise InputError("got a batch without graphs; expected at least one.")
    for number, graph in enumerate(graphs):
        check_graph(graph, "the graph" if single else f"graph {number}")
    return graphs, single


def check_graph(graph: Any, place: str = "the graph") -> None:
    """Refuse a graph that cannot be explained, saying what is wrong with it.

    Args:
        graph: a ``Data``.
        place: which graph it is, for errors.
    """
    x, edges = graph.get("x"), graph.get("edge_index")
    if x is None:
        raise InputError(
            f"{place} has no node features x; expected a float tensor (nodes, features). Where nodes have none, "
            "data.x = torch.ones(data.num_nodes, 1) or torch.eye(data.num_nodes)."
        )
    if not isinstance(edges, Tensor):
        packed = graph.get("adj_t") is not None  # which has the edges the other way round
        hint = " data.edge_index = torch_geometric.utils.to_edge_index(data.adj_t)[0].flip(0) makes it." if packed else ""
        raise InputError(f"{place} has no edge_index; expected an integer tensor (2, edges).{hint}")
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise InputError(
            f"{place} has x of {kind}; expected floats, since gradients are taken of them. Numbers that stand for categories "
            "go through an embedding: explain what it gives, with a model that takes that as x."
        )
    if not len(x):
        raise InputError(f"{place} has no nodes; expected at least one. Leave such graphs out.")
    if x.ndim < 2:
        raise InputError(f"{place} has x of shape {tuple(x.shape)}; expected (nodes, features). data.x.unsqueeze(1) makes one.")
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype != torch.long:
        raise InputError(
            f"{place} has edge_index of shape {tuple(edges.shape)} and {edges.dtype}; expected (2, edges) and torch.int64."
        )
    if edges.numel() and (int(edges.min()) < 0 or int(edges.max()) >= len(x)):
        raise InputError(
            f"{place} has edge_index from {int(edges.min())} to {int(edges.max())} for {len(x)} nodes; expected 0 to "
            f"{len(x) - 1}, the rows of x."
        )
    for name in (EDGES, WEIGHTS):
        given = graph.get(name)
        if given is not None and (not isinstance(given, Tensor) or len(given) != edges.shape[1]):
            size = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
            raise InputError(f"{place} has {name} of shape {size} for {edges.shape[1]} edges; expected a row for each edge.")


def gathered(
    data: Any,
    baseline: Given | Mapping[str, Given] = None,
    *,
    attributes: bool = True,
    weights: bool = False,
    mixed_weights: bool = True,
) -> GraphSet:
    """Graphs as padded examples.

    Args:
        data: a ``Data``, a ``Batch`` or a list of ``Data``.
        baseline: for node features, or by input; see :func:`integrand.graphs.explain`.
        attributes: explain edge features where graphs have them; False for a model that does not take them.
        weights: explain edge weights too; where graphs have none, ones.
        mixed_weights: take the weights that graphs have; else they are factors of messages, which are ones.
    """
    graphs, single = listed(data)
    names = ["x"]
    of_edges = [graph.get(EDGES) for graph in graphs]
    if attributes and all(isinstance(given, Tensor) and given.is_floating_point() for given in of_edges):
        names.append("edge_attr")
    names += ["edge_weight"] if weights else []
    given: Mapping[str, Given] = baseline if isinstance(baseline, Mapping) else {NODES: baseline}
    if unknown := sorted(set(given) - set(names)):
        raise OptionError(
            f"got a baseline for {', '.join(map(repr, unknown))}; explained are {', '.join(names)}. Expected some of these"
            + (": edge_weights=True explains edge weights." if WEIGHTS in unknown else ".")
        )
    rows = {name: [_tensor(graph, name, mixed_weights) for graph in graphs] for name in names}
    for name, tensors in rows.items():
        kinds = {(tensor.shape[1:], tensor.dtype, tensor.device) for tensor in tensors}
        if len(kinds) > 1:
            shapes = sorted(str(tuple(shape)) for shape, _, _ in kinds)
            raise InputError(
                f"got graphs whose {name} has rows of shapes {', '.join(shapes)}, or of several types or devices; expected the "
                "same for all."
            )
    starts = {name: [_start(given.get(name), tensor, tensors, name) for tensor in tensors] for name, tensors in rows.items()}
    leaves, begin = (tuple(_padded(found[name]) for name in names) for found in (rows, starts))
    return GraphSet(graphs, tuple(names), leaves, begin, single)


def _tensor(graph: Any, name: str, mixed_weights: bool) -> Tensor:
    """One explained tensor of a graph."""
    held: Tensor | None = graph.get(name)
    if held is None or (name == WEIGHTS and not mixed_weights):
        held = torch.ones(edges_of(graph), dtype=graph.x.dtype, device=graph.x.device)
    if name == WEIGHTS and not held.is_floating_point():
        raise InputError(
            f"got edge_weight of {held.dtype}; expected floats, since gradients are taken of them. data.edge_weight = "
            "data.edge_weight.float() makes them."
        )
    out: Tensor = held.detach()
    return out


def _start(given: Given, tensor: Tensor, all_of_them: Sequence[Tensor], name: str) -> Tensor:
    """The baseline of one tensor of one graph."""
    if given is None:
        return torch.zeros_like(tensor)
    if isinstance(given, str):
        if given != "mean":
            raise OptionError(f"got the baseline {given!r} for {name}; expected a number, a tensor, None or 'mean'.")
        return torch.cat(list(all_of_them)).mean(0).expand_as(tensor).clone()
    if isinstance(given, (int, float)):
        return torch.full_like(tensor, float(given))
    if isinstance(given, np.ndarray):
        given = torch.as_tensor(given)
    if not isinstance(given, Tensor):
        raise OptionError(f"got a {type(given).__name__} as baseline for {name}; expected a number, a tensor, None or 'mean'.")
    moved = given.to(tensor)
    whole = moved.shape == (sum(map(len, all_of_them)), *tensor.shape[1:])
    if whole and len(all_of_them) > 1:
        place = next(i for i, one in enumerate(all_of_them) if one is tensor)
        parts: tuple[Tensor, ...] = moved.split([len(one) for one in all_of_them])
        return parts[place]
    if moved.shape not in (tensor.shape, tensor.shape[1:]):
        raise InputError(
            f"got a baseline of shape {tuple(given.shape)} for {name} of shape {tuple(tensor.shape)}; expected that, or "
            f"{tuple(tensor.shape[1:])} for all rows."
        )
    return moved.expand_as(tensor).clone()


def _padded(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of several lengths as one, (tensors, longest, ...); at least one row, so that graphs without edges have some."""
    longest = max(1, *map(len, tensors))
    out = tensors[0].new_zeros(len(tensors), longest, *tensors[0].shape[1:])
    for row, tensor in zip(out, tensors, strict=True):
        row[: len(tensor)] = tensor
    return out
