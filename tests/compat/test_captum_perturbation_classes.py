"""FeatureAblation, Occlusion, ShapleyValueSampling, Lime and KernelShap: Captum's numbers for its seeds, and exact values."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from integrand.certificate import Status
from integrand.compat import captum as compat
from integrand.compat.captum.surrogate_classes import lasso, least_squares
from integrand.errors import ConvergenceWarning

from .pairs import models, parameters, quiet, reference, same, seeded

pytest.importorskip("sklearn", reason="captum's Lime and KernelShap need scikit-learn")

NAMES = ("FeatureAblation", "Occlusion", "ShapleyValueSampling", "Lime", "KernelShap")
BY_MASK = ("FeatureAblation", "ShapleyValueSampling", "Lime", "KernelShap")
SURROGATES = ("Lime", "KernelShap")
CLOSE = {"Lime": 2e-3, "KernelShap": 1e-4}
"""How closely Captum's fits, in float32, are solved."""

MASK = torch.tensor([[0, 1, 1]])
MASKS = torch.tensor([[0, 1, 1], [0, 0, 1], [1, 1, 0]])


def rows(*shape, seed=0, dtype=torch.float32):
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def model():
    return models.BasicModel_MultiLayer()


def both(name, build, *args, **kwargs):
    tolerance = {"rtol": CLOSE.get(name, 1e-5), "atol": CLOSE.get(name, 1e-5)}
    return same(name, build, *args, seed=5, **tolerance, **kwargs)


def exact_shapley(score, features):
    """Shapley values by their definition, the mean over all orders of what a feature changes."""
    values = np.zeros(features)
    for order in itertools.permutations(range(features)):
        on = np.zeros(features, bool)
        for feature in order:
            before = score(on)
            on[feature] = True
            values[feature] += score(on) - before
    return values / math.factorial(features)


# The interface


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ["__init__", "attribute"])
def test_signatures_are_those_of_captum(name, method):
    assert parameters(compat, name, method) == parameters(reference, name, method)


@pytest.mark.parametrize("name", NAMES)
def test_flags_are_those_of_captum(name):
    ours, theirs = (getattr(library, name)(model()) for library in (compat, reference))
    assert ours.multiplies_by_inputs == theirs.multiplies_by_inputs
    assert ours.has_convergence_delta() == theirs.has_convergence_delta()
    assert ours.get_name() == theirs.get_name()
    assert isinstance(ours, getattr(reference, name))


# Captum's numbers


@pytest.mark.parametrize("name", BY_MASK)
def test_targets_baselines_and_masks(name):
    x = rows(3, 3)
    both(name, (model(),), x, target=0)
    both(name, (model(),), x, 0.5, [0, 1, 0], perturbations_per_eval=2)
    both(name, (model(),), x, rows(3, 3, seed=1), torch.tensor([1, 0, 1]), feature_mask=MASK, perturbations_per_eval=3)
    both(name, (model(),), x, target=1, feature_mask=MASKS)
    if name not in SURROGATES:  # where Captum takes a mask without a dimension of examples for one with it
        both(name, (model(),), x, target=1, feature_mask=MASK[0])


@pytest.mark.parametrize("name", BY_MASK)
def test_several_inputs(name):
    inputs = tuple(rows(3, 3, seed=i) for i in range(3))
    build = (models.BasicModel_MultiLayer_MultiInput(),)
    found = both(name, build, inputs, (0.1, inputs[0] * 0.2, 0.0), 1, (4,), perturbations_per_eval=2)
    assert isinstance(found, tuple)
    both(name, build, inputs, None, 1, (4,), feature_mask=(MASK, MASK + 1, MASK * 0 + 3))
    both(name, build, inputs[:2], None, 1, (inputs[2].clone(), 4), feature_mask=(MASK, MASK + 1))


@pytest.mark.parametrize("name", BY_MASK)
def test_one_output_for_the_whole_batch(name):
    x, net = rows(3, 3), model()
    both(name, (lambda x: net(x)[:, 0].sum(),), x)
    both(name, (lambda x: net(x)[:, 0].sum().reshape(1),), x, feature_mask=MASK)
    both(name, (lambda x: float(net(x)[:, 0].sum()),), x)
    both(name, (lambda x: int(net(x)[:, 0].sum()),), x)


@pytest.mark.parametrize("name", BY_MASK)
def test_whole_numbers(name):
    net, ids = model(), torch.tensor([[1, 2, 3], [4, 0, 5]])
    both(name, (lambda x: net(x.float())[:, 1],), ids, 1)
    words = nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(9, 2))
    both(name, (words,), ids, 7, 1)


@pytest.mark.parametrize("name", ["FeatureAblation", "ShapleyValueSampling"])
def test_several_outputs(name):
    x, net = rows(3, 3), model()
    found = both(name, (net,), x)
    assert len(found) == (6 if name == "FeatureAblation" else 3)
    both(name, (lambda x: net(x).sum(0),), x)
    both(name, (lambda x: net(x)[:, None].expand(-1, 2, -1) * x[:, :2, None],), x, target=1)


def test_occlusion():
    x, images = rows(3, 3), rows(2, 1, 4, 4)
    conv = models.BasicModel_ConvNet_One_Conv().eval()
    both("Occlusion", (model(),), x, (2,), target=0)
    both("Occlusion", (conv,), images, (1, 2, 2), (1, 1, 2), 0.1, 0, perturbations_per_eval=3)
    both("Occlusion", (conv,), images, ((1, 3, 3),), ((1, 2, 2),), 0.1, 0)
    inputs = (rows(3, 3), rows(3, 3, seed=1))
    both(
        "Occlusion",
        (models.BasicModel_MultiLayer_MultiInput(),),
        inputs,
        ((2,), (1,)),
        (1, 1),
        None,
        1,
        (rows(3, 3, seed=2), 4),
    )
    net = model()
    both("Occlusion", (lambda x: net(x).sum(),), x, (2,))
    both("Occlusion", (net,), x, (2,))


@pytest.mark.parametrize("name", SURROGATES)
def test_coefficients(name):
    found = both(name, (model(),), rows(3, 3), target=1, n_samples=40, return_input_shape=False)
    assert found.shape == (3, 3)
    both(name, (model(),), rows(3, 3), target=1, n_samples=60, feature_mask=MASK + 2)


def test_lime_with_functions_of_the_users():
    from captum._utils.models.linear_model import SkLearnRidge
    from captum.attr._core.lime import get_exp_kernel_similarity_function

    def samples(inputs, **kwargs):
        for number in range(8):
            yield torch.tensor([[number & 1, number >> 1 & 1, number >> 2]])

    def coin(inputs, **kwargs):
        return (torch.rand(1, kwargs["num_interp_features"]) < 0.7).long()

    similarity = get_exp_kernel_similarity_function("euclidean", 5.0)
    for options in ((SkLearnRidge(alpha=0.1), similarity, samples), (None, similarity, coin)):
        both("Lime", (model(), *options), rows(2, 3), target=0, n_samples=8)


# Exact values


def test_ablation_by_its_definition():
    net, x = model(), rows(3, 3)
    found = compat.FeatureAblation(net).attribute(x, 0.5, 1)
    for i in range(3):
        without = x.clone()
        without[:, i] = 0.5
        torch.testing.assert_close(found[:, i], (net(x) - net(without))[:, 1].detach())


def test_occlusion_is_the_mean_over_windows():
    """A sum of three numbers, windows of two: the middle one is in both of them."""
    x = torch.tensor([[1.0, 10.0, 100.0]])
    found = compat.Occlusion(lambda x: x.sum(1)).attribute(x, (2,))
    torch.testing.assert_close(found, torch.tensor([[11.0, (11 + 110) / 2, 110.0]]))


@pytest.mark.parametrize("name", ["ShapleyValueSampling", "KernelShap"])
def test_shapley_values_are_exact_without_samples(name):
    net, x = model().double(), rows(3, 3, dtype=torch.float64)
    found = getattr(compat, name)(net).attribute_with_certificate(x, 0.5, 1, n_samples=None)
    for i in range(3):

        def score(on, row=x[i]):
            point = torch.where(torch.as_tensor(on), row, 0.5)
            return net(point[None])[0, 1].item()

        np.testing.assert_allclose(found.values[i].numpy(), exact_shapley(score, 3), rtol=1e-9, atol=1e-12)
    assert {one.status for one in found.certificate} == {Status.EXACT}


@pytest.mark.parametrize("name", ["ShapleyValueSampling", "KernelShap"])
def test_standard_errors_are_those_of_the_samples(name):
    """Over 40 seeds, squared errors over squared standard errors are 1 on average; 0.2 is the spread of such a mean."""
    net, x = model().double(), rows(1, 3, dtype=torch.float64)
    explainer = getattr(compat, name)(net)
    exact = explainer.attribute(x, target=1, n_samples=None)
    ratios = []
    for seed in range(40):
        seeded(seed)
        with pytest.warns(ConvergenceWarning, match="raise n_samples"):
            found = explainer.attribute_with_certificate(x, target=1, n_samples=30, tol=1e-6)
        ratios.append(((found.values - exact) / found.extras["standard_error"]).square())
    assert 0.4 < torch.cat(ratios).mean() < 2


def test_lime_tends_to_its_limit():
    net, x = model().double(), rows(2, 3, dtype=torch.float64)
    limit = compat.Lime(net).attribute_with_certificate(x, target=1, n_samples=None)
    assert {one.status for one in limit.certificate} == {Status.EXACT}
    seeded(0)
    many = compat.Lime(net).attribute_with_certificate(x, target=1, n_samples=3000)
    off = (many.values - limit.values).abs() / many.extras["standard_error"]
    assert off.max() < 5


def test_many_features_are_sampled_to_a_tolerance():
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(14, 8), nn.Tanh(), nn.Linear(8, 1)).double(), rows(2, 14, dtype=torch.float64) / 6
    for name, tol in (("ShapleyValueSampling", 0.05), ("Lime", 0.1), ("KernelShap", 0.05)):
        explainer = getattr(compat, name)(lambda x: net(x)[:, 0])
        found = explainer.attribute_with_certificate(x, n_samples=None)
        assert all(one.converged and one.error <= tol for one in found.certificate)
        seeded(1)
        assert torch.equal(explainer.attribute(x, n_samples=None), found.values)


def test_fits_against_scikit_learn():
    from sklearn.linear_model import Lasso, LinearRegression

    generator = np.random.default_rng(0)
    points = generator.integers(0, 2, (40, 6)).astype(float)
    scores, weights = points @ generator.normal(size=6) + generator.normal(size=40), generator.uniform(0.1, 2, 40)
    theirs = Lasso(alpha=0.01, tol=1e-12, max_iter=100_000).fit(points, scores, sample_weight=weights).coef_
    np.testing.assert_allclose(lasso(points, scores, weights), theirs, rtol=1e-7, atol=1e-9)
    theirs = LinearRegression().fit(points, scores, sample_weight=weights).coef_
    np.testing.assert_allclose(least_squares(points, scores, weights), theirs, rtol=1e-9)
    few = slice(0, 4)  # fewer points than coefficients: the smallest ones
    theirs = LinearRegression().fit(points[few], scores[few], sample_weight=weights[few]).coef_
    np.testing.assert_allclose(least_squares(points[few], scores[few], weights[few]), theirs, rtol=1e-7, atol=1e-9)


# Certificates


@pytest.mark.parametrize("name", NAMES)
def test_certificates_beside_the_values(name):
    net, x = model(), rows(3, 3)
    explainer = getattr(compat, name)(net)
    args = (x, (2,)) if name == "Occlusion" else (x,)
    seeded(3)
    found = quiet(explainer.attribute_with_certificate, *args, target=1)
    seeded(3)
    assert torch.equal(found.values, quiet(explainer.attribute, *args, target=1))
    assert [one.score for one in found.certificate] == pytest.approx(net(x)[:, 1].tolist(), rel=1e-6)
    exact = name in ("FeatureAblation", "Occlusion")
    assert all((one.status is Status.EXACT) == exact and one.error >= 0 for one in found.certificate)


def test_masks_of_their_own_have_certificates_of_their_own():
    found = compat.FeatureAblation(model()).attribute_with_certificate(rows(3, 3), target=1, feature_mask=MASKS)
    assert len(found.certificate) == 3


@pytest.mark.parametrize("name", NAMES)
def test_progress_is_shown_as_captum_shows_it(name, capsys):
    args = (rows(2, 3), (2,)) if name == "Occlusion" else (rows(2, 3),)
    explainer = getattr(compat, name)(model())
    quiet(explainer.attribute, *args, target=0)
    assert capsys.readouterr().err == ""
    quiet(explainer.attribute, *args, target=0, show_progress=True)
    assert f"{explainer.get_name()} attribution: 100%" in capsys.readouterr().err


def test_models_for_one_example_at_a_time():
    """A row may be that of the only example or that of the batch: it is the batch's where two examples give one row."""
    x = torch.tensor([[2.0, 3.0]])
    found = compat.FeatureAblation(lambda x: x.sum().reshape(1)).attribute(x)
    assert torch.equal(found, x)
    assert torch.equal(compat.FeatureAblation(lambda x: x.view(2).sum()[None]).attribute(x), x)


@pytest.mark.parametrize("name", BY_MASK)
def test_inputs_without_numbers_are_handed_on(name):
    def forward(x, empty):
        assert empty.shape == (len(x), 0)
        return x.sum(1) * (1 + empty.sum(1))

    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    samples = {} if name == "FeatureAblation" else {"n_samples": 200}
    values, nothing = quiet(getattr(compat, name)(forward).attribute, (x, torch.zeros(2, 0)), **samples)
    torch.testing.assert_close(values, x, rtol=0, atol=0.1)  # the Lasso takes its penalty
    assert nothing.shape == (2, 0)


def test_a_batch_with_one_output_may_have_inputs_of_any_length():
    """Sparse features, say: a list of ids that has nothing to do with the number of examples."""
    x, ids = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1, 7, 2])
    values, other = compat.FeatureAblation(lambda x, ids: x.sum() + len(ids.unique())).attribute((x, ids))
    assert values.tolist() == [[4, 6]]
    assert other.tolist() == [2]


def test_one_feature():
    x = torch.tensor([[2.0]])
    for name in BY_MASK[1:]:
        found = quiet(getattr(compat, name)(lambda x: 3 * x[:, 0]).attribute, x, n_samples=4)
        assert found.item() == pytest.approx(6, rel=0.02)  # the Lasso takes its penalty


# What is refused


@pytest.mark.parametrize("name", BY_MASK)
def test_messages(name):
    x, net = rows(3, 3), model()
    explainer = getattr(compat, name)(net)
    with pytest.raises(AssertionError, match="got perturbations_per_eval=0"):
        explainer.attribute(x, target=0, perturbations_per_eval=0)
    with pytest.raises(AssertionError, match="got feature_mask of shape"):
        explainer.attribute(x, target=0, feature_mask=torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(AssertionError, match="out of range"):
        explainer.attribute(x, target=9)
    with pytest.raises(AssertionError, match="one output for the whole batch"):
        getattr(compat, name)(lambda x: net(x).sum()).attribute(x, perturbations_per_eval=2)
    if name != "FeatureAblation":
        with pytest.raises(AssertionError, match="got n_samples=0"):
            explainer.attribute(x, target=0, n_samples=0)
    with pytest.raises(AssertionError, match="expected one number for a result with a certificate"):
        explainer.attribute_with_certificate(x)


def test_windows_that_do_not_fit():
    for window, strides in (((4,), None), ((2,), 3), (((2,), (2,)), None), ((2, 2), None)):
        with pytest.raises(AssertionError, match="sliding_window_shapes"):
            compat.Occlusion(model()).attribute(rows(3, 3), window, strides, target=0)
