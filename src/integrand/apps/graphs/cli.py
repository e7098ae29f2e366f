"""``integrand graph``: which nodes and edges of a graph a network's answer comes from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import OptionError
from ..command_line import (
    NETWORK,
    OUTPUT,
    WHAT,
    Debug,
    Force,
    Json,
    Most,
    ScoreName,
    Tol,
    Trust,
    Verbose,
    check_name,
    check_out,
    figures,
    headline_of,
    noted,
    one_line,
    print_line,
    print_shown,
    say,
    typed,
    working,
)

if TYPE_CHECKING:
    from .graph_files import StoredGraph
    from .result import GraphAttribution

ENDINGS = (".html", ".png", ".svg", ".pdf", ".json", ".csv")
KARATE = "karate"
STRONGEST = 5
"""How many nodes and edges are printed."""


def graph(
    file: Annotated[
        str,
        typer.Argument(
            metavar="GRAPH",
            help="A graph as node-link JSON, such as networkx writes it; or karate, the club that comes with its network.",
        ),
    ],
    node: Annotated[
        str | None,
        typer.Option(
            help="The node whose output is explained, by name or number from 0; for networks that have one for each.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="The class or output to explain. Default: the highest.", rich_help_panel=WHAT),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Names of the outputs: 'a,b,c'.", rich_help_panel=WHAT, metavar="NAMES")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="Attributes of nodes that are features: 'age,income'. Default: x, or all numbers.",
            rich_help_panel=WHAT,
            metavar="NAMES",
        ),
    ] = None,
    edge_weights: Annotated[
        bool,
        typer.Option("--edge-weights/--no-edge-weights", help="Explain the weights of edges too.", rich_help_panel=WHAT),
    ] = True,
    score: Annotated[
        ScoreName, typer.Option(help="The scale on which it is explained.", rich_help_panel=WHAT)
    ] = ScoreName.probability,
    tol: Tol = 0.01,
    max_evaluations: Most = 4000,
    out: Annotated[
        Path | None,
        typer.Option(help="A page (.html), a picture (.png, .svg, .pdf), numbers (.json, .csv).", rich_help_panel=OUTPUT),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
    force: Force = False,
    model: Annotated[
        str | None,
        typer.Option(
            help="package.module:function, a model on graphs of PyTorch Geometric or a function that makes one. Needs --trust.",
            metavar="NAME",
            show_default=False,
            rich_help_panel=NETWORK,
        ),
    ] = None,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Which nodes and edges made a network say what it says of a graph, or of a node in it?

    Try it with: integrand graph karate --node 9 --out karate.html
    """
    check_out(out, ENDINGS, force=force)
    check_name("GRAPH", file, "a file of a graph, or karate")
    built_in = file == KARATE and model is None
    if model is None and not built_in:
        raise OptionError(
            f"got {file!r} without a network; expected --model package.module:function --trust, or karate as the graph, which "
            "comes with its own."
        )
    if built_in and node is None:
        raise OptionError("got karate without --node; expected one of its members: 1 to 34, 'Mr. Hi' or Officer.")
    with working() as screen:
        with screen.loading():
            stored, network, known = _loaded(file, model, _split(features), trust=trust, built_in=built_in)
        how: dict[str, Any] = {"score": score.value, "tol": tol, "max_evaluations": max_evaluations}
        how |= {"classes": _split(classes) or known, "target": target, "edge_weights": edge_weights}
        where = "the karate club" if built_in else f"--model {model}"
        with screen.doing("explaining"), noted() as notes, one_line(where, debug=debug):
            found = _explained(network, stored, node, how)
        if out is not None:
            with screen.doing("writing"):
                found.save(out, **({"command": typed()} if out.suffix.lower() == ".html" else {}))
    _print(found, [*stored.notes, *notes], as_json=as_json, verbose=verbose, out=out)


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text else ()


def _loaded(
    file: str, model: str | None, features: tuple[str, ...], *, trust: bool, built_in: bool
) -> tuple[StoredGraph, Any, tuple[str, ...]]:
    """The graph, the network, and the names of its outputs where they are known."""
    from .graph_files import read_graph
    from .karate import CLASSES, karate_club, karate_network

    if file == KARATE and not Path(file).exists():
        if features:
            raise OptionError("got --features for the karate club, whose features are identities; leave it out.")
        stored = karate_club()
    else:
        stored = read_graph(file, features=features or None)
    if built_in or model is None:
        return stored, karate_network(), CLASSES
    from ...loading import load_model

    return stored, load_model(model, trust=trust), ()


def _explained(network: Any, stored: StoredGraph, node: str | None, how: dict[str, Any]) -> GraphAttribution:
    from .model import explain

    target = how.pop("target")
    asked: int | str | None = int(target) if target is not None and target.isdigit() else target
    names: dict[str, Any] = {
        "node_names": stored.names,
        "feature_names": stored.features,
        "edge_feature_names": stored.edge_features,
    }
    found: GraphAttribution = explain(network, stored.data, node=node, target=asked, **names, **how)
    return replace(found, notes=(*found.notes, *stored.notes))


def _print(found: GraphAttribution, notes: list[str], *, as_json: bool, verbose: bool, out: Path | None) -> None:
    if as_json:
        typer.echo(json.dumps(found.to_dict() | {"warnings": notes, "out": None if out is None else str(out)}, allow_nan=False))
        return
    print_line(headline_of(found))
    from ...words import plus_minus

    rows = sorted(found.parts(), key=lambda part: -abs(part[1]))[:STRONGEST]
    for name, value, error in rows:
        print_line(f"  {name}: {plus_minus(value, error)}")
    say(notes)
    if verbose:
        print_shown(figures(found.certificate))
    if out is not None:
        print_line(f"wrote {out}", err=True)
