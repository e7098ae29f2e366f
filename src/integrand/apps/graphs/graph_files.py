"""Graphs in files: the node-link JSON that networkx, D3 and others write."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import FileError, OptionError
from ...files import read_bytes
from ...schema import parsed
from ...words import shown
from .graph_inputs import geometric

LARGEST_GRAPH = 256 << 20
"""The most bytes of a file; a graph of a million edges has some 60 MB."""

MAX_IDENTITIES = 8_192
"""Nodes without features, each of which gets a column of its own: at so many they take 270 MB."""

WHAT = "a graph as node-link JSON"
RESERVED = ("id", "name", "label", "x")
"""Attributes of nodes that are no features of their own: what they are called, and features as a list."""


@dataclass(frozen=True, eq=False)
class StoredGraph:
    """A graph from a file.

    Attributes:
        data: a ``Data`` with ``x`` and ``edge_index``, and ``edge_weight`` and ``edge_attr`` where edges have any.
        names: of the nodes.
        features: names of the columns of ``x``.
        edge_features: names of the columns of ``edge_attr``.
        attributes: of each node, all that the file says.
        notes: what was taken for granted.
    """

    data: Any
    names: tuple[str, ...]
    features: tuple[str, ...]
    edge_features: tuple[str, ...] = ()
    attributes: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()


def read_graph(path: str | PathLike[str], *, features: Sequence[str] | None = None) -> StoredGraph:
    """Read a graph from node-link JSON, as ``networkx.node_link_data`` gives it.

    Nodes are objects with an ``id``; what is called ``name`` or ``label`` names them. Their features are the list ``x``, or all
    attributes that are numbers for every node; nodes without any get a feature each, their identity. Edges (``edges`` or
    ``links``) have ``source`` and ``target``; ``weight`` becomes ``edge_weight``, other numbers ``edge_attr``. An edge of an
    undirected graph becomes one in each direction.

    Args:
        path: the file.
        features: the attributes of nodes that are features, in this order.

    Raises:
        FileError: it is no such file; the message says where.
    """
    file = Path(path)
    raw = read_bytes(file, what=WHAT, most=LARGEST_GRAPH)
    try:
        held = parsed(raw, what=WHAT, once=False)
    except FileError as error:
        raise FileError(f"{shown(str(file))} is no JSON ({error})") from None
    return parsed_graph(held, shown(str(file)), features=features)


def parsed_graph(held: Any, name: str, *, features: Sequence[str] | None = None) -> StoredGraph:
    """A graph from node-link data; see :func:`read_graph`.

    Args:
        held: the data, as JSON gives it.
        name: where it is from, for errors.
        features: the attributes of nodes that are features.
    """
    nodes = held.get("nodes") if isinstance(held, dict) else None
    edges = held.get("edges", held.get("links")) if isinstance(held, dict) else None
    if not isinstance(nodes, list) or not isinstance(edges, list) or not nodes:
        raise FileError(
            f"{name} is not {WHAT}: expected an object with lists 'nodes' and 'edges' (or 'links'), and at least one node. "
            "networkx.node_link_data makes one."
        )
    for place, entries in (("nodes", nodes), ("edges", edges)):
        wrong = next((i for i, one in enumerate(entries) if not isinstance(one, dict)), None)
        if wrong is not None:
            raise FileError(f"{name}: entry {wrong} of {place} is {type(entries[wrong]).__name__}; expected an object.")
    index = _index(nodes, name)
    x, columns, notes = _features(nodes, features, name)
    ends = _ends(edges, index, name)
    graph = geometric("data").Data(x=x)
    both = not held.get("directed", False)
    loops = ends[0] == ends[1]
    graph.edge_index = torch.cat([ends, ends.flip(0)[:, ~loops]], 1) if both else ends
    weight, others, names = _edge_columns(edges, name)
    for key, value in (("edge_weight", weight), ("edge_attr", others)):
        if value is not None:
            graph[key] = torch.cat([value, value[~loops]]) if both else value
    called = tuple(str(one.get("name", one.get("label", one.get("id")))) for one in nodes)
    return StoredGraph(graph, called, columns, names, tuple(nodes), notes)


def _index(nodes: Sequence[Mapping[str, Any]], name: str) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for i, one in enumerate(nodes):
        key = one.get("id")
        if not isinstance(key, (str, int, float)):
            raise FileError(f"{name}: node {i} has the id {shown(repr(key))}; expected a text or a number for each node.")
        if key in found:
            raise FileError(f"{name}: the id {shown(repr(key))} is there twice; expected one of its own for each node.")
        found[key] = i
    return found


def _ends(edges: Sequence[Mapping[str, Any]], index: Mapping[Any, int], name: str) -> Tensor:
    rows = []
    for i, one in enumerate(edges):
        pair = []
        for side in ("source", "target"):
            key = one.get(side)
            if not isinstance(key, (str, int, float)) or key not in index:
                raise FileError(f"{name}: edge {i} has the {side} {shown(repr(key))}; expected the id of a node.")
            pair.append(index[key])
        rows.append(pair)
    return torch.tensor(rows, dtype=torch.long).reshape(-1, 2).T.contiguous()


def _features(
    nodes: Sequence[Mapping[str, Any]], wanted: Sequence[str] | None, name: str
) -> tuple[Tensor, tuple[str, ...], tuple[str, ...]]:
    """Features of nodes, the names of their columns, and notes."""
    if wanted is None and any("x" in one for one in nodes):
        rows = [one.get("x") for one in nodes]
        for i, row in enumerate(rows):
            width = len(rows[0]) if isinstance(rows[0], list) else 0
            if not isinstance(row, list) or not all(map(_is_number, row)) or len(row) != width:
                count = f"{width} " if i else ""
                raise FileError(f"{name}: node {i} has no list x of {count}numbers; expected one for each node.")
        return torch.tensor(rows, dtype=torch.float32).reshape(len(nodes), width), tuple(f"x{i}" for i in range(width)), ()
    columns = list(wanted) if wanted is not None else _numeric(nodes, RESERVED)
    for key in columns:
        lacking = next((i for i, one in enumerate(nodes) if not _is_number(one.get(key))), None)
        if lacking is not None:
            known = ", ".join(_numeric(nodes, ("id",))) or "none"
            raise OptionError(
                f"{name}: node {lacking} has no number {shown(key)!r}; expected attributes that are numbers for all: {known}."
            )
    if not columns and len(nodes) > MAX_IDENTITIES:
        raise FileError(
            f"{name}: its {len(nodes):,} nodes have no features; expected some, or at most {MAX_IDENTITIES:,} nodes, each of "
            "which gets its identity as one. Give nodes a list x."
        )
    if not columns:
        called = tuple(f"is {one.get('name', one.get('label', one.get('id')))}" for one in nodes)
        return torch.eye(len(nodes)), called, ("The nodes have no features of their own: each got one, its identity.",)
    return torch.tensor([[float(one[key]) for key in columns] for one in nodes]), tuple(columns), ()


def _edge_columns(edges: Sequence[Mapping[str, Any]], name: str) -> tuple[Tensor | None, Tensor | None, tuple[str, ...]]:
    """Weights, other features, and their names; None where edges have none."""
    if not edges:
        return None, None, ()
    columns = _numeric(edges, ("source", "target", "key", "id"))
    others = tuple(key for key in columns if key != "weight")
    some = [i for i, one in enumerate(edges) if "weight" in one and not _is_number(one["weight"])]
    if some:
        raise FileError(f"{name}: edge {some[0]} has a weight that is no number; expected one for all edges, or for none.")
    weight = torch.tensor([float(one["weight"]) for one in edges]) if "weight" in columns else None
    rest = torch.tensor([[float(one[key]) for key in others] for one in edges]) if others else None
    return weight, rest, others


def _numeric(entries: Sequence[Mapping[str, Any]], but: Sequence[str]) -> list[str]:
    """Attributes that are numbers in all entries, in the order of the first."""
    return [key for key in entries[0] if key not in but and all(_is_number(one.get(key)) for one in entries)]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) < sys.float_info.max and not math.isnan(value)
