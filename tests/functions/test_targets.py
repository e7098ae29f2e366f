"""Which number of the output is explained: targets, scores, and what is held fixed along the path."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from integrand import integrated_gradients
from tests.by_hand import X, line_integral, net, squares

WEIGHT = torch.tensor([[1.0, 2.0, 3.0], [-1.0, 0.5, 2.0], [0.0, 4.0, 1.0]])


def linear(x: Tensor) -> Tensor:
    """Attributions of output k from zero: x times row k."""
    return x @ WEIGHT.T


SAME = [1, np.int64(1), np.uint8(1), torch.tensor(1), (1,), [1, 1], np.array([1, 1]), torch.tensor([1, 1]), [(1,), (1,)]]


@pytest.mark.parametrize("target", SAME, ids=repr)
def test_ways_to_say_output_1(target):
    result = integrated_gradients(linear, X, target=target)
    torch.testing.assert_close(result.values, X * WEIGHT[1])
    assert [example.target for example in result.certificate] == ["output [1] (logit)"] * 2


@pytest.mark.parametrize("target", [[2, 0], np.array([2, 0]), torch.tensor([2, 0]), torch.tensor([[2], [0]])], ids=repr)
@pytest.mark.parametrize("chunk", [1, 3, None])
def test_one_per_example(target, chunk):
    torch.testing.assert_close(integrated_gradients(linear, X, target=target, chunk=chunk).values, X * WEIGHT[[2, 0]])


def cube(x: Tensor) -> Tensor:
    """Output (i, j) is x_i times x_j, of which each gets half."""
    return x[:, :, None] * x[:, None]


def test_index_tuple():
    expected = torch.zeros_like(X)
    expected[:, 0] = expected[:, 2] = X[:, 0] * X[:, 2] / 2
    torch.testing.assert_close(integrated_gradients(cube, X, target=(0, 2)).values, expected)


@pytest.mark.parametrize("target", [[(0, 2), (1, 1)], np.array([[0, 2], [1, 1]])], ids=repr)
def test_index_tuple_per_example(target):
    expected = torch.tensor([[X[0, 0] * X[0, 2] / 2, 0, X[0, 0] * X[0, 2] / 2], [0, X[1, 1] ** 2, 0]])
    torch.testing.assert_close(integrated_gradients(cube, X, target=target).values, expected)


def test_function_of_the_output():
    def difference(out: Tensor) -> Tensor:
        return out[:, 1] - out[:, 0]

    result = integrated_gradients(linear, X, target=difference)
    torch.testing.assert_close(result.values, X * (WEIGHT[1] - WEIGHT[0]))
    assert result.certificate[0].target == "difference()"


def test_no_target_is_the_only_output():
    torch.testing.assert_close(integrated_gradients(squares, X).values, X**2)
    torch.testing.assert_close(integrated_gradients(lambda x: linear(x)[:, 2:], X).values, X * WEIGHT[2])


def test_no_target_is_the_top_class_of_the_input_all_along_the_path():
    bias = torch.tensor([0.0, 100.0, 0.0])  # at the baseline and for most of the path, output 1 is on top
    x = torch.tensor([[100.0, 0.0, 100.0], [0.0, 90.0, 10.0]])
    assert linear(x).add(bias).argmax(1).tolist() == [0, 2]
    assert linear(x * 0.3).add(bias).argmax(1).tolist() == [1, 1]
    result = integrated_gradients(lambda x: linear(x) + bias, x)
    torch.testing.assert_close(result.values, x * WEIGHT[[0, 2]])
    assert [example.target for example in result.certificate] == ["output [0] (logit)", "output [2] (logit)"]


def test_no_target_with_a_baseline_batch_takes_the_class_of_the_input():
    result = integrated_gradients(linear, X, -X)
    top = linear(X).argmax(1)
    assert linear(-X).argmax(1).tolist() != top.tolist()
    torch.testing.assert_close(result.values, 2 * X * WEIGHT[top])


# Scores

SCORES = {
    "logit": lambda out: out,
    "probability": lambda out: out.softmax(-1),
    "log-probability": lambda out: out.softmax(-1).log(),
}
SINGLE = {
    "logit": lambda out: out,
    "probability": lambda out: 1 / (1 + (-out).exp()),
    "log-probability": lambda out: -(1 + (-out).exp()).log(),
}


@pytest.mark.parametrize("score", SCORES)
def test_scores_against_a_loop_by_hand(score):
    model, x = net().double(), X.double()
    result = integrated_gradients(model, x, target=1, score=score, tol=1e-7)
    for row, values, example in zip(x, result.values, result.certificate, strict=True):
        expected = line_integral(lambda v: SCORES[score](model(v))[1], [row], [row * 0])[0]
        torch.testing.assert_close(values, expected, rtol=1e-6, atol=1e-8)
        assert example.score == pytest.approx(float(SCORES[score](model(row))[1].detach()), rel=1e-12)
        assert example.target == f"output [1] ({score})"


@pytest.mark.parametrize("score", SINGLE)
@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_scores_of_a_single_output(score, shape):
    model, x = net(1).double(), X.double()
    result = integrated_gradients(lambda x: model(x).reshape(shape), x, score=score, tol=1e-7)
    for row, values in zip(x, result.values, strict=True):
        expected = line_integral(lambda v: SINGLE[score](model(v)).sum(), [row], [row * 0])[0]
        torch.testing.assert_close(values, expected, rtol=1e-6, atol=1e-8)


def test_probability_of_a_class_at_a_position_and_at_a_pixel():
    """Classes are the last dimension of (rows, positions, classes), the second of images (rows, classes, H, W)."""
    x = X.double()
    for model, target, pick in [
        (lambda x: torch.stack([x, 2 * x], 1), (1, 2), lambda v: (2 * v).softmax(0)[2]),
        (lambda x: torch.stack([x, 2 * x], 2)[..., None], (2, 1, 0), lambda v: (2 * v).softmax(0)[2]),
    ]:
        result = integrated_gradients(model, x, target=target, score="probability", tol=1e-7)
        for row, values in zip(x, result.values, strict=True):
            torch.testing.assert_close(values, line_integral(pick, [row], [row * 0])[0], rtol=1e-6, atol=1e-8)


def test_probability_without_batch():
    x = X[0].double()
    result = integrated_gradients(lambda v: linear(v.float()).double(), x, target=2, score="probability", tol=1e-3)
    exact = line_integral(lambda v: (v @ WEIGHT.double().T).softmax(0)[2], [x], [x * 0])[0]
    torch.testing.assert_close(result.values, exact, rtol=1e-2, atol=1e-3)


def test_a_single_output_is_called_a_logit_only_where_it_becomes_a_probability() -> None:
    """A regression has no logit."""
    model, x = torch.nn.Linear(3, 1).eval(), torch.ones(2, 3)
    said = [integrated_gradients(model, x, score=score).certificate[0].target for score in ("logit", "probability")]
    assert said == ["the output", "the output (probability)"]
