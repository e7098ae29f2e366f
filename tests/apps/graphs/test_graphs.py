"""Graphs of PyTorch Geometric: closed forms, plain sums, another library's integrated gradients, and what is refused."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("torch_geometric")

from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.explain import CaptumExplainer, Explainer, ModelConfig, fidelity, groundtruth_metrics
from torch_geometric.nn import (
    APPNP,
    GAT,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphNorm,
    PNAConv,
    SAGEConv,
    Sequential,
    SGConv,
    TransformerConv,
    global_add_pool,
    global_mean_pool,
)

import integrand as ig
from integrand.errors import InputError, MissingExtraError, OptionError, TargetError, TrainModeError


def ring(nodes: int, width: int = 3, *, seed: int = 0, extra: int = 0, edge_width: int = 0) -> Data:
    """A ring with chords, in both directions, with random features."""
    rng = torch.Generator().manual_seed(seed)
    pairs = [(i, (i + 1) % nodes) for i in range(nodes)] + [(i, (i + 2) % nodes) for i in range(extra)]
    ends = torch.tensor(pairs + [(b, a) for a, b in pairs]).T
    data = Data(x=torch.randn(nodes, width, generator=rng, dtype=torch.float64), edge_index=ends)
    if edge_width:
        data.edge_attr = torch.randn(ends.shape[1], edge_width, generator=rng, dtype=torch.float64)
    return data


class Convolutions(nn.Module):
    """Two graph convolutions, with an output for each node, or for each graph."""

    def __init__(self, width: int = 3, *, pooled: bool = True, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second = GCNConv(width, 6), GCNConv(6, 2)
        self.pooled = pooled
        self.double().eval()

    def forward(self, x, edge_index, edge_weight=None, batch=None):
        x = self.second(torch.tanh(self.first(x, edge_index, edge_weight)), edge_index, edge_weight)
        return global_mean_pool(x, batch) if self.pooled else x


class WithEdges(nn.Module):
    """A network that reads features of edges, called with the graph."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = GINEConv(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)), edge_dim=4)
        self.double().eval()

    def forward(self, data):
        return global_add_pool(self.layer(data.x, data.edge_index, data.edge_attr), data.batch)


def plain(score, starts, ends, points: int = 600):
    """Integrated gradients by a midpoint sum over a function of tensors, called once for each point."""
    found = [torch.zeros_like(end) for end in ends]
    for t in (np.arange(points) + 0.5) / points:
        here = [(a + t * (b - a)).requires_grad_() for a, b in zip(starts, ends, strict=True)]
        for out, gradient in zip(found, torch.autograd.grad(score(*here), here), strict=True):
            out += gradient / points
    return [out * (b - a) for out, a, b in zip(found, starts, ends, strict=True)]


def test_a_linear_network_has_a_closed_form():
    data, (first, second) = ring(7, extra=2), (GCNConv(3, 5).double(), GCNConv(5, 2).double())
    net = Sequential(
        "x, edge_index, batch",
        [(first, "x, edge_index -> x"), (second, "x, edge_index -> x"), (global_mean_pool, "x, batch -> x")],
    )
    result = ig.graphs.explain(net.eval(), data, target=1)
    # Without a nonlinearity the output is linear in x: mean over rows of A A x W, so that a node's features add A A x W / n.
    eye = torch.eye(7, dtype=torch.float64)
    ends = data.edge_index
    adjacency = eye.index_put((ends[1], ends[0]), torch.ones(ends.shape[1], dtype=torch.float64), accumulate=True)
    degree = adjacency.sum(1)
    spread = adjacency / (degree[:, None] * degree[None]).sqrt()
    weight = (second.lin.weight @ first.lin.weight)[1].detach()
    expected = data.x * ((spread @ spread).mean(0)[:, None] * weight[None])
    assert result.node_values == pytest.approx(expected.numpy(), abs=1e-12)
    assert result.total == pytest.approx(result.score - result.baseline_score, abs=1e-12)
    assert result.sums.nodes == pytest.approx(expected.sum(1).numpy(), abs=1e-12)
    assert result.sums.features == pytest.approx(expected.sum(0).numpy(), abs=1e-12)


@pytest.mark.parametrize("features", [True, False])
def test_node_features_edge_features_against_a_plain_sum(features):
    data, net = ring(6, edge_width=4), WithEdges()
    result = ig.graphs.explain(net, data, target=0, tol=1e-4, features=features)

    def score(x, edges):
        return net(Data(x=x, edge_attr=edges, edge_index=data.edge_index, batch=torch.zeros(6, dtype=torch.long)))[0, 0]

    nodes, edges = plain(score, [torch.zeros_like(data.x), torch.zeros_like(data.edge_attr)], [data.x, data.edge_attr])
    assert result.sums.nodes == pytest.approx(nodes.sum(1).numpy(), abs=3e-4)
    assert result.sums.edges == pytest.approx(edges.sum(1).numpy(), abs=3e-4)
    if features:
        assert result.node_values == pytest.approx(nodes.numpy(), abs=3e-4)
        assert result.edge_values == pytest.approx(edges.numpy(), abs=3e-4)
        assert result.sums.edge_features == pytest.approx(edges.sum(0).numpy(), abs=5e-4)
    rough = ig.graphs.explain(net, data, target=0, tol=0.02, features=features).sums  # whose errors are above the plain sum's
    assert (np.abs(rough.nodes - nodes.sum(1).numpy()) <= rough.node_errors + 1e-4).all()
    assert (np.abs(rough.edges - edges.sum(1).numpy()) <= rough.edge_errors + 1e-4).all()
    # Both directions of an edge together are a link.
    for (a, b), value in zip(result.sums.links.tolist(), result.sums.link_values.tolist(), strict=True):
        both = [i for i, pair in enumerate(data.edge_index.T.tolist()) if sorted(pair) == [a, b]]
        assert value == pytest.approx(result.sums.edges[both].sum(), abs=1e-12)


@pytest.mark.parametrize("route", ["argument", "messages"])
@pytest.mark.parametrize("weighted", [False, True])
def test_edge_weights_against_a_plain_sum(route, weighted):
    from torch_geometric.explain.algorithm.utils import clear_masks, set_masks

    data, net = ring(6, extra=1), Convolutions(pooled=False)
    if weighted:
        data.edge_weight = torch.rand(data.edge_index.shape[1], generator=torch.Generator().manual_seed(5)).double() + 0.5
    result = ig.graphs.explain(net, data, node=2, target=1, tol=1e-4, edge_weights=route)

    def score(x, weights):
        if route == "argument":
            return net(x, data.edge_index, weights)[2, 1]
        set_masks(net, weights, data.edge_index, apply_sigmoid=False)
        out = net(x, data.edge_index, data.get("edge_weight"))[2, 1]
        clear_masks(net)
        return out

    end = torch.ones(data.edge_index.shape[1], dtype=torch.float64)
    if weighted and route == "argument":
        end = data.edge_weight
    nodes, weights = plain(score, [torch.zeros_like(data.x), torch.zeros_like(end)], [data.x, end], points=300)
    assert result.node_values == pytest.approx(nodes.numpy(), abs=3e-4)
    assert result.weight_values == pytest.approx(weights.numpy(), abs=3e-4)
    assert all(layer.explain is not True and layer._edge_mask is None for layer in (net.first, net.second))


@pytest.mark.parametrize("loops", [[], [0], [0, 1, 2, 3]])
def test_weights_of_messages_in_graphs_with_self_loops(loops):
    # GCNConv moves self-loops to the end; where each node has one, it has as many edges as the graph, in another order.
    pairs = [(i, i) for i in loops] + [(0, 1), (1, 2), (2, 1), (3, 0), (0, 2)]
    edges, rng = torch.tensor(pairs).T, torch.Generator().manual_seed(3)
    data = Data(x=torch.randn(4, 3, generator=rng, dtype=torch.float64), edge_index=edges)
    net = Convolutions()

    def layer(convolution, x, weights):
        degree = 1 + torch.zeros(4, dtype=torch.float64).index_add(0, edges[1], (edges[0] != edges[1]).double())
        factor = (degree[edges[0]] * degree[edges[1]]) ** -0.5 * weights * (edges[0] != edges[1])
        h = convolution.lin(x)
        return (h / degree[:, None]).index_add(0, edges[1], h[edges[0]] * factor[:, None]) + convolution.bias

    def score(x, weights):
        return layer(net.second, torch.tanh(layer(net.first, x, weights)), weights).mean(0)[1]

    end = torch.ones(len(pairs), dtype=torch.float64)
    nodes, weights = plain(score, [torch.zeros_like(data.x), torch.zeros_like(end)], [data.x, end], points=300)
    other = ring(5)
    for given in (data, [data, other], [other, data]):
        found = ig.graphs.explain(net, given, target=1, tol=1e-4, edge_weights="messages")
        result = found if given is data else found[given.index(data)]
        assert result.node_values == pytest.approx(nodes.numpy(), abs=3e-4)
        assert result.weight_values == pytest.approx(weights.numpy(), abs=3e-4)


def test_weights_of_messages_need_layers_on_the_graphs_edges():
    class Sorted(Convolutions):
        def forward(self, x, edge_index, batch):
            return super().forward(x, edge_index.flip(1), None, batch)

    with pytest.raises(OptionError, match="GCNConv has other edges"):
        ig.graphs.explain(Sorted(), ring(5), target=0, edge_weights=True)


def test_weights_that_a_model_leaves_alone_are_those_of_messages():
    class Whole(Convolutions):
        def forward(self, data):
            return super().forward(data.x, data.edge_index, None, data.batch)

    data = ring(5)
    expected = ig.graphs.explain(Whole(), data, target=1, edge_weights="messages")
    data.edge_weight = torch.full((10,), 0.5, dtype=torch.float64)
    found = ig.graphs.explain(Whole(), data, target=1, edge_weights=True)
    assert found.weight_values == pytest.approx(expected.weight_values, abs=1e-12)
    assert np.abs(found.weight_values).max() > 0.001


def test_edge_features_that_a_model_does_not_take_are_no_inputs():
    data = ring(5, edge_width=2)
    result = ig.graphs.explain(Convolutions(), data, target=1)  # a warning of zeros would fail this test
    assert result.edge_values is None


def test_targets_and_nodes_may_come_from_tensors():
    data, net = ring(5), Convolutions()
    expected = ig.graphs.explain(net, data, target=1).node_values
    for target in (np.int64(1), torch.tensor(1), torch.tensor([1])):
        assert np.array_equal(ig.graphs.explain(net, data, target=target).node_values, expected)
    nodes = Convolutions(pooled=False)
    one = ig.graphs.explain(nodes, data, target=1, node=torch.tensor(2))
    assert one.node == 2
    with pytest.raises(TargetError, match=r"got 1\.0 as a target"):
        ig.graphs.explain(net, data, target=1.0)


@pytest.mark.parametrize("edges", [None, "object"])
def test_captums_integrated_gradients_in_pytorch_geometric_agree(edges):
    data, net = ring(6, extra=2), Convolutions(pooled=False)
    config = ModelConfig(mode="multiclass_classification", task_level="node", return_type="raw")
    other = Explainer(
        net,
        CaptumExplainer("IntegratedGradients", n_steps=200),
        explanation_type="phenomenon",
        node_mask_type="attributes",
        edge_mask_type=edges,
        model_config=config,
    )
    expected = other(data.x, data.edge_index, index=3, target=torch.ones(6, dtype=torch.long))
    found = ig.graphs.explain(net, data, node=3, target=1, tol=1e-4, edge_weights="messages" if edges else False).to_pyg()
    assert torch.allclose(found.node_mask, expected.node_mask.float(), atol=1e-3)
    if edges:
        assert torch.allclose(found.edge_mask, expected.edge_mask.float(), atol=1e-3)


LAYERS = {
    "GAT": lambda a, b: GATConv(a, b, heads=2, concat=False),
    "GATv2": GATv2Conv,
    "GIN": lambda a, b: GINConv(nn.Sequential(nn.Linear(a, 6), nn.Tanh(), nn.Linear(6, b))),
    "PNA": lambda a, b: PNAConv(a, b, ["mean", "max"], ["identity", "amplification"], torch.tensor([1, 2, 5, 3])),
    "SAGE": SAGEConv,
    "Transformer": TransformerConv,
}


@pytest.mark.parametrize("name", LAYERS)
def test_other_layers_agree_with_captum_on_a_graph_with_a_self_loop_a_double_edge_and_a_node_alone(name):
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(4)
            self.first, self.second = LAYERS[name](3, 4), LAYERS[name](4, 2)
            self.double().eval()

        def forward(self, x, edge_index, batch=None):
            return global_mean_pool(self.second(torch.tanh(self.first(x, edge_index)), edge_index), batch)

    net, pairs = Two(), [(0, 1), (1, 2), (2, 0), (3, 3), (3, 1), (0, 1), (2, 1)]
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    data = Data(x=x, edge_index=torch.tensor(pairs).T)
    other = Explainer(
        net,
        CaptumExplainer("IntegratedGradients", n_steps=300),
        explanation_type="phenomenon",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config=ModelConfig(mode="multiclass_classification", task_level="graph", return_type="raw"),
    )
    expected = other(data.x, data.edge_index, target=torch.tensor([1]), batch=torch.zeros(5, dtype=torch.long))
    found = ig.graphs.explain(net, data, target=1, tol=2e-3, edge_weights="messages")
    assert found.certificate.converged
    nodes, edges = (part.detach().numpy() for part in (expected.node_mask, expected.edge_mask))
    if name.startswith("GAT"):  # it puts self-loops of its own in the place of the graph's
        assert found.weight_values[3] == 0
        edges[3] = 0
    off = np.abs(found.node_values - nodes).sum() + np.abs(found.weight_values - edges).sum()
    assert off < 4e-3 * found.certificate.magnitude


def test_a_batch_gives_what_each_graph_gives_alone():
    graphs = [ring(n, seed=n, extra=n // 4) for n in (3, 8, 5)]
    graphs.append(Data(x=torch.ones(2, 3, dtype=torch.float64), edge_index=torch.zeros(2, 0, dtype=torch.long)))
    net = Convolutions()
    together = ig.graphs.explain(net, Batch.from_data_list(graphs), target=[0, 1, 0, 1], edge_weights=True, tol=1e-3)
    listed = ig.graphs.explain(net, graphs, target=[0, 1, 0, 1], edge_weights=True, tol=1e-3)
    for graph, target, one, two in zip(graphs, [0, 1, 0, 1], together, listed, strict=True):
        alone = ig.graphs.explain(net, graph, target=target, edge_weights=True, tol=1e-3)
        assert one.node_values.shape == tuple(graph.x.shape)
        assert one.weight_values.shape == (graph.edge_index.shape[1],)
        assert one.node_values == pytest.approx(alone.node_values, abs=2e-3 * alone.certificate.magnitude)
        assert one.weight_values == pytest.approx(alone.weight_values, abs=2e-3 * alone.certificate.magnitude)
        assert one.score == pytest.approx(alone.score, abs=1e-12)
        assert np.array_equal(one.node_values, two.node_values)
        assert one.certificate.converged
    assert "4 results" in repr(together)


@pytest.mark.parametrize(
    "layer", [lambda c: GCNConv(3, 2, cached=c), lambda c: SGConv(3, 2, K=2, cached=c), lambda c: APPNP(2, 0.1, cached=c)]
)
@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("weights", [False, "messages"])
def test_layers_that_keep_their_first_graph_are_explained_like_those_that_do_not(layer, used, weights):
    class Kept(nn.Module):
        def __init__(self, *, cached: bool) -> None:
            super().__init__()
            torch.manual_seed(2)
            self.layer = layer(cached)

        def forward(self, x, edge_index):
            return torch.tanh(self.layer(x, edge_index))

    data, other = ring(6), ring(5, seed=1)
    plain_net, net = Kept(cached=False).double().eval(), Kept(cached=True).double().eval()
    if used:  # as after training, on a graph of another size
        net(other.x, other.edge_index)
    before = {name: value for name, value in vars(net.layer).items() if "cached" in name}
    expected = ig.graphs.explain(plain_net, data, node=2, target=1, edge_weights=weights)
    found = ig.graphs.explain(net, data, node=2, target=1, edge_weights=weights)
    assert expected.certificate.converged
    assert found.node_values == pytest.approx(expected.node_values, abs=1e-12)
    if weights:
        assert found.weight_values == pytest.approx(expected.weight_values, abs=1e-12)
        assert np.abs(found.weight_values).max() > 0.001
    after = {name: value for name, value in vars(net.layer).items() if "cached" in name}
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)


def test_what_cannot_reach_the_node_gets_exactly_nothing():
    line = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
    data = Data(x=torch.randn(8, 3, dtype=torch.float64), edge_index=torch.cat([line, line.flip(0)], 1))
    result = ig.graphs.explain(Convolutions(pooled=False), data, node=0, target=0, edge_weights=True)
    assert (result.nodes[:3] != 0).all()
    assert (result.nodes[3:] == 0).all()  # two layers reach two edges far; nodes 6 and 7 have no edge at all
    far = [i for i, (a, b) in enumerate(data.edge_index.T.tolist()) if min(a, b) >= 3]
    assert (result.weight_values[far] == 0).all()


def test_an_edge_that_is_not_there_is_an_edge_of_weight_zero():
    data = ring(6)
    more = data.clone()
    more.edge_index = torch.cat([data.edge_index, torch.tensor([[0, 3], [3, 0]])], 1)
    more.edge_weight = torch.cat([torch.ones(12), torch.zeros(2)]).double()
    one = ig.graphs.explain(Convolutions(), data, target=1, edge_weights=True, tol=1e-3)
    two = ig.graphs.explain(Convolutions(), more, target=1, edge_weights=True, tol=1e-3)
    assert two.score == pytest.approx(one.score, abs=1e-12)
    assert (two.weight_values[-2:] == 0).all()
    assert two.node_values == pytest.approx(one.node_values, abs=2e-3 * one.certificate.magnitude)


def test_a_function_without_a_batch_vector_and_one_called_in_its_own_way():
    data, net = ring(5), Convolutions(pooled=False)
    pooled = Convolutions()
    expected = ig.graphs.explain(pooled, data, target=1)
    alone = ig.graphs.explain(lambda x, edge_index: net(x, edge_index).mean(0), [data, ring(7)], target=1)
    assert alone[0].node_values == pytest.approx(expected.node_values, abs=1e-2 * expected.certificate.magnitude)
    own = ig.graphs.explain(
        lambda *stuff: (pooled(*stuff), None),
        data,
        target=1,
        call=lambda model, graph: model(graph.x, graph.edge_index, None, graph.batch)[0],
    )
    assert own.node_values == pytest.approx(expected.node_values, abs=1e-12)


def test_a_norm_over_nodes_that_is_not_told_of_graphs_gets_them_one_by_one():
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.layer, self.norm = GCNConv(3, 4), GraphNorm(4)

        def forward(self, x, edge_index):
            return self.norm(self.layer(x, edge_index))

    net, graphs = Normed().double().eval(), [ring(5), ring(7, seed=1)]
    found = ig.graphs.explain(net, graphs, 0.1, node=[1, 2], target=0, tol=1e-3)
    for graph, node, one in zip(graphs, [1, 2], found, strict=True):
        expected = plain(lambda x, g=graph, k=node: net(x, g.edge_index)[k, 0], [torch.full_like(graph.x, 0.1)], [graph.x], 300)
        assert one.node_values == pytest.approx(expected[0].numpy(), abs=2e-3 * one.certificate.magnitude)


def test_a_layer_that_leaves_edge_weights_alone_has_its_messages_scaled():
    torch.manual_seed(0)
    result = ig.graphs.explain(GAT(3, 4, 2, 2).double().eval(), ring(5), node=0, target=0, edge_weights=True)
    assert result.meta["edge weights"].startswith("factors of the messages")
    assert np.abs(result.weight_values).sum() > 0


def test_a_degree_of_zero_at_the_baseline_is_no_obstacle():
    loops = ring(4)
    loops.edge_index = torch.cat([loops.edge_index, torch.tensor([[0], [0]])], 1)  # GCNConv divides by a degree of zero there
    result = ig.graphs.explain(Convolutions(), loops, edge_weights=True, tol=1e-3)
    near = ig.graphs.explain(Convolutions(), loops, {"edge_weight": 1e-9}, edge_weights=True, tol=1e-3)
    assert result.certificate.converged
    assert result.weight_values == pytest.approx(near.weight_values, abs=2e-3 * near.certificate.magnitude)


def test_further_attributes_of_graphs_go_with_them():
    class Placed(nn.Module):
        def forward(self, x, edge_index, pos, u, batch, scale):
            return scale * global_add_pool(x * pos, batch) * u

    graphs = [ring(4), ring(6, seed=2)]
    for graph in graphs:
        graph.pos, graph.u = torch.rand(len(graph.x), 1).double(), torch.rand(1, 3).double()
    found = ig.graphs.explain(Placed().eval(), graphs, target=2, kwargs={"scale": 2.0})
    for graph, one in zip(graphs, found, strict=True):
        expected = torch.zeros_like(graph.x)
        expected[:, 2] = 2 * (graph.x * graph.pos)[:, 2] * graph.u[0, 2]
        assert one.node_values == pytest.approx(expected.numpy(), abs=1e-12)


def test_baselines():
    data, net = ring(5), Convolutions()
    middle = data.x.mean(0)
    by_name = ig.graphs.explain(net, data, "mean", target=0)
    by_row = ig.graphs.explain(net, data, middle.numpy(), target=0)
    by_dict = ig.graphs.explain(net, data, {"x": middle.expand(5, 3)}, target=0)
    assert np.array_equal(by_name.node_values, by_row.node_values)
    assert np.array_equal(by_name.node_values, by_dict.node_values)
    with torch.no_grad():
        there = net(middle.expand(5, 3), data.edge_index, None, torch.zeros(5, dtype=torch.long))[0, 0]
    assert by_name.baseline_score == pytest.approx(float(there))
    half = ig.graphs.explain(net, data, {"x": data.x, "edge_weight": 0.5}, target=0, edge_weights=True)
    assert (half.node_values == 0).all()
    with pytest.raises(OptionError, match="edge_weights=True"):
        ig.graphs.explain(net, data, {"edge_weight": 0.0})
    with pytest.raises(InputError, match=r"shape \(4,\).*expected"):
        ig.graphs.explain(net, data, torch.zeros(4))


def test_pytorch_geometrics_metrics_take_the_result():
    data, net = ring(6, extra=2), Convolutions(pooled=False)
    result = ig.graphs.explain(net, data, node=1, target=0, edge_weights="messages").to_pyg()
    config = ModelConfig(mode="multiclass_classification", task_level="node", return_type="raw")
    other = Explainer(
        net,
        CaptumExplainer("IntegratedGradients"),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config=config,
    )
    result.target = net(data.x, data.edge_index).argmax(1)
    result.prediction = net(data.x, data.edge_index)
    assert all(0 <= value <= 1 for value in fidelity(other, result))
    truth = (result.edge_mask > 0).long()
    assert groundtruth_metrics(result.edge_mask.clamp_min(0), truth, metrics="auroc") == 1


def hetero() -> HeteroData:
    data = HeteroData()
    data["a"].x, data["b"].x = torch.ones(2, 1), torch.ones(2, 1)
    return data


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda d: d.update({"x": torch.arange(18).reshape(6, 3)}), InputError, "embedding"),
        (lambda d: d.update({"x": torch.ones(6).double()}), InputError, "unsqueeze"),
        (lambda d: d.update({"x": torch.ones(5, 3).double()}), InputError, "0 to 4"),
        (lambda d: d.update({"edge_index": torch.ones(3, 4, dtype=torch.long)}), InputError, r"\(2, edges\)"),
        (lambda d: d.update({"edge_attr": torch.ones(5, 2).double()}), InputError, "a row for each edge"),
        (lambda d: d.update({"edge_weight": torch.ones(5).double()}), InputError, "a row for each edge"),
        (lambda d: d.update({"edge_weight": torch.ones(12).long()}), InputError, r"edge_weight of torch\.int64.*\.float\(\)"),
    ],
)
def test_graphs_that_do_not_fit_are_refused(change, error, said):
    data = ring(6)
    change(data)
    with pytest.raises(error, match=said):
        ig.graphs.explain(Convolutions(), data, edge_weights=True)
    with pytest.raises(InputError, match="has no edge_index"):
        ig.graphs.explain(Convolutions(), Data(x=torch.rand(4, 3).double()), edge_weights=True)


def test_the_remedy_for_a_sparse_adjacency_gives_the_edges_back():
    import torch_geometric

    data = Data(x=torch.rand(4, 3).double(), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))  # directed
    ends = data.edge_index
    rows, size = torch.ones(3), (4, 4)
    packed = Data(x=data.x, adj_t=torch.sparse_coo_tensor(ends.flip(0), rows, size, check_invariants=True).coalesce())
    with pytest.raises(InputError, match="has no edge_index") as refused:
        ig.graphs.explain(Convolutions(), packed)
    code = str(refused.value).partition("(2, edges). ")[2].removesuffix(" makes it.")
    exec(code, {"data": packed, "torch_geometric": torch_geometric})
    assert sorted(packed.edge_index.T.tolist()) == sorted(ends.T.tolist())


def test_bad_calls_say_what_to_do():
    data, net, by_node = ring(6), Convolutions(), Convolutions(pooled=False)
    for given in (hetero(), [data, hetero()], Batch.from_data_list([hetero(), hetero()])):
        with pytest.raises(InputError, match="to_homogeneous"):
            ig.graphs.explain(net, given)
    with pytest.raises(InputError, match="expected a Data"):
        ig.graphs.explain(net, data.x)
    with pytest.raises(InputError, match="no node features"):
        ig.graphs.explain(net, Data(edge_index=data.edge_index))
    with pytest.raises(TargetError, match="node="):
        ig.graphs.explain(lambda x, edge_index, batch: by_node(x, edge_index), data)
    with pytest.raises(TargetError, match="0 to 5"):
        ig.graphs.explain(by_node, data, node=6)
    with pytest.raises(TargetError, match="Leave node= out"):
        ig.graphs.explain(net, data, node=1)
    with pytest.raises(TargetError, match="2 targets for 1 graph;"):
        ig.graphs.explain(net, data, target=[0, 1])
    with pytest.raises(TargetError, match=r"got 2 nodes for 1 graph;.*data=\[data\] \* 2"):
        ig.graphs.explain(by_node, data, node=[0, 4])
    assert [one.node for one in ig.graphs.explain(by_node, [data] * 2, node=[0, 4], target=1)] == [0, 4]
    with pytest.raises(TargetError, match="Did you mean 'cats'"):
        ig.graphs.explain(net, data, target="cat", classes=["cats", "dogs"])
    with pytest.raises(OptionError, match="call="):
        ig.graphs.explain(lambda *args: net(*args), data)
    with pytest.raises(OptionError, match="which a graph decides itself"):
        ig.graphs.explain(net, data, groups=None)
    with pytest.raises(OptionError, match="edge_weights='messages'"):
        ig.graphs.explain(lambda x, edge_index, batch: net(x, edge_index, None, batch), data, edge_weights="argument")
    with pytest.raises(OptionError, match="no layer of PyTorch Geometric"):
        ig.graphs.explain(lambda x, edge_index, batch: global_mean_pool(x, batch), data, edge_weights=True)
    with pytest.raises(OptionError, match="2 names for the 3 columns"):
        ig.graphs.explain(net, data, feature_names=["a", "b"])

    class Needs(nn.Module):
        def forward(self, x, edge_index, edge_attr, batch):
            return global_mean_pool(x, batch)

    with pytest.raises(InputError, match="'edge_attr', which the graph does not have"):
        ig.graphs.explain(Needs().eval(), data)


def test_batch_norm_in_train_mode_is_refused():
    net = Sequential(
        "x, edge_index, batch", [(GCNConv(3, 4), "x, edge_index -> x"), nn.BatchNorm1d(4), (global_mean_pool, "x, batch -> x")]
    )
    with pytest.raises(TrainModeError):
        ig.graphs.explain(net.double().train(), ring(6))


def test_without_pytorch_geometric_the_extra_is_named(monkeypatch):
    data = ring(4)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch_geometric"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    with pytest.raises(MissingExtraError, match=r"integrand\[graphs\]"):
        ig.graphs.explain(lambda x, edge_index: x, data)


def test_what_a_result_says_and_writes(tmp_path):
    names = ["a", "<b>", "c", "d", "e", "=f"]
    result = ig.graphs.explain(
        Convolutions(pooled=False),
        ring(6),
        node="c",
        target="dog",
        edge_weights=True,
        classes=["cat", "dog"],
        node_names=names,
        feature_names=["p", "q", "r"],
        score="probability",
    )
    assert result.sentence.startswith("Dog (")
    largest = max(result.parts(), key=lambda part: abs(part[1]))  # of nodes and edges
    assert f"\nmost: {largest[0]} " in str(result)
    assert "for c, most of all by" in result.sentence
    assert "numbers good to" in result.sentence
    for ending in (".html", ".svg", ".png", ".pdf", ".json", ".csv"):
        assert result.save(tmp_path / f"graph{ending}").stat().st_size > 500
    page = (tmp_path / "graph.html").read_text()
    assert "<b>" not in page.split("<main>")[1].replace("<b>", "", 0).partition("strongest")[0]
    assert "&lt;b&gt;" in page
    assert "'=f" in (tmp_path / "graph.csv").read_text()
    held = json.loads((tmp_path / "graph.json").read_text())
    assert [one["value"] for one in held["nodes"]] == result.nodes.tolist()
    assert sum(one["value"] for one in held["nodes"]) + sum(one["value"] for one in held["edges"]) == pytest.approx(
        result.total
    )
    assert [one["name"] for one in held["features"]] == ["p", "q", "r"]
    with pytest.raises(OptionError, match=r"\.html, \.svg"):
        result.save(tmp_path / "graph.txt")


def test_directed_edges_are_named_by_their_direction():
    data = Data(x=torch.rand(3, 3).double(), edge_index=torch.tensor([[2, 0, 1], [0, 1, 0]]))
    result = ig.graphs.explain(Convolutions(), data, target=0, edge_weights=True)
    assert result.directed
    assert [result.link_name(k) for k in range(2)] == ["0 – 1", "2 → 0"]
