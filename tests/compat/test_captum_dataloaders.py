"""DataLoaderAttribution: Captum's numbers over a data set, and as few passes through it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from integrand.compat import captum as compat
from integrand.errors import InputError, OptionError

from .pairs import parameters, quiet, reference

GENERATOR = torch.Generator().manual_seed(0)
DATA = TensorDataset(
    torch.randn(5, 2, generator=GENERATOR),
    torch.randn(5, 2, 2, generator=GENERATOR),
    torch.tensor([[0], [1], [0], [0], [1]]),
)
MASKS = (torch.tensor([[0, 0]]), torch.tensor([[[1, 2], [3, 2]]]), torch.tensor([[4]]))


class Loader(DataLoader):
    """Counts how often it is passed through."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        return super().__iter__()


class Net(nn.Module):
    def __init__(self, features=7):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(features, 2)

    def forward(self, *parts):
        return self.net(torch.cat([part.flatten(1).float() for part in parts], 1)).tanh()


def ask(library, model, inner=None, data=DATA, **options):
    inner = inner or library.FeatureAblation(model)
    return quiet(library.DataLoaderAttribution(inner).attribute, Loader(data, batch_size=2), **options)


def same(model, **options):
    ours, theirs = (ask(library, model, **options) for library in (compat, reference))
    assert type(ours) is type(theirs)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    return ours


def mean_and_sum(total):
    return torch.stack([total.mean(), total.sum()])


@pytest.mark.parametrize("method", ["__init__", "attribute"])
def test_signatures_are_those_of_captum(method):
    name = "DataLoaderAttribution"
    assert parameters(compat, name, method) == parameters(reference, name, method)


def test_it_is_captums_class_too():
    ours = compat.DataLoaderAttribution(compat.FeatureAblation(Net()))
    assert isinstance(ours, reference.DataLoaderAttribution)
    assert ours.get_name() == reference.DataLoaderAttribution(reference.FeatureAblation(Net())).get_name()


@pytest.mark.parametrize("several", [1, 3, 10])
def test_features_baselines_and_masks(several):
    options = {"perturbations_per_pass": several}
    found = same(lambda *parts: Net()(*parts)[:, 0], **options)
    assert [tuple(part.shape) for part in found] == [(5, 2), (5, 2, 2), (5, 1)]
    same(lambda *parts: Net()(*parts)[:, 1], feature_mask=MASKS, **options)
    same(lambda *parts: Net()(*parts)[:, 1], baselines=(torch.tensor([[0, -1]]), 1, 0.1), **options)
    assert same(lambda *parts: Net()(*parts)[:, 1], feature_mask=MASKS, return_input_shape=False, **options).shape == (5, 5)


def test_a_gap_in_a_mask_is_a_feature_without_a_loss():
    masks = (MASKS[0], MASKS[1], MASKS[2] + 2)
    found = ask(compat, lambda *parts: Net()(*parts)[:, 1], feature_mask=masks, return_input_shape=False)
    expected = ask(reference, lambda *parts: Net()(*parts)[:, 1], feature_mask=MASKS, return_input_shape=False)
    assert not found[:, 4:6].any()
    torch.testing.assert_close(found[:, [0, 1, 2, 3, 6]], expected)


def test_metrics_over_the_whole_data_set():
    same(Net(), to_metric=lambda total: mean_and_sum(total[:, 0]))
    same(Net(), to_metric=lambda total: total.mean())
    assert same(Net(), to_metric=lambda total: total.reshape(5, 1, 2)[:3], return_input_shape=False).shape == (6, 7)

    def accuracy(total, output, parts):
        right, count = total or (0, 0)
        return right + (output.argmax(1) == parts[2][:, 0]).sum(), count + len(output)

    roles = (0, 1, 2)
    options = {"input_roles": roles, "reduce": accuracy, "to_metric": lambda total: total[0] / total[1]}
    found = same(Net(6), **options)
    assert isinstance(found, tuple)
    assert len(found) == 1


@pytest.mark.parametrize("roles", [[0, 0, 0], [0, 1, 0], [0, 1, 1], [0, 1, 2], [0, 2, 2]])
def test_roles(roles):
    width = sum(size for size, role in zip((2, 4, 1), roles, strict=True) if role != 2)
    found = same(lambda *parts: Net(width)(*parts)[:, 0], input_roles=roles)
    assert len(found) == roles.count(0)


def test_batches_of_one_tensor():
    [x] = DATA.tensors[:1]
    net = Net(2)
    ours, theirs = (ask(library, lambda part: net(part)[:, 0], data=TensorDataset(x)) for library in (compat, reference))
    assert type(ours) is type(theirs) is tuple
    torch.testing.assert_close(ours, theirs)
    # Captum takes the rows of a batch that is a tensor for parts of it, and fails.
    torch.testing.assert_close(ask(compat, lambda part: net(part)[:, 0], data=x), ours[0])


def test_captums_ablation_in_ours():
    inner = reference.FeatureAblation(Net())
    torch.testing.assert_close(
        ask(compat, None, inner, return_input_shape=False), ask(reference, Net(), return_input_shape=False)
    )


@pytest.mark.parametrize("several", [1, 2, 3, 4])
def test_no_pass_through_the_data_is_wasted(several):
    loader = Loader(DATA, batch_size=2)
    compat.DataLoaderAttribution(compat.FeatureAblation(Net())).attribute(loader, perturbations_per_pass=several)
    assert loader.passes == math.ceil(7 / several) + 2  # the first batch, and once without an ablation


def test_what_makes_no_sense_is_refused():
    for inner in (compat.Occlusion(Net()), compat.IntegratedGradients(Net()), reference.Occlusion(Net()), Net()):
        with pytest.raises(AssertionError, match="expected FeatureAblation"):
            compat.DataLoaderAttribution(inner)
    for options, kind, message in (
        ({"input_roles": (0, 1)}, OptionError, "batches of 3 parts"),
        ({"input_roles": (1, 1, 2)}, OptionError, "at least one 0"),
        ({"baselines": (0, 1)}, InputError, "2 baselines for 3 explained parts"),
        ({"baselines": (torch.zeros(2, 2), 0, 0)}, InputError, r"baselines\[0\] has shape \(2, 2\); expected one row"),
        ({"feature_mask": tuple(part[:2].long() * 0 for part in DATA.tensors)}, InputError, r"feature_mask\[0\]"),
        ({"perturbations_per_pass": 0}, OptionError, "perturbations_per_pass=0"),
        ({"to_metric": float}, OptionError, "expected a tensor from to_metric"),
    ):
        options = {"reduce": lambda total, output, _: (total or 0) + output.sum(), **options}
        with pytest.raises(AssertionError, match=message) as caught:
            ask(compat, Net(), **options)
        assert isinstance(caught.value, kind)
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    with pytest.raises(Exception, match=r"train mode.*eval"):
        ask(compat, net, data=DATA.tensors[0])
