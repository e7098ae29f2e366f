"""Targets that know a family of outputs: the same numbers as functions written by hand, closed forms, and bad use."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import integrand as ig
from integrand import targets
from integrand.errors import OptionError, TargetError

SIDE = 12


def smooth(inputs: int, outputs: int, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs)).double()


X = torch.randn(3, 5, generator=torch.Generator().manual_seed(1)).double()


class Grid(nn.Module):
    """A dense detector of two classes: each of four cells looks at its quarter of the picture."""

    def forward(self, x: Tensor) -> targets.Candidates:
        half = SIDE // 2
        parts = x.unfold(2, half, half).unfold(3, half, half).mean((1, 4, 5)).flatten(1)  # (N, 4)
        logits = torch.stack([3 * parts, 2 - 4 * parts], -1)
        left = torch.tensor([0.0, half, 0.0, half], dtype=x.dtype)
        top = torch.tensor([0.0, 0.0, half, half], dtype=x.dtype)
        wide = half * (0.5 + parts.sigmoid())
        boxes = torch.stack([left + 0 * wide, top + 0 * wide, left + wide, top + half + 0 * wide], -1)
        objectness = (4 * parts - 1).sigmoid()
        return targets.Candidates(boxes, objectness[..., None] * logits.softmax(-1), objectness, logits)


class Picking(nn.Module):
    """The same detector as torchvision gives it: a list of what is left after a threshold and suppression."""

    def __init__(self, threshold: float = 0.3) -> None:
        super().__init__()
        self.threshold, self.grid = threshold, Grid()

    def forward(self, x: Tensor) -> list[dict[str, Tensor]]:
        found = self.grid(x)
        out = []
        for boxes, scores in zip(found.boxes, found.scores, strict=True):
            best, labels = scores.max(-1)
            order = best.argsort(descending=True)
            keep = order[best[order] > self.threshold]
            out.append({"boxes": boxes[keep], "labels": labels[keep], "scores": best[keep]})
        return out


def scene() -> Tensor:
    """A picture with a bright object in the upper left, and a less bright one in the lower right."""
    x = torch.full((1, 3, SIDE, SIDE), 0.05, dtype=torch.float64)
    x[:, :, :6, :6] = 1.0
    x[:, :, 6:, 6:] = 0.8
    return x


PARTS: dict[str, Callable[[Any], Tensor]] = {
    "score": lambda out: out.scores[:, 0, 0],
    "logit": lambda out: out.logits[:, 0, 0],
    "objectness": lambda out: out.objectness[:, 0],
    "left": lambda out: out.boxes[:, 0, 0],
    "right": lambda out: out.boxes[:, 0, 2],
    "width": lambda out: out.boxes[:, 0, 2] - out.boxes[:, 0, 0],
    "x": lambda out: (out.boxes[:, 0, 2] + out.boxes[:, 0, 0]) / 2,
}


@pytest.mark.parametrize("what", [name for name in PARTS if name != "left"])
def test_a_candidate_gives_what_a_function_written_by_hand_gives(what: Any) -> None:
    by_hand = ig.integrated_gradients(Grid(), scene(), target=PARTS[what], tol=1e-4)
    found = ig.integrated_gradients(Grid(), scene(), target=targets.box(0, what), tol=1e-4)
    assert torch.equal(found.values, by_hand.values)
    assert found.certificate.converged
    assert found.certificate.only.target.startswith(f"{what} of ")
    assert "class 0 in the box 0,0-" in found.certificate.only.target


def test_what_a_target_is_called_with_it_scores() -> None:
    output = Grid()(scene())
    assert torch.equal(targets.box(0)(output), output.scores[:, 0, 0])
    assert torch.equal(targets.box(0)(Picking()(scene())), output.scores[:, 0, 0])


def test_detections_are_listed_surest_first_and_named() -> None:
    [found] = targets.detections(Grid()(scene()))
    assert [one.candidate for one in found] == [0, 3]
    assert found[0].score > found[1].score
    result = ig.integrated_gradients(Grid(), scene(), target=targets.box(1, names=["lamp", "hole"]))
    assert result.certificate.only.target.startswith("score of lamp in the box 6,6-")


def test_boxes_that_differ_by_example_share_one_model() -> None:
    x = scene().repeat(2, 1, 1, 1)
    both = ig.integrated_gradients(Grid(), x, target=[targets.box(0), targets.box(1)], tol=1e-4)
    for i in (0, 1):
        alone = ig.integrated_gradients(Grid(), scene(), target=targets.box(i), tol=1e-4)
        torch.testing.assert_close(both.values[i : i + 1], alone.values, rtol=1e-6, atol=1e-9)
    assert both.certificate[0].target != both.certificate[1].target


def test_one_picture_without_a_batch_dimension() -> None:
    def one(x: Tensor) -> targets.Candidates:
        found = Grid()(x[None])
        return targets.Candidates(*(part[0] if isinstance(part, Tensor) else part for part in found))

    alone = ig.integrated_gradients(one, scene()[0], target=targets.box(0), batched=False, tol=1e-4)
    whole = ig.integrated_gradients(Grid(), scene(), target=targets.box(0), tol=1e-4)
    torch.testing.assert_close(alone.values, whole.values[0])


def test_picked_boxes_are_the_same_object_along_the_path() -> None:
    """The second object stays the second, though it is listed first where the other one is darker."""
    darker = scene()
    darker[:, :, :6, :6] = 0.1  # on the path the other object overtakes it
    darker[:, :, 6:, 6:] = 0.4
    found = ig.integrated_gradients(Picking(0.0), scene(), darker, target=targets.box(1), tol=1e-4)
    assert found.certificate.converged, found.certificate
    assert found.values[:, :, :6, :6].abs().sum() == 0
    alone = ig.integrated_gradients(Grid(), scene(), darker, target=lambda out: out.scores[:, 3, 0], tol=1e-4)
    torch.testing.assert_close(found.values, alone.values)
    assert found.certificate.only.score == pytest.approx(float(Grid()(scene()).scores[0, 3, 0]))


def test_a_detection_that_comes_and_goes_is_a_jump_and_the_remedy_helps() -> None:
    with pytest.warns(ig.errors.ConvergenceWarning, match="non-maximum suppression"):
        found = ig.integrated_gradients(Picking(), scene(), target=targets.box(0), tol=1e-3)
    one = found.certificate.only
    assert one.status is ig.Status.JUMP
    assert one.unseen == "jump"
    # The score where the detection passes the threshold, which is where it jumps from 0.
    assert one.jump_size == pytest.approx(0.3, abs=1e-3)
    assert "matching" in one.remedy
    assert "targets.Candidates" in one.remedy
    assert "not there" in one.note
    dense = ig.integrated_gradients(Grid(), scene(), target=targets.box(0), tol=1e-3)
    assert dense.certificate.converged
    assert not dense.certificate.only.note


def test_following_by_overlap_says_so_where_candidates_could_be_followed() -> None:
    with pytest.warns(ig.errors.ConvergenceWarning, match="leave follow='overlap' out"):
        found = ig.integrated_gradients(Grid(), scene(), target=targets.box(0, follow="overlap"), tol=1e-3)
    assert found.certificate.only.status is ig.Status.JUMP


@pytest.mark.parametrize("follow", ["candidate", "overlap"])
def test_another_class_of_a_detection_is_read_where_the_object_is(follow: Any) -> None:
    """The object is found by what the model calls it, class 0; explained is what it says of class 1 there."""

    def model(x: Tensor) -> targets.Candidates:
        sure = x.sigmoid()  # (N, 2)
        boxes = torch.tensor([[0.0, 0, 10, 10], [20, 20, 30, 30]]).double().expand(len(x), 2, 4)
        return targets.Candidates(boxes, torch.stack([0.5 + sure / 2, 0.4 * sure], -1))

    x = torch.tensor([[0.7, -0.3]]).double()
    found = ig.integrated_gradients(model, x, target=targets.box(0, label=1, follow=follow), tol=1e-4)
    assert found.certificate.only.score == pytest.approx(0.4 / (1 + math.exp(-0.7)), rel=1e-6)
    assert found.values[0].tolist() == pytest.approx([0.4 / (1 + math.exp(-0.7)) - 0.2, 0.0], abs=1e-4)
    assert found.certificate.only.target == "score of class 1 in the box 0,0-10,10"


def test_suppression_leaves_one_of_two_boxes_of_one_object() -> None:
    boxes = torch.tensor([[[0.0, 0, 10, 10], [1, 0, 11, 10], [0, 0, 10, 10], [20, 0, 30, 10]]])
    scores = torch.tensor([[[0.9, 0.0], [0.8, 0.0], [0.1, 0.7], [0.6, 0.2]]])
    [found] = targets.detections(targets.Candidates(boxes, scores))
    assert [(one.candidate, one.label) for one in found] == [(0, 0), (2, 1), (3, 0)]
    [all_of_them] = targets.detections(targets.Candidates(boxes, scores, overlapping=False))
    assert len(all_of_them) == 4


@pytest.mark.parametrize(
    ("target", "model", "said"),
    [
        (targets.box(5), Grid(), "finds 2 object(s) with a score of at least 0.3: 0: class 0 (0.95); 1: class 0"),
        (targets.box(9), Picking(), "expected 0 to 1"),
        (targets.box(0, label=7), Grid(), "classes 0 to 1"),
        (targets.box(0, label=1), Picking(), "Leave label out"),
        (targets.box(0, "objectness"), Picking(), "does not give; expected 'score'."),
        (
            targets.box(0, "objectness"),
            lambda x: Grid()(x)._replace(objectness=None),
            "'score', 'logit' or a coordinate ('left'",
        ),
        (targets.box(0, "left"), Picking(), "no coordinates"),
        (targets.box(0, "left", follow="overlap"), Grid(), "no follow="),
        (targets.box(0, follow="candidate"), Picking(), "all candidates"),
        (targets.box(0), lambda x: x.mean((2, 3)), "in which there are no boxes"),
        (targets.box(0), lambda x: {"heat": x}, "with ['heat']"),
        (targets.box(0, least=0.99), Grid(), "a smaller least= finds more"),
        (targets.mask(0), lambda x: x.mean((2, 3)), "expected maps (N, classes, height, width)"),
        (targets.mask(4), lambda x: x, "classes 0 to 2"),
        (targets.mask(0, torch.ones(3, 3, dtype=torch.bool)), lambda x: x, "expected bool of shape (12, 12)"),
        (targets.mask(0, torch.ones(SIDE, SIDE)), lambda x: x, "expected bool"),
        (targets.mask(0, torch.zeros(SIDE, SIDE, dtype=torch.bool)), lambda x: x, "without a pixel"),
        (targets.mask(0, (0, 0, 13, 5)), lambda x: x, "12 wide and 12 high"),
        (targets.mask(2), lambda x: x * torch.tensor([1.0, 2.0, 0.5], dtype=x.dtype)[:, None, None], "it says class 1 (100%)"),
        (targets.against(0, 0), lambda x: x.mean((2, 3)), "against itself"),
        (targets.against(3), lambda x: x.mean((2, 3)), "expected 0 to 2"),
        (targets.against(0), lambda x: x, "expected (N, classes)"),
        (targets.similarity(torch.ones(4)), lambda x: x.mean((2, 3)), "expected (3,)"),
        (targets.similarity(torch.zeros(3)), lambda x: x.mean((2, 3)), "nothing is similar"),
        (targets.similarity(torch.ones(3)), lambda x: x, "one embedding for each row"),
        (targets.span(0, 1), lambda x: x.mean((2, 3)), "start_logits"),
        (targets.span(3, 1), lambda x: x.mean(1), "does not come before"),
        (targets.span(0, 40), lambda x: x.mean(1), "positions 0 to 11"),
        (targets.span(0, 1, tokens=[1]), lambda x: x.mean(1), "expected 2"),
        ([targets.box(0), targets.box(1)], Grid(), "got 2 targets for 1 examples"),
        ([targets.box(0), 1], Grid(), "got 1 beside values of integrand.targets; expected such a value for each example"),
    ],
)
def test_what_does_not_fit_is_refused(target: Any, model: Any, said: str) -> None:
    with pytest.raises(TargetError, match=re.escape(said)):
        ig.integrated_gradients(model, scene(), target=target)


@pytest.mark.parametrize(
    "make",
    [
        lambda: targets.box(-1),
        lambda: targets.box(0, "colour"),  # type: ignore[arg-type]
        lambda: targets.box(0, follow="nose"),  # type: ignore[arg-type]
        lambda: targets.box(0, least=7),
        lambda: targets.box(0, enough=-0.5),
        lambda: targets.box(0, enough=float("nan")),
        lambda: targets.mask("road"),
        lambda: targets.mask("rood", names=["road"]),
        lambda: targets.mask(0, (1, 2, 3)),  # type: ignore[arg-type]
        lambda: targets.mask(True),
        lambda: targets.mask(0, what="odds"),  # type: ignore[arg-type]
        lambda: targets.similarity([1.0]),  # type: ignore[arg-type]
        lambda: targets.span(0, 1, what="odds"),  # type: ignore[arg-type]
        lambda: targets.span(1.5, 2),  # type: ignore[arg-type]
        lambda: targets.span("a"),  # type: ignore[arg-type]
        lambda: targets.span(-1),
        lambda: targets.span(0, 1, tokens=[1.5, 2.0]),  # type: ignore[list-item]
    ],
)
def test_what_makes_no_sense_is_refused_at_once(make: Callable[[], Any]) -> None:
    with pytest.raises((TargetError, OptionError), match="expected"):
        make()


def test_a_target_has_a_scale_of_its_own() -> None:
    with pytest.raises(OptionError, match="what="):
        ig.integrated_gradients(Grid(), scene(), target=targets.box(0), score="probability")


class Painter(nn.Module):
    """A segmenter of three classes, as torchvision gives its maps."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 3, 1)).double()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        maps = self.net(x)
        maps = maps - maps.mean((2, 3), keepdim=True)  # so that each class is said somewhere
        return {"out": maps, "aux": maps.detach()}


@pytest.mark.parametrize("what", ["logit", "probability"])
@pytest.mark.parametrize("mean", [False, True])
def test_a_mask_is_a_sum_over_the_pixels_that_the_model_calls_so(what: Any, mean: bool) -> None:
    model, x = Painter(), torch.rand(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(2)).double()
    said = model(x)["out"].argmax(1)
    label = int(said.flatten().mode().values)
    inside = (said == label).double().detach()
    assert 0 < inside.mean() < 1

    for i in (0, 1):

        def by_hand(out: Any, i: int = i) -> Tensor:
            maps = out["out"] if what == "logit" else out["out"].softmax(1)
            total = (maps[:, label] * inside[i]).sum((1, 2))
            return total / inside[i].sum() if mean else total

        alone = ig.integrated_gradients(model, x[i : i + 1], target=by_hand, tol=1e-3)
        found = ig.integrated_gradients(model, x, target=targets.mask(label, what=what, mean=mean), tol=1e-3)
        torch.testing.assert_close(found.values[i : i + 1], alone.values, rtol=1e-6, atol=1e-9)
    assert found.certificate.converged
    assert f"over {int(inside[0].sum())} pixels where the model says it" in found.certificate[0].target


def test_a_region_may_be_a_box_or_pixels() -> None:
    model, x = Painter(), torch.rand(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(2)).double()
    pixels = torch.zeros(SIDE, SIDE, dtype=torch.bool)
    pixels[2:5, 1:7] = True
    named = targets.mask("b", (1, 2, 7, 5), names=["a", "b", "c"])
    one, other = (ig.integrated_gradients(model, x, target=t) for t in (named, targets.mask(1, pixels)))
    assert torch.equal(one.values, other.values)
    assert one.certificate.only.target == "logit of b, sum over 18 pixels of the region"


def test_similarity_has_its_closed_form() -> None:
    """On the identity, from a baseline along the reference's own direction: the path turns by a known angle."""
    reference = torch.tensor([1.0, 0.0], dtype=torch.float64)
    x, start = torch.tensor([[1.0, 1.0]], dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    found = ig.integrated_gradients(lambda v: v, x, start, target=targets.similarity(reference), tol=1e-6)
    # cos(angle) falls from 1 to 1/sqrt(2), and only the second coordinate moves.
    expected = torch.tensor([[0.0, 1 / math.sqrt(2) - 1]], dtype=torch.float64)
    torch.testing.assert_close(found.values, expected, rtol=1e-6, atol=1e-9)
    assert found.certificate.only.target == "cosine similarity to the reference"


def test_similarity_to_one_embedding_for_each_example() -> None:
    model = smooth(5, 4)
    others = torch.randn(3, 4, generator=torch.Generator().manual_seed(5)).double()
    found = ig.integrated_gradients(model, X, target=targets.similarity(others, name="the other"), tol=1e-4)
    for i in range(3):
        alone = ig.integrated_gradients(
            model, X[i : i + 1], target=lambda out, i=i: torch.cosine_similarity(out, others[i : i + 1]), tol=1e-4
        )
        torch.testing.assert_close(found.values[i : i + 1], alone.values, rtol=1e-6, atol=1e-9)


def test_against_is_the_difference_of_two_attributions() -> None:
    """Linearity: the difference of the logits is attributed as the difference of the attributions."""
    weight = torch.randn(4, 5, generator=torch.Generator().manual_seed(6)).double()
    found = ig.integrated_gradients(lambda x: x @ weight.T, X, target=targets.against(1, 2))
    torch.testing.assert_close(found.values, X * (weight[1] - weight[2]))
    best = (X @ weight.T).topk(2, 1).indices
    surest = ig.integrated_gradients(lambda x: x @ weight.T, X, target=targets.against())
    torch.testing.assert_close(surest.values, X * (weight[best[:, 0]] - weight[best[:, 1]]))
    assert surest.certificate[0].target == f"class {best[0, 0]} against class {best[0, 1]}"


class Answering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.starts, self.ends = smooth(5, 7, 1), smooth(5, 7, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"start_logits": self.starts(x), "end_logits": self.ends(x)}


def test_a_span_is_the_sum_of_both_ends() -> None:
    model = Answering()

    def by_hand(out: Any) -> Tensor:
        return out["start_logits"][:, 2] + out["end_logits"][:, 4]

    one = ig.integrated_gradients(model, X, target=targets.span(2, 4), tol=1e-4)
    torch.testing.assert_close(one.values, ig.integrated_gradients(model, X, target=by_hand, tol=1e-4).values)
    assert one.certificate[0].target == "answer from token 2 to 4 (logit of both ends)"


def test_the_models_own_answer_does_not_end_before_it_starts() -> None:
    out = Answering()(X)
    both = (out["start_logits"][:, :, None] + out["end_logits"][:, None]).detach()
    scores = targets.span()(out).detach()
    for row in range(3):
        allowed = [float(both[row, a, b]) for a in range(7) for b in range(a, 7)]
        assert float(scores[row]) == pytest.approx(max(allowed))


def test_tokens_of_a_span_have_the_sum_of_their_log_probabilities() -> None:
    torch.manual_seed(0)
    net = nn.Linear(5, 18).double()

    def model(x: Tensor) -> Tensor:
        return net(x).reshape(-1, 3, 6)

    def by_hand(out: Tensor) -> Tensor:
        logs = out.log_softmax(2)
        return logs[:, 1, 4] + logs[:, 2, 0]

    found = ig.integrated_gradients(model, X, target=targets.span(1, 2, tokens=[4, 0]), tol=1e-4)
    torch.testing.assert_close(found.values, ig.integrated_gradients(model, X, target=by_hand, tol=1e-4).values)
    own = targets.span()(model(X))
    torch.testing.assert_close(own, model(X).log_softmax(2).amax(2).sum(1))


def test_other_methods_take_the_same_targets() -> None:
    gradient = ig.methods.GradientTimesInput()(Grid(), scene(), target=targets.box(0))
    x = scene().requires_grad_()
    (by_hand,) = torch.autograd.grad(Grid()(x).scores[:, 0, 0].sum(), x)
    torch.testing.assert_close(gradient.values, by_hand * scene())
    told = ig.baselines.diagnose(Grid(), scene(), target=targets.box(0), candidates=["black", "mean"])
    assert "black" in str(told)


def test_smoothgrad_settles_each_of_several_pictures() -> None:
    torch.manual_seed(0)
    x = torch.cat([scene(), scene().flip(2)])
    smoothed = ig.methods.SmoothGrad(tol=0.5)
    both = smoothed(Grid(), x, target=[targets.box(0), targets.box(1)])
    cells = [int(targets.detections(Grid()(x[i : i + 1]))[0][i].candidate) for i in range(2)]
    assert cells[0] != cells[1]
    for i, cell in enumerate(cells):  # all of the gradient is in the quarter that the cell looks at
        quarter = both.values[i].abs().sum(0).reshape(2, 6, 2, 6).sum((1, 3)).flatten()
        assert quarter[cell] > 0
        assert quarter.sum() == quarter[cell]


def test_models_are_compared_on_the_target_that_was_named() -> None:
    one, two = smooth(5, 4, seed=3), smooth(5, 4, seed=4)
    found = ig.compare_models({"one": one, "two": two}, X[:1], target=targets.against(1, 2), tol=1e-4)
    change = [
        float((m(X[:1]) - m(0 * X[:1]))[0, 1] - (m(X[:1]) - m(0 * X[:1]))[0, 2])
        for m in (one.requires_grad_(False), two.requires_grad_(False))
    ]
    assert float(found.difference.sum()) == pytest.approx(change[0] - change[1], abs=1e-3)


def test_a_detection_that_comes_on_the_path_breaks_completeness() -> None:
    verdict = ig.axioms.check(ig.methods.IntegratedGradients(), "completeness", Picking(), scene(), target=targets.box(0))
    assert verdict.kept is False
    assert "where it has no gradient" in str(verdict)
    assert ig.axioms.check(ig.methods.IntegratedGradients(), "completeness", Grid(), scene(), target=targets.box(0)).kept


def test_reading_what_was_picked_warns_of_nothing() -> None:
    x = scene().requires_grad_()
    assert targets.detections(Picking()(x))[0][0].label == 0


def test_regions_as_people_give_them() -> None:
    maps = torch.arange(2 * 3 * 4 * 4, dtype=torch.float64).reshape(2, 3, 4, 4)
    where = torch.zeros(4, 4, dtype=torch.bool)
    where[1:3, :2] = True
    expected = maps[:, 1, 1:3, :2].sum((1, 2))
    for region in (where, where.numpy(), (0, 1, 2, 3), [0, 1, 2, 3], np.array([0, 1, 2, 3])):
        torch.testing.assert_close(targets.mask(np.int64(1), region)(maps), expected)
    with pytest.raises(TargetError, match="whole numbers"):
        targets.mask(1, (0.0, 1.0, 2.0, 3.0))
    with pytest.raises(TargetError, match=r"one for each of 2 example"):
        targets.mask(1, where.expand(3, 4, 4))(maps)


def test_sums_over_large_masks_stay_within_half_precision() -> None:
    maps = torch.full((1, 2, 300, 300), 3.0, dtype=torch.float16)
    region = torch.ones(300, 300, dtype=torch.bool)
    assert float(targets.mask(0, region)(maps)) == 270_000
    assert float(targets.mask(0, region, mean=True)(maps)) == pytest.approx(3.0, rel=1e-5)
