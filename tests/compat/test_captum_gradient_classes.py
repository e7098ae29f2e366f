"""Saliency, InputXGradient, GuidedBackprop and Deconvolution: Captum's numbers, and the right ones where it has others."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional

from integrand.certificate import Status
from integrand.compat import captum as compat

from .pairs import models, parameters, reference, same

NAMES = ("Saliency", "InputXGradient", "GuidedBackprop", "Deconvolution")
RECTIFIED = ("GuidedBackprop", "Deconvolution")


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ["__init__", "attribute"])
def test_signatures_are_those_of_captum(name, method):
    assert parameters(compat, name, method) == parameters(reference, name, method)


@pytest.mark.parametrize("name", NAMES)
def test_flags_are_those_of_captum(name):
    model = models.BasicModel_MultiLayer()
    ours, theirs = getattr(compat, name)(model), getattr(reference, name)(model)
    for flag in ("multiplies_by_inputs", "get_name", "has_convergence_delta"):
        mine, other = getattr(ours, flag), getattr(theirs, flag)
        assert (mine() if callable(mine) else mine) == (other() if callable(other) else other)
    assert isinstance(ours, getattr(reference, name))
    assert pickle.loads(pickle.dumps(ours)).get_name() == theirs.get_name()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", [0, 1, torch.tensor(1), [0, 1, 1], torch.tensor([1, 0, 1]), (0,)])
def test_targets(name, target):
    same(name, (models.BasicModel_MultiLayer(),), rows(3, 3), target=target)


@pytest.mark.parametrize("name", NAMES)
def test_images(name):
    same(name, (models.BasicModel_ConvNet().eval(),), rows(3, 1, 10, 10), target=[0, 1, 2], atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_tuples_and_further_arguments(name):
    inputs = (rows(3, 3), rows(3, 3, seed=1))
    found = same(name, (models.BasicModel_MultiLayer_MultiInput(),), inputs, target=0, additional_forward_args=(rows(3, 3), 4))
    assert isinstance(found, tuple)
    same(name, (models.ReLULinearModel(),), inputs)


def test_saliency_with_its_sign():
    same("Saliency", (models.BasicModel_MultiLayer(),), rows(3, 3), 1, False)
    x = torch.tensor([[2.0, 3.0]])
    product = compat.Saliency(lambda x: -x[:, 0] * x[:, 1])
    assert torch.equal(product.attribute(x, abs=False), torch.tensor([[-3.0, -2.0]]))
    assert torch.equal(product.attribute(x), torch.tensor([[3.0, 2.0]]))


def test_float64_stays_float64():
    found = same("InputXGradient", (models.BasicModel_MultiLayer().double(),), rows(3, 3).double(), target=0, rtol=1e-12)
    assert found.dtype == torch.float64


@pytest.mark.parametrize("name", RECTIFIED)
def test_rectifiers_that_are_functions_count(name):
    """Captum sees nn.ReLU alone, and gives the plain gradient for a model that calls torch.relu."""

    class Written(nn.Module):
        def __init__(self, functional_):
            super().__init__()
            self.relu, self.functional = nn.ReLU(), functional_

        def forward(self, x):
            hidden = torch.stack([x[:, 0] - x[:, 1], x[:, 0] + x[:, 1]], 1)
            on = functional.relu(hidden) if self.functional else self.relu(hidden)
            return on[:, 0] - on[:, 1]

    x = torch.tensor([[3.0, 1.0], [1.0, 3.0]])
    # Only the first unit hands anything back: its sign is positive. It is off for the second example.
    expected = {"GuidedBackprop": [[1.0, -1.0], [0.0, 0.0]], "Deconvolution": [[1.0, -1.0], [1.0, -1.0]]}[name]
    for functional_ in (False, True):
        found = getattr(compat, name)(Written(functional_)).attribute(x)
        assert torch.equal(found, torch.tensor(expected))
    same(name, (Written(False),), x)


def test_other_activations_keep_their_gradient_and_are_named():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 1))
    same("GuidedBackprop", (model,), rows(3, 4))
    found = compat.GuidedBackprop(model).attribute_with_certificate(rows(3, 4))
    assert "gelu" in found.certificate[0].note


@pytest.mark.parametrize("name", NAMES)
def test_certificates(name):
    model, x = models.BasicModel_MultiLayer(), rows(3, 3)
    explainer = getattr(compat, name)(model)
    found = explainer.attribute_with_certificate(x, 1)
    assert torch.equal(found.values, explainer.attribute(x, 1))
    assert {one.status for one in found.certificate} == {Status.EXACT}
    assert torch.allclose(torch.tensor([one.score for one in found.certificate]), model(x)[:, 1])


@pytest.mark.parametrize("name", RECTIFIED)
def test_functions_are_refused(name):
    with pytest.raises(AssertionError, match=r"got a function as model; expected a torch\.nn\.Module"):
        getattr(compat, name)(lambda x: x)


@pytest.mark.parametrize("name", NAMES)
def test_targets_out_of_range_are_assertion_errors(name):
    with pytest.raises(AssertionError, match="out of range"):
        getattr(compat, name)(models.BasicModel_MultiLayer()).attribute(rows(3, 3), target=7)
