"""The same numbers as Captum where it is right, and the right ones where it is not."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from integrand.compat import captum as compat

from .both import METHODS, Net, Toy, ask, models, reference, rows, same

DTYPES = (torch.float32, torch.float64)

# The interface


@pytest.mark.parametrize("name", ["IntegratedGradients", "LayerIntegratedGradients"])
@pytest.mark.parametrize("method", ["__init__", "attribute", "compute_convergence_delta", "has_convergence_delta"])
def test_signatures_are_those_of_captum(name, method):
    ours, theirs = (inspect.signature(getattr(getattr(library, name), method)) for library in (compat, reference))

    def seen(signature):
        return [(p.name, p.default, p.kind) for p in signature.parameters.values()]

    assert seen(ours) == seen(theirs)


def test_names_and_flags():
    net = Net()
    for explainer in (compat.IntegratedGradients(net, False), compat.LayerIntegratedGradients(net, net.first, None, False)):
        assert explainer.has_convergence_delta() is True
        assert explainer.multiplies_by_inputs is False
        assert explainer.forward_func is net
    assert compat.IntegratedGradients(net).multiplies_by_inputs is True
    explainer = compat.LayerIntegratedGradients(net, net.first, device_ids=[0])
    assert explainer.layer is net.first
    assert explainer.device_ids == [0]
    assert explainer.multiplies_by_inputs is True


def test_captum_is_not_needed():
    code = "import sys; sys.modules['captum'] = None; import integrand.compat.captum"
    subprocess.run([sys.executable, "-c", code], check=True)


# Known values


def test_known_values_of_captums_own_tests():
    model = models.BasicModel_MultiLayer()
    x = torch.tensor([[0.0, 100.0, 0.0]])
    values, delta = ask(compat, model, x, target=0, n_steps=500, return_convergence_delta=True)
    torch.testing.assert_close(values, torch.tensor([[0.0, 390.0, 0.0]]), rtol=1e-3, atol=0)
    assert delta.shape == (1,)
    exact = compat.IntegratedGradients(model).attribute(x, target=0, n_steps=None)
    torch.testing.assert_close(exact, torch.tensor([[0.0, 390.0, 0.0]]), rtol=0.01, atol=0)


def test_known_values_of_captums_readme():
    model = Toy()
    torch.manual_seed(123)
    x = torch.rand(2, 3)
    expected = torch.tensor([[-0.5922, -1.5497, -1.0067], [0.0, -0.2219, -5.1991]])
    explainer = compat.IntegratedGradients(model)
    values, delta = explainer.attribute(x, torch.zeros(2, 3), target=0, return_convergence_delta=True)
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-4)
    assert delta.abs().max() < 1e-5


# The same numbers


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_steps", [2, 7, 50])
def test_methods(method, n_steps, dtype):
    same(Net().to(dtype), rows(dtype=dtype), target=[0, 3, 1], method=method, n_steps=n_steps, baselines=0.25)
    same(Toy().to(dtype), rows(4, 3, dtype), target=1, method=method, n_steps=n_steps)


@pytest.mark.parametrize("multiply", [True, False])
@pytest.mark.parametrize(
    "baselines",
    [None, 0, 0.5, -1, torch.full((1, 6), 0.3), rows(seed=5), (0.5,), (rows(seed=5),), torch.zeros(1, 6, dtype=torch.long)],
    ids=["none", "0", "0.5", "-1", "one row", "rows", "tuple of number", "tuple of rows", "integers"],
)
def test_baselines(baselines, multiply):
    values = same(Net(), rows(), target=2, baselines=baselines, multiply=multiply)
    assert isinstance(values, Tensor)


@pytest.mark.parametrize("multiply", [True, False])
@pytest.mark.parametrize("baselines", [None, (0, 0.5), (rows(seed=5), 0), (rows(1, seed=5), rows(3, 3, seed=6))])
def test_tuples_of_inputs(baselines, multiply):
    inputs = (rows(), rows(3, 3, seed=9))
    values = same(Net(), inputs, target=1, baselines=baselines, multiply=multiply)
    assert isinstance(values, tuple)
    assert same(Net(), (rows(),), target=1)[0].shape == (3, 6)


@pytest.mark.parametrize(
    "target",
    [1, -1, (2,), torch.tensor(1), torch.tensor([3]), [0, 3, 1], torch.tensor([0, 3, 1]), [(0,), (3,), (1,)], (-2,)],
    ids=str,
)
def test_targets(target):
    same(Net(), rows(), target=target, return_convergence_delta=True)


@pytest.mark.parametrize("target", [(1, 0, 1), [(0, 1, 1), (1, 1, 0), (0, 0, 0)], (1, -1, 0)], ids=str)
def test_targets_of_outputs_with_more_dimensions(target):
    model = models.BasicModel_MultiLayer()
    same(model, 5 * rows(3, 3), target=target, additional_forward_args=(None, True), n_steps=20, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "model",
    [lambda x: (x**3).sum(1), lambda x: x.sin().sum(1, keepdim=True), nn.Linear(6, 1)],
    ids=["(N,)", "(N, 1)", "module"],
)
def test_outputs_that_need_no_target(model):
    same(model, rows(), return_convergence_delta=True)


@pytest.mark.parametrize(
    "further",
    [
        rows(3, 3, seed=3),
        (None, 2.5),
        (rows(3, 3), 0.5, rows(3, 1)),
        (None, torch.tensor(2.0)),
        (None, 1.0, rows(3, 1), [1, 2, 3]),
    ],
    ids=["tensor", "numbers", "mixed", "0-d", "a list as long as the batch"],
)
def test_additional_forward_args(further):
    options = {"target": 1, "additional_forward_args": further, "return_convergence_delta": True}
    same(Net(), rows(), **options)
    same(Net(), rows(), internal_batch_size=7, **options)


@pytest.mark.parametrize("internal_batch_size", [1, 3, 10, 1000])
def test_internal_batches(internal_batch_size):
    same(Net(), rows(), target=1, internal_batch_size=internal_batch_size)
    net = Net()
    same(net, rows(), layer=net.first, target=1, internal_batch_size=internal_batch_size)


@pytest.mark.parametrize("dtype", DTYPES)
def test_convolutions(dtype):
    model = models.BasicModel_ConvNet().to(dtype)
    x = 10 * torch.rand(2, 1, 10, 10, generator=torch.Generator().manual_seed(4)).to(dtype)
    same(model, x, target=1, n_steps=30, rtol=1e-4, atol=1e-5)
    same(model, x, layer=model.conv2, target=[0, 1], n_steps=30, rtol=1e-4, atol=1e-5)


def test_models_with_several_inputs_and_a_setting():
    model = models.BasicModel_MultiLayer_MultiInput()
    inputs = tuple(5 * rows(2, 3, seed=i) for i in range(3))
    same(model, inputs, target=0, additional_forward_args=(3,), baselines=(0, 1.0, rows(2, 3)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("multiply", [True, False])
def test_inputs_with_one_number_per_example(multiply):
    options = {"multiply": multiply, "return_convergence_delta": True}
    values, delta = same(lambda x: x**3, rows(4)[:, 0], baselines=0.1, **options)
    assert values.shape == delta.shape == (4,)
    same(lambda x, y: x * y - x**2, (rows(4)[:, 0], rows(4)[:, 1]), baselines=(rows(4)[:, 2], 0), **options)


def test_the_convergence_delta():
    model, x, start = Toy(), rows(4, 3), rows(4, 3, seed=8)
    for options in ({}, {"multiply": False}, {"layer": model.lin1}, {"layer": model.lin2, "method": "riemann_left"}):
        ours, delta = same(model, x, baselines=start, target=1, n_steps=6, return_convergence_delta=True, **options)
        assert delta.shape == (4,)
        layered = options.get("layer")
        for library in (compat, reference):
            ig = library.LayerIntegratedGradients(model, layered) if layered else library.IntegratedGradients(model)
            again = ig.compute_convergence_delta(ours, start, x, target=1)
            torch.testing.assert_close(again.detach(), delta, rtol=1e-4, atol=1e-5)


def test_inputs_that_ask_for_gradients_and_no_grad():
    net, x = Net(), rows().requires_grad_()
    with torch.no_grad():
        values = same(net, x, target=1)
    assert not values.requires_grad
    assert all(parameter.requires_grad for parameter in net.parameters())
