"""Rewrites keep what a network computes, everywhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integrand.axioms import parse
from integrand.axioms.formula import FormulaNetwork
from integrand.axioms.formula_network import evaluate
from integrand.axioms.search_networks import RULES, equivalents, formulas

POINTS = np.random.default_rng(5).uniform(-6, 6, (400, 3))


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(formulas(range(3)), st.sampled_from(sorted(RULES)))
def test_whatever_is_drawn_computes_the_same_after_any_rule(node, rule):
    net = FormulaNetwork(node, 3)
    expected, _ = evaluate(net, POINTS)
    for other in equivalents(net, RULES[rule]):
        assert other != net
        np.testing.assert_allclose(evaluate(other, POINTS)[0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        ("bias_inward", "relu(relu(x1) - 1 - relu(x2))", "relu(relu(x1 - 1) - relu(x2))"),
        ("bias_inward", "relu(2*relu(x1) - 1)", "relu(2*relu(x1 - 0.5))"),
        ("bias_outward", "relu(relu(x1 - 1) - relu(x2))", "relu(relu(x1) - 1 - relu(x2))"),
        ("repeated", "relu(x1)", "relu(relu(x1))"),
        ("repeated", "relu(relu(x1))", "relu(x1)"),
        ("scaled", "relu(x1)", "relu(2*x1)/2"),
        ("doubled", "relu(x1)", "relu(x1)/2 + relu(2*x1)/4"),
        ("both_signs", "x1", "relu(x1) - relu(-x1)"),
        ("other_side", "relu(x1)", "x1 + relu(-x1)"),
        ("split", "x1 + x2 - 1", "linear(x1 - 1) + x2"),
        ("merged", "linear(x1 - 1) + x2", "x1 + x2 - 1"),
        ("permuted", "x1 + x2", "x2 + x1"),
        ("unfolded", "max(x1, x2)", "x1 + relu(x2 - x1)"),
        ("unfolded", "max(x1, x2)", "x2 + relu(x1 - x2)"),
        ("unfolded", "min(x1, x2)", "x1 - relu(x1 - x2)"),
    ],
)
def test_each_rule_does_what_it_is_named_for(rule, text, expected):
    assert parse(expected) in equivalents(parse(text), RULES[rule])


@pytest.mark.parametrize("text", ["relu(relu(x1) - 1 + relu(x2))", "relu(relu(x1) - 1 - x2)", "relu(1 - relu(x1))"])
def test_the_papers_rewrite_stays_away_where_it_does_not_hold(text):
    assert equivalents(parse(text), RULES["bias_inward"]) == []
