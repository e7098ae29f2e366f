"""The numbers of the paper: sections 2, 2.3 and 3, and its appendix B."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from integrand.methods import LRP, Deconvnet, DeepLift, Gradient, GradientTimesInput, GuidedBackprop, IntegratedGradients

D = torch.float64
AT = torch.tensor([[3.0, 1.0]], dtype=D)
GRID = torch.cartesian_prod(torch.linspace(-3, 5, 9, dtype=D), torch.linspace(-3, 5, 9, dtype=D)) + 0.25


def f(x):
    return torch.relu(torch.relu(x[:, 0]) - 1 - torch.relu(x[:, 1]))


def g(x):
    return torch.relu(torch.relu(x[:, 0] - 1) - torch.relu(x[:, 1]))


def layers(first_bias, second_bias):
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1), nn.ReLU()).to(D)
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(2))
        net[0].bias.copy_(torch.tensor([first_bias, 0.0]))
        net[2].weight.copy_(torch.tensor([[1.0, -1.0]]))
        net[2].bias.fill_(second_bias)
    return net


F_FORMS = {"functional": f, "layers": layers(0.0, -1.0)}
G_FORMS = {"functional": g, "layers": layers(-1.0, 0.0)}
FORMS = ("functional", "layers")


def test_the_two_networks_are_one_function():
    values = [net(GRID).flatten() for forms in (F_FORMS, G_FORMS) for net in forms.values()]
    for other in values[1:]:
        torch.testing.assert_close(other, values[0], rtol=0, atol=0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("method", "for_f", "for_g"),
    [
        (IntegratedGradients(tol=1e-6), (1.5, -0.5), (1.5, -0.5)),
        (DeepLift(), (1.5, -0.5), (2.0, -1.0)),
        (LRP(), (1.5, -0.5), (2.0, -1.0)),
    ],
    ids=["ig", "deeplift", "lrp"],
)
def test_table_of_appendix_b(method, for_f, for_g, form):
    assert method(F_FORMS[form], AT).values[0].tolist() == pytest.approx(for_f, abs=1e-6)
    assert method(G_FORMS[form], AT).values[0].tolist() == pytest.approx(for_g, abs=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", [Deconvnet(), GuidedBackprop()], ids=["deconvnet", "guided"])
def test_dropping_negative_signals_gives_x2_nothing_anywhere(method, form):
    for net in (F_FORMS[form], G_FORMS[form]):
        values = method(net, GRID).values
        assert not values[:, 1].any()
        assert values[:, 0].any()


@pytest.mark.parametrize("method", [Gradient(), GradientTimesInput(), Deconvnet(), GuidedBackprop()], ids=lambda m: m.name)
def test_saturation_gives_nothing_to_the_only_feature(method):
    """Sensitivity(a): f goes from 0 to 1 as x goes from 0 to 2, and its gradient at 2 is zero."""
    result = method(lambda x: (1 - torch.relu(1 - x)).sum(1), torch.tensor([[2.0]], dtype=D))
    assert result.values.tolist() == [[0.0]]
    assert (result.certificate.only.score, result.certificate.only.baseline_score) == (1.0, 0.0)


@pytest.mark.parametrize(
    "method", [IntegratedGradients(), DeepLift(), DeepLift("reveal-cancel")], ids=["ig", "rescale", "reveal-cancel"]
)
def test_saturation_is_seen_by_what_looks_at_the_baseline(method):
    values = method(lambda x: (1 - torch.relu(1 - x)).sum(1), torch.tensor([[2.0]], dtype=D)).values
    assert values.item() == pytest.approx(1, abs=1e-6)
