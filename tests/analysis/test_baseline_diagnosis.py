"""The diagnosis on models where the right answer is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from integrand.apps import networks
from integrand.baselines import black, blurred, diagnose, gaussian, mean, uniform, white
from integrand.baselines.class_signal import OWN_SIGNAL, certainty, own_signal
from integrand.errors import InputError, MemoryBackoffWarning, MemoryLimitError, NonFiniteError, OptionError
from tests.undisturbed import unchanged

SIDE = 8
LEFT = torch.cat([torch.ones(SIDE, SIDE // 2), -torch.ones(SIDE, SIDE // 2)], 1)
"""Weights that add up to zero: every plain image looks like nothing."""


def logits(first: Tensor, classes: int) -> Tensor:
    """A score for the first class and zero for the others."""
    return torch.stack([first, *[torch.zeros_like(first)] * (classes - 1)], 1)


def contrast(classes: int, scale: float = 12.0) -> Callable[[Tensor], Tensor]:
    """Sees its first class where the left is brighter than the right."""
    return lambda x: logits(scale * (x * LEFT).mean((1, 2, 3)), classes)


def darkness(x: Tensor) -> Tensor:
    """Sees its first of ten classes in the dark; white is nothing to it."""
    return logits(8 * (1 - x.mean((1, 2, 3))), 10)


def split() -> Tensor:
    """Bright on the left, dark on the right, and no two pixels alike."""
    shade = torch.linspace(0, 0.1, SIDE * SIDE).reshape(1, 1, SIDE, SIDE)
    return (LEFT > 0) * 0.85 + shade


def softmax_of_one(logit: float, classes: int) -> float:
    return math.exp(logit) / (math.exp(logit) + classes - 1)


@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("score", ["probability", "log-probability", "logit"])
def test_a_neutral_black_is_taken(classes: int, score: str) -> None:
    found = diagnose(contrast(classes), split(), ["black", "white"], score=score, target=0)  # type: ignore[arg-type]
    assert found.recommended == "black"
    assert found.neutral == ("black", "white")
    assert found.chance == 1 / classes
    row = found["black"]
    assert row.probability == pytest.approx(1 / classes)
    assert row.confidence == pytest.approx(1 / classes)
    assert row.entropy == pytest.approx(1)
    assert (row.head_start, row.signal) == (pytest.approx(0, abs=1e-6), pytest.approx(0, abs=1e-6))
    assert found.probability == pytest.approx(softmax_of_one(12 * float((split() * LEFT).mean()), classes), rel=1e-5)
    assert found.advice.startswith("Take black: ")


def test_a_black_that_has_the_class_is_not_taken() -> None:
    x = torch.full((1, 1, SIDE, SIDE), 0.1)
    found = diagnose(darkness, x, ["black", "white"])
    assert found.recommended == "white"
    assert found["black"].probability == pytest.approx(softmax_of_one(8.0, 10), rel=1e-5)
    here = softmax_of_one(7.2, 10)
    assert found["black"].head_start == pytest.approx((softmax_of_one(8.0, 10) - 0.1) / (here - 0.1), rel=1e-5)
    assert found["black"].verdict == "score is high, own signal"
    assert "Not neutral: black (the explained probability there is 1)." in found.advice
    assert "the only one of 2 candidates" in found.advice


def test_a_baseline_that_shows_another_class_is_not_taken() -> None:
    def model(x: Tensor) -> Tensor:
        out = contrast(10)(x)
        return torch.cat([out[:, :3], 60 * torch.relu(x.mean((1, 2, 3)) - 0.8)[:, None], out[:, 4:]], 1)

    found = diagnose(model, split(), ["white", "black"], classes="abcdefghij")
    assert found.recommended == "black"
    row = found["white"]
    assert row.near_zero
    assert row.verdict == "near zero, own signal"
    assert (row.top, row.confidence) == (3, pytest.approx(softmax_of_one(12, 10), rel=1e-4))
    assert "white (the model sees d in it, with probability 1, and is 106% as sure of its answer as at x)" in found.advice


def by_shade(*answers: dict[int, float], classes: int = 1000) -> Callable[[Tensor], Tensor]:
    """The first answer at black, the second at a half, the third at white: probabilities by class, the rest spread over all."""
    rows = torch.zeros(len(answers), classes)
    for row, answer in zip(rows, answers, strict=True):
        row += (1 - sum(answer.values())) / (classes - len(answer))
        for index, value in answer.items():
            row[index] = value

    def model(x: Tensor) -> Tensor:
        shade = 2 * x.mean((1, 2, 3))[:, None]
        near = [torch.relu(1 - (shade - place).abs()) for place in range(len(answers))]
        return sum(one * row.log() for one, row in zip(near, rows, strict=True))

    return model


def test_the_top_class_alone_is_no_signal() -> None:
    """A black that is a spotlight with .51, the rest spread, is neutral; a cat of four breeds, .44 at most, is not."""
    breeds = {1: 0.44, 2: 0.3, 3: 0.2, 4: 0.05}
    x = torch.full((1, 1, SIDE, SIDE), 0.5)
    found = diagnose(by_shade({5: 0.51}, {0: 0.93}, breeds), x, {"cat": 1.0, "black": 0.0})
    assert found.recommended == "black"
    assert found["cat"].verdict == "near zero, own signal"
    assert found["cat"].confidence < found["black"].confidence
    expected = (0.51 - 0.49 / 999) / (0.93 - 0.07 / 999)  # one class stands out in both
    assert found["black"].signal == pytest.approx(expected, rel=1e-4)
    assert "(its top class, class 5, has 0.51)" in found.advice


def test_a_signal_is_judged_by_what_the_model_says_of_x() -> None:
    """The same black image says little beside a sure answer, and as much as x beside an unsure one."""
    x = torch.full((1, 1, SIDE, SIDE), 0.5)
    for sure, verdict in ((0.95, "neutral"), (0.6, "near zero, own signal")):
        found = diagnose(by_shade({5: 0.5}, {0: sure}, {}), x, ["black"])
        assert found["black"].verdict == verdict


@pytest.fixture(scope="module")
def googlenet(data: Callable[[str], Path]) -> networks.Network:
    pytest.importorskip("skimage")
    return networks.load("googlenet", weights=data("googlenet/bvlc_googlenet_imagenet_f16.npz"))


@pytest.mark.slow
def test_googlenet_takes_black_and_no_cat_for_the_baseline_of_coffee(googlenet: networks.Network) -> None:
    """The cat's top class has .44 and that of black .51: the first is a cat of several breeds, the second a guess."""
    import skimage.data

    x, cat = (googlenet.preprocess(getattr(skimage.data, name)()) for name in ("coffee", "chelsea"))
    candidates = {"cat": cat, "black": black(x, googlenet.preprocess.low)}
    found = diagnose(googlenet.module, x, candidates, tol=1.0, max_evaluations=17)
    assert found.recommended == "black"
    assert found["black"].confidence == pytest.approx(0.51, abs=0.01)
    assert found["cat"].confidence == pytest.approx(0.44, abs=0.01)
    assert [row.verdict for row in found.rows] == ["near zero, own signal", "neutral"]
    assert [row.signal for row in found.rows] == pytest.approx([0.91, 0.67], abs=0.01)


@pytest.mark.slow
def test_googlenet_is_sure_of_photos_and_not_of_plain_images(googlenet: networks.Network) -> None:
    import skimage.data

    coffee, cat = (googlenet.preprocess(getattr(skimage.data, name)()) for name in ("coffee", "chelsea"))
    low, high = googlenet.preprocess.low, googlenet.preprocess.high
    spread = (white(coffee, high) - black(coffee, low)) / 4
    noise = [uniform(coffee, low, high, draws=2), gaussian(coffee, spread, around=black(coffee, low) + 2 * spread, draws=2)]
    shades = [black(coffee, low), white(coffee, high), mean(coffee), mean(cat), blurred(coffee), blurred(cat)]
    rows = torch.cat([coffee, cat, *shades, *[one.flatten(0, 1) for one in noise]])
    with torch.no_grad():
        chances = googlenet.module(rows).double().softmax(1)
    entropies = -(chances * chances.log()).sum(1) / math.log(1000)
    first, second, *others = (certainty(float(entropy), 1000) for entropy in entropies)
    for x, photo in ((first, second), (second, first)):
        assert own_signal(photo, x) > 0.9
        assert all(own_signal(one, x) < OWN_SIGNAL for one in others)
        assert all(own_signal(one, x) < 0.62 for one in others[1:])


def test_where_none_is_neutral_the_closest_is_named_and_said_to_be_none() -> None:
    def model(x: Tensor) -> Tensor:
        return logits(2 + 3 * x.mean((1, 2, 3)), 10)

    found = diagnose(model, torch.full((1, 1, SIDE, SIDE), 0.5), {"white": "white", "dark": 0.1, "black": "black"})
    assert found.neutral == ()
    assert found.recommended == "black"
    base = softmax_of_one(2.0, 10)
    assert f"black: the explained probability there is {base:.2g}" in found.advice
    assert found.advice.startswith("No candidate is neutral: ")
    assert "black comes closest" in found.advice.lower()
    assert "Try mean, blurred, uniform, gaussian, an average such as [black(x), white(x)], or draws of" in found.advice


def test_an_answer_that_does_not_depend_on_the_baseline() -> None:
    """From plain images to a plain image every pixel is credited by its weight alone."""
    torch.manual_seed(0)
    weights = torch.randn(1, SIDE, SIDE)
    weights -= weights.mean()
    x = torch.full((1, 1, SIDE, SIDE), 0.5) + 0.05 * weights.sign()
    found = diagnose(lambda v: logits(40 * (v * weights).mean((1, 2, 3)), 10), x, {"black": 0.0, "grey": -3.0})
    assert found.agreements[0, 1] > 0.95
    assert found["black"].agreement == pytest.approx(found.agreements[0, 1])
    assert "does not depend on the choice" in found.advice


def test_an_answer_that_depends_on_the_baseline() -> None:
    """From black only what is bright is credited, from white only what is dark."""
    found = diagnose(contrast(10), split(), ["black", "white"])
    values = {row.name: row.attribution.values[0, 0] for row in found.rows}
    assert float(values["black"][:, : SIDE // 2].sum() / values["black"].sum()) > 0.9
    assert float(values["white"][:, SIDE // 2 :].sum() / values["white"].sum()) > 0.9
    assert found.agreements[0, 1] < 0
    assert "The answer depends on the choice: black and white rank" in found.advice
    assert "average the neutral ones (black and white)" in found.advice


def test_a_single_output_and_a_regression() -> None:
    x = split()
    found = diagnose(lambda v: contrast(2)(v)[:, 0], x, ["black"])
    assert found.chance == 0.5
    assert found["black"].probability == pytest.approx(0.5)
    assert found.recommended == "black"
    negative = diagnose(lambda v: -contrast(2)(v)[:, 0], x, ["black"])  # x belongs to the other class: that is explained
    assert negative.probability == pytest.approx(found.probability)

    def price(v: Tensor) -> Tensor:
        return 5 + v.mean((1, 2, 3))

    regression = diagnose(price, x, ["black"], score="logit")
    row = regression["black"]
    assert math.isnan(regression.chance)
    assert math.isnan(row.probability)
    assert row.top is None
    assert row.head_start == pytest.approx(5 / float(price(x)), rel=1e-5)
    assert not row.neutral
    assert regression.advice.startswith("No candidate is neutral: black: the score there is 5")


def test_probabilities_are_not_softmaxed_twice() -> None:
    found = diagnose(lambda v: contrast(10)(v).softmax(1), split(), ["black"], score="logit")
    assert found.probability == pytest.approx(found.score)
    assert found["black"].probability == pytest.approx(0.1)


def test_a_target_function_is_taken_as_it_is() -> None:
    found = diagnose(contrast(10), split(), ["black"], target=lambda out: out[:, 0] - out[:, 1])
    assert found.score == pytest.approx(12 * float((split() * LEFT).mean()), rel=1e-5)
    assert math.isnan(found["black"].probability)
    assert found["black"].confidence == pytest.approx(0.1)  # what it sees is known all the same
    assert found["black"].neutral


def test_classes_at_a_position_and_in_maps() -> None:
    positions = diagnose(lambda v: torch.stack([contrast(4)(v)] * 3, 1), split(), ["black"], target=(2, 0))
    maps = diagnose(lambda v: contrast(4)(v)[:, :, None, None].expand(-1, -1, 3, 5), split(), ["black"], target=(0, 1, 2))
    for found in (positions, maps):
        assert found.chance == 0.25
        assert found.probability == pytest.approx(found.score, rel=1e-5)


def test_draws_are_made_once_and_average() -> None:
    made = []

    def draw() -> Tensor:
        made.append(torch.rand(1, 1, SIDE, SIDE))
        return made[-1]

    found = diagnose(contrast(10), split(), {"drawn": draw, "stack": uniform(split(), draws=3)}, draws=4)
    assert len(made) == found["drawn"].draws == 4
    assert found["stack"].draws == 3
    expected = torch.cat([contrast(10)(one).softmax(1)[:, 0] for one in made]).mean()
    assert found["drawn"].probability == pytest.approx(float(expected), rel=1e-5)
    assert found["drawn"].score == pytest.approx(float(expected), rel=1e-5)
    assert torch.equal(found["drawn"].baseline, made[0])


def test_the_usual_candidates_know_black_and_white() -> None:
    low, high = (-2.0, -1.0, 0.0), (1.0, 2.0, 4.0)
    x = torch.rand(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    found = diagnose(lambda v: logits(12 * (v * LEFT).mean((1, 2, 3)), 10), x, low=low, high=high, draws=2)
    assert [row.name for row in found.rows] == ["black", "white", "mean", "blurred", "uniform", "gaussian"]
    assert torch.equal(found["black"].baseline, black(x, low))
    assert torch.equal(found["white"].baseline, white(x, high))
    for name in ("uniform", "gaussian"):
        for c in range(3):
            assert low[c] <= float(found[name].baseline[0, c].min()) <= float(found[name].baseline[0, c].max()) <= high[c]
    assert all(row.certificate.converged for row in found.rows)
    assert found.agreements.shape == (6, 6)


def test_one_image_without_a_batch_dimension() -> None:
    alone = diagnose(lambda v: contrast(10)(v[None])[0], split()[0], ["black", "uniform"], batched=False, draws=2)
    batch = diagnose(contrast(10), split(), ["black", "uniform"], draws=2)
    for a, b in zip(alone.rows, batch.rows, strict=True):
        assert a.probability == pytest.approx(b.probability, rel=1e-5)
        torch.testing.assert_close(a.attribution.values, b.attribution.values[0])
    np.testing.assert_allclose(alone.agreements, batch.agreements, atol=0.05)


def test_inputs_that_are_no_images() -> None:
    def model(a: Tensor, b: Tensor) -> Tensor:
        return logits(a.sum(1) - b.sum(1), 3)

    x = (torch.tensor([[2.0, 1.0, 0.5]]), torch.tensor([[-1.0, 0.25]]))
    found = diagnose(model, x, draws=2)
    assert [row.name for row in found.rows] == ["zero", "uniform", "gaussian"]
    assert found.recommended == "zero"
    assert found["zero"].probability == pytest.approx(1 / 3)


def test_token_ids_are_explained_at_their_embedding() -> None:
    torch.manual_seed(0)

    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(5, 4)
            self.head = nn.Linear(4, 3)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.embedding(ids).tanh().sum(1))  # type: ignore[no-any-return]

    ids = torch.tensor([[1, 2, 3]])
    found = diagnose(Text().eval(), ids, {"zero": 0.0, "padding": torch.zeros_like(ids)}, layer="embedding")
    assert [row.draws for row in found.rows] == [1, 1]
    assert found["zero"].attribution.values.shape == (1, 3, 4)


def test_a_candidate_that_equals_x_explains_nothing() -> None:
    found = diagnose(contrast(10), split(), {"itself": split(), "black": "black"})
    assert found["itself"].verdict == "explains nothing"
    assert found.recommended == "black"
    assert math.isnan(found.agreements[0, 1])
    alone = diagnose(contrast(10), split(), {"itself": split()})
    assert "every attribution is zero" in alone.advice


def test_a_candidate_that_cannot_be_used_stops_no_other() -> None:
    def model(x: Tensor) -> Tensor:
        return logits((x / x.square().mean((1, 2, 3), keepdim=True)).mean((1, 2, 3)), 4)  # 0 / 0 at black

    x = torch.full((1, 1, SIDE, SIDE), 2.0)
    found = diagnose(model, x, {"black": 0.0, "grey": 0.5})
    assert list(found.failures) == ["black"]
    assert found.recommended == "grey"
    assert "black could not be used" in str(found)
    with pytest.raises(NonFiniteError):
        diagnose(model, x, ["black"])


def test_a_missed_tolerance_is_said() -> None:
    def model(x: Tensor) -> Tensor:
        return logits(3 * (40 * x * LEFT).sin().sum((1, 2, 3)), 4)

    found = diagnose(model, split(), ["black"], max_evaluations=17)
    assert not found["black"].certificate.converged
    assert "The tolerance was not met from black" in found.advice


def test_the_model_comes_back_as_it_was() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 3)).eval()
    diagnose(model, split(), ["black"])
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    ("x", "candidates", "kind", "words"),
    [
        (split().expand(3, -1, -1, -1), None, InputError, r"got 3 examples; expected one.*x\[i : i \+ 1\]"),
        (split(), ["grey"], OptionError, "got the candidate 'grey'; expected one of zero, black"),
        (split(), [], OptionError, "no candidates"),
        (split(), {"small": torch.zeros(1, 1, 2, 2)}, InputError, r"shape \(1, 1, 2, 2\)"),
    ],
)
def test_what_makes_no_sense_is_refused(x: Tensor, candidates: object, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        diagnose(contrast(10), x, candidates)  # type: ignore[arg-type]


class Counting(nn.Module):
    """Counts its calls in a buffer, draws a number that it does not use, and has room for so many rows."""

    def __init__(self, room: int = 1000) -> None:
        super().__init__()
        self.linear, self.room = nn.Linear(4, 3), room
        self.register_buffer("calls", torch.zeros(()))
        self.linear.bias.requires_grad_(False)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > self.room:
            raise torch.OutOfMemoryError(f"no room for {len(x)} rows")
        self.calls += 1
        torch.rand(())
        return torch.tanh(self.linear(x))


@pytest.mark.parametrize("options", [{}, {"score": "logit"}, {"layer": "linear"}], ids=str)
def test_buffers_and_random_state_come_back(options: dict[str, str]) -> None:
    model = Counting()
    with unchanged(model):
        diagnose(model, torch.randn(1, 4, generator=torch.Generator().manual_seed(0)), **options)  # type: ignore[arg-type]


def test_out_of_memory_makes_chunks_smaller() -> None:
    model, x = Counting(), torch.randn(1, 4, generator=torch.Generator().manual_seed(0))
    expected = diagnose(model, x)
    model.room = 5
    with pytest.warns(MemoryBackoffWarning, match="out of memory with"):
        found = diagnose(model, x)
    for row, other in zip(found.rows, expected.rows, strict=True):
        torch.testing.assert_close(row.attribution.values, other.attribution.values)
        assert row.probability == pytest.approx(other.probability)


def test_no_room_for_the_classes_at_a_baseline_is_said_in_words() -> None:
    """One row without gradients is what everything needs; where it does not fit, the user hears what to do."""

    class Full(Counting):
        def forward(self, x: Tensor) -> Tensor:
            if not torch.is_grad_enabled() and not x.any():
                raise torch.OutOfMemoryError("full")
            return super().forward(x)

    with pytest.raises(MemoryLimitError, match="out of memory with a single row at a time"):
        diagnose(Full(), torch.ones(1, 4), ["zero"])
