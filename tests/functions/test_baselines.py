"""Where paths start: numbers, shared and several baselines, and the certificate of each."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from integrand import integrated_gradients
from tests.by_hand import X, line_integral, net, squares


def from_to(baseline: Tensor, x: Tensor) -> Tensor:
    """Attributions of the sum of squares."""
    return x**2 - baseline**2


ROW = torch.tensor([1.0, 2.0, -1.0])
BATCH = torch.tensor([[1.0, 0.0, -1.0], [2.0, 2.0, 0.5]])

SINGLE = {
    "none": (None, 0 * X),
    "int": (2, 0 * X + 2),
    "float": (0.5, 0 * X + 0.5),
    "number in a tensor": (torch.tensor(0.5), 0 * X + 0.5),
    "shared": (ROW, ROW.expand(2, 3)),
    "one row": (ROW[None], ROW.expand(2, 3)),
    "own": (BATCH, BATCH),
}


@pytest.mark.parametrize(("given", "meant"), SINGLE.values(), ids=SINGLE.keys())
def test_one_baseline(given, meant):
    result = integrated_gradients(squares, X, given)
    torch.testing.assert_close(result.values, from_to(meant, X))
    for example, row in zip(result.certificate, meant, strict=True):
        assert example.baseline_score == pytest.approx(float((row**2).sum()), rel=1e-6)
        assert example.curves == ()


SEVERAL = {
    "list": ([0 * X, BATCH, ROW], [0 * X, BATCH, ROW.expand(2, 3)]),
    "list of numbers": ([0, 1.0], [0 * X, 0 * X + 1]),
    "list with a stack": ([torch.stack([BATCH, 0 * X]), None], [BATCH, 0 * X, 0 * X]),
    "stack": (torch.stack([0 * X, BATCH, X / 2]), [0 * X, BATCH, X / 2]),
    "stack of shared ones": (torch.stack([ROW, 2 * ROW])[:, None], [ROW.expand(2, 3), 2 * ROW.expand(2, 3)]),
}


@pytest.mark.parametrize(("given", "meant"), SEVERAL.values(), ids=SEVERAL.keys())
@pytest.mark.parametrize("options", [{}, {"steps": 8}])
def test_several_baselines_average_and_have_a_certificate_each(given, meant, options):
    result = integrated_gradients(squares, X, given, **options)
    torch.testing.assert_close(result.values, torch.stack([from_to(start, X) for start in meant]).mean(0))
    for i, example in enumerate(result.certificate):
        assert len(example.curves) == len(meant)
        scores = [float((start[i] ** 2).sum()) for start in meant]
        assert [curve.start_score for curve in example.curves] == pytest.approx(scores, rel=1e-6)
        assert all(curve.weight == pytest.approx(1 / len(meant)) for curve in example.curves)
        assert all(curve.end_score == pytest.approx(float((X[i] ** 2).sum())) for curve in example.curves)
        assert all(curve.error <= 1e-5 for curve in example.curves)
        assert example.baseline_score == pytest.approx(sum(scores) / len(scores), rel=1e-6)


def test_errors_of_the_curves_are_their_own():
    """Far from the input the path bends more; with few steps, its curve has the larger error, and says no less."""
    model, x = net().double(), X[:1].double()
    starts = [x * 0.9, x * 0 - 30]
    with pytest.warns(UserWarning, match="the tolerance was not met"):
        [example] = integrated_gradients(model, x, starts, target=0, steps=5, tol=1e-9).certificate
    near, far = example.curves
    assert near.error < 1e-3 * far.error
    for start, curve in zip(starts, (near, far), strict=True):
        exact = line_integral(lambda v: model(v)[0], [x[0]], [start[0]], nodes=400)[0]
        crude = line_integral(lambda v: model(v)[0], [x[0]], [start[0]], nodes=5)[0]
        assert curve.error >= float((crude - exact).abs().sum() / crude.abs().sum())


def test_drawn_baselines():
    drawn: list[Tensor] = []

    def draw() -> Tensor:
        drawn.append(torch.rand(3))
        return drawn[-1]

    result = integrated_gradients(squares, X, draw, draws=7)
    assert len(drawn) == 7
    torch.testing.assert_close(result.values, torch.stack([from_to(start, X) for start in drawn]).mean(0))
    assert len(result.certificate[0].curves) == 7


def test_several_baselines_without_batch():
    for given in ([torch.zeros(3), ROW], torch.stack([torch.zeros(3), ROW])):
        result = integrated_gradients(lambda x: (x**2).sum(), X[0], given)
        torch.testing.assert_close(result.values, X[0] ** 2 - ROW**2 / 2)


@pytest.mark.parametrize(
    "given",
    [
        [(0 * X, BATCH), (BATCH, 0 * X)],
        (torch.stack([0 * X, BATCH]), torch.stack([BATCH, 0 * X])),
        lambda starts=[(BATCH, 0 * X), (0 * X, BATCH)]: starts.pop(),
    ],
    ids=["list of tuples", "tuple of stacks", "drawn tuples"],
)
def test_several_baselines_of_several_tensors(given):
    a, b = integrated_gradients(lambda a, b: squares(a) + 3 * squares(b), (X, X), given, draws=2).values
    torch.testing.assert_close(a, X**2 - BATCH**2 / 2)
    torch.testing.assert_close(b, 3 * (X**2 - BATCH**2 / 2))


def test_list_with_one_tensor_each_is_one_baseline():
    a, b = integrated_gradients(lambda a, b: squares(a) + squares(b), (X, X), [ROW, 1.0]).values
    torch.testing.assert_close(a, from_to(ROW, X))
    torch.testing.assert_close(b, from_to(torch.ones(3), X))


def test_list_of_numbers_is_several_baselines_also_for_several_tensors():
    a, b = integrated_gradients(lambda a, b: squares(a) + squares(b), (X, X), [0.0, 2.0]).values
    torch.testing.assert_close(a, X**2 - 2)
    torch.testing.assert_close(b, X**2 - 2)
