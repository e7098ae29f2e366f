"""Checks on a user's model: any inputs, nothing left behind, and words where there is nothing to try."""

import contextlib
import io
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from integrand.axioms import AXIOMS, check, network
from integrand.certificate import Promise, promised
from integrand.errors import InputError, OptionError, TrainModeError
from integrand.methods import DeepLift, Found, Gradient, GradientTimesInput, IntegratedGradients, Method, PathMethod

IG = IntegratedGradients(tol=0.001)


@dataclass(frozen=True)
class Shares(Method):
    """Everyone gets the same: complete, and nothing else."""

    name: ClassVar[str] = "equal shares"
    promises: ClassVar[tuple[Promise, ...]] = promised(sensitivity_b="everyone gets a share")

    def attribute(self, problem):
        score, base = problem.end_scores(problem.evaluator())
        change = torch.as_tensor(score - base)[:, None]
        return problem.dress(Found(change.expand(-1, problem.features) / problem.features, self.promises))


def seeded(module):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return module.eval()


def image_model():
    return seeded(nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 49, 5)))


def image():
    return torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))


class Two(nn.Module):
    """A model of two tensors and an argument of its own; it does not use the last column of the second."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(2, 4)

    def forward(self, a, b, scale):
        return ((self.first(a) + self.second(b[:, :2])).tanh() * scale).sum(1)


def two():
    generator = torch.Generator().manual_seed(2)
    return torch.randn(2, 3, generator=generator).double(), torch.randn(2, 3, generator=generator).double()


@pytest.mark.parametrize("axiom", AXIOMS)
def test_integrated_gradients_keep_their_promises_on_an_image_model(axiom):
    model = image_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    verdict = check(IG, axiom, model, image(), examples=1, moves=2)
    assert verdict.kept is (None if axiom == "sensitivity-b" else True)
    assert (verdict.tried > 0) is (axiom != "sensitivity-b")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(module.training for module in model.modules())


def test_the_same_model_written_otherwise_gets_the_same_integrated_gradients():
    model = image_model()
    conv, norm = model[0], model[1]
    norm.running_mean.fill_(0.2)
    norm.running_var.fill_(2.0)
    factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    folded = nn.Conv2d(3, 4, 3, stride=2)
    with torch.no_grad():
        folded.weight.copy_(conv.weight * factor[:, None, None, None])
        folded.bias.copy_((conv.bias - norm.running_mean) * factor + norm.bias)
    other = nn.Sequential(folded, *model[2:]).eval()
    assert check(IG, "implementation-invariance", model, image(), target=1, examples=1, equivalent=other).kept
    with torch.no_grad():
        folded.bias += 0.1
    with pytest.raises(InputError, match="the equivalent model differs from the model by"):
        check(IG, "implementation-invariance", model, image(), target=1, equivalent=other)


@pytest.mark.parametrize("axiom", AXIOMS)
def test_models_of_several_tensors_with_arguments_of_their_own(axiom):
    model, scale = seeded(Two()).double(), torch.tensor([[1.0], [3.0]]).double()
    verdict = check(IG, axiom, model, two(), args=(scale,))
    assert verdict.kept
    per_example = {"completeness": 1, "sensitivity-a": 8, "sensitivity-b": 1, "implementation-invariance": 2, "linearity": 1}
    assert verdict.tried == 2 * per_example.get(axiom, 4)


def test_a_dummy_is_found_and_the_note_says_how():
    model, scale = seeded(Two()).double(), torch.tensor([[1.0], [3.0]]).double()
    found = check(Shares(), "sensitivity-b", model, two(), args=(scale,))
    assert found.kept is False
    assert "does not depend on x[1][2], as far as 16 probes show" in found.counterexample.statement
    named = check(Shares(), "sensitivity-b", model, two(), args=(scale,), dummy=[5])
    assert "x[1][2], as you say" in named.counterexample.statement
    with pytest.raises(InputError, match=r"got dummy=\[5, 0\], and moving x\[0\]\[0\] moves the score by .* Leave 0 out"):
        check(Shares(), "sensitivity-b", model, two(), args=(scale,), dummy=[5, 0])
    kept = check(IG, "sensitivity-b", model, two(), args=(scale,))
    assert kept.note == "taken for dummies, as far as 16 probes show: x[1][2]"
    assert kept.note in kept.sentence


def test_deeplift_breaks_implementation_invariance_on_any_model_that_one_can_add_to():
    model = seeded(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))).double()
    x = torch.randn(1, 4, generator=torch.Generator().manual_seed(3)).double()
    verdict = check(DeepLift(), "implementation-invariance", model, x)
    assert verdict.kept is False
    # The paper's pair differs by (-1/2, 1/2) at (3, 1), times the change of the score.
    change = abs(float(model(x).detach() - model(torch.zeros_like(x)).detach()))
    assert verdict.counterexample.gap == pytest.approx(change, rel=1e-6)
    assert check(IG, "implementation-invariance", model, x).kept


def test_a_path_of_stairs_breaks_symmetry_on_a_model_of_ones_own():
    model = seeded(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))).double()
    x = torch.tensor([[1.0, 2.0, -1.5]]).double()
    verdict = check(PathMethod(tol=1e-4), "symmetry", model, x)
    assert verdict.kept is False
    assert check(IG, "symmetry", model, x).kept
    space = {"model": model, "x": x, "baseline": None}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(verdict.code, space)
    assert space["verdict"].counterexample.gap == pytest.approx(verdict.counterexample.gap)


def test_sensitivity_a_looks_at_features_that_arrive_and_that_are_missing():
    # At (2, 1) the gradient for x1 is 0, whether x2 is there or not; for x2 it never is.
    verdict = check(Gradient(), "sensitivity-a", network("1 - relu(1 - x1) + x2"), torch.tensor([[2.0, 1.0]]))
    assert verdict.tried == 4
    assert verdict.kept is False
    assert "only x[0] moves" in verdict.counterexample.statement
    assert "features=[0]" in verdict.code
    kept = check(Gradient(), "sensitivity-a", network("1 - relu(1 - x1) + x2"), torch.tensor([[2.0, 1.0]]), features=[1])
    assert kept.kept
    assert kept.tried == 2


def test_groups_count_as_features():
    model, x = image_model(), image()
    halves = (torch.arange(16) >= 8).long().expand(3, 16, 16)
    verdict = check(GradientTimesInput(), "sensitivity-a", model, x, groups=halves, examples=1, target=0)
    assert verdict.tried == 4  # either half arrives, or is missing
    labels = torch.full((3, 16, 16), -1)
    labels[0, 0, 0] = 0
    one = check(IG, "sensitivity-a", model, x, groups=labels, examples=1, target=0)
    assert one.tried == 2


def test_unbatched_models_are_taken_too():
    weight = torch.tensor([1.0, -2.0, 3.0]).double()
    verdict = check(IG, "completeness", lambda row: (weight * row).sum() ** 2, torch.ones(3).double(), batched=False)
    assert verdict.kept
    assert verdict.tried == 1


class Words(nn.Module):
    """Token ids to two classes."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 4), nn.Linear(4, 2)

    def forward(self, ids):
        return self.head(self.embedding(ids).sum(1).tanh())


@pytest.mark.parametrize("axiom", AXIOMS)
def test_an_embedding_stands_for_token_ids(axiom):
    model, ids = seeded(Words()).double(), torch.tensor([[1, 5, 2], [3, 3, 8]])
    verdict = check(IG, axiom, model, ids, layer="embedding", moves=2)
    assert verdict.kept is (None if axiom == "sensitivity-b" else True)


def test_linearity_takes_another_output_and_a_line():
    model = image_model()
    verdict = check(IG, "linearity", model, image(), examples=1)
    assert verdict.kept
    assert verdict.tried == 2


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"baseline": [torch.zeros(1, 2), torch.ones(1, 2)]}, InputError, "got 2 baselines"),
        ({"features": [2]}, OptionError, r"features=\[2\]; expected numbers from 0 to 1"),
        ({"dummy": [-1]}, OptionError, r"dummy=\[-1\]"),
        ({"groups": torch.zeros(2)}, InputError, "expected integers"),
    ],
)
def test_mistakes_are_refused_with_words(options, error, words):
    with pytest.raises(error, match=words):
        check(Gradient(), "completeness", network("x1 + x2"), torch.ones(1, 2), **options)


def test_train_mode_is_refused():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    with pytest.raises(TrainModeError):
        check(Gradient(), "completeness", model, torch.ones(1, 2))
