"""FeatureAblation and ShapleyValueSampling of models that return futures: Captum's numbers, in whatever order answers come."""

from __future__ import annotations

import pytest
import torch
from torch.futures import Future

from integrand.compat import captum as compat
from integrand.errors import InputError, OptionError, TargetError

from .pairs import models, parameters, quiet, reference, seeded

NAMES = ("FeatureAblation", "ShapleyValueSampling")
each = pytest.mark.parametrize("name", NAMES)
MASK = torch.tensor([[0, 0, 1]])
X = torch.tensor([[20.0, 50.0, 30.0], [2.0, 10.0, 3.0]])


def answered(value):
    future = Future()
    future.set_result(value)
    return future


def waited(library, name, model, *args, **kwargs):
    seeded(5)
    return quiet(getattr(library, name)(model).attribute_future, *args, **kwargs).wait()


def same(name, model, *args, **kwargs):
    ours, theirs = (waited(library, name, model, *args, **kwargs) for library in (compat, reference))
    assert type(ours) is type(theirs)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    return ours


@each
def test_signatures_are_those_of_captum(name):
    assert parameters(compat, name, "attribute_future") == parameters(reference, name, "attribute_future")


@each
@pytest.mark.parametrize("several", [1, 2, 3])
def test_targets_baselines_and_masks(name, several):
    net = models.BasicModel_MultiLayer_with_Future()
    same(name, net, X, target=0, perturbations_per_eval=several)
    same(name, net, X, 0.5, [0, 1], perturbations_per_eval=several)
    same(name, net, X, X.flip(0), torch.tensor([1, 0]), feature_mask=MASK, perturbations_per_eval=several)
    same(name, net, X, target=1, feature_mask=torch.tensor([[0, 0, 1], [1, 1, 0]]), perturbations_per_eval=several)
    assert same(name, net, X, perturbations_per_eval=several).shape == ((4, 3) if name == "FeatureAblation" else (2, 2, 3))
    same(name, models.BasicModelBoolInput_with_Future(), torch.tensor([[True, False, True]]), True, 0, feature_mask=MASK)


@each
def test_several_inputs_and_further_arguments(name):
    inputs = (X, X.flip(0), X + 1)
    net = models.BasicModel_MultiLayer_MultiInput_with_Future()
    found = same(name, net, inputs, (0.1, X * 0.2, 0.0), 1, (4,), perturbations_per_eval=2)
    assert isinstance(found, tuple)
    same(name, net, inputs[:2], None, 1, (X * 3, 4), feature_mask=(MASK, MASK + 1), perturbations_per_eval=3)


@each
def test_one_output_for_the_whole_batch(name):
    net = models.BasicModel_MultiLayer()
    same(name, lambda x: answered(net(x)[:, 0].sum().reshape(1)), X, feature_mask=MASK)
    same(name, lambda x: answered(net(x).sum(0)), X)
    with pytest.raises(OptionError, match="perturbations_per_eval=1"):
        waited(compat, name, lambda x: answered(net(x).sum(0)), X, perturbations_per_eval=2)


@each
@pytest.mark.parametrize("options", [{"target": 0}, {"target": torch.tensor([1, 0])}, {}])
def test_answers_may_come_late_and_in_any_order(name, options):
    net, open_calls = models.BasicModel_MultiLayer(), []

    def ask(x):
        open_calls.append((Future(), x))
        return open_calls[-1][0]

    seeded(5)
    found = getattr(compat, name)(ask).attribute_future(X, perturbations_per_eval=2, **options)
    assert not found.done()
    for future, x in reversed(open_calls):
        future.set_result(net(x))
    seeded(5)
    expected = quiet(getattr(compat, name)(net).attribute, X, **options)
    torch.testing.assert_close(found.wait(), expected)


@each
def test_a_feature_alone(name):
    """With one feature, all of the change is its own."""
    net = models.BasicModel_MultiLayer()
    found = waited(compat, name, lambda x: answered(net(x)), X, target=0, feature_mask=MASK * 0)
    change = (net(X) - net(X * 0))[:, :1].expand(2, 3)
    torch.testing.assert_close(found, change)


@each
def test_tensors_and_futures_are_not_mixed_up(name):
    net = models.BasicModel_MultiLayer()
    explain = getattr(compat, name)
    with pytest.raises(
        AssertionError, match=r"returns a Tensor; expected a torch\.futures\.Future.*Call attribute for"
    ) as caught:
        explain(net).attribute_future(X, target=0)
    assert isinstance(caught.value, OptionError)
    with pytest.raises(AssertionError, match=r"returns a Future; expected a tensor.*attribute_future") as caught:
        explain(models.BasicModel_MultiLayer_with_Future()).attribute(X, target=0)
    assert isinstance(caught.value, InputError)
    with pytest.raises(AssertionError, match="got perturbations_per_eval=0"):
        explain(models.BasicModel_MultiLayer_with_Future()).attribute_future(X, target=0, perturbations_per_eval=0)


@each
def test_what_goes_wrong_in_an_answer_is_raised_by_wait(name):
    net = models.BasicModel_MultiLayer_with_Future()
    for target, kind in ((7, InputError), (torch.tensor([0, 7]), TargetError)):
        future = getattr(compat, name)(net).attribute_future(X, target=target)
        with pytest.raises(kind, match="target"):
            future.wait()
    failed = Future()
    future = getattr(compat, name)(lambda x: failed).attribute_future(X, target=0)
    failed.set_exception(ConnectionError("the server is gone"))
    with pytest.raises(ConnectionError, match="the server is gone"):
        future.wait()


@pytest.mark.parametrize("name", [name for name in compat.__all__ if name not in NAMES])
def test_the_others_refuse_as_captums_do(name):
    ours = object.__new__(getattr(compat, name))
    with pytest.raises(NotImplementedError, match=f"not implemented for {name}"):
        ours.attribute_future()
