"""Formulas: what is read is what was written, and what it computes is what it says."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from integrand.axioms import network, parse
from integrand.axioms.formula import Affine, FormulaNetwork, FunctionCall, Input, affine, relu
from integrand.axioms.formula_network import evaluate, units
from integrand.axioms.search_networks import equivalent
from integrand.errors import InputError, OptionError

TEXTS = {
    "relu(relu(x1) - 1 - relu(x2))": lambda a, b, c: max(max(a, 0) - 1 - max(b, 0), 0),
    "h1 = relu(x1 - 1); h2 = relu(x2); relu(h1 - h2) + h1": lambda a, b, c: max(max(a - 1, 0) - max(b, 0), 0) + max(a - 1, 0),
    "2*(x1 - 3)/4 + x3*(-1.5)": lambda a, b, c: (a - 3) / 2 - 1.5 * c,
    "min(x1, x2) + max(x2, 2*x3 + 1)": lambda a, b, c: min(a, b) + max(b, 2 * c + 1),
    "x1*x2 - (x1 - 1)*x3": lambda a, b, c: a * b - (a - 1) * c,
    "sigmoid(x1) - tanh(x2)": lambda a, b, c: 1 / (1 + math.exp(-a)) - math.tanh(b),
    "-linear(x1 + 2*x2) + 1": lambda a, b, c: 1 - a - 2 * b,
    "0*x3 + x1": lambda a, b, c: a,
    "7": lambda a, b, c: 7,
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_network_computes_its_formula(text):
    points = torch.tensor([[3.0, 1.0, -0.5], [0.25, -2.0, 1.0], [-1.0, 0.5, 2.0]])
    expected = [TEXTS[text](*row) for row in points.tolist()]
    found = network(text, inputs=3)(points)
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx(expected)
    values, _ = evaluate(parse(text, inputs=3), points.double().numpy())  # the search's own arithmetic agrees
    assert values.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_of_a_network_is_read_back_as_the_same_network(text):
    net = parse(text)
    assert parse(str(net)) == net
    assert hash(parse(str(net))) == hash(net)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(equivalent())
def test_drawn_networks_are_read_back_too(case):
    for _, net in case.networks:
        assert parse(str(net), inputs=net.inputs) == net


def test_a_sum_is_one_unit_whatever_its_parentheses():
    assert parse("2*(x1 - 1) + (x2 + 1)").output == affine([(2.0, Input(0)), (1.0, Input(1))], -1.0)
    assert parse("x1 + x1 - x2 + 0").output == Affine(((2.0, Input(0)), (-1.0, Input(1))))
    assert parse("linear(x1 - 1) + x2").output != parse("x1 - 1 + x2").output


def test_units_and_not_their_texts_are_shared():
    net = parse("h = relu(x1 + x2); h - 3*relu(h - 1)")
    assert str(net) == "h1 = relu(x1 + x2); h1 - 3*relu(h1 - 1)"
    parts, output = units(net)
    assert [unit.kind for unit in parts] == ["relu", "relu", "linear"]
    assert output == 4
    assert (parts[0].weights, parts[1].bias, parts[2].weights) == ((1.0, 1.0), -1.0, (1.0, -3.0))


def test_sharing_costs_nothing_however_deep():
    text = "; ".join(f"h{i + 1} = relu({f'h{i}' if i else 'x1'} + {f'h{i} - 1' if i else '1'})" for i in range(40))
    net = parse(f"{text}; h40")  # written out, 2 to the power of 40 units
    assert len(units(net)[0]) == 40
    assert parse(str(net)) == net


def test_a_module_keeps_to_its_formula_and_leaves_random_state_alone():
    before = torch.random.get_rng_state()
    net = network("relu(2*x1 - 1)")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert repr(net) == "network('relu(2*x1 - 1)')"
    assert not net.training
    assert [p.tolist() for p in net.parameters()] == [[[2.0]], [-1.0]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x1 +", "cannot be read"),
        ("", "no output"),
        ("h = x1", "no output"),
        ("y1 + 1", "'y1' is not known"),
        ("x0", "'x0' is not known"),
        ("exp(x1)", "not part of a formula"),
        ("relu(x1, x2)", "relu got 2 argument"),
        ("x1 / x2", "division by a number"),
        ("x1 / 0", "division by a number"),
        ("x1 ** 2", r"\+, -, \*"),
        ("1e999*x1", "finite numbers"),
        ("True", "not part of a formula"),
        ("x1 = 2; x1", "name 'x1' is taken"),
        ("relu = x1; relu", "name 'relu' is taken"),
        ("import os; x1", "is no unit"),
        ("__import__('os').getcwd()", "not part of a formula"),
        ("(lambda: 1)()", "not part of a formula"),
        ("-" * 9000 + "x1", "cannot be read"),
        ("x1" * 6000, "at most 10000 characters"),
    ],
)
def test_what_is_no_formula_is_refused_with_words(text, words):
    with pytest.raises(OptionError, match=words):
        parse(text)


def test_other_mistakes_are_refused_with_words():
    with pytest.raises(OptionError, match="a int as formula"):
        parse(3)
    with pytest.raises(OptionError, match="uses x3"):
        parse("x3", inputs=2)
    with pytest.raises(InputError, match=r"shape \(2,\).*expected \(N, 2\)"):
        network("x1 + x2")(torch.zeros(2))


def test_what_a_unit_without_terms_is():
    net = FormulaNetwork(relu(affine((), 2.0)), 2)
    assert str(net) == "relu(2)"
    x = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    out = network(net)(x)
    assert out.tolist() == [2.0, 2.0, 2.0]
    (gradient,) = torch.autograd.grad(out.sum(), x)  # constant, and still a function of x
    assert not gradient.any()
    assert np.array_equal(evaluate(net, np.zeros((3, 2)))[0], [2.0, 2.0, 2.0])
    assert FunctionCall("relu", (Input(0),)) != FunctionCall("tanh", (Input(0),))
