"""What Captum builds around a method takes our classes and gives the numbers that it gives with its own."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
import warnings

import numpy
import pytest
import torch
from torch import Tensor, nn

from integrand.compat import captum as compat

from .both import Net, quiet, reference, rows

CAPTUM_SPEAKS = pytest.mark.filterwarnings("ignore::UserWarning:captum", "ignore::FutureWarning", "ignore::DeprecationWarning")
pytestmark = CAPTUM_SPEAKS


def seeded(call, *args, **kwargs):
    torch.manual_seed(3)
    return quiet(call, *args, **kwargs)


def both(name, *args, **kwargs):
    """Ours and Captum's, constructed alike."""
    return tuple(quiet(getattr(library, name), *args, **kwargs) for library in (compat, reference))


# The noise tunnel


@pytest.mark.parametrize("nt_type", ["smoothgrad", "smoothgrad_sq", "vargrad"])
@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("tunnel", ["Captum's tunnel", "our tunnel"])
def test_noise_tunnels_around_our_classes(tunnel, nt_type, batch):
    net, x = Net(), rows()
    around = (reference if tunnel == "Captum's tunnel" else compat).NoiseTunnel
    options = {"nt_type": nt_type, "nt_samples": 5, "nt_samples_batch_size": batch, "stdevs": 0.3, "target": [0, 3, 1]}
    options |= {"return_convergence_delta": True, "baselines": rows(seed=5), "n_steps": 20}
    ours, theirs = both("IntegratedGradients", net)
    got, expected = (
        seeded(outer(inner).attribute, x, **options) for outer, inner in ((around, ours), (reference.NoiseTunnel, theirs))
    )
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_our_tunnel_around_captums_classes():
    net, x = Net(), (rows(), rows(3, 3, seed=9))
    for name in ("IntegratedGradients", "Saliency", "InputXGradient", "FeatureAblation"):
        inner = getattr(reference, name)(net)
        mine, theirs = (
            seeded(outer.NoiseTunnel(inner).attribute, x, nt_samples=3, stdevs=(0.1, 0.4), target=1)
            for outer in (compat, reference)
        )
        assert isinstance(mine, tuple)
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


def test_tunnels_repeat_what_belongs_to_an_example():
    net, x, y = Net(), rows(), rows(3, 3, seed=9)
    options = {
        "target": torch.tensor([2, 0, 1]),
        "additional_forward_args": (y, 0.5, rows(3, 1)),
        "nt_samples": 4,
        "stdevs": 0.2,
    }
    ours, theirs = both("IntegratedGradients", net)
    got = seeded(compat.NoiseTunnel(ours).attribute, x, **options)
    torch.testing.assert_close(got, seeded(reference.NoiseTunnel(theirs).attribute, x, **options), rtol=1e-4, atol=1e-5)
    masked = {"target": 1, "feature_mask": torch.tensor([[0, 0, 1, 1, 2, 2]]).repeat(3, 1), "nt_samples": 2}
    inner = reference.FeatureAblation(net)
    mine, other = (seeded(outer.NoiseTunnel(inner).attribute, x, **masked) for outer in (compat, reference))
    torch.testing.assert_close(mine, other)


def test_baselines_drawn_from_a_distribution():
    net, x = Net(), rows()
    ours, theirs = both("IntegratedGradients", net)
    found = []
    for outer, inner in ((compat, ours), (reference, theirs)):
        numpy.random.seed(4)
        found.append(
            seeded(outer.NoiseTunnel(inner).attribute, x, target=1, baselines=rows(7, seed=2), draw_baseline_from_distrib=True)
        )
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_tunnels_around_layers():
    net, x = Net(), rows()
    ours, theirs = both("LayerIntegratedGradients", net, net.first)
    for around in (compat.NoiseTunnel, reference.NoiseTunnel):
        got = seeded(around(ours).attribute, x, target=1, nt_samples=3)
        torch.testing.assert_close(
            got, seeded(reference.NoiseTunnel(theirs).attribute, x, target=1, nt_samples=3), rtol=1e-4, atol=1e-5
        )


def test_the_variance_of_values_that_hardly_vary_is_right():
    """The variance of n copies of 1000 + noise is that of the noise; squares in float32 would lose it."""
    x = torch.full((1, 4), 1000.0)
    tunnel = compat.NoiseTunnel(compat.InputXGradient(lambda x: x.sum(1)))
    found = seeded(tunnel.attribute, x, nt_type="vargrad", nt_samples=400, stdevs=0.05)
    torch.manual_seed(3)
    noise = (x.repeat(400, 1) + torch.normal(0, torch.tensor(0.05).repeat(400, 4))).double()
    torch.testing.assert_close(found.double(), noise.var(0, correction=0)[None], rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"nt_type": "smooth"}, "smoothgrad_sq"),
        ({"nt_samples": 0}, "nt_samples=0"),
        ({"nt_samples_batch_size": 0}, "nt_samples_batch_size=0"),
        ({"stdevs": (1.0, 1.0)}, "2 stdevs for 1 inputs"),
        ({"stdevs": -1.0}, "stdevs=-1.0"),
        ({"baselines": (0, 0)}, "2 baselines for 1 inputs"),
    ],
    ids=str,
)
def test_what_a_tunnel_refuses(options, match):
    with pytest.raises(AssertionError, match=match):
        compat.NoiseTunnel(compat.IntegratedGradients(Net())).attribute(rows(), target=1, **options)


def test_a_tunnel_says_what_its_method_says():
    net = Net()
    inner = compat.IntegratedGradients(net, multiply_by_inputs=False)
    for tunnel in (compat.NoiseTunnel(inner), reference.NoiseTunnel(inner)):
        assert tunnel.forward_func is net
        assert tunnel.has_convergence_delta() is True
        assert tunnel.multiplies_by_inputs is False
        assert tunnel.is_gradient_method is True


# Concepts, language models, metrics


def test_concepts(tmp_path):
    concept = pytest.importorskip("captum.concept")
    from torch.utils.data import DataLoader

    class Means(concept.Classifier):
        """Concepts are told apart by the difference of their means: Captum's own classifier is not the same twice."""

        def __init__(self):
            self.found = None

        def train_and_eval(self, dataloader, **_):
            batches = list(dataloader)
            values, labels = (torch.cat([batch[i] for batch in batches]) for i in range(2))
            step = values[labels == 1].mean(0) - values[labels == 0].mean(0)
            self.found = torch.stack([-step, step])
            return {}

        def weights(self):
            return self.found

        def classes(self):
            return [0, 1]

    net, x = Net(), rows(4)

    def scores(library, folder):
        shifted = [concept.Concept(i, str(i), DataLoader(rows(20, seed=i) + i, batch_size=5)) for i in range(2)]
        method = library.LayerIntegratedGradients(net, None, multiply_by_inputs=False)
        options = {"classifier": Means(), "layer_attr_method": method, "save_path": str(tmp_path / folder)}
        return concept.TCAV(net, ["first", "act"], **options).interpret(x, [shifted], target=1, n_steps=10)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = scores(compat, "ours"), scores(reference, "theirs")
    for layer in ("first", "act"):
        for kind in ("sign_count", "magnitude"):
            torch.testing.assert_close(ours["0-1"][layer][kind], theirs["0-1"][layer][kind], rtol=1e-4, atol=1e-5)


class Words:
    """A tokenizer with one token per word, with as much of Hugging Face's interface as Captum asks for."""

    words = ("<s>", "the", "cat", "sat", "on", "mat", "dog", "ran")

    def encode(self, text, *, return_tensors=None, add_special_tokens=True):
        ids = [0] * add_special_tokens + [self.words.index(word) for word in text.split()]
        return torch.tensor([ids]) if return_tensors else ids

    def decode(self, ids, **_):
        return " ".join(self.words[int(i)] for i in ids)

    def convert_ids_to_tokens(self, ids):
        return [self.words[int(i)] for i in ids]

    def convert_tokens_to_ids(self, token):
        return self.words.index(token) if isinstance(token, str) else [self.words.index(one) for one in token]

    def __call__(self, text, **_):
        ends = [0, *(sum(map(len, text.split()[: i + 1])) + i for i in range(len(text.split())))]
        spans = [(end - len(word), end) for word, end in zip(text.split(), ends[1:], strict=True)]
        return {"input_ids": self.encode(text, add_special_tokens=False), "offset_mapping": spans}


def test_language_models():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=8, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    model = transformers.GPT2LMHeadModel(config).eval()

    def answer(library):
        method = library.LayerIntegratedGradients(model, model.transformer.wte)
        explainer = quiet(reference.LLMGradientAttribution, method, Words())
        text = quiet(reference.TextTokenInput, "the cat sat", Words(), skip_tokens=[0])
        return quiet(explainer.attribute, text, target="on mat", n_steps=12)

    ours, theirs = answer(compat), answer(reference)
    assert ours.input_tokens == ["the", "cat", "sat"]
    assert ours.output_tokens == theirs.output_tokens
    torch.testing.assert_close(ours.seq_attr, theirs.seq_attr.detach(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(ours.token_attr, theirs.token_attr.detach(), rtol=1e-4, atol=1e-6)


def test_metrics():
    metrics = pytest.importorskip("captum.metrics")
    net, x = Net(), rows()
    ours, theirs = both("IntegratedGradients", net)
    got, expected = (seeded(metrics.sensitivity_max, one.attribute, x, target=[0, 3, 1], n_steps=20) for one in (ours, theirs))
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-5)

    def perturb(inputs):
        noise = 0.1 * torch.randn_like(inputs)
        return noise, inputs - noise

    values = [quiet(one.attribute, x, target=1, n_steps=20) for one in (ours, theirs)]
    got, expected = (seeded(metrics.infidelity, net, perturb, x, value, target=1) for value in values)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


# Instances of both libraries


PUBLIC = ("attribute", "attribute_future", "compute_convergence_delta", "get_name", "has_convergence_delta", "interpolate")


def made(library, name, net):
    """A method of a library, explaining the first layer where it explains layers."""
    cls = getattr(library, name)
    if name == "NoiseTunnel":
        return cls(library.IntegratedGradients(net))
    if name == "DataLoaderAttribution":
        return cls(library.FeatureAblation(net))
    theirs = getattr(reference, name)
    return (
        quiet(cls, net, net.first)
        if issubclass(theirs, (reference.LayerAttribution, reference.NeuronAttribution))
        else cls(net)
    )


@pytest.mark.parametrize("name", compat.__all__)
def test_classes_are_captums_too(name):
    net = Net()
    mine, theirs = (made(library, name, net) for library in (compat, reference))
    assert isinstance(mine, type(theirs))
    assert issubclass(type(mine), type(theirs))
    assert type(mine).__name__ == name
    assert mine.get_name() == theirs.get_name()
    assert mine.has_convergence_delta() == theirs.has_convergence_delta()
    assert mine.multiplies_by_inputs == theirs.multiplies_by_inputs
    assert callable(mine.attribute.__wrapped__)


@pytest.mark.parametrize("name", compat.__all__)
def test_everything_public_is_ours(name):
    """Where Captum is there, its classes are among the bases, but nothing that is asked of ours is answered by theirs."""
    mine, theirs = getattr(compat, name), getattr(reference, name)
    for attribute in (*PUBLIC, "multiplies_by_inputs"):
        if hasattr(theirs, attribute):
            home = next(cls for cls in mine.__mro__ if attribute in cls.__dict__)
            assert home.__module__.startswith("integrand"), attribute


@pytest.mark.parametrize("name", compat.__all__)
def test_signatures_are_captums(name):
    mine, theirs = getattr(compat, name), getattr(reference, name)
    for method in ("__init__", "attribute"):
        ours, other = (inspect.signature(getattr(cls, method)).parameters.values() for cls in (mine, theirs))
        assert [(p.name, p.default, p.kind) for p in ours] == [(p.name, p.default, p.kind) for p in other], method


def test_objects_made_before_captum_was_imported():
    code = """
import copy, pickle, sys, torch
from integrand.compat.captum import IntegratedGradients, LayerIntegratedGradients
net = torch.nn.Linear(3, 2)
ig, layered = IntegratedGradients(net), LayerIntegratedGradients(net, net)
assert "captum" not in sys.modules
import captum.attr
assert isinstance(layered, captum.attr.LayerIntegratedGradients)
assert isinstance(ig, captum.attr.GradientAttribution) and not isinstance(ig, captum.attr.LayerAttribution)
assert type(ig) is ig.__class__ is IntegratedGradients and issubclass(IntegratedGradients, captum.attr.IntegratedGradients)
captum.attr.NoiseTunnel(ig).attribute(torch.ones(2, 3), target=1)
assert type(pickle.loads(pickle.dumps(ig))) is type(copy.deepcopy(ig)) is IntegratedGradients
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_classes_loaded_after_captum_are_its_subclasses_at_once():
    code = """
import captum.attr
from integrand.compat.captum import LayerIntegratedGradients, Saliency
assert issubclass(LayerIntegratedGradients, captum.attr.LayerIntegratedGradients) and issubclass(Saliency, captum.attr.Saliency)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_a_users_own_subclass():
    class Mine(compat.IntegratedGradients):
        def attribute(self, inputs, **options):
            return super().attribute(inputs, n_steps=4, **options)

    x, net = rows(), Net()
    mine = Mine(net)
    assert isinstance(mine, reference.IntegratedGradients)
    assert mine.get_name() == "Mine"
    torch.testing.assert_close(
        quiet(mine.attribute, x, target=1), quiet(compat.IntegratedGradients(net).attribute, x, target=1, n_steps=4)
    )
    assert isinstance(seeded(reference.NoiseTunnel(mine).attribute, x, target=1), Tensor)


def test_copies_and_pickles():
    x, net = rows(), Net()
    layered = compat.LayerIntegratedGradients(net, net.first)
    for other in (copy.copy(layered), copy.deepcopy(layered), pickle.loads(pickle.dumps(layered))):
        assert type(other) is type(layered)
        torch.testing.assert_close(other.attribute(x, target=1), layered.attribute(x, target=1), rtol=0, atol=0)


def test_selectors_that_add_up_all_rows():
    net, x = Net(), rows()
    ours, theirs = both("NeuronIntegratedGradients", net, net.first)
    got, expected = (quiet(one.attribute, x, lambda y: y[:, 2:].sum(), n_steps=10) for one in (ours, theirs))
    torch.testing.assert_close(got, expected.detach(), rtol=1e-4, atol=1e-5)


def test_internal_influence_where_captums_own_test_expects_less():
    """From -20 to 80 the neurons, which are on above 10 and above -1, are on for 70% and 81% of the way; Captum expects 80%."""
    from captum.testing.helpers.basic_models import BasicModel_MultiLayer

    net, x, start = BasicModel_MultiLayer(), torch.tensor([[0.0, 80.0, 0.0]]), torch.tensor([[0.0, -20.0, 0.0]])
    influence = compat.InternalInfluence(net, net.linear1)
    for options in ({"n_steps": None}, {"n_steps": 500, "method": "riemann_trapezoid"}):
        values = quiet(influence.attribute, x, start, target=0, **options)
        torch.testing.assert_close(values, torch.tensor([[0.7, 0.81, 0.81, 0.81]]), rtol=0.01, atol=0)


def test_arguments_can_be_read_from_what_is_wrapped():
    for library in (compat, reference):
        wrapped = library.IntegratedGradients(Net()).attribute.__wrapped__
        assert inspect.getfullargspec(wrapped).args[:4] == ["self", "inputs", "baselines", "target"]


def test_futures_are_refused_as_captum_refuses_them():
    for library in (compat, reference):
        with pytest.raises(NotImplementedError, match="attribute_future is not implemented for IntegratedGradients"):
            library.IntegratedGradients(nn.Linear(2, 1)).attribute_future()


def test_the_gradient_function_is_captums():
    net, x, y = Net(), rows(), rows(3, 3, seed=9)
    ours, theirs = both("IntegratedGradients", net)
    got, expected = (
        one.gradient_func(net, (x.clone().requires_grad_(), y.clone().requires_grad_()), [0, 3, 1]) for one in (ours, theirs)
    )
    torch.testing.assert_close(got, expected)
