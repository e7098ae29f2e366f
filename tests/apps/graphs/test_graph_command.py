"""``integrand graph``: the karate club, files of graphs, and what is refused; where nodes are drawn."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch_geometric")

import torch
from typer.testing import CliRunner

import integrand as ig
from integrand.apps.graphs.graph_files import parsed_graph
from integrand.cli.app import app
from integrand.errors import FileError, OptionError
from integrand.render.graph.graph_drawing import MOST, GraphDrawing, chosen, svg_of
from integrand.render.graph.graph_layout import ROOM, layout

MODEL = """
import torch
from torch_geometric.nn import GCNConv, global_mean_pool

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = GCNConv(2, 3)

    def forward(self, x, edge_index, edge_weight=None, batch=None):
        return global_mean_pool(self.layer(x, edge_index, edge_weight).tanh(), batch)
"""

GRAPH = {
    "directed": False,
    "nodes": [{"id": "a", "age": 3, "size": 1.5}, {"id": "b", "age": 1, "size": 2}, {"id": "c", "age": 2, "size": 0.5}],
    "links": [{"source": "a", "target": "b", "weight": 2}, {"source": "b", "target": "c", "weight": 1}],
}


def run(*words: str):
    return CliRunner().invoke(app, ["graph", *words])


def test_the_karate_club_is_explained_without_code(tmp_path):
    done = run("karate", "--node", "9", "--out", str(tmp_path / "club.html"))
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Officer (70%) for node 9, most of all by the edge 9 – Officer")
    page = (tmp_path / "club.html").read_text()
    assert "integrand graph" in page or "Made with" in page
    held = json.loads(run("karate", "--node", "Officer", "--json").stdout)
    assert held["output"] == "Officer"
    assert held["certificate"]["status"] == "converged"


def test_the_club_is_zacharys_and_the_network_misplaces_one_member():
    club, net = ig.graphs.karate_club(), ig.graphs.karate_network()
    assert len(club.names) == 34
    assert club.data.edge_index.shape == (2, 2 * 78)
    sides = torch.tensor([int(one["club"] == "Officer") for one in club.attributes])
    said = net(club.data.x, club.data.edge_index, club.data.edge_weight).argmax(1)
    assert [club.names[i] for i in torch.nonzero(said != sides).flatten()] == ["9"]


def test_a_file_and_a_model_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_graph_net.py").write_text(MODEL)
    (tmp_path / "graph.json").write_text(json.dumps(GRAPH))
    given = ("graph.json", "--model", "own_graph_net:Net", "--score", "logit", "--target", "1")
    refused = run(*given)
    assert refused.exit_code != 0
    assert "--trust" in str(refused.exception)
    done = run(*given, "--trust", "--json")
    assert done.exit_code == 0, done.output
    held = json.loads(done.stdout)
    assert [one["name"] for one in held["features"]] == ["age", "size"]
    assert [one["name"] for one in held["nodes"]] == ["a", "b", "c"]
    whole = sum(one["value"] for one in held["nodes"]) + sum(one["value"] for one in held["edges"])
    assert whole == pytest.approx(held["score"] - held["baseline_score"], abs=1e-3)
    for ending in ("png", "csv", "svg"):
        assert run(*given, "--trust", "--out", f"out.{ending}").exit_code == 0
    fewer = run(*given, "--trust", "--features", "age")
    assert fewer.exit_code != 0  # the network takes two
    assert "--model own_graph_net:Net" in str(fewer.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("karate",), "--node"),
        (("none.json",), "--model"),
        (("karate", "--node", "Offizier"), "Did you mean 'Officer'"),
        (("karate", "--node", "9", "--target", "Mister"), "Mr. Hi"),
        (("karate", "--node", "9", "--out", "club.gif"), ".html"),
    ],
)
def test_what_is_refused(words, said):
    done = run(*words)
    assert done.exit_code != 0
    assert said in str(done.exception)


def test_both_directions_of_undirected_edges_and_weights():
    graph = parsed_graph(GRAPH, "here")
    assert graph.data.edge_index.tolist() == [[0, 1, 1, 2], [1, 2, 0, 1]]
    assert graph.data.edge_weight.tolist() == [2, 1, 2, 1]
    one_way = parsed_graph(GRAPH | {"directed": True}, "here")
    assert one_way.data.edge_index.tolist() == [[0, 1], [1, 2]]
    assert parsed_graph(GRAPH, "here", features=["size"]).data.x.tolist() == [[1.5], [2.0], [0.5]]
    loops = GRAPH | {"links": [{"source": "a", "target": "a", "kind": 1.0, "far": 2}]}
    assert parsed_graph(loops, "here").data.edge_index.tolist() == [[0], [0]]
    assert parsed_graph(loops, "here").edge_features == ("kind", "far")
    plain = parsed_graph({"nodes": [{"id": 1}, {"id": 2}], "edges": []}, "here")
    assert torch.equal(plain.data.x, torch.eye(2))
    assert plain.notes


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ([], "node-link JSON"),
        ({"nodes": [], "edges": []}, "at least one node"),
        ({"nodes": [1], "edges": []}, "entry 0 of nodes is int"),
        ({"nodes": [{"id": [1]}], "edges": []}, "node 0 has the id"),
        ({"nodes": [{"id": 1}, {"id": 1}], "edges": []}, "there twice"),
        ({"nodes": [{"id": 1}], "edges": [{"source": 1, "target": 2}]}, "edge 0 has the target 2"),
        ({"nodes": [{"id": 1, "x": [1.0]}, {"id": 2, "x": ["a"]}], "edges": []}, "node 1 has no list x of 1 numbers"),
        ({"nodes": [{"id": 1}], "edges": [{"source": 1, "target": 1, "weight": "a"}]}, "no number"),
    ],
)
def test_files_that_are_no_graphs_say_where(held, said, tmp_path):
    file = tmp_path / "graph.json"
    file.write_text(json.dumps(held))
    with pytest.raises(FileError, match=said):
        ig.graphs.read_graph(file)
    with pytest.raises(OptionError, match="numbers for all: age, size"):
        parsed_graph(GRAPH, "here", features=["colour"])
    file.write_text("{")
    with pytest.raises(FileError, match="no JSON"):
        ig.graphs.read_graph(file)


def test_a_layout_keeps_distances_and_never_overlaps():
    path = np.array([[i, i + 1] for i in range(5)])
    places = layout(6, path)
    along = np.linalg.norm(places[0] - places[5])
    assert along == pytest.approx(5, rel=0.05)  # a path is laid out straight
    assert np.array_equal(places, layout(6, path))
    star = np.array([[0, i] for i in range(1, 30)])
    apart = np.linalg.norm(layout(32, star)[:, None] - layout(32, star)[None], axis=2) + 9 * np.eye(32)
    assert apart.min() > 0.9 * ROOM  # two nodes without any edge among them
    assert layout(0, np.zeros((0, 2), int)).shape == (0, 2)


def test_of_a_large_graph_what_matters_most_is_drawn():
    values = np.linspace(-1, 1, 500)
    kept = chosen(values, np.zeros((0, 2), int), np.zeros(0), (250,))
    assert len(kept) == MOST
    assert 250 in kept
    assert {0, 499} <= set(kept.tolist())
    ends = np.array([[i, i + 1] for i in range(499)])
    drawing = GraphDrawing.of([str(i) for i in range(500)], values, np.zeros(500), ends, np.zeros(0), np.zeros(0))
    assert drawing.hidden == 350
    assert drawing.hidden_value + drawing.values.sum() == pytest.approx(values.sum(), abs=1e-9)
    assert svg_of(drawing).count("<circle") == MOST
