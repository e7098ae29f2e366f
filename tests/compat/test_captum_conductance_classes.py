"""What passes through layers and neurons: Captum's numbers for its steps, closed forms and references to a tolerance."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable

from integrand.compat import captum as compat
from integrand.errors import ConvergenceWarning, ModelError
from integrand.functions.neuron import NeuronReader, NeuronSplit
from integrand.methods.conductance import derivative

from .pairs import asked, models, parameters, reference, same

NAMES = (
    "LayerConductance",
    "NeuronConductance",
    "NeuronIntegratedGradients",
    "InternalInfluence",
    "LayerGradientXActivation",
)
METHODS = ("riemann_right", "riemann_left", "riemann_middle", "gausslegendre")
"""All but the trapezoid, where Captum is not right."""


class Past(nn.Module):
    """Smooth, in float64, and part of the input reaches the output past every layer."""

    def __init__(self, past=1.0):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.act, self.last = nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 3)
        self.past = past
        self.double()

    def forward(self, x, scale=1.0, shift=None):
        out = self.last(self.act(self.first(x))) * scale + self.past * x[:, :3] ** 2
        return out if shift is None else out + shift * x[:, :1]


class Square(nn.Module):
    """y = (x0^2, x1), F = y0 y1 + x1^3: everything about it is known."""

    def __init__(self):
        super().__init__()
        self.layer = Powers()

    def forward(self, x):
        y = self.layer(x)
        return y[:, 0] * y[:, 1] + x[:, 1] ** 3


class Powers(nn.Module):
    def forward(self, x):
        return torch.stack([x[:, 0] ** 2, x[:, 1]], 1)


def rows(count=3, features=4, seed=0):
    return torch.randn(count, features, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gauss(values_and_gradients, x, nodes=60):
    """An integral over [0, 1] by 60 Gauss-Legendre nodes, one after the other, of what is smooth."""
    times, weights = np.polynomial.legendre.leggauss(nodes)
    return sum(w / 2 * values_and_gradients(x * (t + 1) / 2) for t, w in zip(times, weights, strict=True))


# The interface


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ["__init__", "attribute"])
def test_signatures_are_those_of_captum(name, method):
    assert parameters(compat, name, method) == parameters(reference, name, method)


@pytest.mark.parametrize("name", NAMES)
def test_flags_are_those_of_captum(name):
    net = Past()
    ours, theirs = (getattr(library, name)(net, net.act) for library in (compat, reference))
    assert ours.multiplies_by_inputs == theirs.multiplies_by_inputs
    assert ours.has_convergence_delta() == theirs.has_convergence_delta()
    assert ours.get_name() == theirs.get_name()
    assert isinstance(ours, getattr(reference, name))


# Captum's numbers for Captum's steps


@pytest.mark.parametrize("method", [*METHODS, "riemann_trapezoid"])
@pytest.mark.parametrize("n_steps", [1, 7, 20])
def test_layer_conductance_is_captums_sum(method, n_steps):
    net = Past()
    same("LayerConductance", (net, net.first), rows(), 0.1, 1, n_steps=n_steps, method=method, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("multiply", [True, False])
def test_neurons_are_captums_sum(method, multiply):
    net = Past()
    build = (net, net.act, None, multiply)
    same("NeuronConductance", build, rows(), 2, 0.1, 1, n_steps=20, method=method, rtol=1e-6)
    same("NeuronIntegratedGradients", build, rows(), 2, 0.1, n_steps=20, method=method, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_internal_influence_is_captums_sum(method):
    net = Past()
    same("InternalInfluence", (net, net.act), rows(), 0.1, 1, n_steps=20, method=method, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_further_arguments_targets_and_small_chunks(name):
    net = Past()
    args = (rows(),) if name.startswith("Layer") or name == "InternalInfluence" else (rows(), 3)
    options = {"additional_forward_args": (2.0, rows(3, 1, seed=3))}
    if name != "NeuronIntegratedGradients":
        options["target"] = [0, 2, 1]
    if name != "LayerGradientXActivation":
        options |= {"n_steps": 10, "method": "gausslegendre", "internal_batch_size": 4}
    same(name, (net, net.act), *args, **options)


@pytest.mark.parametrize("name", ["LayerConductance", "InternalInfluence", "LayerGradientXActivation"])
def test_inputs_of_layers(name):
    model = models.BasicModel_MultiLayer(inplace=True)
    same(name, (model, model.relu), rows(3, 3).float(), target=1, attribute_to_layer_input=True)
    same(name, (model, model.linear0), rows(3, 3).float(), target=1, attribute_to_layer_input=True)


@pytest.mark.parametrize("name", ["LayerConductance", "InternalInfluence", "LayerGradientXActivation"])
def test_layers_that_give_several_tensors(name):
    model = models.BasicModel_MultiLayer(multi_input_module=True)
    found = same(name, (model, model.multi_relu), rows(3, 3).float(), target=0)
    assert isinstance(found, tuple)


@pytest.mark.parametrize("name", ["NeuronConductance", "NeuronIntegratedGradients"])
def test_selectors(name):
    model = models.BasicModel_ConvNet().eval()
    x = rows(2, 100).float().reshape(2, 1, 10, 10)
    options = {"target": 0} if name == "NeuronConductance" else {}
    for selector in ((0, 1, 2), lambda values: values[:, 0, 1, 2]):
        same(name, (model, model.conv1), x, selector, n_steps=10, method="gausslegendre", atol=1e-7, **options)
    same(name, (model, model.fc1), x, 4, n_steps=10, method="gausslegendre", atol=1e-7, **options)
    same(
        name, (model, model.relu1), x, (0, 1, 2), n_steps=10, method="gausslegendre", attribute_to_neuron_input=True, **options
    )


@pytest.mark.parametrize("name", ["NeuronConductance", "NeuronIntegratedGradients"])
def test_neurons_of_several_inputs(name):
    model = models.BasicModel_MultiLayer_MultiInput()
    inputs = tuple(rows(3, 3, seed=i).float() for i in range(3))
    options = {"target": 1} if name == "NeuronConductance" else {}
    found = same(
        name, (model, model.model.linear1), inputs, 2, n_steps=10, method="riemann_middle", additional_forward_args=4, **options
    )
    assert isinstance(found, tuple)


def test_lists_of_layers_are_explained_one_by_one():
    net = Past()
    found = same("LayerGradientXActivation", (net, [net.first, net.act]), rows(), 1)
    assert isinstance(found, list)
    same("LayerGradientXActivation", (net, net.act, None, False), rows(), 1)


def test_token_ids_have_layers_too():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(6, 2))
    same("LayerGradientXActivation", (model, model[0]), torch.tensor([[1, 2], [3, 8]]), 1)


def test_convergence_delta():
    net = Past(past=0.0)
    ours, theirs = (
        asked(library, "LayerConductance", (net, net.act), ((rows(),), {"target": 1, "return_convergence_delta": True}))
        for library in (compat, reference)
    )
    torch.testing.assert_close(ours[1], theirs[1].to(ours[1]), rtol=1e-5, atol=1e-9)
    exact = compat.LayerConductance(net, net.act).attribute(rows(), target=1, n_steps=None, return_convergence_delta=True)
    assert exact[1].abs().max() < 1e-3 * ours[1].abs().max()


# To a tolerance: closed forms


def test_closed_forms():
    net = Square()
    a, b = 2.0, 3.0
    x = torch.tensor([[a, b]], dtype=torch.float64)
    conductance = compat.LayerConductance(net, net.layer).attribute_with_certificate(x, n_steps=None, tol=1e-8)
    # y = (a^2 t^2, b t): the integrals of b t 2 a^2 t and of a^2 t^2 b; x1^3 passes the layer by.
    torch.testing.assert_close(
        conductance.values, torch.tensor([[2 * a * a * b / 3, a * a * b / 3]]).double(), rtol=1e-7, atol=0
    )
    assert conductance.certificate[0].converged
    assert conductance.certificate[0].error <= 1e-8
    influence = compat.InternalInfluence(net, net.layer).attribute(x, n_steps=None)
    torch.testing.assert_close(influence, torch.tensor([[b / 2, a * a / 3]]).double(), rtol=1e-6, atol=0)
    through = compat.NeuronConductance(net, net.layer).attribute(x, 0, n_steps=None)
    torch.testing.assert_close(through, torch.tensor([[2 * a * a * b / 3, 0.0]]).double(), rtol=1e-6, atol=1e-12)
    neuron = compat.NeuronIntegratedGradients(net, net.layer).attribute(x, 0, n_steps=None)
    torch.testing.assert_close(neuron, torch.tensor([[a * a, 0.0]]).double(), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6])
def test_claims_hold_beside_an_independent_sum(tol):
    net, x = Past(), rows(4)

    def conductance(point):
        point = point.requires_grad_()
        hidden = net.first(point)
        leaf = hidden.detach().requires_grad_()
        [slope] = torch.autograd.grad(net.last(net.act(leaf))[:, 1].sum(), leaf)
        return slope * (x @ net.first.weight.T).detach()

    def influence(point):
        leaf = net.first(point).detach().requires_grad_()
        return torch.autograd.grad(net.last(net.act(leaf))[:, 1].sum(), leaf)[0]

    for name, expected in (("LayerConductance", gauss(conductance, x)), ("InternalInfluence", gauss(influence, x))):
        found = getattr(compat, name)(net, net.first).attribute_with_certificate(x, target=1, n_steps=None, tol=tol)
        off = (found.values - expected).abs().sum(1) / expected.abs().sum(1)
        for one, error in zip(found.certificate, off.tolist(), strict=True):
            assert one.converged
            assert one.error <= tol
            assert error <= max(one.error, 1e-12)


def test_neurons_share_out_what_passes_through_the_layer():
    """Over all neurons and inputs, conductance is the same sum whichever way it is taken."""
    net, x = Past(), rows(2)
    layer = compat.LayerConductance(net, net.act).attribute_with_certificate(x, target=1, n_steps=None, tol=1e-7).values
    explainer = compat.NeuronConductance(net, net.act)
    for neuron in range(5):
        found = explainer.attribute_with_certificate(x, neuron, target=1, n_steps=None, tol=1e-7)
        torch.testing.assert_close(found.values.sum(1), layer[:, neuron], rtol=1e-5, atol=1e-9)


def test_kinks_are_integrated_too():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)).double()
    x = rows(3)
    found = compat.LayerConductance(net, net[2]).attribute_with_certificate(x, n_steps=None, tol=1e-3)
    assert all(one.converged for one in found.certificate)
    change = (net(x) - net(torch.zeros_like(x))).detach()[:, 0]
    torch.testing.assert_close(found.values.sum(1), change, rtol=2e-3, atol=1e-6)
    steps = 4000
    fine = compat.LayerConductance(net, net[2]).attribute(x, n_steps=steps, method="riemann_trapezoid")
    off = (found.values - fine).abs().sum(1) / fine.abs().sum(1)
    assert off.max() < 2e-3


# Certificates


def test_captums_steps_have_an_error_of_their_own():
    net, x = Past(), rows()
    exact = compat.LayerConductance(net, net.first).attribute_with_certificate(x, target=1, n_steps=None, tol=1e-8).values
    with pytest.warns(ConvergenceWarning, match="raise n_steps"):
        found = compat.LayerConductance(net, net.first).attribute_with_certificate(x, target=1, n_steps=5)
    off = (found.values - exact).abs().sum(1) / exact.abs().sum(1)
    for one, error in zip(found.certificate, off.tolist(), strict=True):
        assert not one.converged
        assert error <= one.error <= 1.5 * error


@pytest.mark.parametrize("name", NAMES)
def test_the_same_call_gives_the_same_bits(name):
    net = Past()
    args = (rows(),) if name.startswith("Layer") or name == "InternalInfluence" else (rows(), 3)
    options = {} if name == "NeuronIntegratedGradients" else {"target": 1}
    if name != "LayerGradientXActivation":
        options["n_steps"] = None
    explainer = getattr(compat, name)(net, net.act)
    first = explainer.attribute(*args, **options)
    assert torch.equal(first, explainer.attribute(*args, **options))
    assert torch.equal(first, explainer.attribute_with_certificate(*args, **options).values)


def test_the_model_is_left_as_it_was():
    net = Past()
    compat.NeuronConductance(net, net.act).attribute(rows(), 1, target=0, n_steps=None)
    compat.LayerConductance(net, net.act).attribute(rows(), target=0, n_steps=None)
    assert not net.act._forward_hooks
    assert all(p.requires_grad and p.grad is None for p in net.parameters())


# Where Captum is not right


def test_several_neurons_are_the_sum_of_their_conductances():
    """F = x0 + 2 x1 through y = x: Captum multiplies the sum of both gradients with both inputs, and gives three times each."""
    net = nn.Sequential(nn.Identity(), nn.Linear(2, 1, bias=False))
    net[1].weight = nn.Parameter(torch.tensor([[1.0, 2.0]]))
    x = torch.tensor([[1.0, 1.0]])
    expected = torch.tensor([[1.0, 2.0]])
    theirs = asked(
        reference, "NeuronConductance", (net, net[0]), ((x, (slice(0, 2),)), {"target": 0, "method": "gausslegendre"})
    )
    torch.testing.assert_close(theirs, torch.tensor([[3.0, 3.0]]))
    for selector in ((slice(0, 2),), lambda y: y.sum(1)):
        torch.testing.assert_close(compat.NeuronConductance(net, net[0]).attribute(x, selector, target=0), expected)


def test_the_default_rule_of_neuron_conductance_is_complete():
    """A linear model's attributions are its terms; Captum's default, the trapezoid, is 2% short with 50 steps."""
    net = nn.Sequential(nn.Identity(), nn.Linear(2, 1, bias=False))
    x = torch.tensor([[1.0, 2.0]])
    term = net[1].weight.detach()[0, 0] * x[0, 0]
    theirs = asked(reference, "NeuronConductance", (net, net[0]), ((x, 0), {"target": 0}))
    assert theirs[0, 0].item() == pytest.approx(0.98 * term.item(), rel=1e-5)
    assert compat.NeuronConductance(net, net[0]).attribute(x, 0, target=0)[0, 0].item() == pytest.approx(term.item(), rel=1e-6)


def test_layers_that_run_twice_have_a_tensor_for_each_call():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.square = Squared()

        def forward(self, x):
            return self.square(self.square(x[:, :1]) + x[:, 1:])[:, 0]

    class Squared(nn.Module):
        def forward(self, x):
            return x**2

    model = Twice()
    x = torch.tensor([[2.0, 3.0]], dtype=torch.float64)
    first, second = compat.LayerConductance(model, model.square).attribute(x, n_steps=None)
    # All of F(x) = 49 passes through the second call, and nothing past it; of the two, only the last one counts.
    assert second.item() == pytest.approx(49, rel=1e-2)
    assert first.item() == 0


# What is refused


def test_messages_name_captums_options():
    net, x = Past(), rows()
    with pytest.raises(AssertionError, match="got neuron_selector=9 for a layer of shape"):
        compat.NeuronConductance(net, net.act).attribute(x, 9, target=0)
    with pytest.raises(AssertionError, match=r"got neuron_selector=\(0, 0\) for a layer of shape"):
        compat.NeuronIntegratedGradients(net, net.act).attribute(x, (0, 0))
    with pytest.raises(AssertionError, match="one number for each row"):
        compat.NeuronIntegratedGradients(net, net.act).attribute(x, lambda y: y)
    with pytest.raises(AssertionError, match="got n_steps=0"):
        compat.LayerConductance(net, net.act).attribute(x, target=0, n_steps=0)
    with pytest.raises(AssertionError, match="got method='simpson'"):
        compat.InternalInfluence(net, net.act).attribute(x, target=0, method="simpson")
    with pytest.raises(AssertionError, match="create_graph"):
        compat.LayerConductance(net, net.act).attribute(x, target=0, grad_kwargs={"create_graph": True})
    with pytest.raises(AssertionError, match="expected one module"):
        compat.LayerConductance(net, [net.act, net.first]).attribute(x, target=0)
    with pytest.raises(RuntimeError, match="was not run"):
        compat.NeuronIntegratedGradients(net, nn.Linear(1, 1)).attribute(x, 0)


# The parts


def test_split_models_are_the_model():
    net, x = Past(), rows()
    split = NeuronSplit(NeuronReader(net, net.act, "output", 2), 1)
    assert torch.equal(split(x, x), net(x))
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    through, rest = torch.autograd.grad(split(a, b)[:, 1].sum(), (a, b))
    whole = torch.autograd.grad(net(a)[:, 1].sum(), a)[0]
    torch.testing.assert_close(through + rest, whole)
    neuron = torch.autograd.grad(NeuronReader(net, net.act, "output", 2)(a).sum(), a)[0]
    torch.testing.assert_close(through, net.last.weight.detach()[1, 2] * neuron)


def test_derivatives_of_operations_without_a_forward_mode():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 3 * ctx.saved_tensors[0] ** 2

    x, v = rows(2), rows(2, seed=1)
    values, speeds = derivative(lambda x: (Cube.apply(x),), (x,), (v,))
    torch.testing.assert_close(values[0], x**3)
    torch.testing.assert_close(speeds[0], 3 * x**2 * v)


def test_operations_that_can_be_differentiated_only_once_are_refused():
    """Autograd would pass them by, and the layer would seem to stand still."""

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        @once_differentiable
        def backward(ctx, gradient):
            return gradient * 3 * ctx.saved_tensors[0] ** 2

    with pytest.raises(ModelError, match="cannot be differentiated along the path"):
        derivative(lambda x: (Cube.apply(x),), (rows(2),), (rows(2, seed=1),))
