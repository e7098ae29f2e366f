"""Layer-wise relevance propagation: the score is handed back in shares, operation by operation."""

# ruff: noqa: SIM905 (tables of names)
from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from .._trees import Leaves
from ..attribution import Attribution, Promise, promised
from ..errors import NonFiniteError, OptionError
from ..operations import Kind, Program, Ref, Step, folded, fused, kind_of, sweep, vjp
from ..operations._kinds import BARE, WEIGHTED, factors
from ..operations._program import Values
from ..operations._signed import constant_of, points_of, without_constant
from ..operations._sweep import Handed, no_rule
from ._base import Found, Method, Problem
from ._lrp_rules import AlphaBeta, Epsilon, Gamma, LayerRule, stabilised
from ._operated import TRACED, by_operations

_BREAKS = {
    "completeness": "relevances sum to F(x), not to its change from a baseline",
    "sensitivity_a": "a score of zero has no relevance to hand back, and a feature of zero gets none",
    "sensitivity_b": "two ways that cancel in the score may be written so that their shares do not",
    "implementation_invariance": "shares depend on which sums the network forms",
    "linearity": "two scores that cancel leave nothing to hand back to either",
    "symmetry": "equal inputs may reach the score through units written differently",
}

Composite = tuple[tuple[str, LayerRule], ...]
"""Rules for layers, by pattern; the first that matches counts."""

PRESETS: dict[str, Composite] = {
    "epsilon-plus": (("convolution", AlphaBeta(1, 0)), ("*", Epsilon())),
    "epsilon-alpha2-beta1": (("convolution", AlphaBeta(2, 1)), ("*", Epsilon())),
    "epsilon-gamma": (("convolution", Gamma()), ("*", Epsilon())),
}

DEFAULT = Epsilon()

_GATES = frozenset(
    ("sigmoid hardsigmoid _softmax _safe_softmax softmax rsqrt reciprocal sqrt exp detach gt ge lt le ne eq").split()
)
"""Operations whose results weigh others; relevance goes to what they weigh."""


@final
@dataclass(frozen=True)
class LRP(Method):
    """Layer-wise relevance propagation (Bach 2015; Binder 2016).

    Every layer hands its relevance back to its inputs in proportion to their contributions, by a rule. Activations
    hand on what they get; a maximum gives it to the winner; sums share it in proportion; of two factors a gate (sigmoid,
    softmax, a norm's scale) gets none, and otherwise each gets half.

    Attributes:
        rule: the rule of layers with weights: :class:`Epsilon`, :class:`Gamma` or :class:`AlphaBeta` (z+ is
            ``AlphaBeta(1, 0)``).
        composite: other rules for some layers: pairs of a pattern and a rule, where the pattern is an operation
            (``convolution``, ``linear``) or a submodule's dotted name with wildcards (``features.*``); or the name of a
            preset: ``epsilon-plus``, ``epsilon-alpha2-beta1``, ``epsilon-gamma``.
        bias: ``spread`` leaves biases out of the denominators, so that their share goes to the inputs, as in the numbers
            of the paper; ``keep`` lets them have it, and it is missing from the sum. Spreading makes relevances large
            where a bias outweighs what it is added to.
    """

    name: ClassVar[str] = "lrp"
    promises: ClassVar[tuple[Promise, ...]] = promised(**_BREAKS)
    rule: LayerRule = DEFAULT
    composite: Composite | str = ()
    bias: Literal["spread", "keep"] = "spread"

    def __post_init__(self) -> None:
        if isinstance(self.composite, str) and self.composite not in PRESETS:
            raise OptionError(
                f"got composite={self.composite!r}; expected one of {', '.join(map(repr, PRESETS))}, or pairs of a "
                "pattern and a rule."
            )
        rules = [self.rule, *(rule for _, rule in self._composite)]
        if not all(isinstance(rule, (Epsilon, Gamma, AlphaBeta)) for rule in rules):
            raise OptionError(f"got rules {rules}; expected Epsilon, Gamma or AlphaBeta of integrand.methods.")
        if self.bias not in ("spread", "keep"):
            raise OptionError(f"got bias={self.bias!r}; expected 'spread' or 'keep'.")

    @property
    def _composite(self) -> Composite:
        return PRESETS[self.composite] if isinstance(self.composite, str) else self.composite

    @property
    def sensitive(self) -> bool:
        """Differences of close numbers, and sums close to zero, make rounding grow."""
        return True

    def attribute(self, problem: Problem) -> Attribution:
        """One pass forward and one back for each example."""
        values = by_operations(problem, lambda program, points, _: self._explain(program, points), problem.starts[:1])
        if not torch.isfinite(values).all():
            raise NonFiniteError(
                f"relevances overflow with {self!r}: sums close to zero share out many times what they got. Expected a rule "
                "that keeps them small: composite='epsilon-plus' for convolutional networks, or a larger epsilon."
            )
        sizes = values.abs().sum(1) / problem.function.at_input.double().abs().clamp(min=1e-300)
        notes = tuple(f"relevances are {size:.1g} times the score: {_LARGE}" if size > LARGE else "" for size in sizes.tolist())
        rule = str(self.composite or self.rule)
        return problem.dress(Found(values, self.promises, rule, 1, TRACED + 1, compares=False, notes=notes))

    def rule_of(self, step: Step) -> LayerRule:
        """The rule of a layer."""
        kind = "convolution" if step.name == "convolution" else "linear"
        for pattern, rule in self._composite:
            if pattern == kind or (step.module and fnmatchcase(step.module, pattern)) or pattern == "*":
                return rule
        return self.rule

    def _explain(self, program: Program, points: Leaves) -> Leaves:
        program = fused(folded(program))
        self._check_patterns([step for step in program.steps if step.name in WEIGHTED])
        values = program.run(points)
        made_by = {step.out: step for step in program.steps}

        def rule(step: Step, arrived: Any) -> Handed:
            return self._hand(step, values, arrived, made_by)

        return sweep(program, program.scores(values), rule, values)

    def _check_patterns(self, layers: list[Step]) -> None:
        """Refuse a pattern of the user's that no layer matches: a rule that is never used is a slip."""
        for pattern, _ in () if isinstance(self.composite, str) else self.composite:
            if pattern not in ("convolution", "linear", "*") and not any(fnmatchcase(step.module, pattern) for step in layers):
                names = ", ".join(dict.fromkeys(repr(step.module) for step in layers if step.module)) or "none with a name"
                raise OptionError(
                    f"got the pattern {pattern!r} in composite=; expected one that matches a layer of the model: {names}. "
                    "Patterns are 'convolution', 'linear' or dotted names with wildcards."
                )

    def _hand(self, step: Step, values: Values, arrived: Any, made_by: dict[int, Step]) -> Handed:
        kind = kind_of(step, values)
        if kind in (Kind.MOVE, Kind.MAX):
            return vjp(step, values, arrived)
        if kind is Kind.POINTWISE:
            index = step.refs[0]
            return [(index, arrived.sum_to_size(values[index].shape))]
        if kind is Kind.LINEAR:
            return self._linear(step, values, arrived)
        if kind is Kind.PRODUCT:
            return _product(step, values, arrived, made_by)
        if kind is Kind.CUT:
            return []
        if kind is Kind.SOFTMAX:
            raise no_rule(self.name, step, values, do="Expected logits: explain them with score='logit', before the softmax.")
        raise no_rule(self.name, step, values, do=_DO)

    def _linear(self, step: Step, values: Values, arrived: Tensor) -> Handed:
        points = points_of(step, values)
        keeps = self.bias == "keep"
        constant = constant_of(step, points) if keeps else torch.zeros((), dtype=arrived.dtype, device=arrived.device)
        if step.name in WEIGHTED:
            return self.rule_of(step).hand(step, points, arrived, constant)
        if len(points) == 1 and step.name in _SCALES and not keeps:
            index = step.refs[0]
            return [(index, arrived.sum_to_size(values[index].shape))]
        return Epsilon().hand(step, points, arrived, constant)


LARGE = 1e4
_LARGE = "sums close to zero share out many times what they got; composite= or a larger epsilon keeps them small"

_DO = "Expected sums, products, maxima and pointwise functions. Use integrated gradients, which need no rules."

_SCALES = frozenset("mul div neg add sub rsub _to_copy to".split()) | {"sum of terms"}
"""Steps that, with one argument, scale or shift it number by number."""


def _product(step: Step, values: Values, arrived: Tensor, made_by: dict[int, Step]) -> Handed:
    """All to the signal where the other factor is a gate, else half to each."""
    first, second = (step.args[i].index for i in factors(step))
    gates = (_is_gate(first, values, made_by), _is_gate(second, values, made_by) or step.name == "div")
    share = arrived / stabilised(values[step.out], Epsilon().epsilon)
    slopes: dict[int, Tensor] = {}
    for index, place, weight in ((first, 0, gates), (second, 1, gates)):
        part = 0.5 if weight[0] == weight[1] else 0.0 if weight[place] else 1.0
        if part:
            constant = replaced(step, factors(step)[1 - place], values)
            for i, slope in vjp(constant, values, part * share):
                if i == index:
                    slopes[i] = slope if i not in slopes else slopes[i] + slope
    handed = [(i, values[i] * slope) for i, slope in slopes.items()]
    if isinstance(step.args[0], Ref) and step.name in BARE:
        handed += [(i, values[i] * s) for i, s in vjp(step, values, share) if i == step.args[0].index]
    return handed


def replaced(step: Step, place: int, values: Values) -> Step:
    """The step with one of its factors taken as a constant."""
    args = tuple(values[arg.index].detach() if i == place else arg for i, arg in enumerate(step.args))
    return replace(step, args=args)


def _is_gate(index: int, values: Values, made_by: dict[int, Step]) -> bool:
    """Whether a value is the result of a gate, moved or scaled."""
    while index in made_by:
        step = made_by[index]
        if step.name in _GATES or (step.name == "pow" and step.args[1] in (-1, -0.5)):
            return True
        one = len(step.refs) == 1
        if not one or (kind_of(step, values) is not Kind.MOVE and without_constant(step).name not in _SCALES):
            return False
        index = step.refs[0]
    return False
