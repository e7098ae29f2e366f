"""The search: what it counts, what it leaves out, and that its counter-examples run."""

import contextlib
import io
import re
import sys
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from integrand import Attribution
from integrand.axioms import AXIOMS, check, network, parse
from integrand.axioms.evidence import AxiomCase, explain, smooth
from integrand.certificate import Promise, promised
from integrand.errors import MissingExtraError, ModelError, OptionError
from integrand.methods import (
    LRP,
    Deconvnet,
    DeepLift,
    Found,
    Gradient,
    GradientTimesInput,
    GuidedBackprop,
    IntegratedGradients,
    Method,
    PathMethod,
    Problem,
)
from integrand.paths import stairs

from .searched import searched


@dataclass(frozen=True)
class Boaster(Method):
    """Gradient times input, promising everything."""

    name: ClassVar[str] = "boaster"
    promises: ClassVar[tuple[Promise, ...]] = promised()
    refuses: bool = False

    def attribute(self, problem: Problem) -> Attribution:
        if self.refuses:
            raise ModelError("no rule for aten.relu")
        return GradientTimesInput().attribute(problem)


@dataclass(frozen=True)
class Sloppy(Method):
    """Equal shares of the change, less 30%."""

    name: ClassVar[str] = "sloppy"
    promises: ClassVar[tuple[Promise, ...]] = promised()
    error: float = 0.0

    def attribute(self, problem: Problem) -> Attribution:
        score, base = problem.end_scores(problem.evaluator())
        values = torch.as_tensor(0.7 * (score - base))[:, None].expand(-1, problem.features) / problem.features
        return problem.dress(Found(values, self.promises, error=self.error / 0.7, tol=1.0))


def case(text, x, baseline, **more):
    return AxiomCase((("f", parse(text, inputs=len(x))),), x, baseline, **more)


@pytest.mark.parametrize(
    ("method", "axiom"),
    [
        (Gradient(), "completeness"),
        (Gradient(), "sensitivity-a"),
        (Deconvnet(), "sensitivity-b"),
        (DeepLift(), "implementation-invariance"),
        (DeepLift(rule="reveal-cancel"), "implementation-invariance"),
        (GuidedBackprop(), "linearity"),
        (PathMethod(stairs, tol=0.001), "symmetry"),
    ],
)
def test_the_code_of_a_counterexample_runs_and_says_the_same(method, axiom):
    verdict = searched(method, axiom)
    assert verdict.kept is False
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        exec(verdict.code, {})
    pattern = r"tensor\(\[\[(.*?)\]\]"
    printed = [[float(value) for value in found.split(",")] for found in re.findall(pattern, told.getvalue(), re.DOTALL)]
    found = dict(verdict.counterexample.attributions)
    assert printed == [pytest.approx(values, abs=1e-3) for values in found.values()]
    if axiom == "linearity":  # of the weighted sum, and the sum of the two: what was printed shows the break
        assert sum(abs(a - b) for a, b in zip(*printed, strict=True)) == pytest.approx(verdict.counterexample.gap, abs=1e-3)
        assert "attributions of both, summed with these weights" in str(verdict)
    assert len(verdict.code.splitlines()) <= 9


def test_the_same_seed_gives_the_same_counterexample():
    first, second = (check(Gradient(), "completeness", max_examples=50, seed=3) for _ in range(2))
    assert first == second
    assert first.kept is False


def test_a_promise_that_the_search_breaks_is_refuted():
    verdict = check(Boaster(), "sensitivity-a", max_examples=60)
    assert verdict.refuted
    assert verdict.word == "promise refuted"
    assert "though it promises to keep it" in str(verdict)
    assert verdict.counterexample.networks[0][0] == "f"
    assert not searched(GradientTimesInput(), "sensitivity-a").refuted  # it does not promise it


def test_an_error_that_the_method_admits_to_is_not_a_broken_axiom():
    assert check(Sloppy(), "completeness", max_examples=40).kept is False
    assert check(Sloppy(error=0.25), "completeness", max_examples=40).kept is False
    assert check(Sloppy(error=0.35), "completeness", max_examples=40).kept


def test_what_nobody_can_tell_is_not_called_kept():
    verdict = check(IntegratedGradients(steps=1), "completeness", max_examples=15)
    assert verdict.kept is None
    assert verdict.undecided == verdict.tried > 0
    assert "undecided" in verdict.sentence


def test_a_method_without_a_rule_is_told_as_such():
    verdict = check(Boaster(refuses=True), "completeness", max_examples=10)
    assert verdict.kept is None
    assert verdict.tried == 0
    assert verdict.refused > 0
    assert "no rule for aten.relu" in verdict.sentence


def test_progress_counts_the_cases():
    seen = []
    verdict = check(Gradient(), "linearity", max_examples=25, progress=seen.append)
    assert seen[-1] == max(seen) == verdict.tried > 10


@pytest.mark.parametrize(
    ("text", "x", "baseline", "expected"),
    [
        ("relu(x1 - 1)", (2.0,), (0.0,), True),
        ("relu(x1 - 1)", (1.0,), (0.0,), False),  # the input sits on the kink
        ("relu(x1 - 1)", (0.0,), (1.0,), True),  # the baseline alone may
        ("min(x1, x2)", (1.0, 1.0), (0.0, 0.0), False),  # the line runs along the kink
        ("min(x1, x2)", (1.0, 3.0), (0.0, 0.0), True),
        ("relu(x2)", (1.0, 0.0), (0.0, 0.0), False),
        ("relu(x1 - x2)", (1.0, -1.0), (0.0, 0.0), True),
        ("relu(relu(x1))", (-1.0,), (0.0,), True),  # zero around as well: no kink
        ("relu(relu(x1 - 1) - relu(x2))", (3.0, 1.0), (0.0, 0.0), True),
    ],
)
def test_cases_on_kinks_do_not_count(text, x, baseline, expected):
    assert smooth(case(text, x, baseline), Gradient()) is expected


def test_the_methods_own_route_is_looked_at_too():
    from integrand.paths import Polyline

    def along(baseline, x):
        return Polyline([baseline, torch.tensor([[0.5, -0.25]]).double(), torch.tensor([[0.5, 0.25]]).double(), x])

    one = case("relu(x1 - 0.5) + x2", (1.0, 1.0), (0.0, 0.0))
    assert smooth(one, IntegratedGradients())
    assert not smooth(one, PathMethod(along))
    stairs_along = case("relu(x2) + x1", (3.0, 1.0), (0.0, 0.0))  # the first stair has x2 = 0
    assert smooth(stairs_along, IntegratedGradients())
    assert not smooth(stairs_along, PathMethod())


def test_without_hypothesis_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(MissingExtraError, match=r"integrand\[axioms\]"):
        check(Gradient(), "completeness")
    assert check(Gradient(), "completeness", network("x1"), torch.ones(1, 1)).kept  # a model needs none


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((Gradient, "completeness"), {}, "got Gradient as method"),
        ((Gradient(), "complete"), {}, "got axiom='complete'"),
        ((Gradient(), "completeness"), {"max_examples": 0}, "max_examples=0"),
        ((Gradient(), "completeness", network("x1")), {}, "without x"),
        ((Gradient(), "completeness", None, torch.ones(1, 1)), {}, "without a model"),
    ],
)
def test_mistakes_are_refused_with_words(arguments, options, words):
    with pytest.raises(OptionError, match=words):
        check(*arguments, **options)


def test_methods_that_cannot_be_spelled_go_by_a_name():
    method = PathMethod(lambda baseline, x: stairs(baseline, x), tol=0.001)
    verdict = check(method, "symmetry", max_examples=30)
    assert verdict.kept is False
    assert verdict.settings == "method"
    assert verdict.code.startswith("# method: the one that you checked")
    with contextlib.redirect_stdout(io.StringIO()):
        exec(verdict.code, {"method": method})


def test_every_axiom_has_a_module_with_its_definition():
    import importlib

    for axiom in AXIOMS:
        module = importlib.import_module(f"integrand.axioms.{axiom.replace('-', '_')}")
        assert axiom == module.NAME
        assert re.search(r"^    .*=", module.__doc__, flags=re.M)  # the definition, as a formula on a line of its own
        assert len(module.__doc__.splitlines()) >= 4


def test_promises_that_are_hard_to_break_by_chance_are_broken_by_hand():
    from integrand.axioms import linearity, symmetry

    nets = tuple((name, parse(text, inputs=2)) for name, text in (("f", "x1"), ("g", "x2"), ("sum", "x1 - x2")))
    cancel = AxiomCase(nets, (1.0, 1.0), (0.0, 0.0), weights=(1.0, -1.0))
    assert linearity.judge(LRP(), cancel).broken  # nothing is left to hand back
    assert not linearity.judge(DeepLift(), cancel).broken
    written_twice = case("-relu(x1) - x2 - relu(-x2)", (1.0, 1.0), (0.0, 0.0), features=(0, 1))
    assert symmetry.judge(GuidedBackprop(), written_twice).gap == 1
    assert not symmetry.judge(Gradient(), written_twice).broken


def test_a_sampled_value_is_given_its_standard_error():
    result = Gradient()(network("x1"), torch.ones(1, 1).double())
    from integrand.axioms.evidence import SIGMAS, slack_of

    noisy = replace(result, extras={"standard_error": torch.tensor([[0.5]])})
    assert slack_of(result) == 0
    assert slack_of(noisy) == SIGMAS * 0.5
    one = explain(Gradient(), network("2*x1"), torch.ones(1, 1), torch.zeros(1, 1))
    assert (one.score, one.start, one.values.tolist()) == (2.0, 0.0, [2.0])
