"""What differs from Captum: rules that are exact where they should be, certificates, warnings and errors."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from integrand import Attribution, Status
from integrand.compat import captum as compat
from integrand.errors import ConvergenceWarning, InputError, IntegrandError, OptionError, TargetError, TrainModeError

from .both import Net, ask, reference, rows


@pytest.mark.parametrize("n_steps", [2, 10, 50])
@pytest.mark.parametrize("multiply", [True, False])
def test_the_trapezoid_rule_is_exact_for_a_linear_model(n_steps, multiply):
    weight = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    x = torch.tensor([[1.0, 2.0, -3.0]], dtype=torch.float64)
    options = {"method": "riemann_trapezoid", "n_steps": n_steps, "multiply": multiply}
    ours, theirs = (ask(library, lambda x: x @ weight, x, **options) for library in (compat, reference))
    exact = weight * x if multiply else weight[None]
    torch.testing.assert_close(ours, exact, rtol=1e-14, atol=0)
    torch.testing.assert_close(theirs, exact * (n_steps - 1) / n_steps, rtol=1e-6, atol=0)
    curved = [ask(library, Net().double(), rows(dtype=torch.float64), target=1, **options) for library in (compat, reference)]
    torch.testing.assert_close(curved[0], curved[1] * n_steps / (n_steps - 1), rtol=1e-5, atol=1e-6)


def test_weights_are_float64():
    x = torch.tensor([[0.5, 1.5, -2.0]], dtype=torch.float64)
    exact = x**7  # 20 Gauss-Legendre steps are exact for a polynomial of this degree
    ours, theirs = (ask(library, lambda x: (x**7).sum(1), x, n_steps=20) for library in (compat, reference))
    assert (ours - exact).abs().max() < 1e-12
    assert (theirs - exact).abs().max() > 1e-8


def test_a_delta_of_zero_does_not_silence_the_warning():
    def cancels(x):
        steps = (200 * (x - 0.9)).sigmoid()
        return steps[:, 0] - steps[:, 1]

    x = torch.ones(1, 2, dtype=torch.float64)
    with pytest.warns(ConvergenceWarning):
        values, delta = compat.IntegratedGradients(cancels).attribute(x, n_steps=5, return_convergence_delta=True)
    assert delta.abs().max() < 1e-9
    assert values.abs().max() < 0.01  # the truth is 1 and -1
    exact = compat.IntegratedGradients(cancels).attribute(x, n_steps=None)
    torch.testing.assert_close(exact, torch.tensor([[1.0, -1.0]], dtype=torch.float64), rtol=0.01, atol=0)


def test_warnings_point_at_the_callers_line():
    for multiply in (True, False):
        ig = compat.IntegratedGradients(lambda x: (50 * x).sin().sum(1), multiply)
        with pytest.warns(ConvergenceWarning) as caught:
            ig.attribute(rows(), n_steps=5)
        assert [warning.filename for warning in caught] == [__file__]


# What is new


def test_attributions_with_their_certificate():
    net, x = Net(), rows()
    for explainer in (compat.IntegratedGradients(net), compat.LayerIntegratedGradients(net, net.first)):
        result = explainer.attribute_with_certificate(x, target=1)
        assert isinstance(result, Attribution)
        assert [example.gradients for example in result.certificate] == [50] * 3
        assert result.certificate.converged
        torch.testing.assert_close(result.values, explainer.attribute(x, target=1))
        tight = explainer.attribute_with_certificate(x, target=1, n_steps=None, tol=1e-3)
        assert all(example.error <= 1e-3 for example in tight.certificate)
        assert {example.status for example in tight.certificate} == {Status.CONVERGED}


def test_functions_of_the_output_as_target():
    values = compat.IntegratedGradients(Net()).attribute(rows(), target=lambda out: out[:, 0] - out[:, 1])
    parts = [ask(compat, Net(), rows(), target=i) for i in (0, 1)]
    torch.testing.assert_close(values, parts[0] - parts[1], rtol=1e-5, atol=1e-5)


def test_baselines_that_broadcast():
    net = Net()
    full = rows(1, seed=5).expand(3, 6)
    for baseline in (full[0], full[:1]):
        torch.testing.assert_close(
            ask(compat, net, rows(), target=1, baselines=baseline), ask(compat, net, rows(), target=1, baselines=full)
        )
    half = ask(compat, net, rows(), target=1, baselines=0.5)
    for baseline in (torch.tensor(0.5), torch.full((3, 1), 0.5), torch.full((1, 1), 0.5)):
        torch.testing.assert_close(ask(compat, net, rows(), target=1, baselines=baseline), half)


# What is refused


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"method": "simpson"}, OptionError, "riemann_trapezoid"),
        ({"n_steps": 0}, OptionError, "n_steps"),
        ({"internal_batch_size": 0}, OptionError, "internal_batch_size"),
        ({"baselines": torch.zeros(2, 6)}, InputError, "shape"),
        ({"baselines": torch.zeros(1, 3, 6)}, InputError, "shape"),
        ({"baselines": torch.zeros(3, 6, dtype=torch.float64)}, InputError, "float64"),
        ({"baselines": (0, 0)}, InputError, "2 baselines for 1 inputs"),
        ({"baselines": "zero"}, InputError, "str"),
        ({"target": 9}, TargetError, "out of range"),
        ({"target": [0, 1]}, TargetError, "2 targets for 3"),
        ({"target": torch.tensor(1.5)}, TargetError, "1.5"),
        ({}, TargetError, "no target was given"),
        ({"target": (1, 0)}, TargetError, "2 indices"),
    ],
    ids=str,
)
def test_errors(options, error, match):
    for layered in (False, True):
        net = Net()
        explainer = compat.LayerIntegratedGradients(net, net.first) if layered else compat.IntegratedGradients(net)
        with pytest.raises(error, match=match) as caught:
            explainer.attribute(rows(), **options)
        assert isinstance(caught.value, AssertionError)  # as in Captum


def test_silent_mistakes_are_errors():
    model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(), nn.Linear(4, 1))
    for multiply in (True, False):
        ig = compat.IntegratedGradients(model, multiply)
        with pytest.raises(TrainModeError):
            ig.attribute(rows())
        with pytest.raises(InputError, match="int64"):
            compat.IntegratedGradients(Net(), multiply).attribute(torch.ones(2, 6, dtype=torch.long))
    with pytest.raises(InputError, match="3 rows"):
        compat.IntegratedGradients(Net()).compute_convergence_delta(rows(2), 0, rows(), target=1)


def test_indices_out_of_range_are_index_errors_as_in_captum():
    for library in (compat, reference):
        with pytest.raises(IndexError):
            ask(library, Net(), rows(), target=9)


def test_gradient_functions_of_ones_own_are_refused():
    ig = compat.IntegratedGradients(Net())
    with pytest.raises(OptionError, match="forward_func"):
        ig.gradient_func = lambda *_: ()


# What messages say

OURS = re.compile(r"\b(steps|chunk|max_evaluations|batched|layer_side|layer|kwargs|args|score|baseline|precision|rule)=|\bx\b")
"""Options and names of this package that Captum's callers do not have."""


class Pooled(nn.Module):
    def forward(self, x):
        return x.sum()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: compat.IntegratedGradients(Net()).attribute(torch.ones(2, 6).long(), target=0), "additional_forward_args"),
        (lambda: compat.IntegratedGradients(Net()).attribute(rows() * torch.nan, target=0), "inputs holds nan"),
        (lambda: compat.IntegratedGradients(Net()).attribute(rows(), float("nan"), target=0), "baselines holds nan"),
        (lambda: compat.IntegratedGradients(Net()).attribute((rows(), rows(2, 3)), target=0), "additional_forward_args"),
        (lambda: compat.IntegratedGradients(Net()).attribute(torch.tensor(1.0), target=0), r"inputs\[None\]"),
        (lambda: compat.IntegratedGradients(Net()).attribute(torch.zeros(0, 6), target=0), "inputs is empty"),
        (lambda: compat.IntegratedGradients(Pooled()).attribute(rows()), "one score for each row"),
        (lambda: compat.IntegratedGradients(lambda x: x.sqrt().sum(1)).attribute(-rows().abs()), "explain the probability"),
        (
            lambda: compat.IntegratedGradients(lambda x: (x - x.mean(0)).pow(3).sum(1)).attribute(rows()),
            "one example at a time",
        ),
        (
            lambda: compat.LayerIntegratedGradients(Net(), nn.Linear(2, 2)).attribute(rows(), target=0),
            "attribute_to_layer_input",
        ),
    ],
)
def test_errors_name_captums_options(call, match):
    with pytest.raises(IntegrandError, match=match) as caught:
        call()
    assert not OURS.search(str(caught.value)), str(caught.value)


def test_warnings_name_captums_options_and_their_advice_works():
    wavy = compat.IntegratedGradients(lambda x: (9 * x).sin().sum(1))
    with pytest.warns(ConvergenceWarning, match="raise n_steps, or pass n_steps=None") as caught:
        wavy.attribute(rows(), n_steps=5)
    message = str(caught[0].message)
    assert not OURS.search(message.replace("n_steps=", "")), message
    many = wavy.attribute(rows(), n_steps=200)  # warnings are errors
    torch.testing.assert_close(wavy.attribute(rows(), n_steps=None), many, rtol=0.05, atol=0.01)
    loose = wavy.attribute_with_certificate(rows(), n_steps=30, tol=10.0)
    assert loose.certificate.converged
    with pytest.warns(ConvergenceWarning):
        short = wavy.attribute_with_certificate(rows(), n_steps=5)
    assert "raise n_steps" in short.certificate[0].remedy
    with pytest.warns(ConvergenceWarning, match="raise n_steps, or pass None"):
        wavy.attribute(rows(), n_steps=1)


def test_errors_in_the_model_come_with_captums_words():
    def shapes(x, y):
        return (x * y).sum(1)

    with pytest.raises(RuntimeError, match="size of tensor") as caught:
        compat.IntegratedGradients(shapes).attribute(rows(), additional_forward_args=torch.ones(2, 6))
    assert not any(OURS.search(note) for note in getattr(caught.value, "__notes__", []))
