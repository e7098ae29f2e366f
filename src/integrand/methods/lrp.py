"""How a layer with weights shares its relevance among its inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from ..attribution import Attribution
from ..certificate import Promise, promised
from ..errors import NonFiniteError, OptionError
from ..tracing.kinds import BARE, WEIGHTED, Kind, factors, kind_of
from ..tracing.program import Operation, Program, Ref, Values
from ..tracing.rewriting import folded, fused
from ..tracing.signed import Points, constant_of, hand_signed, points_of, signed_parts, without_constant
from ..tracing.sweep import Handed, no_rule, sweep, vjp
from ..trees import Leaves
from .method import Found, Method, Problem
from .operation_rules import TRACED, by_operations

Shares = list[tuple[int, Tensor]]


def stabilised(value: Tensor, epsilon: float) -> Tensor:
    """A denominator kept away from zero, on its own side of it."""
    return value + torch.where(value >= 0, epsilon, -epsilon)


def _checked(name: str, value: float) -> None:
    if not value >= 0:
        raise OptionError(f"got {name}={value!r}; expected a number from 0 on.")


@dataclass(frozen=True)
class Epsilon:
    """In proportion to the contributions, with denominators kept away from zero.

    Attributes:
        epsilon: what is added to the size of a denominator; it takes its share of the relevance away.
    """

    epsilon: float = 1e-9

    def __post_init__(self) -> None:
        _checked("epsilon", self.epsilon)

    def hand(self, step: Operation, points: Points, arrived: Tensor, constant: Tensor) -> Shares:
        """Relevance for each argument."""
        with torch.no_grad():
            total = without_constant(step)(points) + constant
        slopes = vjp(step, points, arrived / stabilised(total, self.epsilon))
        return [(i, points[i] * slope) for i, slope in slopes]


@dataclass(frozen=True)
class Gamma:
    """Contributions on the side of the sum count (1 + gamma)-fold.

    Attributes:
        gamma: by how much more they count.
        epsilon: as in :class:`Epsilon`.
    """

    gamma: float = 0.25
    epsilon: float = 1e-9

    def __post_init__(self) -> None:
        _checked("gamma", self.gamma)
        _checked("epsilon", self.epsilon)

    def hand(self, step: Operation, points: Points, arrived: Tensor, constant: Tensor) -> Shares:
        """Relevance for each argument."""
        up, down = signed_parts(step, points)
        up, down = up + constant.clamp(min=0), down + constant.clamp(max=0)
        with torch.no_grad():
            positive = step(points) >= 0  # the unit's own sign, its bias included whether or not that gets a share
        total = up + down + self.gamma * torch.where(positive, up, down)
        share = arrived / stabilised(total, self.epsilon)
        more = (1 + self.gamma) * share
        slopes = hand_signed(step, points, torch.where(positive, more, share), torch.where(positive, share, more))
        return [(i, points[i] * slope) for i, slope in slopes]


@dataclass(frozen=True)
class AlphaBeta:
    """Positive contributions get alpha times the relevance, negative ones take beta times of it; z+ is (1, 0).

    Attributes:
        alpha: share of the positive ones.
        beta: share of the negative ones; alpha - beta must be 1.
        epsilon: as in :class:`Epsilon`.
    """

    alpha: float = 2.0
    beta: float = 1.0
    epsilon: float = 1e-9

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "epsilon"):
            _checked(name, getattr(self, name))
        if abs(self.alpha - self.beta - 1) > 1e-9:
            raise OptionError(
                f"got alpha={self.alpha} and beta={self.beta}; expected alpha - beta = 1, so that relevance is kept."
            )

    def hand(self, step: Operation, points: Points, arrived: Tensor, constant: Tensor) -> Shares:
        """Relevance for each argument."""
        up, down = signed_parts(step, points)
        up, down = up + constant.clamp(min=0), down + constant.clamp(max=0)
        to_positive = self.alpha * arrived / stabilised(up, self.epsilon)
        to_negative = -self.beta * arrived / (down - self.epsilon)
        slopes = hand_signed(step, points, to_positive, to_negative)
        return [(i, points[i] * slope) for i, slope in slopes]


LayerRule = Epsilon | Gamma | AlphaBeta
"""The rules of layers."""

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

    def rule_of(self, step: Operation) -> LayerRule:
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

        def rule(step: Operation, arrived: Any) -> Handed:
            return self._hand(step, values, arrived, made_by)

        return sweep(program, program.scores(values), rule, values)

    def _check_patterns(self, layers: list[Operation]) -> None:
        """Refuse a pattern of the user's that no layer matches: a rule that is never used is a slip."""
        for pattern, _ in () if isinstance(self.composite, str) else self.composite:
            if pattern not in ("convolution", "linear", "*") and not any(fnmatchcase(step.module, pattern) for step in layers):
                names = ", ".join(dict.fromkeys(repr(step.module) for step in layers if step.module)) or "none with a name"
                raise OptionError(
                    f"got the pattern {pattern!r} in composite=; expected one that matches a layer of the model: {names}. "
                    "Patterns are 'convolution', 'linear' or dotted names with wildcards."
                )

    def _hand(self, step: Operation, values: Values, arrived: Any, made_by: dict[int, Operation]) -> Handed:
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

    def _linear(self, step: Operation, values: Values, arrived: Tensor) -> Handed:
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


def _product(step: Operation, values: Values, arrived: Tensor, made_by: dict[int, Operation]) -> Handed:
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


def replaced(step: Operation, place: int, values: Values) -> Operation:
    """The step with one of its factors taken as a constant."""
    args = tuple(values[arg.index].detach() if i == place else arg for i, arg in enumerate(step.args))
    return replace(step, args=args)


def _is_gate(index: int, values: Values, made_by: dict[int, Operation]) -> bool:
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
