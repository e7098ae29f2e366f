"""DeepLift, DeepLiftShap, GradientShap and LRP: Captum's numbers, and the right ones where it has others."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from integrand.certificate import Status
from integrand.compat import captum as compat
from integrand.errors import ConvergenceWarning
from integrand.methods import LRP, AlphaBeta, DeepLift, Gamma
from integrand.methods.lrp import PositiveWeights

from .pairs import asked, models, parameters, reference, same, seeded

lrp_rules = pytest.importorskip("captum.attr._utils.lrp_rules", reason="captum is not installed")

NAMES = ("DeepLift", "DeepLiftShap", "GradientShap", "LRP")


def rows(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def network(*activations):
    torch.manual_seed(1)
    layers = [nn.Linear(4, 6), activations[0], nn.Linear(6, 5), activations[-1], nn.Linear(5, 3)]
    return nn.Sequential(*layers).double()


class Images(nn.Module):
    """Convolutions, batch norm, pools, a linear layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.conv1, self.norm, self.relu1, self.pool1 = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)
        self.conv2, self.relu2, self.pool2, self.last = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Linear(16, 3)
        self.double()
        self(torch.randn(20, 1, 12, 12, dtype=torch.float64))
        self.eval()

    def forward(self, x):
        x = self.pool1(self.relu1(self.norm(self.conv1(x))))
        return self.last(self.pool2(self.relu2(self.conv2(x))).flatten(1))


# The interface


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ["__init__", "attribute"])
def test_signatures_are_those_of_captum(name, method):
    assert parameters(compat, name, method) == parameters(reference, name, method)


@pytest.mark.parametrize("name", NAMES)
def test_flags_are_those_of_captum(name):
    net = network(nn.ReLU())
    ours, theirs = (getattr(library, name)(net) for library in (compat, reference))
    assert ours.multiplies_by_inputs == theirs.multiplies_by_inputs
    assert ours.has_convergence_delta() == theirs.has_convergence_delta()
    assert ours.get_name() == theirs.get_name()
    assert isinstance(ours, getattr(reference, name))


# DeepLift


@pytest.mark.parametrize("kind", [nn.ReLU, nn.Sigmoid, nn.Tanh, nn.ELU, nn.LeakyReLU, nn.Softplus])
def test_deeplift(kind):
    net = network(kind(), kind())
    x = rows(3, 4)
    same("DeepLift", (net,), x, target=1)
    same("DeepLift", (net,), x, 0.3, [0, 2, 1], return_convergence_delta=True)
    same("DeepLift", (net, False), x, rows(3, 4, seed=5), 2)


def test_deeplift_on_images():
    net = Images()
    net.pool1 = nn.AvgPool2d(2)
    same("DeepLift", (net,), rows(2, 1, 12, 12), rows(2, 1, 12, 12, seed=1), 1)
    torch.manual_seed(0)
    pooled = nn.Sequential(nn.Conv2d(1, 3, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(75, 3)).double()
    same("DeepLift", (pooled,), rows(2, 1, 12, 12), rows(2, 1, 12, 12, seed=1), 1)
    model = models.BasicModel_MaxPool_ReLU().eval()
    same("DeepLift", (model,), rows(2, 1, 4, dtype=torch.float32))


def test_deeplift_of_several_inputs():
    inputs = tuple(rows(3, 3, seed=i, dtype=torch.float32) for i in range(2))
    further = (rows(3, 3, seed=2, dtype=torch.float32), 4)
    found = same("DeepLift", (models.BasicModel_MultiLayer_MultiInput(),), inputs, (0.1, inputs[0].clone()), 1, further)
    assert isinstance(found, tuple)
    same("DeepLift", (models.ReLULinearModel(),), inputs, return_convergence_delta=True, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_custom_attributions(count):
    net = network(nn.ReLU(), nn.ReLU())
    customs = {
        1: lambda slopes: tuple(2 * one for one in slopes),
        2: lambda slopes, inputs: tuple(a * b for a, b in zip(slopes, inputs, strict=True)),
        3: lambda slopes, inputs, starts: tuple(a * b + c for a, b, c in zip(slopes, inputs, starts, strict=True)),
    }
    options = {"target": 1, "custom_attribution_func": customs[count]}
    same("DeepLift", (net,), rows(3, 4), 0.2, **options)
    same("DeepLiftShap", (net,), rows(3, 4), rows(4, 4, seed=1), **options)


def test_deeplift_shap():
    net = network(nn.ReLU(), nn.ReLU())
    x, starts = rows(3, 4), rows(5, 4, seed=1)
    same("DeepLiftShap", (net,), x, starts, 1)
    _, delta = same("DeepLiftShap", (net,), x, starts, [0, 1, 2], return_convergence_delta=True)
    assert delta.shape == (15,)
    same("DeepLiftShap", (net, False), x, lambda: starts, 1)
    same("DeepLiftShap", (net,), x, lambda inputs: inputs.mean(0) + starts, 1)


def test_deeplift_shap_is_the_mean_of_deeplift():
    net, x, starts = network(nn.Tanh(), nn.ReLU()), rows(3, 4), rows(5, 4, seed=1)
    each = [compat.DeepLift(net).attribute(x, start[None], 1) for start in starts]
    torch.testing.assert_close(compat.DeepLiftShap(net).attribute(x, starts, 1), torch.stack(each).mean(0))


def test_multipliers_are_a_result_of_the_method_itself():
    x, start = torch.tensor([[2.0, 3.0]]), torch.tensor([[1.0, 0.0]])
    result = DeepLift(multipliers=True)(lambda x: x[:, 0] * x[:, 1], x, start)
    torch.testing.assert_close(result.values, torch.tensor([[1.5, 1.5]]))  # the mean of the other factor's two values
    assert abs(result.certificate[0].residual) < 1e-6


@pytest.mark.parametrize("name", ["DeepLift", "DeepLiftShap"])
def test_deeplift_certificates(name):
    net, x, starts = network(nn.ReLU(), nn.ReLU()), rows(3, 4), rows(3, 4, seed=1)
    found = getattr(compat, name)(net).attribute_with_certificate(x, starts, 1)
    assert torch.equal(found.values, getattr(compat, name)(net).attribute(x, starts, 1))
    assert all(one.status is Status.EXACT and abs(one.residual) < 1e-9 for one in found.certificate)


# Where Captum's DeepLift is not right


def test_functions_count_as_modules_do():
    """F(x) = relu(x0 - 1) from 0 to 2 rises by 1. Captum takes the plain gradient of a function, and gives 2."""

    class Written(nn.Module):
        def forward(self, x):
            return torch.relu(x[:, 0] - 1)

    x = torch.tensor([[2.0]])
    assert asked(reference, "DeepLift", (Written(),), ((x,), {})).item() == 2
    assert compat.DeepLift(Written()).attribute(x).item() == 1


def test_products_are_complete():
    """F(x) = x0 x1 from 0: Captum takes the gradient at x, and gives twice the change."""

    class Product(nn.Module):
        def forward(self, x):
            return x[:, 0] * x[:, 1]

    x = torch.tensor([[2.0, 3.0]])
    assert asked(reference, "DeepLift", (Product(),), ((x,), {})).sum().item() == 12
    assert compat.DeepLift(Product()).attribute(x).tolist() == [[3, 3]]


def test_rectifiers_beside_max_pools_are_complete():
    """The largest of two falls from 3 to 2. Captum says that the other one has raised the score by 1."""
    net = nn.Sequential(nn.ReLU(), nn.MaxPool1d(2), nn.Flatten())
    x, start = torch.tensor([[[2.0, 1.0]]]), torch.tensor([[[1.0, 3.0]]])
    assert asked(reference, "DeepLift", (net,), ((x, start, 0), {})).tolist() == [[[1, 0]]]
    assert compat.DeepLift(net).attribute(x, start, 0).tolist() == [[[0, -1]]]


def test_softmax_does_not_mix_examples():
    """Captum subtracts a mean over the whole batch, so that an example's attributions depend on the others in its batch."""
    net = nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)).double()
    x = rows(3, 4)
    theirs = [asked(reference, "DeepLift", (net,), ((part,), {"target": 1})) for part in (x, x[:1])]
    assert (theirs[0][:1] - theirs[1]).abs().max() > 1e-3
    ours = [compat.DeepLift(net).attribute(part, target=1) for part in (x, x[:1])]
    torch.testing.assert_close(ours[0][:1], ours[1])
    torch.testing.assert_close(ours[0].sum(1), (net(x) - net(torch.zeros_like(x))).detach()[:, 1])


def test_modules_may_run_more_than_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.relu = nn.ReLU()

        def forward(self, x):
            return self.relu(x[:, 0] - 1) + self.relu(x[:, 1] - 2)

    x = torch.tensor([[3.0, 3.0]])
    with pytest.raises(RuntimeError, match="used more"):
        asked(reference, "DeepLift", (Twice(),), ((x,), {}))
    torch.testing.assert_close(compat.DeepLift(Twice()).attribute(x), torch.tensor([[2.0, 1.0]]))


# GradientShap


@pytest.mark.parametrize("multiply", [True, False])
def test_gradient_shap_draws_as_captum_does(multiply):
    net, x, starts = network(nn.ReLU(), nn.Tanh()), rows(3, 4), rows(5, 4, seed=1)
    _, delta = same("GradientShap", (net, multiply), x, starts, 12, 0.1, [0, 2, 1], None, True, seed=7, rtol=1e-6)
    assert delta.shape == (36,)
    same("GradientShap", (net, multiply), x, lambda: starts, target=1, seed=8, rtol=1e-6)


def test_gradient_shap_of_several_inputs():
    inputs = tuple(rows(3, 3, seed=i, dtype=torch.float32) for i in range(2))
    starts = tuple(rows(4, 3, seed=i + 5, dtype=torch.float32) for i in range(2))
    further = (rows(3, 3, seed=2, dtype=torch.float32), 4)
    model = models.BasicModel_MultiLayer_MultiInput()
    same("GradientShap", (model,), inputs, starts, 6, (0.1, 0.2), 1, further, seed=3)


def mean_of_integrals(net, x, starts):
    explainer = compat.IntegratedGradients(net)
    return torch.stack([explainer.attribute(x, start[None], 1, n_steps=None) for start in starts]).mean(0)


def test_gradient_shap_says_how_well_its_mean_is_known():
    """The standard errors of a mean of n samples: the true mean is within three of them, for 99.7% of normal ones."""
    net, x, starts = network(nn.Tanh(), nn.Tanh()), rows(3, 4), rows(4, 4, seed=1)
    exact = torch.stack([compat.IntegratedGradients(net).attribute(x, start[None], 1, n_steps=None) for start in starts]).mean(
        0
    )
    seeded(0)
    with pytest.warns(ConvergenceWarning, match="raise n_samples"):
        found = compat.GradientShap(net).attribute_with_certificate(x, starts, 50, target=1, tol=1e-3)
    off = (found.values - exact).abs() / found.extras["standard_error"]
    assert off.max() < 4  # 12 numbers: one in 1300 is beyond 4 by chance
    assert off.mean() > 0.2


def test_gradient_shap_to_a_tolerance():
    net, x, starts = network(nn.Tanh(), nn.Tanh()), rows(3, 4), rows(4, 4, seed=1)
    found = compat.GradientShap(net).attribute_with_certificate(x, starts, None, target=1, tol=0.02)
    exact = torch.stack([compat.IntegratedGradients(net).attribute(x, start[None], 1, n_steps=None) for start in starts]).mean(
        0
    )
    assert all(one.converged for one in found.certificate)
    assert ((found.values - exact).abs().sum(1) / exact.abs().sum(1)).max() < 0.04


# LRP


def test_lrp():
    net = network(nn.ReLU(), nn.Tanh())
    same("LRP", (net,), rows(3, 4), 1, rtol=1e-5)
    _, delta = same("LRP", (net,), rows(3, 4), [0, 2, 1], return_convergence_delta=True, rtol=1e-5)
    assert delta.shape == (3,)
    same("LRP", (Images(),), rows(2, 1, 12, 12).abs(), 1, return_convergence_delta=True, rtol=1e-5)


RULES = {
    "gamma": lambda: lrp_rules.GammaRule(0.5),
    "gamma without bias": lambda: lrp_rules.GammaRule(set_bias_to_zero=True),
    "z+": lrp_rules.Alpha1_Beta0_Rule,
    "z+ without bias": lambda: lrp_rules.Alpha1_Beta0_Rule(set_bias_to_zero=True),
    "epsilon": lambda: lrp_rules.EpsilonRule(0.1),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("layer", ["conv1", "conv2", "last"])
def test_rules_of_layers(rule, layer):
    def answer(library):
        net = Images()
        getattr(net, layer).rule = RULES[rule]()
        return asked(library, "LRP", (net,), ((rows(2, 1, 12, 12), 1), {"return_convergence_delta": True}))

    torch.testing.assert_close(answer(compat), answer(reference), rtol=1e-5, atol=1e-8)


def test_the_identity_rule():
    def answer(library):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).double()
        net[0].rule = lrp_rules.IdentityRule()
        return asked(library, "LRP", (net,), ((rows(3, 4), 1), {}))

    torch.testing.assert_close(answer(compat), answer(reference), rtol=1e-6, atol=1e-9)
    net = network(nn.ReLU())
    net[0].rule = lrp_rules.IdentityRule()
    with pytest.raises(AssertionError, match="keeps the shape"):
        compat.LRP(net).attribute(rows(3, 4), 1)


def test_a_layer_named_linear_is_one_layer():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.linear, self.relu, self.linear2 = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)

        def forward(self, x):
            return self.linear2(self.relu(self.linear(x)))

    def answer(library):
        net = Named().double()
        net.linear.rule = lrp_rules.GammaRule(2.0)
        return asked(library, "LRP", (net,), ((rows(3, 4), 1), {}))

    torch.testing.assert_close(answer(compat), answer(reference), rtol=1e-6, atol=1e-9)


def test_outputs_with_dimensions_of_one_need_no_index_for_them():
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.MaxPool1d(2)).double()
    same("LRP", (net,), rows(1, 3, 2), 1)


def test_rules_stay_where_they_are_and_are_told(capsys):
    net = network(nn.ReLU())
    net[2].rule = lrp_rules.GammaRule()
    compat.LRP(net).attribute(rows(3, 4), 1, verbose=True)
    assert "PositiveWeights" in capsys.readouterr().out
    assert isinstance(net[2].rule, lrp_rules.GammaRule)


def test_wrong_rules_are_type_errors_as_in_captum():
    net = network(nn.ReLU())
    net[0].rule = "epsilon"
    for library in (compat, reference):
        with pytest.raises(TypeError):
            library.LRP(net)
    net = Images()
    net.norm.rule = lrp_rules.IdentityRule()
    with pytest.raises(TypeError, match="linear layers and convolutions alone"):
        compat.LRP(net)


def test_sums_share_out_what_they_get():
    """F(x) = x0 + x1 = 3: relevances 1 and 2. Captum lets both have all of it."""

    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
            self.a.weight, self.b.weight = nn.Parameter(torch.ones(1, 1)), nn.Parameter(torch.ones(1, 1))

        def forward(self, x):
            return self.a(x[:, :1]) + self.b(x[:, 1:])

    x = torch.tensor([[1.0, 2.0]])
    assert asked(reference, "LRP", (Sum(),), ((x, 0), {})).tolist() == [[3, 3]]
    torch.testing.assert_close(compat.LRP(Sum()).attribute(x, 0), x)


def test_rules_by_weights_and_by_contributions_agree_where_all_inputs_are_positive():
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 5, bias=False), nn.ReLU(), nn.Linear(5, 1, bias=False)).double(), rows(3, 4).abs()
    torch.testing.assert_close(LRP(rule=PositiveWeights(0, 1))(net, x).values, LRP(rule=AlphaBeta(1, 0))(net, x).values)
    positive = nn.Sequential(nn.Linear(4, 5, bias=False), nn.ReLU()).double()
    score = positive(x).sum(1)
    assert score.min() > 0
    ours, other = (LRP(rule=one)(lambda x: positive(x).sum(1), x).values for one in (PositiveWeights(1, 0.5), Gamma(0.5)))
    torch.testing.assert_close(ours, other)


def test_certificates_of_lrp():
    net, x = network(nn.ReLU()), rows(3, 4)
    found = compat.LRP(net).attribute_with_certificate(x, 1)
    assert torch.equal(found.values, compat.LRP(net).attribute(x, 1))
    assert all(one.status is Status.EXACT and math.isfinite(one.error) for one in found.certificate)


# What is refused


def test_messages():
    net, x = network(nn.ReLU()), rows(3, 4)
    with pytest.raises(AssertionError, match="with the same n for all, 2 or more"):
        compat.DeepLiftShap(net).attribute(x, torch.zeros(1, 4, dtype=torch.float64), 0)
    with pytest.raises(AssertionError, match="got baselines"):
        compat.GradientShap(net).attribute(x, 0.0, target=0)
    with pytest.raises(AssertionError, match="got n_samples=0"):
        compat.GradientShap(net).attribute(x, rows(2, 4), 0, target=0)
    with pytest.raises(AssertionError, match="got stdevs="):
        compat.GradientShap(net).attribute(x, rows(2, 4), stdevs=(0.1, 0.1), target=0)
    with pytest.raises(AssertionError, match="custom_attribution_func returned"):
        compat.DeepLift(net).attribute(x, target=0, custom_attribution_func=lambda slopes: slopes[0])
