"""Layers: the same numbers as Captum, but for modules that run more than once."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

from integrand.compat import captum as compat
from integrand.errors import InputError, OptionError, ZeroAttributionWarning

from .both import Net, Shared, ask, models, quiet, reference, rows, same


@pytest.mark.parametrize("multiply", [True, False])
@pytest.mark.parametrize("to_input", [True, False])
@pytest.mark.parametrize("name", ["first", "act", "second"])
def test_layers(name, to_input, multiply):
    net = Net()
    options = {"attribute_to_layer_input": to_input, "multiply": multiply, "target": [0, 1, 3]}
    same(net, rows(), layer=getattr(net, name), return_convergence_delta=True, **options)
    same(net, rows(), layer=getattr(net, name), baselines=rows(seed=3), n_steps=9, method="riemann_right", **options)


def test_a_layers_baseline_is_a_model_input():
    net = Net()
    x = rows()
    values = ask(compat, net, x, layer=net.first, target=1, n_steps=None)  # from first(0), the bias, not from 0
    change = net(x)[:, 1] - net(torch.zeros_like(x))[:, 1]
    torch.testing.assert_close(values.sum(1), change.detach(), rtol=1e-2, atol=1e-3)
    wide = nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 1))  # where shapes could not tell which is meant
    same(wide, x, layer=wide[0], baselines=rows(seed=3), return_convergence_delta=True)
    same(wide, x, layer=wide[0], baselines=0.5, return_convergence_delta=True)


def test_lists_of_layers_come_back_as_given():
    net = Net()
    inputs, options = (rows(), rows(3, 3, seed=3)), {"target": 1, "baselines": (0.1, 0.2), "return_convergence_delta": True}
    ours, _ = same(net, inputs, layer=[net.first, net.side], **options)
    turned, _ = same(net, inputs, layer=[net.side, net.first], **options)
    assert isinstance(ours, list)
    torch.testing.assert_close(turned, ours[::-1])
    assert len(same(net, inputs, layer=[net.act], target=1)) == 1
    same(net, inputs, layer=[net.side, net.first], target=1, multiply=False)


def test_layers_with_several_tensors():
    model = models.BasicModel_MultiLayer(multi_input_module=True)
    x = 5 * rows(2, 3)
    for to_input in (True, False):
        options = {"target": 0, "attribute_to_layer_input": to_input, "n_steps": 20}
        found = same(model, x, layer=model.multi_relu, rtol=1e-4, atol=1e-4, **options)
        assert isinstance(found, tuple)
        assert len(found) == 2
    [pair, one] = ask(compat, model, x, layer=[model.multi_relu, model.linear0], target=0, n_steps=20)
    assert isinstance(pair, tuple)
    assert isinstance(one, Tensor)


@pytest.mark.parametrize("baselines", [None, (0, 3), (torch.tensor([[1, 2, 3, 4]]), 0)], ids=str)
def test_embeddings(baselines):
    torch.manual_seed(0)
    model = models.BasicEmbeddingModel(nested_second_embedding=True).double()
    ids = (torch.tensor([[5, 6, 7, 8], [9, 1, 2, 3]]), torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]]))
    further = torch.tensor([[2, 2, 2, 2], [4, 4, 4, 4]])
    options = {"baselines": baselines, "additional_forward_args": further, "return_convergence_delta": True}
    layer = [model.embedding1, model.embedding2.inner_embedding]
    ours, _ = same(model, ids, layer=layer, rtol=1e-5, atol=1e-3, **options)
    assert [tuple(part.shape) for part in ours] == [(2, 4, 100), (2, 4, 100)]
    # Each alone: what the score owes to the other embedding is not in the sum, as the delta says.
    same(model, ids, layer=model.embedding1, rtol=1e-5, atol=1e-3, **options)


def test_a_reused_module_is_right_where_captum_is_not():
    model = Shared().double()
    ids = (torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[7, 8, 9], [10, 11, 12]]))
    start = (torch.zeros_like(ids[0]), torch.zeros_like(ids[1]))
    change = (model(*ids) - model(*start))[:, 1].detach()
    explainer = compat.LayerIntegratedGradients(model, model.embed)
    values, delta = explainer.attribute(ids, start, target=1, n_steps=80, return_convergence_delta=True)
    assert [tuple(part.shape) for part in values] == [(2, 3, 5), (2, 3, 5)]  # one for each call
    assert delta.abs().max() < 1e-8
    # An independent reference: embed first, then integrate with respect to the two embeddings as inputs.
    embedded, zero = (tuple(model.embed(part).detach() for part in side) for side in (ids, start))

    def head(left, right):
        a, b = (model.encode(part).tanh().sum(1) for part in (left, right))
        return model.out(a * b + a)

    expected = quiet(reference.IntegratedGradients(head).attribute, embedded, zero, target=1, n_steps=80)
    torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-6)
    theirs, wrong = ask(reference, model, ids, layer=model.embed, target=1, n_steps=80, return_convergence_delta=True)
    assert isinstance(theirs, Tensor)
    assert (wrong.abs() > 0.1 * change.abs()).all()


def test_a_reused_module_in_a_list_keeps_its_calls_together():
    model = Shared().double()
    ids = (torch.tensor([[1, 2, 3]]), torch.tensor([[7, 8, 9]]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroAttributionWarning)  # what follows takes the place of what comes before
        explainer = compat.LayerIntegratedGradients(model, [model.encode, model.embed])
        encode, embed = explainer.attribute(ids, target=1)
    assert [tuple(part.shape) for part in encode] == [(1, 3, 4)] * 2
    assert [tuple(part.shape) for part in embed] == [(1, 3, 5)] * 2


def test_grad_kwargs():
    net, x = Net(), rows()
    explainer = compat.LayerIntegratedGradients(net, net.first)
    plain = explainer.attribute(x, target=1)
    torch.testing.assert_close(explainer.attribute(x, target=1, grad_kwargs={"allow_unused": True}), plain)
    graph = explainer.attribute(x, target=1, grad_kwargs={"create_graph": True})
    torch.testing.assert_close(graph.detach(), plain)
    graph.sum().backward()
    assert net.second.weight.grad.abs().sum() > 0
    with pytest.raises(OptionError, match="is_grads_batched"):
        explainer.attribute(x, target=1, grad_kwargs={"is_grads_batched": True})
    with pytest.raises(OptionError, match="create_graph"):
        compat.LayerIntegratedGradients(net, net.first, None, False).attribute(x, grad_kwargs={"create_graph": True})


def test_a_fraction_is_not_a_baseline_for_ids():
    net, ids = Shared(), torch.ones(1, 2, dtype=torch.long)
    with pytest.raises(InputError, match="whole number"):
        compat.LayerIntegratedGradients(net, net.embed).attribute((ids, ids), 0.5)
