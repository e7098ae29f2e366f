"""How a model on graphs is called, and a call on many rows: each row is a copy of a graph, and all of them one large graph."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...errors import InputError, OptionError, OutputError, TargetError
from .graph_inputs import NODES, WEIGHTS, GraphSet, geometric, nodes_of

Call = Callable[[Any, Any], Any]
"""Calls a model on a graph: a function of the two."""

Style = Literal["arguments", "data", "own"]
Weights = Literal["argument", "messages"]

COUNTED = {"num_graphs": "num_graphs", "batch_size": "num_graphs", "num_nodes": "num_nodes"}
"""Arguments that are numbers of the batch, by the name of its property."""

KEPT = 16
"""Unions of graphs that are remembered: the integration asks for the same rows again and again."""


@dataclass(frozen=True)
class Convention:
    """How a model is called.

    Attributes:
        style: with tensors (``model(x, edge_index, ...)``), with the graph (``model(data)``), or by a function of the user's.
        names: further arguments that the model takes, by name.
        needed: those that it cannot do without.
        call: the user's function.
        kwargs: what else it is called with, always the same.
    """

    style: Style
    names: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    call: Call | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def batched(self) -> bool:
        """Whether the model can be told which node is of which graph: else graphs are given to it one by one."""
        return self.style != "arguments" or "batch" in self.names

    def run(self, model: Any, graph: Any) -> Any:
        """Call the model on one graph, or on several that are one ``Batch``."""
        if self.call is not None:
            return self.call(model, graph)
        if self.style == "data":
            return model(graph, **self.kwargs)
        given = {name: _found(graph, name) for name in self.names if name not in self.kwargs}
        return model(graph.x, graph.edge_index, **{k: v for k, v in given.items() if v is not None}, **self.kwargs)

    def check(self, graphs: GraphSet) -> None:
        """Refuse graphs that lack what the model needs."""
        for number, graph in enumerate(graphs.graphs):
            for name in self.needed:
                if name in self.kwargs or name in COUNTED or name == "batch" or name in graphs.names:
                    continue
                if graph.get(name) is None:
                    place = "the graph" if graphs.single else f"graph {number}"
                    raise InputError(
                        f"the model takes {name!r}, which {place} does not have (it has {', '.join(graph.keys())}); expected "
                        f"data.{name}, or kwargs={{{name!r}: ...}} if it is the same for all."
                    )


def convention_of(model: Any, call: Call | None = None, kwargs: Mapping[str, Any] | None = None) -> Convention:
    """Find out how a model is called, from the names of its arguments.

    A model that takes one argument gets the graph; any other gets ``x``, ``edge_index`` and, by name, what the graph has.

    Args:
        model: a module, or any callable.
        call: how to call it, if it is called otherwise.
        kwargs: what else to call it with.
    """
    if call is not None:
        if kwargs:
            raise OptionError("got call= and kwargs=; expected one of them: the function can pass what else the model takes.")
        return Convention("own", call=call)
    found = _parameters(model)
    if found is None:
        raise OptionError(
            f"cannot see how {type(model).__name__} is called, since it takes any arguments; expected "
            "call=lambda model, graph: model(graph.x, graph.edge_index, graph.batch), or however it is called."
        )
    given = dict(kwargs or {})
    needed = [name for name, must in found.items() if must and name not in given]
    names = [name for name in found if name not in given]
    if len(names) == 1 or (len(needed) == 1 and names[0] not in ("x", "edge_index") and names[1] != "edge_index"):
        return Convention("data", kwargs=given)
    return Convention("arguments", tuple(names[2:]), tuple(name for name in needed if name in names[2:]), kwargs=given)


def _parameters(model: Any) -> dict[str, bool] | None:
    """The model's arguments in their order, and whether each is needed; None where it takes any."""
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    known: Any = getattr(getattr(model, "signature", None), "param_dict", None)  # of torch_geometric.nn.Sequential
    if known is not None:
        return {name: one.default is inspect.Parameter.empty for name, one in known.items()}
    try:
        signature = inspect.signature(model.forward if isinstance(model, nn.Module) else model)
    except (TypeError, ValueError):
        return None
    many = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    plain = [one for one in signature.parameters.values() if one.kind not in many]
    if not plain:
        return None
    return {one.name: one.default is inspect.Parameter.empty for one in plain}


def _found(graph: Any, name: str) -> Any:
    """What a graph has by this name; None if it has nothing."""
    if name in COUNTED:
        return getattr(graph, COUNTED[name], None)
    return graph.get(name)


def weights_route(model: Any, convention: Convention, graphs: Sequence[Any], wanted: bool | Weights) -> Weights | None:
    """How edge weights reach the model: as its argument ``edge_weight``, or as factors of the messages; None if not wanted.

    Args:
        model: the model.
        convention: how it is called.
        graphs: what it is called on.
        wanted: True chooses the argument where the model takes one.
    """
    if wanted is False or wanted is None:
        return None
    if wanted not in (True, "argument", "messages"):
        raise OptionError(f"got edge_weights={wanted!r}; expected True, False, 'argument' or 'messages'.")
    takes = WEIGHTS in convention.names if convention.style == "arguments" else None
    takes = takes and getattr(model, "supports_edge_weight", True)  # its GAT takes the argument and leaves it alone
    if wanted == "argument" and takes is False:
        raise OptionError(
            "got edge_weights='argument', and the model takes no argument edge_weight; expected one that does, or "
            "edge_weights='messages', which scales the messages of every layer of PyTorch Geometric."
        )
    if wanted == "argument":
        return "argument"
    likely = takes or (takes is None and _all_weighted(graphs))
    if wanted is True and likely and _uses_weights(model, convention, graphs[0]):
        return "argument"
    layers = geometric("nn").MessagePassing
    if not any(isinstance(one, layers) for one in _modules(model)):
        raise OptionError(
            "got edge_weights for a model that takes no argument edge_weight and has no layer of PyTorch Geometric whose "
            "messages could be scaled; expected one of these. Leave edge_weights out, or give the model such an argument."
        )
    return "messages"


def _all_weighted(graphs: Sequence[Any]) -> bool:
    return all(graph.get(WEIGHTS) is not None for graph in graphs)


def _uses_weights(model: Any, convention: Convention, graph: Any) -> bool:
    """Whether ``edge_weight`` reaches the output; a model that gets the whole graph may have it at hand and leave it alone."""
    if getattr(model, "training", False):
        return True  # what a call would change of its state is not worth it: it is refused later
    probe = copy.copy(graph)
    probe[WEIGHTS] = torch.ones(probe.edge_index.shape[1], dtype=probe.x.dtype, device=probe.x.device, requires_grad=True)
    try:
        with torch.enable_grad():
            out = convention.run(model, geometric("data").Batch.from_data_list([probe]))
            # The batch holds a copy of the weights, and leads back to them.
            return torch.autograd.grad(out.sum(), probe[WEIGHTS], allow_unused=True)[0] is not None
    except Exception:  # whatever a model raises: the integration will say it better
        return True


def _modules(model: Any) -> list[nn.Module]:
    from ...functions.model_state import all_modules, modules_of

    return all_modules(modules_of(model))


@contextmanager
def uncached(model: Any) -> Iterator[None]:
    """A context in which layers compute anew what they keep from their first graph, such as ``GCNConv(..., cached=True)``.

    Such layers take every later graph for the first one. Here a model sees graphs of several sizes, and edges of other
    weights; afterwards it has what it kept before.

    Args:
        model: whose layers.
    """
    layers = [one for one in _modules(model) if getattr(one, "cached", None) is True]
    kept = [{name: value for name, value in vars(one).items() if name.startswith("_cached")} for one in layers]
    try:
        for layer, held in zip(layers, kept, strict=True):
            vars(layer).update(dict.fromkeys(held), cached=False)
        yield
    finally:
        for layer, held in zip(layers, kept, strict=True):
            vars(layer).update(held, cached=True)


@contextmanager
def scaled_messages(model: Any, factors: Tensor, edges: Tensor) -> Iterator[None]:
    """A context in which the message along each edge is multiplied by a factor, in every layer of PyTorch Geometric.

    As its own explainers do it; self-loops that a layer adds, or puts in the place of the graph's, keep their message. Those
    explainers take a layer with as many edges as the graph for one with the same edges, which is wrong where a layer has
    moved the graph's self-loops to the end: here the edges of each layer are looked at.

    Args:
        model: whose layers.
        factors: (edges,).
        edges: the graph's ``edge_index``, (2, edges).
    """
    tools = geometric("explain.algorithm.utils")
    layers: list[Any] = [one for one in _modules(model) if isinstance(one, geometric("nn").MessagePassing)]
    holder = nn.ModuleList(layers)

    def align(layer: Any, inputs: tuple[Any, ...]) -> None:
        layer._edge_mask = _of_layer(layer, inputs[0], factors, edges)

    tools.set_masks(holder, factors, edges, apply_sigmoid=False)
    hooks = [one.register_propagate_forward_pre_hook(align) for one in layers if one.explain]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        tools.clear_masks(holder)


def _of_layer(layer: nn.Module, seen: Any, factors: Tensor, edges: Tensor) -> Tensor:
    """The factor of each edge that a layer has, (edges of the layer,); one for self-loops that are its own."""
    between = edges[0] != edges[1]
    for own in (edges, edges.flip(0)):  # some layers send messages back as well
        if isinstance(seen, Tensor) and seen.shape == own.shape and torch.equal(seen, own):
            return factors
        kept = own[:, between]
        count = kept.shape[1]
        if isinstance(seen, Tensor) and seen.shape[1] >= count and torch.equal(seen[:, :count], kept):
            more = seen[:, count:]
            if bool((more[0] == more[1]).all()):
                return torch.cat([factors[between], factors.new_ones(more.shape[1])])
    raise OptionError(
        f"got edge_weights for a model whose layer {type(layer).__name__} has other edges than the graph (some are left out, "
        "added or in another order), so that it is not known which weight belongs to which message; expected layers on the "
        "graph's own edges. Leave edge_weights out, or use edge_weights='argument' with a model that takes edge_weight."
    )


class UnionCall(nn.Module):
    """A model as a function of padded rows: row i is a copy of graph ``which[i]`` with features of its own.

    Args:
        model: on graphs.
        convention: how it is called.
        graphs: the graphs.
        nodes: for each graph the node whose output is explained; None if outputs are those of graphs.
        route: how edge weights reach the model, where they are among what is explained.
    """

    def __init__(
        self, model: Any, convention: Convention, graphs: GraphSet, nodes: Sequence[int] | None, route: Weights | None
    ) -> None:
        super().__init__()
        self.model, self.convention, self.graphs, self.route = model, convention, graphs, route
        self.training = bool(getattr(model, "training", False))  # not train(): parts of the model may be in other modes
        self.nodes = None if nodes is None else torch.tensor(nodes)
        self.alone = nodes is None and not convention.batched
        # Factors of messages are an input of their own: weights that a graph has are passed on beside them.
        replaced = [name for name in graphs.names if name != WEIGHTS or route != "messages"]
        self.rest = [_without(graph, replaced) for graph in graphs.graphs]
        self.counts = {name: torch.tensor(graphs.count(name)) for name in graphs.names}
        self._unions: dict[tuple[int, ...], Any] = {}

    def forward(self, which: Tensor, **named: Tensor) -> Tensor:
        """(rows, outputs) from the graph of each row, (rows,), and the explained tensors, (rows, most nodes or edges, ...)."""
        rows = [named[name] for name in self.graphs.names]
        if not self.alone:
            return self._together(rows, which)
        alone = [self._together([row[i : i + 1] for row in rows], which[i : i + 1]) for i in range(len(which))]
        return torch.cat(alone)

    def _together(self, rows: Sequence[Tensor], which: Tensor) -> Tensor:
        graph = self.union(which)
        named = {name: self._flat(name, row, which) for name, row in zip(self.graphs.names, rows, strict=True)}
        factors = named.pop(WEIGHTS) if self.route == "messages" else None
        for name, value in named.items():
            graph[name] = value
        if factors is None:
            out = self.convention.run(self.model, graph)
        else:
            with scaled_messages(self.model, factors, graph.edge_index):
                out = self.convention.run(self.model, graph)
        return self._chosen(out, graph, which)

    def union(self, which: Tensor) -> Any:
        """The disjoint union of copies of graphs, without what is explained: a ``Batch`` to be given tensors of its own."""
        key = tuple(which.tolist())
        if key not in self._unions:
            while len(self._unions) >= KEPT:
                self._unions.pop(next(iter(self._unions)))
            self._unions[key] = geometric("data").Batch.from_data_list([self.rest[i] for i in key])
        return copy.copy(self._unions[key])

    def _flat(self, name: str, row: Tensor, which: Tensor) -> Tensor:
        """The rows of a padded tensor that are there, one graph after the other."""
        counts = self.counts[name].to(which.device)[which]
        if bool((counts == row.shape[1]).all()):
            return row.flatten(0, 1)
        return row[torch.arange(row.shape[1], device=which.device) < counts[:, None]]

    def _chosen(self, out: Any, graph: Any, which: Tensor) -> Tensor:
        """The outputs that are explained, a row for each row."""
        if not isinstance(out, Tensor):
            raise OutputError(
                f"the model gave a {type(out).__name__}; expected a tensor. call=lambda model, graph: model(graph)[0], or the "
                "like, takes the one that is meant."
            )
        if self.nodes is not None:
            if out.ndim == 0 or len(out) != graph.num_nodes:
                raise TargetError(
                    f"got node= for a model that gives {tuple(out.shape)} for {graph.num_nodes} nodes; expected a row for each "
                    "node. Leave node= out to explain the output of a graph."
                )
            return out[graph.ptr[:-1] + self.nodes.to(which.device)[which]]
        if len(which) == 1 and (out.ndim == 0 or (out.ndim == 1 and graph.num_nodes > 1 and not self.convention.batched)):
            return out.reshape(1, -1)  # of one graph, without a dimension for graphs
        if out.ndim == 0 or len(out) != len(which):
            each = out.ndim > 0 and len(out) == graph.num_nodes
            hint = (
                "It has a row for each node: say which with node=."
                if each
                else "Does it pool with the batch vector, as global_mean_pool(x, batch) does?"
            )
            raise TargetError(
                f"the model gives {tuple(out.shape)} for {len(which)} graphs; expected a row for each graph. {hint}"
            )
        return out


def _without(graph: Any, names: Sequence[str]) -> Any:
    """A graph without the tensors that are explained, which knows how many nodes it has."""
    rest = geometric("data").Data(
        **{key: value for key, value in graph.to_dict().items() if key not in (*names, NODES, "batch", "ptr")}
    )
    rest.num_nodes = nodes_of(graph)
    return rest
