"""The result for a graph: the attribution of an output to each node, edge and feature, with the errors of the sums."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...certificate import ExampleCertificate
from ...errors import OptionError
from ...files import marked, write, write_bytes, write_text
from ...render.certificate_text import trust
from ...sum_errors import Sums
from ...words import cell, finite, number, percent, plus_minus, short_repr, shown
from .graph_inputs import geometric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...render.graph.graph_drawing import GraphDrawing

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NAMED = 3
"""The most nodes and edges that the sentence names."""


@dataclass(frozen=True, eq=False, repr=False)
class GraphSums:
    """Sums of a graph's attributions, and how far each may be off; about 98% of sums are within.

    Attributes:
        nodes: over the features of each node, (nodes,).
        node_errors: of these, in units of the score; NaN where they are not known.
        edges: over the features and the weight of each edge, (edges,), in the order of ``edge_index``; empty without any.
        edge_errors: of these.
        links: pairs of nodes with an edge between them in either direction, (links, 2), the smaller number first.
        link_values: over the edges of each link, (links,); empty where edges are not explained.
        link_errors: of these.
        features: over all nodes, by column of ``x``; empty where only sums of nodes were kept.
        feature_errors: of these.
        edge_features: over all edges, by column of ``edge_attr``.
        edge_feature_errors: of these.
    """

    nodes: Floats
    node_errors: Floats
    edges: Floats
    edge_errors: Floats
    links: Ints
    link_values: Floats
    link_errors: Floats
    features: Floats
    feature_errors: Floats
    edge_features: Floats
    edge_feature_errors: Floats

    @staticmethod
    def of(found: Mapping[str, Sums], links: Ints) -> GraphSums:
        """From sums by name, each of one graph."""

        def of(name: str) -> tuple[Floats, Floats]:
            if name not in found:
                return np.zeros(0), np.zeros(0)
            return found[name].values[0].numpy(), found[name].errors[0].numpy()

        return GraphSums(*of("nodes"), *of("edges"), links, *of("links"), *of("features"), *of("edge_features"))

    __repr__ = short_repr


@dataclass(frozen=True, eq=False, repr=False)
class GraphAttribution:
    """Attributions of one output of a model to the features of a graph's nodes and edges.

    Attributes:
        graph: the ``Data``, on the CPU.
        label: the output that is explained, in words.
        node_values: what each feature of each node adds, (nodes, features); one column where only sums were kept.
        edge_values: what each feature of each edge adds, (edges, features), in the order of ``edge_index``; None if they were
            not explained. Where only sums were kept, one column with the weight in it.
        weight_values: what the weight of each edge adds, (edges,); None if it was not explained.
        sums: by node, edge, link and feature, with their errors.
        certificate: how far the values can be trusted.
        scale: ``logit``, ``probability`` or ``log-probability``.
        node: the node whose output is explained; None for an output of the graph.
        node_names: names of nodes; empty for their numbers.
        feature_names: names of the columns of ``x``; empty for their numbers.
        edge_feature_names: names of the columns of ``edge_attr``.
        meta: how it was made, name by name.
        notes: what a reader must not miss.
        passed: what else of the graph the model was called with, by name.
    """

    graph: Any
    label: str
    node_values: Floats
    edge_values: Floats | None
    weight_values: Floats | None
    sums: GraphSums
    certificate: ExampleCertificate
    scale: str = "logit"
    node: int | None = None
    node_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    edge_feature_names: tuple[str, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()

    @property
    def nodes(self) -> Floats:
        """What each node's features add, (nodes,)."""
        return self.sums.nodes

    @property
    def edges(self) -> Floats:
        """What each edge adds, (edges,), in the order of ``edge_index``; empty if nothing of edges was explained."""
        return self.sums.edges

    @cached_property
    def directed(self) -> bool:
        """Whether some edge has no edge back."""
        pairs = set(map(tuple, self.graph.edge_index.T.tolist()))
        return any((b, a) not in pairs for a, b in pairs)

    @property
    def score(self) -> float:
        """F(x): the explained output for the graph."""
        return self.certificate.score

    @property
    def baseline_score(self) -> float:
        """F(x'): the explained output at the baseline."""
        return self.certificate.baseline_score

    @cached_property
    def total(self) -> float:
        """The sum of all attributions."""
        parts = [self.node_values, self.edge_values, self.weight_values]
        return math.fsum(value for part in parts if part is not None for value in part.ravel().tolist())

    def name(self, node: int) -> str:
        """A node's name for people: its own, or ``node 3`` where that is a number."""
        own = self.node_names[node] if self.node_names else str(node)
        return f"node {own}" if own.isdigit() else own

    def link_name(self, link: int) -> str:
        """The name of a link for people: its ends, with an arrow where there is an edge in one direction only."""
        a, b = (self.node_names[node] if self.node_names else str(node) for node in self.sums.links[link].tolist())
        arrow = self._arrows[link]
        return f"{a} → {b}" if arrow > 0 else f"{b} → {a}" if arrow < 0 else f"{a} – {b}"

    def feature(self, column: int) -> str:
        """The name of a column of ``x``."""
        return self.feature_names[column] if self.feature_names else f"feature {column}"

    def edge_feature(self, column: int) -> str:
        """The name of a column of ``edge_attr``."""
        return self.edge_feature_names[column] if self.edge_feature_names else f"edge feature {column}"

    @property
    def answer(self) -> str:
        """What the model says, in a few words: ``Officer (93%)``, ``Output 0 (logit 2.31)``."""
        said = percent(self.score) if self.scale == "probability" and 0 <= self.score <= 1 else number(self.score, 3)
        whose = "" if self.node is None else f" for {self.name(self.node)}"
        value = f" ({said})" if self.scale == "probability" else f" ({self.scale} {said.replace('-', '−', 1)})"
        return f"{self.label[:1].upper()}{self.label[1:]}{value}{whose}"

    @property
    def sentence(self) -> str:
        """What the model says, which nodes and edges that comes from, and how sure the numbers are, in one line."""
        largest = sorted(self.parts(), key=lambda part: -abs(part[1]))[:NAMED]
        named = [f"{name} ({plus_minus(value, error)})" for name, value, error in largest if value]
        if not named:
            return f"{self.answer}. Nothing of the graph changes it; {trust(self.certificate)}."
        said = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
        return f"{self.answer}, most of all by {said}; {trust(self.certificate)}."

    def parts(self) -> list[tuple[str, float, float]]:
        """Nodes and links with what they add and by how much that may be off."""
        sums = self.sums
        nodes = zip(sums.nodes.tolist(), sums.node_errors.tolist(), strict=True)
        links = zip(sums.link_values.tolist(), sums.link_errors.tolist(), strict=True)
        found = [(self.name(i), value, error) for i, (value, error) in enumerate(nodes)]
        return found + [(f"the edge {self.link_name(k)}", value, error) for k, (value, error) in enumerate(links)]

    def drawing(self) -> GraphDrawing:
        """The graph with its attributions, as the pictures take it."""
        from ...render.graph.graph_drawing import GraphDrawing

        marked = () if self.node is None else (self.node,)
        names = self.node_names or tuple(map(str, range(len(self.sums.nodes))))
        return GraphDrawing.of(
            names,
            self.sums.nodes,
            self.sums.node_errors,
            self.sums.links,
            self.sums.link_values,
            self.sums.link_errors,
            arrows=self._arrows,
            marked=marked,
        )

    @cached_property
    def _arrows(self) -> tuple[int, ...]:
        """Of each link: 1 if its only edge goes to the larger number, -1 if it goes to the smaller one, else 0."""
        pairs = set(map(tuple, self.graph.edge_index.T.tolist()))
        return tuple(int((a, b) in pairs) - int((b, a) in pairs) for a, b in self.sums.links.tolist())

    def figure(self, **options: Any) -> Figure:
        """The drawn graph with matplotlib; options of :func:`integrand.render.graph.figure`."""
        from ...render.graph import figure

        return figure(self.drawing(), title=self.answer, foot=self._foot, **options)

    @property
    def _foot(self) -> str:
        change = f"F(x′) {number(self.baseline_score, 3)} → F(x) {number(self.score, 3)}"
        return f"{change}; {trust(self.certificate)}"

    def page(self, *, title: str | None = None, command: str | None = None) -> str:
        """The result as one self-contained HTML page.

        Args:
            title: the heading; by default what the model says.
            command: what makes the page again, to be shown in it.
        """
        from .page import build

        return build(self, title=title, command=command)

    def to_dict(self) -> dict[str, Any]:
        """All numbers, for JSON; None for what is not known."""
        sums, certificate = self.sums, self.certificate
        ends = self.graph.edge_index.T.tolist()
        found: dict[str, Any] = {
            "sentence": self.sentence,
            "output": self.label,
            "scale": self.scale,
            "score": self.score,
            "baseline_score": self.baseline_score,
            "node": self.node,
            "nodes": [
                {"node": i, "name": self.name(i), "value": value, "error": error, "features": row}
                for i, (value, error, row) in enumerate(
                    zip(sums.nodes.tolist(), sums.node_errors.tolist(), self.node_values.tolist(), strict=True)
                )
            ],
            "edges": [
                {"source": a, "target": b, "value": value, "error": error}
                for (a, b), value, error in zip(ends, sums.edges.tolist(), sums.edge_errors.tolist(), strict=False)
            ],
            "features": self._columns(sums.features, sums.feature_errors, self.feature),
            "edge_features": self._columns(sums.edge_features, sums.edge_feature_errors, self.edge_feature),
            "certificate": {
                "status": certificate.status.value,
                "error": certificate.error,
                "tol": certificate.tol,
                "residual": certificate.residual,
                "magnitude": certificate.magnitude,
                "gradients": certificate.gradients,
                "remedy": certificate.remedy,
            },
            "meta": dict(self.meta),
            "notes": list(self.notes),
        }
        for name, values in (("feature_values", self.edge_values), ("weight_value", self.weight_values)):
            if values is not None:
                for entry, value in zip(found["edges"], values.tolist(), strict=True):
                    entry[name] = value
        return finite(found)  # type: ignore[no-any-return]

    def _columns(self, values: Floats, errors: Floats, name: Any) -> list[dict[str, Any]]:
        pairs = zip(values.tolist(), errors.tolist(), strict=True)
        return [{"name": name(i), "value": value, "error": error} for i, (value, error) in enumerate(pairs)]

    def table(self) -> list[dict[str, Any]]:
        """A row for each node and each edge: ``kind``, ``source``, ``target``, ``name``, ``value``, ``error``."""
        sums = self.sums
        rows = [
            {"kind": "node", "source": i, "target": "", "name": self.name(i), "value": value, "error": error}
            for i, (value, error) in enumerate(zip(sums.nodes.tolist(), sums.node_errors.tolist(), strict=True))
        ]
        ends = self.graph.edge_index.T.tolist()
        for (a, b), value, error in zip(ends, sums.edges.tolist(), sums.edge_errors.tolist(), strict=False):
            name = f"{self.name(a)} → {self.name(b)}"
            rows.append({"kind": "edge", "source": a, "target": b, "name": name, "value": value, "error": error})
        return rows

    def to_pyg(self) -> Any:
        """The result as PyTorch Geometric's ``Explanation``, with which its metrics and drawings work.

        ``node_mask`` is (nodes, features) and ``edge_mask`` (edges,), where edges were explained; both have signs. Its
        metrics also ask for ``target``, the classes of all nodes or graphs, which is the caller's to set.
        """
        import torch

        kind = geometric("explain").Explanation
        given = {"node_mask": torch.as_tensor(self.node_values).float()}
        if len(self.sums.edges):
            given["edge_mask"] = torch.as_tensor(self.sums.edges).float()
        kept = {key: value for key, value in self.graph.to_dict().items() if key not in ("batch", "ptr")}
        found = kind(**kept | given)
        if self.node is not None:
            found.index = self.node
        found._model_args = list(self.passed)  # where its metrics look for what else to call the model with
        found.validate()
        return found

    def save(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write the result by the suffix of the path: ``.html``, ``.svg``, ``.png``, ``.pdf``, ``.json`` or ``.csv``.

        Args:
            path: where to.
            **options: options of :meth:`page`, or of :meth:`figure`.
        """
        where = Path(path)
        ending = where.suffix.lower()
        if options and ending in (".json", ".csv", ".svg"):
            raise OptionError(f"got options {sorted(options)} for a {ending} file; they are for pages and pictures.")
        if ending == ".html":
            write_text(where, self.page(**options))
        elif ending == ".svg":
            from ...render.graph import svg

            write_bytes(where, marked(svg(self.drawing(), title=self.answer, foot=self._foot)))
        elif ending in (".png", ".pdf", ".json"):
            write(where, options, picture=self.figure, numbers=self.to_dict)
        elif ending == ".csv":
            write_text(where, self._csv())
        else:
            raise OptionError(f"got the ending {where.suffix!r}; expected .html, .svg, .png, .pdf, .json or .csv.")
        return where

    def _csv(self) -> str:
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        whole = {"score": self.score, "baseline_score": self.baseline_score, "status": self.certificate.status.value}
        rows = [row | whole for row in self.table()]
        writer.writerow(rows[0])
        for row in rows:
            known = ("" if isinstance(value, float) and not math.isfinite(value) else value for value in row.values())
            writer.writerow([cell(value) if isinstance(value, str) else value for value in known])
        return file.getvalue()

    def __str__(self) -> str:
        heed = "".join(f"\n{note}" for note in self.notes)
        most = sorted((part for part in self.parts() if part[1]), key=lambda part: -abs(part[1]))[:5]
        strongest = ", ".join(f"{name} {plus_minus(value, error)}" for name, value, error in most) or "nothing changes it"
        return shown(f"{self.answer}{heed}\nmost: {strongest}\n{self.certificate}", lines=True)

    __repr__ = short_repr

    def _small_html_(self) -> str:
        from ...render.graph import svg
        from ...render.notebook import said_first

        return said_first(self, svg(self.drawing()), self.certificate)

    def _repr_html_(self) -> str:
        from ...render.notebook import notebook_view

        return notebook_view(self, self.page, self._small_html_)
