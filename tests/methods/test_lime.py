"""LIME against regressions done otherwise; what its errors claim against what is true; which axioms it breaks."""

from __future__ import annotations

import math
import pickle
import sys
from itertools import product

import captum.attr
import numpy as np
import pytest
import torch
from captum._utils.models.linear_model import SkLearnLinearRegression
from captum.attr._core.lime import get_exp_kernel_similarity_function
from sklearn.linear_model import Ridge
from torch import nn

from integrand.certificate import Status
from integrand.errors import ConvergenceWarning, InputError, MissingExtraError, OptionError, ZeroAttributionWarning
from integrand.methods import Lime
from integrand.superpixels import grid, slic


def network(features, seed=0):
    g = torch.Generator().manual_seed(seed)
    inner = 2 * torch.randn(features, 12, generator=g, dtype=torch.float64) / math.sqrt(features)
    outer = torch.randn(12, generator=g, dtype=torch.float64)
    return lambda x: torch.tanh(x.flatten(1) @ inner) @ outer


def points(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_regression(f, x, baseline, penalty, kernel="cosine"):
    """Slopes and R2 of scikit-learn's ridge over all ways to be on or off, for one example."""
    n = x.shape[1]
    masks = np.array(list(product([0.0, 1.0], repeat=n)))
    rows = torch.where(torch.as_tensor(masks).bool(), x, baseline)
    distance, width = (
        (1 - np.sqrt(masks.mean(1)), 0.25) if kernel == "cosine" else (np.sqrt((1 - masks).sum(1)), 0.75 * math.sqrt(n))
    )
    weights = np.sqrt(np.exp(-((distance / width) ** 2)))
    model = Ridge(alpha=penalty * weights.sum(), solver="cholesky").fit(masks, f(rows).numpy(), weights)
    return torch.as_tensor(model.coef_), model.score(masks, f(rows).numpy(), weights)


@pytest.mark.parametrize("kernel", ["cosine", "l2"])
@pytest.mark.parametrize("penalty", [0.0, 0.1])
def test_equals_scikit_learn_over_all_masks(kernel, penalty):
    f, x, b = network(6), points(2, 6), points(2, 6, seed=1)
    result = Lime(ridge=penalty, kernel=kernel)(f, x, b)
    for i in range(2):
        slopes, r2 = by_regression(f, x[i : i + 1], b[i : i + 1], penalty, kernel)
        torch.testing.assert_close(result.values[i], slopes)
        assert float(result.extras["fit"][i]) == pytest.approx(r2)
        assert result.certificate[i].note.startswith(f"straight-line fit: R2 {r2:.2f}, in ")
        assert result.certificate[i].status is Status.EXACT


def test_captum_agrees():
    # From ones to zeros, captum's distance between inputs is LIME's between masks.
    f, x = network(6), torch.ones(1, 6, dtype=torch.float64)
    peer = captum.attr.Lime(f, SkLearnLinearRegression(), get_exp_kernel_similarity_function("cosine", 0.25))
    torch.manual_seed(0)
    runs = torch.stack([peer.attribute(x, n_samples=300)[0].double() for _ in range(12)])
    own = Lime(ridge=0)(f, x).values[0]
    scatter = runs.std(0) / math.sqrt(len(runs))
    assert ((runs.mean(0) - own).abs() < 5 * scatter).all()
    assert float(scatter.sum() / own.abs().sum()) < 0.1  # or the line above says nothing


@pytest.mark.parametrize("features", [5, 20])
def test_recovers_what_is_additive(features):
    x, b = points(2, features), points(2, features, seed=1)
    weights = points(features, seed=2)
    result = Lime(ridge=0)(lambda x: (weights * x**3).sum(1) + 7, x, b)
    torch.testing.assert_close(result.values, weights * (x**3 - b**3))
    torch.testing.assert_close(result.extras["fit"], torch.ones(2, dtype=torch.float64))
    assert all(abs(one.residual) < 1e-9 and one.error < 1e-9 for one in result.certificate)


def test_standard_errors_are_honest():
    f, x = network(8), points(1, 8)
    population = Lime(samples=2**8)(f, x)
    assert population.certificate.only.status is Status.EXACT
    scores, ratios = [], []
    for seed in range(80):
        result = Lime(samples=255, seed=seed, tol=10.0)(f, x)
        off = result.values - population.values
        scores.append(off / result.extras["standard_error"])
        ratios.append(float(off.abs().sum() / population.values.abs().sum()) / result.certificate.only.error)
    inside = float((torch.stack(scores).abs() < 2).double().mean())
    assert 0.9 < inside < 0.99
    assert np.mean(ratios) < 1


def test_errors_fall_with_the_root_of_the_samples():
    f, x = network(20), points(1, 20)
    errors = []
    for samples in (500, 8000):
        with pytest.warns(ConvergenceWarning, match="raise samples"):
            result = Lime(samples=samples, tol=1e-6)(f, x)
        errors.append(result.certificate.only.error)
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.2)


def test_stops_at_the_tolerance():
    result = Lime(tol=0.1, samples=50_000)(network(20), points(2, 20))
    assert all(one.status is Status.CONVERGED and one.error <= 0.1 for one in result.certificate)
    assert all(one.forwards < 50_000 for one in result.certificate)


def test_a_feature_without_effect_may_get_some():
    def both(x):
        return x[:, 0] * x[:, 1]

    x = torch.ones(1, 3, dtype=torch.float64)
    values = Lime(ridge=0)(both, x).values[0]
    slopes, _ = by_regression(both, x, torch.zeros_like(x), 0.0)
    torch.testing.assert_close(values, slopes)
    assert abs(float(slopes[2])) > 1e-3
    assert "sensitivity-b" in Lime().promises[2].axiom
    assert not Lime().promises[2].kept


def test_one_feature_that_differs_gets_what_it_changes():
    f, x = network(20), points(1, 20)
    b = x.clone()
    b[0, 3] += 1
    values = Lime(ridge=0)(f, x, b).values[0]
    assert float(values[3]) == pytest.approx(float(f(x) - f(b)))
    assert float(values.abs().sum() - values[3].abs()) < 1e-9


def test_is_linear_in_the_score():
    f, g, x = network(16), network(16, seed=5), points(2, 16)
    method = Lime(samples=1000, tol=1e9)
    one, two = method(f, x).values, method(g, x).values
    torch.testing.assert_close(method(lambda x: 2 * f(x) - 3 * g(x), x).values, 2 * one - 3 * two)


def test_several_baselines_average():
    f, x = network(5), points(1, 5)
    starts = [points(1, 5, seed=i) for i in (1, 2)]
    mean = (Lime()(f, x, starts[0]).values + Lime()(f, x, starts[1]).values) / 2
    torch.testing.assert_close(Lime()(f, x, starts).values, mean)


def test_tokens_share_out_their_coefficient():
    x = points(2, 4, 3)
    weights = points(4, 3, seed=1)
    result = Lime(ridge=0)(lambda x: (weights * x).sum((1, 2)), x)
    per_token = (weights * x).sum(2)
    torch.testing.assert_close(result.values, (per_token / 3)[:, :, None].expand_as(x))
    torch.testing.assert_close(result.values.sum(2), per_token)


def test_superpixels_share_out_theirs():
    image = torch.zeros(1, 3, 12, 12, dtype=torch.float64)
    image[:, :, :, 6:] = 1.0
    image[:, 0, :6] += 0.5
    method = Lime(superpixels="grid", segments=4, ridge=0)
    result = method(lambda x: x.sum((1, 2, 3)), image)
    cells = image.reshape(3, 2, 6, 2, 6).sum((0, 2, 4))  # 2 x 2 cells of 6 x 6
    for i, j in product(range(2), repeat=2):
        cell = result.values[0, :, 6 * i : 6 * i + 6, 6 * j : 6 * j + 6]
        torch.testing.assert_close(cell, torch.full_like(cell, float(cells[i, j]) / 108))
    assert abs(result.certificate.only.residual) < 1e-9


def test_slic_follows_colours_and_each_image_has_its_own():
    images = torch.zeros(2, 3, 16, 16)
    images[0, :, :, 8:] = 1.0
    images[1, 0, 8:] = 1.0
    for image in images:
        labels = slic(image, 4)
        assert labels.min() == 0
        for label in labels.unique():
            assert len(image[:, labels == label].unique(dim=1).T) == 1  # one colour in a segment
    result = Lime(segments=4)(lambda x: x.square().sum((1, 2, 3)), images)
    for i in range(2):
        alone = Lime(segments=4)(lambda x: x.square().sum((1, 2, 3)), images[i : i + 1])
        torch.testing.assert_close(alone.values[0], result.values[i])
    even = slic(torch.ones(1, 8, 8), 4)  # one channel, one colour
    assert torch.equal(even.unique(), torch.arange(int(even.max()) + 1))


def test_the_grid_has_as_many_cells_as_asked():
    for shape, segments in (((3, 20, 20), 25), ((1, 10, 40), 16), ((1, 2, 2), 50), ((1, 7, 5), 1)):
        labels = grid(torch.zeros(shape), segments)
        assert labels.shape == shape[1:]
        assert len(labels.unique()) == int(labels.max()) + 1 == min(segments, shape[1] * shape[2])


def test_without_scikit_image_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "skimage.segmentation", None)
    with pytest.raises(MissingExtraError, match="superpixels='grid'"):
        Lime()(lambda x: x.sum((1, 2, 3)), torch.rand(1, 3, 8, 8))


def test_groups_are_the_features():
    f, x, b = network(5), points(2, 5), points(2, 5, seed=1)
    labels = torch.tensor([0, 0, -1, 3, 1])
    result = Lime(ridge=0)(f, x, b, groups=labels)
    assert result.values.shape == (2, 4)
    assert not result.values[:, 2].any()  # a label that nothing has
    for i in range(2):

        def of_three(z, i=i):
            on = torch.stack([z[:, 0], z[:, 0], torch.ones(len(z)), z[:, 2], z[:, 1]], 1) > 0.5
            return f(torch.where(on, x[i], b[i]))

        one = torch.ones(1, 3, dtype=torch.float64)
        slopes, _ = by_regression(of_three, one, torch.zeros_like(one), 0.0)
        torch.testing.assert_close(result.values[i, [0, 1, 3]], slopes)
    start = torch.where(labels < 0, x, b)
    assert result.certificate[0].baseline_score == pytest.approx(float(f(start)[0]))
    assert "-1" in result.certificate[0].note


def test_structures_layers_and_single_examples():
    f, x = network(6), points(2, 6)
    whole = Lime()(f, x)
    pair = Lime()(lambda a, b: f(torch.cat([a, b], 1)), (x[:, :2], x[:, 2:]))
    torch.testing.assert_close(torch.cat(pair.values, 1), whole.values)
    single = Lime()(lambda x: f(x[None])[0], x[0])
    torch.testing.assert_close(single.values, whole.values[0])
    assert single.extras["fit"].shape == ()

    torch.manual_seed(0)
    embed, out = nn.Embedding(9, 4), nn.Linear(4, 2)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = embed, out

        def forward(self, ids):
            return self.out(self.embed(ids).tanh().prod(1))

    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    layered = Lime()(Model(), ids, layer="embed", target=1)
    direct = Lime()(lambda v: out(v.tanh().prod(1)), embed(ids).detach(), target=1)
    torch.testing.assert_close(layered.values, direct.values)


def test_neither_chunk_nor_batch_matters():
    f, x = network(20), points(3, 20)
    method = Lime(tol=0.3)
    whole = method(f, x)
    torch.testing.assert_close(method(f, x, chunk=11).values, whole.values, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(method(f, x[1:2]).values[0], whole.values[1], rtol=1e-10, atol=1e-10)


def test_an_input_that_equals_its_baseline_gets_zero():
    f = network(20)
    with pytest.warns(ZeroAttributionWarning, match="the input equals the baseline"):
        result = Lime()(f, torch.zeros(1, 20, dtype=torch.float64))
    assert not result.values.any() or float(result.values.abs().max()) < 1e-12
    assert result.certificate.only.converged
    assert float(result.extras["fit"]) == 1


def test_refuses_what_makes_no_sense():
    for options in (
        {"features": "words"},
        {"kernel": "l1"},
        {"width": 0.0},
        {"ridge": -1.0},
        {"samples": 0},
        {"superpixels": 3},
    ):
        with pytest.raises(OptionError, match=r"got .*expected"):
            Lime(**options)
    with pytest.raises(OptionError, match="samples=100 for 60 features"):
        Lime(samples=100)(network(60), points(1, 60))
    with pytest.raises(OptionError, match="narrow"):
        Lime(width=1e-3)(network(20), points(1, 20))
    with pytest.raises(InputError, match="superpixels"):
        Lime(features="superpixels")(network(4), points(1, 4))


def test_is_a_frozen_value_that_leaves_torch_alone():
    method = Lime(tol=0.5)
    assert pickle.loads(pickle.dumps(method)) == method
    state = torch.get_rng_state()
    result = method(network(20), points(1, 20))
    assert torch.equal(torch.get_rng_state(), state)
    assert result.certificate.broken == ("completeness", "sensitivity-a", "sensitivity-b", "symmetry")


def test_nearby_points_give_the_slope_times_the_way_of_a_linear_model():
    weights = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    x, baseline = torch.tensor([[3.0, 1.0, -1.0]]).double(), torch.tensor([[1.0, 1.0, 1.0]]).double()
    result = Lime(sample="nearby", ridge=0)(lambda x: x @ weights + 2, x, baseline)
    torch.testing.assert_close(result.values, weights * (x - baseline))
    assert result.certificate.only.rule == "points near the input"


def test_nearby_points_give_the_mean_slope_of_a_kink():
    """Of relu(z) with z normal around its kink, least squares find a slope of one half (Stein: the mean derivative)."""
    result = Lime(sample="nearby", tol=0.02, samples=20000, ridge=0)(
        lambda x: torch.relu(x[:, 0] - 1) + 0 * x[:, 1], torch.tensor([[1.0, 1.0]])
    )
    error = result.extras["standard_error"][0, 0]
    assert abs(result.values[0, 0] - 0.5) < 4 * error
    assert abs(result.values[0, 1]) < 4 * result.extras["standard_error"][0, 1]


def test_nearby_points_see_nothing_where_the_score_is_flat():
    """The paper's example of saturation: LIME is not guaranteed to keep Sensitivity(a)."""
    near = Lime(sample="nearby")
    result = near(lambda x: 1 - torch.relu(1 - x[:, 0]), torch.tensor([[2.0]]))
    certificate = result.certificate.only
    assert certificate.score != certificate.baseline_score
    assert not result.values.any()
    assert "sensitivity-a" in result.certificate.broken
