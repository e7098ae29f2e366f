"""Integrated gradients of a model on graphs: node features, edge features and edge weights of PyTorch Geometric's graphs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...api import integrated_gradients
from ...attribution import Attribution
from ...certificate import Certificate
from ...errors import OptionError, RowsError, TargetError
from ...functions.target import Score
from ...render.notebook import ResultList
from ...sum_errors import ErrorDraws
from ...trees import flatten
from ...words import shown
from .graph_call import Call, Convention, UnionCall, Weights, convention_of, uncached, weights_route
from .graph_inputs import EDGES, NODES, WEIGHTS, Given, GraphSet, edges_of, gathered, listed, nodes_of
from .result import GraphAttribution, GraphSums

Targets = int | str | Sequence[int | str] | None


def explain(
    model: Callable[..., Any],
    data: Any,
    baseline: Given | Mapping[str, Given] = None,
    *,
    target: Targets = None,
    node: int | str | Sequence[int | str] | None = None,
    score: Score = "logit",
    edge_weights: bool | Weights = False,
    features: bool = True,
    tol: float = 0.01,
    call: Call | None = None,
    kwargs: Mapping[str, Any] | None = None,
    classes: Sequence[str] = (),
    node_names: Sequence[str] = (),
    feature_names: Sequence[str] = (),
    edge_feature_names: Sequence[str] = (),
    **options: Any,
) -> Any:
    """Attribute a model's output for a graph, or for one of its nodes, to the features of nodes and edges, to a tolerance.

    Explained are ``data.x``, ``data.edge_attr`` where there is one of floats, and with ``edge_weights`` the weights of edges.
    Each graph is an example of its own, with its own certificate; the points on its path go through the model as copies that
    are not connected, in one large graph as PyTorch Geometric's loaders make it.

    Args:
        model: a module in eval mode, or any callable, called as ``model(data)`` if it takes one argument, and else as
            ``model(x, edge_index, ...)`` with what it takes by name of what the graph has: ``edge_attr``, ``edge_weight``,
            ``batch``, ``pos`` and so on.
        data: a ``Data``; or several as a ``Batch`` or a list.
        baseline: where the paths start. None: zeros. A number, one row for all nodes, a tensor like ``x``, or ``"mean"``, the
            mean of all nodes. Or a dict with ``x``, ``edge_attr`` and ``edge_weight``, each so; zeros for what is left out.
        target: the class or output to explain, by number or by its name in ``classes``; one for each graph as a list. None:
            the only output, or the class with the highest score.
        node: for models with an output for each node, the node whose output is explained, by number or by its name in
            ``node_names``; one for each graph as a list.
        score: ``logit`` takes outputs as they are; ``probability`` and ``log-probability`` pass them through softmax, or
            through the sigmoid where there is one output.
        edge_weights: explain the weight of each edge as well, from 0 (the edge is not there) to ``data.edge_weight``, or to 1
            where the graph has none. ``"argument"``: the model takes them as ``edge_weight``. ``"messages"``: they multiply the
            messages of each layer of PyTorch Geometric, as its own explainers do it, from 0 to 1. True: the argument where the
            model takes one.
        features: keep a number for each feature. False keeps the sum of each node and each edge, takes less memory, and the
            tolerance is then that of the sums.
        tol: the relative error to integrate to.
        call: how to call the model, a function of model and graph, where that cannot be seen:
            ``lambda model, graph: model(graph.x, graph.edge_index, graph.batch)[0]``.
        kwargs: further arguments of the model that are the same for all graphs.
        classes: names of the outputs.
        node_names: names of the nodes, for a single graph.
        feature_names: names of the columns of ``x``.
        edge_feature_names: names of the columns of ``edge_attr``.
        options: further ones of :func:`integrand.integrated_gradients`, such as ``max_evaluations``.

    Returns:
        A :class:`GraphAttribution` for a ``Data``; a list of them for several.
    """
    if taken := sorted({"x", "args", "batched", "groups", "layer", "mask", "create_graph"} & set(options)):
        raise OptionError(f"got {', '.join(taken)}, which a graph decides itself; expected other options. Leave it out.")
    convention = convention_of(model, call, kwargs)
    asked, single = listed(data)
    with uncached(model):
        route = weights_route(model, convention, asked, edge_weights)
    attributes = convention.style != "arguments" or EDGES in convention.names
    graphs = gathered(data, baseline, attributes=attributes, weights=route is not None, mixed_weights=route != "messages")
    convention.check(graphs)
    nodes = None if node is None else _nodes(node, graphs, node_names)
    union = UnionCall(model, convention, graphs, nodes, route)
    outputs = None if target is None else _targets(target, len(graphs.graphs), classes)
    which = torch.arange(len(graphs.graphs), device=graphs.leaves[0].device)
    how: dict[str, Any] = {"progress": None} | options | {"target": outputs, "score": score, "tol": tol}
    groups = None if features else _groups(graphs)
    given = dict(zip(graphs.names, graphs.leaves, strict=True)), dict(zip(graphs.names, graphs.baseline, strict=True))
    how |= {"args": (which,), "batched": True, "groups": groups}
    with uncached(model):
        try:
            result = integrated_gradients(union, *given, **how)
        except RowsError:
            if union.alone:
                raise
            union.alone = True  # such as a norm over all nodes that it gets, which is meant to be one over a graph
            result = integrated_gradients(union, *given, **how)
    naming = GraphNaming(tuple(classes), tuple(node_names), tuple(feature_names), tuple(edge_feature_names))
    naming.check(graphs)
    facts = _facts(model, convention, graphs, baseline, route)
    found = [
        _result(row, graphs, result, naming, None if nodes is None else nodes[row], score, facts, convention)
        for row in range(len(graphs.graphs))
    ]
    return found[0] if single else ResultList(found)


@dataclass(frozen=True)
class GraphNaming:
    """What things are called.

    Attributes:
        classes: the outputs.
        nodes: the nodes.
        features: the columns of ``x``.
        edge_features: the columns of ``edge_attr``.
    """

    classes: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    edge_features: tuple[str, ...] = ()

    def check(self, graphs: GraphSet) -> None:
        """Refuse names that do not fit the graphs."""
        if self.nodes and not graphs.single:
            raise OptionError("got node_names for several graphs; expected one graph, or no names.")
        wide = {NODES: self.features, EDGES: self.edge_features}
        for name, names in wide.items():
            if names and name in graphs.names:
                width = graphs.leaves[graphs.names.index(name)].shape[2:].numel()
                if len(names) != width:
                    raise OptionError(f"got {len(names)} names for the {width} columns of {name}; expected one for each.")
        if self.nodes and len(self.nodes) != nodes_of(graphs.graphs[0]):
            raise OptionError(
                f"got {len(self.nodes)} node_names for {nodes_of(graphs.graphs[0])} nodes; expected one for each."
            )


def _plain(asked: Any) -> Any:
    """A number or name, or several, as Python has them: people pass what they got from a tensor, such as ``data.y``."""
    if isinstance(asked, (Tensor, np.ndarray, np.generic)):
        asked = asked.tolist()
    if not isinstance(asked, (int, str, Sequence)):
        raise TargetError(f"got {asked!r} as a target or node; expected its number or its name, or one for each graph.")
    return asked


def _nodes(node: int | str | Sequence[int | str], graphs: GraphSet, names: Sequence[str]) -> list[int]:
    """The node of each graph, counted within it."""
    count = len(graphs.graphs)
    node = _plain(node)
    asked = [node] * count if isinstance(node, (int, str)) else [_plain(one) for one in node]
    if len(asked) != count:
        hint = f" Several nodes of one graph: data=[data] * {len(asked)}." if count == 1 and asked else ""
        raise TargetError(f"got {len(asked)} nodes for {count} graph{'s' * (count != 1)}; expected one, or one for each.{hint}")
    found = []
    for one, graph in zip(asked, graphs.graphs, strict=True):
        size = nodes_of(graph)
        if isinstance(one, str):
            found.append(_named(one, names, "node"))
        elif isinstance(one, int) and not isinstance(one, bool) and -size <= one < size:
            found.append(int(one) % size)
        else:
            raise TargetError(f"got node={one!r} for a graph of {size} nodes; expected 0 to {size - 1}, or a name.")
    return found


def _targets(target: int | str | Sequence[int | str], count: int, classes: Sequence[str]) -> int | list[int]:
    target = _plain(target)
    if isinstance(target, str):
        return _named(target, classes, "class")
    if isinstance(target, int):
        return target
    asked = [_plain(one) for one in target]
    if len(asked) != count:
        raise TargetError(f"got {len(asked)} targets for {count} graph{'s' * (count != 1)}; expected one, or one for each.")
    return [_named(one, classes, "class") if isinstance(one, str) else int(one) for one in asked]


def _named(name: str, names: Sequence[str], what: str) -> int:
    """The number of a node or class, by its name or its number as text."""
    if name in names:
        return list(names).index(name)
    if name.strip().isdigit() and int(name) < max(len(names), 1 << 62 if not names else 0):
        return int(name)
    near = difflib.get_close_matches(name, names, 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    if not names:
        raise TargetError(f"got the {what} {name!r}, and no names of them; expected its number, or names to look it up in.")
    raise TargetError(f"got the {what} {shown(name)!r}; expected one of {len(names)}, such as {shown(str(names[0]))!r}.{hint}")


def _groups(graphs: GraphSet) -> dict[str, Tensor]:
    """A group for each node and one for each edge, in which its features and its weight are added up."""
    most = graphs.leaves[0].shape[1]
    labels = {}
    for name, leaf in zip(graphs.names, graphs.leaves, strict=True):
        rows = torch.arange(leaf.shape[1]) + (0 if name == NODES else most)
        labels[name] = rows.reshape(-1, *([1] * (leaf.ndim - 2))).expand(leaf.shape[1:])
    return labels


def _facts(model: Any, convention: Convention, graphs: GraphSet, baseline: object, route: Weights | None) -> dict[str, str]:
    """How the result was made, in words."""
    words = {"x": "node features", "edge_attr": "edge features", "edge_weight": "edge weights"}
    start = "all zero" if baseline is None else "given by the caller"
    through = {"argument": "the model's argument edge_weight", "messages": "factors of the messages of each layer", None: ""}
    facts = {
        "model": type(model).__name__,
        "explained": ", ".join(words[name] for name in graphs.names),
        "baseline": start,
        "edge weights": through[route],
        "called with": {"arguments": "tensors", "data": "the graph", "own": "a function of the caller's"}[convention.style],
    }
    return {name: said for name, said in facts.items() if said}


def _row(result: Attribution, row: int) -> Attribution:
    """The result of one graph, still padded."""
    tree, leaves = flatten(result.values, what="values")
    draws = result.draws
    return replace(
        result,
        values=tree.build([leaf[row : row + 1] for leaf in leaves]),
        certificate=Certificate((result.certificate[row],), result.certificate.promises),
        draws=None if draws is None else ErrorDraws(draws.draws[row : row + 1], draws.scale[row : row + 1]),
        extras={},
        profile=None,
    )


def _result(
    row: int,
    graphs: GraphSet,
    result: Attribution,
    naming: GraphNaming,
    node: int | None,
    score: Score,
    facts: Mapping[str, str],
    convention: Convention,
) -> GraphAttribution:
    """What was found for one graph, without padding."""
    graph, mine = graphs.graphs[row], _row(result, row)
    grouped = isinstance(mine.values, Tensor)
    nodes, edges = nodes_of(graph), edges_of(graph)
    values: dict[str, np.ndarray[Any, Any]] = {}
    if grouped:
        whole = mine.numpy()[0].astype(np.float64)
        most = graphs.leaves[0].shape[1]
        values = {NODES: whole[:nodes, None]}
        values |= {EDGES: whole[most : most + edges, None]} if len(graphs.names) > 1 else {}
    else:
        for name, leaf in zip(graphs.names, flatten(mine.values, what="values")[1], strict=True):
            rows = leaf[0, : nodes if name == NODES else edges].detach().double().cpu().numpy()
            values[name] = rows if name == WEIGHTS else rows.reshape(len(rows), -1)
    certificate = mine.certificate.only
    label = _label(certificate.target, naming.classes)
    return GraphAttribution(
        graph=graph.clone().cpu(),
        label=label,
        node_values=values[NODES],
        edge_values=values.get(EDGES),
        weight_values=values.get(WEIGHTS),
        sums=_sums(mine, graphs, row, grouped=grouped),
        certificate=replace(certificate, target=f"{label} ({score})"),
        scale=score,
        node=node,
        node_names=naming.nodes,
        feature_names=() if grouped else naming.features,
        edge_feature_names=() if grouped else naming.edge_features,
        meta=dict(facts) | {"output": label},
        passed=tuple(name for name in convention.names if name != "batch" and graph.get(name) is not None),
    )


def _label(target: str, classes: Sequence[str]) -> str:
    """The explained output in words: its name where it has one.

    >>> _label("output [1] (probability)", ("cat", "dog")), _label("output [1]", ())
    ('dog', 'output 1')
    """
    said = target.partition(" (")[0]
    found = re.fullmatch(r"output \[(\d+)\]", said)
    if found is None:
        return said or "the output"
    return str(classes[int(found[1])]) if int(found[1]) < len(classes) else f"output {found[1]}"


def _sums(mine: Attribution, graphs: GraphSet, row: int, *, grouped: bool) -> GraphSums:
    """Sums by node, edge, link and feature, each with its error."""
    graph = graphs.graphs[row]
    nodes, edges = nodes_of(graph), edges_of(graph)
    ends = graph.edge_index.cpu().numpy().T
    links, place = np.unique(np.sort(ends, 1), axis=0, return_inverse=True)
    if grouped:
        most, size = graphs.leaves[0].shape[1], mine.numpy().shape[1]
        labels = {
            "nodes": _at(size, 0, np.arange(nodes)),
            "edges": _at(size, most, np.arange(edges)),
            "links": _at(size, most, place.reshape(-1)),
        }
        return GraphSums.of({name: mine.sums(label) for name, label in labels.items() if int(label.max()) >= 0}, links)
    shapes = {name: leaf.shape[1:] for name, leaf in zip(graphs.names, graphs.leaves, strict=True)}
    of_edges = [name for name in graphs.names if name != NODES]
    wide = shapes[NODES][1:].numel()
    found = {
        "nodes": mine.sums(_labels(shapes, {NODES: np.arange(nodes)})),
        "features": mine.sums(_labels(shapes, {NODES: np.arange(wide)}, by_column=True)),
    }
    if of_edges and edges:
        found["edges"] = mine.sums(_labels(shapes, dict.fromkeys(of_edges, np.arange(edges))))
        found["links"] = mine.sums(_labels(shapes, dict.fromkeys(of_edges, place.reshape(-1))))
    if EDGES in shapes and edges:
        columns = np.arange(shapes[EDGES][1:].numel())
        found["edge_features"] = mine.sums(_labels(shapes, {EDGES: columns}, by_column=True))
    return GraphSums.of(found, links)


def _at(size: int, first: int, labels: np.ndarray[Any, Any]) -> Tensor:
    """Labels of some of the grouped values; the others are left out."""
    out = torch.full((size,), -1)
    out[first : first + len(labels)] = torch.as_tensor(labels)
    return out


def _labels(
    shapes: Mapping[str, torch.Size], wanted: Mapping[str, np.ndarray[Any, Any]], *, by_column: bool = False
) -> dict[str, Tensor]:
    """Labels for all explained tensors of a padded graph: by row or by column where they are wanted, -1 elsewhere."""
    out = {}
    for name, shape in shapes.items():
        label = torch.full(tuple(shape), -1)
        if name in wanted and by_column:
            label = torch.as_tensor(wanted[name]).reshape(1, *shape[1:]).expand(shape).clone()
        elif name in wanted:
            rows = torch.as_tensor(wanted[name])
            label[: len(rows)] = rows.reshape(-1, *([1] * (len(shape) - 1)))
        out[name] = label
    return out
